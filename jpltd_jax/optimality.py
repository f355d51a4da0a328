"""Verifiers of proximal operators: point them at your own.

Each returns a number that is zero (or not positive) for a correct operator, up to rounding; none of them searches from
the candidate, so a wrong operator cannot bless itself. ``prox`` is a function (v, tau) -> x in the convention of
:mod:`jpltd_jax.prox`; for projections ``tau`` is simply ignored by it.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from jpltd_jax._types import Scalar

__all__ = ["Prox", "firmness_gap", "fixed_point_gap", "moreau_gap", "variational_gap"]

Prox = Callable[[Array, Scalar], Array]
"""(v, tau) -> x."""


def variational_gap(
    f: Callable[[Array], Array], prox: Prox, v: Float[Array, "*shape"], tau: Scalar, y: Float[Array, "*shape"]
) -> Float[Array, ""]:
    """<v - p, y - p> - tau (f(y) - f(p)) with p = prox(v, tau).

    For convex f, p is the prox of v if and only if this is <= 0 for every y: the variational inequality.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax import optimality, prox
    >>> l1 = lambda x: jnp.abs(x).sum()
    >>> v, y = jnp.array([2.0, -0.3]), jnp.array([0.5, 0.5])
    >>> bool(optimality.variational_gap(l1, prox.soft_threshold, v, 1.0, y) <= 0)
    True
    >>> bool(optimality.variational_gap(l1, lambda v, tau: v, v, 1.0, y) <= 0)
    False
    """
    p = prox(v, tau)
    return jnp.vdot(v - p, y - p) - tau * (f(y) - f(p))


def moreau_gap(prox: Prox, prox_conjugate: Prox, v: Float[Array, "*shape"], tau: Scalar) -> Float[Array, ""]:
    """Largest entry of |v - prox_{tau f}(v) - tau prox_{f*/tau}(v / tau)|, the Moreau identity; needs tau > 0.

    For a norm f the conjugate is the indicator of the dual unit ball, and its prox the projection onto that ball.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax import optimality, prox
    >>> clip = lambda v, tau: jnp.clip(v, -1, 1)
    >>> optimality.moreau_gap(prox.soft_threshold, clip, jnp.array([2.0, -0.25]), 0.5)
    Array(0., dtype=float32)
    """
    return jnp.max(jnp.abs(v - prox(v, tau) - tau * prox_conjugate(v / tau, 1 / tau)))


def fixed_point_gap(prox: Prox, v: Float[Array, "*shape"], tau: Scalar, sigma: Scalar) -> Float[Array, ""]:
    """Largest entry of |prox(p + sigma (v - p) / tau, sigma) - p| with p = prox(v, tau); needs tau > 0.

    (v - p) / tau is a subgradient of f at p, so p is the prox of every point on the ray p + sigma (v - p) / tau. For a
    projection this is idempotence (sigma = 0) and constancy along normals (sigma > 0). Take
    sigma other than tau, for which it says nothing.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax import optimality, prox
    >>> optimality.fixed_point_gap(prox.soft_threshold, jnp.array([2.0, -0.25]), 0.5, 4.0)
    Array(0., dtype=float32)
    """
    p = prox(v, tau)
    return jnp.max(jnp.abs(prox(p + (sigma / tau) * (v - p), sigma) - p))


def firmness_gap(prox: Prox, v: Float[Array, "*shape"], w: Float[Array, "*shape"], tau: Scalar) -> Float[Array, ""]:
    """||p - q||^2 - <p - q, v - w> with p = prox(v, tau), q = prox(w, tau): <= 0, the prox of convex f is firm.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax import optimality, prox
    >>> v, w = jnp.array([2.0, -0.3]), jnp.array([0.0, 1.5])
    >>> bool(optimality.firmness_gap(prox.soft_threshold, v, w, 1.0) <= 0)
    True
    """
    difference = prox(v, tau) - prox(w, tau)
    return jnp.vdot(difference, difference - (v - w))
