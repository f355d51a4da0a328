"""The command line: ``jpltd demo``, ``jpltd cluster``, ``jpltd audit-order``, ``jpltd sweep``."""

import argparse
import csv
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jpltd_jax import datasets, metrics, missing
from jpltd_jax._host import replacing
from jpltd_jax.audit import audit_order
from jpltd_jax.estimator import JPLTD
from jpltd_jax.methods.jpltd import ORDER_FREE, PUBLISHED
from jpltd_jax.plotting import plot_affinity, plot_history, plot_order_audit
from jpltd_jax.problem import make_problem
from jpltd_jax.sweeps import Run, grid, sweep
from jpltd_jax.sweeps.store import USABLE

__all__ = ["UserError", "main", "parser"]

PRESETS = {"order-free": ORDER_FREE, "published": PUBLISHED}
PRESET_HELP = (
    "order-free: the order of the samples does not matter; published: the paper's method, it does (%(default)s)"
)

FILE_FORMATS = (
    "FILE is an .npz archive with view0, view1, ... (samples as rows; a row of NaN is a missing view), and optionally "
    "mask (samples, views) and labels; or a .mat file with a cell array X or data, and optionally labels Y, gt or "
    "truth; or the name of a set in the directory JPLTD_DATA; or 'digits'."
)


class UserError(Exception):
    """Something that the person at the command line can put right."""


def _writable(path: Path) -> Path:
    """Check before the work that ``path`` can be written after it."""
    if path.is_dir():
        raise UserError(f"{path} is a directory")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    return path


def _write_labels(path: Path, sample_ids: np.ndarray, labels: np.ndarray) -> None:
    with replacing(path, "w") as file:
        writer = csv.writer(file)
        writer.writerow(["sample", "label"])
        writer.writerows(zip(sample_ids.tolist(), labels.tolist(), strict=True))


def _print_scores(labels: np.ndarray, predicted: np.ndarray, order: str) -> None:
    scores = metrics.scores(labels, predicted)
    print(f"scores (samples in {order} order)")
    for name, value in zip(scores._fields, scores, strict=True):
        print(f"  {name:<10}{100 * float(value):6.1f} %")


