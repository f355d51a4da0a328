from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import jpltd_jax as jj
from jpltd_jax.anchors import choose_anchors
from jpltd_jax.graphs import consensus_graph, graph_transform, sparsify
from jpltd_jax.spectral import embed, spectral_embedding
from tests.strategies import random_incomplete, seeds

HYPER = jj.Hyper(lam=0.5, theta=0.05)


@pytest.mark.parametrize(
    ("variant", "order"), [("full", "paper"), ("full", "reference"), ("N", "paper"), ("B", "paper")]
)
def test_all_samples_as_anchors_is_the_exact_method(variant, order):
    problem = jj.make_problem(*random_incomplete(12, (6, 20, 5), 1))
    anchored = replace(problem, anchors=jnp.arange(12))
    a, b = (
        jj.solve(p, HYPER, latent_dim=4, max_iter=40, variant=variant, order=order, w_init="svd")
        for p in (problem, anchored)
    )
    for name in ("W", "G", "E", "B", "P", "J1", "J2"):
        np.testing.assert_allclose(getattr(b.state, name), getattr(a.state, name), atol=1e-10, err_msg=name)
    np.testing.assert_allclose(b.affinity, a.affinity, atol=1e-10)
    assert int(a.n_iter) == int(b.n_iter)


@settings(max_examples=10)
@given(seed=seeds)
def test_order_of_the_anchors_does_not_matter_to_the_graph_transform(seed):
    views, mask = random_incomplete(14, (6, 5), seed % 1000)
    rng = np.random.default_rng(seed)
    anchors = rng.permutation(14)[:7]
    if not mask[anchors].any(axis=0).all():
        return
    shuffle = rng.permutation(7)
    results = []
    for chosen in (anchors, anchors[shuffle]):
        problem = jj.make_problem(views, mask, anchors=chosen)
        transform = graph_transform(consensus_graph(problem.dictionary, 3))
        results.append(jj.solve(problem, HYPER, latent_dim=4, max_iter=25, transform=transform).affinity)
    np.testing.assert_allclose(results[1], results[0][:, shuffle], atol=1e-8)


@settings(max_examples=10)
@given(seed=seeds)
def test_graph_update_over_a_dictionary_is_a_stationary_point(seed):
    rng = np.random.default_rng(seed)
    mask = jnp.asarray(rng.random((2, 9)) < 0.7)
    dictionary = jnp.asarray(rng.normal(size=(2, 3, 4)))
    target = jnp.asarray(rng.normal(size=(2, 3, 9))) * mask[:, None, :]
    split_target = jnp.asarray(rng.normal(size=(2, 9, 4)))

    def objective(graph):
        misfit = (target - jnp.einsum("vkj,vij->vki", dictionary, graph)) * mask[:, None, :]
        return jnp.vdot(misfit, misfit) + jnp.sum((graph - split_target) ** 2)

    graph, represented = jj.blocks.update_graph(dictionary, mask, target, split_target)
    np.testing.assert_allclose(jax.grad(objective)(graph), 0, atol=1e-10)
    np.testing.assert_allclose(represented, jj.blocks.represent(dictionary, mask, graph), atol=1e-11)


@settings(max_examples=10)
@given(seed=seeds)
def test_projection_update_over_a_dictionary_aligns_best(seed):
    """Over all frames <target, W F1> is at most the nuclear norm of target F1^T."""
    rng = np.random.default_rng(seed)
    data, dictionary = rng.normal(size=(2, 6, 9)), rng.normal(size=(2, 6, 4))
    graph, target = rng.normal(size=(2, 9, 4)), rng.normal(size=(2, 3, 9))
    current = jnp.zeros((2, 3, 6))
    W = jj.blocks.update_projection(
        *map(jnp.asarray, (data, graph, target)), current, dictionary=jnp.asarray(dictionary)
    )
    for v in range(2):
        F1 = data[v] - dictionary[v] @ graph[v].T
        best = np.linalg.svd(target[v] @ F1.T, compute_uv=False).sum()
        np.testing.assert_allclose(np.vdot(target[v], W[v] @ F1), best, rtol=1e-10)


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

    def labels(hyper):
        transform = graph_transform(consensus_graph(problem.dictionary, 5))
        result = jj.solve(problem, hyper, latent_dim=4, max_iter=5, transform=transform)
        return jj.spectral_cluster(jax.random.key(0), sparsify(result.affinity, 5), 3, n_init=2)

    sizes = list(all_sizes(jax.make_jaxpr(labels)(HYPER).jaxpr))
    assert len(sizes) > 100
    assert max(sizes) <= 400 * 20 * 2


