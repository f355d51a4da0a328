"""VCL-IMVC (reconstructed): learns view graphs with a common part, and view embeddings tied by a low-rank tensor.

View-consistency learning for incomplete multi-view clustering, after Lv, Gao, Zhang, Li, Yang, IEEE Trans. Image
Processing 2022. With [C] the block of C of the samples that view v holds::

    min  ||C||_* + lam2 sum_v ||D^v||_F^2 + lam1 sum_v ||E^v||_{2,1}
         + lam3 sum_v tr(F^v^T A^v F^v) + lam4 ||F||_Sp^p
    s.t. X^v = X^v Z^v + E^v,   Z^v = [C] + D^v,   Z^v = W^v,   W^v >= 0,   W^v 1 = 1,   diag W^v = 0,
         C = K,   F = J,   F^v^T F^v = I

A^v is the Laplacian of W^v, symmetrised, on the observed samples and the identity on the missing ones. ||F||_Sp^p adds
the p-th powers of the singular values of the (sample, view) slices of the Fourier transform over the columns of the
embeddings F^v.

This is a RECONSTRUCTION, not the authors' method: neither code nor equations of the paper were at hand. The model is
assembled from what its abstract is known to say and from the habits of related methods, and is not verified: the run
that the tests compare with is one of this reconstruction too. Results must be called those of a reconstruction.

It is solved by the alternating direction method of multipliers. W starts from the graphs of
:func:`jpltd_jax.graphs.adaptive_neighbors`, F from their spectral embeddings. The labels are those of k-means on the
first left singular vectors of [F^1 ... F^m], rows scaled to unit length.

Per iteration O(n^3) operations for K and O(m n^2 (r + 10 c)) for the rest, with r the largest width of a view after
compression.

Precision: the penalty grows to 1e8, which float32 cannot resolve. The method computes in float64 by itself, whatever
JAX's flag ``jax_enable_x64`` says, and its results are float64. With the flag off, sweep it by
``jax.jit(jax.vmap(...))``; ``jax.vmap(jax.jit(...))`` fails, because JAX then batches outside this precision.

Everything is kept on the common sample axis with zeros for what a view does not hold. This is exact: zero columns of
X^v contribute nothing to its products, and all other updates are entrywise or masked. Views with more features than
samples are compressed, which the l2,1 norm does not see.

The Fourier transform over the columns of F depends on their sequence and signs; the signs of the start are fixed for
this reason. Where the eigenvalues of a view's first graph coincide (more connected components than clusters) the start
remains the choice of the eigenvalue routine. Apart from that nothing depends on the order of the samples, and permuting
the views matters only if several views hold the largest number of samples. (The transform does not run over samples or
views.)

References
----------
After Z. Lv, Q. Gao, X. Zhang, Q. Li, M. Yang, "View-Consistency Learning for Incomplete Multiview Clustering", IEEE
Transactions on Image Processing 31, 4790-4802, 2022.
"""

from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Bool, Float, Int
from sklearn.utils._param_validation import Interval

from jpltd_jax._types import Key, Scalar, check_count
from jpltd_jax.graphs import adaptive_neighbors
from jpltd_jax.linalg import after, squared_distances, symmetric, unit_rows
from jpltd_jax.loop import Method, Readout
from jpltd_jax.problem import Problem
from jpltd_jax.prox import schatten_shrink, shrink_columns, simplex, singular_value_threshold, stiefel

__all__ = [
    "VCL_IMVC",
    "Config",
    "Data",
    "Hyper",
    "Residuals",
    "State",
    "first_embeddings",
    "init",
    "joint_embedding",
    "prepare",
    "readout",
    "representation_factor",
    "settled",
    "step",
    "update_embedding",
    "update_representation",
]

FIRST_PENALTY = 1e-2
GROWTH = 1.2
LARGEST_PENALTY = 1e8
POWER_ITERATIONS = 10


