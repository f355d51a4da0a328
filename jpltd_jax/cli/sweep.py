"""``jpltd sweep``."""

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jpltd_jax.cli.inputs import FILE_FORMATS, Input, all_classes, n_clusters_of, paths_of, read, wants_progress
from jpltd_jax.cli.options import (
    MAX_ITER,
    PAPER_LAM,
    PAPER_LATENT_DIM,
    PAPER_THETA,
    add_data,
    add_n_clusters,
    add_preset,
    check_latent_dim,
    config_of,
)
from jpltd_jax.cli.outputs import Interrupted, Output, UserError, aside, check_outputs, output
from jpltd_jax.cli.reports import add_report, report_output, write_report

if TYPE_CHECKING:
    from jpltd_jax.sweeps import SweepResult

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Add the command to the parser."""
    grids = commands.add_parser(
        "sweep",
        help="cluster with every combination of hyper-parameters",
        description="Cluster the samples with all combinations of lam, theta and latent-dim (the paper's 9 x 8 x 10 by "
        "default) and write a table. An interrupted sweep goes on where it was when it is started again.",
        epilog=f"{FILE_FORMATS} Example: jpltd sweep my.npz --lam 1 2 5 --theta 0.1 --latent-dim 60 --out sweep.csv",
    )
    add_data(grids)
    add_n_clusters(grids)
    grids.add_argument("--lam", type=float, nargs="+", default=PAPER_LAM, help="(%(default)s)")
    grids.add_argument("--theta", type=float, nargs="+", default=PAPER_THETA, help="(%(default)s)")
    grids.add_argument("--latent-dim", type=int, nargs="+", default=PAPER_LATENT_DIM, metavar="K", help="(%(default)s)")
    add_preset(grids)
    grids.add_argument("--max-iter", type=int, default=MAX_ITER, metavar="N", help="(%(default)s)")
    grids.add_argument("--seed", type=int, default=0, help="of k-means (%(default)s)")
    grids.add_argument("--memory", type=float, metavar="GIB", help="use at most so much (half of what is free)")
    grids.add_argument("--store", default="sweep.jsonl", metavar="JSONL", help="rows as they finish (%(default)s)")
    grids.add_argument(
        "--out", default="sweep.csv", metavar="CSV", help="the table; - is standard output (%(default)s)"
    )
    add_report(grids)
    grids.add_argument("--quiet", action="store_true", help="no bar of progress")
    grids.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Cluster files with every configuration of a grid; write a table."""
    out, store = output(arguments.out, stream=True), output(arguments.store, "--store")
    if store.path.exists() and not store.path.is_file():
        raise UserError(f"--store {store}: rows are read from it again, so it must be a file")
    report = report_output(arguments)
    with aside(out):
        check_outputs(paths_of(arguments.files, arguments.labels), [out, store, report])
        data = read(arguments.files, arguments.labels)
        check_latent_dim(max(arguments.latent_dim), data.views)
        _sweep(arguments, data, out, store.path, report)


def _sweep(arguments: argparse.Namespace, data: Input, out: Output, store: Path, report: Output | None) -> None:
    import jax

    from jpltd_jax.problem import make_problem
    from jpltd_jax.sweeps import Run, grid, sweep
    from jpltd_jax.sweeps.store import USABLE

    axes = {"lam": arguments.lam, "theta": arguments.theta, "latent_dim": arguments.latent_dim}
    configurations = grid(axes, config=config_of(arguments.preset), max_iter=arguments.max_iter)
    n_clusters, classes = n_clusters_of(arguments.n_clusters, data), all_classes(data)
    memory = None if arguments.memory is None else int(arguments.memory * 2**30)
    try:
        result = sweep(
            make_problem(data.views),
            configurations,
            n_clusters=n_clusters,
            y=classes,
            key=jax.random.key(arguments.seed),
            store=store,
            run=Run(memory=memory, progress=wants_progress(arguments.quiet)),
        )
    except KeyboardInterrupt as error:
        raise Interrupted(_how_to_go_on(arguments, store, len(configurations.configurations))) from error
    with out.open() as file:
        result.write_csv(file)
    if report is not None:
        from jpltd_jax.report import sweep_report

        command = arguments.command_line
        write_report(report, sweep_report(result, configurations, warnings=arguments.shown, command=command))
    if len(result.rows) < result.total:
        raise Interrupted(_how_to_go_on(arguments, store, result.total))
    unusable = sum(row["status"] not in USABLE for row in result.rows)
    print(f"{result.total} configurations, {unusable} empty or not finite")
    if unusable < result.total:
        _print_best(result, by_labels=data.labels is not None)
    print(f"table: {out}\nrows with labels: {store}")


def _print_best(result: "SweepResult", by_labels: bool) -> None:
    """The best configuration, by the labels if there are any."""
    if not by_labels and all(math.isnan(row["score"]) for row in result.rows):
        print("no best configuration: without labels the published method has nothing to rank by")
        return
    best = result.best("accuracy" if by_labels else "score")
    where = f"lam={best['lam']:g} theta={best['theta']:g} latent_dim={best['latent_dim']}"
    if by_labels:
        print(f"best accuracy {100 * best['accuracy']:.1f} % at {where} (chosen by the labels)")
    else:
        print(f"best score {best['score']:.3f} at {where} (no labels needed)")


def _how_to_go_on(arguments: argparse.Namespace, store: Path, total: int) -> str:
    from jpltd_jax.sweeps.store import read_rows

    stored = f"{len(read_rows(store))} of {total} configurations are stored in {store}"
    return f"interrupted; {stored}; the same command goes on from there: {arguments.command_line}"
