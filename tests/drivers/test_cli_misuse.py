"""What goes wrong at the command line: what it says, how it ends, and what is left on disk. All in this process."""

import csv
import os
import re
import shlex
import signal
import stat
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
import scipy.io

import jpltd_jax as jj
from jpltd_jax.cli import main
from jpltd_jax.cli.options import LATENT_DIM, MAX_ITER, THETA
from jpltd_jax.sweeps import run as running
from jpltd_jax.sweeps.store import read_rows

DATA = jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8))
IDS = [f"p{i:02}" for i in range(30)]
LIMITS = "--latent-dim 5 --quiet"
SWEEP = f"{LIMITS} --lam 0.5 --theta 0.1 --n-clusters 3"


def table(name, rows, columns=None):
    width = len(rows[0][1])
    with open(name, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sample", *(columns or [f"{Path(name).stem}{j}" for j in range(width)])])
        writer.writerows([sample, *values] for sample, values in rows)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A saved model of the two tables."""
    path = tmp_path_factory.mktemp("model") / "model.npz"
    views = {
        name: jj.tables.Table(name, IDS, [f"{name}{j}" for j in range(x.shape[1])], x)
        for name, x in zip(("rna", "mirna"), DATA.views, strict=True)
    }
    jj.JPLTD(3, config=jj.Config(latent_dim=5), random_state=0).fit(views).save(path)
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path, monkeypatch, model):
    """A working directory with good files and bad ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JPLTD_DATA", raising=False)
    jj.datasets.save_npz("my.npz", DATA)
    jj.datasets.save_npz("bare.npz", DATA._replace(labels=None))
    os.link("my.npz", "hard.npz")
    os.symlink("my.npz", "link.npz")
    os.symlink("target.csv", "link.csv")
    os.symlink("page.html.csv", "link.html")
    os.mkfifo("pipe")
    os.mkdir("sub")
    Path("model.npz").write_bytes(model)
    for name, view in zip(("rna", "mirna"), DATA.views, strict=True):
        table(f"{name}.csv", list(zip(IDS, view, strict=True)))
    table("sub/rna.csv", [("new", DATA.views[0][0])], [f"other{j}" for j in range(10)])
    Path("subtype.csv").write_text(
        "sample,class\n" + "".join(f"{i},c{k}\n" for i, k in zip(IDS, DATA.labels, strict=True))
    )
    Path("some.csv").write_text("sample,class\np00,a\np01,b\np02,c\n")
    Path("others.csv").write_text("sample,class\n0,a\n1,b\n")
    Path("gap.csv").write_text("sample,TP53,BRCA1\np00,1,2\np01,NA,3\n")
    Path("words.csv").write_text("sample,TP53,sex\np00,1,male\n")
    Path("twice.csv").write_text("sample,TP53\np00,1\np00,2\n")
    Path("empty.csv").write_text("")
    Path("page.html.csv").write_text("sample,TP53\np00,1\np01,2\n")
    Path("header.csv").write_text("sample,TP53\n")
    Path("nowhere.csv").write_text("sample,TP53\np00,1\np01,\n")
    Path("config.json").write_text('{"lam": 0.1}')
    Path("notes.txt").write_text("first line\nsecond line\n")
    Path("rows.csv").write_text("lam,theta\n0.1,0.2")
    Path("binary.bin").write_bytes(bytes(range(256)))
    Path("cut.npz").write_bytes(Path("my.npz").read_bytes()[:300])
    Path("text.mat").write_text("no MATLAB file")
    np.savez("object.npz", view0=np.array([[{}]], object))
    scipy.io.savemat("flat.mat", {"X": np.eye(3)})
    return tmp_path


def on_disk(folder):
    """Kind and content of everything in a directory."""
    found = {}
    for path in folder.rglob("*"):
        kind = stat.S_IFMT(path.lstat().st_mode)
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if stat.S_ISREG(kind) else None
        found[str(path.relative_to(folder))] = (kind, content)
    return found


INPUT_LOST = {
    "out is the input": ("cluster my.npz --out my.npz", "my.npz would overwrite the input my.npz: give another name"),
    "out is the input by another way": ("cluster my.npz --out sub/../my.npz", "would overwrite the input my.npz"),
    "out is a link to the input": ("cluster my.npz --out link.npz", "link.npz would overwrite the input my.npz"),
    "out is a hard link to the input": ("cluster my.npz --out hard.npz", "hard.npz would overwrite the input my.npz"),
    "the input is a link to out": ("cluster link.npz --out my.npz", "my.npz would overwrite the input link.npz"),
    "out is one of the tables": ("cluster rna.csv mirna.csv --n-clusters 3 --out mirna.csv", "the input mirna.csv"),
    "out is the table of classes": (
        "cluster rna.csv mirna.csv --labels subtype.csv --out subtype.csv",
        "the input sub",
    ),
    "the model is the input": ("cluster my.npz --save my.npz", "my.npz would overwrite the input my.npz"),
    "labels and model in one file": ("cluster my.npz --out x.npz --save ./x.npz", "two results .* the same file x.npz"),
    "predictions over the model": ("predict model.npz my.npz --out model.npz", "would overwrite the input model.npz"),
    "store and table in one file": ("sweep my.npz --store s --out s", "two results would go to the same file s"),
    "the store is the input": ("sweep my.npz --store my.npz", "my.npz would overwrite the input my.npz"),
    "the table is the input": ("sweep my.npz --out hard.npz", "hard.npz would overwrite the input my.npz"),
    "the figure is the input": ("audit-order my.npz --out my.npz", "must end in .*png"),
    "store of something else": (f"sweep my.npz {SWEEP} --store config.json", "config.json is not a store of results"),
    "a store of text": (f"sweep my.npz {SWEEP} --store notes.txt", "notes.txt, line 1 is not a row of results"),
    "a store that is a table": (f"sweep my.npz {SWEEP} --store rows.csv", "rows.csv, line 1 is not a row of results"),
    "a store of bytes": (f"sweep my.npz {SWEEP} --store binary.bin", "binary.bin is not a store of results"),
    "a store that is a pipe": ("sweep my.npz --store pipe", "--store pipe: rows are read from it again"),
    "a store on standard output": ("sweep my.npz --store -", "--store cannot go to standard output: give a file name"),
    "a model on standard output": ("cluster my.npz --save -", "--save cannot go to standard output"),
    "labels and report in one file": (
        "cluster my.npz --out x.html --report sub/../x.html",
        "two results would go to the same file",
    ),
    "store and report in one file": ("sweep my.npz --store s.html --report s.html", "the same file s.html"),
    "the report is the input": ("cluster page.html.csv --report link.html", "would overwrite the input page.html.csv"),
    "a report on standard output": ("cluster my.npz --report -", "--report cannot go to standard output"),
    "a figure on standard output": ("audit-order my.npz --out -", "--out cannot go to standard output"),
}

BEFORE_THE_WORK = {
    "out is a directory": ("cluster my.npz --out sub", "cannot write sub: it is a directory"),
    "no such directory": ("cluster my.npz --out none/labels.csv", "cannot write none/labels.csv: No such file"),
    "a model of another format": ("cluster my.npz --save model.pkl", "--save model.pkl: the name must end in .npz"),
    "a report of another format": ("audit-order my.npz --report a.pdf", "--report a.pdf: the name must end in .html"),
    "a report in no directory": ("sweep my.npz --report none/a.html", "cannot write none/a.html: No such file"),
    "a range of clusters beyond the samples": ("cluster bare.npz --n-clusters 2-31", "largest number .* 30, got 31"),
    "a figure of another format": ("audit-order my.npz --out a.xyz", "--out a.xyz: the name must end in .*png"),
    "a huge latent dimension": ("cluster my.npz --latent-dim 1000000", "must be at most 100, got 1000000: .* 10 feat"),
    "a huge latent dimension in a grid": ("sweep my.npz --latent-dim 5 1000000", "must be at most 100, got 1000000"),
    "no latent dimension": ("cluster my.npz --latent-dim 0", "latent_dim must be at least 1, got 0"),
    "no clusters": ("cluster my.npz --n-clusters 0", "n_clusters"),
    "too many clusters": ("cluster my.npz --n-clusters 31", "n_clusters must be .* 30, got 31"),
    "clusters not known": ("cluster bare.npz", "bare.npz has no labels to count the classes of: give --n-clusters"),
    "negative lam": ("cluster my.npz --lam -1", "lam"),
    "lam is no number": ("cluster my.npz --lam nan", "lam"),
    "negative theta": ("cluster my.npz --theta -1", "theta"),
    "negative theta in a grid": ("sweep my.npz --theta -1 --latent-dim 5", "theta must be .*, got -1"),
    "no iterations": ("cluster my.npz --max-iter 0", "max_iter"),
    "no anchors": ("cluster my.npz --n-anchors 0", "n_anchors"),
    "too many anchors": ("cluster my.npz --n-anchors 31", "anchors must be between 1 and .* 30, got 31"),
    "no orders": ("audit-order my.npz --orders 0", "n_orders must be at least 1, got 0"),
    "no such file": ("cluster none.npz", "none.npz"),
    "no such table": ("cluster none.csv --n-clusters 2", "none.csv"),
    "no such set": ("cluster some_set", "no some_set.npz .* JPLTD_DATA: that variable is not set"),
    "another format": ("cluster table.xlsx", "cannot tell the format of table.xlsx"),
    "a table and an archive": ("cluster rna.csv my.npz", "give tables only, or one archive: my.npz is no table"),
    "two archives": ("cluster my.npz bare.npz", "give one .npz or .mat file; several files must be tables"),
    "two views of one name": ("cluster rna.csv sub/rna.csv --n-clusters 2", "would both be the view 'rna'"),
    "numbers with a gap": ("cluster gap.csv --n-clusters 2", "gap.csv, sample 'p01', column 'TP53' has no number"),
    "words": ("cluster words.csv --n-clusters 2", "words.csv, sample 'p00', column 'sex': 'male' is not a number"),
    "an id twice": ("cluster twice.csv --n-clusters 2", "twice.csv has the sample id 'p00' more than once"),
    "an empty file": ("cluster empty.csv --n-clusters 2", "empty.csv is empty"),
    "a header alone": ("cluster header.csv --n-clusters 2", "header.csv has no samples"),
    "a sample without a view": ("cluster nowhere.csv --n-clusters 1", "missing in all files, 'p01' first"),
    "classes of other samples": (
        "cluster rna.csv mirna.csv --labels others.csv",
        "others.csv has a class for none of the samples: it has '0', '1' ...; the views have 'p00', 'p01', 'p02'",
    ),
    "classes of some samples in a sweep": (
        f"sweep rna.csv --labels some.csv {SWEEP}",
        "27 samples have no class, 'p03'",
    ),
    "classes in an archive": ("cluster my.npz --labels model.npz", "expected a table of classes"),
    "half an archive": ("cluster cut.npz", "cut.npz is not a readable archive"),
    "Python objects": ("cluster object.npz", "object.npz is not .*'view0': it holds Python objects, which are never"),
    "no MATLAB file": ("cluster text.mat", "text.mat is not a readable MATLAB file"),
    "no cell array": ("cluster flat.mat", "flat.mat has no cell array of views"),
    "no model": ("predict my.npz rna.csv", "my.npz is not a saved model"),
    "a table as a model": ("predict rna.csv mirna.csv", "rna.csv is not a readable archive"),
    "other columns than the model's": ("predict model.npz sub/rna.csv", "other0"),
    "other views than the model's": ("predict model.npz gap.csv words.csv some.csv", "column 'TP53' has no number"),
    "fewer views than the model's": ("predict model.npz some.csv", "some.csv, sample 'p00', column 'class'"),
    "another name and too few": ("predict model.npz twice2.csv", "twice2.csv"),
    "a demo over a file": ("demo --out notes.txt", "cannot make the directory notes.txt"),
    "too large a demo": ("demo --samples 5000 --out sub", "n_samples must be from 1 to 1797, got 5000"),
}

REFUSED = INPUT_LOST | BEFORE_THE_WORK


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_the_work_and_nothing_is_touched(name, folder, capsys, monkeypatch):
    arguments, words = REFUSED[name]
    before = on_disk(folder)
    monkeypatch.setattr(running, "_groups", lambda *_: pytest.fail("the work began"))
    assert main(shlex.split(arguments)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("jpltd: error: ")
    assert len(printed.err.splitlines()) == 1
    assert re.search(words, printed.err), printed.err
    assert on_disk(folder) == before


# After the work -------------------------------------------------------------------------------------------------------

RUN = f"cluster rna.csv mirna.csv --n-clusters 3 {LIMITS}"


def labels_in(text):
    first, *rows = csv.reader(text.splitlines())
    assert first == ["sample", "label"]
    assert [row[0] for row in rows] == IDS
    assert float(jj.metrics.accuracy(DATA.labels, [int(row[1]) for row in rows])) == 1
    return rows


def test_a_link_is_written_through(folder):
    assert main(shlex.split(f"{RUN} --out link.csv")) == 0
    assert os.readlink("link.csv") == "target.csv"
    labels_in(Path("target.csv").read_text())
    assert not list(folder.rglob("*.part"))


def test_standard_output_carries_the_labels_alone(folder, capsys):
    before = on_disk(folder)
    assert main(shlex.split(f"{RUN} --out - --labels subtype.csv")) == 0
    printed = capsys.readouterr()
    labels_in(printed.out)
    assert "accuracy   100.0 %" in printed.err
    assert on_disk(folder) == before


def test_a_pipe_is_written_into_and_stays_one(folder):
    read = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe").read_text()), daemon=True)
    reader.start()
    assert main(shlex.split(f"{RUN} --out pipe")) == 0
    reader.join()
    labels_in(read[0])
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("elsewhere", [True, False])
def test_labels_survive_a_full_disk(folder, elsewhere, capsys, monkeypatch):
    """In the temporary directory; if that is full too they are printed."""
    before = on_disk(folder)
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "sub") if elsewhere else "/dev/full")
    assert main(shlex.split(f"{RUN} --out /dev/full")) == 2
    printed = capsys.readouterr()
    message = "jpltd: error: cannot write /dev/full: No space left on device; the labels are "
    assert printed.err.startswith(message)
    if elsewhere:
        kept = Path(printed.err.removeprefix(message + "in ").strip())
        labels_in(kept.read_text())
        kept.unlink()
    else:
        labels_in(printed.out[printed.out.index("sample,label") :])
        assert printed.err.endswith("printed above\n")
    assert on_disk(folder) == before


