"""Neighbour graphs of incomplete views, and the transform that moves with the samples.

Everything here is equivariant: permuting the samples permutes the graph, and leaves the norm that the transform makes
unchanged. The Fourier transform over the sample index lacks that.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jpltd_jax.linalg import divide, leading_eigenvectors, normalized, squared_distances, symmetric
from jpltd_jax.problem import Problem
from jpltd_jax.transforms import Grouped

__all__ = [
    "SLACK",
    "adaptive_neighbors",
    "anchor_graphs",
    "completed",
    "completed_graph",
    "consensus_graph",
    "graph_transform",
    "knn_graph",
    "mean_graph",
    "nearest_rows",
    "neighbor_counts",
    "own_anchor",
    "reached",
    "rows_to_one",
    "sparsify",
    "sparsify_rows",
    "view_graphs",
    "within_reach",
]

LARGE = 3000
"""Above so many samples :func:`graph_transform` keeps 500 eigenvectors, not all, unless told to."""

SLACK = 1e-6
"""Added before rounding down, so that a tenth of ten samples is one."""

SAME_EIGENVALUE = 3.5e-4
"""Eigenvalues closer than this are one group: the square root of float32's precision."""


def _keep_largest(weights: Float[Array, "n a"], count: int) -> Float[Array, "n a"]:
    """Zero all but the ``count`` largest entries of every row; entries that tie with the last of them stay too."""
    last = jax.lax.top_k(weights, min(count, weights.shape[1]))[0][:, -1:]
    return jnp.where(weights >= last, weights, 0)


def rows_to_one(weights: Float[Array, "n a"]) -> Float[Array, "n a"]:
    """Every row divided by its sum; a zero row stays zero."""
    total = jnp.sum(weights, axis=1, keepdims=True)
    return weights / jnp.where(total == 0, 1, total)


def sparsify_rows(affinity: Float[Array, "n a"], n_neighbors: int) -> Float[Array, "n a"]:
    """The largest ``n_neighbors`` entries of each row, scaled to sum 1."""
    return rows_to_one(_keep_largest(affinity, n_neighbors))


def sparsify(affinity: Float[Array, "n a"], n_neighbors: int) -> Float[Array, "n a"]:
    """The strongest ``n_neighbors`` neighbours of each sample, each row scaled to sum 1, then made symmetric.

    Of the affinity to a smaller number of anchors: the strongest anchors, each row scaled to sum 1.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.graphs import sparsify
    >>> sparsify(jnp.array([[9.0, 2.0, 1.0], [2.0, 9.0, 1.0], [1.0, 0.5, 9.0]]), 1)
    Array([[0. , 1. , 0.5],
           [1. , 0. , 0. ],
           [0.5, 0. , 0. ]], dtype=float32)
    """
    if affinity.shape[1] < affinity.shape[0]:
        return sparsify_rows(affinity, n_neighbors)
    off_diagonal = jnp.where(jnp.eye(affinity.shape[0], dtype=bool), 0, affinity)
    return symmetric(sparsify_rows(off_diagonal, n_neighbors))


def neighbor_counts(problem: Problem, n_neighbors: int, share: float) -> Int[Array, " m"]:
    """max(n_neighbors, share * n_v) of every view, n_v its observed samples.

    Examples
    --------
    >>> import numpy as np
    >>> import jpltd_jax as jj
    >>> views = [np.arange(1.0, 41.0)[:, None]] * 2
    >>> problem = jj.make_problem(views, np.arange(40)[:, None] < [40, 10])
    >>> jj.graphs.neighbor_counts(problem, 3, 0.1)
    Array([4, 3], dtype=int32)
    """
    observed = jnp.sum(problem.mask, axis=1)
    return jnp.maximum(n_neighbors, jnp.floor(share * observed + SLACK)).astype(jnp.int32)


