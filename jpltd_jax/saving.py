"""Fitted estimators as files: an .npz archive of plain arrays, and a JSON text that says what each of them is.

Nothing is pickled. A value is a number, a text, an array, a list, tuple or dictionary of values, or one of the
package's records: a dataclass, a named tuple or an enumeration. Records are taken apart by their fields, so a field
that is added to one is saved without a word here; a file that lacks it is read if the field has a default.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from jpltd_jax._archive import read_archive, write_archive

__all__ = ["FORMAT", "load_model", "save_model"]

FORMAT = 1
"""Of the files. Another one is refused."""

HEADER = "jpltd_jax"
PACKAGE = __name__.split(".")[0]

Estimator = TypeVar("Estimator", bound=BaseEstimator)


def _is_record(kind: type) -> bool:
    """Whether it is a dataclass or a named tuple of this package."""
    named = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return kind.__module__.split(".")[0] == PACKAGE and (dataclasses.is_dataclass(kind) or named)


def _fields(kind: Any) -> dict[str, bool]:
    """The fields of a record, and whether each has a default."""
    if not dataclasses.is_dataclass(kind):
        return {name: name in kind._field_defaults for name in kind._fields}
    missing = dataclasses.MISSING
    return {one.name: (one.default, one.default_factory) != (missing, missing) for one in dataclasses.fields(kind)}


class _Writer:
    """Takes values apart into a description in JSON and arrays by name."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def _array(self, value: Any, place: str, kind: str) -> dict[str, Any]:
        array = np.asarray(value)
        if array.dtype.kind not in "biufcUS":
            raise TypeError(f"cannot save {place}: an array of dtype {array.dtype}")
        self.arrays[place] = array
        return {kind: place, "dtype": array.dtype.str, "shape": list(array.shape)}

    def describe(self, value: Any, place: str) -> Any:
        """A value in terms of JSON and of :attr:`arrays`; ``place`` says where it stands, and names its array."""
        if value is None or type(value) in (bool, int, str) or (type(value) is float and np.isfinite(value)):
            return value
        if isinstance(value, Enum) and type(value).__module__.split(".")[0] == PACKAGE:
            return {"enum": _name_of(type(value)), "member": value.name}
        if _is_record(type(value)):
            parts = {name: self.describe(getattr(value, name), f"{place}.{name}") for name in _fields(type(value))}
            return {"record": _name_of(type(value)), "fields": parts}
        if isinstance(value, np.ndarray) and value.dtype == object:
            return {
                "objects": [self.describe(one, f"{place}[{i}]") for i, one in enumerate(value.ravel().tolist())],
                "shape": list(value.shape),
            }
        if isinstance(value, jax.Array):
            return self._array(value, place, "jax")
        if isinstance(value, np.ndarray):
            return self._array(value, place, "numpy")
        if isinstance(value, np.generic | float):
            return self._array(value, place, "scalar" if isinstance(value, np.generic) else "float")
        if type(value) in (list, tuple):
            items = [self.describe(one, f"{place}[{i}]") for i, one in enumerate(value)]
            return items if type(value) is list else {"tuple": items}
        if type(value) is dict:
            keys = [self.describe(key, f"{place}.keys[{i}]") for i, key in enumerate(value)]
            values = [self.describe(one, f"{place}[{key!r}]") for key, one in value.items()]
            return {"dict": list(zip(keys, values, strict=True))}
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if type(value) is range:
            return {"range": [value.start, value.stop, value.step]}
        raise TypeError(f"cannot save {place}: a {type(value).__name__}; numbers, texts and arrays can be saved")


def _name_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _kind_of(name: Any, is_wanted: Callable[[type], bool]) -> Any:
    """The record or enumeration of the package with that name; nothing is imported for it."""
    module, _, qualified = str(name).partition(":")
    kind = getattr(sys.modules.get(module), qualified, None) if module.split(".")[0] == PACKAGE else None
    if not isinstance(kind, type) or not is_wanted(kind) or _name_of(kind) != name:
        raise ValueError(f"{name!r} is not known")
    return kind


