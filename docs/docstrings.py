"""The package's docstrings: which names lack one, where names are at home, formulas made safe for reStructuredText."""

import importlib
import pkgutil
import re
from types import ModuleType

from docutils import nodes
from jaxtyping import ArrayLike
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util.typing import stringify_annotation

import jpltd_jax
from jpltd_jax import _types

KEPT = re.compile(r"^\s*(:\w+: )?\s*\* |``.+?``|\(\*.+\*\)|:[\w:]+:`[^`]+`|(?<!\*)\*\*\w[^*]*\*\*|\\.|`[^`]+`_?")
"""Markup, which stays as it is."""

SPECIAL = re.compile(r"[*|`]|_(?![A-Za-z0-9])")
"""What formulas in plain text contain and reStructuredText would take for markup."""

EMPTY_COMMENT = ["..", ""]

TYPES = {"jpltd_jax._types.Key": _types.Key, "jpltd_jax._types.Scalar": _types.Scalar, "jaxtyping.ArrayLike": ArrayLike}
"""Unions that signatures show by name."""


def public_modules(package: ModuleType = jpltd_jax) -> list[ModuleType]:
    """The modules directly in a package that people import, in alphabetical order."""
    names = [info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_")]
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names if name != "cli"]


def homes() -> list[ModuleType]:
    """The public modules that define names, which packages only pass on."""
    found = public_modules()
    for package in [module for module in found if hasattr(module, "__path__")]:
        found += public_modules(package)
    return [module for module in found if not hasattr(module, "__path__")]


def every_name_is_described(app: object, env: BuildEnvironment) -> None:
    """Stop at a name in ``__all__`` that is not on a page, which happens to names without a docstring."""
    names = [f"{module.__name__}.{name}" for module in homes() for name in module.__all__]
    bare = [name for name in names if name not in env.domains["py"].objects]
    if bare:
        raise ExtensionError("public names without a docstring: " + ", ".join(bare))


def homes_of_short_names() -> dict[str, str]:
    """Full name of everything that ``import jpltd_jax as jj`` gives, by its name there; modules are left out."""
    return {
        name: f"{module.__name__}.{name}"
        for module in homes()
        for name in module.__all__
        if name in jpltd_jax.__all__ and getattr(jpltd_jax, name) is getattr(module, name)
    }


def by_short_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.reference | None:
    """Resolve ``jpltd_jax.cluster`` to where it is described."""
    short = re.fullmatch(r"jpltd_jax\.(\w+)(.*)", node["reftarget"])
    home = homes_of_short_names().get(short[1]) if short else None
    if home is None:
        return None
    target = home + short[2]
    return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, node["reftype"], target, node, content)


def _escape(line: str) -> str:
    parts, at = [], 0
    for kept in KEPT.finditer(line):
        parts += [SPECIAL.sub(r"\\\g<0>", line[at : kept.start()]), kept.group()]
        at = kept.end()
    return "".join([*parts, SPECIAL.sub(r"\\\g<0>", line[at:])])


def as_rst(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape formulas in the running text; literal blocks and doctests stay as they are.

    Fields of named tuples say nothing but their number unless they have a docstring.
    """
    if lines[:2] == EMPTY_COMMENT:
        del lines[:2]
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
        lines[i] = _escape(line)
        if line.rstrip().endswith("::"):
            literal_indent = indent


def whole_sentence(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Keep napoleon from taking what stands before a colon in the first line for a type."""
    if what in ("attribute", "data", "property"):
        lines[:0] = EMPTY_COMMENT


def short_types(
    app: object, what: str, name: str, obj: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Show unions by name, and ``...`` for defaults without a notation, which Sphinx could not read."""
    for short, union in TYPES.items():
        signature = signature and signature.replace(stringify_annotation(union, "smart"), f"~{short}")
    return signature and re.sub(r"<[^<>]*>", "...", signature), returned
