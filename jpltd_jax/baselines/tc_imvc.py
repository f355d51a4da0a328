"""TC-IMVC: completion of the view graphs as one low-rank tensor, with a spectral embedding of their mean."""

from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from jpltd_jax.baselines.base import BaselineResult, Solution, check_counts, iterate, observed_columns
from jpltd_jax.baselines.graphs import adaptive_neighbors, project_rows_on_simplex, schatten_shrink
from jpltd_jax.prox import Scalar
from jpltd_jax.spectral import Key, kmeans, squared_distances, unit_rows

Weighting = Literal["affinity", "laplacian"]

FIRST_PENALTY = 1e-4
GROWTH = 1.1

_view_graph = jax.jit(adaptive_neighbors, static_argnums=2)


class Hyper(NamedTuple):
    """Hyper-parameters of :func:`solve`; every field may be a number or, for sweeps, an array.

    Attributes
    ----------
    b
        Weight of the spectral term.
    p
        Exponent of the tensor Schatten norm, in (0, 1].
    r
        Exponent of the view weights, above 1: the larger, the more equal they are.
    tol
        Stop when the changes of Z and M and the gap Z - M are below this in every entry.
    """

    b: Scalar | Array = 0.3
    p: Scalar | Array = 0.6
    r: Scalar | Array = 1.3
    tol: Scalar | Array = 1e-8


class State(NamedTuple):
    """What the next iteration needs; the names are those of the formulas of :func:`fit`."""

    Z: Float[Array, "m n n"]
    M: Float[Array, "m n n"]
    W: Float[Array, "m n n"]
    F: Float[Array, "n c"]
    alpha: Float[Array, " m"]
    Q1: Float[Array, "m n n"]
    Q3: Float[Array, "m n n"]
    Y: Float[Array, "m n n"]
    mu: Float[Array, ""]
    iteration: Int[Array, ""]


class Tensors(NamedTuple):
    """The three tensors of one iteration."""

    Z: Float[Array, "m n n"]
    M: Float[Array, "m n n"]
    W: Float[Array, "m n n"]


def initial_state(graphs: Float[Array, "m n n"], n_clusters: int) -> State:
    """State before the first iteration: Z the given graphs, equal weights, all else zero.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines import tc_imvc
    >>> tc_imvc.initial_state(jnp.ones((2, 5, 5)), 3).F.shape
    (5, 3)
    """
    m, n, _ = graphs.shape
    zero, dtype = jnp.zeros_like(graphs), graphs.dtype
    return State(
        Z=graphs,
        M=zero,
        W=zero,
        F=jnp.zeros((n, n_clusters), dtype),
        alpha=jnp.full(m, 1 / m, dtype),
        Q1=zero,
        Q3=zero,
        Y=zero,
        mu=jnp.asarray(FIRST_PENALTY, dtype),
        iteration=jnp.asarray(0, jnp.int32),
    )


def _pairs(mask: Bool[Array, "n m"]) -> Bool[Array, "m n n"]:
    """Whether view v holds both samples i and j."""
    return mask.T[:, :, None] & mask.T[:, None, :]


def update_tensors(mask: Bool[Array, "n m"], hyper: Hyper, state: State) -> Tensors:
    """Z from its two copies, W by rows on the simplex, M by shrinking the singular values over the views."""
    mu = state.mu
    Z = (state.M - state.Q1 / mu + state.W - state.Q3 / mu) / 2 - jnp.where(_pairs(mask), state.Y, 0) / mu
    strength = state.alpha**hyper.r * (hyper.b / mu)
    target = Z + state.Q3 / mu - strength[:, None, None] * squared_distances(state.F, state.F)
    target = jnp.where(jnp.eye(Z.shape[-1], dtype=bool), 0, target)
    W = project_rows_on_simplex(target, jnp.ones(Z.shape[-1], bool))
    views_last = jnp.moveaxis(Z + state.Q1 / mu, 0, -1)
    M = jnp.moveaxis(schatten_shrink(views_last, 1 / mu, hyper.p), -1, 0)
    return Tensors(Z, M, W)


