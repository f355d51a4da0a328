"""CLIMC (reconstructed): parity with the literal steps, descent, constraints, invariances, statuses, compilation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from sklearn.metrics import adjusted_rand_score

import jpltd_jax as jj
from jpltd_jax.baselines import climc
from jpltd_jax.baselines.climc import Hyper, State
from jpltd_jax.missing import paper_protocol
from tests.strategies import seeds

KEY = jax.random.key(0)
SHAPE = (12, (5, 5, 20))


def blobs(seed, n=90, dims=(8, 6, 10), dtype=np.float64):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % 3)
    views = [rng.normal(size=(3, d))[labels] + 0.3 * rng.normal(size=(n, d)) for d in dims]
    return [x.astype(dtype) for x in views], labels


def random_problem(seed, n=SHAPE[0], dims=SHAPE[1], rate=0.5, dtype=np.float64):
    """Columns, mask, graphs and a random positive start."""
    views, _ = blobs(seed, n, dims, dtype)
    columns, mask = climc.nonnegative_columns(views, paper_protocol(seed, n, len(dims), rate))
    graphs = climc.view_graphs(columns, mask, 3)
    rng = np.random.default_rng(seed)
    U = tuple(jnp.asarray(rng.random((d, 3)) + 0.1, dtype) for d in dims)
    H = jnp.asarray(rng.random((3, n)) + 0.1, dtype)
    return columns, mask, graphs, State(U, H, climc.initial_graph(graphs, mask))


def status_of(result):
    return jj.Status(int(result.status))


# The steps of the specification, to the letter ----------------------------------------------------------------------


def literal_columns(views, mask):
    columns = []
    for v, x in enumerate(views):
        seen = x[mask[:, v]]
        if (seen < 0).any():
            seen = seen - seen.min(axis=0)
        column = np.zeros((x.shape[1], len(x)))
        for i, sample in zip(np.flatnonzero(mask[:, v]), seen, strict=True):
            norm = np.sqrt((sample**2).sum())
            column[:, i] = sample / norm if norm > 0 else 0
        columns.append(column)
    return columns


def literal_graph(column, seen, n_neighbors):
    n = column.shape[1]
    index = np.flatnonzero(seen)
    distance = cdist(column[:, index].T, column[:, index].T, "sqeuclidean")
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


def literal_consensus_step(S, graphs, pairs, alpha, gamma, D):
    w = 1 / (2 * np.maximum(literal_misfits(S, graphs, pairs), 1e-12))
    b = gamma * sum(w[v] * pairs[v] * graphs[v] for v in range(len(w))) - alpha / 4 * D
    return literal_rows(b, gamma * sum(w[v] * pairs[v] for v in range(len(w))))


def literal_start(graphs, pairs):
    m = len(graphs)
    return literal_rows(sum(pairs * graphs) / m, sum(pairs) / m)


def literal_objective(columns, mask, graphs, pairs, U, H, S, alpha, beta, gamma):
    symmetric = (S + S.T) / 2
    laplacian = np.diag(symmetric.sum(axis=0)) - symmetric
    value = alpha * np.trace(H @ laplacian @ H.T) + gamma * literal_misfits(S, graphs, pairs).sum()
    for v, x in enumerate(columns):
        value += np.linalg.norm((x - U[v] @ H) @ np.diag(mask[:, v])) ** 2 + beta * np.linalg.norm(U[v]) ** 2
    return value


def literal_step(columns, mask, graphs, pairs, U, H, S, alpha, beta, gamma):
    Q = [np.diag(mask[:, v].astype(float)) for v in range(len(columns))]
    U = [
        u * (x @ H.T) / np.maximum(u @ (H @ q @ H.T) + beta * u, 1e-10) for x, u, q in zip(columns, U, Q, strict=True)
    ]  # fmt: skip
    symmetric = (S + S.T) / 2
    above = sum(u.T @ x for x, u in zip(columns, U, strict=True)) + alpha * H @ symmetric
    below = sum((u.T @ u @ H) @ q for u, q in zip(U, Q, strict=True)) + alpha * H @ np.diag(symmetric.sum(axis=1))
    H = H * above / np.maximum(below, 1e-10)
    S = literal_consensus_step(S, graphs, pairs, alpha, gamma, cdist(H.T, H.T, "sqeuclidean"))
    return U, H, S


@pytest.mark.parametrize(
    ("weights", "tol"), [((0.1, 0.01, 1.0), 1e-5), ((10.0, 1.0, 0.5), 1e-3), ((1e-5, 0.1, 2.0), 1e-3)]
)
def test_parity_with_the_literal_steps(weights, tol):
    columns, mask, graphs, start = random_problem(0)
    X, q, A = [np.asarray(x) for x in columns], np.asarray(mask), np.asarray(graphs)
    pairs = literal_pairs(q)
    U, H, S = [np.asarray(u) for u in start.U], np.asarray(start.H), literal_start(A, pairs)
    np.testing.assert_allclose(start.S, S, atol=1e-14)
    history = [literal_objective(X, q, A, pairs, U, H, S, *weights)]
    result = climc.solve(columns, mask, graphs, Hyper(*weights, tol), start)
    state, compiled_step = start, jax.jit(climc.step)
    for iteration in range(1, 101):
        U, H, S = literal_step(X, q, A, pairs, U, H, S, *weights)
        if iteration <= 20:
            state = compiled_step(columns, mask, graphs, Hyper(*weights), state)
            for ours, theirs in zip(jax.tree.leaves(state), (*U, H, S), strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-10)
        history.append(literal_objective(X, q, A, pairs, U, H, S, *weights))
        settled = abs(history[-2] - history[-1]) <= tol * history[-2]
        if settled:
            break
    assert int(result.n_iter) == iteration
    assert status_of(result) is (jj.Status.CONVERGED if settled else jj.Status.MAX_ITER)
    np.testing.assert_allclose(result.history[:iteration], history[1:], rtol=1e-9)
    for ours, theirs in zip(jax.tree.leaves(result.state), (*U, H, S), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_parity_of_the_consensus_graph_with_the_literal_steps():
    _, mask, graphs, start = random_problem(1)
    A, pairs = np.asarray(graphs), literal_pairs(np.asarray(mask))
    S, history = literal_start(A, pairs), []
    before = literal_misfits(S, A, pairs).sum()
    while True:
        S = literal_consensus_step(S, A, pairs, 0.0, 1.0, 0.0)
        history.append(literal_misfits(S, A, pairs).sum())
        if abs(before - history[-1]) <= 1e-5 * before:
            break
        before = history[-1]
    result = climc.solve_sc(graphs, mask, start.S)
    assert status_of(result) is jj.Status.CONVERGED
    assert int(result.n_iter) == len(history)
    np.testing.assert_allclose(result.history[: len(history)], history, rtol=1e-10)
    np.testing.assert_allclose(result.state, S, atol=1e-10)


def test_parity_of_the_preprocessing_with_the_literal_steps():
    views, _ = blobs(2, 20, (4, 5))
    views[1] = np.abs(views[1])
    mask = paper_protocol(2, 20, 2, 0.5)
    columns, present = climc.nonnegative_columns(views, mask)
    graphs = climc.view_graphs(columns, present, 4)
    for v, expected in enumerate(literal_columns(views, mask)):
        np.testing.assert_allclose(columns[v], expected, atol=1e-14)
        np.testing.assert_allclose(graphs[v], literal_graph(expected, mask[:, v], 4), atol=1e-15)


def test_start_is_positive_and_from_kmeans():
    views, labels = blobs(0)
    columns, mask = climc.nonnegative_columns(views, paper_protocol(0, 90, 3, 0.3))
    start = climc.init(KEY, columns, mask, climc.view_graphs(columns, mask, 10), 3)
    assert all((np.asarray(u) > 0).all() for u in start.U)
    np.testing.assert_allclose(np.sort(start.H, axis=0), [[0.1] * 90, [0.1] * 90, [1.1] * 90])
    for v, x in enumerate(columns):
        of_class = np.stack([np.asarray(x)[:, (labels == c) & mask[:, v]].mean(axis=1) for c in range(3)])
        assert cdist(of_class, np.asarray(start.U[v]).T).min(axis=1).max() < 0.1


# The graph step -----------------------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(seed=seeds)
def test_rows_meet_the_optimality_conditions(seed):
    rng = np.random.default_rng(seed)
    omega = 10.0 ** rng.uniform(-3, 3, size=(6, 8)) * (rng.random((6, 8)) < 0.7)
    omega[0] = 0
    b = 10.0 ** rng.uniform(-2, 2) * rng.normal(size=(6, 8))
    S = np.asarray(climc.fit_rows(jnp.asarray(b), jnp.asarray(omega)))
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
    b, omega = rng.normal(size=7), rng.uniform(0.3, 3, size=7)
    generic = minimize(
        lambda s: omega @ s**2 / 2 - b @ s,
        np.full(7, 1 / 7),
        jac=lambda s: omega * s - b,
        method="SLSQP",
        bounds=[(0, None)] * 7,
        constraints={"type": "eq", "fun": lambda s: s.sum() - 1, "jac": lambda s: np.ones(7)},
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(climc.fit_rows(jnp.asarray(b[None]), jnp.asarray(omega[None]))[0], generic.x, atol=1e-6)


def test_rows_with_enormous_entries_stay_on_the_simplex():
    b, omega = jnp.array([[-1e14, -1e14 - 1, -3e14]]), jnp.array([[1e-3, 1e-3, 1e-3]])
    np.testing.assert_array_equal(climc.fit_rows(b, omega), [[1, 0, 0]])


# Theory -------------------------------------------------------------------------------------------------------------


@settings(max_examples=8)
@given(seed=seeds)
def test_objectives_never_rise_and_constraints_hold(seed):
    rng = np.random.default_rng(seed)
    columns, mask, graphs, start = random_problem(seed % 10000)
    hyper = Hyper(alpha=10.0 ** rng.uniform(-5, 2), beta=10.0 ** rng.uniform(-5, 2), gamma=10.0 ** rng.uniform(-1, 1))
    result = climc.solve(columns, mask, graphs, hyper, start)
    consensus = climc.solve_sc(graphs, mask, start.S)
    first = climc.objective(columns, mask, graphs, hyper, start)
    for history in (np.append(first, result.history[: int(result.n_iter)]), consensus.history[: int(consensus.n_iter)]):
        assert (np.diff(history) <= 1e-10 * history[0]).all()
    together = (np.asarray(mask, float) @ np.asarray(mask, float).T > 0) & ~np.eye(12, dtype=bool)
    for S in (np.asarray(result.state.S), np.asarray(consensus.state)):
        assert (S >= 0).all()
        assert not S[~together].any()
        np.testing.assert_allclose(S.sum(axis=1), together.any(axis=1), atol=1e-9)
    assert (np.asarray(result.state.H) >= 0).all()


# Clustering ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fit", [climc.fit, climc.fit_sc])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_planted_blobs_are_found(fit, dtype):
    views, labels = blobs(0, dtype=dtype)
    for mask in (paper_protocol(0, 90, 3, 0.3), None):
        result = fit(views, mask, 3, key=KEY)
        assert adjusted_rand_score(labels, result.labels) > 0.9
        assert result.affinity.dtype == dtype
        assert status_of(result) is jj.Status.CONVERGED
        done = int(result.n_iter)
        assert np.isfinite(result.history[:done]).all()
        assert np.isnan(result.history[done:]).all()


@pytest.mark.parametrize("fit", [climc.fit, climc.fit_sc])
def test_single_view_and_sample_without_partner(fit):
    views, _ = blobs(3, *SHAPE)
    alone = fit(views[:1], None, 3, key=KEY, tol=1e-3)
    assert status_of(alone) is jj.Status.CONVERGED
    assert np.isfinite(alone.affinity).all()
    mask = np.ones((12, 3), bool)
    mask[0, 1:] = False
    mask[1:, 0] = False
    if fit is climc.fit:
        with pytest.raises(ValueError, match="view 0 has 1 observed samples, fewer than n_clusters = 3"):
            fit(views, mask, 3, key=KEY)
    else:
        result = fit(views, mask, 3, key=KEY)
        assert not np.asarray(result.affinity[0]).any()
        assert np.isfinite(result.affinity).all()


# Metamorphic --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fit", [climc.fit, climc.fit_sc])
def test_values_under_the_mask_do_not_matter(fit):
    views, _ = blobs(1, *SHAPE)
    mask = paper_protocol(1, 12, 3, 0.5)
    reference = fit(views, mask, 3, key=KEY)
    for garbage in (np.nan, -np.inf, -1e30):
        hidden = [np.where(mask[:, v, None], x, garbage) for v, x in enumerate(views)]
        result = fit(hidden, mask, 3, key=KEY)
        np.testing.assert_array_equal(result.affinity, reference.affinity)
        np.testing.assert_array_equal(result.labels, reference.labels)


def test_permuting_views_keeps_the_result():
    columns, mask, graphs, start = random_problem(4)
    order = np.array([1, 0, 2])
    a = climc.solve(columns, mask, graphs, Hyper(), start)
    swapped = start._replace(U=tuple(start.U[v] for v in order))
    b = climc.solve(tuple(columns[v] for v in order), mask[:, order], graphs[order], Hyper(), swapped)
    np.testing.assert_allclose(b.state.S, a.state.S, atol=1e-9)
    np.testing.assert_allclose(b.state.H, a.state.H, atol=1e-9)
    np.testing.assert_allclose(b.state.U[0], a.state.U[1], atol=1e-9)


def test_permuting_samples_permutes_the_result():
    columns, mask, graphs, start = random_problem(5)
    shuffle = np.random.default_rng(0).permutation(12)
    grid = np.ix_(shuffle, shuffle)
    a = climc.solve(columns, mask, graphs, Hyper(), start)
    shuffled = start._replace(H=start.H[:, shuffle], S=start.S[grid])
    b = climc.solve(
        tuple(x[:, shuffle] for x in columns), mask[shuffle], graphs[(slice(None), *grid)], Hyper(), shuffled
    )
    np.testing.assert_allclose(b.state.S, np.asarray(a.state.S)[grid], atol=1e-9)
    np.testing.assert_allclose(b.state.H, np.asarray(a.state.H)[:, shuffle], atol=1e-9)


# Statuses, compilation, batching ------------------------------------------------------------------------------------


def test_statuses():
    columns, mask, graphs, start = random_problem(6)
    run = partial(climc.solve, columns, mask, graphs)
    short = run(Hyper(), start, max_iter=3)
    assert status_of(short) is jj.Status.MAX_ITER
    assert int(short.n_iter) == 3
    for field in Hyper._fields:
        broken = run(Hyper()._replace(**{field: np.nan}), start)
        assert status_of(broken) is (jj.Status.MAX_ITER if field == "tol" else jj.Status.NONFINITE), field
    damaged = start._replace(H=start.H.at[0, 0].set(jnp.nan))
    assert status_of(run(Hyper(), damaged)) is jj.Status.NONFINITE
    assert status_of(climc.solve_sc(graphs.at[0, 0, 1].set(jnp.nan), jnp.ones_like(mask), start.S)) is (
        jj.Status.NONFINITE
    )


def test_vmap_over_hyper_parameters_equals_single_solves():
    columns, mask, graphs, start = random_problem(7)
    alpha, tol = jnp.array([1e-3, 0.1, 10.0]), jnp.array([1e-2, 1e-3, 1e-5])
    run = partial(climc.solve, columns, mask, graphs)
    batch = jax.vmap(lambda a, b: run(Hyper(alpha=a, tol=b), start))(alpha, tol)
    run(Hyper(), start)
    compilations = climc._solve._cache_size()
    for i in range(3):
        single = run(Hyper(alpha=float(alpha[i]), tol=tol[i]), start)
        assert int(batch.n_iter[i]) == int(single.n_iter)
        assert int(batch.status[i]) == int(single.status)
        np.testing.assert_allclose(batch.state.H[i], single.state.H, atol=1e-9)
        np.testing.assert_allclose(batch.state.S[i], single.state.S, atol=1e-9)
    assert climc._solve._cache_size() == compilations
    assert len(set(np.asarray(batch.n_iter))) > 1


def test_float32_follows_float64():
    results = []
    for dtype in (np.float32, np.float64):
        columns, mask, graphs, start = random_problem(8, dtype=dtype)
        results.append(climc.solve(columns, mask, graphs, Hyper(tol=0.0), start, max_iter=20).state)
    assert results[0].S.dtype == np.float32
    np.testing.assert_allclose(results[0].H, results[1].H, atol=1e-3)
    np.testing.assert_allclose(results[0].S, results[1].S, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be between 1 and the number of samples 12, got 0"),
        ({"n_clusters": 13}, "n_clusters must be between 1 and the number of samples 12, got 13"),
        ({"alpha": -1.0}, "alpha must not be negative, got -1.0"),
        ({"beta": -1.0}, "beta must not be negative, got -1.0"),
        ({"gamma": 0.0}, "gamma must be positive, got 0.0"),
        ({"n_neighbors": 0}, "n_neighbors must be at least 1, got 0"),
        ({"max_iter": 0}, "max_iter must be at least 1, got 0"),
        ({"mask": np.zeros((12, 3), bool)}, "view 0 has no observed sample"),
    ],
)
def test_bad_options_are_named(options, message):
    views, _ = blobs(0, *SHAPE)
    with pytest.raises(ValueError, match=message):
        climc.fit(views, **({"mask": None, "n_clusters": 3, "key": KEY} | options))
