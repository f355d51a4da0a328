"""IMVTSC-MVI: incomplete multi-view tensor spectral clustering with missing-view inferring.

The model (Wen, Zhang, Zhang, Zhu, Fei, Zhang, Xu, "Unified tensor framework for incomplete multi-view clustering and
missing-view inferring", AAAI 2021, 35(11), 10273-10281)::

    min  sum_v lambda1 ||E^v||_F^2 + lambda2 ||B^v||_1 + lambda3 ||Z^v - mean_u Z^u||_F^2  +  ||Z||_*
    s.t. Y^v = Y^v Z^v + B^v,   Z^v >= 0,   diag Z^v = 0,   Z^v 1 = 1

with Y^v the (d_v, n) samples of view v, in which the columns E^v stand for the missing ones, and ||.||_* the tensor
nuclear norm of :func:`jpltd_jax.tensor.tensor_nuclear_norm` of Z as (view, i, j), transformed along j. Solved by ADMM
with the split Z = P. Everything but :func:`fit` is pure; :class:`Hyper` is traced.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, ArrayLike, Bool, Complex, Float, Int

from jpltd_jax.baselines.base import BaselineResult, check_counts, iterate, observed_columns
from jpltd_jax.baselines.graphs import knn_graph, project_rows_on_simplex
from jpltd_jax.prox import Scalar, soft_threshold, tubal_shrink
from jpltd_jax.spectral import Key, affinity, spectral_cluster
from jpltd_jax.transforms import Fourier, Transform

Views = Sequence[Float[Array, "_d_v n"]]


class Hyper(NamedTuple):
    """Hyper-parameters; every field may be a number or, for sweeps, an array.

    Attributes
    ----------
    lambda1
        Weight of the squared norm of the inferred samples.
    lambda2
        Weight of the l1 norm of the representation errors.
    lambda3
        Weight of the deviation of every view's graph from the mean graph.
    mu, mu_max, growth
        Penalty: min(mu_max, mu * growth**t) at iteration t.
    tol
        Stop when the largest absolute entry of both constraint residuals is below this.
    """

    lambda1: Scalar | Array = 1e-5
    lambda2: Scalar | Array = 1e-2
    lambda3: Scalar | Array = 1e-2
    mu: Scalar | Array = 1e-2
    mu_max: Scalar | Array = 1e10
    growth: Scalar | Array = 1.2
    tol: Scalar | Array = 1e-6


class State(NamedTuple):
    """What the next iteration needs. Z, P and A are (view, i, j); E^v is zero in the columns of observed samples."""

    Z: Float[Array, "m n n"]
    P: Float[Array, "m n n"]
    A: Float[Array, "m n n"]
    E: Views
    B: Views
    C: Views
    mu: Float[Array, ""]


class Result(NamedTuple):
    """Outcome of :func:`solve`."""

    affinity: Float[Array, "n n"]
    status: Int[Array, ""]
    """A value of :class:`jpltd_jax.Status`."""
    n_iter: Int[Array, ""]
    history: Float[Array, " max_iter"]
    """Largest absolute entry of the constraint residuals after each iteration; NaN where no iteration was made."""
    state: State


@jax.tree_util.register_static
@dataclass(frozen=True)
class AuthorsFourier:
    """Fourier transform under which odd n is treated as by the authors' program, for comparisons with it.

    For odd n that program thresholds the middle conjugate pair of frequencies twice. Halving these coefficients before
    a threshold and doubling them after it is the same. For even n this is the Fourier transform.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines.imvtsc_mvi import AuthorsFourier
    >>> AuthorsFourier().forward(jnp.array([[1.0, 0.0, 0.0]])).real
    Array([[1. , 0.5]], dtype=float32)
    """

    def forward(self, x: Float[Array, "*batch n"]) -> Complex[Array, "*batch slices"]:
        """rfft(x) with the middle pair of odd n halved."""
        coefficients = Fourier().forward(x)
        return coefficients.at[..., -1].divide(2) if x.shape[-1] % 2 else coefficients

    def inverse(self, y: Complex[Array, "*batch slices"], n: int) -> Float[Array, "*batch n"]:
        """Inverse of ``forward``."""
        return Fourier().inverse(y.at[..., -1].multiply(2) if n % 2 else y, n)

    def multiplicity(self, n: int) -> Float[Array, " slices"]:
        """As of the Fourier transform, with double weight on the middle pair of odd n."""
        multiplicity = Fourier().multiplicity(n)
        return multiplicity.at[-1].multiply(2) if n % 2 else multiplicity


@partial(jax.jit, static_argnames="n_neighbors")
def init(columns: Views, mask: Bool[Array, "n m"], hyper: Hyper, *, n_neighbors: int = 11) -> State:
    """State before the first iteration: the 0/1 neighbour graphs of the observed samples as Z and P, the rest zero.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines import imvtsc_mvi
    >>> state = imvtsc_mvi.init((jnp.eye(3),), jnp.ones((3, 1), bool), imvtsc_mvi.Hyper(), n_neighbors=2)
    >>> state.Z[0]
    Array([[0., 1., 1.],
           [1., 0., 1.],
           [1., 1., 0.]], dtype=float32)
    """
    graphs = jnp.stack([knn_graph(x, mask[:, v], n_neighbors) for v, x in enumerate(columns)])
    zeros = tuple(jnp.zeros_like(x) for x in columns)
    mu = jnp.asarray(hyper.mu, graphs.dtype)
    return State(graphs, graphs, jnp.zeros_like(graphs), zeros, zeros, zeros, mu)


def _solve_ridge(y: Float[Array, "d n"], ridge: Scalar, mu: Scalar, right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """(ridge I + mu y^T y)^-1 right, by the smaller of the d x d and the n x n system."""
    d, n = y.shape
    if d < n:
        small = ridge / mu * jnp.eye(d, dtype=y.dtype) + y @ y.T
        return (right - y.T @ cho_solve(cho_factor(small), y @ right)) / ridge
    return cho_solve(cho_factor(ridge * jnp.eye(n, dtype=y.dtype) + mu * (y.T @ y)), right)


def _update_graphs(columns: Views, hyper: Hyper, state: State) -> Float[Array, "m n n"]:
    m, mu = len(columns), state.mu
    ridge = 2 * hyper.lambda3 * ((m - 1) / m) ** 2 + mu
    others = jnp.sum(state.Z, axis=0) - state.Z
    targets = 2 * hyper.lambda3 * (m - 1) / m**2 * others + mu * state.P - state.A
    unconstrained = []
    for x, e, b, c, target in zip(columns, state.E, state.B, state.C, targets, strict=True):
        y = x + e
        unconstrained.append(_solve_ridge(y, ridge, mu, target + y.T @ (mu * (y - b) + c)))
    off_diagonal = ~jnp.eye(state.Z.shape[-1], dtype=bool)
    return project_rows_on_simplex(jnp.stack(unconstrained), off_diagonal)


def _infer_missing(
    x: Float[Array, "d n"],
    b: Float[Array, "d n"],
    c: Float[Array, "d n"],
    z: Float[Array, "n n"],
    present: Bool[Array, " n"],
    hyper: Hyper,
    mu: Scalar,
) -> Float[Array, "d n"]:
    """[mu (X Z + B - X) - C] Q^T (2 lambda1 I + mu Q Q^T)^-1 with Q the rows of I - Z of the missing samples.

    The rows of observed samples are kept as zeros: the system then falls apart into that of the missing samples and an
    identity whose right-hand side is zero.
    """
    q = jnp.where(present[:, None], 0, jnp.eye(len(present), dtype=z.dtype) - z)
    system = jnp.diag(jnp.where(present, 1, 2 * hyper.lambda1)) + mu * (q @ q.T)
    right = (mu * (x @ z + b - x) - c) @ q.T
    return cho_solve(cho_factor(system), right.T).T


def step(
    columns: Views, mask: Bool[Array, "n m"], hyper: Hyper, state: State, *, transform: Transform | None = None
) -> tuple[State, Float[Array, ""]]:
    """One ADMM iteration, Z of all views from the old Z, then P, E, B, the multipliers and the penalty.

    Returns the new state and the largest absolute entry of Y - Y Z - B and Z - P.
    """
    mu = state.mu
    with jax.default_matmul_precision("highest"):
        Z = _update_graphs(columns, hyper, state)
        P = tubal_shrink(Z + state.A / mu, 1 / mu, transform=transform)
        E, B, C, misfits = [], [], [], []
        for v, x in enumerate(columns):
            E.append(_infer_missing(x, state.B[v], state.C[v], Z[v], mask[:, v], hyper, mu))
            y = x + E[v]
            represented = y - y @ Z[v]
            B.append(soft_threshold(represented + state.C[v] / mu, hyper.lambda2 / mu))
            misfits.append(represented - B[v])
            C.append(state.C[v] + mu * misfits[v])
    split = Z - P
    residual = jnp.max(jnp.stack([jnp.max(jnp.abs(r)) for r in (split, *misfits)]))
    following = State(
        Z=Z,
        P=P,
        A=state.A + mu * split,
        E=tuple(E),
        B=tuple(B),
        C=tuple(C),
        mu=jnp.minimum(hyper.growth * mu, hyper.mu_max),
    )
    return following, residual


@partial(jax.jit, static_argnames="max_iter")
def _solve(
    columns: Views, mask: Bool[Array, "n m"], hyper: Hyper, start: State, transform: Transform | None, *, max_iter: int
) -> Result:
    def advance(state: State, made: Array, before: Array) -> tuple[State, Array, Array]:
        state, residual = step(columns, mask, hyper, state, transform=transform)
        return state, residual, residual < hyper.tol

    end = iterate(advance, start, jnp.asarray(jnp.nan, start.Z.dtype), max_iter)
    return Result(affinity(end.state.Z), end.status, end.n_iter, end.history, end.state)


def solve(
    columns: Views,
    mask: Bool[Array, "n m"],
    hyper: Hyper,
    start: State,
    *,
    max_iter: int = 120,
    transform: Transform | None = None,
) -> Result:
    """Solve IMVTSC-MVI: one compiled ``lax.while_loop`` of :func:`step`, for any values of ``hyper``.

    Parameters
    ----------
    columns, mask
        From :func:`jpltd_jax.baselines.base.observed_columns`.
    hyper
        Hyper-parameters; to sweep them, ``jax.vmap`` this function over a Hyper of arrays. (The first penalty is taken
        from ``start``.)
    start
        From :func:`init`.
    max_iter
        Largest number of iterations.
    transform
        Transform of the tensor nuclear norm; default: Fourier over the samples, as in the article.

    Notes
    -----
    Per iteration O(sum_v [n^3 + d_v n^2 + min(d_v, n)^3] + m n^2 (m + log n)) operations; the n^3 is a product and a
    Cholesky factor for the missing samples.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.baselines import imvtsc_mvi
    >>> from jpltd_jax.baselines.base import observed_columns
    >>> rng = np.random.default_rng(0)
    >>> columns, mask = observed_columns([rng.normal(size=(16, d)) for d in (8, 5)], None)
    >>> hyper = imvtsc_mvi.Hyper(lambda2=0.1)
    >>> start = imvtsc_mvi.init(columns, mask, hyper, n_neighbors=4)
    >>> imvtsc_mvi.solve(columns, mask, hyper, start).state.Z.sum(axis=2).round(3).max()
    Array(1., dtype=float32)
    """
    hyper = Hyper(*(jnp.asarray(x, start.Z.dtype) for x in hyper))
    return _solve(tuple(columns), mask, hyper, start, transform, max_iter=max_iter)


def _check_options(n: int, n_clusters: int, lambdas: tuple[float, ...], n_neighbors: int) -> None:
    check_counts(n, n_clusters, n_neighbors)
    if lambdas[0] <= 0:
        raise ValueError(f"lambda1 must be positive, got {lambdas[0]}")
    for i, value in enumerate(lambdas[1:], start=2):
        if value < 0:
            raise ValueError(f"lambda{i} must not be negative, got {value}")


def fit(
    views: Sequence[object],
    mask: ArrayLike | None,
    n_clusters: int,
    *,
    key: Key,
    lambda1: float = 1e-5,
    lambda2: float = 1e-2,
    lambda3: float = 1e-2,
    n_neighbors: int = 11,
    max_iter: int = 120,
    tol: float = 1e-6,
    transform: Transform | None = None,
) -> BaselineResult:
    """Cluster by IMVTSC-MVI: self-representation of completed views on a low-rank tensor of stochastic graphs.

    The objective is that of the module; labels are those of spectral clustering of the mean graph.

    Parameters
    ----------
    views
        List of m matrices (n, d_v), samples as rows. A row of NaN is a missing sample.
    mask
        (n, m) bool, True where observed, or None.
    n_clusters
        Number of clusters.
    key
        Random key of the k-means restarts.
    lambda1, lambda2, lambda3
        Weights of inferred samples, errors and disagreement. The defaults are those of the authors' demonstration on
        Caltech101-7. Only ``lambda2`` is sensitive: search it over 1e-3 ... 1.
    n_neighbors
        Size of the neighbourhoods in the graphs that the iteration starts from.
    max_iter, tol
        Stop after ``max_iter`` iterations or when no entry of the constraint residuals exceeds ``tol``.
    transform
        Transform of the tensor nuclear norm; default: Fourier over the samples, as in the article.

    Notes
    -----
    Verified against the authors' program: with :class:`AuthorsFourier` graphs, inferred samples and residuals agree to
    rounding until convergence. Without it an odd number of samples is treated as the model says, not as the program
    does (it shrinks two of the frequencies twice). As in the program, and unlike in the article, rows are projected on
    the simplex exactly, and the threshold is 1/mu. The program and the article both derive the term of lambda3 for one
    view at a time with the mean of all views held half-way; this is kept. Eigenvectors are those of the algebraically
    largest eigenvalues; the program takes the largest magnitudes.

    With a ``lambda2`` that is small for the data the error takes up everything and the graphs stay nearly uniform. With
    the default transform the result depends on the order of the samples. In float32 the residual may stop falling
    above ``tol``; the status then is ``MAX_ITER``.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from jpltd_jax.baselines import imvtsc_mvi
    >>> rng = np.random.default_rng(0)
    >>> views = [np.repeat(rng.normal(size=(2, d)), 8, axis=0) + 0.1 * rng.normal(size=(16, d)) for d in (8, 5)]
    >>> views[0][3] = np.nan
    >>> result = imvtsc_mvi.fit(views, None, 2, key=jax.random.key(0), lambda2=0.1, n_neighbors=4)
    >>> np.bincount(result.labels), bool(result.labels[0] == result.labels[3] != result.labels[8])
    (array([8, 8]), True)
    """
    columns, present = observed_columns(views, mask)
    _check_options(len(present), n_clusters, (lambda1, lambda2, lambda3), n_neighbors)
    hyper = Hyper(lambda1=lambda1, lambda2=lambda2, lambda3=lambda3, tol=tol)
    start = init(tuple(columns), present, hyper, n_neighbors=n_neighbors)
    result = solve(tuple(columns), present, hyper, start, max_iter=max_iter, transform=transform)
    labels = spectral_cluster(key, result.affinity, n_clusters)
    return BaselineResult(labels, result.affinity, None, result.status, result.n_iter, result.history)
