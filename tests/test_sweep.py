"""Sweeps: equal to separate solves, bounded, resumable, on many devices and processes."""

import functools
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import jpltd_jax as jj
from jpltd_jax.cli import main, parser
from jpltd_jax.store import cut_partial_row, read_rows
from tests.strategies import random_incomplete

sweeping = importlib.import_module("jpltd_jax.sweep")
CLASSES = np.arange(12) % 2
LAM, THETA = (0.01, 0.1, 0.5, 1.0, 2.0, 1e5), (0.01, 0.05, 0.1, 1.0)


def make_small(dtype=np.float64):
    return jj.make_problem(*random_incomplete(12, (6, 20, 5), 0), dtype=dtype)


@pytest.fixture(scope="module")
def small():
    with jax.enable_x64(True):
        return make_small()


def run(problem, grid, **changes):
    options = {"n_clusters": 2, "y_true": CLASSES, "key": jax.random.key(0), "max_iter": 40} | changes
    return jj.sweep(problem, grid, **options)


def assert_row_is(row, result, atol):
    last = int(result.n_iter) - 1
    assert row["status"] == jj.Status(int(result.status)).name
    assert row["n_iter"] == last + 1
    np.testing.assert_allclose(row["objective"], result.objective, rtol=atol, atol=atol)
    np.testing.assert_allclose(row["fit_residual"], result.history.fit_residual[last], atol=atol)
    np.testing.assert_allclose(row["split_residual"], result.history.split_residual[last], atol=atol)


def hyper_of(row):
    return jj.Hyper(*(row[name] for name in jj.Hyper._fields))


def without_timing(rows):
    return [{name: x for name, x in row.items() if name != "seconds"} for row in rows]


# Equality with separate solves --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "order", "transform"),
    [("full", "paper", None), ("full", "reference", "graph"), ("N", "paper", None), ("B", "paper", None)],
)
def test_equals_separate_solves(small, variant, order, transform):
    options = {"variant": variant, "order": order, "max_iter": 40}
    result = run(small, jj.grid(LAM, THETA, latent_dim=4), transform=transform, **options)
    assert len(result.rows) == result.total == 24
    if transform == "graph":
        transform = jj.graphs.graph_transform(jj.graphs.consensus_graph(small, 10))
    for row in result.rows:
        alone = jj.solve(small, hyper_of(row), latent_dim=4, transform=transform, **options)
        assert_row_is(row, alone, 1e-12)
        if row["status"] == "EMPTY":
            assert np.isnan(row["accuracy"])
            continue
        key = jax.random.fold_in(jax.random.key(0), 0)
        labels = jj.spectral_cluster(key, alone.affinity, 2)
        np.testing.assert_array_equal(row["labels"], labels)
        assert row["accuracy"] == float(jj.metrics.accuracy(CLASSES, labels))
    statuses = {row["status"] for row in result.rows}
    assert statuses >= {"MAX_ITER", "EMPTY"}


def test_thinned_affinities_under_masks(small):
    masks = np.stack([np.ones((12, 3), bool), np.arange(36).reshape(12, 3) % 5 > 0])
    options = {"transform": "graph", "n_neighbors": 4, "n_reach": 1, "n_kept": 2, "max_iter": 20, "n_clusters": 4}
    result = run(small, jj.grid((0.1, 0.5), 0.05, latent_dim=4, mask=[0, 1]), masks=masks, **options)
    cluster = functools.partial(jj.spectral_cluster, jax.random.fold_in(jax.random.key(0), 0), n_clusters=4)
    agreement: list[float] = []
    for row in result.rows:
        problem = small.restrict(jnp.asarray(masks[row["mask"]]))
        transform = jj.graphs.graph_transform(jj.graphs.consensus_graph(problem, 4))
        learned = jj.solve(problem, hyper_of(row), latent_dim=4, max_iter=20, transform=transform).affinity
        near = jj.graphs.within_reach(learned, problem, 1)
        np.testing.assert_array_equal(row["labels"], cluster(jj.graphs.sparsify(near, 2)))
        agreement += [adjusted_rand_score(row["labels"], cluster(x)) for x in (near, jj.graphs.sparsify(learned, 2))]
    assert min(agreement[::2]) < 1, "n_kept must matter here"
    assert min(agreement[1::2]) < 1, "n_reach must matter here"


