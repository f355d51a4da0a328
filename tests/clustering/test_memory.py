"""What a fit needs and what fits, by arithmetic; and what is done about it."""

import warnings
from unittest import mock

import jax
import numpy as np
import pytest

import jpltd_jax as jj
from jpltd_jax import estimator, memory
from jpltd_jax.memory import plan_fit, predicted_memory

DIMS = (10, 8)
DATA = jj.datasets.make_blobs(0, n_samples=30, dims=DIMS)
GIB = 2**30


def test_exact_memory_grows_with_the_square_and_anchored_memory_with_n():
    exact, anchored = ([predicted_memory(n, DIMS, a) for n in (20_000, 40_000)] for a in (None, 500))
    assert 3.7 < exact[1] / exact[0] < 4.1
    assert 1.8 < anchored[1] / anchored[0] < 2.1
    assert predicted_memory(30, DIMS) == predicted_memory(30, DIMS, 30)


def test_numbers_of_double_length_take_more():
    with jax.enable_x64(False):
        single = predicted_memory(5000, DIMS)
    assert 1.8 < predicted_memory(5000, DIMS) / single <= 2


def test_the_prediction_is_above_what_the_compiled_iteration_says_it_needs():
    """XLA's own account of one solve: its arguments, results and temporary arrays."""
    from jpltd_jax.loop import prepare, run
    from jpltd_jax.methods import JPLTD

    n, config = 300, jj.Config(latent_dim=8, n_vectors=50)
    problem = jj.make_problem(jj.datasets.make_blobs(0, n_samples=n, dims=DIMS).views)
    data = prepare(JPLTD, problem, 3, config)
    solve = jax.jit(lambda data, key: run(JPLTD, data, jj.Hyper(), key))
    account = solve.lower(data, jax.random.key(0)).compile().memory_analysis()
    used = account.argument_size_in_bytes + account.output_size_in_bytes + account.temp_size_in_bytes
    ours = predicted_memory(n, DIMS, None, config) - memory.PROGRAMS
    assert 0.6 * used < ours < 2.5 * used


@pytest.mark.parametrize(
    ("n", "free", "expected"),
    [(30, GIB, (30, None)), (3000, 8 * GIB, (3000, None)), (3001, 8 * GIB, (3001, 500)), (3000, GIB, (3000, 500))],
)
def test_what_fits(n, free, expected):
    assert plan_fit(n, DIMS, free=free) == expected


def test_as_many_samples_as_fit_and_no_more():
    fitted, anchors = plan_fit(10**6, DIMS, free=GIB)
    assert anchors == 500
    assert predicted_memory(fitted, DIMS, 500) <= GIB // 2 < predicted_memory(fitted + 1, DIMS, 500)


def test_what_cannot_fit_is_said_in_bytes():
    for n in (100, 10**6):
        with pytest.raises(MemoryError, match=r"needs \d+ bytes.*is 500000 bytes: use fewer features"):
            plan_fit(n, (10**6,), free=10**6)


def test_too_much_that_was_asked_for_is_refused_before_the_work():
    with mock.patch.object(estimator, "free_memory", return_value=1000):
        with pytest.raises(MemoryError, match=r"needs \d+ bytes of memory and 1000 are free.*n_anchors=9"):
            jj.JPLTD(3, n_anchors=9).fit(DATA.views)
        with pytest.raises(MemoryError, match="set n_anchors"):
            jj.JPLTD(3, n_anchors=None, config=jj.Config(latent_dim=8)).fit(DATA.views)


def test_auto_is_exact_for_few_samples():
    model = jj.JPLTD(3, random_state=0).fit(DATA.views)
    assert model.n_anchors_ is None
    assert model.fitted_samples_ is None
    exact = jj.JPLTD(3, n_anchors=None, random_state=0).fit(DATA.views)
    np.testing.assert_array_equal(model.labels_, exact.labels_)
    published = jj.JPLTD(3, config=jj.PUBLISHED, random_state=0)
    with mock.patch.object(memory, "EXACT", 10):
        assert published.fit(DATA.views).n_anchors_ is None


def test_a_fit_on_a_part_labels_all():
    views = [x.copy() for x in DATA.views]
    views[1][1:] = np.nan
    with mock.patch.object(estimator, "plan_fit", return_value=memory.Plan(20, 12)):
        model = jj.JPLTD(3, random_state=0)
        with pytest.warns(UserWarning, match="fitted on 20 of 30 samples"):
            model.fit(DATA.views)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rare = jj.JPLTD(3, random_state=0).fit(views)
    fitted = model.fitted_samples_
    assert len(set(fitted)) == 20
    assert 0 in rare.fitted_samples_
    assert model.labels_.shape == model.margin_.shape == model.sample_ids_.shape == (30,)
    assert model.affinity_.shape == (20, 12)
    assert model.n_anchors_ == 12
    assert float(jj.metrics.accuracy(DATA.labels, model.labels_)) == 1.0
    rest = np.setdiff1d(np.arange(30), fitted)
    np.testing.assert_array_equal(model.predict([x[rest] for x in DATA.views]), model.labels_[rest])


def test_blocks_of_new_samples_get_the_labels_of_one_block():
    model = jj.JPLTD(3, random_state=0).fit(DATA.views)
    new = jj.datasets.make_blobs(1, n_samples=50, dims=DIMS).views
    whole = model.predict(new)
    with mock.patch.object(estimator, "PAIRS", 30 * 14):
        np.testing.assert_array_equal(model.predict(new), whole)
