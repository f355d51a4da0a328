"""scikit-learn estimators: a list of views in, labels out."""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from numbers import Integral, Real
from os import PathLike
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from jpltd_jax import methods
from jpltd_jax._host import progress_line
from jpltd_jax._types import check_count
from jpltd_jax.loop import Loop, Method, Status
from jpltd_jax.memory import free_memory, plan_fit, predicted_memory
from jpltd_jax.methods.jpltd import ORDER_FREE, PUBLISHED_HYPER, Config, Hyper
from jpltd_jax.pipeline import Clustering, Model, cluster, margins, method_of, nearest_center, place
from jpltd_jax.preparation import apply_preparations, prepare_views
from jpltd_jax.problem import Problem, check_features, further_samples, make_problem, warn_of_shift
from jpltd_jax.quality import unconnected
from jpltd_jax.saving import load_model, save_model
from jpltd_jax.selection import NumbersOfClusters, choose_lam, compare_numbers_of_clusters
from jpltd_jax.views import (
    Views,
    ViewsLike,
    count_distinct,
    match_views,
    read_views,
    read_views_to_learn_from,
    warn_of_nothing_to_learn,
)

__all__ = ["JPLTD", "Clusterer"]

CHUNK = 5
"""Iterations between two looks of the host."""

PAIRS = 10_000_000
"""Of a new sample and a sample of the dictionary, that are held at once."""

NUMBERS_OF_CLUSTERS = range(2, 21)
"""What ``n_clusters="auto"`` tries, as far as there are three samples per cluster."""

POSITIVE = Interval(Integral, 1, None, closed="left")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")


class _MultiViewClusterer(ClusterMixin, BaseEstimator):
    """What the estimators share: reading views, iterating with progress, and the fitted attributes."""

    n_clusters: Any
    max_iter: int | None
    checkpoint: str | PathLike[str] | None
    random_state: Any
    verbose: bool | int

    def _loop(self, method: Method, note: str) -> Loop:
        max_iter = method.max_iter if self.max_iter is None else int(self.max_iter)
        callback = None
        if self.verbose:
            show = progress_line(max_iter, note)

            def callback(done: int, watched: Any) -> None:
                show(done, f"{max(float(np.max(x)) for x in jax.tree.leaves(watched)):.1e}")

        return Loop(max_iter=max_iter, every=CHUNK, callback=callback, checkpoint=self.checkpoint)

    def _number(self, problem: Problem, hyper: Any, config: Any, seed: int) -> int:
        """The number of clusters."""
        return int(self.n_clusters)

    def _find(
        self, key: jax.Array, problem: Problem, hyper: Any, config: Any, method: Method
    ) -> tuple[Any, Clustering]:
        """The hyper-parameters used, and the clustering."""
        loop = self._loop(method, f"{method.title} in float64" if method.needs_x64 else method.title)
        return hyper, cluster(key, problem, hyper, self.n_clusters_, config, method=method, loop=loop)

    def _cluster(self, views: Views, problem: Problem, hyper: Any, config: Any, method: Method) -> Clustering:
        if isinstance(self.n_clusters, Integral):
            check_count("n_clusters", int(self.n_clusters), len(views.ids))
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        with self._naming_sizes(views):
            self.n_clusters_ = self._number(problem, hyper, config, seed)
        distinct = count_distinct(views, self.n_clusters_)
        if distinct < self.n_clusters_:
            warnings.warn(f"fewer distinct samples ({distinct}) than clusters ({self.n_clusters_})", stacklevel=3)
        with self._naming_sizes(views):
            hyper, found = jax.block_until_ready(self._find(jax.random.key(seed), problem, hyper, config, method))
        status, n_iter = found.solution.status, int(found.solution.n_iter)
        if status is Status.RUNNING:
            raise KeyboardInterrupt(f"interrupted after iteration {n_iter}")
        if status is Status.NONFINITE:
            raise FloatingPointError(f"iteration {n_iter} gave a number that is not finite")
        if status is Status.EMPTY:
            raise ValueError(f"the learned affinity is zero {self._why_empty(views, hyper, n_iter)}")
        self.labels_ = np.asarray(found.labels)
        self.affinity_ = None if found.affinity is None else np.asarray(found.affinity)
        self.embedding_ = np.asarray(found.embedding)
        self.n_iter_ = n_iter
        self.status_ = status
        self.history_ = jax.tree.map(np.asarray, found.solution.history)
        self.hyper_ = hyper
        self.sample_ids_ = views.ids
        self.n_features_in_ = [int(matrix.shape[1]) for matrix in views.matrices]
        self.view_names_in_, self.feature_names_in_ = views.names, views.features
        n_found = len(np.unique(self.labels_))
        if n_found < self.n_clusters_:
            warnings.warn(f"found {n_found} of the {self.n_clusters_} clusters asked for", stacklevel=3)
        return found

    def _why_empty(self, views: Views, hyper: Any, n_iter: int) -> str:
        return f"with {hyper}"

    @contextlib.contextmanager
    def _naming_sizes(self, views: Views) -> Iterator[None]:
        """Turn JAX's error of memory into one that says what took it, and what helps."""
        try:
            yield
        except (MemoryError, jax.errors.JaxRuntimeError) as error:
            if not isinstance(error, MemoryError) and "out of memory" not in str(error).lower():
                raise
            raise MemoryError(self._sizes(views)) from error

    def _sizes(self, views: Views) -> str:
        return f"out of memory with {len(views.ids)} samples in {len(views.names)} views"

    def fit_predict(
        self, Xs: ViewsLike, y: None = None, *, mask: ArrayLike | None = None, ids: Any = None
    ) -> np.ndarray:
        """Cluster the samples of ``Xs`` and return their labels; see :meth:`fit`."""
        return self.fit(Xs, y, mask=mask, ids=ids).labels_


