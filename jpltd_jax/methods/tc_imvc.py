"""TC-IMVC: completes the view graphs as one low-rank tensor, with a spectral embedding of their mean.

Tensor completion-based incomplete multi-view clustering (Xia, Gao, Wang, Gao, IEEE Trans. Cybernetics 2022). The graphs
S^v of the views, known where a view holds both samples, are completed by the tensor Z::

    min  ||Z||_Sp^p + b sum_v alpha_v^r tr(F^T L(W^v) F)
    s.t. Z^v_ij = S^v_ij where view v holds i and j,   Z = W,   W >= 0,   W 1 = 1,
         F^T F = I,   alpha >= 0,   sum_v alpha_v = 1

||.||_Sp^p adds the p-th powers of the singular values of the n x n slices of the Fourier transform over the views. S^v
is the graph of :func:`jpltd_jax.graphs.adaptive_neighbors`.

It is split by M = Z and solved by the alternating direction method of multipliers with a penalty mu that grows by 1.1
from 1e-4. It stops when the changes of Z and M and the gap Z - M are below ``tol`` in every entry. The gap Z - W is not
watched: the rows of S^v do not sum to 1, so the two constraints on Z conflict and it does not vanish. The authors allow
500 iterations and the default ``tol`` is reached at about 475; the labels are normally settled by 300, the default
here. They are those of k-means on the rows of F, scaled to unit length.

Per iteration O(m n^3) operations, most of them in m // 2 + 1 singular value decompositions. These are left out as long
as all slices are below the threshold.

Precision: the penalty grows without bound, which float32 cannot resolve. The method computes in float64 by itself,
whatever JAX's flag ``jax_enable_x64`` says, and its results are float64. With the flag off, sweep it by
``jax.jit(jax.vmap(...))``; ``jax.vmap(jax.jit(...))`` fails, because JAX then batches outside this precision.

Verified against the authors' program: given its F for the first 60 iterations, this matches its run. The model is
inferred from that program. Its noise term is left out because it is zero there for every value of its weight. Kept as
in the program: the multiplier of the known entries enters the update of Z with twice the weight that stationarity asks
for, the update of W takes the spectral term with weight 2 b, and ``weighting="affinity"`` gives less weight to views
that agree with F (``"laplacian"`` is what the model asks).

While the penalty is small all W^v are close to the identity, and the smallest eigenvalues of their Laplacian coincide.
F is then the choice of the eigenvalue routine, and different machines give Z that differ by some 1e-2. Apart from that
choice nothing depends on the order of the samples. Permuting the views matters from four views on: the Fourier
transform over them leaves only cyclic shifts and reversal without effect.

References
----------
W. Xia, Q. Gao, Q. Wang, X. Gao, "Tensor Completion-Based Incomplete Multiview Clustering", IEEE Transactions on
Cybernetics 52(12), 2022.
"""

from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from sklearn.utils._param_validation import Interval

from jpltd_jax._types import Key, Scalar, check_choice, check_count
from jpltd_jax.graphs import adaptive_neighbors
from jpltd_jax.linalg import laplacian, squared_distances, symmetric, unit_rows
from jpltd_jax.loop import Method, Readout
from jpltd_jax.problem import Problem
from jpltd_jax.prox import schatten_shrink, simplex

__all__ = [
    "TC_IMVC",
    "Config",
    "Data",
    "Hyper",
    "State",
    "Tensors",
    "consensus_embedding",
    "finish_step",
    "init",
    "prepare",
    "readout",
    "settled",
    "step",
    "update_tensors",
    "view_weights",
]

Weighting = Literal["affinity", "laplacian"]

FIRST_PENALTY = 1e-4
GROWTH = 1.1


class Hyper(NamedTuple):
    """Hyper-parameters; every field may be a number or, for sweeps, an array.

    Attributes
    ----------
    b
        Weight of the spectral term. Large values (3 and more) hurt.
    p
        Exponent of the tensor Schatten norm, in (0, 1]; 1 is the tensor nuclear norm.
    r
        Exponent of the view weights, above 1: the larger, the more equal they are.
    tol
        Stop when the changes of Z and M and the gap Z - M are below this in every entry.
    """

    b: Scalar | Array = 0.3
    p: Scalar | Array = 0.6
    r: Scalar | Array = 1.3
    tol: Scalar | Array = 1e-8


