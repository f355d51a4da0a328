"""Grids: which configurations of a method to run."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from jpltd_jax._types import check_count
from jpltd_jax.loop import Method, check_hyper
from jpltd_jax.methods import JPLTD
from jpltd_jax.pipeline import method_of
from jpltd_jax.sweeps.store import Row

__all__ = ["Configuration", "Grid", "Values", "grid", "listed"]

Values = Sequence[Any] | np.ndarray | Array | float | int | str
"""One value or several."""

LARGEST_SEED = 2**32 - 1


class Configuration(NamedTuple):
    """One point of a grid."""

    hyper: Any
    """Of the method's Hyper, plain numbers."""
    config: Any
    """Of the method's Config."""
    mask: int
    seed: int


class Grid(NamedTuple):
    """Configurations of one method, one after the other."""

    method: Method
    max_iter: int
    options: tuple[str, ...]
    """Fields of Config that vary."""
    configurations: list[Configuration]

    def parameters(self) -> list[Row]:
        """One dictionary of plain values per configuration: Hyper, the options that vary, mask and seed."""
        return [
            one.hyper._asdict()
            | {name: getattr(one.config, name) for name in self.options}
            | {"mask": one.mask, "seed": one.seed}
            for one in self.configurations
        ]


def _columns(axes: Mapping[str, Values]) -> list[list[Any]]:
    """The values of every axis."""
    if not isinstance(axes, Mapping):
        raise TypeError(f"axes must be a dictionary of values by name, like {{'lam': [0.1, 0.5]}}, got {axes!r}")
    return [_values(name, values) for name, values in axes.items()]


def _values(name: str, values: Values) -> list[Any]:
    if isinstance(values, str) or values is None:
        return [values]
    array = np.atleast_1d(np.asarray(values))
    if array.ndim != 1:
        raise ValueError(f"{name} must be one value or a vector of values, got shape {array.shape}")
    if len(array) == 0:
        raise ValueError(f"{name} has no value: give at least one")
    return array.tolist()


def _made(
    axes: Mapping[str, Values], rows: Sequence[Sequence[Any]], method: Method, config: Any, max_iter: int | None
) -> Grid:
    if not isinstance(config, method.Config):
        raise TypeError(f"{method.title} takes {method.Config.__module__}.Config, got {type(config).__name__}")
    if max_iter is not None:
        check_count("max_iter", max_iter)
    if not rows:
        raise ValueError("the list has no configuration: give at least one value")
    numbers, options = method.Hyper._fields, tuple(field.name for field in fields(method.Config))
    for name in axes:
        if name not in (*numbers, *options, "mask", "seed"):
            known = ", ".join((*numbers, *options, "mask", "seed"))
            raise ValueError(f"{method.title} has no parameter {name!r}; it has {known}")
    configurations = []
    for row in rows:
        values = dict(zip(axes, row, strict=True))
        for name in values:
            whole = name in ("mask", "seed") or isinstance(getattr(config, name, None), int)
            if whole and not isinstance(values[name], int):
                raise ValueError(f"{name} must be integers, got {values[name]!r}")
        hyper = method.Hyper()._replace(**{name: values[name] for name in numbers if name in values})
        check_hyper(method, hyper)
        hyper = hyper._replace(**{name: float(values[name]) for name in numbers if name in values})
        chosen = replace(config, **{name: values[name] for name in options if name in values})
        mask, seed = values.get("mask", 0), values.get("seed", 0)
        check_count("mask", mask, least=0)
        check_count("seed", seed, LARGEST_SEED, least=0)
        configurations.append(Configuration(hyper, chosen, mask, seed))
    varying = tuple(name for name in axes if name in options)
    return Grid(method, method.max_iter if max_iter is None else max_iter, varying, configurations)


def grid(
    axes: Mapping[str, Values],
    *,
    method: Method | str = JPLTD,
    config: Any = None,
    max_iter: int | None = None,
) -> Grid:
    """All combinations of the given values, the last axis varying fastest.

    Parameters
    ----------
    axes
        Values by name: any field of ``method.Hyper`` and of ``method.Config``, ``"mask"`` (which of the masks given to
        :func:`jpltd_jax.sweep`) and ``"seed"`` (folded into the key given to it).
    method
        One of :data:`jpltd_jax.methods.METHODS` or its name, or your own.
    config
        Options that do not vary. Default: those of the method.
    max_iter
        Largest number of iterations. Default: that of the method.

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> made = jj.grid({"lam": [1.0, 2.0], "theta": [0.1, 0.5]}, config=jj.PUBLISHED)
    >>> [(row["lam"], row["theta"]) for row in made.parameters()]
    [(1.0, 0.1), (1.0, 0.5), (2.0, 0.1), (2.0, 0.5)]
    """
    record = method_of(method)
    rows = list(itertools.product(*_columns(axes)))
    return _made(axes, rows, record, record.Config() if config is None else config, max_iter)


def listed(
    axes: Mapping[str, Values],
    *,
    method: Method | str = JPLTD,
    config: Any = None,
    max_iter: int | None = None,
) -> Grid:
    """The configurations of a list, not of a product: the i-th values of all axes together. As :func:`grid` otherwise.

    Examples
    --------
    >>> from jpltd_jax.sweeps.grid import listed
    >>> [row["lam"] for row in listed({"lam": [1.0, 2.0], "theta": [0.1, 0.5]}).parameters()]
    [1.0, 2.0]
    """
    record = method_of(method)
    columns = _columns(axes)
    if len({len(column) for column in columns}) > 1:
        lengths = ", ".join(f"{name} {len(column)}" for name, column in zip(axes, columns, strict=True))
        raise ValueError(f"a list needs one value of each axis per configuration, got {lengths}")
    rows = list(zip(*columns, strict=True))
    return _made(axes, rows, record, record.Config() if config is None else config, max_iter)
