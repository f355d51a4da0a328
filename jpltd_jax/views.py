"""The one door for data: views as people have them, brought onto one common sample axis and checked.

Views come as a list, or as a dictionary by name, of arrays, masked arrays, sparse matrices, DataFrames or AnnData; or
as a MuData. The last three are recognised by what they offer, so none of their packages is imported.
"""

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from os import PathLike
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import ArrayLike, Bool
from scipy.sparse import issparse

__all__ = [
    "Modalities",
    "Views",
    "ViewsLike",
    "as_matrix",
    "checked_mask",
    "classes_of",
    "count_distinct",
    "match_views",
    "read_views",
    "read_views_to_learn_from",
    "read_with_hidden",
    "warn_of_nothing_to_learn",
]

NUMBERS = "fiub"
"""Kinds of dtypes that are read as real numbers."""

SHOWN = 3
"""Ids or names that a message shows of many."""

EXPECTED = "a list or a dictionary of matrices (samples, features), one per view, or a MuData"


@runtime_checkable
class Modalities(Protocol):
    """What is read of a MuData."""

    mod: Mapping[str, Any]
    """AnnData by name: ``X`` (samples, features), ``obs_names`` and ``var_names``."""
    obs_names: Any
    """Ids of all samples."""


ViewsLike = Iterable[Any] | Modalities
"""A list or a dictionary of matrices, one per view; or a MuData; or :class:`Views`, which are not read again."""


class Views(NamedTuple):
    """Checked views on one sample axis."""

    matrices: list[np.ndarray]
    """(n, d_v) each, finite; zeros where the sample is missing in the view."""
    mask: Bool[np.ndarray, "n m"]
    """True where observed. Every sample is observed in at least one view."""
    ids: np.ndarray
    """(n,) sample ids in the order of the rows; 0..n-1 for views without ids."""
    names: tuple[str, ...]
    """Of the views; "view 0", "view 1", ... for a list."""
    features: tuple[tuple[Hashable, ...] | None, ...]
    """Names of the features of every view; None where it has none."""

    @property
    def by_id(self) -> bool:
        """Whether the samples were matched by their ids, not by position."""
        return self.ids.dtype == object

    def called(self, v: int) -> str:
        """What messages call view v: view 0, or view 'rna'."""
        return _called(self.names[v])

    def rows(self, chosen: slice | np.ndarray) -> "Views":
        """The views of some of the samples."""
        return self._replace(matrices=[x[chosen] for x in self.matrices], mask=self.mask[chosen], ids=self.ids[chosen])


class _Aligned(NamedTuple):
    """Views on one sample axis, not yet checked: rows of NaN where a view lacks a sample."""

    matrices: list[np.ndarray]
    ids: np.ndarray
    names: tuple[str, ...]
    features: tuple[tuple[Hashable, ...] | None, ...]


def _default_names(m: int) -> tuple[str, ...]:
    return tuple(f"view {v}" for v in range(m))


def _called(name: str | int) -> str:
    """What messages call a view: view 0, or view 'rna'."""
    if isinstance(name, int):
        return f"view {name}"
    return name if name.startswith("view ") else f"view {name!r}"


def _shown(thing: object) -> str:
    return repr(thing.item() if isinstance(thing, np.generic) else thing)


def _some(things: Iterable[object]) -> str:
    """The first few of many things."""
    listed = list(things)
    return ", ".join(map(_shown, listed[:SHOWN])) + (", ..." if len(listed) > SHOWN else "")


def _first(condition: np.ndarray) -> int:
    return int(np.flatnonzero(condition)[0])


# One view -------------------------------------------------------------------------------------------------------------


def _is_frame(view: object) -> bool:
    return hasattr(view, "index") and hasattr(view, "to_numpy") and hasattr(view, "columns")


def _is_annotated(view: object) -> bool:
    """Whether it is an AnnData."""
    return hasattr(view, "X") and hasattr(view, "obs_names") and hasattr(view, "var_names")


