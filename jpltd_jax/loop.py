"""One loop for every method: begin, step until settled, read out.

A method is one record, :class:`Method`, of pure functions. :func:`run` iterates its step in a compiled
``lax.while_loop``, or, for reverse-mode gradients, in a scan of fixed length. If wanted it does so in chunks, between
which the host reports, saves and looks for Ctrl-C. The loop knows nothing of any method.
"""

import contextlib
import json
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jpltd_jax._archive import read_archive, write_archive
from jpltd_jax._host import deferred_interrupt, fingerprint
from jpltd_jax._types import Key, check_choice, check_count
from jpltd_jax.problem import Problem

__all__ = [
    "Carry",
    "Loop",
    "Method",
    "Readout",
    "Solution",
    "Status",
    "Trunk",
    "advance",
    "as_dtype",
    "begin",
    "check_hyper",
    "finish",
    "floating_dtype",
    "history_length",
    "prepare",
    "run",
    "within_bounds",
]

HISTORY_BLOCK = 64
"""Histories are kept in multiples of this length."""


class Status(IntEnum):
    """Why a run stopped."""

    RUNNING = 0
    """It was interrupted and can go on."""
    CONVERGED = 1
    """The stopping rule was met."""
    MAX_ITER = 2
    """It made all its iterations."""
    NONFINITE = 3
    """A number was not finite."""
    EMPTY = 4
    """The affinity is zero."""


class Readout(NamedTuple):
    """What labels are read from. A method makes one of the two and leaves the other None."""

    affinity: Float[Array, "n a"] | None = None
    embedding: Float[Array, "n c"] | None = None


class Trunk(NamedTuple):
    """Iterations that configurations of a sweep have in common, for a method that knows of such.

    The method must stop when everything that its step watches is below ``hyper.tol``.
    """

    fields: tuple[str, ...]
    """Fields of Hyper that an iteration does not depend on while their values are above its reach."""
    reach: Callable[[Any, Any, Any], Float[Array, " fields"]]
    """(data, state before, state after) -> for each field, the value down to which the iteration is common."""
    unused: Callable[[Any], frozenset[str]]
    """data -> those of the fields that these options never use."""


def _needs_nothing(problem: Any, n_clusters: int, config: Any) -> None:
    """Ask nothing of the data beyond what every method needs."""


def _plain(data: Any) -> int:
    return 0


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class Method:
    """A clustering method for incomplete views.

    ``prepare`` does all that no hyper-parameter changes. Its result, ``data``, is a pytree with the options in it as
    static fields. All functions are pure and may be traced; ``check`` runs on the host before them.
    """

    name: str
    title: str
    """As the articles write it."""
    Hyper: Any
    """Named tuple of numbers, which are traced. Every field has a default."""
    Config: Any
    """Frozen, static dataclass of options, which checks itself when it is made. Every field has a default."""
    prepare: Callable[[Any, int, Any], Any]
    """(problem, n_clusters, config) -> data."""
    init: Callable[[Key, Any, Any], Any]
    """(key, data, hyper) -> state before the first iteration."""
    step: Callable[[Any, Any, Any], tuple[Any, Any]]
    """(data, hyper, state) -> (next state, what to watch: a pytree of numbers)."""
    settled: Callable[[Any, Int[Array, ""], Any, Any], Bool[Array, ""]]
    """(hyper, iterations made before this one, watched before, watched now) -> whether to stop."""
    readout: Callable[[Any, Any], Readout]
    """(data, state) -> what labels are read from."""
    max_iter: int
    """Default of the largest number of iterations."""
    bounds: Mapping[str, Any] = field(default_factory=dict)
    """Interval of the values that a field of Hyper may have; fields that are not listed may have any."""
    check: Callable[[Any, int, Any], None] = _needs_nothing
    """(problem, n_clusters, config) -> raises if the method cannot work on the problem."""
    affinities: Callable[[Any, Array], dict[str, Array]] | None = None
    """(data, affinity) -> what the samples may be clustered on, by name; the same names for the same static options."""
    judge: Callable[[Any, Array], Any] | None = None
    """(data, labels) -> what the views say of a partition, a :class:`jpltd_jax.quality.Quality`; None: nothing. The one
    with the largest score is taken of several affinities."""
    power: Callable[[Any], int] = _plain
    """(data) -> power of the eigenvalues in the spectral embedding."""
    objective: Callable[[Any, Any, Any], Float[Array, ""]] | None = None
    """(data, hyper, state) -> value of the objective, which sweeps record."""
    resize: Mapping[str, Callable[[Any, Int[Array, ""]], Any]] = field(default_factory=dict)
    """Options that may vary inside one program: (data prepared at the largest value, value) -> data at that value."""
    trunk: Trunk | None = None
    anchors: bool = False
    """Whether it can represent the samples by some of them; if not, a problem with anchors is refused."""
    random_start: bool = False
    """Whether ``init`` uses its key."""
    needs_x64: bool = False
    """Whether float32 is not enough: then the method computes in float64 whatever JAX's global flag says."""
    reconstruction: bool = False
    """Whether it was written from the article, without a program or recorded run of the authors to compare with."""

    def precision(self) -> contextlib.AbstractContextManager:
        """Context in which everything of this method is computed."""
        return jax.enable_x64(True) if self.needs_x64 else contextlib.nullcontext()


