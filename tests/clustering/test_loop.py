"""The loop: chunks, callbacks, Ctrl-C, checkpoints, going on, scans and their gradients, batches.

A toy method, whose programs compile in no time, stands for all; JPLTD where the method matters.
"""

import signal
import threading
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.utils._param_validation import Interval

import jpltd_jax as jj
from jpltd_jax import loop as loops
from jpltd_jax.loop import Loop, Method, Readout, Solution, Status, run
from jpltd_jax.methods import JPLTD, jpltd
from tests.strategies import random_incomplete

KEY = jax.random.key(0)


# A method that walks to the mean of its data ------------------------------------------------------------------------


class Hyper(NamedTuple):
    pace: float = 0.5
    tol: float = 1e-9


@jax.tree_util.register_static
@dataclass(frozen=True)
class Config:
    power: int = 1


class State(NamedTuple):
    x: jax.Array
    steps: jax.Array


class Watched(NamedTuple):
    gap: jax.Array
    sizes: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Data:
    goal: jax.Array
    config: Config = field(metadata={"static": True})


def init(key, data, hyper):
    return State(jax.random.normal(key, data.goal.shape, data.goal.dtype), jnp.asarray(0, jnp.int32))


def step(data, hyper, state):
    x = state.x + hyper.pace * (data.goal - state.x) ** data.config.power
    return State(x, state.steps + 1), Watched(jnp.max(jnp.abs(x - data.goal)), jnp.sum(x, axis=0))


TOY = Method(
    name="toy",
    title="Toy",
    Hyper=Hyper,
    Config=Config,
    prepare=lambda problem, n_clusters, config: Data(problem.data[0].T, config),
    init=init,
    step=step,
    settled=lambda hyper, n_iter, before, watched: watched.gap < hyper.tol,
    readout=lambda data, state: Readout(embedding=state.x),
    max_iter=33,
    bounds={"pace": Interval(Real, 0, 2, closed="both")},
    random_start=True,
)


@pytest.fixture
def data():
    return Data(jnp.asarray(np.random.default_rng(0).normal(size=(4, 2))), Config())


@pytest.fixture
def straight(data):
    return run(TOY, data, Hyper(), KEY)


def assert_same(a, b):
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y, err_msg=jax.tree_util.keystr(path), strict=True)


def test_run_is_the_looped_step_and_records_what_is_watched(data, straight):
    state = init(KEY, data, Hyper())
    for t in range(int(straight.n_iter)):
        state, watched = step(data, Hyper(), state)
        np.testing.assert_allclose(straight.history.gap[t], watched.gap, rtol=1e-12)
        np.testing.assert_allclose(straight.history.sizes[t], watched.sizes, rtol=1e-12)
    assert straight.status is Status.CONVERGED
    assert watched.gap < 1e-9 <= straight.history.gap[int(straight.n_iter) - 2]
    assert int(straight.state.steps) == int(straight.n_iter) < 33
    assert straight.affinity is None
    np.testing.assert_array_equal(straight.embedding, straight.state.x)
    assert straight.history.sizes.shape == (33, 2)
    assert all(np.isnan(record[int(straight.n_iter) :]).all() for record in straight.history)


# Chunks, callback, Ctrl-C -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 4, 50])
def test_chunked_equals_one_shot_bit_for_bit(data, straight, every):
    assert_same(run(TOY, data, Hyper(), KEY, Loop(every=every)), straight)


def test_callback_sees_the_history(data, straight):
    seen = []
    run(TOY, data, Hyper(tol=0.0), KEY, Loop(every=10, callback=lambda *report: seen.append(report)))
    assert [iteration for iteration, _ in seen] == [10, 20, 30, 33]
    for iteration, watched in seen[:3]:
        assert_same(watched, jax.tree.map(lambda record, i=iteration: np.asarray(record[i - 1]), straight.history))


def test_stopped_by_callback_and_gone_on_with_equals_one_run(data, straight):
    part = run(TOY, data, Hyper(), KEY, Loop(every=4, callback=lambda iteration, _: iteration >= 16))
    assert part.status is Status.RUNNING
    assert int(part.n_iter) == 16
    assert_same(run(TOY, data, Hyper(), part), straight)
    assert_same(run(TOY, data, Hyper(), part, Loop(every=3)), straight)


def test_only_true_from_a_callback_stops(data, straight):
    assert_same(run(TOY, data, Hyper(), KEY, Loop(every=4, callback=lambda iteration, _: iteration)), straight)


