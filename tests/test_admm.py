"""The solver: parity with recorded and literal runs, descent, statuses, compilation, cost."""

import itertools
from functools import partial

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import jpltd_jax as jj
from jpltd_jax import admm
from jpltd_jax.transforms import Orthonormal
from tests import literal_jpltd
from tests.strategies import orthonormal, random_incomplete, seeds


@pytest.fixture(scope="module")
def small():
    with jax.enable_x64(True):
        views, mask = random_incomplete(12, (6, 20, 5), 0)
        return jj.make_problem(views, mask)


solve_small = partial(jj.solve, latent_dim=4, max_iter=40)
HYPER = jj.Hyper(lam=0.5, theta=0.05)


# Parity with the authors' run ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("iterations", "name"), [(1, "it1"), (10, "it10"), (25, "it25"), (30, "it30"), (66, "it200")])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_parity_with_the_authors_run(reference_run, iterations, name, dtype):
    views = [reference_run[f"view{v}"] for v in range(3)]
    problem = jj.make_problem(views, reference_run["mask"].astype(bool), dtype=dtype)
    hyper = jj.Hyper(lam=reference_run["lam"], theta=reference_run["theta"], tol=0.0)
    result = jj.solve(
        problem, hyper, latent_dim=int(reference_run["k"]), max_iter=iterations, order="reference"
    )  # fmt: skip
    assert int(result.n_iter) == iterations
    np.testing.assert_allclose(result.affinity, reference_run[f"{name}_H"], atol=1e-8 if dtype == np.float64 else 1e-4)
    if dtype == np.float64:
        for block in "GBP":
            ours = np.swapaxes(getattr(result.state, block), 1, 2)
            atol = 1e-6 if iterations == 66 else 1e-8
            np.testing.assert_allclose(ours, reference_run[f"{name}_{block}"], atol=atol, err_msg=block)
        np.testing.assert_allclose(result.state.E, reference_run[f"{name}_E"], atol=1e-6)
        np.testing.assert_allclose(result.state.J1, reference_run[f"{name}_J1"], atol=1e-5)


# Parity with the paper's steps, literally ---------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["full", "N", "B", "O"])
@pytest.mark.parametrize("order", ["paper", "reference"])
@pytest.mark.parametrize("n", [11, 12])
def test_literal_steps_of_the_paper(variant, order, n):
    views, mask = random_incomplete(n, (6, 20, 5), seed=n)
    options = {"latent_dim": 3, "variant": variant, "order": order}
    hyper = jj.Hyper(lam=0.5, theta=0.05, tol=0.0)
    for iterations in (2, 60):
        expected = literal_jpltd.run(views, mask, lam=0.5, theta=0.05, iterations=iterations, **options)
        result = jj.solve(jj.make_problem(views, mask), hyper, max_iter=iterations, **options)
        for block in ("G", "B", "P", "J2"):
            ours = np.swapaxes(getattr(result.state, block), 1, 2)
            np.testing.assert_allclose(ours, expected[block], atol=1e-8, err_msg=block)
        np.testing.assert_allclose(result.affinity, expected["H"], atol=1e-8)
        for v in range(3):
            error = np.asarray(result.state.E[v])
            assert not error[:, ~mask[:, v]].any()
            ours = np.linalg.norm(error[:, mask[:, v]], axis=0)
            np.testing.assert_allclose(ours, np.linalg.norm(expected["E"][v], axis=0), atol=1e-6)
    assert np.abs(expected["B"]).max() > 0.01
    assert (np.abs(expected["P"]).max() > 0.01) == (variant in ("full", "N"))
    assert max(np.abs(e).max() for e in expected["E"]) > 1e-4


def test_the_two_orders_differ_once_errors_appear(small):
    a, b = (solve_small(small, HYPER, order=order) for order in ("paper", "reference"))
    assert np.abs(a.state.E).max() > 1e-3
    assert np.abs(a.affinity - b.affinity).max() > 1e-6


def test_sum_scale_is_lam_times_n(small):
    a = solve_small(small, HYPER._replace(lam=0.5 / 12), norm_scale="sum")
    b = solve_small(small, HYPER)
    np.testing.assert_allclose(a.affinity, b.affinity, atol=1e-12)
    np.testing.assert_allclose(a.objective, b.objective, rtol=1e-10)


# Descent ------------------------------------------------------------------------------------------------------------


compiled_lagrangian = jax.jit(jj.augmented_lagrangian, static_argnames="variant")


