"""Graphs on the samples that several baselines start from."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jpltd_jax.prox import Scalar
from jpltd_jax.spectral import squared_distances
from jpltd_jax.transforms import Fourier


def knn_graph(columns: Float[Array, "d n"], present: Bool[Array, " n"], n_neighbors: int) -> Float[Array, "n n"]:
    """1 where one of two observed samples is among the ``n_neighbors`` nearest of the other, else 0.

    Squared Euclidean distance among the observed columns only, zero diagonal; rows and columns of missing samples are
    zero. With fewer than ``n_neighbors`` other observed samples all of them are neighbours.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines.graphs import knn_graph
    >>> knn_graph(jnp.array([[0.0, 1.0, 3.0, 0.0]]), jnp.array([True, True, True, False]), 1)
    Array([[0., 1., 0., 0.],
           [1., 0., 1., 0.],
           [0., 1., 0., 0.],
           [0., 0., 0., 0.]], dtype=float32)
    """
    n = columns.shape[1]
    samples = columns.T
    pairs = present[:, None] & present[None, :] & ~jnp.eye(n, dtype=bool)
    closeness = jnp.where(pairs, -squared_distances(samples, samples), -jnp.inf)
    _, nearest = jax.lax.top_k(closeness, min(n_neighbors, n - 1))
    chosen = jnp.zeros((n, n), bool).at[jnp.arange(n)[:, None], nearest].set(True) & pairs
    return (chosen | chosen.T).astype(columns.dtype)


def adaptive_neighbors(
    columns: Float[Array, "d n"], present: Bool[Array, " n"], n_neighbors: int
) -> Float[Array, "n n"]:
    """Symmetric mean of w_ij = max(d_(k+1) - d_ij, 0) / (k d_(k+1) - sum_{l<=k} d_(l)) and its transpose.

    d_ij is the squared distance of columns i and j, d_(l) the l-th smallest one in row i among the other present
    columns, k = ``n_neighbors`` (Nie, Wang, Huang, KDD 2014). Only present columns are neighbours and have neighbours,
    so the block of the present ones is the graph of them alone; at least k + 2 must be present. Written with max(., 0)
    it needs no indices, and ties cannot matter.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines.graphs import adaptive_neighbors
    >>> points = jnp.array([[0.0, 1.0, 3.0, 100.0]])
    >>> adaptive_neighbors(points, jnp.array([True, True, True, False]), 1).round(2)
    Array([[0. , 1. , 0. , 0. ],
           [1. , 0. , 0.5, 0. ],
           [0. , 0.5, 0. , 0. ],
           [0. , 0. , 0. , 0. ]], dtype=float32)
    """
    neighbor = present[:, None] & present & ~jnp.eye(present.shape[0], dtype=bool)
    distances = jnp.where(neighbor, squared_distances(columns.T, columns.T), jnp.inf)
    smallest = -jax.lax.top_k(-distances, n_neighbors + 1)[0]
    smallest = jnp.where(present[:, None], smallest, 0)
    farthest = smallest[:, -1:]
    margin = n_neighbors * farthest - jnp.sum(smallest[:, :-1], axis=1, keepdims=True)
    weights = jnp.maximum(farthest - distances, 0) / (margin + jnp.finfo(columns.dtype).eps)
    return (weights + weights.T) / 2


def project_rows_on_simplex(x: Float[Array, "*batch n"], allowed: Bool[Array, "*#batch n"]) -> Float[Array, "*batch n"]:
    """Nearest point to every row of x in {y >= 0, sum y = 1, y = 0 where not allowed}; rows that allow nothing are 0.

    y = max(x - t, 0) where sum max(x - t, 0) = 1 over the allowed entries. The sum is convex and falls with t: Newton's
    method from below, t <- (sum of the entries above t - 1) / their number, rises to the root and is there after
    finitely many steps. That is a few passes over x; on CPUs sorting takes ten times as long. Rows are shifted so that
    their largest allowed entry is 0; then t is between -1 and 0, and -2 stands for what is not allowed.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines.graphs import project_rows_on_simplex
    >>> allowed = jnp.array([[False, True, True], [False, False, False]])
    >>> project_rows_on_simplex(jnp.array([[9.0, 0.5, 0.25], [1.0, 2.0, 3.0]]), allowed)
    Array([[0.   , 0.625, 0.375],
           [0.   , 0.   , 0.   ]], dtype=float32)
    """
    largest = jnp.max(x, axis=-1, keepdims=True, where=allowed, initial=jnp.finfo(x.dtype).min)
    shifted = jnp.where(allowed, x - largest, -2)

    def improve(thresholds: tuple[Array, Array]) -> tuple[Array, Array]:
        _, threshold = thresholds
        above = shifted > threshold
        total = jnp.sum(shifted, axis=-1, keepdims=True, where=above)
        return threshold, jnp.maximum(threshold, (total - 1) / jnp.sum(above, axis=-1, keepdims=True))

    first = improve((largest, jnp.full_like(largest, -1)))
    _, threshold = jax.lax.while_loop(lambda thresholds: jnp.any(thresholds[0] < thresholds[1]), improve, first)
    return jnp.where(allowed, jnp.maximum(shifted - threshold, 0), 0)


def power_shrink(sigma: Float[Array, "*shape"], weight: Scalar, p: Scalar) -> Float[Array, "*shape"]:
    """Prox of weight * sum sigma_i^p for sigma >= 0 and 0 < p <= 1, by four steps of the fixed point iteration.

    Zero up to the threshold (2 w (1 - p))^(1 / (2 - p)) + p w (2 w (1 - p))^((p - 1) / (2 - p)), and above it
    t <- sigma - w p t^(p - 1) from t = sigma. For p = 1 it is soft thresholding. (Zuo et al., ICCV 2013.)

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines.graphs import power_shrink
    >>> power_shrink(jnp.array([3.0, 0.5]), 1.0, 1.0)
    Array([2., 0.], dtype=float32)
    """
    weight, p = jnp.asarray(weight, sigma.dtype), jnp.asarray(p, sigma.dtype)
    below = sigma <= power_threshold(weight, p)
    start = jnp.where(below, 1, sigma)
    shrunk = jax.lax.fori_loop(0, 4, lambda _, t: start - weight * p * t ** (p - 1), start)
    return jnp.where(below, 0, shrunk)


def power_threshold(weight: Scalar, p: Scalar) -> Scalar:
    """Largest value that :func:`power_shrink` maps to zero."""
    base = 2 * weight * (1 - p)
    return jnp.where(weight == 0, 0, base ** (1 / (2 - p)) + p * weight * base ** ((p - 1) / (2 - p)))


def schatten_shrink(v: Float[Array, "p q n"], weight: Scalar, p: Scalar) -> Float[Array, "p q n"]:
    """Prox of weight times the tensor Schatten p-norm: :func:`power_shrink` of the singular values of every slice.

    Slices are those of the Fourier transform of the last axis, of which half are computed; the first is real. The norm
    is the mean over the slices of sum_i sigma_i^p, so that p = 1 gives :func:`jpltd_jax.prox.tubal_shrink`. No slice is
    decomposed while all of them lie below the threshold.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines.graphs import schatten_shrink
    >>> schatten_shrink(jnp.ones((1, 1, 4)), 2.0, 1.0)
    Array([[[0.5, 0.5, 0.5, 0.5]]], dtype=float32)
    """
    slices = jnp.moveaxis(Fourier().forward(v), -1, 0)

    def shrink(slices: Array) -> Array:
        u, sigma, vh = jnp.linalg.svd(slices, full_matrices=False)
        return (u * power_shrink(sigma, weight, p)[:, None, :]) @ vh

    def shrink_all(slices: Array) -> Array:
        return jnp.concatenate([shrink(slices[:1].real), shrink(slices[1:])])

    nothing_left = jnp.all(jnp.linalg.norm(slices, axis=(1, 2)) <= power_threshold(weight, p))
    shrunk = jax.lax.cond(nothing_left, jnp.zeros_like, shrink_all, slices)
    return Fourier().inverse(jnp.moveaxis(shrunk, 0, -1), v.shape[-1])