def _at(ordered: Float[Array, "n k"], count: Int[Array, ""]) -> Float[Array, "n 1"]:
    """Entry ``count`` of each row, counted from 1; the last one where there are fewer."""
    return jnp.take_along_axis(
        ordered, jnp.broadcast_to(jnp.minimum(count, ordered.shape[1]) - 1, (len(ordered), 1)), 1
    )


def _view_graph(
    x: Float[Array, "r n"], present: Bool[Array, " n"], count: Int[Array, ""], most: int
) -> Float[Array, "n n"]:
    distance = jnp.sqrt(squared_distances(x.T, x.T))
    pair = present[:, None] & present & ~jnp.eye(len(present), dtype=bool)
    nearest = -jax.lax.top_k(jnp.where(pair, -distance, -jnp.inf), most)[0]
    found = jnp.isfinite(nearest) & (jnp.arange(most) < count)
    reach = jnp.sum(jnp.where(found, nearest, 0), axis=1) / jnp.maximum(jnp.sum(found, axis=1), 1)
    scale = (reach[:, None] + reach + distance) / 6
    zero = scale == 0
    weights = jnp.where(zero, 1, jnp.exp(-((distance / jnp.where(zero, 1, scale)) ** 2) / 2))
    return rows_to_one(jnp.where(pair & (distance <= _at(nearest, count)), weights, 0))


@partial(jax.jit, static_argnames=("n_neighbors", "share"))
def view_graphs(problem: Problem, n_neighbors: int = 10, share: float = 0.0) -> Float[Array, "m n n"]:
    """Locally scaled nearest-neighbour graph of every view, rows of sum 1; rows of missing samples are zero.

    w_ij = exp(-d_ij^2 / (2 s_ij^2)) with s_ij = (r_i + r_j + d_ij) / 6, r_i the mean distance of sample i to its k
    nearest observed samples; each sample keeps these k, and others that are as near as the last of them. k is
    ``n_neighbors``, or ``share`` of the view's observed samples where that is more.

    Examples
    --------
    >>> import numpy as np
    >>> import jpltd_jax as jj
    >>> x = np.random.default_rng(0).normal(size=(20, 2))
    >>> graphs = jj.graphs.view_graphs(jj.make_problem([x, x]), n_neighbors=3, share=0.2)
    >>> graphs.shape, (graphs[0] > 0).sum(axis=1).max()
    ((2, 20, 20), Array(4, dtype=int32))
    """
    n = problem.n_samples
    most = min(max(n_neighbors, int(share * n + SLACK)), n - 1)
    counts = neighbor_counts(problem, n_neighbors, share)
    return jax.lax.map(lambda one: _view_graph(one[0], one[1], one[2], most), (problem.data, problem.mask, counts))


def mean_graph(graphs: Float[Array, "m n n"], mask: Bool[Array, "m n"]) -> Float[Array, "n n"]:
    """Mean over the views in which both samples are observed, made symmetric."""
    return symmetric(jnp.sum(graphs, axis=0) / jnp.maximum(_views_in_common(mask), 1))


@partial(jax.jit, static_argnames=("n_neighbors", "share"))
def consensus_graph(problem: Problem, n_neighbors: int = 10, share: float = 0.0) -> Float[Array, "n n"]:
    """Mean over the views in which both samples are observed of the graphs of :func:`view_graphs`, made symmetric.

    The similarity is that of NEMO (Rappoport and Shamir, Bioinformatics 35, 2019), which keeps the largest weights of a
    sample instead of its nearest samples.

    Examples
    --------
    >>> import numpy as np
    >>> import jpltd_jax as jj
    >>> rng = np.random.default_rng(0)
    >>> x = np.repeat(np.eye(2), 4, axis=0) + 0.1 * rng.normal(size=(8, 2))
    >>> graph = jj.graphs.consensus_graph(jj.make_problem([x, x]), n_neighbors=3)
    >>> bool(graph[:4, 4:].max() < 0.01), graph.shape
    (True, (8, 8))
    """
    return mean_graph(view_graphs(problem, n_neighbors, share), problem.mask)


