"""IMVC-CBG: a consensus bipartite graph between the samples and a few anchors, in time linear in the samples.

The model (Wang, Liu, Liu, Tu, Zhu, Liu, Zhou, Zhu, CVPR 2022, pp. 9776-9785)::

    min  sum_v alpha_v^2 ||(X^v - W^v A Z) diag(q_v)||_F^2 + lam ||Z||_F^2
    s.t. W^v^T W^v = I,   A orthogonal,   Z >= 0,   Z^T 1 = 1,   sum_v alpha_v = 1

with q_v the observed samples of view v, W^v (d_v, d) projections, A (d, a) anchors that all views share, Z (a, n) the
bipartite graph and d the number of clusters.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int
from optax.projections import projection_simplex

from jpltd_jax.baselines.base import BaselineResult, Solution, check_counts, iterate, observed_columns
from jpltd_jax.prox import Scalar, stiefel
from jpltd_jax.spectral import Key, kmeans

FirstAnchors = Literal["first", "random"]

SMALLEST_OBJECTIVE = 1e-10
"""Below this objective the fit is perfect and the iteration stops."""


class State(NamedTuple):
    """What the next iteration needs."""

    projections: tuple[Float[Array, "_d_v d"], ...]
    anchors: Float[Array, "d a"]
    graph: Float[Array, "a n"]
    weights: Float[Array, " m"]


def init(columns: Sequence[Float[Array, "_d_v n"]], first_anchors: Int[Array, " a"], *, latent_dim: int) -> State:
    """State before the first iteration: Z joins the samples ``first_anchors`` to one anchor each, A = 0.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines import imvc_cbg
    >>> imvc_cbg.init([jnp.ones((3, 4))], jnp.arange(2), latent_dim=2).graph
    Array([[1., 0., 0., 0.],
           [0., 1., 0., 0.]], dtype=float32)
    """
    n, dtype = columns[0].shape[1], columns[0].dtype
    return State(
        projections=tuple(jnp.eye(x.shape[0], latent_dim, dtype=dtype) for x in columns),
        anchors=jnp.zeros((latent_dim, len(first_anchors)), dtype),
        graph=jax.nn.one_hot(first_anchors, n, dtype=dtype),
        weights=jnp.full(len(columns), 1 / len(columns), dtype),
    )


def _squared_residuals(
    columns: Sequence[Float[Array, "_d_v n"]],
    present: Float[Array, "m n"],
    latent: Float[Array, "m d n"],
    placed: Float[Array, "d n"],
) -> Float[Array, " m"]:
    """||X^v - W^v A Z_v||^2 = ||X^v||^2 - 2 <W^v^T X^v, A Z> + ||A Z_v||^2, held above its rounding error."""
    energy = jnp.stack([jnp.vdot(x, x) for x in columns])
    squares = energy - 2 * jnp.einsum("vdn,dn->v", latent, placed) + present @ jnp.sum(placed * placed, axis=0)
    return jnp.maximum(squares, jnp.finfo(squares.dtype).eps * jnp.sum(present, axis=1))


def step(
    columns: Sequence[Float[Array, "_d_v n"]], mask: Bool[Array, "n m"], lam: Scalar, state: State
) -> tuple[State, Float[Array, ""]]:
    """One iteration, W, A, Z, alpha in this order, and the objective after it.

    Columns of missing samples are zero, so that products with all columns are those with the observed ones.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines import imvc_cbg
    >>> columns, mask = [jnp.eye(3)], jnp.ones((3, 1), bool)
    >>> state, value = imvc_cbg.step(columns, mask, 0.0, imvc_cbg.init(columns, jnp.arange(3), latent_dim=3))
    >>> bool(jnp.allclose(state.graph, jnp.eye(3))), bool(value < 1e-6)
    (True, True)
    """
    present = mask.T.astype(state.graph.dtype)
    squares = state.weights**2
    with jax.default_matmul_precision("highest"):
        placed = state.anchors @ state.graph
        projections = tuple(stiefel(x @ placed.T) for x in columns)
        latent = jnp.stack([w.T @ x for w, x in zip(projections, columns, strict=True)])
        mixed = jnp.einsum("v,vdn->dn", squares, latent)
        anchors = stiefel(mixed @ state.graph.T)
        unconstrained = anchors.T @ mixed / (squares @ present + lam)
        graph = jax.vmap(projection_simplex, in_axes=1, out_axes=1)(unconstrained).astype(mixed.dtype)
        residuals = jnp.sqrt(_squared_residuals(columns, present, latent, anchors @ graph))
        weights = 1 / residuals
        weights = weights / jnp.sum(weights)
        value = jnp.sum((weights * residuals) ** 2) + lam * jnp.vdot(graph, graph)
    return State(projections, anchors, graph, weights), value


@partial(jax.jit, static_argnames="max_iter")
def _solve(
    columns: tuple[Float[Array, "_d_v n"], ...],
    mask: Bool[Array, "n m"],
    lam: Float[Array, ""],
    tol: Float[Array, ""],
    start: State,
    *,
    max_iter: int,
) -> Solution:
    def advance(state: State, made: Array, before: Array) -> tuple[State, Array, Array]:
        state, value = step(columns, mask, lam, state)
        small = (jnp.abs(before - value) < tol * before) | (value < SMALLEST_OBJECTIVE)
        return state, value, (made > 0) & small

    return iterate(advance, start, jnp.asarray(jnp.nan, lam.dtype), max_iter)


def solve(
    columns: Sequence[Float[Array, "_d_v n"]],
    mask: Bool[Array, "n m"],
    start: State,
    *,
    lam: Scalar,
    tol: Scalar = 1e-3,
    max_iter: int = 51,
) -> Solution:
    """Iterate :func:`step` from ``start`` until the objective falls by less than ``tol`` relative to itself.

    One compiled ``lax.while_loop`` for all values of ``lam`` and ``tol``; to sweep them, ``jax.vmap`` this function.

    Parameters
    ----------
    columns, mask
        From :func:`jpltd_jax.baselines.base.observed_columns`.
    start
        From :func:`init`.
    lam, tol, max_iter
        See :func:`fit`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines import imvc_cbg
    >>> columns, mask = [jnp.eye(3)], jnp.ones((3, 1), bool)
    >>> solution = imvc_cbg.solve(columns, mask, imvc_cbg.init(columns, jnp.arange(3), latent_dim=3), lam=1.0)
    >>> int(solution.n_iter), solution.state.graph.shape
    (2, (3, 3))
    """
    dtype = start.graph.dtype
    return _solve(tuple(columns), mask, jnp.asarray(lam, dtype), jnp.asarray(tol, dtype), start, max_iter=max_iter)


def graph_embedding(graph: Float[Array, "a n"], n_components: int) -> Float[Array, "n c"]:
    """Leading left singular vectors of Z^T; those beyond the rank of Z, which would be arbitrary, are zero.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines.imvc_cbg import graph_embedding
    >>> jnp.abs(graph_embedding(jnp.array([[1.0, 0.0], [0.0, 0.0]]), 2))
    Array([[1., 0.],
           [0., 0.]], dtype=float32)
    """
    left, singular, _ = jnp.linalg.svd(graph.T, full_matrices=False)
    in_range = singular > jnp.finfo(graph.dtype).eps * graph.shape[1] * singular[0]
    return jnp.where(in_range, left, 0)[:, :n_components]


def _check(
    columns: Sequence[Float[Array, "_d_v n"]], n_clusters: int, n_anchors: int, lam: Scalar, anchors: str
) -> None:
    n = columns[0].shape[1]
    check_counts(n, n_clusters)
    if not n_clusters <= n_anchors <= n:
        raise ValueError(f"n_anchors must be between n_clusters = {n_clusters} and {n} samples, got {n_anchors}")
    for v, x in enumerate(columns):
        if x.shape[0] < n_clusters:
            raise ValueError(f"view {v} has {x.shape[0]} features, fewer than n_clusters = {n_clusters}")
    if lam < 0:
        raise ValueError(f"lam must not be negative, got {lam}")
    if anchors not in get_args(FirstAnchors):
        raise ValueError(f"anchors must be one of {', '.join(map(repr, get_args(FirstAnchors)))}, got {anchors!r}")


def fit(
    views: Sequence[object],
    mask: ArrayLike | None,
    n_clusters: int,
    *,
    key: Key,
    lam: float = 0.1,
    n_anchors: int | None = None,
    anchors: FirstAnchors = "first",
    max_iter: int = 51,
    tol: float = 1e-3,
) -> BaselineResult:
    """Cluster by k-means on the leading ``n_clusters`` left singular vectors of the bipartite graph Z^T.

    Parameters
    ----------
    views
        List of m matrices (n, d_v), samples as rows, d_v >= n_clusters. A row of NaN is a missing sample.
    mask
        (n, m) bool, True where observed, or None. What stands in the hidden rows never influences the result.
    n_clusters
        Number of clusters, which is also the dimension of the latent space.
    key
        Of ``jax.random``; for k-means and for ``anchors="random"``.
    lam
        Weight of ||Z||^2. The authors search 0.001, 0.1, 1, 10.
    n_anchors
        Number of anchors, from n_clusters (the default) to n. The authors search 1, 2, 3, 5 times n_clusters.
    anchors
        Samples that the anchors start from: the ``"first"`` ones, as in the authors' program, or ``"random"`` ones,
        which has the law of the first ones of shuffled samples.
    max_iter, tol
        Stop when the objective changes by less than ``tol`` relative to itself.

    Returns
    -------
    BaselineResult
        With the embedding; its history is the objective.

    Notes
    -----
    An iteration takes O(n d (a + sum_v d_v)) operations and O(n a log a) for the projections on the simplex; no array
    is larger than the data.

    The authors' solver is published in a form that cannot be read. This is a reconstruction, verified where the number
    of anchors is the number of clusters (it gives the graphs that the authors published for the BDGP data) and
    supported by their open sibling program (the case lam = 0) otherwise. Known traits of the method that are kept:

    * The result depends on the order of samples and features: the first step sees the first n_clusters features of the
      samples the anchors start from. If these have deficient rank, which sparse features or missing samples cause,
      part of A is the choice of the SVD routine. Compare several orders, or several keys with ``anchors="random"``.
    * The weights are in proportion to 1 / residual; the minimiser would be 1 / residual^2. Residuals have a floor, so
      that a view that is fitted exactly does not divide by zero.
    * With more anchors than clusters the steps of A and Z ignore a quadratic term, and the objective may rise.

    Unlike in the authors' program, singular vectors beyond n_clusters are left out: with more anchors than clusters
    they are mostly arbitrary vectors of the null space.

    References
    ----------
    S. Wang, X. Liu, L. Liu, W. Tu, X. Zhu, J. Liu, S. Zhou, E. Zhu, "Highly-efficient incomplete large-scale
    multi-view clustering with consensus bipartite graph", CVPR 2022, pp. 9776-9785.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from jpltd_jax.baselines import imvc_cbg
    >>> rng = np.random.default_rng(0)
    >>> views = [rng.normal(size=(2, d))[np.arange(12) % 2] + 0.1 * rng.normal(size=(12, d)) for d in (8, 5)]
    >>> views[0][3] = np.nan
    >>> result = imvc_cbg.fit(views, None, 2, key=jax.random.key(0))
    >>> bool((result.labels[::2] == result.labels[0]).all() & (result.labels[1::2] != result.labels[0]).all())
    True
    """
    columns, present = observed_columns(views, mask)
    n_anchors = n_clusters if n_anchors is None else n_anchors
    _check(columns, n_clusters, n_anchors, lam, anchors)
    anchor_key, kmeans_key = jax.random.split(key)
    n = present.shape[0]
    order = jnp.arange(n) if anchors == "first" else jax.random.permutation(anchor_key, n)
    start = init(columns, order[:n_anchors], latent_dim=n_clusters)
    solution = solve(columns, present, start, lam=lam, tol=tol, max_iter=max_iter)
    embedding = graph_embedding(solution.state.graph, n_clusters)
    labels = kmeans(kmeans_key, embedding, n_clusters, n_init=20, max_iter=1000).labels
    return BaselineResult(labels, None, embedding, solution.status, solution.n_iter, solution.history)