def press():
    """Ctrl-C. Sent to this thread, so that its handler has run when this returns; a process may take its time."""
    signal.raise_signal(signal.SIGINT)


def test_interrupt_finishes_the_chunk_and_keeps_it(data, straight):
    handler = signal.getsignal(signal.SIGINT)
    part = run(TOY, data, Hyper(), KEY, Loop(every=4, callback=lambda iteration, _: iteration == 12 and press()))
    assert signal.getsignal(signal.SIGINT) is handler
    assert part.status is Status.RUNNING
    assert int(part.n_iter) == 12
    assert_same(run(TOY, data, Hyper(), part), straight)


def test_second_interrupt_is_immediate(data):
    seen = []

    def press_twice(iteration, _):
        press()
        seen.append("noted")
        press()
        seen.append("not interrupted")

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run(TOY, data, Hyper(), KEY, Loop(every=5, callback=press_twice))
    assert seen == ["noted"]
    assert signal.getsignal(signal.SIGINT) is handler


def test_runs_outside_the_main_thread(data, straight):
    results = []

    def work():
        with jax.enable_x64(True):
            results.append(run(TOY, data, Hyper(), KEY, Loop(every=5)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert_same(results[0], straight)


# Checkpoints --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_iter_before", [33, 20, 100])
def test_resumed_from_checkpoint_equals_straight_run(data, straight, tmp_path, max_iter_before):
    file = tmp_path / "run.npz"
    stop = Loop(max_iter_before, every=4, checkpoint=file, callback=lambda iteration, _: iteration >= 16)
    run(TOY, data, Hyper(), KEY, stop)
    (tmp_path / "run.npz.part").write_bytes(b"half written when the machine went down")
    calls = []
    resumed = run(TOY, data, Hyper(), KEY, Loop(every=5, checkpoint=file, callback=lambda i, _: calls.append(i)))
    assert calls[0] == 21
    assert_same(resumed, straight)
    again = Loop(every=5, checkpoint=str(file), callback=lambda *_: pytest.fail("ran"))
    assert_same(run(TOY, data, Hyper(), KEY, again), straight)


def test_error_in_the_callback_leaves_the_last_checkpoint(data, straight, tmp_path):
    file = tmp_path / "run.npz"

    def fail(iteration, _):
        if iteration == 12:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        run(TOY, data, Hyper(), KEY, Loop(every=4, checkpoint=file, callback=fail))
    calls = []
    resumed = run(TOY, data, Hyper(), KEY, Loop(every=4, checkpoint=file, callback=lambda i, _: calls.append(i)))
    assert calls[0] == 16
    assert_same(resumed, straight)


def test_checkpoint_holds_no_pickle(data, tmp_path):
    file = tmp_path / "run.npz"
    run(TOY, data, Hyper(), KEY, Loop(every=50, checkpoint=file))
    with np.load(file, allow_pickle=False) as archive:
        assert all(archive[name].dtype != object for name in archive.files)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": replace(TOY, name="other")}, "its method differs"),
        ({"hyper": Hyper(pace=0.25)}, "its hyper-parameters differs"),
        ({"config": Config(power=3)}, "its data differs"),
        ({"goal": 1.0}, "its data differs"),
        ({"key": jax.random.key(1)}, "its start differs"),
        ({"max_iter": 8}, "at iteration 20, beyond max_iter = 8"),
    ],
)
def test_checkpoint_of_another_run_is_refused(data, tmp_path, change, message):
    file = tmp_path / "run.npz"
    run(TOY, data, Hyper(), KEY, Loop(20, every=20, checkpoint=file))
    content = file.read_bytes()
    other = replace(data, goal=data.goal + change.get("goal", 0.0), config=change.get("config", data.config))
    again = Loop(change.get("max_iter"), every=20, checkpoint=file)
    with pytest.raises(ValueError, match=message):
        run(change.get("method", TOY), other, change.get("hyper", Hyper()), change.get("key", KEY), again)
    assert file.read_bytes() == content


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "other archive", "fewer arrays"])
def test_damaged_checkpoint_is_named(data, tmp_path, damage):
    file = tmp_path / "run.npz"
    loop = Loop(every=50, checkpoint=file)
    run(TOY, data, Hyper(), KEY, loop)
    content = file.read_bytes()
    with np.load(file) as archive:
        header = archive["header"]
    if damage == "other archive":
        np.savez(file, x=np.ones(3))
    elif damage == "fewer arrays":
        np.savez(file, header=header)
    else:
        file.write_bytes({"empty": b"", "cut": content[: len(content) // 2], "text": b"not an archive"}[damage])
    with pytest.raises(ValueError, match=f"{file} is not a checkpoint, or is damaged; remove it to start anew"):
        run(TOY, data, Hyper(), KEY, loop)


def test_missing_directory_is_an_early_error(data, tmp_path):
    loop = Loop(every=5, checkpoint=tmp_path / "none" / "run.npz", callback=lambda *_: pytest.fail("ran"))
    with pytest.raises(FileNotFoundError, match=r"directory of the checkpoint .*run.npz does not exist"):
        run(TOY, data, Hyper(), KEY, loop)


# Going on -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "whole"), [(1, 33), (15, 33), (33, 33), (20, 100), (70, 100)])
def test_going_on_from_a_solution_equals_one_run(data, first, whole):
    hyper = Hyper(pace=0.05)
    part = run(TOY, data, hyper, KEY, Loop(first))
    assert part.status is Status.MAX_ITER
    assert part.history.gap.shape == (first,)
    assert_same(run(TOY, data, hyper, part, Loop(whole)), run(TOY, data, hyper, KEY, Loop(whole)))


def test_going_on_from_a_converged_solution_changes_nothing_unless_tol_does(data, straight):
    assert_same(run(TOY, data, Hyper(), straight), straight)
    further = run(TOY, data, Hyper(tol=1e-12), straight, Loop(60))
    assert_same(further, run(TOY, data, Hyper(tol=1e-12), KEY, Loop(60)))
    assert int(further.n_iter) > int(straight.n_iter)


def test_a_state_starts_a_run_of_its_own_and_survives(data, straight):
    part = run(TOY, data, Hyper(), KEY, Loop(10))
    for loop in (Loop(23), Loop(23, every=4)):
        second = run(TOY, data, Hyper(), part.state, loop)
        assert int(second.n_iter) == int(straight.n_iter) - 10
        np.testing.assert_array_equal(second.state.x, straight.state.x)
        done = int(second.n_iter)
        np.testing.assert_array_equal(second.history.gap[:done], straight.history.gap[10 : 10 + done])
    assert np.isfinite(part.state.x).all()


def test_start_of_another_problem_is_an_error(data):
    state = init(KEY, data, Hyper())
    wanted = r"start\.x is float64\(3, 2\), but this problem needs float64\(4, 2\)"
    with pytest.raises(ValueError, match=wanted):
        run(TOY, data, Hyper(), state._replace(x=state.x[:3]))
    with pytest.raises(ValueError, match=r"start\.x is float32\(4, 2\), but this problem needs float64\(4, 2\)"):
        run(TOY, data, Hyper(), state._replace(x=state.x.astype(jnp.float32)))
    part = run(TOY, data, Hyper(), KEY, Loop(5))
    with pytest.raises(ValueError, match=wanted):
        run(TOY, data, Hyper(), part._replace(state=state._replace(x=state.x[:3])))
    with pytest.raises(TypeError, match="start must be a key, a Solution or a state of Toy, got tuple"):
        run(TOY, data, Hyper(), (state.x,))


# Compilation, scan, batches -----------------------------------------------------------------------------------------


def test_max_iter_and_hyper_do_not_recompile(data):
    run(TOY, data, Hyper(), KEY)
    programs = (loops.begin, loops._advance_in_place, loops._read_out)
    before = [program._cache_size() for program in programs]
    for max_iter, hyper in ((1, Hyper(pace=1)), (40, Hyper(np.float32(0.25))), (64, Hyper(jnp.asarray(0.3), 0))):
        run(TOY, data, hyper, KEY, Loop(max_iter))
        run(TOY, data, hyper, KEY, Loop(max_iter, every=7))
    assert [program._cache_size() for program in programs] == before


def test_scan_equals_while(data, straight):
    assert_same(run(TOY, data, Hyper(), KEY, Loop(kind="scan")), straight)
    part = run(TOY, data, Hyper(), KEY, Loop(10, kind="scan"))
    assert part.status is Status.MAX_ITER
    assert_same(run(TOY, data, Hyper(), part, Loop(kind="scan")), straight)


def test_gradient_through_scan_is_the_closed_form(data):
    """x_t = goal + (1 - pace)^t (x_0 - goal); the iterations after convergence add nothing."""

    def total(pace, tol, max_iter):
        return jnp.sum(run(TOY, data, Hyper(pace, tol), KEY, Loop(max_iter, kind="scan")).embedding)

    gap = jnp.sum(init(KEY, data, Hyper()).x - data.goal)
    np.testing.assert_allclose(jax.grad(total)(0.3, 0.0, 10), -10 * 0.7**9 * gap, rtol=1e-10)
    done = int(run(TOY, data, Hyper(0.3, 1e-3), KEY, Loop(40)).n_iter)
    assert done < 40
    np.testing.assert_allclose(jax.grad(total)(0.3, 1e-3, 40), -done * 0.7 ** (done - 1) * gap, rtol=1e-10)


SMALL = {
    "published": replace(jj.PUBLISHED, latent_dim=3),
    "order-free": replace(jj.ORDER_FREE, latent_dim=3, n_neighbors=4),
}


@pytest.mark.parametrize("preset", SMALL)
def test_gradient_of_jpltd_through_scan_equals_finite_differences(preset):
    """Of a smooth functional of the affinity, by lam and theta; and the scan's affinity is that of the while loop."""
    prepared = jpltd.prepare(jj.make_problem(*random_incomplete(10, (6, 5), 8)), 2, SMALL[preset])
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(10, 10)))
    length = 36

    @jax.jit
    def value_and_grad(lam, theta):
        def value(lam, theta):
            found = run(JPLTD, prepared, jj.Hyper(lam, theta), KEY, Loop(length, kind="scan"))
            return jnp.vdot(weights, found.affinity), found.affinity

        return jax.value_and_grad(value, (0, 1), has_aux=True)(lam, theta)

    (_, affinity), gradient = value_and_grad(0.5, 0.05)
    straight = run(JPLTD, prepared, jj.Hyper(0.5, 0.05), KEY, Loop(length))
    np.testing.assert_allclose(affinity, straight.affinity, atol=1e-12)
    assert float(affinity.max()) > 0.01
    h = 1e-6
    for i, (along, step) in enumerate([((h, 0.0), h), ((0.0, h / 10), h / 10)]):
        (above, _), _ = value_and_grad(0.5 + along[0], 0.05 + along[1])
        (below, _), _ = value_and_grad(0.5 - along[0], 0.05 - along[1])
        assert abs(gradient[i]) > 1e-3
        np.testing.assert_allclose(gradient[i], (above - below) / (2 * step), rtol=1e-4)


def test_gradient_of_what_is_clustered_equals_finite_differences():
    """Through the run, the thinning, and the sums with both neighbour graphs at mean degree one."""
    config = replace(SMALL["order-free"], n_reach=4, n_kept=3, share=0.0)
    problem = jj.make_problem(*random_incomplete(10, (6, 5), 8))
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(10, 10)))

    @jax.jit
    def value_and_grad(lam):
        def value(lam):
            data = jpltd.prepare(problem, 2, config)
            found = run(JPLTD, data, jj.Hyper(lam, 0.05), KEY, Loop(36, kind="scan"))
            offered = jpltd.affinities(data, found.affinity)
            return jnp.vdot(weights, offered["late"]) + jnp.vdot(weights.T, offered["completed"]), found.affinity

        return jax.value_and_grad(value, has_aux=True)(lam)

    (_, learned), slope = value_and_grad(0.5)
    thinned = jpltd.thin(jpltd.prepare(problem, 2, config), learned)
    assert 0 < int(jnp.sum(thinned > 0)) < int(jnp.sum(learned > 0))
    (above, _), _ = value_and_grad(0.5 + 1e-6)
    (below, _), _ = value_and_grad(0.5 - 1e-6)
    assert abs(slope) > 1e-3
    np.testing.assert_allclose(slope, (above - below) / 2e-6, rtol=1e-4)


