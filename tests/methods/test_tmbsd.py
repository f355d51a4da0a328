"""TMBSD: parity with the authors' run, the inner solver and the low-rank copy, constraints, invariances, bad input."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from jpltd_jax.loop import as_dtype, check_hyper, prepare
from jpltd_jax.methods import tmbsd
from jpltd_jax.problem import make_problem
from tests.conftest import DATA
from tests.strategies import orthonormal, seeds

KEY = jax.random.key(0)
OVER_VIEWS = tmbsd.Config(transform_over="views")


@pytest.fixture(scope="module")
def recorded():
    with np.load(DATA / "tmbsd.npz") as archive:
        run = {name: archive[name] for name in archive.files}
    return run | {"views": [run[f"X{v}"].T for v in (1, 2, 3)], "mask": run["mask"].astype(bool)}


@pytest.fixture(scope="module")
def data(recorded):
    """Affinities, mask and start of the recorded run."""
    with jax.enable_x64(True):
        affinities, start = (jnp.asarray(np.moveaxis(recorded[name], -1, 0)) for name in ("A", "H0"))
        return tmbsd.Data(affinities, jnp.asarray(recorded["mask"].T), start, tmbsd.Config(), 3)


@pytest.fixture(scope="module")
def prepared(recorded):
    """The same from the views, but for the basis of the start."""
    with jax.enable_x64(True):
        return prepare(tmbsd.TMBSD, make_problem(recorded["views"], recorded["mask"]), 3)


class Iterates(NamedTuple):
    states: list
    """The start and the state after each iteration."""
    watched: list

    @property
    def last(self):
        return self.states[-1]

    @property
    def kernel(self):
        """What is left of the embedding when its basis does not matter."""
        return kernel(tmbsd.readout(None, self.last).embedding)


def kernel(embedding):
    return np.asarray(embedding @ embedding.T)


def iterate(data, hyper, max_iter=150):
    hyper = as_dtype(hyper, data.start.dtype)
    made = Iterates([tmbsd.init(KEY, data, hyper)], [])
    before = np.nan
    for n_iter in range(max_iter):
        state, watched = tmbsd.step(data, hyper, made.last)
        made.states.append(state)
        made.watched.append(float(watched))
        if tmbsd.settled(hyper, n_iter, before, watched):
            break
        before = watched
    return made


@pytest.fixture(scope="module")
def authors(recorded):
    return tmbsd.Hyper(float(recorded["lambda1"]), float(recorded["lambda2"]))


@pytest.fixture(scope="module")
def repeated(data, authors):
    with jax.enable_x64(True):
        return iterate(data, authors)


@pytest.fixture(scope="module")
def by_default(data):
    """Runs with the default weights, by what the DFT runs over."""
    with jax.enable_x64(True):
        return {
            "samples": iterate(data, tmbsd.Hyper()),
            "views": iterate(replace(data, config=OVER_VIEWS), tmbsd.Hyper()),
        }


# Parity with the authors' run ---------------------------------------------------------------------------------------


def test_affinities_and_eigenspaces_of_the_authors_run(recorded, data, prepared):
    assert recorded["knn"] == prepared.config.n_neighbors
    np.testing.assert_allclose(prepared.affinities, data.affinities, atol=1e-14)
    np.testing.assert_array_equal(prepared.mask, data.mask)
    for H, theirs in zip(prepared.start, data.start, strict=True):
        np.testing.assert_allclose(kernel(H), kernel(theirs), atol=1e-13)


def test_iterates_of_the_authors_run(recorded, repeated):
    checkpoints = {int(at): i for i, at in enumerate(recorded["ckpt"])}
    inner_missing, inner_observed = recorded["inner_missing"][:, 1], recorded["inner_observed"][:, 1]
    for at, state in enumerate(repeated.states[1:]):
        np.testing.assert_array_equal(state.inner_steps[:, 1], inner_observed[3 * at : 3 * at + 3])
        np.testing.assert_array_equal(state.inner_steps[:, 0], [*inner_missing[2 * at : 2 * at + 2], 0])
        if at + 1 in checkpoints:
            i = checkpoints[at + 1]
            np.testing.assert_allclose(state.F, recorded["F_ckpt"][i], atol=1e-12)
            np.testing.assert_allclose(state.H, np.moveaxis(recorded["H_ckpt"][i], -1, 0), atol=1e-12)
            np.testing.assert_allclose(state.beta, recorded["beta_ckpt"][i], atol=1e-12)


def test_outcome_of_the_authors_run(recorded, data, repeated):
    assert len(repeated.watched) == recorded["iters"] == 77
    np.testing.assert_allclose(repeated.watched, recorded["residual"], atol=1e-12)
    np.testing.assert_allclose(tmbsd.readout(data, repeated.last).embedding, recorded["F_normalized"], atol=1e-12)
    for name in ("H", "Q"):
        np.testing.assert_allclose(getattr(repeated.last, name), np.moveaxis(recorded[name], -1, 0), atol=1e-12)
    for name in ("G", "R"):
        np.testing.assert_allclose(getattr(repeated.last, name), recorded[name].transpose(2, 1, 0), atol=1e-12)
    np.testing.assert_allclose(repeated.last.beta, recorded["beta"], atol=1e-12)


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
    X, steps = tmbsd.minimize_on_frames(*map(jnp.asarray, (J, K, start, block)))
    small = (J[np.ix_(block, block)], K[block], start[block], np.ones(7, bool))
    alone, steps_alone = tmbsd.minimize_on_frames(*map(jnp.asarray, small))
    assert int(steps) == int(steps_alone) < tmbsd.INNER_ITERATIONS
    X = np.asarray(X)
    np.testing.assert_allclose(X[block], alone, atol=1e-8)
    assert not X[~block].any()
    np.testing.assert_allclose(X.T @ X, np.eye(3), atol=1e-10)
    gradient, first_gradient = 2 * J @ X + K, 2 * J @ start + K
    assert np.sum(X * (J @ X + K)) <= np.sum(start * (J @ start + K))
    first_kkt = np.linalg.norm(first_gradient - start @ (first_gradient.T @ start))
    assert np.linalg.norm(gradient - X @ (gradient.T @ X)) <= 1.01e-5 * first_kkt


def test_inner_solver_without_quadratic_part_aligns_with_the_linear_one():
    """From the zero start, as for the missing rows of the first iteration."""
    rng = np.random.default_rng(0)
    block = np.arange(11) > 3
    K = rng.normal(size=(11, 3)) * block[:, None]
    X, _ = tmbsd.minimize_on_frames(jnp.zeros((11, 11)), jnp.asarray(K), jnp.zeros((11, 3)), jnp.asarray(block))
    u, _, vh = np.linalg.svd(K, full_matrices=False)
    np.testing.assert_allclose(X, -u @ vh, atol=1e-4)


def test_rounding_of_the_start_does_not_turn_it(data, authors, repeated):
    """1e-12 away from orthonormal the start is orthonormalised, but its columns keep their signs."""
    noise = 1e-12 * np.random.default_rng(0).normal(size=data.start.shape) * np.asarray(data.mask)[:, :, None]
    b = iterate(replace(data, start=data.start + noise), authors)
    embeddings = [tmbsd.readout(data, made.last).embedding for made in (repeated, b)]
    np.testing.assert_allclose(*embeddings, atol=1e-8)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_missing_rows_get_orthonormal_rows(count):
    M = np.zeros((8, 3))
    M[2 : 2 + count] = np.random.default_rng(0).normal(size=(count, 3))
    polar = np.asarray(tmbsd.polar_of_few_rows(jnp.asarray(M), jnp.asarray(count)))
    rows = polar[2 : 2 + count]
    np.testing.assert_allclose(rows @ rows.T, np.eye(count), atol=1e-12)
    np.testing.assert_allclose(np.delete(polar, np.s_[2 : 2 + count], axis=0), 0, atol=1e-14)
    nuclear = np.linalg.svd(M, compute_uv=False).sum()
    np.testing.assert_allclose(np.vdot(polar, M), nuclear, atol=1e-12)


@pytest.mark.parametrize(("over", "axis"), [("samples", 2), ("views", 0)])
@pytest.mark.parametrize("at", [50, 60, 70])
def test_low_rank_copy_lowers_the_singular_values_of_every_slice(by_default, over, axis, at):
    before, after = by_default[over].states[at : at + 2]
    T = np.asarray(after.H) @ np.swapaxes(after.H, 1, 2)
    slices = np.moveaxis(np.fft.fft(T + np.asarray(before.R) / float(before.rho), axis=axis), axis, 0)
    u, s, vh = np.linalg.svd(slices, full_matrices=False)
    shrunk = (u * np.maximum(s - 1 / float(before.rho), 0)[:, None, :]) @ vh
    expected = np.fft.ifft(np.moveaxis(shrunk, 0, axis), axis=axis).real
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(after.G, expected, atol=1e-10)


def test_constraints_hold(recorded, data, repeated):
    state = repeated.last
    np.testing.assert_allclose(state.F.T @ state.F, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(tmbsd.readout(data, state).embedding, axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(state.beta), 1, atol=1e-12)
    for H, present in zip(np.asarray(state.H), recorded["mask"].T, strict=True):
        for block in (H[present], H[~present]):
            gram = block.T @ block if len(block) >= 3 else block @ block.T
            np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-11)


def test_start_is_turned_towards_the_most_complete_view(recorded, prepared):
    start = np.asarray(prepared.start)
    best = start[int(np.argmax(recorded["mask"].sum(axis=0)))]
    for H, present in zip(start, recorded["mask"].T, strict=True):
        overlap = H.T @ best
        np.testing.assert_allclose(overlap, overlap.T, atol=1e-12)
        assert np.linalg.eigvalsh((overlap + overlap.T) / 2)[0] > 0
        assert not H[~present].any()


# Special cases ------------------------------------------------------------------------------------------------------


def test_single_complete_view_in_float32_stays_at_its_rounding_when_tol_is_below(recorded):
    """A tol below what float32 resolves, as the default may be: no convergence is claimed, and nothing is spoilt."""
    present = recorded["mask"][:, 2]
    data = prepare(tmbsd.TMBSD, make_problem([recorded["views"][2][present]], dtype=np.float32), 3)
    made = iterate(data, tmbsd.Hyper(tol=1e-8))
    assert len(made.watched) == tmbsd.TMBSD.max_iter
    assert 0 < made.watched[-1] < 5e-6
    embedding = tmbsd.readout(data, made.last).embedding
    assert embedding.dtype == np.float32
    found = KMeans(3, n_init=10, random_state=0).fit_predict(embedding)
    assert adjusted_rand_score(recorded["labels"][present], found) > 0.9


def test_nan_in_an_affinity_is_watched(data, authors):
    broken = replace(data, affinities=data.affinities.at[1, 0, 3].set(jnp.nan))
    assert np.isnan(iterate(broken, authors, max_iter=1).watched[0])


# Invariances --------------------------------------------------------------------------------------------------------


def test_order_of_views_does_not_matter(data, authors, repeated):
    views = np.array([2, 0, 1])
    permuted = replace(data, **{name: getattr(data, name)[views] for name in ("affinities", "mask", "start")})
    b = iterate(permuted, authors)
    embeddings = [tmbsd.readout(data, made.last).embedding for made in (repeated, b)]
    np.testing.assert_allclose(*embeddings, atol=1e-9)
    np.testing.assert_allclose(b.last.beta, np.asarray(repeated.last.beta)[views], atol=1e-9)


@pytest.mark.parametrize("over", ["samples", "views"])
def test_order_of_samples_matters_unless_the_dft_runs_over_views(data, by_default, over):
    shuffle = np.random.default_rng(0).permutation(42)
    affinities = data.affinities[:, shuffle][:, :, shuffle]
    config = tmbsd.Config(transform_over=over)
    shuffled = tmbsd.Data(affinities, data.mask[:, shuffle], data.start[:, shuffle], config, 3)
    b = iterate(shuffled, tmbsd.Hyper()).kernel
    difference = np.abs(b - by_default[over].kernel[np.ix_(shuffle, shuffle)]).max()
    assert difference > 1e-3 if over == "samples" else difference < 1e-9


def test_basis_of_the_start_does_not_matter(data, authors, repeated):
    """Up to the inner tolerance, as long as all views share the basis."""
    turned = iterate(replace(data, start=data.start @ orthonormal(1, 3, 3)), authors)
    np.testing.assert_allclose(turned.kernel, repeated.kernel, atol=1e-4)


# Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "n_clusters", "message"),
    [
        ({"transform_over": "time"}, 3, "transform_over must be one of 'samples', 'views', got 'time'"),
        ({"n_neighbors": 0}, 3, "n_neighbors must be at least 1, got 0"),
        ({"n_neighbors": 30}, 3, "view 0 has 30 observed samples; 30 neighbours need at least 32"),
        ({}, 31, "view 0 has 30 observed samples, fewer than the 31 clusters"),
    ],
)
def test_bad_options_are_named(recorded, options, n_clusters, message):
    problem = make_problem(recorded["views"], recorded["mask"])
    with pytest.raises(ValueError, match=message):
        prepare(tmbsd.TMBSD, problem, n_clusters, tmbsd.Config(**options))


def test_negative_tol_is_named():
    with pytest.raises(ValueError, match=r"TMBSD: tol must be a float in the range \[0.0, inf\), got -1"):
        check_hyper(tmbsd.TMBSD, tmbsd.Hyper(tol=-1.0))
