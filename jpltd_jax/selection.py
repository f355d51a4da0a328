"""Choices without labels that need several runs: the weight lam, the number of clusters. Suggestions, not answers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sklearn.cluster import KMeans

from jpltd_jax._types import Key, check_count
from jpltd_jax.linalg import inverse_root, leading_eigenvectors, normalized, unit_rows
from jpltd_jax.loop import Loop, Status, prepare, run
from jpltd_jax.methods import JPLTD
from jpltd_jax.methods.jpltd import Config, Hyper, affinities, judge
from jpltd_jax.pipeline import Clustering, cluster
from jpltd_jax.problem import Problem

__all__ = ["LAMS", "NumbersOfClusters", "choose_lam", "clarity", "compare_numbers_of_clusters"]

LAMS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
"""Values of lam that :func:`choose_lam` tries."""


def clarity(affinity: Float[Array, "n a"], n_clusters: int) -> Float[Array, ""]:
    """Eigengap mu_c - mu_{c+1} of D^-1/2 H D^-1/2, eigenvalues in falling order: 1 for c separate cliques.

    Of the affinity of samples to fewer anchors: the gap of the singular values of D_r^-1/2 Z D_c^-1/2, with the row and
    column sums of Z.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.selection import clarity
    >>> three_pairs = jnp.kron(jnp.eye(3), jnp.ones((2, 2)))
    >>> clarity(three_pairs, 3).round(3), clarity(three_pairs, 2).round(3)
    (Array(1., dtype=float32), Array(0., dtype=float32))
    """
    n = affinity.shape[1]
    if n < affinity.shape[0]:
        scaled = inverse_root(jnp.sum(affinity, axis=1))[:, None] * affinity * inverse_root(jnp.sum(affinity, axis=0))
        squares = jnp.linalg.eigvalsh(jnp.matmul(scaled.T, scaled, precision="highest"))[::-1]
        values = jnp.sqrt(jnp.maximum(squares, 0))
    else:
        values, _ = leading_eigenvectors(normalized(affinity), min(n_clusters + 1, n))
    return values[n_clusters - 1] - (values[n_clusters] if n_clusters < n else 0)


def choose_lam(
    key: Key,
    problem: Problem,
    hyper: Hyper,
    n_clusters: int,
    config: Config | None = None,
    *,
    loop: Loop = Loop(),  # noqa: B008
) -> tuple[Hyper, Clustering]:
    """JPLTD with the lam of :data:`LAMS` whose affinity is clearest by :func:`clarity`; no labels are needed.

    Empty and non-finite affinities never win. An interrupted run is returned as it is.
    """
    best: tuple[float, Hyper, Clustering] | None = None
    for lam in LAMS:
        tried = hyper._replace(lam=lam)
        found = cluster(key, problem, tried, n_clusters, config, loop=loop)
        if found.solution.status is Status.RUNNING:
            return tried, found
        usable = found.solution.status not in (Status.EMPTY, Status.NONFINITE)
        assert found.affinity is not None
        score = float(clarity(found.affinity, n_clusters)) if usable else -float("inf")
        if best is None or score > best[0]:
            best = (score, tried, found)
    assert best is not None
    return best[1:]


class NumbersOfClusters(NamedTuple):
    """What :func:`compare_numbers_of_clusters` found for each number of clusters."""

    counts: np.ndarray
    modularity: np.ndarray
    """Q of the partition, see :class:`jpltd_jax.quality.Quality`: the larger the better."""
    score: np.ndarray
    """Q / (1 - R²), by which partitions into the same number of clusters are compared. It favours many clusters."""
    eigengap: np.ndarray
    """:func:`clarity` of the affinity: the larger the clearer."""

    @property
    def suggested(self) -> int:
        """The number with the largest modularity."""
        return int(self.counts[np.argmax(self.modularity)])


def compare_numbers_of_clusters(
    problem: Problem, hyper: Hyper, counts: Sequence[int], config: Config | None = None, *, seed: int = 0
) -> NumbersOfClusters:
    """Modularity, score and eigengap of JPLTD's partitions into so many clusters; no labels are needed.

    One solve, with the neighbours that suit the geometric mean of the smallest and the largest number; then for each
    number an embedding of the learned affinity plus the late graph, and k-means. With anchors, of the anchors alone.

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.selection import compare_numbers_of_clusters
    >>> problem = jj.make_problem(jj.datasets.make_blobs(0, n_samples=60, dims=(10, 8), n_clusters=4).views)
    >>> compare_numbers_of_clusters(problem, jj.Hyper(), range(2, 8)).suggested
    4
    """
    wanted = np.unique(np.asarray(counts, int))
    problem = problem.dictionary
    check_count("the smallest number of clusters", int(wanted[0]), problem.n_samples, least=2)
    check_count("the largest number of clusters", int(wanted[-1]), problem.n_samples)
    most = int(wanted[-1])
    config = replace(Config() if config is None else config, partner="late")
    data = prepare(JPLTD, problem, round(float(np.sqrt(wanted[0] * most))), config)
    solution = run(JPLTD, data, hyper, jax.random.key(seed))
    assert solution.affinity is not None
    affinity = affinities(data, solution.affinity)["late"]
    values, vectors = leading_eigenvectors(normalized(affinity), min(most + 1, problem.n_samples))
    judged, modularity, score = replace(data, n_clusters=most), [], []
    for count in wanted:
        places = np.asarray(unit_rows(vectors * values**config.power * (np.arange(len(values)) < count)))
        found = KMeans(int(count), n_init=10, random_state=seed).fit_predict(places[:, :count])
        quality = judge(judged, jnp.asarray(found, jnp.int32))
        assert quality is not None
        modularity.append(float(quality.modularity))
        score.append(float(quality.score))
    padded = np.append(np.asarray(values), 0.0)
    return NumbersOfClusters(wanted, np.array(modularity), np.array(score), padded[wanted - 1] - padded[wanted])
