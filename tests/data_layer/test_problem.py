import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given

from jpltd_jax.problem import choose_anchors, further_samples, make_problem
from jpltd_jax.views import read_views
from tests.strategies import random_incomplete, seeds


def views_of(n=6, dims=(4, 9), seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, d)) for d in dims]


def changed(view, sample, value):
    views = views_of()
    views[view][sample] = value
    return views


def unit_columns(x):
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).T


def inner_products(data):
    data = np.asarray(data)
    return np.einsum("vri,vrj->vij", data, data)


def assert_same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


# Arrays -------------------------------------------------------------------------------------------------------------


def test_compression_keeps_all_inner_products():
    views = views_of(n=6, dims=(4, 50))
    problem = make_problem(views)
    assert problem.data.shape == (2, 6, 6)
    assert (problem.n_views, problem.n_samples, problem.dimensions) == (2, 6, (4, 50))
    units = [unit_columns(x) for x in views]
    np.testing.assert_allclose(inner_products(problem.data), [x.T @ x for x in units], atol=1e-14)
    np.testing.assert_allclose(np.asarray(problem.bases[1]) @ np.asarray(problem.data[1]), units[1], atol=1e-14)
    assert problem.bases[0] is None


def test_columns_are_the_unit_samples_of_every_view():
    views, mask = random_incomplete(6, (4, 50), 0)
    for x, made, present in zip(views, make_problem(views, mask).columns, mask.T, strict=True):
        np.testing.assert_allclose(made, unit_columns(x) * present, atol=1e-14)


@pytest.mark.parametrize("garbage", [np.nan, 1e30, -np.inf])
def test_values_under_the_mask_have_no_influence(garbage):
    mask = np.array([[1, 0], [1, 1], [0, 1], [1, 1], [1, 1], [0, 1]], bool)
    clean, dirty = views_of(), views_of()
    for v in range(2):
        dirty[v][~mask[:, v]] = garbage
    assert_same(make_problem(clean, mask), make_problem(dirty, mask))


def test_nan_rows_and_mask_say_the_same():
    mask = np.array([[1, 0], [1, 1], [0, 1], [1, 1], [1, 1], [1, 1]], bool)
    views = views_of()
    with_nan = [np.where(mask[:, [v]], x, np.nan) for v, x in enumerate(views)]
    assert_same(make_problem(views, mask), make_problem(with_nan))
    assert_same(make_problem(views, mask), make_problem(read_views(with_nan)))


def test_defects_are_named():
    with pytest.raises(ValueError, match="view 0, sample 4, feature 0 is inf"):
        make_problem(changed(0, 4, np.inf))
    with pytest.raises(ValueError, match="at least 2 samples, got 1"):
        make_problem(views_of(n=1))


def test_unit_norm_guards_zero_samples():
    views = changed(0, 3, 0.0)
    norms = np.linalg.norm(np.asarray(make_problem(views).data), axis=1)
    np.testing.assert_allclose(norms, np.where([[0, 0, 0, 1, 0, 0], [0] * 6], 0, 1), atol=1e-12)
    raw = make_problem(views, normalize=False)
    np.testing.assert_allclose(np.asarray(raw.data)[0, :4], views[0].T)


def test_huge_samples_are_normalised_or_refused():
    views = changed(1, 2, 1e300)
    np.testing.assert_allclose(np.linalg.norm(np.asarray(make_problem(views).data)[1, :, 2]), 1, atol=1e-12)
    with pytest.raises(ValueError, match="view 1, sample 2 is too large for float64"):
        make_problem(views, normalize=False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-26, 1e26, 2.0**-86])
def test_the_scale_of_a_view_does_not_matter(dtype, scale):
    first, second = (x.astype(dtype) for x in views_of())
    problem, scaled = make_problem([first, second]), make_problem([first * dtype(scale), second])
    assert scaled.data.dtype == dtype
    np.testing.assert_allclose(scaled.data, problem.data, rtol=0, atol=4 * np.finfo(dtype).eps)
    again = further_samples(problem, [first * dtype(scale), second])
    np.testing.assert_allclose(again.data, problem.data, rtol=0, atol=20 * np.finfo(dtype).eps)


def test_the_smallest_numbers_are_normalised():
    np.testing.assert_allclose(make_problem([np.eye(3) * 5e-324]).data[0], np.eye(3))


def test_problems_know_the_names_of_their_views():
    named = dict(zip("ab", views_of(dims=(4, 4)), strict=True))
    problem = make_problem(named)
    assert (problem.names, make_problem(list(named.values())).names) == (("a", "b"), ("view 0", "view 1"))
    turned = further_samples(problem, {"b": named["b"], "a": named["a"]})
    np.testing.assert_allclose(turned.data, problem.data, atol=1e-14)


@given(seed=seeds)
def test_restrict_equals_building_from_hidden_data(seed):
    rng = np.random.default_rng(seed)
    mask = rng.random((6, 2)) < 0.7
    mask[np.arange(6), rng.integers(0, 2, 6)] = True
    mask[0] = True
    views = views_of(dims=(4, 3))
    built, restricted = make_problem(views, mask), make_problem(views).restrict(jnp.asarray(mask))
    np.testing.assert_array_equal(built.mask, restricted.mask)
    np.testing.assert_allclose(inner_products(built.data), inner_products(restricted.data), atol=1e-14)


