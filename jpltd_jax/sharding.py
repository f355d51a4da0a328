"""One solve over many devices: shard the samples, call :func:`jpltd_jax.solve` as ever."""

from dataclasses import replace

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jpltd_jax.problem import Problem

__all__ = ["shard_samples"]


def shard_samples(problem: Problem, mesh: Mesh) -> Problem:
    """The problem with its samples spread over the first axis of ``mesh``, in equal parts.

    ``solve`` on it runs on all devices of the mesh: each holds its samples' rows of G, B, P and J2, and the compiled
    program exchanges only sums over the samples: per iteration (m, k, r) and (m, k, a) products, the small Gram
    matrices of the tensor norm, and two residuals. With anchors none of it grows with n.

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
    )
