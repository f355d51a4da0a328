"""From a problem to labels, with any method: prepare, iterate, add graphs, embed, k-means, choose.

:func:`cluster` is the default method by name. It is pure: ``jax.jit`` and ``jax.vmap`` it over keys, hyper-parameters
and masks. The estimators, the sweeps and the command line call the same functions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from jpltd_jax._types import Key, check_key
from jpltd_jax.graphs import nearest_rows, reached, sparsify_rows
from jpltd_jax.linalg import divide, ridge, squared_distances
from jpltd_jax.loop import Loop, Method, Solution, prepare, run
from jpltd_jax.methods import JPLTD, METHODS
from jpltd_jax.methods.jpltd import Config, Data, neighbours_kept, neighbours_reached
from jpltd_jax.problem import Problem, make_problem
from jpltd_jax.quality import Quality
from jpltd_jax.spectral import Embedding, KMeans, embed, kmeans
from jpltd_jax.transforms import Fourier
from jpltd_jax.views import Views

__all__ = [
    "HEAD_START",
    "Candidates",
    "Clustering",
    "Model",
    "assign",
    "cluster",
    "fit",
    "label",
    "margins",
    "method_of",
    "nearest_center",
    "place",
]

HEAD_START = 0.01
"""Of the first candidate in :func:`label`, as a share of its score."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Candidates:
    """The partitions among which :func:`label` chose, and what the views say of them; first axis: candidates."""

    labels: Int[Array, "p n"]
    quality: Quality
    chosen: Int[Array, ""]
    names: tuple[str, ...] = field(metadata={"static": True})

    def best(self) -> Quality:
        """What the views say of the partition that was taken."""
        return jax.tree.map(lambda leaf: leaf[self.chosen], self.quality)


class Clustering(NamedTuple):
    """Outcome of :func:`cluster`."""

    labels: Int[Array, " n"]
    affinity: Float[Array, "n a"] | None
    """What the samples were clustered on; None for a method that makes an embedding."""
    embedding: Float[Array, "n c"]
    """What k-means was given."""
    centers: Float[Array, "c c"]
    solution: Solution
    places: Embedding | None
    """For further samples: the spectral embedding that they can be placed in."""
    candidates: Candidates | None
    """None for a method that does not judge partitions."""


def method_of(method: Method | str) -> Method:
    """The record of a method that is given by name.

    Examples
    --------
    >>> from jpltd_jax.pipeline import method_of
    >>> method_of("ueaf").title
    'UEAF'
    """
    if isinstance(method, Method):
        return method
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}")
    return METHODS[method]


class _Labelled(NamedTuple):
    """What :func:`label` makes of an affinity."""

    affinity: Float[Array, "n a"]
    places: Embedding
    groups: KMeans
    candidates: Candidates | None


@partial(jax.jit, static_argnames="n_clusters")
def _labelled(key: Key, method: Method, data: Any, affinity: Float[Array, "n a"], n_clusters: int) -> _Labelled:
    """Embed and group what the method offers, one after the other, and choose: one program."""
    offered = {"": affinity} if method.affinities is None else method.affinities(data, affinity)
    names = tuple(offered)
    power = method.power(data)

    def one(affinity: Array) -> tuple[Embedding, KMeans]:
        places = embed(affinity, n_clusters, power)
        return places, kmeans(key, places.embedding, n_clusters)

    stacked = jnp.stack([offered[name] for name in names])
    places, found = jax.lax.map(one, stacked)
    best, candidates = jnp.asarray(0, jnp.int32), None
    if method.judge is not None:
        judged = [method.judge(data, found.labels[i]) for i in range(len(names))]
        if judged[0] is not None:
            quality = jax.tree.map(lambda *leaves: jnp.stack(leaves), *judged)
            head_start = jnp.zeros(len(names)).at[0].set(HEAD_START)
            best = jnp.argmax(quality.score + head_start * jnp.abs(quality.score)).astype(jnp.int32)
            candidates = Candidates(found.labels, quality, best, names)
    affinity, places, found = jax.tree.map(lambda leaf: leaf[best], (stacked, places, found))
    return _Labelled(affinity, places, found, candidates)


