"""HCP-IMSC: parity with the authors' run, the blocks against literal forms, invariances, statuses, compilation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.metrics import adjusted_rand_score

import jpltd_jax as jj
from jpltd_jax.baselines import hcp_imsc
from jpltd_jax.baselines.graphs import adaptive_neighbors
from jpltd_jax.spectral import spectral_embedding
from tests.conftest import DATA
from tests.strategies import seeds

KEY = jax.random.key(0)
complete_views = jax.jit(hcp_imsc.complete_views)
low_rank_copy = jax.jit(hcp_imsc.low_rank_copy, static_argnames="n_views")
hypergraph_laplacian = jax.jit(hcp_imsc.hypergraph_laplacian, static_argnames=("hyperedge_size", "hyperedge_weights"))


@pytest.fixture(scope="module")
def recorded():
    with np.load(DATA / "hcp_imsc.npz") as archive:
        run = {name: archive[name] for name in archive.files}
    return run | {"views": [run[f"X{v}"].T for v in (1, 2, 3)], "mask": run["mask"].astype(bool)}


@pytest.fixture
def problem(recorded):
    return jj.make_problem(recorded["views"], recorded["mask"])


def hyper_of(recorded):
    return hcp_imsc.Hyper(recorded["lambda1"], recorded["lambda2"])


solve = partial(hcp_imsc.solve, n_clusters=3)


def status_of(result):
    return jj.Status(int(result.status))


def blobs(rate, seed=0, n=90, dims=(10, 20, 30), dtype=np.float64):
    """Three separated clusters in random order; the given part of all entries missing."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % 3)
    views = [(rng.normal(size=(3, d))[labels] + 0.2 * rng.normal(size=(n, d))).astype(dtype) for d in dims]
    mask = rng.random((n, len(dims))) >= rate
    mask[np.arange(n), rng.integers(0, len(dims), n)] = True
    return views, mask, labels


# Parity with the authors' run ---------------------------------------------------------------------------------------


def test_blocks_of_the_first_iteration_of_the_authors_run(recorded, problem):
    start = hcp_imsc._initial_state(problem.data, 3)
    Z = hcp_imsc._affinities(start, jnp.asarray(recorded["lambda2"]))
    R = jnp.mean(Z, axis=0)
    np.testing.assert_allclose(R, recorded["it1_R"], atol=1e-13)
    np.testing.assert_allclose(hcp_imsc._self_weights(Z, R), recorded["it1_omega"], rtol=1e-12)
    np.testing.assert_allclose(hcp_imsc.graph_laplacian(R, n_neighbors=15), recorded["it1_L"], atol=1e-12)
    spectrum = jnp.fft.rfft(Z, axis=0)
    C, _ = low_rank_copy(spectrum, hcp_imsc._leading_rows(spectrum, 3), n_views=3)
    np.testing.assert_allclose(np.moveaxis(C, 0, -1), recorded["it1_G"], atol=1e-12)


def test_second_iteration_of_the_authors_run(recorded, problem):
    state = solve(problem, hyper_of(recorded), hyperedge_weights="reference", max_iter=2).state
    np.testing.assert_allclose(state.R, recorded["it2_R"], atol=1e-13)
    np.testing.assert_allclose(state.omega, recorded["it2_omega"], rtol=1e-12)
    laplacian = hypergraph_laplacian(state.R, hyperedge_size=10, hyperedge_weights="reference")
    np.testing.assert_allclose(laplacian, recorded["it2_L"], atol=3e-11)


def test_all_iterations_of_the_authors_run(recorded, problem):
    result = solve(problem, hyper_of(recorded), hyperedge_weights="reference")
    assert status_of(result) is jj.Status.CONVERGED
    assert int(result.n_iter) == recorded["iters"] == 18
    np.testing.assert_allclose(result.history[:18], recorded["objective"], rtol=1e-13)
    assert np.isnan(result.history[18:]).all()
    state = result.state
    np.testing.assert_allclose(result.affinity, recorded["affinity"], atol=1e-12)
    np.testing.assert_allclose(state.omega, recorded["omega"], atol=1e-12)
    np.testing.assert_allclose(np.moveaxis(state.Z, 0, -1), recorded["Z"], atol=1e-12)
    np.testing.assert_allclose(np.moveaxis(state.C, 0, -1), recorded["G"], atol=1e-12)
    for v, view in enumerate(recorded["views"]):
        np.testing.assert_allclose(state.X[v, : view.shape[1]], recorded[f"Xfull{v + 1}"], atol=1e-11)
    embedding, expected = spectral_embedding(result.affinity, 3), recorded["F"]
    np.testing.assert_allclose(embedding @ embedding.T, expected @ expected.T, atol=1e-10)


