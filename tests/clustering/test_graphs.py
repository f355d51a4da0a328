"""Neighbour graphs against their definitions; the transform's groups; what moves with the samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings

import jpltd_jax as jj
from jpltd_jax import graphs
from jpltd_jax.loop import as_dtype
from jpltd_jax.methods import jpltd
from tests.strategies import random_incomplete, seeds

knn_graph = jax.jit(graphs.knn_graph, static_argnums=2)


def numpy_consensus(views, mask, k):
    """The locally scaled graph by its definition, sample by sample."""
    n, m = mask.shape
    total = np.zeros((n, n))
    for v in range(m):
        x = views[v] / np.linalg.norm(views[v], axis=1, keepdims=True)
        seen = np.flatnonzero(mask[:, v])
        d = np.linalg.norm(x[:, None] - x[None], axis=2)
        nearest = {i: sorted((j for j in seen if j != i), key=lambda j, i=i: d[i, j])[:k] for i in seen}
        reach = {i: np.mean([d[i, j] for j in nearest[i]]) for i in seen}
        for i in seen:
            w = {j: np.exp(-(d[i, j] ** 2) / (2 * ((reach[i] + reach[j] + d[i, j]) / 6) ** 2)) for j in nearest[i]}
            for j in w:
                share = w[j] / sum(w.values()) / 2
                total[i, j] += share
                total[j, i] += share
    together = mask.astype(int) @ mask.T.astype(int)
    return total / np.maximum(together, 1)


@settings(max_examples=8)
@given(seed=seeds)
def test_consensus_graph_equals_its_definition(seed):
    views, mask = random_incomplete(14, (5, 4), seed)
    assume(mask.sum(axis=0).min() >= 5)
    actual = graphs.consensus_graph(jj.make_problem(views, mask), 3)
    np.testing.assert_allclose(actual, numpy_consensus(views, mask, 3), atol=1e-9)


def learned_affinity(problem, config):
    """After 30 iterations, each of one compiled step."""
    data = jpltd.prepare(problem, 1, config)
    hyper = as_dtype(jj.Hyper(lam=0.5, theta=0.05), jnp.float64)
    state = jpltd.init(jax.random.key(0), data, hyper)
    for _ in range(30):
        state, _ = jpltd.step(data, hyper, state)
    return np.asarray(jpltd.readout(data, state).affinity)


@settings(max_examples=8)
@given(seed=seeds)
def test_few_vectors_are_permutation_equivariant(seed):
    """Graph, transform and solver together: permuting the samples permutes the affinity. All vectors: see pipeline."""
    views, mask = random_incomplete(14, (5, 20, 4), seed)
    mask[:, 1] = True
    order = np.random.default_rng(seed).permutation(14)
    config = jj.Config(latent_dim=3, n_neighbors=4, n_vectors=5)
    problem, shuffled = jj.make_problem(views, mask), jj.make_problem([x[order] for x in views], mask[order])
    a, b = learned_affinity(problem, config), learned_affinity(shuffled, config)
    assert a.max() > 1e-3
    np.testing.assert_allclose(b, a[np.ix_(order, order)], atol=1e-8)
    a, b = (graphs.within_reach(jnp.asarray(h), p, 4) for h, p in ((a, problem), (b, shuffled)))
    a, b = (np.asarray(graphs.sparsify(h, 3)) for h in (a, b))
    assert a.max() > 1e-3
    np.testing.assert_allclose(b, a[np.ix_(order, order)], atol=1e-8)


@pytest.mark.parametrize("n_vectors", [None, 2, 5, 6])
def test_duplicate_samples_and_disconnected_graphs_stay_equivariant(n_vectors):
    """Components and duplicates repeat eigenvalues; the basis of an eigenspace is arbitrary, its slice is not."""
    clusters = np.kron(np.eye(3), np.ones((4, 1)))
    order = np.random.default_rng(0).permutation(12)
    config = jj.Config(variant="N", n_neighbors=3, n_vectors=n_vectors)
    a, b = (learned_affinity(jj.make_problem([x, x]), config) for x in (clusters, clusters[order]))
    assert a.max() > 1e-3
    np.testing.assert_allclose(b, a[np.ix_(order, order)], atol=1e-8)


def test_groups_are_whole_eigenspaces():
    h = jnp.kron(jnp.eye(3), jnp.ones((2, 2)))
    full = graphs.graph_transform(h)
    np.testing.assert_array_equal(full.group, [0, 0, 0, 3, 3, 3])
    np.testing.assert_allclose(full.basis.T @ full.basis, np.eye(6), atol=1e-12)
    cut = graphs.graph_transform(h, 4)
    np.testing.assert_allclose(jnp.linalg.norm(cut.basis, axis=0), [1, 1, 1, 0], atol=1e-12)
    np.testing.assert_allclose(cut.basis[:, :3] @ cut.basis[:, :3].T, np.asarray(h) / 2, atol=1e-12)


def test_all_vectors_and_singletons_equal_the_plain_basis():
    rng = np.random.default_rng(1)
    h = rng.random((7, 7))
    transform = graphs.graph_transform(jnp.asarray(h + h.T))
    v = jnp.asarray(rng.normal(size=(2, 3, 7)))
    plain = jj.transforms.Orthonormal(transform.basis)
    np.testing.assert_allclose(jj.prox.tubal_shrink(v, 0.5, transform), jj.prox.tubal_shrink(v, 0.5, plain), atol=1e-10)
    np.testing.assert_allclose(
        jj.tensor.tensor_nuclear_norm(v, transform=transform), jj.tensor.tensor_nuclear_norm(v, transform=plain)
    )


def test_sparsify_by_hand_and_ties():
    h = jnp.asarray([[9.0, 3.0, 1.0, 0.0], [3.0, 9.0, 0.0, 0.0], [1.0, 0.0, 9.0, 0.0], [0.0, 0.0, 0.0, 9.0]])
    out = graphs.sparsify(h, 1)
    np.testing.assert_allclose(out, [[0, 1, 0.5, 0], [1, 0, 0, 0], [0.5, 0, 0, 0], [0, 0, 0, 0]])
    ties = graphs.sparsify(jnp.ones((4, 4)), 2)
    np.testing.assert_allclose(ties, (1 - np.eye(4)) / 3)


def test_graph_with_more_neighbours_than_samples_and_views_seen_once():
    views, _ = random_incomplete(6, (3, 3), 2)
    mask = np.ones((6, 2), bool)
    mask[1:, 1] = False
    graph = graphs.consensus_graph(jj.make_problem(views, mask), 50)
    assert np.isfinite(graph).all()
    np.testing.assert_allclose(graph, graph.T)
    assert not np.diagonal(graph).any()


def test_jit_vmap_over_masks():
    views, _ = random_incomplete(9, (4, 3), 3)
    masks = jnp.asarray(np.stack([random_incomplete(9, (4, 3), s)[1] for s in range(3)]))
    complete = jj.make_problem(views)
    batch = jax.vmap(lambda mask: graphs.consensus_graph(complete.restrict(mask), 3))(masks)
    for i, mask in enumerate(masks):
        single = graphs.consensus_graph(jj.make_problem(views, np.asarray(mask)), 3)
        np.testing.assert_allclose(batch[i], single, atol=1e-12)


@settings(max_examples=8)
@given(seed=seeds)
def test_within_reach_drops_exactly_the_pairs_that_were_compared_and_found_far(seed):
    views, mask = random_incomplete(14, (5, 4), seed)
    assume(mask.sum(axis=0).min() >= 5)
    h = np.random.default_rng(seed).random((14, 14)) + 0.1
    out = np.asarray(graphs.within_reach(jnp.asarray(h), jj.make_problem(views, mask), 3))
    near = numpy_consensus(views, mask, 3) > 0
    for i in range(14):
        for j in range(14):
            stays = i == j or near[i, j] or not (mask[i] & mask[j]).any()
            assert out[i, j] == (h[i, j] if stays else 0)


def test_everything_is_within_reach_of_all_neighbours():
    views, mask = random_incomplete(9, (4, 3), 1)
    h = np.random.default_rng(1).random((9, 9))
    np.testing.assert_array_equal(graphs.within_reach(jnp.asarray(h), jj.make_problem(views, mask), 8), h)


def test_large_graphs_keep_500_vectors_unless_told():
    h = jax.ShapeDtypeStruct((3001, 3001), jnp.float64)
    assert jax.eval_shape(graphs.graph_transform, h).basis.shape == (3001, 500)
    assert jax.eval_shape(lambda h: graphs.graph_transform(h, 3001), h).complete
    smaller = jax.ShapeDtypeStruct((3000, 3000), jnp.float64)
    assert jax.eval_shape(graphs.graph_transform, smaller).complete


@settings(max_examples=8)
@given(seed=seeds)
def test_knn_graph_joins_observed_samples_to_their_nearest(seed):
    rng = np.random.default_rng(seed)
    x, present = rng.normal(size=(3, 12)), rng.random(12) < 0.6
    distance = np.linalg.norm(x[:, :, None] - x[:, None], axis=0)
    expected = np.zeros((12, 12))
    for i in np.flatnonzero(present):
        others = sorted((j for j in np.flatnonzero(present) if j != i), key=lambda j, i=i: distance[i, j])
        expected[i, others[:3]] = 1
    ours = knn_graph(jnp.asarray(x), jnp.asarray(present), 3)
    np.testing.assert_array_equal(ours, np.maximum(expected, expected.T))


# Neighbours in proportion, completed views --------------------------------------------------------------------------


def test_neighbours_in_proportion_are_those_of_that_number():
    """Each view has its own number of neighbours: of the larger one its graph, of the smaller one its own."""
    views, mask = random_incomplete(20, (5, 4), 3)
    mask[:, 0], mask[:10, 1], mask[10:, 1] = True, True, False
    problem = jj.make_problem(views, mask)
    both = np.asarray(graphs.view_graphs(problem, 3, 0.25))
    np.testing.assert_allclose(both[0], graphs.view_graphs(problem, 5)[0], atol=1e-12)
    np.testing.assert_allclose(both[1], graphs.view_graphs(problem, 3)[1], atol=1e-12)


@settings(max_examples=8)
@given(seed=seeds)
def test_missing_rows_are_weighted_means_of_neighbours(seed):
    views, mask = random_incomplete(14, (5, 4), seed)
    mask[:6] = True
    mask[-1] = [True, False]
    rng = np.random.default_rng(seed)
    graph = rng.random((14, 14)) * (rng.random((14, 14)) > 0.5)
    graph[-1] = 0
    filled = []
    for v, x in enumerate(views):
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        there = mask[:, v]
        mean = x[there].mean(axis=0)
        for i in np.flatnonzero(~there):
            weights = graph[i, there]
            x[i] = weights @ x[there] / weights.sum() if weights.sum() > 0 else mean
        x = x - mean
        filled.append(x / np.sqrt(np.mean(np.sum(x**2, axis=1))))
    side_by_side = np.hstack(filled)
    actual = np.asarray(graphs.completed(jj.make_problem(views, mask), jnp.asarray(graph)))
    np.testing.assert_allclose(actual @ actual.T, side_by_side @ side_by_side.T, atol=1e-9)


@settings(max_examples=8)
@given(seed=seeds)
def test_completed_graph_is_the_graph_of_the_completed_views_and_moves_with_the_samples(seed):
    views, mask = random_incomplete(14, (5, 20), seed)
    mask[:6] = True
    order = np.random.default_rng(seed).permutation(14)
    problem, shuffled = jj.make_problem(views, mask), jj.make_problem([x[order] for x in views], mask[order])
    made, permuted = (graphs.completed_graph(p, graphs.consensus_graph(p, 3), 3) for p in (problem, shuffled))
    np.testing.assert_allclose(np.asarray(made)[np.ix_(order, order)], permuted, atol=1e-9)
    whole = np.asarray(graphs.completed(problem, graphs.consensus_graph(problem, 3)))
    one_view = graphs.consensus_graph(jj.make_problem([whole], normalize=False), 3)
    np.testing.assert_allclose(made, one_view, atol=1e-9)


# Anchors ------------------------------------------------------------------------------------------------------------

ANCHORS = [3, 0, 7, 9, 12]


@settings(max_examples=8)
@given(seed=seeds)
def test_anchor_graphs_join_samples_to_their_nearest_anchors(seed):
    views, mask = random_incomplete(14, (5, 4), seed)
    mask[[3, 0, 7]] = True
    made = np.asarray(graphs.anchor_graphs(jj.make_problem(views, mask, anchors=ANCHORS), 2))
    for v, x in enumerate(views):
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        for i in range(14):
            expected = np.zeros(len(ANCHORS))
            others = [(np.linalg.norm(x[i] - x[a]), j) for j, a in enumerate(ANCHORS) if a != i and mask[a, v]]
            if mask[i, v]:
                nearest = sorted(others)[:2]
                reach = np.mean([d for d, _ in nearest])
                for d, j in nearest:
                    expected[j] = np.exp(-((d / ((2 * reach + d) / 6)) ** 2) / 2)
                expected /= expected.sum()
            np.testing.assert_allclose(made[v, i], expected, atol=1e-9)


@settings(max_examples=8)
@given(seed=seeds)
def test_missing_rows_are_filled_from_anchors_as_from_samples(seed):
    """A graph whose columns beyond the anchors are zero says the same without these columns."""
    views, mask = random_incomplete(14, (5, 4), seed)
    mask[[3, 0, 7]] = True
    rows = np.random.default_rng(seed).random((14, len(ANCHORS)))
    whole = np.zeros((14, 14))
    whole[:, ANCHORS] = rows
    problem, anchored = jj.make_problem(views, mask), jj.make_problem(views, mask, anchors=ANCHORS)
    features = graphs.completed(problem, jnp.asarray(whole))
    np.testing.assert_allclose(graphs.completed(anchored, jnp.asarray(rows)), features, atol=1e-12)
    one_view = jj.make_problem([np.asarray(features)], normalize=False, anchors=ANCHORS)
    made = graphs.completed_graph(anchored, jnp.asarray(rows), 2)
    np.testing.assert_allclose(made, graphs.anchor_graphs(one_view, 2)[0], atol=1e-9)
