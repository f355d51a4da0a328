import pickle
import warnings
from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone, is_clusterer
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

import jpltd_jax as jj
from jpltd_jax import selection
from jpltd_jax._host import progress_line
from jpltd_jax.annotate import annotate
from jpltd_jax.pipeline import HEAD_START
from jpltd_jax.preparation import PREPARATIONS, prepare_views
from jpltd_jax.selection import LAMS, clarity
from jpltd_jax.views import read_views
from tests.annotated import AnnData, mudata

DATA = jj.datasets.make_blobs(1, n_samples=45, dims=(8, 12, 6), noise=0.5)
MASK = jj.missing.paper_protocol(0, 45, 3, 0.5)
VIEWS = [np.where(MASK[:, [v]], x, np.nan) for v, x in enumerate(DATA.views)]


CONFIG = jj.Config(latent_dim=5, n_neighbors=6)


def model(**changes):
    return jj.JPLTD(**({"n_clusters": 3, "config": CONFIG, "random_state": 0} | changes))


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
    assert len(fitted.history_.fit) == 30
    assert fitted.hyper_.lam == 0.25
    assert fitted.n_features_in_ == [8, 12, 6]
    assert fitted.sample_ids_.tolist() == list(range(45))
    assert isinstance(fitted.affinity_, np.ndarray)


def test_labels_do_not_depend_on_sample_order(fitted):
    order = np.random.default_rng(3).permutation(45)
    shuffled = model().fit([x[order] for x in VIEWS])
    np.testing.assert_allclose(shuffled.affinity_, fitted.affinity_[np.ix_(order, order)], atol=1e-8)
    assert adjusted_rand_score(shuffled.labels_, fitted.labels_[order]) == 1


def test_fit_is_cluster_by_name(fitted):
    prepared, _ = prepare_views(read_views(VIEWS), fitted.preparation_)
    found = jj.cluster(jax.random.key(0), jj.make_problem(prepared, normalize=False), jj.Hyper(), 3, CONFIG)
    np.testing.assert_array_equal(fitted.affinity_, found.affinity)
    np.testing.assert_array_equal(fitted.embedding_, found.embedding)
    assert adjusted_rand_score(fitted.labels_, found.labels) == 1


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


IDS = np.array([f"s{i}" for i in range(45)])


def named_frames(rows):
    return {
        f"omic{v}": pd.DataFrame(x[rows], index=IDS[rows], columns=[f"{v}_{j}" for j in range(x.shape[1])])
        for v, x in enumerate(VIEWS)
    }


@pytest.fixture(scope="module")
def named():
    with jax.enable_x64(True):
        return model().fit(named_frames(np.arange(45)))


def test_names_change_nothing_but_are_kept(named, fitted):
    np.testing.assert_array_equal(named.affinity_, fitted.affinity_)
    assert named.view_names_in_ == ("omic0", "omic1", "omic2")
    assert named.feature_names_in_[2] == tuple(f"2_{j}" for j in range(6))
    assert (fitted.view_names_in_, fitted.feature_names_in_) == (("view 0", "view 1", "view 2"), (None,) * 3)


def test_further_samples_are_matched_by_name_and_id(named):
    rows = np.flatnonzero(MASK.all(axis=1))
    frames = named_frames(rows)
    expected = dict(zip(IDS[rows], named.predict(frames), strict=True))
    rng = np.random.default_rng(0)
    first, *others = frames
    shuffled = {name: frames[name].iloc[rng.permutation(len(rows))] for name in reversed(others)}
    assert list(shuffled) != list(frames)[1:]
    labels = named.predict(shuffled | {first: frames[first]})
    ids = shuffled[others[-1]].index
    np.testing.assert_array_equal(labels, [expected[i] for i in ids])
    assert adjusted_rand_score(DATA.labels[[list(IDS).index(i) for i in ids]], labels) == 1
    arrays = {name: frame.to_numpy() for name, frame in shuffled.items()} | {first: frames[first].to_numpy()}
    lists = [frame.index for frame in shuffled.values()] + [frames[first].index]
    with pytest.warns(UserWarning, match="has no feature names, but the model was fitted with them"):
        np.testing.assert_array_equal(named.predict(arrays, ids=lists), labels)


