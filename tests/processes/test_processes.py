"""Work that needs processes of its own: killed sweeps, several processes, the command line as users run it."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
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


def free_port(candidates=(0,)):
    """The first of the ports that nobody has; 0 stands for any."""
    for port in candidates:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return probe.getsockname()[1]
    raise OSError("no port is free")


def outputs(processes):
    """What each prints last; all are read at once, since they wait for each other before they end."""
    with ThreadPoolExecutor(len(processes)) as pool:
        return [json.loads(out.splitlines()[-1]) for out in pool.map(finish, processes)]


def together(code, n):
    """What n processes that know each other print last."""
    before = f"""
import json, os
import jax
jax.distributed.initialize("127.0.0.1:{free_port()}", {n}, int(os.environ["INDEX"]))
"""
    return outputs([start(code, before, INDEX=str(i)) for i in range(n)])


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


def test_slurm_tells_the_processes_who_they_are():
    """Two processes as srun starts them: JAX reads coordinator, number and index from the environment."""
    before = """
import json
import jax
jax.distributed.initialize()
"""
    code = """
result = jj.sweep(problem, grid_of({"lam": [0.1, 0.5], "theta": 0.1}), **options)
print(json.dumps([jax.process_count(), jax.process_index(), result.total, [row["labels"] for row in result.rows]]))
"""
    first_of_jobs = 2**16 - 2**12
    number = free_port(range(first_of_jobs, 2**16)) - first_of_jobs  # JAX makes the port from the number of the job
    job = {"SLURM_JOB_ID": str(2**12 + number), "SLURM_NTASKS": "2", "SLURM_STEP_NUM_NODES": "1"}
    job |= {"SLURM_STEP_NODELIST": "127.0.0.1"}
    ranks = [{"SLURM_PROCID": str(i), "SLURM_LOCALID": str(i)} for i in range(2)]
    first, second = outputs([start(code, before, **job, **rank) for rank in ranks])
    alone = run(make_small(), grid_of({"lam": [0.1, 0.5], "theta": 0.1}))
    labels = [row["labels"] for row in alone.rows]
    assert first == [2, 0, 2, labels]
    assert second == [2, 1, 2, labels]


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("anchors", [None, 16])
def test_processes_share_a_problem(count, anchors):
    """The iterations, and the pipeline around them."""
    code = f"""
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh
from tests.drivers.test_sharding import CONFIG, HYPER, problem_of
mesh = Mesh(np.array(jax.devices()), ("samples",), axis_types=(AxisType.Auto,))
assert jax.process_count() == {count} == len(jax.devices()) == {count} * len(jax.local_devices())
found = jj.cluster(jax.random.key(0), jj.shard_samples(problem_of(60, {anchors}), mesh), HYPER, 4, CONFIG)
made = found.labels, found.solution.affinity
print(json.dumps([multihost_utils.process_allgather(x, tiled=True).tolist() for x in made]))
"""
    from tests.drivers.test_sharding import CONFIG, HYPER, problem_of

    first, *others = together(code, count)
    assert others == [first] * (count - 1)
    labels, affinity = first
    alone = jj.cluster(jax.random.key(0), problem_of(60, anchors), HYPER, 4, CONFIG)
    np.testing.assert_allclose(affinity, alone.solution.affinity, atol=1e-10)
    assert adjusted_rand_score(labels, alone.labels) == 1, (
        "the same clusters; which of equal restarts names them may vary"
    )


def test_sharding_over_eight_devices():
    """The tests of four devices and those that need eight, in a process that simulates eight."""
    flags = os.environ["XLA_FLAGS"].replace("device_count=4", "device_count=8")
    command = [sys.executable, "-m", "pytest", "-n", "0", "-rs", "tests/drivers/test_sharding.py"]
    environment = os.environ | {"XLA_FLAGS": flags, "NPROC": "16"}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout, done.stdout


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


def test_compiled_programs_are_kept_for_the_next_process(tmp_path):
    """By the two variables that the README names."""
    code = """
found = []
jax.monitoring.register_event_listener(lambda name, **rest: found.append(name))
jax.jit(lambda x: x * 3 + 1)(np.ones(7))
print(found.count("/jax/compilation_cache/cache_hits"))
"""
    kept = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    assert int(finish(start(code, **kept))) == 0
    assert list(tmp_path.iterdir())
    assert int(finish(start(code, **kept))) > 0