def test_intended_hyperedge_weights_stay_close_to_the_reference(recorded, problem):
    run = partial(solve, problem, hyper_of(recorded))
    difference = np.abs(run().affinity - run(hyperedge_weights="reference").affinity).max()
    assert 0 < difference < 5e-3


# The blocks against literal forms -----------------------------------------------------------------------------------


def symmetric_affinities(rng, m, n):
    Z = np.abs(rng.normal(size=(m, n, n))) / n
    Z = (Z + np.swapaxes(Z, 1, 2)) / 2
    Z[:, np.arange(n), np.arange(n)] = 0
    return Z


@settings(max_examples=10)
@given(seed=seeds)
def test_completion_is_the_solve_with_blocks(seed):
    rng = np.random.default_rng(seed)
    mask = rng.random((3, 12)) < 0.6
    mask[0] = True
    data = rng.normal(size=(3, 4, 12)) * mask[:, None, :]
    Z = symmetric_affinities(rng, 3, 12)
    L = np.asarray(hypergraph_laplacian(jnp.asarray(Z.mean(axis=0)), hyperedge_size=4))
    filled = np.asarray(complete_views(jnp.asarray(data), jnp.asarray(mask), jnp.asarray(Z), L, 0.7))
    np.testing.assert_array_equal(filled[0], data[0])
    for v in (1, 2):
        o, u = np.flatnonzero(mask[v]), np.flatnonzero(~mask[v])
        E = Z[v] - np.eye(12)
        M = E @ E.T + 0.7 * L
        expected = -data[v][:, o] @ M[np.ix_(o, u)] @ np.linalg.inv(M[np.ix_(u, u)])
        expected = expected / np.maximum(np.linalg.norm(expected, axis=0), 1e-12)
        np.testing.assert_allclose(filled[v][:, u], expected, atol=1e-9)
        np.testing.assert_array_equal(filled[v][:, o], data[v][:, o])
    frame, _ = np.linalg.qr(rng.normal(size=(9, 4)))
    in_more_features = complete_views(jnp.asarray(frame @ data), jnp.asarray(mask), jnp.asarray(Z), L, 0.7)
    np.testing.assert_allclose(in_more_features, frame @ filled, atol=1e-9)


def test_completion_survives_a_singular_missing_block():
    """Two pairs that represent each other make (Z - I)(Z - I)^T singular, and lambda1 = 0 leaves it so."""
    Z = jnp.asarray(np.kron(np.eye(2), [[0.0, 1.0], [1.0, 0.0]]))[None]
    data = jnp.asarray(np.ones((1, 2, 4))).at[:, :, :2].set(0)
    mask = jnp.asarray([[False, False, True, True]])
    filled = complete_views(data, mask, Z, jnp.zeros((4, 4)), 0.0)
    assert np.isfinite(filled).all()


@settings(max_examples=10)
@given(seed=seeds)
def test_low_rank_copy_is_the_least_squares_sweep(seed):
    """The basis of the zero frequency is real, as that slice is."""
    rng = np.random.default_rng(seed)
    Z = symmetric_affinities(rng, 3, 10)
    spectrum = jnp.fft.rfft(Z, axis=0)
    basis = rng.normal(size=(2, 10, 2)) + 1j * rng.normal(size=(2, 10, 2))
    basis[0] = basis[0].real
    C, following = low_rank_copy(spectrum, jnp.asarray(basis), n_views=3)
    full, right = np.fft.fft(Z, axis=0), np.conj(np.swapaxes(basis, 1, 2))
    right = np.concatenate([right, np.conj(right[1:])])
    left = full @ np.linalg.pinv(right)
    expected = left @ np.linalg.pinv(left) @ full
    np.testing.assert_allclose(C, np.fft.ifft(expected, axis=0).real, atol=1e-11)
    best, _ = low_rank_copy(spectrum, hcp_imsc._leading_rows(spectrum, 2), n_views=3)
    u, s, vh = np.linalg.svd(full)
    truncated = (u[:, :, :2] * s[:, None, :2]) @ vh[:, :2]
    np.testing.assert_allclose(best, np.fft.ifft(truncated, axis=0).real, atol=1e-11)
    swept, _ = low_rank_copy(spectrum, following, n_views=3)
    assert np.linalg.norm(best - Z) - 1e-12 <= np.linalg.norm(swept - Z) <= np.linalg.norm(C - Z) + 1e-12