def test_mudata_is_clustered_and_annotated(fitted):
    frames = {name: frame.dropna() for name, frame in named_frames(np.arange(45)).items()}
    data = mudata(**{name: AnnData(x.to_numpy(), pd.Index(x.index), pd.Index(x.columns)) for name, x in frames.items()})
    check_annotated(data, fitted)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_real_mudata_is_clustered_and_annotated(fitted):
    anndata = pytest.importorskip("anndata")
    real = pytest.importorskip("mudata")
    frames = {name: frame.dropna() for name, frame in named_frames(np.arange(45)).items()}
    made = {
        name: anndata.AnnData(
            scipy.sparse.csr_matrix(x.to_numpy()) if name == "omic0" else x.to_numpy(),
            pd.DataFrame(index=x.index),
            pd.DataFrame(index=x.columns),
        )
        for name, x in frames.items()
    }
    check_annotated(real.MuData(made), fitted)


def check_annotated(data, fitted):
    est = model().fit(data)
    assert data.obs.columns.tolist() == []
    assert est.sample_ids_.tolist() == list(data.obs_names)
    place = [list(IDS).index(i) for i in data.obs_names]
    assert adjusted_rand_score(DATA.labels[place], est.labels_) == 1
    annotate(data, est)
    assert data.obs["jpltd"].astype(int).tolist() == est.labels_.tolist()
    assert data.obs["jpltd"].cat.categories.tolist() == ["0", "1", "2"]
    np.testing.assert_array_equal(data.obsm["X_jpltd"], est.embedding_)
    one = data.mod["omic1"]
    annotate(one, est, key="groups")
    by_id = dict(zip(data.obs_names, est.labels_, strict=True))
    assert one.obs["groups"].astype(int).tolist() == [by_id[i] for i in one.obs_names]


def test_verbose_is_a_number_as_in_scikit_learn(capsys):
    model(verbose=0, max_iter=30).fit(VIEWS)
    assert capsys.readouterr().err == ""
    model(verbose=1, max_iter=30).fit(VIEWS)
    assert "30/30" in capsys.readouterr().err


def test_other_errors_of_jax_are_not_said_to_be_of_memory(monkeypatch):
    def fail(*_, **__):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    monkeypatch.setattr("jpltd_jax.estimator.cluster", fail)
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        model().fit(VIEWS)


@pytest.mark.parametrize("scale", [1e-26, 1e26])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_scale_of_a_view_does_not_matter(scale, dtype):
    views = [x.astype(dtype) for x in VIEWS]
    plain, scaled = (model().fit([views[0] * dtype(s), *views[1:]]) for s in (1, scale))
    assert scaled.preparation_ == plain.preparation_
    assert adjusted_rand_score(scaled.labels_, plain.labels_) == 1


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
    est = jj.JPLTD(np.int64(3), max_iter=np.int32(30), config=CONFIG, random_state=np.random.RandomState(0))
    np.testing.assert_array_equal(est.fit(VIEWS).labels_, fitted.labels_)


def test_published_method_is_the_learned_affinity():
    config = replace(jj.PUBLISHED, latent_dim=5, updates="reference")
    est = model(config=config, lam=0.5).fit(VIEWS)
    solution = jj.solve(jj.make_problem(VIEWS), jj.Hyper(lam=0.5), config)
    np.testing.assert_allclose(est.affinity_, solution.affinity, atol=1e-12)
    assert (est.preparation_, est.candidates_, est.chosen_, est.support_) == (["unit"] * len(VIEWS), {}, None, None)
    assert model(config=jj.PUBLISHED).fit(VIEWS).hyper_.lam == 5


def test_auto_lam_picks_the_clearest_affinity():
    est = model(lam="auto", preparation="unit").fit(VIEWS)
    problem, key = jj.make_problem(VIEWS), jax.random.key(0)
    score = {lam: float(clarity(jj.cluster(key, problem, jj.Hyper(lam=lam), 3, CONFIG).affinity, 3)) for lam in LAMS}
    assert est.hyper_.lam == max(score, key=score.get)


def test_checkpoint_is_gone_on_from(fitted, tmp_path):
    file = tmp_path / "fit.npz"
    with pytest.raises(KeyboardInterrupt, match="after iteration 5"):
        stopped_early(model(checkpoint=file)).fit(VIEWS)
    assert file.exists()
    resumed = model(checkpoint=file).fit(VIEWS)
    np.testing.assert_array_equal(resumed.affinity_, fitted.affinity_)
    np.testing.assert_array_equal(resumed.history_.fit, fitted.history_.fit)
    with pytest.raises(ValueError, match=r"fit.npz is a checkpoint of another run: its hyper-parameters differs"):
        model(checkpoint=file, lam=0.5).fit(VIEWS)
    with pytest.raises(ValueError, match="give a number instead of lam='auto'"):
        model(checkpoint=file, lam="auto").fit(VIEWS)


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
        ({"config": "published"}, "'config' parameter"),
        ({"max_iter": 0}, "'max_iter' parameter"),
        ({"n_clusters": 46}, "n_clusters must be between 1 and 45, got 46"),
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


