"""Kills, full disks, read-only directories and several writers: what is lost, what is left, and whether it goes on.

    python experiments/benchmarks/faults.py [--kills 50] [--only sweep solve cluster ...]

A sweep, a solve with a checkpoint after every second iteration, and ``jpltd cluster`` are killed (SIGKILL) at random
moments, after a random number of changes on disk, and then made again to the end; the result is compared with that of a
run that was left alone. The other faults are made once each. Writes faults.csv beside this script; rows that are not
asked for stay.
"""

import argparse
import contextlib
import csv
import io
import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir(), "jpltd-faults-programs")))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import jax
import numpy as np

import jpltd_jax as jj
from jpltd_jax.cli import main as command_line
from jpltd_jax.sweeps.store import read_rows

OUT = Path(__file__).with_suffix(".csv")
FIELDS = ["fault", "of", "times", "finished before", "kept", "lost", "cut", "left", "equal", "said"]
DATA = jj.datasets.make_blobs(0, n_samples=60, dims=(10, 8))
CONFIG = jj.Config(latent_dim=5)
LIMITS = "--n-clusters 3 --latent-dim 5 --quiet"
SWEEP = f"sweep data.npz {LIMITS} --lam 0.1 0.25 0.5 1 --theta 0.02 0.05 0.1 0.2 0.5 --store rows.jsonl"
CLUSTER = f"cluster data.npz {LIMITS} --save model.npz"


