"""Anchored JPLTD on up to 100,000 samples: time, memory and accuracy.

    python experiments/benchmarks/scale.py [--sizes 4000 12500 25000 50000 100000] [--anchors 500]

Three views (100, 80, 60 features), 10 overlapping clusters, half of the samples incomplete (mask and data of seed 0, in
random order), the default options with latent_dim 40, float32. Every size runs in a process of its own, so
that the peak memory is its own; times include compilation. For comparison: the exact solver where n allows, IMVC-CBG
of this package, and mean imputation with mini-batch k-means. Writes scale.csv beside this script; sizes that are not
asked for keep their rows.
"""

import argparse
import csv
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from sklearn.cluster import MiniBatchKMeans

import jpltd_jax as jj

OUT = Path(__file__).with_suffix(".csv")
DIMS, CLUSTERS, SEPARATION, NOISE, RATE = (100, 80, 60), 10, 5.0, 0.3, 0.5
CONFIG, LARGEST_EXACT = jj.Config(latent_dim=40), 4000


def make(n: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    data = jj.datasets.make_blobs(0, n_samples=n, dims=DIMS, n_clusters=CLUSTERS, separation=SEPARATION, noise=NOISE)
    views = [x.astype(np.float32) for x in data.views]
    return views, jj.missing.paper_protocol(0, n, len(views), RATE), data.labels


def jpltd(views: list[np.ndarray], mask: np.ndarray, anchors: int | None) -> jax.Array:
    problem = jj.make_problem(views, mask, anchors=anchors, dtype="float32")
    return jj.cluster(jax.random.key(0), problem, jj.Hyper(), CLUSTERS, CONFIG).labels


def imvc_cbg(views: list[np.ndarray], mask: np.ndarray) -> jax.Array:
    return jj.fit("imvc_cbg", views, mask, CLUSTERS, key=jax.random.key(0)).labels


def mean_impute(views: list[np.ndarray], mask: np.ndarray) -> np.ndarray:
    filled = [np.where(mask[:, [v]], x, x[mask[:, v]].mean(axis=0)) for v, x in enumerate(views)]
    return MiniBatchKMeans(CLUSTERS, n_init=20, random_state=0).fit_predict(np.hstack(filled))


def methods(n: int, anchors: int) -> dict[str, Callable[[list[np.ndarray], np.ndarray], object]]:
    table: dict[str, Callable[[list[np.ndarray], np.ndarray], object]] = {
        f"jpltd, {anchors} anchors": lambda views, mask: jpltd(views, mask, anchors),
        "imvc_cbg": imvc_cbg,
        "mean imputation, mini-batch k-means": mean_impute,
    }
    if n <= LARGEST_EXACT:
        table["jpltd, exact"] = lambda views, mask: jpltd(views, mask, None)
    return table


def run(n: int, anchors: int, method: str) -> dict[str, object]:
    views, mask, labels = make(n)
    start = time.perf_counter()
    found = np.asarray(methods(n, anchors)[method](views, mask))
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "n": n,
        "method": method,
        "seconds": round(seconds, 2),
        "peak GB": round(peak, 2),
        "accuracy": round(100 * float(jj.metrics.accuracy(labels, found)), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[4000, 12500, 25000, 50000, 100000])
    parser.add_argument("--anchors", type=int, default=500)
    parser.add_argument("--only", nargs=2, metavar=("SIZE", "METHOD"), help="run one and print it as JSON")
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(run(int(arguments.only[0]), arguments.anchors, arguments.only[1])))
        return
    rows = []
    if OUT.exists():
        with OUT.open(newline="") as file:
            read = [r | {"n": int(r["n"]), "seconds": float(r["seconds"])} for r in csv.DictReader(file)]
            rows = [r for r in read if r["n"] not in arguments.sizes]
    for n in arguments.sizes:
        for method in methods(n, arguments.anchors):
            command = [sys.executable, __file__, "--anchors", str(arguments.anchors), "--only", str(n), method]
            rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            row = rows[-1]
            earlier = [r["seconds"] for r in rows[:-1] if r["method"] == method and 2 * r["n"] == n]
            growth = f", {row['seconds'] / earlier[0]:.2f} x the time of half as many" if earlier else ""
            cost = f"{row['seconds']:.1f} s, {row['peak GB']:.1f} GB"
            print(f"n = {n}, {method}: {row['accuracy']:.1f} % in {cost}{growth}", flush=True)
            with OUT.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(row))
                writer.writeheader()
                writer.writerows(sorted(rows, key=lambda r: (r["n"], r["method"])))


if __name__ == "__main__":
    main()
