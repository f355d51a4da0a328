"""What the host does around compiled programs: notes Ctrl-C, draws progress, fingerprints pytrees."""

import contextlib
import hashlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from tqdm.auto import tqdm

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
    """A function (done, note) that shows a bar of progress on ``stream`` (default: standard error).

    The clock starts when it is first called: compilation, which comes before, says nothing of how long the rest takes.
    Into a log it writes every ten seconds.
    """
    bar: Any = None
    out = sys.stderr if stream is None else stream
    live = out.isatty() or "IPython" in sys.modules

    def show(done: int, note: str) -> None:
        nonlocal bar
        if bar is None or done < bar.n:
            bar = tqdm(desc=label, total=total, initial=done, file=stream, mininterval=0.1 if live else 10)
        bar.set_postfix_str(note, refresh=False)
        bar.update(done - bar.n)
        if done >= total:
            bar.close()

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
