"""Proximal operators and projections.

One convention::

    prox_{tau f}(v) = argmin_x  tau f(x) + 1/2 ||x - v||_F^2,      tau >= 0.

All are pure, compiled by ``jax.jit``, vmap-able, and differentiable without NaN also at zero and at repeated singular
values (where the operator has a kink, one element of its generalised derivative is returned). A NaN in ``v`` or ``tau``
stays visible.
"""

import functools
import math
from collections.abc import Callable
from typing import Literal, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Inexact

from jpltd_jax.transforms import AnyTransform, Fourier, Grouped

Scalar = Float[Array, ""] | float
T = TypeVar("T")

MOST_UNROLLED = 8
"""Up to this many rows, products of slices are written out pair by pair: several times faster than batched matmuls."""


def _divide(numerator: Array, denominator: Array, otherwise: Array | float) -> Array:
    """Numerator / denominator, and ``otherwise`` where the denominator is zero."""
    zero = denominator == 0
    return jnp.where(zero, otherwise, numerator / jnp.where(zero, 1, denominator))


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
    return v * _divide(jnp.maximum(norm - tau, 0), norm, 0.0)


def _singular_tangent(
    u: Inexact[Array, "*batch p r"],
    vh: Inexact[Array, "*batch r q"],
    dv: Inexact[Array, "*batch p q"],
    symmetric: Float[Array, "*batch r r"],
    skew: Float[Array, "*batch r r"],
) -> Inexact[Array, "*batch p q"]:
    """Differentiate u diag(f(s)) vh along dv, from the divided differences of f.

    symmetric_ij = (f_i - f_j) / (s_i - s_j) and skew_ij = (f_i + f_j) / (s_i + s_j), with their limits. Unlike the
    derivative of the factors themselves it is defined when singular values coincide.
    """
    uh, v = jnp.conj(jnp.swapaxes(u, -1, -2)), jnp.conj(jnp.swapaxes(vh, -1, -2))
    left, right = uh @ dv, dv @ v
    core = left @ v
    core_h = jnp.conj(jnp.swapaxes(core, -1, -2))
    ratio = jnp.diagonal(skew, axis1=-2, axis2=-1)
    inner = symmetric * (core + core_h) / 2 + skew * (core - core_h) / 2
    outside_u = (right - u @ core) * ratio[..., None, :]
    outside_v = ratio[..., :, None] * (left - core @ vh)
    return (u @ inner + outside_u) @ vh + u @ outside_v


@jax.custom_jvp
def _threshold_singular_values(
    v: Inexact[Array, "*batch p q"], tau: Scalar | Float[Array, "*batch"]
) -> Inexact[Array, "*batch p q"]:
    u, s, vh = jnp.linalg.svd(v, full_matrices=False)
    return (u * jnp.maximum(s - jnp.asarray(tau)[..., None], 0)[..., None, :]) @ vh


@_threshold_singular_values.defjvp
def _threshold_singular_values_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (v, tau), (dv, dtau) = primals, tangents
    tau, dtau = jnp.asarray(tau)[..., None], jnp.asarray(dtau)[..., None, None]
    u, s, vh = jnp.linalg.svd(v, full_matrices=False)
    value, raised = jnp.maximum(s - tau, 0), jnp.maximum(s, tau)
    above = (s > tau).astype(s.dtype)
    symmetric = _divide(
        raised[..., :, None] - raised[..., None, :],
        s[..., :, None] - s[..., None, :],
        above[..., :, None] * jnp.ones_like(above)[..., None, :],
    )
    at_zero = (tau == 0).astype(s.dtype)[..., None]
    skew = _divide(value[..., :, None] + value[..., None, :], s[..., :, None] + s[..., None, :], at_zero)
    tangent = _singular_tangent(u, vh, dv, symmetric, skew) - dtau * ((u * above[..., None, :]) @ vh)
    return (u * value[..., None, :]) @ vh, tangent


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
    return _threshold_singular_values(v, tau)


def _shrink_by_svd(d: Inexact[Array, "p q s"], tau: Scalar) -> Inexact[Array, "p q s"]:
    return jnp.moveaxis(singular_value_threshold(jnp.moveaxis(d, -1, 0), tau), 0, -1)


def _column_dots(a: Inexact[Array, "q s"], b: Inexact[Array, "q s"]) -> Inexact[Array, " s"]:
    """sum_q a_qs conj(b_qs), eight terms at a time: a product that is summed in the same pass needs no memory."""
    blocks, rest = divmod(a.shape[0], 8)
    product = a[8 * blocks :] * jnp.conj(b[8 * blocks :])
    if blocks:
        a, b = (x[: 8 * blocks].reshape(blocks, 8, -1) for x in (a, b))
        partial = functools.reduce(jnp.add, [a[:, i] * jnp.conj(b[:, i]) for i in range(8)])
        product = jnp.concatenate([partial, product]) if rest else partial
    return jnp.sum(product, axis=0)


