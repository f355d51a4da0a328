"""TMBSD: parity with the authors' run, the inner solver, invariances, statuses, compilation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.metrics import adjusted_rand_score

import jpltd_jax as jj
from jpltd_jax.baselines import tmbsd
from tests.conftest import DATA
from tests.strategies import orthonormal, seeds

KEY = jax.random.key(0)
step = jax.jit(tmbsd._step, static_argnames="fourier")
minimize_on_frames = jax.jit(tmbsd.minimize_on_frames)


@pytest.fixture(scope="module")
def recorded():
    with np.load(DATA / "tmbsd.npz") as archive:
        run = {name: archive[name] for name in archive.files}
    return run | {"views": [run[f"X{v}"].T for v in (1, 2, 3)], "mask": run["mask"].astype(bool)}


@pytest.fixture
def arguments(recorded):
    """Affinities, mask and start of the recorded run."""
    return (
        jnp.asarray(np.moveaxis(recorded["A"], -1, 0)),
        jnp.asarray(recorded["mask"].T),
        jnp.asarray(np.moveaxis(recorded["H0"], -1, 0)),
    )


def hyper_of(recorded):
    return tmbsd.Hyper(jnp.asarray(recorded["lambda1"]), jnp.asarray(recorded["lambda2"]))


def status_of(result):
    return jj.Status(int(result.status))


def kernel(embedding):
    """What is left of an embedding when its basis does not matter."""
    return np.asarray(embedding @ embedding.T)


def blobs(rate, seed=0, n=90, dims=(10, 20, 30), dtype=np.float64):
    """Three separated clusters in random order; the given part of all entries missing."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % 3)
    views = [(rng.normal(size=(3, d))[labels] + 0.2 * rng.normal(size=(n, d))).astype(dtype) for d in dims]
    mask = rng.random((n, len(dims))) >= rate
    mask[np.arange(n), rng.integers(0, len(dims), n)] = True
    return views, mask, labels


# Parity with the authors' run ---------------------------------------------------------------------------------------


def test_affinities_and_eigenspaces_of_the_authors_run(recorded, arguments):
    problem = jj.make_problem(recorded["views"], recorded["mask"])
    affinities = tmbsd.normalized_affinities(problem, int(recorded["knn"]))
    np.testing.assert_allclose(np.moveaxis(affinities, 0, -1), recorded["A"], atol=1e-14)
    start = tmbsd.leading_eigenvectors(affinities, problem.mask, 3)
    for ours, theirs in zip(start, arguments[2], strict=True):
        np.testing.assert_allclose(kernel(ours), kernel(theirs), atol=1e-13)


def test_iterates_of_the_authors_run(recorded, arguments):
    affinities, mask, start = arguments
    hyper = tmbsd.Hyper(*(jnp.asarray(x, jnp.float64) for x in hyper_of(recorded)))
    state = tmbsd._initial_state(start, mask, hyper)
    checkpoints = {int(at): i for i, at in enumerate(recorded["ckpt"])}
    inner_missing, inner_observed = recorded["inner_missing"][:, 1], recorded["inner_observed"][:, 1]
    for at in range(77):
        state = step(affinities, mask, hyper, state, fourier="samples")
        np.testing.assert_array_equal(state.inner_steps[:, 1], inner_observed[3 * at : 3 * at + 3])
        np.testing.assert_array_equal(state.inner_steps[:, 0], [*inner_missing[2 * at : 2 * at + 2], 0])
        if at + 1 in checkpoints:
            i = checkpoints[at + 1]
            np.testing.assert_allclose(state.F, recorded["F_ckpt"][i], atol=1e-12)
            np.testing.assert_allclose(state.H, np.moveaxis(recorded["H_ckpt"][i], -1, 0), atol=1e-12)
            np.testing.assert_allclose(state.beta, recorded["beta_ckpt"][i], atol=1e-12)


