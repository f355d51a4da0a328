import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from scipy.spatial.distance import cdist

from jpltd_jax import linalg
from tests.strategies import WIDE, bounded, matrices, orthonormal, seeds

divide = jax.jit(linalg.divide)
inverse_cholesky = jax.jit(linalg.inverse_cholesky)
inverse_root = jax.jit(linalg.inverse_root)
laplacian = jax.jit(linalg.laplacian)
normalized = jax.jit(linalg.normalized)
polar_factor = jax.jit(linalg.polar_factor)
mapped_polar_factor = jax.jit(jax.vmap(linalg.polar_factor))
ridge = jax.jit(linalg.ridge)
squared_distances = jax.jit(linalg.squared_distances)
symmetric = jax.jit(linalg.symmetric)
unit_rows = jax.jit(linalg.unit_rows)

every_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


@st.composite
def graphs(draw, n=6):
    """Symmetric weights, of which some rows are empty."""
    rng = np.random.default_rng(draw(seeds))
    weights = rng.random((n, n)) * (rng.random((n, n)) < 0.5)
    weights[draw(st.integers(0, n - 1))] = 0
    return np.minimum(weights, weights.T)


# Entries and rows ---------------------------------------------------------------------------------------------------


def test_divide_by_zero_is_what_it_is_told_to_be():
    quotient = divide(np.array([1.0, 0.0, 3.0]), np.array([2.0, 0.0, 0.0]), np.array([7.0, 8.0, 9.0]))
    np.testing.assert_array_equal(quotient, [0.5, 8, 9])
    slope = jax.jit(jax.grad(lambda x: linalg.divide(x, x * x, 0.0)))
    np.testing.assert_allclose([slope(2.0), slope(0.0)], [-0.25, 0])


def test_inverse_root_of_no_degree_is_zero():
    np.testing.assert_allclose(inverse_root(np.array([4.0, 0.0, -1.0])), [0.5, 0, 0])


@given(kinds=matrices())
def test_unit_rows_have_length_one_or_zero(kinds):
    for x in kinds:
        x = np.where(np.abs(x) < 1e-100, 0, x)
        norm = np.linalg.norm(x, axis=1, keepdims=True)
        y = np.asarray(unit_rows(x))
        np.testing.assert_allclose(np.linalg.norm(y, axis=1), norm[:, 0] > 0, atol=1e-14)
        np.testing.assert_allclose(y * norm, x, atol=1e-13)


@given(x=bounded((4, 3)), y=bounded((5, 3)))
def test_squared_distances(x, y):
    np.testing.assert_allclose(squared_distances(x, y), cdist(x, y, "sqeuclidean"), atol=1e-11)


def test_squared_distances_are_never_negative():
    x = (1e4 + np.random.default_rng(0).normal(size=(40, 3)) * 1e-3).astype(np.float32)
    assert (np.asarray(squared_distances(x, x)) >= 0).all()


# Graphs -------------------------------------------------------------------------------------------------------------


@given(graph=graphs(), x=bounded((6,)))
def test_laplacian_is_the_sum_of_squared_differences(graph, x):
    matrix = np.asarray(laplacian(graph))
    np.testing.assert_allclose(matrix.sum(axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(x @ matrix @ x, (graph * (x[:, None] - x) ** 2).sum() / 2, atol=1e-10)


@given(graph=graphs())
def test_normalized_graph(graph):
    degree = graph.sum(axis=1)
    scale = np.divide(1, np.sqrt(degree), where=degree > 0, out=np.zeros(6))
    made = np.asarray(normalized(graph))
    np.testing.assert_allclose(made, np.diag(scale) @ graph @ np.diag(scale), atol=1e-14)
    assert np.abs(np.linalg.eigvalsh(made)).max() <= 1 + 1e-12
    np.testing.assert_allclose(made @ np.sqrt(degree), np.sqrt(degree), atol=1e-12)


def test_batches_of_graphs():
    batch = np.random.default_rng(0).random((2, 6, 6))
    np.testing.assert_array_equal(symmetric(batch), (batch + batch.swapaxes(1, 2)) / 2)
    np.testing.assert_allclose(laplacian(batch), [np.diag(x.sum(axis=1)) - x for x in batch], atol=1e-15)


# Linear systems -----------------------------------------------------------------------------------------------------


@given(seed=seeds, decades=st.floats(0, 6))
def test_inverse_cholesky(seed, decades):
    """Lower triangular, with positive diagonal, and what divides grams down to the identity."""
    q = np.stack([orthonormal(seed, 5, 5), orthonormal(seed + 1, 5, 5)])
    grams = (q * np.logspace(0, -decades, 5)) @ q.swapaxes(1, 2)
    inverse = np.asarray(inverse_cholesky(grams))
    np.testing.assert_array_equal(np.triu(inverse, 1), 0)
    assert (np.diagonal(inverse, axis1=1, axis2=2) > 0).all()
    product = inverse @ grams @ inverse.swapaxes(1, 2)
    np.testing.assert_allclose(product, np.broadcast_to(np.eye(5), product.shape), atol=1e-14 * 10**decades + 1e-14)


@given(seed=seeds)
def test_ridge_is_a_stationary_point(seed):
    """The gradient of ||target - D G^T||^2 + ||G - center||^2 over observed samples vanishes; the sum is convex."""
    rng = np.random.default_rng(seed)
    mask = rng.random((2, 9)) < 0.7
    mask[:, 0] = False
    dictionary, center = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 9, 4))
    target = rng.normal(size=(2, 3, 9)) * mask[:, None, :]
    graph, represented = map(np.asarray, ridge(dictionary, target, center, mask))
    expected = np.einsum("vkj,vij->vki", dictionary, graph) * mask[:, None, :]
    gradient = 2 * np.einsum("vki,vkj->vij", expected - target, dictionary) + 2 * (graph - center)
    np.testing.assert_allclose(gradient, 0, atol=1e-10)
    np.testing.assert_allclose(represented, expected, atol=1e-11)


