"""HCP-IMSC: affinities that agree among the views and have low tubal rank, with missing samples filled in along them.

The model (Li, Tang, Zheng, Liu, Zhang, Zhu, IEEE TIP 31, 2022), for completed views X^v with missing columns unknown::

    min  sum_v ||X^v - X^v Z^v||^2 + omega_v ||Z^v - R||^2 + lam2 ||Z^v - C^v||^2 + lam1 tr(X^v L X^v^T)
    s.t. Z^v >= 0, symmetric, zero diagonal;  C of tubal rank <= c under the DFT over views

with L a hypergraph Laplacian of the unified affinity R and omega the self-weights of sum_v ||Z^v - R||. Labels are
spectral clusters of R.

An iteration updates the affinities Z, R, the missing samples in X, the low-rank copy C and omega. The first one takes
the Laplacian of a plain graph, and the best C of rank c; the later ones sweep on from the C before. An iteration takes
O(m n^3) operations: the products (Z - I)(Z - I)^T, the Cholesky factors of the completion and one product for the
Laplacian. The affinities take O(m r n^2) and the low-rank copy O(m c n^2). The number of iterations is often what ends
a run. The authors searched both weights over 0.001 ... 50.

The iteration is verified: with ``Config(hyperedge_weights="reference")`` it repeats a recorded run of the authors'
code. The objective is inferred from that code; the paper's text was not at hand. Where this differs from the code:

- hyperedge weights default to the intended form, which does not depend on the order of the samples;
- complete views are left alone (the code stops with an error);
- the weights omega are bounded where Z^v equals R, as with a single view;
- the missing block gets a jitter where it is not numerically positive definite;
- each sample is the first of its own neighbours, also among equal columns of R.

The hyperedges have 10 members as in the code, which means to ask for 15 but misnames the option. Z is projected and the
filled columns are rescaled after their solves, so the objective need not decrease. Because of the DFT over views, up to
three views may be permuted in any way, more of them only by rotation and reversal.

References
----------
Z. Li, C. Tang, X. Zheng, X. Liu, W. Zhang, E. Zhu, "High-order correlation preserved incomplete multi-view subspace
clustering", IEEE Transactions on Image Processing 31, 2022.
"""

from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Complex, Float, Inexact, Int
from sklearn.utils._param_validation import Interval

from jpltd_jax._types import Key, Scalar, check_choice, check_count
from jpltd_jax.graphs import adaptive_neighbors
from jpltd_jax.linalg import after, laplacian, ridge, squared_distances, symmetric
from jpltd_jax.loop import Method, Readout
from jpltd_jax.problem import Problem

__all__ = [
    "HCP_IMSC",
    "Config",
    "Data",
    "Hyper",
    "State",
    "check",
    "complete_views",
    "graph_laplacian",
    "hypergraph_laplacian",
    "init",
    "leading_rows",
    "low_rank_copy",
    "prepare",
    "readout",
    "settled",
    "step",
]

HyperedgeWeights = Literal["own", "reference"]

SMALLEST_NORM = 1e-12


class Hyper(NamedTuple):
    """Hyper-parameters; every field may be a number or, for sweeps, an array.

    Attributes
    ----------
    lam1
        Weight of the hypergraph smoothness of the completed views.
    lam2
        Weight of the distance between the affinities and their low-rank copy.
    tol
        Stop when the objective changes by less than this part of itself.
    """

    lam1: Scalar | Array = 10.0
    lam2: Scalar | Array = 5.0
    tol: Scalar | Array = 1e-4


@jax.tree_util.register_static
@dataclass(frozen=True)
class Config:
    """Options; they are static, so each combination is a compiled program of its own.

    Attributes
    ----------
    n_neighbors
        Neighbours in the graph of the first iteration.
    hyperedge_size
        Samples in a hyperedge of the later iterations, its own one included.
    hyperedge_weights
        ``"own"``, or ``"reference"`` as in the authors' code; see :func:`hypergraph_laplacian`.

    Examples
    --------
    >>> from jpltd_jax.methods.hcp_imsc import Config
    >>> Config(hyperedge_size=1)
    Traceback (most recent call last):
    ValueError: hyperedge_size must be at least 2, got 1
    """

    n_neighbors: int = 15
    hyperedge_size: int = 10
    hyperedge_weights: HyperedgeWeights = "own"

    def __post_init__(self) -> None:
        check_count("n_neighbors", self.n_neighbors)
        check_count("hyperedge_size", self.hyperedge_size, least=2)
        check_choice("hyperedge_weights", self.hyperedge_weights, HyperedgeWeights)


