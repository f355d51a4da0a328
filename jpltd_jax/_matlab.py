"""MATLAB 5 files, as far as views need them: numbers, characters, sparse matrices, and cells of these.

SciPy's reader takes types and sizes in a file as they are, and a damaged file can end the process. Here every element
must lie inside the one that holds it and hold as much as its shape says, before memory is taken for it.
"""

import math
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csc_array

from jpltd_jax._files import check_fits

__all__ = ["read_mat5"]

NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""Types of stored numbers."""
TEXTS = {
    16: {"<": "utf-8", ">": "utf-8"},
    17: {"<": "utf-16-le", ">": "utf-16-be"},
    18: {"<": "utf-32-le", ">": "utf-32-be"},
}
"""Types of stored text, by the order of the bytes."""
MATRIX, COMPRESSED = 14, 15
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
"""What the stored numbers stand for."""
CELL, CHARACTERS, SPARSE = 1, 4, 5
COMPLEX, LOGICAL = 0x08, 0x02
HEADER = 128
ENOUGH_FOR_A_NAME = 4096


class _Elements:
    """The elements of a stretch of bytes, one after the other."""

    def __init__(self, data: bytes | memoryview, endian: str) -> None:
        self.data, self.endian, self.at = memoryview(data), endian, 0

    def next(self) -> tuple[int, memoryview]:
        """Type and content of the next element; one of up to four bytes may stand inside its own head."""
        left = len(self.data) - self.at
        if left < 8:
            raise ValueError("it ends in the middle of an array")
        kind, size = struct.unpack_from(f"{self.endian}2I", self.data, self.at)
        start, room, step = self.at + 8, left - 8, 8 + size + (-size % 8 if kind != COMPRESSED else 0)
        if kind >> 16:
            kind, size, start, room, step = kind & 0xFFFF, kind >> 16, self.at + 4, 4, 8
        if size > room:
            raise ValueError(f"an element claims {size} bytes, where there are {room}")
        self.at += step
        return kind, self.data[start : start + size]

    def _numbers(self, kind: int, content: memoryview) -> np.ndarray:
        if kind not in NUMBERS or len(content) % np.dtype(NUMBERS[kind]).itemsize:
            raise ValueError(f"an element of type {kind} and {len(content)} bytes, where numbers should be")
        return np.frombuffer(content, np.dtype(self.endian + NUMBERS[kind]))

    def numbers(self) -> np.ndarray:
        """The next element, which holds numbers."""
        return self._numbers(*self.next())

    def characters(self) -> list[str]:
        """The next element, which holds text."""
        kind, content = self.next()
        if kind in TEXTS:
            return list(bytes(content).decode(TEXTS[kind][self.endian]))
        return [chr(code) for code in self._numbers(kind, content).tolist()]


def _header(elements: _Elements) -> tuple[int, int, tuple[int, ...], str]:
    """Class, flags, shape and name of a matrix."""
    flags = elements.numbers()
    if flags.dtype.itemsize != 4 or len(flags) != 2:
        raise ValueError("an array without flags")
    shape = tuple(elements.numbers().tolist())
    if len(shape) < 2 or min(shape) < 0:
        raise ValueError(f"an array of shape {shape}")
    _, name = elements.next()
    return int(flags[0]) & 0xFF, int(flags[0]) >> 8, shape, bytes(name).decode("latin-1")


def _value(content: memoryview, endian: str) -> Any:
    """A matrix; None for a struct, an object or a function."""
    if len(content) == 0:
        return np.zeros((0, 0))
    elements = _Elements(content, endian)
    kind, flags, shape, _ = _header(elements)
    size = math.prod(shape)
    if kind == CELL:
        if 8 * size > len(content):
            raise ValueError(f"a cell array claims {size} cells in {len(content)} bytes")
        cells = np.empty(size, object)
        for i in range(size):
            inner, part = elements.next()
            if inner != MATRIX:
                raise ValueError(f"an element of type {inner}, where a cell should be")
            cells[i] = _value(part, endian)
        return cells.reshape(shape, order="F")
    if kind == SPARSE:
        rows, starts, values = elements.numbers(), elements.numbers(), elements.numbers()
        if flags & COMPLEX:
            raise ValueError("a sparse matrix of complex numbers")
        count = int(starts[-1]) if len(starts) else 0
        parts = values[:count].astype(np.float64), rows[:count].astype(np.int64), starts.astype(np.int64)
        return csc_array(parts, shape=shape)
    if kind == CHARACTERS:
        letters = elements.characters()
        _check_count(len(letters), shape)
        rows = np.array(letters, "U1").reshape(shape, order="F").reshape(shape[0], -1)
        return np.array(["".join(row) for row in rows], str) if size else np.array([], str)
    if kind not in CLASSES:
        return None
    values = elements.numbers()
    _check_count(len(values), shape)
    if flags & COMPLEX:
        imaginary = elements.numbers()
        _check_count(len(imaginary), shape)
        values = values + 1j * imaginary
    else:
        values = values.astype(bool if flags & LOGICAL else CLASSES[kind])
    return values.reshape(shape, order="F")


def _check_count(count: int, shape: tuple[int, ...]) -> None:
    if count != math.prod(shape):
        raise ValueError(f"an array of shape {shape} has {count} numbers")


def read_mat5(data: bytes, wanted: Callable[[str], bool]) -> dict[str, Any]:
    """The wanted variables of a file, as :func:`scipy.io.loadmat` gives them; None for the others.

    Numbers have the type that MATLAB gave them, however they are stored.

    Examples
    --------
    >>> import io
    >>> import numpy as np, scipy.io
    >>> from jpltd_jax._matlab import read_mat5
    >>> file = io.BytesIO()
    >>> scipy.io.savemat(file, {"X": np.eye(2), "note": "text"})
    >>> read_mat5(file.getvalue(), lambda name: name == "X")
    {'X': array([[1., 0.],
           [0., 1.]]), 'note': None}
    """
    endian = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}.get(bytes(data[HEADER - 4 : HEADER]))
    if endian is None:
        raise ValueError("it has no header of MATLAB's")
    elements = _Elements(memoryview(data)[HEADER:], endian)
    found: dict[str, Any] = {}
    while elements.at < len(elements.data):
        kind, content = elements.next()
        packed = content if kind == COMPRESSED else None
        if packed is not None:
            content = memoryview(zlib.decompressobj().decompress(packed, ENOUGH_FOR_A_NAME))
            kind, size = struct.unpack_from(f"{endian}2I", content)
            content = content[8:]
        if kind != MATRIX:
            raise ValueError(f"an element of type {kind}, where a variable should be")
        *_, name = _header(_Elements(content, endian))
        found[name] = None
        if not wanted(name):
            continue
        if packed is not None:
            check_fits(size)
            content = memoryview(zlib.decompressobj().decompress(packed, size + 8))[8:]
            if len(content) != size:
                raise ValueError(f"the variable {name} claims {size} bytes, but has {len(content)}")
        found[name] = _value(content, endian)
    return found