@jax.tree_util.register_static
@dataclass(frozen=True)
class Loop:
    """How to iterate.

    Attributes
    ----------
    max_iter
        Largest number of iterations, those of a run that is gone on with included. Default: that of the method.
    kind
        ``"while"`` stops at convergence. ``"scan"`` always takes the time of ``max_iter`` steps, with the same result,
        and allows reverse-mode gradients; it keeps one state per iteration and computes the rest again.
    every
        Give control to the host after so many iterations. None, the default: never, so that the run can be traced.
    callback
        Called by the host as ``callback(iterations made, what is watched)``; returning True stops the run.
    checkpoint
        ``.npz`` file that the host replaces each time. If it exists the run goes on from it, after checking that it is
        of the same method, data and hyper-parameters (``max_iter`` may differ).

    Examples
    --------
    >>> from jpltd_jax.loop import Loop
    >>> Loop(max_iter=0)
    Traceback (most recent call last):
    ValueError: max_iter must be at least 1, got 0
    """

    max_iter: int | None = None
    kind: Literal["while", "scan"] = "while"
    every: int | None = None
    callback: Callable[[int, Any], object] | None = None
    checkpoint: str | PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, Literal["while", "scan"])
        for name in ("max_iter", "every"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if self.every is None and (self.callback is not None or self.checkpoint is not None):
            raise ValueError("callback and checkpoint need every: after how many iterations to call or save")
        if self.every is not None and self.kind == "scan":
            raise ValueError("kind='scan' runs as one program: leave every out")


class Carry(NamedTuple):
    """What the loop carries from one iteration to the next."""

    state: Any
    code: Int[Array, ""]
    n_iter: Int[Array, ""]
    history: Any
    """What was watched, along a first axis of iterations; NaN where none was made."""


class Solution(NamedTuple):
    """Outcome of :func:`run`; under ``jax.vmap`` every field has a leading axis."""

    affinity: Float[Array, "*batch n a"] | None
    embedding: Float[Array, "*batch n c"] | None
    state: Any
    """The last iterate, of the method's State."""
    code: Int[Array, "*batch"]
    """The status as a number, which may be traced."""
    n_iter: Int[Array, "*batch"]
    history: Any
    """What the stopping rule watches, after each iteration; NaN where none was made. First axis: max_iter."""

    @property
    def status(self) -> Any:
        """Why the run stopped, a :class:`Status`; under vmap an array of their names."""
        codes = np.asarray(self.code)
        return Status(int(codes)) if codes.ndim == 0 else np.vectorize(lambda code: Status(code).name)(codes)

    @property
    def converged(self) -> Bool[Array, "*batch"]:
        """Whether the stopping rule was met (and the result is usable)."""
        return self.code == Status.CONVERGED


def history_length(max_iter: int) -> int:
    """``max_iter`` rounded up, so that many values of it share one compiled program.

    Examples
    --------
    >>> from jpltd_jax.loop import history_length
    >>> history_length(30), history_length(65)
    (64, 128)
    """
    return -(-max_iter // HISTORY_BLOCK) * HISTORY_BLOCK


def floating_dtype(tree: Any) -> jnp.dtype:
    """The widest floating dtype among the leaves."""
    return jnp.result_type(*(x.dtype for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)))


def as_dtype(hyper: Any, dtype: jnp.dtype) -> Any:
    """Hyper-parameters as arrays of one dtype, so that numbers and arrays share a compiled program."""
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), hyper)


