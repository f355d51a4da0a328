"""Whole grids of hyper-parameters: what configurations have in common is computed once, the rest on all devices.

With B = P = 0 an iteration does not see lam and theta, and with P = 0 it does not see theta. So configurations follow
one path until the argument of the shrinkage of B has a singular value above lam / rho, or that of P an entry above
theta / rho; there they part. Departing an iteration early changes nothing but the time, which leaves room for rounding.
"""

import functools
import glob
import hashlib
import itertools
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Int

import jpltd_jax
from jpltd_jax import metrics
from jpltd_jax.admm import (
    Hyper,
    NormScale,
    Order,
    Progress,
    Start,
    Status,
    Variant,
    advance,
    as_dtype,
    begin,
    check_options,
    finish,
    init,
)
from jpltd_jax.chunked import deferred_interrupt, fingerprint_of
from jpltd_jax.estimator import progress_line
from jpltd_jax.graphs import consensus_graph, graph_transform, sparsify, within_reach
from jpltd_jax.problem import Problem
from jpltd_jax.prox import grouped_grams, slice_grams
from jpltd_jax.spectral import Key, spectral_cluster
from jpltd_jax.store import USABLE, Row, SweepResult, append_rows, cut_partial_row, decode, encode, read_rows
from jpltd_jax.transforms import AnyTransform, Fourier, Grouped

Values = float | int | Sequence[float | int] | np.ndarray | Array
"""One number or several."""

MARGIN = 1e-3
"""Configurations part this much, relatively, before they must: far above the rounding of the test."""


