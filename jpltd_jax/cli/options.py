"""Options that several commands share. Nothing here imports JAX until a command runs, so that help comes at once."""

import argparse
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jpltd_jax.cli.outputs import UserError

if TYPE_CHECKING:
    from jpltd_jax.estimator import JPLTD
    from jpltd_jax.methods.jpltd import Config
    from jpltd_jax.views import Views

__all__ = [
    "LATENT_DIM",
    "MAX_ITER",
    "PAPER_LAM",
    "PAPER_LATENT_DIM",
    "PAPER_THETA",
    "THETA",
    "add_data",
    "add_method",
    "add_n_clusters",
    "add_preset",
    "check_latent_dim",
    "config_of",
    "model_of",
]

THETA = 0.1
LATENT_DIM = 60
MAX_ITER = 30
"""Defaults that the help shows; a test compares them with those of the estimator."""

PAPER_LAM = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
PAPER_THETA = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
PAPER_LATENT_DIM = tuple(range(10, 101, 10))

PRESETS = ("order-free", "published")
PRESET_HELP = (
    "order-free: the order of the samples does not matter; published: the paper's method, it does (%(default)s)"
)
STRATEGY_HELP = "choose: the better of two added neighbour graphs; fast: one of them, no choice (%(default)s)"


def _lam(text: str) -> str | float:
    return text if text == "auto" else float(text)


def _numbers(text: str) -> int | str | range:
    """A number, ``auto``, or a range such as ``2-12``, both ends included."""
    if text == "auto":
        return text
    try:
        if not (found := re.fullmatch(r"(\d+)-(\d+)", text)):
            return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"give a number, a range such as 2-12, or auto; got {text!r}") from None
    first, last = map(int, found.groups())
    if not 2 <= first < last:
        raise argparse.ArgumentTypeError(f"a range goes from at least 2 to a larger number; got {text}")
    return range(first, last + 1)


def add_data(command: argparse.ArgumentParser) -> None:
    """What to cluster."""
    command.add_argument("files", metavar="FILE", nargs="+")
    command.add_argument(
        "--labels", metavar="FILE", help="known classes, for scores: a table with a sample id and a class in each row"
    )


def add_n_clusters(command: argparse.ArgumentParser, *, suggested: bool = False) -> None:
    """How many clusters; ``suggested``: a range of numbers is taken too."""
    default = "default: the number of classes in the labels"
    if suggested:
        several = f"a number; or a range such as 2-12, or auto, to take the one with the largest modularity; {default}"
        command.add_argument("--n-clusters", type=_numbers, metavar="C|C-C|auto", help=several)
    else:
        command.add_argument("--n-clusters", type=int, metavar="C", help=default)


def add_preset(command: argparse.ArgumentParser) -> None:
    """Which method."""
    command.add_argument("--preset", choices=PRESETS, default="order-free", help=PRESET_HELP)


def add_method(command: argparse.ArgumentParser) -> None:
    """Which method, and its numbers."""
    add_preset(command)
    command.add_argument(
        "--lam",
        type=_lam,
        default=None,
        metavar="LAM|auto",
        help="weight of the low-rank tensor; lower it if the affinity is empty (0.25, or 5 for published)",
    )
    command.add_argument("--theta", type=float, default=THETA, help="weight of the sparse tensor (%(default)s)")
    command.add_argument(
        "--latent-dim",
        type=int,
        default=LATENT_DIM,
        metavar="K",
        help="dimension of the projected views (%(default)s)",
    )
    command.add_argument(
        "--max-iter",
        type=int,
        default=MAX_ITER,
        metavar="N",
        help="30 stops early, as the authors' code does (%(default)s)",
    )
    command.add_argument("--strategy", choices=("choose", "fast"), default="choose", help=STRATEGY_HELP)
    command.add_argument(
        "--n-anchors",
        type=int,
        metavar="A",
        help="represent all samples by so many (default: by 500 where there are more than 3000)",
    )
    command.add_argument("--seed", type=int, default=0, help="(%(default)s)")


def config_of(preset: str) -> "Config":
    """The options of a preset."""
    from jpltd_jax.methods.jpltd import ORDER_FREE, PUBLISHED

    return ORDER_FREE if preset == "order-free" else PUBLISHED


def model_of(arguments: argparse.Namespace, n_clusters: Any) -> "JPLTD":
    """The estimator that the options of :func:`add_method` describe."""
    from jpltd_jax.estimator import JPLTD

    return JPLTD(
        n_clusters,
        lam=arguments.lam,
        theta=arguments.theta,
        max_iter=arguments.max_iter,
        config=replace(config_of(arguments.preset), latent_dim=arguments.latent_dim),
        strategy=arguments.strategy,
        n_anchors="auto" if arguments.n_anchors is None else arguments.n_anchors,
        random_state=arguments.seed,
    )


def check_latent_dim(latent_dim: int, views: "Views") -> None:
    """Raise if it is larger than any view is wide, and than any value of the paper."""
    widest = max(matrix.shape[1] for matrix in views.matrices)
    most = max(widest, PAPER_LATENT_DIM[-1])
    if latent_dim > most:
        raise UserError(f"--latent-dim must be at most {most}, got {latent_dim}: the widest view has {widest} features")
