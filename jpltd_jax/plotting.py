"""Drawing functions (extra: ``pip install "jpltd_jax[plot]"``); each draws on given or new axes and returns them."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jpltd_jax.audit import OrderAudit
from jpltd_jax.selection import NumbersOfClusters
from jpltd_jax.sweeps.store import JUDGED, USABLE, SweepResult
from jpltd_jax.views import checked_mask

__all__ = [
    "plot_affinity",
    "plot_availability",
    "plot_candidates",
    "plot_embedding",
    "plot_history",
    "plot_margins",
    "plot_n_clusters",
    "plot_neighbours",
    "plot_order_audit",
    "plot_score_grid",
    "plot_support",
    "plot_sweep",
    "principal_plane",
]

COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#000000", "#F0E442")
"""Okabe and Ito's palette, which people with any kind of colour vision can tell apart."""

MARKERS = "os^Dv"
"""Marks of the clusters: each goes through all :data:`COLORS` before the next one."""


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "jpltd_jax[plot]"') from error
    return plt


def _axes(ax: Any) -> Any:
    return _pyplot().subplots(figsize=(4.5, 4), layout="constrained")[1] if ax is None else ax


def plot_affinity(affinity: Any, labels: Any = None, *, ax: Any = None, title: str = "Affinity") -> Any:
    """Affinity as an image, samples grouped by ``labels`` with the groups framed.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.plotting import plot_affinity
    >>> ax = plot_affinity(np.kron(np.eye(2), np.ones((3, 3))), labels=[0, 0, 0, 1, 1, 1])
    >>> ax.get_xlabel()
    'samples, grouped by label'
    """
    ax = _axes(ax)
    h = np.asarray(affinity)
    order = np.arange(len(h)) if labels is None else np.argsort(np.asarray(labels), kind="stable")
    h = h[np.ix_(order, order)]
    off_diagonal = h[~np.eye(len(h), dtype=bool)]
    positive = off_diagonal[off_diagonal > 0]
    top = float(np.quantile(positive, 0.95)) if positive.size else 1.0
    ax.imshow(h, cmap="cividis", vmin=0, vmax=top, interpolation="nearest")
    ax.set_title(title)
    ax.set_xlabel("samples" if labels is None else "samples, grouped by label")
    ax.set_xticks([])
    ax.set_yticks([])
    if labels is not None:
        edges = np.concatenate([[0], np.cumsum(np.unique(np.asarray(labels), return_counts=True)[1])]) - 0.5
        for a, b in itertools.pairwise(edges):
            ax.plot([a, b, b, a, a], [a, a, b, b, a], color="white", linewidth=0.8)
    return ax


def plot_history(history: Any, *, tol: float | None = None, normalize: bool = False, ax: Any = None) -> Any:
    """What the stopping rule watches after each iteration, on a logarithmic scale; of JPLTD the two residuals.

    With ``normalize`` each curve is divided by its largest value, as in the paper's figure, and ``tol`` is not drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.methods.jpltd import Residuals
    >>> from jpltd_jax.plotting import plot_history
    >>> plot_history(Residuals(np.array([1.0, 0.1]), np.array([0.5, np.nan]))).get_yscale()
    'log'
    """
    ax = _axes(ax)
    curves = history._asdict() if hasattr(history, "_asdict") else {"watched": history}
    for (name, values), color, line in zip(curves.items(), itertools.cycle(COLORS), itertools.cycle(("-", "--", ":"))):
        record = np.asarray(values)
        record = record / np.nanmax(record) if normalize else record
        ax.plot(np.arange(1, len(record) + 1), record, line, color=color, label=name)
    if tol and not normalize:
        ax.axhline(tol, color="0.5", linewidth=0.8, linestyle=":", label="tolerance")
    ax.set_yscale("log")
    ax.set_xlabel("iteration")
    ax.set_ylabel("part of the largest value" if normalize else "what is watched")
    ax.set_title("Convergence")
    ax.legend(frameon=False)
    return ax


