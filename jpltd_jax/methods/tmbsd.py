"""TMBSD: one embedding from those of the views, whose kernels together are near a low-rank tensor.

The model (Li, Tang, Liu, Zheng, Zhang, Zhu, ICME 2021), for normalised affinities A^v of the observed samples::

    min  -lam1 sum_v tr(H_o^T A_oo H_o) - lam2 tr(F^T sum_v beta_v H^v Q^v) + ||T||_*
    s.t. H_o^T H_o = H_u^T H_u = I for the observed rows o and the missing rows u of every H^v,
         F^T F = I,  Q^v orthogonal,  beta >= 0,  ||beta||_2 = 1,  T^v = H^v H^v^T

with ||.||_* the tensor nuclear norm under the DFT over one sample index. Labels are k-means clusters of the rows of F,
scaled to unit length.

By ADMM with a low-rank copy G of T and its multiplier R: F, Q, H, G, multiplier and penalty, beta. H has no closed
form; an inner solver takes about ten steps. An iteration takes O(m n^2 (log n + m)) operations for G, O(m n^3) with the
DFT over the views, and O(m n^2 c) per inner step. Memory: about eight arrays of the size of G. The growth of the
penalty ends a run after 70 to 85 iterations.

**The result depends on the order of the samples**, because the DFT runs over a sample index, and the published results
were obtained on samples sorted by their true labels. For a fair comparison shuffle the samples first, or take
``Config(transform_over="views")``, a departure from the paper. The views may be permuted; with the DFT over them, if
they are more than three, only by rotation and reversal.

The iteration is verified: from the same start it repeats a recorded run of the authors' code. The objective is the one
stated with that code; the paper's text was not at hand. Kept as in the code although the stated objective says
otherwise: T is made of H but the update of H sees rows of unit length, its quartic term has the sign of a reward, and
its cross terms count once instead of twice. Different from the code: the start is turned towards one view instead of
having random signs.

The authors searched both weights over 0.001 ... 1000. For small ones (10 and less) the inner solver, which need not
descend, may not settle within its 1000 steps; what follows is then sensitive to rounding. ``State.inner_steps`` tells.

float64 is advised: the penalty spans up to ten orders of magnitude, and in float32 the residual stays at a rounding
level of a few 1e-6. There take ``tol=1e-5``, or the run may end with ``MAX_ITER``.

References
----------
Z. Li, C. Tang, X. Liu, X. Zheng, W. Zhang, E. Zhu, "Tensor-based multi-view block-diagonal structure diffusion for
clustering incomplete multi-view data", IEEE International Conference on Multimedia and Expo, 2021.
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
from jpltd_jax.linalg import after, symmetric, unit_rows
from jpltd_jax.loop import Method, Readout
from jpltd_jax.problem import Problem
from jpltd_jax.prox import stiefel, tubal_shrink

__all__ = [
    "INNER_ITERATIONS",
    "TMBSD",
    "Config",
    "Data",
    "Hyper",
    "State",
    "check",
    "init",
    "leading_eigenvectors",
    "minimize_on_frames",
    "normalized_affinities",
    "polar_of_few_rows",
    "prepare",
    "readout",
    "settled",
    "step",
]

TransformOver = Literal["samples", "views"]
SHIFT = 1e-8
"""Added to the diagonal of the observed affinities."""
INNER_ITERATIONS = 1000
"""Largest number of steps of the inner solver."""
REMEMBERED = 5
"""Changes over which the inner solver takes its mean."""


class Hyper(NamedTuple):
    """Hyper-parameters; every field may be a number or, for sweeps, an array.

    Attributes
    ----------
    lam1
        Weight of the affinities of the observed samples.
    lam2
        Weight of the agreement with the consensus F.
    rho, rho_max, growth
        Penalty: min(rho_max, rho * growth**t) at iteration t.
    tol
        Stop when no entry of T differs from its low-rank copy by more than this.
    """

    lam1: Scalar | Array = 100.0
    lam2: Scalar | Array = 100.0
    rho: Scalar | Array = 1e-4
    rho_max: Scalar | Array = 1e6
    growth: Scalar | Array = 1.2
    tol: Scalar | Array = 1e-6


@jax.tree_util.register_static
@dataclass(frozen=True)
class Config:
    """Options; they are static, so each combination is a compiled program of its own.

    Attributes
    ----------
    n_neighbors
        Neighbours in the view graphs; every view needs two observed samples more.
    transform_over
        What the DFT of the tensor nuclear norm runs over. ``"samples"``: one sample index, as in the paper.
        ``"views"``: the views, so that the order of the samples does not matter.

    Examples
    --------
    >>> from jpltd_jax.methods.tmbsd import Config
    >>> Config(n_neighbors=0)
    Traceback (most recent call last):
    ValueError: n_neighbors must be at least 1, got 0
    """

    n_neighbors: int = 15
    transform_over: TransformOver = "samples"

    def __post_init__(self) -> None:
        check_count("n_neighbors", self.n_neighbors)
        check_choice("transform_over", self.transform_over, TransformOver)


class State(NamedTuple):
    """What the next iteration needs, F and the inner steps. G and R are (view, second sample, first sample)."""

    F: Float[Array, "n c"]
    H: Float[Array, "m n c"]
    Q: Float[Array, "m c c"]
    beta: Float[Array, " m"]
    scale: Float[Array, "m n"]
    """1 / ||row of H^v||; zero for missing samples at the start."""
    G: Float[Array, "m n n"]
    R: Float[Array, "m n n"]
    rho: Float[Array, ""]
    inner_steps: Int[Array, "m 2"]
    """Steps of the inner solver for the missing and for the observed rows; INNER_ITERATIONS where it did not settle."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Data:
    """What no hyper-parameter changes."""

    affinities: Float[Array, "m n n"]
    """Zero in rows and columns of missing samples."""
    mask: Bool[Array, "m n"]
    start: Float[Array, "m n c"]
    """First H: rows of missing samples zero, those of observed ones with orthonormal columns."""
    config: Config = field(default=Config(), metadata={"static": True})
    n_clusters: int = field(default=1, metadata={"static": True})


