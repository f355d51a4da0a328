"""The order-free study: shuffled samples, methods that a user would choose between, no labels in any choice.

    python experiments/order_free_study.py DATA_DIRECTORY [--sets ...] [--rates ...] [--masks N]

Every run is on shuffled samples with a mask of the paper's protocol; mask and shuffle of number i have seed i. All
settings are fixed for all sets, so no labels are used; the methods ``*_best`` are the paper's way, the best over a grid
of lam by the labels, and only there for comparison. One row per run is appended to order_free_study.csv beside this
script, and runs that it holds are skipped. At the end the means over masks and rates are printed for every set.
"""

import argparse
import csv
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import jax
import numpy as np
from sklearn.cluster import KMeans

import jpltd_jax as jj
from jpltd_jax.loop import run
from jpltd_jax.methods import JPLTD
from jpltd_jax.methods.jpltd import PUBLISHED_HYPER, Data
from jpltd_jax.pipeline import Clustering, label
from jpltd_jax.transforms import Fourier, Orthonormal, Transform

SETS = ("msrcv1", "ngs", "bbcsport", "orl_4view", "orl_recomputed", "uci", "scene15")
RATES = (0.1, 0.3, 0.5, 0.7)
STORE = Path(__file__).with_suffix(".csv")
ORDER_FREE = jj.Config(n_neighbors=10, share=0.0, n_vectors=None, partner=None, power=0)
"""The default at the time of this study; default_study.py is about the present one."""
FOURIER_LAMS, GRAPH_LAMS = (2.0, 5.0, 10.0, 20.0), (0.1, 0.25, 0.5, 1.0, 2.0)


@dataclass(eq=False)
class Case:
    problem: jj.Problem
    columns: list[np.ndarray]
    mask: np.ndarray
    labels: np.ndarray
    seed: int

    @property
    def key(self) -> jax.Array:
        return jax.random.key(self.seed)

    @property
    def n_clusters(self) -> int:
        return len(np.unique(self.labels))

    @cached_property
    def default(self) -> Clustering:
        return jj.cluster(self.key, self.problem, jj.Hyper(), self.n_clusters, ORDER_FREE)

    def data(self, transform: Transform, config: jj.Config = ORDER_FREE) -> Data:
        return Data(self.problem, transform, config=config, n_clusters=self.n_clusters)


def averaged_knn(case: Case) -> jax.Array:
    method = jj.methods.AVERAGED_GRAPH
    return jj.cluster(case.key, case.problem, method.Hyper(), case.n_clusters, method=method).labels


def local_scaling(case: Case, n_neighbors: int) -> jax.Array:
    graph = jj.graphs.consensus_graph(case.problem, n_neighbors)
    return jj.spectral.spectral_cluster(case.key, graph, case.n_clusters)


def kmeans(case: Case, filled: list[np.ndarray]) -> np.ndarray:
    return KMeans(case.n_clusters, n_init=20, random_state=case.seed).fit_predict(np.hstack(filled))


def mean_impute(case: Case) -> np.ndarray:
    means = [x[case.mask[:, v]].mean(axis=0) for v, x in enumerate(case.columns)]
    return kmeans(case, [np.where(case.mask[:, [v]], x, means[v]) for v, x in enumerate(case.columns)])


def knn_impute(case: Case, n_neighbors: int = 5) -> np.ndarray:
    """A missing view is the mean over the nearest samples that have it, by mean squared distance in shared views."""
    shared = case.mask.astype(float) @ case.mask.T
    squares = np.zeros_like(shared)
    for v, x in enumerate(case.columns):
        gram = x @ x.T
        square = np.diagonal(gram)
        squares += np.where(np.outer(case.mask[:, v], case.mask[:, v]), square[:, None] + square - 2 * gram, 0)
    distance = np.where(shared > 0, squares / np.maximum(shared, 1), np.inf)
    np.fill_diagonal(distance, np.inf)
    filled = []
    for v, x in enumerate(case.columns):
        complete = x.copy()
        to_observed = np.where(case.mask[:, v], distance, np.inf)
        for i in np.flatnonzero(~case.mask[:, v]):
            complete[i] = x[np.argsort(to_observed[i])[:n_neighbors]].mean(axis=0)
        filled.append(complete)
    return kmeans(case, filled)


def fourier(case: Case, max_iter: int) -> jax.Array:
    loop = jj.Loop(max_iter=max_iter)
    return jj.cluster(case.key, case.problem, PUBLISHED_HYPER, case.n_clusters, jj.PUBLISHED, loop=loop).labels


def all_pairs(case: Case) -> jax.Array:
    """The default's solution, clustered without a limit of reach; its transform is no longer needed."""
    data = case.data(Fourier(), replace(ORDER_FREE, n_reach=None))
    return label(case.key, JPLTD, data, case.default.solution, case.n_clusters).labels