def test_vmap_has_names_of_statuses_and_a_mask_of_converged_runs(data):
    paces = jnp.asarray([0.5, 0.01, jnp.nan, 1.0])
    batch = jax.vmap(lambda pace: run(TOY, data, Hyper(pace), KEY))(paces)
    assert isinstance(batch, Solution)
    assert batch.status.tolist() == ["CONVERGED", "MAX_ITER", "NONFINITE", "CONVERGED"]
    assert batch.converged.tolist() == [True, False, False, True]
    for i, pace in enumerate(paces):
        single = run(TOY, data, Hyper(pace), KEY)
        assert single.status.name == batch.status[i]
        assert int(single.n_iter) == int(batch.n_iter[i])
        np.testing.assert_allclose(batch.embedding[i], single.embedding, rtol=1e-12)
        np.testing.assert_allclose(batch.history.sizes[i], single.history.sizes, rtol=1e-12)


def test_traced_numbers_outside_their_bounds_are_never_a_result(data):
    paces = jnp.array([-0.5, 0.5, 2.0, 2.5, jnp.nan])
    solutions = jax.vmap(lambda pace: run(TOY, data, Hyper(pace=pace), KEY, Loop(max_iter=3)))(paces)
    assert solutions.status.tolist() == ["NONFINITE", "MAX_ITER", "MAX_ITER", "NONFINITE", "NONFINITE"]


