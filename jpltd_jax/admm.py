"""JPLTD by the alternating direction method of multipliers.

The model (Lv, Zhang, Li, Jia, Chen, IEEE TNNLS 2023), for views X^v with index matrices A^v::

    min  sum_v ||E^v||_{2,1} + lam ||B||_* + theta ||P||_1
    s.t. E^v = W^v X^v - W^v X^v A^v G^v A^v^T,   W^v W^v^T = I,   G = B + P

with ||.||_* the tensor nuclear norm. Everything here is pure; :class:`Hyper` is traced, so that one compiled program
serves a whole grid of hyper-parameters under ``jax.vmap``.
"""

from enum import IntEnum
from functools import partial
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jpltd_jax.blocks import represent, update_error, update_graph, update_projection
from jpltd_jax.problem import Problem
from jpltd_jax.prox import Scalar, tubal_shrink
from jpltd_jax.spectral import affinity
from jpltd_jax.tensor import tensor_nuclear_norm
from jpltd_jax.transforms import AnyTransform

Variant = Literal["full", "N", "B", "O"]
Order = Literal["paper", "reference"]
NormScale = Literal["mean", "sum"]
Start = Literal["identity", "svd"]


class Status(IntEnum):
    """Why a solve stopped."""

    RUNNING = 0
    CONVERGED = 1
    MAX_ITER = 2
    NONFINITE = 3
    EMPTY = 4
    """The low-rank tensor, and with it the affinity, is zero: lam is too large."""


class Hyper(NamedTuple):
    """Hyper-parameters; every field may be a number or, for sweeps, an array.

    Attributes
    ----------
    lam
        Weight of the tensor nuclear norm.
    theta
        Weight of the sparse tensor's l1 norm (variants full and N).
    rho, rho_max, growth
        Penalty: min(rho_max, rho * growth**t) at iteration t.
    tol
        Stop when the largest absolute entry of both constraint residuals is below this.
    """

    lam: Scalar | Array
    theta: Scalar | Array
    rho: Scalar | Array = 1e-3
    rho_max: Scalar | Array = 1e6
    growth: Scalar | Array = 1.3
    tol: Scalar | Array = 1e-5


class State(NamedTuple):
    """What the next iteration needs. G, B, P, J2 are (view, sample, dictionary)."""

    W: Float[Array, "m k r"]
    G: Float[Array, "m n a"]
    E: Float[Array, "m k n"]
    B: Float[Array, "m n a"]
    P: Float[Array, "m n a"]
    J1: Float[Array, "m k n"]
    J2: Float[Array, "m n a"]
    rho: Float[Array, ""]
    iteration: Int[Array, ""]


class Info(NamedTuple):
    """Largest absolute entries of the two constraint residuals."""

    fit_residual: Float[Array, "*history"]
    """Of W X - W X A G A^T - E."""
    split_residual: Float[Array, "*history"]
    """Of G - B - P."""


class Result(NamedTuple):
    """Outcome of :func:`solve`."""

    affinity: Float[Array, "n a"]
    """See :func:`jpltd_jax.spectral.affinity`."""
    status: Int[Array, ""]
    """A value of :class:`Status`."""
    n_iter: Int[Array, ""]
    history: Info
    """Residuals after each iteration, (max_iter,), NaN where no iteration was made."""
    objective: Float[Array, ""]
    state: State


def _check_choice(name: str, value: str, choices: object) -> None:
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, get_args(choices)))}, got {value!r}")


def _has_projection(variant: Variant) -> bool:
    return variant in ("full", "B")


def _check_start(latent_dim: int | None, variant: Variant, w_init: Start) -> None:
    _check_choice("variant", variant, Variant)
    _check_choice("w_init", w_init, Start)
    if _has_projection(variant) and (latent_dim is None or latent_dim < 1):
        raise ValueError(f"variant {variant!r} needs latent_dim >= 1, got {latent_dim}")


def _has_sparse_part(variant: Variant) -> bool:
    return variant in ("full", "N")


def _latent(problem: Problem, projection: Float[Array, "m k r"], variant: Variant) -> Float[Array, "m k n"]:
    return projection @ problem.data if _has_projection(variant) else problem.data


def as_dtype(hyper: Hyper, dtype: jnp.dtype) -> Hyper:
    """Hyper-parameters as arrays of one dtype, so that numbers and arrays share a compiled program."""
    return Hyper(*(jnp.asarray(x, dtype) for x in hyper))


