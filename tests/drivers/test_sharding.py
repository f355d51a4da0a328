"""One run over many devices: the samples are sharded, and `solve` and `cluster` are called as ever."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

import jpltd_jax as jj
from jpltd_jax.loop import Loop, advance, as_dtype, begin, prepare
from jpltd_jax.methods import jpltd
from jpltd_jax.sharding import collectives

K, M, R, VECTORS = 5, 3, 12, 9
CONFIG = jj.Config(latent_dim=K, n_neighbors=5, n_vectors=VECTORS)
HYPER = jj.Hyper()


def problem_of(n, anchors):
    data = jj.datasets.make_blobs(0, n_samples=n, dims=(12, 10, 8), n_clusters=4)
    return jj.make_problem(data.views, jj.missing.paper_protocol(0, n, M, 0.5), anchors=anchors)


def mesh_of(count):
    if len(jax.devices()) < count:
        pytest.skip(f"needs {count} devices")
    return Mesh(np.array(jax.devices()[:count]), ("samples",), axis_types=(AxisType.Auto,))


@pytest.fixture
def mesh():
    return mesh_of(4)


def prepared(problem, transform="graph"):
    data = prepare(jpltd.JPLTD, problem, 4, replace(CONFIG, transform=transform))
    return data, as_dtype(HYPER, jnp.float64)


# What is exchanged --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize("anchors", [None, 64])
@pytest.mark.parametrize("transform", ["fourier", "graph"])
def test_a_step_exchanges_sums_and_projected_samples_only(count, anchors, transform):
    """The sum over all collectives is linear in n without anchors and does not depend on n with them.

    Sums over the samples are the argument of W (k, r), target G (k, a), the Gram matrices of D (k, k), D G^T is local,
    and the Gram matrices of the slices. Each device needs all of D: without anchors the projected samples, with them
    the columns of the anchors. The rows per device are no multiple of eight, which is how sums are blocked.
    """
    n = 17 * count
    sharded = jj.shard_samples(problem_of(n, anchors), mesh_of(count))
    data, hyper = prepared(sharded, transform)
    state = jpltd.init(jax.random.key(0), data, hyper)
    found = collectives(jpltd.step.lower(data, hyper, state).compile())
    a = anchors or n
    slices = 2 * (a // 2 + 1) if transform == "fourier" else VECTORS + 1
    dictionary = K * n + K * K if anchors is None else R * a + K * a
    most = M * (K * R + K * a + dictionary) + M * M * slices + 2
    assert 0 < sum(found.values()) <= 8 * most
    assert set(found) <= {"all-reduce", "all-gather"}
    assert found.get("all-gather", 0) <= 8 * M * K * n


def test_the_loop_exchanges_what_a_step_does_for_any_number_of_samples(mesh):
    found = []
    for n in (68, 136):
        data, hyper = prepared(jj.shard_samples(problem_of(n, 24), mesh))
        carry = begin(jpltd.JPLTD, data, hyper, jax.random.key(0), 64)
        loop = jax.jit(advance).lower(jpltd.JPLTD, data, hyper, carry, jnp.asarray(30, jnp.int32)).compile()
        found += [collectives(loop), collectives(jpltd.step.lower(data, hyper, carry.state).compile())]
    assert found == found[:1] * 4


def test_collectives_are_counted(mesh):
    """Against what the programs are told to exchange."""
    x = jnp.ones((4, 6))
    told = {
        "all-reduce": lambda x: jax.lax.psum(x, "samples"),
        "all-gather": lambda x: jax.lax.all_gather(x, "samples", tiled=True),
        "collective-permute": lambda x: jax.lax.ppermute(x, "samples", [(0, 1), (1, 0)]),
    }
    for name, function in told.items():
        spread = jax.shard_map(function, mesh=mesh, in_specs=P("samples"), out_specs=P("samples"), check_vma=False)
        size = (24 if name == "all-gather" else 6) * 8
        assert collectives(jax.jit(spread).lower(x).compile()) == {name: size}
        both = jax.shard_map(
            lambda x, function=function: (function(x), function(x > 2).astype(x.dtype)),
            mesh=mesh,
            in_specs=P("samples"),
            out_specs=P("samples"),
            check_vma=False,
        )
        assert collectives(jax.jit(both).lower(x).compile())[name] > size


def test_no_device_ever_holds_a_whole_tensor(mesh):
    """From the first state on."""
    data, hyper = prepared(jj.shard_samples(problem_of(68, None), mesh))
    state = jpltd.init(jax.random.key(0), data, hyper)
    for made in (state, jpltd.step(data, hyper, state)[0]):
        for name in ("G", "B", "P", "J2"):
            assert getattr(made, name).sharding.spec == P(None, "samples"), name


# The same result ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anchors", [None, 24])
@pytest.mark.parametrize("config", [CONFIG, replace(jj.PUBLISHED, latent_dim=K)], ids=["default", "published"])
def test_clusters_of_a_sharded_problem(mesh, anchors, config):
    problem = problem_of(68, anchors)
    one, many = (jj.cluster(jax.random.key(0), p, HYPER, 4, config) for p in (problem, jj.shard_samples(problem, mesh)))
    assert many.solution.state.G.sharding.spec == P(None, "samples")
    np.testing.assert_allclose(many.solution.affinity, one.solution.affinity, atol=1e-10)
    np.testing.assert_array_equal(one.labels, many.labels)


def test_jit_vmap_and_grad_over_a_sharded_problem(mesh):
    problem = problem_of(68, 24)
    lams, weights = jnp.array([0.2, 0.5]), jnp.asarray(np.random.default_rng(0).normal(size=(68, 24)))
    config, loop = replace(CONFIG, transform="fourier"), Loop(12, kind="scan")

    @jax.jit
    def values_and_slopes(problem):
        def value(lam):
            return jnp.vdot(weights, jj.solve(problem, jj.Hyper(lam, rho=0.1), config, loop=loop).affinity)

        return jax.vmap(jax.value_and_grad(value))(lams)

    one, many = values_and_slopes(problem), values_and_slopes(jj.shard_samples(problem, mesh))
    assert float(jnp.min(jnp.abs(one[1]))) > 1e-4
    np.testing.assert_allclose(many, one, rtol=1e-8)


def test_a_checkpoint_goes_on_over_the_devices(mesh, tmp_path):
    sharded = jj.shard_samples(problem_of(68, 24), mesh)
    straight = jj.solve(sharded, HYPER, CONFIG)
    file = tmp_path / "run.npz"
    part = jj.solve(sharded, HYPER, CONFIG, loop=Loop(every=10, checkpoint=file, callback=lambda *_: True))
    assert int(part.n_iter) == 10
    whole = jj.solve(sharded, HYPER, CONFIG, loop=Loop(every=10, checkpoint=file))
    assert whole.state.G.sharding.spec == P(None, "samples")
    np.testing.assert_array_equal(whole.affinity, straight.affinity)


# Refused ------------------------------------------------------------------------------------------------------------


def test_uneven_parts_are_refused(mesh):
    with pytest.raises(ValueError, match="62 samples cannot be spread evenly over 4 devices"):
        jj.shard_samples(problem_of(62, 16), mesh)


def test_a_sweep_spreads_configurations_instead(mesh):
    with pytest.raises(ValueError, match="give it the problem that is not sharded"):
        jj.sweep(jj.shard_samples(problem_of(60, 16), mesh), jj.grid({}), n_clusters=3, key=jax.random.key(0))
