"""Matrix functions: polar factor, inverse Cholesky factor, ridge regression, Laplacians, distances.

All are pure, act on the last two axes and may be traced. Nothing here knows of views or clusters.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Inexact

__all__ = [
    "after",
    "divide",
    "inverse_cholesky",
    "inverse_root",
    "laplacian",
    "leading_eigenvectors",
    "leading_eigenvectors_of_products",
    "normalized",
    "polar_factor",
    "ridge",
    "singular_tangent",
    "squared_distances",
    "symmetric",
    "unit_rows",
]

T = TypeVar("T")

DENSE = 1000
"""Up to so many rows :func:`leading_eigenvectors` decomposes the whole matrix."""
DEGREE = 12
"""Of the polynomial in :func:`leading_eigenvectors_of_products`."""
MOST_FILTERS = 60
"""Applications of that polynomial, at most."""

LEAST_SINGULAR_VALUE = 0.02
"""Halley's iteration takes matrices whose singular values are at least this share of a bound of the largest one."""


def after(x: Float[Array, "*shape"], earlier: Float[Array, "*other"]) -> Float[Array, "*shape"]:
    """x, available no earlier than ``earlier`` is computed (and NaN if the first entry of that is).

    On a CPU with two cores two batched LAPACK calls at once can wait for each other's threads for ever (jaxlib 0.10.2).
    This puts one after the other.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.linalg import after
    >>> after(jnp.array([1.0, -2.0]), jnp.array([[-3.0]]))
    Array([ 1., -2.], dtype=float32)
    """
    return x + jnp.minimum(jnp.abs(earlier.ravel()[0]), 0).astype(x.dtype)


def divide(numerator: Any, denominator: Any, otherwise: Any) -> Any:
    """The quotient, and ``otherwise`` where the denominator is zero; of JAX or of NumPy arrays.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.linalg import divide
    >>> divide(jnp.array([1.0, 2.0]), jnp.array([4.0, 0.0]), 7.0)
    Array([0.25, 7.  ], dtype=float32)
    """
    xp = denominator.__array_namespace__()
    zero = denominator == 0
    return xp.where(zero, otherwise, numerator / xp.where(zero, 1, denominator))


def symmetric(x: Float[Array, "*batch n n"]) -> Float[Array, "*batch n n"]:
    """(x + x^T) / 2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.linalg import symmetric
    >>> symmetric(jnp.array([[0.0, 2.0], [0.0, 1.0]]))
    Array([[0., 1.],
           [1., 1.]], dtype=float32)
    """
    return (x + jnp.swapaxes(x, -1, -2)) / 2


def laplacian(graph: Float[Array, "*batch n n"]) -> Float[Array, "*batch n n"]:
    """diag(A 1) - A.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.linalg import laplacian
    >>> laplacian(jnp.array([[0.0, 2.0], [2.0, 0.0]]))
    Array([[ 2., -2.],
           [-2.,  2.]], dtype=float32)
    """
    degree = jnp.sum(graph, axis=-1)
    return degree[..., None] * jnp.eye(graph.shape[-1], dtype=graph.dtype) - graph