class Clusterer(_MultiViewClusterer):
    """Any method as a scikit-learn estimator.

    Parameters
    ----------
    method
        A name in :data:`jpltd_jax.methods.METHODS`, or a :class:`jpltd_jax.loop.Method` of your own.
    n_clusters
        Number of clusters.
    hyper, config
        Of ``method.Hyper`` and ``method.Config``. None: the defaults of the method.
    max_iter
        Largest number of iterations. None: that of the method.
    checkpoint
        ``.npz`` file to save to every few iterations, and to go on from if it exists.
    random_state
        Seed of k-means, and of the start of methods that start at random.
    verbose
        Whether to draw a line of progress on standard error.

    Attributes
    ----------
    labels_ : (n,) int array
    affinity_ : (n, n) float array, on which the samples were clustered; None for a method that makes an embedding
    embedding_ : (n, n_clusters) float array, what k-means was given
    n_iter_ : int
    status_ : :class:`jpltd_jax.Status`
    history_ : what the stopping rule watches, after each iteration
    hyper_ : the hyper-parameters used
    sample_ids_ : (n,) array, whose label each one is; 0..n-1 for views without ids
    n_features_in_ : list of int, the width of each view
    view_names_in_ : tuple of str, the names of the views; "view 0", "view 1", ... for a list
    feature_names_in_ : tuple, for each view a tuple of the names of its features, None where it has none

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> data = jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8))
    >>> model = jj.Clusterer("averaged_graph", 3, random_state=0)
    >>> float(jj.metrics.accuracy(data.labels, model.fit_predict(data.views)))
    1.0
    """

    _parameter_constraints: ClassVar = {
        "method": [str, Method],
        "n_clusters": [POSITIVE],
        "hyper": "no_validation",
        "config": "no_validation",
        "max_iter": [POSITIVE, None],
        "checkpoint": [str, PathLike, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        method: Method | str,
        n_clusters: int,
        *,
        hyper: Any = None,
        config: Any = None,
        max_iter: int | None = None,
        checkpoint: str | PathLike[str] | None = None,
        random_state: Any = None,
        verbose: bool | int = False,
    ) -> None:
        self.method = method
        self.n_clusters = n_clusters
        self.hyper = hyper
        self.config = config
        self.max_iter = max_iter
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, Xs: ViewsLike, y: None = None, *, mask: ArrayLike | None = None, ids: Any = None) -> "Clusterer":
        """Cluster the samples of ``Xs``; arguments as of :meth:`jpltd_jax.JPLTD.fit`."""
        self._validate_params()
        method = method_of(self.method)
        hyper = method.Hyper() if self.hyper is None else self.hyper
        views = read_views_to_learn_from(Xs, mask, ids=ids)
        with method.precision():
            problem = make_problem(views)
        self._cluster(views, problem, hyper, self.config, method)
        return self