def _ids_inside(view: Any) -> Any:
    """The sample ids that a view carries, or None."""
    return view.index if _is_frame(view) else view.obs_names if _is_annotated(view) else None


def _features_inside(view: Any) -> tuple[Hashable, ...] | None:
    """The names of its features that a view carries, or None."""
    names = view.columns if _is_frame(view) else view.var_names if _is_annotated(view) else None
    return None if names is None else tuple(names)


def _from_frame(frame: Any, called: str) -> np.ndarray:
    odd = [name for name, dtype in zip(frame.columns, frame.dtypes, strict=True) if dtype.kind not in NUMBERS]
    if odd and len(frame):
        raise ValueError(f"{called} has columns that are not numbers: {_some(odd)}")
    matrix = frame.to_numpy()
    return matrix if matrix.dtype.kind in NUMBERS else frame.to_numpy(np.float64, na_value=np.nan)


def as_matrix(view: Any, name: str | int) -> np.ndarray:
    """A view as a dense real matrix (samples, features), NaN where an entry is masked; messages say its name or number.

    Examples
    --------
    >>> from jpltd_jax.views import as_matrix
    >>> as_matrix([["a"]], 3)
    Traceback (most recent call last):
    ValueError: view 3 must hold real numbers, got dtype <U1
    """
    called = _called(name)
    given = view.X if _is_annotated(view) else view
    given = given.to_memory() if hasattr(given, "to_memory") else given
    if _is_frame(given):
        matrix = _from_frame(given, called)
    elif issparse(given):
        matrix = given.toarray()
    else:
        try:
            matrix = np.asanyarray(given) if isinstance(given, np.ma.MaskedArray) else np.asarray(given)
        except ValueError:
            raise ValueError(f"{called} must be a matrix (samples, features); its rows differ in length") from None
    if matrix.ndim != 2:
        got = f"an array of shape {matrix.shape}" if matrix.ndim else "None" if given is None else type(given).__name__
        hint = "; one feature is x[:, None]" if matrix.ndim == 1 else ""
        raise ValueError(f"{called} must be a matrix (samples, features), got {got}{hint}")
    if matrix.shape[1] == 0:
        raise ValueError(f"{called} has no features")
    if matrix.dtype.kind not in NUMBERS:
        raise ValueError(f"{called} must hold real numbers, got dtype {matrix.dtype}")
    if isinstance(matrix, np.ma.MaskedArray) and matrix.mask.any():
        return np.where(matrix.mask, np.nan, matrix.data).astype(np.result_type(matrix.dtype, np.float32))
    return np.asarray(matrix)


def checked_mask(mask: ArrayLike, n: int, m: int) -> Bool[np.ndarray, "n m"]:
    """The mask of n samples and m views, if it is one."""
    array = np.asarray(mask)
    if array.dtype != np.bool_:
        raise ValueError(f"mask must be boolean (True where observed), got dtype {array.dtype}; use mask.astype(bool)")
    if array.shape != (n, m):
        raise ValueError(f"mask must have shape (samples, views) = {(n, m)}, got {array.shape}")
    return array


# All views ------------------------------------------------------------------------------------------------------------


def _by_name(views: Any) -> dict[str, Any]:
    """The views by name, if they are views."""
    if views is None or isinstance(views, str | bytes | PathLike):
        raise TypeError(f"views must be {EXPECTED}, got {views!r}")
    if _is_frame(views) or issparse(views) or (_is_annotated(views) and not isinstance(views, Modalities)):
        kind = type(views).__name__
        raise TypeError(f"views is a single {kind}: expected {EXPECTED}; one view alone is [view] or {{'name': view}}")
    if hasattr(views, "ndim") and views.ndim != 3 and views.dtype != object:
        raise ValueError(f"views is an array of shape {views.shape}: expected {EXPECTED}; one view alone is [view]")
    given = views.mod if isinstance(views, Modalities) else views
    if isinstance(given, Mapping):
        for name in given:
            if not isinstance(name, str):
                raise TypeError(f"the names of views must be text, got {name!r}")
        named = dict(given)
    elif isinstance(given, Iterable):
        named = {f"view {v}": view for v, view in enumerate(given)}
    else:
        raise TypeError(f"views must be {EXPECTED}, got {type(given).__name__}")
    if not named:
        raise ValueError(f"views is empty: expected {EXPECTED}")
    return named