def test_outcome_of_the_authors_run(recorded, arguments):
    result = tmbsd.solve(*arguments, hyper_of(recorded))
    assert status_of(result) is jj.Status.CONVERGED
    assert int(result.n_iter) == recorded["iters"] == 77
    np.testing.assert_allclose(result.history[:77], recorded["residual"], atol=1e-12)
    assert np.isnan(result.history[77:]).all()
    np.testing.assert_allclose(result.embedding, recorded["F_normalized"], atol=1e-12)
    for name in ("H", "Q"):
        np.testing.assert_allclose(getattr(result.state, name), np.moveaxis(recorded[name], -1, 0), atol=1e-12)
    for name in ("G", "R"):
        np.testing.assert_allclose(getattr(result.state, name), recorded[name].transpose(2, 1, 0), atol=1e-12)
    np.testing.assert_allclose(result.state.beta, recorded["beta"], atol=1e-12)


# The blocks ---------------------------------------------------------------------------------------------------------


def inner_problem(seed):
    """J without coupling between the block and the rest, as strong as in a solve, K and a start in the block."""
    rng = np.random.default_rng(seed)
    inside = np.sort(rng.permutation(11)[:7])
    block = np.isin(np.arange(11), inside)
    factor = 0.2 * rng.normal(size=(11, 11))
    J = np.where(block[:, None] == block, -factor @ factor.T, 0)
    K, start = np.zeros((11, 3)), np.zeros((11, 3))
    K[inside], start[inside] = rng.normal(size=(7, 3)), orthonormal(seed, 7, 3)
    return J, K, start, block


@settings(max_examples=10)
@given(seed=seeds)
def test_inner_solver_is_stationary_and_equal_to_that_of_the_block_alone(seed):
    J, K, start, block = inner_problem(seed)
    X, steps = minimize_on_frames(*map(jnp.asarray, (J, K, start, block)))
    small = (J[np.ix_(block, block)], K[block], start[block], np.ones(7, bool))
    alone, steps_alone = minimize_on_frames(*map(jnp.asarray, small))
    assert int(steps) == int(steps_alone) < tmbsd.INNER_ITERATIONS
    X = np.asarray(X)
    np.testing.assert_allclose(X[block], alone, atol=1e-8)
    assert not X[~block].any()
    np.testing.assert_allclose(X.T @ X, np.eye(3), atol=1e-10)
    gradient, first_gradient = 2 * J @ X + K, 2 * J @ start + K
    assert np.sum(X * (J @ X + K)) <= np.sum(start * (J @ start + K))
    first_kkt = np.linalg.norm(first_gradient - start @ (first_gradient.T @ start))
    assert np.linalg.norm(gradient - X @ (gradient.T @ X)) <= 1.01e-5 * first_kkt


def test_rounding_of_the_start_does_not_turn_it(recorded, arguments):
    """1e-12 away from orthonormal the start is orthonormalised, but its columns keep their signs."""
    affinities, mask, start = arguments
    noise = 1e-12 * np.random.default_rng(0).normal(size=start.shape) * np.asarray(mask)[:, :, None]
    a, b = (tmbsd.solve(affinities, mask, x, hyper_of(recorded)).embedding for x in (start, start + noise))
    np.testing.assert_allclose(b, a, atol=1e-8)


def test_inner_solver_without_quadratic_part_aligns_with_the_linear_one():
    """From the zero start, as for the missing rows of the first iteration."""
    rng = np.random.default_rng(0)
    block = np.arange(11) > 3
    K = rng.normal(size=(11, 3)) * block[:, None]
    X, _ = minimize_on_frames(jnp.zeros((11, 11)), jnp.asarray(K), jnp.zeros((11, 3)), jnp.asarray(block))
    u, _, vh = np.linalg.svd(K, full_matrices=False)
    np.testing.assert_allclose(X, -u @ vh, atol=1e-4)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_missing_rows_get_orthonormal_rows(count):
    M = np.zeros((8, 3))
    M[2 : 2 + count] = np.random.default_rng(0).normal(size=(count, 3))
    polar = np.asarray(tmbsd._polar_of_few_rows(jnp.asarray(M), jnp.asarray(count)))
    rows = polar[2 : 2 + count]
    np.testing.assert_allclose(rows @ rows.T, np.eye(count), atol=1e-12)
    np.testing.assert_allclose(np.delete(polar, np.s_[2 : 2 + count], axis=0), 0, atol=1e-14)
    nuclear = np.linalg.svd(M, compute_uv=False).sum()
    np.testing.assert_allclose(np.vdot(polar, M), nuclear, atol=1e-12)


