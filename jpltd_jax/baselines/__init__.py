"""The methods JPLTD was compared with, one module each, in one form.

``fit(views, mask, n_clusters, *, key, ...) -> BaselineResult``.
"""

from jpltd_jax.baselines.base import BaselineResult

__all__ = ["BaselineResult"]
