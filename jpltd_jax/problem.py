"""From checked views to the arrays that the methods work on."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, ArrayLike, Bool, Float, Int
from sklearn.cluster import kmeans_plusplus

from jpltd_jax.views import (
    Views,
    ViewsLike,
    checked_mask,
    match_views,
    read_views,
    read_views_to_learn_from,
    warn_of_nothing_to_learn,
)

__all__ = ["Problem", "check_features", "choose_anchors", "further_samples", "make_problem", "warn_of_shift"]

CANDIDATES_PER_ANCHOR = 20

FAR = 10
"""Times its spread that the mean of a view may be from zero before samples of unit length lose its shape."""


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
    names
        Of the views; "view 0", "view 1", ... for a list.
    mesh
        Devices over whose first axis the samples are spread, see :func:`jpltd_jax.shard_samples`. None: they are not.
    """

    data: Float[Array, "m r n"]
    mask: Bool[Array, "m n"]
    bases: tuple[Float[Array, "_d_v r_v"] | None, ...]
    anchors: Int[Array, " a"] | None = None
    dimensions: tuple[int, ...] = field(default=(), metadata={"static": True})
    names: tuple[str, ...] = field(default=(), metadata={"static": True})
    mesh: Mesh | None = field(default=None, metadata={"static": True})

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
        data, mask = self.data[..., self.anchors], self.mask[:, self.anchors]
        return replace(self, data=data, mask=mask, anchors=None, mesh=None)

    @property
    def columns(self) -> tuple[Float[Array, "_d_v n"], ...]:
        """X^v of every view, (d_v, n): samples of unit length as columns, zero where missing.

        Examples
        --------
        >>> import numpy as np
        >>> from jpltd_jax import make_problem
        >>> make_problem([[[3.0, 4.0], [np.nan, np.nan], [0.0, 5.0]], [[1.0], [2.0], [3.0]]]).columns[0]
        Array([[0.6, 0. , 0. ],
               [0.8, 0. , 1. ]], dtype=float32)
        """
        return tuple(
            self.data[v, :d]
            if basis is None
            else jnp.matmul(basis, self.data[v, : basis.shape[1]], precision="highest")
            for v, (d, basis) in enumerate(zip(self.dimensions, self.bases, strict=True))
        )

    def spread(self, x: Float[Array, "*shape"], axis: int) -> Float[Array, "*shape"]:
        """x, in a compiled program, with the samples along this axis on the devices that hold them.

        Examples
        --------
        >>> import jax.numpy as jnp, numpy as np
        >>> from jpltd_jax import make_problem
        >>> make_problem([np.eye(3)]).spread(jnp.ones((2, 3)), axis=1).shape
        (2, 3)
        """
        if self.mesh is None:
            return x
        spec = PartitionSpec(*[None] * axis, self.mesh.axis_names[0])
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, spec))

    def astype(self, dtype: jnp.dtype | type) -> "Problem":
        """The problem with its numbers in another dtype."""
        return replace(
            self,
            data=self.data.astype(dtype),
            bases=tuple(None if q is None else q.astype(dtype) for q in self.bases),
        )

    def restrict(self, mask: Bool[Array | np.ndarray, "n m"]) -> "Problem":
        """Hide every entry that is False in ``mask`` (n, m): the way to vmap over masks.

        Equal to building the problem from the hidden data, and traceable where :func:`make_problem` is not. (Of a
        compressed view it keeps the coordinates of the complete one.) Every sample must keep a view; under a
        transformation of JAX this cannot be checked.

        Examples
        --------
        >>> import jax.numpy as jnp, numpy as np
        >>> from jpltd_jax import make_problem
        >>> problem = make_problem([np.eye(3), np.eye(3, 2)])
        >>> problem.restrict(jnp.array([[True, False], [True, True], [True, True]])).mask.sum(axis=1)
        Array([3, 2], dtype=int32)
        """
        wanted = (self.n_samples, self.n_views)
        if not isinstance(mask, jax.core.Tracer):
            mask = jnp.asarray(checked_mask(mask, *wanted))
        elif (mask.dtype, mask.shape) != (np.bool_, wanted):
            raise ValueError(f"mask must be bool {wanted}, (samples, views), got {mask.dtype} {mask.shape}")
        mask = self.mask & mask.T
        if not isinstance(mask, jax.core.Tracer) and mask.is_fully_addressable:
            hidden = np.flatnonzero(~np.asarray(mask).any(axis=0))
            if len(hidden):
                raise ValueError(f"sample {hidden[0]} is hidden in all views: the mask must leave it one")
        return replace(self, data=jnp.where(mask[:, None, :], self.data, 0), mask=mask)