def test_affinity_step_is_stationary_before_the_projection(recorded, problem):
    """Where the projection does nothing, the gradient of the symmetric part of the objective vanishes."""
    rng = np.random.default_rng(0)
    R = jnp.asarray(symmetric_affinities(rng, 1, 42)[0])
    C = jnp.asarray(rng.normal(size=(3, 42, 42)))
    state = hcp_imsc._initial_state(problem.data, 3)._replace(R=R, C=C, omega=jnp.asarray([0.3, 1.0, 2.0]))
    Z = np.asarray(hcp_imsc._affinities(state, jnp.asarray(2.0)))
    for v, omega in enumerate(state.omega):
        X = np.asarray(problem.data[v])
        N = X.T @ X
        free = np.linalg.solve((omega + 2) * np.eye(42) + N, N + omega * np.asarray(R) + 2 * np.asarray(C[v]))
        np.fill_diagonal(free, 0)
        np.testing.assert_allclose(Z[v], np.maximum((free + free.T) / 2, 0), atol=1e-12)


@settings(max_examples=10)
@given(seed=seeds)
def test_hypergraph_laplacian_is_normalised(seed):
    R = symmetric_affinities(np.random.default_rng(seed), 1, 12)[0]
    L = np.asarray(hypergraph_laplacian(jnp.asarray(R), hyperedge_size=4))
    values, vectors = np.linalg.eigh(L)
    assert abs(values[0]) < 1e-12
    assert values[-1] < 1 + 1e-12
    assert (np.abs(vectors[:, 0]) > 0).all()
    np.testing.assert_allclose(L, L.T, atol=1e-15)


def test_laplacians_of_a_graph_without_edges_are_finite():
    zero = jnp.zeros((12, 12))
    assert np.isfinite(hypergraph_laplacian(zero, hyperedge_size=4)).all()
    assert not np.asarray(hcp_imsc.graph_laplacian(zero, n_neighbors=3)).any()


@settings(max_examples=10)
@given(seed=seeds)
def test_adaptive_neighbors_is_the_sorted_form(seed):
    rng = np.random.default_rng(seed)
    columns, present = rng.normal(size=(3, 14)), rng.random(14) < 0.7
    present[:5] = True
    at = np.flatnonzero(present)
    square = np.sum((columns[:, at, None] - columns[:, None, at]) ** 2, axis=0)
    expected = np.zeros((14, 14))
    for i, row in zip(at, square, strict=True):
        order = np.argsort(row)[1:5]
        d = row[order]
        expected[i, at[order[:3]]] = (d[3] - d[:3]) / (3 * d[3] - d[:3].sum() + np.finfo(float).eps)
    ours = adaptive_neighbors(jnp.asarray(columns), jnp.asarray(present), 3)
    np.testing.assert_allclose(ours, (expected + expected.T) / 2, atol=1e-11)


# Clusters -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rate", [0.3, 0.0])
def test_planted_clusters_are_found(dtype, rate):
    views, mask, labels = blobs(rate, dtype=dtype)
    result = hcp_imsc.fit(views, mask, 3, key=KEY)
    assert result.affinity.dtype == dtype
    assert result.embedding is None
    assert status_of(result) in (jj.Status.CONVERGED, jj.Status.MAX_ITER)
    assert adjusted_rand_score(labels, result.labels) > 0.9


def test_float32_follows_float64():
    views, mask, _ = blobs(0.3)
    double, single = (
        solve(jj.make_problem(views, mask, dtype=dtype), hcp_imsc.Hyper(tol=0.0)) for dtype in (np.float64, np.float32)
    )
    assert single.affinity.dtype == np.float32
    np.testing.assert_allclose(single.affinity, double.affinity, atol=1e-4)


@pytest.mark.parametrize("n_views", [1, 3])
def test_single_view_and_equal_views_keep_the_weights_bounded(n_views):
    views, _, labels = blobs(0.0)
    result = solve(jj.make_problem([views[2]] * n_views), hcp_imsc.Hyper())
    assert np.isfinite(result.affinity).all()
    assert result.state.omega.max() <= 0.5 / np.sqrt(np.finfo(float).eps)
    assert adjusted_rand_score(labels, jj.spectral_cluster(KEY, result.affinity, 3)) > 0.9


def test_view_with_fewer_samples_than_clusters():
    views, _, labels = blobs(0.0)
    mask = np.ones((90, 3), bool)
    mask[2:, 0] = False
    result = hcp_imsc.fit(views, mask, 3, key=KEY)
    assert np.isfinite(result.affinity).all()
    assert adjusted_rand_score(labels, result.labels) > 0.9


# Invariances --------------------------------------------------------------------------------------------------------