@jax.jit
def completed(problem: Problem, graph: Float[Array, "n a"]) -> Float[Array, "n f"]:
    """All views side by side, (n, m r), with what is missing filled from the neighbours.

    A missing row is the mean of the sample's neighbours in ``graph`` that have the view, with the weights of the graph,
    or the mean of the view where there are none. Then each view is centred on its observed mean and scaled to mean
    squared length 1. With anchors the neighbours are anchors.

    Examples
    --------
    >>> import numpy as np
    >>> import jpltd_jax as jj
    >>> x = np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [np.nan, np.nan]])
    >>> problem = jj.make_problem([x, np.arange(4.0)[:, None]])
    >>> graph = np.zeros((4, 4), "float32"); graph[3, 2] = 1
    >>> [round(float(value), 3) for value in jj.graphs.completed(problem, graph)[:, 0]]
    [0.632, 0.632, -1.265, -1.265]
    """

    def view(x: Array, present: Array, known: Array, there: Array) -> Array:
        seen = x.T
        mean = jnp.sum(seen, axis=0) / jnp.sum(present)
        weights = jnp.where(there, graph, 0)
        total = jnp.sum(weights, axis=1, keepdims=True)
        filled = divide(jnp.matmul(weights, known.T, precision="highest"), total, mean)
        centred = jnp.where(present[:, None], seen, filled) - mean
        return divide(centred, jnp.sqrt(jnp.mean(jnp.sum(centred**2, axis=1))), 0.0)

    dictionary = problem.dictionary
    of_views = (problem.data, problem.mask, dictionary.data, dictionary.mask)
    return jnp.concatenate(list(jax.lax.map(lambda one: view(*one), of_views)), axis=1)


@partial(jax.jit, static_argnames=("n_neighbors", "share"))
def completed_graph(
    problem: Problem, graph: Float[Array, "n a"], n_neighbors: int = 10, share: float = 0.0
) -> Float[Array, "n a"]:
    """The graph of :func:`view_graphs` on the :func:`completed` views as one view, made symmetric.

    With anchors, the rows of :func:`anchor_graphs` on that view, which are not symmetric.

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> problem = jj.make_problem(jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8)).views)
    >>> jj.graphs.completed_graph(problem, jj.graphs.consensus_graph(problem)).shape
    (30, 30)
    """
    n = problem.dictionary.n_samples
    most = min(max(n_neighbors, int(share * n + SLACK)), n - 1)
    features = completed(problem, graph)
    if problem.anchors is not None:
        known = features[problem.anchors]
        return _nearest(features, known, ~own_anchor(problem), jnp.asarray(most), most)
    return symmetric(_view_graph(features.T, jnp.ones(n, bool), jnp.asarray(most), most))


def _views_in_common(mask: Bool[Array, "m n"]) -> Int[Array, "n n"]:
    return jnp.sum(mask[:, :, None] & mask[:, None, :], axis=0)


def _nearest(
    x: Float[Array, "q f"], y: Float[Array, "a f"], pair: Bool[Array, "q a"], count: Int[Array, ""], most: int
) -> Float[Array, "q a"]:
    """Weights of the ``count`` nearest rows of y to each row of x among ``pair``, locally scaled, of sum 1."""
    distance = jnp.sqrt(squared_distances(x, y))
    nearest = -jax.lax.top_k(jnp.where(pair, -distance, -jnp.inf), most)[0]
    found = jnp.isfinite(nearest) & (jnp.arange(most) < count)
    reach = jnp.sum(jnp.where(found, nearest, 0), axis=1) / jnp.maximum(jnp.sum(found, axis=1), 1)
    weights = jnp.exp(-(divide(distance, (2 * reach[:, None] + distance) / 6, 0.0) ** 2) / 2)
    return rows_to_one(jnp.where(pair & (distance <= _at(nearest, count)), weights, 0))


