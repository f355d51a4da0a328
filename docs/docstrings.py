"""The package's docstrings: which names lack one, and their plain formulas made safe for reStructuredText."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from docutils import nodes

import jpltd_jax

NOT_LIBRARY = {"jpltd_jax.__main__", "jpltd_jax.cli"}

KEPT = re.compile(r"^\s*\* |``.+?``|:[\w:]+:`[^`]+`|(?<!\*)\*\*\w[^*]*\*\*|\\.|`[^`]+`_?")
"""Markup, which stays as it is."""

SPECIAL = re.compile(r"[*|`]|_(?![A-Za-z0-9])")
"""What formulas in plain text contain and reStructuredText would take for markup."""


def public_modules() -> list[ModuleType]:
    """All modules of the package that people import, in alphabetical order."""
    found = pkgutil.walk_packages(jpltd_jax.__path__, "jpltd_jax.")
    return [importlib.import_module(info.name) for info in found if info.name not in NOT_LIBRARY]


def _own_public(holder: Any) -> Iterator[tuple[str, Any]]:
    for name, value in vars(holder).items():
        inner = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if name.startswith("_") or not (callable(inner) or isinstance(inner, property)):
            continue
        if inspect.ismodule(holder) and getattr(inner, "__module__", None) != holder.__name__:
            continue
        if inspect.isclass(inner) or inspect.isroutine(inner) or isinstance(inner, property) or hasattr(inner, "lower"):
            yield name, inner


def _is_bare(name: str, value: Any) -> bool:
    """No docstring of its own, or the one that NamedTuple and dataclass make up."""
    text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    return not text or text.startswith(f"{name}(")


def undocumented() -> list[str]:
    """Full names of modules, functions, classes, methods and properties without a docstring."""
    bare = []
    for module in public_modules():
        if not module.__doc__:
            bare.append(module.__name__)
        for name, value in _own_public(module):
            if _is_bare(name, value):
                bare.append(f"{module.__name__}.{name}")
            if inspect.isclass(value):
                methods = _own_public(value)
                bare += [f"{module.__name__}.{name}.{m}" for m, method in methods if _is_bare(m, method)]
    return bare


def _escape(line: str) -> str:
    parts, at = [], 0
    for kept in KEPT.finditer(line):
        parts += [SPECIAL.sub(r"\\\g<0>", line[at : kept.start()]), kept.group()]
        at = kept.end()
    return "".join([*parts, SPECIAL.sub(r"\\\g<0>", line[at:])])


def as_rst(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape formulas in the running text; literal blocks and doctests stay as they are.

    Fields of named tuples say nothing but their number unless they have a docstring. Attributes that are described
    together stay together.
    """
    if any(line.startswith("Alias for field number") for line in lines):
        lines.clear()
    literal_indent: int | None = None
    doctest = False
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if not line.strip():
            doctest = False
            continue
        if literal_indent is not None and indent > literal_indent:
            continue
        literal_indent = None
        doctest = doctest or line.lstrip().startswith(">>>")
        if doctest or line.lstrip().startswith(".. "):
            continue
        lines[i] = _escape(re.sub(r"^:ivar [^:]+:", lambda field: ":ivar " + field[0][6:].replace(" ", ""), line))
        if line.rstrip().endswith("::"):
            literal_indent = indent


def whole_sentence(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Keep napoleon from taking what stands before a colon in the first line for a type: an empty comment before it."""
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]


def short_types(app: object, doctree: nodes.document) -> None:
    """Show arrays by the name that people import them by."""
    for text in list(doctree.findall(nodes.Text)):
        if "jaxlib._jax." in text:
            text.parent.replace(text, nodes.Text(text.replace("jaxlib._jax.", "")))