def _checked_ids(ids: Any, n_rows: int, called: str) -> list[Hashable]:
    listed = list(ids)
    if len(listed) != n_rows:
        raise ValueError(f"{called} has {n_rows} rows but {len(listed)} sample ids")
    seen: set[Hashable] = set()
    for row, sample in enumerate(listed):
        if not isinstance(sample, Hashable):
            raise TypeError(f"{called}, row {row}: a sample id must be a number or text, got {_shown(sample)}")
        if sample is None or type(sample).__name__ in ("NAType", "NaTType") or sample != sample:
            raise ValueError(f"{called}, row {row} has no sample id, but {sample}")
        if sample in seen:
            raise ValueError(f"{called} has the sample id {_shown(sample)} more than once")
        seen.add(sample)
    return listed


def _ids_of(views: Mapping[str, Any], ids: Any) -> list[Any] | None:
    """One sequence of sample ids per view, or None if the samples go by position."""
    inside = {name: _ids_inside(view) for name, view in views.items()}
    (first, own), *others = inside.items()
    for name, other in others:
        if (own is None) != (other is None):
            kind = "an array" if own is None else "a DataFrame" if _is_frame(views[first]) else "an AnnData"
            raise ValueError(
                f"{_called(first)} is {kind} and {_called(name)} is not: give only DataFrames or none, to match the "
                "samples"
            )
    if ids is None:
        return None if own is None else list(inside.values())
    if own is not None:
        raise ValueError("the sample ids of DataFrames are their index; leave ids out")
    if isinstance(ids, Mapping):
        if set(ids) != set(views):
            raise ValueError(f"ids must have the names of the views, {_some(views)}, got {_some(ids)}")
        return [ids[name] for name in views]
    given = list(ids)
    if len(given) != len(views) or any(isinstance(one, str) for one in given):
        raise ValueError(f"ids must hold one sequence per view: {len(views)} views, {len(given)} sequences")
    return given


def _warn_of_strangers(names: Sequence[str], listed: Sequence[list[Hashable]]) -> None:
    """Warn of views that have no sample in common: most often their ids are written in two ways."""
    sets = [set(one) for one in listed]
    for u, v in combinations(range(len(sets)), 2):
        if sets[u] and sets[v] and sets[u].isdisjoint(sets[v]):
            warnings.warn(
                f"{_called(names[u])} and {_called(names[v])} have no sample id in common: "
                f"{_some(listed[u])} and {_some(listed[v])}",
                stacklevel=2,
            )


def _by_id(
    matrices: list[np.ndarray], ids: Sequence[Any], names: Sequence[str], known: Sequence[Hashable], masked: bool
) -> tuple[list[np.ndarray], np.ndarray]:
    """Matrices on the union of the known ids and their own, rows of NaN where a view lacks a sample; and the ids."""
    called = [_called(name) for name in names]
    listed = [_checked_ids(*one) for one in zip(ids, map(len, matrices), called, strict=True)]
    _warn_of_strangers(names, listed)
    position = {sample: i for i, sample in enumerate(dict.fromkeys(s for one in (known, *listed) for s in one))}
    expected = set(known or position)
    for name, one in zip(called, listed, strict=True):
        strange = [sample for sample in one if sample not in expected]
        if strange:
            raise ValueError(f"{name} has samples that obs_names lacks, {_some(strange)}: call update() on the MuData")
        if masked and one != list(position):
            raise ValueError(
                "mask rows go by position, but the views list their samples differently: set rows to NaN instead"
            )
    aligned = []
    for matrix, one in zip(matrices, listed, strict=True):
        full = np.full((len(position), matrix.shape[1]), np.nan, np.result_type(matrix, np.float32))
        full[[position[sample] for sample in one]] = matrix
        aligned.append(full)
    samples = np.empty(len(position), object)
    samples[:] = list(position)
    return aligned, samples


