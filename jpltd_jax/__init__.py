"""Clustering of incomplete multi-view data in JAX: views + mask -> problem -> labels -> scores."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from jpltd_jax.sweeps.grid import grid
    from jpltd_jax.sweeps.plan import Run
    from jpltd_jax.sweeps.run import sweep

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

_HOMES = {
    "audit": ["audit_leak", "audit_order"],
    "estimator": ["JPLTD", "Clusterer"],
    "loop": ["Loop", "Status"],
    "methods.jpltd": ["ORDER_FREE", "PUBLISHED", "Config", "Hyper", "solve"],
    "pipeline": ["cluster", "fit"],
    "problem": ["Problem", "make_problem"],
    "sharding": ["shard_samples"],
    "sweeps.grid": ["grid"],
    "sweeps.plan": ["Run"],
    "sweeps.run": ["sweep"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import names when they are first used, so that ``jpltd --help`` does not wait for JAX."""
    if name in _HOME:
        found = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    elif not name.startswith("__") and find_spec(f"{__name__}.{name}") is not None:
        found = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
