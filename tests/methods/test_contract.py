"""What every method must do alike. Each is run at one small shape, and the checks share its compiled programs."""

import inspect
import re
from collections.abc import Hashable
from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import jpltd_jax as jj
from jpltd_jax import loop as loops
from jpltd_jax.loop import Loop, Method, Status, check_hyper, prepare, run
from jpltd_jax.methods import METHODS, averaged_graph
from jpltd_jax.pipeline import Clustering

N = 30
BLOBS = jj.datasets.make_blobs(6, n_samples=N, dims=(10, 12, 9))
MASK = jj.missing.paper_protocol(1, N, 3, 0.3)
SEED = 0
KEY_OF_SEED = np.random.RandomState(SEED).randint(np.iinfo(np.int32).max)

CONFIG = {
    "jpltd": {"latent_dim": 5},
    "ueaf": {"n_neighbors": 4},
    "climc_sc": {"n_neighbors": 5},
    "imvc_cbg": {"n_anchors": 6},
    "imvtsc_mvi": {"n_neighbors": 5},
    "tmbsd": {"n_neighbors": 9},
    "tc_imvc": {"n_neighbors": 6},
    "vcl_imvc": {"n_neighbors": 6},
    "hcp_imsc": {"n_neighbors": 6},
    "averaged_graph": {"n_neighbors": 5},
}
"""One option each that is not its default."""

HYPER = {"imvtsc_mvi": {"lam2": 0.1}}
"""Its default is the one recommended for benchmark data; on blobs it leaves an almost uniform graph."""

DEAR = ("ueaf", "imvtsc_mvi", "tmbsd", "hcp_imsc")
"""Long to compile. One program, a sweep in float32, stands for a sweep and for a run in float32."""

ELSEWHERE = {"vmap": ("jpltd", "tc_imvc", "vcl_imvc"), "float32": ("jpltd",), "sweep": ("jpltd",)}
"""What tests of their own show: those of the method, and those of sweeps."""


MANY_STARTS = ("tc_imvc",)
"""Start from vectors of a repeated eigenvalue, of which two programs may take different ones."""


@dataclass
class Case:
    """A method with its settings, data prepared for it, and the run that others are compared with."""

    method: Method
    hyper: Any
    config: Any
    problem: jj.Problem
    data: Any
    key: jax.Array
    found: Clustering

    @property
    def straight(self):
        return self.found.solution

    def run(self, hyper=None, start=None, **loop):
        """Iterate, by default from the start that the pipeline takes."""
        start = jax.random.split(self.key)[0] if start is None else start
        return run(self.method, self.data, self.hyper if hyper is None else hyper, start, Loop(**loop))

    def others(self):
        """Two settings: its own, and one in which a number, if there is any, is larger."""
        name = self.hyper._fields[:1]
        return [self.hyper._replace(**{one: share * getattr(self.hyper, one) for one in name}) for share in (1.0, 1.2)]

    def cluster(self, problem=None, hyper=None, key=None):
        key, problem = self.key if key is None else key, self.problem if problem is None else problem
        hyper = self.hyper if hyper is None else hyper
        return jj.cluster(key, problem, hyper, 3, self.config, method=self.method)


@pytest.fixture(scope="module", params=METHODS)
def case(request):
    method = METHODS[request.param]
    hyper, config = method.Hyper(**HYPER.get(method.name, {})), method.Config(**CONFIG[method.name])
    with jax.enable_x64(True):
        problem, key = jj.make_problem(BLOBS.views, MASK), jax.random.key(KEY_OF_SEED)
        data = prepare(method, problem, 3, config)
        found = jj.cluster(key, problem, hyper, 3, config, method=method)
        return Case(method, hyper, config, problem, data, key, found)


every_method = pytest.mark.parametrize("name", METHODS)


def assert_same(a, b):
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y, err_msg=jax.tree_util.keystr(path), strict=True)


def finds_the_clusters(labels):
    return adjusted_rand_score(BLOBS.labels, labels) > 0.9


# Shape --------------------------------------------------------------------------------------------------------------


PARTS = ("Hyper", "Config", "State", "Data", "prepare", "init", "step", "settled", "readout")


