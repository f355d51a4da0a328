"""One problem over many devices: shard the samples, then call everything as ever."""

import math
import re
from dataclasses import replace

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jpltd_jax.problem import Problem

__all__ = ["collectives", "shard_samples"]

COLLECTIVE = re.compile(
    r" = (.*?) ((?:ragged-)?all-to-all|all-gather|all-reduce|reduce-scatter|collective-permute|collective-broadcast)"
    r"(?:-done)?\("
)
SHAPE = re.compile(r"(pred|[a-z]+(\d+))\[([\d,]*)\]")


def shard_samples(problem: Problem, mesh: Mesh) -> Problem:
    """The problem with its samples spread over the first axis of ``mesh``, in equal parts.

    ``solve`` and ``cluster`` on it run on all devices of the mesh. Each device holds its samples' rows of G, B, P and
    J2, and transforms and shrinks them by itself. In an iteration devices exchange sums over the samples and, without
    anchors, the projected samples: see :func:`collectives`. Nothing of it grows with n a, and with anchors nothing
    grows with n. Before and after the iterations neighbour graphs and the affinity are gathered.

    Parameters
    ----------
    problem
        From :func:`jpltd_jax.make_problem`. The number of samples must be a multiple of the number of devices.
    mesh
        Devices, of one process or (after ``jax.distributed.initialize()``) of several, that all make the same problem.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from jax.sharding import Mesh
    >>> import jpltd_jax as jj
    >>> problem = jj.make_problem([np.eye(8), np.eye(8, 2)])
    >>> sharded = jj.shard_samples(problem, Mesh(np.array(jax.devices()), ("samples",)))
    >>> sharded.data.sharding.spec[2]
    'samples'
    """
    axis = mesh.axis_names[0]
    if problem.n_samples % mesh.shape[axis]:
        raise ValueError(f"{problem.n_samples} samples cannot be spread evenly over {mesh.shape[axis]} devices")

    def put(x: jax.Array, *axes: str | None) -> jax.Array:
        sharding = NamedSharding(mesh, P(*axes))
        return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

    return replace(
        problem,
        data=put(problem.data, None, None, axis),
        mask=put(problem.mask, None, axis),
        bases=tuple(None if q is None else put(q) for q in problem.bases),
        anchors=None if problem.anchors is None else put(problem.anchors),
        mesh=mesh,
    )


def collectives(program: jax.stages.Compiled) -> dict[str, int]:
    """Bytes of what devices exchange in a compiled program, by operation; what stands in a loop is counted once.

    The sizes are those of the results on one device: of a gathered array the whole array, of a sum its one copy.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.sharding import collectives
    >>> collectives(jax.jit(jnp.sum).lower(jnp.ones(8)).compile())
    {}
    """
    found: dict[str, int] = {}
    for shapes, operation in COLLECTIVE.findall(program.as_text() or ""):
        for _, bits, axes in SHAPE.findall(shapes):
            size = int(bits or 8) // 8 * math.prod(int(axis) for axis in axes.split(",") if axis)
            found[operation] = found.get(operation, 0) + size
    return found
