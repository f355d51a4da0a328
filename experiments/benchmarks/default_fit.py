"""The whole default fit against NEMO of iMML: time, warm and of the first call, peak memory, accuracy.

    python -m pip install ".[benchmark]"
    python experiments/benchmarks/default_fit.py [--sizes 500 2000 5000]

Three views (100, 80, 60 features), 10 overlapping clusters, half of the samples incomplete (mask and data of seed 0, in
random order), float32. Every fit runs in a process of its own, which fits twice: the first time includes compilation.
NEMO gets rows of NaN for what is missing. Writes default_fit.csv beside this script.
"""

import argparse
import csv
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import jpltd_jax as jj

OUT = Path(__file__).with_suffix(".csv")
DIMS, CLUSTERS, SEPARATION, NOISE, RATE = (100, 80, 60), 10, 5.0, 0.3, 0.5
METHODS = ("jpltd", "nemo")


def make(n: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    data = jj.datasets.make_blobs(0, n_samples=n, dims=DIMS, n_clusters=CLUSTERS, separation=SEPARATION, noise=NOISE)
    views = [x.astype(np.float32) for x in data.views]
    return views, jj.missing.paper_protocol(0, n, len(views), RATE), data.labels


def jpltd(views: list[np.ndarray], mask: np.ndarray) -> np.ndarray:
    return jj.JPLTD(CLUSTERS, random_state=0).fit_predict(views, mask=mask)


def nemo() -> Callable[[list[np.ndarray], np.ndarray], np.ndarray]:
    from imml.cluster import NEMO

    def fit(views: list[np.ndarray], mask: np.ndarray) -> np.ndarray:
        hidden = [np.where(mask[:, [v]], x, np.nan) for v, x in enumerate(views)]
        return NEMO(CLUSTERS, random_state=0).fit_predict(hidden)

    return fit


def run(n: int, method: str) -> dict[str, object]:
    views, mask, labels = make(n)
    fit = jpltd if method == "jpltd" else nemo()
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        found = fit(views, mask)
        seconds.append(round(time.perf_counter() - start, 2))
    return {
        "n": n,
        "method": method,
        "first seconds": seconds[0],
        "warm seconds": seconds[1],
        "peak GB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "accuracy": round(100 * float(jj.metrics.accuracy(labels, found)), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[500, 2000, 5000])
    parser.add_argument("--only", nargs=2, metavar=("SIZE", "METHOD"), help="run one and print it as JSON")
    arguments = parser.parse_args()
    if arguments.only:
        warnings.simplefilter("ignore")
        print(json.dumps(run(int(arguments.only[0]), arguments.only[1])))
        return
    rows = []
    for n in arguments.sizes:
        for method in METHODS:
            command = [sys.executable, __file__, "--only", str(n), method]
            row = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
            )
            rows.append(row)
            print(row, flush=True)
        ours, theirs = rows[-2:]
        ratio = {name: ours[name] / theirs[name] for name in ("warm seconds", "peak GB")}
        print(
            f"n = {n}: {ratio['warm seconds']:.2f} x the time of NEMO, {ratio['peak GB']:.2f} x its memory", flush=True
        )
    with OUT.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