def first_projection(problem: Problem, latent_dim: int, w_init: Start) -> Float[Array, "m k r"]:
    """Projection to start from, in the coordinates of ``problem.data``.

    ``"identity"`` selects the first latent_dim features of every view, as the authors' code does (by the SVD of a zero
    matrix); ``"svd"`` takes the latent_dim leading left singular vectors of every view. Rows beyond a view's dimension
    are zero.
    """
    m, r, _ = problem.data.shape
    start = jnp.zeros((m, latent_dim, r), problem.data.dtype)
    if w_init == "svd":
        u, _, _ = jnp.linalg.svd(problem.data, full_matrices=False)
        leading = jnp.swapaxes(u, -1, -2)[:, :latent_dim]
        return start.at[:, : leading.shape[1]].set(leading)
    for v, basis in enumerate(problem.bases):
        leading = jnp.eye(latent_dim, r, dtype=start.dtype) if basis is None else basis[:latent_dim]
        start = start.at[v, : leading.shape[0], : leading.shape[1]].set(leading)
    return start


def init(
    problem: Problem,
    hyper: Hyper,
    *,
    latent_dim: int | None = None,
    variant: Variant = "full",
    w_init: Start = "identity",
) -> State:
    """State before the first iteration: all zero but for the projection.

    Variants N and O have no projection: W is the identity and ``latent_dim`` is not used.

    Examples
    --------
    >>> import numpy as np
    >>> import jpltd_jax as jj
    >>> problem = jj.make_problem([np.eye(5), np.ones((5, 2))])
    >>> jj.init(problem, jj.Hyper(lam=1.0, theta=0.1), latent_dim=2).W.shape
    (2, 2, 5)
    """
    _check_start(latent_dim, variant, w_init)
    m, r, n = problem.data.shape
    dtype = problem.data.dtype
    if latent_dim is not None and _has_projection(variant):
        projection = first_projection(problem, latent_dim, w_init)
    else:
        projection = jnp.broadcast_to(jnp.eye(r, dtype=dtype), (m, r, r))
    a = n if problem.anchors is None else len(problem.anchors)
    big, small = jnp.zeros((m, n, a), dtype), jnp.zeros((m, projection.shape[1], n), dtype)
    rho = jnp.asarray(hyper.rho, dtype)
    return State(projection, big, small, big, big, small, big, rho, jnp.asarray(0, jnp.int32))


@partial(jax.jit, static_argnames=("variant", "order", "norm_scale"))
def step(
    problem: Problem,
    hyper: Hyper,
    state: State,
    *,
    variant: Variant = "full",
    order: Order = "paper",
    transform: AnyTransform | None = None,
    norm_scale: NormScale = "mean",
    active: Bool[Array, " k"] | None = None,
) -> tuple[State, Info]:
    """One ADMM iteration: W, G, E, B, P (or W, E, G, B, P), then the multipliers and the penalty.

    Parameters
    ----------
    problem, hyper, state
        Data, hyper-parameters and the previous iterate.
    variant
        ``"full"``; ``"N"`` without projection; ``"B"`` without sparse tensor; ``"O"`` with neither.
    order
        ``"paper"``: G before E; ``"reference"``: E before G, as in the authors' code.
    transform
        Transform of the tensor nuclear norm; default: Fourier over the dictionary samples, as in the paper.
    norm_scale
        ``"mean"``: the norm averages over slices, as the authors' code does and the paper's lam grid assumes;
        ``"sum"``: it adds them up (the paper's Theorem 2), the same as lam * n.
    active
        Rows of W in use, the others being zero in ``state`` too: a smaller latent_dim in arrays of the same shape.

    Examples
    --------
    >>> import numpy as np
    >>> import jpltd_jax as jj
    >>> problem, hyper = jj.make_problem([np.eye(5), np.ones((5, 2))]), jj.Hyper(lam=1.0, theta=0.1)
    >>> state, info = jj.step(problem, hyper, jj.init(problem, hyper, latent_dim=2))
    >>> int(state.iteration), state.B.shape
    (1, (2, 5, 5))
    """
    mask, rho = problem.mask, state.rho
    lam = hyper.lam * state.G.shape[-1] if norm_scale == "sum" else hyper.lam
    inverse = 1 / rho
    scaled_J1 = state.J1 * inverse
    with jax.default_matmul_precision("highest"):
        W, E = state.W, state.E
        if _has_projection(variant):
            apart = None if problem.anchors is None else problem.dictionary.data
            W = update_projection(problem.data, state.G, E - scaled_J1, W, dictionary=apart, active=active)
        latent = _latent(problem, W, variant)
        dictionary = latent if problem.anchors is None else latent[..., problem.anchors]
        if order == "reference":
            E = update_error(latent - represent(dictionary, mask, state.G) + scaled_J1, rho)
        split_target = state.B + state.P - state.J2 * inverse
        G, represented = update_graph(dictionary, mask, latent - E + scaled_J1, split_target)
        if order == "paper":
            E = update_error(latent - represented + scaled_J1, rho)
        shifted = G + state.J2 * inverse
        B = tubal_shrink(shifted - state.P, lam * inverse, transform=transform)
    P, within = state.P, shifted - B - state.P
    if _has_sparse_part(variant):
        bound = hyper.theta * inverse
        within = jnp.clip(shifted - B, -bound, bound)
        P = shifted - B - within
    fit, split = latent - represented - E, G - B - P
    following = State(
        W=W,
        G=G,
        E=E,
        B=B,
        P=P,
        J1=state.J1 + rho * fit,
        J2=rho * within,
        rho=jnp.minimum(hyper.rho_max, hyper.growth * rho),
        iteration=state.iteration + 1,
    )
    return following, Info(jnp.max(jnp.abs(fit)), jnp.max(jnp.abs(split)))


