"""VCL-IMVC (reconstructed): view graphs with a common part, and view embeddings tied by a low-rank tensor."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, ArrayLike, Bool, Float

from jpltd_jax.baselines.base import BaselineResult, Solution, iterate
from jpltd_jax.baselines.graphs import adaptive_neighbors, project_rows_on_simplex, schatten_shrink
from jpltd_jax.problem import Problem, make_problem
from jpltd_jax.prox import Scalar, shrink_columns, singular_value_threshold, stiefel
from jpltd_jax.spectral import Key, kmeans, squared_distances, unit_rows

FIRST_PENALTY = 1e-2
GROWTH = 1.2
LARGEST_PENALTY = 1e8
POWER_ITERATIONS = 10


class Hyper(NamedTuple):
    """Hyper-parameters of :func:`solve`; every field may be a number or, for sweeps, an array.

    Attributes
    ----------
    lambda1, lambda2, lambda3, lambda4
        Weights of the representation errors, the specific parts, the spectral terms and the tensor norm.
    p
        Exponent of the tensor Schatten norm, in (0, 1].
    tol
        Stop when the largest absolute entry of all constraint residuals is below this.
    """

    lambda1: Scalar | Array = 10.0
    lambda2: Scalar | Array = 1.0
    lambda3: Scalar | Array = 1.0
    lambda4: Scalar | Array = 1.0
    p: Scalar | Array = 0.5
    tol: Scalar | Array = 1e-6


class State(NamedTuple):
    """What the next iteration needs; the names are those of the formulas of :func:`fit`.

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


def _pairs(mask: Bool[Array, "m n"]) -> Bool[Array, "m n n"]:
    """Whether view v holds both samples i and j."""
    return mask[:, :, None] & mask[:, None, :]


def _symmetric(W: Float[Array, "m n n"]) -> Float[Array, "m n n"]:
    return (W + jnp.swapaxes(W, 1, 2)) / 2


@partial(jax.jit, static_argnames="n_neighbors")
def first_graphs(problem: Problem, n_neighbors: int) -> Float[Array, "m n n"]:
    """Graph of every view by :func:`jpltd_jax.baselines.graphs.adaptive_neighbors`."""
    return jax.vmap(partial(adaptive_neighbors, n_neighbors=n_neighbors))(problem.data, problem.mask)


@partial(jax.jit, static_argnames="n_clusters")
def first_embeddings(graphs: Float[Array, "m n n"], mask: Bool[Array, "m n"], n_clusters: int) -> Float[Array, "m n c"]:
    """Eigenvectors of the smallest eigenvalues of each view's Laplacian, rotated to those of the fullest view.

    Missing samples get a diagonal entry above all eigenvalues of the observed block, so that the first eigenvectors are
    those of the block alone; their rows are zero. Signs: the entry of largest magnitude is positive.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines import vcl_imvc
    >>> path = jnp.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 0]])
    >>> vcl_imvc.first_embeddings(path[None], jnp.array([[True, True, False]]), 1)[0, :2, 0].round(2)
    Array([0.71, 0.71], dtype=float32)
    """
    degree = jnp.sum(graphs, axis=2)
    above_all = 2 * jnp.max(degree, axis=1, keepdims=True) + 1
    diagonal = jnp.where(mask, degree, above_all)
    vectors = jnp.linalg.eigh(jax.vmap(jnp.diag)(diagonal) - graphs)[1][:, :, :n_clusters]
    vectors = jnp.where(mask[:, :, None], vectors, 0)
    largest = jnp.take_along_axis(vectors, jnp.argmax(jnp.abs(vectors), axis=1, keepdims=True), axis=1)
    vectors = jnp.where(largest < 0, -vectors, vectors)
    fullest = vectors[jnp.argmax(jnp.sum(mask, axis=1))]
    return vectors @ stiefel(jnp.swapaxes(vectors, 1, 2) @ fullest)


def initial_state(problem: Problem, graphs: Float[Array, "m n n"], embeddings: Float[Array, "m n c"]) -> State:
    """State before the first iteration: W the graphs, F = J the embeddings, all else zero."""
    common, per_view = jnp.zeros_like(graphs[0]), jnp.zeros_like(graphs)
    data, embedding = jnp.zeros_like(problem.data), jnp.zeros_like(embeddings)
    return State(
        C=common,
        K=common,
        D=per_view,
        W=graphs,
        E=data,
        F=embeddings,
        J=embeddings,
        Y1=data,
        Y2=per_view,
        Y3=per_view,
        Y4=common,
        Y5=embedding,
        mu=jnp.asarray(FIRST_PENALTY, graphs.dtype),
    )


