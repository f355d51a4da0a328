"""TC-IMVC: parity with the authors' run, its operators, planted clusters, statuses, batching."""

from functools import partial

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from optax.projections import projection_simplex
from sklearn.metrics import adjusted_rand_score

from jpltd_jax import Status
from jpltd_jax.baselines import tc_imvc
from jpltd_jax.baselines.base import observed_columns
from jpltd_jax.baselines.graphs import (
    adaptive_neighbors,
    power_shrink,
    power_threshold,
    project_rows_on_simplex,
    schatten_shrink,
)
from jpltd_jax.missing import entrywise
from jpltd_jax.prox import soft_threshold, tubal_shrink
from tests.conftest import DATA
from tests.strategies import orthonormal, seeds, tensors

KEY = 0
HYPER = tc_imvc.Hyper()


def blobs(n=90, dims=(6, 5, 8), rate=0.3, seed=0):
    """Three separable clusters in shuffled order; NaN where missing."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % 3)
    views = [3 * orthonormal(seed + d, 3, d)[labels] + 0.3 * rng.normal(size=(n, d)) for d in dims]
    mask = entrywise(seed, n, len(dims), rate)
    return [np.where(mask[:, v, None], x, np.nan) for v, x in enumerate(views)], mask, labels


def fit(views, mask=None, **options):
    return tc_imvc.fit(views, mask, 3, key=jax.random.key(KEY), **options)


def views_first(x):
    return jnp.asarray(np.moveaxis(x, -1, 0))


@pytest.fixture(scope="module")
def reference():
    with np.load(DATA / "tc_imvc.npz") as archive:
        return {name: archive[name] for name in archive.files}


@pytest.fixture(scope="module")
def recorded(reference):
    """Graphs, mask and hyper-parameters of the authors' run, from the data."""
    with jax.enable_x64(True):
        columns, mask = observed_columns([reference[f"X{v}"].T for v in (1, 2, 3)], reference["mask"].astype(bool))
        graphs = jnp.stack([adaptive_neighbors(x, mask[:, v], 9) for v, x in enumerate(columns)])
        return graphs, mask, tc_imvc.Hyper(b=reference["b"], p=reference["p"], r=reference["r"])


@pytest.fixture(scope="module")
def after_60(reference, recorded):
    """State after 60 iterations with the authors' F, which the data leave undetermined in the first of them."""
    graphs, mask, hyper = recorded
    with jax.enable_x64(True):
        update, finish = jax.jit(tc_imvc.update_tensors), jax.jit(tc_imvc.finish_step)
        state, changes = tc_imvc.initial_state(graphs, 3), []
        for i, F in enumerate(reference["F_first"]):
            np.testing.assert_allclose(state.mu, reference["hist"][i, 4], rtol=1e-12)
            state, change = finish(graphs, mask, hyper, state, update(mask, hyper, state), jnp.asarray(F))
            np.testing.assert_allclose(state.alpha, reference["alpha_hist"][i], atol=1e-10)
            changes.append(change)
    np.testing.assert_allclose(changes, reference["hist"][:60, :3].max(axis=1), atol=1e-10)
    return state


# Parity with the authors' run ---------------------------------------------------------------------------------------


def test_graphs_equal_the_authors(reference, recorded):
    np.testing.assert_allclose(recorded[0], views_first(reference["S"]), atol=1e-14)


def test_run_equals_the_authors_to_the_end(reference, recorded, after_60):
    graphs, mask, hyper = recorded
    result = tc_imvc.solve(graphs, mask, 3, hyper, max_iter=500, init=after_60)
    state, done = result.state, int(reference["iters"])
    assert int(result.n_iter) == done
    assert Status(int(result.status)) is Status.CONVERGED
    np.testing.assert_allclose(state.Z, views_first(reference["Z"]), atol=1e-9)
    np.testing.assert_allclose(state.W, views_first(reference["W"]), atol=1e-9)
    np.testing.assert_allclose(state.F @ state.F.T, reference["F"] @ reference["F"].T, atol=1e-9)
    np.testing.assert_allclose(state.alpha, reference["alpha"], atol=1e-9)
    np.testing.assert_allclose(result.history[60:done], reference["hist"][60:, :3].max(axis=1), atol=1e-9)
    assert np.isnan(result.history[done:]).all()


