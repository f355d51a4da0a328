"""The order-free study: shuffled samples, methods that a user would choose between, no labels in any choice.

    python experiments/order_free_study.py DATA_DIRECTORY [--sets ...] [--rates ...] [--masks N]

Every run is on shuffled samples with a mask of the paper's protocol; mask and shuffle of number i have seed i. All
settings are fixed for all sets, so no labels are used; the columns ``*_best`` are the paper's way, the best over a grid
of lam by the labels, and only there for comparison. One row a run is appended to order_free_study.csv beside this
script, and runs that it holds are skipped; at the end the mean over masks and rates is printed for every set.
"""

import argparse
import csv
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.cluster import KMeans

import jpltd_jax as jj
from jpltd_jax.baselines.graphs import knn_graph
from jpltd_jax.estimator import SETTINGS

SETS = ("msrcv1", "ngs", "bbcsport", "orl_4view", "orl_recomputed", "uci", "scene15")
RATES = (0.1, 0.3, 0.5, 0.7)
STORE = Path(__file__).with_suffix(".csv")
FOURIER = jj.Hyper(lam=5.0, theta=0.1)
FOURIER_LAMS, GRAPH_LAMS = (2.0, 5.0, 10.0, 20.0), (0.1, 0.25, 0.5, 1.0, 2.0)
LARGE = 3000


class Case(NamedTuple):
    problem: jj.Problem
    columns: list[np.ndarray]
    mask: np.ndarray
    labels: np.ndarray
    seed: int

    @property
    def n_clusters(self) -> int:
        return len(np.unique(self.labels))

    def accuracy(self, labels: object) -> float:
        return 100 * float(jj.metrics.accuracy(self.labels, labels))

    def cluster(self, affinity: jax.Array) -> float:
        method = "iterative" if len(self.labels) > LARGE else "dense"
        key = jax.random.key(self.seed)
        return self.accuracy(jj.spectral_cluster(key, affinity, self.n_clusters, method=method))

    def kmeans(self, features: np.ndarray) -> float:
        return self.accuracy(KMeans(self.n_clusters, n_init=20, random_state=self.seed).fit_predict(features))


def averaged_knn(case: Case) -> float:
    graphs = jax.vmap(lambda x, present: knn_graph(x, present, 10))(case.problem.data, case.problem.mask)
    together = jnp.einsum("vi,vj->ij", case.problem.mask.astype(jnp.float32), case.problem.mask.astype(jnp.float32))
    return case.cluster(graphs.sum(axis=0) / jnp.maximum(together, 1))


def local_scaling(case: Case, n_neighbors: int) -> float:
    return case.cluster(jj.graphs.consensus_graph(case.problem, n_neighbors))


def mean_impute(case: Case) -> float:
    means = [x[case.mask[:, v]].mean(axis=0) for v, x in enumerate(case.columns)]
    filled = [np.where(case.mask[:, [v]], x, means[v]) for v, x in enumerate(case.columns)]
    return case.kmeans(np.hstack(filled))


def knn_impute(case: Case, n_neighbors: int = 5) -> float:
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
    return case.kmeans(np.hstack(filled))


def fourier(case: Case, lam: float, max_iter: int) -> float:
    result = jj.solve(case.problem, FOURIER._replace(lam=lam), latent_dim=60, max_iter=max_iter)
    return case.cluster(result.affinity)


def learned(case: Case, lam: float) -> jax.Array:
    """Affinity of the estimator's default but for lam; above 3000 samples with 500 eigenvectors."""
    default, setting = jj.JPLTD(1), SETTINGS["graph"]
    n_vectors = None if len(case.labels) <= LARGE else 500
    transform = jj.graphs.graph_transform(jj.graphs.consensus_graph(case.problem, default.n_neighbors), n_vectors)
    result = jj.solve(
        case.problem,
        jj.Hyper(lam=lam, theta=default.theta),
        latent_dim=default.latent_dim,
        max_iter=default.max_iter,
        transform=transform,
        w_init=setting.w_init,
    )
    return result.affinity


def graph(case: Case, lam: float) -> float:
    return case.cluster(jj.graphs.sparsify(learned(case, lam), SETTINGS["graph"].n_kept))


def sum_with_neighbours(case: Case) -> float:
    setting = SETTINGS["graph"]
    kept = jj.graphs.sparsify(learned(case, setting.lam), setting.n_kept)
    return case.cluster(kept + jj.graphs.consensus_graph(case.problem, jj.JPLTD(1).n_neighbors))


def product_with_neighbours(case: Case) -> float:
    """Geometric mean of the 50 strongest neighbours of both, of which the usual number is kept."""
    setting = SETTINGS["graph"]
    both = jj.graphs.sparsify(learned(case, setting.lam), 50) * jj.graphs.consensus_graph(case.problem, 50)
    return case.cluster(jj.graphs.sparsify(jnp.sqrt(both), setting.n_kept))


METHODS: dict[str, Callable[[Case], float]] = {
    "averaged_knn": averaged_knn,
    "local_scaling_10": lambda case: local_scaling(case, 10),
    "local_scaling_n6": lambda case: local_scaling(case, len(case.labels) // 6),
    "mean_impute_kmeans": mean_impute,
    "knn_impute_kmeans": knn_impute,
    "fourier_30": lambda case: fourier(case, 5.0, 30),
    "fourier_converged": lambda case: fourier(case, 5.0, 200),
    "order_free": lambda case: graph(case, SETTINGS["graph"].lam),
    "order_free_sum": sum_with_neighbours,
    "order_free_product": product_with_neighbours,
    "fourier_30_best": lambda case: max(fourier(case, lam, 30) for lam in FOURIER_LAMS),
    "order_free_best": lambda case: max(graph(case, lam) for lam in GRAPH_LAMS),
}


def make_case(name: str, rate: float, seed: int) -> Case:
    data = jj.datasets.load(name)
    n = len(data.labels)
    order = np.random.default_rng(seed).permutation(n)
    views = [x[order].astype(np.float32) for x in data.views]
    mask = jj.missing.paper_protocol(seed, n, len(views), rate)
    unit = [x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in views]
    columns = [np.where(mask[:, [v]], x, 0) for v, x in enumerate(unit)]
    return Case(jj.make_problem(views, mask, dtype="float32"), columns, mask, data.labels[order], seed)


def stored() -> Iterator[tuple[str, str, str, str, float]]:
    if STORE.exists():
        with STORE.open(newline="") as file:
            for row in csv.DictReader(file):
                yield row["set"], row["rate"], row["mask"], row["method"], float(row["accuracy"])


def print_table() -> None:
    rows = list(stored())
    sets = [name for name in SETS if any(row[0] == name for row in rows)]
    print(f"{'accuracy (%), shuffled':<24}" + "".join(f"{name[:14]:>15}" for name in sets) + f"{'mean':>8}")
    for method in METHODS:
        means = []
        for name in sets:
            found = [row[4] for row in rows if row[0] == name and row[3] == method]
            means.append(np.mean(found) if found else np.nan)
        print(f"{method:<24}" + "".join(f"{value:15.1f}" for value in means) + f"{np.mean(means):8.1f}")


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
                    value = METHODS[method](case)
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