class Grid(NamedTuple):
    """Configurations along one leading axis."""

    hyper: Hyper
    latent_dim: Int[np.ndarray, " c"]
    mask: Int[np.ndarray, " c"]
    """Index into the masks given to :func:`sweep`."""
    seed: Int[np.ndarray, " c"]
    """Of k-means: folded into the key given to :func:`sweep`."""

    def parameters(self) -> list[Row]:
        """One dictionary of plain numbers for each configuration."""
        columns = self.hyper._asdict() | {"latent_dim": self.latent_dim, "mask": self.mask, "seed": self.seed}
        rows = zip(*(x.tolist() for x in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]


def _columns(hyper: Hyper, latent_dim: Values, mask: Values, seed: Values) -> Grid:
    """Numbers and arrays broadcast to one axis."""
    floats = [np.asarray(x, np.float64) for x in hyper]
    integers = [np.asarray(x) for x in (latent_dim, mask, seed)]
    for name, x in zip(("latent_dim", "mask", "seed"), integers, strict=True):
        if x.dtype.kind not in "iu":
            raise ValueError(f"{name} must be integers, got dtype {x.dtype}")
    columns = np.broadcast_arrays(np.zeros(1), *floats, *integers)[1:]
    if columns[0].ndim != 1:
        raise ValueError(f"expected numbers and vectors of configurations, got shape {columns[0].shape}")
    return Grid(Hyper(*columns[: len(floats)]), *columns[len(floats) :])  # type: ignore[arg-type]


def grid(
    lam: Values,
    theta: Values,
    *,
    rho: Values = Hyper._field_defaults["rho"],
    rho_max: Values = Hyper._field_defaults["rho_max"],
    growth: Values = Hyper._field_defaults["growth"],
    tol: Values = Hyper._field_defaults["tol"],
    latent_dim: Values = 60,
    mask: Values = 0,
    seed: Values = 0,
) -> Grid:
    """All combinations of the given values, the last argument varying fastest.

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> g = jj.grid([1.0, 2.0], [0.1, 0.5], latent_dim=10)
    >>> g.hyper.lam, g.hyper.theta
    (array([1., 1., 2., 2.]), array([0.1, 0.5, 0.1, 0.5]))
    """
    axes = [np.atleast_1d(np.asarray(x)) for x in (lam, theta, rho, rho_max, growth, tol, latent_dim, mask, seed)]
    columns = [x.ravel() for x in np.meshgrid(*axes, indexing="ij")]
    return _columns(Hyper(*columns[:6]), *columns[6:])


class _Options(NamedTuple):
    max_iter: int
    variant: Variant
    order: Order
    norm_scale: NormScale
    n_clusters: int
    n_init: int
    n_reach: int | None
    n_kept: int | None


class _Solve(NamedTuple):
    """Configurations that differ in the seed of k-means only."""

    hyper: Hyper
    latent_dim: int
    mask: int
    rows: list[int]
    """Their places in the grid."""
    seeds: list[int]


class _Outcome(NamedTuple):
    labels: Int[Array, "seeds n"]
    status: Int[Array, ""]
    n_iter: Int[Array, ""]
    objective: Float[Array, ""]
    fit_residual: Float[Array, ""]
    split_residual: Float[Array, ""]


def _largest_singular_value(x: Float[Array, "m n n"], transform: AnyTransform | None) -> Float[Array, ""]:
    """Over all slices of the transformed tensor."""
    transform = transform or Fourier()
    d = transform.forward(x)
    grams = grouped_grams(d, x, transform) if isinstance(transform, Grouped) else slice_grams(d)
    return jnp.sqrt(jnp.max(jnp.linalg.eigvalsh(jnp.moveaxis(grams, -1, 0))))


@functools.partial(jax.jit, static_argnames="options")
def _shared_step(
    problem: Problem,
    hyper: Hyper,
    progress: Progress,
    transform: AnyTransform | None,
    active: Bool[Array, " k"] | None,
    options: _Options,
) -> tuple[Progress, Float[Array, "3"]]:
    """One iteration, and the lam and theta down to which it is common, and the larger residual."""
    at = progress.state.iteration
    following = advance(
        problem, hyper, progress, at + 1, transform, variant=options.variant, order=options.order,
        norm_scale=options.norm_scale, active=active,
    )  # fmt: skip
    old, new = progress.state, following.state
    shifted = old.rho * new.G + old.J2
    low = _largest_singular_value(shifted - old.rho * old.P, transform)
    low = low / new.B.shape[-1] if options.norm_scale == "sum" else low
    sparse = jnp.max(jnp.abs(shifted - old.rho * new.B))
    worst = jnp.maximum(following.history.fit_residual[at], following.history.split_residual[at])
    return following, jnp.stack([low, sparse, worst])


Follow = Callable[[Progress, _Solve, float, float], tuple[Progress, np.ndarray]]


def _leaves(
    follow: Follow, progress: Progress, members: list[_Solve], max_iter: int, low: bool, sparse: bool
) -> Iterator[tuple[Progress, _Solve]]:
    """Every member with the state from which it has to go on alone.

    The members share lam if ``low``, that is if B may be nonzero, and theta if ``sparse``, if P may be.
    """
    while len(members) > 1 and not (low and sparse) and int(progress.state.iteration) < max_iter:
        hyper = members[0].hyper
        following, (low_reach, sparse_reach, worst) = follow(
            progress, members[0], float(hyper.lam) if low else math.inf, float(hyper.theta) if sparse else math.inf
        )
        staying: list[_Solve] = []
        parting: dict[tuple[bool, bool, float, float], list[_Solve]] = {}
        for member in members:
            lam, theta, tol = float(member.hyper.lam), float(member.hyper.theta), float(member.hyper.tol)
            if not worst >= tol * (1 + MARGIN):
                yield progress, member
                continue
            now_low = low or not low_reach <= lam * (1 - MARGIN)
            now_sparse = sparse or not sparse_reach <= theta * (1 - MARGIN)
            if (now_low, now_sparse) == (low, sparse):
                staying.append(member)
            else:
                key = (now_low, now_sparse, lam if now_low else math.inf, theta if now_sparse else math.inf)
                parting.setdefault(key, []).append(member)
        for (now_low, now_sparse, _, _), group in parting.items():
            yield from _leaves(follow, progress, group, max_iter, now_low, now_sparse)
        progress, members = following, staying
    for member in members:
        yield progress, member


def _run_one(
    problem: Problem,
    transform: AnyTransform | None,
    hyper: Hyper,
    progress: Progress,
    active: Bool[Array, " k"] | None,
    keys: Key,
    *,
    options: _Options,
) -> _Outcome:
    """From the state where a configuration parts to its labels, one vector for each key."""
    end = advance(
        problem, hyper, progress, jnp.asarray(options.max_iter, jnp.int32), transform, variant=options.variant,
        order=options.order, norm_scale=options.norm_scale, active=active,
    )  # fmt: skip
    result = finish(end, hyper, transform, options.max_iter, options.norm_scale)
    affinity = result.affinity
    if options.n_reach is not None:
        affinity = within_reach(affinity, problem, options.n_reach)
    if options.n_kept is not None:
        affinity = sparsify(affinity, options.n_kept)
    cluster = functools.partial(spectral_cluster, n_clusters=options.n_clusters, n_init=options.n_init)
    labels = jax.vmap(lambda key: cluster(key, affinity))(keys)
    fit, split = (record[result.n_iter - 1] for record in result.history)
    return _Outcome(labels, result.status, result.n_iter, result.objective, fit, split)


@functools.lru_cache(maxsize=8)
def _compiled(
    options: _Options, devices: tuple[jax.Device, ...], size: int, default_dtype: str, tree: Any, leaves: Any
) -> Any:
    """:func:`_run_one` for ``size`` configurations on each device, which stop without regard to the other devices."""
    mesh = Mesh(np.array(devices), ("sweep",), axis_types=(AxisType.Auto,))
    common, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("sweep"))

    def run(problem: Problem, transform: AnyTransform | None, *batch: Any) -> _Outcome:
        one = functools.partial(_run_one, problem, transform, options=options)
        if size > 1:
            return jax.vmap(one)(*batch)
        return jax.tree.map(lambda x: x[None], one(*jax.tree.map(lambda x: x[0], batch)))

    specs = (P(), P(), *[P("sweep")] * 4)
    mapped = jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=P("sweep"), check_vma=False)
    program = jax.jit(mapped, in_shardings=(common, common, split, split, split, split), out_shardings=split)
    return program.lower(*jax.tree.unflatten(tree, leaves)).compile()


