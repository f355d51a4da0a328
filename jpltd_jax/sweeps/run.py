"""Whole grids: what configurations have in common is computed once, the rest on all devices."""

import itertools
import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import Array, Bool

from jpltd_jax import metrics
from jpltd_jax._host import deferred_interrupt, fingerprint, progress_line
from jpltd_jax._types import Key, check_count, check_key
from jpltd_jax.loop import Carry, Status, as_dtype, check_hyper, floating_dtype, history_length, prepare
from jpltd_jax.problem import Problem
from jpltd_jax.sweeps.grid import Grid
from jpltd_jax.sweeps.plan import Outcome, Run, Task, available_memory, plan
from jpltd_jax.sweeps.store import JUDGED, USABLE, Row, SweepResult, append_rows, decode, encode, open_store
from jpltd_jax.sweeps.trunk import Solve, leaves

__all__ = ["sweep"]


class _Group(NamedTuple):
    """Solves that share the options of the program and the mask."""

    config: Any
    mask: int
    solves: list[Solve]


def _groups(grid: Grid, indices: list[int]) -> list[_Group]:
    """The solves of the given configurations; one mask after the other for each set of options."""
    method = grid.method
    every = {name: {getattr(one.config, name) for one in grid.configurations} for name in method.resize}
    inside = {name: max(values) for name, values in every.items() if len(values) > 1}
    solves: dict[tuple[Any, ...], Solve] = {}
    for i in indices:
        one = grid.configurations[i]
        sizes = {name: getattr(one.config, name) for name in inside}
        own_seed = one.seed if method.random_start else None
        key = (replace(one.config, **inside), one.mask, encode(one.hyper._asdict()), *sizes.values(), own_seed)
        solve = solves.setdefault(key, Solve(one.hyper, sizes, [], []))
        solve.rows.append(i)
        solve.seeds.append(one.seed)
    groups: dict[tuple[Any, int], list[Solve]] = {}
    for (config, mask, *_), solve in solves.items():
        groups.setdefault((config, mask), []).append(solve)
    made = [_Group(config, mask, members) for (config, mask), members in groups.items()]
    configs = list(dict.fromkeys(group.config for group in made))
    return sorted(made, key=lambda group: (configs.index(group.config), group.mask))


