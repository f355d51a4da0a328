"""Algebra of third-order tensors (p, q, n) under a transform of the last axis.

Slice i of a tensor is the matrix ``slices(x)[:, :, i]``; products, transposes and decompositions act slice by slice.
With the default Fourier transform this is the t-product algebra of Kilmer and Martin (Linear Algebra and its
Applications 435, 2011).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from jpltd_jax.transforms import Transform, as_transform

__all__ = ["TSVD", "t_product", "t_svd", "t_transpose", "tensor_nuclear_norm"]


class TSVD(NamedTuple):
    """Factors of x = u * s * v^T: u and v have orthonormal lateral slices, s is diagonal in every slice."""

    u: Float[Array, "p r n"]
    s: Float[Array, "r r n"]
    v: Float[Array, "q r n"]


def _slices_first(coefficients: Inexact[Array, "p q s"]) -> Inexact[Array, "s p q"]:
    return jnp.moveaxis(coefficients, -1, 0)


def _from_slices(slices: Inexact[Array, "s p q"], n: int, transform: Transform) -> Float[Array, "p q n"]:
    return transform.join(jnp.moveaxis(slices, 0, -1), n)


def t_product(
    a: Float[Array, "p q n"], b: Float[Array, "q r n"], *, transform: Transform | None = None
) -> Float[Array, "p r n"]:
    """Tensor whose slices are the products of the slices of a and b.

    With the Fourier transform: the circular convolution sum_j a[:, :, j] @ b[:, :, (i - j) mod n].

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.tensor import t_product
    >>> t_product(jnp.array([[[1.0, 2.0]]]), jnp.array([[[3.0, 5.0]]]))
    Array([[[13., 11.]]], dtype=float32)
    """
    transform = as_transform(transform)
    first, second = (_slices_first(transform.slices(x)) for x in (a, b))
    product = jnp.matmul(first, second, precision="highest")
    return _from_slices(product, a.shape[-1], transform)


def t_transpose(x: Float[Array, "p q n"], *, transform: Transform | None = None) -> Float[Array, "q p n"]:
    """Tensor whose slices are the conjugate transposes of the slices of x.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.tensor import t_transpose
    >>> t_transpose(jnp.array([[[1.0, 2.0, 3.0]]]))
    Array([[[1., 3., 2.]]], dtype=float32)
    """
    transform = as_transform(transform)
    return transform.join(jnp.conj(jnp.swapaxes(transform.slices(x), 0, 1)), x.shape[-1])


def t_svd(x: Float[Array, "p q n"], *, transform: Transform | None = None) -> TSVD:
    """Reduced t-SVD x = u * s * v^T with r = min(p, q).

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.tensor import t_product, t_svd, t_transpose
    >>> x = jax.random.normal(jax.random.key(0), (4, 2, 5))
    >>> u, s, v = t_svd(x)
    >>> bool(jnp.allclose(t_product(t_product(u, s), t_transpose(v)), x, atol=1e-5))
    True
    """
    transform = as_transform(transform)
    n = x.shape[-1]
    u, s, vh = jnp.linalg.svd(_slices_first(transform.slices(x)), full_matrices=False)
    diagonal = (s[..., None] * jnp.eye(s.shape[-1], dtype=s.dtype)).astype(u.dtype)
    v = jnp.conj(jnp.swapaxes(vh, -1, -2))
    return TSVD(*(_from_slices(f, n, transform) for f in (u, diagonal, v)))


def tensor_nuclear_norm(x: Float[Array, "p q n"], *, transform: Transform | None = None) -> Float[Array, ""]:
    """1/n times the sum of the nuclear norms of all slices of x.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.tensor import tensor_nuclear_norm
    >>> tensor_nuclear_norm(jnp.full((1, 1, 4), 0.5))
    Array(0.5, dtype=float32)
    """
    transform = as_transform(transform)
    n = x.shape[-1]
    values = transform.singular_values(x)
    return jnp.vdot(transform.weights(n).astype(values.dtype), jnp.sum(values, axis=-1), precision="highest") / n
