"""IMVTSC-MVI: stochastic graphs on a low-rank tensor represent the views, and the missing samples are inferred.

The model (Wen, Zhang, Zhang, Zhu, Fei, Zhang, Xu, AAAI 2021)::

    min  sum_v lam1 ||E^v||_F^2 + lam2 ||B^v||_1 + lam3 ||Z^v - mean_u Z^u||_F^2  +  ||Z||_*
    s.t. Y^v = Y^v Z^v + B^v,   Z^v >= 0,   diag Z^v = 0,   Z^v 1 = 1

with Y^v the (d_v, n) samples of view v, in which the columns E^v stand for the missing ones, and ||.||_* the tensor
nuclear norm of :func:`jpltd_jax.tensor.tensor_nuclear_norm` of Z as (view, i, j), transformed along j.

Solved by ADMM with the split Z = P, from the neighbour graphs of the observed samples, until no entry of the constraint
residuals exceeds ``tol``. Labels are those of spectral clustering of the mean graph.

An iteration takes O(sum_v [n^3 + d_v n^2 + min(d_v, n)^3] + m n^2 (m + log n)) operations; the n^3 is a product and a
Cholesky factor for the missing samples.

Verified against the authors' program: with ``fourier="authors"`` graphs, inferred samples and residuals agree to
rounding until convergence. Without it an odd number of samples is treated as the model says, not as the program does
(it shrinks two of the frequencies twice). As in the program, and unlike in the article, rows are projected on the
simplex exactly, and the threshold is 1/mu. The program and the article both derive the term of lam3 for one view at a
time with the mean of all views held half-way; this is kept. Eigenvectors are those of the algebraically largest
eigenvalues; the program takes the largest magnitudes.

With a ``lam2`` that is small for the data the errors take up everything and the graphs stay nearly uniform. The Fourier
transform makes the result depend on the order of the samples; replace ``Data.transform`` for another one. In float32
the residual may stop falling above ``tol``; the status then is ``MAX_ITER``.

References
----------
J. Wen, Z. Zhang, Z. Zhang, L. Zhu, L. Fei, B. Zhang, Y. Xu, "Unified tensor framework for incomplete multi-view
clustering and missing-view inferring", AAAI 2021, 35(11), pp. 10273-10281.
"""

from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Bool, Complex, Float, Int
from sklearn.utils._param_validation import Interval

from jpltd_jax._types import Key, Scalar, check_choice, check_count
from jpltd_jax.graphs import knn_graph
from jpltd_jax.loop import Method, Readout
from jpltd_jax.problem import Problem
from jpltd_jax.prox import simplex, soft_threshold, tubal_shrink
from jpltd_jax.spectral import affinity
from jpltd_jax.transforms import Fourier, SliceTransform, Transform

__all__ = [
    "IMVTSC_MVI",
    "AuthorsFourier",
    "Config",
    "Data",
    "Hyper",
    "State",
    "init",
    "prepare",
    "readout",
    "settled",
    "step",
]

Views = tuple[Float[Array, "_d_v n"], ...]


class Hyper(NamedTuple):
    """Hyper-parameters; every field may be a number or, for sweeps, an array.

    The weights are those of the authors' demonstration on Caltech101-7. Only ``lam2`` is sensitive: search it over
    1e-3 ... 1.

    Attributes
    ----------
    lam1
        Weight of the squared norm of the inferred samples.
    lam2
        Weight of the l1 norm of the representation errors.
    lam3
        Weight of the deviation of every view's graph from the mean graph.
    mu, mu_max, growth
        Penalty: min(mu_max, mu * growth**t) at iteration t.
    tol
        Stop when the largest absolute entry of both constraint residuals is below this.
    """

    lam1: Scalar | Array = 1e-5
    lam2: Scalar | Array = 1e-2
    lam3: Scalar | Array = 1e-2
    mu: Scalar | Array = 1e-2
    mu_max: Scalar | Array = 1e10
    growth: Scalar | Array = 1.2
    tol: Scalar | Array = 1e-6


@jax.tree_util.register_static
@dataclass(frozen=True)
class Config:
    """Options.

    Attributes
    ----------
    n_neighbors
        Size of the neighbourhoods in the graphs that the iteration starts from.
    fourier
        Transform of the tensor nuclear norm: ``"model"``, the Fourier transform over the samples as in the article, or
        ``"authors"``, :class:`AuthorsFourier`. They differ for an odd number of samples only.

    Examples
    --------
    >>> from jpltd_jax.methods import imvtsc_mvi
    >>> imvtsc_mvi.Config(n_neighbors=0)
    Traceback (most recent call last):
    ValueError: n_neighbors must be at least 1, got 0
    """

    n_neighbors: int = 11
    fourier: Literal["model", "authors"] = "model"

    def __post_init__(self) -> None:
        check_count("n_neighbors", self.n_neighbors)
        check_choice("fourier", self.fourier, Literal["model", "authors"])