def _transposed(x: Float[Array, "*batch p q"]) -> Float[Array, "*batch q p"]:
    return jnp.swapaxes(x, -1, -2)


def _inverse_length(H: Float[Array, "m n c"]) -> Float[Array, "m n"]:
    return 1 / jnp.sqrt(jnp.sum(H * H, axis=-1) + jnp.finfo(H.dtype).eps)


def normalized_affinities(problem: Problem, n_neighbors: int) -> Float[Array, "m n n"]:
    """D^-1/2 W D^-1/2 of the adaptive-neighbour graph W of the observed samples of every view, zero elsewhere."""
    weights = jax.vmap(partial(adaptive_neighbors, n_neighbors=n_neighbors))(problem.data, problem.mask)
    root = 1 / jnp.sqrt(jnp.sum(weights, axis=1) + jnp.finfo(weights.dtype).eps)
    return root[:, :, None] * weights * root[:, None, :]


@partial(jax.jit, static_argnames="n_clusters")
def leading_eigenvectors(
    affinities: Float[Array, "m n n"], mask: Bool[Array, "m n"], n_clusters: int
) -> Float[Array, "m n c"]:
    """Leading eigenvectors of the affinities, zero for missing samples, turned to those of the most complete view.

    The first iteration adds them up, so that it matters in which basis they come. With every view turned by the polar
    factor of H^v^T H^r towards the view r with most samples it does not matter which one the eigensolver returns.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.methods.tmbsd import leading_eigenvectors
    >>> pair = jnp.array([[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    >>> jnp.abs(leading_eigenvectors(pair, jnp.array([[True, True, False]]), 1)[0, :, 0]).round(3)
    Array([0.707, 0.707, 0.   ], dtype=float32)
    """
    behind_all = jnp.where(mask, 0, -2)[:, :, None] * jnp.eye(mask.shape[1], dtype=affinities.dtype)
    _, vectors = jnp.linalg.eigh(affinities + behind_all)
    leading = jnp.where(mask[:, :, None], vectors[:, :, ::-1][:, :, :n_clusters], 0)
    best = leading[jnp.argmax(jnp.sum(mask, axis=1))]
    with jax.default_matmul_precision("highest"):
        return leading @ stiefel(_transposed(leading) @ best)


