"""Sweeps: equal to separate runs, bounded, resumable, on many devices, of any method."""

import csv
import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import jpltd_jax as jj
from jpltd_jax.cli import main, parser
from jpltd_jax.loop import Loop
from jpltd_jax.methods import jpltd
from jpltd_jax.quality import quality
from jpltd_jax.sweeps import listed, merge_stores, plan, trunk
from jpltd_jax.sweeps import run as running
from jpltd_jax.sweeps.store import append_rows, read_rows
from tests.strategies import AS_USERS, random_incomplete

CLASSES = np.arange(12) % 2
LAM, THETA = (0.01, 0.1, 0.5, 1.0, 2.0, 1e5), (0.01, 0.05, 0.1, 1.0)
SMALL = replace(jj.PUBLISHED, latent_dim=4)
MAX_ITER = 40
KEY = jax.random.key(0)


def make_small(dtype=np.float64):
    return jj.make_problem(*random_incomplete(12, (6, 20, 5), 0), dtype=dtype)


@pytest.fixture(scope="module")
def small():
    with jax.enable_x64(True):
        return make_small()


def grid_of(axes, config=SMALL, max_iter=MAX_ITER):
    return jj.grid(axes, config=config, max_iter=max_iter)


FULL = {"lam": LAM, "theta": THETA}


def run(problem, grid, *, devices=1, chunk=None, memory=None, progress=False, **changes):
    how = jj.Run(chunk=chunk, memory=memory, devices=jax.devices()[:devices], progress=progress)
    options = {"n_clusters": 2, "y": CLASSES, "key": KEY, "run": how} | changes
    return jj.sweep(problem, grid, **options)


def alone(problem, row, config=SMALL, max_iter=MAX_ITER, n_clusters=2):
    """The same configuration by a call of its own."""
    hyper = jj.Hyper(*(row[name] for name in jj.Hyper._fields))
    config = replace(config, latent_dim=row.get("latent_dim", config.latent_dim))
    key = jax.random.fold_in(KEY, row["seed"])
    return jj.cluster(key, problem, hyper, n_clusters, config, loop=Loop(max_iter=max_iter)), hyper


def assert_row_is(row, found, atol):
    solution = found.solution
    last = int(solution.n_iter) - 1
    assert row["status"] == solution.status.name
    assert row["n_iter"] == last + 1
    np.testing.assert_allclose(row["fit"], solution.history.fit[last], atol=atol)
    np.testing.assert_allclose(row["split"], solution.history.split[last], atol=atol)


def without_timing(rows):
    return [{name: x for name, x in row.items() if name != "seconds"} for row in rows]


# Equality with separate runs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        replace(SMALL, updates="reference", transform="graph"),
        replace(SMALL, variant="N"),
        replace(SMALL, variant="B", norm="sum"),
    ],
    ids=["published", "reference-graph", "N", "B-sum"],
)
def test_equals_separate_runs(small, config):
    axes = FULL | {"lam": [x / 12 for x in LAM]} if config.norm == "sum" else FULL
    result = run(small, grid_of(axes, config))
    assert len(result.rows) == result.total == 24
    data = jpltd.prepare(small, 2, config)
    objective_of = jax.jit(jpltd.objective)
    for row in result.rows:
        found, hyper = alone(small, row, config)
        assert_row_is(row, found, 1e-12)
        objective = objective_of(data, hyper, found.solution.state)
        rounding = 1e-12 if AS_USERS else 1e-8
        np.testing.assert_allclose(row["objective"], objective, rtol=rounding, atol=rounding)
        if row["status"] == "EMPTY":
            assert np.isnan(row["accuracy"])
            continue
        np.testing.assert_array_equal(row["labels"], found.labels)
        assert row["accuracy"] == float(jj.metrics.accuracy(CLASSES, found.labels))
    assert {row["status"] for row in result.rows} >= {"MAX_ITER", "EMPTY"}


