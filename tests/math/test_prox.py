"""Every operator against its optimality conditions, with oracles written in NumPy and SciPy."""

import functools

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from hypothesis import assume, given

from jpltd_jax import optimality, prox
from jpltd_jax.transforms import Fourier, Grouped, Orthonormal
from tests.math import oracles
from tests.math.derivatives import Derivatives
from tests.strategies import SQUARE, TALL, WIDE, bounded, matrices, orthonormal, positive_taus, seeds, taus, tensors

# The convex operators -----------------------------------------------------------------------------------------------


def clip_columns(v):
    return v / np.maximum(np.linalg.norm(v, axis=0), 1)


def clip_singular_values(v):
    u, s, vh = np.linalg.svd(v, full_matrices=False)
    return (u * np.minimum(s, 1)) @ vh


def under(transform, blocks, shape):
    """tubal_shrink under a transform, its norm, the projection on the dual ball, shapes."""
    return (
        lambda v, tau: prox.tubal_shrink(v, tau, transform(v.dtype)),
        functools.partial(oracles.nuclear_norm, blocks=blocks),
        lambda v: oracles.map_singular_values(v, blocks, lambda s: np.minimum(s, 1)),
        [shape],
    )


BASIS = orthonormal(7, 5, 5)
GROUPS = np.array([0, 1, 1])
COMPLETE = orthonormal(8, 4, 4)
COMPLETE_GROUPS = np.array([0, 3, 1, 3])
OPERATORS = {
    "soft_threshold": (prox.soft_threshold, lambda x: np.abs(x).sum(), lambda v: np.clip(v, -1, 1), [WIDE]),
    "shrink_columns": (prox.shrink_columns, lambda x: np.linalg.norm(x, axis=0).sum(), clip_columns, [WIDE]),
    "singular_value_threshold": (
        prox.singular_value_threshold,
        lambda x: np.linalg.svd(x, compute_uv=False).sum(),
        clip_singular_values,
        [WIDE, TALL],
    ),
    "tubal_shrink, Fourier": under(lambda dtype: Fourier(), oracles.fourier_blocks(4), (2, 3, 4)),
    "tubal_shrink, Fourier, odd and tall": under(lambda dtype: Fourier(), oracles.fourier_blocks(5), (4, 2, 5)),
    "tubal_shrink, Orthonormal": under(
        lambda dtype: Orthonormal(BASIS.astype(dtype)), oracles.basis_blocks(BASIS), (4, 2, 5)
    ),
    "tubal_shrink, Grouped": under(
        lambda dtype: Grouped(BASIS[:, :3].astype(dtype), GROUPS),
        oracles.grouped_blocks(BASIS[:, :3], GROUPS),
        (4, 2, 5),
    ),
    "tubal_shrink, Grouped and complete": under(
        lambda dtype: Grouped(COMPLETE.astype(dtype), COMPLETE_GROUPS),
        oracles.grouped_blocks(COMPLETE, COMPLETE_GROUPS),
        (2, 3, 4),
    ),
}
every_operator = pytest.mark.parametrize("name", OPERATORS)
with_one_other_transform = pytest.mark.parametrize("name", [*list(OPERATORS)[:4], "tubal_shrink, Grouped"])
without_other_transforms = pytest.mark.parametrize("name", list(OPERATORS)[:4])
BATCHED = {name: jax.jit(jax.vmap(operator)) for name, (operator, *_) in OPERATORS.items()}
DERIVATIVES = {name: Derivatives(operator) for name, (operator, *_) in OPERATORS.items()}
TAU = np.float64(0.7)


def from_grams(name):
    return name.startswith("tubal_shrink")


def tolerance(name, v):
    """Relative to the scale of the input; of operators by Gram matrices see the docstring of tubal_shrink."""
    return (1e-6 if from_grams(name) else 1e-11) * (1 + np.abs(v).max()) ** 2


def rounding(name, v):
    return tolerance(name, v) if from_grams(name) else 1e-13 * (1 + np.abs(v).max())