class Hyper(NamedTuple):
    """Hyper-parameters; every field may be a number or, for sweeps, an array.

    Attributes
    ----------
    lam1
        Weight of the representation errors.
    lam2
        Weight of the part of a graph that is specific to its view.
    lam3
        Weight of the spectral terms; keep it at 1 or above.
    lam4
        Weight of the tensor norm; keep it at or below lam3.
    p
        Exponent of the tensor Schatten norm, in (0, 1]; 1 is the tensor nuclear norm.
    tol
        Stop when the largest absolute entry of all constraint residuals is below this.
    """

    lam1: Scalar | Array = 10.0
    lam2: Scalar | Array = 1.0
    lam3: Scalar | Array = 1.0
    lam4: Scalar | Array = 1.0
    p: Scalar | Array = 0.5
    tol: Scalar | Array = 1e-6


@jax.tree_util.register_static
@dataclass(frozen=True)
class Config:
    """Options.

    Attributes
    ----------
    n_neighbors
        Neighbours in the graphs that W starts from.
    """

    n_neighbors: int = 9

    def __post_init__(self) -> None:
        check_count("n_neighbors", self.n_neighbors)


class State(NamedTuple):
    """What the next iteration needs: variables, multipliers and penalty, with the names of the model.

    Matrices of observed samples are kept on the common sample axis, with zeros for the missing ones.
    """

    C: Float[Array, "n n"]
    K: Float[Array, "n n"]
    D: Float[Array, "m n n"]
    W: Float[Array, "m n n"]
    E: Float[Array, "m r n"]
    F: Float[Array, "m n c"]
    J: Float[Array, "m n c"]
    Y1: Float[Array, "m r n"]
    Y2: Float[Array, "m n n"]
    Y3: Float[Array, "m n n"]
    Y4: Float[Array, "n n"]
    Y5: Float[Array, "m n c"]
    mu: Float[Array, ""]