def test_ridge_equals_least_squares_of_a_sample():
    rng = np.random.default_rng(0)
    dictionary, target, center = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 9)), rng.normal(size=(2, 9, 4))
    graph, _ = ridge(dictionary, target, center, np.ones((2, 9), bool))
    stacked = np.vstack([dictionary[1], np.eye(4)])
    solution = scipy.linalg.lstsq(stacked, np.concatenate([target[1, :, 5], center[1, 5]]))[0]
    np.testing.assert_allclose(np.asarray(graph)[1, 5], solution, atol=1e-13)


# Derivatives of functions of singular values ------------------------------------------------------------------------


@jax.jit
def derivative_of_the_cube(u, s, vh, along):
    """Of u diag(s^3) vh, whose divided differences are polynomials."""
    left, right = s[:, None], s[None, :]
    return linalg.singular_tangent(u, vh, along, left**2 + left * right + right**2, left**2 - left * right + right**2)


@pytest.mark.parametrize("imaginary", [0, 1j])
@given(kinds=matrices(), seed=seeds)
def test_singular_tangent_of_the_cube(imaginary, kinds, seed):
    """u diag(s^3) vh = x x^H x, whose derivative needs no singular values: also where they coincide or are zero."""
    rng = np.random.default_rng(seed)
    along = rng.normal(size=WIDE) + imaginary * rng.normal(size=WIDE)
    for v in kinds:
        x = v + imaginary * v[::-1]
        h, along_h = x.conj().T, along.conj().T
        expected = along @ h @ x + x @ along_h @ x + x @ h @ along
        u, s, vh = np.linalg.svd(x, full_matrices=False)
        atol = 1e-12 * (1 + np.abs(x).max()) ** 2
        np.testing.assert_allclose(derivative_of_the_cube(u, s, vh, along), expected, atol=atol)


# Polar factor -------------------------------------------------------------------------------------------------------

SHAPE = (8, 20)


def with_singular_values(seed, values):
    k, d = SHAPE
    return (orthonormal(seed, k, k) * values) @ orthonormal(seed + 1, k, d)


@every_dtype
@given(seed=st.integers(0, 2**31), decades=st.floats(0, 6))
def test_polar_factor_of_ill_conditioned_matrices(dtype, seed, decades):
    """A frame to rounding, and as near as any: <x, v> reaches the nuclear norm, whatever the condition number."""
    v = with_singular_values(seed, np.logspace(0, -decades, 8)).astype(dtype)
    x = np.asarray(polar_factor(v))
    assert x.dtype == dtype
    x, eps = x.astype(np.float64), np.finfo(dtype).eps
    np.testing.assert_allclose(x @ x.T, np.eye(8), atol=1e-5 if dtype == "float32" else 1e-12)
    u, s, vh = np.linalg.svd(v.astype(np.float64), full_matrices=False)
    np.testing.assert_allclose(np.vdot(x, v), s.sum(), rtol=20 * eps)
    np.testing.assert_allclose(x, u @ vh, atol=200 * eps * 10**decades)


@every_dtype
def test_polar_factor_of_a_batch_with_dependent_rows_in_one(dtype):
    """One that Cholesky factors cannot handle must not spoil, nor be spoiled by, the others."""
    good = with_singular_values(0, np.linspace(1, 2, 8))
    low_rank = with_singular_values(2, np.array([3.0, 2.0, 1.0, 0, 0, 0, 0, 0]))
    empty_columns = good * (np.arange(20) < 3)
    v = np.stack([low_rank, good, empty_columns] + 5 * [good])
    tolerance = 50 * np.finfo(dtype).eps
    for factor in (polar_factor, mapped_polar_factor):
        for frame, one in zip(np.asarray(factor(v.astype(dtype)), np.float64), v, strict=True):
            np.testing.assert_allclose(frame @ frame.T, np.eye(8), atol=tolerance)
            np.testing.assert_allclose(np.vdot(frame, one), np.linalg.svd(one, compute_uv=False).sum(), rtol=tolerance)