class State(NamedTuple):
    """What the next iteration needs. Z, P and A are (view, i, j); E^v is zero in the columns of observed samples."""

    Z: Float[Array, "m n n"]
    P: Float[Array, "m n n"]
    A: Float[Array, "m n n"]
    E: Views
    B: Views
    C: Views
    mu: Float[Array, ""]


@jax.tree_util.register_static
@dataclass(frozen=True)
class AuthorsFourier(SliceTransform):
    """Fourier transform under which odd n is treated as by the authors' program, for comparisons with it.

    For odd n that program thresholds the middle conjugate pair of frequencies twice. Halving these coefficients before
    a threshold and doubling them after it is the same. For even n this is the Fourier transform.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.methods.imvtsc_mvi import AuthorsFourier
    >>> AuthorsFourier().slices(jnp.array([[1.0, 0.0, 0.0]])).real
    Array([[1. , 0.5]], dtype=float32)
    """

    def slices(self, x: Float[Array, "*batch n"]) -> Complex[Array, "*batch s"]:
        """rfft(x) with the middle pair of odd n halved."""
        coefficients = Fourier().slices(x)
        return coefficients.at[..., -1].divide(2) if x.shape[-1] % 2 else coefficients

    def join(self, y: Complex[Array, "*batch s"], n: int) -> Float[Array, "*batch n"]:
        """Inverse of ``slices``."""
        return Fourier().join(y.at[..., -1].multiply(2) if n % 2 else y, n)

    def weights(self, n: int) -> Float[Array, " s"]:
        """As of the Fourier transform, with double weight on the middle pair of odd n."""
        weights = Fourier().weights(n)
        return weights.at[-1].multiply(2) if n % 2 else weights


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Data:
    """The views, zero where missing, the 0/1 neighbour graphs of their observed samples, and the transform."""

    columns: Views
    mask: Bool[Array, "m n"]
    graphs: Float[Array, "m n n"]
    transform: Transform
    config: Config = field(metadata={"static": True})
    n_clusters: int = field(metadata={"static": True})


@partial(jax.jit, static_argnames="n_clusters")
def prepare(problem: Problem, n_clusters: int, config: Config) -> Data:
    """The columns of the views and their neighbour graphs."""
    columns = problem.columns
    graphs = [knn_graph(x, present, config.n_neighbors) for x, present in zip(columns, problem.mask, strict=True)]
    transform = Fourier() if config.fourier == "model" else AuthorsFourier()
    return Data(columns, problem.mask, jnp.stack(graphs), transform, config, n_clusters)


def init(key: Key, data: Data, hyper: Hyper) -> State:
    """The neighbour graphs as Z and P, the rest zero; the key is not used.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.methods import imvtsc_mvi
    >>> from jpltd_jax.problem import make_problem
    >>> data = imvtsc_mvi.prepare(make_problem([jnp.eye(3)]), 2, imvtsc_mvi.Config(n_neighbors=2))
    >>> imvtsc_mvi.init(jax.random.key(0), data, imvtsc_mvi.Hyper()).Z[0]
    Array([[0., 1., 1.],
           [1., 0., 1.],
           [1., 1., 0.]], dtype=float32)
    """
    graphs = data.graphs
    zeros = tuple(jnp.zeros_like(x) for x in data.columns)
    return State(graphs, graphs, jnp.zeros_like(graphs), zeros, zeros, zeros, jnp.asarray(hyper.mu, graphs.dtype))


