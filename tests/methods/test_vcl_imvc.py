"""VCL-IMVC (reconstructed): parity with a recorded run of the same specification, optimality, precision."""

from dataclasses import replace

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from jpltd_jax.loop import Loop, Status, check_hyper, prepare, run
from jpltd_jax.methods import vcl_imvc
from jpltd_jax.methods.vcl_imvc import VCL_IMVC, Config, Hyper
from jpltd_jax.problem import make_problem
from tests.conftest import DATA
from tests.strategies import orthonormal, seeds

HYPER = Hyper()
LOOP = Loop(max_iter=100)


def grams(F):
    return np.einsum("vic,vjc->vij", F, F)


def worst(history):
    return np.stack(history).max(axis=0)


def solve(data, hyper=HYPER):
    return run(VCL_IMVC, data, hyper, jax.random.key(0), LOOP)


@pytest.fixture(scope="module")
def reference():
    with np.load(DATA / "vcl_imvc.npz") as archive:
        return {name: archive[name] for name in archive.files}


@pytest.fixture(scope="module")
def recorded(reference):
    """Views and mask of the recorded run."""
    return [reference[f"X{v}"].T for v in (1, 2, 3)], reference["mask"].astype(bool)


@pytest.fixture(scope="module")
def prepared(recorded):
    with jax.enable_x64(True):
        return prepare(VCL_IMVC, make_problem(*recorded), 3)


@pytest.fixture(scope="module")
def data(reference, prepared):
    """What was prepared, with the embeddings that the recorded run starts from."""
    with jax.enable_x64(True):
        return replace(prepared, embeddings=jnp.asarray(reference["F0"]))


@pytest.fixture(scope="module")
def first_states(data):
    """States after the first five iterations."""
    with jax.enable_x64(True):
        states = [vcl_imvc.init(jax.random.key(0), data, HYPER)]
        for _ in range(5):
            states.append(vcl_imvc.step(data, HYPER, states[-1])[0])
    return states


@pytest.fixture(scope="module")
def full_run(data):
    with jax.enable_x64(True):
        return solve(data)


# Parity with the recorded run ---------------------------------------------------------------------------------------


def test_start_equals_the_recorded_one(reference, prepared):
    ours, start = np.asarray(prepared.embeddings), reference["F0"]
    np.testing.assert_allclose(grams(ours), grams(start), atol=1e-12)
    assert not ours[~np.asarray(prepared.mask)].any()
    across = np.einsum("vic,ujc->vuij", ours, ours)
    np.testing.assert_allclose(across, np.einsum("vic,ujc->vuij", start, start), atol=1e-12)


@pytest.mark.parametrize("seed", [0, 1])
def test_start_moves_with_the_samples(recorded, prepared, seed):
    """Its signs too, which the eigenvalue routine chooses otherwise in another order."""
    views, mask = recorded
    order = np.random.default_rng(seed).permutation(42)
    moved = prepare(VCL_IMVC, make_problem([x[order] for x in views], mask[order]), 3)
    np.testing.assert_allclose(moved.embeddings, prepared.embeddings[:, order], atol=1e-12)


@pytest.mark.parametrize("iterations", [1, 5])
def test_first_iterations_equal_the_recorded_ones(reference, first_states, iterations):
    state = first_states[iterations]
    for name in ("F", "J", "C"):
        np.testing.assert_allclose(getattr(state, name), reference[f"it{iterations}_{name}"], atol=1e-12, err_msg=name)


def test_full_run_equals_the_recorded_one(reference, full_run):
    state, mask = full_run.state, reference["mask"].astype(bool)
    assert int(full_run.n_iter) == int(reference["iters"])
    assert full_run.status is Status.MAX_ITER
    for name in ("F", "J", "C"):
        np.testing.assert_allclose(getattr(state, name), reference[name], atol=1e-11, err_msg=name)
    for v in range(3):
        inside = np.ix_(mask[:, v], mask[:, v])
        np.testing.assert_allclose(state.W[v][inside], reference[f"W{v + 1}"], atol=1e-11)
        assert np.count_nonzero(state.W[v]) == np.count_nonzero(state.W[v][inside])
    np.testing.assert_allclose(np.stack(full_run.history, axis=1), reference["residuals"], atol=1e-11)
    U = np.asarray(full_run.embedding)
    np.testing.assert_allclose(U @ U.T, reference["U_normalized"] @ reference["U_normalized"].T, atol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(U, axis=1), 1, atol=1e-12)


def test_stops_when_the_largest_residual_is_below_tol(data):
    converged = solve(data, HYPER._replace(tol=1e-3))
    done, largest = int(converged.n_iter), worst(converged.history)
    assert converged.status is Status.CONVERGED
    assert largest[done - 1] < 1e-3 <= largest[: done - 1].min()
    assert np.isnan(largest[done:]).all()


