"""Every score against scikit-learn, SciPy or plain counting."""

from collections import Counter

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import sklearn.metrics
from hypothesis import given
from sklearn.metrics.cluster import contingency_matrix, pair_confusion_matrix

from jpltd_jax import metrics

N = 24
SIZES = [(1, 1), (1, 4), (4, 1), (2, 5), (5, 2), (3, 3), (N, 3), (N, N)]
"""Numbers of classes and clusters, the larger ones with every sample on its own."""
FEW_SIZES = [(2, 5), (5, 2), (3, 3)]

pytestmark = pytest.mark.filterwarnings("ignore:The number of unique classes is greater than 50%:UserWarning")


def matched_fraction(y_true, y_pred):
    table = contingency_matrix(y_true, y_pred)
    return table[scipy.optimize.linear_sum_assignment(table, maximize=True)].sum() / len(y_true)


def majority_fraction(y_true, y_pred):
    return sum(Counter(y_true[y_pred == k]).most_common(1)[0][1] for k in np.unique(y_pred)) / len(y_true)


def pair_precision(y_true, y_pred):
    pairs = pair_confusion_matrix(y_true, y_pred)
    return pairs[1, 1] / pairs[:, 1].sum() if pairs[:, 1].any() else 0.0


def pair_recall(y_true, y_pred):
    pairs = pair_confusion_matrix(y_true, y_pred)
    return pairs[1, 1] / pairs[1].sum() if pairs[1].any() else 0.0


def pair_f_score(y_true, y_pred):
    p, r = pair_precision(y_true, y_pred), pair_recall(y_true, y_pred)
    return 2 * p * r / (p + r) if p + r else 0.0


ORACLES = {
    "accuracy": matched_fraction,
    "nmi": sklearn.metrics.normalized_mutual_info_score,
    "ari": sklearn.metrics.adjusted_rand_score,
    "purity": majority_fraction,
    "precision": pair_precision,
    "recall": pair_recall,
    "f_score": pair_f_score,
}
assert tuple(ORACLES) == metrics.Scores._fields
every_metric = pytest.mark.parametrize("name", ORACLES)


@st.composite
def labelings(draw, sizes=SIZES):
    """Classes and clusters of N samples, of which every label 0..k-1 occurs."""

    def labels(k):
        free = draw(st.lists(st.integers(0, k - 1), min_size=N - k, max_size=N - k))
        return np.array(draw(st.permutations([*range(k), *free])))

    n_classes, n_clusters = draw(st.sampled_from(sizes))
    y_true = labels(n_classes)
    nearly = n_classes == n_clusters and draw(st.booleans())
    return y_true, np.append(np.roll(y_true[:5], 1), y_true[5:]) if nearly else labels(n_clusters)


def random_labels(*sizes, n, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(k, size=n) for k in sizes]


def one_of_many(n, *odd):
    return np.isin(np.arange(n), odd).astype(int)


def noisy(y, share, k, seed=1):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(len(y)) < share, rng.integers(k, size=len(y)), y)


LARGE = 100_000
LARGE_CASES = {
    "independent": random_labels(10, 7, n=LARGE),
    "noisy": [np.arange(LARGE) % 20, noisy(np.arange(LARGE) % 20, 0.3, 20)],
    "equal": [np.arange(LARGE) % 9] * 2,
    "many labels": random_labels(100, 150, n=LARGE),
    "two outliers, one found": [one_of_many(LARGE, 5, 9), one_of_many(LARGE, 5)],
    "two outliers, none found": [one_of_many(LARGE, 5, 9), one_of_many(LARGE, 7)],
    "one cluster": [np.arange(LARGE) % 3, np.zeros(LARGE, int)],
    "outliers in their own cluster": [np.maximum(np.arange(LARGE) - LARGE + 4, 0), one_of_many(LARGE, LARGE - 1)],
}