def _solve_ridge(y: Float[Array, "d n"], ridge: Scalar, mu: Scalar, right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """(ridge I + mu y^T y)^-1 right, by the smaller of the d x d and the n x n system."""
    d, n = y.shape
    if d < n:
        small = ridge / mu * jnp.eye(d, dtype=y.dtype) + y @ y.T
        return (right - y.T @ cho_solve(cho_factor(small), y @ right)) / ridge
    return cho_solve(cho_factor(ridge * jnp.eye(n, dtype=y.dtype) + mu * (y.T @ y)), right)


def _update_graphs(data: Data, hyper: Hyper, state: State) -> Float[Array, "m n n"]:
    m, mu = len(data.columns), state.mu
    ridge = 2 * hyper.lam3 * ((m - 1) / m) ** 2 + mu
    others = jnp.sum(state.Z, axis=0) - state.Z
    targets = 2 * hyper.lam3 * (m - 1) / m**2 * others + mu * state.P - state.A
    unconstrained = []
    for x, e, b, c, target in zip(data.columns, state.E, state.B, state.C, targets, strict=True):
        y = x + e
        unconstrained.append(_solve_ridge(y, ridge, mu, target + y.T @ (mu * (y - b) + c)))
    off_diagonal = ~jnp.eye(state.Z.shape[-1], dtype=bool)
    return simplex(jnp.stack(unconstrained), off_diagonal)


def _infer_missing(data: Data, hyper: Hyper, state: State, z: Float[Array, "n n"], v: int) -> Float[Array, "d n"]:
    """[mu (X Z + B - X) - C] Q^T (2 lam1 I + mu Q Q^T)^-1 with Q the rows of I - Z of the missing samples.

    The rows of observed samples are kept as zeros: the system then falls apart into that of the missing samples and an
    identity whose right-hand side is zero.
    """
    x, present, mu = data.columns[v], data.mask[v], state.mu
    q = jnp.where(present[:, None], 0, jnp.eye(len(present), dtype=z.dtype) - z)
    system = jnp.diag(jnp.where(present, 1, 2 * hyper.lam1)) + mu * (q @ q.T)
    right = (mu * (x @ z + state.B[v] - x) - state.C[v]) @ q.T
    return cho_solve(cho_factor(system), right.T).T


@jax.jit
def step(data: Data, hyper: Hyper, state: State) -> tuple[State, Float[Array, ""]]:
    """One iteration, with updates Z (of all views from the old Z), P, E, B, multipliers, penalty.

    Watched is the largest absolute entry of Y - Y Z - B and Z - P.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.methods import imvtsc_mvi
    >>> from jpltd_jax.problem import make_problem
    >>> data, hyper = imvtsc_mvi.prepare(make_problem([jnp.eye(3)]), 2, imvtsc_mvi.Config()), imvtsc_mvi.Hyper()
    >>> imvtsc_mvi.step(data, hyper, imvtsc_mvi.init(jax.random.key(0), data, hyper))[0].Z[0].round(3)
    Array([[0. , 0.5, 0.5],
           [0.5, 0. , 0.5],
           [0.5, 0.5, 0. ]], dtype=float32)
    """
    mu = state.mu
    with jax.default_matmul_precision("highest"):
        Z = _update_graphs(data, hyper, state)
        P = tubal_shrink(Z + state.A / mu, 1 / mu, data.transform)
        E, B, C, misfits = [], [], [], []
        for v, x in enumerate(data.columns):
            E.append(_infer_missing(data, hyper, state, Z[v], v))
            y = x + E[v]
            represented = y - y @ Z[v]
            B.append(soft_threshold(represented + state.C[v] / mu, hyper.lam2 / mu))
            misfits.append(represented - B[v])
            C.append(state.C[v] + mu * misfits[v])
    split = Z - P
    residual = jnp.max(jnp.stack([jnp.max(jnp.abs(r)) for r in (split, *misfits)]))
    raised = jnp.minimum(hyper.growth * mu, hyper.mu_max)
    return State(Z, P, state.A + mu * split, tuple(E), tuple(B), tuple(C), raised), residual


def settled(
    hyper: Hyper, n_iter: Int[Array, ""], before: Float[Array, ""], watched: Float[Array, ""]
) -> Bool[Array, ""]:
    """Whether the residual is below ``tol``."""
    return watched < hyper.tol


def readout(data: Data, state: State) -> Readout:
    """Mean of the graphs, made symmetric."""
    return Readout(affinity=affinity(state.Z))


IMVTSC_MVI = Method(
    name="imvtsc_mvi",
    title="IMVTSC-MVI",
    Hyper=Hyper,
    Config=Config,
    prepare=prepare,
    init=init,
    step=step,
    settled=settled,
    readout=readout,
    max_iter=120,
    bounds={
        "lam1": Interval(Real, 0, None, closed="neither"),
        "lam2": Interval(Real, 0, None, closed="left"),
        "lam3": Interval(Real, 0, None, closed="left"),
        "tol": Interval(Real, 0, None, closed="left"),
    },
)
"""The record of this method, for :func:`jpltd_jax.loop.run`."""
