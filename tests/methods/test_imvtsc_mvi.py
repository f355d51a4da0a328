"""IMVTSC-MVI: parity with the authors' run, exactness of the blocks, constraints, permutations, degenerate data."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.cluster import SpectralClustering
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import kneighbors_graph

from jpltd_jax.loop import Status, check_hyper, prepare, run
from jpltd_jax.methods.imvtsc_mvi import IMVTSC_MVI, AuthorsFourier, Config, Hyper, State, init, step
from jpltd_jax.missing import paper_protocol
from jpltd_jax.problem import make_problem
from jpltd_jax.prox import tubal_shrink
from jpltd_jax.tensor import tensor_nuclear_norm
from jpltd_jax.transforms import Orthonormal
from tests.conftest import DATA
from tests.strategies import orthonormal, seeds

KEY = jax.random.key(0)
N, DIMS = 12, (5, 5, 20)
HYPER = Hyper(lam1=1e-3, lam2=0.1, lam3=0.01)


@pytest.fixture(scope="module")
def authors_run():
    with np.load(DATA / "imvtsc_mvi.npz") as archive:
        return {name: archive[name] for name in archive.files}


def prepared(views, mask, n_neighbors=3, fourier="model"):
    return prepare(IMVTSC_MVI, make_problem(views, mask), 3, Config(n_neighbors, fourier))


def blobs(seed=0):
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.arange(N) % 3)
    return [rng.normal(size=(3, d))[classes] + 0.3 * rng.normal(size=(N, d)) for d in DIMS]


def small_data(samples=slice(None), views=(0, 1, 2)):
    """Half of the samples are incomplete; the first two views have the same size, so that they can be exchanged."""
    matrices = blobs()
    mask = paper_protocol(0, N, len(DIMS), 0.5)[samples][:, views]
    return prepared([matrices[v][samples] for v in views], mask)


def solve(data, hyper=HYPER):
    return run(IMVTSC_MVI, data, hyper, KEY)


# Parity with the authors' run ---------------------------------------------------------------------------------------


def recorded_problem(archive, parity, fourier):
    views = [archive[f"{parity}_X_{v}"].T for v in range(3)]
    names = {"lam1": "lambda1", "lam2": "lambda2", "lam3": "lambda3", "mu": "mu0", "growth": "rho"}
    hyper = Hyper(**{field: float(archive[names.get(field, field)]) for field in Hyper._fields})
    return prepared(views, archive[f"{parity}_mask"], int(archive["n_neighbors"]), fourier), hyper


def recorded_graphs(archive, parity, when):
    return np.moveaxis(archive[f"{parity}_Z_{when}"], -1, 0)


@pytest.mark.parametrize("parity", ["even", "odd"])
def test_parity_with_the_authors_run(authors_run, parity):
    data, hyper = recorded_problem(authors_run, parity, "authors")
    state, history = init(KEY, data, hyper), []
    np.testing.assert_array_equal(state.Z, np.stack([authors_run[f"{parity}_Zinit_{v}"] for v in range(3)]))
    residual = authors_run[f"{parity}_residual"]
    for iteration in range(1, len(residual) + 1):
        state, now = step(data, hyper, state)
        history.append(now)
        if iteration in (1, 30):
            expected = recorded_graphs(authors_run, parity, f"iter{iteration}")
            np.testing.assert_allclose(state.Z, expected, atol=1e-10)
    np.testing.assert_allclose(history, residual, rtol=1e-6, atol=1e-11)
    assert history[-1] < hyper.tol <= history[-2]
    np.testing.assert_allclose(state.Z, recorded_graphs(authors_run, parity, "final"), atol=1e-10)
    for v, inferred in enumerate(state.E):
        missing = ~authors_run[f"{parity}_mask"][:, v]
        np.testing.assert_allclose(inferred[:, missing], authors_run[f"{parity}_E_final_{v}"], atol=1e-10)
        assert not np.asarray(inferred[:, ~missing]).any()


def test_parity_of_the_default_run_for_an_even_number_of_samples(authors_run):
    solution = solve(*recorded_problem(authors_run, "even", "model"))
    residual = authors_run["even_residual"]
    assert solution.status is Status.CONVERGED
    assert int(solution.n_iter) == len(residual)
    np.testing.assert_allclose(solution.history[: len(residual)], residual, rtol=1e-6, atol=1e-11)
    np.testing.assert_allclose(solution.state.Z, recorded_graphs(authors_run, "even", "final"), atol=1e-10)


def test_model_and_program_differ_for_an_odd_number_of_samples(authors_run):
    data, hyper = recorded_problem(authors_run, "odd", "model")
    state = init(KEY, data, hyper)
    for _ in range(30):
        state, _ = step(data, hyper, state)
    assert np.abs(state.Z - recorded_graphs(authors_run, "odd", "iter30")).max() > 1e-4


@pytest.mark.parametrize("n", [6, 7])
def test_authors_fourier_inverts_and_doubles_the_threshold_of_the_middle_pair(n):
    x = jnp.asarray(np.random.default_rng(n).normal(size=(3, 4, n)))
    transform = AuthorsFourier()
    np.testing.assert_allclose(transform.join(transform.slices(x), n), x, atol=1e-14)
    spectrum = np.moveaxis(np.fft.fft(x, axis=-1), -1, 0)
    u, s, vh = np.linalg.svd(spectrum, full_matrices=False)
    tau = np.full((n, 1), 0.5)
    if n % 2:
        tau[[n // 2, n // 2 + 1]] = 1.0
    shrunk = np.fft.ifft(np.moveaxis(u * np.maximum(s - tau, 0)[:, None] @ vh, 0, -1), axis=-1).real
    np.testing.assert_allclose(tubal_shrink(x, 0.5, transform), shrunk, atol=1e-12)
    np.testing.assert_allclose(tensor_nuclear_norm(x, transform=transform), s.sum() / n, rtol=1e-12)


# Blocks -------------------------------------------------------------------------------------------------------------


def random_step(seed):
    """A step from random numbers, all as NumPy arrays: (data, hyper, state before, state after, watched)."""
    rng = np.random.default_rng(seed)
    mask = rng.random((3, N)) < 0.6
    columns = tuple(jnp.asarray(rng.normal(size=(d, N)) * present) for d, present in zip(DIMS, mask, strict=True))
    data = replace(small_data(), columns=columns, mask=jnp.asarray(mask))
    lam1, lam2, lam3, mu = rng.uniform(0.1, 2, size=4)
    hyper = Hyper(lam1, lam2, lam3, mu_max=1.2)
    z, p, a = jnp.asarray(rng.normal(size=(3, 3, N, N)))
    e, b, c = (tuple(jnp.asarray(rng.normal(size=(d, N))) for d in DIMS) for _ in range(3))
    e = tuple(jnp.where(present, 0, x) for x, present in zip(e, mask, strict=True))
    before = State(z, p, a, e, b, c, jnp.asarray(mu))
    after, watched = step(data, hyper, before)
    return jax.tree.map(np.asarray, (data, hyper, before, after, watched))


def least_squares(*terms):
    """Argmin over x of sum weight ||a x - b||_F^2, from terms (weight, a, b)."""
    left, right = ([np.sqrt(term[0]) * term[i] for term in terms] for i in (1, 2))
    return np.linalg.lstsq(np.concatenate(left), np.concatenate(right), rcond=None)[0]


@settings(max_examples=5)
@given(seed=seeds)
def test_graphs_are_projections_of_the_minimisers_of_the_lagrangian(seed):
    data, hyper, before, after, _ = random_step(seed)
    eye, mu = np.eye(N), before.mu
    off_diagonal = ~np.eye(N, dtype=bool)
    for v, x in enumerate(data.columns):
        y = x + before.E[v]
        free = least_squares(
            (mu / 2, y, y - before.B[v] + before.C[v] / mu),
            (mu / 2, eye, before.P[v] - before.A[v] / mu),
            (hyper.lam3, 2 / 3 * eye, sum(before.Z[u] for u in range(3) if u != v) / 3),
        )
        z = after.Z[v]
        threshold = np.max(free - z, axis=1, keepdims=True, where=off_diagonal, initial=-np.inf)
        np.testing.assert_allclose(z, np.where(off_diagonal, np.maximum(free - threshold, 0), 0), atol=1e-12)
        np.testing.assert_allclose(z.sum(axis=1), 1, atol=1e-12)


@settings(max_examples=5)
@given(seed=seeds)
def test_low_rank_tensor_has_the_singular_values_of_all_frequencies_lowered(seed):
    _, _, before, after, _ = random_step(seed)
    spectrum = np.moveaxis(np.fft.fft(after.Z + before.A / before.mu, axis=-1), -1, 0)
    u, s, vh = np.linalg.svd(spectrum, full_matrices=False)
    shrunk = np.moveaxis(u * np.maximum(s - 1 / before.mu, 0)[:, None] @ vh, 0, -1)
    np.testing.assert_allclose(after.P, np.fft.ifft(shrunk, axis=-1).real, atol=1e-12)


@settings(max_examples=5)
@given(seed=seeds)
def test_inferred_samples_minimise_the_lagrangian_over_the_missing_columns(seed):
    data, hyper, before, after, _ = random_step(seed)
    mu = before.mu
    for v, x in enumerate(data.columns):
        missing = ~data.mask[v]
        kept = np.eye(N) - after.Z[v]
        target = before.B[v] - before.C[v] / mu - x @ kept
        count = missing.sum()
        inferred = least_squares(
            (hyper.lam1, np.eye(count), np.zeros((count, len(x)))), (mu / 2, kept[missing].T, target.T)
        )
        np.testing.assert_allclose(after.E[v][:, missing], inferred.T, atol=1e-10)
        assert not after.E[v][:, ~missing].any()


@settings(max_examples=5)
@given(seed=seeds)
def test_errors_minimise_the_lagrangian_and_multipliers_rise_by_the_residuals(seed):
    data, hyper, before, after, watched = random_step(seed)
    mu, largest = before.mu, np.abs(after.Z - after.P).max()
    for v, x in enumerate(data.columns):
        y, b = x + after.E[v], after.B[v]
        misfit = y - y @ after.Z[v] - b
        slope = before.C[v] + mu * misfit
        np.testing.assert_allclose(slope[b != 0], hyper.lam2 * np.sign(b[b != 0]), atol=1e-12)
        assert (np.abs(slope) <= hyper.lam2 + 1e-12).all()
        np.testing.assert_allclose(after.C[v], slope, atol=1e-12)
        largest = max(largest, np.abs(misfit).max())
    np.testing.assert_allclose(after.A, before.A + mu * (after.Z - after.P), atol=1e-12)
    np.testing.assert_allclose(watched, largest, atol=1e-12)
    np.testing.assert_allclose(after.mu, min(1.2 * mu, 1.2), rtol=1e-15)


def test_neighbour_graph_equals_that_of_scikit_learn_on_the_observed_samples():
    data = small_data()
    for x, present, graph in zip(data.columns, data.mask, data.graphs, strict=True):
        seen = np.flatnonzero(present)
        directed = kneighbors_graph(np.asarray(x)[:, seen].T, 3).toarray()
        expected = np.zeros((N, N))
        expected[np.ix_(seen, seen)] = np.maximum(directed, directed.T)
        np.testing.assert_array_equal(graph, expected)


def test_constraints_hold_at_convergence():
    data = small_data()
    solution = solve(data)
    assert solution.status is Status.CONVERGED
    done, state = int(solution.n_iter), solution.state
    history = np.asarray(solution.history)
    assert history[done - 1] < 1e-6 <= history[done - 2]
    assert np.isnan(history[done:]).all()
    assert np.abs(state.Z - state.P).max() < 1e-6
    for x, e, b, z in zip(data.columns, state.E, state.B, state.Z, strict=True):
        y = x + e
        assert np.abs(y - y @ z - b).max() < 1e-6
    np.testing.assert_allclose(state.Z.sum(axis=2), 1, atol=1e-12)
    assert (np.asarray(state.Z) >= 0).all()
    np.testing.assert_allclose(solution.affinity, (state.Z.mean(axis=0) + state.Z.mean(axis=0).T) / 2, atol=1e-15)


# Clustering ---------------------------------------------------------------------------------------------------------


def test_a_small_lam2_leaves_nearly_uniform_graphs(authors_run):
    """The pitfall that the docstring warns of: the errors take up everything."""
    data, _ = recorded_problem(authors_run, "even", "model")
    poor, good = (np.asarray(solve(data, Hyper(lam2=x)).affinity) for x in (1e-3, 0.1))
    n = len(poor)
    uniform = (1 - np.eye(n)) / (n - 1)
    assert (np.abs(poor - uniform) < uniform + 1e-12).all()
    assert np.abs(good - uniform).max() > 4 / (n - 1)
    spectral = SpectralClustering(4, affinity="precomputed", random_state=0)
    classes = authors_run["even_labels"]
    scores = [adjusted_rand_score(classes, spectral.fit_predict(graph)) for graph in (poor, good)]
    assert scores[0] < 0.1 < 0.9 < scores[1]


def test_a_view_seen_once_and_a_single_view_work():
    views = blobs(3)
    views[1][1:] = np.nan
    for some in (views, views[:1]):
        solution = solve(prepared(some, None))
        assert solution.status is Status.CONVERGED
        assert np.isfinite(solution.affinity).all()


def test_nonfinite_data_end_as_nonfinite():
    data = small_data()
    damaged = replace(data, columns=(data.columns[0].at[0, 0].set(jnp.nan), *data.columns[1:]))
    assert solve(damaged).status is Status.NONFINITE


# Metamorphic --------------------------------------------------------------------------------------------------------


def test_permuting_views_permutes_the_result():
    permuted = [1, 0, 2]
    a, b = solve(small_data()), solve(small_data(views=permuted))
    np.testing.assert_allclose(b.state.Z, np.asarray(a.state.Z)[permuted], atol=1e-9)
    np.testing.assert_allclose(b.affinity, a.affinity, atol=1e-9)


def test_order_of_samples_matters_with_fourier_only():
    shuffle = np.random.default_rng(0).permutation(N)
    data, shuffled = small_data(), small_data(samples=shuffle)
    basis = orthonormal(0, N, N)
    a = solve(replace(data, transform=Orthonormal(jnp.asarray(basis)))).affinity
    b = solve(replace(shuffled, transform=Orthonormal(jnp.asarray(basis[shuffle])))).affinity
    np.testing.assert_allclose(b, np.asarray(a)[np.ix_(shuffle, shuffle)], atol=1e-9)
    fourier = np.asarray(solve(data).affinity)
    assert np.abs(solve(shuffled).affinity - fourier[np.ix_(shuffle, shuffle)]).max() > 1e-4


# Options ------------------------------------------------------------------------------------------------------------


def test_the_first_penalty_is_that_of_the_hyper_parameters():
    assert init(KEY, small_data(), Hyper(mu=0.5)).mu == 0.5


def test_bad_options_are_named():
    with pytest.raises(ValueError, match="n_neighbors must be at least 1, got 0"):
        Config(n_neighbors=0)
    with pytest.raises(ValueError, match="fourier must be one of 'model', 'authors', got 'matlab'"):
        Config(fourier="matlab")
    for field, value in (("lam1", 0.0), ("lam2", -1.0), ("lam3", -1.0), ("tol", -1.0)):
        with pytest.raises(ValueError, match=f"IMVTSC-MVI: {field} must be .*, got {value:g}"):
            check_hyper(IMVTSC_MVI, Hyper(**{field: value}))
    check_hyper(IMVTSC_MVI, Hyper(lam2=0.0, lam3=0.0, tol=0.0))
