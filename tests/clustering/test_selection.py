"""The choice of lam without labels."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jpltd_jax as jj
from jpltd_jax import selection
from jpltd_jax.loop import Status
from jpltd_jax.methods.jpltd import Data, neighbours_kept
from jpltd_jax.selection import LAMS, choose_lam, clarity, compare_numbers_of_clusters
from jpltd_jax.transforms import Fourier

KEY = jax.random.key(0)


def test_clarity_is_the_eigengap_of_the_normalised_affinity():
    rng = np.random.default_rng(0)
    h = rng.random((6, 6))
    h = h + h.T
    root = 1 / np.sqrt(h.sum(1))
    values = np.linalg.eigvalsh(root[:, None] * h * root)[::-1]
    for c in range(1, 6):
        np.testing.assert_allclose(clarity(jnp.asarray(h), c), values[c - 1] - values[c], atol=1e-12)
    np.testing.assert_allclose(clarity(jnp.asarray(h), 6), values[5], atol=1e-12)


def test_clarity_through_anchors_is_the_gap_of_singular_values():
    z = np.random.default_rng(0).random((9, 5))
    scaled = z / np.sqrt(np.outer(z.sum(1), z.sum(0)))
    values = np.linalg.svd(scaled, compute_uv=False)
    for c in range(1, 5):
        np.testing.assert_allclose(clarity(jnp.asarray(z), c), values[c - 1] - values[c], atol=1e-9)


@pytest.fixture
def fake(monkeypatch):
    """Put outcomes, a status and the strength of two blocks for each lam, in the place of the pipeline's."""

    def put(outcomes, otherwise):
        def cluster(key, problem, hyper, n_clusters, config, *, loop):
            status, strength = outcomes.get(hyper.lam, otherwise)
            blocks = jnp.kron(jnp.eye(2), jnp.ones((3, 3))) + (1 - strength)
            return SimpleNamespace(affinity=blocks, solution=SimpleNamespace(status=status), lam=hyper.lam)

        monkeypatch.setattr(selection, "cluster", cluster)

    return put


def test_the_clearest_usable_result_wins(fake):
    outcomes = {
        LAMS[0]: (Status.EMPTY, 1.0),
        LAMS[1]: (Status.NONFINITE, 1.0),
        LAMS[2]: (Status.MAX_ITER, 0.5),
        LAMS[3]: (Status.CONVERGED, 0.4),
    }
    fake(outcomes, (Status.MAX_ITER, 0.1))
    hyper, found = choose_lam(KEY, None, jj.Hyper(theta=0.3), 2)
    assert hyper == jj.Hyper(lam=LAMS[2], theta=0.3)
    assert found.lam == LAMS[2]
    assert found.solution.status is Status.MAX_ITER


def test_with_nothing_usable_the_first_is_returned(fake):
    fake({}, (Status.EMPTY, 1.0))
    hyper, found = choose_lam(KEY, None, jj.Hyper(), 2)
    assert hyper.lam == found.lam == LAMS[0]


def test_an_interrupted_run_is_returned_as_it_is(fake):
    fake({LAMS[1]: (Status.RUNNING, 0.0)}, (Status.MAX_ITER, 0.9))
    hyper, found = choose_lam(KEY, None, jj.Hyper(), 2)
    assert hyper.lam == found.lam == LAMS[1]


def test_no_more_neighbours_than_a_cluster_has_members():
    problem = jj.make_problem([np.eye(60)])

    def kept(n_clusters, **options):
        return neighbours_kept(Data(problem, Fourier(), config=jj.Config(**options), n_clusters=n_clusters))

    assert [kept(c, n_kept=20, share=0) for c in (1, 3, 4, 59, 60)] == [20, 20, 15, 1, 1]
    assert [kept(c, n_kept=4, share=0.5) for c in (1, 3, 60)] == [30, 10, 1]
    assert kept(4, n_kept=None) is None


# Numbers of clusters --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared():
    data = jj.datasets.make_blobs(0, n_samples=60, dims=(10, 8), n_clusters=4)
    with jax.enable_x64(True):
        problem = jj.make_problem(data.views, jj.missing.paper_protocol(0, 60, 2, 0.5))
        return problem, compare_numbers_of_clusters(problem, jj.Hyper(), range(2, 8))


def test_the_number_of_planted_clusters_is_suggested(compared):
    _, found = compared
    assert found.counts.tolist() == [2, 3, 4, 5, 6, 7]
    assert found.suggested == 4
    assert found.counts[np.argmax(found.eigengap)] == 4


def test_what_is_found_for_the_middle_number_is_what_a_run_with_it_finds(compared):
    """With 4 clusters, the geometric mean of 2 and 7; the labels are found by other restarts of k-means."""
    problem, found = compared
    run = jj.cluster(KEY, problem, jj.Hyper(), 4, jj.methods.jpltd.FAST)
    np.testing.assert_allclose(found.score[2], run.candidates.quality.score[0], rtol=1e-10)
    np.testing.assert_allclose(found.modularity[2], run.candidates.quality.modularity[0], rtol=1e-10)
    np.testing.assert_allclose(found.eigengap[2], clarity(run.affinity, 4), rtol=1e-8)


def test_also_for_the_published_method(compared):
    problem, _ = compared
    assert compare_numbers_of_clusters(problem, jj.methods.jpltd.PUBLISHED_HYPER, [2, 4], jj.PUBLISHED).suggested == 4


def test_numbers_that_cannot_be_are_named(compared):
    problem, _ = compared
    with pytest.raises(ValueError, match="smallest number of clusters must be between 2 and 60, got 1"):
        compare_numbers_of_clusters(problem, jj.Hyper(), [1, 3])
    with pytest.raises(ValueError, match="largest number of clusters must be between 1 and 60, got 61"):
        compare_numbers_of_clusters(problem, jj.Hyper(), [2, 61])
