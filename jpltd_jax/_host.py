"""What the host does around compiled programs: notes Ctrl-C, draws progress, fingerprints pytrees."""

import contextlib
import hashlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

__all__ = ["deferred_interrupt", "fingerprint", "progress_line"]


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


def progress_line(total: int, label: str, stream: Any = None) -> Callable[[int, str], None]:
    """A function (done, note) that redraws one line of progress on ``stream`` (default: standard error)."""
    out = sys.stderr if stream is None else stream
    start = time.monotonic()

    def show(done: int, note: str) -> None:
        filled = 20 * done // total
        left = (time.monotonic() - start) / max(done, 1) * (total - done)
        end = "\n" if done >= total else ""
        out.write(f"\r{label} [{'#' * filled}{'.' * (20 - filled)}] {done}/{total} {note} {left:4.0f} s left{end}")
        out.flush()

    return show


def fingerprint(tree: object) -> str:
    """Hash of a pytree: its structure with all static fields, and the dtype, shape and values of its leaves.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax._host import fingerprint
    >>> [fingerprint([np.zeros(2)]) == fingerprint([other]) for other in (np.zeros(2), np.ones(2))]
    [True, False]
    """
    leaves, structure = jax.tree.flatten(tree)
    digest = hashlib.sha256(str(structure).encode())
    for leaf in leaves:
        array = np.asarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
