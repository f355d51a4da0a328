"""``jpltd audit-order``."""

import argparse
from typing import Any

from jpltd_jax.cli.figures import figure_output, pyplot, save
from jpltd_jax.cli.inputs import FILE_FORMATS, all_classes, n_clusters_of, paths_of, read
from jpltd_jax.cli.options import add_data, add_method, add_n_clusters, check_latent_dim, model_of
from jpltd_jax.cli.outputs import check_outputs
from jpltd_jax.cli.reports import add_report, report_output, write_report

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Add the command to the parser."""
    audit = commands.add_parser(
        "audit-order",
        help="find out whether the result depends on the order of the samples",
        description="Cluster the samples in their own order, in random orders and, if there are labels, sorted by "
        "class; say whether the partition depends on the order.",
        epilog=f"{FILE_FORMATS} Example: jpltd audit-order my.npz --preset published --out audit.png",
    )
    add_data(audit)
    add_n_clusters(audit)
    add_method(audit)
    audit.add_argument("--orders", type=int, default=5, metavar="N", help="random orders to try (%(default)s)")
    audit.add_argument("--out", metavar="PNG", help="draw the spread here")
    add_report(audit)
    audit.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Audit the method on files; draw what was found."""
    from jpltd_jax.audit import audit_order

    out = None if arguments.out is None else figure_output(arguments.out)
    report = report_output(arguments)
    check_outputs(paths_of(arguments.files, arguments.labels), [out, report])
    data = read(arguments.files, arguments.labels)
    model = model_of(arguments, n_clusters_of(arguments.n_clusters, data))
    check_latent_dim(arguments.latent_dim, data.views)
    audit = audit_order(
        data.views, None, all_classes(data), method=model, n_orders=arguments.orders, seed=arguments.seed
    )
    print(f"JPLTD, {arguments.preset}, on {data.source}, {arguments.orders} random orders")
    print(audit.summary())
    if out is not None:
        from jpltd_jax.plotting import plot_order_audit

        save(pyplot(), plot_order_audit({arguments.preset: audit}).figure, out)
    if report is not None:
        from jpltd_jax.report import audit_report

        found = {arguments.preset: audit}
        write_report(report, audit_report(found, warnings=arguments.shown, command=arguments.command_line))