def check(problem: Problem, n_clusters: int, config: Config) -> None:
    """Raise unless every view has the samples that its graph and its embedding need."""
    k = config.n_neighbors
    for v, count in enumerate(np.asarray(problem.mask).sum(axis=1)):
        if count < n_clusters:
            raise ValueError(f"view {v} has {count} observed samples, fewer than the {n_clusters} clusters")
        if count < k + 2:
            raise ValueError(f"view {v} has {count} observed samples; {k} neighbours need at least {k + 2}")


@partial(jax.jit, static_argnames="n_clusters")
def prepare(problem: Problem, n_clusters: int, config: Config) -> Data:
    """Make the affinities of every view and their leading eigenvectors.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.methods import tmbsd
    >>> from jpltd_jax.problem import make_problem
    >>> rng = np.random.default_rng(0)
    >>> problem = make_problem([rng.normal(size=(6, 3)), rng.normal(size=(6, 2))])
    >>> tmbsd.prepare(problem, 2, tmbsd.Config(n_neighbors=3)).start.shape
    (2, 6, 2)
    """
    affinities = normalized_affinities(problem, config.n_neighbors)
    start = leading_eigenvectors(affinities, problem.mask, n_clusters)
    return Data(affinities, problem.mask, start, config, n_clusters)


def init(key: Key, data: Data, hyper: Hyper) -> State:
    """State before the first iteration: H from the eigenvectors, no low-rank copy yet. Nothing is random."""
    m, n, c = data.start.shape
    dtype = data.start.dtype
    F, zero = jnp.zeros((n, c), dtype), jnp.zeros((m, n, n), dtype)
    Q, beta = jnp.broadcast_to(jnp.eye(c, dtype=dtype), (m, c, c)), jnp.full((m,), m**-0.5, dtype)
    scale = jnp.where(data.mask, _inverse_length(data.start), 0)
    rho, steps = jnp.asarray(hyper.rho, dtype), jnp.zeros((m, 2), jnp.int32)
    return State(F, data.start, Q, beta, scale, zero, zero, rho, steps)


class _Point(NamedTuple):
    X: Float[Array, "n c"]
    gradient: Float[Array, "n c"]
    projected: Float[Array, "n c"]
    value: Float[Array, ""]


class _Descent(NamedTuple):
    point: _Point
    stride: Float[Array, ""]
    changes: Float[Array, "2 last"]
    """Of X and of the value."""
    step: Int[Array, ""]
    running: Bool[Array, ""]


def _infeasibility(X: Float[Array, "n c"]) -> Float[Array, ""]:
    return jnp.linalg.norm(X.T @ X - jnp.eye(X.shape[1], dtype=X.dtype))


def _orthonormalized(X: Float[Array, "n c"], block: Bool[Array, " n"]) -> Float[Array, "n c"]:
    """Thin QR factor, with R_ii >= 0, of the rows of the block, which the sort moves to the top.

    The sign keeps a frame that is orthonormal up to rounding where it is; turned columns would be another start.
    """
    top_first = jnp.argsort(~block)
    Q, R = jnp.linalg.qr(X[top_first])
    Q = Q * jnp.where(jnp.diagonal(R) < 0, -1, 1)
    return jnp.where(block[:, None], Q[jnp.argsort(top_first)], 0)