def slice_grams(d: Inexact[Array, "p q s"]) -> Inexact[Array, "p p s"]:
    """d_s d_s^H of every slice."""
    p = d.shape[0]
    if p > MOST_UNROLLED:
        return jnp.einsum("pqs,rqs->prs", d, jnp.conj(d), precision="highest")
    upper = {(i, j): _column_dots(d[i], d[j]) for i in range(p) for j in range(i, p)}
    rows = [[upper[i, j] if i <= j else jnp.conj(upper[j, i]) for j in range(p)] for i in range(p)]
    return jnp.stack([jnp.stack(row) for row in rows])


def _apply_to_slices(matrices: Inexact[Array, "p p #s"], d: Inexact[Array, "p q s"]) -> Inexact[Array, "p q s"]:
    p = d.shape[0]
    if p > MOST_UNROLLED:
        return jnp.einsum("prs,rqs->pqs", matrices, d, precision="highest")
    return jnp.stack([functools.reduce(jnp.add, [matrices[i, j] * d[j] for j in range(p)]) for i in range(p)])


def _shrinkage(grams: Inexact[Array, "p p s"], tau: Scalar) -> Inexact[Array, "p p s"]:
    """The matrices that lower the singular values of slices by tau, from the slices' Gram matrices."""
    eigenvalues, u = jnp.linalg.eigh(jnp.moveaxis(grams, -1, 0))
    sigma = jnp.sqrt(jnp.maximum(eigenvalues, 0))
    factor = _divide(jnp.maximum(sigma - tau, 0), sigma, jnp.asarray(tau == 0, sigma.dtype))
    return jnp.einsum("spi,si,sri->prs", u, factor, jnp.conj(u), precision="highest")


@jax.custom_jvp
def _shrink_by_gram(d: Inexact[Array, "p q s"], tau: Scalar) -> Inexact[Array, "p q s"]:
    if d.shape[0] > d.shape[1]:
        return jnp.swapaxes(_shrink_by_gram(jnp.swapaxes(d, 0, 1), tau), 0, 1)
    return _apply_to_slices(_shrinkage(slice_grams(d), tau), d)


@_shrink_by_gram.defjvp
def _shrink_by_gram_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    return _shrink_by_gram(*primals), jax.jvp(_shrink_by_svd, primals, tangents)[1]