def test_float32_is_bit_for_bit():
    problem = make_small(np.float32)
    for row in run(problem, jj.grid(LAM, THETA, latent_dim=4)).rows:
        assert_row_is(row, jj.solve(problem, hyper_of(row), latent_dim=4, max_iter=40), 0)


def test_shared_iterations_are_made_once(small, monkeypatch):
    made = []
    step = sweeping._shared_step
    monkeypatch.setattr(sweeping, "_shared_step", lambda *a: made.append(int(a[2].state.iteration)) or step(*a))
    leaves, starts = sweeping._Work.leaves, []

    def watched(*arguments):
        for progress, solve in leaves(*arguments):
            starts.append(int(progress.state.iteration))
            yield progress, solve

    monkeypatch.setattr(sweeping._Work, "leaves", watched)
    run(small, jj.grid(LAM, THETA, latent_dim=4))
    assert len(starts) == 24
    alone = sum(40 - start for start in starts)
    assert len(made) + alone < 0.6 * 24 * 40
    assert min(starts) > 0


def test_a_converging_grid_stops_where_the_solves_do(small):
    result = run(small, jj.grid([0.5, 1e5], [0.05, 1e5], tol=[1e-5, 0.3], latent_dim=4), max_iter=200)
    for row in result.rows:
        assert_row_is(row, jj.solve(small, hyper_of(row), latent_dim=4, max_iter=200), 1e-12)
    assert {row["status"] for row in result.rows} == {"CONVERGED", "EMPTY"}


def test_latent_dim_varies_inside_one_program(small, monkeypatch):
    programs = []
    compiled = sweeping._compiled
    monkeypatch.setattr(sweeping, "_compiled", lambda *a: programs.append(compiled(*a)) or programs[-1])
    sweeping._shared_step.clear_cache()
    dims = (1, 3, 4, 9, 30)
    result = run(small, jj.grid([0.1, 0.5], [0.05, 0.1], latent_dim=dims))
    assert len(set(map(id, programs))) == 1
    assert sweeping._shared_step._cache_size() == 1
    for row in result.rows:
        assert_row_is(row, jj.solve(small, hyper_of(row), latent_dim=row["latent_dim"], max_iter=40), 1e-9)


@pytest.mark.parametrize("w_init", ["identity", "svd"])
def test_inactive_rows_stay_zero(small, w_init):
    hyper, active = jj.Hyper(lam=0.1, theta=0.05), jnp.arange(6) < 4
    state = jj.init(small, hyper, latent_dim=6, w_init=w_init)
    state = state._replace(W=jnp.where(active[:, None], state.W, 0))
    plain = jj.init(small, hyper, latent_dim=4, w_init=w_init)
    step = jax.jit(jj.step)
    for _ in range(25):
        state, _ = step(small, hyper, state, active=active)
        plain, _ = step(small, hyper, plain)
    for name in ("W", "E", "J1"):
        assert not np.asarray(getattr(state, name))[:, 4:].any()
    np.testing.assert_allclose(state.B, plain.B, atol=1e-9)
    projected, expected = (s.W @ small.data for s in (state, plain))
    np.testing.assert_allclose(projected[:, :4], expected, atol=1e-9)


def test_masks_and_other_fields(small):
    mask = np.asarray(small.mask.T)
    masks = np.stack([mask, mask])
    masks[1, :4, 0] &= ~mask[:4, 1:].any(axis=1)
    assert (masks[0] != masks[1]).any()
    grid = jj.grid([0.1, 0.5], 0.05, rho=[1e-3, 1e-2], growth=[1.2, 1.3], latent_dim=4, mask=[0, 1])
    result = run(small, grid, masks=masks)
    for row in result.rows:
        problem = small.restrict(jnp.asarray(masks[row["mask"]]))
        assert_row_is(row, jj.solve(problem, hyper_of(row), latent_dim=4, max_iter=40), 1e-12)
    first, second = (next(r for r in result.rows if r["mask"] == i) for i in (0, 1))
    assert first["objective"] != second["objective"]


def test_seeds_share_a_solve(small, monkeypatch):
    solved = []
    inputs = sweeping._Work.inputs
    monkeypatch.setattr(sweeping._Work, "inputs", lambda self, p, s: solved.append(len(s.rows)) or inputs(self, p, s))
    result = run(small, jj.grid(0.1, 0.05, latent_dim=4, seed=[3, 1, 7]))
    assert set(solved) == {3}
    affinity = jj.solve(small, jj.Hyper(0.1, 0.05), latent_dim=4, max_iter=40).affinity
    for row in result.rows:
        expected = jj.spectral_cluster(jax.random.fold_in(jax.random.key(0), row["seed"]), affinity, 2)
        np.testing.assert_array_equal(row["labels"], expected)
    assert [row["seed"] for row in result.rows] == [3, 1, 7]


