"""From learned graphs to labels on device: affinity, spectral embedding, k-means.

Nothing here knows of JPLTD. All functions are jit- and vmap-able; numbers of clusters and restarts are static.
"""

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jpltd_jax._types import Key, check_count
from jpltd_jax.linalg import (
    inverse_root,
    leading_eigenvectors,
    leading_eigenvectors_of_products,
    normalized,
    squared_distances,
    unit_rows,
)

__all__ = [
    "Embedding",
    "KMeans",
    "affinity",
    "embed",
    "kmeans",
    "spectral_cluster",
    "spectral_embedding",
    "spectral_embedding_of_products",
]


class KMeans(NamedTuple):
    """Best of several restarts of k-means."""

    labels: Int[Array, " n"]
    centers: Float[Array, "c d"]
    inertia: Float[Array, ""]
    """Sum of the squared distances of the samples to their centers."""
    n_iter: Int[Array, ""]


def affinity(graphs: Float[Array, "m n a"]) -> Float[Array, "n a"]:
    """Mean over the views of (|B^v| + |B^v|^T) / 2; of |B^v| alone for samples and a smaller number of anchors.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.spectral import affinity
    >>> affinity(jnp.array([[[0.0, -2.0], [0.0, 1.0]]]))
    Array([[0., 1.],
           [1., 1.]], dtype=float32)
    """
    mean = reduce(jnp.add, map(jnp.abs, graphs)) / len(graphs)
    return (mean + mean.T) / 2 if mean.shape[0] == mean.shape[1] else mean


class Embedding(NamedTuple):
    """Spectral embedding of samples, and what a further sample needs to be placed in it."""

    embedding: Float[Array, "n c"]
    degree: Float[Array, " a"]
    """Column sums of the affinity."""
    directions: Float[Array, "a c"]
    """Right singular vectors over their singular values, weighted as the embedding."""

    def place(self, affinity: Float[Array, "q a"]) -> Float[Array, "q c"]:
        """Embedding of samples with these affinities; of the affinities that it was made from, their own."""
        rows = inverse_root(jnp.sum(affinity, axis=1))[:, None]
        scaled = rows * affinity * inverse_root(self.degree)
        return unit_rows(jnp.matmul(scaled, self.directions, precision="highest"))


def _embed_bipartite(affinity: Float[Array, "n a"], n_components: int, power: int) -> Embedding:
    degree = jnp.sum(affinity, axis=0)
    scaled = inverse_root(jnp.sum(affinity, axis=1))[:, None] * affinity * inverse_root(degree)
    squares, vectors = jnp.linalg.eigh(jnp.matmul(scaled.T, scaled, precision="highest"))
    square = jnp.maximum(squares[::-1][:n_components], 0)
    leading = vectors[:, ::-1][:, :n_components] * inverse_root(square) * jnp.sqrt(square) ** power
    made = Embedding(affinity[:, :0], degree, leading)
    return made._replace(embedding=made.place(affinity))


def embed(affinity: Float[Array, "n a"], n_components: int, power: int = 0) -> Embedding:
    """:func:`spectral_embedding` that new samples can be placed in.

    With ``power`` each eigenvector is multiplied by that power of its eigenvalue before the rows are scaled: after so
    many steps of a walk on the graph, what has died away counts less (diffusion maps: Coifman and Lafon, Appl. Comput.
    Harmon. Anal. 21, 2006).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.spectral import embed
    >>> two_pairs = jnp.kron(jnp.eye(2), jnp.ones((2, 2)))
    >>> made = embed(two_pairs, 2)
    >>> new = made.place(jnp.array([[0.0, 0.0, 0.5, 0.1]]))
    >>> jnp.abs(made.embedding @ new.T)[:, 0].round(3)
    Array([0., 0., 1., 1.], dtype=float32)
    """
    if affinity.shape[1] < affinity.shape[0]:
        return _embed_bipartite(affinity, n_components, power)
    degree = jnp.sum(affinity, axis=1)
    value, leading = leading_eigenvectors(normalized(affinity), n_components)
    weighted = leading * value**power
    placed = unit_rows(jnp.where(degree[:, None] > 0, weighted, 0))
    return Embedding(placed, degree, weighted * jnp.where(value > 0, 1 / jnp.where(value > 0, value, 1), 0))