def test_vmap_over_starts(data):
    starts = jax.random.split(KEY, 3)
    batch = jax.jit(jax.vmap(lambda key: run(TOY, data, Hyper(), key, Loop(20))))(starts)
    on = jax.vmap(lambda start: run(TOY, data, Hyper(), start))(batch)
    for i, key in enumerate(starts):
        np.testing.assert_allclose(on.embedding[i], run(TOY, data, Hyper(), key).embedding, rtol=1e-12)


# Statuses and options -----------------------------------------------------------------------------------------------


def test_nan_is_never_convergence(data):
    for hyper in (Hyper(pace=np.nan), Hyper(tol=np.nan)):
        assert run(TOY, data, hyper, KEY).status in (Status.NONFINITE, Status.MAX_ITER)
    broken = replace(data, goal=data.goal.at[1, 1].set(jnp.nan))
    found = run(TOY, broken, Hyper(), KEY)
    assert found.status is Status.NONFINITE
    assert int(found.n_iter) == 1
    assert not bool(found.converged)


def test_zero_affinity_is_empty_and_nonfinite_readout_is_nonfinite(data):
    empty = replace(TOY, readout=lambda data, state: Readout(affinity=0 * state.x))
    assert run(empty, data, Hyper(), KEY).status is Status.EMPTY
    broken = replace(TOY, readout=lambda data, state: Readout(embedding=state.x / 0))
    assert run(broken, data, Hyper(), KEY).status is Status.NONFINITE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_iter": 0}, "max_iter must be at least 1, got 0"),
        ({"every": 0}, "every must be at least 1, got 0"),
        ({"kind": "for"}, "kind must be one of 'while', 'scan', got 'for'"),
        ({"callback": print}, "callback and checkpoint need every"),
        ({"checkpoint": "run.npz"}, "callback and checkpoint need every"),
        ({"kind": "scan", "every": 5}, "kind='scan' runs as one program: leave every out"),
    ],
)
def test_bad_loops_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Loop(**options)


