"""Tables as people keep them: samples as rows, ids in the first column, names of the features in the first line."""

import csv
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

__all__ = ["SUFFIXES", "Table", "read_classes", "read_table", "read_tables"]

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t"}
SUFFIXES = (*DELIMITERS, ".parquet")
"""How the names of tables end."""

NOT_THERE = {"", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none"}
"""What stands, in any case, for a number that is missing."""


@dataclass(frozen=True)
class Table:
    """One view, as a file holds it; read like a DataFrame by everything that takes views.

    Examples
    --------
    >>> import numpy as np
    >>> import jpltd_jax as jj
    >>> rna = jj.tables.Table("rna", ["a", "b"], ["TP53"], np.array([[1.0], [2.0]]))
    >>> mirna = jj.tables.Table("mirna", ["b", "c"], ["let-7"], np.array([[3.0], [4.0]]))
    >>> jj.views.read_views([rna, mirna]).ids.tolist()
    ['a', 'b', 'c']
    """

    name: str
    index: list[str]
    """The ids of the samples."""
    columns: list[str]
    """The names of the features."""
    values: Float[np.ndarray, "n d"]
    """Rows of NaN are missing."""

    @property
    def dtypes(self) -> list[np.dtype]:
        """Of the columns."""
        return [self.values.dtype] * len(self.columns)

    def with_columns(self, columns: Sequence[str]) -> "Table":
        """The table with its columns in this order, if it has them and no others; else as it is."""
        position = {name: j for j, name in enumerate(self.columns)}
        if len(position) != len(self.columns) or position.keys() != set(columns) or len(columns) != len(position):
            return self
        order = [position[name] for name in columns]
        return Table(self.name, self.index, list(columns), self.values[:, order])

    def to_numpy(self) -> Float[np.ndarray, "n d"]:
        """The values."""
        return self.values


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of every line that is not blank."""
    delimiter = DELIMITERS[path.suffix.lower()]
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, delimiter=delimiter)
        try:
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not a readable table, after line {reader.line_num}: {error}") from error


def _numbers(cells: list[str], row: str, features: list[str]) -> Float[np.ndarray, " d"]:
    """The cells as numbers, NaN for what is missing."""
    try:
        return np.array(cells, np.float64)
    except ValueError:
        numbers = np.full(len(cells), np.nan)
    for j, (cell, feature) in enumerate(zip(cells, features, strict=True)):
        if cell.strip().lower() not in NOT_THERE:
            try:
                numbers[j] = float(cell)
            except ValueError as error:
                raise ValueError(f"{row}, column {feature!r}: {cell.strip()!r} is not a number") from error
    return numbers


def _from_text(path: Path) -> Table:
    lines = _lines(path)
    _, header = next(lines, (0, []))
    if not header:
        raise ValueError(f"{path} is empty")
    first = next(lines, None)
    corner = first is None or len(header) == 1 or len(first[1]) != len(header) + 1
    features = [cell.strip() for cell in header[corner:]]
    separator = {",": "commas", "\t": "tabs"}[DELIMITERS[path.suffix.lower()]]
    if not features:
        raise ValueError(f"{path} has one column; expected sample ids and features, separated by {separator}")
    ids, rows = [], []
    for number, (name, *cells) in lines if first is None else itertools.chain([first], lines):
        sample = name.strip()
        if not sample:
            if not any(cell.strip() for cell in cells):
                continue
            raise ValueError(f"{path}, line {number} has no sample id in its first column")
        if not cells:
            cells = [""] * len(features)
        if len(cells) != len(features):
            raise ValueError(
                f"{path}, line {number}, sample {sample!r} has {len(cells)} values, but the first line names "
                f"{len(features)} features"
            )
        ids.append(sample)
        rows.append(_numbers(cells, f"{path}, sample {sample!r}", features))
    return Table(path.stem, ids, features, np.array(rows).reshape(len(rows), len(features)))


def _from_parquet(path: Path) -> Table:
    with path.open("rb"):
        pass
    needed = f"reading {path} needs pandas and pyarrow: pip install 'jpltd_jax[tables]'"
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(needed) from error
    try:
        frame = pd.read_parquet(path)
    except ImportError as error:
        raise ImportError(needed) from error
    except Exception as error:
        raise ValueError(f"{path} is not a readable Parquet file: {error}") from error
    if type(frame.index) is pd.RangeIndex and frame.shape[1] > 0:
        frame = frame.set_index(frame.columns[0])
    for column, dtype in zip(frame.columns, frame.dtypes, strict=True):
        if not pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_complex_dtype(dtype):
            raise ValueError(f"{path}, column {str(column)!r} does not hold real numbers")
    ids = [str(sample).strip() for sample in frame.index]
    return Table(path.stem, ids, list(map(str, frame.columns)), frame.to_numpy(np.float64, na_value=np.nan))


def _check(path: Path, table: Table) -> None:
    if not table.columns:
        raise ValueError(f"{path} has no column beside the sample ids")
    if not table.index:
        raise ValueError(f"{path} has no samples")
    seen = set()
    for sample in table.index:
        if sample in seen:
            raise ValueError(f"{path} has the sample id {sample!r} more than once")
        seen.add(sample)
    bad = ~np.isfinite(table.values) & ~np.isnan(table.values).all(axis=1, keepdims=True)
    if bad.any():
        i, j = (int(x) for x in np.argwhere(bad)[0])
        place = f"{path}, sample {table.index[i]!r}, column {table.columns[j]!r}"
        if np.isnan(table.values[i, j]):
            hint = "only whole rows can be missing: fill the value in, or leave the whole row empty"
            raise ValueError(f"{place} has no number; {hint}")
        raise ValueError(f"{place} is {table.values[i, j]}; expected a finite number")


def read_table(path: str | os.PathLike[str]) -> Table:
    r"""Read one view from a .csv, .tsv, .tab, .txt or .parquet file.

    The first column holds the ids of the samples, the first line the names of the features, with or without a name for
    the ids. (A Parquet file with an index of its own has its ids there.) A row that is empty, or NA throughout, is a
    missing sample. The view is called as the file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from jpltd_jax.tables import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "rna.csv")
    ...     _ = file.write_text("sample,TP53,BRCA1\np1,0.5,2\np2,NA,NA\n")
    ...     rna = read_table(file)
    >>> rna.name, rna.index, rna.columns, rna.values.tolist()
    ('rna', ['p1', 'p2'], ['TP53', 'BRCA1'], [[0.5, 2.0], [nan, nan]])
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"cannot tell the format of {path}: expected a name that ends in {', '.join(SUFFIXES)}")
    table = _from_parquet(path) if suffix == ".parquet" else _from_text(path)
    _check(path, table)
    return table


