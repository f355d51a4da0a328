"""CLIMC-SC (reconstructed): parity with the literal steps, optimality, constraints, invariances, degenerate cases."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from jpltd_jax.loop import Status, check_hyper, prepare, run
from jpltd_jax.methods.climc_sc import CLIMC_SC, Config, Hyper, fit_rows
from jpltd_jax.missing import paper_protocol
from jpltd_jax.problem import make_problem
from tests.strategies import seeds

N = 12
THREE = Config(n_neighbors=3)


def random_views(seed, n=N, dims=(5, 5, 4), rate=0.5):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % 3)
    views = [rng.normal(size=(3, d))[labels] + 0.3 * rng.normal(size=(n, d)) for d in dims]
    return views, paper_protocol(seed, n, len(dims), rate)


def prepared(views, mask=None):
    return prepare(CLIMC_SC, make_problem(views, mask), 3, THREE)


def solve(data, tol=1e-5):
    return run(CLIMC_SC, data, Hyper(tol), jax.random.key(0))


# The steps of the specification, to the letter ----------------------------------------------------------------------


def literal_graph(view, seen, n_neighbors):
    n = len(view)
    index = np.flatnonzero(seen)
    samples = [view[i] / np.sqrt((view[i] ** 2).sum()) for i in index]
    distance = cdist(samples, samples, "sqeuclidean")
    graph = np.zeros((n, n))
    for a, i in enumerate(index):
        others = [b for b in np.argsort(distance[a], kind="stable") if b != a]
        for b in others[:n_neighbors]:
            graph[i, index[b]] = graph[index[b], i] = 1
    for i in index:
        graph[i] /= max(graph[i].sum(), 1)
    return graph


def literal_pairs(mask):
    pairs = np.einsum("iv,jv->vij", mask.astype(float), mask.astype(float))
    for M in pairs:
        np.fill_diagonal(M, 0)
    return pairs


def literal_rows(b, omega):
    S = np.zeros_like(b)
    for i in range(len(b)):
        support = np.flatnonzero(omega[i] > 0)
        descending = support[np.argsort(-b[i, support], kind="stable")]
        best = None
        for t in range(1, len(descending) + 1):
            first = descending[:t]
            eta = ((b[i, first] / omega[i, first]).sum() - 1) / (1 / omega[i, first]).sum()
            if b[i, descending[t - 1]] > eta:
                best = eta
        if best is not None:
            S[i, support] = np.maximum(0, (b[i, support] - best) / omega[i, support])
    return S


def literal_misfits(S, graphs, pairs):
    return np.array([np.linalg.norm(M * (S - A)) for A, M in zip(graphs, pairs, strict=True)])


def literal_consensus(w, graphs, pairs):
    return literal_rows(sum(w[v] * pairs[v] * graphs[v] for v in range(len(w))), sum(map(np.multiply, w, pairs)))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_parity_with_the_literal_steps(seed):
    views, mask = random_views(seed)
    graphs = np.stack([literal_graph(x, mask[:, v], 3) for v, x in enumerate(views)])
    pairs = literal_pairs(mask)
    S = literal_consensus(np.full(3, 1 / 3), graphs, pairs)
    data = prepared(views, mask)
    np.testing.assert_allclose(CLIMC_SC.init(jax.random.key(0), data, Hyper()).graph, S, atol=1e-14)
    values = [literal_misfits(S, graphs, pairs).sum()]
    while len(values) < 2 or abs(values[-2] - values[-1]) > 1e-5 * values[-2]:
        S = literal_consensus(1 / (2 * np.maximum(literal_misfits(S, graphs, pairs), 1e-12)), graphs, pairs)
        values.append(literal_misfits(S, graphs, pairs).sum())
    result = solve(data)
    done = len(values) - 1
    assert result.status is Status.CONVERGED
    assert int(result.n_iter) == done
    np.testing.assert_allclose(result.history.before[:done], values[:-1], rtol=1e-10)
    np.testing.assert_allclose(result.history.after[:done], values[1:], rtol=1e-10)
    np.testing.assert_allclose(result.state.graph, S, atol=1e-10)
    np.testing.assert_allclose(result.affinity, (S + S.T) / 2, atol=1e-10)


def test_graphs_and_pairs_equal_the_literal_ones():
    views, mask = random_views(2, dims=(4, 30))
    data = prepared(views, mask)
    np.testing.assert_array_equal(data.pairs, literal_pairs(mask))
    for v, x in enumerate(views):
        np.testing.assert_allclose(data.graphs[v], literal_graph(x, mask[:, v], 3), atol=1e-15)


# The graph step -----------------------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(seed=seeds)
def test_rows_meet_the_optimality_conditions(seed):
    rng = np.random.default_rng(seed)
    omega = 10.0 ** rng.uniform(-3, 3, size=(6, 8)) * (rng.random((6, 8)) < 0.7)
    omega[0] = 0
    b = 10.0 ** rng.uniform(-2, 2) * rng.normal(size=(6, 8))
    S = np.asarray(fit_rows(jnp.asarray(b), jnp.asarray(omega)))
    np.testing.assert_allclose(S, literal_rows(b, omega), atol=1e-9)
    assert not S[omega == 0].any()
    assert (S >= 0).all()
    for row, target, weight in zip(S, b, omega, strict=True):
        if (weight > 0).any():
            np.testing.assert_allclose(row.sum(), 1, atol=1e-9)
            slope = target - weight * row
            eta = slope[row > 0].mean()
            np.testing.assert_allclose(slope[row > 0], eta, rtol=1e-8, atol=1e-8)
            assert (slope[(row == 0) & (weight > 0)] <= eta + 1e-8 * (1 + abs(eta))).all()


def test_rows_equal_a_generic_quadratic_program():
    rng = np.random.default_rng(0)
    b, omega = rng.normal(size=(6, 8)), rng.uniform(0.3, 3, size=(6, 8))
    generic = minimize(
        lambda s: omega[0] @ s**2 / 2 - b[0] @ s,
        np.full(8, 1 / 8),
        jac=lambda s: omega[0] * s - b[0],
        method="SLSQP",
        bounds=[(0, None)] * 8,
        constraints={"type": "eq", "fun": lambda s: s.sum() - 1, "jac": lambda s: np.ones(8)},
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(fit_rows(jnp.asarray(b), jnp.asarray(omega))[0], generic.x, atol=1e-6)


def test_rows_with_enormous_entries_stay_on_the_simplex():
    b, omega = jnp.array([[-1e14, -1e14 - 1, -3e14]]), jnp.array([[1e-3, 1e-3, 1e-3]])
    np.testing.assert_array_equal(fit_rows(b, omega), [[1, 0, 0]])


# Theory -------------------------------------------------------------------------------------------------------------


@settings(max_examples=8)
@given(seed=seeds)
def test_objective_never_rises_and_constraints_hold(seed):
    views, mask = random_views(seed % 10000)
    result = solve(prepared(views, mask))
    done = int(result.n_iter)
    history = np.append(result.history.before[0], result.history.after[:done])
    assert (np.diff(history) <= 1e-10 * history[0]).all()
    S = np.asarray(result.state.graph)
    together = (mask.astype(float) @ mask.T > 0) & ~np.eye(N, dtype=bool)
    assert (S >= 0).all()
    assert not S[~together].any()
    np.testing.assert_allclose(S.sum(axis=1), together.any(axis=1), atol=1e-9)


def test_limit_is_a_minimiser():
    """The objective is convex: no graph lies below it by more than the slope towards the best vertex of each row."""
    views, mask = random_views(1)
    data = prepared(views, mask)
    S, graphs, pairs = np.asarray(solve(data, tol=0.0).state.graph), np.asarray(data.graphs), literal_pairs(mask)
    misfits = literal_misfits(S, graphs, pairs)
    slope = sum(M * (S - A) / norm for A, M, norm in zip(graphs, pairs, misfits, strict=True))
    lowest = np.where(pairs.any(axis=0), slope, np.inf).min(axis=1)
    gap = (slope * S).sum() - lowest.sum()
    assert 0 <= gap + 1e-12 < 1e-6 * misfits.sum()


# Metamorphic --------------------------------------------------------------------------------------------------------


def test_permuting_views_keeps_the_result():
    views, mask = random_views(4)
    a, b = (solve(prepared([views[v] for v in order], mask[:, order])) for order in ([0, 1, 2], [1, 0, 2]))
    assert int(a.n_iter) == int(b.n_iter)
    np.testing.assert_allclose(b.state.graph, a.state.graph, atol=1e-9)


def test_permuting_samples_permutes_the_result():
    views, mask = random_views(5)
    shuffle = np.random.default_rng(0).permutation(N)
    a = solve(prepared(views, mask)).state.graph
    b = solve(prepared([x[shuffle] for x in views], mask[shuffle])).state.graph
    np.testing.assert_allclose(b, np.asarray(a)[np.ix_(shuffle, shuffle)], atol=1e-9)


def test_run_from_the_limit_stops_at_once():
    data = prepared(*random_views(1))
    again = run(CLIMC_SC, data, Hyper(), solve(data).state)
    assert again.status is Status.CONVERGED
    assert int(again.n_iter) == 1


# Degenerate cases ---------------------------------------------------------------------------------------------------


def test_consensus_of_a_single_view_is_its_graph():
    views, _ = random_views(3)
    alone = solve(prepared(views[:1]))
    assert alone.status is Status.CONVERGED
    np.testing.assert_allclose(alone.state.graph, literal_graph(views[0], np.ones(N, bool), 3), atol=1e-9)


def test_sample_without_partner_has_no_neighbours():
    views, _ = random_views(3)
    mask = np.ones((N, 3), bool)
    mask[0, 1:] = False
    mask[1:, 0] = False
    result = solve(prepared(views, mask))
    assert result.status is Status.CONVERGED
    assert np.isfinite(result.affinity).all()
    assert not np.asarray(result.affinity[0]).any()
    assert np.asarray(result.affinity[1:]).any(axis=1).all()


def test_nonfinite_graphs_end_as_nonfinite():
    data = prepared(random_views(6)[0])
    assert solve(replace(data, graphs=data.graphs.at[0, 0, 1].set(jnp.nan))).status is Status.NONFINITE


def test_bad_options_are_named():
    with pytest.raises(ValueError, match="n_neighbors must be at least 1, got 0"):
        Config(n_neighbors=0)
    with pytest.raises(ValueError, match=r"CLIMC-SC: tol must be a float in the range \[0.0, inf\), got -1"):
        check_hyper(CLIMC_SC, Hyper(tol=-1.0))