def objective(
    state: State,
    hyper: Hyper,
    *,
    transform: AnyTransform | None = None,
    norm_scale: NormScale = "mean",
) -> Float[Array, ""]:
    """sum_v ||E^v||_{2,1} + lam ||B||_* + theta ||P||_1 of an iterate."""
    lam = hyper.lam * state.B.shape[-1] if norm_scale == "sum" else hyper.lam
    columns = jnp.sum(jnp.linalg.norm(state.E, axis=1))
    return columns + lam * tensor_nuclear_norm(state.B, transform=transform) + hyper.theta * jnp.sum(jnp.abs(state.P))


def augmented_lagrangian(
    problem: Problem,
    hyper: Hyper,
    state: State,
    *,
    variant: Variant = "full",
    transform: AnyTransform | None = None,
    norm_scale: NormScale = "mean",
) -> Float[Array, ""]:
    """Objective + <J1, r1> + <J2, r2> + rho/2 (||r1||^2 + ||r2||^2) with the two constraint residuals r1, r2."""
    latent = _latent(problem, state.W, variant)
    dictionary = latent if problem.anchors is None else latent[..., problem.anchors]
    fit = latent - represent(dictionary, problem.mask, state.G) - state.E
    split = state.G - state.B - state.P
    penalty = state.rho / 2 * (jnp.vdot(fit, fit) + jnp.vdot(split, split))
    linear = jnp.vdot(state.J1, fit) + jnp.vdot(state.J2, split)
    return objective(state, hyper, transform=transform, norm_scale=norm_scale) + linear + penalty


class Progress(NamedTuple):
    """Loop carry of the solver: the iterate, the residuals so far and the status."""

    state: State
    history: Info
    status: Int[Array, ""]


def begin(state: State, max_iter: int) -> Progress:
    """Progress of a solve that starts from ``state``."""
    blank = jnp.full((max_iter,), jnp.nan, state.G.dtype)
    return Progress(state, Info(blank, blank), jnp.asarray(Status.RUNNING, jnp.int32))


def advance(
    problem: Problem,
    hyper: Hyper,
    progress: Progress,
    stop: Int[Array, ""],
    transform: AnyTransform | None,
    *,
    variant: Variant,
    order: Order,
    norm_scale: NormScale,
    active: Bool[Array, " k"] | None = None,
) -> Progress:
    """Iterate until ``state.iteration`` reaches ``stop`` or the status is no longer running."""

    def unfinished(progress: Progress) -> Array:
        return (progress.status == Status.RUNNING) & (progress.state.iteration < stop)

    def body(progress: Progress) -> Progress:
        at = progress.state.iteration
        state, info = step(
            problem, hyper, progress.state, variant=variant, order=order, transform=transform, norm_scale=norm_scale,
            active=active,
        )  # fmt: skip
        worst = jnp.maximum(info.fit_residual, info.split_residual)
        ended = jnp.where(worst < hyper.tol, Status.CONVERGED, Status.RUNNING)
        status = jnp.where(jnp.isfinite(worst), ended, Status.NONFINITE).astype(jnp.int32)
        history = jax.tree.map(lambda record, now: record.at[at].set(now), progress.history, info)
        return Progress(state, history, status)

    return jax.lax.while_loop(unfinished, body, progress)


def finish(
    progress: Progress, hyper: Hyper, transform: AnyTransform | None, max_iter: int, norm_scale: NormScale
) -> Result:
    """Affinity, objective and final status of a solve."""
    state, history, status = progress
    exhausted = (status == Status.RUNNING) & (state.iteration >= max_iter)
    status = jnp.where(exhausted, Status.MAX_ITER, status)
    ended = (status == Status.CONVERGED) | (status == Status.MAX_ITER)
    graph = affinity(state.B)
    status = jnp.where(ended & jnp.all(graph == 0), Status.EMPTY, status)
    status = jnp.where(jnp.all(jnp.isfinite(graph)), status, Status.NONFINITE).astype(jnp.int32)
    value = objective(state, hyper, transform=transform, norm_scale=norm_scale)
    return Result(graph, status, state.iteration, history, value, state)