def representation_factor(data: Float[Array, "m r n"]) -> Float[Array, "m r n"]:
    """(2 I + X X^T)^-1 X of every view, with which (2 I + X^T X)^-1 R = (R - X^T (factor R)) / 2."""
    small = 2 * jnp.eye(data.shape[1], dtype=data.dtype) + data @ jnp.swapaxes(data, 1, 2)
    return jax.vmap(lambda matrix, x: cho_solve(cho_factor(matrix), x))(small, data)


def update_representation(problem: Problem, factor: Float[Array, "m r n"], state: State) -> Float[Array, "m n n"]:
    """Z: least squares over X - X Z - E + Y1/mu, Z - [C] - D + Y2/mu and Z - W + Y3/mu."""
    X, mu = problem.data, state.mu
    transposed = jnp.swapaxes(X, 1, 2)
    common = jnp.where(_pairs(problem.mask), state.C, 0)
    targets = common + state.D - state.Y2 / mu + state.W - state.Y3 / mu
    right = transposed @ (X - state.E + state.Y1 / mu) + targets
    return (right - transposed @ (factor @ right)) / 2


def update_embedding(
    W: Float[Array, "m n n"],
    mask: Bool[Array, "m n"],
    F: Float[Array, "m n c"],
    T: Float[Array, "m n c"],
    lambda3: Scalar,
    mu: Scalar,
) -> Float[Array, "m n c"]:
    """Ten power iterations for min lambda3 tr(F^T A F) - mu tr(F^T T) over F^T F = I; none raises it.

    A is the Laplacian of the symmetrised W on the observed samples and the identity on the missing ones.
    """
    graph = _symmetric(W)
    degree = jnp.sum(graph, axis=2)
    diagonal = jnp.where(mask, degree, 1)[:, :, None]
    bound = 2 * jnp.maximum(jnp.max(degree, axis=1), 0.5)[:, None, None]

    def improve(_: Array, F: Array) -> Array:
        return stiefel(2 * lambda3 * ((bound - diagonal) * F + graph @ F) + mu * T)

    return jax.lax.fori_loop(0, POWER_ITERATIONS, improve, F)


def step(
    problem: Problem, hyper: Hyper, factor: Float[Array, "m r n"], state: State
) -> tuple[State, Float[Array, " 5"]]:
    """One iteration: Z, C, K, D, W, E, F, J, then the multipliers and the penalty; also the five residuals.

    ``factor`` is the :func:`representation_factor` of ``problem.data``.
    """
    X, mu = problem.data, state.mu
    pairs = _pairs(problem.mask)
    n = X.shape[2]
    with jax.default_matmul_precision("highest"):
        Z = update_representation(problem, factor, state)
        shifted = Z + state.Y2 / mu
        total = state.K - state.Y4 / mu + jnp.sum(shifted - state.D, axis=0)
        C = total / (jnp.sum(pairs, axis=0) + 1)
        K = singular_value_threshold(C + state.Y4 / mu, 1 / mu)
        common = jnp.where(pairs, C, 0)
        D = mu / (mu + 2 * hyper.lambda2) * (shifted - common)
        distances = jax.vmap(squared_distances)(state.F, state.F)
        target = Z + state.Y3 / mu - hyper.lambda3 / (2 * mu) * distances
        W = project_rows_on_simplex(target, pairs & ~jnp.eye(n, dtype=bool))
        misfit = X - X @ Z
        E = shrink_columns(misfit + state.Y1 / mu, hyper.lambda1 / mu)
        F = update_embedding(W, problem.mask, state.F, state.J - state.Y5 / mu, hyper.lambda3, mu)
        views_second = jnp.swapaxes(F + state.Y5 / mu, 0, 1)
        J = jnp.swapaxes(schatten_shrink(views_second, hyper.lambda4 / mu, hyper.p), 0, 1)
    residuals = (misfit - E, Z - common - D, Z - W, C - K, F - J)
    multipliers = (state.Y1, state.Y2, state.Y3, state.Y4, state.Y5)
    Y1, Y2, Y3, Y4, Y5 = (Y + mu * residual for Y, residual in zip(multipliers, residuals, strict=True))
    penalty = jnp.minimum(GROWTH * mu, LARGEST_PENALTY)
    following = State(C, K, D, W, E, F, J, Y1, Y2, Y3, Y4, Y5, penalty)
    return following, jnp.stack([jnp.max(jnp.abs(residual)) for residual in residuals])


