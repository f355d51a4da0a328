"""TC-IMVC: parity with the authors' run, its updates, permutations, precision, bad input."""

from dataclasses import replace

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from jpltd_jax.loop import Loop, Solution, Status, check_hyper, prepare, run
from jpltd_jax.methods import tc_imvc
from jpltd_jax.methods.tc_imvc import TC_IMVC, Config, Hyper, State
from jpltd_jax.missing import entrywise
from jpltd_jax.problem import make_problem
from tests.conftest import DATA
from tests.strategies import orthonormal, seeds

LOOP = Loop(max_iter=500)


def views_first(x):
    return jnp.asarray(np.moveaxis(x, -1, 0))


def clusters(embedding):
    return KMeans(3, n_init=10, random_state=0).fit_predict(np.asarray(embedding))


def free_run(data, hyper=None):
    return run(TC_IMVC, data, Hyper() if hyper is None else hyper, jax.random.key(0), LOOP)


@pytest.fixture(scope="module")
def reference():
    with np.load(DATA / "tc_imvc.npz") as archive:
        return {name: archive[name] for name in archive.files}


@pytest.fixture(scope="module")
def hyper(reference):
    return Hyper(b=float(reference["b"]), p=float(reference["p"]), r=float(reference["r"]))


@pytest.fixture(scope="module")
def recorded(reference):
    """Views and mask of the authors' run."""
    return [reference[f"X{v}"].T for v in (1, 2, 3)], reference["mask"].astype(bool)


@pytest.fixture(scope="module")
def data(recorded):
    with jax.enable_x64(True):
        return prepare(TC_IMVC, make_problem(*recorded), 3)


@pytest.fixture(scope="module")
def after_60(reference, data, hyper):
    """Sixty iterations with the authors' F, which the data leave undetermined in the first of them."""
    with jax.enable_x64(True):
        update, finish = jax.jit(tc_imvc.update_tensors), jax.jit(tc_imvc.finish_step)
        state, changes = tc_imvc.init(jax.random.key(0), data, hyper), []
        for i, F in enumerate(reference["F_first"]):
            np.testing.assert_allclose(state.mu, reference["hist"][i, 4], rtol=1e-12)
            state, change = finish(data, hyper, state, update(data, hyper, state), jnp.asarray(F))
            np.testing.assert_allclose(state.alpha, reference["alpha_hist"][i], atol=1e-10)
            changes.append(change)
        np.testing.assert_allclose(changes, reference["hist"][:60, :3].max(axis=1), atol=1e-10)
        made = jnp.asarray(60, jnp.int32)
        return Solution(None, None, state, jnp.asarray(Status.RUNNING, jnp.int32), made, jnp.stack(changes))


@pytest.fixture(scope="module")
def to_the_end(data, hyper, after_60):
    with jax.enable_x64(True):
        return run(TC_IMVC, data, hyper, after_60, LOOP)


# Parity with the authors' run ---------------------------------------------------------------------------------------


def test_graphs_equal_the_authors(reference, data):
    np.testing.assert_allclose(data.graphs, views_first(reference["S"]), atol=1e-14)


def test_run_equals_the_authors_to_the_end(reference, to_the_end):
    state, done = to_the_end.state, int(reference["iters"])
    assert int(to_the_end.n_iter) == done
    assert to_the_end.status is Status.CONVERGED
    np.testing.assert_allclose(state.Z, views_first(reference["Z"]), atol=1e-9)
    np.testing.assert_allclose(state.W, views_first(reference["W"]), atol=1e-9)
    np.testing.assert_allclose(state.F @ state.F.T, reference["F"] @ reference["F"].T, atol=1e-9)
    np.testing.assert_allclose(state.alpha, reference["alpha"], atol=1e-9)
    np.testing.assert_allclose(to_the_end.history[60:done], reference["hist"][60:, :3].max(axis=1), atol=1e-9)
    assert np.isnan(to_the_end.history[done:]).all()
    np.testing.assert_allclose(np.linalg.norm(to_the_end.embedding, axis=1), 1, atol=1e-12)


def test_hundred_steps_equal_the_authors(reference, data, hyper, after_60):
    state = after_60.state
    for _ in range(40):
        state, _ = tc_imvc.step(data, hyper, state)
    np.testing.assert_allclose(state.Z, views_first(reference["it100_Z"]), atol=1e-11)