@jax.jit
def minimize_on_frames(
    J: Float[Array, "n n"],
    K: Float[Array, "n c"],
    start: Float[Array, "n c"],
    block: Bool[Array, " n"],
) -> tuple[Float[Array, "n c"], Int[Array, ""]]:
    """X = argmin tr(X^T J X) + tr(X^T K) over X^T X = I with rows outside the block zero, and the number of steps.

    By gradient reflection (Gao, Liu, Chen, Yuan, SIAM J. Optim. 28, 2018) with alternating Barzilai-Borwein strides. K
    and ``start`` must be zero outside the block and J must not couple it with the rest; then so is every iterate, which
    makes this equal to the solve with the block's rows alone. A block with fewer than c rows is returned unchanged.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.methods.tmbsd import minimize_on_frames
    >>> K, start = jnp.array([[-3.0], [-4.0], [0.0]]), jnp.array([[1.0], [0.0], [0.0]])
    >>> minimize_on_frames(jnp.zeros((3, 3)), K, start, jnp.array([True, True, False]))[0][:, 0].round(3)
    Array([0.6, 0.8, 0. ], dtype=float32)
    """
    c = start.shape[1]
    size = jnp.sum(block).astype(start.dtype)
    turn = jnp.all((K != 0) | ~block[:, None])

    def tolerance(wanted: float, multiple: int) -> float:
        return max(wanted, multiple * float(jnp.finfo(start.dtype).eps))

    def at(X: Array) -> _Point:
        JX = J @ X
        gradient = 2 * JX + K
        return _Point(X, gradient, gradient - X @ (gradient.T @ X), jnp.sum(X * (JX + K)))

    first = at(jnp.where(_infeasibility(start) > tolerance(1e-13, multiple=10), _orthonormalized(start, block), start))
    first_kkt = jnp.linalg.norm(first.projected)

    def body(now: _Descent) -> _Descent:
        step, before = now.step + 1, now.point
        Y = before.X - now.stride * before.gradient
        X = 2 * Y @ jnp.linalg.solve(Y.T @ Y, Y.T @ before.X) - before.X
        X = jnp.where(_infeasibility(before.X) > tolerance(1e-12, multiple=10), _orthonormalized(X, block), X)
        X = jnp.where(turn, -X @ stiefel(X.T @ K), X)
        point = at(X)
        moved, turned = X - before.X, point.projected - before.projected
        mixed = jnp.abs(jnp.vdot(moved, turned))
        odd, even = mixed / jnp.vdot(turned, turned), jnp.vdot(moved, moved) / mixed
        stride = jnp.clip(jnp.nan_to_num(jnp.where(step % 2 == 1, odd, even)), 1e-10, 1e10)
        x_change = jnp.linalg.norm(moved) / jnp.sqrt(size)
        f_change = jnp.abs(before.value - point.value) / (jnp.abs(before.value) + 1)
        changes = jnp.roll(now.changes, 1, axis=1).at[:, 0].set(jnp.stack([x_change, f_change]))
        mean_x_change, mean_f_change = jnp.sum(changes, axis=1) / jnp.minimum(step, REMEMBERED)
        done = (
            (jnp.linalg.norm(point.projected) <= 1e-5 * first_kkt)
            | ((x_change < tolerance(1e-8, multiple=1)) & (f_change < tolerance(1e-10, multiple=1)))
            | (mean_x_change < tolerance(1e-7, multiple=4)) & (mean_f_change < tolerance(1e-9, multiple=1))
            | ~jnp.isfinite(point.value)
        )
        return _Descent(point, stride, changes, step, ~done)

    stride, blank = jnp.clip(0.01 * first_kkt, 0.1, 1), jnp.zeros((2, REMEMBERED), start.dtype)
    begin = _Descent(first, stride, blank, jnp.asarray(0, jnp.int32), size >= c)
    end = jax.lax.while_loop(lambda now: now.running & (now.step < INNER_ITERATIONS), body, begin)
    return jnp.where(size >= c, end.point.X, start), end.step


@jax.jit
def polar_of_few_rows(M: Float[Array, "n c"], count: Int[Array, ""]) -> Float[Array, "n c"]:
    """Polar factor of the ``count`` rows of M that are not zero, when they are fewer than c: orthonormal rows.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.methods.tmbsd import polar_of_few_rows
    >>> polar_of_few_rows(jnp.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]]), jnp.array(1))[1].round(3)
    Array([0.6, 0.8], dtype=float32)
    """
    u, _, vh = jnp.linalg.svd(M, full_matrices=False)
    return (u * (jnp.arange(M.shape[1]) < count)) @ vh


class _View(NamedTuple):
    """What the update of H reads of one view."""

    affinity: Float[Array, "n n"]
    present: Bool[Array, " n"]
    H: Float[Array, "n c"]
    scale: Float[Array, " n"]
    target: Float[Array, "n n"]
    """G - R / rho."""
    pull: Float[Array, "n c"]
    """F Q^T weighted by lam2 beta."""


