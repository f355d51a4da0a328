"""A few of the faults of ``experiments/benchmarks/faults.py``, which makes many."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "experiments" / "benchmarks" / "faults.py"


def test_killed_work_goes_on_and_a_full_disk_leaves_nothing(tmp_path):
    out = tmp_path / "faults.csv"
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(SCRIPT), "--kills", "2", "--out", str(out)]
    command += ["--only", "sweep", "solve", "cluster", "full", "read-only"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    killed = [row for row in rows if row["fault"] == "kill -9"]
    assert {row["of"] for row in killed} == {"sweep", "solve", "cluster"}
    assert all((row["lost"], row["left"], row["equal"]) == ("0", "0", "2") for row in killed)
    others = [row for row in rows if row["fault"] != "kill -9"]
    assert len(others) == 6
    assert all(row["left"] == "0" and row["said"] for row in others)
