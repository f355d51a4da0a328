"""Fig. 5: residuals of the constraints of JPLTD, each over its largest value, until they fall below the tolerance.

    python experiments/fig5.py DATA_DIRECTORY

ORL (recomputed features), NGs, BBCSport as in the paper, and MSRC-v1 in place of RGB-D, which is not available; missing
rate 0.7, file order, lam 5, theta 0.1, latent_dim 100, at most 100 iterations. Writes figures/fig5.png.
"""

from dataclasses import replace

from figures import data_directory, panels, save
from protocol import load_case

import jpltd_jax as jj
from jpltd_jax.plotting import plot_history

CONFIG = replace(jj.PUBLISHED, latent_dim=100)
SETS = ("orl_recomputed", "ngs", "bbcsport", "msrcv1")


def main() -> None:
    data_directory(__doc__)
    figure, axes = panels(1, len(SETS), 3.0)
    for ax, name in zip(axes[0], SETS, strict=True):
        case = load_case(name, 0.7, "file")
        problem = jj.make_problem(case.views, case.mask, dtype="float32")
        solution = jj.solve(problem, jj.Hyper(lam=5.0), CONFIG, loop=jj.Loop(max_iter=100))
        plot_history(solution.history, normalize=True, ax=ax)
        ax.axvline(30, color="0.5", linewidth=0.8, linestyle=":")
        ax.set_title(name)
        if name != SETS[0]:
            ax.set_ylabel("")
            ax.get_legend().remove()
        print(f"{name}: {solution.status.name} after {int(solution.n_iter)} iterations", flush=True)
    save(figure, "fig5")


if __name__ == "__main__":
    main()