def label(key: Key, method: Method, data: Any, solution: Solution, n_clusters: int) -> Clustering:
    """Labels from a solution: k-means on the embedding that the method makes, or on the one of its affinity.

    If the method offers several affinities each gives a partition, and the one with the largest
    :attr:`jpltd_jax.quality.Quality.score` is taken; the first one unless another is better by a hundredth, so that
    rounding never decides between equal partitions. This is done in the precision of JAX's global flag, also for a
    method that computes in float64 by itself.
    """
    affinity, embedding = (
        None if made is None else made.astype(jax.dtypes.canonicalize_dtype(made.dtype))
        for made in (solution.affinity, solution.embedding)
    )
    if affinity is None:
        assert embedding is not None
        found = kmeans(key, embedding, n_clusters)
        return Clustering(found.labels, None, embedding, found.centers, solution, None, None)
    judging = method.affinities is not None or method.judge is not None
    made = _labelled(key, method, data if judging else None, affinity, n_clusters)
    places, groups = made.places, made.groups
    return Clustering(groups.labels, made.affinity, places.embedding, groups.centers, solution, places, made.candidates)


def cluster(
    key: Key,
    problem: Problem,
    hyper: Any,
    n_clusters: int,
    config: Any = None,
    *,
    method: Method | str = JPLTD,
    loop: Loop = Loop(),  # noqa: B008
) -> Clustering:
    """Cluster the samples of a problem.

    Parameters
    ----------
    key
        Of ``jax.random``: for k-means, and for the start of methods that start at random.
    problem
        From :func:`jpltd_jax.make_problem`.
    hyper
        Of ``method.Hyper``; may be traced.
    n_clusters
        Number of clusters; static.
    config
        Of ``method.Config``; for JPLTD :data:`jpltd_jax.ORDER_FREE`, the default, or :data:`jpltd_jax.PUBLISHED`.
    method
        One of :data:`jpltd_jax.methods.METHODS` or its name, or your own.
    loop
        Number of iterations, and how they are made.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> import jpltd_jax as jj
    >>> data = jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8))
    >>> problem = jj.make_problem(data.views)
    >>> labels_for = lambda lam: jj.cluster(jax.random.key(0), problem, jj.Hyper(lam=lam), 3).labels
    >>> labels = jax.vmap(labels_for)(jnp.array([0.25, 0.5]))
    >>> [float(jj.metrics.accuracy(data.labels, one)) for one in labels]
    [1.0, 1.0]
    """
    check_key(key)
    method = method_of(method)
    start_key, label_key = jax.random.split(key)
    data = prepare(method, problem, n_clusters, config)
    return label(label_key, method, data, run(method, data, hyper, start_key, loop), n_clusters)


def fit(
    method: Method | str,
    views: Sequence[Any] | Views,
    mask: ArrayLike | None,
    n_clusters: int,
    *,
    key: Key,
    hyper: Any = None,
    config: Any = None,
) -> Clustering:
    """Cluster views by any method: :func:`jpltd_jax.cluster` of :func:`jpltd_jax.make_problem`.

    Parameters
    ----------
    method
        One of :data:`jpltd_jax.methods.METHODS` or its name, or your own.
    views, mask
        As for :func:`jpltd_jax.make_problem`.
    n_clusters
        Number of clusters.
    key
        Of ``jax.random``.
    hyper, config
        Of ``method.Hyper`` and ``method.Config``. Default: those of the method.

    Examples
    --------
    >>> import jax
    >>> import jpltd_jax as jj
    >>> data = jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8))
    >>> found = jj.fit("averaged_graph", data.views, None, 3, key=jax.random.key(0))
    >>> float(jj.metrics.accuracy(data.labels, found.labels))
    1.0
    """
    check_key(key)
    method = method_of(method)
    with method.precision():
        problem = make_problem(views, mask)
    return cluster(key, problem, method.Hyper() if hyper is None else hyper, n_clusters, config, method=method)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Model:
    """What a fit of JPLTD leaves behind for further samples."""

    dictionary: Problem
    """The samples that others are represented by: the anchors, or all."""
    W: Float[Array, "m k r"]
    places: Embedding
    centers: Float[Array, "c c"]
    n_reach: int | None = field(metadata={"static": True})
    n_kept: int | None = field(metadata={"static": True})
    graph: tuple[int, float] | None = field(metadata={"static": True})
    """``n_neighbors`` and ``share`` of the neighbour graph that is added to the affinity. None: none is."""

    @classmethod
    def of(cls, problem: Problem, config: Config, found: Clustering) -> "Model":
        """The model of a clustering of this problem by JPLTD."""
        assert found.places is not None
        n_clusters = len(found.centers)
        data = Data(problem, Fourier(), config=config, n_clusters=n_clusters)
        graph = None if config.partner is None else (config.n_neighbors, config.share / n_clusters)
        reach, kept = neighbours_reached(data), neighbours_kept(data)
        return cls(problem.dictionary, found.solution.state.W, found.places, found.centers, reach, kept, graph)