@partial(jax.jit, static_argnames=("latent_dim", "max_iter", "variant", "order", "norm_scale", "w_init"))
def _solve(
    problem: Problem,
    hyper: Hyper,
    state: State | None,
    transform: AnyTransform | None,
    *,
    latent_dim: int | None,
    max_iter: int,
    variant: Variant,
    order: Order,
    norm_scale: NormScale,
    w_init: Start,
) -> Result:
    if state is None:
        state = init(problem, hyper, latent_dim=latent_dim, variant=variant, w_init=w_init)
    stop = jnp.asarray(max_iter, jnp.int32)
    start = begin(state, max_iter)
    end = advance(problem, hyper, start, stop, transform, variant=variant, order=order, norm_scale=norm_scale)
    return finish(end, hyper, transform, max_iter, norm_scale)


def check_options(
    problem: Problem,
    hyper: Hyper,
    *,
    latent_dim: int | None,
    max_iter: int,
    variant: Variant,
    order: Order,
    norm_scale: NormScale,
    w_init: Start,
    init_state: State | None,
) -> None:
    """Check what :func:`solve`, ``solve_chunked`` and ``sweep`` have in common, the state to go on from among it."""
    _check_choice("order", order, Order)
    _check_choice("norm_scale", norm_scale, NormScale)
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter}")
    _check_start(latent_dim, variant, w_init)
    if init_state is None:
        return
    expected = jax.eval_shape(partial(init, problem, hyper, latent_dim=latent_dim, variant=variant, w_init=w_init))
    for name, have, want in zip(State._fields, init_state, expected, strict=True):
        if have.shape != want.shape or have.dtype != want.dtype:
            raise ValueError(
                f"init.{name} is {have.dtype}{have.shape}, but this problem needs {want.dtype}{want.shape}"
            )


def solve(
    problem: Problem,
    hyper: Hyper,
    *,
    latent_dim: int | None = None,
    max_iter: int,
    variant: Variant = "full",
    order: Order = "paper",
    transform: AnyTransform | None = None,
    norm_scale: NormScale = "mean",
    w_init: Start = "identity",
    init: State | None = None,
) -> Result:
    """Solve JPLTD: one compiled ``lax.while_loop`` of :func:`step`, for any values of ``hyper``.

    Parameters
    ----------
    problem
        From :func:`jpltd_jax.make_problem`.
    hyper
        Hyper-parameters; to sweep them, ``jax.vmap`` this function over a Hyper of arrays.
    latent_dim
        Dimension k of the projected space (not used by variants N and O, which have no projection).
    max_iter
        Largest number of iterations. The authors' code stops at 30, before convergence; the paper speaks of
        convergence in less than 80. This is a modelling choice: the results differ.
    variant, order, transform, norm_scale
        See :func:`step`.
    w_init
        See :func:`init`.
    init
        State to go on from (of an earlier result); its iterations count towards ``max_iter``.

    Notes
    -----
    With the default transform the result depends on the order of the samples, because the Fourier transform runs over
    the sample index. Per iteration O(m n a (k + log a + m)) operations and no array above the size of G, with a the
    number of anchors, or n without.

    Examples
    --------
    >>> import numpy as np
    >>> import jpltd_jax as jj
    >>> rng = np.random.default_rng(0)
    >>> views = [np.repeat(rng.normal(size=(2, d)), 6, axis=0) + 0.1 * rng.normal(size=(12, d)) for d in (8, 5)]
    >>> views[0][3] = np.nan
    >>> result = jj.solve(jj.make_problem(views), jj.Hyper(lam=1.0, theta=0.1), latent_dim=4, max_iter=30)
    >>> jj.Status(int(result.status)).name, int(result.n_iter), result.affinity.shape
    ('MAX_ITER', 30, (12, 12))
    """
    hyper = as_dtype(hyper, problem.data.dtype)
    check_options(
        problem, hyper, latent_dim=latent_dim, max_iter=max_iter, variant=variant, order=order, norm_scale=norm_scale,
        w_init=w_init, init_state=init,
    )  # fmt: skip
    return _solve(
        problem, hyper, init, transform, latent_dim=latent_dim, max_iter=max_iter, variant=variant, order=order,
        norm_scale=norm_scale, w_init=w_init,
    )  # fmt: skip
