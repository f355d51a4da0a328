"""The picture of the README: the demo's affinity, and the published method in two orders of the same samples.

    python experiments/readme_picture.py

The first panel runs ``jpltd demo``'s data and model; the second is drawn from table2.csv beside this script. Writes
docs/readme.png.
"""

import csv
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import jpltd_jax as jj
from jpltd_jax import plotting

HERE = Path(__file__).resolve().parent
NAMES = {"msrcv1": "MSRC-v1", "ngs": "NGs", "bbcsport": "BBCSport", "uci": "UCI"}
MARKS = (("shuffled", "shuffled", "#0072B2", "o"), ("file", "file order (by class)", "#D55E00", "^"))


def draw_demo(ax: plt.Axes) -> None:
    data = jj.datasets.load_digits_multiview(600)
    order = np.random.default_rng(0).permutation(600)
    mask = jj.missing.paper_protocol(0, 600, 3, 0.5)
    model = jj.JPLTD(n_clusters=10, random_state=0).fit([view[order] for view in data.views], mask=mask)
    accuracy = 100 * float(jj.metrics.accuracy(data.labels[order], model.labels_))
    print(f"demo: accuracy {accuracy:.1f} %, shuffled, half of the samples incomplete")
    plotting.plot_affinity(model.affinity_, model.labels_, ax=ax, title="Affinity learned from shuffled digits")
    ax.set_xlabel("600 samples, grouped by the cluster found")


def draw_orders(ax: plt.Axes) -> None:
    with (HERE / "table2.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["rate"] == "0.5"]
    found = {(row["set"], row["order"]): float(row["accuracy"]) for row in rows}
    for y, name in enumerate(NAMES):
        ax.plot([found[name, "shuffled"], found[name, "file"]], [y, y], color="0.7", zorder=0)
    for order, label, color, marker in MARKS:
        values = [found[name, order] for name in NAMES]
        ax.scatter(values, range(len(NAMES)), s=60, color=color, marker=marker, label=label)
        for y, value in enumerate(values):
            ax.annotate(f"{value:.0f}", (value, y), (0, 9), textcoords="offset points", ha="center")
    ax.set_yticks(range(len(NAMES)), list(NAMES.values()))
    ax.set_ylim(len(NAMES) - 0.1, -0.6)
    ax.set_xlim(60, 104)
    ax.set_xlabel("accuracy (%), half of the samples incomplete, best over a grid")
    ax.set_title("Published method, same data, two orders")
    ax.legend(frameon=False, loc="lower center", ncols=2)


def main() -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", width_ratios=(1, 1.3))
    draw_demo(left)
    draw_orders(right)
    path = HERE.parent / "docs" / "readme.png"
    figure.savefig(path, dpi=90, pil_kwargs={"optimize": True})
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
