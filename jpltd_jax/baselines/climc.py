"""CLIMC and CLIMC-SC (reconstructed): consensus learning for incomplete multi-view clustering.

Reconstruction, not verified. Neither a program nor the text of the article (Liu, Teng, Fei, Zhang, Fang, Zhang, Wu, "A
novel consensus learning approach to incomplete multi-view clustering", Pattern Recognition 115, 2021, 107890) was at
hand: this is the smallest model that fits what other publications say of it. Report its scores as "CLIMC
(reconstructed)". With X^v the non-negative (d_v, n) samples of view v, Q_v the selection of its observed samples, A^v
its neighbour graph and M^v the pairs of different samples that are both observed in it::

    CLIMC-SC:  min_S        sum_v ||M^v * (S - A^v)||_F
    CLIMC:     min_{U,H,S}  sum_v ||(X^v - U^v H) Q_v||_F^2 + beta ||U^v||_F^2
                            + alpha tr(H L_S H^T) + gamma sum_v ||M^v * (S - A^v)||_F

    s.t. U^v >= 0,  H >= 0,  S >= 0,  S 1 = 1,  diag S = 0,  s_ij = 0 for samples never observed together

with * entrywise and L_S the Laplacian of (S + S^T) / 2. CLIMC-SC reads the labels from S by spectral clustering, CLIMC
from H by k-means. No step raises the objective. Everything but :func:`fit` and :func:`fit_sc` is pure; hyper-parameters
are traced.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float
from sklearn.cluster import KMeans

from jpltd_jax.baselines.base import BaselineResult, Solution, check_counts, iterate, observed_columns
from jpltd_jax.baselines.graphs import knn_graph
from jpltd_jax.problem import observed
from jpltd_jax.prox import Scalar
from jpltd_jax.spectral import Key, affinity, kmeans, spectral_cluster, squared_distances, unit_rows

Views = Sequence[Float[Array, "_d_v n"]]

SMALLEST_NORM = 1e-12
SMALLEST_DENOMINATOR = 1e-10


class Hyper(NamedTuple):
    """Hyper-parameters of CLIMC; every field may be a number or, for sweeps, an array.

    Attributes
    ----------
    alpha
        Weight of the smoothness of H on the graph S.
    beta
        Weight of the squared norms of U^v.
    gamma
        Weight of the fit of S to the graphs of the views.
    tol
        Stop when the objective changes by less than this part of itself.
    """

    alpha: Scalar | Array = 0.1
    beta: Scalar | Array = 0.01
    gamma: Scalar | Array = 1.0
    tol: Scalar | Array = 1e-5


class State(NamedTuple):
    """Basis U^v of every view, consensus representation H and consensus graph S."""

    U: tuple[Float[Array, "_d_v c"], ...]
    H: Float[Array, "c n"]
    S: Float[Array, "n n"]


@partial(jax.jit, static_argnames="n_neighbors")
def view_graphs(columns: Views, mask: Bool[Array, "n m"], n_neighbors: int) -> Float[Array, "m n n"]:
    """Nearest-neighbour graphs of the observed samples of each view, rows scaled to sum 1.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines.climc import view_graphs
    >>> view_graphs((jnp.array([[0.0, 1.0, 3.0, 0.0]]),), jnp.array([[True], [True], [True], [False]]), 1)[0]
    Array([[0. , 1. , 0. , 0. ],
           [0.5, 0. , 0.5, 0. ],
           [0. , 1. , 0. , 0. ],
           [0. , 0. , 0. , 0. ]], dtype=float32)
    """
    graphs = jnp.stack([knn_graph(x, mask[:, v], n_neighbors) for v, x in enumerate(columns)])
    return graphs / jnp.maximum(jnp.sum(graphs, axis=2, keepdims=True), 1)


def fit_rows(b: Float[Array, "r n"], omega: Float[Array, "r n"]) -> Float[Array, "r n"]:
    """argmin_S sum_ij omega_ij s_ij^2 / 2 - b_ij s_ij over rows on the simplex with s_ij = 0 where omega_ij = 0.

    s_ij = max(0, (b_ij - eta_i) / omega_ij) with eta_i from the sorted row, O(n log n) each. A row of b may be shifted
    by a constant, which is used to make its largest entry 0. A row with no positive omega is 0.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines.climc import fit_rows
    >>> fit_rows(jnp.array([[9.0, 1.0, 1.0]]), jnp.array([[0.0, 1.0, 3.0]]))
    Array([[0.  , 0.75, 0.25]], dtype=float32)
    """
    support = omega > 0
    largest = jnp.max(b, axis=1, keepdims=True, where=support, initial=jnp.finfo(b.dtype).min)
    shifted = jnp.where(support, b - largest, -jnp.inf)
    inverse = jnp.where(support, 1 / jnp.where(support, omega, 1), 0)
    negative, inverse_sorted = jax.lax.sort((-shifted, inverse), dimension=1, num_keys=1)
    descending = -negative
    in_support = inverse_sorted > 0
    spent = jnp.cumsum(jnp.where(in_support, descending * inverse_sorted, 0), axis=1)
    room = jnp.cumsum(inverse_sorted, axis=1)
    eta = (spent - 1) / jnp.where(in_support, room, 1)
    last = jnp.sum(in_support & (descending > eta), axis=1, keepdims=True) - 1
    threshold = jnp.take_along_axis(eta, jnp.maximum(last, 0), axis=1)
    return jnp.where(support, jnp.maximum(shifted - threshold, 0) * inverse, 0)


def _pairs(mask: Bool[Array, "n m"]) -> Bool[Array, "m n n"]:
    seen = mask.T
    return seen[:, :, None] & seen[:, None, :] & ~jnp.eye(mask.shape[0], dtype=bool)


def _misfits(S: Float[Array, "n n"], graphs: Float[Array, "m n n"], pairs: Bool[Array, "m n n"]) -> Float[Array, " m"]:
    return jnp.linalg.norm(jnp.where(pairs, S - graphs, 0), axis=(1, 2))


def _weights(misfits: Float[Array, " m"]) -> Float[Array, " m"]:
    return 1 / (2 * jnp.maximum(misfits, SMALLEST_NORM))


def _consensus(
    weights: Float[Array, " m"],
    graphs: Float[Array, "m n n"],
    pairs: Bool[Array, "m n n"],
    cost: Float[Array, "n n"] | float,
) -> Float[Array, "n n"]:
    """argmin_S sum_v weights_v ||M^v * (S - A^v)||_F^2 + 2 <cost, S> over the allowed graphs."""
    weighted = jnp.where(pairs, weights[:, None, None], 0)
    return fit_rows(jnp.sum(weighted * graphs, axis=0) - cost, jnp.sum(weighted, axis=0))


@jax.jit
def initial_graph(graphs: Float[Array, "m n n"], mask: Bool[Array, "n m"]) -> Float[Array, "n n"]:
    """Consensus graph with equal weights of all views, from which both iterations start."""
    m = graphs.shape[0]
    return _consensus(jnp.full((m,), 1 / m, graphs.dtype), graphs, _pairs(mask), 0.0)


def _descend(
    step: Callable[[Any], Any],
    objective: Callable[[Any], Float[Array, ""]],
    start: Any,
    tol: Scalar | Array,
    max_iter: int,
) -> Solution:
    """Repeat ``step`` until the objective settles."""

    def advance(state: Any, made: Array, before: Array) -> tuple[Any, Array, Array]:
        state = step(state)
        now = objective(state)
        return state, now, jnp.abs(before - now) <= tol * jnp.abs(before)

    return iterate(advance, start, objective(start), max_iter)


@partial(jax.jit, static_argnames="max_iter")
def solve_sc(
    graphs: Float[Array, "m n n"],
    mask: Bool[Array, "n m"],
    start: Float[Array, "n n"],
    *,
    tol: Scalar | Array = 1e-5,
    max_iter: int = 100,
) -> Solution:
    """Consensus graph of CLIMC-SC by iterative reweighting: w_v = 1 / (2 ||M^v * (S - A^v)||_F), then S.

    Parameters
    ----------
    graphs
        From :func:`view_graphs`.
    mask
        (n, m), whether a sample is observed in a view.
    start
        From :func:`initial_graph`.
    tol, max_iter
        Stop when the objective changes by less than ``tol`` of itself, or after ``max_iter`` iterations.

    Notes
    -----
    O(n^2 (m + log n)) per iteration.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines import climc
    >>> graphs, mask = (1 - jnp.eye(3))[None] / 2, jnp.ones((3, 1), bool)
    >>> climc.solve_sc(graphs, mask, climc.initial_graph(graphs, mask)).state
    Array([[0. , 0.5, 0.5],
           [0.5, 0. , 0.5],
           [0.5, 0.5, 0. ]], dtype=float32)
    """
    pairs = _pairs(mask)
    return _descend(
        lambda S: _consensus(_weights(_misfits(S, graphs, pairs)), graphs, pairs, 0.0),
        lambda S: jnp.sum(_misfits(S, graphs, pairs)),
        start,
        tol,
        max_iter,
    )


def objective(
    columns: Views, mask: Bool[Array, "n m"], graphs: Float[Array, "m n n"], hyper: Hyper, state: State
) -> Float[Array, ""]:
    """Value of the objective of CLIMC."""
    U, H, S = state
    with jax.default_matmul_precision("highest"):
        errors = [jnp.where(mask[:, v], x - u @ H, 0) for v, (x, u) in enumerate(zip(columns, U, strict=True))]
    factorisation = sum(jnp.sum(e**2) + hyper.beta * jnp.sum(u**2) for e, u in zip(errors, U, strict=True))
    smoothness = jnp.sum(S * squared_distances(H.T, H.T)) / 2
    return factorisation + hyper.alpha * smoothness + hyper.gamma * jnp.sum(_misfits(S, graphs, _pairs(mask)))


def step(columns: Views, mask: Bool[Array, "n m"], graphs: Float[Array, "m n n"], hyper: Hyper, state: State) -> State:
    """One iteration of CLIMC: multiplicative updates of U and H, then the weights of the views and S."""
    _, H, S = state
    with jax.default_matmul_precision("highest"):
        seen = [jnp.where(mask[:, v], H, 0) for v in range(len(columns))]
        U = tuple(
            u * (x @ H.T) / jnp.maximum(u @ (h @ H.T) + hyper.beta * u, SMALLEST_DENOMINATOR)
            for x, u, h in zip(columns, state.U, seen, strict=True)
        )
        symmetric = (S + S.T) / 2
        pull = sum(u.T @ x for x, u in zip(columns, U, strict=True)) + hyper.alpha * (H @ symmetric)
        push = sum((u.T @ u) @ h for u, h in zip(U, seen, strict=True)) + hyper.alpha * H * jnp.sum(symmetric, axis=0)
    H = H * pull / jnp.maximum(push, SMALLEST_DENOMINATOR)
    pairs = _pairs(mask)
    weights = hyper.gamma * _weights(_misfits(S, graphs, pairs))
    return State(U, H, _consensus(weights, graphs, pairs, hyper.alpha / 4 * squared_distances(H.T, H.T)))


@partial(jax.jit, static_argnames="max_iter")
def _solve(
    columns: Views,
    mask: Bool[Array, "n m"],
    graphs: Float[Array, "m n n"],
    hyper: Hyper,
    start: State,
    *,
    max_iter: int,
) -> Solution:
    problem = (columns, mask, graphs, hyper)
    return _descend(partial(step, *problem), partial(objective, *problem), start, hyper.tol, max_iter)


def solve(
    columns: Views,
    mask: Bool[Array, "n m"],
    graphs: Float[Array, "m n n"],
    hyper: Hyper,
    start: State,
    *,
    max_iter: int = 100,
) -> Solution:
    """Solve CLIMC: one compiled ``lax.while_loop`` of :func:`step`, for any values of ``hyper``.

    Parameters
    ----------
    columns, mask
        From :func:`nonnegative_columns`.
    graphs
        From :func:`view_graphs`.
    hyper
        Hyper-parameters; to sweep them, ``jax.vmap`` this function over a Hyper of arrays.
    start
        From :func:`init`. Multiplicative updates never leave zero: U and H have to be positive.
    max_iter
        Largest number of iterations.

    Notes
    -----
    O(sum_v d_v n c + n^2 (c + m + log n)) operations per iteration, c the number of clusters.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from jpltd_jax.baselines import climc
    >>> rng = np.random.default_rng(0)
    >>> columns, mask = climc.nonnegative_columns([rng.random((16, d)) for d in (8, 5)], None)
    >>> graphs = climc.view_graphs(columns, mask, 4)
    >>> start = climc.init(jax.random.key(0), columns, mask, graphs, 2)
    >>> result = climc.solve(columns, mask, graphs, climc.Hyper(), start)
    >>> result.state.H.shape, bool(np.nanmax(np.diff(result.history)) < 1e-4)
    ((2, 16), True)
    """
    hyper = Hyper(*(jnp.asarray(x, start.S.dtype) for x in hyper))
    return _solve(columns, mask, graphs, hyper, start, max_iter=max_iter)


def nonnegative_columns(views: Sequence[object], mask: ArrayLike | None) -> tuple[Views, Bool[Array, "n m"]]:
    """As :func:`jpltd_jax.baselines.base.observed_columns`; features of a view with negative entries start at zero.

    In such a view the least observed value of every feature is subtracted before the samples are scaled.

    Examples
    --------
    >>> from jpltd_jax.baselines.climc import nonnegative_columns
    >>> nonnegative_columns([[[-3.0, 0.0], [0.0, 4.0], [-3.0, 8.0]]], None)[0][0]
    Array([[0. , 0.6, 0. ],
           [0. , 0.8, 1. ]], dtype=float32)
    """
    matrices, present = observed(views, mask)
    shifted = []
    for v, x in enumerate(matrices):
        least = x[present[:, v]].min(axis=0)
        shifted.append(x - least if (least < 0).any() else x)
    columns, seen = observed_columns(shifted, present)
    return tuple(columns), seen


def init(key: Key, columns: Views, mask: Bool[Array, "n m"], graphs: Float[Array, "m n n"], n_clusters: int) -> State:
    """State before the first iteration, from k-means on the host, where the number of observed samples may vary.

    U^v holds the centers of the observed samples of view v, plus 1e-3; H the one-hot labels of the samples in all views
    together, missing ones as zeros, plus 0.1.
    """
    seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
    restarts = KMeans(n_clusters, n_init=20, random_state=seed)
    U = tuple(
        jnp.asarray(restarts.fit(np.asarray(x).T[np.asarray(mask[:, v])]).cluster_centers_.T + 1e-3, x.dtype)
        for v, x in enumerate(columns)
    )
    labels = restarts.fit_predict(np.concatenate(columns).T)
    H = jax.nn.one_hot(labels, n_clusters, dtype=graphs.dtype).T + 0.1
    return State(U, H, initial_graph(graphs, mask))


def _check_model(mask: Bool[Array, "n m"], n_clusters: int, hyper: Hyper) -> None:
    for v, count in enumerate(np.asarray(mask).sum(axis=0)):
        if count < n_clusters:
            raise ValueError(f"view {v} has {count} observed samples, fewer than n_clusters = {n_clusters}")
    for name, value in (("alpha", hyper.alpha), ("beta", hyper.beta)):
        if value < 0:
            raise ValueError(f"{name} must not be negative, got {value}")
    if hyper.gamma <= 0:
        raise ValueError(f"gamma must be positive, got {hyper.gamma}")


def fit(
    views: Sequence[object],
    mask: ArrayLike | None,
    n_clusters: int,
    *,
    key: Key,
    alpha: float = 0.1,
    beta: float = 0.01,
    gamma: float = 1.0,
    n_neighbors: int = 10,
    max_iter: int = 100,
    tol: float = 1e-5,
) -> BaselineResult:
    """Cluster by CLIMC (reconstructed): non-negative factors of the views that vary smoothly on a consensus graph.

    The objective is that of the module; labels are those of k-means on the columns of H, scaled to unit length.

    Parameters
    ----------
    views
        List of m matrices (n, d_v), samples as rows. A row of NaN is a missing sample.
    mask
        (n, m) bool, True where observed, or None.
    n_clusters
        Number of clusters, and of the columns of U^v.
    key
        Random key of all runs of k-means.
    alpha, beta, gamma
        Weights of smoothness, of the norm of U^v and of the fit to the graphs. Search alpha over 1e-6 ... 1e2 and beta
        over 1e-6 ... 1e4. A large alpha / gamma puts all weight of a sample on its nearest one.
    n_neighbors
        Size of the neighbourhoods in the graphs of the views.
    max_iter, tol
        Stop after ``max_iter`` iterations or when the objective changes by less than ``tol`` of itself.

    Notes
    -----
    A reconstruction, not the authors' method to the letter: see the module. The defaults are not from the article.

    Pairs of samples that are never observed together have no evidence and are kept out of S; a sample without any
    partner has no neighbours in S and is placed by its features alone. Affinity is (S + S^T) / 2.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from jpltd_jax.baselines import climc
    >>> rng = np.random.default_rng(0)
    >>> views = [np.repeat(rng.normal(size=(2, d)), 8, axis=0) + 0.1 * rng.normal(size=(16, d)) for d in (8, 5)]
    >>> views[0][3] = np.nan
    >>> result = climc.fit(views, None, 2, key=jax.random.key(0), n_neighbors=4)
    >>> np.bincount(result.labels), bool(result.labels[0] == result.labels[3] != result.labels[8])
    (array([8, 8]), True)
    """
    columns, present = nonnegative_columns(views, mask)
    hyper = Hyper(alpha, beta, gamma, tol)
    check_counts(len(present), n_clusters, n_neighbors)
    _check_model(present, n_clusters, hyper)
    start_key, key = jax.random.split(key)
    graphs = view_graphs(columns, present, n_neighbors)
    start = init(start_key, columns, present, graphs, n_clusters)
    result = solve(columns, present, graphs, hyper, start, max_iter=max_iter)
    embedding = unit_rows(result.state.H.T)
    labels = kmeans(key, embedding, n_clusters).labels
    graph = affinity(result.state.S[None])
    return BaselineResult(labels, graph, embedding, result.status, result.n_iter, result.history)


def fit_sc(
    views: Sequence[object],
    mask: ArrayLike | None,
    n_clusters: int,
    *,
    key: Key,
    n_neighbors: int = 10,
    max_iter: int = 100,
    tol: float = 1e-5,
) -> BaselineResult:
    """Cluster by CLIMC-SC (reconstructed): spectral clustering of the consensus graph alone.

    Parameters
    ----------
    views, mask, n_clusters, n_neighbors, max_iter, tol
        As of :func:`fit`.
    key
        Random key of the k-means restarts.

    Notes
    -----
    A reconstruction: see the module. Features may be negative here and are not shifted.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from jpltd_jax.baselines import climc
    >>> rng = np.random.default_rng(0)
    >>> views = [np.repeat(rng.normal(size=(2, d)), 8, axis=0) + 0.1 * rng.normal(size=(16, d)) for d in (8, 5)]
    >>> views[0][3] = np.nan
    >>> result = climc.fit_sc(views, None, 2, key=jax.random.key(0), n_neighbors=4)
    >>> np.bincount(result.labels), bool(result.labels[0] == result.labels[3] != result.labels[8])
    (array([8, 8]), True)
    """
    columns, present = observed_columns(views, mask)
    check_counts(len(present), n_clusters, n_neighbors)
    graphs = view_graphs(tuple(columns), present, n_neighbors)
    result = solve_sc(graphs, present, initial_graph(graphs, present), tol=tol, max_iter=max_iter)
    graph = affinity(result.state[None])
    labels = spectral_cluster(key, graph, n_clusters)
    return BaselineResult(labels, graph, None, result.status, result.n_iter, result.history)