def check_hyper(method: Method, hyper: Any) -> None:
    """Raise if a number lies outside the bounds of the method; NaN is let through.

    What is traced cannot be checked: see :func:`within_bounds`.

    Examples
    --------
    >>> from jpltd_jax.loop import check_hyper
    >>> from jpltd_jax.methods import UEAF
    >>> check_hyper(UEAF, UEAF.Hyper(r=0.5))
    Traceback (most recent call last):
    ValueError: UEAF: r must be a float in the range (1.0, inf), got 0.5
    """
    if not isinstance(hyper, method.Hyper):
        raise TypeError(f"{method.title} takes {method.Hyper.__module__}.Hyper, got {type(hyper).__name__}")
    default = method.Hyper()
    for name in method.Hyper._fields:
        value, wanted = getattr(hyper, name), np.shape(getattr(default, name))
        if not isinstance(value, jax.core.Tracer) and not _is_numeric(value):
            raise TypeError(f"{method.title}: {name} must be a number, got {value!r}")
        if np.shape(value) != wanted:
            what = "one number" if wanted == () else f"an array of shape {wanted}"
            raise ValueError(
                f"{method.title}: {name} must be {what}, got one of shape {np.shape(value)}; for several runs use "
                "jax.vmap, or jpltd_jax.grid"
            )
        if isinstance(value, jax.core.Tracer) or name not in method.bounds:
            continue
        for number in np.ravel(np.asarray(value, np.float64)):
            if not (math.isnan(number) or method.bounds[name].is_satisfied_by(float(number))):
                raise ValueError(f"{method.title}: {name} must be {method.bounds[name]}, got {number:g}")


def _is_numeric(value: Any) -> bool:
    dtype = getattr(value, "dtype", None) or np.asarray(value).dtype
    return jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)


def within_bounds(method: Method, hyper: Any) -> Any:
    """The hyper-parameters with NaN for traced numbers that :func:`check_hyper` would refuse: they end as NONFINITE.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.loop import within_bounds
    >>> from jpltd_jax.methods import UEAF
    >>> jax.vmap(lambda r: within_bounds(UEAF, UEAF.Hyper(r=r)).r)(jnp.array([0.5, 2.0]))
    Array([nan,  2.], dtype=float32)
    """

    def checked(value: Any, interval: Any) -> Any:
        low = -math.inf if interval.left is None else interval.left
        high = math.inf if interval.right is None else interval.right
        above = value >= low if interval.closed in ("left", "both") else value > low
        below = value <= high if interval.closed in ("right", "both") else value < high
        return jnp.where(above & below, value, jnp.nan)

    traced = {name for name in method.bounds if isinstance(getattr(hyper, name), jax.core.Tracer)}
    return hyper._replace(**{name: checked(getattr(hyper, name), method.bounds[name]) for name in traced})