def inputs(name):
    *_, shapes = OPERATORS[name]
    return matrices(shapes) if len(shapes[0]) == 2 else tensors(shapes)


def on_the_host(name):
    operator, *_ = OPERATORS[name]
    return lambda v, tau: np.asarray(operator(v, tau))


@every_operator
@given(data=st.data(), tau=taus)
def test_variational_inequality(name, data, tau):
    operator, (_, f, _, _) = on_the_host(name), OPERATORS[name]
    kinds = data.draw(inputs(name))
    other = data.draw(bounded(kinds[0].shape))
    for v in kinds:
        for y in (other, np.zeros_like(v), v, 2 * v, operator(v, tau) + 1e-3 * other):
            assert optimality.variational_gap(f, operator, v, tau, y) <= 10 * tolerance(name, v)


@every_operator
@given(data=st.data(), tau=positive_taus)
def test_moreau_identity(name, data, tau):
    operator, (_, _, project_dual, _) = on_the_host(name), OPERATORS[name]
    for v in data.draw(inputs(name)):
        assert optimality.moreau_gap(operator, lambda v, tau: project_dual(v), v, tau) <= tolerance(name, v)


@every_operator
@given(data=st.data(), tau=positive_taus, sigma=positive_taus)
def test_prox_of_every_point_on_its_normal_ray(name, data, tau, sigma):
    for v in data.draw(inputs(name)):
        gap = optimality.fixed_point_gap(on_the_host(name), v, tau, sigma)
        assert gap <= tolerance(name, v) * (1 + sigma / tau)


@every_operator
@given(data=st.data(), tau=taus)
def test_firmly_nonexpansive(name, data, tau):
    kinds = data.draw(inputs(name))
    step = data.draw(bounded(kinds[0].shape))
    for v in kinds:
        assert optimality.firmness_gap(on_the_host(name), v, v + step, tau) <= 10 * tolerance(name, v)


@every_operator
@given(data=st.data())
def test_no_threshold_is_the_identity_and_a_large_one_gives_zero(name, data):
    operator, *_ = OPERATORS[name]
    for v in data.draw(inputs(name)):
        np.testing.assert_allclose(operator(v, np.float64(0)), v, atol=1e-12 * (1 + np.abs(v).max()))
        beyond = 1.001 * np.abs(v).sum() * np.sqrt(v.shape[-1]) + 1e-9
        assert not np.asarray(operator(v, beyond)).any()


@with_one_other_transform
@given(data=st.data(), tau=taus)
def test_vmap_agrees_with_one_at_a_time(name, data, tau):
    operator, *_ = OPERATORS[name]
    kinds = np.stack(data.draw(inputs(name)))
    thresholds = tau / np.arange(1, 7)
    batch = np.asarray(BATCHED[name](kinds, thresholds))
    for v, threshold, mapped in zip(kinds, thresholds, batch, strict=True):
        np.testing.assert_allclose(mapped, operator(v, threshold), atol=rounding(name, v))


@without_other_transforms
@given(data=st.data(), tau=taus)
def test_jit_agrees_with_eager(name, data, tau):
    operator, _, _, (shape, *_) = OPERATORS[name]
    for v in data.draw(matrices([shape]) if len(shape) == 2 else tensors([shape])):
        with jax.disable_jit():
            eager = operator(v, tau)
        np.testing.assert_allclose(operator(v, tau), eager, atol=rounding(name, v))


@with_one_other_transform
@given(data=st.data(), tau=positive_taus)
def test_float32_stays_float32_and_close(name, data, tau):
    operator, *_ = OPERATORS[name]
    eps = float(np.finfo(np.float32).eps)
    for v in data.draw(inputs(name)):
        single = operator(v.astype(np.float32), np.float32(tau))
        assert single.dtype == np.float32
        scale = 1 + np.linalg.norm(v) * np.sqrt(v.shape[-1])
        allowed = 20 * eps * scale * (min(scale / tau, eps**-0.5) if from_grams(name) else 1)
        np.testing.assert_allclose(single, operator(v, tau), atol=allowed)


