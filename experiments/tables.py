"""Tables of results: the paper's numbers, rows kept as CSV between runs, and Markdown with both orders beside them."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from protocol import HERE, METRICS, ORDERS

PAPER_SETS = {
    "msrcv1": "MSRC-v1",
    "ngs": "NGs",
    "bbcsport": "BBCSport",
    "uci": "UCI",
    "orl_recomputed": "ORL",
    "orl_4view": "ORL",
    "scene15": "Scene",
}
"""Sets and what the paper calls them."""
STAND_INS = ("orl_recomputed", "orl_4view", "scene15")
"""Same objects and classes as the paper's sets, other features."""


RUN = ("set", "rate", "order", "mask", "variant")
"""Columns that tell the cells of a table of JPLTD apart."""


class Score(NamedTuple):
    """In %."""

    mean: float
    std: float

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.std:.1f}"


def paper_numbers(table: int) -> dict[tuple[str, str, float, str], Score]:
    """The paper's Table 2 or 3 by (method, set, rate, metric)."""
    with (HERE / "paper_numbers.csv").open(newline="") as file:
        return {
            (row["method"], row["set"], float(row["rate"]), row["metric"]): Score(float(row["mean"]), float(row["std"]))
            for row in csv.DictReader(file)
            if int(row["table"]) == table
        }


def _number(text: str) -> Any:
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        return text


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({name: round(x, 4) if isinstance(x, float) else x for name, x in row.items()} for row in rows)


def merge_csv(path: Path, rows: Iterable[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of the file with these replaced or added, told apart by the columns ``names``; written back, sorted."""
    known = []
    if path.exists():
        with path.open(newline="") as file:
            known = [{name: _number(text) for name, text in row.items()} for row in csv.DictReader(file)]
    table = {tuple(row[name] for name in names): row for row in [*known, *rows]}
    order = list(PAPER_SETS)
    ordered = [table[key] for key in sorted(table, key=lambda key: (order.index(key[0]), *key[1:]))]
    write_csv(path, ordered)
    return ordered


def pooled(rows: Sequence[dict[str, Any]], metric: str) -> Score:
    """Over the repeats of all rows, from the mean and standard deviation of each."""
    means, stds = (np.array([row[name] for row in rows]) for name in (metric, f"{metric}_std"))
    return Score(float(means.mean()), float(np.sqrt((stds**2).mean() + means.var())))


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def comparison(
    rows: Sequence[dict[str, Any]], paper: dict[tuple[str, str, float, str], Score], methods: dict[str, tuple[str, str]]
) -> str:
    """Markdown: for every set, rate and ``row["label"]`` the paper's scores and ours in both orders.

    ``methods`` gives for each label what to print and the paper's name of the method. A cell with no run is empty.
    """
    header = ["set", "rate", "method"]
    header += [f"{metric}, {column}" for metric in METRICS for column in ("paper", "file order", "shuffled")]
    groups: dict[tuple[str, float, str], dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        groups.setdefault((row["set"], row["rate"], row["label"]), {}).setdefault(row["order"], []).append(row)
    labels = list(methods)
    lines = []
    for name, rate, label in sorted(groups, key=lambda g: (list(PAPER_SETS).index(g[0]), g[1], labels.index(g[2]))):
        printed, method = methods[label]
        found = groups[name, rate, label]
        masks = [len({row["mask"] for row in found[order]}) for order in ORDERS if order in found]
        printed = f"{printed} ({'/'.join(map(str, masks))} masks)" if max(masks) > 1 else printed
        line = [f"{name} (other features)" if name in STAND_INS else name, f"{rate:g}", printed]
        for metric in METRICS:
            line.append(str(paper.get((method, PAPER_SETS[name], rate, metric), "")))
            line += [str(pooled(found[order], metric)) if order in found else "" for order in ORDERS]
        lines.append(line)
    return markdown(header, lines)


def jpltd_protocol(rows: Sequence[dict[str, Any]]) -> str:
    """How the numbers of JPLTD were got, with the sizes of the grids and numbers of masks as found in the rows."""
    sizes: dict[tuple[str, str], set[int]] = {}
    masks: dict[str, set[int]] = {}
    for row in rows:
        sizes.setdefault((row["set"], row["variant"]), set()).add(int(row["configurations"]))
        masks.setdefault(row["set"], set()).add(int(row["mask"]))
    grids = ", ".join(f"{name} {'/'.join(map(str, sorted(size)))} ({v})" for (name, v), size in sizes.items())
    counts = ", ".join(f"{name} {len(numbers)}" for name, numbers in masks.items())
    return f"""Scores in %, mean ± standard deviation over masks and 20 repeats of the spectral step. In each cell the
configuration with the largest accuracy **by the labels**, as in the paper; the same grid in both orders. 30
iterations, float32, the paper's updates (G before E) and its Fourier transform. Masks: the published ones where there
are any (NGs; ORL, recomputed), else of the paper's protocol, mask i with seed i. Shuffled: samples and mask i under a
permutation of seed i. "Other features" are not comparable with the paper's numbers. RGB-D is not available.

- Configurations in the grid (variant): {grids}.
- Masks per rate: {counts}.
"""