def plot_neighbours(points: Any, graph: Any, labels: Any, *, ax: Any = None, title: str = "Neighbour graph") -> Any:
    """Points in the plane and the edges of a graph over them: grey within a class, red between classes.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.plotting import plot_neighbours
    >>> ax = plot_neighbours(np.eye(3, 2), np.eye(3)[[1, 0, 2]], [0, 0, 1])
    >>> ax.get_title()
    'Neighbour graph'
    """
    ax = _axes(ax)
    x, y = np.asarray(points), np.asarray(labels)
    i, j = np.nonzero(np.triu(np.asarray(graph) > 0, 1) | np.tril(np.asarray(graph) > 0, -1).T)
    for between, color in ((False, "0.75"), (True, "#D55E00")):
        chosen = (y[i] != y[j]) == between
        ax.plot(x[[i[chosen], j[chosen]], 0], x[[i[chosen], j[chosen]], 1], color=color, linewidth=0.6, zorder=1)
    ax.scatter(x[:, 0], x[:, 1], c=y, cmap="cividis", s=12, zorder=2)
    ax.set_title(title)
    ax.set_xticks([])
    ax.set_yticks([])
    return ax


def plot_score_grid(
    scores: Any, rows: Any, columns: Any, *, names: tuple[str, str] = ("lam", "theta"), ax: Any = None, title: str = ""
) -> Any:
    """Scores in % over two parameters, as an image with one field for each pair of values; NaN is left white.

    Examples
    --------
    >>> from jpltd_jax.plotting import plot_score_grid
    >>> ax = plot_score_grid([[90.0, 95.0, 80.0]], rows=[5.0], columns=[0.05, 0.1, 0.5])
    >>> [text.get_text() for text in ax.get_xticklabels()]
    ['0.05', '0.1', '0.5']
    """
    ax = _axes(ax)
    image = ax.imshow(np.asarray(scores), cmap="cividis", vmin=0, vmax=100, origin="lower", aspect="auto")
    ax.set_yticks(range(len(rows)), [f"{value:g}" for value in rows])
    ax.set_xticks(range(len(columns)), [f"{value:g}" for value in columns], rotation=60)
    ax.set_ylabel(names[0])
    ax.set_xlabel(names[1])
    ax.set_title(title)
    ax.figure.colorbar(image, ax=ax, label="accuracy (%)")
    return ax


def plot_order_audit(audits: Mapping[str, OrderAudit], *, ax: Any = None) -> Any:
    """Accuracy of one or more methods in file order, shuffled (each dot an order) and sorted by class.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.audit import OrderAudit
    >>> from jpltd_jax.plotting import plot_order_audit
    >>> audit = OrderAudit(file=0.9, shuffled=np.array([0.5, 0.6]), sorted=1.0, agreement=0.3, repeat_agreement=1.0)
    >>> plot_order_audit({"published": audit}).get_ylabel()
    'accuracy (%)'
    """
    ax = _axes(ax)
    for x, audit in enumerate(audits.values()):
        spread = np.linspace(-0.12, 0.12, len(audit.shuffled)) if len(audit.shuffled) > 1 else np.zeros(1)
        marks = [
            ("shuffled", x + spread, audit.shuffled, "#0072B2", "o", 22),
            ("file order", [x], np.array([audit.file]), "#E69F00", "s", 50),
            ("sorted by class", [x], np.array([audit.sorted]), "#D55E00", "^", 50),
        ]
        for label, at, values, color, marker, size in marks:
            ax.scatter(at, 100 * values, color=color, marker=marker, s=size, label=label if x == 0 else None)
    ax.set_xticks(range(len(audits)), list(audits))
    ax.set_xlim(-0.6, len(audits) - 0.4)
    ax.set_ylim(0, 104)
    ax.set_ylabel("accuracy (%)")
    ax.set_title("Accuracy by order of the samples")
    ax.legend(frameon=False, loc="lower right")
    return ax