@partial(jax.jit, static_argnames="max_iter")
def _solve(problem: Problem, hyper: Hyper, start: State, *, max_iter: int) -> Solution:
    factor = representation_factor(problem.data)

    def advance(state: State, made: Array, before: Array) -> tuple[State, Array, Array]:
        state, residuals = step(problem, hyper, factor, state)
        return state, residuals, jnp.max(residuals) < hyper.tol

    return iterate(advance, start, jnp.full(5, jnp.nan, problem.data.dtype), max_iter)


def solve(
    problem: Problem,
    graphs: Float[Array, "m n n"],
    embeddings: Float[Array, "m n c"],
    hyper: Hyper,
    *,
    max_iter: int = 100,
) -> Solution:
    """Solve from given graphs and embeddings: one compiled ``lax.while_loop`` of :func:`step`, for any ``hyper``.

    Parameters
    ----------
    problem
        From :func:`jpltd_jax.make_problem`.
    graphs, embeddings
        The start, as from :func:`first_graphs` and :func:`first_embeddings`.
    hyper
        Hyper-parameters; to sweep them, ``jax.vmap`` this function over a Hyper of arrays.
    max_iter
        Largest number of iterations.

    Examples
    --------
    >>> import jax, numpy as np
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.baselines import vcl_imvc
    >>> problem = jj.make_problem([np.random.default_rng(0).normal(size=(8, 3))])
    >>> graphs = vcl_imvc.first_graphs(problem, 3)
    >>> start = vcl_imvc.first_embeddings(graphs, problem.mask, 2)
    >>> run = lambda p: vcl_imvc.solve(problem, graphs, start, vcl_imvc.Hyper(p=p), max_iter=5).state.F
    >>> jax.vmap(run)(np.array([0.5, 1.0])).shape
    (2, 1, 8, 2)
    """
    hyper = Hyper(*(jnp.asarray(x, problem.data.dtype) for x in hyper))
    return _solve(problem, hyper, initial_state(problem, graphs, embeddings), max_iter=max_iter)


def joint_embedding(F: Float[Array, "m n c"]) -> Float[Array, "n c"]:
    """First c left singular vectors of [F^1 ... F^m], rows scaled to unit length.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines import vcl_imvc
    >>> jnp.abs(vcl_imvc.joint_embedding(jnp.eye(3, 2)[None])).round(3)
    Array([[1., 0.],
           [0., 1.],
           [0., 0.]], dtype=float32)
    """
    m, n, c = F.shape
    side_by_side = jnp.swapaxes(F, 0, 1).reshape(n, m * c)
    return unit_rows(jnp.linalg.svd(side_by_side, full_matrices=False)[0][:, :c])


def _check_input(problem: Problem, n_clusters: int, n_neighbors: int, hyper: Hyper) -> None:
    if n_clusters < 1 or n_neighbors < 1:
        raise ValueError(f"n_clusters and n_neighbors must be at least 1, got {n_clusters} and {n_neighbors}")
    for v, count in enumerate(np.asarray(problem.mask).sum(axis=1)):
        if count < n_neighbors + 2:
            raise ValueError(
                f"view {v} has {count} observed samples: a graph of {n_neighbors} neighbours needs {n_neighbors + 2}"
            )
        if count < n_clusters:
            raise ValueError(f"view {v} has {count} observed samples, fewer than n_clusters = {n_clusters}")
    if not (min(hyper[:4]) >= 0 and 0 < hyper.p <= 1):
        raise ValueError(f"needs lambdas of at least 0 and 0 < p <= 1, got {hyper}")


