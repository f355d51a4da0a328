"""Mechanisms of missing data: which views of which samples are observed.

Each is a function (seed, n, m, rate) -> mask (n, m) of bool, True where view v of sample j is observed, made on
the host and reproducible. ``seed`` is a non-negative integer or a JAX key. ``rate`` lies in [0, 1]; what it is
the rate of differs between the mechanisms. Every sample keeps at least one view.
"""

import jax
import numpy as np
from jaxtyping import Bool

from jpltd_jax._types import Key

__all__ = ["blocks", "entrywise", "paper_protocol"]


def _generator(seed: Key | int) -> np.random.Generator:
    if not isinstance(seed, jax.Array):
        return np.random.default_rng(seed)
    words = np.asarray(jax.random.key_data(seed))
    if words.ndim != 1:
        raise ValueError(f"expected one key, got an array of keys of shape {words.shape[:-1]}")
    return np.random.default_rng(words)


def _check(n: int, m: int, rate: float) -> None:
    if n < 1 or m < 1:
        raise ValueError(f"expected at least one sample and one view, got n = {n} and m = {m}")
    if not 0 <= rate <= 1:
        raise ValueError(f"rate must lie in [0, 1], got {rate}")
    if m == 1 and rate > 0:
        raise ValueError(f"with one view nothing can be missing, since every sample keeps a view: m = 1, rate = {rate}")


def _independent(rng: np.random.Generator, n: int, m: int, rate: float) -> Bool[np.ndarray, "n m"]:
    """Entries observed with probability 1 - rate, then one random entry for every empty row, then for every column."""
    mask = rng.random((n, m)) >= rate
    rows = np.flatnonzero(~mask.any(axis=1))
    mask[rows, rng.integers(m, size=len(rows))] = True
    columns = np.flatnonzero(~mask.any(axis=0))
    mask[rng.integers(n, size=len(columns)), columns] = True
    return mask


def paper_protocol(seed: Key | int, n: int, m: int, rate: float) -> Bool[np.ndarray, "n m"]:
    """Exactly round(rate n) random samples are incomplete; each keeps k random views, k uniform on 1..m-1.

    ``round`` is Python's: halves go to the even number. The protocol is followed to the letter, so with few samples a
    view can end up without any observed one.

    Examples
    --------
    >>> from jpltd_jax.missing import paper_protocol
    >>> mask = paper_protocol(0, n=10, m=3, rate=0.3)
    >>> int((~mask.all(axis=1)).sum()), bool(mask.any(axis=1).all())
    (3, True)
    """
    _check(n, m, rate)
    rng = _generator(seed)
    mask = np.ones((n, m), bool)
    if rate > 0:
        incomplete = rng.choice(n, round(rate * n), replace=False)
        kept = rng.integers(1, m, size=(len(incomplete), 1))
        ranks = rng.permuted(np.tile(np.arange(m), (len(incomplete), 1)), axis=1)
        mask[incomplete] = ranks < kept
    return mask


def entrywise(seed: Key | int, n: int, m: int, rate: float) -> Bool[np.ndarray, "n m"]:
    """Every entry is missing with probability ``rate``, independently; then no sample and no view is left empty.

    A sample that lost all its views gets one back at random, and after that a view that lost all its samples gets one
    back at random. The first lowers the expected part of missing entries from rate to rate - rate**m / m (at rate 1
    one view each is left); the second matters only with few samples.

    Examples
    --------
    >>> from jpltd_jax.missing import entrywise
    >>> int(entrywise(0, n=100, m=3, rate=1.0).sum(axis=1).max())
    1
    """
    _check(n, m, rate)
    return _independent(_generator(seed), n, m, rate)


def blocks(seed: Key | int, n: int, m: int, rate: float, *, n_sources: int = 5) -> Bool[np.ndarray, "n m"]:
    """Samples come from sources, and a source lacks a view for all its samples with probability ``rate``.

    The samples are dealt to the ``n_sources`` sources at random, in numbers that differ by at most one. The mask of
    (source, view) is that of :func:`entrywise`, so every source keeps a view and every view a source; with few sources
    this makes the expected part of missing entries smaller than rate - rate**m / m.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.missing import blocks
    >>> mask = blocks(0, n=9, m=4, rate=0.5, n_sources=3)
    >>> np.unique(mask, axis=0, return_counts=True)[1]
    array([3, 3, 3])
    """
    _check(n, m, rate)
    if not 2 <= n_sources <= n:
        raise ValueError(f"n_sources must lie in 2..n with n = {n} samples, got {n_sources}")
    rng = _generator(seed)
    sources = _independent(rng, n_sources, m, rate)
    return sources[rng.permutation(n) % n_sources]