def random_state(problem, hyper, latent_dim, variant, seed):
    """Feasible in W, random in everything else; E and J1 vanish on missing samples, P where the variant has none."""
    rng = np.random.default_rng(seed)
    start = jj.init(problem, hyper, latent_dim=latent_dim, variant=variant)
    names = ("G", "E", "B", "P", "J1", "J2")
    noise = {name: jnp.asarray(rng.normal(size=getattr(start, name).shape)) for name in names}
    for name in ("E", "J1"):
        noise[name] = noise[name] * problem.mask[:, None, :]
    if variant in ("B", "O"):
        del noise["P"]
    if variant in ("full", "B"):
        noise["W"] = jj.prox.stiefel(jnp.asarray(rng.normal(size=start.W.shape)))
    return start._replace(**noise)


@pytest.mark.parametrize("variant", ["full", "N", "B", "O"])
@pytest.mark.parametrize("latent_dim", [3, 6])
@settings(max_examples=8)
@given(seed=seeds, lam=st.floats(0.01, 5), theta=st.floats(0.01, 1), rho=st.floats(0.01, 10))
def test_each_block_update_lowers_the_augmented_lagrangian(variant, latent_dim, seed, lam, theta, rho):
    """W too when latent_dim reaches the dimension; below that the paper's W update is not a minimiser (next test)."""
    problem = jj.make_problem(*random_incomplete(9, (6, 6), seed % 1000))
    hyper = admm.as_dtype(jj.Hyper(lam=lam, theta=theta, rho=rho), jnp.float64)
    state = random_state(problem, hyper, latent_dim, variant, seed)
    after, _ = jj.step(problem, hyper, state, variant=variant)
    value = partial(compiled_lagrangian, variant=variant)
    if latent_dim < 6:
        state = state._replace(W=after.W)
    before = value(problem, hyper, state)
    for block in ("W", "G", "E", "B", "P"):
        state = state._replace(**{block: getattr(after, block)})
        now = value(problem, hyper, state)
        assert now <= before + 1e-9 * (1 + abs(before)), block
        before = now
        if block == "W" or (block == "P" and variant in ("B", "O")):
            continue
        nudge = 1e-3 * np.random.default_rng(seed).normal(size=getattr(state, block).shape)
        nudged = state._replace(**{block: getattr(state, block) + nudge})
        assert value(problem, hyper, nudged) >= now - 1e-9 * (1 + abs(now)), block


@settings(max_examples=10)
@given(seed=seeds)
def test_projection_update_aligns_best_but_need_not_minimise(seed):
    """It maximises <target, W F1> over all frames: that value is the nuclear norm of target F1^T."""
    problem = jj.make_problem(*random_incomplete(9, (6, 6), seed % 1000))
    state = random_state(problem, HYPER, 3, "full", seed)
    target = state.E - state.J1 / 0.5
    W = jj.blocks.update_projection(problem.data, state.G, target, state.W)
    for v in range(2):
        X = np.asarray(problem.data[v])
        F1 = X - X @ np.asarray(state.G[v]).T * np.asarray(problem.mask[v])
        best = np.linalg.svd(np.asarray(target[v]) @ F1.T, compute_uv=False).sum()
        np.testing.assert_allclose(np.vdot(target[v], W[v] @ F1), best, rtol=1e-10)
        np.testing.assert_allclose(W[v] @ W[v].T, np.eye(3), atol=1e-12)


def test_projection_update_of_the_paper_can_raise_the_augmented_lagrangian():
    """For k < d, ||W F1||^2 is not constant and the paper's closed form leaves it out. Kept: it is the method."""
    problem = jj.make_problem(*random_incomplete(9, (6, 6), 9))
    hyper = admm.as_dtype(jj.Hyper(lam=1.0, theta=1.0, rho=2.0), jnp.float64)
    rises = []
    for seed in range(20):
        state = random_state(problem, hyper, 3, "full", seed)
        after, _ = jj.step(problem, hyper, state)
        value = partial(compiled_lagrangian, problem, hyper)
        rises.append(float(value(state._replace(W=after.W)) - value(state)))
    assert max(rises) > 1