def test_one_step_equals_the_authors(reference, recorded):
    graphs, mask, hyper = recorded
    mu = jnp.asarray(reference["it100_mu"])
    Z, M, W, Q1, Q3, Y = (views_first(reference[f"it100_{name}"]) for name in ("Z", "M", "W", "Q1", "Q3", "Y"))
    known = mask.T[:, :, None] & mask.T[:, None, :]
    state = tc_imvc.State(
        Z, M, W, jnp.asarray(reference["it100_F"]), jnp.asarray(reference["it100_alpha"]), Q1 + mu * (Z - M),
        Q3 + mu * (Z - W), Y + mu * known * (Z - graphs), 1.1 * mu, jnp.asarray(100, jnp.int32),
    )  # fmt: skip
    after, _ = jax.jit(tc_imvc.step)(graphs, mask, hyper, state)
    for name in ("Z", "M", "W"):
        np.testing.assert_allclose(getattr(after, name), views_first(reference[f"it101_{name}"]), atol=1e-12)
    np.testing.assert_allclose(after.alpha, reference["it101_alpha"], atol=1e-12)
    np.testing.assert_allclose(after.F @ after.F.T, reference["it101_F"] @ reference["it101_F"].T, atol=1e-11)


def test_free_run_differs_from_the_authors_by_the_choice_of_f_only(reference, recorded):
    graphs, mask, hyper = recorded
    result = tc_imvc.solve(graphs, mask, 3, hyper, max_iter=500)
    assert Status(int(result.status)) is Status.CONVERGED
    assert np.abs(result.state.Z - views_first(reference["Z"])).max() < 0.1


# Operators ----------------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(weight=st.floats(0.01, 10), p=st.floats(0.1, 1))
def test_power_shrink_minimises(weight, p):
    """Below the threshold zero is best; well above it the fixed point is reached."""
    threshold = float(power_threshold(weight, p))
    sigma = threshold * np.array([0.5, 0.99, 2.0, 5.0])
    shrunk = np.asarray(jax.jit(power_shrink)(sigma, weight, p))
    np.testing.assert_array_equal(shrunk[:2], 0)
    grid = np.linspace(0, 1, 2001)[:, None] * sigma
    best = np.min(weight * grid**p + (grid - sigma) ** 2 / 2, axis=0)
    value = weight * shrunk**p + (shrunk - sigma) ** 2 / 2
    assert (value <= best * (1 + 1e-4)).all()


def test_power_shrink_limits():
    sigma = jnp.array([0.0, 0.4, 3.0])
    np.testing.assert_allclose(power_shrink(sigma, 0.5, 1.0), soft_threshold(sigma, 0.5), atol=1e-15)
    np.testing.assert_array_equal(power_shrink(sigma, 0.0, 0.5), sigma)
    assert np.isnan(power_shrink(jnp.array([jnp.nan]), 1.0, 0.5)).all()


@settings(max_examples=10)
@given(v=tensors(shapes=[(3, 3, 2), (2, 3, 4)]), tau=st.sampled_from([0.0, 0.5, 100.0]))
def test_schatten_shrink_with_p_1_is_tubal_shrink(v, tau):
    expected = jax.jit(partial(tubal_shrink, method="svd"))(v, tau)
    np.testing.assert_allclose(jax.jit(schatten_shrink)(v, tau, 1.0), expected, atol=1e-10)


@settings(max_examples=10)
@given(seed=seeds, scale=st.sampled_from([0.1, 1.0, 1e6]))
def test_simplex_projection_is_nearest(seed, scale):
    """No allowed vertex lies on the other side of the supporting hyperplane."""
    rng = np.random.default_rng(seed)
    x, allowed = jnp.asarray(scale * rng.normal(size=(2, 4, 7))), rng.random((4, 7)) < 0.7
    allowed[0] = False
    allowed[1:, 2] = True
    y = np.asarray(project_rows_on_simplex(x, jnp.asarray(allowed)))
    assert not y[:, 0].any()
    assert not y[:, ~allowed].any()
    np.testing.assert_allclose(y[:, 1:].sum(axis=-1), 1, atol=1e-12)
    towards = x - y
    at_vertices = np.where(allowed, towards, -np.inf)
    at_y = np.sum(towards * y, axis=-1, keepdims=True)
    assert (y >= 0).all()
    assert (at_vertices <= at_y + 1e-9 * scale)[:, 1:].all()


