"""IMVC-CBG: parity with recorded runs, descent of the blocks, planted clusters, masks, statuses, compilation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from optax.projections import projection_simplex
from sklearn.metrics import adjusted_rand_score

from jpltd_jax import Status
from jpltd_jax.baselines import imvc_cbg
from jpltd_jax.baselines.base import observed_columns
from jpltd_jax.missing import paper_protocol
from tests.conftest import DATA
from tests.strategies import seeds


@pytest.fixture(scope="module")
def recorded():
    with np.load(DATA / "imvc_cbg.npz") as archive:
        return {name: archive[name] for name in archive.files}


def blobs(seed=0, rate=0.3, n=90, dims=(10, 12, 15)):
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.arange(n) % 3)
    views = [4 * rng.normal(size=(3, d))[classes] + rng.normal(size=(n, d)) for d in dims]
    return views, paper_protocol(seed, n, len(dims), rate), classes


def blob_columns(dtype=np.float64, **options):
    views, mask, _ = blobs(**options)
    return observed_columns(views, mask, dtype=dtype)


def solve_from_first(columns, mask, n_anchors=3, latent_dim=3, lam=0.1, tol=1e-3, max_iter=51):
    start = imvc_cbg.init(columns, jnp.arange(n_anchors), latent_dim=latent_dim)
    return imvc_cbg.solve(columns, mask, start, lam=lam, tol=tol, max_iter=max_iter)


def fit(*arguments, **options):
    return imvc_cbg.fit(*arguments, key=jax.random.key(0), **options)


# Parity -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_anchors", [4, 8])
@pytest.mark.parametrize("lam", ["0", "0.1", "1"])
def test_parity_with_the_recorded_runs(recorded, lam, n_anchors):
    columns, mask = observed_columns([recorded[f"X_{v}"].T for v in range(3)], recorded["mask"])
    solution = solve_from_first(columns, mask, n_anchors, latent_dim=4, lam=float(lam))
    run = f"lam{lam}_m{n_anchors}_"
    expected = {name.removeprefix(run): x for name, x in recorded.items() if name.startswith(run)}
    done = len(expected["objective"])
    assert int(solution.n_iter) == done
    assert int(solution.status) == Status.CONVERGED
    check = partial(np.testing.assert_allclose, atol=1e-12, rtol=0)
    check(solution.state.graph, expected["Z"])
    check(solution.state.anchors, expected["A"])
    check(solution.state.weights, expected["alpha"])
    check(solution.history[:done], expected["objective"])
    assert np.isnan(solution.history[done:]).all()
    if lam == "0":
        for v in range(3):
            check(solution.state.projections[v], expected[f"W_{v}"])


def literal_objective(columns, mask, lam, state):
    """Residuals formed entry by entry over the observed samples."""
    columns, mask, state = jax.tree.map(np.asarray, (columns, mask, state))
    value = lam * np.sum(state.graph**2)
    for v, x in enumerate(columns):
        residual = (x - state.projections[v] @ state.anchors @ state.graph)[:, mask[:, v]]
        value += state.weights[v] ** 2 * np.sum(residual**2)
    return value


def test_history_is_the_objective_and_weights_are_inverse_residuals():
    columns, mask = blob_columns()
    solution = solve_from_first(columns, mask, n_anchors=6)
    last = int(solution.n_iter) - 1
    np.testing.assert_allclose(
        solution.history[last], literal_objective(columns, mask, 0.1, solution.state), rtol=1e-12
    )
    alone = [solution.state._replace(weights=jnp.asarray(np.eye(3)[v])) for v in range(3)]
    residuals = np.sqrt([literal_objective(columns, mask, 0.0, state) for state in alone])
    np.testing.assert_allclose(solution.state.weights, (1 / residuals) / (1 / residuals).sum(), rtol=1e-10)


# Optimality ---------------------------------------------------------------------------------------------------------


def random_state(seed, columns, n_anchors):
    rng = np.random.default_rng(seed)
    state = imvc_cbg.init(columns, jnp.arange(n_anchors), latent_dim=3)
    return state._replace(
        projections=tuple(jnp.linalg.qr(rng.normal(size=(x.shape[0], 3)))[0] for x in columns),
        anchors=jnp.linalg.qr(rng.normal(size=(n_anchors, 3)))[0].T,
        graph=jnp.asarray(rng.dirichlet(np.ones(n_anchors), columns[0].shape[1]).T),
        weights=jnp.asarray(rng.dirichlet(np.ones(len(columns)))),
    )


compiled_step = jax.jit(imvc_cbg.step)


@settings(max_examples=8)
@given(seed=seeds)
def test_each_block_lowers_the_objective_with_as_many_anchors_as_dimensions(seed):
    columns, mask = blob_columns(n=30, dims=(5, 6))
    before = random_state(seed, columns, 3)
    after, _ = compiled_step(columns, mask, 0.1, before)
    stages = [
        before,
        before._replace(projections=after.projections),
        before._replace(projections=after.projections, anchors=after.anchors),
        after._replace(weights=before.weights),
    ]
    values = [literal_objective(columns, mask, 0.1, state) for state in stages]
    assert (np.diff(values) <= 1e-10).all()
    assert values[-1] < values[0]


@settings(max_examples=8)
@given(seed=seeds)
def test_graph_is_a_fixed_point_of_projected_gradient(seed):
    columns, mask = blob_columns(n=30, dims=(5, 6))
    before = random_state(seed, columns, 3)
    after, _ = compiled_step(columns, mask, 0.1, before)

    def objective(graph):
        value = 0.1 * jnp.vdot(graph, graph)
        for v, x in enumerate(columns):
            residual = jnp.where(mask[:, v], x - after.projections[v] @ after.anchors @ graph, 0)
            value += before.weights[v] ** 2 * jnp.vdot(residual, residual)
        return value

    moved = after.graph - jax.grad(objective)(after.graph)
    again = jax.vmap(projection_simplex, in_axes=1, out_axes=1)(moved)
    np.testing.assert_allclose(again, after.graph, atol=1e-12)


@pytest.mark.parametrize("n_anchors", [3, 6])
def test_constraints_hold(n_anchors):
    columns, mask = blob_columns()
    state = solve_from_first(columns, mask, n_anchors).state
    for w in state.projections:
        np.testing.assert_allclose(w.T @ w, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(state.anchors @ state.anchors.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(state.graph.sum(axis=0), 1, atol=1e-12)
    np.testing.assert_allclose(state.weights.sum(), 1, atol=1e-12)
    assert (state.graph >= 0).all()


# Clusters -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anchors", ["first", "random"])
@pytest.mark.parametrize(("rate", "n_anchors"), [(0.3, None), (0.3, 6), (0.0, None)])
def test_planted_clusters_are_found(rate, n_anchors, anchors):
    for seed in range(3):
        views, mask, classes = blobs(seed, rate)
        result = fit(views, mask, 3, n_anchors=n_anchors, anchors=anchors)
        assert int(result.status) == Status.CONVERGED
        assert adjusted_rand_score(classes, result.labels) > 0.9


def test_float32_finds_the_clusters_and_stays_near_float64():
    views, mask, classes = blobs()
    result = fit([x.astype(np.float32) for x in views], mask, 3)
    assert result.embedding.dtype == np.float32
    assert adjusted_rand_score(classes, result.labels) > 0.9
    exact, rounded = (
        solve_from_first(*blob_columns(dtype), tol=0.0, max_iter=4).state.graph for dtype in (np.float64, np.float32)
    )
    np.testing.assert_allclose(rounded, exact, atol=1e-4)


def test_embedding_spans_the_leading_singular_vectors_and_no_null_space():
    graph = np.random.default_rng(0).dirichlet(np.ones(3), 20).T
    doubled = jnp.asarray(np.concatenate([graph, graph]))
    embedding = imvc_cbg.graph_embedding(doubled, 5)
    left = np.linalg.svd(graph.T, full_matrices=False)[0]
    np.testing.assert_allclose(embedding @ embedding.T, left @ left.T, atol=1e-12)
    assert not embedding[:, 3:].any()


# Masks, views, samples ----------------------------------------------------------------------------------------------


def test_what_is_hidden_never_matters():
    views, mask, _ = blobs()
    results = []
    for filler in (np.nan, 1e30, -7.0):
        hidden = [np.where(mask[:, v, None], x, filler) for v, x in enumerate(views)]
        results.append(fit(hidden, mask, 3))
    results.append(fit([np.where(mask[:, v, None], x, np.nan) for v, x in enumerate(views)], None, 3))
    for result in results[1:]:
        np.testing.assert_array_equal(result.embedding, results[0].embedding)
        np.testing.assert_array_equal(result.labels, results[0].labels)


def test_complete_data_equal_with_and_without_mask():
    views, mask, _ = blobs(rate=0.0)
    np.testing.assert_array_equal(fit(views, mask, 3).embedding, fit(views, None, 3).embedding)


def test_permuting_views_permutes_the_result():
    columns, mask = blob_columns()
    order = [2, 0, 1]
    a = solve_from_first(columns, mask)
    b = solve_from_first([columns[v] for v in order], mask[:, jnp.asarray(order)])
    assert int(a.n_iter) == int(b.n_iter)
    np.testing.assert_allclose(b.state.graph, a.state.graph, atol=1e-10)
    np.testing.assert_allclose(b.state.weights, np.asarray(a.state.weights)[order], atol=1e-10)


def test_permuting_samples_with_their_anchors_permutes_the_graph():
    views, mask, _ = blobs()
    shuffle = np.random.default_rng(1).permutation(90)
    columns, present = observed_columns(views, mask)
    a = solve_from_first(columns, present).state.graph
    columns, present = observed_columns([x[shuffle] for x in views], mask[shuffle])
    start = imvc_cbg.init(columns, jnp.asarray(np.argsort(shuffle)[:3]), latent_dim=3)
    b = imvc_cbg.solve(columns, present, start, lam=0.1).state.graph
    np.testing.assert_allclose(b, np.asarray(a)[:, shuffle], atol=1e-10)


def test_random_anchors_depend_on_the_key_and_first_ones_do_not():
    views, mask, _ = blobs()
    embeddings = {
        (anchors, seed): np.asarray(
            imvc_cbg.fit(views, mask, 3, key=jax.random.key(seed), anchors=anchors, max_iter=4).embedding
        )
        for anchors in ("first", "random")
        for seed in (0, 1)
    }
    np.testing.assert_array_equal(embeddings["first", 0], embeddings["first", 1])
    assert np.abs(embeddings["random", 0] - embeddings["random", 1]).max() > 1e-3


# Degenerate cases and statuses --------------------------------------------------------------------------------------


def test_single_view_few_observed_samples_and_one_cluster():
    views, _, classes = blobs(rate=0.0)
    assert adjusted_rand_score(classes, fit(views[:1], None, 3).labels) > 0.9
    mask = np.ones((90, 3), bool)
    mask[2:, 1] = False
    result = fit(views, mask, 3)
    assert int(result.status) in (Status.CONVERGED, Status.MAX_ITER)
    assert np.isfinite(result.embedding).all()
    assert not fit(views, mask, 1).labels.any()


def test_samples_that_are_fitted_exactly_do_not_divide_by_zero():
    copies = np.eye(3)[np.arange(12) % 3]
    result = fit([copies, copies + 1.0], None, 3, lam=0.0)
    assert int(result.status) == Status.CONVERGED
    assert adjusted_rand_score(np.arange(12) % 3, result.labels) == 1


@pytest.mark.parametrize("lam", [np.nan, np.inf])
def test_nonfinite_hyper_parameter_ends_as_nonfinite(lam):
    views, mask, _ = blobs()
    result = fit(views, mask, 3, lam=lam)
    assert int(result.status) == Status.NONFINITE
    assert int(result.n_iter) == 1


def test_nonfinite_data_end_as_nonfinite():
    columns, mask = blob_columns()
    broken = [columns[0].at[1, 5].set(jnp.nan), *columns[1:]]
    assert int(solve_from_first(broken, mask).status) == Status.NONFINITE


def test_max_iter_is_reported():
    views, mask, _ = blobs()
    result = fit(views, mask, 3, tol=0.0, max_iter=4)
    assert int(result.status) == Status.MAX_ITER
    assert int(result.n_iter) == 4
    assert np.isfinite(result.history).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be between 1 and the number of samples 90, got 0"),
        ({"n_clusters": 91}, "n_clusters must be between 1 and the number of samples 90, got 91"),
        ({"n_clusters": 11}, "view 0 has 10 features, fewer than n_clusters = 11"),
        ({"n_anchors": 2}, "n_anchors must be between n_clusters = 3 and 90 samples, got 2"),
        ({"n_anchors": 91}, "n_anchors must be between n_clusters = 3 and 90 samples, got 91"),
        ({"lam": -1.0}, "lam must not be negative, got -1.0"),
        ({"anchors": "best"}, "anchors must be one of 'first', 'random', got 'best'"),
        ({"max_iter": 0}, "max_iter must be at least 1, got 0"),
        ({"mask": np.zeros((90, 3), bool)}, "view 0 has no observed sample"),
    ],
)
def test_bad_input_is_named(options, message):
    views, mask, _ = blobs()
    with pytest.raises(ValueError, match=message):
        fit(views, **({"mask": mask, "n_clusters": 3} | options))


# Compilation --------------------------------------------------------------------------------------------------------


def test_one_compilation_serves_all_hyper_parameters():
    columns, mask = blob_columns()
    solve_from_first(columns, mask)
    before = imvc_cbg._solve._cache_size()
    for lam, tol in ((1, 1e-4), (np.float32(0.5), 0), (jnp.asarray(10.0), 1e-3)):
        solve_from_first(columns, mask, lam=lam, tol=tol)
    assert imvc_cbg._solve._cache_size() == before


def test_vmap_over_hyper_parameters_equals_single_solves():
    columns, mask = blob_columns()
    lams = jnp.asarray([0.001, 0.1, 1.0, 10.0])
    batch = jax.vmap(lambda lam: solve_from_first(columns, mask, lam=lam))(lams)
    for i, lam in enumerate(lams):
        single = solve_from_first(columns, mask, lam=lam)
        assert int(batch.n_iter[i]) == int(single.n_iter)
        assert int(batch.status[i]) == int(single.status)
        np.testing.assert_allclose(batch.state.graph[i], single.state.graph, atol=1e-10)
    assert len(set(np.asarray(batch.n_iter))) > 1
