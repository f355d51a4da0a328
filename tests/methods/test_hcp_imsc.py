"""HCP-IMSC: parity with the authors' run, the blocks against literal forms, special cases, invariances, bad input."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from jpltd_jax.graphs import adaptive_neighbors
from jpltd_jax.loop import Loop, Status, check_hyper, prepare, run
from jpltd_jax.methods.hcp_imsc import (
    HCP_IMSC,
    Config,
    Data,
    Hyper,
    complete_views,
    graph_laplacian,
    hypergraph_laplacian,
    leading_rows,
    low_rank_copy,
)
from jpltd_jax.problem import make_problem
from tests.conftest import DATA
from tests.strategies import seeds

KEY = jax.random.key(0)
REFERENCE = Config(hyperedge_weights="reference")


@pytest.fixture(scope="module")
def recorded():
    with np.load(DATA / "hcp_imsc.npz") as archive:
        run = {name: archive[name] for name in archive.files}
    return run | {"views": [run[f"X{v}"].T for v in (1, 2, 3)], "mask": run["mask"].astype(bool)}


def data_of(views, mask=None, config=None):
    return prepare(HCP_IMSC, make_problem(views, mask), 3, config)


@pytest.fixture(scope="module")
def data(recorded):
    with jax.enable_x64(True):
        return data_of(recorded["views"], recorded["mask"])


@pytest.fixture(scope="module")
def authors(recorded):
    return Hyper(float(recorded["lambda1"]), float(recorded["lambda2"]))


@pytest.fixture(scope="module")
def solution(data, authors):
    with jax.enable_x64(True):
        return run(HCP_IMSC, data, authors, KEY)


@pytest.fixture(scope="module")
def repeated(data, authors):
    """The authors' run after 1, 2 and all iterations."""
    with jax.enable_x64(True):
        return {
            at: run(HCP_IMSC, replace(data, config=REFERENCE), authors, KEY, Loop(max_iter=at)) for at in (1, 2, 20)
        }


