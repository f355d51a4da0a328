"""Models in files: what comes back is what went in, bit for bit, and a file cannot do anything but describe a model."""

import json
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import jpltd_jax as jj
from jpltd_jax import saving
from jpltd_jax._archive import read_archive, write_archive
from jpltd_jax.loop import Status

DATA = jj.datasets.make_blobs(0, n_samples=40, dims=(10, 8))
SEEN, NEW = [view[:30] for view in DATA.views], [view[30:] for view in DATA.views]


@pytest.fixture(scope="module")
def model():
    """Fitted as users do it: float32, the scalings in float64."""
    with jax.enable_x64(False):
        return jj.JPLTD(3, random_state=0).fit(
            {"rna": SEEN[0], "protein": SEEN[1]}, ids=[[f"p{i}" for i in range(30)]] * 2
        )


@pytest.fixture
def file(model, tmp_path):
    model.save(tmp_path / "model.npz")
    return tmp_path / "model.npz"


def leaves(estimator):
    return jax.tree.flatten(vars(estimator))


def assert_equal(a, b):
    (ours, structure), (theirs, other) = leaves(a), leaves(b)
    assert structure == other
    for x, y in zip(ours, theirs, strict=True):
        assert type(x) is type(y)
        if isinstance(x, np.ndarray | jax.Array):
            assert x.dtype == y.dtype
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes() or (x.dtype == object and (x == y).all())
        else:
            assert x == y


def predict(model, views):
    with jax.enable_x64(False):
        return model.predict(dict(zip(("rna", "protein"), views, strict=True)))


def test_everything_comes_back(model, file):
    again = jj.JPLTD.load(file)
    assert_equal(model, again)
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(predict(again, NEW), predict(model, NEW))
    assert again.sample_ids_[2] == "p2"
    assert again.view_names_in_ == ("rna", "protein")
    assert again.status_ is Status.MAX_ITER


@pytest.mark.parametrize("options", [{"n_anchors": 20}, {"config": jj.PUBLISHED, "random_state": np.int64(3)}])
def test_other_fits_come_back_too(options, tmp_path):
    """Anchors, or the published method; a wide view, which is compressed; a seed of NumPy."""
    rng = np.random.default_rng(0)
    views = [SEEN[0], np.hstack([SEEN[1], rng.normal(size=(30, 40))])]
    model = jj.JPLTD(3, **options).fit(views)
    model.save(str(tmp_path / "model.npz"))
    again = jj.JPLTD.load(str(tmp_path / "model.npz"))
    assert_equal(model, again)
    new = [NEW[0], np.hstack([NEW[1], rng.normal(size=(10, 40))])]
    np.testing.assert_array_equal(again.predict(new), model.predict(new))


def test_the_file_holds_plain_arrays(file):
    with np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays["jpltd_jax"].tobytes())
    assert header["format"] == saving.FORMAT
    assert header["version"] == jj.__version__
    assert arrays["labels_"].shape == (30,)


