"""Multi-view data sets: bundled, synthetic, and read from NumPy archives and MATLAB files."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.io
from scipy.sparse import csc_array, issparse
from sklearn.datasets import load_digits

from jpltd_jax._archive import read_archive, write_archive
from jpltd_jax._files import check_fits
from jpltd_jax._matlab import read_mat5
from jpltd_jax.views import as_matrix, checked_mask

__all__ = [
    "MultiViewData",
    "load",
    "load_digits_multiview",
    "load_mat",
    "load_npz",
    "locate",
    "make_blobs",
    "save_npz",
]

VIEW_KEYS = ("X", "data", "fea", "views")
LABEL_KEYS = ("Y", "gt", "truth", "labels", "label", "gnd", "y", "truelabel")
"""Names under which MATLAB files hold the views and the labels, in the order in which they are tried."""

KNOWN = {*VIEW_KEYS, *LABEL_KEYS, "ids", "mask"}

HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


class MultiViewData(NamedTuple):
    """Views of the same n samples, with the classes if they are known.

    Attributes
    ----------
    views
        List of m matrices (n, d_v), samples as rows, in the dtype they are stored in.
    labels
        (n,) int64, the classes 0, ..., c-1 in the order of the values they stand for; None if unknown.
    mask
        (n, m) bool, True where observed; None when nothing is said to be missing.
    name
        What to call it; for a file, its name without the suffix.
    ids
        (n,) strings or integers, what to call the samples; None if they have no names.
    """

    views: list[np.ndarray]
    labels: np.ndarray | None
    mask: np.ndarray | None
    name: str
    ids: np.ndarray | None = None


def _checked_labels(labels: object) -> np.ndarray:
    array = np.asarray(labels)
    numbers = array.dtype.kind in "fiub" and np.isfinite(array).all()
    if not numbers and array.dtype.kind not in "US":
        raise ValueError(f"labels must be finite numbers or strings, got dtype {array.dtype}: {array.ravel()[:5]} ...")
    if array.size != max(array.shape, default=0):
        raise ValueError(f"labels must be a vector, got shape {array.shape}")
    return np.unique(array.ravel(), return_inverse=True)[1].astype(np.int64)


def _checked_ids(ids: object, n: int) -> np.ndarray:
    array = np.asarray(ids)
    if array.dtype.kind == "f" and np.array_equal(array, np.rint(array)):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iuUS":
        raise ValueError(f"ids must be strings or integers, got dtype {array.dtype}")
    if array.size != max(array.shape, default=0):
        raise ValueError(f"ids must be a vector, got shape {array.shape}")
    array = np.char.decode(array.ravel(), "utf-8") if array.dtype.kind == "S" else array.ravel()
    if len(array) != n:
        raise ValueError(f"there are {len(array)} ids but the views have {n} samples")
    values, counts = np.unique(array, return_counts=True)
    if counts.max() > 1:
        raise ValueError(f"the sample id {values[np.argmax(counts)].item()!r} is there more than once")
    return array


def _checked(views: Sequence[object], labels: object, mask: Any, name: str, ids: object = None) -> MultiViewData:
    if len(views) == 0:
        raise ValueError("there are no views")
    matrices = [as_matrix(view, v) for v, view in enumerate(views)]
    n = len(matrices[0])
    for v, matrix in enumerate(matrices):
        if len(matrix) != n:
            raise ValueError(f"view {v} has {len(matrix)} samples but view 0 has {n}")
    classes = None if labels is None else _checked_labels(labels)
    if classes is not None and len(classes) != n:
        raise ValueError(f"there are {len(classes)} labels but the views have {n} samples")
    hidden = None if mask is None else checked_mask(mask, n, len(views))
    return MultiViewData(matrices, classes, hidden, name, None if ids is None else _checked_ids(ids, n))


def _orientation_histograms(images: np.ndarray) -> np.ndarray:
    """Gradient directions in 8 bins for each quarter of the (n, 8, 8) images, weighted by magnitude: (n, 32).

    Every direction is shared linearly between its two nearest bins.
    """
    down, right = np.gradient(images, axis=(1, 2))
    direction = np.arctan2(down, right)[..., None] * 4 / np.pi
    distance = np.abs((direction - np.arange(8) + 4) % 8 - 4)
    weights = np.hypot(down, right)[..., None] * np.maximum(1 - distance, 0)
    return weights.reshape(-1, 2, 4, 2, 4, 8).sum(axis=(2, 4)).reshape(-1, 32)


def load_digits_multiview(n_samples: int | None = None) -> MultiViewData:
    """Handwritten digits in three views: 64 pixels, 40 Fourier magnitudes, 32 gradient orientation histograms.

    The 1797 images (8 x 8, 10 classes) come with scikit-learn; nothing is downloaded. They are in file order, in which
    the classes are mixed, and ``n_samples`` takes the first so many.

    Examples
    --------
    >>> from jpltd_jax.datasets import load_digits_multiview
    >>> digits = load_digits_multiview(300)
    >>> [view.shape for view in digits.views], digits.labels[:12]
    ([(300, 64), (300, 40), (300, 32)], array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]))
    """
    pixels, labels = load_digits(return_X_y=True)
    if n_samples is not None and not 1 <= n_samples <= len(labels):
        raise ValueError(f"n_samples must be from 1 to {len(labels)}, got {n_samples}")
    images = pixels[:n_samples].reshape(-1, 8, 8)
    magnitudes = np.abs(np.fft.rfft2(images)).reshape(-1, 40)
    views = [pixels[:n_samples], magnitudes, _orientation_histograms(images)]
    return _checked(views, labels[:n_samples], None, "digits")


def make_blobs(
    seed: int,
    *,
    n_samples: int = 120,
    dims: Sequence[int] = (20, 30),
    n_clusters: int = 3,
    noise: float | Sequence[float] = 0.1,
    separation: float = 6.0,
) -> MultiViewData:
    """Gaussian clusters of equal size (up to one sample) seen through linear views, in random order.

    Parameters
    ----------
    seed
        The same seed gives the same data.
    n_samples, n_clusters
        Number of samples and of clusters.
    dims
        Number of features of each view.
    noise
        Standard deviation of the noise that a view adds to each of its features: one for all views, or one for each.
    separation
        Distance between any two cluster centres, where the samples of a cluster scatter about their centre with
        standard deviation 1 in each of ``n_clusters`` dimensions. A view rotates these into its own features at random,
        which keeps all distances, or, when it has fewer features than that, projects them.

    Examples
    --------
    >>> from jpltd_jax.datasets import make_blobs
    >>> blobs = make_blobs(0, n_samples=6, dims=(5, 4), noise=(0.1, 2.0))
    >>> [view.shape for view in blobs.views], sorted(blobs.labels.tolist())
    ([(6, 5), (6, 4)], [0, 0, 1, 1, 2, 2])
    """
    if not 1 <= n_clusters <= n_samples:
        raise ValueError(f"n_clusters must be from 1 to n_samples = {n_samples}, got {n_clusters}")
    levels = np.full(len(dims), noise) if np.ndim(noise) == 0 else np.asarray(noise)
    if len(levels) != len(dims):
        raise ValueError(f"noise has {len(levels)} levels for {len(dims)} views")
    if not all(0 <= x < np.inf for x in [*levels, separation]):
        raise ValueError(f"noise and separation must be finite and >= 0, got {noise} and {separation}")
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n_samples) % n_clusters)
    latent = separation / np.sqrt(2) * np.eye(n_clusters)[labels] + rng.normal(size=(n_samples, n_clusters))
    views = []
    for d, level in zip(dims, levels, strict=True):
        rotation = np.linalg.qr(rng.normal(size=(max(d, n_clusters), n_clusters)))[0][:d]
        views.append(latent @ rotation.T + level * rng.normal(size=(n_samples, d)))
    return _checked(views, labels, None, "blobs")


@contextmanager
def _about(subject: str) -> Iterator[None]:
    """Turn whatever a parser or a check throws at a bad file into a ValueError that begins with the subject."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{subject}: {error}") from error