def test_what_is_hidden_never_matters(recorded):
    views, mask = recorded["views"], recorded["mask"]
    garbage = [np.where(mask[:, [v]], x, 1e6 * (v + 1)) for v, x in enumerate(views)]
    a, b = (hcp_imsc.fit(x, m, 3, key=KEY) for x, m in ((views, None), (garbage, mask)))
    np.testing.assert_array_equal(a.affinity, b.affinity)
    np.testing.assert_array_equal(a.labels, b.labels)


def test_order_of_views_does_not_matter(recorded, problem):
    order = [1, 0, 2]
    permuted = jj.make_problem([recorded["views"][v] for v in order], recorded["mask"][:, order])
    a, b = (solve(p, hyper_of(recorded)) for p in (problem, permuted))
    np.testing.assert_allclose(b.affinity, a.affinity, atol=1e-10)
    np.testing.assert_allclose(b.state.Z, np.asarray(a.state.Z)[order], atol=1e-10)


def test_order_of_samples_does_not_matter_with_own_weights(recorded, problem):
    shuffle = np.random.default_rng(0).permutation(42)
    shuffled = jj.make_problem([x[shuffle] for x in recorded["views"]], recorded["mask"][shuffle])
    a, b = (solve(p, hyper_of(recorded)).affinity for p in (problem, shuffled))
    np.testing.assert_allclose(b, np.asarray(a)[np.ix_(shuffle, shuffle)], atol=1e-10)


# Status, options, compilation ---------------------------------------------------------------------------------------


def test_max_iter_and_nonfinite_and_empty(recorded, problem):
    never = solve(problem, hyper_of(recorded)._replace(tol=0.0))
    assert status_of(never) is jj.Status.MAX_ITER
    assert int(never.n_iter) == 20
    for field in ("lambda1", "lambda2"):
        broken = solve(problem, hyper_of(recorded)._replace(**{field: np.nan}))
        assert status_of(broken) is jj.Status.NONFINITE
        assert int(broken.n_iter) == 2  # the first is made before the loop, which notices in its own first
    data = problem.data.at[1, 0, 3].set(jnp.nan)
    assert status_of(solve(jj.Problem(data, problem.mask, problem.bases), hyper_of(recorded))) is jj.Status.NONFINITE
    uncorrelated = jj.Problem(jnp.zeros_like(problem.data), problem.mask, problem.bases)
    empty = solve(uncorrelated, hyper_of(recorded))
    assert status_of(empty) is jj.Status.EMPTY
    assert not np.asarray(empty.affinity).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hyperedge_weights": "mean"}, "hyperedge_weights must be 'own' or 'reference', got 'mean'"),
        ({"max_iter": 0}, "max_iter must be at least 1, got 0"),
        ({"n_clusters": 43}, "n_clusters must be between 1 and the number of samples 42, got 43"),
        ({"n_neighbors": 41}, "n_neighbors must be between 1 and 40 for 42 samples, got 41"),
        ({"hyperedge_size": 1}, "hyperedge_size must be between 2 and the number of samples 42, got 1"),
    ],
)
def test_bad_options_are_named(problem, options, message):
    with pytest.raises(ValueError, match=message):
        hcp_imsc.solve(problem, hcp_imsc.Hyper(), **({"n_clusters": 3} | options))


def test_bad_data_are_named(recorded):
    mask = recorded["mask"].copy()
    mask[:, 1] = False
    with pytest.raises(ValueError, match="view 1 has no observed sample"):
        hcp_imsc.fit(recorded["views"], mask, 3, key=KEY)


def test_one_compilation_serves_all_hyper_parameters(problem):
    solve(problem, hcp_imsc.Hyper())
    before = hcp_imsc._solve._cache_size()
    solve(problem, hcp_imsc.Hyper(1, np.float32(2), tol=jnp.asarray(1e-3)))
    assert hcp_imsc._solve._cache_size() == before


def test_vmap_over_hyper_parameters_equals_single_solves(problem):
    hypers = hcp_imsc.Hyper(jnp.asarray([0.1, 1.0, 10.0]), jnp.asarray([1.0, 5.0, 0.5]), jnp.asarray([1e-4, 1e-2, 0.0]))
    batch = jax.vmap(lambda hyper: solve(problem, hyper))(hypers)
    for i in range(3):
        single = solve(problem, hcp_imsc.Hyper(*(x[i] for x in hypers)))
        assert int(batch.status[i]) == int(single.status)
        assert int(batch.n_iter[i]) == int(single.n_iter)
        np.testing.assert_allclose(batch.affinity[i], single.affinity, atol=1e-10)
    assert len(set(np.asarray(batch.n_iter))) > 1
