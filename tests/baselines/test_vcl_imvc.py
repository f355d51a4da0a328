"""VCL-IMVC (reconstructed): parity with a recorded run of the same specification, optimality, clusters, batching."""

from functools import partial

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.metrics import adjusted_rand_score

import jpltd_jax as jj
from jpltd_jax import Status
from jpltd_jax.baselines import vcl_imvc
from tests.baselines.test_tc_imvc import blobs
from tests.conftest import DATA
from tests.strategies import orthonormal, seeds

HYPER = vcl_imvc.Hyper()


def fit(views, mask=None, **options):
    return vcl_imvc.fit(views, mask, 3, key=jax.random.key(0), **options)


def grams(F):
    return np.einsum("vic,vjc->vij", F, F)


@pytest.fixture(scope="module")
def reference():
    with np.load(DATA / "vcl_imvc.npz") as archive:
        return {name: archive[name] for name in archive.files}


@pytest.fixture(scope="module")
def recorded(reference):
    """Problem and start of the recorded run."""
    with jax.enable_x64(True):
        problem = jj.make_problem([reference[f"X{v}"].T for v in (1, 2, 3)], reference["mask"].astype(bool))
        return problem, vcl_imvc.first_graphs(problem, 9), jnp.asarray(reference["F0"])


@pytest.fixture(scope="module")
def first_states(recorded):
    """States after the first five iterations."""
    problem, graphs, start = recorded
    with jax.enable_x64(True):
        step, states = jax.jit(vcl_imvc.step), [vcl_imvc.initial_state(problem, graphs, start)]
        factor = vcl_imvc.representation_factor(problem.data)
        for _ in range(5):
            states.append(step(problem, HYPER, factor, states[-1])[0])
    return states


@pytest.fixture(scope="module")
def full_run(recorded):
    with jax.enable_x64(True):
        return vcl_imvc.solve(*recorded, HYPER)


# Parity with the recorded run ---------------------------------------------------------------------------------------


def test_start_equals_the_recorded_one(reference, recorded):
    problem, graphs, start = recorded
    ours = np.asarray(vcl_imvc.first_embeddings(graphs, problem.mask, 3))
    np.testing.assert_allclose(grams(ours), grams(start), atol=1e-12)
    assert not ours[~np.asarray(problem.mask)].any()
    across = np.einsum("vic,ujc->vuij", ours, ours)
    np.testing.assert_allclose(across, np.einsum("vic,ujc->vuij", start, start), atol=1e-12)


@pytest.mark.parametrize("iterations", [1, 5])
def test_first_iterations_equal_the_recorded_ones(reference, first_states, iterations):
    state = first_states[iterations]
    for name in ("F", "J", "C"):
        np.testing.assert_allclose(getattr(state, name), reference[f"it{iterations}_{name}"], atol=1e-12, err_msg=name)


def test_full_run_equals_the_recorded_one(reference, recorded, full_run):
    state, mask = full_run.state, reference["mask"].astype(bool)
    assert int(full_run.n_iter) == int(reference["iters"])
    for name in ("F", "J", "C"):
        np.testing.assert_allclose(getattr(state, name), reference[name], atol=1e-11, err_msg=name)
    for v in range(3):
        inside = np.ix_(mask[:, v], mask[:, v])
        np.testing.assert_allclose(state.W[v][inside], reference[f"W{v + 1}"], atol=1e-11)
        assert np.count_nonzero(state.W[v]) == np.count_nonzero(state.W[v][inside])
    np.testing.assert_allclose(full_run.history, reference["residuals"], atol=1e-11)
    U = np.asarray(vcl_imvc.joint_embedding(state.F))
    np.testing.assert_allclose(U @ U.T, reference["U_normalized"] @ reference["U_normalized"].T, atol=1e-10)


# Optimality ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("iterations", [1, 5])
def test_multipliers_are_subgradients(first_states, iterations):
    """What exact minimisation over D, E and K means, whatever the iterate."""
    state = first_states[iterations]
    np.testing.assert_allclose(state.Y2, 2 * HYPER.lambda2 * state.D, atol=1e-12)
    columns = np.linalg.norm(state.Y1, axis=1)
    assert columns.max() <= HYPER.lambda1 * (1 + 1e-12)
    errors = np.sum(np.linalg.norm(state.E, axis=1))
    np.testing.assert_allclose(np.vdot(state.Y1, state.E), HYPER.lambda1 * errors, atol=1e-9)
    assert np.linalg.norm(state.Y4, 2) <= 1 + 1e-12
    np.testing.assert_allclose(np.vdot(state.Y4, state.K), np.linalg.norm(state.K, "nuc"), atol=1e-10)


