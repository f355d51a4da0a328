"""The scikit-learn estimator: a list of views in, labels out."""

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from jpltd_jax.admm import Hyper, Order, Result, Start, Status, Variant
from jpltd_jax.assign import Model, assign
from jpltd_jax.chunked import solve_chunked
from jpltd_jax.graphs import consensus_graph, graph_transform, sparsify, within_reach
from jpltd_jax.problem import Problem, further_samples, make_problem
from jpltd_jax.selection import choose_lam, neighbours_kept
from jpltd_jax.spectral import embed, kmeans
from jpltd_jax.transforms import AnyTransform
from jpltd_jax.views import align_views

EARLY_STOP = 30
"""The authors' code always stops here; up to this many iterations, not having converged is no cause for a warning."""


class Settings(NamedTuple):
    """What a transform works well with."""

    lam: float
    w_init: Start
    n_reach: int | None
    n_kept: int | None
    """At most; see :func:`jpltd_jax.selection.neighbours_kept`."""


SETTINGS = {
    "graph": Settings(lam=0.25, w_init="svd", n_reach=25, n_kept=20),
    "fourier": Settings(lam=5.0, w_init="identity", n_reach=None, n_kept=None),
}
"""Used where the estimator's own parameters are None: one setting for all data."""


def progress_line(total: int, label: str, stream: Any = None) -> Callable[[int, str], None]:
    """A function (done, note) that redraws one line of progress on ``stream`` (default: standard error)."""
    out = sys.stderr if stream is None else stream
    start = time.monotonic()

    def show(done: int, note: str) -> None:
        filled = 20 * done // total
        left = (time.monotonic() - start) / max(done, 1) * (total - done)
        end = "\n" if done >= total else ""
        out.write(f"\r{label} [{'#' * filled}{'.' * (20 - filled)}] {done}/{total} {note} {left:4.0f} s left{end}")
        out.flush()

    return show


