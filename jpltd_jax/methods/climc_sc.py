"""CLIMC-SC (reconstructed): spectral clustering of a consensus graph of the views' neighbour graphs.

The model (after Liu, Teng, Fei, Zhang, Fang, Zhang, Wu, Pattern Recognition 2021), with A^v the neighbour graph of view
v, rows scaled to sum 1, and M^v the pairs of different samples that are both observed in it::

    min_S  sum_v ||M^v * (S - A^v)||_F
    s.t.   S >= 0,  S 1 = 1,  diag S = 0,  s_ij = 0 for samples never observed together

with * entrywise. Labels are those of spectral clustering of (S + S^T) / 2.

Solved by iterative reweighting: w_v = 1 / (2 ||M^v * (S - A^v)||_F), then S minimises the squared norms with these
weights. No iteration raises the objective. O(n^2 (m + log n)) operations per iteration. The run stops when the
objective changes by no more than ``tol`` times itself, which may be in the first iteration.

Reconstruction, not verified. Neither a program nor the text of the article was at hand: this is the smallest model that
fits what other publications say of it, and the defaults are not from the article. Report its scores as "CLIMC-SC
(reconstructed)". CLIMC proper, which adds non-negative factors of the views, is not here.

Pairs of samples that are never observed together have no evidence and are kept out of S; a sample without any partner
has no neighbours in S. Nothing depends on the order of the samples, up to ties between equal distances, or of the
views.

References
----------
Liu, Teng, Fei, Zhang, Fang, Zhang, Wu, "A novel consensus learning approach to incomplete multi-view clustering",
Pattern Recognition 115, 2021, 107890.
"""

from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
from sklearn.utils._param_validation import Interval

from jpltd_jax._types import Key, Scalar, check_count
from jpltd_jax.graphs import knn_graph
from jpltd_jax.linalg import symmetric
from jpltd_jax.loop import Method, Readout
from jpltd_jax.problem import Problem

__all__ = [
    "CLIMC_SC",
    "Config",
    "Data",
    "Hyper",
    "Objective",
    "State",
    "fit_rows",
    "init",
    "prepare",
    "readout",
    "settled",
    "step",
]

SMALLEST_NORM = 1e-12
"""Floor of the norms that the weights of the views divide by."""


class Hyper(NamedTuple):
    """Hyper-parameters; every field may be a number or, for sweeps, an array.

    Attributes
    ----------
    tol
        Stop when the objective changes by no more than this part of itself.
    """

    tol: Scalar | Array = 1e-5


@jax.tree_util.register_static
@dataclass(frozen=True)
class Config:
    """Options.

    Attributes
    ----------
    n_neighbors
        Neighbours of each sample in the graph of each view.
    """

    n_neighbors: int = 10

    def __post_init__(self) -> None:
        check_count("n_neighbors", self.n_neighbors)


class State(NamedTuple):
    """The consensus graph S."""

    graph: Float[Array, "n n"]


class Objective(NamedTuple):
    """The objective before and after an iteration."""

    before: Float[Array, "*history"]
    after: Float[Array, "*history"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Data:
    """The graphs A^v, zero for missing samples, and the pairs M^v."""

    graphs: Float[Array, "m n n"]
    pairs: Bool[Array, "m n n"]
    config: Config = field(metadata={"static": True})


@partial(jax.jit, static_argnames="n_clusters")
def prepare(problem: Problem, n_clusters: int, config: Config) -> Data:
    """Nearest-neighbour graphs of the observed samples of each view, rows scaled to sum 1.

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.methods import climc_sc
    >>> problem = jj.make_problem([[[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]])
    >>> climc_sc.prepare(problem, 2, climc_sc.Config(n_neighbors=1)).graphs[0]
    Array([[0. , 1. , 0. ],
           [0.5, 0. , 0.5],
           [0. , 1. , 0. ]], dtype=float32)
    """
    graphs = jax.vmap(partial(knn_graph, n_neighbors=config.n_neighbors))(problem.data, problem.mask)
    graphs = graphs / jnp.maximum(jnp.sum(graphs, axis=2, keepdims=True), 1)
    seen = problem.mask
    pairs = seen[:, :, None] & seen[:, None, :] & ~jnp.eye(problem.n_samples, dtype=bool)
    return Data(graphs, pairs, config)


@jax.jit
def fit_rows(b: Float[Array, "r n"], omega: Float[Array, "r n"]) -> Float[Array, "r n"]:
    """argmin_S sum_ij omega_ij s_ij^2 / 2 - b_ij s_ij over rows on the simplex with s_ij = 0 where omega_ij = 0.

    s_ij = max(0, (b_ij - eta_i) / omega_ij) with eta_i from the sorted row, O(n log n) each. A row of b may be shifted
    by a constant, which is used to make its largest entry 0. A row with no positive omega is 0.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.methods.climc_sc import fit_rows
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


def _consensus(data: Data, weights: Float[Array, " m"]) -> State:
    """argmin_S sum_v weights_v ||M^v * (S - A^v)||_F^2 over the allowed graphs."""
    weighted = jnp.where(data.pairs, weights[:, None, None], 0)
    return State(fit_rows(jnp.sum(weighted * data.graphs, axis=0), jnp.sum(weighted, axis=0)))


def _misfits(data: Data, state: State) -> Float[Array, " m"]:
    """||M^v * (S - A^v)||_F of every view."""
    return jnp.linalg.norm(jnp.where(data.pairs, state.graph - data.graphs, 0), axis=(1, 2))


def init(key: Key, data: Data, hyper: Hyper) -> State:
    """Consensus graph with equal weights of all views. Nothing is random."""
    m = data.graphs.shape[0]
    return _consensus(data, jnp.full((m,), 1 / m, data.graphs.dtype))


@jax.jit
def step(data: Data, hyper: Hyper, state: State) -> tuple[State, Objective]:
    """One iteration: the weights of the views, then S."""
    misfits = _misfits(data, state)
    following = _consensus(data, 1 / (2 * jnp.maximum(misfits, SMALLEST_NORM)))
    return following, Objective(jnp.sum(misfits), jnp.sum(_misfits(data, following)))


def settled(hyper: Hyper, n_iter: Int[Array, ""], before: Objective, watched: Objective) -> Bool[Array, ""]:
    """Whether the objective changed by no more than ``tol`` times itself."""
    return jnp.abs(watched.before - watched.after) <= hyper.tol * jnp.abs(watched.before)


def readout(data: Data, state: State) -> Readout:
    """(S + S^T) / 2."""
    return Readout(affinity=symmetric(state.graph))


CLIMC_SC = Method(
    name="climc_sc",
    title="CLIMC-SC",
    Hyper=Hyper,
    Config=Config,
    prepare=prepare,
    init=init,
    step=step,
    settled=settled,
    readout=readout,
    max_iter=100,
    bounds={"tol": Interval(Real, 0, None, closed="left")},
    reconstruction=True,
)
"""The record of this method, for :func:`jpltd_jax.loop.run`."""
