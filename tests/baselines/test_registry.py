"""What every method must do alike, through the registry and the estimator."""

import inspect

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_clusterer
from sklearn.metrics import adjusted_rand_score

import jpltd_jax as jj
from jpltd_jax.baselines import METHODS, RECONSTRUCTIONS, Baseline

DATA = jj.datasets.make_blobs(3, n_samples=60, dims=(10, 12, 9))
PARAMS = {"imvtsc_mvi": {"lambda2": 0.1}}
"""Its default is the one recommended for benchmark data; on blobs it leaves an almost uniform graph."""
MASK = jj.missing.paper_protocol(1, 60, 3, 0.3)


@pytest.mark.parametrize("name", METHODS)
def test_estimator_equals_fit_and_finds_planted_clusters(name):
    model = Baseline(name, 3, params=PARAMS.get(name), random_state=0).fit(DATA.views, mask=MASK)
    assert adjusted_rand_score(DATA.labels, model.labels_) > 0.9
    result = model.result_
    assert result.affinity is not None or result.embedding is not None
    n_iter = int(result.n_iter)
    assert np.isfinite(result.history[:n_iter]).sum() >= 1
    assert np.isnan(result.history[n_iter:]).all()
    assert jj.Status(int(result.status)) in (jj.Status.CONVERGED, jj.Status.MAX_ITER)


@pytest.mark.parametrize("name", METHODS)
def test_same_form(name):
    parameters = inspect.signature(METHODS[name]).parameters
    assert list(parameters)[:3] == ["views", "mask", "n_clusters"]
    assert {"key", "max_iter", "tol"} <= {p for p, v in parameters.items() if v.kind is v.KEYWORD_ONLY}
    module = inspect.getmodule(METHODS[name])
    said = "reconstruction" in (module.__doc__ + METHODS[name].__doc__).lower()
    assert said or name not in RECONSTRUCTIONS


def test_estimator_conventions():
    model = Baseline("imvc_cbg", 3, params={"lam": 1.0}, random_state=0)
    assert is_clusterer(model)
    assert clone(model).get_params() == model.get_params()
    frames = [pd.DataFrame(x[MASK[:, v]], index=np.flatnonzero(MASK[:, v])) for v, x in enumerate(DATA.views)]
    assert adjusted_rand_score(DATA.labels[model.fit(frames).sample_ids_.astype(int)], model.labels_) > 0.9


def test_errors_name_what_is_accepted():
    with pytest.raises(ValueError, match=r"method must be one of ueaf, climc_sc, .* got 'kmeans'"):
        Baseline("kmeans", 3).fit(DATA.views)
    with pytest.raises(ValueError, match=r"imvc_cbg has no parameter 'gamma'; it has lam, n_anchors"):
        Baseline("imvc_cbg", 3, params={"gamma": 1}).fit(DATA.views)
    with pytest.raises(ValueError, match="no parameter 'key'"):
        Baseline("imvc_cbg", 3, params={"key": jax.random.key(0)}).fit(DATA.views)
