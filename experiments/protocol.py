"""What the scripts of the tables and figures share: data, masks, orders, and the best configuration over a grid."""

import argparse
import functools
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import jpltd_jax as jj
from jpltd_jax.sweeps import SweepResult

HERE = Path(__file__).parent
STORES = HERE / "stores"
RATES = (0.1, 0.3, 0.5, 0.7)
ORDERS = ("file", "shuffled")
METRICS = ("accuracy", "nmi", "ari")
REPEATS = 20


class Case(NamedTuple):
    """One set under one mask, in file order or shuffled; the mask is permuted with the samples."""

    views: list[np.ndarray]
    mask: np.ndarray
    labels: np.ndarray
    masks: str
    """Whence the mask: ``"published"`` or ``"seeded"``."""

    @property
    def n_clusters(self) -> int:
        return len(np.unique(self.labels))


def mask_of(name: str, n: int, m: int, rate: float, number: int) -> tuple[np.ndarray, str]:
    """Mask (n, m) of that number: the published one if masks.npz in JPLTD_DATA has it, else of the paper's protocol.

    The archive holds (numbers, n, m) under names such as ``ngs_10``; the seed of the protocol is the number.
    """
    archive = Path(os.environ.get("JPLTD_DATA", "."), "masks.npz")
    key = f"{name.split('_')[0]}_{round(100 * rate)}"
    if archive.exists():
        with np.load(archive) as masks:
            if key in masks and masks[key].shape[1:] == (n, m) and number < len(masks[key]):
                return masks[key][number].astype(bool), "published"
    return jj.missing.paper_protocol(number, n, m, rate), "seeded"


def load_case(name: str, rate: float, order: str, number: int = 0) -> Case:
    """The set, its mask, and for ``order="shuffled"`` both permuted with the number as the seed."""
    data = jj.datasets.load(name)
    n = len(data.labels)
    mask, masks = mask_of(name, n, len(data.views), rate, number)
    at = np.random.default_rng(number).permutation(n) if order == "shuffled" else np.arange(n)
    return Case([x[at] for x in data.views], mask[at], data.labels[at], masks)


class Values(NamedTuple):
    """Values of the grid over which the best configuration is chosen by the labels."""

    lam: tuple[float, ...]
    theta: tuple[float, ...]
    latent_dim: tuple[int, ...]

    def of(self, config: jj.Config) -> "Values":
        """Without values that the variant does not use: theta in B and O, latent_dim in N and O."""
        theta = self.theta if config.has_sparse_part else self.theta[:1]
        return Values(self.lam, theta, self.latent_dim if config.has_projection else self.latent_dim[:1])


PAPER_GRID = Values(
    (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0), (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0), (40, 70, 100)
)
"""The paper's values of lam and theta, and three of its ten values of latent_dim."""
QUICK_GRID = Values((0.5, 2.0, 5.0, 10.0, 20.0, 50.0), (0.1, 0.5, 2.0), (40, 100))
"""The ranges that the paper recommends for all sets, and a little beyond in lam."""
SMALL_GRID = Values((2.0, 10.0), (0.1, 0.5), (100,))
"""For thousands of samples."""
GRIDS = {"quick": QUICK_GRID, "paper": PAPER_GRID}
LARGE = ("uci", "scene15")
"""Sets for which the quick grid is the small one."""


class Setting(NamedTuple):
    """Options of JPLTD with a name, which the stores of its sweeps have."""

    name: str
    config: jj.Config
    max_iter: int = 30


def variant(name: str) -> Setting:
    """The published method, ``"full"``, or one of its ablations."""
    return Setting(name, replace(jj.PUBLISHED, variant=name))


PUBLISHED = variant("full")


def sweep_case(
    name: str,
    rate: float,
    order: str,
    axes: dict[str, Any],
    *,
    number: int = 0,
    setting: Setting = PUBLISHED,
) -> SweepResult:
    """Scores of all configurations of the grid of ``axes``; rows in the store are not made again."""
    case = load_case(name, rate, order, number)
    STORES.mkdir(exist_ok=True)
    return jj.sweep(
        jj.make_problem(case.views, dtype="float32"),
        jj.grid(axes, config=setting.config, max_iter=setting.max_iter),
        n_clusters=case.n_clusters,
        key=jax.random.key(0),
        y=case.labels,
        masks=case.mask[None],
        store=STORES / f"{setting.name}_{name}_{rate}_{order}_{number}.jsonl",
        run=jj.Run(chunk=1),
    )


def mean_and_spread(scores: dict[str, np.ndarray]) -> dict[str, float]:
    """Mean and standard deviation of each metric over the repeats, fractions in, % out."""
    mean = {metric: 100 * float(np.mean(x)) for metric, x in scores.items()}
    return mean | {f"{metric}_std": 100 * float(np.std(x)) for metric, x in scores.items()}


def best_over_grid(
    name: str, rate: float, order: str, values: Values, *, number: int = 0, setting: Setting = PUBLISHED
) -> dict[str, Any]:
    """The configuration with the largest accuracy by the labels, and its scores over the repeats of the last step."""
    axes = values.of(setting.config)._asdict()
    sweep = functools.partial(sweep_case, name, rate, order, number=number, setting=setting)
    found = sweep(axes)
    best = found.best("accuracy")
    chosen = {parameter: best[parameter] for parameter in axes}
    repeats = sweep(chosen | {"seed": range(REPEATS)}).rows
    which = {"set": name, "rate": rate, "order": order, "mask": number, "variant": setting.config.variant}
    scores = mean_and_spread({metric: np.array([row[metric] for row in repeats]) for metric in METRICS})
    return which | {"configurations": found.total} | chosen | scores


def cells(sets: list[str], rates: list[float], variants: list[str], grid: str, masks: int) -> Iterator[dict[str, Any]]:
    """:func:`best_over_grid` for every set, variant, rate, order and mask, with a line of progress each."""
    for name, which, rate, order, number in itertools.product(sets, variants, rates, ORDERS, range(masks)):
        values = SMALL_GRID if grid == "quick" and name in LARGE else GRIDS[grid]
        row = best_over_grid(name, rate, order, values, number=number, setting=variant(which))
        chosen = f"lam {row['lam']:g}, theta {row['theta']:g}, latent_dim {row['latent_dim']}"
        at = f"{name:<15}{which:<5}{rate:<4} {order:<9} mask {number}"
        print(f"{at}: accuracy {row['accuracy']:.2f} at {chosen}", flush=True)
        yield row


def arguments(description: str, sets: Sequence[str], quick_sets: Sequence[str]) -> argparse.Namespace:
    """Command line of the scripts that fill tables; names the data directory to :func:`jpltd_jax.datasets.load`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="directory with NAME.npz of every set, and masks.npz if there is one")
    parser.add_argument("--sets", nargs="+", help=f"default: {', '.join(sets)}; with --quick {', '.join(quick_sets)}")
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES), help="default: %(default)s")
    parser.add_argument("--grid", choices=GRIDS, default="paper", help="default: %(default)s")
    parser.add_argument("--masks", type=int, default=10, help="masks per rate; default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="the same as --grid quick --masks 1")
    args = parser.parse_args()
    if args.quick:
        args.grid, args.masks = "quick", 1
    args.sets = args.sets or list(quick_sets if args.quick else sets)
    os.environ["JPLTD_DATA"] = str(args.data)
    return args