@every_operator
@given(data=st.data(), tau=taus)
def test_gradient_is_finite_everywhere(name, data, tau):
    assert all(DERIVATIVES[name].are_finite(v, tau) for v in data.draw(inputs(name)))


@every_operator
@pytest.mark.parametrize("kind", ["general", "partly below", "zero", "rank one", "equal singular values"])
def test_gradient_matches_finite_differences(name, kind):
    """Also where singular values coincide or vanish: the operator is smooth as long as none equals the threshold."""
    *_, shapes = OPERATORS[name]
    shape = shapes[-1]
    v = 3 * np.random.default_rng(1).normal(size=shape)
    if kind == "zero":
        v = 0 * v
    if kind == "rank one":
        v = v[:, :1] * np.ones(shape[1:]) if len(shape) == 2 else v[:, :1, :1] * np.ones(shape[1:])
    if kind == "equal singular values":
        v = 3 * orthonormal(0, *shape[:2])
        v = v if len(shape) == 2 else v[:, :, None] * np.eye(shape[2])[0]
    DERIVATIVES[name].check(v, np.float64(4) if kind == "partly below" else TAU)


@pytest.mark.parametrize("name", list(OPERATORS)[1:])
@given(data=st.data())
def test_derivative_without_threshold_is_the_identity(name, data):
    """Of all operators but soft_threshold, which has a kink there."""
    for v in data.draw(inputs(name)):
        along = np.random.default_rng(0).normal(size=v.shape)
        _, tangent = DERIVATIVES[name].forward((v, np.float64(0)), (along, np.float64(0)))
        np.testing.assert_allclose(tangent, along, atol=1e-10)


@every_operator
def test_nan_stays_visible(name):
    operator, _, _, (shape, *_) = OPERATORS[name]
    for v in (np.ones(shape), np.zeros(shape)):
        assert np.isnan(operator(v, np.float64(np.nan))).all()
    v = np.ones(shape)
    v[0] = np.nan
    assert np.isnan(operator(v, TAU)).any()


@without_other_transforms
def test_a_whole_number_is_a_threshold_too(name):
    operator, _, _, (shape, *_) = OPERATORS[name]
    gradient = jax.eval_shape(jax.grad(lambda v: operator(v, 1).sum()), np.zeros(shape, np.float32))
    assert (gradient.shape, gradient.dtype) == (shape, np.float32)


def test_singular_value_gradient_at_repeated_singular_values():
    """At v = 2 I the derivative along a symmetric direction is that direction; along a skew one it is (2 - 1) / 2."""
    skew = np.array([[0.0, 1.0], [-1.0, 0.0]])
    symmetric = np.array([[0.3, 1.0], [1.0, -0.2]])
    along = lambda d: jax.jvp(prox.singular_value_threshold, (2 * np.eye(2), 1.0), (d, 0.0))[1]  # noqa: E731
    np.testing.assert_allclose(along(symmetric), symmetric, atol=1e-14)
    np.testing.assert_allclose(along(skew), skew / 2, atol=1e-14)


@given(v=st.floats(-10, 10), tau=taus)
def test_soft_threshold_is_the_best_point_of_a_grid(v, tau):
    grid = np.linspace(-11, 11, 220001)
    objective = tau * np.abs(grid) + (grid - v) ** 2 / 2
    assert abs(float(prox.soft_threshold(v, tau)) - grid[objective.argmin()]) <= 1e-4


@given(v=bounded((3,)), tau=taus)
def test_shrink_columns_is_the_best_point_found_from_elsewhere(v, tau):
    objective = lambda x: tau * np.linalg.norm(x) + ((x - v) ** 2).sum() / 2  # noqa: E731
    start = np.array([3.0, -7.0, 5.0])
    found = scipy.optimize.minimize(objective, start, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-10})
    p = np.asarray(prox.shrink_columns(v[:, None], tau))[:, 0]
    assert objective(p) <= found.fun + 1e-9


