"""NumPy archives (.npz) from hands that need not be trusted: no pickles, and no more memory than the file can fill."""

import math
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jpltd_jax._files import check_fits, replacing

__all__ = ["read_archive", "write_archive"]

PIECE = 1 << 24
"""Bytes to read at once."""


def _header(member: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(member)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version} of the array format is not supported")
    return readers[version](member)


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as member:
        shape, is_fortran, dtype = _header(member)
        if dtype.hasobject:
            raise ValueError("it holds Python objects, which are never loaded: save numbers or plain strings")
        needed, stored = math.prod(shape) * dtype.itemsize, info.file_size - member.tell()
        if needed != stored:
            raise ValueError(f"its header claims {dtype} {shape}, {needed} bytes, but there are {stored}")
        check_fits(needed)
        data, filled = np.empty(needed, np.uint8), 0
        while piece := member.read(PIECE):
            data[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
            filled += len(piece)
        if filled != needed:
            raise ValueError(f"it ends after {filled} of {needed} bytes")
    return data.view(dtype).reshape(shape, order="F" if is_fortran else "C")


def read_archive(
    path: str | os.PathLike[str], wanted: Callable[[str], bool] = lambda name: True
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The wanted arrays of an .npz file, and the names of all of them.

    An array whose header claims another size than the file has for it is refused before memory is taken for it.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from jpltd_jax._archive import read_archive
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/two.npz", a=np.eye(2), b=np.ones(3))
    ...     read_archive(f"{folder}/two.npz", lambda name: name == "b")
    ({'b': array([1., 1., 1.])}, ['a', 'b'])
    """
    path = Path(path)
    name = None
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
                arrays = {}
                for name, info in members.items():
                    if wanted(name):
                        arrays[name] = _array(archive, info)
        except Exception as error:
            about = f"{path} is not a readable archive" + (f", array {name!r}" if name else "")
            raise ValueError(f"{about}: {str(error) or type(error).__name__}") from error
    return arrays, list(members)


def write_archive(path: Path, arrays: Mapping[str, Any], *, compress: bool = False) -> None:
    """Write an .npz file, whole or not at all."""
    with replacing(path, "wb") as file:
        (np.savez_compressed if compress else np.savez)(file, allow_pickle=False, **arrays)