def test_bad_hyper_and_config_are_named(data):
    with pytest.raises(ValueError, match=r"Toy: pace must be a float in the range \[0.0, 2.0\], got 3"):
        run(TOY, data, Hyper(pace=3.0), KEY)
    with pytest.raises(TypeError, match=r"Toy takes tests.clustering.test_loop.Hyper, got Hyper"):
        run(TOY, data, jj.Hyper(), KEY)
    problem = jj.make_problem([np.eye(3)])
    with pytest.raises(TypeError, match=r"Toy takes tests.clustering.test_loop.Config, got Config"):
        loops.prepare(TOY, problem, 1, jj.Config())
    with pytest.raises(ValueError, match="n_clusters must be between 1 and 3, got 4"):
        loops.prepare(TOY, problem, 4)


def test_checks_see_the_problem_and_may_refuse_it():
    def check(problem, n_clusters, config):
        if problem.n_views < 2:
            raise ValueError("needs two views")

    needy = replace(TOY, check=check)
    with pytest.raises(ValueError, match="needs two views"):
        loops.prepare(needy, jj.make_problem([np.eye(3)]), 1)
    assert loops.prepare(needy, jj.make_problem([np.eye(3)] * 2), 1).goal.shape == (3, 3)


def test_own_precision():
    double = replace(TOY, needs_x64=True)
    with jax.enable_x64(False):
        prepared = loops.prepare(double, jj.make_problem([np.eye(3)]), 1)
        found = run(double, prepared, Hyper(), KEY)
        assert found.embedding.dtype == jnp.float64
        assert jnp.ones(1).dtype == jnp.float32
        assert loops.prepare(TOY, jj.make_problem([np.eye(3)]), 1).goal.dtype == jnp.float32
    assert found.status is Status.CONVERGED