def test_one_step_equals_the_authors(reference, data, hyper):
    mu = jnp.asarray(reference["it100_mu"])
    Z, M, W, Q1, Q3, Y = (views_first(reference[f"it100_{name}"]) for name in ("Z", "M", "W", "Q1", "Q3", "Y"))
    state = State(
        Z=Z,
        M=M,
        W=W,
        F=jnp.asarray(reference["it100_F"]),
        alpha=jnp.asarray(reference["it100_alpha"]),
        Q1=Q1 + mu * (Z - M),
        Q3=Q3 + mu * (Z - W),
        Y=Y + mu * data.known * (Z - data.graphs),
        mu=1.1 * mu,
    )
    after, _ = tc_imvc.step(data, hyper, state)
    for name in ("Z", "M", "W"):
        np.testing.assert_allclose(getattr(after, name), views_first(reference[f"it101_{name}"]), atol=1e-12)
    np.testing.assert_allclose(after.alpha, reference["it101_alpha"], atol=1e-12)
    np.testing.assert_allclose(after.F @ after.F.T, reference["it101_F"] @ reference["it101_F"].T, atol=1e-11)


def test_free_run_differs_from_the_authors_by_the_choice_of_f_only(reference, data, hyper):
    result = free_run(data, hyper)
    assert result.status is Status.CONVERGED
    assert np.abs(result.state.Z - views_first(reference["Z"])).max() < 0.1


# Updates ------------------------------------------------------------------------------------------------------------


embed = jax.jit(tc_imvc.consensus_embedding, static_argnums=3)
weigh = jax.jit(tc_imvc.view_weights, static_argnums=3)


@settings(max_examples=10)
@given(seed=seeds, r=st.floats(1.05, 5))
def test_weights_and_embedding_minimise_the_spectral_term(seed, r):
    rng = np.random.default_rng(seed)
    W, alpha = rng.random((3, 8, 8)), rng.dirichlet(np.ones(3))
    symmetric = (W + np.swapaxes(W, 1, 2)) / 2
    laplacians = np.stack([np.diag(x.sum(axis=0)) - x for x in symmetric])

    def cost(F, alpha):
        return np.einsum("v,ni,vnk,ki->", alpha**r, F, laplacians, F)

    F = np.asarray(embed(W, alpha, r, 2))
    np.testing.assert_allclose(F.T @ F, np.eye(2), atol=1e-12)
    assert cost(F, alpha) <= cost(orthonormal(seed, 8, 2), alpha) + 1e-12
    best = np.asarray(weigh(W, F, r, "laplacian"))
    np.testing.assert_allclose(best.sum(), 1, atol=1e-12)
    assert cost(F, best) <= cost(F, alpha) + 1e-12


