"""Files that are damaged, or made to harm: an error that a user is meant to see, no code run, no memory taken."""

import pickle
import resource
import struct
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jpltd_jax as jj
from jpltd_jax.datasets import load
from jpltd_jax.tables import read_classes, read_table

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "benchmarks"))

import fuzz

IN_PROCESS = ("npz", "mat", "mat, compressed", "csv", "tsv", "model", "store")
"""Not those whose libraries are in C and could end the tests; the script sends these through processes of their own."""

ROWS = 10**12


@pytest.mark.parametrize("kind", IN_PROCESS)
def test_mutated_files_are_read_or_refused(kind, monkeypatch):
    data, rng = fuzz.valid(kind), np.random.default_rng(0)
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, lambda *_, **__: pytest.fail("unpickled"))
    found = [fuzz.outcome(kind, fuzz.mutate_inside(data, rng)) for _ in range(200)]
    assert set(found) <= {"read", "refused"}
    assert found.count("refused") > 20


@pytest.mark.parametrize("kind", ["npz", "mat", "csv", "store"])
@given(data=st.binary(max_size=200))
def test_any_bytes_are_refused(kind, data):
    assert fuzz.outcome(kind, data) in ("read", "refused") if kind in ("csv", "store") else "refused"


CELLS = st.text(st.sampled_from(list("0123456789.eE-+naNAif ,\t\"'\n\r\x00\u00e4")), max_size=12)


@given(st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=5))
def test_any_text_is_a_table_or_refused(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("text") / "x.csv"
    path.write_text("\n".join(map(",".join, lines)))
    for read in (read_table, read_classes):
        try:
            found, said = read(path), str(path)
        except ValueError as error:
            said = str(error)
        else:
            if read is read_table:
                whole = np.isfinite(found.values).all(axis=1) | np.isnan(found.values).all(axis=1)
                assert whole.all()
                assert len(set(found.index)) == len(found.values) > 0
        assert str(path) in said


# Files that claim to be large ---------------------------------------------------------------------------------------


def npz(path, shape, stored, name="view0"):
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(f"{name}.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, header)
        member.write(stored)


def claimed_size(path, n):
    """Let the archive itself say that its only member has n bytes."""
    data = bytearray(path.read_bytes())
    at = data.rfind(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", min(n, 2**32 - 2))
    path.write_bytes(data)


def mat4(path):
    """MATLAB 4: a matrix of 2^31 - 1 by 1000 numbers in 20 bytes."""
    path.write_bytes(struct.pack("<5i", 0, 2**31 - 1, 1000, 0, 2) + b"X\x00" + bytes(80))


def mat5_header():
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"


def element(kind, data):
    return struct.pack("<2I", kind, len(data)) + data + bytes(-len(data) % 8 if kind != 15 else 0)


def mat5_cells(path):
    """MATLAB 5: a cell array that claims 10^9 cells and has none."""
    body = element(6, struct.pack("<2I", 1, 0)) + element(5, struct.pack("<2i", 1, 10**9)) + element(1, b"X")
    path.write_bytes(mat5_header() + element(14, body))


def mat5_sparse(path):
    """MATLAB 5: cells with an empty sparse matrix of 10^6 by 10^6."""
    sparse = element(6, struct.pack("<2I", 5, 1)) + element(5, struct.pack("<2i", 10**6, 10**6)) + element(1, b"")
    sparse += element(5, struct.pack("<i", 0)) + element(5, bytes(4 * (10**6 + 1))) + element(9, bytes(8))
    cells = element(6, struct.pack("<2I", 1, 0)) + element(5, struct.pack("<2i", 1, 1)) + element(1, b"X")
    path.write_bytes(mat5_header() + element(15, zlib.compress(element(14, cells + element(14, sparse)))))


def mat73(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("#refs#/0", shape=(5, ROWS), dtype=float, chunks=(5, 1000))
        file.create_dataset("X", data=np.array([[file["#refs#/0"].ref]], h5py.ref_dtype), dtype=h5py.ref_dtype)
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


CLAIMS = {
    "rows of nothing": ("x.npz", lambda path: npz(path, (ROWS, 5), b""), "claims float64 .1000000000000, 5., 4"),
    "more than 64 bits": ("x.npz", lambda path: npz(path, (2**62, 2**62), b""), "but there are 0"),
    "negative": ("x.npz", lambda path: npz(path, (-1, 5), bytes(40)), "x.npz is not a readable archive, array 'view0'"),
    "the archive claims it too": (
        "x.npz",
        lambda path: [npz(path, (2**29 - 17, 1), b""), claimed_size(path, 2**32 - 8)],
        "x.npz is not a readable archive, array 'view0'",
    ),
    "MATLAB 4": ("x.mat", mat4, "x.mat"),
    "MATLAB 5 cells": ("x.mat", mat5_cells, "x.mat"),
    "MATLAB 5 sparse": ("x.mat", mat5_sparse, "it claims 8000.0 GB, more than the memory of this machine"),
    "MATLAB 7.3": ("x.mat", mat73, "it claims 40000.0 GB, more than the memory of this machine"),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_large_claims_are_refused_without_the_memory(name, tmp_path):
    file, write, message = CLAIMS[name]
    path = tmp_path / file
    write(path)
    assert path.stat().st_size < 100_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=message):
        load(path)
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert taken < 200e6


def test_a_checkpoint_and_a_model_that_claim_much_are_refused(tmp_path):
    path = tmp_path / "x.npz"
    npz(path, (ROWS, 5), b"", "header")
    with pytest.raises(ValueError, match=r"x.npz is not a readable archive, array 'header': its header claims"):
        jj.JPLTD.load(path)
    problem = jj.make_problem(jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8)).views)
    with pytest.raises(ValueError, match=r"x.npz is not a checkpoint, or is damaged"):
        jj.solve(problem, jj.Hyper(), jj.Config(latent_dim=5), loop=jj.Loop(every=5, checkpoint=path))