@every_method
def test_module_has_the_shape_of_the_template(name):
    method, module = METHODS[name], inspect.getmodule(METHODS[name].step)
    assert module.__name__ == f"jpltd_jax.methods.{name}"
    assert getattr(module, name.upper()) is method
    assert {*PARTS, name.upper()} <= set(module.__all__)
    assert all(part in vars(module) for part in module.__all__)
    assert module.__doc__.splitlines()[0].startswith((method.title, method.title.capitalize()))
    assert ("reconstruction" in module.__doc__.lower()) == method.reconstruction
    for part in ("Hyper", "Config", "prepare", "init", "step", "settled", "readout"):
        assert getattr(method, part) is getattr(module, part), part
    for part in ("prepare", "init", "step", "settled", "readout"):
        wanted = list(inspect.signature(getattr(averaged_graph, part)).parameters)
        assert list(inspect.signature(getattr(module, part)).parameters) == wanted, part
    if "check" in vars(module):
        assert method.check is module.check
        assert list(inspect.signature(module.check).parameters) == ["problem", "n_clusters", "config"]


@every_method
def test_settings_have_defaults_and_descriptions(name):
    method = METHODS[name]
    assert all(isinstance(value, float) for value in method.Hyper())
    assert isinstance(method.Config(), Hashable)
    assert method.Config() == method.Config()
    assert not jax.tree.leaves(method.Config()), "options are static"
    assert method.max_iter >= 1
    assert set(method.bounds) <= set(method.Hyper._fields)
    assert set(method.resize) <= {option.name for option in fields(method.Config)}
    for settings in (method.Hyper, method.Config):
        names = settings._fields if settings is method.Hyper else [option.name for option in fields(settings)]
        described = inspect.getdoc(settings).replace(",", " ").split()
        assert all(one in described for one in names), settings


@every_method
def test_bounds_are_enforced_and_named(name):
    method = METHODS[name]
    for field, interval in method.bounds.items():
        outside = [value for value in (-1.0, 0.0, 1.0, 2.0, 1e9) if not interval.is_satisfied_by(value)]
        assert outside, field
        for value in outside:
            with pytest.raises(
                ValueError, match=f"^{method.title}: {field} must be .* got {re.escape(format(value, 'g'))}$"
            ):
                check_hyper(method, method.Hyper(**{field: value}))
    check_hyper(method, method.Hyper())
    other = METHODS["jpltd" if name != "jpltd" else "ueaf"]
    with pytest.raises(TypeError, match=f"{method.title} takes jpltd_jax.methods.{name}.Hyper"):
        check_hyper(method, other.Hyper())
    with pytest.raises(TypeError, match=f"{method.title} takes jpltd_jax.methods.{name}.Config"):
        prepare(method, jj.make_problem(BLOBS.views), 3, other.Config())


# Clusters -----------------------------------------------------------------------------------------------------------


def test_fit_finds_planted_clusters_and_the_estimator_equals_it(case):
    found = jj.fit(case.method.name, BLOBS.views, MASK, 3, key=case.key, hyper=case.hyper, config=case.config)
    assert_same(found, case.found)
    assert finds_the_clusters(found.labels)
    assert found.solution.status in (Status.CONVERGED, Status.MAX_ITER)
    model = jj.Clusterer(case.method, 3, hyper=case.hyper, config=case.config, random_state=SEED)
    model.fit(BLOBS.views, mask=MASK)
    np.testing.assert_array_equal(model.labels_, found.labels)
    np.testing.assert_array_equal(model.embedding_, found.embedding)
    assert (model.affinity_ is None) == (found.affinity is None)
    assert model.n_iter_ == int(found.solution.n_iter)
    assert_same(model.history_, found.solution.history)


def test_result_has_one_readout_and_its_history_is_finite_where_iterations_were_made(case):
    solution, done = case.straight, int(case.straight.n_iter)
    assert (solution.affinity is None) != (solution.embedding is None)
    if solution.affinity is None:
        assert solution.embedding.shape[0] == N
    else:
        np.testing.assert_allclose(solution.affinity, solution.affinity.T, atol=1e-12)
        assert float(solution.affinity.min()) >= 0
    assert isinstance(solution.state, inspect.getmodule(case.method.step).State)
    assert 1 <= done <= case.method.max_iter
    for record in jax.tree.leaves(solution.history):
        assert record.shape[0] == case.method.max_iter
        assert np.isfinite(record[:done]).all()
        assert np.isnan(record[done:]).all()


