"""Proximal operators and projections.

One convention::

    prox_{tau f}(v) = argmin_x  tau f(x) + 1/2 ||x - v||_F^2,      tau >= 0.

All are pure, compiled by ``jax.jit`` and vmap-able. The convex ones and ``stiefel`` are differentiable without NaN,
also at zero and at repeated singular values: where an operator has a kink, one element of its generalised derivative is
returned. A NaN in ``v`` or ``tau`` stays visible.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Inexact

from jpltd_jax._types import Scalar
from jpltd_jax.linalg import divide, polar_factor, singular_tangent
from jpltd_jax.transforms import Fourier, Transform, as_transform

__all__ = [
    "power_shrink",
    "power_threshold",
    "schatten_shrink",
    "shrink_columns",
    "simplex",
    "singular_value_threshold",
    "soft_threshold",
    "stiefel",
    "tubal_shrink",
]


@jax.jit
def soft_threshold(v: Float[Array, "*shape"], tau: Scalar | Float[Array, "*#shape"]) -> Float[Array, "*shape"]:
    """Prox of f(x) = sum_i |x_i|: sign(v) max(|v| - tau, 0), written as v - clip(v, -tau, tau).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.prox import soft_threshold
    >>> soft_threshold(jnp.array([-3.0, 0.5, 2.0]), 1.0)
    Array([-2.,  0.,  1.], dtype=float32)
    """
    return v - jnp.clip(v, -tau, tau)


@functools.partial(jax.jit, static_argnames="axis")
def shrink_columns(v: Float[Array, "*shape"], tau: Scalar, *, axis: int = -2) -> Float[Array, "*shape"]:
    """Prox of the l2,1 norm f(x) = sum_j ||x_j||_2: each column scaled by max(1 - tau / ||v_j||_2, 0).

    ``axis`` is the axis that a column runs along; the default makes columns of the last two axes. A zero column stays
    zero.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.prox import shrink_columns
    >>> shrink_columns(jnp.array([[3.0, 0.1], [4.0, 0.0]]), 1.0)
    Array([[2.4, 0. ],
           [3.2, 0. ]], dtype=float32)
    """
    square = jnp.sum(v * v, axis=axis, keepdims=True)
    zero = square == 0
    norm = jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, square)))
    return v * divide(jnp.maximum(norm - tau, 0), norm, 1 - jnp.sign(tau))


def _rejoined(
    u: Inexact[Array, "*batch p r"], s: Float[Array, "*batch r"], vh: Inexact[Array, "*batch r q"]
) -> Inexact[Array, "*batch p q"]:
    return jnp.matmul(u * s[..., None, :], vh, precision="highest")


@jax.custom_jvp
def _threshold_singular_values(
    v: Inexact[Array, "*batch p q"], tau: Scalar | Float[Array, "*batch"]
) -> Inexact[Array, "*batch p q"]:
    u, s, vh = jnp.linalg.svd(v, full_matrices=False)
    return _rejoined(u, jnp.maximum(s - jnp.asarray(tau)[..., None], 0), vh)


@_threshold_singular_values.defjvp
def _threshold_singular_values_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (v, tau), (dv, dtau) = primals, tangents
    tau, dtau = jnp.asarray(tau)[..., None], jnp.asarray(dtau)[..., None, None]
    u, s, vh = jnp.linalg.svd(v, full_matrices=False)
    value, raised = jnp.maximum(s - tau, 0), jnp.maximum(s, tau)
    above = (s > tau).astype(s.dtype)
    at_zero = (tau == 0).astype(s.dtype)[..., None]
    symmetric = divide(
        raised[..., :, None] - raised[..., None, :],
        s[..., :, None] - s[..., None, :],
        jnp.maximum(above[..., :, None], at_zero),
    )
    skew = divide(value[..., :, None] + value[..., None, :], s[..., :, None] + s[..., None, :], at_zero)
    tangent = singular_tangent(u, vh, dv, symmetric, skew) - dtau * _rejoined(u, above, vh)
    return _rejoined(u, value, vh), tangent


@jax.jit
def singular_value_threshold(
    v: Inexact[Array, "*batch p q"], tau: Scalar | Float[Array, "*batch"]
) -> Inexact[Array, "*batch p q"]:
    """Prox of the nuclear norm: u diag(max(s - tau, 0)) v^H of the thin SVD.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.prox import singular_value_threshold
    >>> singular_value_threshold(jnp.diag(jnp.array([3.0, 0.5])), 1.0)
    Array([[2., 0.],
           [0., 0.]], dtype=float32)
    """
    return _threshold_singular_values(v, jnp.asarray(tau, v.real.dtype))


def _slice_shrinkage(
    grams: Inexact[Array, "p p s"], tau: Scalar
) -> tuple[Inexact[Array, "s p p"], Float[Array, "s p"], Float[Array, "s p"]]:
    """Eigenvectors of the Gram matrices, singular values sigma, and the factors max(1 - tau / sigma, 0)."""
    eigenvalues, u = jnp.linalg.eigh(jnp.moveaxis(grams, -1, 0))
    sigma = jnp.sqrt(jnp.maximum(eigenvalues, 0))
    return u, sigma, divide(jnp.maximum(sigma - tau, 0), sigma, 1 - jnp.sign(tau))


def _conjugated(u: Inexact[Array, "s p p"], inner: Inexact[Array, "s p p"]) -> Inexact[Array, "p p s"]:
    """The products u inner u^H of every slice."""
    return jnp.einsum("spi,sij,srj->prs", u, inner, jnp.conj(u), precision="highest")


@jax.custom_jvp
def _shrinkage(grams: Inexact[Array, "p p s"], tau: Scalar) -> Inexact[Array, "p p s"]:
    """The matrices that lower the singular values of slices by tau, from the slices' Gram matrices."""
    u, _, factor = _slice_shrinkage(grams, tau)
    return jnp.einsum("spi,si,sri->prs", u, factor, jnp.conj(u), precision="highest")