def _align(views: ViewsLike, ids: Any, masked: bool) -> _Aligned:
    named = _by_name(views)
    names = tuple(named)
    sequences = _ids_of(named, ids)
    matrices = [as_matrix(view, name) for name, view in named.items()]
    if sequences is None:
        samples = np.arange(len(matrices[0]))
    else:
        known = list(views.obs_names) if isinstance(views, Modalities) else []
        matrices, samples = _by_id(matrices, sequences, names, known, masked)
    for name, matrix in zip(names, matrices, strict=True):
        if len(matrix) != len(samples):
            raise ValueError(
                f"{_called(name)} has {len(matrix)} samples but {_called(names[0])} has {len(samples)}: give every "
                "view all samples, with a row of NaN where one is missing"
            )
    return _Aligned(matrices, samples, names, tuple(map(_features_inside, named.values())))


def _check_finite(aligned: _Aligned, v: int, present: np.ndarray, missing: np.ndarray) -> None:
    matrix, features = aligned.matrices[v], aligned.features[v]
    bad = present & ~np.isfinite(matrix).all(axis=1)
    if not bad.any():
        return
    i = _first(bad)
    j = _first(~np.isfinite(matrix[i]))
    hint = ""
    if np.isnan(matrix[i, j]):
        hint = "; only whole rows can be missing: impute the row, or set all of it to NaN"
        if missing[i]:
            hint = "; the mask says that it is observed"
    feature = j if features is None else features[j]
    raise ValueError(
        f"{_called(aligned.names[v])}, sample {_shown(aligned.ids[i])}, feature {_shown(feature)} is "
        f"{matrix[i, j]}{hint}"
    )


def _checked(aligned: _Aligned, mask: ArrayLike | None) -> Views:
    matrices, ids, names, features = aligned
    missing = np.stack([np.isnan(x).all(axis=1) for x in matrices], axis=1)
    present = ~missing if mask is None else checked_mask(mask, *missing.shape)
    for v in range(len(matrices)):
        _check_finite(aligned, v, present[:, v], missing[:, v])
    shown = [np.where(present[:, v, None], x, 0) for v, x in enumerate(matrices)]
    return Views(shown, present, ids, names, features)


def _read(views: ViewsLike, mask: ArrayLike | None, ids: Any) -> Views:
    if isinstance(views, Views):
        if mask is None and ids is None:
            return views
        raise ValueError("views that were read before have their mask and ids: leave both out")
    return _checked(_align(views, ids, mask is not None), mask)


def _check_samples(views: Views) -> Views:
    nowhere = views.mask.sum(axis=1) == 0
    if nowhere.any():
        raise ValueError(f"sample {_shown(views.ids[_first(nowhere)])} is missing in all views")
    return views


def _check_enough(views: Views) -> Views:
    if len(views.ids) < 2:
        raise ValueError(f"expected at least 2 samples, got {len(views.ids)}")
    empty = views.mask.sum(axis=0) == 0
    if empty.any():
        raise ValueError(f"{_called(views.names[_first(empty)])} has no observed sample")
    return _check_samples(views)


def warn_of_nothing_to_learn(views: Views) -> None:
    """Warn of samples that are zero in all their views, and of views whose samples are all the same.

    Examples
    --------
    >>> import warnings
    >>> from jpltd_jax.views import read_views, warn_of_nothing_to_learn
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_nothing_to_learn(read_views({"rna": [[5.0], [5.0]], "age": [[0.0], [1.0]]}))
    >>> [str(warning.message) for warning in caught]
    ["all samples of view 'rna' are identical, so that it tells nothing"]
    """
    zero = ~np.any([x.any(axis=1) for x in views.matrices], axis=0)
    if zero.any():
        warnings.warn(
            f"{int(zero.sum())} of {len(zero)} samples are zero in all their views, so that nothing says where they "
            f"belong: {_some(views.ids[zero])}",
            stacklevel=2,
        )
    for name, x, present in zip(views.names, views.matrices, views.mask.T, strict=True):
        if present.sum() > 1 and not (x[present] != x[_first(present)]).any():
            warnings.warn(f"all samples of {_called(name)} are identical, so that it tells nothing", stacklevel=2)


