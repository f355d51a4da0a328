"""One run over many devices: the samples are sharded, and `solve` and `cluster` are called as ever."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

import jpltd_jax as jj
from jpltd_jax.loop import advance, as_dtype, begin
from jpltd_jax.methods import jpltd

CONFIG = jj.Config(latent_dim=5, n_neighbors=5)
BYTES = {"f64": 8, "c128": 16, "pred": 1, "s32": 4}


def problem_of(n, anchors):
    data = jj.datasets.make_blobs(0, n_samples=n, dims=(12, 10, 8), n_clusters=4)
    return jj.make_problem(data.views, jj.missing.paper_protocol(0, n, 3, 0.5), anchors=anchors)


@pytest.fixture
def mesh():
    if len(jax.devices()) < 4:
        pytest.skip("needs four devices")
    return Mesh(np.array(jax.devices()[:4]), ("samples",), axis_types=(AxisType.Auto,))


def exchanged_in_the_loop(problem):
    """Bytes of all collectives in the bodies of the compiled program's loops."""
    data = jpltd.prepare(problem, 4, CONFIG)
    hyper = as_dtype(jj.Hyper(), jnp.float64)
    carry = begin(jpltd.JPLTD, data, hyper, jax.random.key(0), 64)
    text = jax.jit(advance).lower(jpltd.JPLTD, data, hyper, carry, jnp.asarray(30, jnp.int32)).compile().as_text()
    bodies = set(re.findall(r"body=%?([\w.\-]+)", text))
    total = 0
    for name, body in re.findall(r"^%?([\w.\-]+) [^\n]*\{\n(.*?)^\}", text, re.M | re.S):
        if name in bodies:
            for shapes in re.findall(r" = (.*?) (?:all-|collective|reduce-scatter)[\w\-]*\(", body):
                for dtype, shape in re.findall(r"(\w+)\[([\d,]*)\]", shapes):
                    total += BYTES[dtype] * int(np.prod([int(x) for x in shape.split(",") if x]))
    return total


def test_four_devices_equal_one_and_exchange_little(mesh):
    """What is exchanged in an iteration is the same for twice as many samples, so it does not grow with n a."""
    found = []
    for n in (160, 320):
        problem = problem_of(n, 24)
        sharded = jj.shard_samples(problem, mesh)
        found.append(exchanged_in_the_loop(sharded))
        one, many = (jj.solve(p, jj.Hyper(), CONFIG) for p in (problem, sharded))
        assert many.state.G.sharding.spec == P(None, "samples"), many.state.G.sharding
        np.testing.assert_allclose(many.affinity, one.affinity, atol=1e-10)
    assert found[0] == found[1]
    assert 0 < found[0] < 160 * 24 * 8


def test_clusters_of_a_sharded_problem(mesh):
    problem = problem_of(160, 24)
    one, many = (
        jj.cluster(jax.random.key(0), p, jj.Hyper(), 4, CONFIG) for p in (problem, jj.shard_samples(problem, mesh))
    )
    np.testing.assert_array_equal(one.labels, many.labels)


def test_without_anchors(mesh):
    problem = problem_of(64, None)
    config = jj.Config(latent_dim=5, transform="fourier")
    one, many = (jj.solve(p, jj.Hyper(), config).affinity for p in (problem, jj.shard_samples(problem, mesh)))
    np.testing.assert_allclose(many, one, atol=1e-10)


def test_uneven_parts_are_refused(mesh):
    with pytest.raises(ValueError, match="62 samples cannot be spread evenly over 4 devices"):
        jj.shard_samples(problem_of(62, 16), mesh)