def test_thinned_affinities_under_masks(small):
    masks = np.stack([np.ones((12, 3), bool), np.arange(36).reshape(12, 3) % 5 > 0])
    config = jj.Config(latent_dim=4, n_neighbors=4, n_reach=1, n_kept=2)
    axes = {"lam": (0.1, 0.5), "theta": 0.05, "mask": [0, 1]}
    result = run(small, grid_of(axes, config, 20), masks=masks, n_clusters=4)
    agreement = []
    for row in result.rows:
        problem = small.restrict(jnp.asarray(masks[row["mask"]]))
        np.testing.assert_array_equal(row["labels"], alone(problem, row, config, 20, 4)[0].labels)
        for dropped in ({"n_kept": None}, {"n_reach": None}):
            other = alone(problem, row, replace(config, **dropped), 20, 4)[0].labels
            agreement.append(adjusted_rand_score(row["labels"], other))
    assert min(agreement[::2]) < 1, "n_kept must matter here"
    assert min(agreement[1::2]) < 1, "n_reach must matter here"


def test_partitions_are_judged_without_labels(small):
    """Every row has the modularity and the score of the partition that was taken; the best one needs no classes."""
    config = jj.Config(latent_dim=4, n_neighbors=4)
    axes = {"lam": (0.1, 0.5, 1e9), "theta": (0.05, 0.1), "seed": [0, 4]}
    result = run(small, grid_of(axes, config, 20), y=None, n_clusters=3)
    graphs = jj.graphs.view_graphs(small, 4, config.share / 3)
    usable = [row for row in result.rows if row["status"] != "EMPTY"]
    assert len(usable) == 8
    for row in result.rows:
        if row["status"] == "EMPTY":
            assert np.isnan([row["modularity"], row["score"]]).all()
            continue
        expected = quality(small, graphs, jnp.asarray(row["labels"]), 3)
        np.testing.assert_allclose(row["modularity"], expected.modularity, rtol=1e-10)
        np.testing.assert_allclose(row["score"], expected.score, rtol=1e-10)
    scores = [row["score"] for row in usable]
    assert len(set(scores)) > 1, "the choice must matter here"
    assert result.best("score")["score"] == max(scores)
    assert {"modularity", "score"} <= set(result.to_pandas().columns)


def test_a_method_that_does_not_judge_has_no_score(small):
    result = run(small, grid_of({"lam": 0.1, "theta": 0.05}), y=None)
    assert np.isnan(result.rows[0]["score"])
    with pytest.raises(ValueError, match="no configuration has a 'score': this method does not judge"):
        result.best("score")


def test_float32_is_bit_for_bit():
    """At XLA's own settings, a pass of .ci/run; else up to rounding."""
    problem = make_small(np.float32)
    for row in run(problem, grid_of(FULL)).rows:
        assert_row_is(row, alone(problem, row)[0], 0 if AS_USERS else 200 * np.finfo(np.float32).eps)


def test_shared_iterations_are_made_once(small, monkeypatch):
    made, starts = [], []
    step, leaves = trunk.shared_step, trunk.leaves
    monkeypatch.setattr(trunk, "shared_step", lambda *a: made.append(int(a[3].n_iter)) or step(*a))

    def watched(*arguments):
        for carry, solve in leaves(*arguments):
            starts.append(int(carry.n_iter))
            yield carry, solve

    monkeypatch.setattr(running, "leaves", watched)
    run(small, grid_of(FULL))
    assert len(starts) == 24
    own = sum(MAX_ITER - start for start in starts)
    assert len(made) + own < 0.6 * 24 * MAX_ITER
    assert min(starts) > 0


def test_a_converging_grid_stops_where_the_runs_do(small):
    axes = {"lam": [0.5, 1e5], "theta": [0.05, 1e5], "tol": [1e-5, 0.3]}
    result = run(small, grid_of(axes, max_iter=200))
    for row in result.rows:
        assert_row_is(row, alone(small, row, max_iter=200)[0], 1e-12)
    assert {row["status"] for row in result.rows} == {"CONVERGED", "EMPTY"}


