"""Scores of a clustering against known classes, on device.

Every score is a function of the contingency table n_ij = #{samples of class i in cluster j}, with a_i = sum_j n_ij,
b_j = sum_i n_ij and n samples. All of them take the labels in one of two ways:

* ``n_labels=None``: labels of any values (integers, strings, ...) on the host.
* ``n_labels=k``: integers in 0..k-1, also under jit and vmap, where ``n_labels`` is static. There a label outside that
  range cannot raise: the scores are NaN.

Neither the names of the labels nor unused ones change a score. The table is dense. The formulas are arranged to
lose no more than a few roundings, whatever the sizes of the clusters: float32 scores are good to about 1e-6 also at
n = 100000.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax.assignment
from jaxtyping import Array, Float, Int, Integer

__all__ = ["Scores", "accuracy", "ari", "contingency", "f_score", "nmi", "precision", "purity", "recall", "scores"]

Labels = npt.ArrayLike | Sequence[object]
Table = Int[Array, "classes clusters"]
Score = Float[Array, ""]


class Scores(NamedTuple):
    """All scores of one clustering; each is 1 for a perfect one (the pairwise ones unless there are no pairs)."""

    accuracy: Float[Array, "*batch"]
    nmi: Float[Array, "*batch"]
    ari: Float[Array, "*batch"]
    purity: Float[Array, "*batch"]
    precision: Float[Array, "*batch"]
    recall: Float[Array, "*batch"]
    f_score: Float[Array, "*batch"]


Value = TypeVar("Value", Score, Scores)


def _encode(labels: Labels, name: str, n_labels: int | None) -> tuple[Integer[Array, " n"], int]:
    """Labels as indices, and the static number of indices."""
    if isinstance(labels, jax.core.Tracer) and n_labels is None:
        raise ValueError(
            f"{name} is traced (inside jit or vmap): pass n_labels, a static upper bound on the number of classes and "
            "of clusters, and labels in 0..n_labels-1"
        )
    values = labels if isinstance(labels, jax.core.Tracer) else np.asarray(labels)
    if values.ndim != 1 or values.shape[0] == 0:
        raise ValueError(f"{name} must be a non-empty vector of labels, got shape {values.shape}")
    if n_labels is None:
        if values.dtype.kind == "f" and np.isnan(values).any():
            raise ValueError(f"{name} has NaN at sample {np.flatnonzero(np.isnan(values))[0]}")
        unique, indices = np.unique(values, return_inverse=True)
        return jnp.asarray(indices), len(unique)
    if not np.issubdtype(values.dtype, np.integer):
        raise ValueError(f"{name} must be integers when n_labels is given, got dtype {values.dtype}")
    if isinstance(values, np.ndarray) and not (values.min() >= 0 and values.max() < n_labels):
        found = f"{values.min()}..{values.max()}"
        raise ValueError(f"{name} must lie in 0..{n_labels - 1} when n_labels={n_labels} is given, got {found}")
    return jnp.asarray(values), n_labels


def _count(y_true: Labels, y_pred: Labels, n_labels: int | None) -> tuple[Table, int]:
    """Contingency table and number of samples."""
    classes, n_classes = _encode(y_true, "y_true", n_labels)
    clusters, n_clusters = _encode(y_pred, "y_pred", n_labels)
    if classes.shape != clusters.shape:
        raise ValueError(f"y_true and y_pred must have the same length, got {len(classes)} and {len(clusters)}")
    table = jnp.zeros((n_classes, n_clusters), int)
    return table.at[classes, clusters].add(1, mode="drop", wrap_negative_indices=False), len(classes)


def contingency(y_true: Labels, y_pred: Labels, *, n_labels: int | None = None) -> Int[Array, "classes clusters"]:
    """n_ij = #{samples of class i in cluster j}.

    With ``n_labels`` the table has that many rows and columns; without, one for each value that occurs, in sorted
    order. Traced samples with a label outside 0..n_labels-1 are not counted.

    Examples
    --------
    >>> from jpltd_jax.metrics import contingency
    >>> contingency(["cat", "cat", "dog"], [7, -1, 7])
    Array([[1, 1],
           [0, 1]], dtype=int32)
    """
    return _count(y_true, y_pred, n_labels)[0]


@functools.partial(jax.jit, static_argnames="formula")
def _evaluate(formula: Callable[[Table], Value], table: Table, n: Int[Array, ""] | int) -> Value:
    """The formula, and NaN if the table does not count all n samples."""
    return jax.tree.map(lambda score: jnp.where(table.sum() == n, score, jnp.nan), formula(table))


def _score(formula: Callable[[Table], Value], y_true: Labels, y_pred: Labels, n_labels: int | None) -> Value:
    return _evaluate(formula, *_count(y_true, y_pred, n_labels))


def _accuracy(table: Table) -> Score:
    return table[optax.assignment.hungarian_algorithm(-table)].sum() / table.sum().astype(float)


def _purity(table: Table) -> Score:
    return table.max(axis=0).sum() / table.sum().astype(float)


def _entropy(counts: Int[Array, "..."]) -> Score:
    """-sum p log p with p = counts / n, to relative accuracy also where p is nearly 1."""
    n = counts.sum()
    p, rest = counts / n.astype(float), (n - counts) / n.astype(float)
    log = jnp.where(2 * counts > n, jnp.log1p(-rest), jnp.log(jnp.where(counts > 0, p, 1)))
    return -jnp.sum(p * log)


def _nmi(table: Table) -> Score:
    separate = _entropy(table.sum(axis=1)) + _entropy(table.sum(axis=0))
    single = separate == 0
    return jnp.where(single, 1, jnp.clip(2 - 2 * _entropy(table) / jnp.where(single, 1, separate), 0, 1))


def _pairs(table: Table) -> tuple[Score, Score, Score, Score]:
    """Ordered pairs of samples: together in both, in clusters only, in classes only, in neither.

    As sums of non-negative products of exact integers, in floating point: int32 would overflow.
    """
    a, b, n = table.sum(axis=1, keepdims=True), table.sum(axis=0, keepdims=True), table.sum()
    partners = (table - 1, b - table, a - table, n - a - b + table)
    both, clusters, classes, neither = (jnp.sum(table.astype(float) * count.astype(float)) for count in partners)
    return both, clusters, classes, neither


def _ari(table: Table) -> Score:
    tp, fp, fn, tn = _pairs(table)
    scale = (tp + fn) * (fn + tn) + (tp + fp) * (fp + tn)
    same = fp + fn == 0
    return jnp.where(same, 1, 2 * (tp * tn - fn * fp) / jnp.where(same, 1, scale))


def _precision(table: Table) -> Score:
    tp, fp, _, _ = _pairs(table)
    return tp / jnp.maximum(tp + fp, 1)


def _recall(table: Table) -> Score:
    return _precision(table.T)


def _f_score(table: Table) -> Score:
    tp, fp, fn, _ = _pairs(table)
    return 2 * tp / jnp.maximum(2 * tp + fp + fn, 1)


def _all_scores(table: Table) -> Scores:
    return Scores(
        accuracy=_accuracy(table),
        nmi=_nmi(table),
        ari=_ari(table),
        purity=_purity(table),
        precision=_precision(table),
        recall=_recall(table),
        f_score=_f_score(table),
    )


def accuracy(y_true: Labels, y_pred: Labels, *, n_labels: int | None = None) -> Float[Array, ""]:
    """max_s sum_j n_{s(j) j} / n over the one-to-one assignments s of clusters to classes.

    With more clusters than classes, or the reverse, the surplus ones stay unassigned and their samples count as wrong.

    Examples
    --------
    >>> from jpltd_jax.metrics import accuracy
    >>> accuracy(["a", "a", "b", "b"], [1, 1, 0, 1])
    Array(0.75, dtype=float32)
    """
    return _score(_accuracy, y_true, y_pred, n_labels)


def nmi(y_true: Labels, y_pred: Labels, *, n_labels: int | None = None) -> Float[Array, ""]:
    """2 I / (H(a) + H(b)), mutual information over the mean entropy; 1 for one class and one cluster.

    I = H(a) + H(b) - H(n_ij) and H(c) = -sum (c / n) log(c / n).

    Examples
    --------
    >>> from jpltd_jax.metrics import nmi
    >>> nmi([0, 0, 1, 1], [0, 1, 0, 1])
    Array(0., dtype=float32)
    """
    return _score(_nmi, y_true, y_pred, n_labels)


def ari(y_true: Labels, y_pred: Labels, *, n_labels: int | None = None) -> Float[Array, ""]:
    """Adjusted Rand index (R - E) / (M - E), R = sum_ij C(n_ij, 2): 0 on average by chance, 1 for equal partitions.

    With A = sum_i C(a_i, 2) and B = sum_j C(b_j, 2): E = A B / C(n, 2), M = (A + B) / 2.

    Examples
    --------
    >>> from jpltd_jax.metrics import ari
    >>> ari([0, 0, 1, 1], [0, 1, 0, 1])
    Array(-0.5, dtype=float32)
    """
    return _score(_ari, y_true, y_pred, n_labels)


def purity(y_true: Labels, y_pred: Labels, *, n_labels: int | None = None) -> Float[Array, ""]:
    """sum_j max_i n_ij / n: every cluster is taken for its most frequent class.

    Examples
    --------
    >>> from jpltd_jax.metrics import purity
    >>> purity([0, 0, 1, 1], [0, 1, 2, 3])
    Array(1., dtype=float32)
    """
    return _score(_purity, y_true, y_pred, n_labels)


def precision(y_true: Labels, y_pred: Labels, *, n_labels: int | None = None) -> Float[Array, ""]:
    """sum_ij C(n_ij, 2) / sum_j C(b_j, 2): of the pairs of samples in one cluster, the part that is in one class.

    0 if no cluster holds a pair.

    Examples
    --------
    >>> from jpltd_jax.metrics import precision
    >>> precision([0, 0, 1, 2], [0, 0, 1, 1])
    Array(0.5, dtype=float32)
    """
    return _score(_precision, y_true, y_pred, n_labels)


def recall(y_true: Labels, y_pred: Labels, *, n_labels: int | None = None) -> Float[Array, ""]:
    """sum_ij C(n_ij, 2) / sum_i C(a_i, 2): of the pairs of samples in one class, the part that is in one cluster.

    0 if no class holds a pair.

    Examples
    --------
    >>> from jpltd_jax.metrics import recall
    >>> recall([0, 0, 1, 2], [0, 0, 1, 1])
    Array(1., dtype=float32)
    """
    return _score(_recall, y_true, y_pred, n_labels)


def f_score(y_true: Labels, y_pred: Labels, *, n_labels: int | None = None) -> Float[Array, ""]:
    """2 sum_ij C(n_ij, 2) / (sum_i C(a_i, 2) + sum_j C(b_j, 2)): harmonic mean of pairwise precision and recall.

    0 if neither a class nor a cluster holds a pair.

    Examples
    --------
    >>> from jpltd_jax.metrics import f_score
    >>> f_score([0, 0, 0, 1], [0, 0, 1, 1])
    Array(0.4, dtype=float32)
    """
    return _score(_f_score, y_true, y_pred, n_labels)


def scores(y_true: Labels, y_pred: Labels, *, n_labels: int | None = None) -> Scores:
    """All scores of this module from one contingency table.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.metrics import scores
    >>> scores([0, 0, 1, 1], [1, 1, 0, 1]).accuracy
    Array(0.75, dtype=float32)
    >>> runs = jnp.array([[1, 1, 0, 0], [1, 1, 0, 1], [0, 0, 0, 0]])
    >>> jax.vmap(lambda y_pred: scores([0, 0, 1, 1], y_pred, n_labels=2))(runs).purity
    Array([1.  , 0.75, 0.5 ], dtype=float32)
    """
    return _score(_all_scores, y_true, y_pred, n_labels)
