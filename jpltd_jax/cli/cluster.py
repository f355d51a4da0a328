"""``jpltd cluster``."""

import argparse
from typing import TYPE_CHECKING, Any

from jpltd_jax.cli.inputs import EXAMPLE, FILE_FORMATS, n_clusters_of, paths_of, print_scores, read, wants_progress
from jpltd_jax.cli.options import add_data, add_method, add_n_clusters, check_latent_dim, model_of
from jpltd_jax.cli.outputs import UserError, aside, check_outputs, output, write_labels
from jpltd_jax.cli.reports import add_report, report_output, write_report

if TYPE_CHECKING:
    from jpltd_jax.selection import NumbersOfClusters

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Add the command to the parser."""
    cluster = commands.add_parser(
        "cluster",
        help="cluster the views in files",
        description="Cluster the samples in the files and write their labels.",
        epilog=f"{FILE_FORMATS} Example: jpltd cluster {EXAMPLE} --n-clusters 5 --out labels.csv",
    )
    add_data(cluster)
    add_n_clusters(cluster, suggested=True)
    add_method(cluster)
    cluster.add_argument(
        "--out", default="labels.csv", metavar="CSV", help="where the labels go; - is standard output (%(default)s)"
    )
    cluster.add_argument("--save", metavar="NPZ", help="save the fitted model here, for jpltd predict")
    add_report(cluster)
    cluster.add_argument("--quiet", action="store_true", help="no bar of progress")
    cluster.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Cluster files; write labels."""
    out = output(arguments.out, stream=True)
    saved = None if arguments.save is None else output(arguments.save, "--save", suffixes=[".npz"])
    report = report_output(arguments)
    with aside(out):
        check_outputs(paths_of(arguments.files, arguments.labels), [out, saved, report])
        data = read(arguments.files, arguments.labels)
        check_latent_dim(arguments.latent_dim, data.views)
        model = model_of(arguments, n_clusters_of(arguments.n_clusters, data))
        model = model.set_params(verbose=wants_progress(arguments.quiet)).fit(data.views)
        n, m = data.views.mask.shape
        print(f"{n} samples, {m} views, {model.n_clusters_} clusters, {model.n_iter_} iterations")
        if model.clusters_tried_ is not None:
            _print_suggestion(model.clusters_tried_)
        if data.labels is not None:
            print_scores(data.labels, model.labels_, "file")
        write_labels(out, model.sample_ids_.tolist(), model.labels_.tolist())
        if saved is not None:
            try:
                model.save(saved.path)
            except OSError as error:
                raise UserError(f"cannot write {saved}: {error.strerror}; the labels are in {out}") from error
            print(f"model: {saved}")
        if report is not None:
            from jpltd_jax.report import cluster_report

            command = arguments.command_line
            write_report(report, cluster_report(model, data.views, warnings=arguments.shown, command=command))


def _print_suggestion(tried: "NumbersOfClusters") -> None:
    """The number of clusters that was taken, with what speaks for it and for its neighbours."""
    counts = tried.counts.tolist()
    at = counts.index(tried.suggested)
    near = range(max(at - 1, 0), min(at + 2, len(counts)))
    print(f"{counts[at]} clusters are suggested, of {counts[0]} to {counts[-1]} tried, by the largest modularity")
    for name, values in {"modularity": tried.modularity, "eigengap": tried.eigengap}.items():
        print(f"  {name}: {', '.join(f'{values[i]:.3f} with {counts[i]}' for i in near)}")