def own_anchor(problem: Problem) -> Bool[Array, "n a"]:
    """Whether the anchor is the sample itself."""
    assert problem.anchors is not None
    return jnp.arange(problem.n_samples)[:, None] == problem.anchors


@partial(jax.jit, static_argnames=("n_neighbors", "share"))
def anchor_graphs(problem: Problem, n_neighbors: int = 10, share: float = 0.0) -> Float[Array, "m n a"]:
    """The weights of :func:`view_graphs` from every sample to its nearest anchors in each view; rows of sum 1.

    s_ij = (2 r_i + d_ij) / 6 has the sample's own mean distance alone, and the rows are not made symmetric. An anchor
    is no neighbour of itself. ``share`` is of the view's observed anchors.

    Examples
    --------
    >>> import numpy as np
    >>> import jpltd_jax as jj
    >>> problem = jj.make_problem([np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])], anchors=[0, 2])
    >>> jj.graphs.anchor_graphs(problem, n_neighbors=1)[0]
    Array([[0., 1.],
           [1., 0.],
           [1., 0.],
           [0., 1.]], dtype=float32)
    """
    dictionary, own = problem.dictionary, own_anchor(problem)
    a = dictionary.n_samples
    most = max(1, min(max(n_neighbors, int(share * a + SLACK)), a - 1))

    def view(one: tuple[Array, ...]) -> Array:
        x, present, y, there, count = one
        return _nearest(x.T, y.T, present[:, None] & there & ~own, count, most)

    counts = neighbor_counts(dictionary, n_neighbors, share)
    return jax.lax.map(view, (problem.data, problem.mask, dictionary.data, dictionary.mask, counts))


@partial(jax.jit, static_argnames=("n_neighbors", "share"))
def nearest_rows(
    samples: Problem, dictionary: Problem, n_neighbors: int = 10, share: float = 0.0
) -> Float[Array, "q n"]:
    """Rows of :func:`consensus_graph` for further samples: mean over their views of the weights to their nearest.

    As in :func:`view_graphs`, with the sample's own mean distance in place of the neighbours': one sample does not
    depend on another. Rows have sum 1.

    Examples
    --------
    >>> import numpy as np
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.problem import further_samples
    >>> problem = jj.make_problem([np.eye(3)])
    >>> new = further_samples(problem, [[[0.0, 2.0, 0.1]]])
    >>> jj.graphs.nearest_rows(new, problem, n_neighbors=1)
    Array([[0., 1., 0.]], dtype=float32)
    """
    most = min(max(n_neighbors, int(share * dictionary.n_samples + SLACK)), dictionary.n_samples)

    def add(total: Array, one: tuple[Array, ...]) -> tuple[Array, None]:
        x, present, y, there, count = one
        return total + _nearest(x.T, y.T, present[:, None] & there, count, most), None

    counts = neighbor_counts(dictionary, n_neighbors, share)
    start = jnp.zeros((samples.n_samples, dictionary.n_samples), samples.data.dtype)
    of_views = (samples.data, samples.mask, dictionary.data, dictionary.mask, counts)
    return rows_to_one(jax.lax.scan(add, start, of_views)[0])


def reached(samples: Problem, dictionary: Problem, n_neighbors: int) -> Bool[Array, "n a"]:
    """Whether a dictionary sample is among the ``n_neighbors`` nearest of a sample in some view, or in none with it."""

    def view(found: tuple[Array, Array], one: tuple[Array, ...]) -> tuple[tuple[Array, Array], None]:
        x, present, y, there = one
        pair = present[:, None] & there
        near = jnp.where(pair, -squared_distances(x.T, y.T), -jnp.inf)
        last = jax.lax.top_k(near, min(n_neighbors, near.shape[1]))[0][:, -1:]
        return (found[0] | (pair & (near >= last)), found[1] | pair), None

    none = jnp.zeros((samples.n_samples, dictionary.n_samples), bool)
    of_views = (samples.data, samples.mask, dictionary.data, dictionary.mask)
    (near, compared), _ = jax.lax.scan(view, (none, none), of_views)
    return near | ~compared