@settings(max_examples=10)
@given(seed=seeds, n=st.integers(1, 40), scale=st.sampled_from([1e-3, 1.0, 1e3]), dtype=st.sampled_from(["f4", "f8"]))
def test_simplex_projection_agrees_with_sorting(seed, n, scale, dtype):
    """Also where entries tie, and in both precisions."""
    x = jnp.asarray(scale * np.random.default_rng(seed).integers(-3, 4, size=(5, n)), dtype)
    y = project_rows_on_simplex(x, jnp.ones(n, bool))
    assert y.dtype == x.dtype
    expected = jax.vmap(projection_simplex)(x)
    np.testing.assert_allclose(y, expected, atol=8 * n * scale * jnp.finfo(x.dtype).eps)


def test_simplex_projection_of_nan_is_nan():
    y = project_rows_on_simplex(jnp.array([[jnp.nan, 1.0], [0.3, 0.2]]), jnp.ones(2, bool))
    assert np.isnan(y[0]).any()
    np.testing.assert_allclose(y[1], [0.55, 0.45], atol=1e-15)


@settings(max_examples=10)
@given(seed=seeds, r=st.floats(1.05, 5))
def test_weights_and_embedding_minimise_the_spectral_term(seed, r):
    rng = np.random.default_rng(seed)
    W = jnp.asarray(rng.random((3, 8, 8)))
    alpha = jnp.asarray(rng.dirichlet(np.ones(3)))
    symmetric = (W + jnp.swapaxes(W, 1, 2)) / 2
    laplacians = jax.vmap(jnp.diag)(symmetric.sum(axis=1)) - symmetric

    def cost(F, alpha):
        return np.einsum("v,ni,vnk,ki->", alpha**r, F, laplacians, F)

    F = tc_imvc.consensus_embedding(W, alpha, r, 2)
    np.testing.assert_allclose(F.T @ F, np.eye(2), atol=1e-12)
    assert cost(F, alpha) <= cost(orthonormal(seed, 8, 2), alpha) + 1e-12
    best = tc_imvc.view_weights(W, F, r, "laplacian")
    np.testing.assert_allclose(best.sum(), 1, atol=1e-12)
    assert cost(F, best) <= cost(F, alpha) + 1e-12


