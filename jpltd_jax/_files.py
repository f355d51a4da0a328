"""Files that are whole or not there, and sizes that the machine can hold. Imports nothing that takes time."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

__all__ = ["check_fits", "is_special", "replacing"]


def check_fits(n_bytes: int) -> None:
    """Raise if so many bytes are more than this machine has.

    Examples
    --------
    >>> from jpltd_jax._files import check_fits
    >>> check_fits(10**18)
    Traceback (most recent call last):
    ValueError: it claims 1000000000.0 GB, more than the memory of this machine
    """
    if hasattr(os, "sysconf") and n_bytes > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise ValueError(f"it claims {n_bytes / 1e9:.1f} GB, more than the memory of this machine")


@contextlib.contextmanager
def replacing(path: Path, mode: str) -> Iterator[IO[Any]]:
    """A file that takes the place of ``path`` when the block ends without an error, and leaves nothing otherwise.

    A link is followed and its target replaced. A device or a pipe is written into. ``mode`` is ``"w"`` or ``"wb"``.
    """
    text: dict[str, Any] = {} if "b" in mode else {"newline": "", "encoding": "utf-8"}
    if is_special(path):
        with path.open(mode, **text) as file:
            yield file
        return
    target = path.resolve()
    temporary = target.with_name(target.name + ".part")
    try:
        with temporary.open(mode, **text) as file:
            yield file
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def is_special(path: Path) -> bool:
    """Whether there is a device, a pipe or a socket, which must never be replaced.

    Examples
    --------
    >>> import os
    >>> from pathlib import Path
    >>> from jpltd_jax._files import is_special
    >>> is_special(Path(os.devnull)), is_special(Path.cwd()), is_special(Path("no_such_file"))
    (True, False, False)
    """
    return path.exists() and not path.is_file() and not path.is_dir()
