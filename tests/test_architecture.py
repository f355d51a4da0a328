"""Rules that keep the house in order: what may import what, names, and the length of parameter lists."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jpltd_jax as jj
from jpltd_jax.loop import Method

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "jpltd_jax"
METHODS = sorted(f"methods.{path.stem}" for path in (PACKAGE / "methods").glob("[a-z]*.py"))

LEVELS = [
    ["_types", "_host", "_files"],
    ["_archive", "_matlab"],
    ["linalg", "transforms"],
    ["tensor", "prox", "optimality"],
    ["views"],
    ["problem", "missing", "datasets", "tables"],
    ["loop"],
    ["graphs", "spectral", "metrics", "preparation", "quality"],
    METHODS,
    ["methods"],
    ["pipeline", "sharding", "memory"],
    ["selection"],
    ["sweeps.store"],
    ["sweeps.grid", "sweeps.trunk"],
    ["sweeps.plan"],
    ["sweeps.run"],
    ["sweeps"],
    ["saving"],
    ["estimator", "audit", "annotate"],
    ["plotting"],
    ["report.pages"],
    ["report.drawings"],
    ["report.audit", "report.cluster", "report.sweep"],
    ["report"],
    ["__init__"],
    ["cli.outputs"],
    ["cli.inputs", "cli.figures", "cli.reports"],
    ["cli.options"],
    ["cli.audit_order", "cli.cluster", "cli.demo", "cli.predict", "cli.sweep"],
    ["cli"],
    ["__main__"],
]
"""From the ground up. A module imports from lower levels only."""

LEVEL = {name: i for i, names in enumerate(LEVELS) for name in names}
MATHEMATICS = {name for names in LEVELS[:3] for name in names}
MOST_PARAMETERS = 7
LONGER = {"estimator.JPLTD.__init__", "estimator.Clusterer.__init__", "sweeps.run.sweep"}
"""The doors that people call with keywords."""


def module_name(path):
    name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    return name.removesuffix(".__init__")


SOURCES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
every_module = pytest.mark.parametrize("name", SOURCES)


def imports(name):
    """(module of the package, names imported from it) for every import statement."""
    for node in ast.walk(ast.parse(SOURCES[name].read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "jpltd_jax":
            inside = node.module.removeprefix("jpltd_jax").removeprefix(".")
            for alias in node.names:
                whole = f"{inside}.{alias.name}".removeprefix(".")
                yield (whole, None) if whole in SOURCES else (inside, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                assert not alias.name.startswith("jpltd_jax"), f"{name}: write 'from jpltd_jax import ...'"


def test_every_module_has_its_level():
    assert set(LEVEL) == set(SOURCES)


@every_module
def test_imports_point_downward(name):
    for imported, _ in imports(name):
        own_package = name == "methods" and imported.startswith("methods.")
        assert LEVEL[imported] < LEVEL[name] or own_package, f"{name} imports {imported}"


def test_mathematics_knows_nothing_of_clustering():
    for name in MATHEMATICS:
        assert {imported for imported, _ in imports(name)} <= MATHEMATICS


@every_module
def test_no_private_name_crosses_a_module(name):
    for imported, what in imports(name):
        assert what is None or not what.startswith("_"), f"{name} imports {what} from {imported}"
    text = SOURCES[name].read_text()
    names = {imported.split(".")[-1] for imported, what in imports(name) if what is None}
    for module in names:
        assert not re.search(rf"\b{module}\._[a-z]", text), f"{name} uses a private name of {module}"


@pytest.mark.parametrize("name", [name for name in SOURCES if name != "__main__"])
def test_all_is_said_and_true(name):
    module = importlib.import_module(f"jpltd_jax.{name}".removesuffix(".__init__"))
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        assert hasattr(module, public), public
        assert not public.startswith("_"), public


def functions(name):
    tree = ast.parse(SOURCES[name].read_text())
    for holder in [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]:
        prefix = f"{holder.name}." if isinstance(holder, ast.ClassDef) else ""
        for node in holder.body:
            if isinstance(node, ast.FunctionDef):
                a = node.args
                count = len(a.posonlyargs + a.args + a.kwonlyargs) - bool(prefix)
                yield f"{name}.{prefix}{node.name}", count, a.kwarg


@every_module
def test_parameter_lists_are_short(name):
    for function, count, rest in functions(name):
        assert count <= MOST_PARAMETERS or function in LONGER, f"{function} has {count} parameters"
        assert rest is None, f"{function} passes on **{rest and rest.arg}"


@every_module
def test_transforms_are_asked_not_recognised(name):
    if name != "transforms":
        assert not re.search(r"isinstance\([^)]*(Fourier|Grouped|Orthonormal)", SOURCES[name].read_text())


def test_few_names_at_the_top():
    assert len(jj.__all__) <= 30
    assert all(hasattr(jj, name) for name in jj.__all__)


def test_names_at_the_top_are_imported_from_where_the_type_checker_reads_them():
    """The imports under TYPE_CHECKING, which never run, against what the package gives."""
    read = {(imported, what) for imported, what in imports("__init__")}
    for imported, what in read:
        module = importlib.import_module(f"jpltd_jax.{imported}")
        assert getattr(jj, what or imported) is (getattr(module, what) if what else module)
    assert {what or imported for imported, what in read} == set(jj.__all__)


def test_nothing_heavy_is_imported_for_the_parser():
    heavy = {"jax", "numpy", "scipy", "sklearn", "matplotlib", "pandas"}
    code = "import sys; from jpltd_jax.cli import parser; parser(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not heavy & set(done.stdout.split())


@pytest.mark.parametrize("folder", ["jpltd_jax", "tests", "experiments", "docs"])
def test_the_formatter_is_never_switched_off(folder):
    switch = "fmt: " + "skip"
    assert not [path for path in (ROOT / folder).rglob("*.py") if switch in path.read_text()]


def test_words_have_one_meaning():
    """``order`` is of samples, so only the doors may speak of it; and the old names of options are gone."""
    for name, path in SOURCES.items():
        gone = {"w_init", "norm_scale", "key_or_seed", "lambda1", "lambda2", "lambda3"}
        gone |= set() if name in ("cli.inputs", "audit", "plotting") else {"order"}
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.arg):
                assert node.arg not in gone, f"{name}: {node.arg}"


@pytest.mark.parametrize("name", METHODS)
def test_method_modules_have_one_shape(name):
    module = importlib.import_module(f"jpltd_jax.{name}")
    record = getattr(module, name.removeprefix("methods.").upper())
    assert isinstance(record, Method)
    assert record.name == name.removeprefix("methods.")
    for part in ("Hyper", "Config", "State", "Data", "prepare", "init", "step", "settled", "readout"):
        assert part in module.__all__, part
    for part in ("Hyper", "Config", "prepare", "init", "step", "settled", "readout"):
        assert getattr(record, part) is getattr(module, part)
    shapes = {
        "prepare": ["problem", "n_clusters", "config"],
        "init": ["key", "data", "hyper"],
        "step": ["data", "hyper", "state"],
        "settled": ["hyper", "n_iter", "before", "watched"],
        "readout": ["data", "state"],
    }
    for part, expected in shapes.items():
        assert list(inspect.signature(getattr(module, part)).parameters) == expected