def choose_anchors(columns: Sequence[np.ndarray], mask: np.ndarray, n_anchors: int, *, seed: int = 0) -> np.ndarray:
    """Samples, in increasing order, that cover the data: greedy k-means++ on the concatenated views.

    A sample that misses a view says nothing there. So the candidates are all samples with at least c views, for the
    largest c that leaves ``n_anchors`` of them. If there are more than 20 candidates per anchor, a random part of them
    is looked at. Among equal samples the choice is arbitrary. If none of those chosen has a certain view, some random
    samples that have it take the place of others.

    Parameters
    ----------
    columns
        List of (d_v, n) matrices, samples as columns, zero where missing.
    mask
        (n, m) bool, True where observed.
    n_anchors
        How many.
    seed
        Seed; the same one gives the same anchors.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.problem import choose_anchors
    >>> two_groups = np.repeat([[0.0, 9.0]], 5, axis=1)
    >>> mask = np.ones((10, 1), bool)
    >>> choose_anchors([two_groups], mask, 2).tolist() in [[i, j] for i in range(5) for j in range(5, 10)]
    True
    """
    rng = np.random.default_rng(seed)
    counts = mask.sum(axis=1)
    least = np.sort(counts)[-n_anchors]
    candidates = np.flatnonzero(counts >= least)
    most = CANDIDATES_PER_ANCHOR * n_anchors
    if len(candidates) > most:
        candidates = np.sort(rng.choice(candidates, most, replace=False))
    if len(candidates) == n_anchors:
        return candidates
    features = np.vstack([x[:, candidates] for x in columns]).T
    _, chosen = kmeans_plusplus(features, n_anchors, random_state=int(rng.integers(2**31)))
    chosen = np.unique(chosen)
    others = np.setdiff1d(np.arange(len(candidates)), chosen)
    anchors = candidates[np.concatenate([chosen, others[: n_anchors - len(chosen)]])]
    lacking = np.flatnonzero(~mask[anchors].any(axis=0))
    if len(lacking):
        share = max(1, n_anchors // (2 * mask.shape[1]))
        seen = [np.flatnonzero(mask[:, v]) for v in lacking]
        added = np.unique(np.concatenate([rng.choice(one, min(share, len(one)), replace=False) for one in seen]))
        kept = rng.choice(anchors, max(0, n_anchors - len(added)), replace=False)
        anchors = np.concatenate([added, kept])[:n_anchors]
    return np.sort(anchors)


def _anchor_indices(
    anchors: int | Sequence[int] | np.ndarray, columns: Sequence[np.ndarray], views: Views
) -> np.ndarray | None:
    """Check the ``anchors`` that :func:`jpltd_jax.make_problem` was given; None if they are all samples in order."""
    mask, n = views.mask, len(views.mask)
    wanted = np.asarray(anchors)
    if wanted.dtype.kind not in "iu" or wanted.ndim > 1:
        raise ValueError(f"anchors must be a number or a vector of sample indices, got {anchors!r}")
    if wanted.ndim == 0:
        if not 1 <= wanted <= n:
            raise ValueError(f"anchors must be between 1 and the number of samples {n}, got {wanted}")
        wanted = choose_anchors(columns, mask, int(wanted)) if wanted < n else np.arange(n)
    if len(wanted) == 0 or wanted.min() < 0 or wanted.max() >= n:
        raise ValueError(f"anchors must be indices of samples, 0 to {n - 1}")
    if len(np.unique(wanted)) != len(wanted):
        raise ValueError("anchors holds a sample twice")
    for v, count in enumerate(mask[wanted].sum(axis=0)):
        if count == 0:
            raise ValueError(f"no anchor is observed in {views.called(v)}")
    return None if np.array_equal(wanted, np.arange(n)) else wanted


def _resolve_dtype(dtype: object, views: list[np.ndarray]) -> np.dtype:
    """The wanted dtype, or that of the views as far as JAX is configured to hold it."""
    if dtype is None:
        return np.dtype(jax.dtypes.canonicalize_dtype(np.result_type(np.float32, *views)))
    try:
        wanted = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError:
        raise ValueError(f"dtype must be float32 or float64, got {dtype!r}") from None
    if wanted not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {wanted}")
    if wanted != jax.dtypes.canonicalize_dtype(wanted):
        raise ValueError("dtype float64 needs jax.config.update('jax_enable_x64', True)")
    return wanted


def _unit_columns(x: np.ndarray) -> np.ndarray:
    """Every column scaled to unit l2 norm; zero columns stay zero."""
    largest = np.abs(x).max(axis=0)
    scaled = x / np.where(largest == 0, 1, largest)
    length = np.linalg.norm(scaled, axis=0)
    return scaled / np.where(length == 0, 1, length)


def _check_range(views: Views, columns: list[np.ndarray], dtype: np.dtype) -> None:
    limits = np.finfo(dtype)
    for v, x in enumerate(columns):
        size = np.abs(x).max(axis=0)
        too_large = size > np.sqrt(limits.max / len(x))
        if too_large.any():
            sample = views.ids.tolist()[int(np.flatnonzero(too_large)[0])]
            raise ValueError(f"{views.called(v)}, sample {sample!r} is too large for {dtype}; use normalize=True")
        if 0 < size.max() < np.sqrt(limits.tiny):
            raise ValueError(f"{views.called(v)} is too small for {dtype}; use normalize=True")


def warn_of_shift(views: Views, chosen: Iterable[int]) -> None:
    """Warn of those views, if chosen, whose mean is more than 10 times as far from zero as their samples from the mean.

    Scaled to unit length, such samples are nearly the same: where the zero point is, decides.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from jpltd_jax.problem import warn_of_shift
    >>> from jpltd_jax.views import read_views
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_shift(read_views([np.array([[99.0, 99.0], [101.0, 101.0]])]), [0])
    >>> str(caught[0].message)[:60]
    'the mean of view 0 is 100 times as far from zero as its samp'
    """
    for v in chosen:
        x = views.matrices[v][views.mask[:, v]].astype(np.float64)
        largest = np.abs(x).max(initial=0)
        x = x / largest if largest else x
        mean = x.mean(axis=0)
        distance, spread = np.linalg.norm(mean), np.sqrt(np.sum((x - mean) ** 2) / len(x))
        rounding = 4 * np.finfo(np.float64).eps * distance
        if distance > FAR * spread and spread > rounding:
            warnings.warn(
                f"the mean of {views.called(v)} is {distance / spread:.0f} times as far from zero as its samples are "
                "from the mean, so that samples of unit length are all alike: subtract the mean of every feature first",
                stacklevel=2,
            )


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
    views: ViewsLike,
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
        List, or dictionary by name, of m matrices (n, d_v), samples as rows; NumPy, JAX, SciPy sparse or DataFrames,
        which are matched by their index; or a MuData. A row of NaN is a missing sample.
    mask
        (n, m) bool, True where observed. What stands in the hidden rows never influences the result.
    normalize
        Scale every observed sample of every view to unit l2 norm (a zero sample stays zero).
    anchors
        Represent the samples by these only, so that cost and memory are linear in n: the indices of samples, or how
        many :func:`jpltd_jax.problem.choose_anchors` shall choose. Default: by all samples, as in the paper.
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
    if not isinstance(normalize, bool | np.bool_):
        raise TypeError(f"normalize must be True or False, got {normalize!r}")
    read = read_views_to_learn_from(views, mask)
    matrices, present = read.matrices, read.mask
    target = _resolve_dtype(dtype, matrices)
    columns = [x.T.astype(np.float64, copy=False) for x in matrices]
    if normalize:
        warn_of_nothing_to_learn(read)
        warn_of_shift(read, range(len(matrices)))
        columns = [_unit_columns(x) for x in columns]
    else:
        _check_range(read, columns, target)
    chosen = None if anchors is None else _anchor_indices(anchors, columns, read)
    compressed = [_compress(x, present[:, v]) for v, x in enumerate(columns)]
    width = max(r.shape[0] for _, r in compressed)
    stacked = np.stack([np.pad(r, ((0, width - r.shape[0]), (0, 0))) for _, r in compressed])
    return Problem(
        data=jnp.asarray(stacked, target),
        mask=jnp.asarray(present.T),
        bases=tuple(None if q is None else jnp.asarray(q, target) for q, _ in compressed),
        anchors=None if chosen is None else jnp.asarray(chosen, jnp.int32),
        dimensions=tuple(len(x) for x in columns),
        names=read.names,
    )


def check_features(views: Views, problem: Problem) -> Views:
    """The views in the order of the problem's, if they are the same ones and as wide."""
    if len(views.matrices) != problem.n_views:
        raise ValueError(f"expected {problem.n_views} views, got {len(views.matrices)}")
    matched = match_views(views, problem.names) if problem.names else views
    for v, (x, features) in enumerate(zip(matched.matrices, problem.dimensions, strict=True)):
        if x.shape[1] != features:
            raise ValueError(f"{matched.called(v)} has {x.shape[1]} features, but the model was made from {features}")
    return matched


def further_samples(
    problem: Problem, views: ViewsLike, mask: ArrayLike | None = None, *, normalize: bool = True
) -> Problem:
    """Samples that ``problem`` was not made from, in its coordinates; each needs one view, whichever.

    Of a compressed view the part outside the span of the problem's own samples is left out, as a projection W does.

    Examples
    --------
    >>> import numpy as np
    >>> import jpltd_jax as jj
    >>> problem = jj.make_problem([np.eye(3), np.eye(3, 2)])
    >>> jj.problem.further_samples(problem, [[[0.0, 2.0, 0.0]], [[np.nan, np.nan]]]).data[0].T
    Array([[0., 1., 0.]], dtype=float32)
    """
    matrices, present, *_ = check_features(read_views(views, mask), problem)
    _, width, _ = problem.data.shape
    stacked = []
    for x, basis in zip(matrices, problem.bases, strict=True):
        columns = x.T.astype(np.float64)
        columns = _unit_columns(columns) if normalize else columns
        columns = columns if basis is None else np.asarray(basis, np.float64).T @ columns
        stacked.append(np.pad(columns, ((0, width - len(columns)), (0, 0))))
    return replace(
        problem,
        data=jnp.asarray(np.stack(stacked), problem.data.dtype),
        mask=jnp.asarray(present.T),
        anchors=None,
        mesh=None,
    )
