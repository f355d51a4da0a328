"""The order-free study: shuffled samples, methods that a user would choose between, no labels in any choice.

    python experiments/order_free_study.py DATA_DIRECTORY [--sets ...] [--rates ...] [--masks N]

Every run is on shuffled samples with a mask of the paper's protocol; mask and shuffle of number i have seed i. All
settings are fixed for all sets, so no labels are used; the columns ``*_best`` are the paper's way, the best over a grid
of lam by the labels, and only there for comparison. One row a run is appended to order_free_study.csv beside this
script, and runs that it holds are skipped; at the end the means over masks and rates are printed for every set. Above
3000 samples the eigenvectors for k-means are found by iteration.
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
from jpltd_jax.graphs import LARGE
from jpltd_jax.selection import neighbours_kept
from jpltd_jax.transforms import AnyTransform, Orthonormal

SETS = ("msrcv1", "ngs", "bbcsport", "orl_4view", "orl_recomputed", "uci", "scene15")
RATES = (0.1, 0.3, 0.5, 0.7)
STORE = Path(__file__).with_suffix(".csv")
FOURIER = jj.Hyper(lam=5.0, theta=0.1)
FOURIER_LAMS, GRAPH_LAMS = (2.0, 5.0, 10.0, 20.0), (0.1, 0.25, 0.5, 1.0, 2.0)
SETTING = SETTINGS["graph"]


class Case(NamedTuple):
    problem: jj.Problem
    columns: list[np.ndarray]
    mask: np.ndarray
    labels: np.ndarray
    seed: int
    learned: dict[float, jax.Array]

    @property
    def n_clusters(self) -> int:
        return len(np.unique(self.labels))

    def sparsify(self, affinity: jax.Array) -> jax.Array:
        kept = neighbours_kept(SETTING.n_kept, len(self.labels), self.n_clusters)
        return jj.graphs.sparsify(affinity, kept)

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


def solved(case: Case, lam: float, transform: AnyTransform) -> jax.Array:
    default = jj.JPLTD(1)
    return jj.solve(
        case.problem,
        jj.Hyper(lam=lam, theta=default.theta),
        latent_dim=default.latent_dim,
        max_iter=default.max_iter,
        transform=transform,
        w_init=SETTING.w_init,
    ).affinity


def learned(case: Case, lam: float) -> jax.Array:
    """The affinity with the graph transform, before any pair is dropped; solved once for all methods that ask."""
    if lam not in case.learned:
        neighbours = jj.graphs.consensus_graph(case.problem, jj.JPLTD(1).n_neighbors)
        case.learned[lam] = solved(case, lam, jj.graphs.graph_transform(neighbours))
    return case.learned[lam]


def thinned(case: Case, affinity: jax.Array) -> jax.Array:
    return case.sparsify(jj.graphs.within_reach(affinity, case.problem, SETTING.n_reach))


def order_free(case: Case, lam: float) -> float:
    return case.cluster(thinned(case, learned(case, lam)))


def all_pairs(case: Case) -> float:
    return case.cluster(case.sparsify(learned(case, SETTING.lam)))


def second_pass(case: Case) -> float:
    """The basis estimated again, from the default's own affinity."""
    transform = jj.graphs.graph_transform(thinned(case, learned(case, SETTING.lam)))
    return case.cluster(thinned(case, solved(case, SETTING.lam, transform)))


def other_basis(case: Case, transform: AnyTransform) -> float:
    return case.cluster(thinned(case, solved(case, SETTING.lam, transform)))


METHODS: dict[str, Callable[[Case], float]] = {
    "averaged_knn": averaged_knn,
    "local_scaling_10": lambda case: local_scaling(case, 10),
    "local_scaling_n6": lambda case: local_scaling(case, len(case.labels) // 6),
    "mean_impute_kmeans": mean_impute,
    "knn_impute_kmeans": knn_impute,
    "fourier_30": lambda case: fourier(case, 5.0, 30),
    "fourier_converged": lambda case: fourier(case, 5.0, 200),
    "order_free": lambda case: order_free(case, SETTING.lam),
    "order_free_all_pairs": all_pairs,
    "order_free_second_pass": second_pass,
    "no_basis": lambda case: other_basis(case, Orthonormal.identity(len(case.labels))),
    "random_basis": lambda case: other_basis(case, Orthonormal.random(jax.random.key(case.seed), len(case.labels))),
    "fourier_30_best": lambda case: max(fourier(case, lam, 30) for lam in FOURIER_LAMS),
    "order_free_best": lambda case: max(order_free(case, lam) for lam in GRAPH_LAMS),
}


def make_case(name: str, rate: float, seed: int) -> Case:
    data = jj.datasets.load(name)
    n = len(data.labels)
    order = np.random.default_rng(seed).permutation(n)
    views = [x[order].astype(np.float32) for x in data.views]
    mask = jj.missing.paper_protocol(seed, n, len(views), rate)
    unit = [x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in views]
    columns = [np.where(mask[:, [v]], x, 0) for v, x in enumerate(unit)]
    return Case(jj.make_problem(views, mask, dtype="float32"), columns, mask, data.labels[order], seed, {})


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
