import os
import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from jpltd_jax import datasets
from jpltd_jax.datasets import MultiViewData, load, load_digits_multiview, load_mat, load_npz, make_blobs, save_npz
from jpltd_jax.problem import make_problem

SHARED = Path(__file__).parents[3] / "shared" / "data"
CLASSES = np.array([0, 1, 1, 2, 0, 2])


def views_of(n=6, dims=(4, 9)):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(n, d)) for d in dims]


def cell(items, shape=None):
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(shape or (1, -1))


def mat(folder, **variables):
    path = folder / "set.mat"
    scipy.io.savemat(path, variables)
    return path


def hdf5(folder, **variables):
    """As MATLAB 7.3 writes: arrays transposed, cells as references into #refs#, sparse matrices as groups."""
    h5py = pytest.importorskip("h5py")
    path = folder / "set.mat"

    def write(file, name, value):
        if scipy.sparse.issparse(value):
            value = value.tocsc()
            group = file.create_group(name)
            group.attrs["MATLAB_sparse"] = np.uint64(value.shape[0])
            group["jc"] = value.indptr.astype(np.uint64)
            if value.nnz:
                group["ir"], group["data"] = value.indices.astype(np.uint64), value.data
        elif value.dtype == object:
            references = np.empty(value.shape, h5py.ref_dtype)
            for index, item in np.ndenumerate(value):
                key = f"#refs#/{name.replace('/', '_')}{index}"
                write(file, key, item)
                references[index] = file[key].ref
            file.create_dataset(name, data=references.T, dtype=h5py.ref_dtype)
        elif value.dtype.kind == "U":
            file[name] = np.array([[ord(letter)] for letter in value.item()], np.uint16)
            file[name].attrs["MATLAB_class"] = np.bytes_("char")
        else:
            file[name] = value.T.astype(np.uint8) if value.dtype == bool else value.T

    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in variables.items():
            write(file, name, value)
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    return path


def assert_same(a, b):
    assert len(a.views) == len(b.views)
    for x, y in zip(a.views, b.views, strict=True):
        np.testing.assert_array_equal(x, y, strict=True)
    for x, y in [(a.labels, b.labels), (a.mask, b.mask), (a.ids, b.ids)]:
        assert (x is None) == (y is None)
        if x is not None:
            np.testing.assert_array_equal(x, y, strict=True)


def score(view, labels):
    unit = view / np.maximum(np.linalg.norm(view, axis=1, keepdims=True), 1e-12)
    k = len(np.unique(labels))
    return normalized_mutual_info_score(labels, KMeans(k, n_init=2, random_state=0).fit_predict(unit))


def test_digits_views_are_informative():
    digits = load_digits_multiview()
    assert [view.shape for view in digits.views] == [(1797, 64), (1797, 40), (1797, 32)]
    assert (digits.name, digits.mask, digits.labels.dtype) == ("digits", None, np.int64)
    np.testing.assert_array_equal(np.unique(digits.labels), np.arange(10))
    assert np.all(np.array([score(view, digits.labels) for view in digits.views]) > [0.7, 0.55, 0.65])


def test_digits_takes_the_first_samples():
    whole, part = load_digits_multiview(), load_digits_multiview(25)
    assert_same(part, MultiViewData([view[:25] for view in whole.views], whole.labels[:25], None, "digits"))
    for n in (0, 1798):
        with pytest.raises(ValueError, match=f"n_samples must be from 1 to 1797, got {n}"):
            load_digits_multiview(n)


def test_orientation_histograms_of_plain_ramps():
    down, right = np.mgrid[:8, :8].astype(float)
    images = np.stack([right, down, -right, 3 * right, right + np.tan(np.pi / 8) * down])
    cells = datasets._orientation_histograms(images).reshape(5, 4, 8)
    for image, (bins, weights) in enumerate([([0], 16), ([2], 16), ([4], 16), ([0], 48)]):
        expected = np.zeros((4, 8))
        expected[:, bins] = weights
        np.testing.assert_allclose(cells[image], expected, atol=1e-12)
    np.testing.assert_allclose(cells[4, :, 0], cells[4, :, 1])
    np.testing.assert_allclose(cells[4].sum(axis=1), 16 / np.cos(np.pi / 8))


