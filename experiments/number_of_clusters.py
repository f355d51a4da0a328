"""How often ``n_clusters="auto"`` finds the number of classes, on shuffled samples.

    python experiments/number_of_clusters.py DATA_DIRECTORY [--sets ...] [--rates ...] [--masks N]

Numbers 2 to 20 are compared, for the two sets of 40 faces 2 to 60. Mask and shuffle of number i have seed i; no labels
are used. One row per run, with the number that each criterion has largest, is appended to number_of_clusters.csv beside
this script; runs that it holds are skipped. At the end it prints how often each criterion is right, and within one.
"""

import argparse
import csv
import os
from pathlib import Path

import jax
import numpy as np

import jpltd_jax as jj
from jpltd_jax.preparation import prepare_views
from jpltd_jax.selection import compare_numbers_of_clusters
from jpltd_jax.views import read_views

SETS = ("yalea", "webkb203", "msrcv1", "orl_4view", "ngs", "bbcsport", "cub", "reuters1200", "uci", "hw6")
STORE = Path(__file__).with_suffix(".csv")
CRITERIA = ("modularity", "score", "eigengap")


def suggestions(name: str, rate: float, seed: int) -> tuple[int, list[int]]:
    """The number of classes, and what each criterion suggests."""
    data = jj.datasets.load(name)
    n = len(data.labels)
    order = np.random.default_rng(seed).permutation(n)
    mask = jj.missing.paper_protocol(seed, n, len(data.views), rate)
    views, _ = prepare_views(read_views([x[order].astype(np.float32) for x in data.views], mask))
    problem = jj.make_problem(views, normalize=False)
    counts = range(2, 61 if name.startswith("orl") else 21)
    found = compare_numbers_of_clusters(problem, jj.Hyper(), counts, seed=seed)
    suggested = [int(found.counts[np.argmax(getattr(found, criterion))]) for criterion in CRITERIA]
    return len(np.unique(data.labels)), suggested


def rows() -> list[dict[str, str]]:
    if not STORE.exists():
        return []
    with STORE.open(newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--rates", nargs="+", type=float, default=(0.3, 0.7))
    parser.add_argument("--masks", type=int, default=3)
    arguments = parser.parse_args()
    os.environ["JPLTD_DATA"] = str(arguments.data)
    done = {(row["set"], row["rate"], row["mask"]) for row in rows()}
    for seed in range(arguments.masks):
        for name in arguments.sets:
            for rate in arguments.rates:
                if (name, str(rate), str(seed)) in done:
                    continue
                classes, suggested = suggestions(name, rate, seed)
                new = not STORE.exists()
                with STORE.open("a", newline="") as file:
                    writer = csv.writer(file)
                    if new:
                        writer.writerow(["set", "rate", "mask", "classes", *CRITERIA])
                    writer.writerow([name, rate, seed, classes, *suggested])
                print(name, rate, seed, f"{classes} classes", *zip(CRITERIA, suggested, strict=True), flush=True)
            jax.clear_caches()
    print(f"{'set':<14}{'classes':>8}" + "".join(f"{criterion:>28}" for criterion in CRITERIA))
    for name in SETS:
        mine = [row for row in rows() if row["set"] == name]
        if mine:
            cells = [" ".join(row[criterion] for row in mine) for criterion in CRITERIA]
            print(f"{name:<14}{mine[0]['classes']:>8}" + "".join(f"{cell:>28}" for cell in cells))
    for criterion in CRITERIA:
        away = np.array([abs(int(row[criterion]) - int(row["classes"])) for row in rows()])
        print(f"{criterion}: right {np.mean(away == 0):.0%}, within one {np.mean(away <= 1):.0%} of {len(away)} runs")


if __name__ == "__main__":
    main()