def read_views(views: ViewsLike, mask: ArrayLike | None = None, *, ids: Any = None) -> Views:
    """Bring views onto one sample axis, by sample id or by position, and check them.

    DataFrames carry their ids in the index, AnnData in ``obs_names``. A sample that is not in a view's ids is missing
    in that view, so the views may have different lengths; samples come in the order in which the ids first appear,
    those of a MuData in the order of its ``obs_names``. Every defect is reported with the view and the sample it is in.
    Two views without a common id are worth a warning.

    Parameters
    ----------
    views
        A list of views, or a dictionary of them by name: all DataFrames or AnnData, or all arrays, masked arrays or
        sparse matrices (samples as rows). Or a MuData. A row that is NaN, or masked, is a missing sample.
    mask
        (n, m) bool, True where observed; what stands in the hidden rows is ignored. Its rows go by position, so views
        with ids must then agree in them.
    ids
        For arrays: one sequence of sample ids (list, array, Series) per view, in a list or by the names of the views.

    Examples
    --------
    >>> from jpltd_jax.views import read_views
    >>> read = read_views({"a": [[1.0], [2.0]], "b": [[3.0], [4.0]]}, ids=[["x", "y"], ["y", "z"]])
    >>> read.ids.tolist(), read.mask.tolist(), read.matrices[1].tolist()
    (['x', 'y', 'z'], [[True, False], [True, True], [False, True]], [[0.0], [3.0], [4.0]])
    """
    return _check_samples(_read(views, mask, ids))


def read_views_to_learn_from(views: ViewsLike, mask: ArrayLike | None = None, *, ids: Any = None) -> Views:
    """:func:`read_views`, which must hold at least two samples, and one in every view.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.views import read_views_to_learn_from
    >>> read_views_to_learn_from([[[1.0], [2.0]], [[np.nan], [np.nan]]])
    Traceback (most recent call last):
    ValueError: view 1 has no observed sample
    """
    return _check_enough(_read(views, mask, ids))


def read_with_hidden(views: ViewsLike, mask: ArrayLike) -> tuple[Views, list[np.ndarray]]:
    """:func:`read_views_to_learn_from`, and the matrices with what stands in the hidden rows.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.views import read_with_hidden
    >>> mask = np.array([[True, True], [False, True]])
    >>> read, given = read_with_hidden([[[1.0], [7.0]], [[2.0], [3.0]]], mask)
    >>> read.matrices[0].tolist(), given[0].tolist()
    ([[1.0], [0.0]], [[1.0], [7.0]])
    """
    if isinstance(views, Views):
        raise ValueError("views that were read before have lost what stood in their hidden rows: give the matrices")
    aligned = _align(views, None, True)
    return _check_enough(_checked(aligned, mask)), aligned.matrices


def count_distinct(views: Views, enough: int) -> int:
    """How many different samples there are, counted up to ``enough``.

    Examples
    --------
    >>> from jpltd_jax.views import count_distinct, read_views
    >>> count_distinct(read_views([[[1.0], [2.0], [1.0]]]), 3)
    2
    """
    seen: set[bytes] = set()
    for i, present in enumerate(views.mask):
        seen.add(b"".join([present.tobytes(), *((x[i] + 0.0).tobytes() for x in views.matrices)]))
        if len(seen) == enough:
            break
    return len(seen)


# Against other data ---------------------------------------------------------------------------------------------------


