"""JPLTD: parity with recorded and literal runs, descent, metamorphic facts, statuses, cost.

Runs are made by looping the compiled step, one program per shape, where the loop itself is not what is tested.
"""

from dataclasses import replace
from functools import partial

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import jpltd_jax as jj
from jpltd_jax.linalg import ridge
from jpltd_jax.loop import Carry, as_dtype, check_hyper, finish, run
from jpltd_jax.methods import JPLTD, jpltd
from jpltd_jax.transforms import Orthonormal
from tests import literal_jpltd
from tests.strategies import orthonormal, random_incomplete, seeds

KEY = jax.random.key(0)
HYPER = jj.Hyper(lam=0.5, theta=0.05)
PUBLISHED = replace(jj.PUBLISHED, latent_dim=3)
VIEWS, MASK = random_incomplete(12, (6, 20, 5), seed=12)


def prepared(views, mask=None, config=PUBLISHED):
    return jpltd.prepare(jj.make_problem(views, mask), 1, config)


def iterates(data, hyper, stops, state=None):
    """The state after each of the wanted numbers of steps."""
    hyper = as_dtype(hyper, data.problem.data.dtype)
    state = jpltd.init(KEY, data, hyper) if state is None else state
    for done in range(1, stops[-1] + 1):
        state, _ = jpltd.step(data, hyper, state)
        if done in stops:
            yield state


def state_after(data, hyper=HYPER, iterations=40, state=None):
    return next(iterates(data, hyper, [iterations], state))


def affinity_after(data, hyper=HYPER, state=None):
    return np.asarray(jpltd.readout(data, state_after(data, hyper, state=state)).affinity)


@pytest.fixture
def small():
    return prepared(VIEWS, MASK)


def solve_small(hyper=HYPER, **loop):
    return jj.solve(jj.make_problem(VIEWS, MASK), hyper, PUBLISHED, loop=jj.Loop(**({"max_iter": 64} | loop)))


# Parity with the authors' run ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_parity_with_the_authors_run(reference_run, dtype):
    views = [reference_run[f"view{v}"] for v in range(3)]
    problem = jj.make_problem(views, reference_run["mask"].astype(bool), dtype=dtype)
    config = replace(jj.PUBLISHED, latent_dim=int(reference_run["k"]), updates="reference")
    data = jpltd.prepare(problem, 1, config)
    hyper = jj.Hyper(lam=reference_run["lam"], theta=reference_run["theta"])
    recorded = {1: "it1", 10: "it10", 25: "it25", 30: "it30", 66: "it200"}
    for (iterations, name), state in zip(recorded.items(), iterates(data, hyper, list(recorded)), strict=True):
        learned = jpltd.readout(data, state).affinity
        assert learned.dtype == dtype
        np.testing.assert_allclose(learned, reference_run[f"{name}_H"], atol=1e-8 if dtype == np.float64 else 1e-4)
        if dtype == np.float64:
            for block in "GBP":
                ours = np.swapaxes(getattr(state, block), 1, 2)
                atol = 1e-6 if iterations == 66 else 1e-8
                np.testing.assert_allclose(ours, reference_run[f"{name}_{block}"], atol=atol, err_msg=f"{name} {block}")
            np.testing.assert_allclose(state.E, reference_run[f"{name}_E"], atol=1e-6)
            np.testing.assert_allclose(state.J1, reference_run[f"{name}_J1"], atol=1e-5)