class State(NamedTuple):
    """What the next iteration needs, and Z."""

    X: Float[Array, "m r n"]
    """Completed views, in the coordinates of ``problem.data``."""
    Z: Float[Array, "m n n"]
    C: Float[Array, "m n n"]
    R: Float[Array, "n n"]
    omega: Float[Array, " m"]
    basis: Complex[Array, "slices n c"]
    """Spans the row space of every slice of C's transform; its conjugate transpose is C's right factor."""
    first_laplacian: Float[Array, "n n"]
    first: Bool[Array, ""]
    """Whether the next iteration is the first one."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Data:
    """What no hyper-parameter changes: the observed samples."""

    data: Float[Array, "m r n"]
    mask: Bool[Array, "m n"]
    config: Config = field(default=Config(), metadata={"static": True})
    n_clusters: int = field(default=1, metadata={"static": True})


def check(problem: Problem, n_clusters: int, config: Config) -> None:
    """Raise unless there are samples enough for the neighbours and the hyperedges."""
    check_count("n_neighbors", config.n_neighbors, problem.n_samples - 2)
    check_count("hyperedge_size", config.hyperedge_size, problem.n_samples, least=2)


@partial(jax.jit, static_argnames="n_clusters")
def prepare(problem: Problem, n_clusters: int, config: Config) -> Data:
    """Take the data and the mask as they are: all else changes from one iteration to the next."""
    return Data(problem.data, problem.mask, config, n_clusters)


def _transposed(x: Inexact[Array, "*batch p q"]) -> Inexact[Array, "*batch q p"]:
    return jnp.swapaxes(x, -1, -2)


def _square(x: Float[Array, "m p q"]) -> Float[Array, " m"]:
    return jnp.sum(x * x, axis=(1, 2))


def _affinities(state: State, lam2: Scalar) -> tuple[Float[Array, "m n n"], Float[Array, "n n"]]:
    """Argmin ||X - X Z||^2 + omega ||Z - R||^2 + lam2 ||Z - C||^2, then made symmetric, non-negative, hollow; and R."""
    total = (state.omega + lam2)[:, None, None]
    pull = (state.omega[:, None, None] * state.R + lam2 * _transposed(state.C)) / total
    scaled = state.X / jnp.sqrt(total)
    graph, _ = ridge(scaled, scaled, pull, jnp.ones((scaled.shape[0], scaled.shape[2]), bool))
    Z = jnp.where(jnp.eye(graph.shape[1], dtype=bool), 0, jnp.maximum(symmetric(graph), 0))
    return Z, jnp.tensordot(state.omega / jnp.sum(state.omega), Z, axes=1)


def _self_weights(Z: Float[Array, "m n n"], R: Float[Array, "n n"]) -> Float[Array, " m"]:
    """1/2 ||Z^v - R||^-1, bounded where the two are equal up to rounding."""
    eps = jnp.finfo(R.dtype).eps
    rounding = jnp.sqrt(eps) * jnp.maximum(jnp.linalg.norm(R), 1)
    return 0.5 / (jnp.maximum(jnp.sqrt(_square(Z - R)), rounding) + eps)


def graph_laplacian(R: Float[Array, "n n"], n_neighbors: int) -> Float[Array, "n n"]:
    """D - W of the adaptive-neighbour graph W of the columns of R."""
    return laplacian(adaptive_neighbors(R, jnp.ones(R.shape[0], bool), n_neighbors))


@partial(jax.jit, static_argnames=("hyperedge_size", "hyperedge_weights"))
def hypergraph_laplacian(
    R: Float[Array, "n n"], hyperedge_size: int, hyperedge_weights: HyperedgeWeights = "own"
) -> Float[Array, "n n"]:
    """I - D^-1/2 B diag(w / k) B^T D^-1/2 with D = diag(B w): one hyperedge per column of R.

    Column i of B marks the k = ``hyperedge_size`` columns of R nearest to column i, itself first. With their distances
    d_iq and e_iq = exp(-d_iq^2 / mean(d)^2), w_i = sum_q e_iq (``"own"``); ``"reference"`` takes the entries of the
    flattened e at the *positions* named by the members of hyperedge i, as the authors' graph toolbox does by mistake.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.methods.hcp_imsc import hypergraph_laplacian
    >>> hypergraph_laplacian(jnp.array([[0.0, 1.0], [1.0, 0.0]]), 2).round(3)
    Array([[ 0.5, -0.5],
           [-0.5,  0.5]], dtype=float32)
    """
    n = R.shape[0]
    itself = jnp.eye(n, dtype=bool)
    closeness = -jnp.sqrt(squared_distances(R.T, R.T))
    closest, members = jax.lax.top_k(jnp.where(itself, jnp.inf, closeness), hyperedge_size)
    distances = jnp.where(jnp.isinf(closest), 0, -closest)
    scale = jnp.mean(distances)
    kernel = jnp.exp(-((distances / jnp.where(scale == 0, 1, scale)) ** 2))
    weights = jnp.sum(kernel if hyperedge_weights == "own" else kernel.ravel()[members], axis=1)
    incidence = jnp.zeros((n, n), R.dtype).at[members, jnp.arange(n)[:, None]].set(1)
    spread = incidence * jnp.sqrt(weights / hyperedge_size) / jnp.sqrt(incidence @ weights)[:, None]
    return itself.astype(R.dtype) - spread @ spread.T


def _cholesky(matrices: Float[Array, "m n n"], jitter: Float[Array, " m"]) -> Float[Array, "m n n"]:
    """Lower Cholesky factors, of the matrices plus jitter I if they are not numerically positive definite."""
    factors = jnp.linalg.cholesky(matrices)
    shift = jitter[:, None, None] * jnp.eye(matrices.shape[1], dtype=matrices.dtype)
    positive = jnp.all(jnp.isfinite(factors))
    return jax.lax.cond(positive, lambda: factors, lambda: jnp.linalg.cholesky(matrices + shift))


@jax.jit
def complete_views(data: Data, Z: Float[Array, "m n n"], L: Float[Array, "n n"], lam1: Scalar) -> Float[Array, "m r n"]:
    """Argmin ||X - X Z||^2 + lam1 tr(X L X^T) over the missing columns, each then scaled to unit length.

    With M = (Z - I)(Z - I)^T + lam1 L and o, u the observed and missing columns: X_u = -X_o M_ou M_uu^-1. M with the
    rows and columns of o replaced by those of the identity has the inverse M_uu^-1 on u, so that all views share a
    shape whatever the mask; a view with nothing missing is returned as it is.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.methods.hcp_imsc import Data, complete_views
    >>> data = Data(jnp.array([[[0.6, 0.0], [0.8, 0.0]]]), jnp.array([[True, False]]))
    >>> complete_views(data, jnp.zeros((1, 2, 2)), jnp.array([[1.0, -1.0], [-1.0, 1.0]]), 1.0)[0].round(3)
    Array([[0.6, 0.6],
           [0.8, 0.8]], dtype=float32)
    """
    X, missing = data.data, ~data.mask
    eye = jnp.eye(Z.shape[1], dtype=Z.dtype)
    E = Z - eye
    M = E @ _transposed(E) + lam1 * L
    block = jnp.where(missing[:, :, None] & missing[:, None, :], M, eye)
    right = jnp.where(missing[:, None, :], (X @ E) @ _transposed(E) + lam1 * (X @ L), 0)
    jitter = max(1e-10, 10 * float(jnp.finfo(Z.dtype).eps)) * jnp.mean(jnp.diagonal(block, axis1=1, axis2=2), axis=1)
    filled = -_transposed(cho_solve((_cholesky(block, jitter), True), _transposed(right)))
    length = jnp.linalg.norm(filled, axis=1, keepdims=True)
    return X + filled / jnp.maximum(length, SMALLEST_NORM)


def leading_rows(spectrum: Complex[Array, "slices n n"], n_clusters: int) -> Complex[Array, "slices n c"]:
    """Right singular vectors of the largest singular values of every slice."""
    _, _, vh = jnp.linalg.svd(spectrum, full_matrices=False)
    return jnp.conj(_transposed(vh[:, :n_clusters]))


@partial(jax.jit, static_argnames="n_views")
def low_rank_copy(
    spectrum: Complex[Array, "slices n n"], basis: Complex[Array, "slices n c"], n_views: int
) -> tuple[Float[Array, "m n n"], Complex[Array, "slices n c"]]:
    """C with slices Q Q^H S, Q = orth(S basis), for the slices S of the transformed affinities; and the next basis.

    One warm-started subspace iteration per slice, equal to the alternating least-squares sweep of the reference. From
    the leading right singular vectors it gives the best approximation of rank c.
    """
    frame, _ = jnp.linalg.qr(spectrum @ basis)
    coefficients = jnp.conj(_transposed(frame)) @ spectrum
    return jnp.fft.irfft(frame @ coefficients, n=n_views, axis=0), jnp.conj(_transposed(coefficients))


def init(key: Key, data: Data, hyper: Hyper) -> State:
    """State before the first iteration: missing samples zero, and the graph and the basis that only it uses.

    Both come from its Z and R, which do not depend on them. Nothing is random.
    """
    m, _, n = data.data.shape
    dtype = data.data.dtype
    zero, omega = jnp.zeros((m, n, n), dtype), jnp.full((m,), 1 / m, dtype)
    basis = jnp.zeros((m // 2 + 1, n, data.n_clusters), jnp.result_type(dtype, jnp.complex64))
    state = State(data.data, zero, zero, zero[0], omega, basis, zero[0], jnp.asarray(True))
    with jax.default_matmul_precision("highest"):
        Z, R = _affinities(state, hyper.lam2)
        basis = leading_rows(jnp.fft.rfft(Z, axis=0), data.n_clusters)
        return state._replace(basis=basis, first_laplacian=graph_laplacian(R, data.config.n_neighbors))


@jax.jit
def step(data: Data, hyper: Hyper, state: State) -> tuple[State, Float[Array, ""]]:
    """One iteration: Z, R, X, C, omega. Watched is sum_v ||X^v - X^v Z^v||^2, or NaN where R is not finite."""
    config = data.config
    with jax.default_matmul_precision("highest"):
        Z, R = _affinities(state, hyper.lam2)
        later = hypergraph_laplacian(R, config.hyperedge_size, config.hyperedge_weights)
        X = complete_views(data, Z, jnp.where(state.first, state.first_laplacian, later), hyper.lam1)
        C, basis = low_rank_copy(jnp.fft.rfft(after(Z, X), axis=0), state.basis, len(Z))
        objective = jnp.sum(_square(X - X @ Z))
    following = State(X, Z, C, R, _self_weights(Z, R), basis, state.first_laplacian, jnp.asarray(False))
    return following, jnp.where(jnp.all(jnp.isfinite(R)), objective, jnp.nan)


def settled(
    hyper: Hyper, n_iter: Int[Array, ""], before: Float[Array, ""], watched: Float[Array, ""]
) -> Bool[Array, ""]:
    """Whether at least three iterations are made and |objective - before| / before is below tol."""
    return (n_iter >= 2) & (jnp.abs(watched - before) / before < hyper.tol)


def readout(data: Data, state: State) -> Readout:
    """The unified affinity R; zero for samples without positive correlation."""
    return Readout(affinity=state.R)


HCP_IMSC = Method(
    name="hcp_imsc",
    title="HCP-IMSC",
    Hyper=Hyper,
    Config=Config,
    prepare=prepare,
    init=init,
    step=step,
    settled=settled,
    readout=readout,
    max_iter=20,
    bounds={"tol": Interval(Real, 0, None, closed="left")},
    check=check,
)
"""The record of this method, for :func:`jpltd_jax.loop.run`."""
