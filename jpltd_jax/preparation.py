"""Preparation of views by agreement: the scaling of each view whose neighbours agree best with those of the others.

Views that are independent given the class agree only through the class. So the agreement of their neighbours tells,
without labels, which scaling of a view shows the classes best. Everything here is pure, and moves with the samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jpltd_jax._types import check_choice
from jpltd_jax.linalg import divide, squared_distances
from jpltd_jax.views import Views

__all__ = [
    "PREPARATIONS",
    "Agreement",
    "Name",
    "Preparation",
    "agreements",
    "apply_preparations",
    "choose",
    "fit_preparation",
    "neighbor_lists",
    "prepare_views",
]

Real = Array | np.ndarray
"""Of JAX or of NumPy."""

Name = Literal["unit", "root", "standard_unit", "standard", "tfidf"]
"""Name of a preparation, see :class:`Preparation`."""
PREPARATIONS: tuple[Name, ...] = get_args(Name)
"""Names of the preparations; the first one is taken where nothing can be compared."""

ROUNDS = 5
"""Passes over the views in :func:`choose`."""


MOST_COMPARED = 3000
"""Samples, a fixed random part of more, on which :func:`prepare_views` compares the scalings."""

NEIGHBORS = 10
"""Neighbours of each sample that are compared."""

ALIKE = 4
"""Views are padded to a power of two features, at least this part of the widest view: so they share a program."""


def _unit(x: Float[Real, "n d"]) -> Float[Real, "n d"]:
    """Rows of length 1, zero rows zero; also where squares would overflow or vanish."""
    xp = x.__array_namespace__()
    x = divide(x, xp.max(xp.abs(x), axis=1, keepdims=True), 0.0)
    return divide(x, xp.linalg.norm(x, axis=1, keepdims=True), 0.0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Preparation:
    """A scaling that was fitted to the observed samples of a view, and can be applied to further ones.

    Attributes
    ----------
    shift, scale
        y = (x - shift) * scale, by feature; with the name ``"root"`` of sign(x) sqrt|x|.
    name
        ``"unit"``: rows of length 1. ``"root"``: signed square roots, then rows of length 1. ``"standard"``: mean 0 and
        equal variance of the features, mean squared length 1 of the rows. ``"standard_unit"``: the same, then rows of
        length 1. ``"tfidf"``: counts times log((1 + n) / (1 + n_j)) + 1, n_j samples having feature j, then rows of
        length 1.
    """

    shift: Float[Real, " d"]
    scale: Float[Real, " d"]
    name: Name = field(metadata={"static": True})

    def __call__(self, x: Float[Real, "n d"]) -> Float[Real, "n d"]:
        """The prepared samples."""
        if self.name == "root":
            xp = x.__array_namespace__()
            x = xp.sign(x) * xp.sqrt(xp.abs(x))
        x = (x - self.shift) * self.scale
        return x if self.name == "standard" else _unit(x)


def fit_preparation(name: Name, x: Float[Real, "n d"], present: Bool[Real, " n"]) -> Preparation:
    """The preparation of that name for a view, from its observed samples; of NumPy arrays without JAX.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.preparation import fit_preparation
    >>> x = jnp.array([[1.0, 0.0], [3.0, 0.0], [9.0, 9.0]])
    >>> fit_preparation("standard", x, jnp.array([True, True, False]))(x)[:2].round(3)
    Array([[-1.,  0.],
           [ 1.,  0.]], dtype=float32)
    """
    check_choice("preparation", name, Name)
    xp = x.__array_namespace__()
    d = x.shape[1]
    shift, scale = xp.zeros(d, x.dtype), xp.ones(d, x.dtype)
    count = xp.sum(present)
    if name in ("standard", "standard_unit"):
        seen = xp.where(present[:, None], x, 0)
        largest = xp.max(xp.abs(seen))
        seen = divide(seen, largest, 0.0)
        mean = xp.sum(seen, axis=0) / count
        spread = xp.sqrt(xp.sum(xp.where(present[:, None], seen - mean, 0) ** 2, axis=0) / count)
        constant = spread <= 4 * jnp.finfo(x.dtype).eps * xp.max(xp.abs(seen), axis=0)
        features = xp.maximum(xp.sum(~constant), 1)
        scale = xp.where(constant, 0, 1 / xp.where(constant, 1, spread)) / xp.sqrt(features)
        shift, scale = mean * largest, divide(scale, largest, 0.0)
    elif name == "tfidf":
        having = xp.sum((x > 0) & present[:, None], axis=0)
        scale = xp.log((1 + count) / (1 + having)).astype(x.dtype) + 1
    return Preparation(shift, scale, name)


def _are_counts(x: Float[Array, "n d"], present: Bool[Array, " n"], width: Int[Array, ""] | int) -> Bool[Array, ""]:
    """Whether the observed samples, of ``width`` features and then zeros, are non-negative and mostly zero."""
    observed = jnp.sum(present)
    zeros = jnp.sum((x == 0) & present[:, None]) - observed * (x.shape[1] - width)
    return jnp.all((x >= 0) | ~present[:, None]) & (2 * zeros > observed * width)


def neighbor_lists(
    x: Float[Array, "n d"], together: Bool[Array, "m n"], n_neighbors: int
) -> Int[Array, "m n n_neighbors"]:
    """For every set of samples in ``together`` the nearest neighbours of its members within it; -1 where there is none.

    Distances are compared in float32, which is forty times as fast on a CPU.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.preparation import neighbor_lists
    >>> x = jnp.array([[0.0], [1.0], [1.5], [5.0]])
    >>> neighbor_lists(x, jnp.array([[True, True, True, True], [True, False, True, False]]), 1)[..., 0]
    Array([[ 1,  2,  1,  2],
           [ 2, -1,  0, -1]], dtype=int32)
    """
    n = len(x)
    near = jnp.where(jnp.eye(n, dtype=bool), -jnp.inf, -squared_distances(x, x)).astype(jnp.float32)

    def within(members: Array) -> Array:
        pairs = members[:, None] & members
        closeness, index = jax.lax.top_k(jnp.where(pairs, near, -jnp.inf), n_neighbors)
        return jnp.where(jnp.isfinite(closeness), index, -1)

    return jax.lax.map(within, together)


@partial(jax.jit, static_argnames="n_neighbors")
def _lists_of_view(
    x: Float[Array, "n d"],
    width: Int[Array, ""] | int,
    present: Bool[Array, " n"],
    together: Bool[Array, "m n"],
    n_neighbors: int,
) -> tuple[Int[Array, "p m n n_neighbors"], Bool[Array, " p"]]:
    """:func:`neighbor_lists` of a view under every preparation, and which of them may be used."""
    fits = [lambda name=name: fit_preparation(name, x, present)(x) for name in PREPARATIONS]
    index = jnp.arange(len(PREPARATIONS))
    lists = jax.lax.map(lambda p: neighbor_lists(jax.lax.switch(p, fits), together, n_neighbors), index)
    counts = _are_counts(x, present, width)
    return lists, jnp.array([{"tfidf": counts, "standard": ~counts}.get(name, True) for name in PREPARATIONS])


class Agreement(NamedTuple):
    """How well neighbours in one prepared view agree with those in another; entry [v, p, u, q], NaN where unknown."""

    lift: Float[Array, "m p m p"]
    """Log of how much more often than by chance neighbours in view v under p are neighbours in view u under q."""
    error: Float[Array, "m p m p"]
    """Standard error of the difference to the lift of the first preparation of view v."""


def _in_common(a: Int[Array, "n k"], b: Int[Array, "n k"]) -> Int[Array, " n"]:
    """How many of the neighbours of each sample in a are its neighbours in b."""
    return jnp.sum(jnp.any(a[:, :, None] == b[:, None, :], axis=2) & (a >= 0), axis=1)


class _Lists(NamedTuple):
    """Neighbour lists of all views under all preparations."""

    lists: tuple[Int[Array, "p m n k"], ...]
    usable: tuple[Bool[Array, " p"], ...]
    together: Bool[Real, "m m n"]


def _compared(made: _Lists) -> Agreement:
    """The agreement of every two views from their neighbour lists."""
    lists, usable, together = jnp.stack(made.lists), jnp.stack(made.usable), made.together
    m, _, _, _, k = lists.shape

    def compare(pair: tuple[Array, Array]) -> Agreement:
        v, u = pair
        both = jnp.sum(together[v, u])
        nearest = jnp.minimum(k, both - 1)
        chance = both * nearest**2 / (both - 1)
        ours, theirs = lists[v, :, u], lists[u, :, v]
        shared = jax.lax.map(lambda a: jax.lax.map(lambda b: _in_common(a, b), theirs), ours).astype(chance.dtype)
        total = jnp.sum(shared, axis=-1)
        lift = jnp.log(jnp.maximum(total / chance, 1e-3))
        parts = divide(shared, total[..., None], 0.0)
        error = jnp.linalg.norm(parts - parts[0], axis=-1)
        known = (both >= 3) & (u != v) & usable[v][:, None] & usable[u]
        return Agreement(*(jnp.where(known, x, jnp.nan) for x in (lift, error)))

    first, second = jnp.divmod(jnp.arange(m * m), m)
    made = jax.lax.map(compare, (first, second))
    return jax.tree.map(lambda x: jnp.swapaxes(x.reshape(m, m, *x.shape[1:]), 1, 2), made)


_agreement = jax.jit(_compared)


def _all_lists(
    views: Sequence[Float[Real, "n _d"]], mask: Bool[Real, "n m"], n_neighbors: int, widths: Sequence[int] | None
) -> _Lists:
    k = min(n_neighbors, mask.shape[0] - 1)
    together = mask.T[:, None, :] & mask.T[None, :, :]
    sizes = [x.shape[1] for x in views] if widths is None else widths
    made = [_lists_of_view(x, sizes[v], mask[:, v], together[v], k) for v, x in enumerate(views)]
    return _Lists(tuple(lists for lists, _ in made), tuple(usable for _, usable in made), together)


def agreements(
    views: Sequence[Float[Real, "n _d"]],
    mask: Bool[Real, "n m"],
    n_neighbors: int = NEIGHBORS,
    widths: Sequence[int] | None = None,
) -> Agreement:
    """Lift log(sum_i s_i / sum_i of what chance gives), s_i the neighbours of sample i that two views share.

    Of the samples that views v and u both show, with their nearest neighbours among themselves: s_i of the neighbours
    of i in view v under preparation p are its neighbours in view u under q. The error is the one of the log of a ratio
    of two sums over the same samples, sqrt(sum_i (s_i / sum s - s'_i / sum s')^2), s' under the first preparation.

    NaN where fewer than three samples are in both views and where v is u; for ``"tfidf"`` of views that are not sparse
    counts; and for ``"standard"`` of those that are: a long document is long in all its views, so rows whose length was
    left would agree without meaning anything.

    Parameters
    ----------
    views
        Matrices, samples as rows.
    mask
        True where observed.
    n_neighbors
        Neighbours of each sample.
    widths
        Features of every view, if it has columns of zeros beyond them. None: all columns are features.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.preparation import agreements
    >>> x = jnp.arange(12.0)[:, None] % 4 + 1
    >>> x = jnp.hstack([x, 5 - x])
    >>> table = agreements([x, x], jnp.ones((12, 2), bool), n_neighbors=2)
    >>> table.lift.shape, bool(jnp.allclose(table.lift[0, 0, 1, 0], jnp.log(11 / 2)))
    ((2, 5, 2, 5), True)
    """
    return _agreement(_all_lists(views, mask, n_neighbors, widths))


@jax.jit
def choose(table: Agreement) -> Int[Array, " m"]:
    """The preparation of every view that agrees best with the other views' choices, by coordinate ascent.

    View by view the largest mean over the other views of the lift, less one standard error of the difference to
    ``"unit"``, which so needs no luck to stay; five rounds from ``"unit"`` for all views. On small sets the differences
    are mostly luck.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jpltd_jax.preparation import Agreement, choose
    >>> lift = jnp.full((2, 5, 2, 5), jnp.nan).at[0, 0, 1].set(1.0).at[1, 0, 0].set(1.0)
    >>> lift = lift.at[0, 1, 1, 0].set(2.0).at[1, 3, 0, 1].set(3.0)
    >>> choose(Agreement(lift, 0 * lift)), choose(Agreement(lift, (0 * lift).at[0, 1, 1, 0].set(2.0)))
    (Array([1, 3], dtype=int32), Array([0, 0], dtype=int32))
    """
    m = table.lift.shape[0]

    def visit(i: Array, chosen: Array) -> Array:
        v = i % m
        lift, error = (x[v][:, jnp.arange(m), chosen] for x in table)
        known = ~jnp.isnan(lift)
        count = jnp.maximum(jnp.sum(known, axis=1), 1)
        mean = jnp.sum(jnp.where(known, lift, 0), axis=1) / count
        error = jnp.linalg.norm(jnp.where(known, error, 0), axis=1) / count
        best = jnp.argmax(jnp.where(jnp.any(known, axis=1), mean - error, -jnp.inf))
        return chosen.at[v].set(best.astype(jnp.int32))

    return jax.lax.fori_loop(0, ROUNDS * m, visit, jnp.zeros(m, jnp.int32))


@jax.jit
def _choice(made: _Lists) -> Int[Array, " m"]:
    return choose(_compared(made))


def _chosen(views: Views) -> list[Name]:
    """The names of the preparations that agree best, on a fixed random part of more than 3000 samples."""
    n = len(views.mask)
    part = np.arange(n)
    if n > MOST_COMPARED:
        part = np.sort(np.random.default_rng(0).choice(n, MOST_COMPARED, replace=False))
    widths = [x.shape[1] for x in views.matrices]
    least = max(widths) // ALIKE
    padded = [
        np.pad(np.asarray(x[part], np.float64), ((0, 0), (0, (1 << (max(d, least) - 1).bit_length()) - d)))
        for x, d in zip(views.matrices, widths, strict=True)
    ]
    with jax.enable_x64(True):
        chosen = _choice(_all_lists(padded, views.mask[part], NEIGHBORS, widths))
        return [PREPARATIONS[int(p)] for p in np.asarray(chosen)]


def prepare_views(
    views: Views, names: Literal["auto"] | Sequence[Name] = "auto"
) -> tuple[Views, tuple[Preparation, ...]]:
    """Views prepared by agreement, or as ``names`` says for each of them; and the preparations, for further samples.

    On the host, in float64. The agreement is that of at most 3000 samples, a fixed random part of more.

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.preparation import prepare_views
    >>> views = jj.views.read_views(jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8)).views)
    >>> prepared, preparations = prepare_views(views, ["standard", "root"])
    >>> [preparation.name for preparation in preparations]
    ['standard', 'root']
    """
    if names != "auto" and len(names) != len(views.matrices):
        raise ValueError(f"preparation must name one for each of the {len(views.matrices)} views, got {len(names)}")
    fitted = tuple(
        fit_preparation(name, x.astype(np.float64, copy=False), present)
        for name, x, present in zip(
            _chosen(views) if names == "auto" else names, views.matrices, views.mask.T, strict=True
        )
    )
    return apply_preparations(views, fitted), fitted


def apply_preparations(views: Views, preparations: Sequence[Preparation]) -> Views:
    """Views prepared as others were; zeros stay where samples are missing."""
    prepared = [
        np.where(present[:, None], prepare(x.astype(np.float64, copy=False)), 0)
        for prepare, x, present in zip(preparations, views.matrices, views.mask.T, strict=True)
    ]
    return views._replace(matrices=prepared)
