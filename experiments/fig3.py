"""Fig. 3: learned graphs by missing rate, of JPLTD and IMVTSC-MVI, in file order and shuffled.

    python experiments/fig3.py DATA_DIRECTORY

MSRC-v1 for both methods; the first ten classes of ORL, recomputed, for JPLTD. In every panel the samples are grouped by
their true class, for display only. JPLTD with the best configuration of the quick grid by the labels, IMVTSC-MVI with
its default. Writes figures/fig3_msrcv1.png and figures/fig3_orl.png.
"""

import jax
import numpy as np
from figures import best_solve, data_directory, panels, save
from protocol import ORDERS, load_case

import jpltd_jax as jj
from jpltd_jax.plotting import plot_affinity

SHOWN = (0.1, 0.5, 0.7)


def jpltd(name: str, rate: float, order: str) -> tuple[np.ndarray, np.ndarray]:
    labels, solution = best_solve(name, rate, order)
    return labels, np.asarray(solution.affinity)


def imvtsc(name: str, rate: float, order: str) -> tuple[np.ndarray, np.ndarray]:
    case = load_case(name, rate, order)
    with jax.enable_x64(True):
        views = [x.astype(float) for x in case.views]
        found = jj.fit("imvtsc_mvi", views, case.mask, case.n_clusters, key=jax.random.key(0))
    return case.labels, np.asarray(found.affinity)


def draw(name: str, methods: dict, n_classes: int, file: str) -> None:
    figure, axes = panels(2 * len(methods), len(SHOWN), 1.6)
    lines = [(method, learn, order) for method, learn in methods.items() for order in ORDERS]
    for row, (method, learn, order) in zip(axes, lines, strict=True):
        for ax, rate in zip(row, SHOWN, strict=True):
            labels, affinity = learn(name, rate, order)
            kept = labels < n_classes
            plot_affinity(affinity[np.ix_(kept, kept)], labels[kept], ax=ax, title=f"p = {rate}")
            ax.set_xlabel("")
        row[0].set_ylabel(f"{method}\n{'file order' if order == 'file' else order}")
    save(figure, file)


def main() -> None:
    data_directory(__doc__)
    draw("msrcv1", {"JPLTD": jpltd, "IMVTSC-MVI": imvtsc}, 7, "fig3_msrcv1")
    draw("orl_recomputed", {"JPLTD": jpltd}, 10, "fig3_orl")


if __name__ == "__main__":
    main()
