"""IMVC-CBG: a consensus bipartite graph between the samples and a few anchors, in time linear in the samples.

The model (Wang, Liu, Liu, Tu, Zhu, Liu, Zhou, Zhu, CVPR 2022)::

    min  sum_v alpha_v^2 ||(X^v - W^v A Z) diag(q_v)||_F^2 + lam ||Z||_F^2
    s.t. W^v^T W^v = I,   A orthogonal,   Z >= 0,   Z^T 1 = 1,   sum_v alpha_v = 1

with q_v the observed samples of view v, W^v (d_v, d) projections, A (d, a) anchors that all views share, Z (a, n) the
bipartite graph and d the number of clusters.

The blocks W, A, Z, alpha are updated in turn until the objective changes by less than ``tol`` relative to itself.
Labels are those of k-means on the leading d left singular vectors of Z^T.

An iteration takes O(n d (a + sum_v d_v)) operations and O(n a log a) for the projections on the simplex; no array is
larger than the data.

The authors' solver is published in a form that cannot be read. This one, written from the article, was verified against
recorded runs: for lam = 0 of the authors' open sibling program; for lam > 0 of an independent implementation which,
with as many anchors as clusters, gives the graphs that the authors published for the BDGP data. Known traits of the
method that are kept:

* The result depends on the order of samples and of features: the first step sees the first d features of the samples
  that the anchors start from. If these have deficient rank, which sparse features or missing samples cause, part of A
  is the choice of the SVD routine. Compare several orders, or several keys with ``anchors="random"``.
* The weights are in proportion to 1 / residual; the minimiser would be 1 / residual^2. Residuals have a floor, so that
  a view that is fitted exactly does not divide by zero.
* With more anchors than clusters the steps of A and Z ignore a quadratic term, and the objective may rise.

Unlike in the authors' program, singular vectors beyond d are left out: with more anchors than clusters they are mostly
arbitrary vectors of the null space.

References
----------
S. Wang, X. Liu, L. Liu, W. Tu, X. Zhu, J. Liu, S. Zhou, E. Zhu, "Highly-efficient incomplete large-scale multi-view
clustering with consensus bipartite graph", CVPR 2022, pp. 9776-9785.
"""

from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
from optax.projections import projection_simplex
from sklearn.utils._param_validation import Interval

from jpltd_jax._types import Key, Scalar, check_choice, check_count
from jpltd_jax.loop import Method, Readout
from jpltd_jax.problem import Problem
from jpltd_jax.prox import stiefel

__all__ = [
    "IMVC_CBG",
    "Config",
    "Data",
    "Hyper",
    "State",
    "graph_embedding",
    "init",
    "prepare",
    "readout",
    "settled",
    "step",
]

SMALLEST_OBJECTIVE = 1e-10
"""Below this objective the fit is perfect and the iteration stops."""


class Hyper(NamedTuple):
    """Hyper-parameters; every field may be a number or, for sweeps, an array.

    Attributes
    ----------
    lam
        Weight of ||Z||^2. The authors search 0.001, 0.1, 1, 10.
    tol
        Stop when the objective changes by less than this relative to itself.
    """

    lam: Scalar | Array = 0.1
    tol: Scalar | Array = 1e-3


@jax.tree_util.register_static
@dataclass(frozen=True)
class Config:
    """Options.

    Attributes
    ----------
    n_anchors
        Number of anchors, from n_clusters (the default) to n. The authors search 1, 2, 3, 5 times n_clusters.
    anchors
        Samples that the anchors start from: the ``"first"`` ones, as in the authors' program, or ``"random"`` ones,
        which has the law of the first ones of shuffled samples.

    Examples
    --------
    >>> from jpltd_jax.methods import imvc_cbg
    >>> imvc_cbg.Config(n_anchors=0)
    Traceback (most recent call last):
    ValueError: n_anchors must be at least 1, got 0
    """

    n_anchors: int | None = None
    anchors: Literal["first", "random"] = "first"

    def __post_init__(self) -> None:
        check_choice("anchors", self.anchors, Literal["first", "random"])
        if self.n_anchors is not None:
            check_count("n_anchors", self.n_anchors)


