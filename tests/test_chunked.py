import os
import signal
import threading

import jax
import numpy as np
import pytest

import jpltd_jax as jj
from tests.test_admm import random_incomplete

HYPER = jj.Hyper(lam=0.5, theta=0.05)
OPTIONS = {"latent_dim": 4, "max_iter": 33}


@pytest.fixture(scope="module")
def problem():
    with jax.enable_x64(True):
        return jj.make_problem(*random_incomplete(12, (6, 20, 5), 0))


@pytest.fixture(scope="module")
def straight(problem):
    with jax.enable_x64(True):
        return jj.solve(problem, HYPER, **OPTIONS)


def assert_same(a, b):
    for path, x in jax.tree_util.tree_leaves_with_path(a):
        y = dict(jax.tree_util.tree_leaves_with_path(b))[path]
        np.testing.assert_array_equal(x, y, err_msg=jax.tree_util.keystr(path))


@pytest.mark.parametrize("chunk", [1, 4, 50])
def test_chunked_equals_one_shot_bit_for_bit(problem, straight, chunk):
    assert_same(jj.solve_chunked(problem, HYPER, chunk=chunk, **OPTIONS), straight)


def test_callback_sees_the_history(problem, straight):
    seen = []
    jj.solve_chunked(problem, HYPER, chunk=10, callback=lambda *report: seen.append(report), **OPTIONS)
    assert [iteration for iteration, _, _ in seen] == [10, 20, 30, 33]
    for iteration, fit, split in seen:
        assert fit == straight.history.fit_residual[iteration - 1]
        assert split == straight.history.split_residual[iteration - 1]


def test_stopped_by_callback_and_resumed_from_state(problem, straight):
    part = jj.solve_chunked(problem, HYPER, chunk=4, callback=lambda iteration, *_: iteration >= 16, **OPTIONS)
    assert jj.Status(int(part.status)) is jj.Status.RUNNING
    assert int(part.n_iter) == 16
    assert_same(jj.solve_chunked(problem, HYPER, init=part.state, **OPTIONS).state, straight.state)


def test_callers_state_survives(problem):
    state = jj.init(problem, HYPER, latent_dim=4)
    jj.solve_chunked(problem, HYPER, init=state, **OPTIONS)
    assert not any(np.isnan(leaf).any() for leaf in state)


@pytest.mark.parametrize("max_iter_before", [33, 20])
def test_resumed_from_checkpoint_equals_straight_run(problem, straight, tmp_path, max_iter_before):
    file = tmp_path / "run.npz"
    before = OPTIONS | {"max_iter": max_iter_before}
    jj.solve_chunked(problem, HYPER, chunk=4, checkpoint=file, callback=lambda iteration, *_: iteration >= 16, **before)
    (tmp_path / "run.npz.part").write_bytes(b"half written when the machine went down")
    calls = []
    resumed = jj.solve_chunked(problem, HYPER, checkpoint=file, callback=lambda *r: calls.append(r[0]), **OPTIONS)
    assert calls[0] == 21
    assert_same(resumed, straight)
    again = jj.solve_chunked(problem, HYPER, checkpoint=file, callback=lambda *_: pytest.fail("ran"), **OPTIONS)
    assert_same(again, straight)


def test_checkpoint_holds_no_pickle(problem, tmp_path):
    file = tmp_path / "run.npz"
    jj.solve_chunked(problem, HYPER, checkpoint=file, **OPTIONS)
    with np.load(file, allow_pickle=False) as archive:
        assert all(archive[name].dtype != object for name in archive.files)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hyper": jj.Hyper(lam=1.0, theta=0.05)}, "its hyper-parameters differs"),
        ({"order": "reference"}, "its options differs"),
        ({"latent_dim": 3}, "its start differs"),
        ({"max_iter": 8}, "at iteration 33, beyond max_iter = 8"),
    ],
)
def test_checkpoint_of_another_run_is_refused(problem, tmp_path, change, message):
    file = tmp_path / "run.npz"
    jj.solve_chunked(problem, HYPER, checkpoint=file, **OPTIONS)
    content = file.read_bytes()
    arguments = {"hyper": HYPER} | OPTIONS | change
    with pytest.raises(ValueError, match=message):
        jj.solve_chunked(problem, checkpoint=file, **arguments)
    assert file.read_bytes() == content


def test_other_data_is_refused(problem, tmp_path):
    file = tmp_path / "run.npz"
    jj.solve_chunked(problem, HYPER, checkpoint=file, **OPTIONS)
    other = jj.make_problem(*random_incomplete(12, (6, 20, 5), 1))
    with pytest.raises(ValueError, match="its problem differs"):
        jj.solve_chunked(other, HYPER, checkpoint=file, **OPTIONS)


def test_missing_directory_is_an_early_error(problem, tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        jj.solve_chunked(problem, HYPER, checkpoint=tmp_path / "none" / "run.npz", **OPTIONS)


def test_interrupt_finishes_the_chunk_and_keeps_it(problem, straight):
    def press(iteration, *_):
        if iteration == 12:
            os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    part = jj.solve_chunked(problem, HYPER, chunk=4, callback=press, **OPTIONS)
    assert signal.getsignal(signal.SIGINT) is handler
    assert jj.Status(int(part.status)) is jj.Status.RUNNING
    assert int(part.n_iter) == 12
    assert_same(jj.solve_chunked(problem, HYPER, init=part.state, **OPTIONS).state, straight.state)


def test_second_interrupt_is_immediate(problem):
    def press_twice(iteration, *_):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        jj.solve_chunked(problem, HYPER, callback=press_twice, **OPTIONS)


def test_runs_outside_the_main_thread(problem, straight):
    results = []

    def work():
        with jax.enable_x64(True):
            results.append(jj.solve_chunked(problem, HYPER, **OPTIONS))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert_same(results[0], straight)


def test_bad_chunk(problem):
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        jj.solve_chunked(problem, HYPER, chunk=0, **OPTIONS)
