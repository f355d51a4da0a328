"""Every operator against its optimality conditions, with oracles written in NumPy and SciPy."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from hypothesis import given, settings
from jax.test_util import check_grads

from jpltd_jax import optimality, prox
from jpltd_jax.tensor import tensor_nuclear_norm
from jpltd_jax.transforms import Grouped, Orthonormal
from tests.strategies import MATRIX_SHAPES, bounded, matrices, orthonormal, positive_taus, seeds, taus, tensors


def numpy_tensor_slices(x):
    return np.moveaxis(np.fft.fft(x, axis=-1), -1, 0)


def numpy_tensor_nuclear_norm(x):
    return np.linalg.svd(numpy_tensor_slices(np.asarray(x)), compute_uv=False).sum() / x.shape[-1]


def clip_columns(v, tau):
    v = np.asarray(v)
    return v / np.maximum(np.linalg.norm(v, axis=0), 1)


def clip_singular_values(v, tau):
    u, s, vh = np.linalg.svd(np.asarray(v), full_matrices=False)
    return (u * np.minimum(s, 1)) @ vh


def clip_tensor_singular_values(v, tau):
    """Projection onto the dual ball of the tensor nuclear norm, by the full FFT and slice SVDs."""
    u, s, vh = np.linalg.svd(numpy_tensor_slices(np.asarray(v)), full_matrices=False)
    return np.fft.ifft(np.moveaxis((u * np.minimum(s, 1)[:, None, :]) @ vh, 0, -1), axis=-1).real


def tubal_shrink_svd(v, tau):
    return prox.tubal_shrink(v, tau, method="svd")


OPERATORS = {
    "soft_threshold": (prox.soft_threshold, lambda x: np.abs(x).sum(), lambda v, tau: np.clip(v, -1, 1), matrices()),
    "shrink_columns": (
        prox.shrink_columns,
        lambda x: np.linalg.norm(np.asarray(x), axis=0).sum(),
        clip_columns,
        matrices(),
    ),
    "singular_value_threshold": (
        prox.singular_value_threshold,
        lambda x: np.linalg.svd(np.asarray(x), compute_uv=False).sum(),
        clip_singular_values,
        matrices(),
    ),
    "tubal_shrink[gram]": (prox.tubal_shrink, numpy_tensor_nuclear_norm, clip_tensor_singular_values, tensors()),
    "tubal_shrink[svd]": (tubal_shrink_svd, numpy_tensor_nuclear_norm, clip_tensor_singular_values, tensors()),
}
every_operator = pytest.mark.parametrize("name", OPERATORS)
# Of the Gram method, relative to the scale of the input; see its docstring.
ACCURACY = {"tubal_shrink[gram]": 1e-6}


def tolerance(name, v, eps=1e-11):
    return ACCURACY.get(name, eps) * (1 + np.abs(v).max()) ** 2


@every_operator
@given(data=st.data(), tau=taus)
def test_variational_inequality(name, data, tau):
    operator, f, _, inputs = OPERATORS[name]
    v = data.draw(inputs)
    p = np.asarray(operator(jnp.asarray(v), tau))
    others = [data.draw(bounded(v.shape)), np.zeros_like(v), v, 2 * v, p + 1e-3 * data.draw(bounded(v.shape))]
    for y in others:
        gap = optimality.variational_gap(f, operator, jnp.asarray(v), tau, jnp.asarray(y))
        assert gap <= 10 * tolerance(name, v)


@every_operator
@given(data=st.data(), tau=positive_taus)
def test_moreau_identity(name, data, tau):
    operator, _, project_dual, inputs = OPERATORS[name]
    v = data.draw(inputs)
    assert optimality.moreau_gap(operator, project_dual, jnp.asarray(v), tau) <= tolerance(name, v)


@every_operator
@given(data=st.data(), tau=positive_taus, sigma=positive_taus)
def test_prox_of_every_point_on_its_normal_ray(name, data, tau, sigma):
    operator, _, _, inputs = OPERATORS[name]
    v = data.draw(inputs)
    gap = optimality.fixed_point_gap(operator, jnp.asarray(v), tau, sigma)
    assert gap <= tolerance(name, v) * (1 + sigma / tau)


@every_operator
@given(data=st.data(), tau=taus)
def test_firmly_nonexpansive(name, data, tau):
    operator, _, _, inputs = OPERATORS[name]
    v = data.draw(inputs)
    w = v + data.draw(bounded(v.shape))
    assert optimality.firmness_gap(operator, jnp.asarray(v), jnp.asarray(w), tau) <= 10 * tolerance(name, v)


@every_operator
@given(data=st.data())
def test_no_threshold_is_the_identity_and_a_large_one_gives_zero(name, data):
    operator, _, _, inputs = OPERATORS[name]
    v = data.draw(inputs)
    np.testing.assert_allclose(operator(jnp.asarray(v), 0.0), v, atol=1e-12 * (1 + np.abs(v).max()))
    beyond = 1.001 * np.abs(v).sum() + 1e-9
    assert not np.any(operator(jnp.asarray(v), beyond))


@every_operator
@given(data=st.data(), tau=taus)
def test_jit_and_vmap_agree_with_eager(name, data, tau):
    operator, _, _, inputs = OPERATORS[name]
    v = jnp.asarray(data.draw(inputs))
    with jax.disable_jit():
        eager = operator(v, tau)
    atol = 1e-13 * (1 + np.abs(v).max()) if "gram" not in name else tolerance(name, v)
    np.testing.assert_allclose(jax.jit(operator)(v, tau), eager, atol=atol)
    batch = jax.vmap(operator)(jnp.stack([v, -v]), jnp.array([tau, tau / 2]))
    np.testing.assert_allclose(batch[0], eager, atol=atol)
    np.testing.assert_allclose(batch[1], operator(-v, tau / 2), atol=atol)


@every_operator
@given(data=st.data(), tau=positive_taus)
def test_float32_stays_float32_and_close(name, data, tau):
    operator, _, _, inputs = OPERATORS[name]
    v = data.draw(inputs)
    single = operator(jnp.asarray(v, jnp.float32), jnp.float32(tau))
    assert single.dtype == jnp.float32
    scale = 1 + np.linalg.norm(v) * np.sqrt(v.shape[-1])
    eps = float(jnp.finfo(jnp.float32).eps)
    allowed = 20 * eps * scale * (min(scale / tau, eps**-0.5) if "gram" in name else 1)
    np.testing.assert_allclose(single, operator(jnp.asarray(v), tau), atol=allowed)


@every_operator
@given(data=st.data(), tau=taus)
def test_gradient_is_finite_everywhere(name, data, tau):
    operator, _, _, inputs = OPERATORS[name]
    v = jnp.asarray(data.draw(inputs))
    weights = jnp.asarray(np.random.default_rng(0).normal(size=v.shape))
    gradients = jax.grad(lambda v, tau: jnp.vdot(weights, operator(v, tau)), argnums=(0, 1))(v, tau)
    assert all(np.isfinite(g).all() for g in gradients)


@every_operator
def test_gradient_matches_finite_differences(name):
    operator = OPERATORS[name][0]
    shape = (2, 3, 5) if "tubal" in name else (4, 3)
    v = jnp.asarray(np.random.default_rng(1).normal(size=shape) * 3)
    check_grads(operator, (v, 0.7), order=1, modes=["fwd", "rev"], atol=1e-6, rtol=1e-6)


def test_singular_value_gradient_at_repeated_singular_values():
    """At v = 2 I the derivative along a symmetric direction is that direction; along a skew one it is (2 - 1) / 2."""
    skew = jnp.array([[0.0, 1.0], [-1.0, 0.0]])
    symmetric = jnp.array([[0.3, 1.0], [1.0, -0.2]])
    along = lambda d: jax.jvp(lambda v: prox.singular_value_threshold(v, 1.0), (2 * jnp.eye(2),), (d,))[1]  # noqa: E731
    np.testing.assert_allclose(along(symmetric), symmetric, atol=1e-14)
    np.testing.assert_allclose(along(skew), skew / 2, atol=1e-14)


@pytest.mark.parametrize("operator", [lambda v, tau: prox.tubal_shrink(v[None], tau), prox.soft_threshold,
                                      prox.shrink_columns])  # fmt: skip
def test_nan_threshold_stays_visible(operator):
    assert np.isnan(operator(jnp.ones((2, 3)), jnp.nan)).all()


@given(v=st.floats(-10, 10), tau=taus)
def test_soft_threshold_is_the_best_point_of_a_grid(v, tau):
    grid = np.linspace(-11, 11, 220001)
    objective = tau * np.abs(grid) + (grid - v) ** 2 / 2
    assert abs(float(prox.soft_threshold(jnp.asarray(v), tau)) - grid[objective.argmin()]) <= 1e-4


@given(v=bounded((3,)), tau=taus)
def test_shrink_columns_is_the_best_point_found_from_elsewhere(v, tau):
    objective = lambda x: tau * np.linalg.norm(x) + ((x - v) ** 2).sum() / 2  # noqa: E731
    start = np.array([3.0, -7.0, 5.0])
    found = scipy.optimize.minimize(objective, start, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-10})
    p = np.asarray(prox.shrink_columns(jnp.asarray(v)[:, None], tau))[:, 0]
    assert objective(p) <= found.fun + 1e-9


@given(v=matrices(), tau=taus)
def test_shrink_columns_axis(v, tau):
    by_rows = prox.shrink_columns(jnp.asarray(v), tau, axis=-1)
    np.testing.assert_array_equal(by_rows, prox.shrink_columns(jnp.asarray(v).T, tau).T)


@given(v=matrices(), tau=taus, seed=seeds)
def test_singular_value_threshold_is_orthogonally_equivariant(v, tau, seed):
    left, right = orthonormal(seed, v.shape[0], v.shape[0]), orthonormal(seed + 1, v.shape[1], v.shape[1])
    rotated = prox.singular_value_threshold(jnp.asarray(left @ v @ right), tau)
    expected = left @ np.asarray(prox.singular_value_threshold(jnp.asarray(v), tau)) @ right
    np.testing.assert_allclose(rotated, expected, atol=1e-11 * (1 + np.abs(v).max()))


@given(v=tensors(), tau=taus)
def test_gram_agrees_with_svd_to_its_stated_accuracy(v, tau):
    largest = np.linalg.svd(numpy_tensor_slices(v), compute_uv=False).max()
    eps = np.finfo(np.float64).eps
    stated = eps * largest * min(largest / tau, eps**-0.5) if tau > 0 else eps * largest
    difference = prox.tubal_shrink(jnp.asarray(v), tau) - tubal_shrink_svd(jnp.asarray(v), tau)
    assert np.abs(difference).max() <= 20 * stated + 1e-300


@given(v=tensors(), tau=taus, method=st.sampled_from(["gram", "svd"]))
def test_half_spectrum_equals_full_fft(v, tau, method):
    u, s, vh = np.linalg.svd(numpy_tensor_slices(v), full_matrices=False)
    shrunk = np.moveaxis((u * np.maximum(s - tau, 0)[:, None, :]) @ vh, 0, -1)
    full = np.fft.ifft(shrunk, axis=-1)
    np.testing.assert_allclose(full.imag, 0, atol=1e-10 * (1 + np.abs(v).max()))
    actual = prox.tubal_shrink(jnp.asarray(v), tau, method=method)
    np.testing.assert_allclose(actual, full.real, atol=tolerance(f"tubal_shrink[{method}]", v))


@given(v=tensors(), tau=taus, seed=seeds)
def test_tubal_shrink_under_any_orthonormal_transform(v, tau, seed):
    """In the given basis the slices are shrunk one by one, at the scale of the unnormalised DFT."""
    n = v.shape[-1]
    basis = orthonormal(seed, n, n)
    expected = np.zeros_like(v)
    for i in range(n):
        u, s, vh = np.linalg.svd(v @ basis[:, i], full_matrices=False)
        expected += ((u * np.maximum(s - tau / np.sqrt(n), 0)) @ vh)[:, :, None] * basis[:, i]
    actual = prox.tubal_shrink(jnp.asarray(v), tau, transform=Orthonormal(jnp.asarray(basis)))
    np.testing.assert_allclose(actual, expected, atol=tolerance("tubal_shrink[gram]", v))


def test_tubal_shrink_rejects_unknown_method():
    with pytest.raises(ValueError, match="'gram' or 'svd', got 'qr'"):
        prox.tubal_shrink(jnp.ones((1, 1, 2)), 1.0, method="qr")


@given(v=matrices(), seed=seeds)
def test_stiefel_is_a_frame_and_no_frame_is_nearer(v, seed):
    """||x - v||^2 = const - 2 <x, v>, and <x, v> <= nuclear norm of v for every frame (von Neumann)."""
    x = np.asarray(prox.stiefel(jnp.asarray(v)))
    k, d = v.shape
    gram = x @ x.T if k <= d else x.T @ x
    np.testing.assert_allclose(gram, np.eye(min(k, d)), atol=1e-12)
    np.testing.assert_allclose(np.vdot(x, v), scipy.linalg.svdvals(v).sum(), atol=1e-11 * (1 + np.abs(v).max()))
    assert np.linalg.norm(x - v) <= np.linalg.norm(orthonormal(seed, k, d) - v) + 1e-10


@given(v=matrices(), seed=seeds)
def test_stiefel_is_idempotent(v, seed):
    x = prox.stiefel(jnp.asarray(v))
    np.testing.assert_allclose(prox.stiefel(x), x, atol=1e-12)


@pytest.mark.parametrize("shape", MATRIX_SHAPES)
def test_stiefel_equals_scipy_procrustes_and_polar(shape):
    v = np.random.default_rng(2).normal(size=shape)
    x = prox.stiefel(jnp.asarray(v))
    np.testing.assert_allclose(x, scipy.linalg.polar(v)[0], atol=1e-12)
    if shape[0] == shape[1]:
        np.testing.assert_allclose(x, scipy.linalg.orthogonal_procrustes(np.eye(len(v)), v)[0], atol=1e-12)


@pytest.mark.parametrize("shape", MATRIX_SHAPES)
def test_stiefel_of_zero_is_the_leading_coordinates(shape):
    np.testing.assert_array_equal(prox.stiefel(jnp.zeros(shape)), np.eye(*shape))
    assert np.isfinite(jax.jacobian(prox.stiefel)(jnp.zeros(shape))).all()


@pytest.mark.parametrize("shape", [(2, 4), (4, 2), (3, 3)])
def test_stiefel_gradient(shape):
    v = jnp.asarray(np.random.default_rng(3).normal(size=shape))
    check_grads(prox.stiefel, (v,), order=1, modes=["fwd", "rev"], atol=1e-6, rtol=1e-6)
    frame = jnp.asarray(orthonormal(0, *shape))
    check_grads(prox.stiefel, (frame,), order=1, modes=["fwd"], atol=1e-6, rtol=1e-6)


def with_singular_values(seed, k, d, values):
    return (orthonormal(seed, k, k) * values) @ orthonormal(seed + 1, k, d)


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**31),
    shape=st.sampled_from([(5, 5), (20, 70), (30, 31), (40, 12)]),
    decades=st.floats(0, 6),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_stiefel_of_ill_conditioned_matrices(seed, shape, decades, dtype):
    """A frame to rounding, and as near as any: <x, v> reaches the nuclear norm, whatever the condition number."""
    short = min(shape)
    v = with_singular_values(seed, short, max(shape), np.logspace(0, -decades, short)).astype(dtype)
    v = v if shape[0] <= shape[1] else v.T
    x = np.asarray(jax.jit(prox.stiefel)(v))
    assert x.dtype == dtype
    x, eps = x.astype(np.float64), np.finfo(dtype).eps
    frame = x @ x.T if shape[0] <= shape[1] else x.T @ x
    np.testing.assert_allclose(frame, np.eye(short), atol=1e-5 if dtype == "float32" else 1e-12)
    nuclear = np.linalg.svd(v.astype(np.float64), compute_uv=False).sum()
    np.testing.assert_allclose(np.vdot(x, v), nuclear, rtol=20 * eps)
    u, _, vh = np.linalg.svd(v.astype(np.float64), full_matrices=False)
    np.testing.assert_allclose(x, u @ vh, atol=200 * eps * 10**decades)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stiefel_of_a_batch_with_dependent_rows_in_one(dtype):
    """One that Cholesky factors cannot handle must not spoil, nor be spoiled by, the others."""
    good = with_singular_values(0, 6, 9, np.linspace(1, 2, 6))
    low_rank = with_singular_values(2, 6, 9, np.array([3.0, 2.0, 1.0, 0, 0, 0]))
    empty_columns = good * (np.arange(9) < 3)
    x = np.asarray(jax.jit(prox.stiefel)(np.stack([low_rank, good, empty_columns]).astype(dtype)), np.float64)
    tolerance = 50 * np.finfo(dtype).eps
    for frame, v in zip(x, (low_rank, good, empty_columns), strict=True):
        np.testing.assert_allclose(frame @ frame.T, np.eye(6), atol=tolerance)
        np.testing.assert_allclose(np.vdot(frame, v), np.linalg.svd(v, compute_uv=False).sum(), rtol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stiefel_where_its_two_methods_meet(dtype):
    """Around the worst condition that products alone can do, at any scale, alone and where vmap needs both."""
    conditions = np.array([1.0, 20, 45, 49, 51, 55, 100, 1e4])
    exact = [with_singular_values(7, 8, 20, np.geomspace(1, 1 / c, 8)) for c in conditions]
    v = (np.stack(exact) * np.geomspace(1e-15, 1e15, 8)[:, None, None]).astype(dtype)
    u, _, vh = np.linalg.svd(v.astype(np.float64), full_matrices=False)
    tolerance = 50 * np.finfo(dtype).eps * conditions[:, None, None]
    mapped = jax.jit(jax.vmap(prox.stiefel))(v)
    assert (np.abs(mapped - u @ vh) < tolerance).all()
    for alone, together in zip(v, mapped, strict=True):
        np.testing.assert_allclose(prox.stiefel(alone), together, atol=10 * np.finfo(dtype).eps)


def test_stiefel_batches():
    v = jnp.asarray(np.random.default_rng(4).normal(size=(3, 2, 4))).at[1].set(0)
    np.testing.assert_allclose(jax.vmap(prox.stiefel)(v), prox.stiefel(v), atol=1e-13)
    np.testing.assert_array_equal(prox.stiefel(v)[1], np.eye(2, 4))


def numpy_shrink_groups(v, tau, basis, group):
    """Each group's coefficients as one matrix, shrunk by its SVD; then the same for what the basis does not span."""
    p, q, n = v.shape
    complement = scipy.linalg.null_space(basis.T)
    blocks = [basis[:, group == g] for g in np.unique(group)] + ([complement] if complement.size else [])
    out = np.zeros_like(v)
    for block in blocks:
        u, s, vh = np.linalg.svd((v @ block).reshape(p, -1) * np.sqrt(n), full_matrices=False)
        shrunk = ((u * np.maximum(s - tau, 0)) @ vh).reshape(p, q, -1)
        out += shrunk @ block.T / np.sqrt(n)
    return out


