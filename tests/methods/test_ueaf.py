"""UEAF: parity with the authors' run, optimality of the blocks, constraints, permutations, degenerate cases."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from jpltd_jax.loop import Loop, Status, check_hyper, prepare, run
from jpltd_jax.methods import ueaf
from jpltd_jax.methods.ueaf import UEAF, Config, Hyper
from jpltd_jax.problem import make_problem
from tests.conftest import DATA
from tests.strategies import seeds

with np.load(DATA / "ueaf.npz") as archive:
    RECORDED = {name: archive[name] for name in archive.files}
VIEWS = [RECORDED[f"X_{v}"].T for v in range(3)]
HYPER = Hyper(*(float(RECORDED[name]) for name in ("lambda1", "lambda2", "lambda3", "r", "tol")))
FIXED = Config(fixed=True)
N, C = 40, 4


def prepared(mask=RECORDED["mask"], config=Config()):  # noqa: B008
    return prepare(UEAF, make_problem(VIEWS, mask), C, config)


@pytest.fixture(scope="module")
def data():
    with jax.enable_x64(True):
        return prepared()


def draws(seed, data):
    """First guess of the missing samples, bases and graph."""
    rng = np.random.default_rng(seed)
    inferred = [jnp.asarray(rng.random(x.shape)) for x in data.columns]
    bases = [jnp.asarray(np.linalg.qr(rng.random((len(x), C)))[0]) for x in data.columns]
    return inferred, bases, jnp.asarray(rng.random((N, N)))


def solve(data, hyper=HYPER, seed=0, **options):
    return run(UEAF, data, hyper, ueaf.start_from(data, hyper, *draws(seed, data)), Loop(**options))


# Parity with the authors' run ---------------------------------------------------------------------------------------


def recorded_start(data):
    inferred = []
    for v, x in enumerate(data.columns):
        guess = np.zeros(x.shape)
        guess[:, ~RECORDED["mask"][:, v]] = RECORDED[f"E0_{v}"]
        inferred.append(jnp.asarray(guess))
    bases = [jnp.asarray(RECORDED[f"U0_{v}"]) for v in range(3)]
    return ueaf.start_from(data, HYPER, inferred, bases, jnp.asarray(RECORDED["S0"]))


def test_parity_with_the_run_of_the_authors(data):
    assert (data.config.n_neighbors, data.n_clusters) == (RECORDED["n_neighbors"], RECORDED["n_clusters"])
    start = recorded_start(data)
    for iteration in (1, 2, 3, 5, 10):
        part = run(UEAF, data, HYPER, start, Loop(max_iter=iteration))
        assert part.status is Status.MAX_ITER
        np.testing.assert_allclose(part.state.embedding, RECORDED[f"P_iter{iteration}"], atol=1e-12)
        np.testing.assert_allclose(part.history, RECORDED["objective"][:iteration], atol=1e-14)
    whole = run(UEAF, data, HYPER, start)
    done = len(RECORDED["objective"])
    assert whole.status is Status.CONVERGED
    assert int(whole.n_iter) == done
    np.testing.assert_allclose(whole.state.embedding, RECORDED["P_final"], atol=1e-12)
    np.testing.assert_allclose(whole.history[:done], RECORDED["objective"], atol=1e-14)
    unit = RECORDED["P_final"].T / np.linalg.norm(RECORDED["P_final"].T, axis=1, keepdims=True)
    np.testing.assert_allclose(whole.embedding, unit, atol=1e-11)


def test_laplacians_of_the_features_are_the_authors(data):
    for v, ours in enumerate(data.laplacians):
        np.testing.assert_array_equal(ours, RECORDED[f"L_{v}"])


# Optimality of the blocks -------------------------------------------------------------------------------------------


def literal_objective(data, state, hyper=HYPER):
    """The intended objective with inferred samples cut out and every term written out; not normalised."""
    distances = jnp.sum((state.embedding[:, :, None] - state.embedding[:, None, :]) ** 2, axis=0)
    value = 0.0
    for v, y in enumerate(state.completed):
        inferred = jnp.where(data.mask[v], 0, y)
        loss = jnp.sum((y - state.bases[v] @ state.embedding) ** 2)
        loss += hyper.lam1 * jnp.trace(inferred.T @ data.laplacians[v] @ inferred)
        loss += hyper.lam2 / 2 * jnp.sum(distances * state.graph**2)
        value += state.weights[v] ** hyper.r * loss
    symmetric = (state.graph + state.graph.T) / 2
    spectral = jnp.diag(symmetric.sum(axis=1)) - symmetric
    return value + hyper.lam3 * jnp.trace(state.spectrum.T @ spectral @ state.spectrum)


value_and_gradient = jax.jit(jax.value_and_grad(literal_objective, argnums=1))


@settings(max_examples=6)
@given(seed=seeds)
def test_embedding_is_stationary_and_the_other_exact_blocks_descend(seed):
    data = prepared(config=FIXED)
    before = solve(data, seed=seed, max_iter=1).state
    after = run(UEAF, data, HYPER, before, Loop(max_iter=1)).state
    _, gradient = value_and_gradient(data, before._replace(embedding=after.embedding))
    np.testing.assert_allclose(gradient.embedding, 0, atol=1e-10)
    stage = before._replace(embedding=after.embedding, graph=after.graph)
    values = [value_and_gradient(data, stage)[0]]
    for block in ("spectrum", "bases", "completed", "weights"):
        stage = stage._replace(**{block: getattr(after, block)})
        value, gradient = value_and_gradient(data, stage)
        values.append(value)
    assert (np.diff(values) <= 1e-10).all()
    for v in range(3):
        np.testing.assert_allclose(np.asarray(gradient.completed[v])[:, ~data.mask[v]], 0, atol=1e-10)


def test_history_is_the_normalised_objective():
    data = prepared(config=FIXED)
    solution = solve(data)
    energy = sum(np.sum(np.square(x)) for x in data.columns)
    last = solution.history[int(solution.n_iter) - 1]
    np.testing.assert_allclose(last, value_and_gradient(data, solution.state)[0] / energy, rtol=1e-10)


def test_the_authors_slip_changes_the_weights(data):
    hyper = HYPER._replace(lam1=1.0, lam2=1.0)
    slip, fixed = (solve(replace(data, config=config), hyper).state.weights for config in (Config(), FIXED))
    assert np.abs(slip - fixed).max() > 1e-3


def check_constraints(data, state):
    for v, (x, y, u) in enumerate(zip(data.columns, state.completed, state.bases, strict=True)):
        np.testing.assert_allclose(u.T @ u, np.eye(C), atol=1e-12)
        np.testing.assert_array_equal(np.asarray(y)[:, data.mask[v]], np.asarray(x)[:, data.mask[v]])
    np.testing.assert_allclose(state.spectrum.T @ state.spectrum, np.eye(C), atol=1e-12)
    np.testing.assert_array_equal(np.diagonal(state.graph), 0)
    assert (state.graph >= 0).all()
    np.testing.assert_allclose(state.weights.sum(), 1, atol=1e-12)


def test_constraints_hold(data):
    solution = solve(data)
    check_constraints(data, solution.state)
    np.testing.assert_allclose(solution.state.graph.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(solution.embedding, axis=1), 1, atol=1e-12)


def test_start_is_random_and_within_the_constraints(data):
    first, second = (ueaf.init(jax.random.key(seed), data, HYPER) for seed in (0, 1))
    check_constraints(data, first)
    for v, (a, b) in enumerate(zip(first.completed, second.completed, strict=True)):
        guess, other = (np.asarray(x)[:, ~data.mask[v]] for x in (a, b))
        assert (guess >= 0).all()
        assert (guess < 1).all()
        assert (guess != other).all()


# Masks, views, samples ----------------------------------------------------------------------------------------------


def test_complete_data_do_not_depend_on_the_first_guess_of_missing_samples():
    data = prepared(mask=None)
    inferred, bases, graph = draws(0, data)
    results = [
        run(UEAF, data, HYPER, ueaf.start_from(data, HYPER, guess, bases, graph))
        for guess in (inferred, [jnp.full_like(x, jnp.nan) for x in inferred])
    ]
    np.testing.assert_array_equal(results[0].state.embedding, results[1].state.embedding)
    assert results[1].status is Status.CONVERGED


def test_permuting_views_permutes_the_result(data):
    inferred, bases, graph = draws(0, data)
    a = run(UEAF, data, HYPER, ueaf.start_from(data, HYPER, inferred, bases, graph))
    swapped = prepare(UEAF, make_problem(VIEWS[::-1], RECORDED["mask"][:, ::-1]), C)
    b = run(UEAF, swapped, HYPER, ueaf.start_from(swapped, HYPER, inferred[::-1], bases[::-1], graph))
    assert int(a.n_iter) == int(b.n_iter)
    np.testing.assert_allclose(b.state.embedding, a.state.embedding, atol=1e-9)
    np.testing.assert_allclose(b.state.weights, a.state.weights[::-1], atol=1e-9)


def test_permuting_samples_with_their_start_permutes_the_result(data):
    inferred, bases, graph = draws(0, data)
    a = run(UEAF, data, HYPER, ueaf.start_from(data, HYPER, inferred, bases, graph))
    shuffle = np.random.default_rng(1).permutation(N)
    moved = prepare(UEAF, make_problem([x[shuffle] for x in VIEWS], RECORDED["mask"][shuffle]), C)
    inferred, graph = [x[:, shuffle] for x in inferred], graph[shuffle][:, shuffle]
    b = run(UEAF, moved, HYPER, ueaf.start_from(moved, HYPER, inferred, bases, graph))
    np.testing.assert_allclose(b.state.embedding, a.state.embedding[:, shuffle], atol=1e-9)


# Degenerate cases ---------------------------------------------------------------------------------------------------


def ended_well(solution):
    return solution.status in (Status.CONVERGED, Status.MAX_ITER) and np.isfinite(solution.state.graph).all()


def test_single_view():
    data = prepare(UEAF, make_problem(VIEWS[:1]), C)
    solution = solve(data)
    assert ended_well(solution)
    np.testing.assert_array_equal(solution.state.weights, [1])


def test_view_with_two_observed_samples():
    mask = np.ones((N, 3), bool)
    mask[2:, 1] = False
    assert ended_well(solve(prepared(mask)))


def test_duplicate_samples_stay_finite(data):
    copies = np.arange(N) % (N // 2)
    doubled = replace(data, columns=tuple(x[:, copies] for x in data.columns), mask=data.mask[:, copies])
    assert ended_well(solve(doubled))


def test_exponent_near_one_selects_a_view_without_overflow(data):
    solution = solve(data, HYPER._replace(r=1.001))
    assert ended_well(solution)
    np.testing.assert_allclose(np.sort(solution.state.weights), [0, 0, 1], atol=1e-12)


def test_nonfinite_data_end_as_nonfinite(data):
    observed = int(jnp.argmax(data.mask[0]))
    broken = replace(data, columns=(data.columns[0].at[1, observed].set(jnp.nan), *data.columns[1:]))
    assert solve(broken).status is Status.NONFINITE


@pytest.mark.parametrize(
    ("n_clusters", "n_neighbors", "message"),
    [
        (10, 7, "view 1 has 9 features, fewer than n_clusters = 10"),
        (4, 9, "view 1 has 9 features, too few for n_neighbors = 9"),
        (4, 0, "n_neighbors must be at least 1, got 0"),
    ],
)
def test_bad_input_is_named(n_clusters, n_neighbors, message):
    with pytest.raises(ValueError, match=message):
        prepare(UEAF, make_problem(VIEWS), n_clusters, Config(n_neighbors))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lam1": -1.0}, r"lam1 must be a float in the range \[0.0, inf\), got -1"),
        ({"lam3": -1.0}, r"lam3 must be a float in the range \[0.0, inf\), got -1"),
        ({"lam2": 0.0}, r"lam2 must be a float in the range \(0.0, inf\), got 0"),
        ({"r": 1.0}, r"r must be a float in the range \(1.0, inf\), got 1"),
        ({"tol": -1.0}, r"tol must be a float in the range \[0.0, inf\), got -1"),
    ],
)
def test_bad_hyper_parameter_is_named(values, message):
    with pytest.raises(ValueError, match=message):
        check_hyper(UEAF, Hyper(**values))