def test_dtype_follows_the_views_and_is_never_changed_silently():
    assert make_problem(views_of()).data.dtype == jnp.float64
    assert make_problem([x.astype(np.float32) for x in views_of()]).data.dtype == jnp.float32
    assert make_problem([np.eye(3, dtype=np.int64)], dtype="float32").data.dtype == jnp.float32
    with pytest.raises(ValueError, match="float32 or float64, got int32"):
        make_problem(views_of(), dtype=np.int32)
    with jax.enable_x64(False):
        assert make_problem(views_of()).data.dtype == jnp.float32
        with pytest.raises(ValueError, match="jax_enable_x64"):
            make_problem(views_of(), dtype=np.float64)


def test_astype_changes_all_numbers_and_nothing_else():
    problem = make_problem(views_of(), anchors=[1, 4])
    single = problem.astype(np.float32)
    assert {x.dtype for x in (single.data, *single.bases[1:])} == {jnp.dtype(jnp.float32)}
    assert single.bases[0] is None
    assert_same((single.mask, single.anchors), (problem.mask, problem.anchors))
    assert single.dimensions == problem.dimensions
    np.testing.assert_allclose(single.data, problem.data, atol=1e-7)


def test_sparse_views():
    views = views_of()
    sparse = [scipy.sparse.csr_matrix(x) for x in views]
    np.testing.assert_array_equal(make_problem(sparse).data, make_problem(views).data)


# Further samples ----------------------------------------------------------------------------------------------------


def test_further_samples_keep_inner_products_and_need_one_view():
    views = views_of(n=6, dims=(4, 50))
    problem = make_problem(views, anchors=[0, 2])
    again = further_samples(problem, [x[[4, 1]] for x in views])
    np.testing.assert_allclose(again.data, np.asarray(problem.data)[:, :, [4, 1]], atol=1e-14)
    assert again.anchors is None
    partly = further_samples(problem, [np.full((1, 4), np.nan), views[1][:1]])
    np.testing.assert_array_equal(partly.mask, [[False], [True]])
    assert not np.asarray(partly.data)[0].any()


@pytest.mark.parametrize(
    ("views", "message"),
    [
        (views_of()[:1], "expected 2 views, got 1"),
        (views_of(dims=(4, 8)), "view 1 has 8 features, but the model was made from 9"),
        ([np.full((1, d), np.nan) for d in (4, 9)], "sample 0 is missing in all views"),
    ],
)
def test_further_samples_that_do_not_fit_are_named(views, message):
    with pytest.raises(ValueError, match=message):
        further_samples(make_problem(views_of()), views)


# Anchors ------------------------------------------------------------------------------------------------------------


def test_choice_prefers_complete_samples_and_is_set_by_the_seed():
    rng = np.random.default_rng(0)
    columns = [rng.normal(size=(5, 40)), rng.normal(size=(3, 40))]
    mask = np.ones((40, 2), bool)
    mask[10:, 1] = False
    assert (choose_anchors(columns, mask, 10) == np.arange(10)).all()
    few = choose_anchors(columns, mask, 4)
    assert few.max() < 10
    assert len(set(few)) == 4
    assert (few == choose_anchors(columns, mask, 4)).all()
    assert any((few != choose_anchors(columns, mask, 4, seed=seed)).any() for seed in range(1, 5))
    assert len(choose_anchors(columns, mask, 15)) == 15


def test_choice_covers_separate_groups():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(8), 25)
    x = 100 * np.eye(8)[group].T + rng.normal(size=(8, 200))
    chosen = choose_anchors([x], np.ones((200, 1), bool), 8)
    assert sorted(group[chosen]) == list(range(8))


def test_anchors_show_a_view_that_the_fullest_samples_lack():
    rng = np.random.default_rng(0)
    mask = np.array([[True, True, False]] * 90 + [[False, False, True]] * 10)
    anchors = choose_anchors([rng.normal(size=(2, 100)) for _ in range(3)], mask, 20)
    assert len(np.unique(anchors)) == 20
    assert mask[anchors].any(axis=0).all()


def test_identical_samples_are_still_distinct_anchors():
    with pytest.warns(UserWarning, match="all samples of view 0 are identical"):
        problem = make_problem([np.ones((10, 3))], anchors=4)
    assert len(np.unique(problem.anchors)) == 4


@pytest.mark.parametrize(
    ("anchors", "message"),
    [
        (0, "between 1 and the number of samples 6, got 0"),
        (7, "between 1 and the number of samples 6, got 7"),
        (2.5, "a number or a vector of sample indices"),
        ([0, 6], "indices of samples, 0 to 5"),
        ([-1, 2], "indices of samples, 0 to 5"),
        ([], "a number or a vector"),
        ([1, 1], "holds a sample twice"),
        ([0, 1], "no anchor is observed in view 1"),
    ],
)
def test_bad_anchors_are_named(anchors, message):
    mask = np.ones((6, 2), bool)
    mask[:2, 1] = False
    with pytest.raises(ValueError, match=message):
        make_problem([np.eye(6), np.arange(12.0).reshape(6, 2)], mask, anchors=anchors)


def test_all_samples_chosen_is_no_choice():
    assert make_problem([np.eye(6)], anchors=6).anchors is None
    assert make_problem([np.eye(6)], anchors=range(6)).anchors is None


def test_the_dictionary_is_the_problem_of_the_anchors():
    views, mask = random_incomplete(8, (3, 4), 0)
    mask[[1, 5, 6]] = True
    problem = make_problem(views, mask)
    assert problem.dictionary is problem
    chosen = jax.jit(lambda problem: problem.dictionary)(make_problem(views, mask, anchors=[5, 1, 6]))
    assert chosen.anchors is None
    np.testing.assert_array_equal(chosen.data, np.asarray(problem.data)[..., [5, 1, 6]])
    np.testing.assert_array_equal(chosen.mask, np.asarray(problem.mask)[:, [5, 1, 6]])