class JPLTD(_MultiViewClusterer):
    """Cluster samples that are described by several views, with views missing for some of them.

    By default the labels do not depend on the order of the samples: the tensor norm of the model uses the eigenvectors
    of a neighbour graph. ``config=jj.PUBLISHED`` is the method as published, whose result does depend on it: on files
    sorted by class it is far better than on the same samples shuffled.

    Parameters
    ----------
    n_clusters
        Number of clusters. ``"auto"`` suggests one of 2..20, and a sequence such as ``range(3, 9)`` one of these: the
        one whose partition has the largest modularity on the views' own graphs, see
        :func:`jpltd_jax.selection.compare_numbers_of_clusters`. How often that is right is in
        :doc:`/hyperparameters`; look at ``clusters_tried_`` before you believe it.
    lam, theta
        Weights of the low-rank and of the sparse tensor. ``lam=None`` is 0.25 with the graph transform and 5 with the
        Fourier transform; ``lam="auto"`` picks, from :data:`jpltd_jax.selection.LAMS`, the value with the clearest
        clusters by :func:`jpltd_jax.selection.clarity`. None of them needs labels.
    max_iter, tol
        Stop after so many iterations, or when both residuals are below ``tol``. The default, 30, is early stopping, as
        in the authors' program.
    preparation
        How each view is scaled: names of :data:`jpltd_jax.preparation.PREPARATIONS`, one per view or one for all;
        ``"auto"``: for each view the one whose neighbours agree best with the other views'. None is ``"auto"`` with the
        graph transform and ``"unit"`` with the Fourier transform.
    strategy
        ``"choose"``: cluster on the learned affinity plus the late graph and plus the completed graph, and take the
        partition that the views support best. ``"fast"``: plus the late graph, no choice. See ``partner`` of
        :class:`jpltd_jax.Config`.
    config
        All options, a :class:`jpltd_jax.Config`: the transform, the latent dimension, the neighbours, the variant ...
    n_anchors
        Represent the samples by so many of them, chosen by :func:`jpltd_jax.problem.choose_anchors`: cost and memory
        become linear in n. None is all. ``"auto"``, with the graph transform: all up to 3000 samples if what
        :func:`jpltd_jax.memory.predicted_memory` says is below half of the free memory, else 500; if that is too much
        as well, the fit is on as many samples, chosen at random, as fit, and the others are labelled as by
        ``predict``. With the Fourier transform: all.
    checkpoint
        ``.npz`` file to save to every few iterations, and to go on from if it exists.
    random_state
        Seed of k-means, and of the choice of a part of the samples; nothing else is random.
    verbose
        Whether to draw a line of progress on standard error.

    Attributes
    ----------
    labels_ : (n,) int array
    n_anchors_ : int, the number of anchors; None without
    fitted_samples_ : int array, the samples that the model was fitted on, if they are not all; else None
    affinity_ : (n, n) float array, on which the samples were clustered; (n, n_anchors) with anchors; of
        ``fitted_samples_`` alone if the model was fitted on a part, as the labels in ``candidates_``
    embedding_ : (n, n_clusters) float array, its spectral embedding
    preparation_ : list of str, how each view was scaled
    candidates_ : dict by name of ``{"labels", "modularity", "explained", "score"}``, the partitions among which was
        chosen; empty for the published method
    chosen_ : str, the name of the one taken; None if there was no choice
    support_ : (m, n_clusters) float array, how strongly each view supports each cluster: its part of the view's
        modularity; None for the published method
    n_clusters_ : int, the number of clusters
    clusters_tried_ : :class:`jpltd_jax.selection.NumbersOfClusters`, what was found for each number of clusters; None
        if the number was given
    unconnected_ : (n,) bool array, the samples that no chain of samples with a view in common joins to the largest
        group of samples that are joined: nothing in the data compares them with the others
    margin_ : (n,) float array in 0..1, how sure the label of each sample is: 1 - d1 / d2, with the distances to the
        nearest and the second nearest centre in the embedding
    n_iter_ : int
    status_ : :class:`jpltd_jax.Status`
    history_ : :class:`jpltd_jax.methods.jpltd.Residuals` after each iteration
    hyper_ : :class:`jpltd_jax.Hyper`, the values used
    sample_ids_ : (n,) array, whose label each one is; 0..n-1 for views without ids
    n_features_in_ : list of int, the width of each view
    view_names_in_ : tuple of str, the names of the views; "view 0", "view 1", ... for a list
    feature_names_in_ : tuple, for each view a tuple of the names of its features, None where it has none

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> data = jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8))
    >>> views = [view.copy() for view in data.views]
    >>> views[0][:10] = float("nan")
    >>> labels = jj.JPLTD(n_clusters=3, random_state=0).fit_predict(views)
    >>> float(jj.metrics.accuracy(data.labels, labels))
    1.0
    """

    _parameter_constraints: ClassVar = {
        "n_clusters": [POSITIVE, StrOptions({"auto"}), list, tuple, range, np.ndarray],
        "lam": [NOT_NEGATIVE, StrOptions({"auto"}), None],
        "theta": [NOT_NEGATIVE],
        "max_iter": [POSITIVE],
        "tol": [NOT_NEGATIVE],
        "preparation": [str, list, tuple, None],
        "strategy": [StrOptions({"choose", "fast"})],
        "config": [Config],
        "n_anchors": [POSITIVE, StrOptions({"auto"}), None],
        "checkpoint": [str, PathLike, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_clusters: int | Literal["auto"] | Sequence[int],
        *,
        lam: float | Literal["auto"] | None = None,
        theta: float = 0.1,
        max_iter: int = methods.JPLTD.max_iter,
        tol: float = 1e-5,
        preparation: str | Sequence[str] | None = None,
        strategy: Literal["choose", "fast"] = "choose",
        config: Config = ORDER_FREE,
        n_anchors: int | Literal["auto"] | None = "auto",
        checkpoint: str | PathLike[str] | None = None,
        random_state: Any = None,
        verbose: bool | int = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.lam = lam
        self.theta = theta
        self.max_iter = max_iter
        self.tol = tol
        self.preparation = preparation
        self.strategy = strategy
        self.config = config
        self.n_anchors = n_anchors
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def _find(
        self, key: jax.Array, problem: Problem, hyper: Any, config: Any, method: Method
    ) -> tuple[Any, Clustering]:
        if self.lam != "auto":
            return super()._find(key, problem, hyper, config, method)
        return choose_lam(key, problem, hyper, self.n_clusters_, config, loop=self._loop(method, "lam auto"))

    def _number(self, problem: Problem, hyper: Any, config: Any, seed: int) -> int:
        self.clusters_tried_: NumbersOfClusters | None = None
        if isinstance(self.n_clusters, Integral):
            return int(self.n_clusters)
        tried: Sequence[int] = self.n_clusters
        if isinstance(self.n_clusters, str):
            tried = [c for c in NUMBERS_OF_CLUSTERS if c == 2 or 3 * c <= problem.n_samples]
        self.clusters_tried_ = compare_numbers_of_clusters(problem, hyper, tried, config, seed=seed)
        return self.clusters_tried_.suggested

    def _why_empty(self, views: Views, hyper: Any, n_iter: int) -> str:
        if not any(x.any() for x in views.matrices):
            return "because all views are"
        if hyper.theta == 0 and self.config.has_sparse_part:
            return "with theta=0, which leaves everything to the sparse tensor: raise theta"
        if n_iter < methods.JPLTD.max_iter:
            return f"with lam={hyper.lam:g} after {n_iter} iterations: raise max_iter, or lower lam"
        return f"with lam={hyper.lam:g}: lower lam"

    def _sizes(self, views: Views) -> str:
        n, widest = len(views.ids), max(x.shape[1] for x in views.matrices)
        anchors, latent_dim = self.n_anchors_, self.config.latent_dim
        if latent_dim > max(n, widest):
            hint = f"lower latent_dim={latent_dim}: the widest view has {widest} features"
        else:
            hint = "set n_anchors, for example to 500" if anchors is None else f"lower n_anchors={anchors}"
        return f"{super()._sizes(views)}, n_anchors={anchors} and latent_dim={latent_dim}; {hint}"

    def fit(self, Xs: ViewsLike, y: None = None, *, mask: ArrayLike | None = None, ids: Any = None) -> "JPLTD":
        """Cluster the samples of ``Xs``.

        Parameters
        ----------
        Xs
            List of views, or a dictionary of them by name, samples as rows: arrays, sparse matrices or DataFrames. A
            row of NaN is a missing view. DataFrames are matched by their index; a sample that a view's index lacks is
            missing in that view. Or a MuData: a sample that a modality lacks is missing there.
        y
            Not used.
        mask
            (n, m) bool, True where observed.
        ids
            For arrays: one sequence of sample ids per view, in a list or by the names of the views.
        """
        self._validate_params()
        if self.lam == "auto" and self.checkpoint is not None:
            raise ValueError("a checkpoint is of one lam: give a number instead of lam='auto'")
        default = Hyper().lam if self.config.transform == "graph" else PUBLISHED_HYPER.lam
        lam = default if self.lam in (None, "auto") else float(self.lam)
        hyper = Hyper(lam=lam, theta=float(self.theta), tol=float(self.tol))
        config = self.config
        if self.strategy == "fast" and config.partner is not None:
            config = replace(config, partner="late")
        every = read_views_to_learn_from(Xs, mask, ids=ids)
        warn_of_nothing_to_learn(every)
        views = self._part(every, config)
        with self._naming_sizes(views):
            prepared, self._preparations = prepare_views(views, self._wanted_preparation(len(views.matrices)))
        warn_of_shift(views, [v for v, made in enumerate(self._preparations) if made.name in ("unit", "root")])
        problem = make_problem(prepared, normalize=False, anchors=self.n_anchors_)
        del prepared
        self.unconnected_ = unconnected(every.mask)
        if self.unconnected_.any():
            warnings.warn(
                f"{self.unconnected_.sum()} samples share no view with the others, not even through further samples: "
                "nothing in the data compares them (see unconnected_)",
                stacklevel=2,
            )
        found = self._cluster(views, problem, hyper, config, methods.JPLTD)
        self._model = Model.of(problem, config, found)
        self.preparation_ = [preparation.name for preparation in self._preparations]
        self._explain(found)
        self._place_others(every, found)
        if self.status_ is Status.MAX_ITER and self.n_iter_ > methods.JPLTD.max_iter:
            worst = max(float(record[self.n_iter_ - 1]) for record in self.history_)
            warnings.warn(
                f"residual {worst:.1e} is above tol={self.tol:g} after {self.n_iter_} iterations: raise max_iter",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _wanted_preparation(self, n_views: int) -> Any:
        wanted = self.preparation
        if wanted is None:
            wanted = "auto" if self.config.transform == "graph" else "unit"
        return [wanted] * n_views if isinstance(wanted, str) and wanted != "auto" else wanted

    def _part(self, views: Views, config: Config) -> Views:
        """What to fit on, so that it fits into memory: all samples or some of them, through anchors or not."""
        n, dimensions = len(views.ids), [x.shape[1] for x in views.matrices]
        self.fitted_samples_ = None
        if self.n_anchors == "auto" and config.transform == "graph":
            n_fitted, self.n_anchors_ = plan_fit(n, dimensions, config)
            if n_fitted == n:
                return views
            rng = check_random_state(self.random_state)
            first = [rng.choice(np.flatnonzero(present)) for present in views.mask.T]
            mixed = np.concatenate([first, rng.permutation(n)])
            chosen = mixed[np.sort(np.unique(mixed, return_index=True)[1])]
            self.fitted_samples_ = np.sort(chosen[:n_fitted])
            warnings.warn(
                f"the model is fitted on {n_fitted} of {n} samples, as many as fit into memory, and labels the others "
                "(see fitted_samples_)",
                stacklevel=3,
            )
            return views.rows(self.fitted_samples_)
        self.n_anchors_ = int(self.n_anchors) if isinstance(self.n_anchors, Integral) else None
        need, free = predicted_memory(n, dimensions, self.n_anchors_, config), free_memory()
        if need > free:
            sizes = self._sizes(views).removeprefix("out of memory ")
            raise MemoryError(f"the fit needs {need} bytes of memory and {free} are free, {sizes}")
        return views

    def _place_others(self, views: Views, found: Clustering) -> None:
        """Label the samples that the model was not fitted on."""
        fitted = self.fitted_samples_
        if fitted is None:
            return
        n = len(views.ids)
        rest = np.setdiff1d(np.arange(n), fitted)
        embedding = np.empty((n, found.embedding.shape[1]), found.embedding.dtype)
        embedding[fitted], embedding[rest] = found.embedding, self._placed(views, rest)
        labels = np.empty(n, np.int32)
        labels[fitted], labels[rest] = found.labels, nearest_center(embedding[rest], found.centers)
        self.labels_, self.embedding_, self.sample_ids_ = labels, embedding, views.ids
        self.margin_ = np.asarray(margins(jnp.asarray(embedding), found.centers))

    def _placed(self, views: Views, chosen: np.ndarray) -> np.ndarray:
        """Some samples in the embedding, block by block; all blocks are of one size, so the last two may overlap."""
        dictionary = self._model.dictionary
        size = min(len(chosen), max(1, PAIRS // dictionary.n_samples))
        placed = np.empty((len(chosen), len(self._model.centers)), self._model.centers.dtype)
        for start in range(0, len(chosen), size):
            first = min(start, len(chosen) - size)
            block = slice(first, first + size)
            prepared = apply_preparations(views.rows(chosen[block]), self._preparations)
            placed[block] = place(self._model, further_samples(dictionary, prepared, normalize=False))
        return placed

    def _explain(self, found: Clustering) -> None:
        self.candidates_, self.chosen_, self.support_ = {}, None, None
        if found.candidates is not None:
            tried, quality = found.candidates, found.candidates.quality
            self.chosen_ = tried.names[int(tried.chosen)]
            self.support_ = np.asarray(tried.best().support)
            numbers = np.asarray(quality.modularity), np.asarray(quality.explained), np.asarray(quality.score)
            for name, labels, modularity, explained, score in zip(
                tried.names, np.asarray(tried.labels), *numbers, strict=True
            ):
                self.candidates_[name] = {
                    "labels": labels,
                    "modularity": float(modularity),
                    "explained": float(np.mean(explained)),
                    "score": float(score),
                }
        self.margin_ = np.asarray(margins(found.embedding, found.centers))

    def predict(self, Xs: ViewsLike, *, mask: ArrayLike | None = None, ids: Any = None) -> np.ndarray:
        """Labels of samples that the model was not fitted on; each needs one of the views, whichever.

        They are projected, represented by the fitted samples (or anchors) and placed in their embedding; nothing is
        learned from them, and one sample's label does not depend on the others. DataFrames are matched by their index,
        and labels come in the order in which the ids first appear. Views that are given by name must have the names of
        the fit, in any order; features that have names must be those of the fit in the same order, as in scikit-learn.
        Many samples are labelled block by block.
        """
        check_is_fitted(self)
        views = match_views(read_views(Xs, mask, ids=ids), self.view_names_in_, self.feature_names_in_)
        views = check_features(views, self._model.dictionary)
        placed = self._placed(views, np.arange(len(views.ids)))
        return np.asarray(nearest_center(placed, self._model.centers))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to an .npz file of plain arrays, from which :meth:`load` makes an equal one."""
        save_model(path, self)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "JPLTD":
        """The model that :meth:`save` wrote: its labels, and what it predicts, are the same bit for bit."""
        return load_model(path, cls)