@_shrinkage.defjvp
def _shrinkage_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """By the divided differences of f(x) = max(1 - tau / sqrt(x), 0), in forms that do not cancel."""
    (grams, tau), (dgrams, dtau) = primals, tangents
    u, sigma, factor = _slice_shrinkage(grams, tau)
    left, right = sigma[:, :, None], sigma[:, None, :]
    above = (sigma > tau) | (tau == 0)
    both = above[:, :, None] & above[:, None, :]
    high, low = jnp.maximum(left, right), jnp.minimum(left, right)
    one = jnp.where(high > tau, divide(divide(high - tau, high - low, 0.0), high * (high + low), 0.0), 0)
    quotient = jnp.where(both, divide(tau * jnp.ones_like(high), high * low * (high + low), 0.0), one)
    turned = jnp.einsum("spi,prs,srj->sij", jnp.conj(u), dgrams, u, precision="highest")
    falling = jnp.where(above, divide(-jnp.ones_like(sigma), sigma, 0.0), 0)
    by_tau = jnp.eye(sigma.shape[1], dtype=sigma.dtype) * falling[:, None, :]
    shrink = jnp.einsum("spi,si,sri->prs", u, factor, jnp.conj(u), precision="highest")
    return shrink, _conjugated(u, quotient * turned + dtau * by_tau)