def prepare(method: Method, problem: Any, n_clusters: int, config: Any = None) -> Any:
    """All that no hyper-parameter changes: ``method.prepare`` after its checks, in the precision that it needs."""
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must come from jpltd_jax.make_problem, got {type(problem).__name__}")
    config = method.Config() if config is None else config
    if not isinstance(config, method.Config):
        raise TypeError(f"{method.title} takes {method.Config.__module__}.Config, got {type(config).__name__}")
    check_count("n_clusters", n_clusters, problem.n_samples)
    if problem.anchors is not None and not method.anchors:
        raise ValueError(f"{method.title} does not use anchors: make the problem without")
    if problem.anchors is not None and len(problem.anchors) < n_clusters:
        warnings.warn(
            f"fewer anchors ({len(problem.anchors)}) than clusters ({n_clusters}): use more anchors", stacklevel=2
        )
    if not isinstance(problem.mask, jax.core.Tracer):
        method.check(problem, n_clusters, config)
    with method.precision():
        problem = problem.astype(jnp.float64) if method.needs_x64 else problem
        return method.prepare(problem, n_clusters, config)


def _padded(history: Any, length: int) -> Any:
    def pad(record: Array) -> Array:
        return jnp.pad(
            record[:length],
            ((0, max(0, length - len(record))), *[(0, 0)] * (record.ndim - 1)),
            constant_values=jnp.nan,
        )

    return jax.tree.map(pad, history)


def _code(method: Method, hyper: Any, n_iter: Int[Array, ""], history: Any) -> Int[Array, ""]:
    """Status after n_iter >= 1 iterations, from what was watched."""
    now, before = (jax.tree.map(lambda record, i=i: record[n_iter - i], history) for i in (1, 2))
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(now)]))
    ended = jnp.where(method.settled(hyper, n_iter - 1, before, now), Status.CONVERGED, Status.RUNNING)
    return jnp.where(finite, ended, Status.NONFINITE).astype(jnp.int32)


def _check_start(method: Method, data: Any, hyper: Any, state: Any) -> None:
    """Raise unless the state has the arrays that the method makes for this data."""
    wanted = jax.eval_shape(method.init, jax.random.key(0), data, hyper)
    own, structure = (cast(Any, jax.tree.structure(tree)) for tree in (state, wanted))
    if own != structure:
        raise TypeError(f"start must be a key, a Solution or a state of {method.title}, got {type(state).__name__}")
    for (path, want), have in zip(jax.tree_util.tree_leaves_with_path(wanted), jax.tree.leaves(state), strict=True):
        if (have.shape, have.dtype) != (want.shape, want.dtype):
            given, needed = (f"{x.dtype}{x.shape}" for x in (have, want))
            raise ValueError(f"start{jax.tree_util.keystr(path)} is {given}, but this problem needs {needed}")


@partial(jax.jit, static_argnames="length")
def begin(method: Method, data: Any, hyper: Any, start: Any, length: int) -> Carry:
    """Carry of a run from ``start``: a key, a state of the method, or a :class:`Solution` to go on from."""
    if not isinstance(start, jax.Array):
        _check_start(method, data, hyper, start.state if isinstance(start, Solution) else start)
    if isinstance(start, Solution):
        history = _padded(start.history, length)
        code = jnp.where(start.n_iter > 0, _code(method, hyper, start.n_iter, history), Status.RUNNING)
        return Carry(*jax.tree.map(jnp.copy, (start.state, code.astype(jnp.int32), start.n_iter, history)))
    state = method.init(start, data, hyper) if isinstance(start, jax.Array) else jax.tree.map(jnp.copy, start)
    _, watched = jax.eval_shape(method.step, data, hyper, state)
    history = jax.tree.map(lambda x: jnp.full((length, *x.shape), jnp.nan, x.dtype), watched)
    return Carry(state, jnp.asarray(Status.RUNNING, jnp.int32), jnp.asarray(0, jnp.int32), history)


def _once(method: Method, data: Any, hyper: Any, carry: Carry) -> Carry:
    state, watched = method.step(data, hyper, carry.state)
    history = jax.tree.map(lambda record, now: record.at[carry.n_iter].set(now), carry.history, watched)
    n_iter = carry.n_iter + 1
    return Carry(state, _code(method, hyper, n_iter, history), n_iter, history)


