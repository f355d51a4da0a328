"""Long solves in chunks: progress, interruption, checkpoints, resumption."""

import contextlib
import hashlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jpltd_jax import admm
from jpltd_jax.admm import (
    Hyper,
    Info,
    NormScale,
    Order,
    Progress,
    Result,
    Start,
    State,
    Status,
    Variant,
    advance,
    as_dtype,
    begin,
    check_options,
    finish,
)
from jpltd_jax.problem import Problem
from jpltd_jax.transforms import AnyTransform

_advance = partial(
    jax.jit, static_argnames=("variant", "order", "norm_scale"), donate_argnames=("progress",)
)(advance)  # fmt: skip
_finish = partial(jax.jit, static_argnames=("max_iter", "norm_scale"))(finish)


@contextlib.contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Within the block the first Ctrl-C is only noted; the yielded function tells whether it came.

    A second Ctrl-C interrupts at once. Outside the main thread, which gets no signals, nothing changes.
    """
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield noted.is_set
        return
    previous = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: object) -> None:
        noted.set()
        signal.signal(signal.SIGINT, previous)

    signal.signal(signal.SIGINT, note)
    try:
        yield noted.is_set
    finally:
        signal.signal(signal.SIGINT, previous)


def fingerprint_of(tree: object) -> str:
    """Hash of the leaves of a pytree: their paths, dtypes, shapes and values."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)}{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _save(path: Path, progress: Progress, header: dict[str, str]) -> None:
    arrays = {f"state.{name}": np.asarray(x) for name, x in zip(State._fields, progress.state, strict=True)}
    arrays |= {f"history.{name}": np.asarray(x) for name, x in zip(Info._fields, progress.history, strict=True)}
    temporary = path.with_name(path.name + ".part")
    with temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, header=np.array(json.dumps(header)), status=progress.status, **arrays)
    os.replace(temporary, path)


def _load(path: Path, header: dict[str, str], max_iter: int) -> Progress:
    with np.load(path, allow_pickle=False) as archive:
        found = json.loads(str(archive["header"]))
        for name, value in header.items():
            if found.get(name) != value:
                raise ValueError(f"{path} is a checkpoint of another run: its {name} differs; remove it to start anew")
        state = State(*(jnp.asarray(archive[f"state.{name}"]) for name in State._fields))
        if int(state.iteration) > max_iter:
            raise ValueError(f"{path} is at iteration {int(state.iteration)}, beyond max_iter = {max_iter}")
        blank = begin(state, max_iter)
        kept = slice(0, int(state.iteration))
        records = (
            blank_record.at[kept].set(archive[f"history.{name}"][kept])
            for name, blank_record in zip(Info._fields, blank.history, strict=True)
        )
        return Progress(state, Info(*records), jnp.asarray(archive["status"]))


def solve_chunked(
    problem: Problem,
    hyper: Hyper,
    *,
    latent_dim: int | None = None,
    max_iter: int,
    chunk: int = 5,
    callback: Callable[[int, float, float], object] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    variant: Variant = "full",
    order: Order = "paper",
    transform: AnyTransform | None = None,
    norm_scale: NormScale = "mean",
    w_init: Start = "identity",
    init: State | None = None,
) -> Result:
    """:func:`jpltd_jax.solve` in chunks of iterations, with the same result bit for bit.

    Between chunks the host reports, saves and looks for Ctrl-C. An interrupted run finishes its chunk and returns what
    it has with status ``RUNNING``; pass ``result.state`` as ``init``, or call again with the same ``checkpoint``, to go
    on.

    Parameters
    ----------
    problem, hyper, latent_dim, max_iter, variant, order, transform, norm_scale, w_init, init
        As in :func:`jpltd_jax.solve`.
    chunk
        Iterations between two looks of the host.
    callback
        Called as ``callback(iteration, fit_residual, split_residual)`` after every chunk; returning True stops the run.
    checkpoint
        ``.npz`` file, replaced after every chunk. If it exists the run resumes from it, after checking that it belongs
        to the same problem, hyper-parameters and options (``max_iter`` may differ).

    Examples
    --------
    >>> import numpy as np
    >>> import jpltd_jax as jj
    >>> problem = jj.make_problem([np.eye(6), np.ones((6, 2))])
    >>> seen = []
    >>> result = jj.solve_chunked(problem, jj.Hyper(lam=1.0, theta=0.1), latent_dim=2, max_iter=8, chunk=4,
    ...                           callback=lambda iteration, fit, split: seen.append(iteration))
    >>> seen
    [4, 8]
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    hyper = as_dtype(hyper, problem.data.dtype)
    check_options(
        problem, hyper, latent_dim=latent_dim, max_iter=max_iter, variant=variant, order=order, norm_scale=norm_scale,
        w_init=w_init, init_state=init,
    )  # fmt: skip
    fresh = partial(admm.init, problem, hyper, latent_dim=latent_dim, variant=variant, w_init=w_init)
    state = fresh() if init is None else init
    progress = begin(state, max_iter)
    path = None if checkpoint is None else Path(checkpoint)
    header = {}
    if path is not None:
        if not path.parent.is_dir():
            raise FileNotFoundError(f"the directory of the checkpoint {path} does not exist")
        header = {
            "problem": fingerprint_of(problem),
            "hyper-parameters": fingerprint_of(hyper),
            "transform": type(transform).__name__ + fingerprint_of(transform),
            "start": fingerprint_of(state),
            "options": f"variant={variant} order={order} norm_scale={norm_scale}",
        }
        if path.exists():
            progress = _load(path, header, max_iter)
    progress = jax.tree.map(jnp.copy, progress)
    with deferred_interrupt() as interrupted:
        while int(progress.status) == Status.RUNNING and int(progress.state.iteration) < max_iter:
            stop = jnp.asarray(min(int(progress.state.iteration) + chunk, max_iter), jnp.int32)
            progress = _advance(
                problem, hyper, progress, stop, transform, variant=variant, order=order, norm_scale=norm_scale
            )
            if path is not None:
                _save(path, progress, header)
            done = int(progress.state.iteration)
            residuals = (float(record[done - 1]) for record in progress.history)
            if (callback is not None and callback(done, *residuals) is True) or interrupted():
                break
    return _finish(progress, hyper, transform, max_iter=max_iter, norm_scale=norm_scale)
