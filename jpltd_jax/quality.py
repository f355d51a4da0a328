"""How good is a partition, without labels: modularity on the views' graphs, and the variance that clusters explain.

Both are means over the views of what one view says, on its observed samples. Nothing here depends on the order of the
samples or on values that are missing.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.sparse import bmat, csr_array
from scipy.sparse.csgraph import connected_components

from jpltd_jax.linalg import divide, symmetric
from jpltd_jax.problem import Problem

__all__ = ["Quality", "explained_variance", "modularity", "quality", "unconnected"]


class Quality(NamedTuple):
    """What the views say of a partition; under ``jax.vmap`` every field has a leading axis."""

    support: Float[Array, "*batch m c"]
    """Modularity by view and cluster: how strongly the view supports the cluster. They sum up to that of the view."""
    explained: Float[Array, "*batch m"]
    """Share of each view's variance that the clusters explain, leave-one-out."""

    @property
    def modularity(self) -> Float[Array, "*batch"]:
        """Q: mean over the views."""
        return jnp.mean(jnp.sum(self.support, axis=-1), axis=-1)

    @property
    def score(self) -> Float[Array, "*batch"]:
        """Q / (1 - R²), with R² the mean of ``explained``: larger is better."""
        return self.modularity / (1 - jnp.mean(self.explained, axis=-1))


def modularity(
    graphs: Float[Array, "m n a"], members: Float[Array, "n c"], anchors: Int[Array, " a"] | None = None
) -> Float[Array, "m c"]:
    """w_cc / w - (w_c / w)^2 of every view and cluster: the sum over the clusters is Newman's modularity.

    w_cc is the weight within cluster c, w_c the degree of its members, w the weight of the whole graph. With anchors
    w_cc / w - r_c k_c / w^2: r_c is the weight of the rows of the samples in the cluster, k_c that of the columns of
    the anchors in it, and w_cc the weight that both share (Barber, Phys. Rev. E 76, 2007).

    Parameters
    ----------
    graphs
        Symmetric, non-negative; or the weights from samples to anchors.
    members
        One-hot labels.
    anchors
        The samples that the columns stand for. None: all, of symmetric graphs.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jpltd_jax.quality import modularity
    >>> two_pairs = jnp.kron(jnp.eye(2), jnp.ones((2, 2)))
    >>> modularity(two_pairs[None], jax.nn.one_hot(jnp.array([0, 0, 1, 1]), 2))
    Array([[0.25, 0.25]], dtype=float32)
    """
    of_columns = members if anchors is None else members[anchors]
    product = jnp.einsum("vij,jc->vic", graphs, of_columns, precision="highest")
    within = jnp.einsum("ic,vic->vc", members, product, precision="highest")
    degree = jnp.sum(product, axis=1)
    total = jnp.sum(degree, axis=1, keepdims=True)
    if anchors is None:
        return divide(within, total, 0.0) - divide(degree, total, 0.0) ** 2
    of_rows = jnp.einsum("ic,vi->vc", members, jnp.sum(graphs, axis=2), precision="highest")
    return divide(within, total, 0.0) - divide(of_rows, total, 0.0) * divide(degree, total, 0.0)


def explained_variance(problem: Problem, members: Float[Array, "n c"]) -> Float[Array, " m"]:
    """1 - sum_i ||x_i - mean of the others in its cluster||^2 / sum_i ||x_i - mean of all others||^2, by view.

    A sample that is alone in its cluster is compared with all others, so outliers explain nothing.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.quality import explained_variance
    >>> problem = jj.make_problem([[[0.0], [0.0], [9.0], [9.0]]], normalize=False)
    >>> explained_variance(problem, jax.nn.one_hot(jnp.array([0, 0, 1, 1]), 2))
    Array([1.], dtype=float32)
    """

    def view(x: Array, present: Array) -> Array:
        count = jnp.sum(present).astype(x.dtype)
        centred = jnp.where(present, x - jnp.sum(x, axis=1, keepdims=True) / count, 0)
        inside = jnp.where(present[:, None], members, 0)
        size = jnp.sum(inside, axis=0)
        sums = jnp.matmul(centred, inside, precision="highest")
        squares = jnp.matmul(jnp.sum(centred**2, axis=0), inside, precision="highest")
        spread = squares - divide(jnp.sum(sums**2, axis=0), size, 0.0)
        others = divide(size, size - 1, 0.0) ** 2
        all_others = divide(count, count - 1, 0.0) ** 2
        rest = jnp.sum(jnp.where(size == 1, squares * all_others, spread * others))
        return 1 - divide(rest, jnp.sum(squares) * all_others, 1.0)

    return jax.vmap(view)(problem.data, problem.mask)


@partial(jax.jit, static_argnames="n_clusters")
def quality(problem: Problem, graphs: Float[Array, "m n a"], labels: Int[Array, " n"], n_clusters: int) -> Quality:
    """What the views say of a partition.

    Parameters
    ----------
    problem
        The views as they were clustered.
    graphs
        From :func:`jpltd_jax.graphs.view_graphs`, or with anchors from :func:`jpltd_jax.graphs.anchor_graphs`.
    labels
        0..n_clusters-1.
    n_clusters
        Number of clusters; static.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.quality import quality
    >>> data = jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8))
    >>> problem = jj.make_problem(data.views)
    >>> graphs = jj.graphs.view_graphs(problem, 5)
    >>> right, wrong = (quality(problem, graphs, jnp.asarray(y), 3) for y in (data.labels, jnp.arange(30) % 2))
    >>> bool(right.score > wrong.score)
    True
    """
    members = jax.nn.one_hot(labels, n_clusters, dtype=problem.data.dtype)
    judged = symmetric(graphs) if problem.anchors is None else graphs
    return Quality(modularity(judged, members, problem.anchors), explained_variance(problem, members))


def unconnected(mask: Bool[np.ndarray, "n m"]) -> Bool[np.ndarray, " n"]:
    """Samples that no chain of samples with a view in common joins to the largest group of samples that are joined.

    Nothing in the data compares them with the others.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.quality import unconnected
    >>> mask = np.array([[True, False, False], [True, True, False], [False, True, False], [False, False, True]])
    >>> unconnected(mask)
    array([False, False, False,  True])
    """
    n = len(mask)
    seen = csr_array(np.asarray(mask, np.int8))
    _, groups = connected_components(bmat([[None, seen], [seen.T, None]]), directed=False)
    return groups[:n] != np.argmax(np.bincount(groups[:n]))
