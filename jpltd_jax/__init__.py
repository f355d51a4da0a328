"""Clustering of incomplete multi-view data in JAX: views + mask -> Problem -> Result -> labels -> scores."""

from jpltd_jax import (
    admm,
    audit,
    baselines,
    blocks,
    chunked,
    datasets,
    graphs,
    metrics,
    missing,
    optimality,
    plotting,
    problem,
    prox,
    selection,
    spectral,
    store,
    tensor,
    transforms,
    views,
)
from jpltd_jax.admm import (
    Hyper,
    Info,
    Result,
    State,
    Status,
    augmented_lagrangian,
    init,
    objective,
    solve,
    step,
)
from jpltd_jax.audit import OrderAudit, audit_order
from jpltd_jax.chunked import solve_chunked
from jpltd_jax.estimator import JPLTD
from jpltd_jax.problem import Problem, make_problem
from jpltd_jax.spectral import affinity, kmeans, spectral_cluster, spectral_embedding
from jpltd_jax.sweep import Grid, SweepResult, grid, sweep

__version__ = "0.1.0"

__all__ = [
    "JPLTD",
    "Grid",
    "Hyper",
    "Info",
    "OrderAudit",
    "Problem",
    "Result",
    "State",
    "Status",
    "SweepResult",
    "admm",
    "affinity",
    "audit",
    "audit_order",
    "augmented_lagrangian",
    "baselines",
    "blocks",
    "chunked",
    "datasets",
    "graphs",
    "grid",
    "init",
    "kmeans",
    "make_problem",
    "metrics",
    "missing",
    "objective",
    "optimality",
    "plotting",
    "problem",
    "prox",
    "selection",
    "solve",
    "solve_chunked",
    "spectral",
    "spectral_cluster",
    "spectral_embedding",
    "step",
    "store",
    "sweep",
    "tensor",
    "transforms",
    "views",
]
