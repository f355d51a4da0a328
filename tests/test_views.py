import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from jpltd_jax.views import align_views

A = pd.DataFrame({"f": [1.0, 2.0, 3.0]}, index=["x", "y", "z"])
B = pd.DataFrame({"g": [30, 10], "h": [31, 11]}, index=["z", "x"])


def test_frames_are_matched_by_id_and_absent_samples_are_missing():
    aligned = align_views([A, B])
    assert aligned.sample_ids.tolist() == ["x", "y", "z"]
    np.testing.assert_array_equal(aligned.views[1], [[10, 11], [np.nan, np.nan], [30, 31]])
    np.testing.assert_array_equal(aligned.views[0], A)


def test_shuffled_rows_give_the_same_data():
    shuffled = align_views([A, B.iloc[::-1]])
    for ours, expected in zip(shuffled.views, align_views([A, B]).views, strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_arrays_with_ids_equal_frames():
    aligned = align_views([A.to_numpy(), B.to_numpy()], ids=[A.index.to_series(), list(B.index)])
    for ours, expected in zip(aligned.views, align_views([A, B]).views, strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_integer_ids_are_ids_not_positions():
    a = pd.DataFrame({"f": [1.0, 2.0]}, index=[7, 3])
    b = pd.DataFrame({"g": [3.0, 7.0]}, index=[3, 7])
    aligned = align_views([a, b])
    assert aligned.sample_ids.tolist() == [7, 3]
    np.testing.assert_array_equal(aligned.views[1], [[7.0], [3.0]])


def test_tuple_ids():
    index = pd.MultiIndex.from_tuples([("p", 1), ("p", 2)])
    frame = pd.DataFrame({"f": [1.0, 2.0]}, index=index)
    aligned = align_views([frame, frame.iloc[::-1]])
    np.testing.assert_array_equal(aligned.views[0], aligned.views[1])
    assert len(aligned.sample_ids) == 2


def test_arrays_go_by_position():
    views = [np.ones((3, 2)), scipy.sparse.eye(3, format="csr")]
    aligned = align_views(views)
    assert aligned.views[0] is views[0]
    assert aligned.sample_ids.tolist() == [0, 1, 2]


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
        align_views(views, **options)


def test_mask_is_kept_when_all_views_list_the_same_samples():
    mask = np.array([[True, True], [True, False], [False, True]])
    aligned = align_views([A, A + 1], mask=mask)
    np.testing.assert_array_equal(aligned.mask, mask)
