"""The page of a sweep."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jpltd_jax.loop import Status
from jpltd_jax.metrics import Scores
from jpltd_jax.report.drawings import heat_cells
from jpltd_jax.report.pages import (
    SHORT,
    Html,
    counted,
    facts,
    figure,
    listed,
    notes,
    number,
    page,
    percent,
    section,
    shown,
    table,
    tag,
    versions,
)
from jpltd_jax.sweeps import Grid, SweepResult
from jpltd_jax.sweeps.store import USABLE, Row

__all__ = ["sweep_report"]

BEST_ROWS = 10
"""Rows in the table of the best."""

MOST_VALUES = 40
"""Values of a parameter that fit on the map."""

RANKED = {
    "accuracy": "Ranked by accuracy, which needs the labels: without them nobody could make this choice.",
    "score": "Ranked by the score Q / (1 − R²), which needs no labels.",
}
"""What sweeps are ranked by: the first one that the rows have."""


def _axes(grid: Grid) -> dict[str, list[Any]]:
    """The values of each parameter: numbers in rising order, others as the grid has them."""
    parameters = grid.parameters()
    axes = {name: list(dict.fromkeys(row[name] for row in parameters)) for name in parameters[0]}
    numbers = {name for name, values in axes.items() if all(isinstance(x, int | float) for x in values)}
    return {name: sorted(values) if name in numbers else values for name, values in axes.items()}


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else shown(value, SHORT)


def _written(measure: str, value: float) -> str:
    return number(value) if measure == "score" else percent(value, 1)


def _map(usable: Sequence[Row], axes: Mapping[str, list[Any]], metric: str) -> Html:
    """The mean of the metric over all configurations with the same two parameters."""
    (across, xs), (up, ys) = axes.items()
    found: dict[tuple[int, int], list[float]] = {}
    for row in usable:
        found.setdefault((ys.index(row[up]), xs.index(row[across])), []).append(row[metric])
    values = np.full((len(ys), len(xs)), np.nan)
    tips = [[f"{up} {_value(y)}, {across} {_value(x)}: none usable" for x in xs] for y in ys]
    for (i, j), all_of in found.items():
        mean = float(np.mean(all_of))
        values[i, j] = mean if metric == "score" else 100 * mean
        said = f"mean {_written(metric, mean)}, best {_written(metric, max(all_of))} of {len(all_of)}"
        tips[i][j] = f"{up} {_value(ys[i])}, {across} {_value(xs[j])}: {said}"
    drawing = heat_cells(values, [_value(y) for y in ys], [_value(x) for x in xs], tips, (up, across))
    most = max(map(len, found.values()), default=0)
    caption = f"{metric.capitalize()}{'' if metric == 'score' else ' in %'}"
    caption += f", mean over up to {most} configurations with the same {up} and {across}" if most > 1 else ""
    caption += "; the largest is framed." + (" ×: no usable result." if np.isnan(values).any() else "")
    title = f"{metric.capitalize()} by {up} and {across}"
    return section("Map", figure(drawing, title, caption))


def _best(usable: Sequence[Row], varying: Sequence[str], metric: str) -> Html:
    """The configurations with the largest metric; of equal ones the earlier first."""
    ranked = sorted(usable, key=lambda row: -row[metric])[:BEST_ROWS]
    measures = [name for name in (*Scores._fields, "score") if ranked and name in ranked[0]]
    rows = [
        (
            str(rank),
            *(_value(row[name]) for name in varying),
            *(_written(name, row[name]) for name in measures),
            row["status"],
            int(row["n_iter"]),
        )
        for rank, row in enumerate(ranked, 1)
    ]
    heads = ["rank", *varying, *measures, "status", "iterations"]
    return section(
        "The best configurations",
        tag("p", None, RANKED[metric]),
        table(f"The best {len(rows)} of {counted(len(usable), 'usable configuration')}", heads, rows),
    )


def sweep_report(
    result: SweepResult,
    grid: Grid,
    *,
    axes: tuple[str, str] | None = None,
    warnings: Sequence[str] = (),
    command: str | None = None,
) -> str:
    """The page of a sweep: what was tried, what came of it, the best configurations, and a map over two parameters.

    Parameters
    ----------
    result
        From :func:`jpltd_jax.sweep`; may be interrupted.
    grid
        What was swept.
    axes
        The parameters across and upwards on the map. Default: the first two that vary.
    warnings
        To show at the top.
    command
        What made it.

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.report import sweep_report
    >>> from jpltd_jax.sweeps import SweepResult
    >>> grid = jj.grid({"lam": [0.1, 0.5], "theta": [0.1, 0.2]})
    >>> rows = [row | {"status": "MAX_ITER", "n_iter": 30, "accuracy": 0.8} for row in grid.parameters()]
    >>> "<h1>4 of 4 configurations</h1>" in sweep_report(SweepResult(rows, 4), grid)
    True
    """
    every = _axes(grid)
    varying = [name for name, values in every.items() if len(values) > 1]
    drawn = tuple(varying[:2]) if axes is None else axes
    for name in drawn:
        if name not in every:
            raise ValueError(f"the grid has no parameter {name!r}; it has {', '.join(every)}")
    usable = [row for row in result.rows if row["status"] in USABLE]
    ranked = {name: [row for row in usable if not math.isnan(row.get(name, math.nan))] for name in RANKED}
    metric = next((name for name, rows in ranked.items() if rows), None)
    usable = usable if metric is None else ranked[metric]
    statuses = [row["status"] for row in result.rows]
    numbers = {
        "done": f"{len(statuses):,} of {result.total:,}",
        "empty": f"{statuses.count(Status.EMPTY.name):,}",
        "not finite": f"{statuses.count(Status.NONFINITE.name):,}",
    }
    if metric is not None:
        numbers[f"best {metric}"] = _written(metric, max(row[metric] for row in usable))
    remarks = []
    if len(result.rows) < result.total:
        remarks.append(
            f"{counted(result.total - len(result.rows), 'configuration')} not done: the sweep was interrupted."
        )
    if result.rows and not usable:
        remarks.append("No configuration gave a usable affinity. Lower lam.")
    tried = [(name, listed(map(_value, every[name]), 12), len(every[name])) for name in varying]
    fixed = [f"{name} {_value(values[0])}" for name, values in every.items() if name not in varying]
    content = [
        facts(numbers),
        notes([*warnings, *remarks]),
        section(
            "What was tried",
            table("Parameters", ["name", "values", "number of values"], tried) if tried else [],
            tag("p", None, f"The same everywhere: {', '.join(fixed)}.") if fixed else [],
        ),
    ]
    if metric is None and usable:
        content.append(tag("p", None, "Without accuracies or scores the configurations are not ranked."))
    elif metric is not None:
        content.append(_best(usable, varying, metric))
        if max((len(every[name]) for name in drawn), default=0) > MOST_VALUES:
            content.append(tag("p", None, f"There is no map: a parameter has more than {MOST_VALUES} values."))
        elif len(drawn) == 2:
            content.append(_map(usable, {name: every[name] for name in drawn}, metric))
    made = f"Method: {grid.method.title}; at most {counted(grid.max_iter, 'iteration')}."
    content.append(section("How this was made", tag("p", None, made), versions()))
    title = f"{len(result.rows):,} of {counted(result.total, 'configuration')}"
    return page(title, "Sweep report of jpltd_jax", command, content)