def test_latent_dim_varies_inside_one_program(small, monkeypatch):
    programs = []
    compiled = plan.compiled
    monkeypatch.setattr(plan, "compiled", lambda *a: programs.append(compiled(*a)) or programs[-1])
    trunk.shared_step.clear_cache()
    axes = {"lam": [0.1, 0.5], "theta": [0.05, 0.1], "latent_dim": (1, 4, 30)}
    result = run(small, grid_of(axes))
    assert len(set(map(id, programs))) == 1
    assert trunk.shared_step._cache_size() == 1
    for row in result.rows:
        assert_row_is(row, alone(small, row)[0], 1e-9)


@pytest.mark.parametrize("start", ["identity", "svd"])
def test_inactive_rows_stay_zero(small, start):
    """A smaller latent_dim in arrays of the larger one's shape is the same iteration."""
    hyper = jj.Hyper(lam=0.1, theta=0.05)
    wide, plain = (jpltd.prepare(small, 2, replace(SMALL, start=start, latent_dim=k)) for k in (6, 4))
    cut = jpltd.JPLTD.resize["latent_dim"](wide, jnp.asarray(4))
    states = [jpltd.init(KEY, data, hyper) for data in (cut, plain)]
    for _ in range(25):
        states = [jpltd.step(data, hyper, state)[0] for data, state in zip((cut, plain), states, strict=True)]
    state, expected = states
    for name in ("W", "E", "J1"):
        assert not np.asarray(getattr(state, name))[:, 4:].any()
    np.testing.assert_allclose(state.B, expected.B, atol=1e-9)
    np.testing.assert_allclose((state.W @ small.data)[:, :4], expected.W @ small.data, atol=1e-9)


def test_masks_and_other_fields(small):
    mask = np.asarray(small.mask.T)
    masks = np.stack([mask, mask])
    masks[1, :4, 0] &= ~mask[:4, 1:].any(axis=1)
    assert (masks[0] != masks[1]).any()
    axes = {"lam": [0.1, 0.5], "theta": 0.05, "rho": [1e-3, 1e-2], "growth": [1.2, 1.3], "mask": [0, 1]}
    result = run(small, grid_of(axes), masks=masks)
    for row in result.rows:
        problem = small.restrict(jnp.asarray(masks[row["mask"]]))
        assert_row_is(row, alone(problem, row)[0], 1e-12)
    first, second = (next(r for r in result.rows if r["mask"] == i) for i in (0, 1))
    assert first["objective"] != second["objective"]


def test_seeds_share_a_solve(small, monkeypatch):
    solved = []
    inputs = running._Work.inputs
    monkeypatch.setattr(
        running._Work, "inputs", lambda self, d, c, s: solved.append(len(s.rows)) or inputs(self, d, c, s)
    )
    result = run(small, grid_of({"lam": 0.1, "theta": 0.05, "seed": [3, 1, 7]}))
    assert set(solved) == {3}
    for row in result.rows:
        np.testing.assert_array_equal(row["labels"], alone(small, row)[0].labels)
    assert [row["seed"] for row in result.rows] == [3, 1, 7]


def test_a_list_is_not_a_product(small):
    axes = {"lam": [0.1, 0.5], "theta": [0.05, 0.1]}
    some = run(small, listed(axes, config=SMALL, max_iter=MAX_ITER))
    every = run(small, grid_of(axes))
    for a, b in zip(without_timing(some.rows), without_timing([every.rows[0], every.rows[3]]), strict=True):
        for name in ("fit", "split", "objective"):
            np.testing.assert_allclose(a.pop(name), b.pop(name), rtol=0 if AS_USERS else 1e-9)
        assert a == b


# Other methods ------------------------------------------------------------------------------------------------------