def consensus_embedding(
    W: Float[Array, "m n n"], alpha: Float[Array, " m"], r: Scalar, n_clusters: int
) -> Float[Array, "n c"]:
    """Eigenvectors of the smallest eigenvalues of the Laplacian of sum_v alpha_v^r W^v, symmetrised."""
    mean = jnp.einsum("v,vij->ij", alpha**r, W)
    mean = (mean + mean.T) / 2
    return jnp.linalg.eigh(jnp.diag(jnp.sum(mean, axis=0)) - mean)[1][:, :n_clusters]


def view_weights(
    W: Float[Array, "m n n"], F: Float[Array, "n c"], r: Scalar, weighting: Weighting = "affinity"
) -> Float[Array, " m"]:
    """alpha_v = h_v^(1 / (1 - r)) / sum_u h_u^(1 / (1 - r)), the minimiser of sum_v alpha_v^r h_v on the simplex.

    h_v = tr(F^T W^v F) for ``"affinity"`` and tr(F^T L(W^v) F) for ``"laplacian"``. An h_v that is not positive counts
    as the machine epsilon.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.baselines import tc_imvc
    >>> W = jnp.stack([jnp.ones((2, 2)), jnp.eye(2) / 2])
    >>> tc_imvc.view_weights(W, jnp.array([[1.0], [1.0]]), 2.0)
    Array([0.2, 0.8], dtype=float32)
    """
    pairs = F @ F.T if weighting == "affinity" else squared_distances(F, F) / 2
    h = jnp.einsum("vij,ij->v", W, pairs)
    return jax.nn.softmax(jnp.log(jnp.maximum(h, jnp.finfo(h.dtype).eps)) / (1 - r))


def finish_step(
    graphs: Float[Array, "m n n"],
    mask: Bool[Array, "n m"],
    hyper: Hyper,
    state: State,
    tensors: Tensors,
    F: Float[Array, "n c"],
    *,
    weighting: Weighting = "affinity",
) -> tuple[State, Float[Array, ""]]:
    """View weights, multipliers and penalty after the tensors and the embedding; also the largest change."""
    Z, M, W = tensors
    mu = state.mu
    gaps = jnp.stack([jnp.max(jnp.abs(x)) for x in (Z - state.Z, M - state.M, Z - M)])
    following = State(
        Z=Z,
        M=M,
        W=W,
        F=F,
        alpha=view_weights(W, F, hyper.r, weighting),
        Q1=state.Q1 + mu * (Z - M),
        Q3=state.Q3 + mu * (Z - W),
        Y=state.Y + mu * jnp.where(_pairs(mask), Z - graphs, 0),
        mu=GROWTH * mu,
        iteration=state.iteration + 1,
    )
    return following, jnp.max(gaps)


def step(
    graphs: Float[Array, "m n n"],
    mask: Bool[Array, "n m"],
    hyper: Hyper,
    state: State,
    *,
    weighting: Weighting = "affinity",
) -> tuple[State, Float[Array, ""]]:
    """One iteration: Z, W, M, F, alpha, then the multipliers and the penalty; also the largest change.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.baselines import tc_imvc
    >>> graphs, mask = jnp.full((1, 3, 3), 0.25), jnp.ones((3, 1), bool)
    >>> state, change = jax.jit(tc_imvc.step)(graphs, mask, tc_imvc.Hyper(), tc_imvc.initial_state(graphs, 2))
    >>> int(state.iteration), float(change)
    (1, 0.25)
    """
    with jax.default_matmul_precision("highest"):
        tensors = update_tensors(mask, hyper, state)
        F = consensus_embedding(tensors.W, state.alpha, hyper.r, state.F.shape[1])
        return finish_step(graphs, mask, hyper, state, tensors, F, weighting=weighting)