def load_npz(path: str | os.PathLike[str]) -> MultiViewData:
    """Read a NumPy archive with ``view0``, ``view1``, ... (n, d_v), and ``labels``, ``mask`` and ``ids`` if present.

    ``labels`` (n,) are numbers or strings, ``mask`` is (n, m) bool, ``ids`` (n,) are strings or integers. Other arrays
    in it are ignored. Pickled objects are refused.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from jpltd_jax.datasets import load_npz
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/pair.npz", view0=np.eye(3), view1=np.ones((3, 2)), labels=["dog", "dog", "eel"])
    ...     pair = load_npz(f"{folder}/pair.npz")
    >>> pair.name, len(pair.views), pair.labels
    ('pair', 2, array([0, 0, 1]))
    """
    path = Path(path)
    arrays, keys = read_archive(path, lambda key: re.fullmatch(r"view\d+|labels|mask|ids", key) is not None)
    names = [f"view{v}" for v in range(len(arrays.keys() - {"labels", "mask", "ids"}))]
    if not names or not arrays.keys() >= set(names):
        raise ValueError(f"{path} must hold view0, view1, ... without a gap; it holds {keys}")
    with _about(str(path)):
        views = [arrays[name] for name in names]
        return _checked(views, arrays.get("labels"), arrays.get("mask"), path.stem, arrays.get("ids"))