@partial(jax.jit, static_argnames="n_neighbors")
def within_reach(affinity: Float[Array, "n a"], problem: Problem, n_neighbors: int) -> Float[Array, "n a"]:
    """H_ij where i and j are neighbours in some view, or have no view in common; 0 for all other pairs.

    Neighbours are those of :func:`consensus_graph`: one is among the ``n_neighbors`` nearest of the other. A pair
    that no view shows together was never compared, so there the affinity alone decides. With anchors: the
    ``n_neighbors`` nearest anchors of each sample in each view.

    Examples
    --------
    >>> import numpy as np
    >>> import jpltd_jax as jj
    >>> line = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> mask = np.array([[True, True], [True, False], [True, False], [False, True]])
    >>> jj.graphs.within_reach(np.ones((4, 4), "float32"), jj.make_problem([line, line], mask), 1)
    Array([[1., 1., 0., 1.],
           [1., 1., 1., 1.],
           [0., 1., 1., 1.],
           [1., 1., 1., 1.]], dtype=float32)
    """
    if problem.anchors is not None:
        return jnp.where(reached(problem, problem.dictionary, n_neighbors), affinity, 0)
    near = consensus_graph(problem, n_neighbors) > 0
    compared = (_views_in_common(problem.mask) > 0) & ~jnp.eye(problem.n_samples, dtype=bool)
    return jnp.where(near | ~compared, affinity, 0)


@partial(jax.jit, static_argnames="n_vectors")
def graph_transform(affinity: Float[Array, "n n"], n_vectors: int | None = None) -> Grouped:
    """Graph Fourier transform: the leading eigenvectors of D^-1/2 H D^-1/2 as a basis over the samples.

    Parameters
    ----------
    affinity
        Symmetric, non-negative.
    n_vectors
        Keep so many; what they do not span is one further slice, and applying the transform costs O(n^2 n_vectors).
        Default: all up to 3000 samples, 500 above.

    Notes
    -----
    Eigenvalues closer than the square root of float32's precision have no basis of their own: their vectors form one
    group, in float64 too, so that both mean the same. A group that ``n_vectors`` would cut is left to the rest.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.graphs import graph_transform
    >>> two_pairs = jnp.kron(jnp.eye(2), jnp.ones((2, 2)))
    >>> graph_transform(two_pairs).group
    Array([0, 0, 2, 2], dtype=int32)
    """
    n = affinity.shape[0]
    size = min(n, (n if n <= LARGE else 500) if n_vectors is None else n_vectors)
    values, vectors = leading_eigenvectors(normalized(affinity), min(size + 1, n))
    index = jnp.arange(len(values))
    apart = jnp.concatenate([jnp.array([True]), values[:-1] - values[1:] > SAME_EIGENVALUE])
    group = jax.lax.cummax(jnp.where(apart, index, 0))
    if size == n:
        return Grouped(vectors, group)
    cut = (group[:size] == group[size]) & ~apart[size]
    return Grouped(jnp.where(cut, 0, vectors[:, :size]), group[:size])


def knn_graph(columns: Float[Array, "d n"], present: Bool[Array, " n"], n_neighbors: int) -> Float[Array, "n n"]:
    """1 where one of two observed samples is among the ``n_neighbors`` nearest of the other, else 0.

    Squared Euclidean distance among the observed columns only, zero diagonal; rows and columns of missing samples are
    zero. With fewer than ``n_neighbors`` other observed samples all of them are neighbours.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.graphs import knn_graph
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
    >>> from jpltd_jax.graphs import adaptive_neighbors
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
    return symmetric(weights)
