"""One solve over many devices: the samples are sharded, and `solve` is called as ever."""

import json
import os
import socket
import subprocess
import sys

import numpy as np

SET_UP = """
import dataclasses, json, os, re
import jax
{before}
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
import jpltd_jax as jj
from jpltd_jax import admm

jax.config.update("jax_enable_x64", True)
mesh = Mesh(np.array(jax.devices()), ("samples",), axis_types=(AxisType.Auto,))
hyper = admm.as_dtype(jj.Hyper(lam=0.25, theta=0.1), jnp.float64)
options = {{"latent_dim": 5, "max_iter": 30, "w_init": "svd"}}

def problem_of(n, anchors):
    data = jj.datasets.make_blobs(0, n_samples=n, dims=(12, 10, 8), n_clusters=4)
    return jj.make_problem(data.views, jj.missing.paper_protocol(0, n, 3, 0.5), anchors=anchors)

def transform_of(problem):
    return jj.graphs.graph_transform(jj.graphs.consensus_graph(problem.dictionary, 5))

def labels_of(affinity):
    return jj.spectral_cluster(jax.random.key(0), affinity, 4)
"""

# Twice as many threads as devices: a device that waits for the others holds its thread.
THREADS = {"NPROC": "8", "JAX_PLATFORMS": "cpu"}


def start(code, *, before="", **environment):
    text = SET_UP.format(before=before) + code
    kept = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    return subprocess.Popen(
        [sys.executable, "-c", text], env=kept | THREADS | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def finish(process):
    out, error = process.communicate(timeout=400)
    assert process.returncode == 0, error
    return out


def test_four_devices_equal_one_and_exchange_little():
    """What is exchanged in an iteration is the same for twice as many samples, so it does not grow with n a."""
    code = """
SIZES = {"f64": 8, "c128": 16, "pred": 1, "s32": 4}

def exchanged_in_the_loop(problem, transform):
    static = options | {"variant": "full", "order": "paper", "norm_scale": "mean"}
    text = admm._solve.lower(problem, hyper, None, transform, **static).compile().as_text()
    bodies = set(re.findall(r"body=%?([\\w.\\-]+)", text))
    total = 0
    for name, body in re.findall(r"^%?([\\w.\\-]+) [^\\n]*\\{\\n(.*?)^\\}", text, re.M | re.S):
        if name not in bodies:
            continue
        for shapes in re.findall(r" = (.*?) (?:all-|collective|reduce-scatter)[\\w\\-]*\\(", body):
            for dtype, shape in re.findall(r"(\\w+)\\[([\\d,]*)\\]", shapes):
                total += SIZES[dtype] * int(np.prod([int(x) for x in shape.split(",") if x]))
    return total

found = []
for n in (160, 320):
    problem = problem_of(n, 24)
    sharded = jj.shard_samples(problem, mesh)
    transform = transform_of(problem)
    found.append(exchanged_in_the_loop(sharded, transform))
    one, many = (jj.solve(p, hyper, transform=transform, **options) for p in (problem, sharded))
    assert many.state.G.sharding.spec == P(None, "samples"), many.state.G.sharding
    np.testing.assert_allclose(many.affinity, one.affinity, atol=1e-10)
    np.testing.assert_array_equal(labels_of(many.affinity), labels_of(one.affinity))
exact = problem_of(64, None)
one, many = (jj.solve(p, hyper, **options) for p in (exact, jj.shard_samples(exact, mesh)))
np.testing.assert_allclose(many.affinity, one.affinity, atol=1e-10)
print(json.dumps(found))
"""
    out = finish(start(code, XLA_FLAGS="--xla_force_host_platform_device_count=4"))
    small, large = json.loads(out.splitlines()[-1])
    assert small == large
    assert 0 < small < 160 * 24 * 8


def test_two_processes_equal_one():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    join = f'jax.distributed.initialize("127.0.0.1:{port}", 2, int(os.environ["INDEX"]))'
    code = """
problem = problem_of(60, 16)
transform = transform_of(problem)
result = jj.solve(jj.shard_samples(problem, mesh), hyper, transform=transform, **options)
from jax.experimental import multihost_utils
print(json.dumps(multihost_utils.process_allgather(result.affinity, tiled=True).tolist()))
"""
    processes = [start(code, before=join, INDEX=str(i)) for i in range(2)]
    first, second = (json.loads(finish(process).splitlines()[-1]) for process in processes)
    assert first == second
    alone = code.replace("jj.shard_samples(problem, mesh)", "problem").split("from jax.experimental")[0]
    expected = json.loads(finish(start(alone + "print(json.dumps(result.affinity.tolist()))")).splitlines()[-1])
    np.testing.assert_allclose(first, expected, atol=1e-10)
