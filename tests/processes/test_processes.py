"""Work that needs processes of its own: killed sweeps, several processes, the command line as users run it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.metrics import adjusted_rand_score

import jpltd_jax as jj
from jpltd_jax.sweeps.store import cut_partial_row, read_rows
from tests.drivers.test_estimator import DATA, VIEWS, model
from tests.drivers.test_sweeps import grid_of, make_small, run

pytestmark = pytest.mark.processes

SCRIPT = """
import sys
import jax
import numpy as np
import jpltd_jax as jj
from tests.drivers.test_sweeps import grid_of, make_small
jax.config.update("jax_enable_x64", True)
problem = make_small()
options = dict(n_clusters=2, y=np.arange(12) % 2, key=jax.random.key(0))
"""


def start(code, before="", **environment):
    kept = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    root = str(Path(__file__).parents[2])
    return subprocess.Popen(
        [sys.executable, "-c", before + SCRIPT + code],
        env=kept | {"PYTHONPATH": root, "JAX_PLATFORMS": "cpu"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return out


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def together(code, n):
    """What n processes that know each other print last."""
    before = f"""
import json, os
import jax
jax.distributed.initialize("127.0.0.1:{free_port()}", {n}, int(os.environ["INDEX"]))
"""
    processes = [start(code, before, INDEX=str(i)) for i in range(n)]
    return [json.loads(finish(process).splitlines()[-1]) for process in processes]


def test_a_killed_sweep_goes_on(tmp_path):
    store = tmp_path / "rows.jsonl"
    axes = {"lam": np.linspace(0.05, 1, 20), "theta": np.linspace(0.02, 0.2, 10)}
    code = f"""
axes = {{"lam": np.linspace(0.05, 1, 20), "theta": np.linspace(0.02, 0.2, 10)}}
jj.sweep(problem, grid_of(axes), store={str(store)!r}, **options)
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
    result = run(make_small(), grid_of(axes), store=store)
    assert len(result.rows) == 200
    stored = {(row["lam"], row["theta"]): row for row in kept}
    assert all(str(stored.get((row["lam"], row["theta"]), row)) == str(row) for row in result.rows)


def test_two_processes_share_a_sweep(tmp_path):
    store = tmp_path / "rows.jsonl"
    axes = {"lam": [0.01, 0.1, 0.5], "theta": [0.05, 0.1, 1.0]}
    code = f"""
result = jj.sweep(problem, grid_of({axes}), store={str(store)!r}, **options)
print(json.dumps([[row["lam"], row["theta"], row["objective"], row["labels"]] for row in result.rows]))
"""
    first, second = together(code, 2)
    assert first == second
    files = [store, tmp_path / "rows.jsonl.1"]
    assert sorted(len(read_rows(file)) for file in files) == [4, 5]
    own = run(make_small(), grid_of(axes))
    for row, (lam, theta, objective, labels) in zip(own.rows, first, strict=True):
        assert (row["lam"], row["theta"], row["labels"]) == (lam, theta, labels)
        np.testing.assert_allclose(objective, row["objective"], rtol=1e-12)
    merged = run(make_small(), grid_of(axes), store=store)
    assert [row["objective"] for row in merged.rows] == [row[2] for row in first]


def test_two_processes_share_a_solve():
    code = """
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh
from tests.drivers.test_sharding import CONFIG, problem_of
mesh = Mesh(np.array(jax.devices()), ("samples",), axis_types=(AxisType.Auto,))
solution = jj.solve(jj.shard_samples(problem_of(60, 16), mesh), jj.Hyper(), CONFIG)
print(json.dumps(multihost_utils.process_allgather(solution.affinity, tiled=True).tolist()))
"""
    from tests.drivers.test_sharding import CONFIG, problem_of

    first, second = together(code, 2)
    assert first == second
    np.testing.assert_allclose(first, jj.solve(problem_of(60, 16), jj.Hyper(), CONFIG).affinity, atol=1e-10)


def test_estimators_in_parallel_processes():
    expected = model().fit_predict(VIEWS)
    for labels in Parallel(n_jobs=2)(delayed(model().fit_predict)(VIEWS) for _ in range(2)):
        assert adjusted_rand_score(labels, expected) == 1
    assert adjusted_rand_score(DATA.labels, expected) == 1


def test_demo_gives_the_same_scores_twice(tmp_path):
    """As a user runs it: another directory, a process of its own, no x64."""
    outputs = []
    for i in range(2):
        command = [sys.executable, "-m", "jpltd_jax", "demo", "--samples", "100", "--out", f"out{i}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        outputs.append([line for line in done.stdout.splitlines() if "%" in line])
        assert (tmp_path / f"out{i}" / "demo.png").stat().st_size > 10_000
        assert len((tmp_path / f"out{i}" / "labels.csv").read_text().splitlines()) == 101
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 7


def test_float32_flag_of_a_process_does_not_matter_to_a_float64_method():
    """TC-IMVC computes in float64 by itself, also where nobody turned x64 on."""
    code = """
jax.config.update("jax_enable_x64", False)
data = jj.datasets.make_blobs(3, n_samples=30, dims=(10, 12, 9))
found = jj.fit("tc_imvc", data.views, None, 3, key=jax.random.key(0))
print(found.solution.embedding.dtype, float(jj.metrics.accuracy(data.labels, found.labels)))
"""
    assert finish(start(code)).splitlines()[-1] == "float64 1.0"