def test_blobs_follow_seed_noise_and_separation():
    blobs = make_blobs(3, n_samples=100, dims=(5, 8, 40), n_clusters=4, noise=(0.0, 0.1, 50.0))
    assert [view.shape for view in blobs.views] == [(100, 5), (100, 8), (100, 40)]
    assert np.linalg.matrix_rank(blobs.views[0]) == 4
    np.testing.assert_array_equal(np.bincount(blobs.labels), [25] * 4)
    assert len(np.unique(np.diff(blobs.labels))) == 7
    assert_same(blobs, make_blobs(3, n_samples=100, dims=(5, 8, 40), n_clusters=4, noise=(0.0, 0.1, 50.0)))
    assert not np.array_equal(blobs.views[0], make_blobs(4, n_samples=100, dims=(5, 8), n_clusters=4).views[0])
    assert score(blobs.views[1], blobs.labels) > 0.9
    assert score(blobs.views[2], blobs.labels) < 0.2
    merged = make_blobs(3, n_samples=100, dims=(20,), n_clusters=4, separation=0.0)
    assert score(merged.views[0], merged.labels) < 0.2


@pytest.mark.parametrize("d", [3, 20])
def test_blob_centres_are_the_separation_apart(d):
    blobs = make_blobs(0, dims=(d,), separation=1e6)
    centres = np.stack([blobs.views[0][blobs.labels == k].mean(axis=0) for k in range(3)])
    distances = np.linalg.norm(centres[:, None] - centres, axis=-1)
    np.testing.assert_allclose(distances, 1e6 * (1 - np.eye(3)), rtol=1e-5)
    assert np.linalg.norm(make_blobs(0, dims=(2,), separation=1e6).views[0], axis=1).max() < 1e6


def test_blobs_scatter_with_the_stated_deviations():
    inside = make_blobs(0, n_samples=4000, dims=(2, 3, 5), n_clusters=1, noise=(0.0, 3.0, 1.0), separation=0.0)
    variances = [view.var(axis=0).sum() for view in inside.views]
    np.testing.assert_allclose(variances, [1, 1 + 3 * 9, 1 + 5], rtol=0.1)


BAD_BLOBS = {
    "n_clusters must be from 1 to n_samples = 2, got 3": {"n_samples": 2},
    "noise has 3 levels for 2 views": {"noise": (1.0, 1.0, 1.0)},
    "must be finite and >= 0, got -1.0 and 6.0": {"noise": -1.0},
    "must be finite and >= 0, got 0.1 and nan": {"separation": np.nan},
    "there are no views": {"dims": ()},
    "view 1 has no features": {"dims": (3, 0)},
}


@pytest.mark.parametrize("message", BAD_BLOBS)
def test_bad_blobs(message):
    with pytest.raises(ValueError, match=message):
        make_blobs(0, **BAD_BLOBS[message])


@pytest.mark.parametrize("labels", [None, CLASSES])
@pytest.mark.parametrize("mask", [None, np.arange(12).reshape(6, 2) % 5 > 0])
@pytest.mark.parametrize("ids", [None, np.arange(6)[::-1], np.array(list("fedcb\xe4"))])
def test_npz_round_trip(tmp_path, labels, mask, ids):
    views = [views_of()[0].astype(np.float32), np.arange(12, dtype=np.uint8).reshape(6, 2)]
    data = MultiViewData(views, labels, mask, "other", ids)
    save_npz(tmp_path / "mine.npz", data)
    loaded = load_npz(str(tmp_path / "mine.npz"))
    assert_same(loaded, data)
    assert loaded.name == "mine"
    assert os.listdir(tmp_path) == ["mine.npz"]


def test_npz_keeps_ten_views_in_numeric_order_and_ignores_the_rest(tmp_path):
    arrays = {f"view{v}": np.full((2, 1), v) for v in reversed(range(12))}
    np.savez(tmp_path / "a.npz", note=np.array("text"), labels=[7.0, -3.0], **arrays)
    data = load_npz(tmp_path / "a.npz")
    assert [int(view[0, 0]) for view in data.views] == list(range(12))
    np.testing.assert_array_equal(data.labels, np.array([1, 0]), strict=True)