def command(line: str) -> tuple[int, str]:
    """Exit code of a command line in this process, and its last line of error."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = command_line(shlex.split(line))
    return code, (said.getvalue().strip().splitlines() or [""])[-1]


def solve() -> Any:
    """A solve that saves after every second iteration."""
    problem = jj.make_problem(DATA.views)
    loop = jj.Loop(max_iter=60, every=2, checkpoint="run.npz")
    return jax.tree.map(np.asarray, jj.solve(problem, jj.Hyper(tol=0.0), CONFIG, loop=loop))


def start(what: str) -> subprocess.Popen:
    """The work in a process of its own, in this directory."""
    code = {
        "sweep": f"faults.command({SWEEP!r})",
        "solve": "faults.solve()",
        "cluster": f"faults.command({CLUSTER!r})",
    }[what]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(OUT.parent), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen([sys.executable, "-c", f"import faults; {code}"], env=environment)


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A new working directory with the data in it."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        try:
            jj.datasets.save_npz("data.npz", DATA)
            yield Path(name)
        finally:
            os.chdir(before)


def stored() -> dict[tuple, Any]:
    """The rows of the sweep, by their parameters, without what differs from run to run."""
    rows = read_rows(Path("rows.jsonl"))
    assert len({(row["lam"], row["theta"]) for row in rows}) == len(rows)
    return {(row["lam"], row["theta"]): {k: str(v) for k, v in row.items() if k != "seconds"} for row in rows}


def iterations() -> int:
    with np.load("run.npz", allow_pickle=False) as archive:
        return max(int(archive[name]) for name in archive.files if archive[name].dtype == np.int32)


def state(what: str) -> Any:
    """What is on disk of the work."""
    if what == "sweep":
        return stored()
    if what == "solve":
        return iterations() if Path("run.npz").exists() else 0
    return {name: Path(name).read_bytes() for name in ("labels.csv", "model.npz") if Path(name).exists()}


def finish(what: str) -> Any:
    """Make the rest in this process; the result in a form that can be compared."""
    if what == "sweep":
        assert command(SWEEP)[0] == 0
        return stored()
    if what == "solve":
        return b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in jax.tree.leaves(solve()))
    assert command(CLUSTER)[0] == 0
    return Path("labels.csv").read_bytes(), jj.JPLTD.load("model.npz").embedding_.tobytes()


WANTED = {
    "sweep": {"data.npz", "rows.jsonl", "sweep.csv"},
    "solve": {"data.npz", "run.npz"},
    "cluster": {"data.npz", "labels.csv", "model.npz"},
}


def watch(process: subprocess.Popen, target: int) -> int:
    """Wait until the directory has changed so many times, or the process ends; how many times it was seen to change."""
    seen, now = -1, None
    while seen < target and process.poll() is None:
        before, now = now, []
        for entry in sorted(os.listdir()):
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(entry)
                now.append((entry, status.st_ino, status.st_size))
        seen += now != before
        time.sleep(0.0002)
    return seen


def kills(what: str, count: int, rng: np.random.Generator) -> dict[str, Any]:
    """Kill the work at random moments, after a random number of changes in its directory, and go on."""
    with folder():
        straight = finish(what)
        whole = state(what)
    with folder():
        process = start(what)
        last = watch(process, sys.maxsize)
        assert process.returncode == 0
    found = dict.fromkeys(("finished before", "kept", "lost", "cut", "left", "equal"), 0)
    for _ in range(count):
        with folder():
            process = start(what)
            watch(process, int(rng.integers(last + 1)))
            time.sleep(rng.uniform(0, 0.005))
            process.kill()
            found["finished before"] += process.wait() != -signal.SIGKILL
            if what == "sweep" and Path("rows.jsonl").exists():
                found["cut"] += not Path("rows.jsonl").read_bytes().endswith(b"\n")
            found["cut"] += len(list(Path().glob("*.part")))
            kept = state(what)
            result = finish(what)
            found["kept"] += kept if what == "solve" else len(kept)
            if what == "sweep":
                found["lost"] += sum(result[key] != row for key, row in kept.items())
                result = {key: strip(row) for key, row in result.items()}
                found["equal"] += result == {key: strip(row) for key, row in straight.items()}
            else:
                found["lost"] += what == "cluster" and any(whole[name] != kept[name] for name in kept)
                found["equal"] += result == straight
            found["left"] += len(set(os.listdir()) - WANTED[what])
    return {"fault": "kill -9", "of": what, "times": count} | found


def strip(row: dict[str, str]) -> dict[str, str]:
    """A row without numbers that another batch may round otherwise."""
    return {name: row[name] for name in ("labels", "status", "n_iter", "accuracy")}


def full_disk(mounted: Path | None) -> Iterator[dict[str, Any]]:
    """Every kind of output onto a full file system, or, where none can be mounted, over the limit of a file's size."""
    works: dict[str, Callable[[str], tuple[int, str]]] = {
        "labels": lambda to: command(f"cluster data.npz {LIMITS} --out {to}/labels.csv"),
        "model": lambda to: command(f"cluster data.npz {LIMITS} --save {to}/model.npz"),
        "store": lambda to: command(SWEEP.replace("rows.jsonl", f"{to}/rows.jsonl")),
        "checkpoint": lambda to: attempt(lambda: on_disk(to, solve)),
    }
    for what, work in works.items():
        with folder() as here:
            to = str(mounted or here)
            before = set(os.listdir(to))
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            if mounted is None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
            code, said = work(to)
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            left = {name for name in set(os.listdir(to)) - before if Path(to, name).stat().st_size > 0}
            left -= {"labels.csv"} if what == "model" else set()
            kept = said.partition("; the labels are in ")[2]
            found = {"kept": int(bool(kept) and Path(kept).exists()), "left": len(left), "said": said.replace(to, "")}
            if kept.startswith(tempfile.gettempdir()):
                Path(kept).unlink()
                found["said"] = said.partition("; the labels")[0].replace(to, "") + "; the labels are in ..."
            yield {"fault": "full disk", "of": what, "times": 1} | found
            assert code == 2, (code, said)


def attempt(work: Callable[[], object]) -> tuple[int, str]:
    try:
        work()
    except (OSError, ValueError) as error:
        return 2, str(error)
    return 0, ""


def on_disk(to: str, work: Callable[[], object]) -> None:
    before = Path.cwd()
    os.chdir(to)
    try:
        work()
    finally:
        os.chdir(before)


