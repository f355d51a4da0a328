"""From views with missing samples to the arrays that the solver works on."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int
from scipy.sparse import issparse

from jpltd_jax.anchors import anchor_indices

SMALLEST_NORM = 1e-12


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Problem:
    """Observed data of m views of n samples on one common sample axis; a pytree.

    Attributes
    ----------
    data
        (m, r, n): column j of view v is sample j, in coordinates that keep all inner products; zero where missing.
        Views of different width are padded by zero rows to r.
    mask
        (m, n): whether view v of sample j was observed.
    bases
        For each view the (d_v, r_v) orthonormal matrix Q with X^v = Q @ data[v, :r_v], or None where the view was not
        compressed and ``data[v, :d_v]`` is X^v itself.
    anchors
        (a,) the samples that all samples are represented by; None: by all of them.
    dimensions
        Features d_v of each view.
    """

    data: Float[Array, "m r n"]
    mask: Bool[Array, "m n"]
    bases: tuple[Float[Array, "_d_v r_v"] | None, ...]
    anchors: Int[Array, " a"] | None = None
    dimensions: tuple[int, ...] = field(default=(), metadata={"static": True})

    @property
    def n_views(self) -> int:
        """Number of views m."""
        return self.data.shape[0]

    @property
    def n_samples(self) -> int:
        """Number of samples n."""
        return self.data.shape[2]

    @property
    def dictionary(self) -> "Problem":
        """The problem whose samples are the anchors alone: what G, B, P and J2 have along their last axis."""
        if self.anchors is None:
            return self
        return replace(self, data=self.data[..., self.anchors], mask=self.mask[:, self.anchors], anchors=None)

    def restrict(self, mask: Bool[Array, "n m"]) -> "Problem":
        """Hide every entry that is False in ``mask`` (n, m): the way to vmap over masks.

        Equal to building the problem from the hidden data, and traceable where :func:`make_problem` is not. (Of a
        compressed view it keeps the coordinates of the complete one.)

        Examples
        --------
        >>> import jax.numpy as jnp, numpy as np
        >>> from jpltd_jax import make_problem
        >>> problem = make_problem([np.eye(3), np.ones((3, 2))])
        >>> problem.restrict(jnp.array([[True, False], [True, True], [True, True]])).mask.sum(axis=1)
        Array([3, 2], dtype=int32)
        """
        mask = self.mask & mask.T
        return replace(self, data=jnp.where(mask[:, None, :], self.data, 0), mask=mask)


def as_matrix(view: object, v: int) -> np.ndarray:
    """View number v as a dense real matrix (samples, features)."""
    matrix = view.toarray() if issparse(view) else np.asarray(view)  # type: ignore[attr-defined]
    if matrix.ndim != 2:
        raise ValueError(f"view {v} must be a matrix (samples, features), got an array of shape {matrix.shape}")
    if matrix.shape[1] == 0:
        raise ValueError(f"view {v} has no features")
    if matrix.dtype.kind not in "fiub":
        raise ValueError(f"view {v} must hold real numbers, got dtype {matrix.dtype}")
    return matrix


def checked_mask(mask: ArrayLike, n: int, m: int) -> np.ndarray:
    """The mask of n samples and m views, if it is one."""
    array = np.asarray(mask)
    if array.dtype != np.bool_:
        raise ValueError(f"mask must be boolean (True where observed), got dtype {array.dtype}; use mask.astype(bool)")
    if array.shape != (n, m):
        raise ValueError(f"mask must have shape (samples, views) = {(n, m)}, got {array.shape}")
    return array


def _first(condition: np.ndarray) -> int:
    return int(np.flatnonzero(condition)[0])


def _finite_rows(views: Sequence[object], mask: ArrayLike | None) -> tuple[list[np.ndarray], np.ndarray]:
    """Matrices with zeros in hidden rows, and the mask."""
    if len(views) == 0:
        raise ValueError("views is empty: expected a list with one (samples, features) matrix per view")
    matrices = [as_matrix(view, v) for v, view in enumerate(views)]
    n, m = matrices[0].shape[0], len(matrices)
    for v, matrix in enumerate(matrices):
        if matrix.shape[0] != n:
            raise ValueError(f"view {v} has {matrix.shape[0]} samples but view 0 has {n}: give every view all samples, "
                             "with a row of NaN where one is missing")  # fmt: skip
    missing_rows = np.stack([np.isnan(x).all(axis=1) for x in matrices], axis=1)
    present = ~missing_rows if mask is None else checked_mask(mask, n, m)
    for v, matrix in enumerate(matrices):
        bad = present[:, v] & ~np.isfinite(matrix).all(axis=1)
        if bad.any():
            i = _first(bad)
            feature = _first(~np.isfinite(matrix[i]))
            hint = ""
            if np.isnan(matrix[i, feature]):
                hint = (
                    "; the mask says that it is observed"
                    if missing_rows[i, v]
                    else "; only whole rows can be missing: impute the row, or set all of it to NaN"
                )
            raise ValueError(f"view {v}, sample {i}, feature {feature} is {matrix[i, feature]}{hint}")
    return [np.where(present[:, v, None], x, 0) for v, x in enumerate(matrices)], present


def _check_samples(present: np.ndarray) -> None:
    nowhere = present.sum(axis=1) == 0
    if nowhere.any():
        raise ValueError(f"sample {_first(nowhere)} is missing in all views")


def present_rows(views: Sequence[object], mask: ArrayLike | None = None) -> tuple[list[np.ndarray], np.ndarray]:
    """Check the views and find which samples they hold: a list of (n, d_v) matrices and the mask (n, m).

    A row of NaN is a missing sample; with an explicit ``mask`` (n, m) whatever stands in the hidden rows is ignored.
    Hidden rows come back as zeros. Every defect is reported with the view and the sample it is in.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.problem import present_rows
    >>> present_rows([[[1.0], [np.nan], [2.0]], [[3.0], [4.0], [5.0]]])[1].sum(axis=0)
    array([2, 3])
    """
    matrices, present = _finite_rows(views, mask)
    _check_samples(present)
    return matrices, present


def observed(views: Sequence[object], mask: ArrayLike | None = None) -> tuple[list[np.ndarray], np.ndarray]:
    """:func:`present_rows` of data to learn from: at least two samples, and one in every view."""
    matrices, present = _finite_rows(views, mask)
    if len(present) < 2:
        raise ValueError(f"expected at least 2 samples, got {len(present)}")
    empty = present.sum(axis=0) == 0
    if empty.any():
        raise ValueError(f"view {_first(empty)} has no observed sample")
    _check_samples(present)
    return matrices, present


def resolve_dtype(dtype: object, views: list[np.ndarray]) -> np.dtype:
    """The wanted dtype, or that of the views as far as JAX is configured to hold it."""
    if dtype is None:
        return np.dtype(jax.dtypes.canonicalize_dtype(np.result_type(np.float32, *views)))
    wanted = np.dtype(dtype)  # type: ignore[call-overload]
    if wanted not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {wanted}")
    if wanted != jax.dtypes.canonicalize_dtype(wanted):
        raise ValueError("dtype float64 needs jax.config.update('jax_enable_x64', True)")
    return wanted


def unit_columns(x: np.ndarray) -> np.ndarray:
    """Every column scaled to unit l2 norm; zero columns stay zero."""
    scaled = x / np.maximum(np.abs(x).max(axis=0), SMALLEST_NORM)
    return scaled / np.maximum(np.linalg.norm(scaled, axis=0), SMALLEST_NORM)


def _check_range(columns: list[np.ndarray], dtype: np.dtype) -> None:
    largest = np.sqrt(np.finfo(dtype).max)
    for v, x in enumerate(columns):
        too_large = np.abs(x).max(axis=0) > largest / np.sqrt(len(x))
        if too_large.any():
            raise ValueError(f"view {v}, sample {_first(too_large)} is too large for {dtype}; use normalize=True")


def _compress(x: np.ndarray, present: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Thin QR of the observed columns of x (d, n) when that makes it smaller: x = q @ r."""
    d, n_observed = x.shape[0], int(present.sum())
    if d <= n_observed:
        return None, x
    q, r_observed = np.linalg.qr(x[:, present])
    r = np.zeros((n_observed, x.shape[1]))
    r[:, present] = r_observed
    return q, r


