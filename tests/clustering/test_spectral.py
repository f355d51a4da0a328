"""Spectral embedding and k-means against SciPy, scikit-learn and plain enumeration.

Few shapes, because every shape is a program to compile.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.metrics import adjusted_rand_score

from jpltd_jax import spectral
from tests.strategies import seeds

KEY = jax.random.key(0)


def blobs(seed, n=30, c=3, d=4, spread=0.2):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % c
    return rng.normal(size=(c, d))[y] + spread * rng.normal(size=(n, d)), y


def rbf(x):
    return np.exp(-((x[:, None] - x[None]) ** 2).sum(-1))


def test_affinity_is_the_mean_of_symmetrised_magnitudes():
    graphs = np.random.default_rng(0).normal(size=(3, 5, 5))
    expected = sum((abs(g) + abs(g).T) / 2 for g in graphs) / 3
    np.testing.assert_allclose(spectral.affinity(jnp.asarray(graphs)), expected, atol=1e-15)


@settings(max_examples=10)
@given(seed=seeds)
def test_embedding_spans_the_smallest_eigenvectors_of_the_laplacian(seed):
    h = rbf(blobs(seed)[0])
    root = 1 / np.sqrt(h.sum(1))
    laplacian = np.eye(30) - root[:, None] * h * root
    _, vectors = scipy.linalg.eigh(laplacian, subset_by_index=[0, 2])
    expected = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    ours = np.asarray(spectral.spectral_embedding(jnp.asarray(h), 3))
    np.testing.assert_allclose(ours @ ours.T, expected @ expected.T, atol=1e-8)


def test_iterative_embedding_spans_the_same_space():
    h = jnp.asarray(rbf(blobs(1, n=120, c=5)[0]))
    dense = spectral.spectral_embedding(h, 5)
    iterative = spectral.spectral_embedding_of_products(KEY, lambda x: h @ x, 120, 5, dtype=h.dtype)
    np.testing.assert_allclose(iterative @ iterative.T, dense @ dense.T, atol=1e-6)
    single = spectral.spectral_embedding_of_products(KEY, lambda x: h.astype(jnp.float32) @ x, 120, 5)
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single @ single.T, dense @ dense.T, atol=5e-3)


def test_isolated_samples_have_a_zero_row_and_share_a_label():
    h = np.kron(np.eye(3), np.ones((10, 10)))
    h[[0, 15]] = 0
    h[:, [0, 15]] = 0
    embedding = np.asarray(spectral.spectral_embedding(jnp.asarray(h), 3))
    np.testing.assert_array_equal((embedding == 0).all(axis=1), np.isin(np.arange(30), [0, 15]))
    labels = spectral.spectral_cluster(KEY, jnp.asarray(h), 3)
    assert labels[0] == labels[15]
    assert np.isfinite(spectral.spectral_embedding(jnp.zeros((30, 30)), 3)).all()


def test_disconnected_graph_gives_its_components():
    rng = np.random.default_rng(2)
    sizes = [11, 10, 9]
    h = scipy.linalg.block_diag(*(rng.random((s, s)) + 0.1 for s in sizes))
    order = rng.permutation(sum(sizes))
    h = ((h + h.T) / 2)[np.ix_(order, order)]
    truth = np.repeat(range(3), sizes)[order]
    labels = spectral.spectral_cluster(KEY, jnp.asarray(h), 3)
    assert adjusted_rand_score(truth, labels) == 1


def test_one_cluster_and_as_many_as_samples():
    h = jnp.asarray(rbf(blobs(3, n=12)[0]))
    assert not np.asarray(spectral.spectral_cluster(KEY, h, 1)).any()
    assert len(set(np.asarray(spectral.spectral_cluster(KEY, h, 12)).tolist())) == 12
    for bad in (0, 13):
        with pytest.raises(ValueError, match=f"n_clusters must be between 1 and 12, got {bad}"):
            spectral.spectral_cluster(KEY, h, bad)


def test_labels_agree_with_scikit_learn_on_separable_data():
    for seed in (4, 5, 6):
        x, y = blobs(seed, spread=0.15)
        h = rbf(x * 2)
        ours = spectral.spectral_cluster(KEY, jnp.asarray(h), 3)
        theirs = SpectralClustering(3, affinity="precomputed", random_state=0).fit_predict(h)
        assert adjusted_rand_score(theirs, ours) == 1
        assert adjusted_rand_score(y, ours) == 1


def hard_data(n, c, d):
    return np.random.default_rng(c).normal(size=(n, d))


HARD = [(150, 4, 3), (200, 12, 5), (90, 20, 2)]


@functools.cache
def scikit_learns_inertia(n, c, d):
    """Mean over seeds of the best of 20 restarts."""
    x = hard_data(n, c, d)
    return np.mean([KMeans(c, n_init=20, random_state=seed).fit(x).inertia_ for seed in range(15)])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n", "c", "d"), HARD)
def test_inertia_is_no_worse_than_scikit_learns_on_hard_data(n, c, d, dtype):
    x = jnp.asarray(hard_data(n, c, d), dtype)
    ours = np.array([spectral.kmeans(jax.random.key(seed), x, c).inertia for seed in range(30)])
    assert np.mean(ours) <= scikit_learns_inertia(n, c, d) * 1.005
    assert ours.dtype == dtype


def test_kmeans_finds_the_global_optimum_of_a_small_problem():
    x = np.random.default_rng(0).normal(size=(8, 2))
    best = np.inf
    for labels in itertools.product(range(3), repeat=8):
        labels = np.array(labels)
        groups = [x[labels == c] for c in range(3) if (labels == c).any()]
        best = min(best, sum(((g - g.mean(0)) ** 2).sum() for g in groups))
    np.testing.assert_allclose(spectral.kmeans(KEY, jnp.asarray(x), 3).inertia, best, rtol=1e-10)


@settings(max_examples=15)
@given(seed=seeds)
def test_kmeans_result_is_consistent(seed):
    x = np.random.default_rng(seed).normal(size=(150, 3))
    result = spectral.kmeans(jax.random.key(seed), jnp.asarray(x), 4)
    distances = ((x[:, None] - np.asarray(result.centers)[None]) ** 2).sum(-1)
    np.testing.assert_array_equal(result.labels, distances.argmin(1))
    np.testing.assert_allclose(result.inertia, distances.min(1).sum(), rtol=1e-10)
    for c in range(4):
        np.testing.assert_allclose(result.centers[c], x[np.asarray(result.labels) == c].mean(0), atol=1e-12)


def test_empty_clusters_restart_at_the_farthest_samples():
    x = jnp.asarray([[0.0], [0.1], [5.0], [9.0]])
    labels, nearest = jnp.asarray([0, 0, 0, 0]), jnp.asarray([0.0, 0.1, 5.0, 9.0])
    centers = spectral._move_centers(x, labels, nearest, 3)
    np.testing.assert_allclose(centers, [[3.525], [9.0], [5.0]])


def test_duplicate_rows():
    x = jnp.asarray(np.repeat(np.eye(3), 4, axis=0))
    result = spectral.kmeans(KEY, x, 5)
    assert result.inertia < 1e-12
    assert len(set(np.asarray(result.labels).tolist())) == 3


def test_far_from_the_origin():
    """Squared distances by expansion would cancel there; the data is centred first."""
    x, y = blobs(5, n=60, c=3, spread=0.1)
    result = spectral.kmeans(KEY, jnp.asarray(x + 1e4, jnp.float32), 3)
    assert adjusted_rand_score(y, result.labels) == 1


def test_deterministic_by_key_and_old_style_keys_work():
    x = jnp.asarray(hard_data(90, 20, 2))
    a, b = (spectral.kmeans(jax.random.key(7), x, 20, n_init=1) for _ in range(2))
    np.testing.assert_array_equal(a.labels, b.labels)
    c = spectral.kmeans(jax.random.PRNGKey(7), x, 20, n_init=1)
    np.testing.assert_array_equal(a.labels, c.labels)
    assert any(spectral.kmeans(jax.random.key(s), x, 20, n_init=1).inertia != a.inertia for s in range(5))


def test_more_restarts_never_hurt():
    x = jnp.asarray(hard_data(90, 20, 2))
    one = [float(spectral.kmeans(jax.random.key(s), x, 20, n_init=1).inertia) for s in range(10)]
    many = float(spectral.kmeans(jax.random.key(0), x, 20).inertia)
    assert many <= np.median(one)


def test_vmap_over_affinities_and_keys_equals_single():
    h = jnp.stack([jnp.asarray(rbf(blobs(s)[0])) for s in range(3)])
    keys = jax.random.split(KEY, 3)
    batch = jax.vmap(lambda key, h: spectral.spectral_cluster(key, h, 3))(keys, h)
    for i in range(3):
        assert adjusted_rand_score(batch[i], spectral.spectral_cluster(keys[i], h[i], 3)) == 1


def test_bad_restarts():
    with pytest.raises(ValueError, match="n_init must be at least 1, got 0"):
        spectral.kmeans(KEY, jnp.ones((4, 1)), 2, n_init=0)
    with pytest.raises(ValueError, match="max_iter must be at least 1, got 0"):
        spectral.kmeans(KEY, jnp.ones((4, 1)), 2, max_iter=0)
    with pytest.raises(ValueError, match="n_clusters must be between 1 and 4, got 5"):
        spectral.kmeans(KEY, jnp.ones((4, 1)), 5)


# Samples and anchors ------------------------------------------------------------------------------------------------


def test_affinity_of_samples_to_anchors_is_the_mean_of_magnitudes():
    graphs = np.random.default_rng(0).normal(size=(3, 5, 2))
    np.testing.assert_allclose(spectral.affinity(jnp.asarray(graphs)), np.abs(graphs).mean(axis=0), atol=1e-15)


def test_bipartite_embedding_is_the_samples_part_of_the_whole_graphs():
    rng = np.random.default_rng(0)
    z = rng.random((24, 6)) ** 4
    whole = np.block([[np.zeros((24, 24)), z], [z.T, np.zeros((6, 6))]])
    expected = np.asarray(spectral.spectral_embedding(jnp.asarray(whole), 3))[:24]
    made = spectral.embed(jnp.asarray(z), 3)
    np.testing.assert_allclose(made.embedding @ made.embedding.T, expected @ expected.T, atol=1e-10)
    np.testing.assert_allclose(made.place(jnp.asarray(3 * z)), made.embedding, atol=1e-12)


def test_bipartite_embedding_of_isolated_samples_and_anchors_is_zero():
    z = jnp.zeros((24, 6)).at[:20, :2].set(1.0)
    x = spectral.embed(z, 3).embedding
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), np.arange(24) < 20, atol=1e-12)
    np.testing.assert_allclose(np.abs(x[:20] @ x[:20].T), 1, atol=1e-6)


def test_samples_are_placed_where_their_own_affinities_put_them():
    h = rbf(blobs(7)[0])
    made = spectral.embed(jnp.asarray(h), 3)
    np.testing.assert_allclose(made.place(jnp.asarray(2 * h)), made.embedding, atol=1e-8)