def _unfinished(carry: Carry, stop: Int[Array, ""]) -> Bool[Array, ""]:
    return (carry.code == Status.RUNNING) & (carry.n_iter < stop)


def advance(method: Method, data: Any, hyper: Any, carry: Carry, stop: Int[Array, ""]) -> Carry:
    """Iterate until ``stop`` iterations are made or the status is no longer running."""
    return jax.lax.while_loop(
        lambda carry: _unfinished(carry, stop), lambda carry: _once(method, data, hyper, carry), carry
    )


def _scan(method: Method, data: Any, hyper: Any, carry: Carry, length: int) -> Carry:
    @jax.checkpoint
    def body(carry: Carry, _: None) -> tuple[Carry, None]:
        more = _unfinished(carry, jnp.asarray(length, jnp.int32))
        return jax.tree.map(partial(jnp.where, more), _once(method, data, hyper, carry), carry), None

    return jax.lax.scan(body, carry, None, length=length)[0]


@jax.jit
def _read_out(
    method: Method, data: Any, carry: Carry, max_iter: Int[Array, ""] | int
) -> tuple[Readout, Int[Array, ""]]:
    made = method.readout(data, carry.state)
    code = jnp.where((carry.code == Status.RUNNING) & (carry.n_iter >= max_iter), Status.MAX_ITER, carry.code)
    if made.affinity is not None:
        ended = (code == Status.CONVERGED) | (code == Status.MAX_ITER)
        code = jnp.where(ended & jnp.all(made.affinity == 0), Status.EMPTY, code)
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(made)]))
    return made, jnp.where(finite, code, Status.NONFINITE).astype(jnp.int32)


def finish(method: Method, data: Any, carry: Carry, max_iter: Int[Array, ""] | int) -> Solution:
    """Read the result out, and say why the run stopped. The state is handed on, not copied."""
    made, code = _read_out(method, data, carry, max_iter)
    return Solution(made.affinity, made.embedding, carry.state, code, carry.n_iter, carry.history)


_advance_in_place = jax.jit(advance, donate_argnums=3)
_scanned = jax.jit(_scan, static_argnums=4)


def _save(path: Path, carry: Carry, header: dict[str, str]) -> None:
    leaves = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(carry))}
    write_archive(path, {"header": np.array(json.dumps(header))} | leaves)


def _shapes(carry: Carry) -> list[Any]:
    """Dtype and shape of everything in a carry, but for the length of its history."""
    kept = [(x.dtype, x.shape) for x in jax.tree.leaves(carry._replace(history=None))]
    return kept + [(x.dtype, x.shape[1:]) for x in jax.tree.leaves(carry.history)]


def _load(path: Path, header: dict[str, str], fresh: Carry, max_iter: int) -> Carry:
    leaves, structure = jax.tree.flatten(fresh)
    damaged = f"{path} is not a checkpoint, or is damaged; remove it to start anew"
    try:
        arrays, _ = read_archive(path)
        found = dict(json.loads(str(arrays["header"])))
        saved = [arrays[f"leaf{i}"] for i in range(len(leaves))]
    except PermissionError:
        raise
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(damaged) from error
    for name, value in header.items():
        if found.get(name) != value:
            raise ValueError(f"{path} is a checkpoint of another run: its {name} differs; remove it to start anew")
    carry = jax.tree.unflatten(structure, saved)
    if _shapes(carry) != _shapes(fresh):
        raise ValueError(damaged)
    if int(carry.n_iter) > max_iter:
        raise ValueError(f"{path} is at iteration {int(carry.n_iter)}, beyond max_iter = {max_iter}")
    carry = jax.tree.map(jnp.asarray, carry)
    length = len(jax.tree.leaves(fresh.history)[0])
    return carry._replace(history=_padded(carry.history, length))


