"""Slices of tensors and what is done to their singular values, in NumPy by the definitions.

A transform is a list of blocks, (n, g) matrices with orthonormal columns that together span everything: its slices are
the (p, q g) matrices of coefficients. The Fourier transform has n blocks of one column each, its full spectrum.
"""

import numpy as np
import scipy.linalg
import scipy.optimize


def fourier_blocks(n):
    index = np.arange(n)
    return list(np.exp(-2j * np.pi * np.outer(index, index) / n)[..., None].swapaxes(0, 1) / np.sqrt(n))


def basis_blocks(basis):
    return [column[:, None] for column in basis.T]


def grouped_blocks(basis, group):
    """Columns of one group form a block, and so does all that the basis does not span."""
    complement = scipy.linalg.null_space(basis.T)
    return [basis[:, group == g] for g in np.unique(group)] + ([complement] if complement.size else [])


def slices(x, blocks):
    p, _, n = x.shape
    return [(x @ block).reshape(p, -1) * np.sqrt(n) for block in blocks]


def join(parts, blocks, shape):
    p, q, n = shape
    return sum(part.reshape(p, q, -1) @ block.conj().T for part, block in zip(parts, blocks, strict=True)).real / (
        n**0.5
    )


def singular_values(x, blocks):
    return [np.linalg.svd(part, compute_uv=False) for part in slices(np.asarray(x), blocks)]


def nuclear_norm(x, blocks):
    return sum(values.sum() for values in singular_values(x, blocks)) / x.shape[-1]


def map_singular_values(x, blocks, change):
    """The tensor whose slices have the singular values change(s) instead of s."""
    parts = []
    for part in slices(np.asarray(x), blocks):
        u, s, vh = np.linalg.svd(part, full_matrices=False)
        parts.append((u * change(s)) @ vh)
    return join(parts, blocks, x.shape)


def power_minimiser(sigma, weight, p):
    """argmin_{t >= 0} weight t^p + (t - sigma)^2 / 2: zero, or the root of the slope where the function is convex."""
    if weight == 0:
        return sigma
    slope = lambda t: t - sigma + weight * p * t ** (p - 1)  # noqa: E731
    turn = (weight * p * (1 - p)) ** (1 / (2 - p)) if p < 1 else 0.0
    if sigma <= turn or slope(turn) >= 0:
        return 0.0
    root = scipy.optimize.brentq(slope, turn, sigma, xtol=1e-14, rtol=1e-14)
    return root if weight * root ** (p - 1) + root / 2 < sigma else 0.0


def nearest_in_simplex(x, allowed):
    """Nearest point to the vector x in {y >= 0, sum y = 1, y = 0 where not allowed}, by trying every set of entries."""
    best, distance = np.zeros_like(x), np.inf
    (free,) = np.nonzero(allowed)
    for code in range(1, 2 ** len(free)):
        chosen = free[[bool(code >> bit & 1) for bit in range(len(free))]]
        y = np.zeros_like(x)
        y[chosen] = x[chosen] - (x[chosen].sum() - 1) / len(chosen)
        gap = ((y - x)[free] ** 2).sum()
        if (y >= 0).all() and gap < distance:
            best, distance = y, gap
    return best


def nearest_in_simplex_by_sorting(x):
    falling = np.sort(x)[::-1]
    thresholds = (np.cumsum(falling) - 1) / np.arange(1, len(x) + 1)
    return np.maximum(x - thresholds[falling > thresholds][-1], 0)
