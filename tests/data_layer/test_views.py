import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given

from jpltd_jax.views import (
    Views,
    checked_mask,
    classes_of,
    count_distinct,
    match_views,
    read_views,
    read_views_to_learn_from,
    read_with_hidden,
)
from tests.annotated import MuData, anndata, mudata
from tests.strategies import random_incomplete, seeds

A = pd.DataFrame({"f": [1.0, 2.0, 3.0]}, index=["x", "y", "z"])
B = pd.DataFrame({"g": [30, 10], "h": [31, 11]}, index=["z", "x"])
ALL = np.ones((6, 2), bool)


def assert_same(a, b):
    for ours, expected in zip(a.matrices, b.matrices, strict=True):
        np.testing.assert_array_equal(ours, expected, strict=True)
    np.testing.assert_array_equal(a.mask, b.mask, strict=True)
    np.testing.assert_array_equal(a.ids, b.ids)


# By sample id -------------------------------------------------------------------------------------------------------


def test_frames_are_matched_by_id_and_absent_samples_are_missing():
    read = read_views([A, B])
    assert read.ids.tolist() == ["x", "y", "z"]
    np.testing.assert_array_equal(read.matrices[1], [[10, 11], [0, 0], [30, 31]])
    np.testing.assert_array_equal(read.matrices[0], A)
    np.testing.assert_array_equal(read.mask, [[True, True], [True, False], [True, True]])


def test_shuffled_rows_give_the_same_data():
    assert_same(read_views([A, B.iloc[::-1]]), read_views([A, B]))


def test_arrays_with_ids_equal_frames():
    read = read_views([A.to_numpy(), B.to_numpy()], ids=[A.index.to_series(), list(B.index)])
    assert_same(read, read_views([A, B]))


def test_integer_ids_are_ids_not_positions():
    a = pd.DataFrame({"f": [1.0, 2.0]}, index=[7, 3])
    b = pd.DataFrame({"g": [3.0, 7.0]}, index=[3, 7])
    read = read_views([a, b])
    assert read.ids.tolist() == [7, 3]
    np.testing.assert_array_equal(read.matrices[1], [[7.0], [3.0]])


def test_tuple_ids():
    index = pd.MultiIndex.from_tuples([("p", 1), ("p", 2)])
    frame = pd.DataFrame({"f": [1.0, 2.0]}, index=index)
    read = read_views([frame, frame.iloc[::-1]])
    np.testing.assert_array_equal(*read.matrices)
    assert read.ids.tolist() == [("p", 1), ("p", 2)]


@pytest.mark.parametrize(
    ("views", "options", "message"),
    [
        ([A, pd.concat([B, B.iloc[:1]])], {}, "view 1 has the sample id 'z' more than once"),
        ([A, np.ones((3, 1))], {}, "view 0 is a DataFrame and view 1 is not"),
        ([np.ones((3, 1)), A], {}, "view 0 is an array and view 1 is not"),
        ([A, B], {"ids": [A.index, B.index]}, "leave ids out"),
        ([A.to_numpy()], {"ids": []}, "1 views, 0 sequences"),
        ([A.to_numpy()], {"ids": [["x"]]}, "view 0 has 3 rows but 1 sample ids"),
        ([A, B], {"mask": np.ones((3, 2), bool)}, "mask rows go by position"),
        ([pd.DataFrame({"f": ["a", 1]})], {}, "view 0 has columns that are not numbers"),
    ],
)
def test_what_cannot_be_matched_is_an_error(views, options, message):
    with pytest.raises(ValueError, match=message):
        read_views(views, **options)


def test_mask_is_kept_when_all_views_list_the_same_samples():
    mask = np.array([[True, True], [True, False], [False, True]])
    read = read_views([A, A + 1], mask)
    np.testing.assert_array_equal(read.mask, mask)
    np.testing.assert_array_equal(read.matrices[1], [[2], [0], [4]])


# By position --------------------------------------------------------------------------------------------------------