def test_options_of_another_method(small):
    """Each value of an option is a program of its own, and a method that starts at random is run for each seed."""
    from jpltd_jax.methods import imvc_cbg

    axes = {"lam": [0.1, 1.0], "n_anchors": [2, 3], "seed": [0, 5]}
    config = imvc_cbg.Config(anchors="random")
    result = run(small, jj.grid(axes, method="imvc_cbg", config=config))
    assert len(result.rows) == 8
    for row in result.rows:
        hyper, own = imvc_cbg.Hyper(lam=row["lam"], tol=row["tol"]), replace(config, n_anchors=row["n_anchors"])
        key = jax.random.fold_in(KEY, row["seed"])
        found = jj.cluster(key, small, hyper, 2, own, method="imvc_cbg")
        np.testing.assert_array_equal(row["labels"], found.labels)
        assert row["n_iter"] == int(found.solution.n_iter)
        np.testing.assert_allclose(row["watched"], found.solution.history[row["n_iter"] - 1], rtol=1e-12)
    starts = {seed: [row["watched"] for row in result.rows if row["seed"] == seed] for seed in (0, 5)}
    assert starts[0] != starts[5]


# Memory -------------------------------------------------------------------------------------------------------------


def test_the_budget_decides_the_chunk(small, monkeypatch):
    plans = []
    monkeypatch.setattr(running, "plan", lambda *a: plans.append(plan.plan(*a)) or plans[-1])
    grid = grid_of({"lam": LAM, "theta": 0.05})
    unbounded = run(small, grid, chunk=6)
    assert plans[-1][1] == 6
    memory = plans[-1][0].memory_analysis()
    budget = memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes
    bounded = run(small, grid, chunk=6, memory=budget)
    program, size = plans[-1]
    memory = program.memory_analysis()
    assert 1 < size < 6
    assert memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes < budget
    for a, b in zip(bounded.rows, unbounded.rows, strict=True):
        assert a["status"] == b["status"]
        np.testing.assert_allclose(a["objective"], b["objective"], rtol=1e-9)
    with pytest.raises(ValueError, match=r"needs \d+ bytes, more than memory=1000"):
        run(small, grid, memory=1000)


# Rows that are no clustering ----------------------------------------------------------------------------------------


def test_broken_configurations_are_rows(small):
    result = run(small, grid_of({"lam": [0.1, np.nan, 1e9], "theta": [0.05, np.nan]}))
    statuses = [row["status"] for row in result.rows]
    assert statuses == ["MAX_ITER", "NONFINITE", "NONFINITE", "NONFINITE", "EMPTY", "NONFINITE"]
    assert [np.isnan(row["accuracy"]) for row in result.rows] == [False, True, True, True, True, True]
    assert result.best("accuracy")["lam"] == 0.1
    with pytest.raises(ValueError, match="no configuration gave a usable affinity"):
        run(small, grid_of({"lam": 1e9, "theta": 1.0})).best()


def test_table(small, tmp_path):
    result = run(small, grid_of({"lam": [0.1, 0.5, 1e9], "theta": [0.05, 0.1]}))
    frame = result.to_pandas()
    assert list(frame["lam"]) == [0.1, 0.1, 0.5, 0.5, 1e9, 1e9]
    assert {"theta", "seed", "status", "n_iter", "nmi", "seconds", "jax", "jpltd_jax", "method"} <= set(frame.columns)
    result.to_csv(tmp_path / "t.csv")
    lines = (tmp_path / "t.csv").read_text().splitlines()
    assert len(lines) == 7
    assert lines[0].startswith("lam,theta,rho")
    result.to_json(tmp_path / "t.json")
    assert [row["nmi"] for row in json.loads((tmp_path / "t.json").read_text())][-1] is None
    curve = result.marginal("nmi", "lam")
    assert list(curve.values) == [0.1, 0.5, 1e9]
    np.testing.assert_allclose(curve.mean[0], frame["nmi"][:2].mean())
    assert curve.best[1] == frame["nmi"][2:4].max()
    assert np.isnan(curve.best[2])
    with pytest.raises(ValueError, match="no 'speed' in the rows"):
        result.best("speed")