def test_weights_stay_finite_for_a_negative_affinity():
    W = jnp.asarray([[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
    F = jnp.asarray([[1.0], [-1.0]]) / np.sqrt(2)
    np.testing.assert_allclose(tc_imvc.view_weights(W, F, 1.02), [1, 0], atol=1e-12)


# Clustering ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighting", ["affinity", "laplacian"])
def test_planted_clusters_are_found(weighting):
    views, mask, labels = blobs()
    result = fit(views, mask, weighting=weighting)
    assert adjusted_rand_score(labels, result.labels) > 0.9
    assert result.affinity is None
    np.testing.assert_allclose(np.linalg.norm(result.embedding, axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("dims", [(5,), (2, 1)])
def test_complete_data_one_view_and_narrow_views(dims):
    rng = np.random.default_rng(1)
    labels = rng.permutation(np.arange(30) % 3)
    angle = 2 * np.pi * labels / 3
    plane = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    views = [plane[:, :d] if d < 3 else plane @ rng.normal(size=(2, d)) for d in dims]
    views = [x + 0.05 * rng.normal(size=x.shape) for x in views]
    assert adjusted_rand_score(labels, fit(views).labels) > 0.9


def test_hidden_rows_and_the_form_of_the_input_do_not_matter():
    """NaN or garbage, mask or no mask, float32 views: computed in float64 from what is observed."""
    views, mask, _ = blobs(n=30)
    single = [x.astype(np.float32) for x in views]
    result = fit(single)
    assert result.embedding.dtype == np.float64
    garbage = [np.where(mask[:, v, None], x.astype(float), 1e9 * (1 + v)) for v, x in enumerate(single)]
    np.testing.assert_array_equal(fit(garbage, mask).embedding, result.embedding)


@pytest.mark.parametrize("order", [[1, 2, 0], [1, 0, 2]])
def test_permuting_views_or_samples_permutes_the_result(recorded, after_60, order):
    graphs, mask, hyper = recorded
    solve = partial(tc_imvc.solve, n_clusters=3, hyper=hyper, max_iter=300)
    straight = solve(graphs, mask, init=after_60).state
    order = np.array(order)
    by_view = jax.tree.map(lambda x: x[order] if x.shape[:1] == (3,) else x, after_60)
    state = solve(graphs[order], mask[:, order], init=by_view).state
    np.testing.assert_allclose(state.Z, straight.Z[order], atol=1e-9)
    np.testing.assert_allclose(state.alpha, straight.alpha[order], atol=1e-9)

    shuffle = np.random.default_rng(0).permutation(24)

    def shuffled(x):
        return x[:, shuffle][:, :, shuffle] if x.ndim == 3 else x[shuffle] if x.ndim == 2 else x

    state = solve(shuffled(graphs), mask[shuffle], init=jax.tree.map(shuffled, after_60)).state
    np.testing.assert_allclose(state.Z, shuffled(straight.Z), atol=1e-9)


# Status, compilation, batching --------------------------------------------------------------------------------------


def test_status(reference, recorded, after_60):
    graphs, mask, hyper = recorded
    solve = partial(tc_imvc.solve, n_clusters=3, max_iter=100)
    stopped = solve(graphs, mask, hyper=hyper, init=after_60)
    assert Status(int(stopped.status)) is Status.MAX_ITER
    assert int(stopped.n_iter) == 100
    np.testing.assert_allclose(stopped.state.Z, views_first(reference["it100_Z"]), atol=1e-11)
    for field in ("b", "p", "r"):
        broken = solve(graphs, mask, hyper=hyper._replace(**{field: np.nan}), init=after_60)
        assert Status(int(broken.status)) is Status.NONFINITE
        assert int(broken.n_iter) <= 62
    broken = solve(graphs.at[0, 1, 2].set(np.nan), mask, hyper=hyper)
    assert Status(int(broken.status)) is Status.NONFINITE
    assert Status(int(solve(graphs, mask, hyper=hyper._replace(tol=np.nan), init=after_60).status)) is Status.MAX_ITER


def test_vmap_over_hyper_parameters_equals_single_solves_of_one_compilation(recorded, after_60):
    """From a state where F is determined: before that rounding decides."""
    graphs, mask, _ = recorded
    rows = [(0.3, 0.6, 1.3, 1e-3), (0.03, 1.0, 3.0, 1e-8), (0.3, 0.3, 2.0, 1.0)]
    grid = tc_imvc.Hyper(*jnp.asarray(rows).T)
    solve = partial(tc_imvc.solve, graphs, mask, 3, max_iter=300, init=after_60)
    batch = jax.vmap(solve)(grid)
    solve(HYPER)
    compiled = tc_imvc._solve._cache_size()
    for i in range(3):
        single = solve(jax.tree.map(lambda x, i=i: x[i], grid))
        assert int(batch.status[i]) == int(single.status)
        assert int(batch.n_iter[i]) == int(single.n_iter)
        np.testing.assert_allclose(batch.state.Z[i], single.state.Z, atol=1e-9)
        np.testing.assert_allclose(batch.state.alpha[i], single.state.alpha, atol=1e-9)
    assert tc_imvc._solve._cache_size() == compiled
    assert len(set(np.asarray(batch.n_iter))) > 1


# Errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_neighbors": 43}, "view 1 has 44 observed samples: a graph of 43 neighbours needs 45"),
        ({"n_neighbors": 0}, "n_neighbors must be at least 1, got 0"),
        ({"p": 0.0}, "needs b >= 0, 0 < p <= 1 and r > 1, got b = 0.3, p = 0.0 and r = 1.3"),
        ({"r": 1.0}, "got b = 0.3, p = 0.6 and r = 1.0"),
        ({"b": -1.0}, "got b = -1.0"),
        ({"max_iter": 0}, "max_iter must be at least 1, got 0"),
        ({"weighting": "both"}, "weighting must be 'affinity' or 'laplacian', got 'both'"),
    ],
)
def test_bad_options_are_named(options, message):
    views, _, _ = blobs(n=45, rate=0)
    views[1][3] = np.nan
    with pytest.raises(ValueError, match=message):
        fit(views, **options)


def test_number_of_clusters_is_checked():
    views, _, _ = blobs(n=45)
    with pytest.raises(ValueError, match="n_clusters must be between 1 and the number of samples 45, got 46"):
        tc_imvc.fit(views, None, 46, key=jax.random.key(KEY))


def test_float32_is_refused():
    views, _, _ = blobs(n=45)
    with jax.enable_x64(False), pytest.raises(ValueError, match=r"unsound in float32: it needs jax\.config"):
        fit(views)