def _new_affinity(model: Model, samples: Problem) -> Float[Array, "q a"]:
    """Mean over the observed views of |G^v| with G^v = argmin_G ||W x - D G||_F^2 + ||G||_F^2, D the dictionary.

    This is the update of G with nothing known yet of the samples: B = P = E = 0 and no multipliers.
    """
    with jax.default_matmul_precision("highest"):
        latent, dictionary = model.W @ samples.data, model.W @ model.dictionary.data
        shape = (samples.n_views, samples.n_samples, model.dictionary.n_samples)
        graph, _ = ridge(dictionary, latent, jnp.zeros(shape, latent.dtype), samples.mask)
    return jnp.sum(jnp.abs(graph), axis=0) / jnp.sum(samples.mask, axis=0)[:, None]


@jax.jit
def place(model: Model, samples: Problem) -> Float[Array, "q c"]:
    """The samples in the embedding of the fit; one sample does not depend on another.

    Where a graph was added to the affinity, a new sample's row of the late graph is added to its affinity, also if the
    completed graph was chosen in the fit.

    Parameters
    ----------
    model
        From :meth:`Model.of`.
    samples
        From :func:`jpltd_jax.problem.further_samples`.

    Examples
    --------
    >>> import jax
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.pipeline import Model, nearest_center, place
    >>> from jpltd_jax.problem import further_samples
    >>> data = jj.datasets.make_blobs(0, n_samples=40, dims=(10, 8))
    >>> problem = jj.make_problem([view[:30] for view in data.views])
    >>> found = jj.cluster(jax.random.key(0), problem, jj.Hyper(), 3)
    >>> new = further_samples(problem, [view[30:] for view in data.views])
    >>> placed = place(Model.of(problem, jj.ORDER_FREE, found), new)
    >>> float(jj.metrics.accuracy(data.labels[30:], nearest_center(placed, found.centers)))
    1.0
    """
    affinity = _new_affinity(model, samples)
    if model.n_reach is not None:
        affinity = jnp.where(reached(samples, model.dictionary, model.n_reach), affinity, 0)
    if model.n_kept is not None:
        affinity = sparsify_rows(affinity, model.n_kept)
    if model.graph is not None:
        n_neighbors, share = model.graph
        affinity = affinity + nearest_rows(samples, model.dictionary, n_neighbors, share)
    return model.places.place(affinity)


@jax.jit
def nearest_center(embedding: Float[Array, "q c"], centers: Float[Array, "c c"]) -> Int[Array, " q"]:
    """The centre that is nearest to each sample."""
    return jnp.argmin(squared_distances(embedding, centers), axis=1).astype(jnp.int32)


def assign(model: Model, samples: Problem) -> Int[Array, " q"]:
    """Label of the centre that is nearest to each sample, where :func:`place` puts it."""
    return nearest_center(place(model, samples), model.centers)


@jax.jit
def margins(embedding: Float[Array, "n d"], centers: Float[Array, "c d"]) -> Float[Array, " n"]:
    """1 - d1 / d2 with the distances of each sample to its nearest and second nearest centre; 1 with one centre.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.pipeline import margins
    >>> margins(jnp.array([[0.0], [1.0], [2.0]]), jnp.array([[0.0], [4.0]]))
    Array([1.       , 0.6666666, 0.       ], dtype=float32)
    """
    if len(centers) == 1:
        return jnp.ones(len(embedding), embedding.dtype)
    nearest = jnp.sqrt(-jax.lax.top_k(-squared_distances(embedding, centers), 2)[0])
    return 1 - divide(nearest[:, 0], nearest[:, 1], 1.0)
