"""Damaged and hostile files through every loader: what comes of them.

    python experiments/benchmarks/fuzz.py [--mutations 10000] [--seed 0]

Valid files of every kind are made, their bytes changed at random (flipped, cut, doubled, overwritten by large numbers;
inside archives also what the checksums protect), and given to the command line, to :meth:`jpltd_jax.JPLTD.load` and to
the store of sweeps. Allowed is a result, or an error that a user is meant to see. Everything runs in child processes
with little memory and a time limit, in which unpickling ends the process. Writes fuzz.csv beside this script.
"""

import argparse
import contextlib
import csv
import io
import json
import os
import pickle
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse

import jpltd_jax as jj
from jpltd_jax.cli import main as command_line
from jpltd_jax.sweeps.store import encode, open_store

OUT = Path(__file__).with_suffix(".csv")
CHUNK = 500
"""Mutations per child process."""
SECONDS, MEMORY = 20, 2 << 30
"""What one file may take, beyond what the process has already."""
LARGE = [10**12, 2**63 - 1, -1, 2**31 - 1, 2**32 - 1, 10**9, 0]
N = 12


def _views() -> list[np.ndarray]:
    return list(jj.datasets.make_blobs(0, n_samples=N, dims=(5, 4)).views)


def _npz(path: Path) -> None:
    mask = np.arange(2 * N).reshape(N, 2) % 5 > 0
    ids = np.array([f"p{i}" for i in range(N)])
    jj.datasets.save_npz(path, jj.datasets.MultiViewData(_views(), np.arange(N) % 3, mask, "x", ids))


def _cells(items: list) -> np.ndarray:
    cells = np.empty((1, len(items)), object)
    cells[0, :] = items
    return cells


def _mat(path: Path, *, compress: bool = False) -> None:
    views = [_views()[0], scipy.sparse.csc_matrix(np.abs(_views()[1]) > 1) * 1.0]
    ids = _cells([np.array(f"p{i}") for i in range(N)]).T
    variables = {"X": _cells(views), "Y": np.arange(N)[:, None] % 3, "ids": ids}
    scipy.io.savemat(path, variables, do_compression=compress)


def _hdf5(path: Path) -> None:
    import h5py

    with h5py.File(path, "w", userblock_size=512) as file:
        for v, view in enumerate(_views()):
            file[f"#refs#/{v}"] = view.T
        references = np.array([[file[f"#refs#/{v}"].ref] for v in range(2)], h5py.ref_dtype)
        file.create_dataset("X", data=references, dtype=h5py.ref_dtype)
        file["Y"] = np.arange(N)[None, :] % 3
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


def _table(path: Path) -> None:
    delimiter = "\t" if path.suffix == ".tsv" else ","
    lines = [delimiter.join(["sample", "TP53", "BRCA1"])]
    lines += [delimiter.join([f"p{i}", *map(str, row)]) for i, row in enumerate(_views()[0][:, :2])]
    path.write_text("\n".join(lines) + "\n")


def _parquet(path: Path) -> None:
    import pandas as pd

    pd.DataFrame(_views()[0], index=[f"p{i}" for i in range(N)], columns=list("abcde")).to_parquet(path)


def _model(path: Path) -> None:
    jj.JPLTD(3, config=jj.Config(latent_dim=3), random_state=0).fit(_views()).save(path)


FINGERPRINT = "0" * 64


def _store(path: Path) -> None:
    judged = {"status": "MAX_ITER", "modularity": 0.5, "score": 0.9, "labels": [0, 1, 2] * 4}
    rows = [{"lam": i / 10, "theta": 0.1} | judged for i in range(5)]
    path.write_text("".join(encode(row | {"fingerprint": FINGERPRINT}) + "\n" for row in rows))