# Parity with the paper's steps, literally ---------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["full", "N", "B", "O"])
@pytest.mark.parametrize("updates", ["paper", "reference"])
@pytest.mark.parametrize("n", [11, 12])
def test_literal_steps_of_the_paper(variant, updates, n):
    views, mask = random_incomplete(n, (6, 20, 5), seed=n)
    data = prepared(views, mask, replace(PUBLISHED, variant=variant, updates=updates))
    options = {"lam": 0.5, "theta": 0.05, "latent_dim": 3, "variant": variant, "updates": updates}
    for iterations, state in zip((2, 60), iterates(data, HYPER, [2, 60]), strict=True):
        expected = literal_jpltd.run(views, mask, iterations=iterations, **options)
        for block in ("G", "B", "P", "J2"):
            ours = np.swapaxes(getattr(state, block), 1, 2)
            np.testing.assert_allclose(ours, expected[block], atol=1e-8, err_msg=block)
        np.testing.assert_allclose(jpltd.readout(data, state).affinity, expected["H"], atol=1e-8)
        for v in range(3):
            error = np.asarray(state.E[v])
            assert not error[:, ~mask[:, v]].any()
            ours = np.linalg.norm(error[:, mask[:, v]], axis=0)
            np.testing.assert_allclose(ours, np.linalg.norm(expected["E"][v], axis=0), atol=1e-6)
    assert np.abs(expected["B"]).max() > 0.01
    assert (np.abs(expected["P"]).max() > 0.01) == (variant in ("full", "N"))
    assert max(np.abs(e).max() for e in expected["E"]) > 1e-4


def test_the_two_orders_of_updates_differ_once_errors_appear(small):
    a, b = (
        state_after(replace(small, config=replace(PUBLISHED, updates=updates))) for updates in ("paper", "reference")
    )
    assert np.abs(a.E).max() > 1e-3
    difference = jpltd.readout(small, a).affinity - jpltd.readout(small, b).affinity
    assert np.abs(difference).max() > 1e-6


def test_sum_norm_is_lam_times_n(small):
    mean = replace(small, config=replace(PUBLISHED, variant="N"))
    summed, less = replace(small, config=replace(PUBLISHED, variant="N", norm="sum")), HYPER._replace(lam=0.5 / 12)
    a, b = state_after(summed, less), state_after(mean)
    np.testing.assert_allclose(jpltd.readout(summed, a).affinity, jpltd.readout(mean, b).affinity, atol=1e-12)
    np.testing.assert_allclose(jpltd.objective(summed, less, a), jpltd.objective(mean, HYPER, b), rtol=1e-10)


def test_solve_is_the_looped_step(small):
    solution, state = solve_small(max_iter=40), state_after(small)
    np.testing.assert_allclose(solution.affinity, jpltd.readout(small, state).affinity, atol=1e-12)
    for name, ours, looped in zip(state._fields, solution.state, state, strict=True):
        np.testing.assert_allclose(ours, looped, atol=1e-11, err_msg=name)


# Descent ------------------------------------------------------------------------------------------------------------


compiled_lagrangian = jax.jit(jpltd.augmented_lagrangian)
compiled_projection = jax.jit(jpltd.update_projection)


def uncompressed(seed):
    """Two views of one width in which at least so many samples are observed: all such data has one shape."""
    for further in range(100):
        views, mask = random_incomplete(9, (6, 6), seed % 1000 + 1000 * further)
        if mask.sum(axis=0).min() >= 6:
            return views, mask
    raise AssertionError


def random_data(seed, latent_dim, variant="full"):
    return prepared(*uncompressed(seed), replace(PUBLISHED, latent_dim=latent_dim, variant=variant))


def random_state(data, hyper, seed):
    """Feasible in W, random in everything else; E and J1 vanish on missing samples, P where the variant has none."""
    rng = np.random.default_rng(seed)
    start = jpltd.init(KEY, data, hyper)
    names = ("G", "E", "B", "P", "J1", "J2")
    noise = {name: jnp.asarray(rng.normal(size=getattr(start, name).shape)) for name in names}
    for name in ("E", "J1"):
        noise[name] = noise[name] * data.problem.mask[:, None, :]
    if not data.config.has_sparse_part:
        del noise["P"]
    if data.config.has_projection:
        noise["W"] = jnp.asarray(np.stack([orthonormal(seed + v, *start.W.shape[1:]) for v in range(2)]))
    return start._replace(**noise)