def test_iterates_are_feasible(full_run, recorded):
    state, mask = full_run.state, np.asarray(recorded[0].mask)
    frames = np.einsum("vni,vnj->vij", state.F, state.F)
    np.testing.assert_allclose(frames, np.broadcast_to(np.eye(3), frames.shape), atol=1e-12)
    np.testing.assert_allclose(np.sum(state.W, axis=2), mask, atol=1e-12)
    assert (np.asarray(state.W) >= 0).all()
    assert not np.einsum("vii->vi", state.W).any()
    for name in ("D", "Y2", "Y3"):
        outside = ~(mask[:, :, None] & mask[:, None, :])
        assert not np.asarray(getattr(state, name))[outside].any(), name


def random_state(problem, seed):
    rng = np.random.default_rng(seed)
    mask = np.asarray(problem.mask)
    pairs = mask[:, :, None] & mask[:, None, :]
    state = vcl_imvc.initial_state(problem, jnp.zeros(pairs.shape), jnp.zeros((*mask.shape, 3)))
    noise = {name: jnp.asarray(rng.normal(size=pairs.shape) * pairs) for name in ("D", "W", "Y2", "Y3")}
    noise |= {name: jnp.asarray(rng.normal(size=problem.data.shape) * mask[:, None, :]) for name in ("E", "Y1")}
    return state._replace(C=jnp.asarray(rng.normal(size=pairs.shape[1:])), mu=jnp.asarray(0.7), **noise)


@jax.jit
def representation_and_gradient(problem, state):
    def penalty(Z):
        fit = problem.data - problem.data @ Z - state.E + state.Y1 / state.mu
        pairs = problem.mask[:, :, None] & problem.mask[:, None, :]
        split = Z - jnp.where(pairs, state.C, 0) - state.D + state.Y2 / state.mu
        copy = Z - state.W + state.Y3 / state.mu
        return sum(jnp.vdot(x, x) for x in (fit, split, copy))

    Z = vcl_imvc.update_representation(problem, vcl_imvc.representation_factor(problem.data), state)
    return Z, jax.grad(penalty)(Z)


@settings(max_examples=8)
@given(seed=seeds)
def test_representation_is_a_stationary_point_and_zero_where_missing(recorded, seed):
    problem = recorded[0]
    state = random_state(problem, seed)
    Z, gradient = representation_and_gradient(problem, state)
    np.testing.assert_allclose(gradient, 0, atol=1e-11)
    mask = np.asarray(problem.mask)
    assert not np.asarray(Z)[~(mask[:, :, None] & mask[:, None, :])].any()


@settings(max_examples=10)
@given(seed=seeds, lambda3=st.floats(0.01, 10), mu=st.floats(0.01, 10))
def test_embedding_update_never_raises_its_objective(recorded, seed, lambda3, mu):
    mask = np.asarray(recorded[0].mask)
    rng = np.random.default_rng(seed)
    W = rng.random((3, 42, 42)) * (mask[:, :, None] & mask[:, None, :])
    F = np.stack([orthonormal(seed + v, 42, 3) for v in range(3)])
    T = rng.normal(size=F.shape)
    graph = (W + np.swapaxes(W, 1, 2)) / 2
    A = np.stack([np.diag(np.where(mask[v], graph[v].sum(axis=1), 1)) for v in range(3)]) - graph

    def values(F):
        return lambda3 * np.einsum("vni,vnk,vki->v", F, A, F) - mu * np.einsum("vni,vni->v", F, T)

    update = jax.jit(vcl_imvc.update_embedding)
    after = np.asarray(update(W, mask, F, T, lambda3, mu))
    np.testing.assert_allclose(np.swapaxes(after, 1, 2) @ after, np.broadcast_to(np.eye(3), (3, 3, 3)), atol=1e-12)
    before, now = values(F), values(after)
    assert (now <= before + 1e-10 * (1 + np.abs(before))).all()


# Clustering ---------------------------------------------------------------------------------------------------------


