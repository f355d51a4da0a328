import pickle
import warnings

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from joblib import Parallel, delayed
from sklearn.base import clone, is_clusterer
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

import jpltd_jax as jj
from jpltd_jax.estimator import progress_line

DATA = jj.datasets.make_blobs(1, n_samples=45, dims=(8, 12, 6), noise=0.5)
MASK = jj.missing.paper_protocol(0, 45, 3, 0.5)
VIEWS = [np.where(MASK[:, [v]], x, np.nan) for v, x in enumerate(DATA.views)]


def model(**changes):
    return jj.JPLTD(3, **({"latent_dim": 5, "n_neighbors": 6, "random_state": 0} | changes))


@pytest.fixture(scope="module")
def fitted():
    with jax.enable_x64(True):
        return model().fit(VIEWS)


def test_finds_planted_clusters_and_fills_its_attributes(fitted):
    assert adjusted_rand_score(DATA.labels, fitted.labels_) == 1
    assert fitted.labels_.shape == (45,)
    assert np.issubdtype(fitted.labels_.dtype, np.integer)
    assert fitted.affinity_.shape == (45, 45)
    assert fitted.embedding_.shape == (45, 3)
    assert fitted.n_iter_ == 30
    assert fitted.status_ is jj.Status.MAX_ITER
    assert len(fitted.history_.fit_residual) == 30
    assert fitted.lam_ == 0.25
    assert fitted.n_features_in_ == [8, 12, 6]
    assert fitted.sample_ids_.tolist() == list(range(45))
    assert isinstance(fitted.affinity_, np.ndarray)


def test_labels_do_not_depend_on_sample_order(fitted):
    order = np.random.default_rng(3).permutation(45)
    shuffled = model().fit([x[order] for x in VIEWS])
    np.testing.assert_allclose(shuffled.affinity_, fitted.affinity_[np.ix_(order, order)], atol=1e-8)
    assert adjusted_rand_score(shuffled.labels_, fitted.labels_[order]) == 1


def test_default_affinity_is_the_functional_chain(fitted):
    """Three clusters of 45 samples: 15 neighbours are kept."""
    problem = jj.make_problem(VIEWS)
    transform = jj.graphs.graph_transform(jj.graphs.consensus_graph(problem, 6))
    hyper = jj.Hyper(lam=0.25, theta=0.1)
    learned = jj.solve(problem, hyper, latent_dim=5, max_iter=30, transform=transform, w_init="svd").affinity
    for est, n_reach, n_kept in ((fitted, 25, 15), (model(n_reach=3, n_kept=4).fit(VIEWS), 3, 4)):
        near = jj.graphs.within_reach(learned, problem, n_reach)
        assert (near == 0).sum() > (learned == 0).sum()
        np.testing.assert_allclose(est.affinity_, jj.graphs.sparsify(near, n_kept), atol=1e-12)


def test_same_seed_same_labels_and_refit(fitted):
    again = model().fit(VIEWS)
    np.testing.assert_array_equal(again.labels_, fitted.labels_)
    np.testing.assert_array_equal(again.fit(VIEWS).labels_, fitted.labels_)
    np.testing.assert_array_equal(model().fit_predict(VIEWS), fitted.labels_)
    assert len(again.fit([x[:30] for x in VIEWS]).labels_) == 30


def test_explicit_mask_equals_nan_rows(fitted):
    garbage = [np.where(MASK[:, [v]], x, 1e30) for v, x in enumerate(DATA.views)]
    np.testing.assert_array_equal(model().fit(garbage, mask=MASK).affinity_, fitted.affinity_)


def test_frames_are_matched_by_id(fitted):
    ids = np.array([f"s{i}" for i in range(45)])
    rng = np.random.default_rng(5)
    frames = []
    for v, x in enumerate(DATA.views):
        seen = rng.permutation(np.flatnonzero(MASK[:, v]))
        frames.append(pd.DataFrame(x[seen], index=ids[seen]))
    est = model().fit(frames)
    by_id = dict(zip(est.sample_ids_, est.labels_, strict=True))
    assert adjusted_rand_score([by_id[i] for i in ids], fitted.labels_) == 1
    arrays = model().fit([f.to_numpy() for f in frames], ids=[f.index.to_series() for f in frames])
    np.testing.assert_array_equal(arrays.labels_, est.labels_)
    with pytest.raises(ValueError, match="view 0 has the sample id"):
        model().fit([pd.concat([frames[0], frames[0].iloc[:1]]), *frames[1:]])


def test_sparse_views_and_lists(fitted):
    sparse = [scipy.sparse.csr_array(np.where(MASK[:, [v]], x, 0)) for v, x in enumerate(DATA.views)]
    np.testing.assert_allclose(model().fit(sparse, mask=MASK).affinity_, fitted.affinity_, atol=1e-6)
    lists = [x.tolist() for x in VIEWS]
    np.testing.assert_allclose(model().fit(lists).affinity_, fitted.affinity_, atol=1e-6)


def test_scikit_learn_conventions(fitted):
    assert is_clusterer(fitted)
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        check_is_fitted(copy)
    assert copy.set_params(lam=2.0).lam == 2.0
    revived = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(revived.labels_, fitted.labels_)
    assert "n_clusters=3" in repr(fitted)
    pipeline = make_pipeline(FunctionTransformer(lambda views: [2 * x for x in views]), model())
    np.testing.assert_array_equal(pipeline.fit_predict(VIEWS), fitted.labels_)


