import csv
import html
import re
import shlex

import numpy as np
import pytest
import scipy.io

import jpltd_jax as jj
from jpltd_jax.cli import UserError, main
from jpltd_jax.cli.outputs import Output
from jpltd_jax.cli.reports import write_report


@pytest.fixture
def blobs_file(tmp_path):
    data = jj.datasets.make_blobs(1, n_samples=40, dims=(8, 12))
    file = tmp_path / "blobs.npz"
    jj.datasets.save_npz(file, data._replace(mask=jj.missing.paper_protocol(0, 40, 2, 0.5)))
    return file


def rows(path):
    with path.open() as file:
        return list(csv.reader(file))


def test_cluster_writes_labels_and_prints_scores(blobs_file, tmp_path, capsys):
    out = tmp_path / "labels.csv"
    assert main(["cluster", str(blobs_file), "--out", str(out), "--latent-dim", "5"]) == 0
    written = rows(out)
    assert written[0] == ["sample", "label"]
    assert [row[0] for row in written[1:]] == [str(i) for i in range(40)]
    assert {row[1] for row in written[1:]} == {"0", "1", "2"}
    printed = capsys.readouterr()
    assert "file order" in printed.out
    predicted = [int(row[1]) for row in written[1:]]
    expected = 100 * float(jj.metrics.accuracy(jj.datasets.load_npz(blobs_file).labels, predicted))
    assert expected > 90
    assert f"accuracy  {expected:6.1f} %" in printed.out
    assert printed.err == ""


def test_cluster_without_labels_needs_a_number(blobs_file, tmp_path, capsys):
    data = jj.datasets.load_npz(blobs_file)
    file, out = tmp_path / "plain.npz", tmp_path / "labels.csv"
    jj.datasets.save_npz(file, data._replace(labels=None))
    assert main(["cluster", str(file), "--out", str(out), "--quiet"]) == 2
    assert "has no labels to count the classes of: give --n-clusters" in capsys.readouterr().err
    assert not out.exists()
    assert main(["cluster", str(file), "--out", str(out), "--quiet", "--n-clusters", "3", "--latent-dim", "5"]) == 0
    printed = capsys.readouterr()
    assert "accuracy" not in printed.out
    assert printed.err == ""


def test_cluster_mat_file(blobs_file, tmp_path):
    data = jj.datasets.load_npz(blobs_file)
    cells = np.empty((1, 2), object)
    cells[0, :] = [x.T for x in data.views]
    scipy.io.savemat(tmp_path / "blobs.mat", {"X": cells, "Y": data.labels[:, None] + 1})
    out = tmp_path / "labels.csv"
    assert main(["cluster", str(tmp_path / "blobs.mat"), "--out", str(out), "--quiet", "--latent-dim", "5"]) == 0
    assert len(rows(out)) == 41


def unreadable_mat(tmp_path):
    file = tmp_path / "broken.mat"
    file.write_bytes(b"this is not a MATLAB file")
    return [str(file)]


BAD = {
    "missing file": (lambda tmp: [str(tmp / "none.npz")], "none.npz"),
    "unknown format": (lambda tmp: [str(tmp / "table.xlsx")], r"in \.npz or \.mat; tables \(\.csv"),
    "unreadable mat": (unreadable_mat, "broken.mat"),
    "too many clusters": (
        lambda tmp: [str(tmp / "blobs.npz"), "--n-clusters", "41"],
        "n_clusters must be between 1 and 40, got 41",
    ),
    "no clusters": (lambda tmp: [str(tmp / "blobs.npz"), "--n-clusters", "0"], "n_clusters"),
    "empty affinity": (lambda tmp: [str(tmp / "blobs.npz"), "--lam", "1e9", "--latent-dim", "5"], "lower lam"),
    "unknown name": (lambda tmp: ["no_such_set"], "JPLTD_DATA"),
}