BAD_NPZ = {
    "no views": ({"x": np.eye(2)}, r"view0, view1, ... without a gap; it holds \['x'\]"),
    "gap": ({"view0": np.eye(2), "view2": np.eye(2)}, r"without a gap; it holds \['view0', 'view2'\]"),
    "vector": ({"view0": np.ones(3)}, r"bad.npz: view 0 must be a matrix .* \(3,\)"),
    "samples": ({"view0": np.eye(2), "view1": np.eye(3)}, "bad.npz: view 1 has 3 samples but view 0 has 2"),
    "labels": ({"view0": np.eye(2), "labels": [0, 1, 1]}, "there are 3 labels but the views have 2 samples"),
    "one-hot labels": ({"view0": np.eye(2), "labels": np.eye(2)}, r"labels must be a vector, got shape \(2, 2\)"),
    "NaN label": ({"view0": np.eye(2), "labels": [0, np.nan]}, "labels must be finite numbers"),
    "complex label": ({"view0": np.eye(2), "labels": [1j, 2]}, "labels must be finite numbers or strings, got dtype c"),
    "id count": ({"view0": np.eye(2), "ids": ["a"]}, "bad.npz: there are 1 ids but the views have 2 samples"),
    "id twice": ({"view0": np.eye(2), "ids": ["a", "a"]}, "bad.npz: the sample id 'a' is there more than once"),
    "id dtype": ({"view0": np.eye(2), "ids": [0.5, 1]}, "ids must be strings or integers, got dtype float64"),
    "id shape": ({"view0": np.eye(2), "ids": [["a", "b"], ["c", "d"]]}, r"ids must be a vector, got shape \(2, 2\)"),
    "mask shape": ({"view0": np.eye(2), "mask": np.ones((1, 2), bool)}, r"\(samples, views\) = \(2, 1\), got \(1, 2\)"),
    "mask dtype": ({"view0": np.eye(2), "mask": np.ones((2, 1), int)}, "mask must be boolean"),
}


@pytest.mark.parametrize("name", BAD_NPZ)
def test_bad_npz_is_named(tmp_path, name):
    arrays, message = BAD_NPZ[name]
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load_npz(tmp_path / "bad.npz")


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("key", ["view0", "labels", "mask"])
def test_pickles_are_refused_and_not_run(tmp_path, key):
    arrays = {"view0": np.eye(2)} | {key: np.array([Bomb(tmp_path / "exploded")], object)}
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=f"bad.npz is not a readable archive, array '{key}': it holds Python objects"):
        load_npz(tmp_path / "bad.npz")
    np.array([Bomb(tmp_path / "exploded")], object).dump(tmp_path / "plain.npz")
    with pytest.raises(ValueError, match=r"plain.npz is not a readable archive: File is not a zip file"):
        load_npz(tmp_path / "plain.npz")
    assert not (tmp_path / "exploded").exists()
    np.load(tmp_path / "plain.npz", allow_pickle=True)
    assert (tmp_path / "exploded").exists()


def test_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path, old = tmp_path / "a.npz", make_blobs(0)
    save_npz(path, old)

    def fail_halfway(file, **arrays):
        file.write(b"half")
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez_compressed", fail_halfway)
        with pytest.raises(OSError, match="disk full"):
            save_npz(path, make_blobs(1))
    with pytest.raises(ValueError, match="labels must be a vector"):
        save_npz(path, old._replace(labels=np.eye(2)))
    assert_same(load_npz(path), old)
    assert os.listdir(tmp_path) == ["a.npz"]
    save_npz(path, make_blobs(1))
    assert_same(load_npz(path), make_blobs(1))


def test_save_wants_a_name_that_load_knows(tmp_path):
    with pytest.raises(ValueError, match=r"must end in .npz, got .*a.mat"):
        save_npz(tmp_path / "a.mat", make_blobs(0))
    assert os.listdir(tmp_path) == []


