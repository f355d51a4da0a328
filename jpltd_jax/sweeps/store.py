"""Rows of results: a table of them, and an append-only file of JSON Lines that a killed process leaves readable."""

import csv
import glob
import itertools
import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import jax
import numpy as np

from jpltd_jax._files import replacing
from jpltd_jax.loop import Status

__all__ = [
    "JUDGED",
    "USABLE",
    "Marginal",
    "Row",
    "SweepResult",
    "append_rows",
    "cut_partial_row",
    "decode",
    "encode",
    "merge_stores",
    "open_store",
    "read_rows",
]

Row = dict[str, Any]
"""Parameters of one configuration, and what came of it, by name."""

USABLE = (Status.CONVERGED.name, Status.MAX_ITER.name)
"""Statuses of rows that have labels worth scoring."""

JUDGED = ("modularity", "score")
"""What the views say of a partition, without labels: :class:`jpltd_jax.quality.Quality`."""


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else repr(value)
    return value


def encode(row: Row) -> str:
    """One line of standard JSON: NaN as null, infinities as the strings "inf" and "-inf".

    Examples
    --------
    >>> from jpltd_jax.sweeps.store import decode, encode
    >>> encode({"lam": 0.1, "theta": float("inf"), "nmi": float("nan")})
    '{"lam": 0.1, "theta": "inf", "nmi": null}'
    >>> decode(encode({"theta": float("inf")}))
    {'theta': inf}
    """
    return json.dumps({name: _plain(value) for name, value in row.items()}, allow_nan=False)


def decode(line: str) -> Row:
    """Inverse of :func:`encode`."""
    back = {None: math.nan, "inf": math.inf, "-inf": -math.inf}
    return {
        name: back.get(value, value) if value is None or isinstance(value, str) else value
        for name, value in json.loads(line).items()
    }


def _stored(path: Path) -> tuple[list[Row], str]:
    """The complete rows of the file, and what stands behind the last of them."""
    if not path.exists():
        return [], ""
    try:
        *complete, rest = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a store of results: it is no text") from error
    rows = []
    for number, line in enumerate(complete, 1):
        try:
            row = decode(line)
            row["fingerprint"], row["status"]
        except (ValueError, AttributeError, KeyError) as error:
            raise ValueError(f"{path}, line {number} is not a row of results") from error
        rows.append(row)
    return rows, rest


def read_rows(path: Path) -> list[Row]:
    """All complete rows of the file, none if there is no file; a last line that was cut off is left out."""
    return _stored(path)[0]


def _is_begun(rest: str, names: Sequence[str]) -> bool:
    """Whether a text can be the begin of a row with these parameters first, and is not JSON of its own."""
    start = f'{{"{names[0]}": '
    try:
        json.loads(rest)
    except ValueError:
        return rest.startswith(start) or start.startswith(rest)
    return '"fingerprint": ' in rest and rest.startswith(start)


def cut_partial_row(path: Path) -> None:
    """Remove what a killed process left of a row behind the last complete one."""
    if path.exists():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