@pytest.mark.parametrize(("variant", "latent_dim"), [("full", 3), ("B", 3), ("full", 6), ("N", 6), ("B", 6), ("O", 6)])
@settings(max_examples=8)
@given(seed=seeds, lam=st.floats(0.01, 5), theta=st.floats(0.01, 1), rho=st.floats(0.01, 10))
def test_each_block_update_lowers_the_augmented_lagrangian(variant, latent_dim, seed, lam, theta, rho):
    """W too when latent_dim reaches the dimension; below that the paper's W update is not a minimiser (see below).

    Of the variants the value is that of the full model, since W is the identity or P is zero where they have none.
    """
    data = random_data(seed, latent_dim, variant)
    hyper = as_dtype(jj.Hyper(lam=lam, theta=theta, rho=rho), jnp.float64)
    state = random_state(data, hyper, seed)
    after, _ = jpltd.step(data, hyper, state)
    value = partial(compiled_lagrangian, replace(data, config=replace(data.config, variant="full")), hyper)
    if latent_dim < 6:
        state = state._replace(W=after.W)
    before = value(state)
    for block in ("W", "G", "E", "B", "P"):
        state = state._replace(**{block: getattr(after, block)})
        now = value(state)
        assert now <= before + 1e-9 * (1 + abs(before)), block
        before = now
        if block == "W" or (block == "P" and variant in ("B", "O")):
            continue
        nudge = 1e-3 * np.random.default_rng(seed).normal(size=getattr(state, block).shape)
        nudged = state._replace(**{block: getattr(state, block) + nudge})
        assert value(nudged) >= now - 1e-9 * (1 + abs(now)), block


def with_target(seed, n_anchors):
    """Random data and state, and the target E - J1 / rho of the W update."""
    data = random_data(seed, 3)
    if n_anchors is not None:
        data = replace(data, problem=replace(data.problem, anchors=jnp.arange(n_anchors)))
    state = random_state(data, as_dtype(HYPER._replace(rho=0.5), jnp.float64), seed)
    return data, state, state.E - state.J1 / 0.5


@pytest.mark.parametrize("n_anchors", [None, 4])
@settings(max_examples=10)
@given(seed=seeds)
def test_projection_update_aligns_best(n_anchors, seed):
    """It maximises <target, W F1> over all frames: that value is the nuclear norm of target F1^T."""
    data, state, target = with_target(seed, n_anchors)
    if n_anchors is None:
        W = jpltd.step(data, as_dtype(HYPER, jnp.float64), state)[0].W
    else:
        W = compiled_projection(data, state, target)
    for v in range(2):
        X, D = np.asarray(data.problem.data[v]), np.asarray(data.problem.dictionary.data[v])
        F1 = X - D @ np.asarray(state.G[v]).T * np.asarray(data.problem.mask[v])
        best = np.linalg.svd(np.asarray(target[v]) @ F1.T, compute_uv=False).sum()
        np.testing.assert_allclose(np.vdot(target[v], W[v] @ F1), best, rtol=1e-10)
        np.testing.assert_allclose(W[v] @ W[v].T, np.eye(3), atol=1e-12)


def test_projection_update_without_target_keeps_the_frame():
    data, state, target = with_target(0, 4)
    np.testing.assert_array_equal(compiled_projection(data, state, jnp.zeros_like(target)), state.W)


def test_projection_update_of_the_paper_can_raise_the_augmented_lagrangian():
    """For k < d, ||W F1||^2 is not constant and the paper's closed form leaves it out. Kept: it is the method."""
    data = random_data(9, 3)
    hyper = as_dtype(jj.Hyper(lam=1.0, theta=1.0, rho=2.0), jnp.float64)
    value = partial(compiled_lagrangian, data, hyper)
    rises = []
    for seed in range(20):
        state = random_state(data, hyper, seed)
        after, _ = jpltd.step(data, hyper, state)
        rises.append(float(value(state._replace(W=after.W)) - value(state)))
    assert max(rises) > 0.1


