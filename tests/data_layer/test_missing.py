"""Counts of the mechanisms are exact where they are promised and follow their distribution where they are random."""

import itertools

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given

from jpltd_jax import missing
from tests.strategies import seeds

MECHANISMS = [missing.paper_protocol, missing.entrywise, missing.blocks]
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)
SMALLEST_P = 1e-3
"""The seeds are fixed, so a correct mechanism passes forever or fails at once."""


def pattern_counts(mask):
    """How many samples observe exactly the views of each of the 2**m patterns."""
    return {
        pattern: int((mask == pattern).all(axis=1).sum())
        for pattern in itertools.product([False, True], repeat=mask.shape[1])
    }


def assert_follows(counts, probabilities):
    counts, probabilities = np.array(counts), np.array(probabilities)
    assert counts.sum() > 0
    assert scipy.stats.chisquare(counts, counts.sum() * probabilities / probabilities.sum()).pvalue > SMALLEST_P


@every_mechanism
@given(seed=seeds, n=st.integers(5, 40), m=st.integers(2, 6), rate=st.floats(0, 1))
def test_every_sample_keeps_a_view(mechanism, seed, n, m, rate):
    mask = mechanism(seed, n, m, rate)
    assert mask.shape == (n, m)
    assert mask.dtype == np.bool_
    assert mask.any(axis=1).all()


@every_mechanism
@given(seed=seeds)
def test_rate_zero_hides_nothing(mechanism, seed):
    assert mechanism(seed, 7, 3, 0.0).all()
    assert mechanism(seed, 7, 1, 0.0).all()


@every_mechanism
@given(seed=seeds)
def test_reproducible_and_different_between_seeds(mechanism, seed):
    masks = [mechanism(s, 60, 4, 0.5).tobytes() for s in (seed, seed, seed + 1, seed + 2)]
    assert masks[0] == masks[1]
    assert len(set(masks)) == 3


@every_mechanism
def test_typed_and_raw_keys_of_which_every_word_counts(mechanism):
    raw = [jnp.array(words, jnp.uint32) for words in ([0, 0], [0, 1], [1, 0])]
    masks = [mechanism(key, 60, 4, 0.5) for key in raw]
    assert len({mask.tobytes() for mask in masks}) == 3
    for key, mask in zip(raw, masks, strict=True):
        np.testing.assert_array_equal(mechanism(jax.random.wrap_key_data(key), 60, 4, 0.5), mask)


@every_mechanism
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0, 2, 0.5), "at least one sample and one view, got n = 0 and m = 2"),
        ((0, 9, 0, 0.5), "at least one sample and one view, got n = 9 and m = 0"),
        ((0, 9, 2, -0.1), r"rate must lie in \[0, 1\], got -0.1"),
        ((0, 9, 2, 1.1), r"rate must lie in \[0, 1\], got 1.1"),
        ((0, 9, 2, float("nan")), r"rate must lie in \[0, 1\], got nan"),
        ((0, 9, 1, 0.5), "nothing can be missing, since every sample keeps a view: m = 1, rate = 0.5"),
        ((-1, 9, 2, 0.5), "expected non-negative integer"),
    ],
)
def test_errors(mechanism, arguments, message):
    with pytest.raises(ValueError, match=message):
        mechanism(*arguments)


@every_mechanism
def test_one_key_at_a_time(mechanism):
    with pytest.raises(ValueError, match=r"expected one key, got an array of keys of shape \(3,\)"):
        mechanism(jax.random.split(jax.random.key(0), 3), 9, 2, 0.5)


@given(seed=seeds, n=st.integers(1, 40), m=st.integers(2, 6), rate=st.floats(0, 1))
def test_paper_protocol_number_of_incomplete_samples(seed, n, m, rate):
    mask = missing.paper_protocol(seed, n, m, rate)
    assert (~mask.all(axis=1)).sum() == round(rate * n)


@pytest.mark.parametrize(("n", "incomplete"), [(1, 0), (3, 2), (5, 2), (7, 4)])
def test_paper_protocol_rounds_halves_to_even(n, incomplete):
    assert (~missing.paper_protocol(0, n, 3, 0.5).all(axis=1)).sum() == incomplete


