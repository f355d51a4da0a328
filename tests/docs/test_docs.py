"""Links, commands and code of the documents, and the documentation itself."""

import argparse
import importlib
import inspect
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

import jpltd_jax as jj
from jpltd_jax import cli

ROOT = Path(__file__).parents[2]
MARKDOWN = sorted(
    path for folder in (".", "docs", "experiments", "experiments/notebooks") for path in (ROOT / folder).glob("*.md")
)
NOTEBOOKS = sorted((ROOT / "experiments/notebooks").glob("*.py"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES = {"jpltd_jax", "pip", "pytest", "sphinx"}
PROGRAMS = {"mypy", "ruff"}

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def name_of(path):
    return str(path.relative_to(ROOT))


def markdown(path):
    """The text of a page; of a notebook its comments."""
    text = path.read_text()
    return text if path.suffix == ".md" else "\n".join(re.findall(r"^# ?(.*)$", text, re.MULTILINE))


def fenced(path, language):
    return [body for found, body in FENCE.findall(markdown(path)) if found == language]


def prose(path):
    return FENCE.sub("", markdown(path))


def commands(path):
    """Lines of shell blocks, and code in the text that starts like a command; parts joined by && apart."""
    lines = [line for block in fenced(path, "sh") for line in block.splitlines() if line.strip()]
    start = r"(?:[A-Z_]+=\S+ )*(?:jpltd|python|pip|ruff|mypy) "
    lines += re.findall(rf"`({start}[^`]+)`", prose(path).replace("\n", " "))
    return [part.strip() for line in lines for part in line.split("&&")]


def heading_ids(path):
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_link(target, page):
    if re.match(r"[a-z]+:", target):
        url = urlsplit(target)
        assert url.scheme in ("https", "mailto"), target
        assert re.fullmatch(r"[\w\-]+(\.[\w\-]+)+", url.netloc), target
        return
    file, _, anchor = target.partition("#")
    if file.startswith("generated/"):
        return  # made and checked by the build
    linked = page if not file else page.parent / file
    assert linked.exists(), f"{target} does not exist"
    assert not anchor or anchor in heading_ids(linked), f"{target}: no such heading"


def check_install(arguments):
    wanted = [word for word in arguments if not word.startswith("-")]
    for word in wanted:
        project, extras = re.fullmatch(r"([^\[\]]+)(?:\[([\w,]+)\])?", word).groups()
        if project in (".", "jpltd_jax"):
            assert set((extras or "").split(",")) - {""} <= PYPROJECT["project"]["optional-dependencies"].keys(), word
        else:
            assert project in ("jax",), f"{word} is not part of this project"


def check_script(script, arguments, page):
    file = next((base / script for base in (ROOT, page.parent) if (base / script).exists()), None)
    assert file is not None, f"{script} does not exist"
    source = file.read_text()
    helpers = [file.with_name(f"{name}.py") for name in re.findall(r"^from (\w+) import", source, re.MULTILINE)]
    source += "".join(helper.read_text() for helper in helpers if helper.exists())
    for option in arguments:
        assert not option.startswith("-") or f'"{option}"' in source, f"{script} has no {option}"


def check_pytest(arguments):
    markers = [entry.partition(":")[0] for entry in PYPROJECT["tool"]["pytest"]["ini_options"]["markers"]]
    for before, word in zip(["", *arguments], arguments, strict=False):
        if before == "-m":
            assert set(word.split()) - {"and", "not", "or"} <= set(markers), f"no marker {word}"
        elif not word.startswith("-"):
            assert (ROOT / word).exists(), f"{word} does not exist"


def parses(arguments):
    try:
        cli.parser().parse_args(arguments)
    except SystemExit as end:
        return end.code == 0
    return True


def check_command(command, page):
    words = shlex.split(command)
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        del words[0]
    match words:
        case ["jpltd", *arguments] | ["python", "-m", "jpltd_jax", *arguments]:
            assert parses(arguments), command
        case ["python", "-m", "pip", "install", *arguments] | ["pip", "install", *arguments]:
            check_install(arguments)
        case ["python", "-m", "pytest", *arguments]:
            check_pytest(arguments)
        case ["python", "-m", module, *_]:
            assert module in MODULES, command
        case ["python", script, *arguments]:
            check_script(script, arguments, page)
        case [program, *_]:
            assert program in PROGRAMS, f"{command}: unknown program"


@pytest.mark.parametrize("page", MARKDOWN, ids=name_of)
def test_links(page):
    text = prose(page)
    inline = re.findall(r"\]\(([^)\s]+)\)", text)
    named = dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", text, re.MULTILINE))
    for target in [*inline, *named.values()]:
        check_link(target, page)
    for name in re.findall(r"\]\[([^\]]+)\]", text):
        assert name in named, f"[{name}] is not defined"


@pytest.mark.parametrize("page", [page for page in [*MARKDOWN, *NOTEBOOKS] if page.stem != "CHANGELOG"], ids=name_of)
def test_commands(page):
    for command in commands(page):
        check_command(command, page)


@pytest.mark.parametrize(
    "command",
    [
        "jpltd clster my.npz",
        "jpltd cluster my.npz --clusters 5",
        'python -m pip install ".[plots]"',
        "python -m pip install requests",
        "python -m pytest -m quick",
        "python -m pytest tests/test_nothing.py",
        "python experiments/nothing.py",
        "python experiments/readme_picture.py --fast",
        "python -m nothing",
        "make docs",
    ],
)
def test_wrong_commands_are_found(command, capsys):
    with pytest.raises(AssertionError):
        check_command(command, ROOT / "README.md")


@pytest.mark.parametrize("target", ["nothing.md", "README.md#nothing", "http://example.org", "https://example"])
def test_wrong_links_are_found(target):
    with pytest.raises(AssertionError):
        check_link(target, ROOT / "README.md")


def test_commands_are_seen():
    seen = commands(ROOT / "README.md")
    assert "jpltd demo" in seen
    assert 'python -m pip install ".[plot]"' in seen
    assert any(command.startswith("jpltd cluster rna.csv") for command in seen)
    assert "jpltd audit-order FILE" in seen
    assert any(command.startswith("jpltd audit-order my.npz") for command in commands(NOTEBOOKS[3]))


@pytest.mark.docs
@pytest.mark.parametrize("page", ["README.md", "docs/limits.md", "docs/devices.md"])
def test_python_of_the_pages_runs(page, tmp_path):
    blocks = [textwrap.dedent(block) for block in fenced(ROOT / page, "python")]
    assert len(blocks) >= 2
    subprocess.run([sys.executable, "-c", "\n".join(blocks)], cwd=tmp_path, check=True)


def test_pictures_are_small():
    pictures = list((ROOT / "docs").glob("*.png"))
    assert pictures
    assert all(picture.stat().st_size < 150_000 for picture in pictures)


def test_one_version():
    assert PYPROJECT["project"]["version"] == jj.__version__
    assert f"\nversion: {jj.__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.fixture
def documentation(monkeypatch):
    """Import a module of the documentation."""
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module


def test_names_without_a_page_are_found(documentation):
    docstrings = documentation("docstrings")
    names = {f"{module.__name__}.{name}": None for module in docstrings.homes() for name in module.__all__}
    python = SimpleNamespace(objects=names)
    env = SimpleNamespace(domains={"py": python})
    docstrings.every_name_is_described(None, env)
    del names["jpltd_jax.prox.stiefel"]
    with pytest.raises(Exception, match=r"without a docstring: jpltd_jax\.prox\.stiefel$"):
        docstrings.every_name_is_described(None, env)


def test_short_names_have_a_home(documentation):
    homes = documentation("docstrings").homes_of_short_names()
    assert homes["JPLTD"] == "jpltd_jax.estimator.JPLTD"
    assert homes["PUBLISHED"] == "jpltd_jax.methods.jpltd.PUBLISHED"
    modules = {name for name in jj.__all__ if inspect.ismodule(getattr(jj, name))}
    assert homes.keys() | modules == set(jj.__all__)


@pytest.mark.parametrize(
    ("line", "escaped"),
    [
        ("|B|_* of ``a*b_`` and :func:`x_`; labels_", r"\|B\|\_\* of ``a*b_`` and :func:`x_`; labels\_"),
        ("* item", "* item"),
        (":Attributes: * **a** (*int*)", ":Attributes: * **a** (*int*)"),
        (">>> a_ * |b|", ">>> a_ * |b|"),
    ],
)
def test_formulas_are_escaped_and_code_is_not(line, escaped, documentation):
    lines = [line, "", "As in::", "", "    a * b_"]
    documentation("docstrings").as_rst(None, "", "", None, None, lines)
    assert lines == [escaped, "", "As in::", "", "    a * b_"]


@pytest.mark.parametrize("name", jj.methods.METHODS)
def test_page_of_a_method(name, documentation):
    page = documentation("pages").method_page(jj.methods.METHODS[name])
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    data = jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8))
    names = {"views": data.views, "mask": None, "n_clusters": 3, "jj": jj}
    if name == "averaged_graph":
        exec(block, names)
        assert len(names["labels"]) == len(names["found"].labels) == 30
        assert len(names["result"].rows) == 3
    else:
        exec(re.search(r"^grid = .*$", block, re.MULTILINE)[0], names)
        assert len(names["grid"].configurations) == 3
    assert ("reconstruction" in page) == jj.methods.METHODS[name].reconstruction