@pytest.mark.parametrize("group", [[0], [0, 0], [0, 1, 1], [0, 1, 1, 2], [0, 0, 2, 2, 4]])
@pytest.mark.parametrize("shape", [(2, 3, 5), (4, 2, 5)])
@given(data=st.data(), tau=taus)
def test_grouped_slices(group, shape, data, tau):
    v = data.draw(tensors([shape]))
    basis = orthonormal(7, 5, len(group))
    transform = Grouped(jnp.asarray(basis), jnp.asarray(group))
    expected = numpy_shrink_groups(v, tau, basis, np.array(group))
    actual = prox.tubal_shrink(jnp.asarray(v), tau, transform=transform)
    np.testing.assert_allclose(actual, expected, atol=tolerance("tubal_shrink[gram]", v))


@given(data=st.data(), tau=positive_taus, seed=seeds)
def test_rotating_the_vectors_of_a_group_changes_nothing(data, tau, seed):
    v = jnp.asarray(data.draw(tensors([(2, 3, 5)])))
    basis, rotation = orthonormal(seed, 5, 3), orthonormal(seed + 1, 2, 2)
    rotated = np.concatenate([basis[:, :1], basis[:, 1:] @ rotation], axis=1)
    a, b = (
        prox.tubal_shrink(v, tau, transform=Grouped(jnp.asarray(x), jnp.array([0, 1, 1]))) for x in (basis, rotated)
    )
    np.testing.assert_allclose(a, b, atol=tolerance("tubal_shrink[gram]", v))


def test_grouped_needs_gram():
    with pytest.raises(ValueError, match="method='gram'"):
        prox.tubal_shrink(jnp.ones((1, 1, 2)), 1.0, transform=Grouped(jnp.eye(2), jnp.arange(2)), method="svd")


@pytest.mark.parametrize("shape", [(2, 3, 5), (4, 2, 5)])
def test_grouped_prox_satisfies_the_variational_inequality_of_its_norm(shape):
    transform = Grouped(jnp.asarray(orthonormal(0, 5, 3)), jnp.array([0, 1, 1]))
    rng = np.random.default_rng(0)
    norm = lambda x: tensor_nuclear_norm(x, transform=transform)  # noqa: E731
    shrink = lambda v, tau: prox.tubal_shrink(v, tau, transform=transform)  # noqa: E731
    for _ in range(10):
        v, y = (jnp.asarray(rng.normal(size=shape)) for _ in range(2))
        assert optimality.variational_gap(norm, shrink, v, 0.7, y) <= 1e-9
        assert optimality.variational_gap(norm, shrink, v, 0.7, shrink(v, 0.7) + 1e-3 * y) <= 1e-9
