import os
import re
import shlex
import sys
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans

import jpltd_jax as jj
from jpltd_jax.audit import audit_leak, audit_order, from_command
from jpltd_jax.cli import main

DATA = jj.datasets.make_blobs(1, n_samples=42, dims=(8, 12), noise=0.5)
MASK = jj.missing.paper_protocol(0, 42, 2, 0.5)


class MeanImputeKMeans(ClusterMixin, BaseEstimator):
    def __init__(self, n_clusters=3, random_state=None):
        self.n_clusters = n_clusters
        self.random_state = random_state

    def fit_predict(self, Xs, y=None):
        filled = np.hstack([np.where(np.isnan(x), np.nanmean(x, axis=0), x) for x in Xs])
        return KMeans(self.n_clusters, n_init=10, random_state=self.random_state).fit_predict(filled)


def by_index(views, mask, seed):
    return np.arange(len(mask)) * 3 // len(mask)


def test_index_reader_is_flagged_and_scores_only_when_sorted():
    audit = audit_order(DATA.views, MASK, DATA.labels, method=by_index)
    assert audit.depends_on_order
    assert audit.sorted == 1
    assert audit.shuffled.max() < 0.7
    assert "DEPENDS" in audit.summary()


def test_scikit_learn_clusterer_is_not_flagged():
    audit = audit_order(DATA.views, MASK, DATA.labels, method=MeanImputeKMeans())
    assert not audit.depends_on_order
    assert "does not depend" in audit.summary()
    assert len(audit.shuffled) == 5


def test_without_classes_there_is_still_a_verdict():
    audit = audit_order(DATA.views, MASK, method=by_index, n_orders=2)
    assert audit.depends_on_order
    assert np.isnan(audit.file)
    assert np.isnan(audit.sorted)
    assert "accuracy" not in audit.summary()