def with_basis(case: Case, transform: Transform) -> jax.Array:
    """The default with another basis."""
    data = case.data(transform)
    return label(case.key, JPLTD, data, run(JPLTD, data, jj.Hyper(), case.key), case.n_clusters).labels


def second_pass(case: Case) -> jax.Array:
    """The basis estimated again, from the default's own affinity."""
    return with_basis(case, jj.graphs.graph_transform(case.default.affinity))


def best(case: Case, lams: tuple[float, ...], config: jj.Config) -> list[int]:
    grid = jj.grid({"lam": lams}, config=config)
    return jj.sweep(case.problem, grid, n_clusters=case.n_clusters, key=case.key, y=case.labels).best()["labels"]


METHODS: dict[str, Callable[[Case], object]] = {
    "averaged_knn": averaged_knn,
    "local_scaling_10": lambda case: local_scaling(case, 10),
    "local_scaling_n6": lambda case: local_scaling(case, len(case.labels) // 6),
    "mean_impute_kmeans": mean_impute,
    "knn_impute_kmeans": knn_impute,
    "fourier_30": lambda case: fourier(case, 30),
    "fourier_converged": lambda case: fourier(case, 200),
    "order_free": lambda case: case.default.labels,
    "order_free_all_pairs": all_pairs,
    "order_free_second_pass": second_pass,
    "no_basis": lambda case: with_basis(case, Orthonormal.identity(len(case.labels))),
    "random_basis": lambda case: with_basis(case, Orthonormal.random(case.key, len(case.labels))),
    "fourier_30_best": lambda case: best(case, FOURIER_LAMS, jj.PUBLISHED),
    "order_free_best": lambda case: best(case, GRAPH_LAMS, ORDER_FREE),
}
"""From a case to labels."""


def case_of(views: list[np.ndarray], mask: np.ndarray, labels: np.ndarray, seed: int) -> Case:
    unit = [x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in views]
    columns = [np.where(mask[:, [v]], x, 0) for v, x in enumerate(unit)]
    return Case(jj.make_problem(views, mask, dtype="float32"), columns, mask, labels, seed)


def make_case(name: str, rate: float, seed: int) -> Case:
    data = jj.datasets.load(name)
    n = len(data.labels)
    order = np.random.default_rng(seed).permutation(n)
    views = [x[order].astype(np.float32) for x in data.views]
    return case_of(views, jj.missing.paper_protocol(seed, n, len(views), rate), data.labels[order], seed)


def stored() -> Iterator[tuple[str, str, str, str, float]]:
    if STORE.exists():
        with STORE.open(newline="") as file:
            for row in csv.DictReader(file):
                yield row["set"], row["rate"], row["mask"], row["method"], float(row["accuracy"])


def print_table() -> None:
    """Means of every method, each with its number of runs, and by how much the default is above it on common runs."""
    table: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for name, rate, mask, method, accuracy in stored():
        table.setdefault((name, method), {})[rate, mask] = accuracy

    def show(title: str, cell: Callable[[dict, dict], str]) -> None:
        print(f"\n{title:<28}" + "".join(f"{name[:14]:>15}" for name in SETS))
        for method in METHODS:
            cells = [cell(table.get((name, method), {}), table.get((name, "order_free"), {})) for name in SETS]
            print(f"{method:<28}" + "".join(f"{text:>15}" for text in cells))

    def mean(runs: dict, default: dict) -> str:
        return f"{np.mean(list(runs.values())):.1f} ({len(runs)})" if runs else ""

    def margin(runs: dict, default: dict) -> str:
        common = runs.keys() & default.keys()
        return f"{np.mean([default[run] - runs[run] for run in common]):+.1f} ({len(common)})" if common else ""

    show("accuracy %, shuffled (runs)", mean)
    show("default above it (runs)", margin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--rates", nargs="+", type=float, default=RATES)
    parser.add_argument("--masks", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    arguments = parser.parse_args()
    os.environ["JPLTD_DATA"] = str(arguments.data)
    done = {row[:4] for row in stored()}
    for seed in range(arguments.masks):
        for name in arguments.sets:
            for rate in arguments.rates:
                todo = [m for m in arguments.methods if (name, str(rate), str(seed), m) not in done]
                if not todo:
                    continue
                case = make_case(name, rate, seed)
                for method in todo:
                    value = 100 * float(jj.metrics.accuracy(case.labels, METHODS[method](case)))
                    new = not STORE.exists()
                    with STORE.open("a", newline="") as file:
                        writer = csv.writer(file)
                        if new:
                            writer.writerow(["set", "rate", "mask", "method", "accuracy"])
                        writer.writerow([name, rate, seed, method, round(value, 2)])
                    print(f"{name} rate {rate} mask {seed} {method}: {value:.1f}", flush=True)
    print_table()


if __name__ == "__main__":
    main()