BAD = {
    "n_clusters": ({"n_clusters": 13}, "n_clusters must be between 1 and 12"),
    "chunk": ({"chunk": 0}, "chunk must be at least 1"),
    "masks": ({"masks": np.ones((1, 3, 12), bool)}, "masks must be bool"),
    "classes": ({"y": [0, 1]}, "one class for each of the 12 samples"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(small, name):
    changes, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        run(small, grid_of({"lam": 1.0}), **changes)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"lambda": 1.0}, "JPLTD has no parameter 'lambda'; it has lam, theta, .* latent_dim, .* mask, seed"),
        ({"latent_dim": 2.5}, "latent_dim must be integers, got 2.5"),
        ({"latent_dim": 0}, "latent_dim must be at least 1, got 0"),
        ({"lam": -1.0}, "JPLTD: lam must be a float in the range"),
        ({"lam": []}, "lam has no value: give at least one"),
        ({"seed": -1}, "seed must be between 0 and"),
        ({"variant": ["full", "X"]}, "variant must be one of"),
    ],
)
def test_bad_grids(axes, message):
    with pytest.raises(ValueError, match=message):
        jj.grid(axes)


def test_a_mask_that_is_not_there(small):
    with pytest.raises(ValueError, match="mask must be between 0 and 0, got 1"):
        run(small, grid_of({"lam": 1.0, "mask": 1}))


# Long work ----------------------------------------------------------------------------------------------------------


def test_finished_rows_are_not_computed_again(small, tmp_path, monkeypatch):
    store = tmp_path / "rows.jsonl"
    part = run(small, grid_of(FULL | {"lam": LAM[:2]}), store=store)
    assert len(read_rows(store)) == len(part.rows) == 8
    with store.open("a") as file:
        file.write('{"lam": 0.5, "theta"')
    solved = []
    groups = running._groups
    monkeypatch.setattr(running, "_groups", lambda g, i: solved.extend(i) or groups(g, i))
    whole = run(small, grid_of(FULL), store=store)
    assert len(solved) == 16
    assert len(read_rows(store)) == 24
    fresh = run(small, grid_of(FULL))
    for a, b in zip(whole.rows, fresh.rows, strict=True):
        assert set(a) == set(b)
        assert a["labels"] == b["labels"]
        np.testing.assert_allclose(a["objective"], b["objective"], rtol=1e-12)
    solved.clear()
    again = run(small, grid_of(FULL), store=store)
    assert not solved
    assert str(again.rows) == str(whole.rows)


def test_a_store_of_something_else_is_refused(small, tmp_path):
    store = tmp_path / "rows.jsonl"
    axes = {"lam": 0.1, "theta": 0.05}
    grid = grid_of(axes)
    run(small, grid, store=store)
    content = store.read_bytes()
    for other in (grid_of(axes, max_iter=30), grid_of(axes, replace(SMALL, transform="graph"))):
        with pytest.raises(ValueError, match="holds results of another problem"):
            run(small, other, store=store)
    for changes in ({"key": jax.random.key(1)}, {"y": None}):
        with pytest.raises(ValueError, match="holds results of another problem"):
            run(small, grid, store=store, **changes)
    row = json.loads(content)
    store.write_text(json.dumps({name: row[name] for name in row if name != "score"}) + "\n")
    with pytest.raises(ValueError, match="line 1 has no 'score': an earlier version of this package wrote it"):
        run(small, grid, store=store)
    store.write_text("no row\n")
    with pytest.raises(ValueError, match="line 1 is not a row of results"):
        run(small, grid, store=store)
    store.write_bytes(content)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        run(small, grid, store=tmp_path / "none" / "rows.jsonl")


