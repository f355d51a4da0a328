"""Largest memory of an exact solve beyond what the process had before it, in arrays of the size of G.

    python experiments/benchmarks/memory.py [samples]

Three views of random features, float32, default 8000 samples, three iterations (more use no more).
"""

import resource
import sys

import jax
import numpy as np

import jpltd_jax as jj


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    rng = np.random.default_rng(0)
    views = [rng.normal(size=(n, d)).astype(np.float32) for d in (100, 80, 60)]
    problem = jj.make_problem(views, jj.missing.paper_protocol(0, n, 3, 0.5))
    hyper, loop = jj.Hyper(lam=5.0), jj.Loop(max_iter=3)
    small = jj.make_problem([view[:100] for view in views])
    jax.block_until_ready(jj.solve(small, hyper, jj.PUBLISHED, loop=loop))
    before = peak()
    solution = jax.block_until_ready(jj.solve(problem, hyper, jj.PUBLISHED, loop=loop))
    print(f"n = {n}: {(peak() - before) / 2**30:.2f} GB, {(peak() - before) / solution.state.G.nbytes:.2f} x G")


if __name__ == "__main__":
    main()
