"""The default on shuffled samples against what it replaced, its own parts, and methods without learning.

    python experiments/default_study.py DATA_DIRECTORY [--sets ...] [--rates ...] [--masks N]

Mask and shuffle of number i have seed i; masks are of the paper's protocol. No labels are used in any run. One row per
run is appended to default_study.csv beside this script, and runs that it holds are skipped. At the end it prints, for
every set, the means over rates and masks, and the paired differences to the default with 95 % intervals over the runs.
"""

import argparse
import csv
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
from order_free_study import ORDER_FREE, averaged_knn, knn_impute, local_scaling, make_case
from scipy.stats import t as student

import jpltd_jax as jj

SETS = (
    "yalea",
    "webkb203",
    "msrcv1",
    "orl_4view",
    "orl_recomputed",
    "ngs",
    "bbcsport",
    "cub",
    "reuters1200",
    "uci",
    "hw6",
    "scene15",
)
RATES = (0.3, 0.7)
STORE = Path(__file__).with_suffix(".csv")
COLUMNS = ("set", "rate", "mask", "method", "accuracy", "preparation", "chosen")


class Case:
    """A set under a mask, shuffled."""

    def __init__(self, name: str, rate: float, seed: int) -> None:
        data = jj.datasets.load(name)
        n = len(data.labels)
        order = np.random.default_rng(seed).permutation(n)
        self.views = [x[order].astype(np.float32) for x in data.views]
        self.mask = jj.missing.paper_protocol(seed, n, len(self.views), rate)
        self.labels, self.seed = data.labels[order], seed
        self.plain = make_case(name, rate, seed)

    def fit(self, config: jj.Config = jj.ORDER_FREE, preparation: str = "auto") -> jj.JPLTD:
        n_clusters = len(np.unique(self.labels))
        model = jj.JPLTD(n_clusters, config=config, preparation=preparation, random_state=self.seed)
        return model.fit(self.views, mask=self.mask)

    def spectral(self, graph: jax.Array) -> tuple[np.ndarray, str, str]:
        return np.asarray(jj.spectral.spectral_cluster(jax.random.key(self.seed), graph, self.plain.n_clusters)), "", ""


def jpltd(config: jj.Config = jj.ORDER_FREE, preparation: str = "auto") -> Callable[[Case], tuple]:
    def run(case: Case) -> tuple[np.ndarray, str, str]:
        model = case.fit(config, preparation)
        return model.labels_, " ".join(model.preparation_), model.chosen_ or ""

    return run


def control(labels: Callable) -> Callable[[Case], tuple]:
    return lambda case: (np.asarray(labels(case.plain)), "", "")


METHODS: dict[str, Callable[[Case], tuple]] = {
    "default": jpltd(),
    "before": jpltd(ORDER_FREE, "unit"),
    "fast": jpltd(jj.methods.jpltd.FAST),
    "completed": jpltd(jj.Config(partner="completed")),
    "learned": jpltd(jj.Config(partner=None)),
    "unit_rows": jpltd(jj.ORDER_FREE, "unit"),
    "plain_embedding": jpltd(jj.Config(power=0)),
    "ten_neighbours": jpltd(replace(jj.ORDER_FREE, n_neighbors=10, share=0.0)),
    "averaged_knn": control(averaged_knn),
    "local_scaling_10": control(lambda case: local_scaling(case, 10)),
    "knn_impute_kmeans": control(knn_impute),
}


def rows() -> list[dict[str, str]]:
    if not STORE.exists():
        return []
    with STORE.open(newline="") as file:
        return list(csv.DictReader(file))


def print_table() -> None:
    table: dict[str, dict[tuple[str, str, str], float]] = defaultdict(dict)
    for row in rows():
        table[row["method"]][row["set"], row["rate"], row["mask"]] = float(row["accuracy"])
    sets = [name for name in SETS if any(key[0] == name for key in table["default"])]
    print(
        f"accuracy %, shuffled{'':<4}" + "".join(f"{name[:9]:>10}" for name in sets) + "      mean   default above it"
    )
    for method, runs in table.items():
        means = [np.mean([x for key, x in runs.items() if key[0] == name] or [np.nan]) for name in sets]
        common = [table["default"][key] - x for key, x in runs.items() if key in table["default"]]
        half = student.ppf(0.975, max(len(common) - 1, 1)) * np.std(common, ddof=1) / np.sqrt(len(common))
        ends = f"{np.mean(common):+.1f} ± {half:.1f} ({len(common)} runs)"
        print(f"{method:<24}" + "".join(f"{x:10.1f}" for x in means) + f"{np.mean(means):10.1f}   {ends}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--rates", nargs="+", type=float, default=RATES)
    parser.add_argument("--masks", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    arguments = parser.parse_args()
    os.environ["JPLTD_DATA"] = str(arguments.data)
    done = {(row["set"], row["rate"], row["mask"], row["method"]) for row in rows()}
    for seed in range(arguments.masks):
        for name in arguments.sets:
            for rate in arguments.rates:
                todo = [m for m in arguments.methods if (name, str(rate), str(seed), m) not in done]
                if not todo:
                    continue
                case = Case(name, rate, seed)
                for method in todo:
                    labels, preparation, chosen = METHODS[method](case)
                    value = 100 * float(jj.metrics.accuracy(case.labels, labels))
                    new = not STORE.exists()
                    with STORE.open("a", newline="") as file:
                        writer = csv.writer(file)
                        if new:
                            writer.writerow(COLUMNS)
                        writer.writerow([name, rate, seed, method, round(value, 2), preparation, chosen])
                    print(f"{name} rate {rate} mask {seed} {method}: {value:.1f} {preparation} {chosen}", flush=True)
                jax.clear_caches()
    print_table()


if __name__ == "__main__":
    main()