def tubal_shrink(v: Float[Array, "p q n"], tau: Scalar, transform: Transform | None = None) -> Float[Array, "p q n"]:
    """Prox of the tensor nuclear norm of :func:`jpltd_jax.tensor.tensor_nuclear_norm`.

    Every slice of the transformed tensor has its singular values lowered by tau. (The norm carries the factor 1/n and
    the transform is sqrt(n) times an orthonormal map: the two cancel. For the norm without that factor pass n * tau.)

    Parameters
    ----------
    v
        Tensor whose last axis is transformed.
    tau
        Threshold.
    transform
        Default: :class:`jpltd_jax.transforms.Fourier`.

    Notes
    -----
    The shrinkage comes from the small Gram matrices of the slices. That is fast, with an absolute error of about
    eps s_max min(s_max / tau, eps**-0.5) in a slice with largest singular value s_max.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.prox import tubal_shrink
    >>> tubal_shrink(jnp.ones((1, 1, 4)), 2.0)
    Array([[[0.5, 0.5, 0.5, 0.5]]], dtype=float32)
    """
    return _tubal_shrink(v, tau, as_transform(transform))


@jax.jit
def _tubal_shrink(v: Float[Array, "p q n"], tau: Scalar, transform: Transform) -> Float[Array, "p q n"]:
    grams, back = transform.grams(v)
    return back(_shrinkage(grams, jnp.asarray(tau, v.dtype)))


@jax.jit
def stiefel(v: Float[Array, "*batch k d"]) -> Float[Array, "*batch k d"]:
    """Nearest orthonormal frame: argmin ||x - v||_F subject to x x^T = I_k, the polar factor u v^T of the thin SVD.

    For k > d no k rows can be orthonormal; the columns are: x^T x = I_d. For rank-deficient v the nearest frame is not
    unique: a nearest one is returned, and its part outside the row space of v is the choice of the LAPACK routines (so
    it may differ between backends). For v = 0 every frame is nearest; the leading coordinates [I 0] are returned.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.prox import stiefel
    >>> stiefel(jnp.array([[2.0, 0.0, 0.0], [0.0, 0.5, 0.0]]))
    Array([[1., 0., 0.],
           [0., 1., 0.]], dtype=float32)
    """
    zero = jnp.all(v == 0, axis=(-2, -1), keepdims=True)
    frame = jnp.eye(v.shape[-2], v.shape[-1], dtype=v.dtype)
    return jnp.where(zero, frame, polar_factor(jnp.where(zero, frame, v)))


@jax.custom_jvp
def _project_on_simplex(x: Float[Array, "*batch n"], allowed: Bool[Array, "*#batch n"]) -> Float[Array, "*batch n"]:
    largest = jnp.max(x, axis=-1, keepdims=True, where=allowed, initial=jnp.finfo(x.dtype).min)
    shifted = jnp.where(allowed, x - largest, -2)

    def improve(thresholds: tuple[Array, Array]) -> tuple[Array, Array]:
        _, threshold = thresholds
        above = shifted > threshold
        total = jnp.sum(shifted, axis=-1, keepdims=True, where=above)
        return threshold, jnp.maximum(threshold, (total - 1) / jnp.sum(above, axis=-1, keepdims=True))

    first = improve((largest, jnp.full_like(largest, -1)))
    _, threshold = jax.lax.while_loop(lambda thresholds: jnp.any(thresholds[0] < thresholds[1]), improve, first)
    return jnp.where(allowed, jnp.maximum(shifted - threshold, 0), 0)


@_project_on_simplex.defjvp
def _project_on_simplex_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """Along the face that the point lies on: the tangent less its mean over the positive entries."""
    y = _project_on_simplex(*primals)
    positive = y > 0
    total = jnp.sum(tangents[0], axis=-1, keepdims=True, where=positive)
    mean = total / jnp.maximum(jnp.sum(positive, axis=-1, keepdims=True), 1)
    return y, jnp.where(positive, tangents[0] - mean, 0)


