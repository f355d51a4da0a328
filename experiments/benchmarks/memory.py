"""Largest memory of a default fit beyond what the process had before it, against what is predicted.

    python experiments/benchmarks/memory.py [--exact 2000 4000 6000] [--anchored 10000 30000 60000]

Three views of random features (100, 80, 60), half of the samples incomplete, float32, five iterations (more use no
more). Every fit runs in a process of its own. Anchored sizes have 500 anchors.
"""

import argparse
import resource
import subprocess
import sys

import numpy as np

import jpltd_jax as jj
from jpltd_jax.memory import ANCHORS, predicted_memory

DIMS = (100, 80, 60)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(n: int, n_anchors: int | None) -> None:
    rng = np.random.default_rng(0)
    views = [rng.normal(size=(n, d)).astype(np.float32) for d in DIMS]
    mask = jj.missing.paper_protocol(0, n, len(DIMS), 0.5)
    model = jj.JPLTD(10, n_anchors=n_anchors, lam=0.01, max_iter=5, random_state=0)
    small = None if n_anchors is None else 20
    jj.JPLTD(10, n_anchors=small, lam=0.01, max_iter=5).fit([x[:200] for x in views], mask=mask[:200])
    before = peak()
    model.fit(views, mask=mask)
    need, predicted = peak() - before, predicted_memory(n, DIMS, n_anchors)
    how = "exact" if n_anchors is None else f"{n_anchors} anchors"
    tensor = 4 * len(DIMS) * n * (n_anchors or n)
    print(
        f"n = {n}, {how}: {need / 2**30:.2f} GB ({need / tensor:.2f} x G), predicted {predicted / 2**30:.2f} GB "
        f"({predicted / need:.2f} x)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exact", nargs="*", type=int, default=[2000, 4000, 6000])
    parser.add_argument("--anchored", nargs="*", type=int, default=[10_000, 30_000, 60_000])
    parser.add_argument("--only", nargs=2, type=int, metavar=("SAMPLES", "ANCHORS"), help="measure one; 0: exact")
    arguments = parser.parse_args()
    if arguments.only:
        n, anchors = arguments.only
        measure(n, anchors or None)
        return
    for n, anchors in [(n, 0) for n in arguments.exact] + [(n, ANCHORS) for n in arguments.anchored]:
        subprocess.run([sys.executable, __file__, "--only", str(n), str(anchors)], check=True)


if __name__ == "__main__":
    main()