class State(NamedTuple):
    """What the next iteration needs."""

    projections: tuple[Float[Array, "_d_v d"], ...]
    anchors: Float[Array, "d a"]
    graph: Float[Array, "a n"]
    weights: Float[Array, " m"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Data:
    """The views, zero where missing, and the options."""

    columns: tuple[Float[Array, "_d_v n"], ...]
    mask: Bool[Array, "m n"]
    config: Config = field(metadata={"static": True})
    n_clusters: int = field(metadata={"static": True})


def check(problem: Problem, n_clusters: int, config: Config) -> None:
    """Raise unless every view has n_clusters features and there are n_clusters to n anchors."""
    n, n_anchors = problem.n_samples, config.n_anchors
    if n_anchors is not None and not n_clusters <= n_anchors <= n:
        raise ValueError(f"n_anchors must be between n_clusters = {n_clusters} and {n} samples, got {n_anchors}")
    for v, features in enumerate(problem.dimensions):
        if features < n_clusters:
            raise ValueError(f"view {v} has {features} features, fewer than n_clusters = {n_clusters}")


@partial(jax.jit, static_argnames="n_clusters")
def prepare(problem: Problem, n_clusters: int, config: Config) -> Data:
    """The columns of the views."""
    return Data(problem.columns, problem.mask, config, n_clusters)


def init(key: Key, data: Data, hyper: Hyper) -> State:
    """Z joins the samples that the anchors start from to one anchor each; A = 0; equal weights.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.methods import imvc_cbg
    >>> data = imvc_cbg.Data((jnp.ones((3, 4)),), jnp.ones((1, 4), bool), imvc_cbg.Config(), 2)
    >>> imvc_cbg.init(jax.random.key(0), data, imvc_cbg.Hyper()).graph
    Array([[1., 0., 0., 0.],
           [0., 1., 0., 0.]], dtype=float32)
    """
    columns, config = data.columns, data.config
    n, dtype = columns[0].shape[1], columns[0].dtype
    samples = jnp.arange(n) if config.anchors == "first" else jax.random.permutation(key, n)
    first: Int[Array, " a"] = samples[: data.n_clusters if config.n_anchors is None else config.n_anchors]
    return State(
        projections=tuple(jnp.eye(x.shape[0], data.n_clusters, dtype=dtype) for x in columns),
        anchors=jnp.zeros((data.n_clusters, len(first)), dtype),
        graph=jax.nn.one_hot(first, n, dtype=dtype),
        weights=jnp.full(len(columns), 1 / len(columns), dtype),
    )


def _squared_residuals(data: Data, latent: Float[Array, "m d n"], placed: Float[Array, "d n"]) -> Float[Array, " m"]:
    """||X^v - W^v A Z_v||^2 = ||X^v||^2 - 2 <W^v^T X^v, A Z> + ||A Z_v||^2, held above its rounding error."""
    present = data.mask.astype(placed.dtype)
    energy = jnp.stack([jnp.vdot(x, x) for x in data.columns])
    squares = energy - 2 * jnp.einsum("vdn,dn->v", latent, placed) + present @ jnp.sum(placed * placed, axis=0)
    return jnp.maximum(squares, jnp.finfo(squares.dtype).eps * jnp.sum(present, axis=1))


@jax.jit
def step(data: Data, hyper: Hyper, state: State) -> tuple[State, Float[Array, ""]]:
    """One iteration, with updates W, A, Z, alpha, and the objective after it.

    Columns of missing samples are zero, so that products with all columns are those with the observed ones.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.methods import imvc_cbg
    >>> data = imvc_cbg.Data((jnp.eye(3),), jnp.ones((1, 3), bool), imvc_cbg.Config(), 3)
    >>> hyper = imvc_cbg.Hyper(lam=0.0)
    >>> state, value = imvc_cbg.step(data, hyper, imvc_cbg.init(jax.random.key(0), data, hyper))
    >>> bool(jnp.allclose(state.graph, jnp.eye(3))), bool(value < 1e-6)
    (True, True)
    """
    squares = state.weights**2
    with jax.default_matmul_precision("highest"):
        placed = state.anchors @ state.graph
        projections = tuple(stiefel(x @ placed.T) for x in data.columns)
        latent = jnp.stack([w.T @ x for w, x in zip(projections, data.columns, strict=True)])
        mixed = jnp.einsum("v,vdn->dn", squares, latent)
        anchors = stiefel(mixed @ state.graph.T)
        unconstrained = anchors.T @ mixed / (squares @ data.mask.astype(mixed.dtype) + hyper.lam)
        graph = jax.vmap(projection_simplex, in_axes=1, out_axes=1)(unconstrained).astype(mixed.dtype)
        residuals = jnp.sqrt(_squared_residuals(data, latent, anchors @ graph))
        weights = 1 / residuals
        weights = weights / jnp.sum(weights)
        value = jnp.sum((weights * residuals) ** 2) + hyper.lam * jnp.vdot(graph, graph)
    return State(projections, anchors, graph, weights), value


def settled(
    hyper: Hyper, n_iter: Int[Array, ""], before: Float[Array, ""], watched: Float[Array, ""]
) -> Bool[Array, ""]:
    """Whether the objective hardly changed, or is zero; not after the first iteration."""
    small = (jnp.abs(before - watched) < hyper.tol * before) | (watched < SMALLEST_OBJECTIVE)
    return (n_iter > 0) & small


def graph_embedding(graph: Float[Array, "a n"], n_components: int) -> Float[Array, "n c"]:
    """Leading left singular vectors of Z^T; those beyond the rank of Z, which would be arbitrary, are zero.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.methods.imvc_cbg import graph_embedding
    >>> jnp.abs(graph_embedding(jnp.array([[1.0, 0.0], [0.0, 0.0]]), 2))
    Array([[1., 0.],
           [0., 0.]], dtype=float32)
    """
    left, singular, _ = jnp.linalg.svd(graph.T, full_matrices=False)
    in_range = singular > jnp.finfo(graph.dtype).eps * graph.shape[1] * singular[0]
    return jnp.where(in_range, left, 0)[:, :n_components]


def readout(data: Data, state: State) -> Readout:
    """The embedding of the bipartite graph."""
    return Readout(embedding=graph_embedding(state.graph, data.n_clusters))


IMVC_CBG = Method(
    name="imvc_cbg",
    title="IMVC-CBG",
    Hyper=Hyper,
    Config=Config,
    prepare=prepare,
    init=init,
    step=step,
    settled=settled,
    readout=readout,
    max_iter=51,
    bounds={"lam": Interval(Real, 0, None, closed="left"), "tol": Interval(Real, 0, None, closed="left")},
    check=check,
    random_start=True,
)
"""The record of this method, for :func:`jpltd_jax.loop.run`."""