@jax.jit
def simplex(x: Float[Array, "*batch n"], allowed: Bool[Array, "*#batch n"]) -> Float[Array, "*batch n"]:
    """Nearest point to every row of x in {y >= 0, sum y = 1, y = 0 where not allowed}; rows that allow nothing are 0.

    y = max(x - t, 0) where sum max(x - t, 0) = 1 over the allowed entries. The sum is convex and falls with t: Newton's
    method from below, t <- (sum of the entries above t - 1) / their number, rises to the root and is there after
    finitely many steps. That is a few passes over x; on CPUs sorting takes ten times as long. Rows are shifted so that
    their largest allowed entry is 0; then t is between -1 and 0, and -2 stands for what is not allowed.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.prox import simplex
    >>> allowed = jnp.array([[False, True, True], [False, False, False]])
    >>> simplex(jnp.array([[9.0, 0.5, 0.25], [1.0, 2.0, 3.0]]), allowed)
    Array([[0.   , 0.625, 0.375],
           [0.   , 0.   , 0.   ]], dtype=float32)
    """
    return _project_on_simplex(x, allowed)


@jax.jit
def power_shrink(sigma: Float[Array, "*shape"], weight: Scalar, p: Scalar) -> Float[Array, "*shape"]:
    """Prox of weight * sum sigma_i^p for sigma >= 0 and 0 < p <= 1, by four steps of the fixed point iteration.

    Zero up to the threshold (2 w (1 - p))^(1 / (2 - p)) + p w (2 w (1 - p))^((p - 1) / (2 - p)), and above it
    t <- sigma - w p t^(p - 1) from t = sigma. For p = 1 it is soft thresholding. (Zuo et al., ICCV 2013.) The iterates
    fall to the minimiser t*, and the last is above it by at most (p / 2)^4 (sigma - t*).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.prox import power_shrink
    >>> power_shrink(jnp.array([3.0, 0.5]), 1.0, 1.0)
    Array([2., 0.], dtype=float32)
    """
    weight, p = jnp.asarray(weight, sigma.dtype), jnp.asarray(p, sigma.dtype)
    below = sigma <= power_threshold(weight, p)
    start = jnp.where(below, 1, sigma)
    shrunk = jax.lax.fori_loop(0, 4, lambda _, t: start - weight * p * t ** (p - 1), start)
    return jnp.where(below, 0, shrunk)


@jax.jit
def power_threshold(weight: Scalar, p: Scalar) -> Scalar:
    """Largest value that :func:`power_shrink` maps to zero."""
    base = 2 * weight * (1 - p)
    return jnp.where(weight == 0, 0, base ** (1 / (2 - p)) + p * weight * base ** ((p - 1) / (2 - p)))


@jax.jit
def schatten_shrink(v: Float[Array, "p q n"], weight: Scalar, p: Scalar) -> Float[Array, "p q n"]:
    """Prox of weight times the tensor Schatten p-norm: :func:`power_shrink` of the singular values of every slice.

    Slices are those of the Fourier transform of the last axis, of which half are computed; the first is real. The norm
    is the mean over the slices of sum_i sigma_i^p, so that p = 1 gives :func:`jpltd_jax.prox.tubal_shrink`. No slice is
    decomposed while all of them lie below the threshold.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.prox import schatten_shrink
    >>> schatten_shrink(jnp.ones((1, 1, 4)), 2.0, 1.0)
    Array([[[0.5, 0.5, 0.5, 0.5]]], dtype=float32)
    """
    slices = jnp.moveaxis(Fourier().slices(v), -1, 0)

    def shrink(slices: Array) -> Array:
        u, sigma, vh = jnp.linalg.svd(slices, full_matrices=False)
        return _rejoined(u, power_shrink(sigma, weight, p), vh)

    def shrink_all(slices: Array) -> Array:
        return jnp.concatenate([shrink(slices[:1].real), shrink(slices[1:])])

    nothing_left = jnp.all(jnp.linalg.norm(slices, axis=(1, 2)) <= power_threshold(weight, p))
    shrunk = jax.lax.cond(nothing_left, jnp.zeros_like, shrink_all, slices)
    return Fourier().join(jnp.moveaxis(shrunk, 0, -1), v.shape[-1])