def test_start_that_is_not_finite_is_noticed(data):
    broken = solve(replace(data, embeddings=data.embeddings.at[0, 0, 0].set(jnp.nan)))
    assert broken.status is Status.NONFINITE
    assert int(broken.n_iter) <= 2


# Optimality ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("iterations", [1, 5])
def test_multipliers_are_subgradients(first_states, iterations):
    """What exact minimisation over D, E and K means, whatever the iterate."""
    state = first_states[iterations]
    np.testing.assert_allclose(state.Y2, 2 * HYPER.lam2 * state.D, atol=1e-12)
    columns = np.linalg.norm(state.Y1, axis=1)
    assert columns.max() <= HYPER.lam1 * (1 + 1e-12)
    errors = np.sum(np.linalg.norm(state.E, axis=1))
    np.testing.assert_allclose(np.vdot(state.Y1, state.E), HYPER.lam1 * errors, atol=1e-9)
    assert np.linalg.norm(state.Y4, 2) <= 1 + 1e-12
    np.testing.assert_allclose(np.vdot(state.Y4, state.K), np.linalg.norm(state.K, "nuc"), atol=1e-10)


def test_iterates_are_feasible(full_run, data):
    state, mask = full_run.state, np.asarray(data.mask)
    frames = np.einsum("vni,vnj->vij", state.F, state.F)
    np.testing.assert_allclose(frames, np.broadcast_to(np.eye(3), frames.shape), atol=1e-12)
    np.testing.assert_allclose(np.sum(state.W, axis=2), mask, atol=1e-12)
    assert (np.asarray(state.W) >= 0).all()
    assert not np.einsum("vii->vi", state.W).any()
    for name in ("D", "Y2", "Y3"):
        outside = ~(mask[:, :, None] & mask[:, None, :])
        assert not np.asarray(getattr(state, name))[outside].any(), name


def random_state(state, mask, seed):
    rng = np.random.default_rng(seed)
    pairs = mask[:, :, None] & mask[:, None, :]
    noise = {name: jnp.asarray(rng.normal(size=pairs.shape) * pairs) for name in ("D", "W", "Y2", "Y3")}
    noise |= {name: jnp.asarray(rng.normal(size=state.E.shape) * mask[:, None, :]) for name in ("E", "Y1")}
    return state._replace(C=jnp.asarray(rng.normal(size=pairs.shape[1:])), mu=jnp.asarray(0.7), **noise)


@jax.jit
def representation_and_gradient(data, state):
    def penalty(Z):
        fit = data.X - data.X @ Z - state.E + state.Y1 / state.mu
        pairs = data.mask[:, :, None] & data.mask[:, None, :]
        split = Z - jnp.where(pairs, state.C, 0) - state.D + state.Y2 / state.mu
        copy = Z - state.W + state.Y3 / state.mu
        return sum(jnp.vdot(x, x) for x in (fit, split, copy))

    Z = vcl_imvc.update_representation(data, state)
    return Z, jax.grad(penalty)(Z)


@settings(max_examples=8)
@given(seed=seeds)
def test_representation_is_a_stationary_point_and_zero_where_missing(data, first_states, seed):
    mask = np.asarray(data.mask)
    Z, gradient = representation_and_gradient(data, random_state(first_states[0], mask, seed))
    np.testing.assert_allclose(gradient, 0, atol=1e-11)
    assert not np.asarray(Z)[~(mask[:, :, None] & mask[:, None, :])].any()


update_embedding = jax.jit(vcl_imvc.update_embedding)


@settings(max_examples=10)
@given(seed=seeds, lam3=st.floats(0.01, 10), mu=st.floats(0.01, 10))
def test_embedding_update_never_raises_its_objective(data, seed, lam3, mu):
    mask = np.asarray(data.mask)
    rng = np.random.default_rng(seed)
    W = rng.random((3, 42, 42)) * (mask[:, :, None] & mask[:, None, :])
    F = np.stack([orthonormal(seed + v, 42, 3) for v in range(3)])
    T = rng.normal(size=F.shape)
    graph = (W + np.swapaxes(W, 1, 2)) / 2
    A = np.stack([np.diag(np.where(mask[v], graph[v].sum(axis=1), 1)) for v in range(3)]) - graph

    def values(F):
        return lam3 * np.einsum("vni,vnk,vki->v", F, A, F) - mu * np.einsum("vni,vni->v", F, T)

    after = np.asarray(update_embedding(W, mask, F, T, lam3, mu))
    np.testing.assert_allclose(np.swapaxes(after, 1, 2) @ after, np.broadcast_to(np.eye(3), (3, 3, 3)), atol=1e-12)
    before, now = values(F), values(after)
    assert (now <= before + 1e-10 * (1 + np.abs(before))).all()


# Clustering ---------------------------------------------------------------------------------------------------------


def on_a_circle():
    rng = np.random.default_rng(1)
    labels = rng.permutation(np.arange(42) % 3)
    angle = 2 * np.pi * labels / 3
    return rng, labels, np.stack([np.cos(angle), np.sin(angle)], axis=1)