@every_dtype
def test_polar_factor_where_its_two_methods_meet(dtype):
    """Around the worst condition that products alone can do, at any scale, alone and where vmap needs both."""
    conditions = np.array([1.0, 20, 45, 49, 51, 55, 100, 1e4])
    exact = [with_singular_values(7, np.geomspace(1, 1 / c, 8)) for c in conditions]
    v = (np.stack(exact) * np.geomspace(1e-15, 1e15, 8)[:, None, None]).astype(dtype)
    u, _, vh = np.linalg.svd(v.astype(np.float64), full_matrices=False)
    tolerance = 50 * np.finfo(dtype).eps * conditions[:, None, None]
    mapped, alone = np.asarray(mapped_polar_factor(v)), np.stack([polar_factor(one) for one in v])
    assert (np.abs(mapped - u @ vh) < tolerance).all()
    assert (np.abs(alone - u @ vh) < tolerance).all()
    moderate = conditions <= 100
    np.testing.assert_allclose(alone[moderate], mapped[moderate], atol=10 * np.finfo(dtype).eps)


def test_after_waits_and_changes_nothing():
    """Compiled, the sum still reads the earlier array: a dependency, and not one that XLA simplifies away."""
    x, earlier = jnp.asarray([1.5, -2.0, 0.0]), jnp.full((2, 3), -7.0)
    np.testing.assert_array_equal(linalg.after(x, earlier), x)
    program = jax.jit(linalg.after).lower(x, earlier).compile().as_text()
    assert "minimum" in program
    assert np.isnan(linalg.after(x, earlier.at[0, 0].set(jnp.nan))).all()


# Eigenvectors -------------------------------------------------------------------------------------------------------

of_products = jax.jit(lambda a, start: linalg.leading_eigenvectors_of_products(lambda x: a @ x, start, 6))


def normalized_blocks(seed, n=120):
    """Graph of three components of random weights, whose eigenvalue 1 is repeated; in random order."""
    rng = np.random.default_rng(seed)
    weights = rng.random((n, n)) ** 8 * (np.arange(n) % 3 == np.arange(n)[:, None] % 3)
    weights = weights + weights.T
    order = rng.permutation(n)
    root = 1 / np.sqrt(weights.sum(axis=1))
    return (root[:, None] * weights * root)[np.ix_(order, order)]


@every_dtype
@given(seed=seeds)
def test_leading_eigenvectors_from_products_are_scipys(dtype, seed):
    a = normalized_blocks(seed)
    values, vectors = scipy.linalg.eigh(a)
    values, vectors = values[::-1], vectors[:, ::-1]
    start = np.random.default_rng(seed).normal(size=(120, 16)).astype(dtype)
    found_values, found = (np.asarray(x, float) for x in of_products(a.astype(dtype), start))
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(found_values, values[:6], atol=100 * eps)
    np.testing.assert_allclose(found.T @ found, np.eye(6), atol=100 * eps)
    assert np.linalg.norm(a @ found - found * found_values, axis=0).max() < 200 * eps
    np.testing.assert_allclose(found[:, :3] @ found[:, :3].T, vectors[:, :3] @ vectors[:, :3].T, atol=2000 * eps)


def test_large_matrices_are_not_decomposed_as_a_whole_and_give_the_same():
    a = jnp.asarray(normalized_blocks(0, n=1002))
    values, vectors = jax.jit(linalg.leading_eigenvectors, static_argnums=1)(a, 4)
    expected, basis = scipy.linalg.eigh(a, subset_by_index=[998, 1001])
    np.testing.assert_allclose(values, expected[::-1], atol=1e-13)
    np.testing.assert_allclose(vectors @ vectors.T, basis @ basis.T, atol=1e-10)
    primitives = str(jax.make_jaxpr(linalg.leading_eigenvectors, static_argnums=1)(a, 4))
    assert "f64[1002,1002] = eigh" not in primitives
    assert "while" in primitives


def test_more_vectors_than_an_iteration_can_find_are_those_of_the_whole_matrix():
    a = jnp.asarray(normalized_blocks(1, n=30))
    values, vectors = linalg.leading_eigenvectors(a, 30)
    np.testing.assert_allclose((vectors * values) @ vectors.T, a, atol=1e-12)
    assert (np.diff(values) <= 0).all()
