"""One iteration against the work that it cannot avoid, and against the literal NumPy/SciPy steps.

    python experiments/benchmarks/iteration.py [--sizes 250 500 997 1000 2000 4000] [--latent-dim 60]

Three views (blobs, half of the samples incomplete), float32, on JAX's default backend. The unavoidable work of an
iteration: the three products of O(n^2 k) per view, forward and inverse real FFT of the (views, n, n) tensor, one read
and write of each array of that size in the state. Everything is measured in this process, in alternation, and the
medians are compared. 997 is prime, the worst length for an FFT. At n = 500 the literal NumPy/SciPy steps are timed too.
Memory is the compiled solve's own account (arguments, temporaries, results), in arrays of the size of G. Writes
iteration.csv and iteration.png beside this script.
"""

import argparse
import csv
import itertools
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jpltd_jax as jj
from jpltd_jax.linalg import ridge
from jpltd_jax.loop import Solution
from jpltd_jax.methods import jpltd
from jpltd_jax.prox import shrink_columns, tubal_shrink

HERE = Path(__file__).resolve().parent
HYPER = jj.Hyper(lam=5.0)
DIMS, ITERATIONS, LITERAL_SIZE, PRIME = (200, 300, 400), 30, 500, 997
NOT_TIMES = ("n", "ratio", "memory", "literal")


def make(n: int) -> tuple[list[np.ndarray], np.ndarray]:
    views = jj.datasets.make_blobs(0, n_samples=n, dims=DIMS, n_clusters=10).views
    return views, jj.missing.paper_protocol(0, n, len(views), 0.5)


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def medians(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each call; the calls take turns, after one turn that is not counted."""
    rounds = [{name: seconds(call) for name, call in calls.items()} for _ in range(repeats + 1)]
    return {name: float(np.median([r[name] for r in rounds[1:]])) for name in calls}


def bind(function: Callable, *arguments: object) -> Callable[[], object]:
    compiled = jax.jit(function)
    return lambda: compiled(*arguments)


def unavoidable(problem: jj.Problem, state: jpltd.State) -> dict[str, Callable[[], object]]:
    n = problem.n_samples
    small = state.E

    def products(small: jax.Array, graph: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return small @ graph, jnp.einsum("vkj,vij->vki", small, graph), jnp.einsum("vki,vkj->vij", small, small)

    big = [x for x in state if x.shape == state.G.shape]
    return {
        "products": bind(products, small, state.G),
        "fft": bind(lambda g: jnp.fft.irfft(jnp.fft.rfft(g), n=n), state.G),
        "read and write": bind(lambda arrays, c: [x + c for x in arrays], big, jnp.float32(1)),
    }


def parts(data: jpltd.Data, state: jpltd.State) -> dict[str, Callable[[], object]]:
    target = state.E - state.J1 / state.rho
    latent = state.W @ data.problem.data
    split = state.B + state.P - state.J2 / state.rho

    def sparse_part(G: jax.Array, B: jax.Array, J2: jax.Array, rho: jax.Array) -> tuple[jax.Array, ...]:
        shifted = G - B + J2 / rho
        within = jnp.clip(shifted, -HYPER.theta / rho, HYPER.theta / rho)
        P = shifted - within
        return P, rho * within, jnp.max(jnp.abs(G - B - P))

    return {
        "W": bind(jpltd.update_projection, data, state, target),
        "G": bind(ridge, latent, target, split, data.problem.mask),
        "E": bind(lambda latent, rho: shrink_columns(latent, 1 / rho), latent, state.rho),
        "B": bind(lambda g, rho: tubal_shrink(g, HYPER.lam / rho), state.G, state.rho),
        "P and multipliers": bind(sparse_part, state.G, state.B, state.J2, state.rho),
    }


def measure(n: int, latent_dim: int, repeats: int) -> dict[str, float]:
    views, mask = make(n)
    problem = jj.make_problem(views, mask, dtype="float32")
    config = replace(jj.PUBLISHED, latent_dim=latent_dim)

    def solve(problem: jj.Problem) -> Solution:
        return jj.solve(problem, HYPER, config, loop=jj.Loop(max_iter=ITERATIONS))

    start = time.perf_counter()
    memory = jax.jit(solve).lower(problem).compile().memory_analysis()
    compiling = time.perf_counter() - start
    state = solve(problem).state
    used = memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
    calls = unavoidable(problem, state) | parts(jpltd.prepare(problem, 1, config), state)
    times = medians({"solve": lambda: solve(problem), **calls}, repeats)
    solved = times.pop("solve")
    least = times["products"] + times["fft"] + times["read and write"]
    row = {"n": n, "compile": compiling, "solve": solved, "iteration": solved / ITERATIONS, "unavoidable": least}
    row |= {"ratio": row["iteration"] / least, "memory": used / state.G.nbytes, **times}
    if n == LITERAL_SIZE:
        row["literal"] = literal(views, mask, latent_dim)
    return row


def literal(views: list[np.ndarray], mask: np.ndarray, latent_dim: int) -> float:
    """Seconds of the paper's steps as they are written: Sylvester equation, full FFT, an SVD of every slice."""
    sys.path.insert(0, str(HERE.parents[1]))
    from tests import literal_jpltd

    start = time.perf_counter()
    weights = {"lam": HYPER.lam, "theta": HYPER.theta}
    options = {"latent_dim": latent_dim, "iterations": ITERATIONS, "variant": "full", "updates": "paper"}
    literal_jpltd.run(views, mask, **weights, **options)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[250, 500, 997, 1000, 2000, 4000])
    parser.add_argument("--latent-dim", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    rows = []
    for n in arguments.sizes:
        row = measure(n, arguments.latent_dim, arguments.repeats)
        rows.append(row)
        shown = ", ".join(f"{name} {1e3 * row[name]:.1f}" for name in row if name not in NOT_TIMES)
        ratios = f"iteration {row['ratio']:.2f} x the unavoidable work, memory {row['memory']:.1f} x G"
        print(f"n = {n}: {ratios}; milliseconds: {shown}", flush=True)
        if "literal" in row:
            print(f"   literal steps {row['literal']:.1f} s, {row['literal'] / row['solve']:.0f} x", flush=True)
    regular = [row for row in rows if row["n"] != PRIME]
    for a, b in itertools.pairwise(regular):
        exponent = np.log(b["iteration"] / a["iteration"]) / np.log(b["n"] / a["n"])
        print(f"from n = {a['n']} to {b['n']}: time grows as n^{exponent:.2f}")
    with (HERE / "iteration.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list({name: None for row in rows for name in row}))
        writer.writeheader()
        writer.writerows([{k: x if k == "n" else float(f"{x:.4g}") for k, x in row.items()} for row in rows])
    plot(regular)


def plot(rows: list[dict[str, float]]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    n = [row["n"] for row in rows]
    for name, style in (("iteration", "o-"), ("unavoidable", "s--"), ("W", ":"), ("G", ":"), ("B", ":")):
        axes.loglog(n, [1e3 * row[name] for row in rows], style, label=name)
    axes.set(xlabel="samples", ylabel="milliseconds", title="One iteration, 3 views, float32")
    axes.legend()
    figure.savefig(HERE / "iteration.png", dpi=100)


if __name__ == "__main__":
    main()