@pytest.mark.parametrize(("x64", "dtype", "atol"), [(True, jnp.float64, 1e-12), (False, jnp.float32, 2e-6)])
@given(labels=labelings())
def test_equals_the_oracle(x64, dtype, atol, labels):
    with jax.enable_x64(x64):
        values = metrics.scores(*labels)
    for name, oracle in ORACLES.items():
        assert getattr(values, name).dtype == dtype
        np.testing.assert_allclose(getattr(values, name), oracle(*labels), rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize("case", LARGE_CASES)
@pytest.mark.parametrize(("x64", "atol"), [(True, 1e-9), (False, 2e-6)])
def test_many_samples(case, x64, atol):
    with jax.enable_x64(x64):
        values = metrics.scores(*LARGE_CASES[case], n_labels=150)
    for name, oracle in ORACLES.items():
        np.testing.assert_allclose(getattr(values, name), oracle(*LARGE_CASES[case]), rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize("labels", [([0], [0]), ([0, 1], [0, 0]), ([0, 0], [0, 1]), ([0, 1], [0, 1]), ([0, 0], [0, 0])])
def test_one_and_two_samples(labels):
    expected = [oracle(*map(np.array, labels)) for oracle in ORACLES.values()]
    np.testing.assert_allclose(metrics.scores(*labels, n_labels=2), expected, atol=1e-12)


@given(labels=labelings(FEW_SIZES), data=st.data())
def test_names_of_labels_and_order_of_samples_do_not_matter(labels, data):
    expected = metrics.scores(*labels)
    values = np.array(data.draw(st.lists(st.integers(-(2**50), 2**50), min_size=N, max_size=N, unique=True)))
    words = np.array(
        data.draw(st.lists(st.text(max_size=5), min_size=N, max_size=N, unique_by=lambda w: w.rstrip("\0")))
    )
    order = np.array(data.draw(st.permutations(range(N))))
    y_true, y_pred = labels
    for renamed in [(values[y_true], words[y_pred]), (words[y_true].tolist(), tuple(values[y_pred] / 2))]:
        np.testing.assert_allclose(metrics.scores(*renamed), expected, atol=1e-12)
    np.testing.assert_allclose(metrics.scores(y_true[order], y_pred[order]), expected, atol=1e-12)


@given(labels=labelings(FEW_SIZES))
def test_exchange_of_classes_and_clusters(labels):
    forward, backward = metrics.scores(*labels), metrics.scores(*labels[::-1])
    for name in ["accuracy", "nmi", "ari", "f_score"]:
        np.testing.assert_allclose(getattr(forward, name), getattr(backward, name), atol=1e-12)
    np.testing.assert_allclose(forward.precision, backward.recall, atol=1e-12)


@every_metric
@given(labels=labelings(FEW_SIZES))
def test_single_metric_eager_and_jit_with_surplus_labels_agrees_with_scores(name, labels):
    metric, expected = getattr(metrics, name), getattr(metrics.scores(*labels), name)
    np.testing.assert_allclose(metric(*labels), expected, atol=1e-14)
    np.testing.assert_allclose(metric(*labels, n_labels=6), expected, atol=1e-14)
    np.testing.assert_allclose(jax.jit(metric, static_argnames="n_labels")(*labels, n_labels=6), expected, atol=1e-14)


@every_metric
@given(pairs=st.lists(labelings(FEW_SIZES), min_size=3, max_size=3))
def test_vmap_agrees_with_single_calls(name, pairs):
    metric = getattr(metrics, name)
    batched = jax.vmap(lambda y, z: metric(y, z, n_labels=6))
    values = batched(*(jnp.stack(y) for y in zip(*pairs, strict=True)))
    np.testing.assert_allclose(values, [metric(*pair) for pair in pairs], atol=1e-14)


@given(labels=labelings())
def test_contingency(labels):
    expected = contingency_matrix(*labels)
    np.testing.assert_array_equal(metrics.contingency(*labels), expected)
    padded = np.zeros((N + 1, N + 1), int)
    padded[: expected.shape[0], : expected.shape[1]] = expected
    np.testing.assert_array_equal(metrics.contingency(*labels, n_labels=N + 1), padded)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64])
def test_small_integer_types_can_index_a_larger_table(dtype):
    y = np.array([0, 1, 127], dtype)
    count = jax.jit(lambda y: metrics.contingency(y, y.astype(int), n_labels=300))
    np.testing.assert_array_equal(np.flatnonzero(np.diag(count(y))), y)


def test_traced_label_out_of_range_gives_nan():
    batched = jax.vmap(lambda y: metrics.scores([0, 1, 2, 2], y, n_labels=4))
    values = batched(jnp.array([[0, 1, 2, bad] for bad in (2, -1, 4, 1000)]))
    for value in values:
        np.testing.assert_array_equal(value, [1, np.nan, np.nan, np.nan])


def test_concrete_labels_may_stay_on_the_host_inside_a_transformation():
    y_true = np.array(["a", "a", "b"])
    np.testing.assert_allclose(jax.jit(lambda x: x * metrics.accuracy(y_true, [5, 5, 6]))(2.0), 2.0)


@pytest.mark.parametrize("name", [*ORACLES, "contingency", "scores"])
def test_errors(name):
    metric = getattr(metrics, name)
    with pytest.raises(ValueError, match=r"y_true and y_pred must have the same length, got 3 and 2"):
        metric([0, 1, 2], [0, 1])
    with pytest.raises(ValueError, match=r"y_true must be a non-empty vector of labels, got shape \(0,\)"):
        metric([], [])
    with pytest.raises(ValueError, match=r"y_pred must be a non-empty vector of labels, got shape \(1, 2\)"):
        metric([0, 1], [[0, 1]])
    with pytest.raises(ValueError, match=r"y_pred has NaN at sample 1"):
        metric([0, 1], [0.0, np.nan])
    with pytest.raises(ValueError, match=r"y_pred must lie in 0..2 when n_labels=3 is given, got 1..3"):
        metric([0, 1], [1, 3], n_labels=3)
    with pytest.raises(ValueError, match=r"y_true must lie in 0..2 when n_labels=3 is given, got -1..1"):
        metric([-1, 1], [1, 3], n_labels=3)
    with pytest.raises(ValueError, match=r"y_true must be integers when n_labels is given, got dtype float64"):
        metric([0.0, 1.0], [1, 2], n_labels=3)
    with pytest.raises(ValueError, match=r"y_true is traced .* pass n_labels, a static upper bound"):
        jax.jit(metric)(jnp.arange(2), jnp.arange(2))
    with pytest.raises(ValueError, match=r"y_pred is traced .* pass n_labels, a static upper bound"):
        jax.vmap(lambda y: metric(["a", "b"], y))(jnp.zeros((3, 2), int))