def spectral_embedding(affinity: Float[Array, "n a"], n_components: int) -> Float[Array, "n c"]:
    """Leading eigenvectors of D^-1/2 H D^-1/2, rows scaled to unit length; D the diagonal of row sums of H.

    A sample without neighbours has no place in the graph: its row is zero. In a disconnected graph the eigenvectors of
    the eigenvalue 1 span the indicators of the components; which basis of them is returned does not matter to k-means.

    Of the (n, a) affinity Z of samples to fewer anchors: the leading left singular vectors of D_r^-1/2 Z D_c^-1/2, with
    the row and column sums of Z, which are the samples' part of the eigenvectors of the graph that joins samples to
    anchors only. From the (a, a) Gram matrix: O(n a^2), and nothing of size n x n.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.spectral import spectral_embedding
    >>> two_pairs = jnp.kron(jnp.eye(2), jnp.ones((2, 2)))
    >>> x = spectral_embedding(two_pairs, 2)
    >>> jnp.abs(x @ x.T).round(3)
    Array([[1., 1., 0., 0.],
           [1., 1., 0., 0.],
           [0., 0., 1., 1.],
           [0., 0., 1., 1.]], dtype=float32)
    """
    return embed(affinity, n_components).embedding


def spectral_embedding_of_products(
    key: Key,
    product: Callable[[Float[Array, "n b"]], Float[Array, "n b"]],
    n_samples: int,
    n_components: int,
    *,
    dtype: jnp.dtype | type = jnp.float32,
) -> Float[Array, "n c"]:
    """:func:`spectral_embedding` of an affinity H that is known only through ``product``: x -> H x.

    By :func:`jpltd_jax.linalg.leading_eigenvectors_of_products` from a random start. Memory and work are those of the
    products, so this is the way for large or factored affinities.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.spectral import spectral_embedding_of_products
    >>> blocks = jnp.kron(jnp.eye(2), jnp.ones((8, 8)))
    >>> x = spectral_embedding_of_products(jax.random.key(0), lambda y: blocks @ y, 16, 2)
    >>> jnp.abs(x @ x.T)[0, ::8].round(3)
    Array([1., 0.], dtype=float32)
    """
    with jax.default_matmul_precision("highest"):
        scale = inverse_root(product(jnp.ones((n_samples, 1), dtype))[:, 0])[:, None]
        start = jax.random.normal(key, (n_samples, min(n_components + 10, n_samples)), dtype)
        _, leading = leading_eigenvectors_of_products(lambda x: scale * product(scale * x), start, n_components)
    return unit_rows(jnp.where(scale > 0, leading, 0))


