"""What all baselines share: the form of their results, the loop of their solvers and the columns they start from."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from jpltd_jax.admm import Status
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


class Solution(NamedTuple):
    """Outcome of a baseline's ``solve``."""

    state: Any
    status: Int[Array, ""]
    """A value of :class:`jpltd_jax.Status`."""
    n_iter: Int[Array, ""]
    history: Float[Array, "max_iter ..."]
    """What the stopping rule watches, after each iteration; NaN where no iteration was made."""


def iterate(
    step: Callable[[Any, Int[Array, ""], Float[Array, "*watched"]], tuple[Any, Float[Array, "*watched"], Array]],
    start: Any,
    before: Float[Array, "*watched"],
    max_iter: int,
    *,
    n_iter: Int[Array, ""] | int = 0,
) -> Solution:
    """Repeat ``step`` until it says that it has settled, watches something not finite, or was made ``max_iter`` times.

    Parameters
    ----------
    step
        (state, number of iterations made, watched before) -> (next state, watched, settled).
    start
        First state.
    before
        What the first step is told was watched before it.
    max_iter
        Largest number of iterations, those in ``n_iter`` included.
    n_iter
        Iterations that ``start`` has behind it.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines.base import iterate
    >>> halve = lambda x, made, before: (x / 2, x / 2, x < 0.5)
    >>> iterate(halve, jnp.array(1.0), jnp.array(jnp.nan), 4).history
    Array([0.5  , 0.25 , 0.125,   nan], dtype=float32)
    """

    def unfinished(carry: tuple[Solution, Array]) -> Array:
        solution, _ = carry
        return (solution.status == Status.RUNNING) & (solution.n_iter < max_iter)

    def body(carry: tuple[Solution, Array]) -> tuple[Solution, Array]:
        solution, before = carry
        made = solution.n_iter
        state, watched, settled = step(solution.state, made, before)
        ended = jnp.where(settled, Status.CONVERGED, Status.RUNNING)
        status = jnp.where(jnp.all(jnp.isfinite(watched)), ended, Status.NONFINITE).astype(jnp.int32)
        return Solution(state, status, made + 1, solution.history.at[made].set(watched)), watched

    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter}")
    blank = jnp.full((max_iter, *before.shape), jnp.nan, before.dtype)
    begin = Solution(start, jnp.asarray(Status.RUNNING, jnp.int32), jnp.asarray(n_iter, jnp.int32), blank)
    end, _ = jax.lax.while_loop(unfinished, body, (begin, before))
    return end._replace(status=jnp.where(end.status == Status.RUNNING, Status.MAX_ITER, end.status).astype(jnp.int32))


def check_counts(n_samples: int, n_clusters: int, n_neighbors: int = 1) -> None:
    """Raise unless there are 1 to n_samples clusters and at least one neighbour."""
    if not 1 <= n_clusters <= n_samples:
        raise ValueError(f"n_clusters must be between 1 and the number of samples {n_samples}, got {n_clusters}")
    if n_neighbors < 1:
        raise ValueError(f"n_neighbors must be at least 1, got {n_neighbors}")


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
