"""Labels for samples that a model was not fitted on, with any subset of the views."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jpltd_jax.blocks import update_graph
from jpltd_jax.graphs import reached, sparsify_rows
from jpltd_jax.problem import Problem
from jpltd_jax.spectral import Embedding, squared_distances


class Model(NamedTuple):
    """What a fit leaves behind for further samples."""

    dictionary: Problem
    """The samples that others are represented by: the anchors, or all."""
    W: Float[Array, "m k r"]
    embedding: Embedding
    centers: Float[Array, "c e"]


def new_affinity(model: Model, samples: Problem) -> Float[Array, "q a"]:
    """Mean over the observed views of |G^v| with G^v = argmin_G ||W x - D G||_F^2 + ||G||_F^2, D the dictionary.

    This is the update of G with nothing known yet of the samples: B = P = E = 0 and no multipliers.
    """
    with jax.default_matmul_precision("highest"):
        latent, dictionary = model.W @ samples.data, model.W @ model.dictionary.data
        shape = (samples.n_views, samples.n_samples, model.dictionary.n_samples)
        graph, _ = update_graph(dictionary, samples.mask, latent, jnp.zeros(shape, latent.dtype))
    return jnp.sum(jnp.abs(graph), axis=0) / jnp.sum(samples.mask, axis=0)[:, None]


@partial(jax.jit, static_argnames=("n_reach", "n_kept"))
def assign(
    model: Model, samples: Problem, *, n_reach: int | None = None, n_kept: int | None = None
) -> Int[Array, " q"]:
    """Label of the centre that is nearest to each sample in the embedding.

    Parameters
    ----------
    model
        Of the fit.
    samples
        From :func:`jpltd_jax.problem.further_samples`.
    n_reach, n_kept
        The affinity to the dictionary is thinned by them as in the fit; None: not.

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> data = jj.datasets.make_blobs(0, n_samples=80, dims=(10, 8))
    >>> model = jj.JPLTD(n_clusters=3, random_state=0).fit([view[:60] for view in data.views])
    >>> labels = model.predict([view[60:] for view in data.views])
    >>> float(jj.metrics.accuracy(data.labels[60:], labels))
    1.0
    """
    affinity = new_affinity(model, samples)
    if n_reach is not None:
        affinity = jnp.where(reached(samples, model.dictionary, n_reach), affinity, 0)
    if n_kept is not None:
        affinity = sparsify_rows(affinity, n_kept)
    places = model.embedding.place(affinity)
    return jnp.argmin(squared_distances(places, model.centers), axis=1).astype(jnp.int32)
