"""Views as people have them: arrays, sparse matrices or DataFrames, brought onto one common sample axis."""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import ArrayLike
from scipy.sparse import issparse


class AlignedViews(NamedTuple):
    """Views on one sample axis: what :func:`jpltd_jax.make_problem` takes, and whose rows they are."""

    views: list[Any]
    """(n, d_v) each; a row of NaN where the sample is not in the view."""
    mask: np.ndarray | None
    sample_ids: np.ndarray
    """(n,) ids in the order of the rows; 0..n-1 for views without ids."""


def _is_frame(view: object) -> bool:
    return hasattr(view, "index") and hasattr(view, "to_numpy") and hasattr(view, "columns")


def _matrix(view: Any, v: int) -> np.ndarray:
    matrix = view.to_numpy() if _is_frame(view) else view.toarray() if issparse(view) else np.asarray(view)
    if matrix.dtype == object:
        raise ValueError(f"view {v} has columns that are not numbers")
    return matrix


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


def align_views(
    views: Sequence[Any], *, mask: ArrayLike | None = None, ids: Sequence[Any] | None = None
) -> AlignedViews:
    """Bring views onto one sample axis by sample id, or by position when they have none.

    DataFrames carry their ids in the index. A sample that is not in a view's index is missing in that view, so the
    views may have different lengths; samples come in the order in which the ids first appear.

    Parameters
    ----------
    views
        All DataFrames, or all arrays or sparse matrices (samples as rows).
    mask
        (n, m) bool, True where observed. Its rows go by position, so views with ids must then agree in them.
    ids
        For arrays: one sequence of sample ids (list, array, Series) per view.

    Examples
    --------
    >>> from jpltd_jax.views import align_views
    >>> aligned = align_views([[[1.0], [2.0]], [[3.0], [4.0]]], ids=[["a", "b"], ["b", "c"]])
    >>> aligned.sample_ids.tolist(), aligned.views[1].tolist()
    (['a', 'b', 'c'], [[nan], [3.0], [4.0]])
    """
    frames = [_is_frame(view) for view in views]
    if any(frames) and not all(frames):
        odd = frames.index(not frames[0])
        kind = "a DataFrame" if frames[0] else "an array"
        raise ValueError(f"view 0 is {kind} and view {odd} is not: give only DataFrames or none, to match the samples")
    if ids is not None:
        if any(frames):
            raise ValueError("the sample ids of DataFrames are their index; leave ids out")
        if len(ids) != len(views):
            raise ValueError(f"ids must hold one sequence per view: {len(views)} views, {len(ids)} sequences")
    elif any(frames):
        ids = [view.index for view in views]
    else:
        plain = list(views)
        n = plain[0].shape[0] if plain and hasattr(plain[0], "shape") else len(plain[0]) if plain else 0
        return AlignedViews(plain, None if mask is None else np.asarray(mask), np.arange(n))
    matrices = [_matrix(view, v) for v, view in enumerate(views)]
    listed = [_checked_ids(view_ids, len(matrices[v]), v) for v, view_ids in enumerate(ids)]
    position = {sample: i for i, sample in enumerate(dict.fromkeys(sample for one in listed for sample in one))}
    if mask is not None and any(one != listed[0] for one in listed):
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
    return AlignedViews(aligned, None if mask is None else np.asarray(mask), names)
