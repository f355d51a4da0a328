"""What all baselines share: the form of their result and the columns they start from."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from jpltd_jax.problem import observed, resolve_dtype, unit_columns


class BaselineResult(NamedTuple):
    """Outcome of a baseline's ``fit``; of affinity and embedding the one that the method does not make is None."""

    labels: Int[Array, " n"]
    affinity: Float[Array, "n n"] | None
    embedding: Float[Array, "n e"] | None
    status: Int[Array, ""]
    """A value of :class:`jpltd_jax.Status`."""
    n_iter: Int[Array, ""]
    history: Float[Array, " max_iter"]
    """The quantity that the stopping rule watches, after each iteration; NaN where no iteration was made."""


def observed_columns(
    views: Sequence[object], mask: ArrayLike | None, *, dtype: object = None
) -> tuple[list[Float[Array, "_d_v n"]], Bool[Array, "n m"]]:
    """Views as (d_v, n) with observed samples scaled to unit length and missing ones zero, and the mask (n, m).

    Input is checked as by :func:`jpltd_jax.make_problem`.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.baselines.base import observed_columns
    >>> columns, mask = observed_columns([[[3.0, 4.0], [np.nan, np.nan]], [[1.0], [2.0]]], None)
    >>> columns[0]
    Array([[0.6, 0. ],
           [0.8, 0. ]], dtype=float32)
    """
    matrices, present = observed(views, mask)
    target = resolve_dtype(dtype, matrices)
    columns = [jnp.asarray(unit_columns(x.T.astype(np.float64)), target) for x in matrices]
    return columns, jnp.asarray(present)