def test_a_start_is_random_only_where_the_record_says_so(case):
    length, hyper = loops.history_length(case.method.max_iter), loops.as_dtype(case.hyper, jnp.float64)
    starts = [loops.begin(case.method, case.data, hyper, jax.random.key(seed), length).state for seed in (0, 1)]
    differ = any((x != y).any() for x, y in zip(*map(jax.tree.leaves, starts), strict=True))
    assert differ <= case.method.random_start


@pytest.mark.parametrize("garbage", [np.nan, 1e30])
def test_what_stands_in_hidden_rows_never_matters(case, garbage):
    dirty = [np.where(MASK[:, [v]], x, garbage) for v, x in enumerate(BLOBS.views)]
    assert_same(case.cluster(jj.make_problem(dirty, MASK)), case.found)


def test_a_mask_of_all_true_is_no_mask(case):
    problem = jj.make_problem(BLOBS.views)
    found = case.cluster(problem)
    assert finds_the_clusters(found.labels)
    assert_same(case.cluster(jj.make_problem(BLOBS.views, np.ones((N, 3), bool))), found)


def test_float32_finds_the_clusters(case):
    if case.method.name in (*DEAR, *ELSEWHERE["float32"]):
        pytest.skip("shown by the sweep, or elsewhere")
    found = case.cluster(jj.make_problem(BLOBS.views, MASK, dtype=np.float32))
    assert finds_the_clusters(found.labels)
    assert found.solution.status in (Status.CONVERGED, Status.MAX_ITER)
    dtype = np.float64 if case.method.needs_x64 else np.float32
    assert loops.floating_dtype((found.solution.affinity, found.solution.embedding)) == dtype


def test_with_the_flag_off_a_method_computes_as_its_record_says(case):
    if not case.method.needs_x64:
        pytest.skip("computes in the dtype of the data")
    with jax.enable_x64(False):
        key = jax.random.key(KEY_OF_SEED)
        found = jj.fit(case.method, BLOBS.views, MASK, 3, key=key, hyper=case.hyper, config=case.config)
        assert found.embedding.dtype == jnp.float32
        assert jnp.ones(1).dtype == jnp.float32
    assert loops.floating_dtype(found.solution.state) == jnp.float64
    assert_same(found.solution, case.straight)
    assert finds_the_clusters(found.labels)


@every_method
def test_anchors_are_refused_unless_the_record_says_otherwise(name):
    method, problem = METHODS[name], jj.make_problem(BLOBS.views, anchors=9)
    if method.anchors:
        prepare(method, problem, 3)
    else:
        with pytest.raises(ValueError, match=f"{method.title} does not use anchors: make the problem without"):
            prepare(method, problem, 3)


# The loop -----------------------------------------------------------------------------------------------------------


def test_going_on_from_a_solution_equals_one_run_bit_for_bit(case):
    part = case.run(every=1, callback=lambda *_: True)
    assert int(part.n_iter) == 1
    assert part.status is Status.RUNNING or int(case.straight.n_iter) == 1
    assert_same(case.run(start=part), case.straight)