def save_npz(path: str | os.PathLike[str], data: MultiViewData) -> None:
    """Write the archive that :func:`load_npz` reads: whole, or not at all.

    The data are checked first, and a file already at ``path`` stays as it is until the new one is complete. The name
    is not stored: it is that of the file.

    Examples
    --------
    >>> import tempfile
    >>> from jpltd_jax.datasets import load_npz, make_blobs, save_npz
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_npz(f"{folder}/easy.npz", make_blobs(0))
    ...     load_npz(f"{folder}/easy.npz").name
    'easy'
    """
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise ValueError(f"the name must end in .npz, got {path}")
    data = _checked(*data)
    optional = {"labels": data.labels, "mask": data.mask, "ids": data.ids}
    arrays = {f"view{v}": view for v, view in enumerate(data.views)}
    arrays |= {name: array for name, array in optional.items() if array is not None}
    write_archive(path, arrays, compress=True)


def _text(value: object) -> str | None:
    """A string of MATLAB's, else None."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "U" and value.size <= 1:
        return "".join(value.ravel()).strip()
    return None


def _texts(value: Any) -> np.ndarray | None:
    """A column of MATLAB's strings, a cell array or a matrix of characters; None if it is none."""
    if not isinstance(value, np.ndarray) or value.size == 0:
        return None
    if value.dtype.kind == "U":
        return np.char.strip(value.ravel())
    found = [_text(cell) for cell in value.ravel()] if _is_cell(value) else [None]
    return None if None in found else np.array(found, str)


def _dense(value: Any) -> Any:
    """A sparse matrix as a dense one, after looking at its indices, which SciPy takes as they are."""
    if not issparse(value):
        return value
    check_fits(value.shape[0] * value.shape[1] * 8)
    value = value.tocsc()
    value.check_format(full_check=True)
    return value.toarray()


def _mat_mask(value: Any) -> np.ndarray:
    """MATLAB's logical matrix, which may come as numbers 0 and 1."""
    array = np.asarray(_dense(value))
    return array.astype(bool) if array.dtype.kind in "iuf" and np.isin(array, (0, 1)).all() else array


