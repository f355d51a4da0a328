"""Label-free quality against networkx-style sums written out, and leave-one-out means computed one by one."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given

import jpltd_jax as jj
from jpltd_jax.quality import explained_variance, modularity, quality, unconnected
from tests.strategies import random_incomplete, seeds

N, C = 12, 3


def partition(seed):
    return np.random.default_rng(seed).integers(0, C, N)


@given(seed=seeds)
def test_modularity_is_newmans_sum_over_pairs(seed):
    rng = np.random.default_rng(seed)
    graph = rng.random((N, N)) * (rng.random((N, N)) > 0.5)
    graph = graph + graph.T
    labels = partition(seed)
    degree, total = graph.sum(axis=1), graph.sum()
    same = labels[:, None] == labels
    expected = ((graph - np.outer(degree, degree) / total) * same).sum() / total
    support = modularity(jnp.asarray(graph[None]), jax.nn.one_hot(jnp.asarray(labels), C, dtype=float))
    np.testing.assert_allclose(support.sum(), expected, atol=1e-12)
    assert support.shape == (1, C)


@given(seed=seeds)
def test_modularity_with_anchors_is_the_sum_over_pairs_of_a_sample_and_an_anchor(seed):
    rng = np.random.default_rng(seed)
    anchors = rng.permutation(N)[:5]
    graph = rng.random((N, 5)) * (rng.random((N, 5)) > 0.3)
    labels = partition(seed)
    total, expected = graph.sum(), np.zeros(C)
    for i in range(N):
        for j, anchor in enumerate(anchors):
            if labels[i] == labels[anchor]:
                expected[labels[i]] += graph[i, j] / total - graph[i].sum() * graph[:, j].sum() / total**2
    members = jax.nn.one_hot(jnp.asarray(labels), C, dtype=float)
    support = modularity(jnp.asarray(graph[None]), members, jnp.asarray(anchors))
    np.testing.assert_allclose(support[0], expected, atol=1e-12)


@given(seed=seeds)
def test_modularity_with_all_samples_as_anchors_is_newmans(seed):
    graph = np.random.default_rng(seed).random((1, N, N))
    graph = jnp.asarray(graph + graph.swapaxes(1, 2))
    members = jax.nn.one_hot(jnp.asarray(partition(seed)), C, dtype=float)
    np.testing.assert_allclose(modularity(graph, members, jnp.arange(N)), modularity(graph, members), atol=1e-12)


def test_a_view_without_edges_supports_nothing():
    support = modularity(jnp.zeros((1, N, N)), jax.nn.one_hot(jnp.arange(N) % C, C, dtype=float))
    np.testing.assert_array_equal(support, 0)


@given(seed=seeds)
def test_explained_variance_leaves_every_sample_out_in_turn(seed):
    views, mask = random_incomplete(N, (4, 3), seed)
    mask[:5] = True
    labels = partition(seed)
    labels[0] = C - 1
    labels[1:] = labels[1:] % (C - 1) if seed % 2 else labels[1:]
    problem = jj.make_problem(views, mask, normalize=False)
    actual = explained_variance(problem, jax.nn.one_hot(jnp.asarray(labels), C, dtype=float))
    for v, x in enumerate(views):
        index = np.flatnonzero(mask[:, v])
        rest = total = 0.0
        for i in index:
            others = index[index != i]
            mates = others[labels[others] == labels[i]]
            from_all = np.sum((x[i] - x[others].mean(axis=0)) ** 2)
            total += from_all
            rest += np.sum((x[i] - x[mates].mean(axis=0)) ** 2) if len(mates) else from_all
        np.testing.assert_allclose(actual[v], 1 - rest / total, atol=1e-10)


def test_a_view_that_never_varies_explains_nothing():
    problem = jj.make_problem([np.ones((N, 2))], normalize=False)
    np.testing.assert_array_equal(explained_variance(problem, jax.nn.one_hot(jnp.arange(N) % C, C, dtype=float)), 0)


@given(seed=seeds)
def test_quality_needs_no_order_no_names_of_clusters_and_no_hidden_values(seed):
    views, mask = random_incomplete(N, (4, 3), seed)
    mask[:5] = True
    labels = partition(seed)

    def judge(views, mask, labels):
        problem = jj.make_problem(views, mask)
        return quality(problem, jj.graphs.view_graphs(problem, 3), jnp.asarray(labels), C)

    order = np.random.default_rng(seed).permutation(N)
    plain = judge(views, mask, labels)
    shuffled = judge([x[order] for x in views], mask[order], labels[order])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9), plain, shuffled)
    renamed = judge([np.where(mask[:, [v]], x, 1e30) for v, x in enumerate(views)], mask, (labels + 1) % C)
    np.testing.assert_allclose(renamed.score, plain.score, atol=1e-9)
    np.testing.assert_allclose(renamed.support, np.roll(plain.support, 1, axis=1), atol=1e-9)


def test_score_is_modularity_over_what_stays_unexplained():
    found = jj.quality.Quality(jnp.array([[0.2, 0.3], [0.1, 0.2]]), jnp.array([0.5, 0.3]))
    np.testing.assert_allclose(found.score, 0.4 / 0.6)


def test_batches_equal_single_calls():
    views, mask = random_incomplete(N, (4, 3), 0)
    problem = jj.make_problem(views, mask)
    graphs = jj.graphs.view_graphs(problem, 3)
    labels = jnp.asarray([partition(seed) for seed in range(3)])
    batch = jax.vmap(lambda one: quality(problem, graphs, one, C))(labels)
    for i in range(3):
        np.testing.assert_allclose(batch.score[i], quality(problem, graphs, labels[i], C).score, atol=1e-12)


@given(seed=seeds)
def test_unconnected_samples_are_those_that_no_walk_reaches(seed):
    rng = np.random.default_rng(seed)
    mask = rng.random((N, 5)) < 0.15
    mask[np.arange(N), rng.integers(0, 5, N)] = True
    together = (mask @ mask.T).astype(int)
    reached = np.linalg.matrix_power(together, N) > 0
    sizes = reached.sum(axis=1)
    found = unconnected(mask)
    assert (~found).sum() == sizes.max()
    assert np.array_equal(~found, reached[np.flatnonzero(~found)[0]])


def test_with_one_view_for_all_everything_is_connected():
    mask = np.eye(4, dtype=bool) | np.array([True, False, False, False])
    assert not unconnected(mask).any()