def test_a_hyper_of_vectors_is_a_grid(small):
    hyper = jj.Hyper(lam=np.array([0.1, 0.5]), theta=0.05)
    listed = run(small, hyper, latent_dim=4)
    assert without_timing(listed.rows) == without_timing(run(small, jj.grid([0.1, 0.5], 0.05, latent_dim=4)).rows)


# Memory -------------------------------------------------------------------------------------------------------------


def test_the_budget_decides_the_chunk(small, monkeypatch):
    plans = []
    plan = sweeping._plan
    monkeypatch.setattr(sweeping, "_plan", lambda *a: plans.append(plan(*a)) or plans[-1])
    grid = jj.grid(LAM, 0.05, latent_dim=4)
    unbounded = run(small, grid, chunk=6)
    assert plans[-1][1] == 6
    memory = plans[-1][0].memory_analysis()
    budget = memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes
    bounded = run(small, grid, chunk=6, memory_budget=budget)
    program, size = plans[-1]
    memory = program.memory_analysis()
    assert 1 < size < 6
    assert memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes < budget
    for a, b in zip(bounded.rows, unbounded.rows, strict=True):
        assert a["status"] == b["status"]
        np.testing.assert_allclose(a["objective"], b["objective"], rtol=1e-9)
    with pytest.raises(ValueError, match=r"needs \d+ bytes, more than memory_budget=1000"):
        run(small, grid, memory_budget=1000)


# Rows that are no clustering ----------------------------------------------------------------------------------------


def test_broken_configurations_are_rows(small):
    result = run(small, jj.grid([0.1, np.nan, np.inf], [0.05, np.nan], latent_dim=4))
    statuses = [row["status"] for row in result.rows]
    assert statuses == ["MAX_ITER", "NONFINITE", "NONFINITE", "NONFINITE", "EMPTY", "NONFINITE"]
    assert [np.isnan(row["accuracy"]) for row in result.rows] == [False, True, True, True, True, True]
    assert result.best("accuracy")["lam"] == 0.1
    with pytest.raises(ValueError, match="no configuration gave a usable affinity"):
        run(small, jj.grid(1e9, 1.0, latent_dim=4)).best()


def test_table(small, tmp_path):
    result = run(small, jj.grid([0.1, 0.5, 1e9], [0.05, 0.1], latent_dim=4))
    frame = result.to_pandas()
    assert list(frame["lam"]) == [0.1, 0.1, 0.5, 0.5, 1e9, 1e9]
    assert {"theta", "seed", "status", "n_iter", "nmi", "seconds", "jax", "jpltd_jax"} <= set(frame.columns)
    result.to_csv(tmp_path / "t.csv")
    lines = (tmp_path / "t.csv").read_text().splitlines()
    assert len(lines) == 7
    assert lines[0].startswith("lam,theta,rho")
    result.to_json(tmp_path / "t.json")
    assert [row["nmi"] for row in json.loads((tmp_path / "t.json").read_text())][-1] is None
    curve = result.marginal("nmi", "lam")
    assert list(curve.values) == [0.1, 0.5, 1e9]
    np.testing.assert_allclose(curve.mean[0], frame["nmi"][:2].mean())
    assert curve.best[1] == frame["nmi"][2:4].max()
    assert np.isnan(curve.best[2])
    with pytest.raises(ValueError, match="no 'speed' in the rows"):
        result.best("speed")


