"""From learned graphs to labels: affinity, spectral embedding, k-means."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def affinity(graphs: Float[Array, "m n n"]) -> Float[Array, "n n"]:
    """Mean over the views of (|B^v| + |B^v|^T) / 2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.spectral import affinity
    >>> affinity(jnp.array([[[0.0, -2.0], [0.0, 1.0]]]))
    Array([[0., 1.],
           [1., 1.]], dtype=float32)
    """
    mean = jnp.mean(jnp.abs(graphs), axis=0)
    return (mean + mean.T) / 2
