"""Pages that are made, not written: tutorials, the command line, the API and the methods."""

import argparse
import hashlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import docstrings

import jpltd_jax
from jpltd_jax import cli
from jpltd_jax.loop import Method

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "experiments" / "notebooks").glob("[0-9]_*.py"))

LAYERS = {
    "Mathematics": ["linalg", "transforms", "tensor", "prox", "optimality"],
    "Data": ["views", "tables", "problem", "missing", "datasets"],
    "Iteration": ["loop"],
    "Clustering": ["graphs", "spectral", "metrics", "preparation", "quality"],
    "Methods": ["Methods <../methods/index>"],
    "Drivers": [
        "pipeline",
        "selection",
        "memory",
        "sharding",
        "sweeps",
        "saving",
        "estimator",
        "annotate",
        "audit",
        "plotting",
        "report",
    ],
}
"""Modules by layer. The build warns of a module that is in none."""

API = """# API

`import jpltd_jax as jj` gives these names. Everything else is in the modules below. Each layer uses the
layers above it.

```{eval-rst}
.. autosummary::
   :nosignatures:

"""

METHODS = """# Methods

```{eval-rst}
.. automodule:: jpltd_jax.methods
   :no-inherited-members:

.. autodata:: jpltd_jax.methods.METHODS
   :no-value:
```
"""

METHOD = """# {title}

| | |
| --- | --- |
| verified | {verified} |
| precision | {precision} |
| start | {start} |
| iterations | at most {max_iter}, unless `max_iter` says otherwise |

As an estimator, as a function, and over a grid:

```python
import jax
import jpltd_jax as jj

labels = jj.Clusterer("{name}", n_clusters, random_state=0).fit_predict(views)
found = jj.fit("{name}", views, mask, n_clusters, key=jax.random.key(0))
grid = jj.grid({axes}, method="{name}")
result = jj.sweep(jj.make_problem(views, mask), grid, n_clusters=n_clusters, key=jax.random.key(0))
```

```{{eval-rst}}
.. automodule:: {module}
   :members:
   :exclude-members: {record}

.. autodata:: {record}
   :no-value:
```
"""


def _toctree(names: list[str]) -> str:
    return "\n```{toctree}\n:maxdepth: 1\n\n" + "\n".join(names) + "\n```\n"


def _automodule(module: ModuleType) -> str:
    """A module with what its ``__all__`` names; a package with its modules, which define what it passes on."""
    start = f"```{{eval-rst}}\n.. automodule:: {module.__name__}\n"
    if hasattr(module, "__path__"):
        parts = [f"## {part.__name__}\n\n{_automodule(part)}" for part in docstrings.public_modules(module)]
        return "\n".join([f"{start}   :no-inherited-members:\n```\n", *parts])
    public = {name: getattr(module, name) for name in module.__all__}
    wrapped = [name for name, x in public.items() if hasattr(x, "__wrapped__") and not inspect.isroutine(x)]
    functions = "".join(f"\n.. autofunction:: {name}\n" for name in wrapped)
    return f"{start}   :members:\n{functions}```\n"


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
    """One page per module, the layers, and a table of the names that ``import jpltd_jax as jj`` gives."""
    for module in docstrings.public_modules():
        if module is not jpltd_jax.methods:
            _write(folder / f"{module.__name__.split('.')[-1]}.md", f"# {module.__name__}\n\n{_automodule(module)}")
    table = "\n".join(f"   ~{home}" for _, home in sorted(docstrings.homes_of_short_names().items()))
    layers = [f"## {layer}\n{_toctree(modules)}" for layer, modules in LAYERS.items()]
    _write(folder / "index.md", f"{API}{table}\n```\n\n" + "\n".join(layers))


def method_page(record: Method) -> str:
    """What its record says, how to call it, and its module."""
    numbers = record.Hyper()._asdict() | vars(record.Config()) | {"seed": 1}
    name, value = next((k, x) for k, x in numbers.items() if k != "tol" and type(x) in (int, float))
    half = value // 2 if isinstance(value, int) else value / 2
    verified = "what, and against what, is said below"
    if record.reconstruction:
        verified = "no: **a reconstruction**, without a program or recorded run of the authors to compare with"
    return METHOD.format(
        title=record.title[0].upper() + record.title[1:],
        name=record.name,
        module=record.Hyper.__module__,
        record=record.name.upper(),
        verified=verified,
        precision="float64, whatever JAX's flag says" if record.needs_x64 else "float32 or float64, as the problem has",
        start="random: the key matters" if record.random_start else "not random",
        max_iter=record.max_iter,
        axes=f'{{"{name}": {[half, value, 2 * value]}}}',
    )


def write_methods(folder: Path) -> None:
    """One page per method."""
    for name, record in jpltd_jax.methods.METHODS.items():
        _write(folder / f"{name}.md", method_page(record))
    _write(folder / "index.md", METHODS + _toctree(list(jpltd_jax.methods.METHODS)))


def write(folder: Path) -> None:
    """All of them."""
    write_tutorials(folder / "tutorials")
    write_command_line(folder)
    write_api(folder / "api")
    write_methods(folder / "methods")