@pytest.mark.parametrize("name", BAD)
def test_user_errors_are_one_line_and_write_nothing(name, blobs_file, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("JPLTD_DATA", raising=False)
    arguments, message = BAD[name]
    out = tmp_path / "labels.csv"
    out.write_text("from before")
    assert main(["cluster", *arguments(tmp_path), "--out", str(out), "--quiet"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("jpltd: error: ")
    assert "Traceback" not in error
    assert re.search(message, error)
    assert out.read_text() == "from before"
    assert not list(tmp_path.glob("*.part"))


def test_unwritable_output_is_found_before_the_work(blobs_file, tmp_path, capsys):
    for out in (tmp_path, tmp_path / "none" / "labels.csv"):
        assert main(["cluster", str(blobs_file), "--out", str(out)]) == 2
        printed = capsys.readouterr()
        assert "jpltd: error:" in printed.err
        assert "30/30" not in printed.err


def test_bad_arguments_exit_with_usage(capsys):
    for arguments in ([], ["fly"], ["cluster", "x.npz", "--lam", "large"]):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 2
        assert "usage: jpltd" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["demo"], ["cluster"], ["audit-order"]])
def test_help_teaches(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--help"])
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    assert "usage: jpltd" in printed
    if command in (["cluster"], ["audit-order"]):
        assert "row of NaN" in " ".join(printed.split())
        assert "sample ids in the first column" in " ".join(printed.split())


def test_demo_errors(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    assert main(["demo", "--out", str(file)]) == 2
    assert main(["demo", "--samples", "5000", "--out", str(tmp_path / "out")]) == 2
    assert "n_samples must be from 1 to 1797" in capsys.readouterr().err


def test_audit_order_says_plainly(blobs_file, tmp_path, capsys):
    out = tmp_path / "audit.png"
    arguments = ["audit-order", str(blobs_file), "--latent-dim", "5", "--orders", "2", "--out", str(out)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "This method does not depend on the order of the samples." in printed
    assert "accuracy shuffled" in printed
    assert out.stat().st_size > 5000


# Reports and numbers of clusters --------------------------------------------------------------------------------------


def text_of(page):
    """What a page shows, in one line."""
    shown = re.sub(r"<(script|style)>.*?</\1>", "", page.read_text(), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", shown)).split())


@pytest.fixture
def apart_file(tmp_path):
    """Views that share no sample, of which everybody is warned."""
    data = jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8))
    first = np.arange(30) < 15
    jj.datasets.save_npz(tmp_path / "apart.npz", data._replace(mask=np.stack([first, ~first], axis=1), labels=None))
    return tmp_path / "apart.npz"


def test_a_cluster_report_shows_the_result_the_warnings_and_the_command(apart_file, tmp_path, capsys):
    out, model, page = (str(tmp_path / name) for name in ("labels.csv", "model.npz", "report.html"))
    arguments = ["cluster", str(apart_file), "--n-clusters", "2-4", "--latent-dim", "5", "--out", out]
    arguments += ["--save", model, "--report", page]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == f"report: {page}"
    fitted = jj.JPLTD.load(model)
    tried, at = fitted.clusters_tried_, fitted.n_clusters_ - 2
    assert tried.counts.tolist() == [2, 3, 4]
    assert at == np.argmax(tried.modularity)
    assert f"{fitted.n_clusters_} clusters are suggested, of 2 to 4 tried, by the largest modularity" in printed.out
    for name, values in (("modularity", tried.modularity), ("eigengap", tried.eigengap)):
        line = next(line for line in printed.out.splitlines() if line.strip().startswith(name))
        near = [f"{values[i]:.3f} with {i + 2}" for i in (at - 1, at, at + 1) if 0 <= i < 3]
        assert line == f"  {name}: {', '.join(near)}"
    warned = [line.removeprefix("jpltd: warning: ") for line in printed.err.splitlines()]
    assert warned
    shown = text_of(tmp_path / "report.html")
    for words in (*warned, shlex.join(["jpltd", *arguments]), f"30 samples in {fitted.n_clusters_} clusters"):
        assert " ".join(words.split()) in shown
    assert main(["predict", model, str(apart_file), "--out", out]) == 0
    assert f"30 samples, 2 views, {fitted.n_clusters_} clusters" in capsys.readouterr().out


def test_reports_of_a_sweep_and_of_an_audit(blobs_file, tmp_path, capsys):
    page = tmp_path / "page.html"
    common = [str(blobs_file), "--latent-dim", "5", "--report", str(page)]
    outputs = ["--out", str(tmp_path / "s.csv"), "--store", str(tmp_path / "s.jsonl")]
    arguments = ["sweep", *common, "--lam", "0.25", "0.5", "--theta", "0.1", *outputs]
    assert main(arguments) == 0
    assert f"report: {page}" in capsys.readouterr().out
    assert "2 of 2 configurations" in text_of(page)
    assert shlex.join(["jpltd", *arguments]) in text_of(page)
    assert main(["audit-order", *common, "--orders", "1"]) == 0
    assert f"report: {page}" in capsys.readouterr().out
    assert "order-free does not depend on the order of the samples" in text_of(page)


def test_a_report_that_cannot_be_written_says_what_is_kept(tmp_path):
    with pytest.raises(UserError, match=r"cannot write .*page.html: No such file .*; the other results are written"):
        write_report(Output(tmp_path / "none" / "page.html"), "<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("many", "give a number, a range such as 2-12, or auto; got 'many'"),
        ("2-", "give a number, a range such as 2-12, or auto; got '2-'"),
        ("5-3", "a range goes from at least 2 to a larger number; got 5-3"),
        ("1-3", "a range goes from at least 2 to a larger number; got 1-3"),
    ],
)
def test_numbers_of_clusters_that_make_no_sense(given, message, capsys):
    with pytest.raises(SystemExit):
        main(["cluster", "x.npz", "--n-clusters", given])
    assert message in capsys.readouterr().err
