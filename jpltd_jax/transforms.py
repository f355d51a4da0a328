"""Transforms along the last axis of a third-order tensor (p, q, n).

A transform is sqrt(n) times an orthonormal map of the last axis, so that for every transform::

    ||x||_F^2 = 1/n sum_i weights_i ||slice_i||_F^2

The scale is that of the unnormalised discrete Fourier transform: a threshold, and with it lam, means the same under all
of them. Slice i of a tensor is the (p, q) matrix ``slices(x)[:, :, i]``. Each transform is a small pytree.

To write your own, derive from :class:`SliceTransform` and give ``slices``, ``join`` and ``weights``.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jax.tree_util import Partial
from jaxtyping import Array, Float, Inexact, Int

__all__ = [
    "Fourier",
    "Grouped",
    "Orthonormal",
    "Sharded",
    "SliceTransform",
    "Transform",
    "apply_to_slices",
    "as_transform",
    "slice_grams",
]

MOST_UNROLLED = 8
"""Up to this many rows, products of slices are written out pair by pair: several times faster than batched matmuls."""

Back = Callable[[Inexact[Array, "k k g"]], Float[Array, "p q n"]]


def _column_dots(a: Inexact[Array, "q s"], b: Inexact[Array, "q s"]) -> Inexact[Array, " s"]:
    """sum_q a_qs conj(b_qs), eight terms at a time: a product that is summed in the same pass needs no memory."""
    blocks, rest = divmod(a.shape[0], 8)
    product = a[8 * blocks :] * jnp.conj(b[8 * blocks :])
    if blocks:
        a, b = (x[: 8 * blocks].reshape(blocks, 8, -1) for x in (a, b))
        partial = functools.reduce(jnp.add, [a[:, i] * jnp.conj(b[:, i]) for i in range(8)])
        product = jnp.concatenate([partial, product]) if rest else partial
    return jnp.sum(product, axis=0)


def slice_grams(slices: Inexact[Array, "p q s"]) -> Inexact[Array, "p p s"]:
    """The products d d^H of every slice d.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.transforms import slice_grams
    >>> slice_grams(jnp.array([[[1.0, 2.0], [3.0, 0.0]]]))
    Array([[[10.,  4.]]], dtype=float32)
    """
    p = slices.shape[0]
    if p > MOST_UNROLLED:
        return jnp.einsum("pqs,rqs->prs", slices, jnp.conj(slices), precision="highest")
    upper = {(i, j): _column_dots(slices[i], slices[j]) for i in range(p) for j in range(i, p)}
    rows = [[upper[i, j] if i <= j else jnp.conj(upper[j, i]) for j in range(p)] for i in range(p)]
    return jnp.stack([jnp.stack(row) for row in rows])


def apply_to_slices(matrices: Inexact[Array, "p p #s"], slices: Inexact[Array, "p q s"]) -> Inexact[Array, "p q s"]:
    """Matrix times slice, for every slice.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.transforms import apply_to_slices
    >>> apply_to_slices(jnp.array([[[2.0, 3.0]]]), jnp.array([[[1.0, 1.0], [5.0, 0.0]]]))
    Array([[[ 2.,  3.],
            [10.,  0.]]], dtype=float32)
    """
    p = slices.shape[0]
    if p > MOST_UNROLLED:
        return jnp.einsum("prs,rqs->pqs", matrices, slices, precision="highest")
    return jnp.stack([functools.reduce(jnp.add, [matrices[i, j] * slices[j] for j in range(p)]) for i in range(p)])


@runtime_checkable
class Transform(Protocol):
    """What :mod:`jpltd_jax.tensor` and :func:`jpltd_jax.prox.tubal_shrink` ask of a transform."""

    def slices(self, x: Float[Array, "*batch n"]) -> Inexact[Array, "*batch s"]:
        """Coefficients of x along its last axis."""
        ...

    def join(self, y: Inexact[Array, "*batch s"], n: int) -> Float[Array, "*batch n"]:
        """Tensor with last axis of length n whose coefficients are y: the inverse of ``slices``."""
        ...

    def weights(self, n: int) -> Float[Array, " g"]:
        """How many of the n slices of the full transform each slice stands for."""
        ...

    def grams(self, x: Float[Array, "p q n"]) -> tuple[Inexact[Array, "k k g"], Back]:
        """Gram matrices d d^H of the slices d, and the way back.

        The way back takes one matrix per slice and returns the tensor whose slices are the products of these matrices
        with the slices of x. Where slices have more rows than columns, both may be those of the transposed slices. A
        way back that is a :class:`jax.tree_util.Partial` of arrays with the rows of x can be used on many devices.
        """
        ...

    def singular_values(self, x: Float[Array, "p q n"]) -> Float[Array, "g r"]:
        """Singular values of the slices of x."""
        ...


def _transposed_grams(transform: Transform, x: Float[Array, "p q n"]) -> tuple[Inexact[Array, "q q g"], Back]:
    grams, back = transform.grams(jnp.swapaxes(x, 0, 1))
    return grams, lambda matrices: jnp.swapaxes(back(matrices), 0, 1)


def _roots_of_eigenvalues(grams: Inexact[Array, "k k g"]) -> Float[Array, "g k"]:
    return jnp.sqrt(jnp.maximum(jnp.linalg.eigvalsh(jnp.moveaxis(grams, -1, 0)), 0))


class SliceTransform:
    """A transform that is known by ``slices``, ``join`` and ``weights``; the rest follows from them."""

    def slices(self, x: Float[Array, "*batch n"]) -> Inexact[Array, "*batch s"]:
        """Coefficients of x along its last axis."""
        raise TypeError(f"{type(self).__name__} does not define slices")

    def join(self, y: Inexact[Array, "*batch s"], n: int) -> Float[Array, "*batch n"]:
        """Inverse of ``slices``."""
        raise TypeError(f"{type(self).__name__} does not define join")

    def weights(self, n: int) -> Float[Array, " g"]:
        """How many of the n slices of the full transform each slice stands for."""
        raise TypeError(f"{type(self).__name__} does not define weights")

    def grams(self, x: Float[Array, "p q n"]) -> tuple[Inexact[Array, "k k g"], Back]:
        """See :meth:`Transform.grams`."""
        if x.shape[0] > x.shape[1]:
            return _transposed_grams(self, x)
        slices, n = self.slices(x), x.shape[-1]

        def back(slices: Array, matrices: Array) -> Array:
            return self.join(apply_to_slices(matrices, slices), n)

        return slice_grams(slices), Partial(back, slices)

    def singular_values(self, x: Float[Array, "p q n"]) -> Float[Array, "g r"]:
        """By the SVD of every slice."""
        return jnp.linalg.svd(jnp.moveaxis(self.slices(x), -1, 0), full_matrices=False, compute_uv=False)


def _mirror(half: Inexact[Array, "*batch s"], n: int) -> Inexact[Array, "*batch n"]:
    """All n slices of a real tensor's Fourier transform from the first n // 2 + 1: slice n - i is conj(slice i)."""
    return jnp.concatenate([half, jnp.conj(half[..., (n - 1) // 2 : 0 : -1])], axis=-1)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Fourier(SliceTransform):
    """Discrete Fourier transform of real tensors, kept as its half spectrum of n // 2 + 1 slices.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.transforms import Fourier
    >>> Fourier().slices(jnp.ones((1, 4))).real
    Array([[4., 0., 0.]], dtype=float32)
    >>> Fourier().weights(4)
    Array([1., 2., 1.], dtype=float32)
    """

    def slices(self, x: Float[Array, "*batch n"]) -> Inexact[Array, "*batch s"]:
        """rfft(x) along the last axis."""
        return jnp.fft.rfft(x)

    def join(self, y: Inexact[Array, "*batch s"], n: int) -> Float[Array, "*batch n"]:
        """irfft(y) along the last axis."""
        return jnp.fft.irfft(y, n=n)

    def weights(self, n: int) -> Float[Array, " g"]:
        """Two for every slice that has a conjugate partner, else one."""
        index = jnp.arange(n // 2 + 1)
        return 2.0 - jnp.asarray((index == 0) | (2 * index == n), jnp.float32)

    def grams(self, x: Float[Array, "p q n"]) -> tuple[Inexact[Array, "k k g"], Back]:
        """See :meth:`Transform.grams`; with two real rows a and b as one complex row a + ib.

        A matrix acts on all rows of a slice alike, so on a + ib as on a and b. In the mean of the Gram matrices of
        slice i and, conjugated, of slice n - i the products of a with b cancel: it is the one of the real rows. This
        takes two thirds of the time of real transforms there and back, of which the one back is slow on CPUs.
        """
        if x.shape[0] > x.shape[1]:
            return _transposed_grams(self, x)
        _, q, n = x.shape
        first = (q + 1) // 2
        imaginary = jnp.pad(x[:, first:], ((0, 0), (0, q % 2), (0, 0)))
        packed = jnp.fft.fft(jax.lax.complex(x[:, :first], imaginary))
        products = slice_grams(packed)
        half = n // 2 + 1
        opposite = jnp.roll(products[..., ::-1], 1, axis=-1)

        def back(packed: Array, matrices: Array) -> Array:
            joined = jnp.fft.ifft(apply_to_slices(_mirror(matrices, n), packed))
            return jnp.concatenate([joined.real, joined.imag[:, : q - first]], axis=1)

        return (products[..., :half] + jnp.conj(opposite[..., :half])) / 2, Partial(back, packed)


def _in_basis(x: Float[Array, "*batch n"], basis: Float[Array, "n s"]) -> Float[Array, "*batch s"]:
    return jnp.matmul(x, basis, precision="highest") * jnp.sqrt(jnp.asarray(x.shape[-1], x.dtype))


def _from_basis(y: Float[Array, "*batch s"], basis: Float[Array, "n s"]) -> Float[Array, "*batch n"]:
    return jnp.matmul(y, basis.T, precision="highest") / jnp.sqrt(jnp.asarray(basis.shape[0], y.dtype))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Orthonormal(SliceTransform):
    """Coefficients in a real orthonormal basis, the columns of ``basis``: slices(x) = sqrt(n) x @ basis.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.transforms import Orthonormal
    >>> t = Orthonormal.random(jax.random.key(0), 5)
    >>> x = jnp.arange(10.0).reshape(2, 5)
    >>> bool(jnp.allclose(t.join(t.slices(x), 5), x, atol=1e-5))
    True
    """

    basis: Float[Array, "n n"]

    @classmethod
    def identity(cls, n: int, dtype: jnp.dtype | None = None) -> "Orthonormal":
        """Leave the last axis as it is (up to the common scale)."""
        return cls(jnp.eye(n, dtype=dtype))

    @classmethod
    def random(cls, key: Array, n: int, dtype: jnp.dtype | None = None) -> "Orthonormal":
        """Haar-distributed basis: a control that carries no information."""
        return cls(jax.random.orthogonal(key, n, dtype=dtype or jnp.float32))

    def slices(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """sqrt(n) x @ basis."""
        return _in_basis(x, self.basis)

    def join(self, y: Float[Array, "*batch n"], n: int) -> Float[Array, "*batch n"]:
        """Inverse of ``slices``: y @ basis.T / sqrt(n)."""
        return _from_basis(y, self.basis)

    def weights(self, n: int) -> Float[Array, " n"]:
        """One: every slice stands for itself."""
        return jnp.ones(n, self.basis.dtype)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Grouped:
    """Slices that are spanned by groups of orthonormal vectors, and one more slice for all that they do not span.

    A slice of a (p, q, n) tensor holds the coefficients of one group: p rows, and q columns for each of its vectors.
    Rotating the vectors within a group changes nothing, so a group can hold an eigenspace whose basis is arbitrary.

    Attributes
    ----------
    basis
        (n, s) orthonormal columns, s <= n.
    group
        (s,) group of each column, integers in 0..s-1.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.prox import tubal_shrink
    >>> from jpltd_jax.transforms import Grouped
    >>> mean = Grouped(jnp.full((4, 1), 0.5), jnp.zeros(1, int))
    >>> tubal_shrink(jnp.ones((1, 1, 4)), 2.0, mean)
    Array([[[0.5, 0.5, 0.5, 0.5]]], dtype=float32)
    """

    basis: Float[Array, "n s"]
    group: Int[Array, " s"]

    @property
    def complete(self) -> bool:
        """Whether the basis spans everything, so that there is no further slice."""
        return self.basis.shape[0] == self.basis.shape[1]

    def slices(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch s"]:
        """sqrt(n) x @ basis: the coefficients of all vectors, group by group only through ``group``."""
        return _in_basis(x, self.basis)

    def join(self, y: Float[Array, "*batch s"], n: int) -> Float[Array, "*batch n"]:
        """The part of the tensor that the basis spans: y @ basis.T / sqrt(n)."""
        return _from_basis(y, self.basis)

    def weights(self, n: int) -> Float[Array, " g"]:
        """One for every slice, the empty ones and the rest among them."""
        return jnp.ones(self.basis.shape[1] + (not self.complete), self.basis.dtype)

    def grams(self, x: Float[Array, "p q n"]) -> tuple[Float[Array, "p p g"], Back]:
        """See :meth:`Transform.grams`. The last slice, if the basis is not complete, is all that it does not span."""
        n = x.shape[-1]
        coefficients = self.slices(x)
        of_vectors = slice_grams(coefficients)
        pooled = jnp.zeros_like(of_vectors).at[..., self.group].add(of_vectors)

        def spanned(coefficients: Array, matrices: Array) -> Array:
            return self.join(apply_to_slices(matrices, coefficients), n)

        if self.complete:
            return pooled, Partial(lambda y, matrices: spanned(y, matrices[..., self.group]), coefficients)

        def back(x: Array, coefficients: Array, matrices: Array) -> Array:
            rest = matrices[..., -1:]
            return apply_to_slices(rest, x) + spanned(coefficients, matrices[..., self.group] - rest)

        total = n * jnp.einsum("pqn,rqn->pr", x, x, precision="highest")
        rest = (total - jnp.sum(of_vectors, axis=-1))[..., None]
        return jnp.concatenate([pooled, rest], axis=-1), Partial(back, x, coefficients)

    def singular_values(self, x: Float[Array, "p q n"]) -> Float[Array, "g r"]:
        """Roots of the eigenvalues of the Gram matrices."""
        return _roots_of_eigenvalues(self.grams(x)[0])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sharded:
    """A transform of tensors whose rows, along the second axis, are spread over devices: each transforms its own.

    Rows need nothing of each other but the Gram matrices, which are sums over the rows. So devices exchange as many
    numbers as these have, whatever the number of rows. (XLA by itself would gather the tensor around a Fourier
    transform.) A tensor with so few rows that a device has less than there are matrices is not spread.

    Attributes
    ----------
    transform
        Of the last axis.
    mesh
        Devices; the rows are spread over its first axis, in equal parts.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import Mesh
    >>> from jpltd_jax.prox import tubal_shrink
    >>> from jpltd_jax.transforms import Fourier, Sharded
    >>> transform = Sharded(Fourier(), Mesh(jax.devices(), ("samples",)))
    >>> tubal_shrink(jnp.ones((1, 8, 4)), 2.0, transform).shape
    (1, 8, 4)
    """

    transform: Transform
    mesh: Mesh = field(metadata={"static": True})

    def slices(self, x: Float[Array, "*batch n"]) -> Inexact[Array, "*batch s"]:
        """Those of the transform."""
        return self.transform.slices(x)

    def join(self, y: Inexact[Array, "*batch s"], n: int) -> Float[Array, "*batch n"]:
        """That of the transform."""
        return self.transform.join(y, n)

    def weights(self, n: int) -> Float[Array, " g"]:
        """Those of the transform."""
        return self.transform.weights(n)

    def grams(self, x: Float[Array, "p q n"]) -> tuple[Inexact[Array, "k k g"], Back]:
        """See :meth:`Transform.grams`."""
        axis = self.mesh.axis_names[0]
        if x.shape[0] > x.shape[1] // self.mesh.shape[axis]:
            return self.transform.grams(x)
        rows, whole = P(None, axis), P()

        def own(x: Array) -> tuple[Array, Back]:
            grams, back = self.transform.grams(x)
            return jax.lax.psum(grams, axis), back

        grams, back = jax.shard_map(own, mesh=self.mesh, in_specs=rows, out_specs=(whole, rows))(x)
        apply = jax.shard_map(
            lambda back, matrices: back(matrices), mesh=self.mesh, in_specs=(rows, whole), out_specs=rows
        )
        return grams, Partial(apply, back)

    def singular_values(self, x: Float[Array, "p q n"]) -> Float[Array, "g r"]:
        """Roots of the eigenvalues of the Gram matrices."""
        return _roots_of_eigenvalues(self.grams(x)[0])


def as_transform(transform: Any) -> Transform:
    """The transform, by default :class:`Fourier`, if it is one.

    Examples
    --------
    >>> from jpltd_jax.transforms import as_transform
    >>> as_transform("fourier")
    Traceback (most recent call last):
    TypeError: transform must be an object of jpltd_jax.transforms, like Fourier(), got 'fourier'
    """
    if transform is None:
        return Fourier()
    if isinstance(transform, type) or not isinstance(transform, Transform):
        raise TypeError(f"transform must be an object of jpltd_jax.transforms, like Fourier(), got {transform!r}")
    return transform