def blobs():
    """Three separated clusters in random order, of the shape of the recorded data."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(42) % 3)
    return [rng.normal(size=(3, d))[labels] + 0.2 * rng.normal(size=(42, d)) for d in (14, 18, 11)], labels


def embedding_of(affinity):
    """Leading eigenvectors of the normalised affinity, rows of unit length."""
    root = 1 / np.sqrt(np.sum(affinity, axis=1))
    leading = np.linalg.eigh(root[:, None] * np.asarray(affinity) * root)[1][:, -3:]
    return leading / np.linalg.norm(leading, axis=1, keepdims=True)


def agreement(labels, affinity):
    found = KMeans(3, n_init=10, random_state=0).fit_predict(embedding_of(affinity))
    return adjusted_rand_score(labels, found)


# Parity with the authors' run ---------------------------------------------------------------------------------------


def test_first_iteration_of_the_authors_run(recorded, repeated):
    state = repeated[1].state
    np.testing.assert_allclose(state.R, recorded["it1_R"], atol=1e-13)
    np.testing.assert_allclose(state.omega, recorded["it1_omega"], rtol=1e-12)
    np.testing.assert_allclose(state.first_laplacian, recorded["it1_L"], atol=1e-12)
    np.testing.assert_allclose(np.moveaxis(state.C, 0, -1), recorded["it1_G"], atol=1e-12)


def test_second_iteration_of_the_authors_run(recorded, repeated):
    state = repeated[2].state
    np.testing.assert_allclose(state.R, recorded["it2_R"], atol=1e-13)
    np.testing.assert_allclose(state.omega, recorded["it2_omega"], rtol=1e-12)
    laplacian = hypergraph_laplacian(state.R, 10, "reference")
    np.testing.assert_allclose(laplacian, recorded["it2_L"], atol=3e-11)


def test_all_iterations_of_the_authors_run(recorded, repeated):
    whole = repeated[20]
    assert whole.status is Status.CONVERGED
    assert int(whole.n_iter) == recorded["iters"] == 18
    np.testing.assert_allclose(whole.history[:18], recorded["objective"], rtol=1e-13)
    assert np.isnan(whole.history[18:]).all()
    state = whole.state
    np.testing.assert_allclose(whole.affinity, recorded["affinity"], atol=1e-12)
    np.testing.assert_allclose(state.omega, recorded["omega"], atol=1e-12)
    np.testing.assert_allclose(np.moveaxis(state.Z, 0, -1), recorded["Z"], atol=1e-12)
    np.testing.assert_allclose(np.moveaxis(state.C, 0, -1), recorded["G"], atol=1e-12)
    for v, view in enumerate(recorded["views"]):
        np.testing.assert_allclose(state.X[v, : view.shape[1]], recorded[f"Xfull{v + 1}"], atol=1e-11)
    embedding, expected = embedding_of(whole.affinity), recorded["F"]
    np.testing.assert_allclose(embedding @ embedding.T, expected @ expected.T, atol=1e-10)


def test_intended_hyperedge_weights_stay_close_to_the_reference(solution, repeated):
    assert 0 < np.abs(solution.affinity - repeated[20].affinity).max() < 5e-3


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
    L = np.asarray(hypergraph_laplacian(jnp.asarray(Z.mean(axis=0)), 4))
    filled = np.asarray(complete_views(Data(jnp.asarray(data), jnp.asarray(mask)), jnp.asarray(Z), L, 0.7))
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
    in_more_features = complete_views(Data(jnp.asarray(frame @ data), jnp.asarray(mask)), jnp.asarray(Z), L, 0.7)
    np.testing.assert_allclose(in_more_features, frame @ filled, atol=1e-9)


def test_completion_survives_a_singular_missing_block():
    """Two missing samples that represent and join only each other: their block is 4 [[1, -1], [-1, 1]], exactly."""
    Z = jnp.asarray(np.kron(np.eye(2), [[0.0, 1.0], [1.0, 0.0]]))[None]
    L = jnp.asarray(np.kron(np.eye(2), [[2.0, -2.0], [-2.0, 2.0]]))
    data = Data(jnp.ones((1, 2, 4)).at[:, :, :2].set(0), jnp.asarray([[False, False, True, True]]))
    np.testing.assert_array_equal(complete_views(data, Z, L, 1.0), data.data)


@settings(max_examples=10)
@given(seed=seeds)
def test_low_rank_copy_is_the_least_squares_sweep(seed):
    """The basis of the zero frequency is real, as that slice is."""
    rng = np.random.default_rng(seed)
    Z = symmetric_affinities(rng, 3, 10)
    full = np.fft.fft(Z, axis=0)
    spectrum = jnp.asarray(full[:2])
    basis = rng.normal(size=(2, 10, 2)) + 1j * rng.normal(size=(2, 10, 2))
    basis[0] = basis[0].real
    C, following = low_rank_copy(spectrum, jnp.asarray(basis), n_views=3)
    right = np.conj(np.swapaxes(basis, 1, 2))
    right = np.concatenate([right, np.conj(right[1:])])
    left = full @ np.linalg.pinv(right)
    expected = left @ np.linalg.pinv(left) @ full
    np.testing.assert_allclose(C, np.fft.ifft(expected, axis=0).real, atol=1e-11)
    best, _ = low_rank_copy(spectrum, leading_rows(spectrum, 2), n_views=3)
    u, s, vh = np.linalg.svd(full)
    truncated = (u[:, :, :2] * s[:, None, :2]) @ vh[:, :2]
    np.testing.assert_allclose(best, np.fft.ifft(truncated, axis=0).real, atol=1e-11)
    swept, _ = low_rank_copy(spectrum, following, n_views=3)
    assert np.linalg.norm(best - Z) - 1e-12 <= np.linalg.norm(swept - Z) <= np.linalg.norm(C - Z) + 1e-12


def test_affinity_step_is_stationary_before_the_projection(data, solution):
    """Where the projection does nothing, the gradient of the symmetric part of the objective vanishes."""
    rng = np.random.default_rng(0)
    R, C, omega = symmetric_affinities(rng, 1, 42)[0], rng.normal(size=(3, 42, 42)), np.array([0.3, 1.0, 2.0])
    before = solution.state._replace(X=data.data, R=jnp.asarray(R), C=jnp.asarray(C), omega=jnp.asarray(omega))
    state = run(HCP_IMSC, data, Hyper(lam2=2.0), before, Loop(max_iter=1)).state
    for v, weight in enumerate(omega):
        X = np.asarray(data.data[v])
        N = X.T @ X
        free = np.linalg.solve((weight + 2) * np.eye(42) + N, N + weight * R + 2 * C[v])
        np.fill_diagonal(free, 0)
        np.testing.assert_allclose(state.Z[v], np.maximum((free + free.T) / 2, 0), atol=1e-12)
    np.testing.assert_allclose(state.R, np.average(state.Z, axis=0, weights=omega), atol=1e-14)


@settings(max_examples=10)
@given(seed=seeds)
def test_hypergraph_laplacian_is_normalised_and_the_sum_over_hyperedges(seed):
    R = symmetric_affinities(np.random.default_rng(seed), 1, 12)[0]
    L = np.asarray(hypergraph_laplacian(jnp.asarray(R), 4))
    values, vectors = np.linalg.eigh(L)
    assert abs(values[0]) < 1e-12
    assert values[-1] < 1 + 1e-12
    assert (np.abs(vectors[:, 0]) > 0).all()
    np.testing.assert_allclose(L, L.T, atol=1e-15)
    distances = np.linalg.norm(R[:, :, None] - R[:, None, :], axis=0)
    members = np.argsort(distances, axis=1)[:, :4]
    near = np.take_along_axis(distances, members, axis=1)
    weights = np.exp(-((near / near.mean()) ** 2)).sum(axis=1)
    joined, degree = np.zeros((12, 12)), np.zeros(12)
    for edge, weight in zip(members, weights, strict=True):
        joined[np.ix_(edge, edge)] += weight / 4
        degree[edge] += weight
    np.testing.assert_allclose(L, np.eye(12) - joined / np.sqrt(np.outer(degree, degree)), atol=1e-12)


def test_laplacians_of_a_graph_without_edges_are_finite():
    zero = jnp.zeros((12, 12))
    assert np.isfinite(hypergraph_laplacian(zero, 4)).all()
    assert not np.asarray(graph_laplacian(zero, 3)).any()


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
        nearest = np.argsort(row)[1:5]
        d = row[nearest]
        expected[i, at[nearest[:3]]] = (d[3] - d[:3]) / (3 * d[3] - d[:3].sum() + np.finfo(float).eps)
    ours = adaptive_neighbors(jnp.asarray(columns), jnp.asarray(present), 3)
    np.testing.assert_allclose(ours, (expected + expected.T) / 2, atol=1e-11)


# Special cases ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_views", [1, 3])
def test_single_view_and_equal_views_keep_the_weights_bounded(n_views):
    views, labels = blobs()
    made = run(HCP_IMSC, data_of([views[1]] * n_views), Hyper(), KEY)
    assert np.isfinite(made.affinity).all()
    assert made.state.omega.max() <= 0.5 / np.sqrt(np.finfo(float).eps)
    assert agreement(labels, made.affinity) > 0.9


def test_view_with_fewer_samples_than_clusters():
    views, labels = blobs()
    mask = np.ones((42, 3), bool)
    mask[2:, 0] = False
    made = run(HCP_IMSC, data_of(views, mask), Hyper(), KEY)
    assert np.isfinite(made.affinity).all()
    assert agreement(labels, made.affinity) > 0.9


def test_nan_in_the_data_and_samples_without_correlation(data, authors):
    broken = run(HCP_IMSC, replace(data, data=data.data.at[1, 0, 3].set(jnp.nan)), authors, KEY)
    assert broken.status is Status.NONFINITE
    assert int(broken.n_iter) == 1
    empty = run(HCP_IMSC, replace(data, data=jnp.zeros_like(data.data)), authors, KEY)
    assert empty.status is Status.EMPTY
    assert not np.asarray(empty.affinity).any()


# Invariances --------------------------------------------------------------------------------------------------------


def test_order_of_views_does_not_matter(data, authors, solution):
    views = np.array([1, 0, 2])
    permuted = run(HCP_IMSC, replace(data, data=data.data[views], mask=data.mask[views]), authors, KEY)
    np.testing.assert_allclose(permuted.affinity, solution.affinity, atol=1e-10)
    np.testing.assert_allclose(permuted.state.Z, np.asarray(solution.state.Z)[views], atol=1e-10)


def test_order_of_samples_does_not_matter_with_own_weights(data, authors, solution):
    shuffle = np.random.default_rng(0).permutation(42)
    shuffled = replace(data, data=data.data[..., shuffle], mask=data.mask[:, shuffle])
    affinity = run(HCP_IMSC, shuffled, authors, KEY).affinity
    np.testing.assert_allclose(affinity, np.asarray(solution.affinity)[np.ix_(shuffle, shuffle)], atol=1e-10)


# Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hyperedge_weights": "mean"}, "hyperedge_weights must be one of 'own', 'reference', got 'mean'"),
        ({"n_neighbors": 0}, "n_neighbors must be at least 1, got 0"),
        ({"n_neighbors": 41}, "n_neighbors must be between 1 and 40, got 41"),
        ({"hyperedge_size": 1}, "hyperedge_size must be at least 2, got 1"),
        ({"hyperedge_size": 43}, "hyperedge_size must be between 2 and 42, got 43"),
    ],
)
def test_bad_options_are_named(recorded, options, message):
    with pytest.raises(ValueError, match=message):
        data_of(recorded["views"], recorded["mask"], Config(**options))


def test_negative_tol_is_named():
    with pytest.raises(ValueError, match=r"HCP-IMSC: tol must be a float in the range \[0.0, inf\), got -1"):
        check_hyper(HCP_IMSC, Hyper(tol=-1.0))