@jax.jit
def graph_update(dictionary, target, center, mask):
    """The gradient of ||target - D G^T||^2 + ||G - center||^2 over observed samples, and D G^T, said and meant."""

    def objective(graph):
        misfit = (target - jnp.einsum("vkj,vij->vki", dictionary, graph)) * mask[:, None, :]
        return jnp.vdot(misfit, misfit) + jnp.sum((graph - center) ** 2)

    graph, represented = ridge(dictionary, target, center, mask)
    return jax.grad(objective)(graph), represented, jpltd.represent(dictionary, mask, graph)


@pytest.mark.parametrize("n_dictionary", [9, 4])
@settings(max_examples=10)
@given(seed=seeds)
def test_graph_update_is_a_stationary_point(n_dictionary, seed):
    rng = np.random.default_rng(seed)
    mask = rng.random((2, 9)) < 0.7
    dictionary, target = rng.normal(size=(2, 3, n_dictionary)), rng.normal(size=(2, 3, 9)) * mask[:, None, :]
    if n_dictionary == 9:
        dictionary = dictionary * mask[:, None, :]
    gradient, represented, expected = graph_update(dictionary, target, rng.normal(size=(2, 9, n_dictionary)), mask)
    np.testing.assert_allclose(gradient, 0, atol=1e-10)
    np.testing.assert_allclose(represented, expected, atol=1e-11)


# Metamorphic --------------------------------------------------------------------------------------------------------


def test_permuting_views_permutes_the_result():
    views, mask = uncompressed(3)
    data, swapped = prepared(views, mask), prepared(views[::-1], mask[:, ::-1])
    a, b = state_after(data), state_after(swapped)
    np.testing.assert_allclose(b.B, np.asarray(a.B)[::-1], atol=1e-9)
    ours, theirs = jpltd.readout(swapped, b).affinity, jpltd.readout(data, a).affinity
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_order_of_samples_matters_with_fourier_only(small):
    """Shuffling the samples is the same problem under a basis that is shuffled along, and another under the DFT."""
    shuffle = np.random.default_rng(0).permutation(12)
    basis = orthonormal(0, 12, 12)
    shuffled = prepared([x[shuffle] for x in VIEWS], MASK[shuffle])
    a = affinity_after(replace(small, transform=Orthonormal(jnp.asarray(basis))))
    b = affinity_after(replace(shuffled, transform=Orthonormal(jnp.asarray(basis[shuffle]))))
    np.testing.assert_allclose(b, a[np.ix_(shuffle, shuffle)], atol=1e-9)
    difference = affinity_after(shuffled) - affinity_after(small)[np.ix_(shuffle, shuffle)]
    assert np.abs(difference).max() > 1e-3


@pytest.mark.parametrize(
    ("variant", "updates"), [("full", "paper"), ("full", "reference"), ("N", "paper"), ("B", "paper")]
)
def test_all_samples_as_anchors_is_the_exact_method(small, variant, updates):
    data = replace(small, config=replace(PUBLISHED, variant=variant, updates=updates))
    anchored = replace(data, problem=replace(data.problem, anchors=jnp.arange(12)))
    a, b = state_after(data), state_after(anchored)
    for name, exact, ours in zip(a._fields, a, b, strict=True):
        np.testing.assert_allclose(ours, exact, atol=1e-10, err_msg=name)
    np.testing.assert_allclose(jpltd.readout(anchored, b).affinity, jpltd.readout(data, a).affinity, atol=1e-10)


