"""Preparation by agreement, against scikit-learn's scalers and lifts that are counted pair by pair."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import StandardScaler, normalize

from jpltd_jax import preparation
from jpltd_jax.preparation import PREPARATIONS, Agreement, agreements, choose, fit_preparation, prepare_views
from jpltd_jax.views import read_views
from tests.strategies import random_incomplete, seeds

N, K = 14, 3
STANDARD = PREPARATIONS.index("standard")
TFIDF = PREPARATIONS.index("tfidf")


def by_scikit_learn(name, x):
    if name == "unit":
        return normalize(x)
    if name == "root":
        return normalize(np.sign(x) * np.sqrt(np.abs(x)))
    if name == "tfidf":
        return TfidfTransformer().fit_transform(x).toarray()
    z = StandardScaler().fit_transform(x)
    return normalize(z) if name == "standard_unit" else z / np.sqrt((z.std(axis=0) > 0).sum())


def counts_of_words(seed, n=N, d=6):
    return np.random.default_rng(seed).poisson(0.4, size=(n, d)).astype(float)


@pytest.mark.parametrize("name", PREPARATIONS)
@given(seed=seeds)
def test_preparations_are_those_of_scikit_learn_on_the_observed_samples(name, seed):
    rng = np.random.default_rng(seed)
    x = counts_of_words(seed) if name == "tfidf" else rng.normal(1, 3, size=(N, 6))
    x[:, 2] = 4.0 if name != "tfidf" else 0.0
    present = rng.random(N) > 0.3
    present[:3] = True
    fitted = fit_preparation(name, jnp.asarray(x), jnp.asarray(present))
    np.testing.assert_allclose(fitted(jnp.asarray(x[present])), by_scikit_learn(name, x[present]), atol=1e-12)
    other = jnp.asarray(np.where(present[:, None], x, 1e30))
    refitted = fit_preparation(name, other, jnp.asarray(present))
    np.testing.assert_array_equal(refitted.shift, fitted.shift)
    np.testing.assert_array_equal(refitted.scale, fitted.scale)


@pytest.mark.parametrize("name", ["unit", "root", "standard", "standard_unit"])
@pytest.mark.parametrize("factor", [1e-200, 1e-26, 1e150])
def test_the_unit_of_measurement_does_not_matter(name, factor):
    x, present = jnp.asarray(np.random.default_rng(0).normal(size=(N, 4))), jnp.ones(N, bool)
    scaled = x * factor
    if name in ("unit", "root"):
        actual = fit_preparation(name, scaled, present)(scaled)
        np.testing.assert_allclose(actual, fit_preparation(name, x, present)(x), atol=1e-12)
    table, other = (agreements([one, x[:, ::-1] ** 3], jnp.ones((N, 2), bool), K) for one in (x, scaled))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), table, other)


def test_a_zero_row_stays_zero():
    x = jnp.asarray([[0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(fit_preparation("unit", x, jnp.ones(2, bool))(x), [[0, 0], [0.6, 0.8]])


def nearest_of(x, k):
    """Indices of the k nearest other samples."""
    distances = ((x[:, None] - x) ** 2).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1)[:, :k]


def neighbour_pairs(x, both):
    """(i, j) for each of the nearest j of i, within ``both``."""
    index = np.flatnonzero(both)
    found = set()
    for i in index:
        others = sorted((np.sum((x[i] - x[j]) ** 2), j) for j in index if j != i)
        found |= {(i, j) for _, j in others[:K]}
    return found


def lift_pair_by_pair(a, b, both):
    """Of two prepared views: log of (shared neighbour pairs / pairs) / (pairs / all pairs), within ``both``."""
    ours, theirs = neighbour_pairs(a, both), neighbour_pairs(b, both)
    chance = len(theirs) / (both.sum() * (both.sum() - 1))
    return np.log(max(len(ours & theirs) / len(ours) / chance, 1e-3))


@given(seed=seeds)
def test_agreements_equal_lifts_counted_pair_by_pair(seed):
    views, mask = random_incomplete(N, (4, 5, 3), seed)
    mask[:6] = True
    table = np.asarray(agreements([jnp.asarray(x) for x in views], jnp.asarray(mask), K).lift)
    for v, p, u, q in [(0, 0, 1, 0), (2, 1, 0, 3), (1, 3, 2, 2)]:
        a, b = (
            np.asarray(fit_preparation(PREPARATIONS[name], jnp.asarray(views[w]), jnp.asarray(mask[:, w]))(views[w]))
            for w, name in ((v, p), (u, q))
        )
        np.testing.assert_allclose(table[v, p, u, q], lift_pair_by_pair(a, b, mask[:, v] & mask[:, u]), atol=1e-12)
    for v in range(3):
        assert np.isnan(table[v, :, v]).all()
        assert np.isnan(table[v, TFIDF]).all()
        assert not np.isnan(table[v, STANDARD, (v + 1) % 3, 0])


def test_the_error_is_what_leaving_out_one_sample_after_the_other_gives():
    """The jackknife of the difference of two logs of sums over the samples; both are right up to terms in 1 / n."""
    rng = np.random.default_rng(0)
    n, k = 300, 10
    x = rng.normal(size=(n, 3)) * [1, 5, 1] + 4
    y = x[:, :2] + rng.normal(size=(n, 2))
    table = agreements([jnp.asarray(x), jnp.asarray(y)], jnp.ones((n, 2), bool), k)
    theirs = by_scikit_learn("unit", y)
    for p in (1, STANDARD):
        shared = [
            (nearest_of(by_scikit_learn(name, x), k)[:, :, None] == nearest_of(theirs, k)[:, None]).sum(axis=(1, 2))
            for name in (PREPARATIONS[p], "unit")
        ]
        without = [np.log(np.sum(one) - one) for one in shared]
        differences = without[0] - without[1]
        jackknife = np.sqrt((n - 1) / n * np.sum((differences - differences.mean()) ** 2))
        np.testing.assert_allclose(table.error[0, p, 1, 0], jackknife, rtol=0.01)
    np.testing.assert_array_equal(table.error[0, 0, 1, :TFIDF], 0)


def test_counts_are_offered_word_weights_and_never_rows_of_unequal_length():
    views = [jnp.asarray(counts_of_words(seed, d=8)) for seed in (0, 1)]
    table = agreements(views, jnp.ones((N, 2), bool), K).lift
    assert not np.isnan(table[0, TFIDF, 1, 0])
    assert np.isnan(table[0, STANDARD]).all()


@given(seed=seeds)
def test_samples_may_come_in_any_order_and_hidden_values_do_not_matter(seed):
    views, mask = random_incomplete(N, (4, 5), seed)
    mask[:6] = True
    order = np.random.default_rng(seed).permutation(N)
    table = agreements([jnp.asarray(x) for x in views], jnp.asarray(mask), K)
    shuffled = agreements([jnp.asarray(x[order]) for x in views], jnp.asarray(mask[order]), K)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), table, shuffled)
    hidden = [np.where(mask[:, [v]], x, 1e30) for v, x in enumerate(views)]
    unseen = agreements([jnp.asarray(x) for x in hidden], jnp.asarray(mask), K)
    jax.tree.map(np.testing.assert_array_equal, table, unseen)


def test_batches_of_masks_equal_single_calls():
    views, _ = random_incomplete(N, (4, 5), 0)
    views = [jnp.asarray(x) for x in views]
    masks = np.stack([random_incomplete(N, (4, 5), seed)[1] for seed in range(3)])
    masks[:, :6] = True
    batch = jax.vmap(lambda mask: agreements(views, mask, K))(jnp.asarray(masks))
    for i, mask in enumerate(masks):
        single = agreements(views, jnp.asarray(mask), K)
        jax.tree.map(lambda a, b, i=i: np.testing.assert_allclose(a[i], b, atol=1e-12), batch, single)


def test_without_overlap_or_with_one_view_rows_get_unit_length():
    views, _ = random_incomplete(N, (4, 5), 0)
    views = [jnp.asarray(x) for x in views]
    apart = np.arange(N)[:, None] % 2 == np.arange(2)
    assert choose(agreements(views, jnp.asarray(apart), K)).tolist() == [0, 0]
    assert choose(agreements(views[:1], jnp.ones((N, 1), bool), K)).tolist() == [0]


@given(seed=seeds)
def test_no_view_can_choose_better_alone(seed):
    table = np.random.default_rng(seed).normal(size=(2, len(PREPARATIONS)) * 2)
    table[[0, 1], :, [0, 1]] = np.nan
    table[1, :, 0] = table[0, :, 1].T
    chosen = np.asarray(choose(Agreement(jnp.asarray(table), jnp.zeros(table.shape))))
    for v, u in ((0, 1), (1, 0)):
        assert table[v, chosen[v], u, chosen[u]] == table[v, :, u, chosen[u]].max()
    uncertain = jnp.full(table.shape, 9.0).at[:, 0].set(0)
    assert choose(Agreement(jnp.asarray(table), uncertain)).tolist() == [0, 0]


def test_the_scaling_that_shows_the_groups_is_found():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    noisy = np.concatenate([rng.normal(size=(3, 4))[y] * 3, 500 * rng.normal(size=(60, 1))], axis=1)
    noisy += rng.normal(size=noisy.shape) * 0.3
    clear = rng.normal(size=(3, 5))[y] * 3 + 0.3 * rng.normal(size=(60, 5))
    chosen = choose(agreements([jnp.asarray(noisy), jnp.asarray(clear)], jnp.ones((60, 2), bool)))
    assert PREPARATIONS[int(chosen[0])] in ("standard", "standard_unit")


def test_columns_of_zeros_beyond_the_features_do_not_matter():
    views = [jnp.asarray(counts_of_words(seed, d=8)) for seed in (0, 1)]
    mask = jnp.ones((N, 2), bool)
    padded = [jnp.pad(x, ((0, 0), (0, 5))) for x in views]
    tables = agreements(views, mask, K), agreements(padded, mask, K, widths=[8, 8])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), *tables)


def test_of_many_samples_a_fixed_part_is_compared():
    rng = np.random.default_rng(0)
    clear = rng.normal(size=(3, 5))[np.arange(60) % 3] * 3 + 0.3 * rng.normal(size=(60, 5))
    noisy = np.hstack([clear[:, :4] + 0.1, 500 * rng.normal(size=(60, 1))])
    views = read_views([noisy, clear])
    with mock.patch.object(preparation, "MOST_COMPARED", 30):
        prepared, made = prepare_views(views)
    part = np.sort(np.random.default_rng(0).choice(60, 30, replace=False))
    chosen = choose(agreements([jnp.asarray(x[part]) for x in views.matrices], jnp.ones((30, 2), bool)))
    assert [one.name for one in made] == [PREPARATIONS[int(p)] for p in chosen]
    assert made[0].name != "unit"
    for x, one, ready in zip(views.matrices, made, prepared.matrices, strict=True):
        np.testing.assert_allclose(ready, by_scikit_learn(one.name, x), atol=1e-12)