def _is_cell(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object


def _from_hdf5(file: Any, item: Any) -> Any:
    """Give a MATLAB 7.3 variable the form in which scipy.io.loadmat returns one; None for what cannot be a matrix."""
    if "MATLAB_sparse" in item.attrs:
        check_fits(sum(part.size * part.dtype.itemsize for part in item.values()))
        columns = item["jc"][()].astype(np.int64)
        entries = (item["data"][()], item["ir"][()].astype(np.int64)) if "data" in item else ([], [])
        return csc_array((*entries, columns), shape=(int(item.attrs["MATLAB_sparse"]), len(columns) - 1))
    if not hasattr(item, "dtype"):
        return None
    check_fits(item.size * item.dtype.itemsize)
    array = item[()].T
    if item.attrs.get("MATLAB_class") == b"char":
        is_empty = bool(item.attrs.get("MATLAB_empty", False))
        return np.array([] if is_empty else ["".join(map(chr, row)) for row in np.atleast_2d(array)], str)
    if not _is_cell(array):
        return array
    cells = np.empty(array.shape, object)
    for index, reference in np.ndenumerate(array):
        cells[index] = _from_hdf5(file, file[reference])
    return cells


def _read_mat(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        head = file.read(512 + len(HDF5_SIGNATURE))
        file.seek(0)
        if HDF5_SIGNATURE not in (head[: len(HDF5_SIGNATURE)], head[512:]):
            with _about(f"{path} is not a readable MATLAB file"):
                is_version_4 = 0 in head[:4]
                return scipy.io.loadmat(file) if is_version_4 else read_mat5(file.read(), KNOWN.__contains__)
    try:
        import h5py
    except ImportError as error:
        raise ImportError(f"{path} is a MATLAB 7.3 file; reading it needs h5py: pip install h5py") from error
    with _about(f"{path} is not a readable MATLAB 7.3 file"), h5py.File(path, "r") as file:
        return {name: _from_hdf5(file, file[name]) if name in KNOWN else None for name in file if name[0] != "#"}


def _label_vector(value: Any) -> np.ndarray:
    texts = _texts(value)
    if texts is not None:
        return _checked_labels(texts)
    if not _is_cell(value):
        return _checked_labels(_dense(value))
    vectors = [_label_vector(cell) for cell in value.ravel()]
    if not vectors or not all(np.array_equal(vector, vectors[0]) for vector in vectors):
        raise ValueError(f"the {len(vectors)} cells of labels are not copies of one vector")
    return vectors[0]


def _samples_as_rows(matrices: list[np.ndarray], n_labels: int | None) -> list[np.ndarray]:
    shapes = [x.shape for x in matrices]
    sizes = set.intersection(*map(set, shapes)) if n_labels is None else {n_labels}
    if not all(sizes & set(shape) for shape in shapes):
        missing = "a size in common" if n_labels is None else f"a side as long as the {n_labels} labels"
        raise ValueError(f"the views do not all have {missing}: their shapes are {shapes}")
    axes = {shape.index(n) for n in sizes for shape in shapes if shape[0] != shape[1]}
    if len(sizes) > 1 or (len(axes) != 1 and any(a == b for a, b in shapes)):
        raise ValueError(
            f"ambiguous: samples may be the rows or the columns of views of shapes {shapes}; "
            "pass samples_as='rows' or 'columns'"
        )
    turned = [a not in sizes if a != b else axes == {1} for a, b in shapes]
    return [x.T if turn else x for x, turn in zip(matrices, turned, strict=True)]


def load_mat(path: str | os.PathLike[str], *, samples_as: Literal["auto", "rows", "columns"] = "auto") -> MultiViewData:
    """Read a MATLAB file with a cell array of views and, if present, a vector of labels, ``mask`` and ``ids``.

    Parameters
    ----------
    path
        MATLAB file of any version; 7.3 needs the package h5py. The views are the first cell array under a name in
        ``VIEW_KEYS``, the labels stand under the first name present of ``LABEL_KEYS``: a vector, a cell array with
        copies of one, or a cell array of strings. ``mask`` is (n, m), true where observed; ``ids`` has a number or a
        string for each sample. Sparse views come back dense.
    samples_as
        Whether samples are the rows or the columns of each cell. ``"auto"`` finds the side as long as the labels or,
        without labels, the size that all cells share. A square cell is taken to lie as the others do; what stays
        ambiguous is an error.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, scipy.io
    >>> from jpltd_jax.datasets import load_mat
    >>> cells = np.empty((1, 2), object)
    >>> cells[0, 0], cells[0, 1] = np.ones((5, 3)), np.ones((2, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     scipy.io.savemat(f"{folder}/small.mat", {"X": cells, "Y": [[1], [2], [2]]})
    ...     small = load_mat(f"{folder}/small.mat")
    >>> [view.shape for view in small.views], small.labels
    ([(3, 5), (3, 2)], array([0, 1, 1]))
    """
    if samples_as not in ("auto", "rows", "columns"):
        raise ValueError(f"samples_as must be 'auto', 'rows' or 'columns', got {samples_as!r}")
    path = Path(path)
    variables = _read_mat(path)
    cells = next((variables[key] for key in VIEW_KEYS if _is_cell(variables.get(key))), None)
    if cells is None:
        keys = [key for key in variables if not key.startswith("__")]
        raise ValueError(f"{path} has no cell array of views under one of {VIEW_KEYS}; it holds {keys}")
    labels_key = next((key for key in LABEL_KEYS if key in variables), None)
    with _about(str(path)):
        if cells.size == 0 or cells.size != max(cells.shape):
            raise ValueError(f"expected one row or column of views, got a cell array of shape {cells.shape}")
        matrices = [as_matrix(_dense(cell), v) for v, cell in enumerate(cells.ravel())]
        labels = None if labels_key is None else _label_vector(variables[labels_key])
        if samples_as == "columns":
            matrices = [x.T for x in matrices]
        elif samples_as == "auto":
            matrices = _samples_as_rows(matrices, None if labels is None else len(labels))
        ids, mask = variables.get("ids"), variables.get("mask")
        texts = _texts(ids)
        mask = None if mask is None else _mat_mask(mask)
        return _checked(matrices, labels, mask, path.stem, ids if texts is None else texts)


LOADERS = {".npz": load_npz, ".mat": load_mat}


def locate(name_or_path: str | os.PathLike[str]) -> Path | None:
    """The file that :func:`load` reads; None for the bundled set.

    Examples
    --------
    >>> from jpltd_jax.datasets import locate
    >>> locate("folder/mine.npz").name, locate("digits")
    ('mine.npz', None)
    """
    path = Path(name_or_path)
    if path.suffix or path.name != os.fspath(name_or_path):
        if path.suffix.lower() not in LOADERS:
            raise ValueError(
                f"cannot tell the format of {path}: expected a name that ends in .npz or .mat; "
                "tables (.csv, .tsv, .parquet) are one view each: jpltd_jax.tables.read_tables"
            )
        return path
    if path.name == "digits":
        return None
    folder = os.environ.get("JPLTD_DATA")
    for suffix in LOADERS:
        if folder and (file := Path(folder, path.name + suffix)).exists():
            return file
    where = f"the directory named by JPLTD_DATA, {folder}" if folder else "JPLTD_DATA: that variable is not set"
    raise FileNotFoundError(f"only 'digits' is bundled, and there is no {path.name}.npz or {path.name}.mat in {where}")


def load(name_or_path: str | os.PathLike[str]) -> MultiViewData:
    """Load a data set by file name (.npz or .mat), or by bare name.

    The name ``"digits"`` is bundled (:func:`load_digits_multiview`). Any other is NAME.npz, else NAME.mat, in the
    directory that the environment variable JPLTD_DATA names.

    Examples
    --------
    >>> from jpltd_jax.datasets import load
    >>> load("digits").labels.shape
    (1797,)
    """
    path = locate(name_or_path)
    return load_digits_multiview() if path is None else LOADERS[path.suffix.lower()](path)
