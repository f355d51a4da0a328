"""The command line: ``jpltd demo``, ``cluster``, ``predict``, ``audit-order``, ``sweep``. The only part that prints."""

import argparse
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from jpltd_jax.cli import audit_order, cluster, demo, predict, sweep
from jpltd_jax.cli.outputs import Interrupted, UserError

__all__ = ["UserError", "main", "parser"]

COMMANDS = (demo, cluster, predict, audit_order, sweep)


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    top = argparse.ArgumentParser(prog="jpltd", description="Cluster samples seen through several incomplete views.")
    top.add_argument("--version", action="version", version=f"jpltd_jax {version('jpltd_jax')}")
    commands = top.add_subparsers(dest="command", required=True)
    for command in COMMANDS:
        command.add(commands)
    return top


def _refuse(message: object) -> int:
    print(f"jpltd: error: {message}", file=sys.stderr)
    return 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 is success, 2 a user's error, 130 an interrupt."""
    given = sys.argv[1:] if argv is None else argv
    arguments = parser().parse_args(given)
    arguments.command_line = shlex.join(["jpltd", *given])
    arguments.shown = []

    def warn(message: Any, *_: Any) -> None:
        print(f"jpltd: warning: {message}", file=sys.stderr)
        arguments.shown.append(str(message))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = warn  # type: ignore[assignment]
            arguments.run(arguments)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (UserError, ValueError, OSError, ImportError, FloatingPointError) as error:
        return _refuse(error)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return _refuse("not enough memory; --n-anchors 500 needs much less, and so does a smaller --latent-dim")
    except KeyboardInterrupt as error:
        kept = error if isinstance(error, Interrupted) else f"{error or 'interrupted'}; nothing was written"
        print(f"\njpltd: {kept}", file=sys.stderr)
        return 130
    return 0