def _cluster(path: Path) -> None:
    """Read the file as a user would; no clusters are asked for, so that the work never begins."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = command_line(["cluster", str(path), "--n-clusters", "0", "--out", str(path.parent / "labels.csv")])
    lines = [line for line in said.getvalue().splitlines() if not line.startswith("jpltd: warning: ")]
    assert code == 2, code
    assert lines[0].startswith("jpltd: error: "), lines
    assert "Traceback" not in said.getvalue()
    if "'n_clusters' parameter" not in lines[0] and "n_clusters must" not in lines[0]:
        raise ValueError(lines[0])


KINDS: dict[str, tuple[str, Callable[[Path], None], Callable[[Path], object]]] = {
    "npz": ("x.npz", _npz, _cluster),
    "mat": ("x.mat", _mat, _cluster),
    "mat, compressed": ("x.mat", lambda path: _mat(path, compress=True), _cluster),
    "mat 7.3": ("x.mat", _hdf5, _cluster),
    "csv": ("x.csv", _table, _cluster),
    "tsv": ("x.tsv", _table, _cluster),
    "parquet": ("x.parquet", _parquet, _cluster),
    "model": ("x.npz", _model, jj.JPLTD.load),
    "store": ("x.jsonl", _store, lambda path: open_store(path, FINGERPRINT, ["lam", "theta"])),
}
"""Name of the file, how a valid one is made, and how it is read."""


def valid(kind: str) -> bytes:
    """A file of the kind, which is read."""
    name, write, read = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        write(path)
        read(path)
        return path.read_bytes()


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """One to four changes at random places."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(len(changed) + 1))
        length = int(rng.integers(1, 65))
        large = struct.pack("<q", LARGE[rng.integers(len(LARGE))])
        change = rng.integers(7)
        if change == 0:
            changed[at : at + 1] = rng.bytes(1)
        elif change == 1:
            changed[at : at + length] = rng.bytes(length)
        elif change == 2:
            changed[at : at + 8] = large if rng.random() < 0.5 else large[:4]
        elif change == 3:
            del changed[at : at + length]
        elif change == 4:
            changed[at:at] = changed[at : at + length]
        elif change == 5:
            changed[at : at + length] = bytes(length)
        else:
            digit = str(LARGE[rng.integers(len(LARGE))]).encode()
            changed[at : at + 1] = digit
    return bytes(changed[: int(rng.integers(len(changed) + 1))] if rng.random() < 0.05 else changed)


def mutate_inside(data: bytes, rng: np.random.Generator) -> bytes:
    """Change one member of an archive and pack it again, so that its checksum is right; else as :func:`mutate`."""
    if data[:2] != b"PK" or rng.random() < 0.5:
        return mutate(data, rng)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    chosen = list(members)[rng.integers(len(members))]
    head = members[chosen][: 128 if rng.random() < 0.7 else None]
    members[chosen] = mutate(head, rng) + members[chosen][len(head) :]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def outcome(kind: str, data: bytes) -> str:
    """What comes of a file: read, refused, or the error that should not be."""
    name, _, read = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        try:
            read(path)
            return "read"
        except (ValueError, OSError):
            return "refused"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            assert len(os.listdir(folder)) == 1


def _no_pickles(*_: object) -> None:
    os._exit(77)


def guarded(kind: str, data: bytes, seed: int, count: int, report: int) -> None:
    """Outcomes of mutations, in a child process: limited memory and time, and the end if anything is unpickled."""
    for name in ("load", "loads", "Unpickler"):
        setattr(pickle, name, _no_pickles)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    rng = np.random.default_rng(seed)
    for _ in range(count):
        changed = mutate_inside(data, rng)
        signal.alarm(SECONDS)
        found = outcome(kind, changed)
        signal.alarm(0)
        os.write(report, (json.dumps(found) + "\n").encode())


def run(kind: str, seed: int, count: int) -> Counter:
    """Counts of the outcomes; a hang, a crash and an unpickling are outcomes too.

    This process never starts JAX's threads, which a child would lack.
    """
    code = "import sys, fuzz; sys.stdout.buffer.write(fuzz.valid(sys.argv[1]))"
    here = str(Path(__file__).parent)
    data = subprocess.run([sys.executable, "-c", code, kind], cwd=here, stdout=subprocess.PIPE, check=True).stdout
    counts, done = Counter(), 0
    while done < count:
        report, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                guarded(kind, data, seed + done, min(CHUNK, count - done), write)
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(report) as file:
            lines = [json.loads(line) for line in file]
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        counts.update(lines)
        done += len(lines)
        if status != 0 or not lines:
            names = {-signal.SIGALRM: "hang", 77: "unpickled"}
            counts[names.get(status, f"crash, exit {status}")] += 1
            done += 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutations", type=int, default=10_000, metavar="N", help="in all (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    arguments = parser.parse_args()
    rows = []
    each = -(-arguments.mutations // len(arguments.kinds))
    for kind in arguments.kinds:
        counts = run(kind, arguments.seed, each)
        other = {name: count for name, count in counts.items() if name not in ("read", "refused")}
        rows.append([kind, each, counts["read"], counts["refused"], sum(other.values()), json.dumps(other)])
        print(*rows[-1], flush=True)
    with OUT.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["file", "mutations", "read", "refused", "other", "what"])
        writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