@given(kinds=matrices(), tau=taus)
def test_shrink_columns_axis(kinds, tau):
    for v in kinds:
        np.testing.assert_array_equal(prox.shrink_columns(v.T, tau, axis=-1), prox.shrink_columns(v, tau).T)


@given(kinds=matrices([WIDE, TALL]), tau=taus, seed=seeds)
def test_singular_value_threshold_is_orthogonally_equivariant(kinds, tau, seed):
    for v in kinds:
        left, right = orthonormal(seed, v.shape[0], v.shape[0]), orthonormal(seed + 1, v.shape[1], v.shape[1])
        expected = left @ np.asarray(prox.singular_value_threshold(v, tau)) @ right
        rotated = prox.singular_value_threshold(left @ v @ right, tau)
        np.testing.assert_allclose(rotated, expected, atol=1e-11 * (1 + np.abs(v).max()))


def test_singular_value_threshold_of_complex_matrices_with_a_threshold_each():
    rng = np.random.default_rng(0)
    v = rng.normal(size=(2, *WIDE)) + 1j * rng.normal(size=(2, *WIDE))
    tau = np.array([0.5, 1.5])
    u, s, vh = np.linalg.svd(v, full_matrices=False)
    expected = (u * np.maximum(s - tau[:, None], 0)[:, None]) @ vh
    np.testing.assert_allclose(prox.singular_value_threshold(v, tau), expected, atol=1e-13)


# Tensors ------------------------------------------------------------------------------------------------------------


def shrunk(v, tau, blocks):
    return oracles.map_singular_values(v, blocks, lambda s: np.maximum(s - tau, 0))


@pytest.mark.parametrize("shape", [(2, 3, 4), (4, 2, 5)])
@given(data=st.data(), tau=taus)
def test_tubal_shrink_to_its_stated_accuracy(shape, data, tau):
    eps, blocks = np.finfo(np.float64).eps, oracles.fourier_blocks(shape[2])
    for v in data.draw(tensors([shape])):
        largest = np.max(oracles.singular_values(v, blocks))
        stated = eps * largest * min(largest / tau, eps**-0.5) if tau > 0 else eps * largest
        difference = np.asarray(prox.tubal_shrink(v, tau, Fourier())) - shrunk(v, tau, blocks)
        assert np.abs(difference).max() <= 20 * stated + 1e-300


def test_half_spectrum_stands_for_the_full_one():
    """The full transform of what is shrunk slice by slice is real, so the oracle drops nothing."""
    v, blocks = np.random.default_rng(0).normal(size=(4, 2, 5)), oracles.fourier_blocks(5)
    parts = []
    for part in oracles.slices(v, blocks):
        u, s, vh = np.linalg.svd(part, full_matrices=False)
        parts.append((u * np.maximum(s - 0.7, 0)) @ vh)
    full = np.fft.ifft(np.stack(parts, axis=-1), axis=-1)
    np.testing.assert_allclose(full.imag, 0, atol=1e-14)
    np.testing.assert_allclose(full.real, shrunk(v, 0.7, blocks), atol=1e-14)


@pytest.mark.parametrize("shape", [(2, 3, 1), (3, 3, 2), (1, 4, 6)])
def test_tubal_shrink_of_few_slices_or_rows(shape):
    rng, blocks = np.random.default_rng(0), oracles.fourier_blocks(shape[2])
    for v in (rng.normal(size=shape), np.zeros(shape), np.ones(shape)):
        for tau in (0.0, 0.7, 3.0):
            np.testing.assert_allclose(
                prox.tubal_shrink(v, tau), shrunk(v, tau, blocks), atol=tolerance("tubal_shrink", v)
            )


@given(data=st.data(), tau=taus, seed=seeds)
def test_tubal_shrink_under_any_orthonormal_transform(data, tau, seed):
    basis = orthonormal(seed, 5, 5)
    for v in data.draw(tensors([(4, 2, 5)])):
        actual = prox.tubal_shrink(v, tau, Orthonormal(basis))
        expected = shrunk(v, tau, oracles.basis_blocks(basis))
        np.testing.assert_allclose(actual, expected, atol=tolerance("tubal_shrink", v))