def inverse_root(degree: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """degree^-1/2, and 0 where the degree is not positive."""
    isolated = degree <= 0
    return jnp.where(isolated, 0, 1 / jnp.sqrt(jnp.where(isolated, 1, degree)))


def normalized(graph: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """D^-1/2 A D^-1/2 with D the diagonal of row sums of A; a row without neighbours is zero.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.linalg import normalized
    >>> normalized(jnp.array([[0.0, 4.0, 0.0], [4.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    Array([[0., 1., 0.],
           [1., 0., 0.],
           [0., 0., 0.]], dtype=float32)
    """
    scale = inverse_root(jnp.sum(graph, axis=1))
    return scale[:, None] * graph * scale


def leading_eigenvectors_of_products(
    product: Callable[[Float[Array, "n b"]], Float[Array, "n b"]], start: Float[Array, "n b"], count: int
) -> tuple[Float[Array, " count"], Float[Array, "n count"]]:
    """The ``count`` largest eigenvalues, falling, and their vectors of a symmetric A known through x -> A x.

    Its eigenvalues must lie in [-1, 1], as those of a normalised graph do. Subspace iteration with a Chebyshev
    polynomial of A, which grows fast above the smallest eigenvalue found so far and stays small below it (Zhou, Saad,
    Tiago, Chelikowsky, J. Comput. Phys. 219, 2006). It ends when all residuals ||A u - u value|| are below 100 eps.

    Parameters
    ----------
    product
        x -> A x.
    start
        First guess; more columns than ``count``, say by a fifth, make it converge.
    count
        How many eigenvectors.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.linalg import leading_eigenvectors_of_products
    >>> diagonal = jnp.linspace(1.0, -1.0, 21)[:, None]
    >>> start = jax.random.normal(jax.random.key(0), (21, 5))
    >>> leading_eigenvectors_of_products(lambda x: diagonal * x, start, 3)[0].round(4)
    Array([1.        , 0.9       , 0.79999995], dtype=float32)
    """

    def ritz(x: Array) -> tuple[Array, Array, Array]:
        q, _ = jnp.linalg.qr(x)
        image = product(q)
        values, rotation = jnp.linalg.eigh(symmetric(_product(q.T, image)))
        values, rotation = values[::-1], rotation[:, ::-1]
        vectors = _product(q, rotation)
        residuals = jnp.linalg.norm(_product(image, rotation) - vectors * values, axis=0)
        return values, vectors, jnp.max(residuals[:count])

    def filtered(values: Array, x: Array) -> Array:
        lowest = jnp.maximum(values[-1], -0.5)
        center, half = (lowest - 1) / 2, (lowest + 1) / 2

        def raise_degree(_: Array, pair: tuple[Array, Array]) -> tuple[Array, Array]:
            before, now = pair
            return now, 2 * (product(now) - center * now) / half - before

        return jax.lax.fori_loop(1, DEGREE, raise_degree, (x, (product(x) - center * x) / half))[1]

    def improve(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        values, vectors, _, filters = carry
        return *ritz(filtered(values, vectors)), filters + 1

    tolerance = 100 * jnp.finfo(start.dtype).eps
    values, vectors, *_ = jax.lax.while_loop(
        lambda carry: (carry[2] > tolerance) & (carry[3] < MOST_FILTERS), improve, (*ritz(start), jnp.asarray(0))
    )
    return values[:count], vectors[:, :count]


def leading_eigenvectors(
    matrix: Float[Array, "n n"], count: int
) -> tuple[Float[Array, " count"], Float[Array, "n count"]]:
    """The ``count`` largest eigenvalues, falling, and their vectors of a symmetric matrix with eigenvalues in [-1, 1].

    Up to 1000 rows, or where more than a third of the vectors is wanted, of the whole matrix, O(n^3); else by
    :func:`leading_eigenvectors_of_products`, O(n^2 count).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.linalg import leading_eigenvectors
    >>> leading_eigenvectors(jnp.array([[0.0, 0.5], [0.5, 0.0]]), 1)[0]
    Array([0.5], dtype=float32)
    """
    n = matrix.shape[0]
    guess = count + max(10, count // 5)
    if n <= DENSE or 3 * guess > n:
        values, vectors = jnp.linalg.eigh(matrix)
        return values[::-1][:count], vectors[:, ::-1][:, :count]
    start = jax.random.normal(jax.random.key(0), (n, guess), matrix.dtype)
    return leading_eigenvectors_of_products(lambda x: _product(matrix, x), start, count)


def unit_rows(x: Float[Array, "n c"]) -> Float[Array, "n c"]:
    """Every row divided by its length; a zero row stays zero.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.linalg import unit_rows
    >>> unit_rows(jnp.array([[3.0, 4.0], [0.0, 0.0]]))
    Array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    norm = jnp.linalg.norm(x, axis=1, keepdims=True)
    return x / jnp.where(norm == 0, 1, norm)


def squared_distances(x: Float[Array, "n d"], y: Float[Array, "c d"]) -> Float[Array, "n c"]:
    """||x_i - y_j||^2 = ||x_i||^2 - 2 <x_i, y_j> + ||y_j||^2, and never below 0.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.linalg import squared_distances
    >>> squared_distances(jnp.array([[0.0], [3.0]]), jnp.array([[1.0]]))
    Array([[1.],
           [4.]], dtype=float32)
    """
    product = jnp.matmul(x, y.T, precision="highest")
    return jnp.maximum(jnp.sum(x * x, axis=1)[:, None] - 2 * product + jnp.sum(y * y, axis=1), 0)


def inverse_cholesky(grams: Float[Array, "*batch k k"]) -> Float[Array, "*batch k k"]:
    """l^-1 of the Cholesky factor grams = l l^T. With it, dividing by l or by grams is a product.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.linalg import inverse_cholesky
    >>> inverse_cholesky(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
    Array([[ 0.5,  0. ],
           [-0.5,  1. ]], dtype=float32)
    """
    factor = jnp.linalg.cholesky(grams)
    eye = jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    return jax.lax.linalg.triangular_solve(factor, eye, left_side=True, lower=True)


def ridge(
    dictionary: Float[Array, "m k a"],
    target: Float[Array, "m k n"],
    center: Float[Array, "m n a"],
    observed: Bool[Array, "m n"],
) -> tuple[Float[Array, "m n a"], Float[Array, "m k n"]]:
    """argmin_G ||target - D G^T||_F^2 + ||G - center||_F^2, first term on observed samples; and D G^T there.

    With S = I_k + D D^T and, on observed samples, Y = S^-1 (target - D center^T): G = center + Y^T D and
    D G^T = target - Y. One k x k Cholesky factor per view. ``target`` must be zero where not observed.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.linalg import ridge
    >>> ridge(jnp.ones((1, 1, 3)), jnp.full((1, 1, 1), 4.0), jnp.zeros((1, 1, 3)), jnp.ones((1, 1), bool))[0]
    Array([[[1., 1., 1.]]], dtype=float32)
    """
    eye = jnp.eye(dictionary.shape[1], dtype=dictionary.dtype)
    factor = inverse_cholesky(eye + dictionary @ jnp.swapaxes(dictionary, -1, -2))
    inverse = jnp.swapaxes(factor, -1, -2) @ factor
    of_center = jnp.where(observed[:, None, :], jnp.einsum("vkj,vij->vki", dictionary, center), 0)
    y = inverse @ (target - of_center)
    return center + jnp.einsum("vki,vkj->vij", y, dictionary), target - y


def singular_tangent(
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
    ratio = jnp.diagonal(skew, axis1=-2, axis2=-1)
    with jax.default_matmul_precision("highest"):
        left, right = uh @ dv, dv @ v
        core = left @ v
        core_h = jnp.conj(jnp.swapaxes(core, -1, -2))
        inner = symmetric * (core + core_h) / 2 + skew * (core - core_h) / 2
        outside_u = (right - u @ core) * ratio[..., None, :]
        outside_v = ratio[..., :, None] * (left - core @ vh)
        return (u @ inner + outside_u) @ vh + u @ outside_v


def _product(a: Float[Array, "*batch p q"], b: Float[Array, "*batch q r"]) -> Float[Array, "*batch p r"]:
    return jnp.matmul(a, b, precision="highest")


def _row_products(x: Float[Array, "*batch k d"]) -> Float[Array, "*batch k k"]:
    return _product(x, jnp.swapaxes(x, -1, -2))


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

    def householder(v: Array) -> tuple[Array, Array]:
        q, r = jnp.linalg.qr(jnp.swapaxes(v, -1, -2))
        return jnp.swapaxes(r, -1, -2), jnp.swapaxes(q, -1, -2)

    orthonormal = near_identity(_row_products(q), 64 * eps)
    return _unless(orthonormal, (_product(v, jnp.swapaxes(q, -1, -2)), q), householder, v)


def _unless(done: Bool[Array, ""], value: T, otherwise: Callable[..., T], *operands: Array) -> T:
    """``value`` if done, else ``otherwise(*operands)``; under vmap, unlike in ``lax.cond``, only if any is not done.

    XLA moves what a loop does not change out of it, and would always compute it: so the operands are masked by the
    carry.
    """

    def body(carry: tuple[Array, T]) -> tuple[Array, T]:
        return jnp.asarray(True), otherwise(*(jnp.where(carry[0], 0, x) for x in operands))

    return jax.lax.while_loop(lambda carry: ~carry[0], body, (done, value))[1]


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


_HALLEY_WEIGHTS = _halley_weights(LEAST_SINGULAR_VALUE)


def _by_halley(x: Float[Array, "*batch k d"], grams: Float[Array, "*batch k k"]) -> Float[Array, "*batch k d"]:
    """Polar factor of x with singular values in [LEAST_SINGULAR_VALUE, 1], from x and x x^T.

    Halley's iteration with dynamical weights, x <- (b/c I + (a - b/c) (I + c x x^T)^-1) x, then one step of Newton and
    Schulz: products and k x k Cholesky factors (Nakatsukasa, Bai, Gygi, SIAM J. Matrix Anal. Appl. 31, 2010).
    """
    eye = jnp.eye(x.shape[-2], dtype=x.dtype)

    def closer(pair: tuple[Array, Array], weights: Array) -> tuple[tuple[Array, Array], None]:
        x, grams = pair
        kept, added, c = weights
        factor = inverse_cholesky(eye + c * grams)
        inverse = _product(jnp.swapaxes(factor, -1, -2), factor)
        x = kept * x + added * _product(inverse, x)
        return (x, _row_products(x)), None

    weights = jnp.array([(b / c, a - b / c, c) for a, b, c in _HALLEY_WEIGHTS], x.dtype)
    (x, grams), _ = jax.lax.scan(closer, (x, grams), weights)
    return x - _product(grams - eye, x) / 2


@jax.custom_jvp
def polar_factor(v: Float[Array, "*batch k d"]) -> Float[Array, "*batch k d"]:
    """The u v^T of the thin SVD v = u diag(s) v^T: the nearest matrix with orthonormal rows, or columns if k > d.

    Well conditioned matrices take products and Cholesky factors only (Halley's iteration); the others an SVD of a
    k x k factor. The derivative is defined also where singular values coincide. v must not be zero.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.linalg import polar_factor
    >>> polar_factor(jnp.array([[2.0, 0.0, 0.0], [0.0, 0.5, 0.0]])).round(5)
    Array([[1., 0., 0.],
           [0., 1., 0.]], dtype=float32)
    """
    if v.shape[-2] > v.shape[-1]:
        return jnp.swapaxes(polar_factor(jnp.swapaxes(v, -1, -2)), -1, -2)
    x = v / jnp.max(jnp.abs(v), axis=(-2, -1), keepdims=True)
    grams = _row_products(x)
    bound = jnp.sqrt(jnp.linalg.norm(_row_products(grams), axis=(-2, -1), keepdims=True))
    x, grams = x / jnp.sqrt(bound), grams / bound
    shifted = grams - LEAST_SINGULAR_VALUE**2 * jnp.eye(v.shape[-2], dtype=v.dtype)
    well_conditioned = jnp.all(jnp.isfinite(jnp.linalg.cholesky(shifted)))

    def by_svd(x: Array) -> Array:
        l, q = _row_factors(x)
        u, _, vh = jnp.linalg.svd(l)
        return _product(_product(u, vh), q)

    by_products = _unless(~well_conditioned, x, _by_halley, x, grams)
    return _unless(well_conditioned, by_products, by_svd, x)


@polar_factor.defjvp
def _polar_factor_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (v,), (dv,) = primals, tangents
    u, s, vh = jnp.linalg.svd(v, full_matrices=False)
    total = s[..., :, None] + s[..., None, :]
    tangent = singular_tangent(u, vh, dv, jnp.zeros_like(total), divide(jnp.full_like(total, 2), total, 0.0))
    return _product(u, vh), tangent
