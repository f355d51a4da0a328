import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import jpltd_jax as jj
from jpltd_jax.assign import new_affinity
from jpltd_jax.problem import further_samples


@pytest.fixture(scope="module")
def blobs():
    return jj.datasets.make_blobs(0, n_samples=160, dims=(12, 40, 8), n_clusters=4)


@pytest.fixture(scope="module", params=[None, 30])
def fitted(request, blobs):
    mask = jj.missing.paper_protocol(0, 120, 3, 0.5)
    model = jj.JPLTD(4, latent_dim=10, n_anchors=request.param, random_state=0)
    return model.fit([view[:120] for view in blobs.views], mask=mask)


def matched(blobs, fitted):
    """Class of each cluster: the one that most of its samples have."""
    return np.array([np.bincount(blobs.labels[:120][fitted.labels_ == c]).argmax() for c in range(4)])


def test_new_samples_get_the_cluster_of_their_class_with_any_subset_of_the_views(blobs, fitted):
    classes = matched(blobs, fitted)
    new = [view[120:] for view in blobs.views]
    assert np.mean(classes[fitted.predict(new)] == blobs.labels[120:]) > 0.95
    for v in range(3):
        only = np.zeros((40, 3), bool)
        only[:, v] = True
        assert np.mean(classes[fitted.predict(new, mask=only)] == blobs.labels[120:]) > 0.9


def test_a_label_does_not_depend_on_the_other_new_samples(blobs, fitted):
    new = [view[120:130] for view in blobs.views]
    together = fitted.predict(new)
    alone = [fitted.predict([view[i : i + 1] for view in new])[0] for i in range(10)]
    np.testing.assert_array_equal(together, alone)


def test_what_stands_in_hidden_rows_does_not_matter(blobs, fitted):
    mask = np.ones((40, 3), bool)
    mask[::2, 0] = False
    new, other = [view[120:] for view in blobs.views], [view[120:].copy() for view in blobs.views]
    other[0][::2] = np.nan
    np.testing.assert_array_equal(fitted.predict(new, mask=mask), fitted.predict(other))


def test_new_affinity_is_the_ridge_representation(blobs):
    """argmin_g ||W x - D g||^2 + ||g||^2 by NumPy's least squares on the stacked system."""
    problem = jj.make_problem([view[:20] for view in blobs.views])
    samples = further_samples(problem, [view[120:123] for view in blobs.views])
    rng = np.random.default_rng(0)
    W = rng.normal(size=(3, 5, problem.data.shape[1]))
    expected = np.zeros((3, 20))
    for v in range(3):
        D = W[v] @ np.asarray(problem.data[v])
        stacked = np.vstack([D, np.eye(20)])
        target = np.vstack([W[v] @ np.asarray(samples.data[v]), np.zeros((20, 3))])
        expected += np.abs(np.linalg.lstsq(stacked, target, rcond=None)[0]).T / 3
    model = jj.assign.Model(problem, W, None, None)
    np.testing.assert_allclose(new_affinity(model, samples), expected, atol=1e-10)


def test_coordinates_of_further_samples_keep_inner_products(blobs):
    problem = jj.make_problem([view[:60] for view in blobs.views])
    again = further_samples(problem, [view[:60] for view in blobs.views])
    np.testing.assert_allclose(again.data, problem.data, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda views: views[:2], "expected 3 views, got 2"),
        (lambda views: [views[0], views[1][:, :5], views[2]], "view 1 has 5 features, but the model was made from 40"),
        (lambda views: [np.full_like(view, np.nan) for view in views], "sample 0 is missing in all views"),
    ],
)
def test_bad_new_samples_are_named(blobs, fitted, change, message):
    with pytest.raises(ValueError, match=message):
        fitted.predict(change([view[120:125] for view in blobs.views]))


def test_predict_needs_a_fit(blobs):
    with pytest.raises(NotFittedError):
        jj.JPLTD(3).predict(blobs.views)