class _Reader:
    """Puts values together again."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = arrays

    def _array(self, description: Mapping[str, Any], kind: str) -> Any:
        name = description[kind]
        if name not in self.arrays:
            raise ValueError(f"the array {name!r} is missing")
        array = self.arrays[name]
        found, said = (array.dtype.str, array.shape), (description["dtype"], tuple(description["shape"]))
        if found != said:
            raise ValueError(f"the array {name!r} is {found[0]} {found[1]}, but should be {said[0]} {said[1]}")
        if kind in ("scalar", "float"):
            return array[()] if kind == "scalar" else float(array)
        return jnp.asarray(array) if kind == "jax" else array

    def value(self, description: Any) -> Any:
        """What :meth:`_Writer.describe` took apart."""
        if isinstance(description, list):
            return [self.value(one) for one in description]
        if not isinstance(description, dict):
            return description
        kind = next(iter(description), None)
        if kind in ("jax", "numpy", "scalar", "float"):
            return self._array(description, kind)
        if kind == "range":
            return range(*description[kind])
        if kind == "tuple":
            return tuple(self.value(one) for one in description[kind])
        if kind == "dict":
            return {self.value(key): self.value(one) for key, one in description[kind]}
        if kind == "objects":
            array = np.empty(len(description[kind]), object)
            array[:] = [self.value(one) for one in description[kind]]
            return array.reshape(description["shape"])
        if kind == "enum":
            return _kind_of(description[kind], lambda found: issubclass(found, Enum))[description["member"]]
        if kind == "record":
            return self._record(_kind_of(description[kind], _is_record), description["fields"])
        raise ValueError(f"{kind!r} is not a kind of value")

    def _record(self, kind: Any, parts: Mapping[str, Any]) -> Any:
        known = _fields(kind)
        for name in parts.keys() - known.keys():
            raise ValueError(f"{kind.__name__} has no field {name!r} here")
        for name in known.keys() - parts.keys():
            if not known[name]:
                raise ValueError(f"{kind.__name__} needs {name!r}, which is missing")
        return kind(**{name: self.value(part) for name, part in parts.items()})


def save_model(path: str | os.PathLike[str], estimator: BaseEstimator) -> None:
    """Write a fitted estimator: whole, or not at all. See :meth:`jpltd_jax.JPLTD.save`.

    Examples
    --------
    >>> import tempfile
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.saving import load_model, save_model
    >>> views = jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8)).views
    >>> model = jj.JPLTD(3, random_state=0).fit(views)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(f"{folder}/model.npz", model)
    ...     again = load_model(f"{folder}/model.npz", jj.JPLTD)
    >>> bool((again.predict(views) == model.predict(views)).all())
    True
    """
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise ValueError(f"the name must end in .npz, got {path}")
    check_is_fitted(estimator)
    parameters = estimator.get_params(deep=False)
    fitted = {name: value for name, value in vars(estimator).items() if name not in parameters}
    writer = _Writer()
    header = {
        "format": FORMAT,
        "version": version(PACKAGE),
        "estimator": type(estimator).__name__,
        "parameters": {name: writer.describe(value, name) for name, value in parameters.items()},
        "fitted": {name: writer.describe(value, name) for name, value in fitted.items()},
    }
    text = np.frombuffer(json.dumps(header, allow_nan=False).encode(), np.uint8)
    write_archive(path, {HEADER: text} | writer.arrays)


def load_model(path: str | os.PathLike[str], kind: type[Estimator]) -> Estimator:
    """Read a fitted estimator that :func:`save_model` wrote. Nothing in the file can run code."""
    arrays, _ = read_archive(path)
    try:
        header = json.loads(arrays.pop(HEADER).tobytes())
        found, writer = header["format"], header["version"]
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not a saved model") from error
    if found != FORMAT:
        raise ValueError(f"{path} has format {found!r}, of jpltd_jax {writer}; this version reads format {FORMAT}")
    if header.get("estimator") != kind.__name__:
        raise ValueError(f"{path} holds a {header.get('estimator')}, not a {kind.__name__}")
    reader = _Reader(arrays)
    try:
        with jax.enable_x64(True):
            parameters, fitted = (
                {name: reader.value(one) for name, one in header[part].items()} for part in ("parameters", "fitted")
            )
        model = kind(**parameters)
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} is damaged, or of another version (jpltd_jax {writer}): {reason}") from error
    vars(model).update(fitted)
    return model