@settings(max_examples=10)
@given(seed=seeds)
def test_graph_update_is_a_stationary_point(seed):
    """The gradient of ||target - M G||^2 + ||G - split_target||^2 over observed samples vanishes."""
    rng = np.random.default_rng(seed)
    mask = jnp.asarray(rng.random((2, 7)) < 0.7)
    latent = jnp.asarray(rng.normal(size=(2, 3, 7))) * mask[:, None, :]
    target = jnp.asarray(rng.normal(size=(2, 3, 7))) * mask[:, None, :]
    split_target = jnp.asarray(rng.normal(size=(2, 7, 7)))

    def objective(graph):
        misfit = (target - jnp.einsum("vkj,vij->vki", latent, graph)) * mask[:, None, :]
        return jnp.vdot(misfit, misfit) + jnp.sum((graph - split_target) ** 2)

    graph, represented = jj.blocks.update_graph(latent, mask, target, split_target)
    np.testing.assert_allclose(jax.grad(objective)(graph), 0, atol=1e-10)
    np.testing.assert_allclose(represented, jj.blocks.represent(latent, mask, graph), atol=1e-11)


# Metamorphic --------------------------------------------------------------------------------------------------------


def test_permuting_views_permutes_the_result():
    views, mask = random_incomplete(10, (6, 20, 5), 3)
    order = [2, 0, 1]
    a = solve_small(jj.make_problem(views, mask), HYPER)
    b = solve_small(jj.make_problem([views[v] for v in order], mask[:, order]), HYPER)
    np.testing.assert_allclose(b.affinity, a.affinity, atol=1e-9)
    np.testing.assert_allclose(b.state.B, np.asarray(a.state.B)[order], atol=1e-9)


def test_order_of_samples_matters_with_fourier_only():
    """Shuffling the samples is the same problem under a basis that is shuffled along, and another under the DFT."""
    views, mask = random_incomplete(10, (6, 20), 3)
    shuffle = np.random.default_rng(0).permutation(10)
    basis = orthonormal(0, 10, 10)
    a = solve_small(jj.make_problem(views, mask), HYPER, transform=Orthonormal(jnp.asarray(basis)))
    shuffled = jj.make_problem([x[shuffle] for x in views], mask[shuffle])
    b = solve_small(shuffled, HYPER, transform=Orthonormal(jnp.asarray(basis[shuffle])))
    np.testing.assert_allclose(b.affinity, np.asarray(a.affinity)[np.ix_(shuffle, shuffle)], atol=1e-9)
    fourier, fourier_shuffled = (solve_small(p, HYPER).affinity for p in (jj.make_problem(views, mask), shuffled))
    assert np.abs(fourier_shuffled - np.asarray(fourier)[np.ix_(shuffle, shuffle)]).max() > 1e-3


def test_uncompressed_wide_view_gives_the_same_result():
    """A rotation of the feature space changes nothing but the identity start, so start both from the SVD."""
    views, mask = random_incomplete(10, (6, 20), 4)
    rotated = [views[0], views[1] @ orthonormal(1, 20, 20)]
    a, b = (solve_small(jj.make_problem(v, mask), HYPER, w_init="svd") for v in (views, rotated))
    np.testing.assert_allclose(a.affinity, b.affinity, atol=1e-8)


def test_complete_data_equal_with_and_without_mask():
    views, _ = random_incomplete(10, (6, 5), 5)
    a = solve_small(jj.make_problem(views), HYPER)
    b = solve_small(jj.make_problem(views, np.ones((10, 2), bool)), HYPER)
    np.testing.assert_array_equal(a.affinity, b.affinity)