def make_problem(
    views: Sequence[object],
    mask: ArrayLike | None = None,
    *,
    normalize: bool = True,
    anchors: int | Sequence[int] | np.ndarray | None = None,
    dtype: object = None,
) -> Problem:
    """Check, normalise, compress and stack incomplete views.

    Parameters
    ----------
    views
        List of m matrices (n, d_v), samples as rows; NumPy, JAX or SciPy sparse. A row of NaN is a missing sample.
    mask
        (n, m) bool, True where observed. What stands in the hidden rows never influences the result.
    normalize
        Scale every observed sample of every view to unit l2 norm (a zero sample stays zero).
    anchors
        Represent the samples by these only, so that cost and memory are linear in n: the indices of samples, or how
        many :func:`jpltd_jax.anchors.choose_anchors` shall choose. Default: by all samples, as in the paper.
    dtype
        float32 or float64. Default: that of the views, as far as JAX is configured to hold it.

    Notes
    -----
    A view with more features than observed samples is replaced by the triangular factor of its thin QR decomposition
    X = Q R. Nothing is lost: the model sees X only through W X = (W Q) R.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax import make_problem
    >>> rng = np.random.default_rng(0)
    >>> problem = make_problem([rng.normal(size=(6, 100)), rng.normal(size=(6, 3))])
    >>> problem.data.shape, problem.mask.shape
    ((2, 6, 6), (2, 6))
    """
    matrices, present = observed(views, mask)
    target = resolve_dtype(dtype, matrices)
    columns = [x.T.astype(np.float64) for x in matrices]
    if normalize:
        columns = [unit_columns(x) for x in columns]
    else:
        _check_range(columns, target)
    chosen = None if anchors is None else anchor_indices(anchors, columns, present)
    compressed = [_compress(x, present[:, v]) for v, x in enumerate(columns)]
    width = max(r.shape[0] for _, r in compressed)
    stacked = np.stack([np.pad(r, ((0, width - r.shape[0]), (0, 0))) for _, r in compressed])
    return Problem(
        data=jnp.asarray(stacked, target),
        mask=jnp.asarray(present.T),
        bases=tuple(None if q is None else jnp.asarray(q, target) for q, _ in compressed),
        anchors=None if chosen is None else jnp.asarray(chosen, jnp.int32),
        dimensions=tuple(len(x) for x in columns),
    )


