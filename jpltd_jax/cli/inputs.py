"""From the files on the command line to checked views, known classes, and how many clusters to make."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jpltd_jax.cli.outputs import UserError

if TYPE_CHECKING:
    import numpy as np

    from jpltd_jax.estimator import JPLTD
    from jpltd_jax.tables import Table
    from jpltd_jax.views import Views

__all__ = [
    "EXAMPLE",
    "FILE_FORMATS",
    "Input",
    "all_classes",
    "n_clusters_of",
    "paths_of",
    "print_scores",
    "read",
    "wants_progress",
]

EXAMPLE = "rna.csv mirna.csv protein.csv"
FILE_FORMATS = (
    "FILE: one table per view (.csv, .tsv or .parquet): sample ids in the first column, names of the features in the "
    "first line. Samples are matched by id; one that a table lacks, or whose row is empty or NA, is missing in that "
    "view. Views are called as their files. Or one archive: an .npz file with view0, view1, ... (samples as rows; a "
    "row of NaN is a missing view), and optionally ids, labels and mask (samples, views); or a .mat file with a cell "
    "array X or data, and optionally ids, mask, and labels Y, gt or truth; or the name of a set in the directory "
    "JPLTD_DATA; or 'digits'."
)


class Input(NamedTuple):
    """What the files hold."""

    views: "Views"
    labels: "np.ndarray | None"
    """(n,) classes; object dtype with None where a table of classes has none."""
    source: str
    """What to call the files in a sentence."""


def _is_table(file: str) -> bool:
    from jpltd_jax.tables import SUFFIXES

    return Path(file).suffix.lower() in SUFFIXES


def paths_of(files: Sequence[str], labels: str | None = None) -> list[Path]:
    """The files that will be read."""
    from jpltd_jax import datasets

    found = [Path(file) if _is_table(file) else datasets.locate(file) for file in files]
    return [path for path in [*found, labels and Path(labels)] if path]


def read(files: Sequence[str], labels: str | None = None, *, like: "JPLTD | None" = None) -> Input:
    """Read one archive, or one table per view.

    Parameters
    ----------
    files
        Their names.
    labels
        A table of classes. None: those of the archive, if it has any.
    like
        A fitted model, whose views tables are taken for.
    """
    tables = [_is_table(file) for file in files]
    if any(tables) and not all(tables):
        raise UserError(f"give tables only, or one archive: {files[tables.index(False)]} is no table")
    if not any(tables) and len(files) > 1:
        raise UserError("give one .npz or .mat file; several files must be tables: .csv, .tsv or .parquet")
    data = _read_tables(files, like) if all(tables) else _read_archive(files[0])
    return data if labels is None else data._replace(labels=_classes(labels, data.views.ids.tolist()))


def _read_archive(file: str) -> Input:
    from jpltd_jax import datasets
    from jpltd_jax.views import read_views

    data = datasets.load(file)
    ids = None if data.ids is None else [data.ids.tolist()] * len(data.views)
    return Input(read_views(data.views, data.mask, ids=ids), data.labels, file)


def _read_tables(files: Sequence[str], like: "JPLTD | None") -> Input:
    from jpltd_jax.tables import read_tables
    from jpltd_jax.views import read_views

    tables = {table.name: table for table in read_tables(files)}
    return Input(read_views(tables if like is None else _as_in_the_fit(tables, like)), None, " ".join(files))


def _as_in_the_fit(tables: "dict[str, Table]", model: "JPLTD") -> "dict[str, Table]":
    """The tables by the names of the fit, with its columns; empty ones for views that were left out."""
    import numpy as np

    from jpltd_jax.tables import Table

    names = model.view_names_in_
    if not tables.keys() <= set(names):
        if len(tables) != len(names):
            raise UserError(f"the model has the views {', '.join(names)}; got {', '.join(tables)}")
        tables = dict(zip(names, tables.values(), strict=True))
    matched = {}
    for name, fitted, width in zip(names, model.feature_names_in_, model.n_features_in_, strict=True):
        columns = list(map(str, fitted or range(width)))
        if name in tables and fitted is not None:
            matched[name] = tables[name].with_columns(columns)
        else:
            matched[name] = tables.get(name, Table(name, [], columns, np.empty((0, width))))
    return {name: matched[name] for name in dict.fromkeys([*tables, *names])}


def _classes(file: str, ids: list[object]) -> "np.ndarray":
    import numpy as np

    from jpltd_jax.tables import read_classes

    classes = read_classes(file)
    labels = np.array([classes.get(str(sample)) for sample in ids], object)
    if all(label is None for label in labels):
        ours, theirs = (", ".join(map(repr, list(map(str, some))[:3])) for some in (ids, classes))
        raise UserError(f"{file} has a class for none of the samples: it has {theirs} ...; the views have {ours} ...")
    return labels


def _is_known(labels: "np.ndarray") -> "np.ndarray":
    import numpy as np

    return np.array([label is not None for label in labels], bool)


def all_classes(data: Input) -> "np.ndarray | None":
    """The classes, if every sample has one."""
    import numpy as np

    if data.labels is None:
        return None
    known = _is_known(data.labels)
    if not known.all():
        sample = data.views.ids[int(np.argmin(known))]
        raise UserError(f"{int((~known).sum())} samples have no class, {str(sample)!r} first; here all need one")
    return np.unique(data.labels.astype(str) if data.labels.dtype == object else data.labels, return_inverse=True)[1]


def n_clusters_of(wanted: Any, data: Input) -> Any:
    """What was given with --n-clusters, or the number of classes."""
    if wanted is not None:
        return wanted
    if data.labels is None:
        raise UserError(f"{data.source} has no labels to count the classes of: give --n-clusters")
    return len(set(data.labels[_is_known(data.labels)].tolist()))


def print_scores(labels: "np.ndarray", predicted: "np.ndarray", order: str) -> None:
    """Print the scores of the samples whose class is known."""
    import numpy as np

    from jpltd_jax import metrics

    known = _is_known(labels)
    classes = np.unique(labels[known].tolist(), return_inverse=True)[1]
    scores = metrics.scores(classes, predicted[known])
    some = "" if known.all() else f"{known.sum()} of {len(known)} "
    print(f"scores ({some}samples in {order} order)")
    for name, value in zip(scores._fields, scores, strict=True):
        print(f"  {name:<10}{100 * float(value):6.1f} %")


def wants_progress(quiet: bool) -> bool:
    """Whether to draw a bar: not into a file or a pipe."""
    return not quiet and sys.stderr.isatty()