def _to_the_end(method: Method, data: Any, hyper: Any, carry: Carry, stop: Int[Array, ""]) -> Carry:
    """In place and waited for, unless traced: on a CPU two runs at once could wait for each other's threads."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((data, hyper, carry))):
        return advance(method, data, hyper, carry, stop)
    return jax.block_until_ready(_advance_in_place(method, data, hyper, carry, stop))


def _in_chunks(method: Method, data: Any, hyper: Any, carry: Carry, loop: Loop) -> Carry:
    assert loop.every is not None
    assert loop.max_iter is not None
    path = None if loop.checkpoint is None else Path(loop.checkpoint)
    header = {}
    if path is not None:
        if not path.parent.is_dir():
            raise FileNotFoundError(f"the directory of the checkpoint {path} does not exist")
        if path.is_dir():
            raise IsADirectoryError(f"the checkpoint {path} is a directory: give a file")
        header = {
            "method": method.name,
            "data": fingerprint(data),
            "hyper-parameters": fingerprint(hyper),
            "start": fingerprint(carry._replace(history=None)),
        }
        if path.exists():
            carry = _load(path, header, carry, loop.max_iter)
    with deferred_interrupt() as interrupted:
        while int(carry.code) == Status.RUNNING and int(carry.n_iter) < loop.max_iter:
            stop = min(int(carry.n_iter) + loop.every, loop.max_iter)
            carry = _advance_in_place(method, data, hyper, carry, jnp.asarray(stop, jnp.int32))
            if path is not None:
                _save(path, carry, header)
            done = int(carry.n_iter)
            if loop.callback is not None:
                watched = jax.tree.map(lambda record, done=done: np.asarray(record[done - 1]), carry.history)
                if loop.callback(done, watched) is True:
                    break
            if interrupted():
                break
    return carry


def run(method: Method, data: Any, hyper: Any, start: Any, loop: Loop = Loop()) -> Solution:
    """Iterate a method on prepared data.

    Parameters
    ----------
    method
        One of :data:`jpltd_jax.methods.METHODS`, or your own.
    data
        From :func:`prepare`.
    hyper
        Of ``method.Hyper``; to sweep it, ``jax.vmap`` this function over a Hyper of arrays.
    start
        A key for ``method.init``; or a state of the method; or a :class:`Solution` to go on from.
    loop
        How to iterate. With ``loop.every`` the host is in between: an interrupted run finishes its chunk and returns
        what it has, with status ``RUNNING``. The result is the same bit for bit.

    Examples
    --------
    >>> import jax
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.loop import Loop, prepare, run
    >>> data = jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8))
    >>> prepared = prepare(jj.methods.JPLTD, jj.make_problem(data.views), 3, jj.PUBLISHED)
    >>> part = run(jj.methods.JPLTD, prepared, jj.Hyper(lam=1.0), jax.random.key(0), Loop(max_iter=20))
    >>> whole = run(jj.methods.JPLTD, prepared, jj.Hyper(lam=1.0), part, Loop(max_iter=30))
    >>> part.status.name, int(whole.n_iter), whole.history.fit.shape
    ('MAX_ITER', 30, (30,))
    """
    if not isinstance(loop, Loop):
        raise TypeError(f"loop must be a jpltd_jax.Loop, like Loop(max_iter=30), got {loop!r}")
    check_hyper(method, hyper)
    max_iter = method.max_iter if loop.max_iter is None else loop.max_iter
    length = history_length(max_iter)
    with method.precision():
        hyper = as_dtype(within_bounds(method, hyper), floating_dtype(data))
        carry = begin(method, data, hyper, start, length)
        if loop.kind == "scan":
            carry = _scanned(method, data, hyper, carry, max_iter)
        elif loop.every is None:
            carry = _to_the_end(method, data, hyper, carry, jnp.asarray(max_iter, jnp.int32))
        else:
            carry = _in_chunks(method, data, hyper, carry, replace(loop, max_iter=max_iter))
        solution = finish(method, data, carry, jnp.asarray(max_iter, jnp.int32))
        return solution._replace(history=jax.tree.map(lambda record: record[:max_iter], solution.history))