def test_constraints_hold(recorded, arguments):
    result = tmbsd.solve(*arguments, hyper_of(recorded))
    np.testing.assert_allclose(result.state.F.T @ result.state.F, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(result.embedding, axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(result.state.beta), 1, atol=1e-12)
    for H, present in zip(np.asarray(result.state.H), recorded["mask"].T, strict=True):
        for block in (H[present], H[~present]):
            gram = block.T @ block if len(block) >= 3 else block @ block.T
            np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-11)


def test_start_is_turned_towards_the_most_complete_view(recorded, arguments):
    affinities, mask, _ = arguments
    start = np.asarray(tmbsd.leading_eigenvectors(affinities, mask, 3))
    best = start[int(np.argmax(recorded["mask"].sum(axis=0)))]
    for H, present in zip(start, recorded["mask"].T, strict=True):
        overlap = H.T @ best
        np.testing.assert_allclose(overlap, overlap.T, atol=1e-12)
        assert np.linalg.eigvalsh((overlap + overlap.T) / 2)[0] > 0
        assert not H[~present].any()


# Clusters -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "tol"), [(np.float64, 1e-6), (np.float32, 1e-5)])
@pytest.mark.parametrize("rate", [0.3, 0.0])
def test_planted_clusters_are_found(dtype, tol, rate):
    views, mask, labels = blobs(rate, dtype=dtype)
    result = tmbsd.fit(views, mask, 3, key=KEY, tol=tol)
    assert result.embedding.dtype == dtype
    assert result.affinity is None
    assert status_of(result) is jj.Status.CONVERGED
    assert adjusted_rand_score(labels, result.labels) > 0.9


def test_float32_stays_at_its_rounding_when_tol_is_below():
    """A tol below what float32 resolves, as the default may be: no convergence is claimed, and nothing is spoilt."""
    views, mask, labels = blobs(0.0, dtype=np.float32)
    result = tmbsd.fit(views, mask, 3, key=KEY, tol=1e-8)
    assert status_of(result) is jj.Status.MAX_ITER
    assert 0 < result.history[-1] < 5e-6
    assert adjusted_rand_score(labels, result.labels) > 0.9


def test_float32_follows_float64():
    views, mask, _ = blobs(0.3)
    double = tmbsd.fit(views, mask, 3, key=KEY, tol=1e-5)
    single = tmbsd.fit([x.astype(np.float32) for x in views], mask, 3, key=KEY, tol=1e-5)
    assert abs(int(double.n_iter) - int(single.n_iter)) <= 2
    np.testing.assert_allclose(kernel(single.embedding), kernel(double.embedding), atol=1e-2)


def test_single_view():
    views, _, labels = blobs(0.0)
    result = tmbsd.fit(views[2:], None, 3, key=KEY)
    assert status_of(result) is jj.Status.CONVERGED
    assert adjusted_rand_score(labels, result.labels) > 0.9


# Invariances --------------------------------------------------------------------------------------------------------


def test_what_is_hidden_never_matters():
    views, mask, _ = blobs(0.3)
    blank = [np.where(mask[:, [v]], x, np.nan) for v, x in enumerate(views)]
    garbage = [np.where(mask[:, [v]], x, 1e6 * (v + 1)) for v, x in enumerate(views)]
    a, b = (tmbsd.fit(x, m, 3, key=KEY) for x, m in ((blank, None), (garbage, mask)))
    np.testing.assert_array_equal(a.embedding, b.embedding)
    np.testing.assert_array_equal(a.labels, b.labels)


def test_order_of_views_does_not_matter(recorded, arguments):
    order = np.array([2, 0, 1])
    a = tmbsd.solve(*arguments, hyper_of(recorded))
    b = tmbsd.solve(*(x[order] for x in arguments), hyper_of(recorded))
    np.testing.assert_allclose(b.embedding, a.embedding, atol=1e-9)
    np.testing.assert_allclose(b.state.beta, np.asarray(a.state.beta)[order], atol=1e-9)