def _bytes(tree: Any) -> int:
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def available_memory(device: jax.Device) -> int:
    """Bytes that a sweep may use by default: what is free on the device; for a CPU half of the free memory."""
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats["bytes_in_use"])
    pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
    free = os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")
    limit, used = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))
    if limit.exists() and limit.read_text().strip() != "max":
        free = min(free, int(limit.read_text()) - int(used.read_text()))
    return free // 2


def _plan(
    options: _Options, devices: tuple[jax.Device, ...], example: tuple[Any, ...], chunk: int, budget: int
) -> tuple[Any, int]:
    """The program, and how many configurations a device runs at once: at most ``chunk``, and what fits the budget."""
    sharing = len(devices) if devices[0].platform == "cpu" else 1

    def compiled(size: int) -> tuple[Any, int]:
        stacked = jax.tree.map(lambda x: jax.ShapeDtypeStruct((size * len(devices), *x.shape), x.dtype), example[2:])
        flat, tree = jax.tree.flatten((*example[:2], *stacked))
        program = _compiled(options, devices, size, str(jnp.result_type(float)), tree, tuple(flat))
        memory = program.memory_analysis()
        own = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
        return program, sharing * own + _bytes(example[3]) * (4 + 2 * size * len(devices))

    program, need = compiled(1)
    if need > budget:
        raise ValueError(f"one configuration per device needs {need} bytes, more than memory_budget={budget}")
    fixed = sharing * _bytes(example[:2]) + 4 * _bytes(example[3])
    size = min(chunk, (budget - fixed) // (need - fixed))
    while size > 1:
        program, need = compiled(size)
        if need <= budget:
            return program, size
        size = min(size - 1, size * budget // need)
    return compiled(1)[0], 1


@dataclass(frozen=True)
class _Work:
    """What the configurations of a sweep have in common, and the pieces of their solves."""

    problem: Problem
    masks: Bool[np.ndarray, "c n m"] | None
    transform: AnyTransform | Literal["graph"] | None
    n_neighbors: int
    n_vectors: int | None
    w_init: Start
    options: _Options
    capacity: int
    """Rows of W."""
    one_latent_dim: bool
    key: Key
    n_seeds: int

    def under(self, mask: int) -> tuple[Problem, AnyTransform | None]:
        """The problem with a mask's entries hidden, and its transform."""
        problem = self.problem if self.masks is None else self.problem.restrict(jnp.asarray(self.masks[mask]))
        if self.transform == "graph":
            graph = consensus_graph(problem.dictionary, self.n_neighbors)
            return problem, graph_transform(graph, self.n_vectors)
        return problem, self.transform

    def active(self, latent_dim: int) -> Bool[Array, " k"] | None:
        """Rows of W in use."""
        return None if self.one_latent_dim else jnp.arange(self.capacity) < latent_dim

    def numbers(self, hyper: Hyper) -> Hyper:
        """Hyper-parameters in the dtype of the problem."""
        return as_dtype(hyper, self.problem.data.dtype)

    def start(self, problem: Problem, solve: _Solve) -> Progress:
        """Before the first iteration."""
        o = self.options
        state = init(
            problem, self.numbers(solve.hyper), latent_dim=self.capacity, variant=o.variant, w_init=self.w_init
        )
        active = self.active(solve.latent_dim)
        if active is not None:
            state = state._replace(W=jnp.where(active[:, None], state.W, 0))
        return begin(state, o.max_iter)

    def leaves(
        self, problem: Problem, transform: AnyTransform | None, solves: list[_Solve]
    ) -> Iterator[tuple[Progress, _Solve]]:
        """Every solve with the state from which it has to go on alone."""
        trunks: dict[tuple[Any, ...], list[_Solve]] = {}
        for solve in solves:
            h = solve.hyper
            trunks.setdefault((solve.latent_dim, h.rho, h.rho_max, h.growth), []).append(solve)

        def follow(progress: Progress, member: _Solve, lam: float, theta: float) -> tuple[Progress, np.ndarray]:
            hyper = self.numbers(member.hyper._replace(lam=lam, theta=theta, tol=0.0))
            active = self.active(member.latent_dim)
            following, reach = _shared_step(problem, hyper, progress, transform, active, self.options)
            return following, np.asarray(reach, np.float64)

        no_sparse_part = self.options.variant in ("B", "O")
        for members in trunks.values():
            first = self.start(problem, members[0])
            yield from _leaves(follow, first, members, self.options.max_iter, False, no_sparse_part)

    def inputs(self, progress: Progress, solve: _Solve) -> tuple[Any, ...]:
        """What :func:`_run_one` needs for one solve."""
        seeds = solve.seeds + solve.seeds[:1] * (self.n_seeds - len(solve.seeds))
        keys = jax.vmap(lambda seed: jax.random.fold_in(self.key, seed))(jnp.asarray(seeds, jnp.uint32))
        return self.numbers(solve.hyper), progress, self.active(solve.latent_dim), keys

    def example(self, problem: Problem, transform: AnyTransform | None, solve: _Solve) -> tuple[Any, ...]:
        """Shapes of the arguments of :func:`_run_one`."""
        return jax.eval_shape(lambda: (problem, transform, *self.inputs(self.start(problem, solve), solve)))


def _open_store(store: str | os.PathLike[str], fingerprint: str, names: Sequence[str]) -> tuple[Path, dict[str, Row]]:
    """The file that this process appends to, and the rows in the files of all processes by their parameters."""
    path = Path(store)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the directory of the store {path} does not exist")
    known: dict[str, Row] = {}
    for file in (path, *path.parent.glob(f"{glob.escape(path.name)}.[0-9]*")):
        for row in read_rows(file):
            if row.get("fingerprint") != fingerprint:
                raise ValueError(f"{file} holds results of another problem, masks, classes, key or options")
            known[encode({name: row[name] for name in names})] = row
    index = jax.process_index()
    own = path if index == 0 else path.with_name(f"{path.name}.{index}")
    cut_partial_row(own)
    return own, known


def _gather(rows: dict[int, Row]) -> dict[int, Row]:
    """The rows of all processes."""
    if jax.process_count() == 1:
        return rows
    text = json.dumps({str(i): encode(row) for i, row in rows.items()}).encode()
    lengths = np.asarray(multihost_utils.process_allgather(np.array(len(text))))
    padded = np.frombuffer(text.ljust(int(lengths.max())), np.uint8)
    texts = np.asarray(multihost_utils.process_allgather(padded))
    return {int(i): decode(line) for each in texts for i, line in json.loads(each.tobytes()).items()}


def _check_range(name: str, values: Values, least: int, most: int | float) -> None:
    if not (np.min(values) >= least and np.max(values) <= most):
        limit = f"at least {least}" if most == np.inf else f"between {least} and {most}"
        raise ValueError(f"{name} must be {limit}, got {np.min(values)} to {np.max(values)}")


def _distinct_solves(parameters: list[Row], indices: list[int]) -> list[_Solve]:
    """Configurations that differ in their seeds only, together; one mask after the other."""
    solves: dict[str, _Solve] = {}
    for i in indices:
        row = parameters[i]
        fresh = _Solve(Hyper(*(row[name] for name in Hyper._fields)), row["latent_dim"], row["mask"], [], [])
        solve = solves.setdefault(encode(row | {"seed": 0}), fresh)
        solve.rows.append(i)
        solve.seeds.append(row["seed"])
    return sorted(solves.values(), key=lambda solve: solve.mask)


def _outcomes(
    work: _Work, program: Any, lanes: int, solves: list[_Solve]
) -> Iterator[tuple[list[_Solve], list[_Outcome]]]:
    """Solves and what came of them, as many at once as the program has lanes."""
    common, split = program.input_shardings[0][0], program.input_shardings[0][-1]
    for mask, group in itertools.groupby(solves, key=lambda solve: solve.mask):
        problem, transform = work.under(mask)
        shared = jax.device_put((problem, transform), jax.tree.leaves(common)[0])
        leaves = work.leaves(problem, transform, list(group))
        while batch := list(itertools.islice(leaves, lanes)):
            inputs = [work.inputs(progress, solve) for progress, solve in batch]
            hyper, progress, *rest = inputs[0]
            idle = (hyper, progress._replace(status=jnp.full_like(progress.status, Status.NONFINITE)), *rest)
            stacked = jax.tree.map(lambda *x: jnp.stack(x), *inputs, *[idle] * (lanes - len(inputs)))
            outcome = jax.tree.map(np.asarray, program(*shared, *jax.device_put(stacked, split)))
            yield [s for _, s in batch], [jax.tree.map(lambda x, i=i: x[i], outcome) for i in range(len(batch))]


def _result(rows: dict[int, Row], total: int) -> SweepResult:
    gathered = _gather(rows)
    return SweepResult([gathered[i] for i in sorted(gathered)], total)


def sweep(
    problem: Problem,
    grid: Grid | Hyper,
    *,
    latent_dim: Values | None = None,
    n_clusters: int,
    y_true: metrics.Labels | None = None,
    key: Key,
    max_iter: int,
    masks: Bool[np.ndarray | Array, "c n m"] | None = None,
    variant: Variant = "full",
    order: Order = "paper",
    transform: AnyTransform | Literal["graph"] | None = None,
    n_neighbors: int = 10,
    n_vectors: int | None = None,
    n_reach: int | None = None,
    n_kept: int | None = None,
    norm_scale: NormScale = "mean",
    w_init: Start = "identity",
    n_init: int = 20,
    chunk: int | None = None,
    memory_budget: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> SweepResult:
    """Labels and scores of every configuration of a grid, equal to those of separate :func:`jpltd_jax.solve` calls.

    Parameters
    ----------
    problem
        From :func:`jpltd_jax.make_problem`.
    grid
        From :func:`jpltd_jax.sweep.grid`; or a Hyper of vectors, one entry a configuration, with ``latent_dim``.
    latent_dim
        For a Hyper: one number or one for each configuration. They share a program of the largest one's shape.
    n_clusters, n_init
        Of :func:`jpltd_jax.spectral_cluster`.
    y_true
        Known classes, for the scores.
    key
        Key of k-means; every configuration's seed is folded into it.
    masks
        (number, n, m): what else to hide; ``grid.mask`` says which one a configuration has.
    max_iter, variant, order, norm_scale, w_init
        See :func:`jpltd_jax.solve`.
    transform, n_neighbors, n_vectors, n_reach, n_kept
        As in :class:`jpltd_jax.JPLTD`: ``"graph"`` makes the transform from the neighbours under each mask; ``n_reach``
        and ``n_kept`` thin the affinity. Default: the paper's Fourier transform, the whole affinity.
    chunk
        Most configurations that a device runs at once. Default: one on a CPU, which keeps the iterates bit for bit
        those of ``solve``; else as many as fit.
    memory_budget
        Bytes, on a CPU for all of its devices together, else for each. The need is predicted by the compiled program's
        own account before it runs. Default: :func:`available_memory`.
    devices
        Default: all local ones.
    store
        File of JSON Lines to which rows are appended as they finish. Rows that it holds are not computed again; one
        of another problem or other options is refused.
    progress
        Whether to draw a line of progress on standard error.

    Notes
    -----
    Ctrl-C finishes the running chunk and returns the rows so far. A killed process loses its running chunk.

    The grid is one program for shared iterations and one for the rest, whatever its size. With one configuration per
    device and one latent_dim the iterates are those of ``solve`` bit for bit; in batches, and beside larger latent
    dimensions, they differ by rounding, since matrix products are then blocked in another way.

    On a host with several devices the same call uses all of them. On several hosts start one process on each, call
    ``jax.distributed.initialize()`` (with coordinator address, number of processes and index, where the cluster does
    not tell them) and then the same ``sweep``: each process takes a contiguous part of the grid on its own devices and
    all return all rows. Process i > 0 appends to the file ``store`` with ``.i`` behind its name.

    Examples
    --------
    >>> import jax
    >>> import jpltd_jax as jj
    >>> data = jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8))
    >>> grid = jj.grid(lam=[0.5, 1.0, 1e6], theta=0.1, latent_dim=5)
    >>> result = jj.sweep(jj.make_problem(data.views), grid, n_clusters=3, y_true=data.labels, key=jax.random.key(0),
    ...                   max_iter=30, transform="graph", n_kept=10)
    >>> [row["status"] for row in result.rows]
    ['MAX_ITER', 'MAX_ITER', 'EMPTY']
    >>> result.best("nmi")["nmi"]
    1.0
    """
    n, m = problem.n_samples, problem.n_views
    if isinstance(grid, Hyper):
        if latent_dim is None and variant in ("full", "B"):
            raise ValueError("a Hyper needs latent_dim")
        grid = _columns(grid, 1 if latent_dim is None else latent_dim, 0, 0)
    elif latent_dim is not None:
        raise ValueError("the grid has its own latent_dim")
    hidden = None if masks is None else np.asarray(masks)
    if hidden is not None and (hidden.shape[1:] != (n, m) or hidden.dtype != np.bool_):
        raise ValueError(f"masks must be bool (number, {n}, {m}), got {hidden.dtype} {hidden.shape}")
    _check_range("grid.mask", grid.mask, 0, 0 if hidden is None else len(hidden) - 1)
    _check_range("grid.latent_dim", grid.latent_dim, 1, np.inf)
    _check_range("grid.seed", grid.seed, 0, 2**32 - 1)
    _check_range("n_clusters", n_clusters, 1, n)
    _check_range("chunk", 1 if chunk is None else chunk, 1, np.inf)
    classes = None if y_true is None else np.unique(np.asarray(y_true), return_inverse=True)[1].astype(np.int32)
    if classes is not None and classes.shape != (n,):
        raise ValueError(f"y_true must have one class for each of the {n} samples, got shape {classes.shape}")
    check_options(
        problem, grid.hyper, latent_dim=int(grid.latent_dim[0]), max_iter=max_iter, variant=variant, order=order,
        norm_scale=norm_scale, w_init=w_init, init_state=None,
    )  # fmt: skip
    options = _Options(max_iter, variant, order, norm_scale, n_clusters, n_init, n_reach, n_kept)
    parameters = grid.parameters()

    raw_key = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    content = fingerprint_of((problem, hidden, classes, raw_key, None if transform == "graph" else transform))
    described = f"{content} {options} {type(transform).__name__} {n_neighbors} {n_vectors} {w_init}"
    fingerprint = hashlib.sha256(described.encode()).hexdigest()
    file, known = (None, {}) if store is None else _open_store(store, fingerprint, list(parameters[0]))
    own = np.array_split(np.arange(len(parameters)), jax.process_count())[jax.process_index()].tolist()
    rows = {i: known[encode(parameters[i])] for i in own if encode(parameters[i]) in known}
    solves = _distinct_solves(parameters, [i for i in own if i not in rows])
    if not solves:
        return _result(rows, len(parameters))

    latent_dims = np.unique(grid.latent_dim) if variant in ("full", "B") else grid.latent_dim[:1]
    work = _Work(
        problem, hidden, transform, n_neighbors, n_vectors, w_init, options,
        capacity=int(latent_dims.max()), one_latent_dim=len(latent_dims) == 1, key=key,
        n_seeds=max(len(solve.rows) for solve in solves),
    )  # fmt: skip
    local = tuple(jax.local_devices() if devices is None else devices)
    most = -(-len(solves) // len(local))
    wanted = min(most, chunk if chunk is not None else 1 if local[0].platform == "cpu" else most)
    budget = available_memory(local[0]) if memory_budget is None else memory_budget
    example = work.example(*work.under(solves[0].mask), solves[0])
    program, size = _plan(options, local, example, wanted, budget)

    n_labels = n_clusters if classes is None else max(n_clusters, int(classes.max()) + 1)
    versions = {"jpltd_jax": jpltd_jax.__version__, "jax": jax.__version__, "dtype": str(problem.data.dtype)}
    todo = sum(len(solve.rows) for solve in solves)
    show = progress_line(todo, "sweep") if progress else None
    already, clock = len(rows), time.perf_counter()
    with deferred_interrupt() as interrupted:
        for batch, outcomes in _outcomes(work, program, size * len(local), solves):
            elapsed, clock = time.perf_counter() - clock, time.perf_counter()
            finished = {}
            for solve, outcome in zip(batch, outcomes, strict=True):
                for i, labels in zip(solve.rows, outcome.labels, strict=False):
                    status = Status(int(outcome.status)).name
                    measured = {name: getattr(outcome, name).item() for name in _Outcome._fields[2:]}
                    scores = {}
                    if classes is not None:
                        values = metrics.scores(classes, labels, n_labels=n_labels)
                        scores = {k: float(x) if status in USABLE else math.nan for k, x in values._asdict().items()}
                    finished[i] = parameters[i] | {"status": status} | measured | scores | versions
                    finished[i] |= {"labels": labels.tolist(), "fingerprint": fingerprint}
            for row in finished.values():
                row["seconds"] = elapsed / len(finished)
            if file is not None:
                append_rows(file, finished.values())
            rows |= finished
            if show is not None:
                accuracies = [row["accuracy"] for row in rows.values() if not math.isnan(row.get("accuracy", math.nan))]
                show(len(rows) - already, f"best accuracy {max(accuracies):.3f}" if accuracies else "")
            if interrupted():
                break
    return _result(rows, len(parameters))