class Residuals(NamedTuple):
    """Largest absolute entry of each constraint's residual."""

    errors: Float[Array, ""]
    """X - X Z - E."""
    parts: Float[Array, ""]
    """Z - [C] - D."""
    graphs: Float[Array, ""]
    """Z - W."""
    common: Float[Array, ""]
    """C - K."""
    embeddings: Float[Array, ""]
    """F - J."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Data:
    """Views X^v and mask, the :func:`representation_factor` of X, and the graphs and embeddings to start from."""

    X: Float[Array, "m r n"]
    mask: Bool[Array, "m n"]
    factor: Float[Array, "m r n"]
    graphs: Float[Array, "m n n"]
    embeddings: Float[Array, "m n c"]
    config: Config = field(metadata={"static": True})
    n_clusters: int = field(metadata={"static": True})

    @property
    def pairs(self) -> Bool[Array, "m n n"]:
        """Whether view v holds both samples i and j."""
        return self.mask[:, :, None] & self.mask[:, None, :]


def check(problem: Problem, n_clusters: int, config: Config) -> None:
    """Raise unless every view holds enough samples for its graph and for its embedding."""
    k = config.n_neighbors
    for v, count in enumerate(np.asarray(problem.mask).sum(axis=1)):
        if count < k + 2:
            raise ValueError(f"view {v} has {count} observed samples: a graph of {k} neighbours needs {k + 2}")
        if count < n_clusters:
            raise ValueError(f"view {v} has {count} observed samples, fewer than n_clusters = {n_clusters}")


def first_embeddings(graphs: Float[Array, "m n n"], mask: Bool[Array, "m n"], n_clusters: int) -> Float[Array, "m n c"]:
    """Eigenvectors of the smallest eigenvalues of each view's Laplacian, rotated to those of the fullest view.

    Missing samples get a diagonal entry above all eigenvalues of the observed block, so that the first eigenvectors are
    those of the block alone; their rows are zero. Signs: the entry of largest magnitude is positive.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.methods import vcl_imvc
    >>> path = jnp.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 0]])
    >>> vcl_imvc.first_embeddings(path[None], jnp.array([[True, True, False]]), 1)[0, :2, 0].round(2)
    Array([0.71, 0.71], dtype=float32)
    """
    degree = jnp.sum(graphs, axis=2)
    above_all = 2 * jnp.max(degree, axis=1, keepdims=True) + 1
    diagonal = jnp.where(mask, degree, above_all)
    vectors = jnp.linalg.eigh(jax.vmap(jnp.diag)(diagonal) - graphs)[1][:, :, :n_clusters]
    vectors = jnp.where(mask[:, :, None], vectors, 0)
    # top_k(x, 1), not argmax: JAX lowers argmax by a rule that fails on float64 where the surrounding jit has x64 off.
    _, largest = jax.lax.top_k(jnp.abs(vectors), 1, axis=1)
    vectors = jnp.where(jnp.take_along_axis(vectors, largest, axis=1) < 0, -vectors, vectors)
    _, fullest = jax.lax.top_k(jnp.sum(mask, axis=1), 1)
    return vectors @ stiefel(jnp.swapaxes(vectors, 1, 2) @ vectors[fullest])


def representation_factor(X: Float[Array, "m r n"]) -> Float[Array, "m r n"]:
    """(2 I + X X^T)^-1 X of every view, with which (2 I + X^T X)^-1 R = (R - X^T (factor R)) / 2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.methods import vcl_imvc
    >>> vcl_imvc.representation_factor(jnp.full((1, 1, 2), 1.0))
    Array([[[0.25, 0.25]]], dtype=float32)
    """
    small = 2 * jnp.eye(X.shape[1], dtype=X.dtype) + X @ jnp.swapaxes(X, 1, 2)
    return jax.vmap(lambda matrix, x: cho_solve(cho_factor(matrix), x))(small, X)


@partial(jax.jit, static_argnames="n_clusters")
def prepare(problem: Problem, n_clusters: int, config: Config) -> Data:
    """Build the first graphs and embeddings, and the factor of the least-squares problem."""
    X, mask = problem.data, problem.mask
    graphs = jax.vmap(partial(adaptive_neighbors, n_neighbors=config.n_neighbors))(X, mask)
    embeddings = first_embeddings(graphs, mask, n_clusters)
    return Data(X, mask, representation_factor(after(X, embeddings)), graphs, embeddings, config, n_clusters)


def init(key: Key, data: Data, hyper: Hyper) -> State:
    """W the graphs, F = J the embeddings, all else zero; nothing is random."""
    common, per_view = jnp.zeros_like(data.graphs[0]), jnp.zeros_like(data.graphs)
    errors = jnp.zeros_like(data.X)
    return State(
        C=common,
        K=common,
        D=per_view,
        W=data.graphs,
        E=errors,
        F=data.embeddings,
        J=data.embeddings,
        Y1=errors,
        Y2=per_view,
        Y3=per_view,
        Y4=common,
        Y5=jnp.zeros_like(data.embeddings),
        mu=jnp.asarray(FIRST_PENALTY, data.X.dtype),
    )


def update_representation(data: Data, state: State) -> Float[Array, "m n n"]:
    """Z: least squares over X - X Z - E + Y1/mu, Z - [C] - D + Y2/mu and Z - W + Y3/mu."""
    mu = state.mu
    transposed = jnp.swapaxes(data.X, 1, 2)
    common = jnp.where(data.pairs, state.C, 0)
    targets = common + state.D - state.Y2 / mu + state.W - state.Y3 / mu
    right = transposed @ (data.X - state.E + state.Y1 / mu) + targets
    return (right - transposed @ (data.factor @ right)) / 2


def update_embedding(
    W: Float[Array, "m n n"],
    mask: Bool[Array, "m n"],
    F: Float[Array, "m n c"],
    T: Float[Array, "m n c"],
    lam3: Scalar,
    mu: Scalar,
) -> Float[Array, "m n c"]:
    """Ten power iterations for min lam3 tr(F^T A F) - mu tr(F^T T) over F^T F = I; none raises it.

    A is the Laplacian of the symmetrised W on the observed samples and the identity on the missing ones.
    """
    graph = symmetric(W)
    degree = jnp.sum(graph, axis=2)
    diagonal = jnp.where(mask, degree, 1)[:, :, None]
    bound = 2 * jnp.maximum(jnp.max(degree, axis=1), 0.5)[:, None, None]

    def improve(_: Array, F: Array) -> Array:
        return stiefel(2 * lam3 * ((bound - diagonal) * F + graph @ F) + mu * T)

    return jax.lax.fori_loop(0, POWER_ITERATIONS, improve, F)


@jax.jit
def step(data: Data, hyper: Hyper, state: State) -> tuple[State, Residuals]:
    """One iteration: Z, C, K, D, W, E, F, J, then the multipliers and the penalty; also the residuals."""
    mu, pairs = state.mu, data.pairs
    with jax.default_matmul_precision("highest"):
        Z = update_representation(data, state)
        shifted = Z + state.Y2 / mu
        total = state.K - state.Y4 / mu + jnp.sum(shifted - state.D, axis=0)
        C = total / (jnp.sum(pairs, axis=0) + 1)
        K = singular_value_threshold(C + state.Y4 / mu, 1 / mu)
        common = jnp.where(pairs, C, 0)
        D = mu / (mu + 2 * hyper.lam2) * (shifted - common)
        distances = jax.vmap(squared_distances)(state.F, state.F)
        target = Z + state.Y3 / mu - hyper.lam3 / (2 * mu) * distances
        W = simplex(target, pairs & ~jnp.eye(pairs.shape[1], dtype=bool))
        misfit = data.X - data.X @ Z
        E = shrink_columns(misfit + state.Y1 / mu, hyper.lam1 / mu)
        F = update_embedding(W, data.mask, state.F, state.J - state.Y5 / mu, hyper.lam3, mu)
        views_second = jnp.swapaxes(F + state.Y5 / mu, 0, 1)
        J = jnp.swapaxes(schatten_shrink(views_second, hyper.lam4 / mu, hyper.p), 0, 1)
    residuals = (misfit - E, Z - common - D, Z - W, C - K, F - J)
    multipliers = (state.Y1, state.Y2, state.Y3, state.Y4, state.Y5)
    Y1, Y2, Y3, Y4, Y5 = (Y + mu * residual for Y, residual in zip(multipliers, residuals, strict=True))
    penalty = jnp.minimum(GROWTH * mu, LARGEST_PENALTY)
    following = State(C, K, D, W, E, F, J, Y1, Y2, Y3, Y4, Y5, penalty)
    return following, Residuals(*(jnp.max(jnp.abs(residual)) for residual in residuals))


def settled(hyper: Hyper, n_iter: Int[Array, ""], before: Residuals, watched: Residuals) -> Bool[Array, ""]:
    """Whether the largest residual is below ``tol``."""
    return jnp.max(jnp.stack(watched)) < hyper.tol


def joint_embedding(F: Float[Array, "m n c"]) -> Float[Array, "n c"]:
    """First c left singular vectors of [F^1 ... F^m], rows scaled to unit length.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.methods import vcl_imvc
    >>> jnp.abs(vcl_imvc.joint_embedding(jnp.eye(3, 2)[None])).round(3)
    Array([[1., 0.],
           [0., 1.],
           [0., 0.]], dtype=float32)
    """
    m, n, c = F.shape
    side_by_side = jnp.swapaxes(F, 0, 1).reshape(n, m * c)
    return unit_rows(jnp.linalg.svd(side_by_side, full_matrices=False)[0][:, :c])


def readout(data: Data, state: State) -> Readout:
    """Make the joint embedding of the views."""
    return Readout(embedding=joint_embedding(state.F))


NOT_NEGATIVE = Interval(Real, 0, None, closed="left")

VCL_IMVC = Method(
    name="vcl_imvc",
    title="VCL-IMVC",
    Hyper=Hyper,
    Config=Config,
    prepare=prepare,
    init=init,
    step=step,
    settled=settled,
    readout=readout,
    max_iter=100,
    bounds={
        "lam1": NOT_NEGATIVE,
        "lam2": NOT_NEGATIVE,
        "lam3": NOT_NEGATIVE,
        "lam4": NOT_NEGATIVE,
        "p": Interval(Real, 0, 1, closed="right"),
        "tol": NOT_NEGATIVE,
    },
    check=check,
    needs_x64=True,
    reconstruction=True,
)
"""The record of this method, for :func:`jpltd_jax.loop.run`."""
