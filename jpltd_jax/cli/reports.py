"""Reports from the command line: a page of HTML beside the other results."""

import argparse

from jpltd_jax.cli.outputs import Output, UserError, output

__all__ = ["add_report", "report_output", "write_report"]


def add_report(command: argparse.ArgumentParser) -> None:
    """The option that asks for a report."""
    command.add_argument("--report", metavar="HTML", help="write a page that shows and explains the result here")


def report_output(arguments: argparse.Namespace) -> Output | None:
    """Where the report goes, if one is wanted and can be written."""
    return None if arguments.report is None else output(arguments.report, "--report", suffixes=[".html"])


def write_report(where: Output, page: str) -> None:
    """Write the page. What was written before it stays if that fails."""
    from jpltd_jax.report import write

    try:
        write(where.path, page)
    except OSError as error:
        raise UserError(f"cannot write {where}: {error.strerror}; the other results are written") from error
    print(f"report: {where}")