def test_planted_clusters_are_found():
    views, mask, labels = blobs()
    result = fit(views, mask)
    assert adjusted_rand_score(labels, result.labels) > 0.9
    assert result.affinity is None
    np.testing.assert_allclose(np.linalg.norm(result.embedding, axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("dims", [(80,), (2, 1)])
def test_complete_data_one_wide_view_and_narrow_views(dims):
    rng = np.random.default_rng(1)
    labels = rng.permutation(np.arange(30) % 3)
    angle = 2 * np.pi * labels / 3
    plane = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    views = [plane[:, :d] if d < 3 else plane @ rng.normal(size=(2, d)) for d in dims]
    views = [x + 0.05 * rng.normal(size=x.shape) for x in views]
    assert adjusted_rand_score(labels, fit(views).labels) > 0.9


def test_hidden_rows_and_the_form_of_the_input_do_not_matter():
    """NaN or garbage, mask or no mask, float32 views: computed in float64 from what is observed."""
    views, mask, _ = blobs(n=30)
    single = [x.astype(np.float32) for x in views]
    result = fit(single)
    assert result.embedding.dtype == np.float64
    garbage = [np.where(mask[:, v, None], x.astype(float), 1e9 * (1 + v)) for v, x in enumerate(single)]
    np.testing.assert_array_equal(fit(garbage, mask).embedding, result.embedding)


def test_permuting_views_or_samples_permutes_the_result(reference, recorded, full_run):
    mask = reference["mask"].astype(bool)
    views = [reference[f"X{v}"].T for v in (1, 2, 3)]
    order, shuffle = [2, 0, 1], np.random.default_rng(0).permutation(42)
    straight = grams(full_run.state.F)

    def run(views, mask):
        problem = jj.make_problem(views, mask)
        graphs = vcl_imvc.first_graphs(problem, 9)
        return vcl_imvc.solve(problem, graphs, vcl_imvc.first_embeddings(graphs, problem.mask, 3), HYPER).state

    by_view = run([views[v] for v in order], mask[:, order])
    np.testing.assert_allclose(grams(by_view.F), straight[order], atol=1e-9)
    np.testing.assert_allclose(by_view.C, full_run.state.C, atol=1e-9)
    by_sample = run([x[shuffle] for x in views], mask[shuffle])
    np.testing.assert_allclose(grams(by_sample.F), straight[:, shuffle][:, :, shuffle], atol=1e-9)


# Status, compilation, batching --------------------------------------------------------------------------------------


def test_status(recorded, full_run):
    assert Status(int(full_run.status)) is Status.MAX_ITER
    converged = vcl_imvc.solve(*recorded, HYPER._replace(tol=1e-3))
    done = int(converged.n_iter)
    assert Status(int(converged.status)) is Status.CONVERGED
    worst = np.asarray(converged.history).max(axis=1)
    assert worst[done - 1] < 1e-3 <= worst[done - 2]
    assert np.isnan(worst[done:]).all()
    for field in vcl_imvc.Hyper._fields[:-1]:
        broken = vcl_imvc.solve(*recorded, HYPER._replace(**{field: np.nan}))
        assert Status(int(broken.status)) is Status.NONFINITE, field
        assert int(broken.n_iter) <= 2
    problem, graphs, start = recorded
    broken = vcl_imvc.solve(problem, graphs, start.at[0, 0, 0].set(np.nan), HYPER)
    assert Status(int(broken.status)) is Status.NONFINITE


def test_vmap_over_hyper_parameters_equals_single_solves_of_one_compilation(recorded):
    rows = [(10, 1, 1, 1, 0.5, 1e-6), (1, 0.1, 2, 0, 1.0, 1e-2), (0.1, 10, 1, 0.1, 0.9, 1e-4)]
    grid = vcl_imvc.Hyper(*jnp.asarray(rows).T)
    solve = partial(vcl_imvc.solve, *recorded)
    batch = jax.vmap(solve)(grid)
    solve(HYPER)
    compiled = vcl_imvc._solve._cache_size()
    for i in range(3):
        single = solve(jax.tree.map(lambda x, i=i: x[i], grid))
        assert int(batch.status[i]) == int(single.status)
        assert int(batch.n_iter[i]) == int(single.n_iter)
        np.testing.assert_allclose(batch.state.F[i], single.state.F, atol=1e-9)
        np.testing.assert_allclose(batch.state.C[i], single.state.C, atol=1e-9)
    assert vcl_imvc._solve._cache_size() == compiled
    assert len(set(np.asarray(batch.n_iter))) > 1


# Errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_neighbors": 43}, "view 1 has 44 observed samples: a graph of 43 neighbours needs 45"),
        ({"n_neighbors": 0}, "n_clusters and n_neighbors must be at least 1, got 3 and 0"),
        ({"p": 1.5}, r"needs lambdas of at least 0 and 0 < p <= 1, got Hyper\(.*p=1.5"),
        ({"lambda2": -1.0}, r"got Hyper\(lambda1=10.0, lambda2=-1.0"),
        ({"max_iter": 0}, "max_iter must be at least 1, got 0"),
    ],
)
def test_bad_options_are_named(options, message):
    views, _, _ = blobs(n=45, rate=0)
    views[1][3] = np.nan
    with pytest.raises(ValueError, match=message):
        fit(views, **options)


def test_view_with_fewer_samples_than_clusters_is_named():
    views, _, _ = blobs(n=45, rate=0)
    views[2][20:] = np.nan
    with pytest.raises(ValueError, match="view 2 has 20 observed samples, fewer than n_clusters = 21"):
        vcl_imvc.fit(views, None, 21, key=jax.random.key(0))


def test_float32_is_refused():
    views, _, _ = blobs(n=45)
    with jax.enable_x64(False), pytest.raises(ValueError, match=r"unsound in float32: it needs jax\.config"):
        fit(views)
