"""The default on shuffled samples against what it replaced, its own parts, and other methods.

    python experiments/default_study.py DATA_DIRECTORY [--sets ...] [--rates ...] [--masks N] [--methods ...]

Mask and shuffle of number i have seed i; masks are of the paper's protocol. No labels are used in any run. One row per
run is appended to default_study.csv beside this script, and runs that it holds are skipped. At the end it prints, for
every set, the means over rates and masks, and the paired differences to the default with 95 % intervals: over the sets,
each with the mean of its runs, because runs on one set are alike. NEMO and PIMVC are those of iMML: ``pip install
".[benchmark]"``.
"""

import argparse
import csv
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import jax
import numpy as np
from order_free_study import ORDER_FREE, averaged_knn, case_of, knn_impute, local_scaling
from scipy.stats import t as student

import jpltd_jax as jj
from jpltd_jax.loop import prepare, run
from jpltd_jax.methods import JPLTD
from jpltd_jax.pipeline import label
from jpltd_jax.preparation import prepare_views
from jpltd_jax.views import Views, read_views

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
COLUMNS = ("set", "rate", "mask", "method", "accuracy", "preparation", "chosen", "late_score", "completed_score")
Row = tuple[np.ndarray, str, str, str, str]
"""Labels, and what the last four columns hold."""


class Case:
    """Views under a mask. What several methods need of them is made once."""

    def __init__(self, views: Views, labels: np.ndarray, seed: int) -> None:
        self.views, self.labels, self.seed, self.key = views, labels, seed, jax.random.key(seed)
        self.n_clusters = len(np.unique(labels))
        self.plain = cache(partial(case_of, views.matrices, views.mask, labels, seed))
        self.prepared = cache(self._prepare)
        self.solved = cache(self._solve)

    def _prepare(self, preparation: str) -> tuple[jj.Problem, str]:
        names = "auto" if preparation == "auto" else [preparation] * len(self.views.matrices)
        views, fitted = prepare_views(self.views, names)
        return jj.make_problem(views, normalize=False), " ".join(one.name for one in fitted)

    def _solve(self, config: jj.Config, preparation: str) -> tuple:
        data = prepare(JPLTD, self.prepared(preparation)[0], self.n_clusters, config)
        return data, run(JPLTD, data, jj.Hyper(), self.key)


def shuffled_case(name: str, rate: float, seed: int) -> Case:
    """A set in random order under a mask of the paper's protocol. A name such as "scene15:0,1" takes these views."""
    name, _, chosen = name.partition(":")
    data = jj.datasets.load(name)
    matrices = [data.views[int(v)] for v in chosen.split(",")] if chosen else data.views
    n = len(data.labels)
    order = np.random.default_rng(seed).permutation(n)
    mask = jj.missing.paper_protocol(seed, n, len(matrices), rate)
    return Case(read_views([x[order].astype(np.float32) for x in matrices], mask), data.labels[order], seed)


def jpltd(solved: jj.Config = jj.ORDER_FREE, preparation: str = "auto", **changes: object) -> Callable[[Case], Row]:
    """JPLTD with the options of ``solved``, its affinity clustered with the ``changes`` of them."""

    def labels(case: Case) -> Row:
        data, solution = case.solved(solved, preparation)
        config = replace(solved, **changes)
        late = None if config.partner in (None, "completed") else data.late
        completed = None if config.partner in (None, "late") else data.completed
        data = replace(data, config=config, late=late, completed=completed)
        found = label(jax.random.split(case.key)[1], JPLTD, data, solution, case.n_clusters)
        chosen, scores = "", {}
        if found.candidates is not None and config.partner == "chosen":
            chosen = found.candidates.names[int(found.candidates.chosen)]
            scores = dict(zip(found.candidates.names, np.asarray(found.candidates.quality.score), strict=True))
        names = case.prepared(preparation)[1]
        return np.asarray(found.labels), names, chosen, *(f"{scores.get(x, '')}" for x in ("late", "completed"))

    return labels


