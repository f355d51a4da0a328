"""Fig. 4: accuracy of JPLTD over lam, theta and latent_dim, in file order and shuffled, for every rate.

    python experiments/fig4.py DATA_DIRECTORY

On MSRC-v1 (the paper: ORL and RGB-D, whose features are not available), one mask per rate. lam and theta: the paper's
72 pairs at latent_dim 70; latent_dim: the paper's ten values at lam 5, theta 0.1. One run of the spectral step each.
Finished configurations are shared with table2.py. Writes figures/fig4_lam_theta.png and figures/fig4_latent_dim.png.
"""

import numpy as np
from figures import data_directory, panels, save
from protocol import ORDERS, PAPER_GRID, RATES, sweep_case

from jpltd_jax.plotting import plot_score_grid

NAME = "msrcv1"
LATENT_DIMS = tuple(range(10, 101, 10))


def main() -> None:
    data_directory(__doc__)
    lams, thetas = PAPER_GRID.lam, PAPER_GRID.theta
    figure, axes = panels(2, len(RATES), 3.0)
    for row, order in zip(axes, ORDERS, strict=True):
        for ax, rate in zip(row, RATES, strict=True):
            found = sweep_case(NAME, rate, order, {"lam": lams, "theta": thetas, "latent_dim": 70}).rows
            scores = 100 * np.reshape([x["accuracy"] for x in found], (len(lams), len(thetas)))
            title = f"{'file order' if order == 'file' else order}, p = {rate}"
            plot_score_grid(scores, lams, thetas, ax=ax, title=title)
            print(f"{order} {rate}: best {np.nanmax(scores):.1f}", flush=True)
    save(figure, "fig4_lam_theta")

    figure, axes = panels(1, 2, 3.2)
    for ax, order in zip(axes[0], ORDERS, strict=True):
        for rate in RATES:
            found = sweep_case(NAME, rate, order, {"lam": 5.0, "theta": 0.1, "latent_dim": LATENT_DIMS}).rows
            ax.plot(LATENT_DIMS, [100 * x["accuracy"] for x in found], marker="o", markersize=3, label=f"p = {rate}")
        ax.set(title="file order" if order == "file" else order, xlabel="latent_dim", ylim=(0, 102))
    axes[0, 0].set_ylabel("accuracy (%)")
    axes[0, 1].legend(frameon=False)
    save(figure, "fig4_latent_dim")


if __name__ == "__main__":
    main()