SHAPES_AND_GROUPS = [
    ((2, 3, 5), [0, 1, 1]),
    ((4, 2, 5), [0]),
    ((4, 2, 5), [0, 0, 0]),
    ((4, 2, 5), [0, 1, 1]),
    ((4, 2, 5), [2, 0, 2]),
    ((4, 2, 5), [2, 0, 1]),
    ((4, 2, 5), [0, 0, 2, 2, 4]),
]


@pytest.mark.parametrize(("shape", "group"), SHAPES_AND_GROUPS)
@given(data=st.data(), tau=taus)
def test_grouped_slices(shape, group, data, tau):
    basis, group = BASIS[:, : len(group)], np.array(group)
    for v in data.draw(tensors([shape])):
        actual = prox.tubal_shrink(v, tau, Grouped(basis, group))
        expected = shrunk(v, tau, oracles.grouped_blocks(basis, group))
        np.testing.assert_allclose(actual, expected, atol=tolerance("tubal_shrink", v))


@given(data=st.data(), tau=positive_taus, seed=seeds)
def test_rotating_the_vectors_of_a_group_changes_nothing(data, tau, seed):
    basis, rotation = orthonormal(seed, 5, 3), orthonormal(seed + 1, 2, 2)
    rotated = np.concatenate([basis[:, :1], basis[:, 1:] @ rotation], axis=1)
    for v in data.draw(tensors([(4, 2, 5)])):
        a, b = (prox.tubal_shrink(v, tau, Grouped(x, GROUPS)) for x in (basis, rotated))
        np.testing.assert_allclose(a, b, atol=tolerance("tubal_shrink", v))


# Orthonormal frames -------------------------------------------------------------------------------------------------

every_shape = pytest.mark.parametrize("shape", [WIDE, TALL, SQUARE])
OF_STIEFEL = Derivatives(prox.stiefel)


@every_shape
@given(data=st.data(), seed=seeds)
def test_stiefel_is_a_frame_and_no_frame_is_nearer(shape, data, seed):
    """||x - v||^2 = const - 2 <x, v>, and <x, v> <= nuclear norm of v for every frame (von Neumann)."""
    k, d = shape
    for v in data.draw(matrices([shape])):
        x = np.asarray(prox.stiefel(v))
        gram = x @ x.T if k <= d else x.T @ x
        np.testing.assert_allclose(gram, np.eye(min(k, d)), atol=1e-12)
        np.testing.assert_allclose(np.vdot(x, v), scipy.linalg.svdvals(v).sum(), atol=1e-11 * (1 + np.abs(v).max()))
        assert np.linalg.norm(x - v) <= np.linalg.norm(orthonormal(seed, k, d) - v) + 1e-10
        np.testing.assert_allclose(prox.stiefel(x), x, atol=1e-12)
        assert OF_STIEFEL.are_finite(v)


@every_shape
def test_stiefel_equals_scipy_procrustes_and_polar(shape):
    v = np.random.default_rng(2).normal(size=shape)
    x = prox.stiefel(v)
    np.testing.assert_allclose(x, scipy.linalg.polar(v)[0], atol=1e-12)
    if shape[0] == shape[1]:
        np.testing.assert_allclose(x, scipy.linalg.orthogonal_procrustes(np.eye(len(v)), v)[0], atol=1e-12)


