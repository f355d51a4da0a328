"""Time of a sweep over that of separate solves with the compiled function warm.

Run: python experiments/benchmarks/sweep.py [samples], or with "full" for the paper's 720 configurations at n = 200:
how many programs are compiled, and the largest memory of the process beyond what it had, against the budget.

Three views, one latent dimension, 30 iterations. Separate runs are timed with and without the clustering that the sweep
includes. Sweep and separate runs alternate, so that a busy machine slows both. Iterates must be equal bit for bit; so
must labels, but where the affinity has rank one up to rounding: there any labels are as good.
"""

import os
import sys
import threading
import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

import jpltd_jax as jj
from jpltd_jax.cli.options import PAPER_LAM, PAPER_LATENT_DIM, PAPER_THETA
from jpltd_jax.linalg import normalized
from jpltd_jax.methods import JPLTD, jpltd
from jpltd_jax.pipeline import label
from jpltd_jax.sweeps.plan import compiled
from jpltd_jax.sweeps.trunk import shared_step

GRIDS = {
    "20 recommended pairs": ((2.0, 5.0, 10.0, 20.0), (0.05, 0.1, 0.5, 1.0, 2.0)),
    "72 pairs of the paper": (PAPER_LAM, PAPER_THETA),
}
CONFIG, LOOP, CLUSTERS, REPEATS = replace(jj.PUBLISHED, latent_dim=60), jj.Loop(max_iter=30), 10, 3


def timed(function):
    start = time.perf_counter()
    result = jax.block_until_ready(function())
    return time.perf_counter() - start, result


def make(n):
    data = jj.datasets.make_blobs(0, n_samples=n, dims=(80, 100, 120), n_clusters=CLUSTERS)
    return data, jj.make_problem(data.views, jj.missing.paper_protocol(0, n, 3, 0.5))


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def full(budget=2**26):
    data, problem = make(200)

    def sweep(lam, theta, latent_dim):
        grid = jj.grid({"lam": lam, "theta": theta, "latent_dim": latent_dim}, config=CONFIG)
        run = jj.Run(memory=budget, progress=True)
        return jj.sweep(problem, grid, n_clusters=CLUSTERS, key=jax.random.key(0), y=data.labels, run=run)

    sweep([1.0, 2.0], 0.1, (PAPER_LATENT_DIM[0], PAPER_LATENT_DIM[-1]))
    before, peak, done = resident(), [0], threading.Event()

    def watch():
        while not done.wait(0.005):
            peak[0] = max(peak[0], resident())

    thread = threading.Thread(target=watch)
    thread.start()
    seconds, result = timed(lambda: sweep(PAPER_LAM, PAPER_THETA, PAPER_LATENT_DIM))
    done.set()
    thread.join()
    programs = f"{compiled.cache_info().misses} + {shared_step._cache_size()} shared"
    print(f"{len(result.rows)} configurations in {seconds:.0f} s; programs compiled: {programs}")
    print(f"memory beyond that before: {(peak[0] - before) / 2**20:.0f} MiB; budget {budget / 2**20:.0f} MiB")


def main():
    if sys.argv[1:] == ["full"]:
        return full()
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    _, problem = make(n)
    key = jax.random.key(0)
    data = jpltd.prepare(problem, CLUSTERS, CONFIG)
    print(
        f"n = {n}, 3 views, latent_dim {CONFIG.latent_dim}, {LOOP.max_iter} iterations; load {os.getloadavg()[0]:.1f}"
    )
    for name, (lam, theta) in GRIDS.items():
        grid = jj.grid({"lam": lam, "theta": theta}, config=CONFIG, max_iter=LOOP.max_iter)
        hypers = [one.hyper for one in grid.configurations]

        def separate(hyper):
            return jj.solve(problem, hyper, CONFIG, loop=LOOP)

        def together(grid=grid):
            return jj.sweep(problem, grid, n_clusters=CLUSTERS, key=key)

        def cluster(solution):
            return label(jax.random.split(jax.random.fold_in(key, 0))[1], JPLTD, data, solution, CLUSTERS).labels

        together(), cluster(separate(hypers[0]))
        ratios = []
        for _ in range(REPEATS):
            solving, solutions = timed(lambda: [separate(hyper) for hyper in hypers])  # noqa: B023
            clustering, labels = timed(lambda: [cluster(solution) for solution in solutions])  # noqa: B023
            sweeping, swept = timed(together)
            ratios.append((sweeping / (solving + clustering), sweeping / solving, sweeping, solving, clustering))
        undefined = 0
        for row, hyper, solution, found in zip(swept.rows, hypers, solutions, labels, strict=True):
            assert row["n_iter"] == int(solution.n_iter)
            assert row["status"] == solution.status.name
            assert np.isclose(row["objective"], jpltd.objective(data, hyper, solution.state), rtol=1e-5)
            assert row["split"] == float(solution.history.split[row["n_iter"] - 1])
            if row["status"] != "EMPTY" and row["labels"] != found.tolist():
                assert jnp.linalg.eigvalsh(normalized(solution.affinity))[-2] < 1e-6
                undefined += 1
        both, solves, sweeping, solving, clustering = np.median(ratios, axis=0)
        print(f"{name}: sweep {sweeping:.2f} s, solves {solving:.2f} s, their clusterings {clustering:.2f} s")
        print(f"  ratio {both:.2f} to solves with clustering, {solves:.2f} to solves alone")
        print(f"  equal; {undefined} with labels undefined")


if __name__ == "__main__":
    main()