def test_default_estimator_is_order_free_and_the_published_method_is_not():
    """Weak clusters in noise, sorted: the Fourier transform finds the order, the graph transform does not see it."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    views = [rng.normal(size=(3, d))[y] * 0.5 + rng.normal(size=(60, d)) for d in (12, 15)]
    published = jj.JPLTD(3, config=replace(jj.PUBLISHED, latent_dim=8))
    audit = audit_order(views, None, y, method=published, n_orders=3, n_seeds=2)
    assert audit.depends_on_order
    assert audit.sorted > audit.shuffled.mean()
    ours = audit_order(views, None, y, method=jj.JPLTD(3, config=jj.Config(latent_dim=8)), n_orders=3, n_seeds=2)
    assert not ours.depends_on_order


def test_frames_are_matched_by_id_and_so_are_the_classes():
    """Every view says the class itself, but only of the sample with the same id."""
    frames = [pd.DataFrame(x, index=[f"s{i}" for i in range(42)]) for x in DATA.views]
    classes = pd.Series(DATA.labels, index=frames[0].index)
    shuffled = [frames[0], frames[1].sample(frac=1, random_state=0)]

    def apart(views, mask, seed):
        return KMeans(3, n_init=10, random_state=seed).fit_predict(np.hstack(views))

    for y in (classes, classes.sample(frac=1, random_state=1)):
        assert audit_order(shuffled, y=y, method=apart, n_orders=1).file == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_orders": 0}, "n_orders must be at least 1, got 0"),
        ({"n_seeds": 1}, "n_seeds must be at least 2, got 1"),
        ({"y": np.zeros(5)}, r"one class for each of the 42 samples, got shape \(5,\)"),
        ({"method": lambda views, mask, seed: np.zeros(3)}, r"labels of shape \(3,\) for 42 samples"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        audit_order(DATA.views, MASK, **({"method": by_index} | options))


# Values under the mask ------------------------------------------------------------------------------------------------


def by_first_feature(views, mask, seed):
    """Looks at the first view of every sample, hidden or not."""
    return views[0][:, 0] > np.median(views[0][:, 0])


def by_observed(views, mask, seed):
    return mask.sum(axis=1)


def with_default(views, mask, seed):
    return jj.JPLTD(3, config=jj.Config(latent_dim=8), random_state=seed).fit_predict(views, mask=mask)


@pytest.mark.parametrize(("method", "leaks"), [(by_first_feature, True), (by_observed, False), (with_default, False)])
def test_hidden_values_that_are_used_are_found(method, leaks):
    audit = audit_leak(DATA.views, MASK, method=method)
    assert audit.leaks is leaks
    assert audit.repeat_agreement == 1
    assert ("USES" in audit.summary()) is leaks


def test_a_method_that_fails_on_huge_hidden_values_leaks():
    def fails(views, mask, seed):
        if any(np.abs(x).max() > 1e20 for x in views):
            raise ValueError("overflow")
        return mask.sum(axis=1)

    audit = audit_leak(DATA.views, MASK, method=fails)
    assert np.isnan(audit.huge)
    assert audit.leaks
    assert "failed" in audit.summary()


def test_errors_of_the_leak_audit():
    with pytest.raises(TypeError, match="give a function"):
        audit_leak(DATA.views, MASK, method=jj.JPLTD(3))
    with pytest.raises(ValueError, match="hides nothing"):
        audit_leak(DATA.views, np.ones_like(MASK), method=by_observed)
    with pytest.raises(ValueError, match="n_draws must be at least 1, got 0"):
        audit_leak(DATA.views, MASK, method=by_observed, n_draws=0)


# Programs -----------------------------------------------------------------------------------------------------------

SIX = [np.arange(12.0).reshape(6, 2), np.arange(6.0)[:, None]]
SIX_MASK = np.array([[True, True]] * 4 + [[True, False], [False, True]])


def writing(text, *, code=0):
    """A program that writes this text as its labels, in all orders the same."""
    return f"""sh -c 'printf "{text}" > "$1"; exit {code}' {{input}} {{output}}"""


HALVES = r"0\n0\n0\n1\n1\n1\n"


@pytest.mark.parametrize(
    "text",
    [HALVES, r"label\n" + HALVES, r"1\n" + HALVES, r"a\na\na\nb\nb\nb", r"\357\273\277x\n0\n0\n0\n1\n1\n1\n\n"],
    ids=["plain", "header", "header that is a number", "words", "header after a byte order mark"],
)
def test_labels_of_a_program(text):
    labels = from_command(writing(text))(SIX, SIX_MASK, 0)
    np.testing.assert_array_equal(labels, [0, 0, 0, 1, 1, 1])


def test_a_program_is_audited_like_the_function_that_it_is():
    def halves(views, mask, seed):
        return np.array([0, 0, 0, 1, 1, 1])

    y = [0, 1, 0, 1, 0, 1]
    program, function = (audit_order(SIX, SIX_MASK, y, method=m) for m in (from_command(writing(HALVES)), halves))
    assert program.depends_on_order
    assert str(program) == str(function)
    leaks = audit_leak(SIX, SIX_MASK, method=from_command(writing(HALVES)))
    assert not leaks.leaks
    assert leaks.repeat_agreement == 1


def test_what_a_program_is_given(tmp_path):
    """NaN for what is missing in an audit of orders, and the hidden values, to be tempted by, in an audit of leaks."""
    kept = tmp_path / "kept files"
    kept.mkdir()
    program = from_command(
        f"""sh -c 'cp "$0" "{kept}/$(ls "{kept}" | wc -l).npz"; printf "{HALVES}" > "$1"' {{input}} {{output}}"""
    )
    audit_order(SIX, SIX_MASK, method=program, n_orders=1, n_seeds=2, seed=7)
    audit_leak(SIX, SIX_MASK, method=program, n_draws=1, seed=9)
    files = [np.load(kept / f"{i}.npz") for i in range(7)]
    assert [int(file["seed"]) for file in files] == [7, 8, 7, 9, 9, 9, 9]
    plain, shuffled, temptation = files[0], files[2], files[3]
    np.testing.assert_array_equal(plain["mask"], SIX_MASK)
    for v, view in enumerate(SIX):
        np.testing.assert_array_equal(plain[f"view{v}"], np.where(SIX_MASK[:, [v]], view, np.nan))
        np.testing.assert_array_equal(temptation[f"view{v}"], view)
    order = np.nan_to_num(shuffled["view1"][:, 0], nan=4).astype(int)
    assert sorted(order) == list(range(6))
    np.testing.assert_array_equal(shuffled["mask"], SIX_MASK[order])


PROGRAMS = {
    "no input": ("sh {output}", ValueError, "the command must hold {input}"),
    "no output": ("sh {input}", ValueError, "the command must hold {output}"),
    "no program": ("no_such_program {input} {output}", FileNotFoundError, "there is no program no_such_program"),
    "an exit code": (
        "sh -c 'seq 9 >&2; exit 3' {input} {output}",
        ValueError,
        "sh ended with exit code 3: 5 | 6 | 7 | 8 | 9",
    ),
    "an exit code and labels": (writing(HALVES, code=1), ValueError, "sh ended with exit code 1: it said nothing"),
    "no labels": ("sh -c true {input} {output}", ValueError, "sh ended without an error, but wrote no {output}"),
    "too few": (writing(r"0\n1\n"), ValueError, "sh wrote 2 labels for 6 samples"),
    "too few behind a header": (writing(r"label\n0\n0\n0\n1\n1\n"), ValueError, "sh wrote 5 labels for 6 samples"),
    "none": (writing(""), ValueError, "sh wrote 0 labels for 6 samples"),
    "a row of labels": (writing("0,0,0,1,1,1"), ValueError, "sh wrote 6 values in row 1; expected one label per row"),
    "no number": (writing(r"0\n0\nNaN\n1\n1\n1"), ValueError, "sh wrote no label for sample 2, but 'NaN'"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_that_fail(name):
    command, error, message = PROGRAMS[name]
    with pytest.raises(error, match=re.escape(message)):
        audit_order(SIX, SIX_MASK, method=from_command(command))


def test_a_program_that_takes_too_long_is_stopped_with_all_that_it_started(tmp_path):
    child = f"sleep 30; touch {tmp_path}/late"
    program = from_command(f"sh -c '(echo $$ > {tmp_path}/group; {child}) & wait' {{input}} {{output}}", timeout=0.3)
    with pytest.raises(TimeoutError, match=r"sh was stopped after 0\.3 seconds"):
        program(SIX, SIX_MASK, 0)
    group = int((tmp_path / "group").read_text())
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            break
        time.sleep(0.02)
    else:
        pytest.fail("the program goes on")
    with pytest.raises(ValueError, match="timeout must be more than 0 seconds, got 0"):
        from_command(writing(HALVES), timeout=0)


# The command line -----------------------------------------------------------------------------------------------------

FUNCTIONS = """
import numpy as np