def test_interrupt_keeps_what_is_done(small, tmp_path, monkeypatch):
    store, seen = tmp_path / "rows.jsonl", []
    append = running.append_rows

    def press(path, rows):
        append(path, rows)
        seen.append(1)
        if len(seen) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(running, "append_rows", press)
    part = run(small, grid_of(FULL), store=store)
    assert len(part.rows) == len(read_rows(store)) == 3
    assert part.total == 24


def run_shard(problem, number, store):
    how = jj.Run(devices=jax.devices()[:1], shard=(number, 3))
    return jj.sweep(problem, grid_of(FULL), n_clusters=2, y=CLASSES, key=KEY, store=store, run=how)


def test_three_workers_one_of_which_died_equal_one_run(small, tmp_path, monkeypatch):
    """Each has its own folder, as on machines of its own; the one that died was writing its third row."""
    stores = [tmp_path / str(i) / "rows.jsonl" for i in range(3)]
    for store in stores:
        store.parent.mkdir()
    append, written = running.append_rows, []

    def die(path, rows):
        written.append(path)
        if len(written) < 3:
            return append(path, rows)
        with path.open("a") as file:
            file.write('{"lam": 0.5, "theta"')
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(running, "append_rows", die)
        with pytest.raises(SystemExit):
            run_shard(small, 1, stores[1])
    parts = [run_shard(small, number, store) for number, store in enumerate(stores)]
    assert [len(part.rows) for part in parts] == [part.total for part in parts] == [8, 8, 8]
    files = [store.with_name(f"rows.jsonl.{i}of3") for i, store in enumerate(stores)]
    assert written == [files[1]] * 3
    assert [len(read_rows(file)) for file in files] == [8, 8, 8]
    with files[0].open("a") as file:
        file.write('{"lam": 0.1')
    merged = tmp_path / "rows.jsonl"
    assert merge_stores(merged, [*files, files[0]]) == 24
    content = merged.read_bytes()
    assert merge_stores(merged, files) == 24
    assert merged.read_bytes() == content
    monkeypatch.setattr(running, "_groups", lambda grid, missing: [] if not missing else pytest.fail("computed again"))
    found = run(small, grid_of(FULL), store=merged).rows
    monkeypatch.undo()
    for a, b in zip(found, run(small, grid_of(FULL)).rows, strict=True):
        assert set(a) == set(b)
        assert (a["status"], a["n_iter"], a["labels"]) == (b["status"], b["n_iter"], b["labels"])
        np.testing.assert_allclose(a["objective"], b["objective"], rtol=1e-12)


def test_workers_with_one_store_have_their_own_files_and_know_of_each_other(small, tmp_path, monkeypatch):
    store = tmp_path / "rows.jsonl"
    for number in range(2):
        run_shard(small, number, store)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl.0of3", "rows.jsonl.1of3"]
    solved = []
    groups = running._groups
    monkeypatch.setattr(running, "_groups", lambda g, i: solved.extend(i) or groups(g, i))
    assert len(run(small, grid_of(FULL), store=store).rows) == 24
    assert solved == list(range(2, 24, 3))


def test_what_cannot_be_merged_is_refused(tmp_path):
    one, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    append_rows(one, [{"lam": 0.1, "status": "CONVERGED", "fingerprint": "a"}])
    with pytest.raises(FileNotFoundError, match=r"there is no store .*2\.jsonl"):
        merge_stores(tmp_path / "all.jsonl", [one, two])
    append_rows(two, [{"lam": 0.1, "status": "CONVERGED", "fingerprint": "b"}])
    with pytest.raises(ValueError, match=r"2\.jsonl and .*1\.jsonl hold results of different sweeps"):
        merge_stores(tmp_path / "all.jsonl", [one, two])
    assert not (tmp_path / "all.jsonl").exists()


@pytest.mark.parametrize(
    ("shard", "message"), [((3, 3), "worker must be between 0 and 2"), ((0, 0), "workers must be")]
)
def test_a_shard_that_is_not_there(shard, message):
    with pytest.raises(ValueError, match=message):
        jj.Run(shard=shard)