def classes_of(y: ArrayLike, views: Views) -> np.ndarray:
    """One class for each sample: a Series by its index if the views have ids, all else by position.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.views import classes_of, read_views
    >>> classes_of(np.array([0, 1]), read_views([[[1.0], [2.0]]]))
    array([0, 1])
    """
    indexed: Any = y
    by_id = views.by_id and hasattr(indexed, "index") and hasattr(indexed, "to_numpy")
    classes = np.asarray(indexed.to_numpy() if by_id else indexed)
    if by_id:
        place = {sample: i for i, sample in enumerate(_checked_ids(indexed.index, len(classes), "y"))}
        unknown = [sample for sample in views.ids if sample not in place]
        if unknown:
            raise ValueError(f"y has no class for the samples {_some(unknown)}")
        classes = classes[[place[sample] for sample in views.ids]]
    if classes.shape != (len(views.ids),):
        raise ValueError(f"y must hold one class for each of the {len(views.ids)} samples, got shape {classes.shape}")
    return classes


def _difference(given: Sequence[Hashable], wanted: Sequence[Hashable]) -> str:
    """In what a sequence of names is not the one that is wanted."""
    known, own = set(wanted), set(given)
    extra, lacking = [x for x in given if x not in known], [x for x in wanted if x not in own]
    if extra or lacking:
        parts = [f"unexpected {_some(extra)}"] * bool(extra) + [f"missing {_some(lacking)}"] * bool(lacking)
        return "; ".join(parts)
    if len(given) != len(wanted):
        return f"{len(given)} instead of {len(wanted)}"
    i = next(i for i, (a, b) in enumerate(zip(given, wanted, strict=True)) if a != b)
    return f"another order, from {_shown(given[i])} on, where {_shown(wanted[i])} is expected"


def _match_features(name: str, given: tuple[Hashable, ...] | None, wanted: tuple[Hashable, ...] | None) -> None:
    if given is not None and wanted is not None:
        if given != wanted:
            raise ValueError(
                f"{_called(name)} must have the features of the fit, in the same order: {_difference(given, wanted)}"
            )
        return
    names = given or wanted
    if names is not None and names != tuple(range(len(names))):
        who = "has feature names, but the model was" if given else "has no feature names, but the model was"
        how = "fitted without" if given else "fitted with them"
        warnings.warn(f"{_called(name)} {who} {how}: its features are taken in the order given", stacklevel=2)


def match_views(
    views: Views, names: Sequence[str], features: Sequence[tuple[Hashable, ...] | None] | None = None
) -> Views:
    """Views of further samples, in the order of those that a model was fitted on, if they are the same ones.

    Views that were given by name are put in order. Features are not: if their names are known they must come in the
    order of the fit, as in scikit-learn. Where names are known on one side only, the order is trusted, with a warning.
    Without ``features`` these are not compared.

    Examples
    --------
    >>> from jpltd_jax.views import match_views, read_views
    >>> read = read_views({"b": [[1.0]], "a": [[2.0, 3.0]]})
    >>> match_views(read, ("a", "b")).matrices[0].tolist()
    [[2.0, 3.0]]
    >>> match_views(read, ("a", "c"))
    Traceback (most recent call last):
    ValueError: the views must be those of the fit: unexpected 'b'; missing 'c'
    """
    wanted, given = tuple(names), views.names
    if len(given) != len(wanted):
        raise ValueError(f"expected {len(wanted)} views, got {len(given)}: {_difference(given, wanted)}")
    if given == _default_names(len(given)) != wanted:
        warnings.warn(
            f"the model knows its views by name, {_some(wanted)}: a list is taken in that order", stacklevel=2
        )
        order = list(range(len(given)))
    elif set(given) != set(wanted):
        raise ValueError(f"the views must be those of the fit: {_difference(given, wanted)}")
    else:
        order = [given.index(name) for name in wanted]
    matched = Views(
        [views.matrices[v] for v in order],
        views.mask[:, order],
        views.ids,
        wanted,
        tuple(views.features[v] for v in order),
    )
    for name, own, fitted in zip(wanted, matched.features, features or matched.features, strict=True):
        _match_features(name, own, fitted)
    return matched
