"""The methods JPLTD was compared with, one module each, in one form.

``fit(views, mask, n_clusters, *, key, ...) -> BaselineResult``; :data:`METHODS` names them all, :class:`Baseline` is
the scikit-learn estimator of any of them.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state

from jpltd_jax.baselines import climc, hcp_imsc, imvc_cbg, imvtsc_mvi, tc_imvc, tmbsd, ueaf, vcl_imvc
from jpltd_jax.baselines.base import BaselineResult
from jpltd_jax.views import align_views

METHODS: Mapping[str, Callable[..., BaselineResult]] = {
    "ueaf": ueaf.fit,
    "climc_sc": climc.fit_sc,
    "climc": climc.fit,
    "imvc_cbg": imvc_cbg.fit,
    "imvtsc_mvi": imvtsc_mvi.fit,
    "tmbsd": tmbsd.fit,
    "tc_imvc": tc_imvc.fit,
    "vcl_imvc": vcl_imvc.fit,
    "hcp_imsc": hcp_imsc.fit,
}
"""By name, in the order of the paper's Table 2 (which has CLIMC-SC, not CLIMC)."""

RECONSTRUCTIONS = frozenset({"climc", "climc_sc", "vcl_imvc"})
"""Methods written from their articles, without a program or recorded run of the authors to compare with."""


class Baseline(ClusterMixin, BaseEstimator):
    """Any baseline as a scikit-learn estimator.

    Parameters
    ----------
    method
        A name in :data:`METHODS`.
    n_clusters
        Number of clusters.
    params
        Further arguments of the method's ``fit``, by name.
    random_state
        Seed.

    Attributes
    ----------
    labels_ : (n,) int array
    result_ : :class:`BaselineResult`
    sample_ids_ : (n,) array, whose label each one is

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> data = jj.datasets.make_blobs(0, n_samples=60, dims=(10, 8))
    >>> model = jj.baselines.Baseline("imvc_cbg", 3, params={"lam": 1.0}, random_state=0)
    >>> float(jj.metrics.accuracy(data.labels, model.fit_predict(data.views)))
    1.0
    """

    def __init__(
        self, method: str, n_clusters: int, *, params: Mapping[str, Any] | None = None, random_state: Any = None
    ) -> None:
        self.method = method
        self.n_clusters = n_clusters
        self.params = params
        self.random_state = random_state

    def fit(
        self, Xs: Sequence[Any], y: None = None, *, mask: ArrayLike | None = None, ids: Sequence[Any] | None = None
    ) -> "Baseline":
        """Cluster the samples of ``Xs``; arguments as of :meth:`jpltd_jax.JPLTD.fit`."""
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}; got {self.method!r}")
        method, params = METHODS[self.method], dict(self.params or {})
        accepted = [name for name, p in inspect.signature(method).parameters.items() if p.kind is p.KEYWORD_ONLY]
        accepted.remove("key")
        for name in params:
            if name not in accepted:
                raise ValueError(f"{self.method} has no parameter {name!r}; it has {', '.join(accepted)}")
        aligned = align_views(Xs, mask=mask, ids=ids)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        self.result_ = method(aligned.views, aligned.mask, int(self.n_clusters), key=jax.random.key(seed), **params)
        self.labels_ = np.asarray(self.result_.labels)
        self.sample_ids_ = aligned.sample_ids
        return self

    def fit_predict(
        self, Xs: Sequence[Any], y: None = None, *, mask: ArrayLike | None = None, ids: Sequence[Any] | None = None
    ) -> np.ndarray:
        """Cluster the samples of ``Xs`` and return their labels; see :meth:`fit`."""
        return self.fit(Xs, y, mask=mask, ids=ids).labels_


__all__ = [
    "METHODS",
    "RECONSTRUCTIONS",
    "Baseline",
    "BaselineResult",
    "climc",
    "hcp_imsc",
    "imvc_cbg",
    "imvtsc_mvi",
    "tc_imvc",
    "tmbsd",
    "ueaf",
    "vcl_imvc",
]