def change(file, edit):
    arrays, _ = read_archive(file)
    header = json.loads(arrays["jpltd_jax"].tobytes())
    edit(header, arrays)
    arrays["jpltd_jax"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    write_archive(file, arrays)


def put(*path, value):
    def edit(header, arrays):
        *way, last = path
        for step in way:
            header = header[step]
        header[last] = value

    return edit


MODEL = ("fitted", "_model", "fields")
DAMAGE = {
    "another format": (put("format", value=2), "has format 2, of jpltd_jax .*; this version reads format 1"),
    "another estimator": (put("estimator", value="Clusterer"), "holds a Clusterer, not a JPLTD"),
    "an array is missing": (lambda header, arrays: arrays.pop("labels_"), "the array 'labels_' is missing"),
    "another shape": (
        lambda header, arrays: arrays.update({"_model.W": arrays["_model.W"][1:]}),
        r"the array '_model.W' is <f4 \(1, 60, 10\), but should be <f4 \(2, 60, 10\)",
    ),
    "another dtype": (
        lambda header, arrays: arrays.update(margin_=arrays["margin_"].astype(np.float64)),
        r"the array 'margin_' is <f8 \(30,\), but should be <f4 \(30,\)",
    ),
    "a field is missing": (lambda header, arrays: header["fitted"]["_model"]["fields"].pop("W"), "Model needs 'W'"),
    "a field more": (put(*MODEL, "speed", value=1), "Model has no field 'speed' here"),
    "a function": (put(*MODEL[:-1], "record", value="os:system"), "'os:system' is not known"),
    "a class that is no record": (
        put(*MODEL[:-1], "record", value="jpltd_jax.saving:_Reader"),
        "'jpltd_jax.saving:_Reader' is not known",
    ),
    "a module that is not imported": (
        put(*MODEL[:-1], "record", value="jpltd_jax.__main__:Model"),
        "'jpltd_jax.__main__:Model' is not known",
    ),
    "another kind of value": (put("fitted", "labels_", value={"pickle": "x"}), "'pickle' is not a kind of value"),
    "an option that it refuses": (
        put("parameters", "config", "fields", "variant", value="Z"),
        "variant must be one of .* got 'Z'",
    ),
    "an option that is not there": (put("parameters", "speed", value=1), "unexpected keyword argument 'speed'"),
    "no part": (lambda header, arrays: header.pop("fitted"), "'fitted' is missing"),
    "deep": (put("fitted", "labels_", value=json.loads("[" * 900 + "]" * 900)), "recursion"),
    "no text": (lambda header, arrays: header.clear(), "is not a saved model"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(name, file):
    edit, message = DAMAGE[name]
    change(file, edit)
    with pytest.raises(ValueError, match=message) as caught:
        jj.JPLTD.load(file)
    assert str(file) in str(caught.value)


def test_other_files_are_refused(tmp_path):
    jj.datasets.save_npz(tmp_path / "data.npz", DATA)
    with pytest.raises(ValueError, match=r"data.npz is not a saved model"):
        jj.JPLTD.load(tmp_path / "data.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ValueError, match=r"text.npz is not a readable archive"):
        jj.JPLTD.load(tmp_path / "text.npz")
    with pytest.raises(FileNotFoundError, match=r"none.npz"):
        jj.JPLTD.load(tmp_path / "none.npz")


def test_what_cannot_be_saved_is_said_and_nothing_is_written(model, tmp_path):
    with pytest.raises(NotFittedError):
        jj.JPLTD(3).save(tmp_path / "model.npz")
    with pytest.raises(ValueError, match=r"must end in .npz, got .*model.pkl"):
        model.save(tmp_path / "model.pkl")
    again = jj.JPLTD(3)
    vars(again).update(vars(model) | {"random_state": np.random.RandomState(0)})
    with pytest.raises(TypeError, match="cannot save random_state: a RandomState; numbers, texts and arrays can"):
        again.save(tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())


@dataclass(frozen=True)
class Older:
    x: int


@dataclass(frozen=True)
class Newer:
    x: int
    y: tuple = (1, 2)


class Pair(NamedTuple):
    a: object
    b: object = None


VALUES = [
    None,
    [1, (2.5, "three"), {"four": [True], 5: None}],
    float("inf"),
    Pair(np.array(["a", 1, (2, None)], object)[:2], {"x": np.float32(0.1)}),
    Newer(3),
    np.array(7),
    range(2, 9, 3),
    np.array(["\xe4", "bc"]),
    Status.EMPTY,
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_values_come_back(value, monkeypatch):
    monkeypatch.setattr(saving, "PACKAGE", "jpltd_jax" if isinstance(value, Status) else "tests")
    writer = saving._Writer()
    text = json.dumps(writer.describe(value, "value"), allow_nan=False)
    again = saving._Reader(writer.arrays).value(json.loads(text))
    assert type(again) is type(value)
    assert str(again) == str(value)


def test_a_field_with_a_default_may_be_missing(monkeypatch):
    monkeypatch.setattr(saving, "PACKAGE", "tests")
    description = saving._Writer().describe(Older(3), "value")
    description["record"] = description["record"].replace("Older", "Newer")
    assert saving._Reader({}).value(description) == Newer(3, (1, 2))