WRITERS = pytest.mark.parametrize("write", [mat, hdf5])
LABELS = {
    "column": CLASSES[:, None] + 1,
    "row": CLASSES[None, :] + 1.0,
    "other values": np.array([[-5], [10], [10], [40], [-5], [40]]),
    "cell": cell([CLASSES[:, None] + 1]),
    "cell of copies": cell([CLASSES[:, None] + 1, CLASSES[None, :] + 1]),
    "cell in a cell": cell([cell([CLASSES[:, None] + 1])]),
    "unsigned": CLASSES[:, None].astype(np.uint8),
    "sparse": scipy.sparse.csc_array(CLASSES[:, None] * 1.0),
}


@WRITERS
@pytest.mark.parametrize("shape", [(1, 2), (2, 1)])
@pytest.mark.parametrize("turned", [(False, False), (True, True), (True, False)])
def test_mat_orientations(tmp_path, write, shape, turned):
    views = views_of()
    cells = cell([x.T if turn else x for x, turn in zip(views, turned, strict=True)], shape)
    assert_same(load_mat(write(tmp_path, X=cells, Y=CLASSES[:, None])), MultiViewData(views, CLASSES, None, "set"))
    assert_same(load_mat(write(tmp_path, X=cells)), MultiViewData(views, None, None, "set"))


@WRITERS
@pytest.mark.parametrize("kind", LABELS)
def test_mat_label_forms(tmp_path, write, kind):
    data = load_mat(write(tmp_path, X=cell(views_of()), Y=LABELS[kind]))
    np.testing.assert_array_equal(data.labels, CLASSES, strict=True)
    assert data.name == "set"


def test_npz_labels_may_be_strings(tmp_path):
    np.savez(tmp_path / "a.npz", view0=np.eye(3), labels=["eel", "dog", "eel"])
    np.testing.assert_array_equal(load_npz(tmp_path / "a.npz").labels, [1, 0, 1])