def test_arrays_go_by_position():
    read = read_views([np.ones((3, 2)), scipy.sparse.eye(3, format="csr"), jnp.zeros((3, 1)), [[1], [2], [3]]])
    assert read.ids.tolist() == [0, 1, 2]
    assert read.mask.all()
    for matrix, expected in zip(
        read.matrices, [np.ones((3, 2)), np.eye(3), np.zeros((3, 1)), [[1], [2], [3]]], strict=True
    ):
        np.testing.assert_array_equal(matrix, expected)


def test_dtypes_are_kept():
    views = [np.eye(3, dtype=dtype) for dtype in (np.float32, np.float64, np.int64, np.uint8)]
    assert [x.dtype for x in read_views(views).matrices] == [x.dtype for x in views]


@given(seed=seeds)
def test_nan_rows_ids_and_mask_say_the_same(seed):
    views, mask = random_incomplete(7, (3, 2), seed)
    read = read_views(views, mask)
    with_nan = [np.where(mask[:, [v]], x, np.nan) for v, x in enumerate(views)]
    assert_same(read_views(with_nan), read)
    names = np.arange(7)
    by_id = read_views([x[mask[:, v]] for v, x in enumerate(views)], ids=[names[mask[:, v]] for v in range(2)])
    order = np.argsort(by_id.ids.astype(int))
    for v in range(2):
        np.testing.assert_array_equal(by_id.matrices[v][order], read.matrices[v])
    np.testing.assert_array_equal(by_id.mask[order], mask)


@pytest.mark.parametrize("garbage", [np.nan, 1e30, -np.inf])
def test_values_under_the_mask_have_no_influence(garbage):
    views, mask = random_incomplete(7, (3, 2), 0)
    dirty = [np.where(mask[:, [v]], x, garbage) for v, x in enumerate(views)]
    assert_same(read_views(dirty, mask), read_views(views, mask))


def test_what_was_read_is_not_read_again():
    read = read_views([A, B])
    assert read_views(read) is read
    assert read_views_to_learn_from(read) is read
    for options in ({"mask": read.mask}, {"ids": [A.index, B.index]}):
        with pytest.raises(ValueError, match="leave both out"):
            read_views(read, **options)


# By name ------------------------------------------------------------------------------------------------------------


def test_a_dictionary_names_its_views():
    read = read_views({"rna": A, "protein": B})
    assert_same(read, read_views([A, B]))
    assert read.names == ("rna", "protein")
    assert read.features == (("f",), ("g", "h"))
    assert (read.called(0), read_views([A, B]).called(0)) == ("view 'rna'", "view 0")
    arrays = {"rna": A.to_numpy(), "protein": B.to_numpy()}
    assert_same(read_views(arrays, ids={"protein": B.index, "rna": A.index}), read)
    assert read_views(arrays | {"protein": np.ones((3, 1))}).features == (None, None)


def test_a_generator_is_listed():
    assert_same(read_views(x for x in (A, B)), read_views([A, B]))


def test_samples_go_by_id_only_if_they_have_one():
    assert read_views([A, B]).by_id
    assert not read_views([np.eye(3)]).by_id


def test_views_are_put_in_the_order_of_the_fit_with_all_that_is_theirs():
    read = read_views({"protein": B, "rna": A})
    matched = match_views(read, ("rna", "protein"), (("f",), ("g", "h")))
    straight = read_views({"rna": A, "protein": B})
    assert (matched.names, matched.features) == (straight.names, straight.features)
    by_id = [matched.ids.tolist().index(sample) for sample in straight.ids]
    for ours, expected in zip(matched.matrices, straight.matrices, strict=True):
        np.testing.assert_array_equal(ours[by_id], expected)
    np.testing.assert_array_equal(matched.mask[by_id], straight.mask)