def test_a_full_disk_leaves_no_part_of_a_file(folder, capsys, monkeypatch):
    """A file of the size limit stands for a full disk, which is there for the model but not for the labels."""
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "sub"))
    before, limits = on_disk(folder), resource.getrlimit(resource.RLIMIT_FSIZE)
    save = jj.JPLTD.save

    def save_on_a_full_disk(model, path):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            save(model, path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    monkeypatch.setattr(jj.JPLTD, "save", save_on_a_full_disk)
    Path("old.npz").write_bytes(b"from before")
    assert main(shlex.split(f"{RUN} --out new.csv --save old.npz")) == 2
    printed = capsys.readouterr()
    assert "labels: new.csv" in printed.out
    assert "jpltd: error: cannot write old.npz: File too large" in printed.err
    labels_in(Path("new.csv").read_text())
    assert Path("old.npz").read_bytes() == b"from before"
    assert on_disk(folder).keys() - before.keys() == {"new.csv", "old.npz"}


def test_an_interrupted_sweep_says_how_to_go_on(folder, capsys, monkeypatch):
    append = running.append_rows

    def press(path, rows):
        append(path, rows)
        os.kill(os.getpid(), signal.SIGINT)

    command = f"sweep my.npz {SWEEP} --theta 0.1 0.2 0.3 0.4 0.5 0.6 --store 'my rows'"
    with monkeypatch.context() as patch:
        patch.setattr(running, "append_rows", press)
        assert main(shlex.split(command)) == 130
    error = capsys.readouterr().err
    stored = len(read_rows(Path("my rows")))
    assert 1 <= stored < 6
    assert f"interrupted; {stored} of 6 configurations are stored in my rows" in error
    assert error.strip().endswith(f"the same command goes on from there: jpltd {command}")
    assert len(Path("sweep.csv").read_text().splitlines()) == stored + 1
    assert main(shlex.split(command)) == 0
    assert len(read_rows(Path("my rows"))) == 6


def test_an_interrupted_fit_writes_nothing(folder, capsys, monkeypatch):
    before = on_disk(folder)
    monkeypatch.setattr(jj.JPLTD, "fit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt("interrupted after 5")))
    assert main(shlex.split(RUN)) == 130
    assert "jpltd: interrupted after 5; nothing was written" in capsys.readouterr().err
    assert on_disk(folder) == before


def test_too_little_memory_is_said(folder, capsys, monkeypatch):
    def fail(*_):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 29000688002856 bytes.")

    monkeypatch.setattr(jj.JPLTD, "fit", fail)
    assert main(shlex.split(RUN)) == 2
    assert "jpltd: error: not enough memory; --n-anchors 500 needs much less" in capsys.readouterr().err


def test_a_saved_model_labels_further_files(folder, capsys):
    turned = DATA.views[1][:, ::-1]
    os.mkdir("new")
    table("new/mirna.csv", list(zip(IDS[:5], turned, strict=False)), [f"mirna{j}" for j in reversed(range(8))])
    assert main(["predict", "model.npz", "new/mirna.csv", "--out", "-", "--labels", "subtype.csv"]) == 0
    printed = capsys.readouterr()
    assert "accuracy   100.0 %" in printed.err
    assert [row.split(",")[0] for row in printed.out.split()[1:]] == IDS[:5]
    both = ["predict", "model.npz", "rna.csv", "mirna.csv"]
    assert main(both) == 0
    assert labels_in(Path("predicted.csv").read_text())[:5] == [row.split(",") for row in printed.out.split()[1:]]


def test_defaults_in_the_help_are_those_of_the_estimator():
    defaults = jj.JPLTD(1).get_params()
    assert (defaults["theta"], defaults["max_iter"], jj.ORDER_FREE.latent_dim) == (THETA, MAX_ITER, LATENT_DIM)