def clusters(views):
    embedding = solve(prepare(VCL_IMVC, make_problem(views), 3)).embedding
    return KMeans(3, n_init=10, random_state=0).fit_predict(np.asarray(embedding))


def test_one_wide_view():
    rng, labels, plane = on_a_circle()
    view = plane @ rng.normal(size=(2, 80)) + 0.05 * rng.normal(size=(42, 80))
    assert adjusted_rand_score(labels, clusters([view])) > 0.9


def test_narrow_views_and_empty_features():
    rng, labels, plane = on_a_circle()
    views = [plane[:, :d] + 0.05 * rng.normal(size=(42, d)) for d in (2, 2, 1)]
    views[0] = np.pad(views[0], ((0, 0), (0, 16)))
    assert adjusted_rand_score(labels, clusters(views)) > 0.9


def test_permuting_views_or_samples_permutes_the_result(recorded, full_run):
    views, mask = recorded
    order, shuffle = [2, 0, 1], np.random.default_rng(0).permutation(42)
    straight = grams(full_run.state.F)

    def final(views, mask):
        return solve(prepare(VCL_IMVC, make_problem(views, mask), 3)).state

    by_view = final([views[v] for v in order], mask[:, order])
    np.testing.assert_allclose(grams(by_view.F), straight[order], atol=1e-9)
    np.testing.assert_allclose(by_view.C, full_run.state.C, atol=1e-9)
    by_sample = final([x[shuffle] for x in views], mask[shuffle])
    np.testing.assert_allclose(grams(by_sample.F), straight[:, shuffle][:, :, shuffle], atol=1e-9)


# Precision ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def single(recorded):
    with jax.enable_x64(False):
        problem = make_problem(*recorded)
    assert problem.data.dtype == jnp.float32
    return problem


def test_computes_in_float64_with_x64_off(single, full_run):
    with jax.enable_x64(False):
        off = solve(prepare(VCL_IMVC, single, 3))
    floating = [x for x in jax.tree.leaves(off) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert {x.dtype for x in floating} == {np.dtype(np.float64)}
    jax.tree.map(np.testing.assert_array_equal, off, solve(prepare(VCL_IMVC, single, 3)))
    print(
        "DIFF", np.abs(grams(off.state.F) - grams(full_run.state.F)).max(), np.abs(off.state.C - full_run.state.C).max()
    )
    np.testing.assert_allclose(grams(off.state.F), grams(full_run.state.F), atol=1e-6)
    np.testing.assert_allclose(off.state.C, full_run.state.C, atol=1e-6)


def test_traces_in_float64_with_x64_off(single):
    rows = np.array([(10, 1, 1, 1, 0.5, 1e-6), (1, 0.1, 2, 0, 1.0, 1e-2)], np.float32)

    def whole(problem, hyper):
        return solve(prepare(VCL_IMVC, problem, 3), hyper)

    with jax.enable_x64(False):
        batch = jax.jit(jax.vmap(whole, in_axes=(None, 0)))(single, Hyper(*jnp.asarray(rows.T)))
    assert batch.embedding.dtype == np.float64
    for i, row in enumerate(rows):
        alone = whole(single, Hyper(*map(float, row)))
        assert int(batch.n_iter[i]) == int(alone.n_iter)
        np.testing.assert_allclose(batch.state.F[i], alone.state.F, atol=1e-9)
        np.testing.assert_allclose(batch.state.C[i], alone.state.C, atol=1e-9)


# Errors -------------------------------------------------------------------------------------------------------------


def test_bad_number_of_neighbours_is_named():
    with pytest.raises(ValueError, match="n_neighbors must be at least 1, got 0"):
        Config(n_neighbors=0)


@pytest.mark.parametrize("name", ["lam1", "lam2", "lam3", "lam4", "p", "tol"])
def test_bad_numbers_are_named(name):
    with pytest.raises(ValueError, match=f"VCL-IMVC: {name} must be a float in the range .*, got -1"):
        check_hyper(VCL_IMVC, HYPER._replace(**{name: -1.0}))


@pytest.mark.parametrize("p", [0.0, 1.5])
def test_bad_exponent_is_named(p):
    with pytest.raises(ValueError, match=r"VCL-IMVC: p must be a float in the range \(0.0, 1.0\]"):
        check_hyper(VCL_IMVC, HYPER._replace(p=p))


@pytest.mark.parametrize(
    ("n_clusters", "n_neighbors", "message"),
    [
        (3, 29, "view 0 has 30 observed samples: a graph of 29 neighbours needs 31"),
        (31, 9, "view 0 has 30 observed samples, fewer than n_clusters = 31"),
    ],
)
def test_view_with_too_few_samples_is_named(recorded, n_clusters, n_neighbors, message):
    with pytest.raises(ValueError, match=message):
        prepare(VCL_IMVC, make_problem(*recorded), n_clusters, Config(n_neighbors))