def test_rotating_the_features_of_a_wide_view_changes_nothing(small):
    """Nothing but the identity start, so start both from the SVD."""
    rotated = prepared([VIEWS[0], VIEWS[1] @ orthonormal(1, 20, 20), VIEWS[2]], MASK)
    svd = replace(PUBLISHED, start="svd")
    a, b = (
        affinity_after(data, state=jpltd.init(KEY, replace(data, config=svd), as_dtype(HYPER, jnp.float64)))
        for data in (small, rotated)
    )
    np.testing.assert_allclose(a, b, atol=1e-8)


def test_one_view_and_latent_dim_above_every_dimension():
    views, _ = random_incomplete(8, (3,), 6)
    data = prepared(views, config=replace(PUBLISHED, latent_dim=10))
    state = state_after(data, iterations=60)
    assert np.isfinite(jpltd.readout(data, state).affinity).all()
    W = np.asarray(state.W[0])
    np.testing.assert_allclose(W.T @ W, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("start", ["identity", "svd"])
def test_start_is_the_stated_frame(start):
    views, mask = random_incomplete(10, (6, 20), 7)
    data = prepared(views, mask, replace(PUBLISHED, start=start))
    W = jpltd.init(KEY, data, HYPER).W
    for v, x in enumerate(views):
        unit = (x / np.linalg.norm(x, axis=1, keepdims=True)).T * mask[:, v]
        if start == "identity":
            np.testing.assert_allclose(W[v] @ data.problem.data[v], unit[:3], atol=1e-13)
        else:
            ours = np.linalg.norm(W[v] @ data.problem.data[v], axis=1)
            np.testing.assert_allclose(ours, np.linalg.svd(unit, compute_uv=False)[:3], atol=1e-12)


# Status -------------------------------------------------------------------------------------------------------------


def test_converged_means_both_residuals_below_tol():
    result = solve_small()
    assert result.status is jj.Status.CONVERGED
    assert bool(result.converged)
    done = int(result.n_iter)
    worst = np.maximum(*result.history)
    assert done < 64
    assert worst[done - 1] < 1e-5 <= worst[done - 2]
    assert np.isnan(worst[done:]).all()
    state = result.state
    assert np.abs(state.G - state.B - state.P).max() < 1e-5
    frames = np.einsum("vkr,vlr->vkl", state.W, state.W)
    np.testing.assert_allclose(frames, np.broadcast_to(np.eye(3), frames.shape), atol=1e-12)


def test_max_iter_and_empty_and_objective(small):
    result = solve_small(max_iter=30)
    assert result.status is jj.Status.MAX_ITER
    assert int(result.n_iter) == 30
    value = np.linalg.norm(result.state.E, axis=1).sum() + 0.05 * np.abs(result.state.P).sum()
    spectrum = np.fft.fft(result.state.B, axis=-1)
    value += 0.5 * np.linalg.svd(np.moveaxis(spectrum, -1, 0), compute_uv=False).sum() / 12
    np.testing.assert_allclose(jpltd.objective(small, HYPER, result.state), value, rtol=1e-10)
    empty = solve_small(HYPER._replace(lam=1e9))
    assert empty.status is jj.Status.EMPTY
    assert not np.asarray(empty.affinity).any()


@pytest.mark.parametrize("field", jj.Hyper._fields)
def test_nonfinite_hyper_parameter_never_converges(field):
    result = solve_small(HYPER._replace(**{field: np.nan}))
    if field == "tol":
        assert result.status is jj.Status.MAX_ITER
    else:
        assert result.status is jj.Status.NONFINITE
        assert int(result.n_iter) <= 2


def test_nonfinite_data_and_divergence_end_as_nonfinite(small):
    broken = replace(small, problem=replace(small.problem, data=small.problem.data.at[1, 0, 3].set(jnp.nan)))
    assert run(JPLTD, broken, HYPER, KEY, jj.Loop(max_iter=64)).status is jj.Status.NONFINITE
    assert solve_small(HYPER._replace(rho=1e-320)).status is jj.Status.NONFINITE


@pytest.mark.parametrize("block", [name for name in jpltd.State._fields if name != "W"])
def test_one_nonfinite_entry_of_a_state_never_converges(small, block):
    """Neither one that the next iteration sees, nor one in the last iterate, which residuals may pass over.

    W is the one block that an iteration makes anew without a look at it.
    """
    state = state_after(small, iterations=29)
    sample = int(np.flatnonzero(MASK[:, 1])[0])
    place = {"rho": (), "E": (1, 2, sample), "J1": (1, 2, sample)}.get(block, (1, sample, 3))
    broken = state._replace(**{block: getattr(state, block).at[place].set(jnp.nan)})
    assert run(JPLTD, small, HYPER, broken, jj.Loop(max_iter=64)).status is jj.Status.NONFINITE
    if block == "B":
        records = jpltd.Residuals(jnp.zeros(64), jnp.zeros(64))
        carry = Carry(broken, jnp.asarray(jj.Status.CONVERGED, jnp.int32), jnp.asarray(30, jnp.int32), records)
        assert finish(JPLTD, small, carry, 64).status is jj.Status.NONFINITE


# Options ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: jj.Config(variant="X"), "variant must be one of 'full', 'N', 'B', 'O', got 'X'"),
        (lambda: jj.Config(updates="code"), "updates must be one of 'paper', 'reference', got 'code'"),
        (lambda: jj.Config(norm="max"), "norm must be one of 'mean', 'sum', got 'max'"),
        (lambda: jj.Config(start="random"), "start must be one of 'svd', 'identity', got 'random'"),
        (lambda: jj.Config(transform="wavelet"), "transform must be one of 'graph', 'fourier', got 'wavelet'"),
        (lambda: jj.Config(latent_dim=0), "latent_dim must be at least 1, got 0"),
        (lambda: jj.Config(n_neighbors=0), "n_neighbors must be at least 1, got 0"),
        (lambda: jj.Config(n_vectors=0), "n_vectors must be at least 1, got 0"),
        (lambda: jj.Config(n_reach=0), "n_reach must be at least 1, got 0"),
        (lambda: jj.Config(n_kept=0), "n_kept must be at least 1, got 0"),
        (lambda: check_hyper(JPLTD, jj.Hyper(lam=-1.0)), r"JPLTD: lam must be a float in the range \[0.0, inf\), got"),
        (lambda: check_hyper(JPLTD, jj.Hyper(theta=-1.0)), r"JPLTD: theta must be .*, got -1"),
        (lambda: check_hyper(JPLTD, jj.Hyper(rho=0.0)), r"JPLTD: rho must be .*, got 0"),
        (lambda: check_hyper(JPLTD, jj.Hyper(rho_max=0.0)), r"JPLTD: rho_max must be .*, got 0"),
        (lambda: check_hyper(JPLTD, jj.Hyper(growth=0.0)), r"JPLTD: growth must be .*, got 0"),
        (lambda: check_hyper(JPLTD, jj.Hyper(tol=-1e-5)), r"JPLTD: tol must be .*, got -1e-05"),
    ],
)
def test_bad_options_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Batching, compilation, cost ----------------------------------------------------------------------------------------