def test_progress_line(small, capsys):
    run(small, grid_of({"lam": [0.1, 0.5], "theta": 0.05}), progress=True)
    printed = capsys.readouterr().err
    assert "2/2" in printed
    assert "best accuracy" in printed


# Devices ------------------------------------------------------------------------------------------------------------


def test_four_devices_equal_one_without_collectives(small, monkeypatch):
    texts = []
    compiled = plan.compiled
    monkeypatch.setattr(plan, "compiled", lambda *a: texts.append(compiled(*a).as_text()) or compiled(*a))
    grid = grid_of({"lam": [0.01, 0.1, 0.5, 1e5], "theta": [0.05, 0.1, 1.0]})
    many = run(small, grid, devices=4)
    assert "num_partitions=4" in texts[0]
    assert not re.findall(r" (?:all-|collective-|reduce-scatter|send|recv)[\w\-]*\(", texts[0])
    one = run(small, grid)
    for a, b in zip(many.rows, one.rows, strict=True):
        assert (a["status"], a["n_iter"], a["labels"]) == (b["status"], b["n_iter"], b["labels"])
        np.testing.assert_allclose(a["objective"], b["objective"], rtol=1e-12)


# The command line ---------------------------------------------------------------------------------------------------


def test_command_line(tmp_path, capsys):
    data = jj.datasets.make_blobs(1, n_samples=40, dims=(8, 12))
    file, out, store = tmp_path / "blobs.npz", tmp_path / "sweep.csv", tmp_path / "sweep.jsonl"
    jj.datasets.save_npz(file, data._replace(mask=jj.missing.paper_protocol(0, 40, 2, 0.5)))
    arguments = ["sweep", str(file), "--lam", "0.5", "1", "1e9", "--theta", "0.1", "--latent-dim", "3", "5"]
    arguments += ["--out", str(out), "--store", str(store)]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert "6 configurations, 2 empty or not finite" in printed.out
    assert "% at lam=0.5 theta=0.1 latent_dim=3 (chosen by the labels)" in printed.out
    assert printed.err == ""
    assert len(out.read_text().splitlines()) == 7
    assert len(read_rows(store)) == 6
    assert main([*arguments, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert len(read_rows(store)) == 6
    assert main([*arguments, "--max-iter", "20"]) == 2
    assert "holds results of another problem" in capsys.readouterr().err


def test_command_line_without_labels(tmp_path, capsys, monkeypatch):
    """The best by the score, on the screen, in the table and in the report; nothing for the published method."""
    monkeypatch.chdir(tmp_path)
    data = jj.datasets.make_blobs(1, n_samples=40, dims=(8, 12))
    mask = jj.missing.paper_protocol(0, 40, 2, 0.5)
    jj.datasets.save_npz("bare.npz", data._replace(mask=mask, labels=None))
    arguments = ["sweep", "bare.npz", "--n-clusters", "3", "--lam", "0.5", "1", "--theta", "0.1", "--latent-dim", "5"]
    assert main([*arguments, "--report", "sweep.html"]) == 0
    printed = capsys.readouterr().out
    with open("sweep.csv", newline="") as file:
        best = max(csv.DictReader(file), key=lambda row: float(row["score"]))
    assert f"best score {float(best['score']):.3f} at lam={float(best['lam']):g} theta=0.1 latent_dim=5" in printed
    assert "Ranked by the score" in Path("sweep.html").read_text()
    arguments[arguments.index("--lam") + 1 : arguments.index("--theta")] = ["5"]
    assert main([*arguments, "--preset", "published", "--store", "p.jsonl", "--report", "published.html"]) == 0
    assert "without labels the published method has nothing to rank by" in capsys.readouterr().out
    assert "the configurations are not ranked" in Path("published.html").read_text()


def test_the_papers_grids_are_the_default():
    arguments = parser().parse_args(["sweep", "x.npz"])
    assert [len(x) for x in (arguments.lam, arguments.theta, arguments.latent_dim)] == [9, 8, 10]
