"""UEAF: a common embedding of the views, whose missing samples are inferred along with it.

The model (Wen, Zhang, Xu, Zhang, Fei, Liu, AAAI 2019), for views Y^v completed by inferred samples E^v::

    min  sum_v alpha_v^r ( ||Y^v - U^v P||_F^2 + lam1 tr(E^v^T L_v E^v) + lam2 / 2 sum_ij ||p_i - p_j||^2 s_ij^2 )
         + lam3 tr(F^T lap((S + S^T) / 2) F)
    s.t. U^v^T U^v = I,  F^T F = I,  S >= 0,  S 1 = 1,  diag S = 0,  sum_v alpha_v = 1

with L_v the Laplacian of a graph between the features of view v, P (c, n) the embedding with columns p_i, S (n, n) the
graph of the samples, F (n, c) its spectral embedding and c the number of clusters. lap(A) = diag(A 1) - A. Labels are
those of k-means on the columns of P, scaled to unit length.

An iteration updates P, S, F, then U^v and E^v of every view, then alpha. It takes O(n^3) operations for P and F,
O(n^2 (log n + c)) for S and O(c d_v (n + d_v)) for every view, whose I + lam1 L_v is factored once in O(d_v^3). Missing
samples are inferred in place in (d_v, n) arrays, which equals the authors' products with index matrices. From the third
iteration on the run stops when the objective over the squared norm of the data changes by less than ``tol``.

Verified against the authors' program, from its own start. Known traits of the method that are kept:

* S is the Euclidean projection of an unconstrained minimiser, not the constrained minimiser, so the objective need not
  fall. With lam3 well below lam2 the graph is almost uniform and its spectrum F is sensitive.
* The authors' program has a slip, which ``Config(fixed=True)`` removes: it counts the graph term in the loss of a view
  lam1 times the number of the view's missing samples, and not once, as the objective does. That changes the view
  weights and the stopping test.
* In the graph of features, ties (duplicate or empty features) are broken by the index of the features; a feature is
  never its own neighbour.

Squared distances are clipped at 0, and those of P, which the graph update divides by, at 1e-10. Where the authors'
program would replace NaN in P, the status is NONFINITE. The start is drawn at random as in the authors' program, with
other numbers. Permuting the views, or the samples together with their start, permutes the result.

References
----------
J. Wen, Z. Zhang, Y. Xu, B. Zhang, L. Fei, H. Liu, "Unified embedding alignment with missing views inferring for
incomplete multi-view clustering", AAAI 2019, 33:5393-5400.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Bool, Float, Int
from sklearn.utils._param_validation import Interval

from jpltd_jax._types import Key, Scalar, check_count
from jpltd_jax.graphs import knn_graph
from jpltd_jax.linalg import laplacian, squared_distances, symmetric, unit_rows
from jpltd_jax.loop import Method, Readout
from jpltd_jax.problem import Problem
from jpltd_jax.prox import simplex, stiefel

__all__ = [
    "UEAF",
    "Config",
    "Data",
    "Hyper",
    "State",
    "check",
    "init",
    "prepare",
    "readout",
    "settled",
    "start_from",
    "step",
]

SMALLEST_DISTANCE = 1e-10
"""Floor of the squared distances that the graph update divides by."""


class Hyper(NamedTuple):
    """Hyper-parameters; every field may be a number or, for sweeps, an array.

    The authors' (lam1, lam2, lam3) for the 3Sources data are (1e-1, 1e-2, 1e-5), (1e-2, 1e-1, 1e-5) and
    (1e-5, 1e1, 1e-5) at 10, 30 and 50 % missing; the second is the default.

    Attributes
    ----------
    lam1
        Weight of the smoothness of inferred samples over the features.
    lam2
        Weight of the graph in the embedding, positive.
    lam3
        Weight of the spectral term of the graph.
    r
        Exponent of the view weights, above 1.
    tol
        Stop when the objective over the squared norm of the data changes by less than this.
    """

    lam1: Scalar | Array = 1e-2
    lam2: Scalar | Array = 1e-1
    lam3: Scalar | Array = 1e-5
    r: Scalar | Array = 3.0
    tol: Scalar | Array = 1e-5


@jax.tree_util.register_static
@dataclass(frozen=True)
class Config:
    """Options.

    Attributes
    ----------
    n_neighbors
        Neighbours of a feature in the graph between the features of a view.
    fixed
        Count the graph term once in the loss of every view. False is the authors' slip.

    Examples
    --------
    >>> from jpltd_jax.methods import ueaf
    >>> ueaf.Config(n_neighbors=0)
    Traceback (most recent call last):
    ValueError: n_neighbors must be at least 1, got 0
    """

    n_neighbors: int = 7
    fixed: bool = False

    def __post_init__(self) -> None:
        check_count("n_neighbors", self.n_neighbors)


class State(NamedTuple):
    """Y^v, U^v, P, S, F, alpha, and the upper Cholesky factors of I + lam1 L_v, which stay: a state is of one lam1."""

    completed: tuple[Float[Array, "_d_v n"], ...]
    bases: tuple[Float[Array, "_d_v c"], ...]
    embedding: Float[Array, "c n"]
    graph: Float[Array, "n n"]
    spectrum: Float[Array, "n c"]
    weights: Float[Array, " m"]
    factors: tuple[Float[Array, "_d_v _d_v"], ...]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Data:
    """Columns of the views, their squared norm, the Laplacians L_v and the numbers of missing samples."""

    columns: tuple[Float[Array, "_d_v n"], ...]
    mask: Bool[Array, "m n"]
    laplacians: tuple[Float[Array, "_d_v _d_v"], ...]
    n_missing: Float[Array, " m"]
    energy: Float[Array, ""]
    config: Config = field(metadata={"static": True})
    n_clusters: int = field(metadata={"static": True})


def check(problem: Problem, n_clusters: int, config: Config) -> None:
    """Every view needs n_clusters features and more than n_neighbors of them."""
    for v, d in enumerate(problem.dimensions):
        if d < n_clusters:
            raise ValueError(f"view {v} has {d} features, fewer than n_clusters = {n_clusters}")
        if d <= config.n_neighbors:
            raise ValueError(f"view {v} has {d} features, too few for n_neighbors = {config.n_neighbors}")


def _feature_laplacian(columns: Float[Array, "d n"], n_neighbors: int) -> Float[Array, "d d"]:
    """Laplacian of the graph that joins every feature (row) to its nearest ``n_neighbors`` ones."""
    # XLA would evaluate all that follows from a constant mask while it compiles, which takes it up to a minute.
    present = jax.lax.optimization_barrier(jnp.ones(columns.shape[0], bool))
    return laplacian(knn_graph(columns.T, present, n_neighbors))


@partial(jax.jit, static_argnames="n_clusters")
def prepare(problem: Problem, n_clusters: int, config: Config) -> Data:
    """Columns and the Laplacian of the features of every view.

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.methods import ueaf
    >>> problem = jj.make_problem([[[0.0, 0.6, 0.8], [0.0, 0.0, 1.0]]])
    >>> ueaf.prepare(problem, 2, ueaf.Config(n_neighbors=1)).laplacians[0]
    Array([[ 1., -1.,  0.],
           [-1.,  2., -1.],
           [ 0., -1.,  1.]], dtype=float32)
    """
    columns = problem.columns
    return Data(
        columns=columns,
        mask=problem.mask,
        laplacians=tuple(_feature_laplacian(x, config.n_neighbors) for x in columns),
        n_missing=jnp.sum(~problem.mask, axis=1).astype(columns[0].dtype),
        energy=jnp.stack([jnp.vdot(x, x, precision="highest") for x in columns]).sum(),
        config=config,
        n_clusters=n_clusters,
    )


def _smallest_eigenpairs(
    graph: Float[Array, "n n"], n_components: int
) -> tuple[Float[Array, " c"], Float[Array, "n c"]]:
    values, vectors = jnp.linalg.eigh(laplacian(symmetric(graph)))
    return values[:n_components], vectors[:, :n_components]


@jax.jit
def start_from(
    data: Data,
    hyper: Hyper,
    inferred: Sequence[Float[Array, "_d_v n"]],
    bases: Sequence[Float[Array, "_d_v c"]],
    graph: Float[Array, "n n"],
) -> State:
    """State before the first iteration from what the method draws at random.

    Parameters
    ----------
    data, hyper
        From :func:`prepare`, and the hyper-parameters of the run.
    inferred
        First guess of the missing samples, (d_v, n) each; used where the mask is False.
    bases
        First U^v, with orthonormal columns.
    graph
        Weights whose symmetric part off the diagonal is the first S.
    """
    m, n = data.mask.shape
    dtype = data.energy.dtype
    graph = jnp.where(jnp.eye(n, dtype=bool), 0, symmetric(graph))
    return State(
        completed=tuple(jnp.where(data.mask[v], x, inferred[v]) for v, x in enumerate(data.columns)),
        bases=tuple(bases),
        embedding=jnp.zeros((data.n_clusters, n), dtype),
        graph=graph,
        spectrum=_smallest_eigenpairs(graph, data.n_clusters)[1],
        weights=jnp.full(m, 1 / m, dtype),
        factors=tuple(cho_factor(jnp.eye(len(l), dtype=dtype) + hyper.lam1 * l)[0] for l in data.laplacians),
    )


@jax.jit
def init(key: Key, data: Data, hyper: Hyper) -> State:
    """State before the first iteration from uniform(0, 1) draws."""
    n, dtype = data.mask.shape[1], data.energy.dtype
    graph_key, *keys = jax.random.split(key, 1 + 2 * len(data.columns))
    inferred, bases = [], []
    for x, guess_key, basis_key in zip(data.columns, keys[::2], keys[1::2], strict=True):
        inferred.append(jax.random.uniform(guess_key, x.shape, dtype))
        draw = jax.random.uniform(basis_key, (x.shape[0], data.n_clusters), dtype)
        bases.append(jnp.linalg.svd(draw, full_matrices=False)[0])
    return start_from(data, hyper, inferred, bases, jax.random.uniform(graph_key, (n, n), dtype))


def _update_embedding(state: State, powers: Float[Array, " m"], lam2: Scalar) -> Float[Array, "c n"]:
    """Weighted mean of U^v^T Y^v, smoothed: times (I + lam2 lap(S o S, symmetrised))^-1."""
    terms = [a * (u.T @ y) for a, u, y in zip(powers, state.bases, state.completed, strict=True)]
    mean = sum(terms[1:], start=terms[0]) / jnp.sum(powers)
    smoother = jnp.eye(mean.shape[1], dtype=mean.dtype) + lam2 * laplacian(symmetric(state.graph**2))
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


@jax.jit
def step(data: Data, hyper: Hyper, state: State) -> tuple[State, Float[Array, ""]]:
    """One iteration, P, S, F, then U and E of every view, then alpha, and the normalised objective after it."""
    with jax.default_matmul_precision("highest"):
        powers = state.weights**hyper.r
        embedding = _update_embedding(state, powers, hyper.lam2)
        distances = squared_distances(embedding.T, embedding.T)
        ratio = squared_distances(state.spectrum, state.spectrum) / jnp.maximum(distances, SMALLEST_DISTANCE)
        target = -hyper.lam3 / (2 * hyper.lam2 * jnp.sum(powers)) * ratio
        graph = simplex(target, ~jnp.eye(len(target), dtype=bool))
        eigenvalues, spectrum = _smallest_eigenpairs(graph, data.n_clusters)
        updates = [_update_view(y, data.mask[v], state.factors[v], embedding) for v, y in enumerate(state.completed)]
        completed, bases, losses = zip(*updates, strict=True)
        graph_term = 1.0 if data.config.fixed else hyper.lam1 * data.n_missing
        loss = jnp.stack(losses) + graph_term * hyper.lam2 / 2 * jnp.sum(distances * graph**2)
        loss = jnp.maximum(loss, jnp.finfo(loss.dtype).tiny)
        weights = jax.nn.softmax(jnp.log(loss) / (1 - hyper.r))
        value = (jnp.sum(weights**hyper.r * loss) + hyper.lam3 * jnp.sum(eigenvalues)) / data.energy
    return State(completed, bases, embedding, graph, spectrum, weights, state.factors), value


def settled(
    hyper: Hyper, n_iter: Int[Array, ""], before: Float[Array, ""], watched: Float[Array, ""]
) -> Bool[Array, ""]:
    """Whether, from the third iteration on, the normalised objective changed by less than ``tol``."""
    return (n_iter >= 2) & (jnp.abs(watched - before) < hyper.tol)


def readout(data: Data, state: State) -> Readout:
    """Columns of P as rows of unit length."""
    return Readout(embedding=unit_rows(state.embedding.T))


NOT_NEGATIVE = Interval(Real, 0, None, closed="left")

UEAF = Method(
    name="ueaf",
    title="UEAF",
    Hyper=Hyper,
    Config=Config,
    prepare=prepare,
    init=init,
    step=step,
    settled=settled,
    readout=readout,
    max_iter=50,
    bounds={
        "lam1": NOT_NEGATIVE,
        "lam2": Interval(Real, 0, None, closed="neither"),
        "lam3": NOT_NEGATIVE,
        "r": Interval(Real, 1, None, closed="neither"),
        "tol": NOT_NEGATIVE,
    },
    check=check,
    random_start=True,
)
"""The record of this method, for :func:`jpltd_jax.loop.run`."""