def _update_embedding(
    view: _View, lam1: Scalar, rho: Scalar, transform_over: TransformOver
) -> tuple[Float[Array, "n c"], Int[Array, " 2"]]:
    """H of one view: its missing and its observed rows, both from the rows before.

    The missing rows are zero at first, and the inner solver then starts from a frame of the leading ones, as the
    authors' code does; with the DFT over views from the polar factor of -K, the minimiser for the J = 0 of that time,
    which knows no order of the samples.
    """
    _, present, H, scale, target, pull = view
    n, c = H.shape
    scaled = scale[:, None] * H
    twice_scaled = scale[:, None] * scaled
    together = present[:, None] == present
    attraction = rho * scale[:, None] * symmetric(target)
    diffusion = attraction * scale + rho / 2 * twice_scaled @ twice_scaled.T
    observed_part = lam1 * (symmetric(view.affinity) + SHIFT * jnp.diag(present.astype(H.dtype)))
    J = -observed_part - jnp.where(together, diffusion, 0)
    K = -pull - jnp.where(together, 0, attraction) @ scaled
    blocks = jnp.stack([~present, present])
    inside = blocks[:, :, None]
    linear, start = jnp.where(inside, K, 0), jnp.where(inside, H, 0)
    if transform_over == "views":
        start = jnp.where(jnp.all(start == 0, axis=(1, 2), keepdims=True), stiefel(-linear), start)
    (missing, observed), steps = jax.vmap(partial(minimize_on_frames, J))(linear, start, blocks)
    n_missing = n - jnp.sum(present)
    few = polar_of_few_rows(jnp.where(present[:, None], 0, after(pull, observed)), n_missing)
    missing = jnp.where(n_missing < c, few, missing)
    return jnp.where(present[:, None], observed, missing), steps


def _low_rank(T: Float[Array, "m n n"], tau: Scalar, transform_over: TransformOver) -> Float[Array, "m n n"]:
    if transform_over == "samples":
        return tubal_shrink(T, tau)
    return jnp.moveaxis(tubal_shrink(jnp.moveaxis(T, 0, -1), tau), -1, 0)


@jax.jit
def step(data: Data, hyper: Hyper, state: State) -> tuple[State, Float[Array, ""]]:
    """One iteration: F, Q, H, G, multiplier and penalty, beta. Watched is the largest absolute entry of G - T."""
    rho, over = state.rho, data.config.transform_over
    with jax.default_matmul_precision("highest"):
        F = stiefel(jnp.einsum("v,vnc,vcd->nd", state.beta, state.H, state.Q))
        Q = stiefel(_transposed(state.H) @ F)
        pull = hyper.lam2 * state.beta[:, None, None] * (F @ _transposed(Q))
        views = _View(data.affinities, data.mask, state.H, state.scale, state.G - state.R / rho, pull)
        H, steps = jax.vmap(partial(_update_embedding, lam1=hyper.lam1, rho=rho, transform_over=over))(views)
        T = H @ _transposed(H)
        G = _low_rank(T + state.R / rho, 1 / rho, over)
        agreement = jnp.einsum("nd,vnc,vcd->v", F, H, Q)
    after = State(
        F=F,
        H=H,
        Q=Q,
        beta=agreement / jnp.linalg.norm(agreement),
        scale=_inverse_length(H),
        G=G,
        R=state.R + rho * (T - G),
        rho=jnp.minimum(hyper.growth * rho, hyper.rho_max),
        inner_steps=steps,
    )
    gap = jnp.abs(G - T)
    return after, jnp.where(jnp.any(jnp.isnan(gap)), jnp.nan, jnp.max(gap))


def settled(
    hyper: Hyper, n_iter: Int[Array, ""], before: Float[Array, ""], watched: Float[Array, ""]
) -> Bool[Array, ""]:
    """Whether at least three iterations are made and the residual is below tol."""
    return (n_iter >= 2) & (watched < hyper.tol)


def readout(data: Data, state: State) -> Readout:
    """F with rows of unit length."""
    return Readout(embedding=unit_rows(state.F))


TMBSD = Method(
    name="tmbsd",
    title="TMBSD",
    Hyper=Hyper,
    Config=Config,
    prepare=prepare,
    init=init,
    step=step,
    settled=settled,
    readout=readout,
    max_iter=150,
    bounds={"tol": Interval(Real, 0, None, closed="left")},
    check=check,
)
"""The record of this method, for :func:`jpltd_jax.loop.run`."""