@pytest.mark.parametrize(("m", "rate"), [(3, 0.5), (4, 0.25), (5, 1.0)])
def test_paper_protocol_number_of_kept_views_is_uniform(m, rate):
    kept = missing.paper_protocol(1, 12_000, m, rate).sum(axis=1)
    counts = np.bincount(kept, minlength=m + 1)
    assert counts[0] == 0
    assert counts[m] == 12_000 * (1 - rate)
    assert_follows(counts[1:m], np.ones(m - 1))


@pytest.mark.parametrize("m", [2, 3, 4])
def test_paper_protocol_subsets_of_one_size_are_equally_likely(m):
    counts = pattern_counts(missing.paper_protocol(2, 12_000, m, 1.0))
    for k in range(1, m):
        same_size = [count for pattern, count in counts.items() if sum(pattern) == k]
        assert_follows(same_size, np.ones(len(same_size)))


def test_paper_protocol_incomplete_samples_are_any():
    chosen = [tuple(np.flatnonzero(~missing.paper_protocol(s, 5, 2, 0.4).all(axis=1))) for s in range(3000)]
    assert_follows([chosen.count(pair) for pair in itertools.combinations(range(5), 2)], np.ones(10))


def test_paper_protocol_may_leave_a_view_empty():
    """With n = 1 and m = 2 one of the views has to be."""
    assert missing.paper_protocol(0, 1, 2, 1.0).sum() == 1


def per_sample_blocks(seed, n, m, rate):
    return missing.blocks(seed, n, m, rate, n_sources=n)


@pytest.mark.parametrize("mechanism", [missing.entrywise, per_sample_blocks])
@pytest.mark.parametrize(("m", "rate"), [(2, 0.3), (3, 0.5), (4, 0.8), (3, 1.0)])
def test_patterns_of_independent_entries(mechanism, m, rate):
    """Entries are independent, and the samples without any view are shared out among those with one."""
    counts = pattern_counts(mechanism(3, 12_000, m, rate))
    assert counts.pop((False,) * m) == 0
    kept = np.array([sum(pattern) for pattern in counts])
    probabilities = rate ** (m - kept) * (1 - rate) ** kept + (kept == 1) * rate**m / m
    possible = probabilities > 0
    observed = np.array([*counts.values()])
    assert not observed[~possible].any()
    assert_follows(observed[possible], probabilities[possible])


@pytest.mark.parametrize(("m", "rate"), [(2, 0.5), (3, 0.9)])
def test_entrywise_realised_rate(m, rate):
    n = 200_000
    realised = 1 - missing.entrywise(4, n, m, rate).mean()
    assert abs(realised - (rate - rate**m / m)) < 4 * 0.5 / np.sqrt(n)


@pytest.mark.parametrize("mechanism", [missing.entrywise, missing.blocks])
@given(seed=seeds, n=st.integers(5, 8), m=st.integers(2, 12), rate=st.sampled_from([0.5, 0.9, 1.0]))
def test_no_view_is_empty(mechanism, seed, n, m, rate):
    assert mechanism(seed, n, m, rate).any(axis=0).all()


@given(seed=seeds, n_sources=st.integers(2, 9), n=st.integers(9, 50), m=st.integers(2, 5))
def test_blocks_has_at_most_one_pattern_per_source(seed, n_sources, n, m):
    mask = missing.blocks(seed, n, m, 0.5, n_sources=n_sources)
    assert len(np.unique(mask, axis=0)) <= n_sources


@pytest.mark.parametrize(("n", "sizes"), [(100, [25, 25, 25, 25]), (103, [25, 26, 26, 26]), (4, [1, 1, 1, 1])])
def test_blocks_sources_are_balanced(n, sizes):
    """Of 20 views the four sources lack different ones."""
    mask = missing.blocks(0, n, 20, 0.5, n_sources=4)
    assert sorted(np.unique(mask, axis=0, return_counts=True)[1]) == sizes


def test_blocks_sources_of_samples_are_any():
    """Two sources of two samples each: the partner of sample 0 is any of the others."""
    partners = []
    for seed in range(3000):
        mask = missing.blocks(seed, 4, 20, 0.5, n_sources=2)
        partners.append(1 + np.flatnonzero((mask[1:] == mask[0]).all(axis=1)).item())
    assert_follows([partners.count(i) for i in (1, 2, 3)], np.ones(3))


@pytest.mark.parametrize("n_sources", [1, 10])
def test_blocks_number_of_sources(n_sources):
    with pytest.raises(ValueError, match=f"n_sources must lie in 2..n with n = 9 samples, got {n_sources}"):
        missing.blocks(0, 9, 2, 0.5, n_sources=n_sources)