def _pyplot() -> Any:
    """Pyplot drawing to files, or None without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _save(plt: Any, figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"figure: {path}")


NO_FIGURE = 'no figure: matplotlib is not installed (pip install "jpltd_jax[plot]")'


def _demo(arguments: argparse.Namespace) -> None:
    out = Path(arguments.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the directory {out}: {error.strerror}") from error
    labels_file, figure_file = _writable(out / "labels.csv"), _writable(out / "demo.png")
    data = datasets.load_digits_multiview(arguments.samples)
    assert data.labels is not None
    n, m = len(data.labels), len(data.views)
    order = np.random.default_rng(arguments.seed).permutation(n)
    views, labels = [view[order] for view in data.views], data.labels[order]
    mask = missing.paper_protocol(arguments.seed, n, m, 0.5)
    print(f"{n} handwritten digits in {m} views, shuffled; half of the samples lack one or two views")
    start = time.perf_counter()
    model = JPLTD(n_clusters=10, random_state=arguments.seed, verbose=True).fit(views, mask=mask)
    print(f"{model.n_iter_} iterations in {time.perf_counter() - start:.1f} s, compilation included")
    _print_scores(labels, model.labels_, "shuffled")
    _write_labels(labels_file, order, model.labels_)
    print(f"labels: {labels_file}")
    plt = _pyplot()
    if plt is None:
        print(NO_FIGURE)
        return
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    plot_affinity(model.affinity_, model.labels_, ax=left, title="Learned affinity")
    plot_history(model.history_, ax=right)
    _save(plt, figure, figure_file)


def _n_clusters(arguments: argparse.Namespace, data: datasets.MultiViewData) -> int:
    if arguments.n_clusters is not None:
        return arguments.n_clusters
    if data.labels is None:
        raise UserError(f"{arguments.file} has no labels to count the classes of: give --n-clusters")
    return len(np.unique(data.labels))


def _model(arguments: argparse.Namespace, n_clusters: int) -> JPLTD:
    return JPLTD(
        n_clusters,
        lam=arguments.lam,
        theta=arguments.theta,
        max_iter=arguments.max_iter,
        config=replace(PRESETS[arguments.preset], latent_dim=arguments.latent_dim),
        random_state=arguments.seed,
    )


def _cluster(arguments: argparse.Namespace) -> None:
    out = _writable(Path(arguments.out))
    data = datasets.load(arguments.file)
    n_clusters = _n_clusters(arguments, data)
    model = _model(arguments, n_clusters).set_params(verbose=not arguments.quiet).fit(data.views, mask=data.mask)
    print(f"{len(model.labels_)} samples, {len(data.views)} views, {n_clusters} clusters, {model.n_iter_} iterations")
    if data.labels is not None:
        _print_scores(data.labels, model.labels_, "file")
    _write_labels(out, model.sample_ids_, model.labels_)
    print(f"labels: {out}")


def _audit_order(arguments: argparse.Namespace) -> None:
    out = None if arguments.out is None else _writable(Path(arguments.out))
    data = datasets.load(arguments.file)
    model = _model(arguments, _n_clusters(arguments, data))
    audit = audit_order(
        data.views, data.mask, data.labels, method=model, n_orders=arguments.orders, seed=arguments.seed
    )
    print(f"JPLTD, {arguments.preset}, on {arguments.file}, {arguments.orders} random orders")
    print(audit.summary())
    if out is not None:
        plt = _pyplot()
        if plt is None:
            print(NO_FIGURE)
            return
        _save(plt, plot_order_audit({arguments.preset: audit}).figure, out)


PAPER_LAM = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
PAPER_THETA = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
PAPER_LATENT_DIM = tuple(range(10, 101, 10))


def _sweep(arguments: argparse.Namespace) -> None:
    out, store = _writable(Path(arguments.out)), _writable(Path(arguments.store))
    data = datasets.load(arguments.file)
    axes = {"lam": arguments.lam, "theta": arguments.theta, "latent_dim": arguments.latent_dim}
    result = sweep(
        make_problem(data.views, data.mask),
        grid(axes, config=PRESETS[arguments.preset], max_iter=arguments.max_iter),
        n_clusters=_n_clusters(arguments, data),
        y=data.labels,
        key=jax.random.key(arguments.seed),
        store=store,
        run=Run(
            memory=None if arguments.memory is None else int(arguments.memory * 2**30), progress=not arguments.quiet
        ),
    )
    result.to_csv(out)
    unusable = sum(row["status"] not in USABLE for row in result.rows)
    print(f"{len(result.rows)} of {result.total} configurations, {unusable} empty or not finite")
    if data.labels is not None and unusable < len(result.rows):
        best = result.best("accuracy")
        where = f"lam={best['lam']:g} theta={best['theta']:g} latent_dim={best['latent_dim']}"
        print(f"best accuracy {100 * best['accuracy']:.1f} % at {where} (chosen by the labels)")
    print(f"table: {out}\nrows with labels: {store}")


def _lam(text: str) -> str | float:
    return text if text == "auto" else float(text)


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    defaults = JPLTD(1).get_params()
    top = argparse.ArgumentParser(prog="jpltd", description="Cluster samples seen through several incomplete views.")
    commands = top.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo",
        help="cluster bundled data and draw the result",
        description="Cluster scikit-learn's handwritten digits, shuffled, with half of the samples incomplete; print "
        "scores, write labels.csv and demo.png.",
    )
    demo.add_argument("--out", default="jpltd-demo", metavar="DIR", help="where to write (default: %(default)s)")
    demo.add_argument("--samples", type=int, default=600, metavar="N", help="digits to use, at most 1797 (%(default)s)")
    demo.add_argument("--seed", type=int, default=0, help="of the shuffle, the mask and k-means (%(default)s)")
    demo.set_defaults(run=_demo)
    method = argparse.ArgumentParser(add_help=False)
    method.add_argument("file", metavar="FILE")
    method.add_argument("--n-clusters", type=int, metavar="C", help="default: the number of classes in FILE's labels")
    method.add_argument("--preset", choices=list(PRESETS), default="order-free", help=PRESET_HELP)
    method.add_argument(
        "--lam",
        type=_lam,
        default=None,
        metavar="LAM|auto",
        help="weight of the low-rank tensor; lower it if the affinity is empty (0.25, or 5 for published)",
    )
    method.add_argument(
        "--theta", type=float, default=defaults["theta"], help="weight of the sparse tensor (%(default)s)"
    )
    method.add_argument(
        "--latent-dim",
        type=int,
        default=ORDER_FREE.latent_dim,
        metavar="K",
        help="dimension of the projected views (%(default)s)",
    )
    method.add_argument(
        "--max-iter",
        type=int,
        default=defaults["max_iter"],
        metavar="N",
        help="30 stops early, as the authors' code does (%(default)s)",
    )
    method.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    cluster = commands.add_parser(
        "cluster",
        parents=[method],
        help="cluster the views in a file",
        description="Cluster the samples of FILE and write their labels.",
        epilog=FILE_FORMATS + " Example: jpltd cluster my.npz --n-clusters 5 --out labels.csv",
    )
    cluster.add_argument("--out", default="labels.csv", metavar="CSV", help="where the labels go (%(default)s)")
    cluster.add_argument("--quiet", action="store_true", help="no line of progress")
    cluster.set_defaults(run=_cluster)
    audit = commands.add_parser(
        "audit-order",
        parents=[method],
        help="find out whether the result depends on the order of the samples",
        description="Cluster FILE in its own order, in random orders and, if it has labels, sorted by class; say "
        "whether the partition depends on the order.",
        epilog=FILE_FORMATS + " Example: jpltd audit-order my.npz --preset published --out audit.png",
    )
    audit.add_argument("--orders", type=int, default=5, metavar="N", help="random orders to try (%(default)s)")
    audit.add_argument("--out", metavar="PNG", help="draw the spread here")
    audit.set_defaults(run=_audit_order)
    grids = commands.add_parser(
        "sweep",
        help="cluster with every combination of hyper-parameters",
        description="Cluster FILE with all combinations of lam, theta and latent-dim (the paper's 9 x 8 x 10 by "
        "default) and write a table. An interrupted sweep goes on where it was when it is started again.",
        epilog=FILE_FORMATS + " Example: jpltd sweep my.npz --lam 1 2 5 --theta 0.1 --latent-dim 60 --out sweep.csv",
    )
    grids.add_argument("file", metavar="FILE")
    grids.add_argument("--n-clusters", type=int, metavar="C", help="default: the number of classes in FILE's labels")
    grids.add_argument("--lam", type=float, nargs="+", default=PAPER_LAM, help="(%(default)s)")
    grids.add_argument("--theta", type=float, nargs="+", default=PAPER_THETA, help="(%(default)s)")
    grids.add_argument("--latent-dim", type=int, nargs="+", default=PAPER_LATENT_DIM, metavar="K", help="(%(default)s)")
    grids.add_argument("--preset", choices=list(PRESETS), default="order-free", help=PRESET_HELP)
    grids.add_argument("--max-iter", type=int, default=defaults["max_iter"], metavar="N", help="(%(default)s)")
    grids.add_argument("--seed", type=int, default=0, help="of k-means (%(default)s)")
    grids.add_argument("--memory", type=float, metavar="GIB", help="use at most so much (half of what is free)")
    grids.add_argument("--store", default="sweep.jsonl", metavar="JSONL", help="rows as they finish (%(default)s)")
    grids.add_argument("--out", default="sweep.csv", metavar="CSV", help="the table (%(default)s)")
    grids.add_argument("--quiet", action="store_true", help="no line of progress")
    grids.set_defaults(run=_sweep)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 is success, 2 a user's error, 130 an interrupt."""
    arguments = parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except (UserError, ValueError, OSError, ImportError, FloatingPointError) as error:
        print(f"jpltd: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\njpltd: interrupted; nothing was written", file=sys.stderr)
        return 130
    return 0