@pytest.mark.parametrize("fourier", ["samples", "views"])
def test_order_of_samples_matters_unless_the_dft_runs_over_views(arguments, fourier):
    affinities, mask, start = arguments
    shuffle = np.random.default_rng(0).permutation(42)
    shuffled = (affinities[:, shuffle][:, :, shuffle], mask[:, shuffle], start[:, shuffle])
    a, b = (kernel(tmbsd.solve(*x, tmbsd.Hyper(), fourier=fourier).embedding) for x in (arguments, shuffled))
    difference = np.abs(b - a[np.ix_(shuffle, shuffle)]).max()
    assert difference > 1e-3 if fourier == "samples" else difference < 1e-9


def test_basis_of_the_start_does_not_matter(recorded, arguments):
    """Up to the inner tolerance, as long as all views share the basis."""
    affinities, mask, start = arguments
    turned = start @ orthonormal(1, 3, 3)
    a, b = (kernel(tmbsd.solve(affinities, mask, x, hyper_of(recorded)).embedding) for x in (start, turned))
    np.testing.assert_allclose(b, a, atol=1e-4)


# Status, options, compilation ---------------------------------------------------------------------------------------


def test_max_iter_and_nonfinite(recorded, arguments):
    never = tmbsd.solve(*arguments, hyper_of(recorded)._replace(tol=0.0))
    assert status_of(never) is jj.Status.MAX_ITER
    assert int(never.n_iter) == 150
    for field in ("lambda1", "lambda2", "rho"):
        broken = tmbsd.solve(*arguments, hyper_of(recorded)._replace(**{field: np.nan}))
        assert status_of(broken) is jj.Status.NONFINITE
        assert int(broken.n_iter) == 1
    affinities, mask, start = arguments
    broken = tmbsd.solve(affinities.at[1, 0, 3].set(jnp.nan), mask, start, hyper_of(recorded))
    assert status_of(broken) is jj.Status.NONFINITE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fourier": "time"}, "fourier must be 'samples' or 'views', got 'time'"),
        ({"max_iter": 0}, "max_iter must be at least 1, got 0"),
        ({"n_clusters": 0}, "n_clusters and n_neighbors must be at least 1, got 0 and 15"),
        ({"n_clusters": 31}, "view 0 has 30 observed samples, fewer than the 31 clusters"),
        ({"n_neighbors": 30}, "view 0 has 30 observed samples; 30 neighbours need at least 32"),
    ],
)
def test_bad_options_are_named(recorded, options, message):
    with pytest.raises(ValueError, match=message):
        tmbsd.fit(recorded["views"], recorded["mask"], **({"n_clusters": 3, "key": KEY} | options))


def test_one_compilation_serves_all_hyper_parameters(recorded, arguments):
    tmbsd.solve(*arguments, hyper_of(recorded))
    before = tmbsd._solve._cache_size()
    tmbsd.solve(*arguments, tmbsd.Hyper(1, np.float32(2), tol=jnp.asarray(1e-3)))
    assert tmbsd._solve._cache_size() == before


def test_vmap_over_hyper_parameters_equals_single_solves(arguments):
    hypers = tmbsd.Hyper(
        jnp.asarray([10.0, 100.0]), jnp.asarray([10.0, 50.0]), jnp.full(2, 1e-4), jnp.full(2, 1e6),
        jnp.asarray([1.2, 1.3]), jnp.full(2, 1e-6),
    )  # fmt: skip
    batch = jax.vmap(partial(tmbsd.solve, *arguments))(hypers)
    for i in range(2):
        single = tmbsd.solve(*arguments, tmbsd.Hyper(*(x[i] for x in hypers)))
        assert int(batch.status[i]) == int(single.status)
        assert int(batch.n_iter[i]) == int(single.n_iter)
        np.testing.assert_allclose(batch.embedding[i], single.embedding, atol=1e-9)
    assert int(batch.n_iter[0]) != int(batch.n_iter[1])
