"""One compiled program for the configurations of a sweep, and how many of them fit into memory at once."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from jpltd_jax._types import Key, check_count
from jpltd_jax.loop import Carry, Method, advance, finish
from jpltd_jax.memory import free_memory
from jpltd_jax.pipeline import label
from jpltd_jax.sweeps.trunk import resized

__all__ = ["Outcome", "Run", "Task", "available_memory", "plan"]


@dataclass(frozen=True)
class Run:
    """How to run a sweep; none of this changes its results beyond rounding.

    Attributes
    ----------
    chunk
        Most configurations that a device runs at once. Default: one on a CPU, which keeps the iterates bit for bit
        those of a single run; else as many as fit.
    memory
        Bytes, on a CPU for all of its devices together, else for each. The need is predicted by the compiled program's
        own account before it runs. Default: :func:`available_memory`.
    devices
        Default: all local ones.
    progress
        Whether to draw a line of progress on standard error.
    shard
        (i, k): worker i of k takes configurations i, i + k, i + 2k and so on. For workers that know nothing of each
        other. Each has its own file of the store; :func:`jpltd_jax.sweeps.store.merge_stores` puts them together.

    Examples
    --------
    >>> from jpltd_jax.sweeps import Run
    >>> Run(chunk=0)
    Traceback (most recent call last):
    ValueError: chunk must be at least 1, got 0
    """

    chunk: int | None = None
    memory: int | None = None
    devices: Sequence[jax.Device] | None = None
    progress: bool = False
    shard: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.chunk is not None:
            check_count("chunk", self.chunk)
        if self.shard is not None:
            number, workers = self.shard
            check_count("shard: number of workers", workers)
            check_count("shard: worker", number, workers - 1, least=0)


class Task(NamedTuple):
    """What all configurations of a program have in common; static."""

    method: Method
    n_clusters: int
    max_iter: int


class Outcome(NamedTuple):
    """What comes of one solve."""

    labels: Int[Array, "seeds n"]
    judged: Float[Array, "seeds 2"] | None
    """Modularity and score of each partition; None for a method that does not judge."""
    code: Int[Array, ""]
    n_iter: Int[Array, ""]
    watched: Any
    """After the last iteration."""
    objective: Float[Array, ""] | None


def _run_one(task: Task, data: Any, hyper: Any, carry: Carry, sizes: dict[str, Array], keys: Key) -> Outcome:
    """From the carry where a configuration parts to its labels, one vector per key."""
    method, data = task.method, resized(task.method, data, sizes)
    end = advance(method, data, hyper, carry, jnp.asarray(task.max_iter, jnp.int32))
    solution = finish(method, data, end, task.max_iter)

    def of_seed(key: Key) -> tuple[Array, Array | None]:
        found = label(key, method, data, solution, task.n_clusters)
        if found.candidates is None:
            return found.labels, None
        quality = found.candidates.best()
        return found.labels, jnp.stack([quality.modularity, quality.score])

    labels, judged = jax.vmap(of_seed)(keys)
    watched = jax.tree.map(lambda record: record[solution.n_iter - 1], solution.history)
    objective = None if method.objective is None else method.objective(data, hyper, solution.state)
    return Outcome(labels, judged, solution.code, solution.n_iter, watched, objective)


@functools.lru_cache(maxsize=8)
def compiled(task: Task, devices: tuple[jax.Device, ...], size: int, default_dtype: str, tree: Any, leaves: Any) -> Any:
    """:func:`_run_one` for ``size`` configurations on each device, which stop without regard to the other devices."""
    mesh = Mesh(np.array(devices), ("sweep",), axis_types=(AxisType.Auto,))
    common, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("sweep"))

    def run(data: Any, *batch: Any) -> Outcome:
        one = functools.partial(_run_one, task, data)
        if size > 1:
            return jax.vmap(one)(*batch)
        return jax.tree.map(lambda x: x[None], one(*jax.tree.map(lambda x: x[0], batch)))

    specs = (P(), *[P("sweep")] * 4)
    mapped = jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=P("sweep"), check_vma=False)
    program = jax.jit(mapped, in_shardings=(common, *[split] * 4), out_shardings=split)
    return program.lower(*jax.tree.unflatten(tree, leaves)).compile()


def _bytes(tree: Any) -> int:
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def available_memory(device: jax.Device) -> int:
    """Bytes that a sweep may use by default: what is free on the device; for a CPU half of the free memory."""
    return free_memory(device) if device.memory_stats() else free_memory(device) // 2


def plan(
    task: Task, devices: tuple[jax.Device, ...], example: tuple[Any, ...], chunk: int, budget: int
) -> tuple[Any, int]:
    """The program, and how many configurations a device runs at once: at most ``chunk``, and what fits the budget.

    ``example`` has the shapes of the data and of the inputs of one configuration: hyper, carry, sizes, keys.
    """
    sharing = len(devices) if devices[0].platform == "cpu" else 1
    data, carry = example[0], example[2]

    def of_size(size: int) -> tuple[Any, int]:
        stacked = jax.tree.map(lambda x: jax.ShapeDtypeStruct((size * len(devices), *x.shape), x.dtype), example[1:])
        flat, tree = jax.tree.flatten((data, *stacked))
        program = compiled(task, devices, size, str(jnp.result_type(float)), tree, tuple(flat))
        memory = program.memory_analysis()
        own = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
        return program, sharing * own + _bytes(carry) * (4 + 2 * size * len(devices))

    program, need = of_size(1)
    if need > budget:
        raise ValueError(f"one configuration per device needs {need} bytes, more than memory={budget}")
    fixed = sharing * _bytes(data) + 4 * _bytes(carry)
    size = min(chunk, (budget - fixed) // (need - fixed))
    while size > 1:
        program, need = of_size(size)
        if need <= budget:
            return program, size
        size = min(size - 1, size * budget // need)
    return of_size(1)[0], 1