def append_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write rows at the end of the file, at once, so that two processes do not mix theirs.

    They are on disk when this returns. After an error, such as a full disk, the file ends with a complete row.
    """
    data = "".join(encode(row) + "\n" for row in rows).encode()
    try:
        with path.open("ab", buffering=0) as file:
            while data:
                data = data[file.write(data) :]
            os.fsync(file.fileno())
    except OSError as error:
        cut_partial_row(path)
        raise OSError(error.errno, error.strerror, str(path)) from error


def _own_file(path: Path, shard: tuple[int, int] | None) -> Path:
    """The file that no other worker and no other process appends to."""
    worker = "" if shard is None else ".{}of{}".format(*shard)
    process = f".{jax.process_index()}" if jax.process_index() else ""
    return path.with_name(path.name + worker + process)


def open_store(
    store: str | os.PathLike[str], fingerprint: str, names: Sequence[str], shard: tuple[int, int] | None = None
) -> tuple[Path, dict[str, Row]]:
    """The file that this process appends to, and the rows in the files of all processes by their parameters.

    Worker i of k appends to the file ``store`` with ``.iofk`` behind its name, process i > 0 with ``.i`` behind that.
    """
    path = Path(store)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the directory of the store {path} does not exist")
    known: dict[str, Row] = {}
    for file in (path, *path.parent.glob(f"{glob.escape(path.name)}.[0-9]*")):
        rows, rest = _stored(file)
        if not rows and not _is_begun(rest, names):
            raise ValueError(f"{file} is not a store of results; it stays as it is: give another name")
        for number, row in enumerate(rows, 1):
            if row["fingerprint"] != fingerprint:
                raise ValueError(f"{file} holds results of another problem, masks, classes, key or options")
            if not row.keys() >= set(names):
                raise ValueError(f"{file}, line {number} is not a row of results")
            if lacking := [name for name in JUDGED if name not in row]:
                raise ValueError(
                    f"{file}, line {number} has no {lacking[0]!r}: an earlier version of this package wrote it; give "
                    "another name, and the rows are computed again"
                )
            known[encode({name: row[name] for name in names})] = row
    own = _own_file(path, shard)
    cut_partial_row(own)
    return own, known


def merge_stores(store: str | os.PathLike[str], others: Sequence[str | os.PathLike[str]]) -> int:
    """Add the rows of other stores to a store, each configuration once; how many rows it has then.

    Last lines that were cut off are left out. Stores of different sweeps are refused. ``store`` is replaced when all
    rows are there, and need not exist before; the other files stay as they are.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from jpltd_jax.sweeps.store import append_rows, merge_stores, read_rows
    >>> folder = Path(tempfile.mkdtemp())
    >>> rows = [{"lam": lam, "status": "CONVERGED", "fingerprint": "a"} for lam in (0.1, 0.5, 1.0)]
    >>> append_rows(folder / "0.jsonl", rows[:2])
    >>> append_rows(folder / "1.jsonl", rows[1:])
    >>> merge_stores(folder / "all.jsonl", [folder / "0.jsonl", folder / "1.jsonl"])
    3
    >>> read_rows(folder / "all.jsonl") == rows
    True
    """
    path = Path(store)
    rows: dict[str, Row] = {}
    first: tuple[Path, Any] | None = None
    for file in (path, *map(Path, others)):
        if file is not path and not file.exists():
            raise FileNotFoundError(f"there is no store {file}")
        for row in read_rows(file):
            first = (file, row.get("fingerprint")) if first is None else first
            if row.get("fingerprint") != first[1]:
                raise ValueError(f"{file} and {first[0]} hold results of different sweeps")
            parameters = itertools.takewhile(lambda name: name != "status", row)
            rows.setdefault(encode({name: row[name] for name in parameters}), row)
    with replacing(path, "w") as out:
        out.writelines(encode(row) + "\n" for row in rows.values())
    return len(rows)


class Marginal(NamedTuple):
    """A metric against one parameter, over all values of the others."""

    values: np.ndarray
    mean: np.ndarray
    best: np.ndarray


class SweepResult(NamedTuple):
    """One row per configuration, in the order of the grid.

    A row holds the parameters; ``status`` (name of a :class:`jpltd_jax.Status`) and ``n_iter``; what the stopping rule
    watched last, and the objective if the method has one; ``modularity`` and ``score`` of the partition, which need no
    classes (:class:`jpltd_jax.quality.Quality`), NaN for a method that does not judge partitions, as the published one;
    with known classes the scores of :mod:`jpltd_jax.metrics`,
    NaN where the affinity is empty or not finite; ``seconds``, the time of its chunk and of the shared iterations
    before it, divided by the number of rows in the chunk; versions; ``labels``.
    """

    rows: list[Row]
    total: int
    """Configurations in the grid: more than there are rows if the sweep was interrupted."""

    def _table(self) -> list[Row]:
        return [{name: x for name, x in row.items() if name not in ("labels", "fingerprint")} for row in self.rows]

    def to_pandas(self) -> Any:
        """A DataFrame of the rows, without labels."""
        import pandas as pd

        return pd.DataFrame(self._table())

    def write_csv(self, file: IO[str]) -> None:
        """Write the rows, without labels, into an open text file."""
        writer = csv.DictWriter(file, list(self._table()[0]) if self.rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self._table())

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the rows, without labels."""
        with replacing(Path(path), "w") as file:
            self.write_csv(file)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write a list of the rows, without labels; NaN is null."""
        with replacing(Path(path), "w") as file:
            file.write("[" + ",\n".join(map(encode, self._table())) + "]\n")

    def _usable(self, metric: str) -> list[Row]:
        if self.rows and metric not in self.rows[0]:
            raise ValueError(f"no {metric!r} in the rows; scores need y")
        return [row for row in self.rows if row["status"] in USABLE and not math.isnan(row[metric])]

    def best(self, metric: str = "accuracy") -> Row:
        """The row with the largest ``metric``, the first of equals; empty and non-finite ones never.

        ``"score"`` needs no classes. It compares partitions of the same samples into the same number of clusters, by
        the same neighbour graphs: not rows with different masks, or with different ``n_neighbors``.
        """
        usable = self._usable(metric)
        if not usable:
            if any(row["status"] in USABLE for row in self.rows):
                raise ValueError(f"no configuration has a {metric!r}: this method does not judge its partitions")
            raise ValueError("no configuration gave a usable affinity")
        return max(usable, key=lambda row: row[metric])

    def marginal(self, metric: str, by: str) -> Marginal:
        """Mean and largest ``metric`` for each value of the parameter ``by``; unusable rows are left out."""
        usable = self._usable(metric)
        values = np.unique([row[by] for row in self.rows])
        groups = [[row[metric] for row in usable if row[by] == value] or [math.nan] for value in values]
        return Marginal(values, np.array([np.mean(x) for x in groups]), np.array([max(x) for x in groups]))