def test_clusters_of_blobs_by_anchors():
    data = jj.datasets.make_blobs(0, n_samples=300, dims=(20, 15, 10), n_clusters=4)
    mask = jj.missing.paper_protocol(0, 300, 3, 0.5)
    problem = jj.make_problem(data.views, mask, anchors=40)
    transform = graph_transform(consensus_graph(problem.dictionary))
    hyper = jj.Hyper(lam=0.25, theta=0.1)
    result = jj.solve(problem, hyper, latent_dim=10, max_iter=30, transform=transform, w_init="svd")
    assert result.affinity.shape == (300, 40)
    labels = jj.spectral_cluster(jax.random.key(0), sparsify(result.affinity, 10), 4)
    assert jj.metrics.ari(data.labels, labels) > 0.9


# Choice -------------------------------------------------------------------------------------------------------------


def test_choice_prefers_complete_samples_and_is_set_by_the_seed():
    rng = np.random.default_rng(0)
    columns = [rng.normal(size=(5, 40)), rng.normal(size=(3, 40))]
    mask = np.ones((40, 2), bool)
    mask[10:, 1] = False
    assert (choose_anchors(columns, mask, 10) == np.arange(10)).all()
    few = choose_anchors(columns, mask, 4)
    assert few.max() < 10
    assert len(set(few)) == 4
    assert (few == choose_anchors(columns, mask, 4)).all()
    assert any((few != choose_anchors(columns, mask, 4, seed=seed)).any() for seed in range(1, 5))
    assert len(choose_anchors(columns, mask, 15)) == 15


def test_choice_covers_separate_groups():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(8), 25)
    x = 100 * np.eye(8)[group].T + rng.normal(size=(8, 200))
    chosen = choose_anchors([x], np.ones((200, 1), bool), 8)
    assert sorted(group[chosen]) == list(range(8))


def test_identical_samples_are_still_distinct_anchors():
    problem = jj.make_problem([np.ones((10, 3))], anchors=4)
    assert len(np.unique(problem.anchors)) == 4


@pytest.mark.parametrize(
    ("anchors", "message"),
    [
        (0, "between 1 and the number of samples 6, got 0"),
        (7, "between 1 and the number of samples 6, got 7"),
        (2.5, "a number or a vector of sample indices"),
        ([0, 6], "indices of samples, 0 to 5"),
        ([-1, 2], "indices of samples, 0 to 5"),
        ([], "a number or a vector"),
        ([1, 1], "holds a sample twice"),
        ([0, 1], "no anchor is observed in view 1"),
    ],
)
def test_bad_anchors_are_named(anchors, message):
    mask = np.ones((6, 2), bool)
    mask[:2, 1] = False
    with pytest.raises(ValueError, match=message):
        jj.make_problem([np.eye(6), np.ones((6, 2))], mask, anchors=anchors)


def test_all_samples_chosen_is_no_choice():
    assert jj.make_problem([np.eye(6)], anchors=6).anchors is None
    assert jj.make_problem([np.eye(6)], anchors=range(6)).anchors is None


# Spectral step ------------------------------------------------------------------------------------------------------


def test_bipartite_embedding_is_the_samples_part_of_the_whole_graphs():
    rng = np.random.default_rng(0)
    z = rng.random((30, 6)) ** 4
    whole = np.block([[np.zeros((30, 30)), z], [z.T, np.zeros((6, 6))]])
    expected = np.asarray(spectral_embedding(jnp.asarray(whole), 3))[:30]
    made = embed(jnp.asarray(z), 3)
    np.testing.assert_allclose(made.embedding @ made.embedding.T, expected @ expected.T, atol=1e-10)
    np.testing.assert_allclose(made.place(jnp.asarray(3 * z[4:7])), made.embedding[4:7], atol=1e-12)


def test_bipartite_embedding_of_isolated_samples_and_anchors_is_zero():
    z = jnp.zeros((5, 3)).at[:4, :2].set(1.0)
    x = embed(z, 1).embedding
    np.testing.assert_allclose(np.abs(x[:, 0]), [1, 1, 1, 1, 0], atol=1e-12)