def graph_alone(name: str) -> Callable[[Case], Row]:
    """Diffusion embedding of one of the graphs, nothing learned."""

    def labels(case: Case) -> Row:
        graph = getattr(case.solved(jj.ORDER_FREE, "auto")[0], name)
        places = jj.spectral.embed(graph, case.n_clusters, jj.ORDER_FREE.power)
        return np.asarray(jj.spectral.kmeans(case.key, places.embedding, case.n_clusters).labels), "", "", "", ""

    return labels


def control(labels: Callable) -> Callable[[Case], Row]:
    return lambda case: (np.asarray(labels(case.plain())), "", "", "", "")


def imml(name: str) -> Callable[[Case], Row]:
    """A method of iMML with its defaults, on rows of unit length as the other controls."""

    def labels(case: Case) -> Row:
        import imml.cluster
        import pandas as pd

        plain = case.plain()
        frames = [pd.DataFrame(np.where(plain.mask[:, [v]], x, np.nan)) for v, x in enumerate(plain.columns)]
        method = getattr(imml.cluster, name)(n_clusters=case.n_clusters, random_state=case.seed)
        return np.asarray(method.fit_predict(frames)), "", "", "", ""

    return labels


METHODS: dict[str, Callable[[Case], Row]] = {
    "default": jpltd(),
    "before": jpltd(ORDER_FREE, "unit"),
    "fast": jpltd(partner="late"),
    "completed": jpltd(partner="completed"),
    "learned_alone": jpltd(partner=None),
    "late_alone": graph_alone("late"),
    "completed_alone": graph_alone("completed"),
    "plain_embedding": jpltd(power=0),
    "power_4": jpltd(power=4),
    "unit_rows": jpltd(preparation="unit"),
    "ten_neighbours": jpltd(replace(jj.ORDER_FREE, n_neighbors=10, share=0.0)),
    "vectors_100": jpltd(replace(jj.ORDER_FREE, n_vectors=100)),
    "averaged_knn": control(averaged_knn),
    "local_scaling_10": control(lambda case: local_scaling(case, 10)),
    "knn_impute_kmeans": control(knn_impute),
    "nemo": imml("NEMO"),
    "pimvc": imml("PIMVC"),
}


VARIANTS = ("default", "fast", "completed", "learned_alone", "plain_embedding", "unit_rows", "ten_neighbours")
"""Ways to set the method among which a person could have chosen by looking at accuracies."""


def rows() -> list[dict[str, str]]:
    if not STORE.exists():
        return []
    with STORE.open(newline="") as file:
        return list(csv.DictReader(file))


def interval(differences: list[float]) -> str:
    """Mean ± half of the 95 % interval."""
    if len(differences) < 2:
        return f"{np.mean(differences):+.1f}"
    half = student.ppf(0.975, len(differences) - 1) * np.std(differences, ddof=1) / np.sqrt(len(differences))
    return f"{np.mean(differences):+.1f} ± {half:.1f}"


Table = dict[str, dict[str, dict[tuple[str, str], float]]]
"""Accuracy by method, set, and (rate, mask)."""


def print_left_out(table: Table, sets: list[str]) -> None:
    """For each set the variant with the best mean on the other sets, and its accuracy there: what choosing is worth."""

    def mean(method: str, name: str) -> float:
        common = set.intersection(*(set(table[variant][name]) for variant in VARIANTS))
        return float(np.mean([table[method][name][key] for key in common])) if common else float("nan")

    means = np.array([[mean(method, name) for name in sets] for method in VARIANTS])
    known = ~np.isnan(means).any(axis=0)
    means, names = means[:, known], [name for name, is_known in zip(sets, known, strict=True) if is_known]
    others = (means.sum(axis=1, keepdims=True) - means) / max(len(names) - 1, 1)
    chosen = others.argmax(axis=0)
    print("\nleave one set out: " + ", ".join(f"{n} {VARIANTS[c]}" for n, c in zip(names, chosen, strict=True)))
    found = means[chosen, np.arange(len(names))].mean()
    print(f"mean of these {found:.1f}, of the default on the same runs {means[0].mean():.1f}")