class _Work(NamedTuple):
    """What the groups of a sweep have in common."""

    problem: Problem
    task: Task
    masks: Bool[np.ndarray, "c n m"] | None
    key: Key
    n_seeds: int
    run: Run

    def inputs(self, dtype: jnp.dtype, carry: Carry, solve: Solve) -> tuple[Any, ...]:
        """Hyper, carry, sizes and keys of one solve."""
        seeds = solve.seeds + solve.seeds[:1] * (self.n_seeds - len(solve.seeds))
        folded = jax.vmap(lambda seed: jax.random.fold_in(self.key, seed))(jnp.asarray(seeds, jnp.uint32))
        keys = jax.vmap(lambda key: jax.random.split(key)[1])(folded)
        sizes = {name: jnp.asarray(value) for name, value in solve.sizes.items()}
        return as_dtype(solve.hyper, dtype), carry, sizes, keys

    def outcomes(self, group: _Group) -> Iterator[tuple[list[Solve], list[Outcome]]]:
        """Solves of a group and what came of them, as many at once as fit."""
        problem = self.problem if self.masks is None else self.problem.restrict(jnp.asarray(self.masks[group.mask]))
        data = prepare(self.task.method, problem, self.task.n_clusters, group.config)
        dtype = floating_dtype(data)
        length = history_length(self.task.max_iter)
        waiting = leaves(self.task.method, data, group.solves, self.key, self.task.max_iter, length)
        first = next(waiting)
        waiting = itertools.chain([first], waiting)
        devices = tuple(jax.local_devices() if self.run.devices is None else self.run.devices)
        most = -(-len(group.solves) // len(devices))
        one_by_one = self.run.chunk is None and devices[0].platform == "cpu"
        wanted = 1 if one_by_one else min(most, self.run.chunk or most)
        budget = available_memory(devices[0]) if self.run.memory is None else self.run.memory
        example = jax.eval_shape(lambda: (data, *self.inputs(dtype, *first)))
        program, size = plan(self.task, devices, example, wanted, budget)
        common, split = program.input_shardings[0][0], program.input_shardings[0][-1]
        shared = jax.device_put(data, jax.tree.leaves(common)[0])
        while batch := list(itertools.islice(waiting, size * len(devices))):
            inputs = [self.inputs(dtype, carry, solve) for carry, solve in batch]
            hyper, carry, *rest = inputs[0]
            idle = (hyper, carry._replace(code=jnp.full_like(carry.code, Status.NONFINITE)), *rest)
            stacked = jax.tree.map(lambda *x: jnp.stack(x), *inputs, *[idle] * (size * len(devices) - len(inputs)))
            found = jax.tree.map(np.asarray, program(shared, *jax.device_put(stacked, split)))
            yield [s for _, s in batch], [jax.tree.map(lambda x, i=i: x[i], found) for i in range(len(batch))]


def _row(outcome: Outcome, seed: int, classes: np.ndarray | None, n_clusters: int) -> Row:
    """Status, what was watched, the objective, what the views say of the partition and, with classes, the scores."""
    labels = outcome.labels[seed]
    status = Status(int(outcome.code)).name
    watched = outcome.watched._asdict() if hasattr(outcome.watched, "_asdict") else {"watched": outcome.watched}
    row = {"status": status, "n_iter": int(outcome.n_iter)} | {name: x.item() for name, x in watched.items()}
    if outcome.objective is not None:
        row["objective"] = outcome.objective.item()
    judged = [math.nan] * len(JUDGED)
    if outcome.judged is not None and status in USABLE:
        judged = outcome.judged[seed].tolist()
    row |= dict(zip(JUDGED, judged, strict=True))
    if classes is not None:
        values = metrics.scores(classes, labels, n_labels=max(n_clusters, int(classes.max()) + 1))
        row |= {name: float(x) if status in USABLE else math.nan for name, x in values._asdict().items()}
    return row


def _gather(rows: dict[int, Row]) -> dict[int, Row]:
    """The rows of all processes."""
    if jax.process_count() == 1:
        return rows
    text = json.dumps({str(i): encode(row) for i, row in rows.items()}).encode()
    lengths = np.asarray(multihost_utils.process_allgather(np.array(len(text))))
    padded = np.frombuffer(text.ljust(int(lengths.max())), np.uint8)
    texts = np.asarray(multihost_utils.process_allgather(padded))
    return {int(i): decode(line) for each in texts for i, line in json.loads(each.tobytes()).items()}


def _result(rows: dict[int, Row], total: int) -> SweepResult:
    gathered = _gather(rows)
    return SweepResult([gathered[i] for i in sorted(gathered)], total)


def _checked_masks(masks: Any, grid: Grid, problem: Problem) -> Bool[np.ndarray, "c n m"] | None:
    n, m = problem.n_samples, problem.n_views
    hidden = None if masks is None else np.asarray(masks)
    if hidden is not None and (hidden.shape[1:] != (n, m) or hidden.dtype != np.bool_):
        raise ValueError(f"masks must be bool (number, {n}, {m}), got {hidden.dtype} {hidden.shape}")
    if hidden is not None and len(hidden) == 0:
        raise ValueError("masks holds no mask: give at least one, or leave it out")
    last = 0 if hidden is None else len(hidden) - 1
    for one in grid.configurations:
        check_count("mask", one.mask, last, least=0)
    if hidden is not None:
        nowhere = np.argwhere(~(hidden & np.asarray(problem.mask).T).any(axis=2))
        if len(nowhere):
            raise ValueError(f"masks[{nowhere[0, 0]}] hides sample {nowhere[0, 1]} in all views")
    return hidden


def _checked_classes(y: metrics.Labels | None, n: int) -> np.ndarray | None:
    if y is None:
        return None
    classes = np.asarray(y)
    if classes.shape != (n,):
        raise ValueError(f"y must have one class for each of the {n} samples, got shape {classes.shape}")
    unknown = np.flatnonzero([one is None or type(one).__name__ == "NAType" or one != one for one in classes.tolist()])
    if len(unknown):
        raise ValueError(f"y has no class for sample {unknown[0]}, but {classes[unknown[0]]}")
    return np.unique(classes, return_inverse=True)[1].astype(np.int32)


def _identity(problem: Problem, grid: Grid, n_clusters: int, *arrays: Any) -> str:
    """Fingerprint of all that the rows depend on and do not say themselves."""
    default = grid.method.Config()
    config = replace(grid.configurations[0].config, **{name: getattr(default, name) for name in grid.options})
    options = {field.name: getattr(config, field.name) for field in fields(config)}
    described = f"{grid.method.name} {options} {n_clusters} {grid.max_iter}"
    return fingerprint((problem, arrays, np.frombuffer(described.encode(), np.uint8)))


def sweep(
    problem: Problem,
    grid: Grid,
    *,
    n_clusters: int,
    key: Key,
    y: metrics.Labels | None = None,
    masks: Bool[np.ndarray | Array, "c n m"] | None = None,
    store: str | os.PathLike[str] | None = None,
    run: Run = Run(),  # noqa: B008
) -> SweepResult:
    """Labels and scores of every configuration of a grid, equal to those of separate :func:`jpltd_jax.cluster` calls.

    Parameters
    ----------
    problem
        From :func:`jpltd_jax.make_problem`.
    grid
        From :func:`jpltd_jax.grid`: of any method.
    n_clusters
        Number of clusters.
    key
        Of ``jax.random``; every configuration's seed is folded into it.
    y
        Known classes, for the scores.
    masks
        (number, n, m): what else to hide; the axis ``"mask"`` of the grid says which one a configuration has.
    store
        File of JSON Lines to which rows are appended as they finish. Rows that it holds are not computed again; a store
        of another problem or of other options is refused, and so is one whose rows lack a column of this version.
    run
        Devices, memory, progress.

    Notes
    -----
    Ctrl-C finishes the running chunk and returns the rows so far. A killed process loses its running chunk.

    A grid of JPLTD is one program for shared iterations and one for the rest, whatever its size, and ``latent_dim`` may
    vary in it. Other options, and those of other methods, need one program per value. With one configuration per device
    and one latent_dim the iterates are those of single runs bit for bit. In batches, and beside larger latent
    dimensions, they differ by rounding, since matrix products are then blocked in another way.

    On a host with several devices the same call uses all of them. On several hosts start one process on each, call
    ``jax.distributed.initialize()`` (with coordinator address, number of processes and index, where the cluster does
    not tell them) and then the same ``sweep``: each process takes a contiguous part of the grid on its own devices and
    all return all rows. Process i > 0 appends to the file ``store`` with ``.i`` behind its name.

    Workers that cannot know of each other (of Ray, Dask or a queue) each take ``Run(shard=(i, k))``, return the rows of
    their own part and append to ``store`` with ``.iofk`` behind its name. One that died is started again and goes on.

    Examples
    --------
    >>> import jax
    >>> import jpltd_jax as jj
    >>> data = jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8))
    >>> grid = jj.grid({"lam": [0.5, 1.0, 1e6], "latent_dim": 5})
    >>> result = jj.sweep(jj.make_problem(data.views), grid, n_clusters=3, y=data.labels, key=jax.random.key(0))
    >>> [row["status"] for row in result.rows]
    ['MAX_ITER', 'MAX_ITER', 'EMPTY']
    >>> result.best("nmi")["nmi"]
    1.0
    >>> result.best("score")["nmi"]  # chosen without labels
    1.0
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must come from jpltd_jax.make_problem, got {type(problem).__name__}")
    if not isinstance(grid, Grid):
        raise TypeError(f"grid must come from jpltd_jax.grid, got {type(grid).__name__}")
    check_key(key)
    n, method = problem.n_samples, grid.method
    check_count("n_clusters", n_clusters, n)
    if problem.mesh is not None:
        raise ValueError("a sweep spreads configurations over devices: give it the problem that is not sharded")
    if not grid.configurations:
        raise ValueError("the grid has no configuration")
    for one in grid.configurations:
        check_hyper(method, one.hyper)
    hidden, classes = _checked_masks(masks, grid, problem), _checked_classes(y, n)
    parameters = grid.parameters()
    raw_key = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    identity = _identity(problem, grid, n_clusters, hidden, classes, raw_key)
    file, known = (None, {}) if store is None else open_store(store, identity, list(parameters[0]), run.shard)
    mine = np.arange(len(parameters)) if run.shard is None else np.arange(len(parameters))[run.shard[0] :: run.shard[1]]
    own = np.array_split(mine, jax.process_count())[jax.process_index()].tolist()
    rows = {i: known[encode(parameters[i])] for i in own if encode(parameters[i]) in known}
    groups = _groups(grid, [i for i in own if i not in rows])
    if not groups:
        return _result(rows, len(mine))

    n_seeds = max(len(solve.rows) for group in groups for solve in group.solves)
    work = _Work(problem, Task(method, n_clusters, grid.max_iter), hidden, key, n_seeds, run)
    versions = {"method": method.name} | _versions(problem)
    show = progress_line(len(own) - len(rows), "sweep") if run.progress else None
    already, clock = len(rows), time.perf_counter()
    with deferred_interrupt() as interrupted, method.precision():
        for batch, outcomes in itertools.chain.from_iterable(map(work.outcomes, groups)):
            elapsed, clock = time.perf_counter() - clock, time.perf_counter()
            finished = {}
            for solve, outcome in zip(batch, outcomes, strict=True):
                for seed, i in enumerate(solve.rows):
                    finished[i] = parameters[i] | _row(outcome, seed, classes, n_clusters) | versions
                    finished[i] |= {"labels": outcome.labels[seed].tolist(), "fingerprint": identity}
            for row in finished.values():
                row["seconds"] = elapsed / len(finished)
            if file is not None:
                append_rows(file, finished.values())
            rows |= finished
            if show is not None:
                metric = "score" if classes is None else "accuracy"
                values = [row[metric] for row in rows.values() if not math.isnan(row[metric])]
                show(len(rows) - already, f"best {metric} {max(values):.3f}" if values else "")
            if interrupted():
                break
    return _result(rows, len(mine))


def _versions(problem: Problem) -> Row:
    return {"jpltd_jax": version("jpltd_jax"), "jax": jax.__version__, "dtype": str(problem.data.dtype)}