def plot_sweep(
    result: SweepResult, *, x: str = "theta", y: str = "lam", metric: str = "accuracy", ax: Any = None
) -> Any:
    """Mean ``metric`` over all configurations with the same two parameters, as a heat map; the best cell is framed.

    Configurations without a usable affinity are left out of the mean; a cell that has no other is crossed.

    Examples
    --------
    >>> from jpltd_jax.sweeps import SweepResult
    >>> from jpltd_jax.plotting import plot_sweep
    >>> row = {"lam": 1.0, "theta": 0.1, "status": "MAX_ITER", "accuracy": 0.8}
    >>> ax = plot_sweep(SweepResult([row, row | {"theta": 0.5, "accuracy": 0.6}], 2))
    >>> ax.get_xlabel(), ax.get_ylabel(), [text.get_text() for text in ax.texts]
    ('theta', 'lam', ['80', '60'])
    """
    if not result.rows:
        raise ValueError("the sweep has no rows")
    for name in (x, y, metric):
        if name not in result.rows[0]:
            raise ValueError(f"the rows of the sweep have no {name!r}; they have {', '.join(result.rows[0])}")
    ax = _axes(ax)
    across, down = (np.unique([row[name] for row in result.rows]) for name in (x, y))
    cells: dict[tuple[int, int], list[float]] = {}
    for row in result.rows:
        if row["status"] in USABLE and not np.isnan(row[metric]):
            at = int(np.searchsorted(down, row[y])), int(np.searchsorted(across, row[x]))
            cells.setdefault(at, []).append(100 * row[metric])
    values = np.full((len(down), len(across)), np.nan)
    for at, found in cells.items():
        values[at] = np.mean(found)
    image = ax.imshow(values, cmap="cividis", origin="lower", aspect="auto")
    middle = (image.norm.vmin + image.norm.vmax) / 2 if cells else 0.0
    small = 9 if values.size <= 60 else 7
    for (i, j), value in np.ndenumerate(values):
        text, color = ("×", "0.4") if np.isnan(value) else (f"{value:.0f}", "black" if value > middle else "white")
        ax.text(j, i, text, ha="center", va="center", color=color, fontsize=small)
    if cells:
        i, j = np.unravel_index(np.nanargmax(values), values.shape)
        ax.plot(
            [j - 0.5, j + 0.5, j + 0.5, j - 0.5, j - 0.5],
            [i - 0.5, i - 0.5, i + 0.5, i + 0.5, i - 0.5],
            color="#D55E00",
            linewidth=2.5,
        )
    ax.set_xlim(-0.5, len(across) - 0.5)
    ax.set_ylim(-0.5, len(down) - 0.5)
    ax.set_xticks(range(len(across)), [f"{value:g}" for value in across])
    ax.set_yticks(range(len(down)), [f"{value:g}" for value in down])
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    most = max(map(len, cells.values()), default=1)
    means, crosses = f", mean of {most}" if most > 1 else "", ", × none usable" if len(cells) < values.size else ""
    ax.set_title(f"{metric} ({'× 100' if metric in JUDGED else '%'}){means}{crosses}")
    return ax


def plot_availability(mask: Any, *, ax: Any = None) -> Any:
    """Which views of which samples are observed: one row per view, samples with the same views side by side.

    ``mask`` is (n, m), True where observed.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.plotting import plot_availability
    >>> plot_availability(np.array([[True, False], [True, True]])).get_title()
    'Observed views: 1 of 2 samples complete'
    """
    ax = _axes(ax)
    seen = checked_mask(mask, *np.shape(mask))
    n, m = seen.shape
    ordered = seen[np.lexsort((*seen.T[::-1], seen.sum(axis=1)))[::-1]]
    from matplotlib.colors import ListedColormap

    ax.imshow(ordered.T, cmap=ListedColormap(["0.9", COLORS[0]]), vmin=0, vmax=1, aspect="auto", interpolation="none")
    for v in range(1, m):
        ax.axhline(v - 0.5, color="white", linewidth=3)
    ax.set_yticks(range(m), [f"view {v}\n{100 * share:.0f} %" for v, share in enumerate(seen.mean(axis=0))])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("samples, those with the same views together")
    ax.set_title(f"Observed views: {int(seen.all(axis=1).sum())} of {n} samples complete")
    return ax