def _mirror(half: Inexact[Array, "*batch s"], n: int) -> Inexact[Array, "*batch n"]:
    """All n slices of a real tensor's Fourier transform from the first n // 2 + 1: slice n - i is conj(slice i)."""
    return jnp.concatenate([half, jnp.conj(half[..., (n - 1) // 2 : 0 : -1])], axis=-1)


@jax.custom_jvp
def _shrink_fourier(v: Float[Array, "p q n"], tau: Scalar) -> Float[Array, "p q n"]:
    """Shrink by the Gram matrices of the Fourier slices, with two real rows a and b as one complex row a + ib.

    A slice is shrunk by a matrix that acts on all rows alike, so on a + ib as on a and b. In the mean of the Gram
    matrices of slice i and, conjugated, of slice n - i the products of a with b cancel: it is the one of the real rows.
    This takes two thirds of the time of real transforms there and back, of which the one back is slow on CPUs.
    """
    p, q, n = v.shape
    if p > q:
        return jnp.swapaxes(_shrink_fourier(jnp.swapaxes(v, 0, 1), tau), 0, 1)
    first = (q + 1) // 2
    imaginary = jnp.pad(v[:, first:], ((0, 0), (0, q % 2), (0, 0)))
    slices = jnp.fft.fft(jax.lax.complex(v[:, :first], imaginary))
    grams = slice_grams(slices)
    half = n // 2 + 1
    opposite = jnp.roll(grams[..., ::-1], 1, axis=-1)
    shrinkage = _shrinkage((grams[..., :half] + jnp.conj(opposite[..., :half])) / 2, tau)
    shrunk = jnp.fft.ifft(_apply_to_slices(_mirror(shrinkage, n), slices))
    return jnp.concatenate([shrunk.real, shrunk.imag[:, : q - first]], axis=1)


@_shrink_fourier.defjvp
def _shrink_fourier_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    n = primals[0].shape[-1]

    def by_svd(v: Array, tau: Array) -> Array:
        return Fourier().inverse(_shrink_by_svd(Fourier().forward(v), tau), n)

    return _shrink_fourier(*primals), jax.jvp(by_svd, primals, tangents)[1]


def grouped_grams(d: Float[Array, "p q s"], v: Float[Array, "p q n"], transform: Grouped) -> Float[Array, "p p g"]:
    """Gram matrices of the slices of v under ``transform``, with d = transform.forward(v); the last is the rest's."""
    grams = slice_grams(d)
    pooled = jnp.zeros_like(grams).at[..., transform.group].add(grams)
    if transform.complete:
        return pooled
    total = v.shape[-1] * jnp.einsum("pqn,rqn->pr", v, v, precision="highest")
    return jnp.concatenate([pooled, (total - jnp.sum(grams, axis=-1))[..., None]], axis=-1)


def _shrink_groups(v: Float[Array, "p q n"], tau: Scalar, transform: Grouped) -> Float[Array, "p q n"]:
    d = transform.forward(v)
    shrink = _shrinkage(grouped_grams(d, v, transform), tau)
    of_vectors = shrink[..., transform.group]
    if transform.complete:
        return transform.inverse(_apply_to_slices(of_vectors, d), v.shape[-1])
    rest = shrink[..., -1:]
    return _apply_to_slices(rest, v) + transform.inverse(_apply_to_slices(of_vectors - rest, d), v.shape[-1])


@functools.partial(jax.jit, static_argnames="method")
def tubal_shrink(
    v: Float[Array, "p q n"],
    tau: Scalar,
    *,
    transform: AnyTransform | None = None,
    method: Literal["gram", "svd"] = "gram",
) -> Float[Array, "p q n"]:
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
    method
        ``"gram"`` gets the shrinkage from the small min(p, q) x min(p, q) Gram matrices: fast, with an absolute error
        of about eps s_max min(s_max / tau, eps**-0.5) in a slice with largest singular value s_max. ``"svd"``
        decomposes the slices themselves: error about eps s_max. A :class:`jpltd_jax.transforms.Grouped` transform knows
        the first only.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.prox import tubal_shrink
    >>> tubal_shrink(jnp.ones((1, 1, 4)), 2.0)
    Array([[[0.5, 0.5, 0.5, 0.5]]], dtype=float32)
    """
    if method not in ("gram", "svd"):
        raise ValueError(f"method must be 'gram' or 'svd', got {method!r}")
    if isinstance(transform, Grouped):
        if method == "svd":
            raise ValueError("a Grouped transform needs method='gram'")
        return _shrink_groups(v, tau, transform)
    transform = transform or Fourier()
    if method == "gram" and isinstance(transform, Fourier):
        return _shrink_fourier(v, tau)
    shrink = _shrink_by_gram if method == "gram" else _shrink_by_svd
    return transform.inverse(shrink(transform.forward(v), tau), v.shape[-1])


def _product(a: Float[Array, "*batch p q"], b: Float[Array, "*batch q r"]) -> Float[Array, "*batch p r"]:
    return jnp.matmul(a, b, precision="highest")


def _row_products(x: Float[Array, "*batch k d"]) -> Float[Array, "*batch k k"]:
    return _product(x, jnp.swapaxes(x, -1, -2))


def inverse_cholesky(grams: Float[Array, "*batch k k"]) -> Float[Array, "*batch k k"]:
    """l^-1 of the Cholesky factors grams = l l^T: with it, dividing by l or by grams is a product.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.prox import inverse_cholesky
    >>> inverse_cholesky(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
    Array([[ 0.5,  0. ],
           [-0.5,  1. ]], dtype=float32)
    """
    factor = jnp.linalg.cholesky(grams)
    eye = jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    return jax.lax.linalg.triangular_solve(factor, eye, left_side=True, lower=True)


def _row_factors(v: Float[Array, "*batch k d"]) -> tuple[Float[Array, "*batch k k"], Float[Array, "*batch k d"]]:
    """Factors l, q of v = l q with orthonormal rows of q, k <= d, by products and k x k Cholesky factors.

    Dividing by a factor of q q^T + shift I raises the small singular values of q; from q q^T near I on, a factor
    without shift makes q orthonormal (shifted Cholesky QR: Fukaya et al., SIAM J. Sci. Comput. 42, 2020). l = v q^T
    makes up for the rounding of the divisions. A v whose rows are dependent never gets there: it is left to
    Householder's QR.
    """
    k, eps = v.shape[-2], float(jnp.finfo(v.dtype).eps)
    eye = jnp.eye(k, dtype=v.dtype)

    def near_identity(grams: Array, tolerance: float) -> Array:
        return jnp.all(jnp.abs(grams - eye) < tolerance)

    def precondition(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        passes, q, grams = carry
        shift = 4 * eps * jnp.trace(grams, axis1=-2, axis2=-1)
        q = _product(inverse_cholesky(grams + shift[..., None, None] * eye), q)
        return passes + 1, q, _row_products(q)

    start = (jnp.asarray(0), v, _row_products(v))
    _, q, grams = jax.lax.while_loop(lambda carry: ~near_identity(carry[2], 0.1) & (carry[0] < 4), precondition, start)
    q = _product(inverse_cholesky(grams), q)

    def householder() -> tuple[Array, Array]:
        q, r = jnp.linalg.qr(jnp.swapaxes(v, -1, -2))
        return jnp.swapaxes(r, -1, -2), jnp.swapaxes(q, -1, -2)

    orthonormal = near_identity(_row_products(q), 64 * eps)
    return _unless(orthonormal, (_product(v, jnp.swapaxes(q, -1, -2)), q), householder)


def _unless(done: Bool[Array, ""], value: T, otherwise: Callable[[], T]) -> T:
    """``value`` if done, else ``otherwise()``. Unlike ``lax.cond``, under vmap it is left out where all are done."""
    return jax.lax.while_loop(lambda carry: ~carry[0], lambda _: (jnp.asarray(True), otherwise()), (done, value))[1]


def _halley_weights(smallest: float) -> list[tuple[float, float, float]]:
    """Weights a, b, c with which s <- s (a + b s^2) / (1 + c s^2) takes [smallest, 1] to 1 in the fewest steps."""
    weights = []
    while smallest < 1 - 1e-6:
        d = (4 * (1 - smallest**2) / smallest**4) ** (1 / 3)
        root = math.sqrt(1 + d)
        a = root + math.sqrt(8 - 4 * d + 8 * (2 - smallest**2) / (smallest**2 * root)) / 2
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        weights.append((a, b, c))
        smallest *= (a + b * smallest**2) / (1 + c * smallest**2)
    return weights


LEAST_SINGULAR_VALUE = 0.02
"""Down to this share of a bound of the largest one Halley's steps lose less than a digit; below, they lose more."""

HALLEY_WEIGHTS = _halley_weights(LEAST_SINGULAR_VALUE)


def _halley_polar_factor(
    x: Float[Array, "*batch k d"], grams: Float[Array, "*batch k k"]
) -> Float[Array, "*batch k d"]:
    """Polar factor of x with singular values in [LEAST_SINGULAR_VALUE, 1], from x and x x^T.

    Halley's iteration with dynamical weights, x <- (b/c I + (a - b/c) (I + c x x^T)^-1) x, then one step of Newton and
    Schulz: products and k x k Cholesky factors (Nakatsukasa, Bai, Gygi, SIAM J. Matrix Anal. Appl. 31, 2010).
    """
    eye = jnp.eye(x.shape[-2], dtype=x.dtype)
    for a, b, c in HALLEY_WEIGHTS:
        factor = inverse_cholesky(eye + c * grams)
        inverse = _product(jnp.swapaxes(factor, -1, -2), factor)
        x = b / c * x + (a - b / c) * _product(inverse, x)
        grams = _row_products(x)
    return x - _product(grams - eye, x) / 2


@jax.custom_jvp
def _polar_factor(v: Float[Array, "*batch k d"]) -> Float[Array, "*batch k d"]:
    if v.shape[-2] > v.shape[-1]:
        return jnp.swapaxes(_polar_factor(jnp.swapaxes(v, -1, -2)), -1, -2)
    x = v / jnp.max(jnp.abs(v), axis=(-2, -1), keepdims=True)
    grams = _row_products(x)
    bound = jnp.sqrt(jnp.linalg.norm(_row_products(grams), axis=(-2, -1), keepdims=True))
    x, grams = x / jnp.sqrt(bound), grams / bound
    shifted = grams - LEAST_SINGULAR_VALUE**2 * jnp.eye(v.shape[-2], dtype=v.dtype)
    well_conditioned = jnp.all(jnp.isfinite(jnp.linalg.cholesky(shifted)))

    def by_svd() -> Array:
        l, q = _row_factors(x)
        u, _, vh = jnp.linalg.svd(l)
        return _product(_product(u, vh), q)

    by_products = _unless(~well_conditioned, x, lambda: _halley_polar_factor(x, grams))
    return _unless(well_conditioned, by_products, by_svd)


@_polar_factor.defjvp
def _polar_factor_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (v,), (dv,) = primals, tangents
    u, s, vh = jnp.linalg.svd(v, full_matrices=False)
    total = s[..., :, None] + s[..., None, :]
    return u @ vh, _singular_tangent(u, vh, dv, jnp.zeros_like(total), _divide(jnp.full_like(total, 2), total, 0.0))


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
    return jnp.where(zero, frame, _polar_factor(jnp.where(zero, frame, v)))
