"""Matrices and tensors with the structure that breaks proximal operators; small incomplete data."""

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np

MATRIX_SHAPES = [(1, 1), (3, 3), (2, 5), (5, 2)]
TENSOR_SHAPES = [(2, 3, 1), (2, 3, 4), (3, 2, 5), (1, 4, 6), (3, 3, 2)]

seeds = st.integers(0, 2**32 - 1)
taus = st.one_of(st.just(0.0), st.floats(1e-3, 20))
positive_taus = st.floats(1e-2, 20)


def bounded(shape):
    return hnp.arrays(np.float64, shape, elements=st.floats(-10, 10, allow_subnormal=False))


def orthonormal(seed, rows, columns):
    q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(max(rows, columns),) * 2))
    return q[:rows, :columns]


@st.composite
def matrices(draw, shapes=MATRIX_SHAPES):
    """General, zero, rank-one, with an empty column, or with all singular values equal."""
    shape = draw(st.sampled_from(shapes))
    kind = draw(st.sampled_from(["general", "zero", "rank one", "empty column", "repeated"]))
    if kind == "zero":
        return np.zeros(shape)
    if kind == "rank one":
        return np.outer(draw(bounded(shape[:1])), draw(bounded(shape[1:])))
    if kind == "repeated":
        return draw(st.floats(0.1, 10)) * orthonormal(draw(seeds), *shape)
    matrix = draw(bounded(shape))
    if kind == "empty column":
        matrix[:, draw(st.integers(0, shape[1] - 1))] = 0
    return matrix


@st.composite
def tensors(draw, shapes=TENSOR_SHAPES):
    """General, zero, constant along the last axis, or with all slices of one orthonormal frame."""
    shape = draw(st.sampled_from(shapes))
    kind = draw(st.sampled_from(["general", "zero", "constant", "repeated"]))
    if kind == "zero":
        return np.zeros(shape)
    if kind == "constant":
        return np.repeat(draw(bounded((*shape[:2], 1))), shape[2], axis=2)
    if kind == "repeated":
        return orthonormal(draw(seeds), *shape[:2])[:, :, None] * np.eye(shape[2])[0]
    return draw(bounded(shape))


def random_incomplete(n, dims, seed, rate=0.5):
    """Two clusters of noisy samples, and a mask under which about half of them are incomplete."""
    rng = np.random.default_rng(seed)
    views = [rng.normal(size=(2, d))[np.arange(n) % 2] + 0.5 * rng.normal(size=(n, d)) for d in dims]
    mask = rng.random((n, len(dims))) > rate / 2
    mask[np.arange(n), rng.integers(0, len(dims), n)] = True
    return views, mask