def read_tables(paths: Sequence[str | os.PathLike[str]]) -> list[Table]:
    """One view per file; all names of views differ, and every sample is in one of the files.

    Examples
    --------
    >>> from jpltd_jax.tables import read_tables
    >>> read_tables(["a/rna.csv", "b/rna.csv"])
    Traceback (most recent call last):
    ValueError: a/rna.csv and b/rna.csv would both be the view 'rna': rename one of the files
    """
    first: dict[str, Any] = {}
    for path in paths:
        name = Path(path).stem
        if name in first:
            raise ValueError(f"{first[name]} and {path} would both be the view {name!r}: rename one of the files")
        first[name] = path
    tables = [read_table(path) for path in paths]
    present: dict[str, bool] = {}
    for table in tables:
        for sample, row in zip(table.index, table.values, strict=True):
            present[sample] = present.get(sample, False) or not np.isnan(row[0])
    nowhere = [sample for sample, is_there in present.items() if not is_there]
    if nowhere:
        raise ValueError(f"{len(nowhere)} samples are missing in all files, {nowhere[0]!r} first: remove their rows")
    return tables


def read_classes(path: str | os.PathLike[str]) -> dict[str, str]:
    r"""The class of each sample, from a table of ids and classes with a first line of its own.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from jpltd_jax.tables import read_classes
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "subtypes.csv")
    ...     _ = file.write_text("sample,subtype\np1,basal\np2,luminal\n")
    ...     read_classes(file)
    {'p1': 'basal', 'p2': 'luminal'}
    """
    path = Path(path)
    if path.suffix.lower() not in DELIMITERS:
        raise ValueError(f"{path}: expected a table of classes that ends in {', '.join(DELIMITERS)}")
    lines = _lines(path)
    next(lines, None)
    classes: dict[str, str] = {}
    for number, cells in lines:
        if len(cells) != 2:
            raise ValueError(f"{path}, line {number} has {len(cells)} values; expected a sample id and a class")
        sample, label = (cell.strip() for cell in cells)
        if sample in classes:
            raise ValueError(f"{path} has the sample id {sample!r} more than once")
        if label.lower() not in NOT_THERE:
            classes[sample] = label
    if not classes:
        raise ValueError(f"{path} has no classes")
    return classes
