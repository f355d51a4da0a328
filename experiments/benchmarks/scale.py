"""JPLTD with its defaults on up to a million samples: time, memory and accuracy.

    python experiments/benchmarks/scale.py [--sizes 30000 62500 125000 250000 500000 1000000]

Three views (100, 80, 60 features), 10 overlapping clusters, half of the samples incomplete, in random order, float32.
The views are made block by block into memory-mapped files. Every size runs in a process of its own, so that the peak
memory is its own (pages of the files that were read count too); times include compilation. Where the fit does not fit
into half of the free memory it is on a part of the samples, and the others are labelled by the same model. For
comparison: IMVC-CBG of this package up to 125,000 samples, and mean imputation with mini-batch k-means. Writes
scale.csv beside this script; sizes that are not asked for keep their rows.
"""

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from sklearn.cluster import MiniBatchKMeans

import jpltd_jax as jj

OUT = Path(__file__).with_suffix(".csv")
DIMS, CLUSTERS, SEPARATION, NOISE, RATE = (100, 80, 60), 10, 5.0, 0.3, 0.5
BLOCK, LARGEST_IMVC_CBG = 50_000, 125_000

Labels = tuple[object, int]
"""Labels, and how many samples they were learned from."""


def make(n: int, folder: str) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """The model of jj.datasets.make_blobs, with blocks of samples one after the other in memory-mapped files."""
    rng = np.random.default_rng(0)
    labels = rng.integers(CLUSTERS, size=n)
    loadings = [np.linalg.qr(rng.normal(size=(d, CLUSTERS)))[0].T for d in DIMS]
    paths = [f"{folder}/view{v}.npy" for v in range(len(DIMS))]
    files = [np.lib.format.open_memmap(path, "w+", np.float32, (n, d)) for path, d in zip(paths, DIMS, strict=True)]
    for start in range(0, n, BLOCK):
        rows = slice(start, min(start + BLOCK, n))
        latent = SEPARATION / np.sqrt(2) * np.eye(CLUSTERS)[labels[rows]]
        latent += rng.normal(size=latent.shape)
        for file, loading in zip(files, loadings, strict=True):
            view = latent @ loading
            file[rows] = view + NOISE * rng.normal(size=view.shape)
    for file in files:
        file.flush()
    del files
    return [np.load(path, mmap_mode="r") for path in paths], jj.missing.paper_protocol(0, n, len(DIMS), RATE), labels


def jpltd(views: list[np.ndarray], mask: np.ndarray) -> Labels:
    model = jj.JPLTD(CLUSTERS, random_state=0).fit(views, mask=mask)
    return model.labels_, len(model.affinity_)


def imvc_cbg(views: list[np.ndarray], mask: np.ndarray) -> Labels:
    return jj.fit("imvc_cbg", views, mask, CLUSTERS, key=jax.random.key(0)).labels, len(mask)


def mean_impute(views: list[np.ndarray], mask: np.ndarray) -> Labels:
    filled = [np.where(mask[:, [v]], x, x[mask[:, v]].mean(axis=0)) for v, x in enumerate(views)]
    return MiniBatchKMeans(CLUSTERS, n_init=20, random_state=0).fit_predict(np.hstack(filled)), len(mask)


METHODS: dict[str, Callable[[list[np.ndarray], np.ndarray], Labels]] = {
    "jpltd": jpltd,
    "imvc_cbg": imvc_cbg,
    "mean imputation, mini-batch k-means": mean_impute,
}


def run(n: int, method: str) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        views, mask, labels = make(n, folder)
        start = time.perf_counter()
        found, learned = METHODS[method](views, mask)
        seconds = time.perf_counter() - start
        accuracy = float(jj.metrics.accuracy(labels, np.asarray(found)))
        del views
    return {
        "n": n,
        "method": method,
        "seconds": round(seconds, 2),
        "peak GB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "accuracy": round(100 * accuracy, 2),
        "learned from": learned,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[30_000, 62_500, 125_000, 250_000, 500_000, 1_000_000])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--only", nargs=2, metavar=("SIZE", "METHOD"), help="run one and print it as JSON")
    arguments = parser.parse_args()
    if arguments.only:
        warnings.simplefilter("ignore")
        print(json.dumps(run(int(arguments.only[0]), arguments.only[1])))
        return
    rows = []
    if OUT.exists():
        with OUT.open(newline="") as file:
            read = [r | {"n": int(r["n"]), "seconds": float(r["seconds"])} for r in csv.DictReader(file)]
            rows = [r for r in read if not (r["n"] in arguments.sizes and r["method"] in arguments.methods)]
    for n in arguments.sizes:
        for method in arguments.methods:
            if method == "imvc_cbg" and n > LARGEST_IMVC_CBG:
                continue
            command = [sys.executable, __file__, "--only", str(n), method]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            row = json.loads(printed.splitlines()[-1])
            earlier = [r["seconds"] for r in rows if r["method"] == method and 2 * r["n"] == n]
            rows.append(row)
            growth = f", {row['seconds'] / earlier[0]:.2f} x the time of half as many" if earlier else ""
            cost = f"{row['seconds']:.1f} s, {row['peak GB']:.1f} GB"
            learned = f", learned from {row['learned from']}"
            print(f"n = {n}, {method}: {row['accuracy']:.1f} % in {cost}{growth}{learned}", flush=True)
            with OUT.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(row))
                writer.writeheader()
                writer.writerows(sorted(rows, key=lambda r: (r["n"], r["method"])))


if __name__ == "__main__":
    main()