def test_one_view_and_latent_dim_above_every_dimension():
    views, _ = random_incomplete(8, (3,), 6)
    result = jj.solve(jj.make_problem(views), HYPER, latent_dim=10, max_iter=60)
    assert np.isfinite(result.affinity).all()
    W = np.asarray(result.state.W[0])
    np.testing.assert_allclose(W.T @ W, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("w_init", ["identity", "svd"])
def test_start_is_the_stated_frame(w_init):
    views, mask = random_incomplete(10, (6, 20), 7)
    problem = jj.make_problem(views, mask)
    W = jj.init(problem, HYPER, latent_dim=3, w_init=w_init).W
    for v, x in enumerate(views):
        unit = (x / np.linalg.norm(x, axis=1, keepdims=True)).T * mask[:, v]
        if w_init == "identity":
            np.testing.assert_allclose(W[v] @ problem.data[v], unit[:3], atol=1e-13)
        else:
            ours = np.linalg.norm(W[v] @ problem.data[v], axis=1)
            np.testing.assert_allclose(ours, np.linalg.svd(unit, compute_uv=False)[:3], atol=1e-12)


# Status -------------------------------------------------------------------------------------------------------------


def status_of(result):
    return jj.Status(int(result.status))


def test_converged_means_both_residuals_below_tol(small):
    result = solve_small(small, HYPER, max_iter=120)
    assert status_of(result) is jj.Status.CONVERGED
    done = int(result.n_iter)
    worst = np.maximum(*result.history)
    assert done < 120
    assert worst[done - 1] < 1e-5 <= worst[done - 2]
    assert np.isnan(worst[done:]).all()
    state = result.state
    assert np.abs(state.G - state.B - state.P).max() < 1e-5
    frames = np.einsum("vkr,vlr->vkl", state.W, state.W)
    np.testing.assert_allclose(frames, np.broadcast_to(np.eye(4), frames.shape), atol=1e-12)


def test_max_iter_and_empty_and_objective(small):
    result = solve_small(small, HYPER, max_iter=30)
    assert status_of(result) is jj.Status.MAX_ITER
    assert int(result.n_iter) == 30
    value = np.linalg.norm(result.state.E, axis=1).sum() + 0.05 * np.abs(result.state.P).sum()
    spectrum = np.fft.fft(result.state.B, axis=-1)
    value += 0.5 * np.linalg.svd(np.moveaxis(spectrum, -1, 0), compute_uv=False).sum() / 12
    np.testing.assert_allclose(result.objective, value, rtol=1e-10)
    empty = solve_small(small, HYPER._replace(lam=1e9), max_iter=200)
    assert status_of(empty) is jj.Status.EMPTY
    assert not np.asarray(empty.affinity).any()


@pytest.mark.parametrize("field", jj.Hyper._fields)
def test_nonfinite_hyper_parameter_never_converges(small, field):
    if field == "tol":
        result = solve_small(small, HYPER._replace(tol=np.nan), max_iter=120)
        assert status_of(result) is jj.Status.MAX_ITER
        return
    result = solve_small(small, HYPER._replace(**{field: np.nan}))
    assert status_of(result) is jj.Status.NONFINITE
    assert int(result.n_iter) <= 2


def test_nonfinite_data_and_divergence_end_as_nonfinite(small):
    broken = small.data.at[1, 0, 3].set(jnp.nan)
    result = solve_small(jj.Problem(broken, small.mask, small.bases), HYPER)
    assert status_of(result) is jj.Status.NONFINITE
    assert status_of(solve_small(small, HYPER._replace(rho=0.0))) is jj.Status.NONFINITE


def test_one_entry_that_is_not_finite_is_noticed(small):
    """The compiled maximum of the residuals may pass over it."""
    state = solve_small(small, HYPER, max_iter=29).state
    broken = admm.begin(state._replace(B=state.B.at[1, 2, 3].set(jnp.nan)), 30)
    assert jj.Status(int(admm.finish(broken, HYPER, None, 30, "mean").status)) is jj.Status.NONFINITE


# Options ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "X"}, "variant must be one of 'full', 'N', 'B', 'O', got 'X'"),
        ({"order": "code"}, "order must be one of"),
        ({"norm_scale": "max"}, "norm_scale must be one of"),
        ({"w_init": "random"}, "w_init must be one of"),
        ({"latent_dim": None}, "needs latent_dim >= 1, got None"),
        ({"latent_dim": 0}, "needs latent_dim >= 1, got 0"),
        ({"max_iter": 0}, "max_iter must be at least 1, got 0"),
    ],
)
def test_bad_options_are_named(small, options, message):
    with pytest.raises(ValueError, match=message):
        jj.solve(small, HYPER, **({"latent_dim": 2, "max_iter": 5} | options))


def test_init_of_another_problem_is_an_error(small):
    other = jj.make_problem(random_incomplete(9, (4, 4, 4), 0)[0])
    state = jj.init(other, HYPER, latent_dim=4)
    with pytest.raises(ValueError, match=r"init.W is float64\(3, 4, 4\), but this problem needs float64\(3, 4, "):
        solve_small(small, HYPER, init=state)


def test_going_on_from_a_state_equals_one_run(small):
    first = solve_small(small, HYPER, max_iter=15)
    second = solve_small(small, HYPER, init=first.state)
    straight = solve_small(small, HYPER)
    np.testing.assert_array_equal(second.affinity, straight.affinity)
    np.testing.assert_array_equal(second.history.fit_residual[15:], straight.history.fit_residual[15:])
    assert np.isnan(second.history.fit_residual[:15]).all()


# Compilation, batching, cost ----------------------------------------------------------------------------------------


def test_one_compilation_serves_all_hyper_parameters(small):
    solve_small(small, HYPER)
    before = admm._solve._cache_size()
    for hyper in (
        jj.Hyper(lam=2, theta=np.float32(0.1)),
        jj.Hyper(lam=jnp.asarray(3.0), theta=0.1, rho=1e-2, rho_max=10, growth=2, tol=1e-3),
    ):
        solve_small(small, hyper)
    assert admm._solve._cache_size() == before


