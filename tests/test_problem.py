import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given

import jpltd_jax as jj
from tests.strategies import seeds


def views_of(n=6, dims=(4, 9), seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, d)) for d in dims]


def changed(view, sample, value, feature=None):
    views = views_of()
    views[view][sample, slice(None) if feature is None else feature] = value
    return views


def missing_in_all():
    views = views_of()
    for x in views:
        x[2] = np.nan
    return views


ALL = np.ones((6, 2), bool)
BAD = {
    "empty list": (lambda: [], None, "views is empty"),
    "different n": (lambda: [*views_of(), np.ones((5, 2))], None, "view 2 has 5 samples but view 0 has 6"),
    "missing in all": (missing_in_all, None, "sample 2 is missing in all views"),
    "empty view that makes samples miss all": (
        views_of,
        np.array([[False, i > 2] for i in range(6)]),
        "view 0 has no obs",
    ),
    "empty view": (lambda: changed(1, slice(None), np.nan), None, "view 1 has no observed sample"),
    "partly NaN": (lambda: changed(1, 3, np.nan, 2), None, "view 1, sample 3, feature 2 is nan; only whole rows"),
    "inf": (lambda: changed(0, 4, np.inf, 1), None, "view 0, sample 4, feature 1 is inf"),
    "NaN row called observed": (lambda: changed(0, 4, np.nan), ALL, "view 0, sample 4.*the mask says"),
    "mask shape": (views_of, ALL.T, r"shape \(samples, views\) = \(6, 2\), got \(2, 6\)"),
    "mask dtype": (views_of, ALL.astype(int), "mask must be boolean .* got dtype int64"),
    "one sample": (lambda: views_of(n=1), None, "at least 2 samples, got 1"),
    "vector": (lambda: [np.ones(6)], None, r"view 0 must be a matrix .* \(6,\)"),
    "no features": (lambda: [np.ones((6, 0))], None, "view 0 has no features"),
    "text": (lambda: [np.array([["a"], ["b"]])], None, "view 0 must hold real numbers"),
    "complex": (lambda: [np.ones((3, 1), complex)], None, "view 0 must hold real numbers"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name):
    views, mask, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        jj.make_problem(views(), mask)


def test_mask_hiding_everything_of_a_sample_is_an_error():
    mask = ALL.copy()
    mask[5] = False
    with pytest.raises(ValueError, match="sample 5 is missing in all views"):
        jj.make_problem(views_of(), mask)


def test_compression_keeps_all_inner_products():
    views = views_of(n=6, dims=(4, 50))
    problem = jj.make_problem(views)
    assert problem.data.shape == (2, 6, 6)
    for v, x in enumerate(views):
        unit = (x / np.linalg.norm(x, axis=1, keepdims=True)).T
        np.testing.assert_allclose(problem.data[v].T @ problem.data[v], unit.T @ unit, atol=1e-14)
    np.testing.assert_allclose(problem.bases[1] @ problem.data[1], unit, atol=1e-14)
    assert problem.bases[0] is None


@pytest.mark.parametrize("garbage", [np.nan, 1e30, -np.inf])
def test_values_under_the_mask_have_no_influence(garbage):
    mask = np.array([[1, 0], [1, 1], [0, 1], [1, 1], [1, 1], [0, 1]], bool)
    clean, dirty = views_of(), views_of()
    for v in range(2):
        dirty[v][~mask[:, v]] = garbage
    a, b = jj.make_problem(clean, mask), jj.make_problem(dirty, mask)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_nan_rows_and_mask_say_the_same():
    mask = np.array([[1, 0], [1, 1], [0, 1], [1, 1], [1, 1], [1, 1]], bool)
    views = views_of()
    with_nan = [np.where(mask[:, [v]], x, np.nan) for v, x in enumerate(views)]
    for x, y in zip(
        jax.tree.leaves(jj.make_problem(views, mask)), jax.tree.leaves(jj.make_problem(with_nan)), strict=True
    ):
        np.testing.assert_array_equal(x, y)


def test_unit_norm_guards_zero_samples():
    views = changed(0, 3, 0.0)
    norms = np.linalg.norm(jj.make_problem(views).data, axis=1)
    np.testing.assert_allclose(norms, np.where([[0, 0, 0, 1, 0, 0], [0] * 6], 0, 1), atol=1e-12)
    raw = jj.make_problem(views, normalize=False)
    np.testing.assert_allclose(raw.data[0, :4], views[0].T)


def test_huge_samples_are_normalised_or_refused():
    views = changed(1, 2, 1e300)
    np.testing.assert_allclose(np.linalg.norm(jj.make_problem(views).data[1, :, 2]), 1, atol=1e-12)
    with pytest.raises(ValueError, match="view 1, sample 2 is too large for float64"):
        jj.make_problem(views, normalize=False)


@given(seed=seeds)
def test_restrict_equals_building_from_hidden_data(seed):
    rng = np.random.default_rng(seed)
    mask = rng.random((6, 2)) < 0.7
    mask[np.arange(6), rng.integers(0, 2, 6)] = True
    mask[0] = True
    views = views_of(dims=(4, 3))
    built, restricted = jj.make_problem(views, mask), jj.make_problem(views).restrict(jnp.asarray(mask))
    np.testing.assert_array_equal(built.mask, restricted.mask)
    gram = lambda p: np.einsum("vri,vrj->vij", p.data, p.data)  # noqa: E731
    np.testing.assert_allclose(gram(built), gram(restricted), atol=1e-14)


def test_dtype_follows_the_views_and_is_never_changed_silently():
    assert jj.make_problem(views_of()).data.dtype == jnp.float64
    assert jj.make_problem([x.astype(np.float32) for x in views_of()]).data.dtype == jnp.float32
    assert jj.make_problem([np.eye(3, dtype=np.int64)], dtype="float32").data.dtype == jnp.float32
    with pytest.raises(ValueError, match="float32 or float64, got int32"):
        jj.make_problem(views_of(), dtype=np.int32)
    with jax.enable_x64(False):
        assert jj.make_problem(views_of()).data.dtype == jnp.float32
        with pytest.raises(ValueError, match="jax_enable_x64"):
            jj.make_problem(views_of(), dtype=np.float64)


def test_sparse_views():
    views = views_of()
    sparse = [scipy.sparse.csr_matrix(x) for x in views]
    np.testing.assert_array_equal(jj.make_problem(sparse).data, jj.make_problem(views).data)