@partial(jax.jit, static_argnames=("max_iter", "weighting"))
def _solve(
    graphs: Float[Array, "m n n"],
    mask: Bool[Array, "n m"],
    hyper: Hyper,
    start: State,
    *,
    max_iter: int,
    weighting: Weighting,
) -> Solution:
    def advance(state: State, made: Array, before: Array) -> tuple[State, Array, Array]:
        state, change = step(graphs, mask, hyper, state, weighting=weighting)
        finite = jnp.all(jnp.isfinite(state.F)) & jnp.all(jnp.isfinite(state.alpha))
        return state, jnp.where(finite, change, jnp.nan), change < hyper.tol

    return iterate(advance, start, jnp.asarray(jnp.nan, graphs.dtype), max_iter, n_iter=start.iteration)


def solve(
    graphs: Float[Array, "m n n"],
    mask: Bool[Array, "n m"],
    n_clusters: int,
    hyper: Hyper,
    *,
    max_iter: int = 300,
    weighting: Weighting = "affinity",
    init: State | None = None,
) -> Solution:
    """Complete given graphs: one compiled ``lax.while_loop`` of :func:`step`, for any values of ``hyper``.

    Parameters
    ----------
    graphs, mask
        Symmetric graph of each view, zero where a sample is missing, and which samples (n, m) it holds.
    n_clusters
        Columns of the embedding F.
    hyper
        Hyper-parameters; to sweep them, ``jax.vmap`` this function over a Hyper of arrays.
    max_iter, weighting
        See :func:`fit`.
    init
        State to go on from (of an earlier result); its iterations count towards ``max_iter``.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.baselines import tc_imvc
    >>> graphs, mask = jnp.kron(jnp.eye(2), jnp.ones((2, 2)))[None] / 2, jnp.ones((4, 1), bool)
    >>> run = lambda b: tc_imvc.solve(graphs, mask, 2, tc_imvc.Hyper(b=b), max_iter=20).state.F
    >>> jax.vmap(run)(jnp.array([0.1, 1.0])).shape
    (2, 4, 2)
    """
    _check_weighting(weighting)
    hyper = Hyper(*(jnp.asarray(x, graphs.dtype) for x in hyper))
    start = initial_state(graphs, n_clusters) if init is None else init
    return _solve(graphs, mask, hyper, start, max_iter=max_iter, weighting=weighting)


def _check_weighting(weighting: Weighting) -> None:
    if weighting not in get_args(Weighting):
        raise ValueError(f"weighting must be 'affinity' or 'laplacian', got {weighting!r}")


def _check_input(present: Bool[Array, "n m"], n_clusters: int, n_neighbors: int, b: float, p: float, r: float) -> None:
    n = present.shape[0]
    check_counts(n, n_clusters, n_neighbors)
    for v, count in enumerate(np.asarray(present).sum(axis=0)):
        if count < n_neighbors + 2:
            raise ValueError(
                f"view {v} has {count} observed samples: a graph of {n_neighbors} neighbours needs {n_neighbors + 2}"
            )
    if not (b >= 0 and 0 < p <= 1 and r > 1):
        raise ValueError(f"needs b >= 0, 0 < p <= 1 and r > 1, got b = {b}, p = {p} and r = {r}")


