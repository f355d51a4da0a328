"""The one door for data: views as people have them, brought onto one common sample axis and checked."""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Bool
from scipy.sparse import issparse

__all__ = ["Views", "as_matrix", "checked_mask", "read_views", "read_views_to_learn_from"]


class Views(NamedTuple):
    """Checked views on one sample axis."""

    matrices: list[np.ndarray]
    """(n, d_v) each, finite; zeros where the sample is missing in the view."""
    mask: Bool[np.ndarray, "n m"]
    """True where observed. Every sample is observed in at least one view."""
    ids: np.ndarray
    """(n,) sample ids in the order of the rows; 0..n-1 for views without ids."""


def _is_frame(view: object) -> bool:
    return hasattr(view, "index") and hasattr(view, "to_numpy") and hasattr(view, "columns")


def as_matrix(view: Any, v: int) -> np.ndarray:
    """View number v as a dense real matrix (samples, features).

    Examples
    --------
    >>> from jpltd_jax.views import as_matrix
    >>> as_matrix([["a"]], 3)
    Traceback (most recent call last):
    ValueError: view 3 must hold real numbers, got dtype <U1
    """
    matrix = view.to_numpy() if _is_frame(view) else view.toarray() if issparse(view) else np.asarray(view)
    if matrix.dtype == object and _is_frame(view):
        raise ValueError(f"view {v} has columns that are not numbers")
    if matrix.ndim != 2:
        raise ValueError(f"view {v} must be a matrix (samples, features), got an array of shape {matrix.shape}")
    if matrix.shape[1] == 0:
        raise ValueError(f"view {v} has no features")
    if matrix.dtype.kind not in "fiub":
        raise ValueError(f"view {v} must hold real numbers, got dtype {matrix.dtype}")
    return matrix


def checked_mask(mask: ArrayLike, n: int, m: int) -> Bool[np.ndarray, "n m"]:
    """The mask of n samples and m views, if it is one."""
    array = np.asarray(mask)
    if array.dtype != np.bool_:
        raise ValueError(f"mask must be boolean (True where observed), got dtype {array.dtype}; use mask.astype(bool)")
    if array.shape != (n, m):
        raise ValueError(f"mask must have shape (samples, views) = {(n, m)}, got {array.shape}")
    return array


def _first(condition: np.ndarray) -> int:
    return int(np.flatnonzero(condition)[0])


def _checked_ids(ids: Any, n_rows: int, v: int) -> list[Hashable]:
    listed = list(ids)
    if len(listed) != n_rows:
        raise ValueError(f"view {v} has {n_rows} rows but {len(listed)} sample ids")
    seen: set[Hashable] = set()
    for sample in listed:
        if sample in seen:
            raise ValueError(f"view {v} has the sample id {sample!r} more than once")
        seen.add(sample)
    return listed


def _ids_of(views: Sequence[Any], ids: Sequence[Any] | None) -> Sequence[Any] | None:
    """One sequence of sample ids per view, or None if the samples go by position."""
    frames = [_is_frame(view) for view in views]
    if any(frames) and not all(frames):
        odd = frames.index(not frames[0])
        kind = "a DataFrame" if frames[0] else "an array"
        raise ValueError(f"view 0 is {kind} and view {odd} is not: give only DataFrames or none, to match the samples")
    if ids is None:
        return [view.index for view in views] if any(frames) else None
    if any(frames):
        raise ValueError("the sample ids of DataFrames are their index; leave ids out")
    if len(ids) != len(views):
        raise ValueError(f"ids must hold one sequence per view: {len(views)} views, {len(ids)} sequences")
    return ids


def _by_id(matrices: list[np.ndarray], ids: Sequence[Any], masked: bool) -> tuple[list[np.ndarray], np.ndarray]:
    """Matrices on the union of the ids, with rows of NaN where a view lacks a sample; and the ids."""
    listed = [_checked_ids(view_ids, len(matrices[v]), v) for v, view_ids in enumerate(ids)]
    position = {sample: i for i, sample in enumerate(dict.fromkeys(sample for one in listed for sample in one))}
    if masked and any(one != listed[0] for one in listed):
        raise ValueError(
            "mask rows go by position, but the views list their samples differently: set rows to NaN instead"
        )
    aligned = []
    for matrix, one in zip(matrices, listed, strict=True):
        full = np.full((len(position), matrix.shape[1]), np.nan, np.result_type(matrix, np.float32))
        full[[position[sample] for sample in one]] = matrix
        aligned.append(full)
    names = np.empty(len(position), object)
    names[:] = list(position)
    return aligned, names


