"""Pages that are made, not written: tutorials, the command line, the API and the baselines."""

import argparse
import hashlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import docstrings

import jpltd_jax
from jpltd_jax import baselines, cli

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "experiments" / "notebooks").glob("[0-9]_*.py"))

AUTOMODULE = """```{{eval-rst}}
.. automodule:: {name}
   :members:
   :ignore-module-all:
```
"""


def _toctree(names: list[str]) -> str:
    return "\n```{toctree}\n:maxdepth: 1\n\n" + "\n".join(names) + "\n```\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def write_tutorials(folder: Path) -> None:
    """Every notebook with what it prints and draws, run again only when it or the package changed."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = sorted((ROOT / "jpltd_jax").rglob("*.py"))
    package = hashlib.sha256(b"".join(path.read_bytes() for path in sources))
    for notebook in NOTEBOOKS:
        stamp = folder / f"{notebook.stem}.stamp"
        digest = hashlib.sha256(package.digest() + notebook.read_bytes()).hexdigest()
        if stamp.exists() and stamp.read_text() == digest:
            continue
        runner = Path(__file__).with_name("run_notebook.py")
        subprocess.run([sys.executable, runner, notebook, folder / f"{notebook.stem}.md"], check=True)
        stamp.write_text(digest)
    text = "# Tutorials\n\nThese pages are the notebooks in `experiments/notebooks/`, with what they print and draw.\n"
    _write(folder / "index.md", text + _toctree([notebook.stem for notebook in NOTEBOOKS]))


def write_command_line(folder: Path) -> None:
    """What ``--help`` prints."""
    parser = cli.parser()
    commands = next(x for x in parser._actions if isinstance(x, argparse._SubParsersAction)).choices
    text = ["# Command line", "`jpltd`, or `python -m jpltd_jax`."]
    for name, command in commands.items():
        text += [f"## jpltd {name}", f"```text\n{command.format_help()}```"]
    _write(folder / "command_line.md", "\n\n".join(text) + "\n")


def write_api(folder: Path) -> None:
    """One page a module, and a table of the names that ``import jpltd_jax as jj`` gives."""
    modules = [x for x in docstrings.public_modules() if not x.__name__.startswith("jpltd_jax.baselines")]
    for module in modules:
        name = module.__name__
        _write(folder / f"{name.split('.')[-1]}.md", f"# {name}\n\n{AUTOMODULE.format(name=name)}")
    rows = ["| name | what it is |", "| --- | --- |"]
    for name in jpltd_jax.__all__:
        value = getattr(jpltd_jax, name)
        if not inspect.ismodule(value):
            first = str(value.__doc__).splitlines()[0].replace("|", "\\|").replace("``", "`")
            rows.append(f"| {{py:obj}}`jj.{name} <{value.__module__}.{value.__name__}>` | {_without_roles(first)} |")
    text = ["# API", "`import jpltd_jax as jj` gives these names, and the modules below.", "\n".join(rows)]
    _write(folder / "index.md", "\n\n".join(text) + "\n" + _toctree([x.__name__.split(".")[-1] for x in modules]))


def _without_roles(text: str) -> str:
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("*", "\\*").replace("_{", "\\_{")


def write_baselines(folder: Path) -> None:
    """One page a method, from its module."""
    pages = {}
    for name, fit in baselines.METHODS.items():
        module = inspect.getmodule(fit)
        assert module is not None
        pages.setdefault(module.__name__, []).append(name)
    for module_name, names in pages.items():
        short = module_name.split(".")[-1]
        note = "What was verified, and against what, is in the notes of `fit`."
        if baselines.RECONSTRUCTIONS.intersection(names):
            note = "**A reconstruction**: no program or recorded run of the authors was there to compare with."
        called = ", ".join(f'`jj.baselines.Baseline("{name}", n_clusters)`' for name in names)
        text = f"# {short.upper().replace('_', '-')}\n\n{note}\n\n{called}\n\n{AUTOMODULE.format(name=module_name)}"
        _write(folder / f"{short}.md", text)
    shared = [f"jpltd_jax.baselines{x}" for x in ("", ".base", ".graphs")]
    _write(folder / "shared.md", "# What they share\n\n" + "\n".join(AUTOMODULE.format(name=x) for x in shared))
    text = (
        "# Baselines\n\nThe methods JPLTD was compared with. Each page starts with the model; complexity and what was\n"
    )
    text += "verified are in the notes of `fit`.\n"
    _write(folder / "index.md", text + _toctree([name.split(".")[-1] for name in pages] + ["shared"]))


def write(folder: Path) -> None:
    """All of them."""
    write_tutorials(folder / "tutorials")
    write_command_line(folder)
    write_api(folder / "api")
    write_baselines(folder / "baselines")
