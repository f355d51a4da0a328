"""Fig. 6: graph of JPLTD-B, sparse part and intrinsic part of JPLTD, in file order and shuffled.

    python experiments/fig6.py DATA_DIRECTORY

The first ten classes of ORL (recomputed features) at missing rate 0.5, samples grouped by class for display only, each
method with its best configuration of the quick grid by the labels; the sparse part also with the paper's least theta,
since it is empty with the best one. Writes figures/fig6.png.
"""

import jax.numpy as jnp
import numpy as np
from figures import best_solve, data_directory, panels, save
from protocol import ORDERS

import jpltd_jax as jj
from jpltd_jax.plotting import plot_affinity

NAME, RATE, CLASSES, SMALL_THETA = "orl_recomputed", 0.5, 10, 0.01


def main() -> None:
    data_directory(__doc__)
    figure, axes = panels(2, 4)
    for row, order in zip(axes, ORDERS, strict=True):
        labels, whole = best_solve(NAME, RATE, order)
        _, without_sparse = best_solve(NAME, RATE, order, which="B")
        _, with_sparse = best_solve(NAME, RATE, order, theta=SMALL_THETA)
        graphs = {
            "JPLTD-B": without_sparse.affinity,
            "JPLTD, intrinsic part": whole.affinity,
            "JPLTD, sparse part": jj.spectral.affinity(whole.state.P),
            f"sparse part, theta {SMALL_THETA}": jj.spectral.affinity(with_sparse.state.P),
        }
        kept = labels < CLASSES
        for ax, (title, graph) in zip(row, graphs.items(), strict=True):
            plot_affinity(np.asarray(graph)[np.ix_(kept, kept)], labels[kept], ax=ax, title=title)
            ax.set_xlabel("")
            print(f"{order}, {title}: {float(jnp.mean(graph != 0)):.3f} of the entries are not zero", flush=True)
        row[0].set_ylabel("file order" if order == "file" else order)
    save(figure, "fig6")


if __name__ == "__main__":
    main()