def principal_plane(embedding: Any) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, 2) in the plane of the two directions in which they vary most, and their shares of the variance.

    Examples
    --------
    >>> from jpltd_jax.plotting import principal_plane
    >>> plane, share = principal_plane([[0.0, 3.0], [0.0, -3.0], [1.0, 0.0], [-1.0, 0.0]])
    >>> abs(plane).round().tolist(), share.round(3).tolist()
    ([[3.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [0.9, 0.1])
    """
    points = np.asarray(embedding, np.float64)
    u, s, _ = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    found = min(2, len(s))
    plane, share = np.zeros((len(points), 2)), np.zeros(2)
    plane[:, :found] = (u * s)[:, :found]
    share[:found] = s[:found] ** 2 / max(float(np.sum(s**2)), np.finfo(float).tiny)
    return plane, share


def plot_embedding(embedding: Any, labels: Any = None, *, ax: Any = None, title: str = "Embedding") -> Any:
    """Samples in the plane of the two directions in which their embedding varies most, with the number of each cluster.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.plotting import plot_embedding
    >>> ax = plot_embedding(np.eye(3)[[0, 0, 1, 1, 2]], labels=[0, 0, 1, 1, 2])
    >>> [text.get_text() for text in ax.texts], len(ax.collections)
    (['0', '1', '2'], 3)
    """
    ax = _axes(ax)
    plane, share = principal_plane(embedding)
    of = np.zeros(len(plane), int) if labels is None else np.asarray(labels)
    for i, label in enumerate(np.unique(of)):
        members = plane[of == label]
        marker = MARKERS[i // len(COLORS) % len(MARKERS)]
        ax.scatter(*members.T, s=18, color=COLORS[i % len(COLORS)], marker=marker, linewidths=0, alpha=0.8)
        if labels is not None:
            at, beside = np.median(members, axis=0), (5, 5)
            ax.annotate(str(label), at, beside, textcoords="offset points", fontweight="bold")
    ax.set_xlabel(f"first direction ({100 * share[0]:.0f} % of variance)")
    ax.set_ylabel(f"second direction ({100 * share[1]:.0f} % of variance)")
    ax.margins(0.1)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(title)
    return ax


def plot_candidates(candidates: Mapping[str, Mapping[str, Any]], chosen: str | None = None, *, ax: Any = None) -> Any:
    """Q, R² and the score Q / (1 - R²) of every partition that was tried, as bars; the one that was taken is framed.

    ``candidates`` and ``chosen`` are ``candidates_`` and ``chosen_`` of :class:`jpltd_jax.JPLTD`.

    Examples
    --------
    >>> from jpltd_jax.plotting import plot_candidates
    >>> late = {"modularity": 0.5, "explained": 0.2, "score": 0.625}
    >>> ax = plot_candidates({"late": late, "completed": late | {"score": 0.7}}, chosen="completed")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['late', 'completed (taken)']
    """
    if not candidates:
        raise ValueError("there are no candidates: the fit had nothing to choose from")
    ax = _axes(ax)
    measures = {"modularity": "modularity Q", "explained": "explained R²", "score": "score Q / (1 - R²)"}
    width = 0.8 / len(candidates)
    for i, (name, found) in enumerate(candidates.items()):
        heights = [float(found[measure]) for measure in measures]
        taken = name == chosen
        bars = ax.bar(
            np.arange(len(measures)) + (i - (len(candidates) - 1) / 2) * width,
            heights,
            0.9 * width,
            color=COLORS[i % len(COLORS)],
            edgecolor="black",
            linewidth=2 if taken else 0,
            label=f"{name} (taken)" if taken else name,
        )
        ax.bar_label(bars, [f"{height:.2f}" for height in heights], padding=2)
    ax.axhline(0, color="0.5", linewidth=0.8)
    ax.set_xticks(range(len(measures)), list(measures.values()))
    ax.margins(y=0.12)
    ax.set_title("What the views say of each candidate")
    ax.legend(frameon=False, loc="upper left")
    return ax


def plot_support(support: Any, names: Sequence[str] | None = None, *, ax: Any = None) -> Any:
    """How strongly each view supports each cluster: the cluster's part of the view's modularity, times 100.

    ``support`` is ``support_`` of :class:`jpltd_jax.JPLTD`, one row per view; ``names`` are those of the views.

    Examples
    --------
    >>> from jpltd_jax.plotting import plot_support
    >>> ax = plot_support([[0.2, 0.1], [0.02, 0.0]], names=["rna", "protein"])
    >>> [tick.get_text() for tick in ax.get_yticklabels()], [text.get_text() for text in ax.texts]
    (['rna', 'protein'], ['20', '10', '2', '0'])
    """
    if support is None:
        raise ValueError("there is no support: the fit kept no graphs of the views")
    values = 100 * np.asarray(support, np.float64)
    m, c = values.shape
    if names is not None and len(names) != m:
        raise ValueError(f"names must hold one for each of the {m} views, got {len(names)}")
    ax = _axes(ax)
    top = max(float(values.max()), np.finfo(float).tiny)
    ax.imshow(values, cmap="cividis", vmin=0, vmax=top, aspect="auto")
    small = 9 if values.size <= 60 else 6
    for (v, k), value in np.ndenumerate(values):
        color = "black" if value > top / 2 else "white"
        ax.text(k, v, f"{value:.0f}", ha="center", va="center", color=color, fontsize=small)
    ax.set_yticks(range(m), [f"view {v}" for v in range(m)] if names is None else list(names))
    ax.set_xticks(range(c), [str(k) for k in range(c)])
    ax.set_xlabel("cluster")
    ax.set_title("Support by view (modularity × 100)")
    return ax


def plot_margins(margin: Any, labels: Any, *, ax: Any = None) -> Any:
    """How sure the samples of each cluster are: margins from the largest to the smallest, one curve per cluster.

    The horizontal axis is the share of the cluster, so that clusters of all sizes compare. ``margin`` and ``labels``
    are ``margin_`` and ``labels_`` of :class:`jpltd_jax.JPLTD`.

    Examples
    --------
    >>> from jpltd_jax.plotting import plot_margins
    >>> ax = plot_margins([0.9, 0.1, 0.5], labels=[0, 0, 1])
    >>> [line.get_ydata().tolist() for line in ax.lines]
    [[0.9, 0.1], [0.5]]
    """
    ax = _axes(ax)
    values, of = np.asarray(margin, np.float64), np.asarray(labels)
    if values.shape != of.shape:
        raise ValueError(f"margin and labels must have one entry per sample each, got {values.shape} and {of.shape}")
    for i, label in enumerate(np.unique(of)):
        sorted_ = np.sort(values[of == label])[::-1]
        share = (np.arange(len(sorted_)) + 0.5) / len(sorted_)
        line = ("-", "--", ":", "-.")[i // len(COLORS) % 4]
        marker = "." if len(sorted_) == 1 else None
        ax.plot(share, sorted_, line, color=COLORS[i % len(COLORS)], marker=marker, label=f"{label} ({len(sorted_)})")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.02)
    ax.set_xlabel("share of the cluster")
    ax.set_ylabel("margin: 1 sure, 0 between two clusters")
    ax.set_title("How sure the labels are")
    ax.legend(frameon=False, title="cluster (size)", fontsize="small")
    return ax


def plot_n_clusters(tried: NumbersOfClusters, chosen: int | None = None, *, axes: Any = None) -> tuple[Any, Any, Any]:
    """Modularity, the label-free score and the eigengap against the number of clusters, side by side.

    ``tried`` is what :func:`jpltd_jax.selection.compare_numbers_of_clusters` gives, ``axes`` are three axes to draw on.
    Returns them.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.plotting import plot_n_clusters
    >>> from jpltd_jax.selection import NumbersOfClusters
    >>> tried = NumbersOfClusters(np.array([2, 3]), np.array([0.3, 0.5]), np.array([0.5, 0.9]), np.array([0.1, 0.4]))
    >>> [ax.get_ylabel() for ax in plot_n_clusters(tried, chosen=3)]
    ['modularity', 'score', 'eigengap']
    """
    given = _pyplot().subplots(1, 3, figsize=(11, 3.5), layout="constrained")[1] if axes is None else axes
    for ax, measure, color in zip(given, ("modularity", "score", "eigengap"), COLORS, strict=False):
        values = getattr(tried, measure)
        ax.plot(tried.counts, values, "o-", color=color, markersize=4)
        best = int(np.argmax(values))
        label = f"largest: {tried.counts[best]}"
        ax.plot(tried.counts[best], values[best], "s", color=color, markersize=9, label=label)
        if chosen is not None:
            ax.axvline(chosen, color="0.5", linewidth=0.8, linestyle=":", label=f"taken: {chosen}")
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_xlabel("number of clusters")
        ax.set_ylabel(measure)
        ax.legend(frameon=False)
    first, second, third = given
    return first, second, third
