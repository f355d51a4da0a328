"""``jpltd audit-order``."""

import argparse
import importlib
import os
import sys
import textwrap
import traceback
from typing import TYPE_CHECKING, Any

from jpltd_jax.cli.figures import figure_output, pyplot, save
from jpltd_jax.cli.inputs import FILE_FORMATS, all_classes, n_clusters_of, paths_of, read
from jpltd_jax.cli.options import add_data, add_method, add_n_clusters, check_latent_dim, model_of
from jpltd_jax.cli.outputs import UserError, aside, check_outputs
from jpltd_jax.cli.reports import add_report, report_output, write_report

if TYPE_CHECKING:
    import numpy as np

    from jpltd_jax.audit import Method

__all__ = ["add", "run"]

OURS = ("n_clusters", "preset", "lam", "theta", "latent_dim", "max_iter", "strategy", "n_anchors")
"""Options that mean nothing for a method from outside."""

SHORT = 40
"""Characters of a method's name in a figure."""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    audit = commands.add_parser(
        "audit-order",
        help="find out whether the result depends on the order of the samples",
        description="Cluster the samples in their own order, in random orders and, if there are labels, sorted by "
        "class; say whether the partition depends on the order. The method is JPLTD, a program (--command) or a "
        "function in Python (--function).",
        epilog=f"{FILE_FORMATS} Examples: jpltd audit-order my.npz --preset published --out audit.png; "
        "jpltd audit-order my.npz --command 'octave-cli run.m {input} {output}'",
    )
    add_data(audit)
    add_n_clusters(audit)
    add_method(audit)
    outside = audit.add_mutually_exclusive_group()
    outside.add_argument(
        "--command",
        dest="program",
        metavar="COMMAND",
        help="audit this program, which no shell starts: {input} stands for an .npz file with view0, view1, ... "
        "(rows of NaN for what is missing), mask and seed; {output} for the .csv file that it must write, one label "
        "per row",
    )
    outside.add_argument(
        "--function",
        metavar="MODULE:NAME",
        help="audit this function (views, mask, seed) -> labels; modules in the working directory are found",
    )
    audit.add_argument("--timeout", type=float, metavar="SECONDS", help="stop a run of the program after so long")
    audit.add_argument(
        "--leak",
        action="store_true",
        help="also find out whether the program or function uses values that are missing: it is given numbers instead "
        "of NaN there, and has to go by the mask",
    )
    audit.add_argument("--orders", type=int, default=5, metavar="N", help="random orders to try (%(default)s)")
    audit.add_argument("--out", metavar="PNG", help="draw the spread here")
    add_report(audit)
    audit.set_defaults(run=run, ours={name: audit.get_default(name) for name in OURS})


@aside()
def run(arguments: argparse.Namespace) -> None:
    """Audit the method on files; draw what was found."""
    from jpltd_jax.audit import audit_leak, audit_order

    out = None if arguments.out is None else figure_output(arguments.out)
    report = report_output(arguments)
    check_outputs(paths_of(arguments.files, arguments.labels), [out, report])
    outside = _from_outside(arguments)
    data = read(arguments.files, arguments.labels)
    if arguments.leak and data.views.mask.all():
        raise UserError(f"--leak: nothing is missing in {data.source}")
    name, method = arguments.program or arguments.function or arguments.preset, outside
    if outside is None:
        check_latent_dim(arguments.latent_dim, data.views)
        method = model_of(arguments, n_clusters_of(arguments.n_clusters, data))
    audit = audit_order(
        data.views, None, all_classes(data), method=method, n_orders=arguments.orders, seed=arguments.seed
    )
    title = name if outside else f"JPLTD, {name}"
    print(f"{title}, on {data.source}, {arguments.orders} random orders")
    print(audit.summary())
    remarks = list(arguments.shown)
    if arguments.leak and outside is not None:
        leak = audit_leak(list(data.views.matrices), data.views.mask, method=outside, seed=arguments.seed)
        print(leak.summary())
        remarks += leak.summary().splitlines()
    if out is not None:
        from jpltd_jax.plotting import plot_order_audit

        short = textwrap.shorten(name, SHORT, placeholder="…")
        save(pyplot(), plot_order_audit({short: audit}).figure, out)
    if report is not None:
        from jpltd_jax.report import audit_report

        write_report(report, audit_report({name: audit}, warnings=remarks, command=arguments.command_line))


def _from_outside(arguments: argparse.Namespace) -> "Method | None":
    """The program or function to audit. None: JPLTD."""
    from jpltd_jax.audit import from_command

    if arguments.timeout is not None and arguments.program is None:
        raise UserError("--timeout needs --command")
    if arguments.program is None and arguments.function is None:
        if arguments.leak:
            raise UserError("--leak needs --command or --function: JPLTD is never given what is missing")
        return None
    for name, default in arguments.ours.items():
        if getattr(arguments, name) != default:
            raise UserError(f"--{name.replace('_', '-')} is an option of JPLTD: give it to your own method itself")
    if arguments.program is not None:
        return from_command(arguments.program, timeout=arguments.timeout)
    return _function(arguments.function)


def _function(text: str) -> "Method":
    """The function that ``module:name`` names; its errors say whose they are."""
    module, _, name = text.partition(":")
    if not module or not name:
        raise UserError(f"--function {text}: write it as package.module:name")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        raise UserError(f"--function {text}: {error}") from error
    if not callable(found):
        raise UserError(f"--function {text}: the module {module} has no function {name}")

    def method(views: "list[np.ndarray]", mask: "np.ndarray", seed: int) -> Any:
        try:
            return found(views, mask, seed)
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error} ({at.filename}, line {at.lineno})"
            raise ValueError(f"{text} stopped with {what}") from error

    return method
