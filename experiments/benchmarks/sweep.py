"""Time of a sweep over that of separate solves with the compiled function warm.

Run: python experiments/benchmarks/sweep.py [samples], or with "full" for the paper's 720 configurations at n = 200:
how many programs are compiled, and the largest memory of the process beyond what it had, against the budget.

Three views, one latent dimension, 30 iterations. Separate runs are timed with and without the clustering that the sweep
includes. Sweep and separate runs alternate, so that a busy machine slows both. Iterates must be equal bit for bit; so
must labels, but where the affinity has rank one up to rounding: there any labels are as good.
"""

import importlib
import os
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np

import jpltd_jax as jj
from jpltd_jax.cli import PAPER_LAM, PAPER_LATENT_DIM, PAPER_THETA

GRIDS = {
    "20 recommended pairs": ((2.0, 5.0, 10.0, 20.0), (0.05, 0.1, 0.5, 1.0, 2.0)),
    "72 pairs of the paper": (PAPER_LAM, PAPER_THETA),
}
LATENT_DIM, MAX_ITER, CLUSTERS, REPEATS = 60, 30, 10, 3


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
    module = importlib.import_module("jpltd_jax.sweep")
    options = {"n_clusters": CLUSTERS, "y_true": data.labels, "key": jax.random.key(0), "max_iter": MAX_ITER}
    options |= {"memory_budget": budget, "progress": True}
    jj.sweep(problem, jj.grid([1.0, 2.0], 0.1, latent_dim=(PAPER_LATENT_DIM[0], PAPER_LATENT_DIM[-1])), **options)
    before, peak, done = resident(), [0], threading.Event()

    def watch():
        while not done.wait(0.005):
            peak[0] = max(peak[0], resident())

    thread = threading.Thread(target=watch)
    thread.start()
    seconds, result = timed(
        lambda: jj.sweep(problem, jj.grid(PAPER_LAM, PAPER_THETA, latent_dim=PAPER_LATENT_DIM), **options)
    )
    done.set()
    thread.join()
    programs = module._compiled.cache_info().misses, module._shared_step._cache_size()
    print(
        f"{len(result.rows)} configurations in {seconds:.0f} s; programs compiled: {programs[0]} + {programs[1]} shared"
    )
    print(f"memory beyond that before: {(peak[0] - before) / 2**20:.0f} MiB; budget {budget / 2**20:.0f} MiB")


def main():
    if sys.argv[1:] == ["full"]:
        return full()
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    _, problem = make(n)
    key = jax.random.key(0)
    print(f"n = {n}, 3 views, latent_dim {LATENT_DIM}, {MAX_ITER} iterations; load {os.getloadavg()[0]:.1f}")
    for name, (lam, theta) in GRIDS.items():
        grid = jj.grid(lam, theta, latent_dim=LATENT_DIM)
        hypers = [jj.Hyper(*(row[field] for field in jj.Hyper._fields)) for row in grid.parameters()]

        def separate(hyper):
            return jj.solve(problem, hyper, latent_dim=LATENT_DIM, max_iter=MAX_ITER)

        def together(grid=grid):
            return jj.sweep(problem, grid, n_clusters=CLUSTERS, key=key, max_iter=MAX_ITER)

        def cluster(affinity):
            return jj.spectral_cluster(jax.random.fold_in(key, 0), affinity, CLUSTERS)

        together(), cluster(separate(hypers[0]).affinity)
        ratios = []
        for _ in range(REPEATS):
            solving, results = timed(lambda: [separate(hyper) for hyper in hypers])  # noqa: B023
            clustering, labels = timed(lambda: [cluster(result.affinity) for result in results])  # noqa: B023
            sweeping, swept = timed(together)
            ratios.append((sweeping / (solving + clustering), sweeping / solving, sweeping, solving, clustering))
        undefined = 0
        for row, result, label in zip(swept.rows, results, labels, strict=True):
            assert row["n_iter"] == int(result.n_iter)
            assert row["status"] == jj.Status(int(result.status)).name
            assert row["objective"] == float(result.objective)
            assert row["split_residual"] == float(result.history.split_residual[row["n_iter"] - 1])
            if row["status"] != "EMPTY" and row["labels"] != label.tolist():
                assert jnp.linalg.eigvalsh(jj.spectral.normalized(result.affinity))[-2] < 1e-6
                undefined += 1
        both, solves, sweeping, solving, clustering = np.median(ratios, axis=0)
        print(f"{name}: sweep {sweeping:.2f} s, solves {solving:.2f} s, their clusterings {clustering:.2f} s")
        print(f"  ratio {both:.2f} to solves with clustering, {solves:.2f} to solves alone")
        print(f"  equal; {undefined} with labels undefined")


if __name__ == "__main__":
    main()