@contextlib.contextmanager
def file_system(options: str) -> Iterator[Path | None]:
    """A small file system in memory, if this user may mount one."""
    with tempfile.TemporaryDirectory() as name:
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", name], capture_output=True).returncode:
            yield None
            return
        try:
            if options == "full":
                with contextlib.suppress(OSError), Path(name, "ballast").open("wb", buffering=0) as file:
                    while True:
                        file.write(bytes(4096))
            else:
                subprocess.run(["mount", "-o", "remount,ro", name], check=True)
            yield Path(name)
        finally:
            subprocess.run(["umount", name], check=True)


def read_only(mounted: Path | None) -> Iterator[dict[str, Any]]:
    with folder() as here:
        to = mounted or here / "closed"
        if mounted is None:
            to.mkdir(mode=0o555)
        for what, line in {
            "labels": f"cluster data.npz {LIMITS} --out {to}/labels.csv",
            "store": SWEEP.replace("rows.jsonl", f"{to}/rows.jsonl"),
        }.items():
            code, said = command(line)
            assert code == 2, (code, said)
            found = {"left": len(os.listdir(to)), "said": said.replace(str(to), "")}
            yield {"fault": "read-only directory", "of": what, "times": 1} | found


def two_writers(times: int) -> dict[str, Any]:
    """Two sweeps into one store at once: every line is a row, and a third run finds all of them."""
    with folder():
        straight = finish("sweep")
    found = {"kept": 0, "lost": 0, "cut": 0, "left": 0, "equal": 0}
    for _ in range(times):
        with folder():
            both = [start("sweep"), start("sweep")]
            assert [process.wait() for process in both] == [0, 0]
            rows = read_rows(Path("rows.jsonl"))
            found["kept"] += len(rows)
            found["cut"] += not Path("rows.jsonl").read_bytes().endswith(b"\n")
            last = {(row["lam"], row["theta"]): {k: str(v) for k, v in row.items()} for row in rows}
            found["lost"] += len(straight.keys() - last.keys())
            found["equal"] += all(strip(last[key]) == strip(row) for key, row in straight.items())
            found["left"] += len(set(os.listdir()) - WANTED["sweep"])
    return {"fault": "two writers", "of": "sweep", "times": times} | found


def corrupted_lines(times: int, rng: np.random.Generator) -> dict[str, Any]:
    """A store damaged at one place, by any bytes or by letters: refused and untouched, or still rows (``kept``)."""
    letters = list(b'0123456789 ,.:"[]{}abcdef')
    said, refused, changed = "", 0, 0
    with folder():
        finish("sweep")
        content = Path("rows.jsonl").read_bytes()
        for i in range(times):
            at, length = int(rng.integers(len(content) - 20)), int(rng.integers(1, 11))
            damage = bytes(rng.choice(letters, length).tolist()) if i % 2 else rng.bytes(length)
            damaged = content[:at] + damage + content[at + length :]
            Path("rows.jsonl").write_bytes(damaged)
            code, error = command(SWEEP)
            refused += code == 2
            changed += code == 2 and Path("rows.jsonl").read_bytes() != damaged
            said = error if code == 2 else said
    found = {"kept": times - refused, "lost": changed, "said": said}
    return {"fault": "corrupted line", "of": "store", "times": times} | found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50, metavar="N", help="of each kind of work (%(default)s)")
    names = ["sweep", "solve", "cluster", "full", "read-only", "writers", "lines"]
    parser.add_argument("--out", type=Path, default=OUT, metavar="CSV", help="(%(default)s)")
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    rows = []
    for name in arguments.only:
        if name in WANTED:
            rows.append(kills(name, arguments.kills, rng))
        elif name in ("full", "read-only"):
            with file_system(name) as mounted:
                rows += full_disk(mounted) if name == "full" else read_only(mounted)
        else:
            rows.append(two_writers(3) if name == "writers" else corrupted_lines(arguments.kills, rng))
        print(json.dumps(rows[-1]), flush=True)
    if arguments.out.exists():
        with arguments.out.open(newline="") as file:
            made = {(row["fault"], row["of"]) for row in rows}
            rows = [row for row in csv.DictReader(file) if (row["fault"], row["of"]) not in made] + rows
    with arguments.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: (row["fault"], row["of"])))


if __name__ == "__main__":
    sys.exit(main())