def test_numbered_columns_are_names_that_nobody_is_told_of():
    numbered = read_views([pd.DataFrame(np.eye(3))])
    assert match_views(numbered, ("view 0",), (None,)).features == ((0, 1, 2),)
    assert match_views(read_views([np.eye(3)]), ("view 0",), numbered.features).features == (None,)
    with pytest.raises(ValueError, match="view 0 must have the features of the fit, in the same order"):
        match_views(read_views([pd.DataFrame(np.eye(3))[[2, 1, 0]]]), ("view 0",), numbered.features)


def test_frames_of_any_numbers():
    text = pd.DataFrame({"letter": list("xyx"), "size": [1.0, 2.0, 4.0]})
    dummies = pd.get_dummies(text)
    expected = [[1, 1, 0], [2, 0, 1], [4, 1, 0]]
    for frame in (dummies, dummies.convert_dtypes(), dummies.astype({"size": "float32"})):
        read = read_views([frame])
        assert read.features == (("size", "letter_x", "letter_y"),)
        np.testing.assert_array_equal(read.matrices[0], expected)
    np.testing.assert_array_equal(read_views([dummies[["letter_x"]]]).matrices[0], [[1], [0], [1]])
    assert read_views([A.astype("float32")]).matrices[0].dtype == np.float32


def test_a_row_of_missing_values_of_a_nullable_frame_is_missing():
    frame = pd.DataFrame({"n": pd.array([1, None, 3], "Int64"), "b": pd.array([True, None, False], "boolean")})
    read = read_views([frame, pd.DataFrame(np.eye(3))])
    np.testing.assert_array_equal(read.mask, [[True, True], [False, True], [True, True]])
    np.testing.assert_array_equal(read.matrices[0], [[1, 1], [0, 0], [3, 0]])


def test_a_masked_row_is_missing():
    hidden = np.array([[False, False], [True, True], [False, False]])
    for dtype in (np.float32, np.float64, np.int64):
        view = np.ma.masked_array(np.arange(6, dtype=dtype).reshape(3, 2), hidden)
        read = read_views([view, np.eye(3)])
        np.testing.assert_array_equal(read.mask[:, 0], [True, False, True])
        np.testing.assert_array_equal(read.matrices[0], [[0, 1], [0, 0], [4, 5]])
    assert read_views([np.ma.masked_array(np.eye(3, dtype=np.float32))]).matrices[0].dtype == np.float32


def test_a_partly_masked_row_may_be_hidden_by_the_mask():
    view = np.ma.masked_array(np.ones((3, 2)), [[False, True], [False, False], [False, False]])
    read = read_views([view, np.eye(3)], np.array([[False, True], [True, True], [True, True]]))
    np.testing.assert_array_equal(read.matrices[0], [[0, 0], [1, 1], [1, 1]])


# AnnData and MuData -------------------------------------------------------------------------------------------------