BAD = {
    "n_clusters": ({"n_clusters": 13}, "n_clusters must be between 1 and 12"),
    "chunk": ({"chunk": 0}, "chunk must be at least 1"),
    "masks": ({"masks": np.ones((1, 3, 12), bool)}, "masks must be bool"),
    "latent_dim twice": ({"latent_dim": 3}, "the grid has its own latent_dim"),
    "classes": ({"y_true": [0, 1]}, "one class for each of the 12 samples"),
    "order": ({"order": "none"}, "order must be one of"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(small, name):
    changes, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        run(small, jj.grid(1.0, 0.1, latent_dim=4), **changes)


def test_bad_grids(small):
    with pytest.raises(ValueError, match="a Hyper needs latent_dim"):
        run(small, jj.Hyper(1.0, 0.1))
    with pytest.raises(ValueError, match="latent_dim must be integers"):
        jj.grid(1.0, 0.1, latent_dim=2.5)
    with pytest.raises(ValueError, match=r"grid.mask must be between 0 and 0"):
        run(small, jj.grid(1.0, 0.1, latent_dim=4, mask=1))


# Long work ----------------------------------------------------------------------------------------------------------


def test_finished_rows_are_not_computed_again(small, tmp_path, monkeypatch):
    store = tmp_path / "rows.jsonl"
    part = run(small, jj.grid(LAM[:2], THETA, latent_dim=4), store=store)
    assert len(read_rows(store)) == len(part.rows) == 8
    with store.open("a") as file:
        file.write('{"lam": 0.5, "theta"')
    solved = []
    distinct = sweeping._distinct_solves
    monkeypatch.setattr(sweeping, "_distinct_solves", lambda p, i: solved.extend(i) or distinct(p, i))
    whole = run(small, jj.grid(LAM, THETA, latent_dim=4), store=store)
    assert len(solved) == 16
    assert len(read_rows(store)) == 24
    fresh = run(small, jj.grid(LAM, THETA, latent_dim=4))
    for a, b in zip(whole.rows, fresh.rows, strict=True):
        assert set(a) == set(b)
        assert a["labels"] == b["labels"]
        np.testing.assert_allclose(a["objective"], b["objective"], rtol=1e-12)
    solved.clear()
    again = run(small, jj.grid(LAM, THETA, latent_dim=4), store=store)
    assert not solved
    assert str(again.rows) == str(whole.rows)


def test_a_store_of_something_else_is_refused(small, tmp_path):
    store = tmp_path / "rows.jsonl"
    grid = jj.grid(0.1, 0.05, latent_dim=4)
    run(small, grid, store=store)
    content = store.read_bytes()
    for changes in ({"max_iter": 30}, {"key": jax.random.key(1)}, {"transform": "graph"}, {"y_true": None}):
        with pytest.raises(ValueError, match="holds results of another problem"):
            run(small, grid, store=store, **changes)
    store.write_text("no row\n")
    with pytest.raises(ValueError, match="line 1 is not a row of results"):
        run(small, grid, store=store)
    store.write_bytes(content)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        run(small, grid, store=tmp_path / "none" / "rows.jsonl")


def test_interrupt_keeps_what_is_done(small, tmp_path, monkeypatch):
    store, seen = tmp_path / "rows.jsonl", []
    append = sweeping.append_rows

    def press(path, rows):
        append(path, rows)
        seen.append(1)
        if len(seen) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(sweeping, "append_rows", press)
    part = run(small, jj.grid(LAM, THETA, latent_dim=4), store=store)
    assert len(part.rows) == len(read_rows(store)) == 3
    assert part.total == 24


def test_progress_line(small, capsys):
    run(small, jj.grid([0.1, 0.5], 0.05, latent_dim=4), progress=True)
    printed = capsys.readouterr().err
    assert "2/2 best accuracy" in printed
    assert "s left" in printed


SCRIPT = """
import sys
import jax
import numpy as np
import jpltd_jax as jj
from tests.strategies import random_incomplete
jax.config.update("jax_enable_x64", True)
problem = jj.make_problem(*random_incomplete(12, (6, 20, 5), 0))
options = dict(n_clusters=2, y_true=np.arange(12) % 2, key=jax.random.key(0), max_iter=40)
"""


def start(code, before="", **environment):
    root = Path(__file__).parent.parent
    env = os.environ | {"PYTHONPATH": str(root)} | environment
    return subprocess.Popen(
        [sys.executable, "-c", before + SCRIPT + code],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return out


def test_a_killed_sweep_goes_on(small, tmp_path):
    store = tmp_path / "rows.jsonl"
    lam, theta = np.linspace(0.05, 1, 20), np.linspace(0.02, 0.2, 10)
    code = f"""
grid = jj.grid(np.linspace(0.05, 1, 20), np.linspace(0.02, 0.2, 10), latent_dim=4)
jj.sweep(problem, grid, store={str(store)!r}, **options)
"""
    process = start(code)
    while not (store.exists() and store.read_bytes().count(b"\n") >= 3):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    kept = read_rows(store)
    assert 3 <= len(kept) < 200
    cut_partial_row(store)
    assert all(json.loads(line) for line in store.read_text().splitlines())
    result = run(small, jj.grid(lam, theta, latent_dim=4), store=store)
    assert len(result.rows) == 200
    stored = {(row["lam"], row["theta"]): row for row in kept}
    assert all(str(stored.get((row["lam"], row["theta"]), row)) == str(row) for row in result.rows)


# Devices and processes ----------------------------------------------------------------------------------------------


def test_four_devices_equal_one_without_collectives():
    code = """
import functools
import importlib
sweeping = importlib.import_module("jpltd_jax.sweep")
compiled, texts = sweeping._compiled, []
sweeping._compiled = lambda *a: texts.append(compiled(*a).as_text()) or compiled(*a)
grid = jj.grid([0.01, 0.1, 0.5, 1e5], [0.05, 0.1, 1.0], latent_dim=[3, 4])
many = jj.sweep(problem, grid, **options)
assert len(jax.devices()) == 4 and "num_partitions=4" in texts[0]
for word in ("all-reduce", "all-gather", "collective", "all-to-all", "send", "recv"):
    assert word not in texts[0], word
one = jj.sweep(problem, grid, devices=jax.devices()[:1], **options)
for a, b in zip(many.rows, one.rows, strict=True):
    assert (a["status"], a["n_iter"], a["labels"]) == (b["status"], b["n_iter"], b["labels"])
    np.testing.assert_allclose(a["objective"], b["objective"], rtol=1e-12)
print("equal", len(many.rows))
"""
    flags = "--xla_force_host_platform_device_count=4"
    assert "equal 24" in finish(start(code, XLA_FLAGS=flags, JAX_PLATFORMS="cpu"))


def test_two_processes_equal_one(small, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store = tmp_path / "rows.jsonl"
    before = f"""
import json, os
import jax
jax.distributed.initialize("127.0.0.1:{port}", 2, int(os.environ["INDEX"]))
"""
    code = f"""
grid = jj.grid([0.01, 0.1, 0.5], [0.05, 0.1, 1.0], latent_dim=4)
result = jj.sweep(problem, grid, store={str(store)!r}, **options)
print(json.dumps([[row["lam"], row["theta"], row["objective"], row["labels"]] for row in result.rows]))
"""
    processes = [start(code, before, INDEX=str(i), JAX_PLATFORMS="cpu") for i in range(2)]
    first, second = (json.loads(finish(process).splitlines()[-1]) for process in processes)
    assert first == second
    files = [store, tmp_path / "rows.jsonl.1"]
    assert sorted(len(read_rows(file)) for file in files) == [4, 5]
    alone = run(small, jj.grid([0.01, 0.1, 0.5], [0.05, 0.1, 1.0], latent_dim=4))
    for row, (lam, theta, objective, labels) in zip(alone.rows, first, strict=True):
        assert (row["lam"], row["theta"], row["labels"]) == (lam, theta, labels)
        np.testing.assert_allclose(objective, row["objective"], rtol=1e-12)
    merged = run(small, jj.grid([0.01, 0.1, 0.5], [0.05, 0.1, 1.0], latent_dim=4), store=store)
    assert [row["objective"] for row in merged.rows] == [row[2] for row in first]


# The command line ---------------------------------------------------------------------------------------------------


def test_command_line(tmp_path, capsys):
    data = jj.datasets.make_blobs(1, n_samples=40, dims=(8, 12))
    file, out, store = tmp_path / "blobs.npz", tmp_path / "sweep.csv", tmp_path / "sweep.jsonl"
    jj.datasets.save_npz(file, data._replace(mask=jj.missing.paper_protocol(0, 40, 2, 0.5)))
    arguments = ["sweep", str(file), "--lam", "0.5", "1", "1e9", "--theta", "0.1", "--latent-dim", "3", "5"]
    arguments += ["--out", str(out), "--store", str(store)]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert "6 of 6 configurations, 2 empty or not finite" in printed.out
    assert "% at lam=0.5 theta=0.1 latent_dim=3 (chosen by the labels)" in printed.out
    assert "6/6" in printed.err
    assert len(out.read_text().splitlines()) == 7
    assert len(read_rows(store)) == 6
    assert main([*arguments, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert len(read_rows(store)) == 6
    assert main([*arguments, "--max-iter", "20"]) == 2
    assert "holds results of another problem" in capsys.readouterr().err


def test_the_papers_grids_are_the_default():
    arguments = parser().parse_args(["sweep", "x.npz"])
    assert [len(x) for x in (arguments.lam, arguments.theta, arguments.latent_dim)] == [9, 8, 10]
