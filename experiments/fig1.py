"""Fig. 1: what missing samples do to a neighbour graph, drawn on 300 points and counted on the sets.

    python experiments/fig1.py DATA_DIRECTORY

Complete: 300 points of three classes in the plane and their graph of 10 neighbours. Incomplete: 150 of them. Counted:
the share of edges between classes, complete and incomplete, there and in every view of MSRC-v1, NGs and BBCSport, of
which the mask of the tables at rate 0.5 leaves some samples. The order of the samples does not matter.
Writes figures/fig1.png and fig1.csv.
"""

import numpy as np
from figures import data_directory, panels, save
from protocol import HERE, load_case
from sklearn.datasets import make_blobs
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import normalize
from tables import write_csv

from jpltd_jax.plotting import plot_neighbours

NEIGHBOURS = 10
DRAWS = 200


def edges(points: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Graph that joins i and j if either is a neighbour of the other; its edges within and between classes."""
    directed = kneighbors_graph(points, NEIGHBOURS).toarray() > 0
    graph = directed | directed.T
    i, j = np.nonzero(np.triu(graph))
    within = int((labels[i] == labels[j]).sum())
    return graph, within, len(i) - within


def counted(name: str, view: str, points: np.ndarray, labels: np.ndarray, left: np.ndarray) -> dict:
    _, within, between = edges(points, labels)
    _, within_left, between_left = edges(points[left], labels[left])
    return {
        "set": name,
        "view": view,
        "samples": len(points),
        "within": within,
        "between": between,
        "between_percent": round(100 * between / (within + between), 1),
        "samples_left": len(points[left]),
        "within_left": within_left,
        "between_left": between_left,
        "between_percent_left": round(100 * between_left / (within_left + between_left), 1),
    }


def main() -> None:
    data_directory(__doc__)
    points, labels = make_blobs(300, centers=[[0, 0], [2.6, 0], [1.3, 2.2]], cluster_std=0.8, random_state=0)
    left = np.sort(np.random.default_rng(0).choice(300, 150, replace=False))
    figure, axes = panels(1, 2, 3.6)
    for ax, kept, title in zip(axes[0], (np.arange(300), left), ("Complete, 300 points", "150 of them"), strict=True):
        graph, within, between = edges(points[kept], labels[kept])
        share = f"{100 * between / (within + between):.1f} % of {within + between} edges between classes"
        plot_neighbours(points[kept], graph, labels[kept], ax=ax, title=f"{title}\n{share}")
    save(figure, "fig1")
    rows = [counted("three classes in the plane", "-", points, labels, left)]
    rng = np.random.default_rng(1)
    draws = [counted("", "", points, labels, rng.choice(300, 150, replace=False)) for _ in range(DRAWS)]
    means = {name: round(float(np.mean([draw[name] for draw in draws])), 1) for name in list(draws[0])[2:]}
    rows.append({"set": f"the same, mean of {DRAWS} choices of 150", "view": "-"} | means)
    for name in ("msrcv1", "ngs", "bbcsport"):
        case = load_case(name, 0.5, "file")
        for v, x in enumerate(case.views):
            rows.append(counted(name, str(v), normalize(x.astype(float)), case.labels, case.mask[:, v]))
    write_csv(HERE / "fig1.csv", rows)
    for row in rows:
        print(*row.values())


if __name__ == "__main__":
    main()