@jax.tree_util.register_static
@dataclass(frozen=True)
class Config:
    """Options.

    Attributes
    ----------
    n_neighbors
        Neighbours in the graphs S^v.
    weighting
        The term that sets the view weights: ``"affinity"`` tr(F^T W^v F), as in the authors' program, or
        ``"laplacian"`` tr(F^T L(W^v) F), as the model asks.
    """

    n_neighbors: int = 9
    weighting: Weighting = "affinity"

    def __post_init__(self) -> None:
        check_count("n_neighbors", self.n_neighbors)
        check_choice("weighting", self.weighting, Weighting)


class State(NamedTuple):
    """What the next iteration needs: variables, multipliers and penalty, with the names of the model."""

    Z: Float[Array, "m n n"]
    M: Float[Array, "m n n"]
    W: Float[Array, "m n n"]
    F: Float[Array, "n c"]
    alpha: Float[Array, " m"]
    Q1: Float[Array, "m n n"]
    Q3: Float[Array, "m n n"]
    Y: Float[Array, "m n n"]
    mu: Float[Array, ""]


class Tensors(NamedTuple):
    """The three tensors of one iteration."""

    Z: Float[Array, "m n n"]
    M: Float[Array, "m n n"]
    W: Float[Array, "m n n"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Data:
    """Graph S^v of every view, zero where a sample is missing, and whether view v holds both samples i and j."""

    graphs: Float[Array, "m n n"]
    known: Bool[Array, "m n n"]
    config: Config = field(metadata={"static": True})
    n_clusters: int = field(metadata={"static": True})


def check(problem: Problem, n_clusters: int, config: Config) -> None:
    """Raise unless every view holds enough samples for its graph."""
    k = config.n_neighbors
    for v, count in enumerate(np.asarray(problem.mask).sum(axis=1)):
        if count < k + 2:
            raise ValueError(f"view {v} has {count} observed samples: a graph of {k} neighbours needs {k + 2}")


@partial(jax.jit, static_argnames="n_clusters")
def prepare(problem: Problem, n_clusters: int, config: Config) -> Data:
    """Build the graphs of the views."""
    graphs = jax.vmap(partial(adaptive_neighbors, n_neighbors=config.n_neighbors))(problem.data, problem.mask)
    known = problem.mask[:, :, None] & problem.mask[:, None, :]
    return Data(graphs, known, config, n_clusters)


def init(key: Key, data: Data, hyper: Hyper) -> State:
    """Z the given graphs, equal view weights, all else zero; nothing is random."""
    m, n, _ = data.graphs.shape
    zero, dtype = jnp.zeros_like(data.graphs), data.graphs.dtype
    return State(
        Z=data.graphs,
        M=zero,
        W=zero,
        F=jnp.zeros((n, data.n_clusters), dtype),
        alpha=jnp.full(m, 1 / m, dtype),
        Q1=zero,
        Q3=zero,
        Y=zero,
        mu=jnp.asarray(FIRST_PENALTY, dtype),
    )


def update_tensors(data: Data, hyper: Hyper, state: State) -> Tensors:
    """Z from its two copies, W by rows on the simplex, M by shrinking the singular values over the views."""
    mu = state.mu
    Z = (state.M - state.Q1 / mu + state.W - state.Q3 / mu) / 2 - jnp.where(data.known, state.Y, 0) / mu
    strength = state.alpha**hyper.r * (hyper.b / mu)
    target = Z + state.Q3 / mu - strength[:, None, None] * squared_distances(state.F, state.F)
    target = jnp.where(jnp.eye(Z.shape[-1], dtype=bool), 0, target)
    W = simplex(target, jnp.ones(Z.shape[-1], bool))
    views_last = jnp.moveaxis(Z + state.Q1 / mu, 0, -1)
    M = jnp.moveaxis(schatten_shrink(views_last, 1 / mu, hyper.p), -1, 0)
    return Tensors(Z, M, W)


def consensus_embedding(
    W: Float[Array, "m n n"], alpha: Float[Array, " m"], r: Scalar, n_clusters: int
) -> Float[Array, "n c"]:
    """Eigenvectors of the smallest eigenvalues of the Laplacian of sum_v alpha_v^r W^v, symmetrised.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.methods import tc_imvc
    >>> jnp.abs(tc_imvc.consensus_embedding(jnp.ones((1, 2, 2)), jnp.ones(1), 1.3, 1)).round(2)
    Array([[0.71],
           [0.71]], dtype=float32)
    """
    mean = symmetric(jnp.einsum("v,vij->ij", alpha**r, W))
    return jnp.linalg.eigh(laplacian(mean))[1][:, :n_clusters]


def view_weights(
    W: Float[Array, "m n n"], F: Float[Array, "n c"], r: Scalar, weighting: Weighting = "affinity"
) -> Float[Array, " m"]:
    """alpha_v = h_v^(1 / (1 - r)) / sum_u h_u^(1 / (1 - r)), the minimiser of sum_v alpha_v^r h_v on the simplex.

    h_v = tr(F^T W^v F) for ``"affinity"`` and tr(F^T L(W^v) F) for ``"laplacian"``. An h_v that is not positive counts
    as the machine epsilon.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.methods import tc_imvc
    >>> W = jnp.stack([jnp.ones((2, 2)), jnp.eye(2) / 2])
    >>> tc_imvc.view_weights(W, jnp.array([[1.0], [1.0]]), 2.0)
    Array([0.2, 0.8], dtype=float32)
    """
    pairs = F @ F.T if weighting == "affinity" else squared_distances(F, F) / 2
    h = jnp.einsum("vij,ij->v", W, pairs)
    return jax.nn.softmax(jnp.log(jnp.maximum(h, jnp.finfo(h.dtype).eps)) / (1 - r))


def finish_step(
    data: Data, hyper: Hyper, state: State, tensors: Tensors, F: Float[Array, "n c"]
) -> tuple[State, Float[Array, ""]]:
    """View weights, multipliers and penalty after the tensors and the embedding; also the largest change.

    The change is NaN if F or the view weights are not finite.
    """
    Z, M, W = tensors
    mu = state.mu
    alpha = view_weights(W, F, hyper.r, data.config.weighting)
    change = jnp.max(jnp.stack([jnp.max(jnp.abs(x)) for x in (Z - state.Z, M - state.M, Z - M)]))
    finite = jnp.all(jnp.isfinite(F)) & jnp.all(jnp.isfinite(alpha))
    following = State(
        Z=Z,
        M=M,
        W=W,
        F=F,
        alpha=alpha,
        Q1=state.Q1 + mu * (Z - M),
        Q3=state.Q3 + mu * (Z - W),
        Y=state.Y + mu * jnp.where(data.known, Z - data.graphs, 0),
        mu=GROWTH * mu,
    )
    return following, jnp.where(finite, change, jnp.nan)


@jax.jit
def step(data: Data, hyper: Hyper, state: State) -> tuple[State, Float[Array, ""]]:
    """One iteration: Z, W, M, F, alpha, then the multipliers and the penalty; also the largest change.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.methods import tc_imvc
    >>> graphs, known = jnp.full((1, 3, 3), 0.25), jnp.ones((1, 3, 3), bool)
    >>> data, hyper = tc_imvc.Data(graphs, known, tc_imvc.Config(), n_clusters=2), tc_imvc.Hyper()
    >>> state, change = tc_imvc.step(data, hyper, tc_imvc.init(jax.random.key(0), data, hyper))
    >>> state.F.shape, float(change)
    ((3, 2), 0.25)
    """
    with jax.default_matmul_precision("highest"):
        tensors = update_tensors(data, hyper, state)
        F = consensus_embedding(tensors.W, state.alpha, hyper.r, data.n_clusters)
        return finish_step(data, hyper, state, tensors, F)


def settled(
    hyper: Hyper, n_iter: Int[Array, ""], before: Float[Array, ""], watched: Float[Array, ""]
) -> Bool[Array, ""]:
    """Whether the largest change is below ``tol``."""
    return watched < hyper.tol


def readout(data: Data, state: State) -> Readout:
    """F, rows scaled to unit length."""
    return Readout(embedding=unit_rows(state.F))


TC_IMVC = Method(
    name="tc_imvc",
    title="TC-IMVC",
    Hyper=Hyper,
    Config=Config,
    prepare=prepare,
    init=init,
    step=step,
    settled=settled,
    readout=readout,
    max_iter=300,
    bounds={
        "b": Interval(Real, 0, None, closed="left"),
        "p": Interval(Real, 0, 1, closed="right"),
        "r": Interval(Real, 1, None, closed="neither"),
        "tol": Interval(Real, 0, None, closed="left"),
    },
    check=check,
    needs_x64=True,
)
"""The record of this method, for :func:`jpltd_jax.loop.run`."""