def test_weights_stay_finite_for_a_negative_affinity():
    W = np.array([[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
    F = np.array([[1.0], [-1.0]]) / np.sqrt(2)
    np.testing.assert_allclose(weigh(W, F, 1.02, "affinity"), [1, 0], atol=1e-12)


def test_what_is_not_finite_is_watched(data, hyper, after_60):
    def change(state):
        return tc_imvc.step(data, hyper, state)[1]

    assert np.isfinite(change(after_60.state))
    assert np.isnan(change(after_60.state._replace(alpha=jnp.full(3, jnp.nan))))
    broken = free_run(replace(data, graphs=data.graphs.at[0, 1, 2].set(jnp.nan)))
    assert broken.status is Status.NONFINITE


# Clustering ---------------------------------------------------------------------------------------------------------


def test_planted_clusters_are_found_with_the_weights_that_the_model_asks():
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(24) % 3)
    views = [3 * orthonormal(d, 3, d)[labels] + 0.3 * rng.normal(size=(24, d)) for d in (9, 12, 7)]
    mask = entrywise(0, 24, 3, 0.3)
    result = free_run(prepare(TC_IMVC, make_problem(views, mask), 3, Config(n_neighbors=5, weighting="laplacian")))
    assert adjusted_rand_score(labels, clusters(result.embedding)) > 0.9
    W, F = np.asarray(result.state.W), np.asarray(result.state.F)
    distances = np.sum((F[:, None] - F) ** 2, axis=2)
    weights = np.sum(W * distances, axis=(1, 2)) ** (1 / (1 - Hyper().r))
    np.testing.assert_allclose(result.state.alpha, weights / weights.sum(), atol=1e-9)


@pytest.mark.parametrize("dims", [(5,), (2, 2, 1)])
def test_complete_data_one_view_and_narrow_views(dims):
    rng = np.random.default_rng(1)
    labels = rng.permutation(np.arange(24) % 3)
    angle = 2 * np.pi * labels / 3
    plane = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    views = [plane[:, :d] if d < 3 else plane @ rng.normal(size=(2, d)) for d in dims]
    views = [x + 0.05 * rng.normal(size=x.shape) for x in views]
    result = free_run(prepare(TC_IMVC, make_problem(views), 3))
    assert adjusted_rand_score(labels, clusters(result.embedding)) > 0.9


@pytest.mark.parametrize("order", [[1, 2, 0], [1, 0, 2]])
def test_permuting_views_permutes_the_result(data, hyper, after_60, to_the_end, order):
    order = np.array(order)

    def permuted(tree):
        return jax.tree.map(lambda x: x[order] if x.shape[:1] == (3,) else x, tree)

    state = run(TC_IMVC, permuted(data), hyper, after_60._replace(state=permuted(after_60.state)), LOOP).state
    np.testing.assert_allclose(state.Z, to_the_end.state.Z[order], atol=1e-9)
    np.testing.assert_allclose(state.alpha, to_the_end.state.alpha[order], atol=1e-9)


def test_permuting_samples_with_their_start_permutes_the_result(data, hyper, after_60, to_the_end):
    order = np.random.default_rng(0).permutation(24)

    def permuted(tree):
        def one(x):
            return x[:, order][:, :, order] if x.ndim == 3 else x[order] if x.ndim == 2 else x

        return jax.tree.map(one, tree)

    state = run(TC_IMVC, permuted(data), hyper, after_60._replace(state=permuted(after_60.state)), LOOP).state
    np.testing.assert_allclose(state.Z, permuted(to_the_end.state.Z), atol=1e-9)


# Precision ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def single(recorded):
    with jax.enable_x64(False):
        problem = make_problem(*recorded)
    assert problem.data.dtype == jnp.float32
    return problem


def test_computes_in_float64_with_x64_off(single, hyper, after_60, to_the_end):
    with jax.enable_x64(False):
        off = run(TC_IMVC, prepare(TC_IMVC, single, 3), hyper, after_60, LOOP)
    floating = [x for x in jax.tree.leaves(off) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert {x.dtype for x in floating} == {np.dtype(np.float64)}
    on = run(TC_IMVC, prepare(TC_IMVC, single, 3), hyper, after_60, LOOP)
    jax.tree.map(np.testing.assert_array_equal, off, on)
    np.testing.assert_allclose(off.state.Z, to_the_end.state.Z, atol=1e-6)


def test_traces_in_float64_with_x64_off(single, after_60):
    """From a state where F is determined: before that rounding decides."""
    rows = np.array([(0.3, 0.6, 1.3, 1e-3), (0.03, 1.0, 3.0, 1e-8)], np.float32)

    def solve(problem, hyper):
        return run(TC_IMVC, prepare(TC_IMVC, problem, 3), hyper, after_60, LOOP)

    with jax.enable_x64(False):
        batch = jax.jit(jax.vmap(solve, in_axes=(None, 0)))(single, Hyper(*jnp.asarray(rows.T)))
        jitted = jax.jit(solve)(single, Hyper(*jnp.asarray(rows[1])))
    assert batch.embedding.dtype == jitted.embedding.dtype == np.float64
    for i, row in enumerate(rows):
        alone = solve(single, Hyper(*map(float, row)))
        assert int(batch.n_iter[i]) == int(alone.n_iter)
        np.testing.assert_allclose(batch.state.Z[i], alone.state.Z, atol=1e-9)
        np.testing.assert_allclose(batch.state.alpha[i], alone.state.alpha, atol=1e-9)
    np.testing.assert_allclose(jitted.state.Z, alone.state.Z, atol=1e-9)


# Errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors must be at least 1, got 0"),
        ({"weighting": "both"}, "weighting must be one of 'affinity', 'laplacian', got 'both'"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Config(**options)


@pytest.mark.parametrize("values", [{"b": -1.0}, {"p": 0.0}, {"p": 1.5}, {"r": 1.0}, {"tol": -1.0}])
def test_bad_numbers_are_named(values):
    (name,) = values
    with pytest.raises(ValueError, match=f"TC-IMVC: {name} must be a float in the range"):
        check_hyper(TC_IMVC, Hyper(**values))


def test_view_with_too_few_samples_is_named(recorded):
    views, mask = recorded
    mask = mask.copy()
    mask[np.flatnonzero(mask[:, 1])[10:], 1] = False
    with pytest.raises(ValueError, match="view 1 has 10 observed samples: a graph of 9 neighbours needs 11"):
        prepare(TC_IMVC, make_problem(views, mask), 3)