def stopped_early(est):
    """The estimator with a loop that is stopped at its first look, as Ctrl-C does."""
    loop_of = est._loop
    est._loop = lambda method, note: replace(loop_of(method, note), callback=lambda *_: True)
    return est


def test_interrupt_ends_the_fit_also_between_values_of_lam(monkeypatch):
    calls = []
    cluster = selection.cluster
    monkeypatch.setattr(selection, "cluster", lambda *a, **k: calls.append(1) or cluster(*a, **k))
    with pytest.raises(KeyboardInterrupt, match="after iteration 5"):
        stopped_early(model(lam="auto")).fit(VIEWS)
    assert len(calls) == 1


def test_progress_is_drawn_only_when_asked(capsys):
    model(verbose=True).fit(VIEWS)
    drawn = capsys.readouterr().err
    assert "30/30" in drawn
    assert drawn.endswith("\n")
    model().fit(VIEWS)
    assert capsys.readouterr().err == ""


def test_progress_line_counts_from_the_first_report(monkeypatch):
    """What comes before it, compilation, is not in the estimate; nor does a second run go on with the first one's."""
    import io

    clock = [0]
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    out = io.StringIO()
    show = progress_line(4, "work", out)
    clock[0] = 1000
    show(1, "a quarter")
    clock[0] = 1001
    show(2, "half")
    show(4, "done")
    first, *_, last = out.getvalue().split("\r")[1:]
    assert "1/4" in first
    assert "00:00<?" in first
    assert "4/4 [00:01<00:00" in last
    assert "done" in last
    assert out.getvalue().endswith("\n")
    show(1, "again")
    assert "1/4" in out.getvalue().rsplit("\r", 1)[1]


def test_whole_chain_is_one_jitted_function_over_masks_and_seeds():
    """views -> labels -> scores, vmapped over three masks and two seeds, equal to the single runs."""
    complete = jj.make_problem(DATA.views, dtype="float32")
    y = jax.numpy.asarray(DATA.labels)

    def chain(mask, key):
        labels = jj.cluster(key, complete.restrict(mask), jj.Hyper(lam=1.0), 3, CONFIG).labels
        return jj.metrics.scores(y, labels, n_labels=3)

    masks = jax.numpy.asarray(np.stack([jj.missing.paper_protocol(s, 45, 3, 0.5) for s in range(3)]))
    keys = jax.random.split(jax.random.key(0), 2)
    batch = jax.jit(jax.vmap(jax.vmap(chain, (None, 0)), (0, None)))(masks, keys)
    assert batch.accuracy.shape == (3, 2)
    single = jax.jit(chain)
    for i in range(3):
        one = single(masks[i], keys[1])
        np.testing.assert_allclose(batch.accuracy[i, 1], one.accuracy, atol=1e-6)
        np.testing.assert_allclose(batch.nmi[i, 1], one.nmi, atol=1e-5)


# Any method ---------------------------------------------------------------------------------------------------------


def test_clusterer_conventions():
    est = jj.Clusterer("imvc_cbg", 3, hyper=jj.methods.imvc_cbg.Hyper(lam=1.0), random_state=0)
    assert is_clusterer(est)
    assert clone(est).get_params() == est.get_params()
    frames = [pd.DataFrame(x[MASK[:, v]], index=np.flatnonzero(MASK[:, v])) for v, x in enumerate(DATA.views)]
    assert adjusted_rand_score(DATA.labels[est.fit(frames).sample_ids_.astype(int)], est.labels_) > 0.9
    assert est.affinity_ is None
    assert est.status_ is jj.Status.CONVERGED
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(est)).labels_, est.labels_)


def test_a_method_that_computes_in_float64_says_so(capsys):
    config = jj.methods.vcl_imvc.Config(n_neighbors=5)
    with jax.enable_x64(False):
        est = jj.Clusterer("vcl_imvc", 3, config=config, max_iter=5, random_state=0, verbose=True).fit(DATA.views)
    assert "VCL-IMVC in float64" in capsys.readouterr().err
    assert est.embedding_.dtype == np.float32, "k-means is run in the precision of the flag"


