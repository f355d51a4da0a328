"""Choosing hyper-parameters without labels."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jpltd_jax.admm import Result, Status
from jpltd_jax.spectral import normalized

LAMS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
"""Values of lam that are tried when none is given."""


def neighbours_kept(most: int | None, n_samples: int, n_clusters: int) -> int | None:
    """min(most, n / c), at least 1: no more neighbours than a cluster has members on average; None stays None, all.

    Examples
    --------
    >>> from jpltd_jax.selection import neighbours_kept
    >>> neighbours_kept(20, n_samples=2000, n_clusters=10), neighbours_kept(20, n_samples=400, n_clusters=40)
    (20, 10)
    """
    return None if most is None else max(1, min(most, n_samples // n_clusters))


def clarity(affinity: Float[Array, "n n"], n_clusters: int) -> Float[Array, ""]:
    """Eigengap mu_c - mu_{c+1} of D^-1/2 H D^-1/2, eigenvalues in falling order: 1 for c separate cliques.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.selection import clarity
    >>> three_pairs = jnp.kron(jnp.eye(3), jnp.ones((2, 2)))
    >>> clarity(three_pairs, 3).round(3), clarity(three_pairs, 2).round(3)
    (Array(1., dtype=float32), Array(0., dtype=float32))
    """
    n = affinity.shape[0]
    values = jnp.concatenate([jnp.linalg.eigvalsh(normalized(affinity))[::-1], jnp.zeros(1, affinity.dtype)])
    return values[n_clusters - 1] - values[n_clusters] if n_clusters < n else values[n - 1]


def choose_lam(
    solve: Callable[[float], Result], affinity_of: Callable[[Result], jax.Array], n_clusters: int
) -> tuple[float, Result]:
    """The value of :data:`LAMS` whose affinity is clearest, and its result; empty and non-finite ones never win."""
    best: tuple[float, float, Result] | None = None
    for lam in LAMS:
        result = solve(lam)
        usable = int(result.status) not in (Status.EMPTY, Status.NONFINITE)
        score = float(clarity(affinity_of(result), n_clusters)) if usable else -float("inf")
        if best is None or score > best[0]:
            best = (score, lam, result)
    assert best is not None
    return best[1], best[2]
