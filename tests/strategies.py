"""Matrices and tensors with the structure that breaks proximal operators; small incomplete data.

Few shapes, because every shape is a program to compile; and in each draw one array of every kind.
"""

import os

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np

WIDE, TALL, SQUARE = (3, 5), (5, 3), (3, 3)

AS_USERS = "fusion_emitters=false" not in os.environ.get("XLA_FLAGS", "")
"""Whether XLA compiles as it does for users. Only then are two programs with the same step equal bit for bit."""

seeds = st.integers(0, 2**32 - 1)
taus = st.one_of(st.just(0.0), st.floats(1e-3, 20)).map(np.float64)
positive_taus = st.floats(1e-2, 20).map(np.float64)


def bounded(shape):
    return hnp.arrays(np.float64, shape, elements=st.floats(-10, 10, allow_subnormal=False))


def orthonormal(seed, rows, columns):
    q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(max(rows, columns),) * 2))
    return q[:rows, :columns]


@st.composite
def matrices(draw, shapes=(WIDE,)):
    """Any matrix, a random one, zero, one of rank one, one with an empty column, one with equal singular values."""
    shape, seed, scale = draw(st.sampled_from(shapes)), draw(seeds), draw(st.floats(0.1, 5))
    anything, random = draw(bounded(shape)), scale * np.random.default_rng(seed).normal(size=shape)
    rank_one = np.outer(random[:, 0], random[0])
    empty_column = random * (np.arange(shape[1]) != seed % shape[1])
    return [anything, random, np.zeros(shape), rank_one, empty_column, scale * orthonormal(seed, *shape)]


@st.composite
def tensors(draw, shapes):
    """Any tensor, a random one, zero, one of rank one, a constant one, one whose slices have equal singular values."""
    shape, seed, scale = draw(st.sampled_from(shapes)), draw(seeds), draw(st.floats(0.1, 5))
    anything, random = draw(bounded(shape)), scale * np.random.default_rng(seed).normal(size=shape)
    rank_one = np.einsum("p,q,n->pqn", random[:, 0, 0], random[0, :, 0], random[0, 0]) / scale
    constant = np.repeat(random[:, :, :1], shape[2], axis=2)
    equal = scale * orthonormal(seed, *shape[:2])[:, :, None] * np.eye(shape[2])[0]
    return [anything, random, np.zeros(shape), rank_one, constant, equal]


def random_incomplete(n, dims, seed, rate=0.5):
    """Two clusters of noisy samples, and a mask under which about half of them are incomplete."""
    rng = np.random.default_rng(seed)
    views = [rng.normal(size=(2, d))[np.arange(n) % 2] + 0.5 * rng.normal(size=(n, d)) for d in dims]
    mask = rng.random((n, len(dims))) > rate / 2
    mask[np.arange(n), rng.integers(0, len(dims), n)] = True
    return views, mask
