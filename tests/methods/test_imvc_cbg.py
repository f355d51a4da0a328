"""IMVC-CBG: parity with recorded runs, descent of the blocks, constraints, permutations, degenerate data."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from jpltd_jax.loop import Status, check_hyper, prepare, run
from jpltd_jax.methods.imvc_cbg import IMVC_CBG, Config, Hyper, graph_embedding, init, step
from jpltd_jax.missing import paper_protocol
from jpltd_jax.problem import make_problem
from tests.conftest import DATA
from tests.strategies import seeds

KEY = jax.random.key(0)
N, DIMS, CLUSTERS = 60, (12, 9, 15), 4
"""The size of the recorded problem, which all tests share so that they share its compiled programs."""


@pytest.fixture(scope="module")
def recorded():
    with np.load(DATA / "imvc_cbg.npz") as archive:
        return {name: archive[name] for name in archive.files}


def prepared(views, mask, n_clusters=CLUSTERS, **options):
    return prepare(IMVC_CBG, make_problem(views, mask), n_clusters, Config(**options))


def blobs(seed=0, rate=0.3):
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.arange(N) % CLUSTERS)
    views = [4 * rng.normal(size=(CLUSTERS, d))[classes] + rng.normal(size=(N, d)) for d in DIMS]
    return views, paper_protocol(seed, N, len(DIMS), rate), classes


def blob_data(n_anchors=CLUSTERS, **options):
    views, mask, _ = blobs(**options)
    return prepared(views, mask, n_anchors=n_anchors)


def solve(data, start=KEY, **hyper):
    return run(IMVC_CBG, data, Hyper(**hyper), start)


def agreement(classes, solution):
    """Of k-means by scikit-learn on the embedding with the classes."""
    embedding = np.asarray(solution.embedding)
    found = KMeans(embedding.shape[1], n_init=20, random_state=0).fit_predict(embedding)
    return adjusted_rand_score(classes, found)


# Parity -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_anchors", [4, 8])
@pytest.mark.parametrize("lam", ["0", "0.1", "1"])
def test_parity_with_the_recorded_runs(recorded, lam, n_anchors):
    data = prepared([recorded[f"X_{v}"].T for v in range(3)], recorded["mask"], n_anchors=n_anchors)
    solution = solve(data, lam=float(lam))
    prefix = f"lam{lam}_m{n_anchors}_"
    expected = {name.removeprefix(prefix): x for name, x in recorded.items() if name.startswith(prefix)}
    done = len(expected["objective"])
    assert int(solution.n_iter) == done
    assert solution.status is Status.CONVERGED
    close = partial(np.testing.assert_allclose, atol=1e-12, rtol=0)
    close(solution.state.graph, expected["Z"])
    close(solution.state.anchors, expected["A"])
    close(solution.state.weights, expected["alpha"])
    close(solution.history[:done], expected["objective"])
    assert np.isnan(solution.history[done:]).all()
    if lam == "0":
        for v in range(3):
            close(solution.state.projections[v], expected[f"W_{v}"])


def literal_objective(data, lam, state):
    """Residuals formed entry by entry over the observed samples."""
    columns, mask, state = jax.tree.map(np.asarray, (data.columns, data.mask, state))
    value = lam * np.sum(state.graph**2)
    for v, x in enumerate(columns):
        residual = (x - state.projections[v] @ state.anchors @ state.graph)[:, mask[v]]
        value += state.weights[v] ** 2 * np.sum(residual**2)
    return value


def test_history_is_the_objective_and_weights_are_inverse_residuals():
    data = blob_data(n_anchors=8)
    solution = solve(data)
    last = int(solution.n_iter) - 1
    np.testing.assert_allclose(solution.history[last], literal_objective(data, 0.1, solution.state), rtol=1e-12)
    alone = [solution.state._replace(weights=np.eye(3)[v]) for v in range(3)]
    residuals = np.sqrt([literal_objective(data, 0.0, state) for state in alone])
    np.testing.assert_allclose(solution.state.weights, (1 / residuals) / (1 / residuals).sum(), rtol=1e-10)


# Optimality ---------------------------------------------------------------------------------------------------------


def random_step(seed):
    """A step from a random state with as many anchors as dimensions: (data, state before, state after)."""
    data, rng = blob_data(), np.random.default_rng(seed)
    before = init(KEY, data, Hyper())._replace(
        projections=tuple(jnp.asarray(np.linalg.qr(rng.normal(size=(d, CLUSTERS)))[0]) for d in DIMS),
        anchors=jnp.asarray(np.linalg.qr(rng.normal(size=(CLUSTERS, CLUSTERS)))[0].T),
        graph=jnp.asarray(rng.dirichlet(np.ones(CLUSTERS), N).T),
        weights=jnp.asarray(rng.dirichlet(np.ones(len(DIMS)))),
    )
    return data, before, step(data, Hyper(lam=0.1), before)[0]


@settings(max_examples=8)
@given(seed=seeds)
def test_each_block_lowers_the_objective_with_as_many_anchors_as_dimensions(seed):
    data, before, after = random_step(seed)
    stages = [
        before,
        before._replace(projections=after.projections),
        before._replace(projections=after.projections, anchors=after.anchors),
        after._replace(weights=before.weights),
    ]
    values = [literal_objective(data, 0.1, state) for state in stages]
    assert (np.diff(values) <= 1e-10).all()
    assert values[-1] < values[0]


@settings(max_examples=8)
@given(seed=seeds)
def test_graph_satisfies_the_optimality_conditions_on_the_simplex(seed):
    """The gradient is smallest, and equal, where a column of Z is positive."""
    data, before, after = jax.tree.map(np.asarray, random_step(seed))
    gradient = 2 * 0.1 * after.graph
    for v, x in enumerate(data.columns):
        w = after.projections[v] @ after.anchors
        residual = np.where(data.mask[v], w @ after.graph - x, 0)
        gradient += 2 * before.weights[v] ** 2 * w.T @ residual
    above = gradient - gradient.min(axis=0)
    np.testing.assert_allclose(np.where(after.graph > 0, above, 0), 0, atol=1e-12)
    assert (after.graph >= 0).all()
    np.testing.assert_allclose(after.graph.sum(axis=0), 1, atol=1e-12)


@pytest.mark.parametrize("n_anchors", [4, 8])
def test_constraints_hold(n_anchors):
    state = solve(blob_data(n_anchors=n_anchors)).state
    for w in state.projections:
        np.testing.assert_allclose(w.T @ w, np.eye(CLUSTERS), atol=1e-12)
    np.testing.assert_allclose(state.anchors @ state.anchors.T, np.eye(CLUSTERS), atol=1e-12)
    np.testing.assert_allclose(state.graph.sum(axis=0), 1, atol=1e-12)
    np.testing.assert_allclose(state.weights.sum(), 1, atol=1e-12)
    assert (state.graph >= 0).all()


# Clusters -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anchors", ["first", "random"])
@pytest.mark.parametrize(("rate", "n_anchors"), [(0.3, 4), (0.3, 8), (0.0, 4)])
def test_planted_clusters_are_found(rate, n_anchors, anchors):
    """The start is made apart from the run, so that both kinds of anchors share one program."""
    for seed in range(3):
        views, mask, classes = blobs(seed, rate)
        data = prepared(views, mask, n_anchors=n_anchors)
        start = init(KEY, replace(data, config=Config(n_anchors, anchors)), Hyper())
        solution = solve(data, start)
        assert solution.status is Status.CONVERGED
        assert agreement(classes, solution) > 0.9


def test_embedding_spans_the_leading_singular_vectors_and_no_null_space():
    graph = np.random.default_rng(0).dirichlet(np.ones(3), 20).T
    doubled = jnp.asarray(np.concatenate([graph, graph]))
    embedding = graph_embedding(doubled, 5)
    left = np.linalg.svd(graph.T, full_matrices=False)[0]
    np.testing.assert_allclose(embedding @ embedding.T, left @ left.T, atol=1e-12)
    assert not embedding[:, 3:].any()


# Views, samples, anchors --------------------------------------------------------------------------------------------


def test_permuting_views_permutes_the_result():
    views, mask, _ = blobs()
    permuted = [2, 0, 1]
    a = solve(prepared(views, mask, n_anchors=CLUSTERS))
    b = solve(prepared([views[v] for v in permuted], mask[:, permuted], n_anchors=CLUSTERS))
    assert int(a.n_iter) == int(b.n_iter)
    np.testing.assert_allclose(b.state.graph, a.state.graph, atol=1e-10)
    np.testing.assert_allclose(b.state.weights, np.asarray(a.state.weights)[permuted], atol=1e-10)


def test_permuting_samples_with_their_anchors_permutes_the_graph():
    views, mask, _ = blobs()
    shuffle = np.random.default_rng(1).permutation(N)
    a = solve(prepared(views, mask, n_anchors=CLUSTERS)).state.graph
    data = prepared([x[shuffle] for x in views], mask[shuffle], n_anchors=CLUSTERS)
    start = init(KEY, data, Hyper())
    same_anchors = np.eye(N)[np.argsort(shuffle)[:CLUSTERS]]
    b = solve(data, start._replace(graph=jnp.asarray(same_anchors))).state.graph
    np.testing.assert_allclose(b, np.asarray(a)[:, shuffle], atol=1e-10)


def test_random_anchors_depend_on_the_key_and_first_ones_do_not():
    first = blob_data(n_anchors=8)
    random = replace(first, config=Config(n_anchors=8, anchors="random"))
    keys = jax.random.split(KEY, 3)
    for key in keys:
        np.testing.assert_array_equal(init(key, first, Hyper()).graph, np.eye(8, N))
        expected = np.eye(N)[np.asarray(jax.random.permutation(key, N))[:8]]
        np.testing.assert_array_equal(init(key, random, Hyper()).graph, expected)
    assert len({init(key, random, Hyper()).graph.tobytes() for key in keys}) == 3


def test_there_are_as_many_anchors_as_clusters_unless_told():
    views, mask, _ = blobs()
    assert init(KEY, prepared(views, mask, 3), Hyper()).graph.shape == (3, N)


# Degenerate cases and statuses --------------------------------------------------------------------------------------


def test_a_view_with_two_observed_samples_works():
    views, _, _ = blobs()
    mask = np.ones((N, 3), bool)
    mask[2:, 1] = False
    solution = solve(prepared(views, mask, n_anchors=CLUSTERS))
    assert solution.status in (Status.CONVERGED, Status.MAX_ITER)
    assert np.isfinite(solution.embedding).all()


def test_a_single_view_and_a_single_cluster_work():
    views, _, classes = blobs(rate=0.0)
    assert agreement(classes, solve(prepared(views[:1], None))) > 0.9
    one = solve(prepared(views[:1], None, 1))
    assert one.status is Status.CONVERGED
    np.testing.assert_allclose(np.abs(one.embedding), 1 / np.sqrt(N), atol=1e-12)


def test_samples_that_are_fitted_exactly_do_not_divide_by_zero():
    classes = np.arange(N) % CLUSTERS
    copies = [np.eye(CLUSTERS, d)[classes] for d in DIMS]
    solution = solve(prepared(copies, None, n_anchors=CLUSTERS), lam=0.0)
    assert solution.status is Status.CONVERGED
    assert agreement(classes, solution) == 1


def test_a_first_objective_of_nearly_zero_does_not_end_the_run():
    settled = partial(IMVC_CBG.settled, Hyper(tol=1e-3))
    assert not settled(0, jnp.nan, 1e-12)
    assert settled(1, 1.0, 1e-12)
    assert settled(1, 1.0, 0.9995)
    assert settled(1, 1.0, 1.0005)
    assert not settled(1, 1.0, 0.998)


def test_nonfinite_data_end_as_nonfinite():
    data = blob_data()
    broken = replace(data, columns=(data.columns[0].at[1, 5].set(jnp.nan), *data.columns[1:]))
    solution = solve(broken)
    assert solution.status is Status.NONFINITE
    assert int(solution.n_iter) == 1


@pytest.mark.parametrize(
    ("n_clusters", "n_anchors", "message"),
    [
        (10, None, "view 1 has 9 features, fewer than n_clusters = 10"),
        (3, 2, "n_anchors must be between n_clusters = 3 and 60 samples, got 2"),
        (3, 61, "n_anchors must be between n_clusters = 3 and 60 samples, got 61"),
    ],
)
def test_what_does_not_fit_the_data_is_named(n_clusters, n_anchors, message):
    views, mask, _ = blobs()
    with pytest.raises(ValueError, match=message):
        prepared(views, mask, n_clusters, n_anchors=n_anchors)


def test_bad_options_are_named():
    with pytest.raises(ValueError, match="anchors must be one of 'first', 'random', got 'best'"):
        Config(anchors="best")
    with pytest.raises(ValueError, match="n_anchors must be at least 1, got 0"):
        Config(n_anchors=0)
    for name in Hyper._fields:
        check_hyper(IMVC_CBG, Hyper(**{name: 0.0}))
        with pytest.raises(ValueError, match=rf"IMVC-CBG: {name} must be a float in the range \[0.0, inf\), got -1"):
            check_hyper(IMVC_CBG, Hyper(**{name: -1.0}))