@pytest.mark.parametrize("variant", ["full", "O"])
def test_vmap_over_hyper_parameters_equals_single_solves(small, variant):
    grid = np.array(list(itertools.product([0.1, 0.5, 100.0], [0.05, 0.5])))
    hypers = jj.Hyper(
        lam=jnp.asarray(grid[:, 0]), theta=jnp.asarray(grid[:, 1]), rho=jnp.full(6, 1e-3), rho_max=jnp.full(6, 1e6),
        growth=jnp.linspace(1.2, 1.5, 6), tol=jnp.full(6, 1e-5),
    )  # fmt: skip
    run = partial(solve_small, variant=variant, max_iter=90)
    batch = jax.vmap(lambda hyper: run(small, hyper))(hypers)
    for i in range(6):
        single = run(small, jj.Hyper(*(x[i] for x in hypers)))
        assert int(batch.status[i]) == int(single.status)
        assert int(batch.n_iter[i]) == int(single.n_iter)
        np.testing.assert_allclose(batch.affinity[i], single.affinity, atol=1e-10)
    assert len(set(np.asarray(batch.n_iter))) > 1


def test_vmap_over_masks_equals_single_solves():
    views, _ = random_incomplete(10, (6, 5), 8)
    masks = jnp.asarray(np.stack([random_incomplete(10, (6, 5), seed)[1] for seed in range(3)]))
    complete = jj.make_problem(views)
    batch = jax.jit(jax.vmap(lambda mask: solve_small(complete.restrict(mask), HYPER).affinity))(masks)
    for i, mask in enumerate(masks):
        single = solve_small(jj.make_problem(views, np.asarray(mask)), HYPER).affinity
        np.testing.assert_allclose(batch[i], single, atol=1e-9)


def test_jit_equals_eager_step(small):
    hyper = admm.as_dtype(HYPER, jnp.float64)
    state = jj.init(small, hyper, latent_dim=4)
    for _ in range(30):
        with jax.disable_jit():
            eager, info = jj.step(small, hyper, state)
        state, jitted_info = jj.step(small, hyper, state)
        np.testing.assert_allclose(info, jitted_info, atol=1e-10)
        for a, b in zip(eager, state, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)


def blank_problem(n):
    data = jnp.asarray(np.random.default_rng(0).normal(size=(3, 30, n)))
    return jj.Problem(data, jnp.ones((3, n), bool), (None, None, None))


def all_arrays(jaxpr):
    for equation in jaxpr.eqns:
        yield from (variable.aval for variable in equation.outvars)
        for parameter in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from all_arrays(inner)


@pytest.mark.parametrize("order", ["paper", "reference"])
def test_no_array_above_the_size_of_the_graph(order):
    n = 64
    problem = blank_problem(n)
    run = partial(jj.solve, latent_dim=10, max_iter=5, order=order)
    jaxpr = jax.make_jaxpr(lambda hyper: run(problem, hyper))(HYPER)
    sizes = [a.size * a.dtype.itemsize for a in all_arrays(jaxpr.jaxpr)]
    assert len(sizes) > 100
    own = 3 * n * n * 8
    half_spectrum = 3 * n * (n // 2 + 1) * 16
    assert max(sizes) <= max(own, half_spectrum)


@pytest.mark.parametrize("order", ["paper", "reference"])
def test_work_grows_with_the_square_of_n(order):
    """Doubling n multiplies the operations of a step by about 4; one n x n factorisation or product would make it 8."""

    def flops(n):
        problem = blank_problem(n)
        state = jj.init(problem, HYPER, latent_dim=10)
        return jax.jit(partial(jj.step, order=order)).lower(problem, HYPER, state).compile().cost_analysis()["flops"]

    ratio = flops(1024) / flops(512)
    assert 3.5 < ratio < 4.4


def test_memory_of_the_compiled_solve_is_a_few_arrays_of_the_size_of_the_graph():
    """Also what the jaxpr does not show: workspaces and outputs of LAPACK calls."""
    n = 512
    problem = blank_problem(n)
    options = {"latent_dim": 10, "max_iter": 5, "variant": "full", "order": "paper", "norm_scale": "mean"}
    hyper = admm.as_dtype(HYPER, jnp.float64)
    compiled = admm._solve.lower(problem, hyper, None, None, w_init="identity", **options).compile()
    memory = compiled.memory_analysis()
    assert memory.temp_size_in_bytes + memory.output_size_in_bytes < 7 * 3 * n * n * 8