def _seed_centers(draws: Float[Array, "c candidates"], x: Float[Array, "n d"]) -> Float[Array, "c d"]:
    """Greedy k-means++: of the candidates, drawn by squared distance, the one that lowers the inertia most.

    ``draws`` are uniform in [0, 1); the first one of the first row draws the first center.
    """
    n, d = x.shape
    n_clusters = draws.shape[0]
    first = x[jnp.minimum((draws[0, 0] * n).astype(jnp.int32), n - 1)]
    centers = jnp.zeros((n_clusters, d), x.dtype).at[0].set(first)

    def add(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        centers, nearest = carry
        reached = jnp.cumsum(jnp.where(jnp.any(nearest > 0), nearest, 1))
        drawn = jnp.sum(reached[:, None] <= draws[i] * reached[-1], axis=0)
        drawn = jnp.minimum(drawn, n - 1)
        lowered = jnp.minimum(nearest[:, None], squared_distances(x, x[drawn]))
        best = jnp.argmin(jnp.sum(lowered, axis=0))
        return centers.at[i].set(x[drawn[best]]), lowered[:, best]

    nearest = squared_distances(x, first[None])[:, 0]
    return jax.lax.fori_loop(1, n_clusters, add, (centers, nearest))[0]


def _move_centers(
    x: Float[Array, "n d"], labels: Int[Array, " n"], nearest: Float[Array, " n"], n_clusters: int
) -> Float[Array, "c d"]:
    """Means of the clusters; the empty ones restart at the samples that are farthest from their centers."""
    member = jax.nn.one_hot(labels, n_clusters, dtype=x.dtype)
    size = jnp.sum(member, axis=0)
    empty = size == 0
    mean = jnp.matmul(member.T, x, precision="highest") / jnp.where(empty, 1, size)[:, None]
    _, farthest = jax.lax.top_k(nearest, n_clusters)
    restart = x[farthest[jnp.cumsum(empty) - 1]]
    return jnp.where(empty[:, None], restart, mean)


def _lloyd(centers: Float[Array, "c d"], x: Float[Array, "n d"], max_iter: int) -> KMeans:
    n_clusters = centers.shape[0]

    def assign(centers: Array) -> tuple[Array, Array]:
        distances = squared_distances(x, centers)
        return jnp.argmin(distances, axis=1).astype(jnp.int32), jnp.min(distances, axis=1)

    def unfinished(carry: tuple[Array, Array, Array, Array, Array]) -> Array:
        *_, changed, iteration = carry
        return changed & (iteration < max_iter)

    def body(carry: tuple[Array, Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array, Array]:
        _, labels, nearest, _, iteration = carry
        centers = _move_centers(x, labels, nearest, n_clusters)
        new_labels, nearest = assign(centers)
        return centers, new_labels, nearest, jnp.any(new_labels != labels), iteration + 1

    labels, nearest = assign(centers)
    start = (centers, labels, nearest, jnp.asarray(True), jnp.asarray(0, jnp.int32))
    centers, labels, nearest, _, n_iter = jax.lax.while_loop(unfinished, body, start)
    return KMeans(labels, centers, jnp.sum(nearest), n_iter)


@partial(jax.jit, static_argnames=("n_clusters", "n_init", "max_iter"))
def kmeans(key: Key, x: Float[Array, "n d"], n_clusters: int, *, n_init: int = 20, max_iter: int = 300) -> KMeans:
    """Argmin over centers of sum_i min_c ||x_i - center_c||^2: the best of ``n_init`` restarts, in one program.

    Each restart is seeded by greedy k-means++ and runs Lloyd's iterations until no label changes. A cluster that loses
    all samples restarts at a sample far from its center. With fewer distinct rows than clusters some stay empty.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.spectral import kmeans
    >>> result = kmeans(jax.random.key(0), jnp.array([[0.0], [0.5], [9.0], [9.5]]), 2)
    >>> float(result.inertia), bool(result.labels[0] == result.labels[1] != result.labels[2])
    (0.25, True)
    """
    check_count("n_clusters", n_clusters, x.shape[0])
    check_count("n_init", n_init)
    check_count("max_iter", max_iter)
    middle = jnp.mean(x, axis=0)
    draws = jax.random.uniform(key, (n_init, n_clusters, 2 + int(math.log(n_clusters))), x.dtype)
    runs = jax.vmap(lambda draw: _lloyd(_seed_centers(draw, x - middle), x - middle, max_iter))(draws)
    best = jax.tree.map(lambda leaf: leaf[jnp.argmin(runs.inertia)], runs)
    return best._replace(centers=best.centers + middle)


@partial(jax.jit, static_argnames=("n_clusters", "n_init"))
def spectral_cluster(key: Key, affinity: Float[Array, "n a"], n_clusters: int, *, n_init: int = 20) -> Int[Array, " n"]:
    """Labels 0..n_clusters-1: k-means on the spectral embedding (Ng, Jordan, Weiss, NIPS 2001).

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.spectral import spectral_cluster
    >>> two_pairs = jnp.kron(jnp.eye(2), jnp.ones((2, 2)))
    >>> labels = spectral_cluster(jax.random.key(0), two_pairs, 2)
    >>> bool(labels[0] == labels[1] != labels[2])
    True
    """
    check_count("n_clusters", n_clusters, affinity.shape[0])
    return kmeans(key, spectral_embedding(affinity, n_clusters), n_clusters, n_init=n_init).labels