def further_samples(
    problem: Problem, views: Sequence[object], mask: ArrayLike | None = None, *, normalize: bool = True
) -> Problem:
    """Samples that ``problem`` was not made from, in its coordinates; each needs one view, whichever.

    Of a compressed view the part outside the span of the problem's own samples is left out, as a projection W does.

    Examples
    --------
    >>> import numpy as np
    >>> import jpltd_jax as jj
    >>> problem = jj.make_problem([np.eye(3), np.ones((3, 2))])
    >>> jj.problem.further_samples(problem, [[[0.0, 2.0, 0.0]], [[np.nan, np.nan]]]).data[0].T
    Array([[0., 1., 0.]], dtype=float32)
    """
    if len(views) != problem.n_views:
        raise ValueError(f"expected {problem.n_views} views, got {len(views)}")
    matrices, present = present_rows(views, mask)
    _, width, _ = problem.data.shape
    stacked = []
    for v, (x, basis) in enumerate(zip(matrices, problem.bases, strict=True)):
        features = problem.dimensions[v]
        if x.shape[1] != features:
            raise ValueError(f"view {v} has {x.shape[1]} features, but the model was made from {features}")
        columns = x.T.astype(np.float64)
        columns = unit_columns(columns) if normalize else columns
        columns = columns if basis is None else np.asarray(basis, np.float64).T @ columns
        stacked.append(np.pad(columns, ((0, width - len(columns)), (0, 0))))
    return replace(
        problem,
        data=jnp.asarray(np.stack(stacked), problem.data.dtype),
        mask=jnp.asarray(present.T),
        anchors=None,
    )