class JPLTD(ClusterMixin, BaseEstimator):
    """Cluster samples that are described by several views, with views missing for some of them.

    By default the labels do not depend on the order of the samples: the tensor norm of the model uses the eigenvectors
    of a neighbour graph (``transform="graph"``). ``transform="fourier"`` is the method as published, whose result does
    depend on it: on files sorted by class it is far better than on the same samples shuffled.

    Parameters
    ----------
    n_clusters
        Number of clusters.
    lam, theta
        Weights of the low-rank and of the sparse tensor. ``lam=None`` is 0.25 with the graph transform and 5 with the
        Fourier transform; ``lam="auto"`` picks, from :data:`jpltd_jax.selection.LAMS`, the value with the clearest
        clusters by :func:`jpltd_jax.selection.clarity`. None of them needs labels.
    latent_dim
        Dimension of the projected views.
    max_iter, tol
        At most so many iterations; 30, the default, is early stopping as in the authors' code.
    transform
        ``"graph"`` or ``"fourier"``.
    n_neighbors
        Neighbours of each sample in the graph that makes the transform.
    n_anchors
        Represent the samples by so many of them, chosen by :func:`jpltd_jax.anchors.choose_anchors`: cost and memory
        become linear in n. None is all.
    n_vectors
        Eigenvectors of that graph to use, the rest being one slice, at O(n^2 n_vectors) per iteration. None is all up
        to 3000 samples and 500 above.
    n_reach
        The learned affinity is set to zero between samples that share a view but are in none among each other's
        ``n_reach`` nearest, see :func:`jpltd_jax.graphs.within_reach`. None is 25 with the graph transform; with the
        Fourier transform nothing is set to zero, as published.
    n_kept
        Neighbours of each sample that are then kept in the learned affinity. With the graph transform None is 20, or
        the mean size of a cluster where that is less; with the Fourier transform it is all, as published.
    variant, order
        See :func:`jpltd_jax.solve`.
    w_init
        See :func:`jpltd_jax.init`. None is ``"svd"`` with the graph transform and ``"identity"`` with the Fourier
        transform.
    n_init
        Restarts of k-means.
    random_state
        Seed of k-means; nothing else is random.
    verbose
        Whether to draw a line of progress on standard error.

    Attributes
    ----------
    labels_ : (n,) int array
    affinity_ : (n, n) float array, on which the samples were clustered; (n, n_anchors) with anchors
    embedding_ : (n, n_clusters) float array, its spectral embedding
    n_iter_ : int
    status_ : :class:`jpltd_jax.Status`
    history_ : :class:`jpltd_jax.Info`, residuals after each iteration
    lam_ : float, the value used
    sample_ids_ : (n,) array, whose label each one is; 0..n-1 for views without ids
    n_features_in_ : list of int, the width of each view

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> data = jj.datasets.make_blobs(0, n_samples=60, dims=(10, 8))
    >>> views = [view.copy() for view in data.views]
    >>> views[0][:20] = float("nan")
    >>> labels = jj.JPLTD(n_clusters=3, random_state=0).fit_predict(views)
    >>> float(jj.metrics.accuracy(data.labels, labels))
    1.0
    """

    _parameter_constraints: ClassVar = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "lam": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"}), None],
        "theta": [Interval(Real, 0, None, closed="left")],
        "latent_dim": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "transform": [StrOptions({"graph", "fourier"})],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "n_anchors": [Interval(Integral, 1, None, closed="left"), None],
        "n_vectors": [Interval(Integral, 1, None, closed="left"), None],
        "n_reach": [Interval(Integral, 1, None, closed="left"), None],
        "n_kept": [Interval(Integral, 1, None, closed="left"), None],
        "variant": [StrOptions({"full", "N", "B", "O"})],
        "order": [StrOptions({"paper", "reference"})],
        "w_init": [StrOptions({"identity", "svd"}), None],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "verbose": ["boolean"],
    }

    def __init__(
        self,
        n_clusters: int,
        *,
        lam: float | Literal["auto"] | None = None,
        theta: float = 0.1,
        latent_dim: int = 60,
        max_iter: int = EARLY_STOP,
        tol: float = 1e-5,
        transform: Literal["graph", "fourier"] = "graph",
        n_neighbors: int = 10,
        n_anchors: int | None = None,
        n_vectors: int | None = None,
        n_reach: int | None = None,
        n_kept: int | None = None,
        variant: Variant = "full",
        order: Order = "paper",
        w_init: Start | None = None,
        n_init: int = 20,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.lam = lam
        self.theta = theta
        self.latent_dim = latent_dim
        self.max_iter = max_iter
        self.tol = tol
        self.transform = transform
        self.n_neighbors = n_neighbors
        self.n_anchors = n_anchors
        self.n_vectors = n_vectors
        self.n_reach = n_reach
        self.n_kept = n_kept
        self.variant = variant
        self.order = order
        self.w_init = w_init
        self.n_init = n_init
        self.random_state = random_state
        self.verbose = verbose

    def _solve(self, problem: Problem, lam: float, transform: AnyTransform | None) -> Result:
        hyper = Hyper(lam=lam, theta=self.theta, tol=self.tol)
        show = progress_line(int(self.max_iter), f"lam={lam:g}") if self.verbose else None
        result = solve_chunked(
            problem,
            hyper,
            latent_dim=int(self.latent_dim),
            max_iter=int(self.max_iter),
            callback=None if show is None else lambda done, fit, split: show(done, f"residual {max(fit, split):.1e}"),
            variant=self.variant,
            order=self.order,
            transform=transform,
            w_init=SETTINGS[self.transform].w_init if self.w_init is None else self.w_init,
        )
        if int(result.status) == Status.RUNNING:
            raise KeyboardInterrupt(f"interrupted after iteration {int(result.n_iter)}")
        return result

    def _check(self, result: Result, lam: float) -> None:
        status = Status(int(result.status))
        if status is Status.EMPTY:
            raise ValueError(f"the learned affinity is zero with lam={lam:g}: lower lam")
        if status is Status.NONFINITE:
            raise FloatingPointError(f"iteration {int(result.n_iter)} gave a number that is not finite")
        if status is Status.MAX_ITER and self.max_iter > EARLY_STOP:
            worst = max(float(record[int(result.n_iter) - 1]) for record in result.history)
            warnings.warn(
                f"residual {worst:.1e} is above tol={self.tol:g} after {int(result.n_iter)} iterations: raise max_iter",
                ConvergenceWarning,
                stacklevel=3,
            )

    def fit(
        self, Xs: Sequence[Any], y: None = None, *, mask: ArrayLike | None = None, ids: Sequence[Any] | None = None
    ) -> "JPLTD":
        """Cluster the samples of ``Xs``.

        Parameters
        ----------
        Xs
            List of views, samples as rows: arrays, sparse matrices or DataFrames. A row of NaN is a missing view.
            DataFrames are matched by their index; a sample that a view's index lacks is missing in that view.
        y
            Not used.
        mask
            (n, m) bool, True where observed.
        ids
            For arrays: one sequence of sample ids per view, to match the samples by.
        """
        self._validate_params()
        aligned = align_views(Xs, mask=mask, ids=ids)
        problem = make_problem(
            aligned.views, aligned.mask, anchors=None if self.n_anchors is None else int(self.n_anchors)
        )
        if self.n_clusters > problem.n_samples:
            raise ValueError(f"n_clusters={self.n_clusters} is more than the number of samples {problem.n_samples}")
        transform = None
        if self.transform == "graph":
            n_vectors = None if self.n_vectors is None else int(self.n_vectors)
            transform = graph_transform(consensus_graph(problem.dictionary, int(self.n_neighbors)), n_vectors)
        n_reach = SETTINGS[self.transform].n_reach if self.n_reach is None else int(self.n_reach)
        most = neighbours_kept(SETTINGS[self.transform].n_kept, problem.n_samples, int(self.n_clusters))
        n_kept = most if self.n_kept is None else int(self.n_kept)

        def affinity_of(result: Result) -> jax.Array:
            near = result.affinity if n_reach is None else within_reach(result.affinity, problem, n_reach)
            return near if n_kept is None else sparsify(near, n_kept)

        if self.lam == "auto":
            lam, result = choose_lam(
                lambda lam: self._solve(problem, lam, transform), affinity_of, int(self.n_clusters)
            )
        else:
            lam = SETTINGS[self.transform].lam if self.lam is None else float(self.lam)
            result = self._solve(problem, lam, transform)
        self._check(result, lam)
        affinity = affinity_of(result)
        embedding = embed(affinity, int(self.n_clusters))
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        clusters = kmeans(jax.random.key(seed), embedding.embedding, int(self.n_clusters), n_init=int(self.n_init))
        self.labels_ = np.asarray(clusters.labels)
        self.affinity_ = np.asarray(affinity)
        self.embedding_ = np.asarray(embedding.embedding)
        self.n_iter_ = int(result.n_iter)
        self.status_ = Status(int(result.status))
        self.history_ = jax.tree.map(np.asarray, result.history)
        self.lam_ = lam
        self.sample_ids_ = aligned.sample_ids
        self.n_features_in_ = [int(view.shape[1]) for view in map(_with_shape, aligned.views)]
        self._model = Model(problem.dictionary, result.state.W, embedding, clusters.centers)
        self._thinning = {"n_reach": n_reach, "n_kept": n_kept}
        return self

    def predict(self, Xs: Sequence[Any], *, mask: ArrayLike | None = None) -> np.ndarray:
        """Labels of samples that the model was not fitted on; each needs one of the views, whichever.

        They are projected, represented by the fitted samples (or anchors) and placed in their embedding; nothing is
        learned from them, and one sample's label does not depend on the others. See :func:`jpltd_jax.assign.assign`.
        """
        check_is_fitted(self)
        samples = further_samples(self._model.dictionary, Xs, mask)
        return np.asarray(assign(self._model, samples, **self._thinning))

    def fit_predict(
        self, Xs: Sequence[Any], y: None = None, *, mask: ArrayLike | None = None, ids: Sequence[Any] | None = None
    ) -> np.ndarray:
        """Cluster the samples of ``Xs`` and return their labels; see :meth:`fit`."""
        return self.fit(Xs, y, mask=mask, ids=ids).labels_


def _with_shape(view: Any) -> Any:
    return view if hasattr(view, "shape") else np.asarray(view)