def test_vmap_over_hyper_parameters_equals_single_solves():
    grid = np.array([(lam, theta) for lam in (0.1, 0.5, 100.0) for theta in (0.05, 0.5)])
    hypers = jj.Hyper(*map(jnp.asarray, grid.T), growth=jnp.linspace(1.2, 1.5, 6))
    hypers = jj.Hyper(*(jnp.broadcast_to(x, 6) for x in hypers))
    batch = jax.jit(jax.vmap(solve_small))(hypers)
    for i in range(6):
        single = solve_small(jj.Hyper(*(x[i] for x in hypers)))
        assert batch.status[i] == single.status.name
        assert int(batch.n_iter[i]) == int(single.n_iter)
        np.testing.assert_allclose(batch.affinity[i], single.affinity, atol=1e-10)
    assert len(set(np.asarray(batch.n_iter))) > 1


def test_vmap_of_steps_without_projection_equals_single_steps(small):
    data = replace(small, config=replace(PUBLISHED, variant="O"))
    hypers = jj.Hyper(*(jnp.broadcast_to(x, 3) for x in jj.Hyper(lam=jnp.array([0.1, 0.5, 2.0]))))
    batched = jax.jit(jax.vmap(jpltd.step, in_axes=(None, 0, 0)))
    states = jax.vmap(lambda hyper: jpltd.init(KEY, data, hyper))(hypers)
    for _ in range(40):
        states, _ = batched(data, hypers, states)
    for i, lam in enumerate(hypers.lam):
        np.testing.assert_allclose(states.B[i], state_after(data, jj.Hyper(lam=lam)).B, atol=1e-10)


