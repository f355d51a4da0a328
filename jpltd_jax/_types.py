"""Types and checks that every module may use."""

from numbers import Integral
from typing import Any, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

__all__ = ["Key", "Scalar", "check_choice", "check_count", "check_key"]

Scalar = Float[Array, ""] | float
"""A number, or a traced array without axes."""

Key = PRNGKeyArray | Array
"""A key from ``jax.random.key`` or ``jax.random.PRNGKey``."""


def check_choice(name: str, value: object, choices: object) -> None:
    """Raise unless ``value`` is one of the values of the Literal ``choices``.

    Examples
    --------
    >>> from typing import Literal
    >>> from jpltd_jax._types import check_choice
    >>> check_choice("start", "zero", Literal["svd", "identity"])
    Traceback (most recent call last):
    ValueError: start must be one of 'svd', 'identity', got 'zero'
    """
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, get_args(choices)))}, got {value!r}")


def check_count(name: str, value: int, most: float | int = float("inf"), *, least: int = 1) -> None:
    """Raise unless ``value`` is an integer between ``least`` and ``most``.

    Examples
    --------
    >>> from jpltd_jax._types import check_count
    >>> check_count("n_neighbors", 0)
    Traceback (most recent call last):
    ValueError: n_neighbors must be at least 1, got 0
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if not least <= value <= most:
        allowed = f"at least {least}" if most == float("inf") else f"between {least} and {most}"
        raise ValueError(f"{name} must be {allowed}, got {value}")


def check_key(key: Any) -> None:
    """Raise unless ``key`` is one key of ``jax.random``, typed or raw.

    Examples
    --------
    >>> from jpltd_jax._types import check_key
    >>> check_key(0)
    Traceback (most recent call last):
    TypeError: key must be a key of JAX, like jax.random.key(0), got 0
    """
    typed = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    if not typed and getattr(key, "dtype", None) != jnp.uint32:
        raise TypeError(f"key must be a key of JAX, like jax.random.key(0), got {key!r}")
    if key.ndim != (0 if typed else 1):
        raise ValueError(f"key must be one key, got an array of shape {key.shape}; use jax.vmap for several")
