from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans

import jpltd_jax as jj
from jpltd_jax.audit import audit_leak, audit_order

DATA = jj.datasets.make_blobs(1, n_samples=42, dims=(8, 12), noise=0.5)
MASK = jj.missing.paper_protocol(0, 42, 2, 0.5)


class MeanImputeKMeans(ClusterMixin, BaseEstimator):
    def __init__(self, n_clusters=3, random_state=None):
        self.n_clusters = n_clusters
        self.random_state = random_state

    def fit_predict(self, Xs, y=None):
        filled = np.hstack([np.where(np.isnan(x), np.nanmean(x, axis=0), x) for x in Xs])
        return KMeans(self.n_clusters, n_init=10, random_state=self.random_state).fit_predict(filled)


def by_index(views, mask, seed):
    return np.arange(len(mask)) * 3 // len(mask)


def test_index_reader_is_flagged_and_scores_only_when_sorted():
    audit = audit_order(DATA.views, MASK, DATA.labels, method=by_index)
    assert audit.depends_on_order
    assert audit.sorted == 1
    assert audit.shuffled.max() < 0.7
    assert "DEPENDS" in audit.summary()


def test_scikit_learn_clusterer_is_not_flagged():
    audit = audit_order(DATA.views, MASK, DATA.labels, method=MeanImputeKMeans())
    assert not audit.depends_on_order
    assert "does not depend" in audit.summary()
    assert len(audit.shuffled) == 5


def test_without_classes_there_is_still_a_verdict():
    audit = audit_order(DATA.views, MASK, method=by_index, n_orders=2)
    assert audit.depends_on_order
    assert np.isnan(audit.file)
    assert np.isnan(audit.sorted)
    assert "accuracy" not in audit.summary()


def test_default_estimator_is_order_free_and_the_published_method_is_not():
    """Weak clusters in noise, sorted: the Fourier transform finds the order, the graph transform does not see it."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    views = [rng.normal(size=(3, d))[y] * 0.5 + rng.normal(size=(60, d)) for d in (12, 15)]
    published = jj.JPLTD(3, config=replace(jj.PUBLISHED, latent_dim=8))
    audit = audit_order(views, None, y, method=published, n_orders=3, n_seeds=2)
    assert audit.depends_on_order
    assert audit.sorted > audit.shuffled.mean()
    ours = audit_order(views, None, y, method=jj.JPLTD(3, config=jj.Config(latent_dim=8)), n_orders=3, n_seeds=2)
    assert not ours.depends_on_order


def test_frames_are_matched_by_id_and_so_are_the_classes():
    """Every view says the class itself, but only of the sample with the same id."""
    frames = [pd.DataFrame(x, index=[f"s{i}" for i in range(42)]) for x in DATA.views]
    classes = pd.Series(DATA.labels, index=frames[0].index)
    shuffled = [frames[0], frames[1].sample(frac=1, random_state=0)]

    def apart(views, mask, seed):
        return KMeans(3, n_init=10, random_state=seed).fit_predict(np.hstack(views))

    for y in (classes, classes.sample(frac=1, random_state=1)):
        assert audit_order(shuffled, y=y, method=apart, n_orders=1).file == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_orders": 0}, "n_orders must be at least 1, got 0"),
        ({"n_seeds": 1}, "n_seeds must be at least 2, got 1"),
        ({"y": np.zeros(5)}, r"one class for each of the 42 samples, got shape \(5,\)"),
        ({"method": lambda views, mask, seed: np.zeros(3)}, r"labels of shape \(3,\) for 42 samples"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        audit_order(DATA.views, MASK, **({"method": by_index} | options))


# Values under the mask ------------------------------------------------------------------------------------------------


def by_first_feature(views, mask, seed):
    """Looks at the first view of every sample, hidden or not."""
    return views[0][:, 0] > np.median(views[0][:, 0])


def by_observed(views, mask, seed):
    return mask.sum(axis=1)


def with_default(views, mask, seed):
    return jj.JPLTD(3, config=jj.Config(latent_dim=8), random_state=seed).fit_predict(views, mask=mask)


@pytest.mark.parametrize(("method", "leaks"), [(by_first_feature, True), (by_observed, False), (with_default, False)])
def test_hidden_values_that_are_used_are_found(method, leaks):
    audit = audit_leak(DATA.views, MASK, method=method)
    assert audit.leaks is leaks
    assert audit.repeat_agreement == 1
    assert ("USES" in audit.summary()) is leaks


def test_a_method_that_fails_on_huge_hidden_values_leaks():
    def fails(views, mask, seed):
        if any(np.abs(x).max() > 1e20 for x in views):
            raise ValueError("overflow")
        return mask.sum(axis=1)

    audit = audit_leak(DATA.views, MASK, method=fails)
    assert np.isnan(audit.huge)
    assert audit.leaks
    assert "failed" in audit.summary()


def test_errors_of_the_leak_audit():
    with pytest.raises(TypeError, match="give a function"):
        audit_leak(DATA.views, MASK, method=jj.JPLTD(3))
    with pytest.raises(ValueError, match="hides nothing"):
        audit_leak(DATA.views, np.ones_like(MASK), method=by_observed)
    with pytest.raises(ValueError, match="n_draws must be at least 1, got 0"):
        audit_leak(DATA.views, MASK, method=by_observed, n_draws=0)