@every_shape
@given(seed=seeds, decades=st.floats(0, 6))
def test_stiefel_of_ill_conditioned_matrices(shape, seed, decades):
    """As test_polar_factor_of_ill_conditioned_matrices, of other shapes."""
    u, vt = orthonormal(seed, shape[0], 3), orthonormal(seed + 1, 3, shape[1])
    x = np.asarray(prox.stiefel((u * np.logspace(0, -decades, 3)) @ vt))
    gram = x @ x.T if shape[0] == 3 else x.T @ x
    np.testing.assert_allclose(gram, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(x, u @ vt, atol=200 * np.finfo(x.dtype).eps * 10**decades)


def test_stiefel_of_a_number_is_its_sign():
    np.testing.assert_array_equal([prox.stiefel(np.full((1, 1), x)).item() for x in (-3.0, 1e-8, 0.0)], [-1, 1, 1])


@every_shape
def test_stiefel_gradient(shape):
    OF_STIEFEL.check(np.random.default_rng(3).normal(size=shape))
    OF_STIEFEL.check(orthonormal(0, *shape))


@every_shape
def test_stiefel_of_zero_is_the_leading_coordinates(shape):
    np.testing.assert_array_equal(prox.stiefel(np.zeros(shape)), np.eye(*shape))
    assert OF_STIEFEL.are_finite(np.zeros(shape))


def test_stiefel_batches_with_a_zero_matrix_and_nan_in_another():
    v = np.random.default_rng(4).normal(size=(3, *WIDE))
    v[1] = 0
    together = np.asarray(prox.stiefel(v))
    np.testing.assert_allclose(together[2], prox.stiefel(v[2]), atol=1e-13)
    np.testing.assert_array_equal(together[1], np.eye(*WIDE))
    v[2, 0, 0] = np.nan
    assert np.isnan(np.asarray(prox.stiefel(v))[2]).all()


# The simplex --------------------------------------------------------------------------------------------------------


@st.composite
def rows_for_the_simplex(draw):
    """Entries that may tie, at several scales, and which of them are allowed; one row allows nothing, one a single."""
    scale = draw(st.sampled_from([0.1, 1.0, 1e6]))
    rng = np.random.default_rng(draw(seeds))
    random, ties = rng.normal(size=(4, 7)), rng.integers(-3, 4, size=(4, 7))
    x = scale * draw(st.sampled_from([random, ties, draw(bounded((4, 7)))]))
    allowed = rng.random((4, 7)) < 0.7
    allowed[0] = False
    allowed[1] = np.arange(7) == 4
    allowed[2:, 2] = True
    return x, allowed, scale


@given(rows=rows_for_the_simplex())
def test_simplex_projection_is_nearest(rows):
    """No allowed vertex lies on the other side of the supporting hyperplane: the variational inequality."""
    x, allowed, scale = rows
    y = np.asarray(prox.simplex(x, allowed))
    assert not y[0].any()
    assert not y[~allowed].any()
    assert (y >= 0).all()
    np.testing.assert_allclose(y[1:].sum(axis=-1), 1, atol=1e-12)
    towards = x - y
    at_vertices = np.where(allowed, towards, -np.inf)
    at_y = np.sum(towards * y, axis=-1, keepdims=True)
    assert (at_vertices <= at_y + 1e-9 * scale)[1:].all()


@given(rows=rows_for_the_simplex())
def test_simplex_projection_is_the_best_of_all_faces(rows):
    x, allowed, _ = rows
    best = np.stack([oracles.nearest_in_simplex(*row) for row in zip(x, allowed, strict=True)])
    np.testing.assert_allclose(prox.simplex(x, allowed), best, atol=16 * np.finfo(x.dtype).eps * (1 + np.abs(x).max()))


@given(rows=rows_for_the_simplex(), step=bounded((4, 7)))
def test_simplex_projection_is_firm_and_idempotent(rows, step):
    x, allowed, scale = rows
    project = lambda x, tau: np.asarray(prox.simplex(x, allowed))  # noqa: E731
    y = project(x, 1.0)
    np.testing.assert_allclose(project(y, 1.0), y, atol=1e-15)
    assert optimality.firmness_gap(project, x, x + scale * step, 1.0) <= 1e-9 * scale


@given(seed=seeds, scale=st.sampled_from([1e-3, 1.0, 1e3]), dtype=st.sampled_from(["f4", "f8"]), shape=st.just((5, 40)))
def test_simplex_projection_agrees_with_sorting(seed, scale, dtype, shape):
    """Also where entries tie, and in both precisions."""
    x = (scale * np.random.default_rng(seed).integers(-3, 4, size=shape)).astype(dtype)
    y = prox.simplex(x, np.ones(40, bool))
    assert y.dtype == x.dtype
    expected = np.stack([oracles.nearest_in_simplex_by_sorting(row.astype(np.float64)) for row in x])
    np.testing.assert_allclose(y, expected, atol=8 * 40 * scale * np.finfo(dtype).eps)


MAPPED_SIMPLEX = jax.jit(jax.vmap(prox.simplex))
ALLOWED = np.arange(7) < np.array([[7], [4], [1], [0]])
OF_SIMPLEX = Derivatives(lambda x: prox.simplex(x, ALLOWED))


@given(rows=rows_for_the_simplex())
def test_simplex_gradient_is_finite_and_vmap_changes_nothing(rows):
    x, allowed, _ = rows
    assert OF_SIMPLEX.are_finite(x)
    np.testing.assert_array_equal(MAPPED_SIMPLEX(x, allowed), prox.simplex(x, allowed))


def test_simplex_gradient_matches_finite_differences():
    OF_SIMPLEX.check(np.random.default_rng(0).normal(size=(4, 7)))


def test_simplex_projection_of_nan_is_nan():
    x = np.zeros((4, 7))
    x[0, 0], x[1, :2] = np.nan, [0.3, 0.2]
    y = np.asarray(prox.simplex(x, np.broadcast_to(np.arange(7) < 2, (4, 7))))
    assert np.isnan(y[0]).any()
    np.testing.assert_allclose(y[1, :2], [0.55, 0.45], atol=1e-15)


# Powers of singular values: not convex ------------------------------------------------------------------------------

weights = st.floats(0.01, 10)
powers = st.floats(0.1, 1)


@given(weight=weights, p=powers)
def test_power_threshold_is_where_zero_stops_being_best(weight, p):
    threshold = float(prox.power_threshold(weight, p))
    assert oracles.power_minimiser(threshold * (1 - 1e-9), weight, p) == 0
    assert oracles.power_minimiser(threshold * (1 + 1e-9), weight, p) > 0


@given(weight=weights, p=powers)
def test_power_shrink_minimises_to_its_stated_accuracy(weight, p):
    """Zero exactly up to the threshold; above it within (p / 2)^4 of the distance that the minimiser is lowered by."""
    threshold = float(prox.power_threshold(weight, p))
    sigma = threshold * np.array([0.0, 0.5, 0.99, 1.001, 1.2, 2.0, 5.0, 100.0])
    t = np.asarray(prox.power_shrink(sigma, weight, p))
    best = np.array([oracles.power_minimiser(s, weight, p) for s in sigma])
    np.testing.assert_array_equal(t[:3], 0)
    assert (t >= best - 1e-12 * sigma).all()
    assert (t - best <= (p / 2) ** 4 * (sigma - best) + 1e-12 * sigma).all()


@given(weight=weights, p=powers)
def test_power_shrink_is_the_best_point_of_a_grid(weight, p):
    threshold = float(prox.power_threshold(weight, p))
    sigma = threshold * np.array([0.0, 0.5, 0.99, 1.001, 1.2, 2.0, 5.0, 100.0])
    t = np.asarray(prox.power_shrink(sigma, weight, p))
    objective = lambda t: weight * t**p + (t - sigma) ** 2 / 2  # noqa: E731
    best = objective(np.linspace(0, 1, 2001)[:, None] * sigma).min(axis=0)
    assert (objective(t) <= best * (1 + 1e-12) + ((p / 2) ** 4 * (sigma - t)) ** 2 / 2 / (1 - 1 / 16) ** 2).all()
    far = [2, 5, 6, 7]
    assert (objective(t) <= best * (1 + 1e-4))[far].all()


def test_power_shrink_limits():
    sigma = np.array([0.0, 0.1, 0.4, 0.5, 0.6, 1.0, 3.0, 9.0])
    np.testing.assert_allclose(prox.power_shrink(sigma, 0.5, 1.0), prox.soft_threshold(sigma, 0.5), atol=1e-15)
    np.testing.assert_array_equal(prox.power_shrink(sigma, 0.0, 0.5), sigma)
    assert np.isnan(prox.power_shrink(np.full(8, np.nan), 1.0, 0.5)).all()
    single = prox.power_shrink(sigma.astype(np.float32), 0.5, 0.5)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, prox.power_shrink(sigma, 0.5, 0.5), rtol=1e-6)
    np.testing.assert_array_equal(
        jax.vmap(lambda s: prox.power_shrink(s, 0.5, 0.5))(sigma), prox.power_shrink(sigma, 0.5, 0.5)
    )