def by_position(views, mask, seed):
    return np.arange(len(mask)) // 10

def peeks(views, mask, seed):
    return np.where(mask[:, 0], 0, views[0][:, 0] > 0)

def fails(views, mask, seed):
    raise KeyError("no clusters")
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A working directory with data without labels, and a module of functions to audit."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_methods", raising=False)
    (tmp_path / "my_methods.py").write_text(FUNCTIONS)
    data = jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8))
    mask = jj.missing.paper_protocol(0, 30, 2, 0.5)
    jj.datasets.save_npz("full.npz", data)
    jj.datasets.save_npz("my.npz", data._replace(mask=mask, labels=None))
    return tmp_path


def test_a_function_is_audited_from_the_command_line(outside, capsys):
    assert main(["audit-order", "my.npz", "--function", "my_methods:by_position", "--report", "audit.html"]) == 0
    printed = capsys.readouterr().out
    assert "my_methods:by_position, on my.npz, 5 random orders" in printed
    assert "This method DEPENDS on the order of the samples." in printed
    assert "missing" not in printed
    assert "my_methods:by_position</strong> depends" in (outside / "audit.html").read_text()
    assert main(["audit-order", "my.npz", "--function", "my_methods:peeks", "--leak", "--report", "audit.html"]) == 0
    verdict = "This method USES values that it claims are missing."
    assert verdict in capsys.readouterr().out
    assert verdict in (outside / "audit.html").read_text()


def test_a_program_is_audited_from_the_command_line(outside, capsys):
    labels = "".join(rf"{i // 10}\n" for i in range(30))
    arguments = ["audit-order", "my.npz", "--command", writing(labels), "--leak", "--timeout", "60"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "This method DEPENDS on the order of the samples." in printed
    assert "This method does not use the values that are missing." in printed
    assert main([*arguments, "--out", "audit.png"]) == 0
    assert (outside / "audit.png").stat().st_size > 5000


REFUSED = {
    "two methods": ("--function a:b --command c", "not allowed with argument"),
    "an option of ours": ("--function my_methods:fails --n-clusters 3", "--n-clusters is an option of JPLTD"),
    "leaks of ours": ("--leak --n-clusters 3", "--leak needs --command or --function"),
    "leaks of nothing": ("--function my_methods:peeks --leak", "--leak: nothing is missing in full.npz"),
    "a limit for ours": ("--timeout 3 --n-clusters 3", "--timeout needs --command"),
    "no name": ("--function my_methods", "--function my_methods: write it as package.module:name"),
    "no module": ("--function no_module:f", "--function no_module:f: No module named 'no_module'"),
    "no function": ("--function my_methods:np2", "the module my_methods has no function np2"),
    "an error of the function": (
        "--function my_methods:fails",
        r"my_methods:fails stopped with KeyError: 'no clusters' \(.*my_methods.py, line 11\)",
    ),
    "an error of the program": ("--command 'ls {input} {output}'", "ls ended with exit code 2: .*output.csv"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_audited_is_said_in_a_line(name, outside, capsys):
    given, message = REFUSED[name]
    try:
        code = main(["audit-order", "full.npz" if name == "leaks of nothing" else "my.npz", *shlex.split(given)])
    except SystemExit as stopped:
        code = stopped.code
    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == ""
    assert re.search(message, printed.err.splitlines()[-1]), printed.err
    assert {path.name for path in outside.iterdir()} <= {"my.npz", "full.npz", "my_methods.py", "__pycache__"}
