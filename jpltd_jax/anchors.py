"""Anchors: few samples that all others are represented by, which makes JPLTD linear in the number of samples."""

from collections.abc import Sequence

import numpy as np
from sklearn.cluster import kmeans_plusplus

CANDIDATES_PER_ANCHOR = 20


def choose_anchors(columns: Sequence[np.ndarray], mask: np.ndarray, n_anchors: int, *, seed: int = 0) -> np.ndarray:
    """Samples, in increasing order, that cover the data: greedy k-means++ on the concatenated views.

    A sample that misses a view says nothing there, so samples with the most views are candidates first: all with at
    least c of them, for the largest c that leaves ``n_anchors``. Of more than 20 candidates an anchor a random part is
    looked at. Among equal samples the choice is arbitrary.

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
    >>> from jpltd_jax.anchors import choose_anchors
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
    return np.sort(candidates[np.concatenate([chosen, others[: n_anchors - len(chosen)]])])


def anchor_indices(
    anchors: int | Sequence[int] | np.ndarray, columns: Sequence[np.ndarray], mask: np.ndarray
) -> np.ndarray | None:
    """Check the ``anchors`` that :func:`jpltd_jax.make_problem` was given; None if they are all samples in order."""
    n = len(mask)
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
            raise ValueError(f"no anchor is observed in view {v}")
    return None if np.array_equal(wanted, np.arange(n)) else wanted