def fit(
    views: Sequence[object],
    mask: ArrayLike | None,
    n_clusters: int,
    *,
    key: Key,
    lambda1: float = 10.0,
    lambda2: float = 1.0,
    lambda3: float = 1.0,
    lambda4: float = 1.0,
    p: float = 0.5,
    n_neighbors: int = 9,
    max_iter: int = 100,
    tol: float = 1e-6,
) -> BaselineResult:
    """View-consistency learning for incomplete multi-view clustering: a RECONSTRUCTION, not the authors' method.

    Model, with [C] the block of C of the samples that view v holds::

        min  ||C||_* + lambda2 sum_v ||D^v||_F^2 + lambda1 sum_v ||E^v||_{2,1}
             + lambda3 sum_v tr(F^v^T A^v F^v) + lambda4 ||F||_Sp^p
        s.t. X^v = X^v Z^v + E^v,   Z^v = [C] + D^v,   Z^v = W^v,   W^v >= 0,   W^v 1 = 1,   diag W^v = 0,
             C = K,   F = J,   F^v^T F^v = I

    A^v is the Laplacian of W^v, symmetrised, on the observed samples and the identity on the missing ones. ||F||_Sp^p
    adds the p-th powers of the singular values of the (sample, view) slices of the Fourier transform over the columns
    of the embeddings F^v. Solved by the alternating direction method of multipliers. The labels are those of k-means on
    the first left singular vectors of [F^1 ... F^m], rows scaled to unit length.

    Parameters
    ----------
    views
        List of m matrices (n, d_v), samples as rows; a row of NaN is a missing sample.
    mask
        (n, m) bool, True where observed, or None.
    n_clusters
        Number of clusters.
    key
        Key of the restarts of k-means.
    lambda1
        Weight of the representation errors.
    lambda2
        Weight of the part of a graph that is specific to its view.
    lambda3
        Weight of the spectral terms; keep it at 1 or above.
    lambda4
        Weight of the tensor norm; keep it at or below lambda3.
    p
        Exponent of the Schatten norm, in (0, 1]; 1 is the tensor nuclear norm.
    n_neighbors
        Neighbours in the graphs that W starts from.
    max_iter
        Largest number of iterations.
    tol
        Stop when the largest absolute entry of all constraint residuals is below this.

    Returns
    -------
    BaselineResult
        With the joint embedding.

    Notes
    -----
    Neither code nor equations of the paper were at hand. The model is assembled from what its abstract is known to say
    and from the habits of related methods, and is not verified: results must be called those of a reconstruction.

    Everything is kept on the common sample axis with zeros for what a view does not hold. This is exact: zero columns
    of X^v contribute nothing to its products, and all other updates are entrywise or masked. Views with more features
    than samples are compressed, which the l2,1 norm does not see.

    The Fourier transform over the columns of F depends on their order and signs; the signs of the start are fixed for
    this reason. Where the eigenvalues of a view's first graph coincide (more connected components than clusters) the
    start remains the choice of the eigenvalue routine. Apart from that nothing depends on the order of the samples, and
    the order of the views matters only if several views hold the largest number of samples. (The transform does not run
    over samples or views.)

    The penalty grows to 1e8, which float32 cannot resolve: the method needs x64. Per iteration O(n^3) operations for K
    and O(m n^2 (r + 10 c)) for the rest, with r the largest width of a view after compression.

    References
    ----------
    After Z. Lv, Q. Gao, X. Zhang, Q. Li, M. Yang, "View-Consistency Learning for Incomplete Multiview Clustering", IEEE
    Transactions on Image Processing 31, 4790-4802, 2022.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from jpltd_jax.baselines import vcl_imvc
    >>> rng = np.random.default_rng(0)
    >>> views = [np.repeat(np.eye(2, d), 8, axis=0) + 0.1 * rng.normal(size=(16, d)) for d in (4, 3)]
    >>> views[0][3] = np.nan
    >>> with jax.enable_x64(True):
    ...     labels = vcl_imvc.fit(views, None, 2, key=jax.random.key(0), n_neighbors=4).labels
    >>> bool((labels[:8] == labels[0]).all() and (labels[8:] == 1 - labels[0]).all())
    True
    """
    if jax.dtypes.canonicalize_dtype(np.float64) != np.float64:
        raise ValueError("vcl_imvc is unsound in float32: it needs jax.config.update('jax_enable_x64', True)")
    problem = make_problem(views, mask, dtype=np.float64)
    hyper = Hyper(lambda1, lambda2, lambda3, lambda4, p, tol)
    _check_input(problem, n_clusters, n_neighbors, hyper)
    graphs = first_graphs(problem, n_neighbors)
    embeddings = first_embeddings(graphs, problem.mask, n_clusters)
    result = solve(problem, graphs, embeddings, hyper, max_iter=max_iter)
    embedding = joint_embedding(result.state.F)
    labels = kmeans(key, embedding, n_clusters).labels
    history = jnp.max(result.history, axis=1)
    return BaselineResult(labels, None, embedding, result.status, result.n_iter, history)
