"""Types and checks that every module may use."""

from typing import get_args

from jaxtyping import Array, Float, PRNGKeyArray

__all__ = ["Key", "Scalar", "check_choice", "check_count"]

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
    """Raise unless ``value`` lies between ``least`` and ``most``.

    Examples
    --------
    >>> from jpltd_jax._types import check_count
    >>> check_count("n_neighbors", 0)
    Traceback (most recent call last):
    ValueError: n_neighbors must be at least 1, got 0
    """
    if not least <= value <= most:
        allowed = f"at least {least}" if most == float("inf") else f"between {least} and {most}"
        raise ValueError(f"{name} must be {allowed}, got {value}")