def test_mudata_is_read_in_its_own_order_and_absent_samples_are_missing():
    rna, protein = scipy.sparse.csr_matrix(np.eye(3)), np.arange(4.0).reshape(2, 2)
    data = MuData({"rna": anndata(rna, "abc"), "protein": anndata(protein, "cd", "p")}, pd.Index(list("dcba")))
    read = read_views(data)
    assert (read.ids.tolist(), read.names) == (["d", "c", "b", "a"], ("rna", "protein"))
    assert read.features == (("f0", "f1", "f2"), ("p0", "p1"))
    np.testing.assert_array_equal(read.matrices[0], [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(read.matrices[1], [[2, 3], [0, 1], [0, 0], [0, 0]])
    np.testing.assert_array_equal(read.mask, [[False, True], [True, True], [True, False], [True, False]])


def test_anndata_and_frames_may_be_mixed():
    one = anndata(A.to_numpy(), A.index)
    assert_same(read_views({"a": one, "b": B}), read_views([A, B]))
    assert_same(read_views(mudata(a=one, b=anndata(B.to_numpy(), B.index))), read_views([A, B]))


# What stands in hidden rows; classes; different samples -------------------------------------------------------------


def test_hidden_values_are_handed_over_beside_what_was_read():
    views, mask = random_incomplete(7, (3, 2), 0)
    read, given = read_with_hidden(views, mask)
    assert_same(read, read_views(views, mask))
    for ours, expected in zip(given, views, strict=True):
        np.testing.assert_array_equal(ours, expected)
    with pytest.raises(ValueError, match="lost what stood in their hidden rows"):
        read_with_hidden(read, mask)


def test_classes_are_matched_by_id():
    classes = pd.Series([3, 1, 2, 9], index=["z", "x", "y", "other"])
    np.testing.assert_array_equal(classes_of(classes, read_views([A, B])), [1, 2, 3])
    np.testing.assert_array_equal(classes_of(classes[:3], read_views([np.eye(3)])), [3, 1, 2])
    with pytest.raises(ValueError, match="y has no class for the samples 'z'"):
        classes_of(classes[1:], read_views([A, B]))


def test_different_samples_are_counted():
    twice = np.array([[0.0], [-0.0], [1.0], [1.0], [1.0]])
    assert count_distinct(read_views([twice]), 5) == 2
    assert count_distinct(read_views([twice]), 1) == 1
    assert count_distinct(read_views([twice, np.eye(5)], np.arange(5)[:, None] != [9, 3]), 5) == 5


# Defects ------------------------------------------------------------------------------------------------------------


def views_of(n=6, dims=(4, 9)):
    rng = np.random.default_rng(0)
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


BAD = {
    "empty list": ([], None, "views is empty"),
    "different n": ([*views_of(), np.ones((5, 2))], None, "view 2 has 5 samples but view 0 has 6"),
    "missing in all": (missing_in_all(), None, "sample 2 is missing in all views"),
    "hidden in all": (views_of(), ALL & (np.arange(6) != 5)[:, None], "sample 5 is missing in all views"),
    "partly NaN": (changed(1, 3, np.nan, 2), None, "view 1, sample 3, feature 2 is nan; only whole rows"),
    "inf": (changed(0, 4, np.inf, 1), None, "view 0, sample 4, feature 1 is inf"),
    "NaN row called observed": (changed(0, 4, np.nan), ALL, "view 0, sample 4.*the mask says"),
    "mask shape": (views_of(), ALL.T, r"shape \(samples, views\) = \(6, 2\), got \(2, 6\)"),
    "mask dtype": (views_of(), ALL.astype(int), "mask must be boolean .* got dtype int64"),
    "vector": ([np.ones(6)], None, r"view 0 must be a matrix .* \(6,\)"),
    "no features": ([np.ones((6, 0))], None, "view 0 has no features"),
    "text": ([np.array([["a"], ["b"]])], None, "view 0 must hold real numbers"),
    "complex": ([np.ones((3, 1), complex)], None, "view 0 must hold real numbers"),
    "objects": ([[[None], [1.0]]], None, "view 0 must hold real numbers, got dtype object"),
}
BAD_TO_LEARN_FROM = {
    "empty view that makes samples miss all": (
        views_of(),
        np.array([[False, i > 2] for i in range(6)]),
        "view 0 has no observed sample",
    ),
    "empty view": (changed(1, slice(None), np.nan), None, "view 1 has no observed sample"),
    "one sample": (views_of(n=1), None, "at least 2 samples, got 1"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("read", [read_views, read_views_to_learn_from])
def test_bad_input_is_named(read, name):
    views, mask, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        read(views, mask)


@pytest.mark.parametrize("name", BAD_TO_LEARN_FROM)
def test_too_little_to_learn_from_is_named(name):
    views, mask, message = BAD_TO_LEARN_FROM[name]
    with pytest.raises(ValueError, match=message):
        read_views_to_learn_from(views, mask)


def test_one_sample_of_one_view_can_be_read():
    read = read_views([np.ones((1, 2)), np.full((1, 3), np.nan)])
    assert isinstance(read, Views)
    np.testing.assert_array_equal(read.mask, [[True, False]])


def test_a_checked_mask_is_the_mask():
    assert checked_mask(ALL.tolist(), 6, 2).all()