def fit(
    views: Sequence[object],
    mask: ArrayLike | None,
    n_clusters: int,
    *,
    key: Key,
    b: float = 0.3,
    p: float = 0.6,
    r: float = 1.3,
    n_neighbors: int = 9,
    weighting: Weighting = "affinity",
    max_iter: int = 300,
    tol: float = 1e-8,
) -> BaselineResult:
    """Tensor completion-based incomplete multi-view clustering: complete the graphs S^v of the views by the tensor Z.

    Model::

        min  ||Z||_Sp^p + b sum_v alpha_v^r tr(F^T L(W^v) F)
        s.t. Z^v_ij = S^v_ij where view v holds i and j,   Z = W,   W >= 0,   W 1 = 1,
             F^T F = I,   alpha >= 0,   sum_v alpha_v = 1

    ||.||_Sp^p adds the p-th powers of the singular values of the n x n slices of the Fourier transform over the views.
    It is split by M = Z and solved by the alternating direction method of multipliers with a penalty that grows by 1.1
    from 1e-4. The labels are those of k-means on the rows of F, scaled to unit length.

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
    b
        Weight of the spectral term. Large values (3 and more) hurt.
    p
        Exponent of the Schatten norm, in (0, 1]; 1 is the tensor nuclear norm.
    r
        Exponent of the view weights, above 1.
    n_neighbors
        Neighbours in the graphs S^v.
    weighting
        The term that sets the view weights: ``"affinity"`` tr(F^T W^v F), as in the authors' code, which gives less
        weight to views that agree with F; ``"laplacian"`` tr(F^T L(W^v) F), as the model asks.
    max_iter
        Largest number of iterations. The authors allow 500 and ``tol`` is reached at about 475; the labels are
        normally settled by 300.
    tol
        Stop when the changes of Z and M and the gap Z - M are below this in every entry. The gap Z - W is not watched:
        the rows of S^v do not sum to 1, so that the two constraints on Z conflict and it does not vanish.

    Returns
    -------
    BaselineResult
        With F, rows scaled to unit length, as the embedding.

    Notes
    -----
    Verified against the authors' code: given its F for the first 60 iterations, this matches its run. The model is
    inferred from that code; its noise term is left out because it is zero there for every value of its weight. Kept as
    in the code: the multiplier of the known entries enters the update of Z with twice the weight that stationarity
    asks for, and the update of W takes the spectral term with weight 2 b.

    While the penalty is small all W^v are close to the identity and the smallest eigenvalues of their Laplacian
    coincide: F is then the choice of the eigenvalue routine, and different machines give Z that differ by some 1e-2.

    Apart from that choice nothing depends on the order of the samples. The order of the views matters from four views
    on: the Fourier transform over them leaves only cyclic shifts and reversal without effect.

    The penalty grows without bound, which float32 cannot resolve: the method needs x64. Per iteration O(m n^3)
    operations, most of them in m // 2 + 1 singular value decompositions, which are left out as long as all slices are
    below the threshold.

    References
    ----------
    W. Xia, Q. Gao, Q. Wang, X. Gao, "Tensor Completion-Based Incomplete Multiview Clustering", IEEE Transactions on
    Cybernetics 52(12), 2022.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from jpltd_jax.baselines import tc_imvc
    >>> rng = np.random.default_rng(0)
    >>> views = [np.repeat(np.eye(2, d), 8, axis=0) + 0.1 * rng.normal(size=(16, d)) for d in (4, 3)]
    >>> views[0][3] = np.nan
    >>> with jax.enable_x64(True):
    ...     labels = tc_imvc.fit(views, None, 2, key=jax.random.key(0), n_neighbors=4, max_iter=150).labels
    >>> bool((labels[:8] == labels[0]).all() and (labels[8:] == 1 - labels[0]).all())
    True
    """
    if jax.dtypes.canonicalize_dtype(np.float64) != np.float64:
        raise ValueError("tc_imvc is unsound in float32: it needs jax.config.update('jax_enable_x64', True)")
    columns, present = observed_columns(views, mask, dtype=np.float64)
    _check_input(present, n_clusters, n_neighbors, b, p, r)
    graphs = jnp.stack([_view_graph(x, present[:, v], n_neighbors) for v, x in enumerate(columns)])
    result = solve(graphs, present, n_clusters, Hyper(b, p, r, tol), max_iter=max_iter, weighting=weighting)
    embedding = unit_rows(result.state.F)
    labels = kmeans(key, embedding, n_clusters).labels
    return BaselineResult(labels, None, embedding, result.status, result.n_iter, result.history)
