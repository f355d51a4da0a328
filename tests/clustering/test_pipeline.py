"""From problems to labels: the pipeline as its parts, batched, on shuffled samples, with anchors, for new samples."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

import jpltd_jax as jj
from jpltd_jax import loop as loops
from jpltd_jax import pipeline, spectral
from jpltd_jax.methods import JPLTD, jpltd
from jpltd_jax.pipeline import Model, assign
from jpltd_jax.problem import further_samples
from jpltd_jax.selection import LAMS, choose_lam, clarity
from tests.strategies import seeds

N, C, NEW = 120, 4, 40
KEY = jax.random.key(0)
ORDER_FREE = replace(jj.ORDER_FREE, latent_dim=10)
PUBLISHED = replace(jj.PUBLISHED, latent_dim=10)
BLOBS = jj.datasets.make_blobs(0, n_samples=N + NEW, dims=(12, 40, 8), n_clusters=C)
VIEWS, NEW_VIEWS = [x[:N] for x in BLOBS.views], [x[N:] for x in BLOBS.views]
LABELS, NEW_LABELS = BLOBS.labels[:N], BLOBS.labels[N:]
MASK = jj.missing.paper_protocol(0, N, 3, 0.5)


def assert_same(a, b):
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y, err_msg=jax.tree_util.keystr(path), strict=True)


@pytest.fixture
def problem():
    return jj.make_problem(VIEWS, MASK)


# One pipeline -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "hyper"),
    [(ORDER_FREE, jj.Hyper()), (PUBLISHED, jpltd.PUBLISHED_HYPER)],
    ids=["order-free", "published"],
)
def test_cluster_is_the_composition_of_its_parts(problem, config, hyper):
    found = jj.cluster(KEY, problem, hyper, C, config)
    start_key, label_key = jax.random.split(KEY)
    data = loops.prepare(JPLTD, problem, C, config)
    solution = loops.run(JPLTD, data, hyper, start_key)
    assert_same(found.solution, solution)
    kept = solution.affinity
    if config is ORDER_FREE:
        kept = jj.graphs.sparsify(jj.graphs.within_reach(kept, problem, 25), 20)
        assert (np.asarray(kept) == 0).sum() > (np.asarray(solution.affinity) == 0).sum()
        late = jj.graphs.consensus_graph(problem, 5, 0.3 / C)
        completed = jj.graphs.completed_graph(problem, late, 5, 0.3 / C)
        graph = [late, completed][int(found.candidates.chosen)]
        assert found.candidates.names == ("late", "completed")
        kept = kept / kept.sum(axis=1).mean() + graph / graph.sum(axis=1).mean()
    np.testing.assert_allclose(found.affinity, kept, atol=1e-12)
    places = jax.jit(spectral.embed, static_argnums=(1, 2))(found.affinity, C, config.power)
    np.testing.assert_allclose(found.embedding @ found.embedding.T, places.embedding @ places.embedding.T, atol=1e-9)
    groups = spectral.kmeans(label_key, found.embedding, C)
    np.testing.assert_array_equal(found.labels, groups.labels)
    np.testing.assert_allclose(found.centers, groups.centers, atol=1e-12)
    np.testing.assert_array_equal(found.places.embedding, found.embedding)
    assert_same(found.solution, jj.solve(problem, hyper, config, n_clusters=C))
    if config is ORDER_FREE:
        assert adjusted_rand_score(LABELS, found.labels) > 0.9


def test_jit_and_vmap_over_keys_settings_and_masks_equals_single_calls():
    keys, lams = jax.random.split(KEY, 3), jnp.asarray([0.25, 0.5, 100.0])
    masks = np.stack([jj.missing.paper_protocol(seed, N, 3, 0.5) for seed in range(3)])
    complete = jj.make_problem(VIEWS)

    @jax.jit
    @jax.vmap
    def batched(key, lam, mask):
        return jj.cluster(key, complete.restrict(mask), jj.Hyper(lam=lam), C, ORDER_FREE)

    batch = batched(keys, lams, jnp.asarray(masks))
    assert batch.solution.status.tolist() == ["MAX_ITER", "MAX_ITER", "EMPTY"]
    for i in range(3):
        single = jj.cluster(keys[i], jj.make_problem(VIEWS, masks[i]), jj.Hyper(lam=lams[i]), C, ORDER_FREE)
        assert single.solution.status.name == batch.solution.status[i]
        np.testing.assert_allclose(batch.solution.affinity[i], single.solution.affinity, atol=1e-9)
        np.testing.assert_allclose(batch.affinity[i], single.affinity, atol=1e-9)
        assert adjusted_rand_score(batch.labels[i], single.labels) == 1


def test_methods_go_by_name_or_record(problem):
    method = jj.methods.AVERAGED_GRAPH
    config = method.Config(n_neighbors=5)
    a, b = (jj.cluster(KEY, problem, method.Hyper(), C, config, method=given) for given in (method, "averaged_graph"))
    assert_same(a, b)
    with pytest.raises(ValueError, match=r"method must be one of jpltd, ueaf, .*averaged_graph; got 'kmeans'"):
        jj.cluster(KEY, problem, jj.Hyper(), C, method="kmeans")
    with pytest.raises(TypeError, match=r"averaged graph takes jpltd_jax.methods.averaged_graph.Hyper, got Hyper"):
        jj.cluster(KEY, problem, jj.Hyper(), C, config, method=method)
    with pytest.raises(TypeError, match=r"averaged graph takes jpltd_jax.methods.averaged_graph.Config, got Config"):
        jj.cluster(KEY, problem, method.Hyper(), C, ORDER_FREE, method=method)
    with pytest.raises(ValueError, match="n_clusters must be between 1 and 120, got 121"):
        jj.cluster(KEY, problem, jj.Hyper(), 121)


# Order of the samples -----------------------------------------------------------------------------------------------


def on_shuffled_samples(seed, hyper, config):
    """The affinities and labels of blobs and, brought back to their order, of the same samples shuffled."""
    blobs = jj.datasets.make_blobs(seed % 1000, n_samples=N, dims=(12, 40, 8), n_clusters=C)
    mask = jj.missing.paper_protocol(seed, N, 3, 0.5)
    order = np.random.default_rng(seed).permutation(N)
    a = jj.cluster(KEY, jj.make_problem(blobs.views, mask), hyper, C, config)
    b = jj.cluster(KEY, jj.make_problem([x[order] for x in blobs.views], mask[order]), hyper, C, config)
    back = np.argsort(order)
    learned, shuffled = np.asarray(a.solution.affinity), np.asarray(b.solution.affinity)[np.ix_(back, back)]
    thinned, shuffled_thinned = np.asarray(a.affinity), np.asarray(b.affinity)[np.ix_(back, back)]
    assert learned.max() > 1e-3
    return (learned, shuffled), (thinned, shuffled_thinned), (np.asarray(a.labels), np.asarray(b.labels)[back])


@settings(max_examples=4)
@given(seed=seeds)
def test_order_free_labels_and_affinity_move_with_the_samples(seed):
    learned, thinned, labels = on_shuffled_samples(seed, jj.Hyper(), ORDER_FREE)
    np.testing.assert_allclose(*learned, atol=1e-8)
    np.testing.assert_allclose(*thinned, atol=1e-8)
    assert adjusted_rand_score(*labels) == 1


def test_published_affinity_does_not():
    learned, _, _ = on_shuffled_samples(0, jpltd.PUBLISHED_HYPER, PUBLISHED)
    assert np.abs(learned[0] - learned[1]).max() > 1e-3


# Choice of lam ------------------------------------------------------------------------------------------------------


def test_lam_is_chosen_by_clarity(problem):
    hyper, found = choose_lam(KEY, problem, jj.Hyper(theta=0.2), C, ORDER_FREE)
    singles = [jj.cluster(KEY, problem, jj.Hyper(lam=lam, theta=0.2), C, ORDER_FREE) for lam in LAMS]
    usable = [one.solution.status.name != "EMPTY" for one in singles]
    clearest = np.argmax(
        [float(clarity(one.affinity, C)) if ok else -1 for one, ok in zip(singles, usable, strict=True)]
    )
    assert hyper == jj.Hyper(lam=LAMS[clearest], theta=0.2)
    assert_same(found, singles[clearest])
    assert adjusted_rand_score(LABELS, found.labels) > 0.9


# Anchors and new samples --------------------------------------------------------------------------------------------


N_ANCHORS = 30


def anchored(anchors):
    return jj.make_problem(VIEWS, MASK, anchors=anchors)


@pytest.fixture(params=[None, N_ANCHORS], ids=["all", "anchors"])
def fitted(request):
    problem = anchored(request.param)
    return problem, jj.cluster(KEY, problem, jj.Hyper(), C, ORDER_FREE)


def label_of(fitted, views, mask=None):
    problem, found = fitted
    return np.asarray(assign(Model.of(problem, ORDER_FREE, found), further_samples(problem.dictionary, views, mask)))


def test_clusters_are_found_through_all_samples_and_through_anchors(fitted):
    problem, found = fitted
    width = N if problem.anchors is None else N_ANCHORS
    assert found.affinity.shape == found.solution.affinity.shape == (N, width)
    assert adjusted_rand_score(LABELS, found.labels) > 0.9


def test_the_same_graphs_are_tried_through_anchors(fitted):
    _, found = fitted
    assert found.candidates.names == ("late", "completed")
    assert found.candidates.quality.support.shape == (2, 3, C)
    assert bool(jnp.all(found.candidates.quality.explained > 0.2))


def test_samples_may_be_shuffled_with_their_anchors():
    order = np.random.default_rng(3).permutation(N)
    anchors = np.arange(0, N, 4)
    places = np.argsort(order)[anchors]
    shuffled = jj.make_problem([x[order] for x in VIEWS], MASK[order], anchors=places)
    a, b = (jj.cluster(KEY, problem, jj.Hyper(), C, ORDER_FREE) for problem in (anchored(anchors), shuffled))
    np.testing.assert_allclose(b.affinity, a.affinity[order], atol=1e-8)
    np.testing.assert_allclose(b.candidates.best().support.sum(), a.candidates.best().support.sum(), atol=1e-8)
    assert adjusted_rand_score(a.labels[order], b.labels) == 1


def test_anchors_are_batched_over_masks():
    masks = jnp.stack([jnp.asarray(MASK), jnp.ones_like(MASK)])
    problem = jj.make_problem(VIEWS, anchors=N_ANCHORS)
    labels = lambda mask: jj.cluster(KEY, problem.restrict(mask), jj.Hyper(), C, ORDER_FREE).labels  # noqa: E731
    for together, mask in zip(jax.vmap(labels)(masks), masks, strict=True):
        assert adjusted_rand_score(together, labels(mask)) > 0.97


def test_order_of_the_anchors_does_not_matter():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        anchors, shuffle = rng.permutation(N)[:N_ANCHORS], rng.permutation(N_ANCHORS)
        a, b = (jj.cluster(KEY, anchored(chosen), jj.Hyper(), C, ORDER_FREE) for chosen in (anchors, anchors[shuffle]))
        assert float(a.solution.affinity.max()) > 1e-3
        np.testing.assert_allclose(b.solution.affinity, a.solution.affinity[:, shuffle], atol=1e-8)
        np.testing.assert_allclose(b.affinity, a.affinity[:, shuffle], atol=1e-8)
        assert adjusted_rand_score(a.labels, b.labels) == 1


def all_sizes(jaxpr):
    for equation in jaxpr.eqns:
        yield from (variable.aval.size for variable in equation.outvars)
        for parameter in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from all_sizes(inner)


def test_nothing_of_size_n_times_n_from_views_to_labels():
    data = jj.datasets.make_blobs(0, n_samples=400, dims=(6, 5))
    problem = jj.make_problem(data.views, anchors=20)
    config = replace(ORDER_FREE, latent_dim=4, n_neighbors=5, n_kept=5)
    labels = lambda problem, hyper: jj.cluster(KEY, problem, hyper, 3, config).labels  # noqa: E731
    sizes = list(all_sizes(jax.make_jaxpr(labels)(problem, jj.Hyper()).jaxpr))
    restarts = 20 * 3
    assert len(sizes) > 100
    assert max(sizes) <= 400 * max(20 * 2, restarts)


def test_new_samples_get_the_cluster_of_their_class_with_any_subset_of_the_views(fitted):
    labels = np.asarray(fitted[1].labels)
    classes = np.array([np.bincount(LABELS[labels == c]).argmax() for c in range(C)])
    assert np.mean(classes[label_of(fitted, NEW_VIEWS)] == NEW_LABELS) > 0.95
    for v in range(3):
        only = np.zeros((NEW, 3), bool)
        only[:, v] = True
        assert np.mean(classes[label_of(fitted, NEW_VIEWS, only)] == NEW_LABELS) > 0.9


def test_a_label_does_not_depend_on_the_other_new_samples(fitted):
    together = label_of(fitted, NEW_VIEWS)
    for i in range(10):
        others = [np.where((np.arange(NEW) == i)[:, None], x, x[(i + 1) % NEW]) for x in NEW_VIEWS]
        assert label_of(fitted, others)[i] == together[i]


def test_what_stands_in_hidden_rows_does_not_matter(fitted):
    mask = np.ones((NEW, 3), bool)
    mask[::2, 0] = False
    dirty = [x.copy() for x in NEW_VIEWS]
    dirty[0][::2] = np.nan
    np.testing.assert_array_equal(label_of(fitted, NEW_VIEWS, mask), label_of(fitted, dirty))


def test_the_estimator_predicts_so(fitted):
    problem, _ = fitted
    n_anchors = None if problem.anchors is None else N_ANCHORS
    options = {"config": ORDER_FREE, "n_anchors": n_anchors, "preparation": "unit", "random_state": 0}
    model = jj.JPLTD(C, **options).fit(VIEWS, mask=MASK)
    key = jax.random.key(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    same = (problem, jj.cluster(key, problem, jj.Hyper(), C, ORDER_FREE))
    assert adjusted_rand_score(model.labels_, same[1].labels) == 1
    assert adjusted_rand_score(model.predict(NEW_VIEWS), label_of(same, NEW_VIEWS)) == 1
    missing = [np.full_like(x, np.nan) for x in NEW_VIEWS]
    narrow = [NEW_VIEWS[0], NEW_VIEWS[1][:, :5], NEW_VIEWS[2]]
    for bad, message in [
        (NEW_VIEWS[:2], "expected 3 views, got 2"),
        (narrow, "view 1 has 5 features, but the model was made from 40"),
        (missing, "sample 0 is missing in all views"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.predict(bad)
    with pytest.raises(NotFittedError):
        jj.JPLTD(C).predict(NEW_VIEWS)


def test_new_affinity_is_the_ridge_representation():
    """argmin_g ||W x - D g||^2 + ||g||^2 by NumPy's least squares on the stacked system."""
    problem = jj.make_problem([x[:20] for x in VIEWS])
    samples = further_samples(problem, [x[:3] for x in NEW_VIEWS])
    W = np.random.default_rng(0).normal(size=(3, 5, problem.data.shape[1]))
    expected = np.zeros((3, 20))
    for v in range(3):
        D = W[v] @ np.asarray(problem.data[v])
        stacked = np.vstack([D, np.eye(20)])
        target = np.vstack([W[v] @ np.asarray(samples.data[v]), np.zeros((20, 3))])
        expected += np.abs(np.linalg.lstsq(stacked, target, rcond=None)[0]).T / 3
    model = Model(problem, jnp.asarray(W), None, None, None, None, None)
    np.testing.assert_allclose(pipeline._new_affinity(model, samples), expected, atol=1e-10)


def test_model_thins_the_affinities_of_new_samples_as_those_of_the_fit(fitted):
    problem, found = fitted
    model = Model.of(problem, ORDER_FREE, found)
    assert (model.n_reach, model.n_kept) == (25, 20)
    assert model.graph == (5, 0.3 / C)
    assert model.dictionary.n_samples == (N if problem.anchors is None else N_ANCHORS)
    plain = Model.of(problem, PUBLISHED, found)
    assert (plain.n_reach, plain.n_kept, plain.graph) == (None, None, None)
