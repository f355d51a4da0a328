"""Sweeps over grids: which configurations, what they share, what fits, what is kept, and the run itself."""

from jpltd_jax.sweeps.grid import Grid, grid, listed
from jpltd_jax.sweeps.plan import Run, available_memory
from jpltd_jax.sweeps.run import sweep
from jpltd_jax.sweeps.store import SweepResult, merge_stores

__all__ = ["Grid", "Run", "SweepResult", "available_memory", "grid", "listed", "merge_stores", "sweep"]
