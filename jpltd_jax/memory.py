"""How much memory a fit needs, how much there is, and what fits: exact, with anchors, or on a part of the samples."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jpltd_jax.methods.jpltd import ORDER_FREE, Config

__all__ = ["ANCHORS", "EXACT", "Plan", "free_memory", "plan_fit", "predicted_memory"]

EXACT = 3000
"""Most samples that a fit represents by all of them unless it is told to."""

ANCHORS = 500
"""Anchors of a fit of more samples unless it is told how many."""

PROGRAMS = 200 * 2**20
"""Bytes of compiled programs and of compiling them."""

OF_TENSORS = 8
"""Arrays (m, n, a) that an iteration holds at its peak, beside those made before it: the state has four."""

OF_MATRICES = 2
"""Arrays (n, a) beside the graphs."""

OF_LATENT = 4
"""Arrays of the projected samples and of the projections: M, E, J1, W and their targets."""

LEAST = 2 * ANCHORS
"""Fewest samples that a fit is made on instead of all of them."""


class Plan(NamedTuple):
    """What a fit is made of."""

    n_fitted: int
    """Samples it is made on; the others are labelled afterwards."""
    n_anchors: int | None
    """None: exact."""


def free_memory(device: jax.Device | None = None) -> int:
    """Bytes that are free on a device, by default the first one; for a CPU in the machine, or left to its container.

    Examples
    --------
    >>> from jpltd_jax.memory import free_memory
    >>> free_memory() > 0
    True
    """
    stats = (jax.local_devices()[0] if device is None else device).memory_stats()
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats["bytes_in_use"])
    account = Path("/proc/meminfo")
    if account.exists():
        lines = dict(line.split(":") for line in account.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    else:
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit, used = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))
    if limit.exists() and limit.read_text().strip() != "max":
        free = min(free, int(limit.read_text()) - int(used.read_text()))
    return free


def predicted_memory(
    n: int, dimensions: Sequence[int], n_anchors: int | None = None, config: Config = ORDER_FREE
) -> int:
    """Bytes that a fit of JPLTD takes at its peak, beyond what the process had and the views themselves.

    The iteration holds the tensors G, B, P, J2 and the views' graphs, (m, n, a) each, and as much again while it
    computes; the graphs that are added, (n, a) each; the views in several forms. Within a quarter of what
    ``experiments/benchmarks/memory.py`` measures, see :doc:`/limits`.

    Parameters
    ----------
    n
        Samples.
    dimensions
        Features of every view.
    n_anchors
        None: all samples.
    config
        Options.

    Examples
    --------
    >>> from jpltd_jax.memory import predicted_memory
    >>> exact, anchored = (predicted_memory(10_000, (100, 80, 60), a) / 2**30 for a in (None, 500))
    >>> exact > 10, anchored < 1
    (True, True)
    """
    m, a = len(dimensions), n if n_anchors is None else min(n_anchors, n)
    width = max(min(d, n) for d in dimensions)
    number = jnp.result_type(float).itemsize
    graphs = 0 if config.partner is None else m + (1 if config.partner == "late" else 2)
    tensors = (OF_TENSORS * m + graphs + OF_MATRICES) * n * a
    latent = 0 if not config.has_projection else OF_LATENT * m * config.latent_dim * (n + width)
    basis = 0 if config.transform != "graph" else 3 * a * min(a, config.n_vectors or a)
    compared = min(n, 3000)
    preparation = 0 if config.transform != "graph" else 5 * m * m * 10 * compared * 4 + 24 * compared**2
    features = 8 * n * sum(dimensions) + (8 + number) * m * width * n
    need = max(number * (tensors + latent + basis + m * width * n) + 8 * n * sum(dimensions), preparation + features)
    return int(need) + PROGRAMS


def plan_fit(n: int, dimensions: Sequence[int], config: Config = ORDER_FREE, free: int | None = None) -> Plan:
    """Exact up to 3000 samples, 500 anchors above, and a part of the samples where that does not fit either.

    What is predicted must be below half of what is free.

    Parameters
    ----------
    n, dimensions, config
        As for :func:`predicted_memory`.
    free
        Bytes. Default: :func:`free_memory`.

    Examples
    --------
    >>> from jpltd_jax.memory import plan_fit
    >>> for n in (500, 30_000, 1_000_000):
    ...     print(plan_fit(n, (100, 80, 60), free=8 * 2**30).n_anchors)
    None
    500
    500
    >>> plan_fit(1_000_000, (100, 80, 60), free=8 * 2**30).n_fitted < 200_000
    True
    """
    free = free_memory() if free is None else free
    if n <= EXACT and predicted_memory(n, dimensions, None, config) <= free // 2:
        return Plan(n, None)
    if n > ANCHORS and predicted_memory(n, dimensions, ANCHORS, config) <= free // 2:
        return Plan(n, ANCHORS)
    least = min(n, LEAST)
    need = predicted_memory(least, dimensions, ANCHORS, config)
    if n <= LEAST or need > free // 2:
        raise MemoryError(
            f"a fit on {least} samples with {min(ANCHORS, least)} anchors needs {need} bytes, and half of the memory "
            f"that is free is {free // 2} bytes: use fewer features, lower latent_dim={config.latent_dim}, or free some"
        )
    low, high = least, n
    while high - low > 1:
        middle = (low + high) // 2
        fits = predicted_memory(middle, dimensions, ANCHORS, config) <= free // 2
        low, high = (middle, high) if fits else (low, middle)
    return Plan(low, ANCHORS)