def test_jit_equals_eager_step(small):
    hyper = as_dtype(HYPER, jnp.float64)
    state = jpltd.init(KEY, small, hyper)
    for done in range(26):
        before = state
        state, jitted_residuals = jpltd.step(small, hyper, before)
        if done not in (12, 25):
            continue
        with jax.disable_jit():
            eager, residuals = jpltd.step(small, hyper, before)
        np.testing.assert_allclose(residuals, jitted_residuals, atol=1e-10)
        for a, b in zip(eager, state, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)


def blank_problem(n):
    data = jnp.asarray(np.random.default_rng(0).normal(size=(3, 30, n)))
    return jj.Problem(data, jnp.ones((3, n), bool), (None, None, None), dimensions=(30, 30, 30))


def all_arrays(jaxpr):
    for equation in jaxpr.eqns:
        yield from (variable.aval for variable in equation.outvars)
        for parameter in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from all_arrays(inner)


@pytest.mark.parametrize(
    "config",
    [PUBLISHED, replace(PUBLISHED, updates="reference"), jj.Config(latent_dim=10)],
    ids=["paper", "reference", "graph"],
)
def test_no_array_above_the_size_of_the_graph(config):
    n = 64
    solve = partial(jj.solve, config=replace(config, latent_dim=10), loop=jj.Loop(max_iter=5))
    jaxpr = jax.make_jaxpr(solve)(blank_problem(n), HYPER)
    sizes = [a.size * a.dtype.itemsize for a in all_arrays(jaxpr.jaxpr) if hasattr(a.dtype, "itemsize")]
    assert len(sizes) > 100
    own = 3 * n * n * 8
    half_spectrum = 3 * n * (n // 2 + 1) * 16
    assert max(sizes) <= max(own, half_spectrum)


@pytest.mark.parametrize("updates", ["paper", "reference"])
def test_work_grows_with_the_square_of_n(updates):
    """Doubling n multiplies the operations of a step by about 4; one n x n factorisation or product would make it 8."""

    def flops(n):
        data = jpltd.prepare(blank_problem(n), 1, replace(PUBLISHED, latent_dim=10, updates=updates))
        state = jax.eval_shape(jpltd.init, KEY, data, HYPER)
        return jpltd.step.lower(data, HYPER, state).cost_analysis()["flops"]

    ratio = flops(1024) / flops(512)
    assert 3.5 < ratio < 4.4


def test_memory_of_the_compiled_solve_is_a_few_arrays_of_the_size_of_the_graph():
    """Also what the jaxpr does not show: workspaces and outputs of LAPACK calls."""
    n = 512
    problem = jax.eval_shape(partial(blank_problem, n))
    solve = partial(jj.solve, config=replace(PUBLISHED, latent_dim=10), loop=jj.Loop(max_iter=5))
    memory = jax.jit(solve).lower(problem, HYPER).compile().memory_analysis()
    assert memory.temp_size_in_bytes + memory.output_size_in_bytes < 7 * 3 * n * n * 8