def _check_finite(matrix: np.ndarray, present: np.ndarray, missing: np.ndarray, v: int) -> None:
    bad = present & ~np.isfinite(matrix).all(axis=1)
    if not bad.any():
        return
    i = _first(bad)
    feature = _first(~np.isfinite(matrix[i]))
    hint = ""
    if np.isnan(matrix[i, feature]):
        hint = "; only whole rows can be missing: impute the row, or set all of it to NaN"
        if missing[i]:
            hint = "; the mask says that it is observed"
    raise ValueError(f"view {v}, sample {i}, feature {feature} is {matrix[i, feature]}{hint}")


def _read(views: Sequence[Any] | Views, mask: ArrayLike | None, ids: Sequence[Any] | None) -> Views:
    if isinstance(views, Views):
        if mask is None and ids is None:
            return views
        raise ValueError("views that were read before have their mask and ids: leave both out")
    if len(views) == 0:
        raise ValueError("views is empty: expected a list with one (samples, features) matrix per view")
    ids = _ids_of(views, ids)
    matrices = [as_matrix(view, v) for v, view in enumerate(views)]
    if ids is not None:
        matrices, names = _by_id(matrices, ids, mask is not None)
    else:
        names = np.arange(len(matrices[0]))
    n, m = len(names), len(matrices)
    for v, matrix in enumerate(matrices):
        if len(matrix) != n:
            raise ValueError(
                f"view {v} has {len(matrix)} samples but view 0 has {n}: give every view all samples, with a row of "
                "NaN where one is missing"
            )
    missing = np.stack([np.isnan(x).all(axis=1) for x in matrices], axis=1)
    present = ~missing if mask is None else checked_mask(mask, n, m)
    for v, matrix in enumerate(matrices):
        _check_finite(matrix, present[:, v], missing[:, v], v)
    return Views([np.where(present[:, v, None], x, 0) for v, x in enumerate(matrices)], present, names)


def _check_samples(views: Views) -> Views:
    nowhere = views.mask.sum(axis=1) == 0
    if nowhere.any():
        raise ValueError(f"sample {_first(nowhere)} is missing in all views")
    return views


def read_views(
    views: Sequence[Any] | Views, mask: ArrayLike | None = None, *, ids: Sequence[Any] | None = None
) -> Views:
    """Bring views onto one sample axis, by sample id or by position, and check them.

    DataFrames carry their ids in the index. A sample that is not in a view's index is missing in that view, so the
    views may have different lengths; samples come in the order in which the ids first appear. Every defect is reported
    with the view and the sample it is in.

    Parameters
    ----------
    views
        All DataFrames, or all arrays or sparse matrices (samples as rows). A row of NaN is a missing sample.
    mask
        (n, m) bool, True where observed; what stands in the hidden rows is ignored. Its rows go by position, so views
        with ids must then agree in them.
    ids
        For arrays: one sequence of sample ids (list, array, Series) per view.

    Examples
    --------
    >>> from jpltd_jax.views import read_views
    >>> read = read_views([[[1.0], [2.0]], [[3.0], [4.0]]], ids=[["a", "b"], ["b", "c"]])
    >>> read.ids.tolist(), read.mask.tolist(), read.matrices[1].tolist()
    (['a', 'b', 'c'], [[True, False], [True, True], [False, True]], [[0.0], [3.0], [4.0]])
    """
    return _check_samples(_read(views, mask, ids))


def read_views_to_learn_from(
    views: Sequence[Any] | Views, mask: ArrayLike | None = None, *, ids: Sequence[Any] | None = None
) -> Views:
    """:func:`read_views`, which must hold at least two samples, and one in every view.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.views import read_views_to_learn_from
    >>> read_views_to_learn_from([[[1.0], [2.0]], [[np.nan], [np.nan]]])
    Traceback (most recent call last):
    ValueError: view 1 has no observed sample
    """
    read = _read(views, mask, ids)
    if len(read.ids) < 2:
        raise ValueError(f"expected at least 2 samples, got {len(read.ids)}")
    empty = read.mask.sum(axis=0) == 0
    if empty.any():
        raise ValueError(f"view {_first(empty)} has no observed sample")
    return _check_samples(read)
