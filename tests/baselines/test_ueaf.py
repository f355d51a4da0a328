"""UEAF: parity with the authors' run, descent of the blocks, planted clusters, masks, statuses, compilation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.metrics import adjusted_rand_score

from jpltd_jax import Status
from jpltd_jax.baselines import ueaf
from jpltd_jax.baselines.base import observed_columns
from jpltd_jax.missing import paper_protocol
from tests.conftest import DATA
from tests.strategies import seeds

HYPER = ueaf.Hyper(lam1=0.1, lam2=0.1, lam3=0.01)


def blobs(seed=0, rate=0.3, n=90, dims=(10, 12, 15)):
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.arange(n) % 3)
    views = [4 * rng.normal(size=(3, d))[classes] + rng.normal(size=(n, d)) for d in dims]
    return views, paper_protocol(seed, n, len(dims), rate), classes


def small_problem(dtype=np.float64):
    views, mask, _ = blobs(n=24, dims=(9, 8), rate=0.5)
    columns, present = observed_columns(views, mask, dtype=dtype)
    return columns, present, [ueaf.feature_laplacian(x, 3) for x in columns]


def draws(seed, columns, n_clusters=3):
    """First guess of the missing samples, bases and graph."""
    rng = np.random.default_rng(seed)
    dtype = columns[0].dtype
    inferred = [jnp.asarray(rng.random(x.shape), dtype) for x in columns]
    bases = [jnp.asarray(np.linalg.qr(rng.random((x.shape[0], n_clusters)))[0], dtype) for x in columns]
    return inferred, bases, jnp.asarray(rng.random((columns[0].shape[1],) * 2), dtype)


def solve_small(columns, mask, laplacians, hyper=HYPER, seed=0, max_iter=50, fixed=False):
    start = ueaf.start_from(columns, mask, *draws(seed, columns))
    return ueaf.solve(columns, mask, laplacians, start, hyper, max_iter=max_iter, fixed=fixed)


def fit(*arguments, **options):
    return ueaf.fit(*arguments, key=jax.random.key(0), **options)


# Parity with the authors' run ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded():
    with np.load(DATA / "ueaf.npz") as archive:
        return {name: archive[name] for name in archive.files}


def recorded_problem(recorded):
    columns, mask = observed_columns([recorded[f"X_{v}"].T for v in range(3)], recorded["mask"])
    inferred = []
    for v, x in enumerate(columns):
        guess = np.zeros(x.shape)
        guess[:, ~recorded["mask"][:, v]] = recorded[f"E0_{v}"]
        inferred.append(jnp.asarray(guess))
    bases = [jnp.asarray(recorded[f"U0_{v}"]) for v in range(3)]
    return columns, mask, ueaf.start_from(columns, mask, inferred, bases, jnp.asarray(recorded["S0"]))


def recorded_hyper(recorded):
    return ueaf.Hyper(*(recorded[key] for key in ("lambda1", "lambda2", "lambda3", "r", "tol")))


def test_parity_with_the_iterates_of_the_authors(recorded):
    columns, mask, state = recorded_problem(recorded)
    laplacians = [jnp.asarray(recorded[f"L_{v}"]) for v in range(3)]
    for iteration in range(1, 11):
        solution = ueaf.solve(columns, mask, laplacians, state, recorded_hyper(recorded), max_iter=1)
        state = solution.state
        np.testing.assert_allclose(solution.history[0], recorded["objective"][iteration - 1], atol=1e-14)
        if iteration in (1, 2, 3, 5, 10):
            np.testing.assert_allclose(state.embedding, recorded[f"P_iter{iteration}"], atol=1e-12)


def test_parity_with_the_whole_run_of_the_authors(recorded):
    columns, mask, start = recorded_problem(recorded)
    laplacians = [ueaf.feature_laplacian(x, int(recorded["n_neighbors"])) for x in columns]
    solution = ueaf.solve(columns, mask, laplacians, start, recorded_hyper(recorded))
    done = len(recorded["objective"])
    assert int(solution.n_iter) == done
    assert int(solution.status) == Status.CONVERGED
    np.testing.assert_allclose(solution.state.embedding, recorded["P_final"], atol=1e-12)
    np.testing.assert_allclose(solution.history[:done], recorded["objective"], atol=1e-14)
    assert np.isnan(solution.history[done:]).all()


def test_laplacians_of_the_features_are_the_authors(recorded):
    columns, _, _ = recorded_problem(recorded)
    for v, x in enumerate(columns):
        np.testing.assert_array_equal(ueaf.feature_laplacian(x, 7), recorded[f"L_{v}"])


# Optimality of the blocks -------------------------------------------------------------------------------------------


def literal_objective(columns, mask, laplacians, state, hyper=HYPER):
    """The intended objective with inferred samples cut out and every term written out; not normalised."""
    distances = jnp.sum((state.embedding[:, :, None] - state.embedding[:, None, :]) ** 2, axis=0)
    value = 0.0
    for v, y in enumerate(state.completed):
        inferred = jnp.where(mask[:, v], 0, y)
        loss = jnp.sum((y - state.bases[v] @ state.embedding) ** 2)
        loss += hyper.lam1 * jnp.trace(inferred.T @ laplacians[v] @ inferred)
        loss += hyper.lam2 / 2 * jnp.sum(distances * state.graph**2)
        value += state.weights[v] ** hyper.r * loss
    spectral = ueaf.laplacian((state.graph + state.graph.T) / 2)
    return value + hyper.lam3 * jnp.trace(state.spectrum.T @ spectral @ state.spectrum)


compiled_objective = jax.jit(literal_objective)
compiled_gradient = jax.jit(jax.grad(literal_objective, argnums=3))


@settings(max_examples=6)
@given(seed=seeds)
def test_embedding_is_stationary_and_the_other_exact_blocks_descend(seed):
    problem = small_problem()
    before = solve_small(*problem, seed=seed, max_iter=1, fixed=True).state
    after = ueaf.solve(*problem, before, HYPER, max_iter=1, fixed=True).state
    gradient = compiled_gradient(*problem, before._replace(embedding=after.embedding))
    np.testing.assert_allclose(gradient.embedding, 0, atol=1e-10)
    stage = before._replace(embedding=after.embedding, graph=after.graph)
    values = [compiled_objective(*problem, stage)]
    for block in ("spectrum", "bases", "completed", "weights"):
        stage = stage._replace(**{block: getattr(after, block)})
        values.append(compiled_objective(*problem, stage))
    assert (np.diff(values) <= 1e-10).all()
    gradient = compiled_gradient(*problem, stage)
    mask = problem[1]
    for v in range(2):
        np.testing.assert_allclose(np.asarray(gradient.completed[v])[:, ~mask[:, v]], 0, atol=1e-10)


def test_history_is_the_normalised_objective():
    problem = small_problem()
    solution = solve_small(*problem, fixed=True)
    energy = sum(np.sum(np.square(x)) for x in problem[0])
    last = solution.history[int(solution.n_iter) - 1]
    np.testing.assert_allclose(last, compiled_objective(*problem, solution.state) / energy, rtol=1e-10)


def test_the_authors_slip_changes_the_weights():
    problem = small_problem()
    hyper = HYPER._replace(lam1=1.0, lam2=1.0)
    slip, fixed = (solve_small(*problem, hyper, fixed=fixed).state.weights for fixed in (False, True))
    assert np.abs(slip - fixed).max() > 1e-3


def test_constraints_hold():
    columns, mask, laplacians = small_problem()
    state = solve_small(columns, mask, laplacians).state
    for v, (x, y, u) in enumerate(zip(columns, state.completed, state.bases, strict=True)):
        np.testing.assert_allclose(u.T @ u, np.eye(3), atol=1e-12)
        np.testing.assert_array_equal(np.asarray(y)[:, mask[:, v]], np.asarray(x)[:, mask[:, v]])
    np.testing.assert_allclose(state.graph.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_array_equal(np.diagonal(state.graph), 0)
    assert (state.graph >= 0).all()
    np.testing.assert_allclose(state.weights.sum(), 1, atol=1e-12)


# Clusters -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.3, 0.0])
def test_planted_clusters_are_found(rate):
    for seed in range(3):
        views, mask, classes = blobs(seed, rate)
        result = fit(views, mask, 3)
        assert int(result.status) == Status.CONVERGED
        assert adjusted_rand_score(classes, result.labels) > 0.9
        np.testing.assert_allclose(np.linalg.norm(result.embedding, axis=1), 1, atol=1e-12)


def test_float32_finds_the_clusters_and_stays_near_float64():
    views, mask, classes = blobs()
    result = fit([x.astype(np.float32) for x in views], mask, 3)
    assert result.embedding.dtype == np.float32
    assert adjusted_rand_score(classes, result.labels) > 0.9
    exact, rounded = (
        solve_small(*small_problem(dtype), HYPER._replace(tol=0.0)).state.embedding
        for dtype in (np.float64, np.float32)
    )
    assert rounded.dtype == np.float32
    np.testing.assert_allclose(rounded, exact, atol=1e-4)


# Masks, views, samples ----------------------------------------------------------------------------------------------


def test_what_is_hidden_never_matters():
    views, mask, _ = blobs()
    results = []
    for filler in (np.nan, 1e30, -7.0):
        hidden = [np.where(mask[:, v, None], x, filler) for v, x in enumerate(views)]
        results.append(fit(hidden, mask, 3))
    results.append(fit([np.where(mask[:, v, None], x, np.nan) for v, x in enumerate(views)], None, 3))
    for result in results[1:]:
        np.testing.assert_array_equal(result.embedding, results[0].embedding)
        np.testing.assert_array_equal(result.labels, results[0].labels)


def test_complete_data_do_not_depend_on_the_first_guess_of_missing_samples():
    columns, _, laplacians = small_problem()
    mask = jnp.ones((24, 2), bool)
    inferred, bases, graph = draws(0, columns)
    results = [
        ueaf.solve(columns, mask, laplacians, ueaf.start_from(columns, mask, guess, bases, graph), HYPER)
        for guess in (inferred, [jnp.full_like(x, jnp.nan) for x in inferred])
    ]
    np.testing.assert_array_equal(results[0].state.embedding, results[1].state.embedding)
    assert int(results[1].status) == Status.CONVERGED


def test_permuting_views_permutes_the_result():
    columns, mask, laplacians = small_problem()
    inferred, bases, graph = draws(0, columns)
    a = ueaf.solve(columns, mask, laplacians, ueaf.start_from(columns, mask, inferred, bases, graph), HYPER)
    mask = mask[:, ::-1]
    start = ueaf.start_from(columns[::-1], mask, inferred[::-1], bases[::-1], graph)
    b = ueaf.solve(columns[::-1], mask, laplacians[::-1], start, HYPER)
    assert int(a.n_iter) == int(b.n_iter)
    np.testing.assert_allclose(b.state.embedding, a.state.embedding, atol=1e-9)
    np.testing.assert_allclose(b.state.weights, a.state.weights[::-1], atol=1e-9)


def test_permuting_samples_with_their_start_permutes_the_result():
    columns, mask, laplacians = small_problem()
    inferred, bases, graph = draws(0, columns)
    shuffle = np.random.default_rng(1).permutation(24)
    a = ueaf.solve(columns, mask, laplacians, ueaf.start_from(columns, mask, inferred, bases, graph), HYPER)
    columns, inferred = [x[:, shuffle] for x in columns], [x[:, shuffle] for x in inferred]
    start = ueaf.start_from(columns, mask[shuffle], inferred, bases, graph[shuffle][:, shuffle])
    b = ueaf.solve(columns, mask[shuffle], laplacians, start, HYPER)
    np.testing.assert_allclose(b.state.embedding, a.state.embedding[:, shuffle], atol=1e-9)


# Degenerate cases and statuses --------------------------------------------------------------------------------------


def test_single_view_and_view_with_few_observed_samples():
    views, _, classes = blobs(rate=0.0)
    assert adjusted_rand_score(classes, fit(views[:1], None, 3).labels) > 0.9
    mask = np.ones((90, 3), bool)
    mask[2:, 1] = False
    result = fit(views, mask, 3)
    assert int(result.status) in (Status.CONVERGED, Status.MAX_ITER)
    assert np.isfinite(result.embedding).all()


def test_duplicate_samples_stay_finite():
    columns, mask, laplacians = small_problem()
    doubled = [jnp.where(jnp.arange(24) < 12, x, jnp.roll(x, 12, axis=1)) for x in columns]
    solution = solve_small(doubled, jnp.concatenate([mask[:12], mask[:12]]), laplacians)
    assert int(solution.status) in (Status.CONVERGED, Status.MAX_ITER)
    assert np.isfinite(solution.state.graph).all()


def test_exponent_near_one_selects_a_view_without_overflow():
    solution = solve_small(*small_problem(), HYPER._replace(r=1.001))
    assert int(solution.status) in (Status.CONVERGED, Status.MAX_ITER)
    assert np.isfinite(solution.state.weights).all()


@pytest.mark.parametrize("field", ueaf.Hyper._fields)
def test_nonfinite_hyper_parameter_never_converges(field):
    solution = solve_small(*small_problem(), HYPER._replace(**{field: np.nan}))
    assert int(solution.status) == (Status.MAX_ITER if field == "tol" else Status.NONFINITE)
    assert field == "tol" or int(solution.n_iter) == 1


def test_nonfinite_data_end_as_nonfinite():
    columns, mask, laplacians = small_problem()
    v, i = 0, int(jnp.argmax(mask[:, 0]))
    broken = [columns[v].at[1, i].set(jnp.nan), columns[1]]
    assert int(solve_small(broken, mask, laplacians).status) == Status.NONFINITE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be between 1 and the number of samples 90, got 0"),
        ({"n_clusters": 91}, "n_clusters must be between 1 and the number of samples 90, got 91"),
        ({"n_clusters": 11}, "view 0 has 10 features, fewer than n_clusters = 11"),
        ({"n_neighbors": 11}, "view 0 has 10 features, too few for n_neighbors = 11"),
        ({"n_neighbors": 0}, "n_neighbors must be at least 1, got 0"),
        ({"lam1": -1.0}, "lam1 must not be negative, got -1.0"),
        ({"lam3": -1.0}, "lam3 must not be negative, got -1.0"),
        ({"lam2": 0.0}, "lam2 must be positive, got 0.0"),
        ({"r": 1.0}, "r must be greater than 1, got 1.0"),
        ({"max_iter": 0}, "max_iter must be at least 1, got 0"),
        ({"mask": np.zeros((90, 3), bool)}, "view 0 has no observed sample"),
    ],
)
def test_bad_input_is_named(options, message):
    views, mask, _ = blobs()
    with pytest.raises(ValueError, match=message):
        fit(views, **({"mask": mask, "n_clusters": 3} | options))


# Compilation --------------------------------------------------------------------------------------------------------


def test_one_compilation_serves_all_hyper_parameters():
    problem = small_problem()
    solve_small(*problem)
    before = ueaf._solve._cache_size()
    for hyper in (ueaf.Hyper(lam1=1, lam2=np.float32(0.2)), ueaf.Hyper(lam3=jnp.asarray(0.1), r=2, tol=0)):
        solve_small(*problem, hyper)
    assert ueaf._solve._cache_size() == before


def test_vmap_over_hyper_parameters_equals_single_solves():
    problem = small_problem()
    grid = ueaf.Hyper(
        *map(jnp.asarray, ([0.01, 1.0, 0.1], [0.1, 0.1, 10.0], [0.01, 0.1, 1e-5], [3.0, 2.0, 4.0], [1e-5] * 3))
    )
    batch = jax.vmap(lambda hyper: solve_small(*problem, hyper))(grid)
    for i in range(3):
        single = solve_small(*problem, ueaf.Hyper(*(x[i] for x in grid)))
        assert int(batch.n_iter[i]) == int(single.n_iter)
        assert int(batch.status[i]) == int(single.status)
        np.testing.assert_allclose(batch.state.embedding[i], single.state.embedding, atol=1e-9)
    assert len(set(np.asarray(batch.n_iter))) > 1
