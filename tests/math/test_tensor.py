import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given

from jpltd_jax import tensor
from jpltd_jax.transforms import Fourier, Grouped, Orthonormal
from tests.math import oracles
from tests.strategies import orthonormal, seeds, tensors

SHAPES = [(2, 3, 4), (4, 2, 5)]
BASES = {4: orthonormal(0, 4, 4), 5: orthonormal(0, 5, 5)}
TRANSFORMS = {"Fourier": lambda n: Fourier(), "Orthonormal": lambda n: Orthonormal(BASES[n])}
every_shape = pytest.mark.parametrize("shape", SHAPES)

t_product = jax.jit(lambda a, b: tensor.t_product(a, b))
t_transpose = jax.jit(lambda x: tensor.t_transpose(x))
norm = jax.jit(lambda x, transform=None: tensor.tensor_nuclear_norm(x, transform=transform))


@jax.jit
def decompose(x, transform):
    """The factors, their product, and the slices of s, u^T u and v^T v."""
    product = lambda a, b: tensor.t_product(a, b, transform=transform)  # noqa: E731
    transpose = lambda a: tensor.t_transpose(a, transform=transform)  # noqa: E731
    u, s, v = tensor.t_svd(x, transform=transform)
    inner = [transform.slices(product(transpose(factor), factor)) for factor in (u, v)]
    return product(product(u, s), transpose(v)), transform.slices(s), inner


def circular(a, b):
    """The t-product by its definition: circular convolution of tubes."""
    n = a.shape[-1]
    out = np.zeros((a.shape[0], b.shape[1], n))
    for i in range(n):
        for j in range(n):
            out[:, :, i] += a[:, :, j] @ b[:, :, (i - j) % n]
    return out


@every_shape
@given(data=st.data())
def test_t_product_is_circular_convolution(shape, data):
    y = np.random.default_rng(0).normal(size=(shape[1], 2, shape[2]))
    for x in data.draw(tensors([shape])):
        np.testing.assert_allclose(t_product(x, y), circular(x, y), atol=1e-10)


@every_shape
@given(data=st.data())
def test_t_transpose_reverses_the_slices(shape, data):
    for x in data.draw(tensors([shape])):
        expected = np.swapaxes(np.concatenate([x[:, :, :1], x[:, :, :0:-1]], axis=2), 0, 1)
        np.testing.assert_allclose(t_transpose(x), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "shape"), [("Fourier", SHAPES[0]), ("Fourier", SHAPES[1]), ("Orthonormal", SHAPES[1])]
)
@given(data=st.data())
def test_t_svd_reconstructs_with_orthonormal_factors(name, shape, data):
    transform, r = TRANSFORMS[name](shape[2]), min(shape[:2])
    for x in data.draw(tensors([shape])):
        product, s, inner = jax.tree.map(np.asarray, decompose(x, transform))
        scale = 1 + np.abs(x).max()
        np.testing.assert_allclose(product, x, atol=1e-11 * scale)
        for gram in inner:
            np.testing.assert_allclose(gram, np.eye(r)[:, :, None] + 0 * gram, atol=1e-11)
        singular_values = np.diagonal(s)
        np.testing.assert_allclose(singular_values.imag, 0, atol=1e-10 * scale)
        assert (singular_values.real >= -1e-10 * scale).all()
        np.testing.assert_allclose(s * (1 - np.eye(r))[:, :, None], 0, atol=1e-10 * scale)


@every_shape
@given(data=st.data())
def test_nuclear_norm_counts_the_full_spectrum(shape, data):
    for x in data.draw(tensors([shape])):
        np.testing.assert_allclose(norm(x), oracles.nuclear_norm(x, oracles.fourier_blocks(shape[2])), atol=1e-10)


@given(data=st.data(), seed=seeds)
def test_nuclear_norm_in_an_orthonormal_basis(data, seed):
    basis = orthonormal(seed, 5, 5)
    for x in data.draw(tensors([(4, 2, 5)])):
        expected = oracles.nuclear_norm(x, oracles.basis_blocks(basis))
        np.testing.assert_allclose(norm(x, Orthonormal(basis)), expected, atol=1e-10)


@given(data=st.data(), seed=seeds)
def test_nuclear_norm_of_groups(data, seed):
    """To the accuracy of roots of eigenvalues."""
    basis, group = orthonormal(seed, 5, 3), np.array([0, 1, 1])
    for x in data.draw(tensors([(4, 2, 5)])):
        expected = oracles.nuclear_norm(x, oracles.grouped_blocks(basis, group))
        np.testing.assert_allclose(norm(x, Grouped(basis, group)), expected, atol=1e-6 * (1 + np.abs(x).max()))