def test_an_array_that_claims_more_than_the_file_has_is_refused_before_memory_is_taken(tmp_path):
    path = tmp_path / "huge.npz"
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**12, 5)}
    with zipfile.ZipFile(path, "w") as archive, archive.open("view0.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, header)
        member.write(bytes(80))
    with pytest.raises(ValueError, match=r"huge.npz is not .* 'view0': its header claims float64 \(1000000000000, 5\)"):
        load_npz(path)


@WRITERS
@pytest.mark.parametrize("texts", [list("fedcba"), ["short", "a", "longer one", "dog", "eel", "\xe4"]])
def test_mat_strings_and_masks(tmp_path, write, texts):
    mask = np.arange(12).reshape(6, 2) % 5 > 0
    strings = cell([np.array(text) for text in texts], (6, 1))
    data = load_mat(write(tmp_path, X=cell(views_of()), Y=strings, ids=strings, mask=mask))
    assert_same(data, MultiViewData(views_of(), np.unique(texts, return_inverse=True)[1], mask, "set", np.array(texts)))


def test_mat_ids_may_be_numbers_or_rows_of_characters(tmp_path):
    numbers = load_mat(mat(tmp_path, X=cell(views_of()), ids=np.arange(7.0, 1, -1)[:, None])).ids
    np.testing.assert_array_equal(numbers, np.arange(7, 1, -1), strict=True)
    assert load_mat(mat(tmp_path, X=cell(views_of()), ids=["p1", "p2", "p3", "p4", "p5", "p10"])).ids[5] == "p10"


@pytest.mark.parametrize("views_key", datasets.VIEW_KEYS)
@pytest.mark.parametrize("labels_key", datasets.LABEL_KEYS)
def test_mat_names(tmp_path, views_key, labels_key):
    path = mat(tmp_path, **{views_key: cell(views_of()), labels_key: CLASSES[:, None], "other": np.eye(3)})
    assert_same(load_mat(path), MultiViewData(views_of(), CLASSES, None, "set"))


def test_mat_views_are_the_cell_array_among_the_names(tmp_path):
    assert_same(
        load_mat(mat(tmp_path, X=np.eye(5), data=cell(views_of()))), MultiViewData(views_of(), None, None, "set")
    )


@WRITERS
def test_mat_sparse_views(tmp_path, write):
    views = [np.where(x > 0, x, 0) for x in views_of()] + [np.zeros((6, 3))]
    path = write(tmp_path, X=cell([scipy.sparse.csc_matrix(x.T) for x in views]), Y=CLASSES[:, None])
    assert_same(load_mat(path), MultiViewData(views, CLASSES, None, "set"))


def test_mat_square_cells_follow_the_others(tmp_path):
    views = views_of(dims=(6, 4))
    path = mat(tmp_path, X=cell([x.T for x in views]), Y=CLASSES)
    assert_same(load_mat(path), MultiViewData(views, CLASSES, None, "set"))
    path = mat(tmp_path, X=cell(views))
    assert_same(load_mat(path), MultiViewData(views, None, None, "set"))


AMBIGUOUS = {
    "same shapes, no labels": {"X": cell(views_of(dims=(4, 4)))},
    "one view, no labels": {"X": cell(views_of(dims=(4,)))},
    "all square": {"X": cell(views_of(dims=(6, 6))), "Y": CLASSES},
    "square among both": {"X": cell([np.ones((6, 6)), np.ones((6, 4)), np.ones((4, 6))]), "Y": CLASSES},
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_mat_ambiguous_orientation_is_an_error(tmp_path, name):
    with pytest.raises(ValueError, match=r"set.mat: ambiguous: .*\(6, .*pass samples_as='rows' or 'columns'"):
        load_mat(mat(tmp_path, **AMBIGUOUS[name]))


@WRITERS
def test_mat_orientation_can_be_forced(tmp_path, write):
    views = views_of(dims=(4, 4))
    path = write(tmp_path, X=cell(views))
    assert_same(load_mat(path, samples_as="rows"), MultiViewData(views, None, None, "set"))
    assert_same(load_mat(path, samples_as="columns"), MultiViewData([x.T for x in views], None, None, "set"))
    with pytest.raises(ValueError, match="there are 6 labels but the views have 4 samples"):
        load_mat(write(tmp_path, X=cell(views), Y=CLASSES[:, None]), samples_as="columns")
    with pytest.raises(ValueError, match="view 1 has 9 samples but view 0 has 4"):
        load_mat(write(tmp_path, X=cell(views_of())), samples_as="columns")
    with pytest.raises(ValueError, match=r"samples_as must be .* got 'row'"):
        load_mat(path, samples_as="row")


BAD_MAT = {
    "no views": ({"A": np.eye(2), "Y": CLASSES}, r"no cell array of views .*'views'\); it holds \['A', 'Y'\]"),
    "not a cell": ({"X": np.eye(2)}, r"no cell array of views .* it holds \['X'\]"),
    "cell table": ({"X": cell([np.eye(2)] * 4, (2, 2))}, r"one row or column of views, got .* \(2, 2\)"),
    "empty cell": ({"X": np.empty((0, 0), object)}, r"one row or column of views, got .* \(0, 0\)"),
    "text view": ({"X": cell([np.eye(2), np.array(["ab"])])}, "set.mat: view 1 must "),
    "no common size": ({"X": cell([np.ones((6, 4)), np.ones((5, 3))])}, r"a size in common: .*\[\(6, 4\), \(5, 3\)\]"),
    "label count": ({"X": cell(views_of()), "Y": [1, 2, 2]}, "do not all have a side as long as the 3 labels"),
    "one-hot": ({"X": cell(views_of()), "Y": np.eye(6)}, r"labels must be a vector, got shape \(6, 6\)"),
    "label cells": ({"X": cell(views_of()), "Y": cell([CLASSES, CLASSES[::-1]])}, "2 cells of labels are not copies"),
    "no labels": ({"X": cell(views_of()), "Y": np.empty((0, 0), object)}, "0 cells of labels are not copies"),
}


@pytest.mark.parametrize("name", BAD_MAT)
def test_bad_mat_is_named(tmp_path, name):
    variables, message = BAD_MAT[name]
    with pytest.raises(ValueError, match=message):
        load_mat(mat(tmp_path, **variables))


def test_hdf5_struct_among_the_views_is_named(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = hdf5(tmp_path, X=cell(views_of()))
    with h5py.File(path, "r+") as file:
        references = file["X"][()]
        references[0, 0] = file.create_group("#refs#/struct").ref
        file["X"][...] = references
    with pytest.raises(ValueError, match=r"set.mat: view 0 must be a matrix"):
        load_mat(path)


def test_hdf5_lists_its_variables(tmp_path):
    with pytest.raises(ValueError, match=r"it holds \['A'\]"):
        load_mat(hdf5(tmp_path, A=cell(views_of())))


def test_hdf5_without_h5py_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "new.mat"
    path.write_bytes(bytes(512) + datasets.HDF5_SIGNATURE)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"new.mat is a MATLAB 7.3 file; reading it needs h5py: pip install h5py"):
        load_mat(path)


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("write", [mat, hdf5, lambda folder: save_npz(folder / "set.npz", make_blobs(0))])
def test_broken_files_are_named(tmp_path, write, keep):
    variables = {} if write not in (mat, hdf5) else {"X": cell(views_of()), "Y": CLASSES}
    write(tmp_path, **variables)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    with pytest.raises(ValueError, match=f"{path.name} is not a readable"):
        load(path)


def test_load_goes_by_suffix(tmp_path):
    data = MultiViewData(views_of(), CLASSES, None, "set")
    assert_same(load(mat(tmp_path, X=cell(data.views), Y=CLASSES)), data)
    save_npz(tmp_path / "set.NPZ", data)
    assert_same(load(str(tmp_path / "set.NPZ")), data)
    assert_same(load("digits"), load_digits_multiview())
    for name in ("set.csv", tmp_path / "set", os.path.join("digits", "digits")):
        with pytest.raises(ValueError, match=r"cannot tell the format of .* ends in .npz or .mat"):
            load(name)
    for name in ("absent.npz", "absent.mat"):
        with pytest.raises(FileNotFoundError, match=name):
            load(tmp_path / name)


def test_load_looks_bare_names_up(tmp_path, monkeypatch):
    monkeypatch.delenv("JPLTD_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"no set.npz or set.mat in JPLTD_DATA: that variable is not set"):
        load("set")
    monkeypatch.setenv("JPLTD_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=re.escape(f"JPLTD_DATA, {tmp_path}")):
        load("set")
    mat(tmp_path, X=cell(views_of()), Y=CLASSES)
    assert_same(load("set"), MultiViewData(views_of(), CLASSES, None, "set"))
    save_npz(tmp_path / "set.npz", make_blobs(0))
    assert_same(load("set"), make_blobs(0))


def test_loaded_mask_goes_to_make_problem(tmp_path):
    mask = np.ones((120, 2), bool)
    mask[:7, 1] = False
    save_npz(tmp_path / "a.npz", make_blobs(0)._replace(mask=mask))
    data = load(tmp_path / "a.npz")
    np.testing.assert_array_equal(make_problem(data.views, data.mask).mask.sum(axis=1), [120, 113])


SIZES = {
    "ngs": (500, 5, [2000] * 3),
    "msrcv1": (210, 7, [24, 512, 256, 254]),
    "bbcsport": (544, 5, [3183, 3203]),
    "uci": (2000, 10, [240, 76]),
    "scene15": (4485, 15, [20, 59, 40]),
    "orl_recomputed": (400, 40, [4096, 3304, 6750]),
    "orl_4view": (400, 40, [512, 59, 864, 254]),
}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the benchmark data are not here")
@pytest.mark.parametrize("name", SIZES)
def test_benchmark_sets(monkeypatch, name):
    monkeypatch.setenv("JPLTD_DATA", str(SHARED))
    data, (n, c, dims) = load(name), SIZES[name]
    assert [view.shape for view in data.views] == [(n, d) for d in dims]
    assert (data.name, data.mask) == (name, None)
    np.testing.assert_array_equal(np.unique(data.labels), np.arange(c))
