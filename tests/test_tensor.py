import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from jpltd_jax import tensor
from jpltd_jax.transforms import Fourier, Orthonormal, Transform
from tests.strategies import TENSOR_SHAPES, orthonormal, seeds, tensors


def transform_of(kind, n, seed=0):
    return Fourier() if kind == "fourier" else Orthonormal(jnp.asarray(orthonormal(seed, n, n)))


kinds = pytest.mark.parametrize("kind", ["fourier", "orthonormal"])


def circular(a, b):
    """The t-product by its definition: circular convolution of tubes."""
    n = a.shape[-1]
    out = np.zeros((a.shape[0], b.shape[1], n))
    for i in range(n):
        for j in range(n):
            out[:, :, i] += a[:, :, j] @ b[:, :, (i - j) % n]
    return out


@given(x=tensors())
def test_t_product_is_circular_convolution(x):
    y = np.random.default_rng(0).normal(size=(x.shape[1], 2, x.shape[2]))
    actual = tensor.t_product(jnp.asarray(x), jnp.asarray(y))
    np.testing.assert_allclose(actual, circular(x, y), atol=1e-10)


@given(x=tensors())
def test_t_transpose_reverses_the_slices(x):
    expected = np.swapaxes(np.concatenate([x[:, :, :1], x[:, :, :0:-1]], axis=2), 0, 1)
    np.testing.assert_allclose(tensor.t_transpose(jnp.asarray(x)), expected, atol=1e-12)


@kinds
@given(x=tensors())
def test_t_svd_reconstructs_with_orthonormal_factors(kind, x):
    n = x.shape[-1]
    t = transform_of(kind, n)
    u, s, v = tensor.t_svd(jnp.asarray(x), transform=t)
    product = tensor.t_product(
        tensor.t_product(u, s, transform=t), tensor.t_transpose(v, transform=t), transform=t
    )  # fmt: skip
    np.testing.assert_allclose(product, x, atol=1e-11 * (1 + np.abs(x).max()))
    for factor in (u, v):
        gram = t.forward(tensor.t_product(tensor.t_transpose(factor, transform=t), factor, transform=t))
        np.testing.assert_allclose(np.moveaxis(gram, -1, 0), np.eye(factor.shape[1])[None] + 0 * gram.T, atol=1e-11)
    diagonal = np.moveaxis(np.asarray(t.forward(s)), -1, 0)
    singular_values = np.diagonal(diagonal, axis1=1, axis2=2)
    np.testing.assert_allclose(singular_values.imag, 0, atol=1e-10 * (1 + np.abs(x).max()))
    assert (singular_values.real >= -1e-10 * (1 + np.abs(x).max())).all()
    off = diagonal * (1 - np.eye(s.shape[0]))
    np.testing.assert_allclose(off, 0, atol=1e-10 * (1 + np.abs(x).max()))


@given(x=tensors())
def test_nuclear_norm_counts_the_full_spectrum(x):
    slices = np.moveaxis(np.fft.fft(x, axis=-1), -1, 0)
    expected = np.linalg.svd(slices, compute_uv=False).sum() / x.shape[-1]
    np.testing.assert_allclose(tensor.tensor_nuclear_norm(jnp.asarray(x)), expected, atol=1e-10)


@given(x=tensors(), seed=seeds)
def test_nuclear_norm_in_an_orthonormal_basis(x, seed):
    n = x.shape[-1]
    basis = orthonormal(seed, n, n)
    expected = sum(np.linalg.svd(x @ basis[:, i], compute_uv=False).sum() for i in range(n)) / np.sqrt(n)
    actual = tensor.tensor_nuclear_norm(jnp.asarray(x), transform=Orthonormal(jnp.asarray(basis)))
    np.testing.assert_allclose(actual, expected, atol=1e-10)


@kinds
@pytest.mark.parametrize("shape", TENSOR_SHAPES)
def test_transform_keeps_norms_and_inverts(kind, shape):
    n = shape[-1]
    t = transform_of(kind, n)
    x = np.random.default_rng(0).normal(size=shape)
    y = t.forward(jnp.asarray(x))
    np.testing.assert_allclose(t.inverse(y, n), x, atol=1e-13)
    energy = (np.abs(y) ** 2 @ np.asarray(t.multiplicity(n), np.float64)).sum() / n
    np.testing.assert_allclose(energy, (x**2).sum(), rtol=1e-12)
    assert t.multiplicity(n).sum() == n
    assert isinstance(t, Transform)


def test_identity_and_random_bases_are_orthonormal():
    import jax

    for t in (Orthonormal.identity(4), Orthonormal.random(jax.random.key(0), 4)):
        np.testing.assert_allclose(t.basis.T @ t.basis, np.eye(4), atol=1e-6)
