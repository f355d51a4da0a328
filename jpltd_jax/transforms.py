"""Transforms along the last axis of a third-order tensor.

A transform is sqrt(n) times an orthonormal map of the last axis, so that for every transform::

    ||x||_F^2 = 1/n ||forward(x)||_F^2

The scale is that of the unnormalised DFT: a threshold, and with it lambda, means the same under all of them.
Each transform is a small pytree; anything with the three methods of :class:`Transform` can be used in its place.
:class:`Grouped` is the exception: its slices are blocks of several coefficients.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact, Int


@runtime_checkable
class Transform(Protocol):
    """What :mod:`jpltd_jax.tensor` and :func:`jpltd_jax.prox.tubal_shrink` ask of a transform."""

    def forward(self, x: Float[Array, "*batch n"]) -> Inexact[Array, "*batch slices"]:
        """Coefficients of x along its last axis."""
        ...

    def inverse(self, y: Inexact[Array, "*batch slices"], n: int) -> Float[Array, "*batch n"]:
        """Tensor with last axis of length n whose coefficients are y."""
        ...

    def multiplicity(self, n: int) -> Float[Array, " slices"]:
        """How many of the n slices of the full transform each returned slice stands for."""
        ...


@jax.tree_util.register_static
class Fourier:
    """Discrete Fourier transform of real tensors, kept as its half spectrum of n // 2 + 1 slices.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.transforms import Fourier
    >>> Fourier().forward(jnp.ones((1, 4))).real
    Array([[4., 0., 0.]], dtype=float32)
    >>> Fourier().multiplicity(4)
    Array([1., 2., 1.], dtype=float32)
    """

    def forward(self, x: Float[Array, "*batch n"]) -> Inexact[Array, "*batch slices"]:
        """rfft(x) along the last axis."""
        return jnp.fft.rfft(x)

    def inverse(self, y: Inexact[Array, "*batch slices"], n: int) -> Float[Array, "*batch n"]:
        """irfft(y) along the last axis."""
        return jnp.fft.irfft(y, n=n)

    def multiplicity(self, n: int) -> Float[Array, " slices"]:
        """Two for every slice that has a conjugate partner, else one."""
        index = jnp.arange(n // 2 + 1)
        return 2.0 - jnp.asarray((index == 0) | (2 * index == n), jnp.float32)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fourier)

    def __hash__(self) -> int:
        return hash(Fourier)


@jax.tree_util.register_pytree_node_class
class Orthonormal:
    """Coefficients in a real orthonormal basis (the columns of ``basis``): forward(x) = sqrt(n) x @ basis.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.transforms import Orthonormal
    >>> t = Orthonormal.random(jax.random.key(0), 5)
    >>> x = jnp.arange(10.0).reshape(2, 5)
    >>> bool(jnp.allclose(t.inverse(t.forward(x), 5), x, atol=1e-5))
    True
    """

    def __init__(self, basis: Float[Array, "n n"]) -> None:
        self.basis = basis

    @classmethod
    def identity(cls, n: int, dtype: jnp.dtype | None = None) -> "Orthonormal":
        """Leave the last axis as it is (up to the common scale)."""
        return cls(jnp.eye(n, dtype=dtype))

    @classmethod
    def random(cls, key: Array, n: int, dtype: jnp.dtype | None = None) -> "Orthonormal":
        """Haar-distributed basis: a control that carries no information."""
        return cls(jax.random.orthogonal(key, n, dtype=dtype or jnp.float32))

    def forward(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """Return sqrt(n) x @ basis."""
        return (x @ self.basis) * jnp.sqrt(jnp.asarray(x.shape[-1], x.dtype))

    def inverse(self, y: Float[Array, "*batch n"], n: int) -> Float[Array, "*batch n"]:
        """Return y @ basis.T / sqrt(n)."""
        return (y @ self.basis.T) / jnp.sqrt(jnp.asarray(n, y.dtype))

    def multiplicity(self, n: int) -> Float[Array, " n"]:
        """Return ones: every slice stands for itself."""
        return jnp.ones(n, self.basis.dtype)

    def tree_flatten(self) -> tuple[tuple[Array], None]:
        """Leaves: the basis."""
        return (self.basis,), None

    @classmethod
    def tree_unflatten(cls, aux: None, leaves: tuple[Array]) -> "Orthonormal":
        """Rebuild from the leaves, whatever stands in for the basis."""
        self = object.__new__(cls)
        (self.basis,) = leaves
        return self


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Grouped:
    """Slices that are spanned by groups of orthonormal vectors, and one more slice for all that they do not span.

    A slice of a (p, q, n) tensor gathers the coefficients of a group: p rows, with q columns for each vector.
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
    >>> tubal_shrink(jnp.ones((1, 1, 4)), 2.0, transform=mean)
    Array([[[0.5, 0.5, 0.5, 0.5]]], dtype=float32)
    """

    basis: Float[Array, "n s"]
    group: Int[Array, " s"]

    @property
    def complete(self) -> bool:
        """Whether the basis spans everything, so that there is no further slice."""
        return self.basis.shape[0] == self.basis.shape[1]

    def forward(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch s"]:
        """Return sqrt(n) x @ basis."""
        return (x @ self.basis) * jnp.sqrt(jnp.asarray(x.shape[-1], x.dtype))

    def inverse(self, y: Float[Array, "*batch s"], n: int) -> Float[Array, "*batch n"]:
        """Return y @ basis.T / sqrt(n): the part of the tensor that the basis spans."""
        return (y @ self.basis.T) / jnp.sqrt(jnp.asarray(n, y.dtype))


AnyTransform = Transform | Grouped