def test_chunks_with_a_checkpoint_equal_one_run_bit_for_bit(case, tmp_path):
    file = tmp_path / "run.npz"
    every = max(1, int(case.straight.n_iter) // 3)
    part = case.run(every=every, checkpoint=file, callback=lambda *_: True)
    assert int(part.n_iter) == every
    calls = []
    whole = case.run(every=every, checkpoint=file, callback=lambda done, watched: calls.append((done, watched)))
    assert_same(whole, case.straight)
    assert calls[0][0] == min(2 * every, int(whole.n_iter))
    done, watched = calls[-1]
    assert_same(watched, jax.tree.map(lambda record: np.asarray(record[done - 1]), case.straight.history))


def test_one_program_serves_all_values(case):
    case.run()
    programs = (loops.begin, loops._advance_in_place, loops._read_out)
    before = [program._cache_size() for program in programs]
    other = case.method.Hyper(*(1.01 * value for value in case.hyper))
    case.run(other)
    case.run(case.method.Hyper(*map(jnp.asarray, other)), max_iter=max(1, case.method.max_iter - 1))
    assert [program._cache_size() for program in programs] == before


def test_nan_in_a_hyper_parameter_never_converges(case):
    for field in case.hyper._fields:
        found = case.run(case.hyper._replace(**{field: np.nan}))
        assert found.status in (Status.NONFINITE, Status.MAX_ITER), field
        assert (found.status is Status.MAX_ITER) <= (field == "tol"), field


def test_nan_in_the_data_never_converges(case):
    place = (0, *np.flatnonzero(MASK[:, 0])[:2])

    def broken(x):
        usable = jnp.issubdtype(x.dtype, jnp.floating) and x.ndim > 1
        return x.at[place[3 - x.ndim :]].set(jnp.nan) if usable else x

    found = run(case.method, jax.tree.map(broken, case.data), case.hyper, case.key)
    assert found.status is Status.NONFINITE


# Batches ------------------------------------------------------------------------------------------------------------


def test_vmap_over_two_settings_equals_single_runs(case):
    if case.method.name in ELSEWHERE["vmap"]:
        pytest.skip("shown elsewhere")
    method, data, stop = case.method, case.data, jnp.asarray(case.method.max_iter, jnp.int32)
    hypers = [loops.as_dtype(hyper, jnp.float64) for hyper in case.others()]
    length, start = loops.history_length(method.max_iter), jax.random.split(case.key)[0]
    both = [(hyper, loops.begin(method, data, hyper, start, length)) for hyper in hypers]
    ends = jax.jit(jax.vmap(lambda hyper, carry: loops.advance(method, data, hyper, carry, stop)))(
        *jax.tree.map(lambda *x: jnp.stack(x), *both)
    )
    for i, hyper in enumerate(hypers):
        batched, single = loops.finish(method, data, jax.tree.map(lambda x, i=i: x[i], ends), stop), case.run(hyper)
        assert batched.status is single.status
        assert int(batched.n_iter) == int(single.n_iter)
        for many, one in zip(jax.tree.leaves(batched[:2]), jax.tree.leaves(single[:2]), strict=True):
            np.testing.assert_allclose(many, one, atol=1e-6 * np.abs(one).max())


def numbers(solution):
    """What the stopping rule watched last, by name."""
    watched = jax.tree.map(lambda record: float(record[int(solution.n_iter) - 1]), solution.history)
    return watched._asdict() if hasattr(watched, "_asdict") else {"watched": watched}


def test_sweep_gives_the_labels_of_single_calls(case):
    """Over its own numbers, or seeds where it has none, and an option that is not the default.

    What is watched is compared where rounding does not grow: after convergence, or else after five iterations.
    """
    if case.method.name in ELSEWHERE["sweep"]:
        pytest.skip("shown elsewhere")
    first, second = case.others()
    axes = {name: [x, y] if x != y else [x] for name, x, y in zip(first._fields, first, second, strict=True)}
    axes = axes or {"seed": [0, 1]}
    grid = jj.grid(axes | {name: [value] for name, value in CONFIG[case.method.name].items()}, method=case.method.name)
    dtype = np.float32 if case.method.name in DEAR else np.float64
    problem = jj.make_problem(BLOBS.views, MASK, dtype=dtype)
    one_device = jj.Run(devices=jax.devices()[:1])
    result = jj.sweep(problem, grid, n_clusters=3, key=case.key, run=one_device)
    assert len(result.rows) == result.total == 2
    assert all(one.config == case.config for one in grid.configurations)
    for one, row in zip(grid.configurations, result.rows, strict=True):
        single = case.cluster(hyper=one.hyper, key=jax.random.fold_in(case.key, one.seed))
        assert finds_the_clusters(row["labels"])
        assert adjusted_rand_score(single.labels, row["labels"]) == 1
        assert (row["method"], row["dtype"]) == (case.method.name, str(problem.data.dtype))
        assert row["status"] in (Status.CONVERGED.name, Status.MAX_ITER.name)
        assert ("objective" in row) == (case.method.objective is not None)
        done, named = int(single.solution.n_iter), numbers(single.solution)
        assert set(named) <= set(row)
        if dtype == np.float64:
            assert (row["status"], row["n_iter"]) == (single.solution.status.name, done)
        if dtype == np.float64 and case.method.name not in MANY_STARTS:
            if single.solution.status is Status.MAX_ITER:
                few = jj.sweep(problem, grid._replace(max_iter=5), n_clusters=3, key=case.key, run=one_device)
                row = few.rows[result.rows.index(row)]
                start = jax.random.split(jax.random.fold_in(case.key, one.seed))[0]
                named = numbers(case.run(one.hyper, start, max_iter=5))
            for name, expected in named.items():
                np.testing.assert_allclose(row[name], expected, rtol=1e-6, atol=1e-10, err_msg=name)
