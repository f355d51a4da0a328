"""Where results go: checked before the work, so that no input is overwritten and no result is lost after it."""

import contextlib
import csv
import io
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TextIO

from jpltd_jax._files import is_special, replacing

__all__ = ["Interrupted", "Output", "UserError", "aside", "check_outputs", "output", "write_labels"]

STREAMS = ("-", "/dev/stdout", "/dev/fd/1")


class UserError(Exception):
    """Something that the person at the command line can put right."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C came, and there is something to say of it."""


@dataclass(frozen=True)
class Output:
    """A file, a device, a pipe, or standard output."""

    path: Path
    stream: TextIO | None = None
    """Standard output, if the result goes there."""

    def __str__(self) -> str:
        return "standard output" if self.stream else str(self.path)

    @contextlib.contextmanager
    def open(self, mode: str = "w") -> Iterator[IO[Any]]:
        """What to write into; a file is whole or not there."""
        if self.stream is None:
            try:
                with replacing(self.path, mode) as file:
                    yield file
            except BrokenPipeError:
                raise
            except OSError as error:
                raise UserError(f"cannot write {self}: {error.strerror}") from error
        else:
            yield self.stream
            self.stream.flush()


def output(text: str, option: str = "--out", *, suffixes: Sequence[str] = (), stream: bool = False) -> Output:
    """The output that an option names, if it can be written.

    Parameters
    ----------
    text
        What was given: a file name, or ``-`` for standard output.
    option
        Whose value it is.
    suffixes
        How the name must end. Empty: as it likes.
    stream
        Whether it may be standard output.
    """
    if text in STREAMS:
        if not stream:
            raise UserError(f"{option} cannot go to standard output: give a file name")
        return Output(Path("-"), sys.stdout)
    path = Path(text)
    if suffixes and path.suffix.lower() not in suffixes:
        raise UserError(f"{option} {text}: the name must end in {' or '.join(suffixes)}")
    if path.is_dir():
        raise UserError(f"cannot write {path}: it is a directory")
    if path.exists() and not os.access(path, os.W_OK):
        raise UserError(f"cannot write {path}: no permission")
    if not is_special(path):
        try:
            with tempfile.TemporaryFile(dir=path.resolve().parent):
                pass
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error
    return Output(path)


def _same(a: Path, b: Path) -> bool:
    return a.resolve() == b.resolve() or (a.exists() and b.exists() and os.path.samefile(a, b))


def check_outputs(inputs: Iterable[Path], outputs: Sequence[Output | None]) -> None:
    """Raise if an output is an input, or two outputs are one file; links do not hide it."""
    streams = [one for one in outputs if one is not None and one.stream is not None]
    if len(streams) > 1:
        raise UserError("two results cannot both go to standard output: give one of them a file name")
    files = [one.path for one in outputs if one is not None and one.stream is None and not is_special(one.path)]
    for i, path in enumerate(files):
        partial = path.resolve().with_name(path.resolve().name + ".part")
        for given in inputs:
            if _same(path, given) or _same(partial, given):
                raise UserError(f"{path} would overwrite the input {given}: give another name")
        for other in files[:i]:
            if _same(path, other):
                raise UserError(f"two results would go to the same file {path}: give one of them another name")


class _Messages(io.TextIOBase):
    """A stream for messages: if nobody reads them any more they are dropped, and the work goes on."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(BrokenPipeError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.stream.flush()


@contextlib.contextmanager
def aside(*outputs: Output | None) -> Iterator[None]:
    """Print messages to standard error while one of the outputs goes to standard output.

    Where they are read by a program that ends early, such as ``head``, the results are written all the same.
    """
    is_taken = any(one is not None and one.stream for one in outputs)
    with contextlib.redirect_stdout(sys.stderr if is_taken else _Messages(sys.stdout)):
        yield


def write_labels(where: Output, sample_ids: Iterable[Any], labels: Iterable[int]) -> None:
    """Write the labels as CSV. If that fails they are kept in the temporary directory, else they are printed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["sample", "label"])
    writer.writerows(zip(sample_ids, labels, strict=True))
    try:
        with where.open() as file:
            file.write(text.getvalue())
    except UserError as error:
        raise UserError(f"{error}; {_rescue(text.getvalue())}") from error
    print(f"labels: {where}")


def _rescue(text: str) -> str:
    name = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="jpltd-labels-", suffix=".csv", delete=False, encoding="utf-8"
        ) as file:
            name = file.name
            file.write(text)
        return f"the labels are in {name}"
    except OSError:
        if name is not None:
            Path(name).unlink(missing_ok=True)
        sys.stdout.write(text)
        return "the labels are printed above"
