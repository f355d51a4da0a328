"""What the scripts of the figures share: their command line, the chosen configuration, and where the images go."""

import argparse
import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from protocol import HERE, QUICK_GRID, best_over_grid, load_case, variant

import jpltd_jax as jj
from jpltd_jax.loop import Solution

FIGURES = HERE / "figures"


def data_directory(description: str) -> None:
    """Read the command line, which has the data directory, and name it to :func:`jpltd_jax.datasets.load`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="directory with NAME.npz of every set, and masks.npz if there is one")
    os.environ["JPLTD_DATA"] = str(parser.parse_args().data)


def panels(rows: int, columns: int, size: float = 2.4) -> tuple[Any, np.ndarray]:
    return plt.subplots(rows, columns, figsize=(size * columns, size * rows), layout="constrained", squeeze=False)


def save(figure: Any, name: str) -> None:
    """Write NAME.png with few enough dots and colours to stay small."""
    FIGURES.mkdir(exist_ok=True)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=80)
    plt.close(figure)
    Image.open(drawn).convert("RGB").quantize(32).save(FIGURES / f"{name}.png", optimize=True)
    print(f"wrote {name}.png", flush=True)


def best_solve(
    name: str, rate: float, order: str, *, which: str = "full", theta: float | None = None
) -> tuple[np.ndarray, Solution]:
    """Classes, and the solve with the best configuration of the quick grid by the labels, or another theta with it."""
    setting = variant(which)
    best = best_over_grid(name, rate, order, QUICK_GRID, setting=setting)
    case = load_case(name, rate, order)
    problem = jj.make_problem(case.views, case.mask, dtype="float32")
    hyper = jj.Hyper(lam=best["lam"], theta=best["theta"] if theta is None else theta)
    config = replace(setting.config, latent_dim=best["latent_dim"])
    return case.labels, jj.solve(problem, hyper, config, loop=jj.Loop(max_iter=setting.max_iter))