def test_clusterer_errors_name_what_is_accepted():
    with pytest.raises(ValueError, match=r"method must be one of jpltd, ueaf, climc_sc, .* got 'kmeans'"):
        jj.Clusterer("kmeans", 3).fit(VIEWS)
    with pytest.raises(TypeError, match=r"IMVC-CBG takes jpltd_jax.methods.imvc_cbg.Hyper, got Hyper"):
        jj.Clusterer("imvc_cbg", 3, hyper=jj.Hyper()).fit(VIEWS)
    with pytest.raises(TypeError, match=r"IMVC-CBG takes jpltd_jax.methods.imvc_cbg.Config, got Config"):
        jj.Clusterer("imvc_cbg", 3, config=jj.PUBLISHED).fit(VIEWS)
    with pytest.raises(ValueError, match="IMVC-CBG: lam must be a float in the range"):
        jj.Clusterer("imvc_cbg", 3, hyper=jj.methods.imvc_cbg.Hyper(lam=-1.0)).fit(VIEWS)


# Why --------------------------------------------------------------------------------------------------------------


def test_fit_tells_what_it_chose_and_why(fitted):
    assert set(fitted.preparation_) <= set(PREPARATIONS)
    assert list(fitted.candidates_) == ["late", "completed"]
    late, completed = (fitted.candidates_[name] for name in ("late", "completed"))
    better = completed["score"] > late["score"] * (1 + HEAD_START)
    assert fitted.chosen_ == ("completed" if better else "late")
    np.testing.assert_array_equal(fitted.candidates_[fitted.chosen_]["labels"], fitted.labels_)
    for one in (late, completed):
        np.testing.assert_allclose(one["score"], one["modularity"] / (1 - one["explained"]), rtol=1e-6)
    assert fitted.support_.shape == (len(VIEWS), 3)
    np.testing.assert_allclose(
        fitted.support_.sum(axis=1).mean(), fitted.candidates_[fitted.chosen_]["modularity"], rtol=1e-6
    )
    centers = np.stack([fitted.embedding_[fitted.labels_ == c].mean(axis=0) for c in range(3)])
    distances = np.sort(np.linalg.norm(fitted.embedding_[:, None] - centers, axis=2), axis=1)
    np.testing.assert_allclose(fitted.margin_, 1 - distances[:, 0] / distances[:, 1], atol=1e-4)


def test_preparation_can_be_given():
    assert model(preparation="root").fit(VIEWS).preparation_ == ["root"] * len(VIEWS)
    names = ["standard", *["unit"] * (len(VIEWS) - 1)]
    assert model(preparation=names).fit(VIEWS).preparation_ == names
    with pytest.raises(ValueError, match=f"one for each of the {len(VIEWS)} views, got 1"):
        model(preparation=["unit"]).fit(VIEWS)
    with pytest.raises(ValueError, match=r"preparation must be one of 'unit', 'root', .*got 'z'"):
        model(preparation="z").fit(VIEWS)


def test_fast_takes_the_late_graph():
    est = model(strategy="fast").fit(VIEWS)
    assert (list(est.candidates_), est.chosen_) == (["late"], "late")


def test_the_number_of_clusters_is_suggested_from_the_numbers_given(fitted):
    est = model(n_clusters=range(2, 5)).fit(VIEWS)
    assert est.n_clusters_ == est.clusters_tried_.suggested == 3
    assert est.clusters_tried_.counts.tolist() == [2, 3, 4]
    np.testing.assert_array_equal(est.labels_, fitted.labels_)
    assert (fitted.n_clusters_, fitted.clusters_tried_) == (3, None)
    assert clone(est).n_clusters == range(2, 5)
    with pytest.raises(ValueError, match="smallest number of clusters must be between 2 and 45, got 1"):
        model(n_clusters=[1, 2]).fit(VIEWS)


def test_auto_tries_as_many_clusters_as_there_are_three_samples_for():
    assert model(n_clusters="auto").fit([x[:12] for x in DATA.views]).clusters_tried_.counts.tolist() == [2, 3, 4]


def test_samples_that_nothing_compares_are_named(fitted):
    assert not fitted.unconnected_.any()
    apart = np.ones((45, 3), bool)
    apart[:40, 2], apart[40:, :2] = False, False
    with pytest.warns(UserWarning, match="^5 samples share no view with the others"):
        est = model().fit(DATA.views, mask=apart)
    assert np.flatnonzero(est.unconnected_).tolist() == list(range(40, 45))
