"""Clustering of incomplete multi-view data in JAX: views + mask -> problem -> labels -> scores."""

from jpltd_jax import (
    datasets,
    graphs,
    methods,
    metrics,
    missing,
    optimality,
    plotting,
    prox,
    spectral,
    tensor,
    transforms,
)
from jpltd_jax.audit import audit_leak, audit_order
from jpltd_jax.estimator import JPLTD, Clusterer
from jpltd_jax.loop import Loop, Status
from jpltd_jax.methods.jpltd import ORDER_FREE, PUBLISHED, Config, Hyper, solve
from jpltd_jax.pipeline import cluster, fit
from jpltd_jax.problem import Problem, make_problem
from jpltd_jax.sharding import shard_samples
from jpltd_jax.sweeps import Run, grid, sweep

__version__ = "0.1.0"

__all__ = [
    "JPLTD",
    "ORDER_FREE",
    "PUBLISHED",
    "Clusterer",
    "Config",
    "Hyper",
    "Loop",
    "Problem",
    "Run",
    "Status",
    "audit_leak",
    "audit_order",
    "cluster",
    "datasets",
    "fit",
    "graphs",
    "grid",
    "make_problem",
    "methods",
    "metrics",
    "missing",
    "optimality",
    "plotting",
    "prox",
    "shard_samples",
    "solve",
    "spectral",
    "sweep",
    "tensor",
    "transforms",
]
