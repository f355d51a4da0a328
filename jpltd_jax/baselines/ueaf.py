"""UEAF: a common embedding of views whose missing samples are inferred along with it.

The model (Wen, Zhang, Xu, Zhang, Fei, Liu, AAAI 2019, 33:5393-5400), for views Y^v completed by inferred samples E^v::

    min  sum_v alpha_v^r ( ||Y^v - U^v P||_F^2 + lam1 tr(E^v^T L_v E^v) + lam2 / 2 sum_ij ||p_i - p_j||^2 s_ij^2 )
         + lam3 tr(F^T lap((S + S^T) / 2) F)
    s.t. U^v^T U^v = I,  F^T F = I,  S >= 0,  S 1 = 1,  diag S = 0,  sum_v alpha_v = 1

with L_v the Laplacian of a graph between the features of view v, P (c, n) the embedding with columns p_i, S (n, n) the
graph of the samples, F (n, c) its spectral embedding and c the number of clusters. lap(A) = diag(A 1) - A.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, ArrayLike, Bool, Float

from jpltd_jax.baselines.base import BaselineResult, Solution, check_counts, iterate, observed_columns
from jpltd_jax.baselines.graphs import knn_graph, project_rows_on_simplex
from jpltd_jax.prox import Scalar, stiefel
from jpltd_jax.spectral import Key, kmeans, squared_distances, unit_rows

SMALLEST_DISTANCE = 1e-10
"""Floor of the squared distances that the graph update divides by."""

Columns = Sequence[Float[Array, "_d_v n"]]


class Hyper(NamedTuple):
    """Hyper-parameters of :func:`fit`; every field may be a number or, for sweeps, an array."""

    lam1: Scalar | Array = 1e-2
    lam2: Scalar | Array = 1e-1
    lam3: Scalar | Array = 1e-5
    r: Scalar | Array = 3.0
    tol: Scalar | Array = 1e-5


class State(NamedTuple):
    """What the next iteration needs, and the embedding P of this one."""

    completed: tuple[Float[Array, "_d_v n"], ...]
    bases: tuple[Float[Array, "_d_v c"], ...]
    embedding: Float[Array, "c n"]
    graph: Float[Array, "n n"]
    spectrum: Float[Array, "n c"]
    weights: Float[Array, " m"]


def laplacian(graph: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """diag(A 1) - A.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines.ueaf import laplacian
    >>> laplacian(jnp.array([[0.0, 2.0], [2.0, 0.0]]))
    Array([[ 2., -2.],
           [-2.,  2.]], dtype=float32)
    """
    return jnp.diag(jnp.sum(graph, axis=1)) - graph


@partial(jax.jit, static_argnames="n_neighbors")
def feature_laplacian(columns: Float[Array, "d n"], n_neighbors: int) -> Float[Array, "d d"]:
    """Laplacian of the graph that joins every feature (row) to its nearest ``n_neighbors`` ones.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines.ueaf import feature_laplacian
    >>> feature_laplacian(jnp.array([[0.0, 0.0], [0.0, 1.0], [0.0, 3.0]]), 1)
    Array([[ 1., -1.,  0.],
           [-1.,  2., -1.],
           [ 0., -1.,  1.]], dtype=float32)
    """
    # XLA would evaluate all that follows from a constant mask while it compiles, which takes it up to a minute.
    present = jax.lax.optimization_barrier(jnp.ones(columns.shape[0], bool))
    return laplacian(knn_graph(columns.T, present, n_neighbors))


def _symmetric(graph: Float[Array, "n n"]) -> Float[Array, "n n"]:
    return (graph + graph.T) / 2


def _smallest_eigenpairs(
    graph: Float[Array, "n n"], n_components: int
) -> tuple[Float[Array, " c"], Float[Array, "n c"]]:
    values, vectors = jnp.linalg.eigh(laplacian(_symmetric(graph)))
    return values[:n_components], vectors[:, :n_components]


@jax.jit
def start_from(
    columns: Columns,
    mask: Bool[Array, "n m"],
    inferred: Columns,
    bases: Sequence[Float[Array, "_d_v c"]],
    graph: Float[Array, "n n"],
) -> State:
    """State before the first iteration from what the method draws at random.

    Parameters
    ----------
    columns, mask
        From :func:`jpltd_jax.baselines.base.observed_columns`.
    inferred
        First guess of the missing samples, (d_v, n) each; used where the mask is False.
    bases
        First U^v, with orthonormal columns.
    graph
        Weights whose symmetric part off the diagonal is the first S.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines import ueaf
    >>> columns, mask = [jnp.array([[1.0, 0.0]])], jnp.array([[True], [False]])
    >>> state = ueaf.start_from(columns, mask, [jnp.full((1, 2), 5.0)], [jnp.ones((1, 1))], jnp.ones((2, 2)))
    >>> state.completed[0]
    Array([[1., 5.]], dtype=float32)
    """
    n, m = mask.shape
    n_clusters, dtype = bases[0].shape[1], columns[0].dtype
    graph = jnp.where(jnp.eye(n, dtype=bool), 0, _symmetric(graph))
    return State(
        completed=tuple(jnp.where(mask[:, v], x, inferred[v]) for v, x in enumerate(columns)),
        bases=tuple(bases),
        embedding=jnp.zeros((n_clusters, n), dtype),
        graph=graph,
        spectrum=_smallest_eigenpairs(graph, n_clusters)[1],
        weights=jnp.full(m, 1 / m, dtype),
    )


@partial(jax.jit, static_argnames="n_clusters")
def init(key: Key, columns: Columns, mask: Bool[Array, "n m"], n_clusters: int) -> State:
    """State before the first iteration from uniform(0, 1) draws, as in the authors' program (with other numbers).

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.baselines import ueaf
    >>> ueaf.init(jax.random.key(0), [jnp.eye(3)], jnp.ones((3, 1), bool), 2).bases[0].shape
    (3, 2)
    """
    n, dtype = mask.shape[0], columns[0].dtype
    graph_key, *keys = jax.random.split(key, 1 + 2 * len(columns))
    inferred = [jax.random.uniform(k, x.shape, dtype) for k, x in zip(keys[::2], columns, strict=True)]
    draws = [jax.random.uniform(k, (x.shape[0], n_clusters), dtype) for k, x in zip(keys[1::2], columns, strict=True)]
    bases = [jnp.linalg.svd(draw, full_matrices=False)[0] for draw in draws]
    return start_from(columns, mask, inferred, bases, jax.random.uniform(graph_key, (n, n), dtype))


def _update_embedding(state: State, powers: Float[Array, " m"], lam2: Scalar) -> Float[Array, "c n"]:
    """Weighted mean of U^v^T Y^v, smoothed: times (I + lam2 lap(S o S, symmetrised))^-1."""
    terms = [a * (u.T @ y) for a, u, y in zip(powers, state.bases, state.completed, strict=True)]
    mean = sum(terms[1:], start=terms[0]) / jnp.sum(powers)
    smoother = jnp.eye(mean.shape[1], dtype=mean.dtype) + lam2 * laplacian(_symmetric(state.graph**2))
    return cho_solve(cho_factor(smoother), mean.T).T


def _update_view(
    y: Float[Array, "d n"],
    present: Bool[Array, " n"],
    factor: Float[Array, "d d"],
    embedding: Float[Array, "c n"],
) -> tuple[Float[Array, "d n"], Float[Array, "d c"], Float[Array, ""]]:
    """Y^v, U^v and their loss, where ``factor`` is the Cholesky factor of C = I + lam1 L_v.

    With K = C^-1 U the inferred samples are K p_i, and since C K = U
    lam1 tr(E^T L E) = <K^T (U - K), P_mis P_mis^T>: no product with L is needed.
    """
    basis = stiefel(y @ embedding.T)
    smooth = cho_solve((factor, False), basis)
    missing = jnp.where(present, 0, embedding)
    y = jnp.where(present, y, smooth @ embedding)
    roughness = jnp.vdot(smooth.T @ (basis - smooth), missing @ missing.T)
    misfit = y - basis @ embedding
    return y, basis, jnp.vdot(misfit, misfit) + roughness


def step(
    columns: Columns,
    mask: Bool[Array, "n m"],
    factors: Sequence[Float[Array, "_d_v _d_v"]],
    hyper: Hyper,
    state: State,
    *,
    graph_term: Float[Array, " m"] | float,
) -> tuple[State, Float[Array, ""]]:
    """One iteration, P, S, F, then U and E of every view, then alpha, and the normalised objective after it.

    Parameters
    ----------
    columns, mask, hyper, state
        Data, hyper-parameters and the previous iterate.
    factors
        Upper Cholesky factors of I + lam1 L_v.
    graph_term
        How often every view counts the graph term in its loss; see :func:`solve`.
    """
    with jax.default_matmul_precision("highest"):
        powers = state.weights**hyper.r
        embedding = _update_embedding(state, powers, hyper.lam2)
        distances = squared_distances(embedding.T, embedding.T)
        ratio = squared_distances(state.spectrum, state.spectrum) / jnp.maximum(distances, SMALLEST_DISTANCE)
        target = -hyper.lam3 / (2 * hyper.lam2 * jnp.sum(powers)) * ratio
        others = ~jnp.eye(len(target), dtype=bool)
        graph = project_rows_on_simplex(target, others)
        eigenvalues, spectrum = _smallest_eigenpairs(graph, len(embedding))
        updates = [_update_view(y, mask[:, v], factors[v], embedding) for v, y in enumerate(state.completed)]
        completed, bases, losses = zip(*updates, strict=True)
        loss = jnp.stack(losses) + graph_term * hyper.lam2 / 2 * jnp.sum(distances * graph**2)
        loss = jnp.maximum(loss, jnp.finfo(loss.dtype).tiny)
        weights = jax.nn.softmax(jnp.log(loss) / (1 - hyper.r))
        energy = sum(jnp.vdot(x, x) for x in columns)
        value = (jnp.sum(weights**hyper.r * loss) + hyper.lam3 * jnp.sum(eigenvalues)) / energy
    return State(completed, bases, embedding, graph, spectrum, weights), value


@partial(jax.jit, static_argnames=("fixed", "max_iter"))
def _solve(
    columns: tuple[Float[Array, "_d_v n"], ...],
    mask: Bool[Array, "n m"],
    laplacians: tuple[Float[Array, "_d_v _d_v"], ...],
    hyper: Hyper,
    start: State,
    *,
    fixed: bool,
    max_iter: int,
) -> Solution:
    factors = [cho_factor(jnp.eye(len(l), dtype=l.dtype) + hyper.lam1 * l)[0] for l in laplacians]
    graph_term = 1.0 if fixed else hyper.lam1 * jnp.sum(~mask, axis=0).astype(columns[0].dtype)

    def advance(state: State, made: Array, before: Array) -> tuple[State, Array, Array]:
        state, value = step(columns, mask, factors, hyper, state, graph_term=graph_term)
        return state, value, (made >= 2) & (jnp.abs(value - before) < hyper.tol)

    return iterate(advance, start, jnp.asarray(jnp.nan, columns[0].dtype), max_iter)


def solve(
    columns: Columns,
    mask: Bool[Array, "n m"],
    laplacians: Sequence[Float[Array, "_d_v _d_v"]],
    start: State,
    hyper: Hyper,
    *,
    fixed: bool = False,
    max_iter: int = 50,
) -> Solution:
    """Iterate :func:`step` from ``start`` until the normalised objective changes by less than ``hyper.tol``.

    One compiled ``lax.while_loop`` for all values of ``hyper``; to sweep them, ``jax.vmap`` this function.

    Parameters
    ----------
    columns, mask
        From :func:`jpltd_jax.baselines.base.observed_columns`.
    laplacians
        For each view the :func:`feature_laplacian`.
    start
        From :func:`init` or :func:`start_from`.
    hyper, fixed, max_iter
        See :func:`fit`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.baselines import ueaf
    >>> columns, mask = [jnp.eye(4)], jnp.ones((4, 1), bool)
    >>> start = ueaf.init(jax.random.key(0), columns, mask, 2)
    >>> solution = ueaf.solve(columns, mask, [ueaf.feature_laplacian(columns[0], 1)], start, ueaf.Hyper(), max_iter=5)
    >>> solution.state.embedding.shape
    (2, 4)
    """
    dtype = columns[0].dtype
    hyper = Hyper(*(jnp.asarray(x, dtype) for x in hyper))
    return _solve(tuple(columns), mask, tuple(laplacians), hyper, start, fixed=fixed, max_iter=max_iter)


def _check(columns: Columns, n_clusters: int, hyper: Hyper, n_neighbors: int) -> None:
    n = columns[0].shape[1]
    check_counts(n, n_clusters, n_neighbors)
    for v, x in enumerate(columns):
        if x.shape[0] < n_clusters:
            raise ValueError(f"view {v} has {x.shape[0]} features, fewer than n_clusters = {n_clusters}")
        if x.shape[0] <= n_neighbors:
            raise ValueError(f"view {v} has {x.shape[0]} features, too few for n_neighbors = {n_neighbors}")
    for name in ("lam1", "lam3"):
        if getattr(hyper, name) < 0:
            raise ValueError(f"{name} must not be negative, got {getattr(hyper, name)}")
    if hyper.lam2 <= 0:
        raise ValueError(f"lam2 must be positive, got {hyper.lam2}")
    if hyper.r <= 1:
        raise ValueError(f"r must be greater than 1, got {hyper.r}")


def fit(
    views: Sequence[object],
    mask: ArrayLike | None,
    n_clusters: int,
    *,
    key: Key,
    lam1: float = 1e-2,
    lam2: float = 1e-1,
    lam3: float = 1e-5,
    r: float = 3.0,
    n_neighbors: int = 7,
    fixed: bool = False,
    max_iter: int = 50,
    tol: float = 1e-5,
) -> BaselineResult:
    """Cluster by k-means on the columns of P, scaled to unit length.

    Parameters
    ----------
    views
        List of m matrices (n, d_v), samples as rows, d_v >= n_clusters and d_v > n_neighbors. A row of NaN is a missing
        sample.
    mask
        (n, m) bool, True where observed, or None. What stands in the hidden rows never influences the result.
    n_clusters
        Number of clusters, which is also the dimension of the embedding.
    key
        Of ``jax.random``; for the start and for k-means.
    lam1, lam2, lam3
        Weights of the smoothness of inferred samples, of the graph in the embedding and of the graph's spectral term.
        The authors' choice for the 3Sources data: (1e-1, 1e-2, 1e-5), (1e-2, 1e-1, 1e-5) and (1e-5, 1e1, 1e-5) at 10,
        30 and 50 % missing; the second is the default.
    r
        Exponent of the view weights, above 1.
    n_neighbors
        Neighbours of a feature in the graph between the features of a view.
    fixed
        Count the graph term once in the loss of every view, as the objective does, and not lam1 times the number of
        the view's missing samples, as the authors' program does by a slip.
    max_iter, tol
        Stop when, from the third iteration on, the objective over the squared norm of the data changes by less than
        ``tol``.

    Returns
    -------
    BaselineResult
        With the embedding (n, n_clusters), rows of unit length; its history is the normalised objective.

    Notes
    -----
    An iteration takes O(n^3) operations for P and F, O(n^2 (log n + c)) for S and O(c d_v (n + d_v)) for every view,
    whose I + lam1 L_v is factored once in O(d_v^3). Missing samples are inferred in place in (d_v, n) arrays, which
    equals the authors' products with index matrices.

    Verified against the authors' program, from its own start. Known traits of the method that are kept:

    * S is the Euclidean projection of an unconstrained minimiser, not the constrained minimiser, so the objective need
      not fall. With lam3 well below lam2 the graph is almost uniform and its spectrum F is sensitive.
    * The slip that ``fixed`` removes changes the view weights and the stopping test.
    * In the graph of features, ties (duplicate or empty features) are broken by the order of the features; a feature is
      never its own neighbour.

    Squared distances are clipped at 0, and those of P, which the graph update divides by, at 1e-10. Where the authors'
    program would replace NaN in P, the status is NONFINITE.

    References
    ----------
    J. Wen, Z. Zhang, Y. Xu, B. Zhang, L. Fei, H. Liu, "Unified embedding alignment with missing views inferring for
    incomplete multi-view clustering", AAAI 2019, 33:5393-5400.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from jpltd_jax.baselines import ueaf
    >>> rng = np.random.default_rng(0)
    >>> views = [rng.normal(size=(2, d))[np.arange(12) % 2] + 0.1 * rng.normal(size=(12, d)) for d in (9, 8)]
    >>> views[0][3] = np.nan
    >>> result = ueaf.fit(views, None, 2, key=jax.random.key(0))
    >>> bool((result.labels[::2] == result.labels[0]).all() & (result.labels[1::2] != result.labels[0]).all())
    True
    """
    columns, present = observed_columns(views, mask)
    hyper = Hyper(lam1, lam2, lam3, r, tol)
    _check(columns, n_clusters, hyper, n_neighbors)
    start_key, kmeans_key = jax.random.split(key)
    laplacians = [feature_laplacian(x, n_neighbors) for x in columns]
    start = init(start_key, columns, present, n_clusters)
    solution = solve(columns, present, laplacians, start, hyper, fixed=fixed, max_iter=max_iter)
    embedding = unit_rows(solution.state.embedding.T)
    labels = kmeans(kmeans_key, embedding, n_clusters, n_init=20).labels
    return BaselineResult(labels, None, embedding, solution.status, solution.n_iter, solution.history)
