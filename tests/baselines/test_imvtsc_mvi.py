"""IMVTSC-MVI: parity with the authors' run, exactness of the blocks, invariances, statuses, compilation."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import kneighbors_graph

import jpltd_jax as jj
from jpltd_jax.baselines import imvtsc_mvi
from jpltd_jax.baselines.base import observed_columns
from jpltd_jax.baselines.imvtsc_mvi import AuthorsFourier, Hyper
from jpltd_jax.missing import paper_protocol
from jpltd_jax.tensor import tensor_nuclear_norm
from jpltd_jax.transforms import Orthonormal
from tests.strategies import orthonormal, seeds

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def authors_run():
    with np.load(Path(__file__).parents[1] / "data" / "imvtsc_mvi.npz") as archive:
        return {name: archive[name] for name in archive.files}


def recorded_problem(run, parity, dtype):
    columns, mask = observed_columns([run[f"{parity}_X_{v}"].T for v in range(3)], run[f"{parity}_mask"], dtype=dtype)
    hyper = Hyper(run["lambda1"], run["lambda2"], run["lambda3"], run["mu0"], run["mu_max"], run["rho"], run["tol"])
    hyper = Hyper(*(jnp.asarray(x, dtype) for x in hyper))
    start = imvtsc_mvi.init(tuple(columns), mask, hyper, n_neighbors=int(run["n_neighbors"]))
    return tuple(columns), mask, hyper, start


def blobs(seed, n=90, dims=(8, 6, 10), dtype=np.float64):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % 3)
    views = [rng.normal(size=(3, d))[labels] + 0.3 * rng.normal(size=(n, d)) for d in dims]
    return [x.astype(dtype) for x in views], labels


def small_problem(n=12, dims=(5, 5, 20), seed=0, rate=0.5):
    views, _ = blobs(seed, n, dims)
    columns, mask = observed_columns(views, paper_protocol(seed, n, len(dims), rate) if len(dims) > 1 else None)
    return tuple(columns), mask


HYPER = Hyper(lambda1=1e-3, lambda2=0.1, lambda3=0.01)
compiled_step = jax.jit(imvtsc_mvi.step)


def solve_small(columns, mask, hyper=HYPER, **options):
    start = imvtsc_mvi.init(columns, mask, hyper, n_neighbors=3)
    return imvtsc_mvi.solve(columns, mask, hyper, start, **options)


def status_of(result):
    return jj.Status(int(result.status))


# Parity with the authors' run ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("parity", ["even", "odd"])
def test_parity_with_the_authors_run(authors_run, parity):
    columns, mask, hyper, start = recorded_problem(authors_run, parity, np.float64)
    np.testing.assert_array_equal(start.Z, np.stack([authors_run[f"{parity}_Zinit_{v}"] for v in range(3)]))
    recorded = {
        name: np.moveaxis(authors_run[f"{parity}_Z_{name}"], -1, 0) for name in ("iter1", "iter30", "final")
    }  # fmt: skip
    residual = authors_run[f"{parity}_residual"]
    state, history = start, []
    for iteration in range(1, len(residual) + 1):
        state, now = compiled_step(columns, mask, hyper, state, transform=AuthorsFourier())
        history.append(now)
        if f"iter{iteration}" in recorded:
            np.testing.assert_allclose(state.Z, recorded[f"iter{iteration}"], atol=1e-10)
    np.testing.assert_allclose(history, residual, rtol=1e-6, atol=1e-11)
    assert history[-1] < hyper.tol <= history[-2]
    np.testing.assert_allclose(state.Z, recorded["final"], atol=1e-10)
    for v, inferred in enumerate(state.E):
        missing = ~authors_run[f"{parity}_mask"][:, v]
        np.testing.assert_allclose(inferred[:, missing], authors_run[f"{parity}_E_final_{v}"], atol=1e-10)
        assert not np.asarray(inferred[:, ~missing]).any()


def test_parity_of_the_default_solve_for_an_even_number_of_samples(authors_run):
    result = imvtsc_mvi.solve(*recorded_problem(authors_run, "even", np.float64))
    residual = authors_run["even_residual"]
    assert status_of(result) is jj.Status.CONVERGED
    assert int(result.n_iter) == len(residual)
    np.testing.assert_allclose(result.history[: len(residual)], residual, rtol=1e-6, atol=1e-11)
    np.testing.assert_allclose(result.state.Z, np.moveaxis(authors_run["even_Z_final"], -1, 0), atol=1e-10)


def test_float32_follows_the_authors_run_at_first(authors_run):
    columns, mask, hyper, start = recorded_problem(authors_run, "even", np.float32)
    state, _ = compiled_step(columns, mask, hyper, start, transform=AuthorsFourier())
    assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {jnp.dtype(np.float32)}
    np.testing.assert_allclose(state.Z, np.moveaxis(authors_run["even_Z_iter1"], -1, 0), atol=1e-5)


def test_model_and_program_differ_for_an_odd_number_of_samples(authors_run):
    columns, mask, hyper, state = recorded_problem(authors_run, "odd", np.float64)
    for _ in range(30):
        state, _ = compiled_step(columns, mask, hyper, state)
    assert np.abs(state.Z - np.moveaxis(authors_run["odd_Z_iter30"], -1, 0)).max() > 1e-4


@pytest.mark.parametrize("n", [6, 7])
def test_authors_fourier_inverts_and_doubles_the_threshold_of_the_middle_pair(n):
    x = jnp.asarray(np.random.default_rng(n).normal(size=(3, 4, n)))
    transform = AuthorsFourier()
    np.testing.assert_allclose(transform.inverse(transform.forward(x), n), x, atol=1e-14)
    spectrum = np.moveaxis(np.fft.fft(x, axis=-1), -1, 0)
    u, s, vh = np.linalg.svd(spectrum, full_matrices=False)
    tau = np.full((n, 1), 0.5)
    if n % 2:
        tau[[n // 2, n // 2 + 1]] = 1.0
    shrunk = np.fft.ifft(np.moveaxis(u * np.maximum(s - tau, 0)[:, None] @ vh, 0, -1), axis=-1).real
    np.testing.assert_allclose(jj.prox.tubal_shrink(x, 0.5, transform=transform), shrunk, atol=1e-12)
    np.testing.assert_allclose(tensor_nuclear_norm(x, transform=transform), s.sum() / n, rtol=1e-12)


# Blocks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [3, 9, 30])
def test_ridge_solution(d):
    rng = np.random.default_rng(d)
    y, right = rng.normal(size=(d, 9)), rng.normal(size=(9, 4))
    exact = np.linalg.solve(0.7 * np.eye(9) + 0.4 * y.T @ y, right)
    np.testing.assert_allclose(imvtsc_mvi._solve_ridge(jnp.asarray(y), 0.7, 0.4, jnp.asarray(right)), exact, atol=1e-12)


@settings(max_examples=5)
@given(seed=seeds)
def test_inferred_samples_are_stationary_and_equal_the_submatrix_form(seed):
    rng = np.random.default_rng(seed)
    z, mu, lambda1 = rng.normal(size=(8, 8)), 0.7, 0.2
    present = rng.random(8) < 0.6
    x = rng.normal(size=(3, 8)) * present
    b, c = rng.normal(size=(2, 3, 8))
    arguments = [jnp.asarray(a) for a in (x, b, c, z, present)]
    e = imvtsc_mvi._infer_missing(*arguments, Hyper(lambda1=lambda1), mu)
    q = (np.eye(8) - z)[~present]
    system = 2 * lambda1 * np.eye(len(q)) + mu * q @ q.T
    literal = (mu * (x @ z + b - x) - c) @ q.T @ np.linalg.inv(system)
    np.testing.assert_allclose(e[:, ~present], literal, atol=1e-10)

    def lagrangian(e):
        y = x + jnp.where(present, 0, e)
        misfit = y - y @ z - b
        return lambda1 * jnp.sum(e**2) + jnp.vdot(jnp.asarray(c), misfit) + mu / 2 * jnp.sum(misfit**2)

    np.testing.assert_allclose(jax.grad(lagrangian)(e), 0, atol=1e-9)
    assert not np.asarray(e[:, present]).any()


def test_neighbour_graph_equals_that_of_scikit_learn_on_the_observed_samples():
    columns, mask = small_problem(20)
    start = imvtsc_mvi.init(columns, mask, HYPER, n_neighbors=4)
    for v, x in enumerate(columns):
        seen = np.flatnonzero(mask[:, v])
        directed = kneighbors_graph(np.asarray(x)[:, seen].T, 4).toarray()
        expected = np.zeros((20, 20))
        expected[np.ix_(seen, seen)] = np.maximum(directed, directed.T)
        np.testing.assert_array_equal(start.Z[v], expected)


def test_constraints_hold_at_convergence():
    columns, mask = small_problem()
    result = solve_small(columns, mask)
    assert status_of(result) is jj.Status.CONVERGED
    done, state = int(result.n_iter), result.state
    history = np.asarray(result.history)
    assert history[done - 1] < 1e-6 <= history[done - 2]
    assert np.isnan(history[done:]).all()
    assert np.abs(state.Z - state.P).max() < 1e-6
    for x, e, b, z in zip(columns, state.E, state.B, state.Z, strict=True):
        y = x + e
        assert np.abs(y - y @ z - b).max() < 1e-6
    np.testing.assert_allclose(state.Z.sum(axis=2), 1, atol=1e-12)
    assert (np.asarray(state.Z) >= 0).all()
    np.testing.assert_allclose(result.affinity, (state.Z.mean(axis=0) + state.Z.mean(axis=0).T) / 2, atol=1e-15)


# Clustering ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_planted_blobs_are_found(dtype):
    views, labels = blobs(0, dtype=dtype)
    result = imvtsc_mvi.fit(views, paper_protocol(0, 90, 3, 0.3), 3, key=KEY, lambda2=0.1)
    assert adjusted_rand_score(labels, result.labels) > 0.9
    assert result.affinity.dtype == dtype
    assert result.embedding is None
    complete = imvtsc_mvi.fit(views, None, 3, key=KEY, lambda2=0.1)
    assert adjusted_rand_score(labels, complete.labels) > 0.9


def test_a_small_lambda2_leaves_nearly_uniform_graphs():
    """The pitfall that the docstring warns of: the errors take up everything."""
    views, labels = blobs(0)
    poor, good = (imvtsc_mvi.fit(views, None, 3, key=KEY, lambda2=x) for x in (1e-3, 0.1))
    uniform = (1 - np.eye(90)) / 89
    assert (np.abs(poor.affinity - uniform) < uniform + 1e-12).all()
    assert np.abs(good.affinity - uniform).max() > 4 / 89
    assert adjusted_rand_score(labels, poor.labels) < 0.1 < 0.9 < adjusted_rand_score(labels, good.labels)


def test_a_view_seen_once_and_a_single_view_work():
    views, _ = blobs(3, 12, (5, 5, 20))
    views[1][1:] = np.nan
    for some in (views, views[:1]):
        result = imvtsc_mvi.fit(some, None, 3, key=KEY, lambda2=0.1)
        assert status_of(result) is jj.Status.CONVERGED
        assert np.isfinite(result.affinity).all()


# Metamorphic --------------------------------------------------------------------------------------------------------


def test_values_under_the_mask_do_not_matter():
    views, _ = blobs(1, 12, (5, 5, 20))
    mask = paper_protocol(1, 12, 3, 0.5)
    reference = imvtsc_mvi.fit(views, mask, 3, key=KEY)
    for garbage in (np.nan, np.inf, 1e30):
        hidden = [np.where(mask[:, v, None], x, garbage) for v, x in enumerate(views)]
        result = imvtsc_mvi.fit(hidden, mask, 3, key=KEY)
        np.testing.assert_array_equal(result.affinity, reference.affinity)


def test_permuting_views_permutes_the_result():
    columns, mask = small_problem()
    order = [1, 0, 2]
    a = solve_small(columns, mask)
    b = solve_small(tuple(columns[v] for v in order), mask[:, jnp.asarray(order)])
    np.testing.assert_allclose(b.state.Z, np.asarray(a.state.Z)[order], atol=1e-9)
    np.testing.assert_allclose(b.affinity, a.affinity, atol=1e-9)


def test_order_of_samples_matters_with_fourier_only():
    columns, mask = small_problem()
    shuffle = np.random.default_rng(0).permutation(12)
    basis = orthonormal(0, 12, 12)
    shuffled = tuple(x[:, shuffle] for x in columns), mask[shuffle]
    a = solve_small(columns, mask, transform=Orthonormal(jnp.asarray(basis)))
    b = solve_small(*shuffled, transform=Orthonormal(jnp.asarray(basis[shuffle])))
    np.testing.assert_allclose(b.affinity, np.asarray(a.affinity)[np.ix_(shuffle, shuffle)], atol=1e-9)
    fourier, fourier_shuffled = solve_small(columns, mask).affinity, solve_small(*shuffled).affinity
    assert np.abs(fourier_shuffled - np.asarray(fourier)[np.ix_(shuffle, shuffle)]).max() > 1e-4


def test_complete_data_equal_with_and_without_mask():
    views, _ = blobs(2, 12, (5, 5, 20))
    a, b = (imvtsc_mvi.fit(views, mask, 3, key=KEY) for mask in (None, np.ones((12, 3), bool)))
    np.testing.assert_array_equal(a.affinity, b.affinity)
    np.testing.assert_array_equal(a.labels, b.labels)


# Statuses, compilation, batching ------------------------------------------------------------------------------------


def test_statuses():
    columns, mask = small_problem()
    short = solve_small(columns, mask, max_iter=5)
    assert status_of(short) is jj.Status.MAX_ITER
    assert int(short.n_iter) == 5
    for field in Hyper._fields:
        broken = solve_small(columns, mask, HYPER._replace(**{field: np.nan}))
        assert status_of(broken) is (jj.Status.MAX_ITER if field == "tol" else jj.Status.NONFINITE), field
    damaged = (columns[0].at[0, 0].set(jnp.nan), *columns[1:])
    assert status_of(solve_small(damaged, mask)) is jj.Status.NONFINITE


def test_vmap_over_hyper_parameters_equals_single_solves():
    columns, mask = small_problem()
    lambda2, lambda3 = jnp.array([0.02, 0.1, 0.5]), jnp.array([1e-3, 1e-2, 1e-1])
    run = partial(solve_small, columns, mask)
    batch = jax.vmap(lambda a, b: run(HYPER._replace(lambda2=a, lambda3=b)))(lambda2, lambda3)
    solve_small(columns, mask)
    compilations = imvtsc_mvi._solve._cache_size()
    for i in range(3):
        single = run(HYPER._replace(lambda2=float(lambda2[i]), lambda3=lambda3[i]))
        assert int(batch.n_iter[i]) == int(single.n_iter)
        assert int(batch.status[i]) == int(single.status)
        np.testing.assert_allclose(batch.affinity[i], single.affinity, atol=1e-9)
    assert imvtsc_mvi._solve._cache_size() == compilations
    assert len(set(np.asarray(batch.n_iter))) > 1


def test_one_compilation_serves_all_masks():
    views, _ = blobs(1, 12, (5, 5, 20))
    imvtsc_mvi.fit(views, None, 3, key=KEY)
    before = imvtsc_mvi._solve._cache_size()
    imvtsc_mvi.fit(views, paper_protocol(3, 12, 3, 0.5), 3, key=KEY, lambda1=1e-2)
    assert imvtsc_mvi._solve._cache_size() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be between 1 and the number of samples 12, got 0"),
        ({"n_clusters": 13}, "n_clusters must be between 1 and the number of samples 12, got 13"),
        ({"lambda1": 0.0}, "lambda1 must be positive, got 0.0"),
        ({"lambda2": -1.0}, "lambda2 must not be negative, got -1.0"),
        ({"lambda3": -1.0}, "lambda3 must not be negative, got -1.0"),
        ({"n_neighbors": 0}, "n_neighbors must be at least 1, got 0"),
        ({"max_iter": 0}, "max_iter must be at least 1, got 0"),
        ({"mask": np.zeros((12, 2), bool)}, "view 0 has no observed sample"),
    ],
)
def test_bad_options_are_named(options, message):
    views, _ = blobs(0, 12, (5, 4))
    with pytest.raises(ValueError, match=message):
        imvtsc_mvi.fit(views, **({"mask": None, "n_clusters": 3, "key": KEY} | options))