def schatten(x, p, blocks):
    """Mean over the slices of the sum of s^p; what is zero up to rounding counts as zero."""
    values = np.concatenate(oracles.singular_values(x, blocks))
    return (values[values > 1e-10 * (1 + values.max())] ** p).sum() / x.shape[-1]


@pytest.mark.parametrize("shape", [(2, 3, 4), (4, 2, 5)])
@given(data=st.data(), weight=st.floats(0.01, 100), p=powers)
def test_schatten_shrink_minimises_to_its_stated_accuracy(shape, data, weight, p):
    """The minimiser by its definition, slice by slice over the full spectrum; and no other tensor is better."""
    blocks, threshold = oracles.fourier_blocks(shape[2]), float(prox.power_threshold(weight, p))
    kinds = data.draw(tensors([shape]))
    other = data.draw(bounded(shape))
    for v in kinds:
        values = np.concatenate(oracles.singular_values(v, blocks))
        assume((np.abs(values - threshold) > 1e-9 * (1 + values)).all())
        minimise = np.vectorize(lambda s: oracles.power_minimiser(s, weight, p), otypes=[float])
        best = oracles.map_singular_values(v, blocks, minimise)
        allowed = np.sqrt((((p / 2) ** 4 * (values - minimise(values))) ** 2).sum() / shape[2])
        x = np.asarray(prox.schatten_shrink(v, weight, p))
        scale = 1 + np.abs(v).max()
        assert np.linalg.norm(x - best) <= allowed + 1e-11 * scale
        objective = lambda x, v=v: weight * schatten(x, p, blocks) + ((x - v) ** 2).sum() / 2  # noqa: E731
        for y in (other, v, np.zeros(shape), best, x + 1e-2 * other):
            assert objective(x) <= objective(y) + allowed**2 / 2 + 1e-9 * (1 + weight) * scale**2


@pytest.mark.parametrize("shape", [(2, 3, 4), (4, 2, 5)])
@given(data=st.data(), tau=st.sampled_from([0.0, 0.5, 100.0]))
def test_schatten_shrink_with_p_1_lowers_singular_values(shape, data, tau):
    for v in data.draw(tensors([shape])):
        expected = shrunk(v, tau, oracles.fourier_blocks(shape[2]))
        np.testing.assert_allclose(prox.schatten_shrink(v, tau, 1.0), expected, atol=1e-10)


def test_schatten_shrink_of_one_slice_in_float32_and_of_nan():
    v = 3 * np.random.default_rng(0).normal(size=(2, 3, 1))
    u, s, vh = np.linalg.svd(v[..., 0], full_matrices=False)
    best = [oracles.power_minimiser(sigma, 0.5, 0.01) for sigma in s]
    expected = ((u * best) @ vh)[..., None]
    np.testing.assert_allclose(prox.schatten_shrink(v, 0.5, 0.01), expected, atol=1e-10)
    single = prox.schatten_shrink(v.astype(np.float32), 0.5, 0.01)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, atol=1e-5)
    v[0, 0] = np.nan
    assert np.isnan(prox.schatten_shrink(v, 0.5, 0.01)).all()