@pytest.mark.docs
def test_site_builds_without_warnings(tmp_path):
    """The notebooks run while it is built, and names of the package that are referred to must exist."""
    pytest.importorskip("furo")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", ROOT / "docs", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "generated/tutorials/3_own_data.html").exists()
    assert 'id="jpltd_jax.pipeline.cluster"' in (tmp_path / "generated/api/pipeline.html").read_text()
    assert all((tmp_path / f"generated/methods/{name}.html").exists() for name in jj.methods.METHODS)


def test_parameters_in_the_table_exist():
    table = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/hyperparameters.md").read_text(), re.MULTILINE))
    options = {field.name for field in fields(jj.Config)}
    assert {"lam", "theta", "latent_dim", "max_iter"} <= table
    assert table <= jj.JPLTD(2).get_params().keys() | set(jj.Hyper._fields) | options


def test_every_sub_command_is_in_the_readme():
    commands_of = next(x for x in cli.parser()._actions if isinstance(x, argparse._SubParsersAction)).choices
    text = (ROOT / "README.md").read_text()
    assert all(f"jpltd {name}" in text for name in commands_of)


@pytest.mark.slow
def test_wheel_in_a_clean_environment(tmp_path):
    """Needs the network."""
    pip = [sys.executable, "-m", "pip", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", tmp_path, ROOT], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", wheel], capture_output=True, text=True, check=True
    ).stdout
    files = {line.split()[0] for line in names.splitlines()[1:]}
    package = {str(path.relative_to(ROOT)) for path in (ROOT / "jpltd_jax").rglob("*.py")} | {"jpltd_jax/py.typed"}
    assert {file for file in files if ".dist-info/" not in file} == package
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    binaries, elsewhere = tmp_path / "venv/bin", tmp_path / "elsewhere"
    elsewhere.mkdir()
    subprocess.run([binaries / "python", "-m", "pip", "-q", "install", f"{wheel}[plot]"], check=True)
    subprocess.run([binaries / "jpltd", "demo", "--samples", "200"], cwd=elsewhere, check=True, env={})
    assert {path.name for path in (elsewhere / "jpltd-demo").iterdir()} == {"labels.csv", "demo.png"}