def test_numpy_integers_and_random_state_objects(fitted):
    est = jj.JPLTD(np.int64(3), latent_dim=np.int32(5), n_neighbors=np.int64(6), random_state=np.random.RandomState(0))
    np.testing.assert_array_equal(est.fit(VIEWS).labels_, fitted.labels_)


def test_parallel_processes(fitted):
    labels = Parallel(n_jobs=2)(delayed(model().fit_predict)(VIEWS) for _ in range(2))
    for one in labels:
        assert adjusted_rand_score(one, fitted.labels_) == 1


def test_published_method_is_the_functional_chain():
    est = model(transform="fourier", order="reference", lam=0.5).fit(VIEWS)
    problem = jj.make_problem(VIEWS)
    result = jj.solve(problem, jj.Hyper(lam=0.5, theta=0.1), latent_dim=5, max_iter=30, order="reference")
    np.testing.assert_array_equal(est.affinity_, result.affinity)


def test_auto_lam_picks_the_clearest_affinity():
    est = model(lam="auto").fit(VIEWS)
    problem = jj.make_problem(VIEWS)
    transform = jj.graphs.graph_transform(jj.graphs.consensus_graph(problem, 6))
    clarity = {}
    for lam in jj.selection.LAMS:
        hyper = jj.Hyper(lam=lam, theta=0.1)
        result = jj.solve(problem, hyper, latent_dim=5, max_iter=30, transform=transform, w_init="svd")
        near = jj.graphs.within_reach(result.affinity, problem, 25)
        clarity[lam] = float(jj.selection.clarity(jj.graphs.sparsify(near, 15), 3))
    assert est.lam_ == max(clarity, key=clarity.get)


def test_empty_affinity_is_an_error_that_says_what_to_do():
    with pytest.raises(ValueError, match="affinity is zero with lam=1e\\+09: lower lam"):
        model(lam=1e9).fit(VIEWS)


def test_not_converged_is_a_warning_beyond_early_stopping():
    with pytest.warns(ConvergenceWarning, match="after 31 iterations: raise max_iter"):
        model(max_iter=31).fit(VIEWS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(max_iter=30).fit(VIEWS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_clusters": 0}, "'n_clusters' parameter"),
        ({"n_clusters": 2.5}, "'n_clusters' parameter"),
        ({"lam": -1}, "'lam' parameter"),
        ({"lam": "best"}, "'lam' parameter"),
        ({"transform": "wavelet"}, "'transform' parameter"),
        ({"max_iter": 0}, "'max_iter' parameter"),
        ({"n_clusters": 46}, "n_clusters=46 is more than the number of samples 45"),
    ],
)
def test_bad_parameters_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        model().set_params(**changes).fit(VIEWS)


def test_bad_views_are_named():
    broken = [x.copy() for x in VIEWS]
    broken[1][np.flatnonzero(MASK[:, 1])[0], 0] = np.inf
    with pytest.raises(ValueError, match=r"view 1, sample .* is inf"):
        model().fit(broken)


def test_interrupt_ends_the_fit_also_between_values_of_lam(monkeypatch):
    calls = []

    def interrupted(*arguments, **options):
        calls.append(1)
        return jj.solve_chunked(*arguments, **options | {"callback": lambda *_: True})

    monkeypatch.setattr("jpltd_jax.estimator.solve_chunked", interrupted)
    with pytest.raises(KeyboardInterrupt, match="after iteration 5"):
        model(lam="auto").fit(VIEWS)
    assert len(calls) == 1


def test_progress_is_drawn_only_when_asked(capsys):
    model(verbose=True).fit(VIEWS)
    drawn = capsys.readouterr().err
    assert "30/30" in drawn
    assert drawn.endswith("\n")
    model().fit(VIEWS)
    assert capsys.readouterr().err == ""


def test_progress_line_counts():
    import io

    out = io.StringIO()
    show = progress_line(4, "work", out)
    show(2, "half")
    show(4, "done")
    assert "[##########..........] 2/4 half" in out.getvalue()
    assert out.getvalue().endswith("\n")


def test_whole_chain_is_one_jitted_function_over_masks_and_seeds():
    """views -> labels -> scores, vmapped over three masks and two seeds, equal to the single runs."""
    complete = jj.make_problem(DATA.views, dtype="float32")
    y = jax.numpy.asarray(DATA.labels)

    def chain(mask, key):
        problem = complete.restrict(mask)
        transform = jj.graphs.graph_transform(jj.graphs.consensus_graph(problem, 6))
        result = jj.solve(problem, jj.Hyper(lam=1.0, theta=0.1), latent_dim=5, max_iter=30, transform=transform)
        labels = jj.spectral_cluster(key, jj.graphs.sparsify(result.affinity, 20), 3)
        return jj.metrics.scores(y, labels, n_labels=3)

    masks = jax.numpy.asarray(np.stack([jj.missing.paper_protocol(s, 45, 3, 0.5) for s in range(3)]))
    keys = jax.random.split(jax.random.key(0), 2)
    batch = jax.jit(jax.vmap(jax.vmap(chain, (None, 0)), (0, None)))(masks, keys)
    assert batch.accuracy.shape == (3, 2)
    for i in range(3):
        single = jax.jit(chain)(masks[i], keys[1])
        np.testing.assert_allclose(batch.accuracy[i, 1], single.accuracy, atol=1e-6)
        np.testing.assert_allclose(batch.nmi[i, 1], single.nmi, atol=1e-5)