def read_table() -> Table:
    table: Table = defaultdict(lambda: defaultdict(dict))
    for row in rows():
        table[row["method"]][row["set"]][row["rate"], row["mask"]] = float(row["accuracy"])
    return table


SHOWN = {
    "default": "**default**",
    "before": "before",
    "learned_alone": "learned alone",
    "late_alone": "late graph alone",
    "completed_alone": "completed graph alone",
    "nemo": "NEMO",
    "local_scaling_10": "10 neighbours",
    "knn_impute_kmeans": "kNN-impute, k-means",
}
"""Columns of the README's table."""


def print_markdown() -> None:
    """The table of the README: means over the runs that all of its methods made."""
    table = read_table()
    print("| shuffled; runs | " + " | ".join(SHOWN.values()) + " |\n" + "| --- " * (len(SHOWN) + 1) + "|")
    means = []
    for name in table["default"]:
        common = set.intersection(*(set(table[method][name]) for method in SHOWN))
        if common:
            means.append([np.mean([table[method][name][key] for key in common]) for method in SHOWN])
            print(f"| {name}; {len(common)} | " + " | ".join(f"{x:.1f}" for x in means[-1]) + " |")
    print("| mean of the sets | " + " | ".join(f"{x:.1f}" for x in np.mean(means, axis=0)) + " |")


def print_table() -> None:
    table = read_table()
    sets = list(table["default"])
    print(f"{'accuracy %, shuffled':<20}" + "".join(f"{name[:9]:>10}" for name in sets) + "   mean   default above it")
    for method in METHODS:
        cells, differences = [], []
        for name in sets:
            mine, default = table[method][name], table["default"][name]
            cells.append(np.mean(list(mine.values())) if mine else np.nan)
            if common := mine.keys() & default.keys():
                differences.append(float(np.mean([default[key] - mine[key] for key in common])))
        if differences:
            mean = np.nanmean(cells)
            ends = f"{mean:7.1f}   {interval(differences)} ({len(differences)} sets)"
            print(f"{method:<20}" + "".join(f"{x:10.1f}" for x in cells) + ends)
    print_left_out(table, sets)
    print("\ndefault above, on each set (95 % intervals over its runs)")
    for method in ("before", "fast", "late_alone", "completed_alone", "local_scaling_10", "nemo"):
        cells = []
        for name in sets:
            mine, default = table[method][name], table["default"][name]
            common = sorted(mine.keys() & default.keys())
            cells.append(interval([default[key] - mine[key] for key in common]) if common else "")
        print(f"{method:<20}" + "".join(f"{text:>14}" for text in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", default=SETS, help="scene15:0,1 is scene15 with its first two views")
    parser.add_argument("--rates", nargs="+", type=float, default=RATES)
    parser.add_argument("--masks", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--markdown", action="store_true", help="run nothing; print the README's table")
    arguments = parser.parse_args()
    if arguments.markdown:
        print_markdown()
        return
    os.environ["JPLTD_DATA"] = str(arguments.data)
    done = {(row["set"], row["rate"], row["mask"], row["method"]) for row in rows()}
    for seed in range(arguments.masks):
        for name in arguments.sets:
            for rate in arguments.rates:
                todo = [m for m in arguments.methods if (name, str(rate), str(seed), m) not in done]
                if not todo:
                    continue
                case = shuffled_case(name, rate, seed)
                for method in todo:
                    labels, *notes = METHODS[method](case)
                    value = 100 * float(jj.metrics.accuracy(case.labels, labels))
                    new = not STORE.exists()
                    with STORE.open("a", newline="") as file:
                        writer = csv.writer(file)
                        if new:
                            writer.writerow(COLUMNS)
                        writer.writerow([name, rate, seed, method, round(value, 2), *notes])
                    print(f"{name} rate {rate} mask {seed} {method}: {value:.1f} {' '.join(notes)}", flush=True)
            jax.clear_caches()
    print_table()


if __name__ == "__main__":
    main()
