"""JPLTD: joint projection learning and tensor decomposition, by the alternating direction method of multipliers.

The model (Lv, Zhang, Li, Jia, Chen, IEEE TNNLS 2023), for views X^v with index matrices A^v::

    min  sum_v ||E^v||_{2,1} + lam ||B||_* + theta ||P||_1
    s.t. E^v = W^v X^v - W^v X^v A^v G^v A^v^T,   W^v W^v^T = I,   G = B + P

with ||.||_* the tensor nuclear norm under a transform over the samples. All block updates but the projection's are
exact minimisers of the augmented Lagrangian in their block.

Large tensors are laid out (view, sample, dictionary): ``G[v, i, j]`` is the weight of dictionary sample j in the
representation of sample i, the transpose of the paper's G^v. M^v = W^v X^v (view, k, sample) is zero on missing
samples, and so are E and the multiplier J1. The dictionary is all samples, as in the paper, or some of them (anchors).

An iteration takes O(m n a (k + log a + m)) operations with the Fourier transform and O(m n a (k + q + m)) with a basis
of q vectors, a being the number of anchors, or n without; no array is larger than G.

With ``Config(updates="reference")`` the iterates equal those of the authors' program. The paper's Fourier transform
runs over the sample index, so its result depends on the order of the samples. The default, the eigenvectors of a graph,
moves with the samples.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
from sklearn.utils._param_validation import Interval

from jpltd_jax._types import Key, Scalar, check_choice, check_count
from jpltd_jax.graphs import (
    SLACK,
    anchor_graphs,
    completed_graph,
    consensus_graph,
    graph_transform,
    mean_graph,
    own_anchor,
    rows_to_one,
    sparsify,
    view_graphs,
    within_reach,
)
from jpltd_jax.linalg import divide, ridge
from jpltd_jax.loop import Loop, Method, Readout, Solution, Trunk, run
from jpltd_jax.loop import prepare as prepare_for
from jpltd_jax.problem import Problem
from jpltd_jax.prox import shrink_columns, stiefel, tubal_shrink
from jpltd_jax.quality import Quality, quality
from jpltd_jax.spectral import affinity
from jpltd_jax.tensor import tensor_nuclear_norm
from jpltd_jax.transforms import Fourier, Sharded, Transform

__all__ = [
    "FAST",
    "JPLTD",
    "ORDER_FREE",
    "PUBLISHED",
    "PUBLISHED_HYPER",
    "Config",
    "Data",
    "Hyper",
    "Residuals",
    "State",
    "affinities",
    "augmented_lagrangian",
    "init",
    "judge",
    "neighbours_kept",
    "neighbours_reached",
    "objective",
    "prepare",
    "readout",
    "represent",
    "settled",
    "solve",
    "step",
    "thin",
    "update_projection",
]

Variant = Literal["full", "N", "B", "O"]
Partner = Literal["late", "completed", "chosen", None]


class Hyper(NamedTuple):
    """Hyper-parameters; every field may be a number or, for sweeps, an array.

    Attributes
    ----------
    lam
        Weight of the tensor nuclear norm. The default suits the graph transform; with Fourier take about 5.
    theta
        Weight of the sparse tensor's l1 norm (variants full and N).
    rho, rho_max, growth
        Penalty: min(rho_max, rho * growth**t) at iteration t.
    tol
        Stop when the largest absolute entry of both constraint residuals is below this.
    """

    lam: Scalar | Array = 0.25
    theta: Scalar | Array = 0.1
    rho: Scalar | Array = 1e-3
    rho_max: Scalar | Array = 1e6
    growth: Scalar | Array = 1.3
    tol: Scalar | Array = 1e-5


@jax.tree_util.register_static
@dataclass(frozen=True)
class Config:
    """Options; they are static, so each combination is a compiled program of its own.

    Attributes
    ----------
    transform
        Of the tensor nuclear norm. ``"graph"``: eigenvectors of a neighbour graph, so that the order of the samples
        does not matter. ``"fourier"``: over the sample index, as published.
    variant
        ``"full"``; or an ablation of the paper: ``"N"`` without projection, ``"B"`` without sparse tensor, ``"O"`` with
        neither.
    updates
        ``"paper"``: G before E; ``"reference"``: E before G, as in the authors' program.
    norm
        ``"mean"``: the tensor norm averages over the slices, as the authors' program does and the paper's values of lam
        assume; ``"sum"``: it adds them up (the paper's Theorem 2), the same as lam * n.
    start
        First projection. ``"svd"``: the leading singular vectors of every view; ``"identity"``: its first features, as
        in the authors' program.
    latent_dim
        Dimension k of the projected views (variants full and B).
    n_neighbors
        Neighbours of each sample in the neighbour graphs, at least.
    share
        Neighbours in proportion: ``n_neighbors``, ``n_reach`` and ``n_kept`` are raised to this share of the expected
        cluster size (observed samples / clusters) where that is more.
    n_vectors
        Eigenvectors of that graph to use; what they do not span is one further slice. None: all up to 3000 samples, 500
        above.
    n_reach
        The learned affinity is set to zero between samples that share a view but are in none among each other's
        ``n_reach`` nearest, see :func:`jpltd_jax.graphs.within_reach`. None: nothing is set to zero.
    n_kept
        Then so many neighbours of each sample are kept, or as many as a cluster has members on average where that is
        less. None: all.
    partner
        Graph that is added to the learned affinity, both scaled to mean degree one. ``"late"``: the mean of the views'
        neighbour graphs. ``"completed"``: the neighbour graph of the views side by side, with what is missing filled
        from the late graph. ``"chosen"``: the one whose partition the views support best, by
        :class:`jpltd_jax.quality.Quality`. None: no graph is added. With anchors both graphs go from the samples to
        their nearest anchors, see :func:`jpltd_jax.graphs.anchor_graphs`.
    power
        Power of the eigenvalues in the spectral embedding, see :func:`jpltd_jax.spectral.embed`.

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> jj.Config(n_kept=0)
    Traceback (most recent call last):
    ValueError: n_kept must be at least 1, got 0
    """

    transform: Literal["graph", "fourier"] = "graph"
    variant: Variant = "full"
    updates: Literal["paper", "reference"] = "paper"
    norm: Literal["mean", "sum"] = "mean"
    start: Literal["svd", "identity"] = "svd"
    latent_dim: int = 60
    n_neighbors: int = 5
    share: float = 0.3
    n_vectors: int | None = 300
    n_reach: int | None = 25
    n_kept: int | None = 20
    partner: Partner = "chosen"
    power: int = 2

    def __post_init__(self) -> None:
        check_choice("transform", self.transform, Literal["graph", "fourier"])
        check_choice("variant", self.variant, Variant)
        check_choice("updates", self.updates, Literal["paper", "reference"])
        check_choice("norm", self.norm, Literal["mean", "sum"])
        check_choice("start", self.start, Literal["svd", "identity"])
        check_choice("partner", self.partner, Partner)
        check_count("power", self.power, least=0)
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must be between 0 and 1, got {self.share}")
        for name in ("latent_dim", "n_neighbors"):
            check_count(name, getattr(self, name))
        for name in ("n_vectors", "n_reach", "n_kept"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))

    @property
    def has_projection(self) -> bool:
        """Whether the variant projects the views."""
        return self.variant in ("full", "B")

    @property
    def has_sparse_part(self) -> bool:
        """Whether the variant has the sparse tensor P."""
        return self.variant in ("full", "N")


ORDER_FREE = Config()
"""The default: labels do not depend on the order of the samples."""

FAST = Config(partner="late")
"""The default without a choice between two graphs: one eigenproblem and one k-means less."""

PUBLISHED = Config(transform="fourier", start="identity", n_reach=None, n_kept=None, partner=None, power=0)
"""The method of the paper."""

PUBLISHED_HYPER = Hyper(lam=5.0)
"""A setting for :data:`PUBLISHED` that suits many sets; the paper chooses by the labels."""


class State(NamedTuple):
    """What the next iteration needs. G, B, P, J2 are (view, sample, dictionary)."""

    W: Float[Array, "m k r"]
    G: Float[Array, "m n a"]
    E: Float[Array, "m k n"]
    B: Float[Array, "m n a"]
    P: Float[Array, "m n a"]
    J1: Float[Array, "m k n"]
    J2: Float[Array, "m n a"]
    rho: Float[Array, ""]


class Residuals(NamedTuple):
    """Largest absolute entries of the two constraint residuals."""

    fit: Float[Array, "*history"]
    """Of W X - W X A G A^T - E."""
    split: Float[Array, "*history"]
    """Of G - B - P."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Data:
    """A problem with all that no hyper-parameter changes. Replace ``transform`` to use your own."""

    problem: Problem
    transform: Transform
    active: Bool[Array, " k"] | None = None
    """Rows of W in use, the others being zero: a smaller latent_dim in arrays of the same shape. None: all."""
    graphs: Float[Array, "m n a"] | None = None
    """The views' own neighbour graphs, by which partitions are judged. None: they are not."""
    late: Float[Array, "n a"] | None = None
    completed: Float[Array, "n a"] | None = None
    """Graphs that may be added to the learned affinity."""
    config: Config = field(default=ORDER_FREE, metadata={"static": True})
    n_clusters: int = field(default=1, metadata={"static": True})


@partial(jax.jit, static_argnames="n_clusters")
def prepare(problem: Problem, n_clusters: int, config: Config) -> Data:
    """Make the neighbour graphs, and the transform: eigenvectors of the late graph of the dictionary, or Fourier.

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.methods import jpltd
    >>> problem = jj.make_problem(jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8)).views)
    >>> jpltd.prepare(problem, 3, jj.ORDER_FREE).transform.basis.shape
    (30, 30)
    """
    share = config.share / n_clusters
    exact = problem.anchors is None
    graphs = late = completed = None
    if config.partner is not None:
        if exact:
            graphs = view_graphs(problem, config.n_neighbors, share)
            late = mean_graph(graphs, problem.mask)
        else:
            graphs = anchor_graphs(problem, config.n_neighbors, share)
            late = rows_to_one(jnp.sum(graphs, axis=0))
        if config.partner != "late":
            completed = completed_graph(problem, late, config.n_neighbors, share)
    transform: Transform = Fourier()
    if config.transform == "graph":
        reuse = exact and late is not None
        graph = late if reuse else consensus_graph(problem.dictionary, config.n_neighbors, share)
        transform = graph_transform(graph, config.n_vectors)
    if problem.mesh is not None:
        transform = Sharded(transform, problem.mesh)
    if config.partner == "completed":
        late = None
    return Data(problem, transform, None, graphs, late, completed, config, n_clusters)


def _first_projection(problem: Problem, config: Config) -> Float[Array, "m k r"]:
    """Projection to start from, in the coordinates of ``problem.data``. Rows beyond a view's dimension are zero."""
    m, r, _ = problem.data.shape
    first = jnp.zeros((m, config.latent_dim, r), problem.data.dtype)
    if config.start == "svd":
        u, _, _ = jnp.linalg.svd(problem.data, full_matrices=False)
        leading = jnp.swapaxes(u, -1, -2)[:, : config.latent_dim]
        return first.at[:, : leading.shape[1]].set(leading)
    for v, basis in enumerate(problem.bases):
        leading = jnp.eye(config.latent_dim, r, dtype=first.dtype) if basis is None else basis[: config.latent_dim]
        first = first.at[v, : leading.shape[0], : leading.shape[1]].set(leading)
    return first


def init(key: Key, data: Data, hyper: Hyper) -> State:
    """State before the first iteration: all zero but for the projection. Nothing is random.

    Variants N and O have no projection: W is the identity.

    Examples
    --------
    >>> import jax
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.methods import jpltd
    >>> problem = jj.make_problem(jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8)).views)
    >>> data = jpltd.prepare(problem, 3, jj.Config(latent_dim=4))
    >>> jpltd.init(jax.random.key(0), data, jj.Hyper()).W.shape
    (2, 4, 10)
    """
    m, r, n = data.problem.data.shape
    dtype = data.problem.data.dtype
    if data.config.has_projection:
        projection = _first_projection(data.problem, data.config)
        projection = projection if data.active is None else jnp.where(data.active[:, None], projection, 0)
    else:
        projection = jnp.broadcast_to(jnp.eye(r, dtype=dtype), (m, r, r))
    a = data.problem.dictionary.n_samples
    large = data.problem.spread(jnp.zeros((m, n, a), dtype), axis=1)
    small = data.problem.spread(jnp.zeros((m, projection.shape[1], n), dtype), axis=2)
    return State(projection, large, small, large, large, small, large, jnp.asarray(hyper.rho, dtype))


def represent(
    dictionary: Float[Array, "m k a"], mask: Bool[Array, "m n"], graph: Float[Array, "m n a"]
) -> Float[Array, "m k n"]:
    """D G A^T: every observed sample as the combination of dictionary samples that G says; D is M A if they are all."""
    return jnp.where(mask[:, None, :], jnp.einsum("vkj,vij->vki", dictionary, graph), 0)


def update_projection(data: Data, state: State, target: Float[Array, "m k n"]) -> Float[Array, "m k r"]:
    """argmax_W <target, W F1> over orthonormal frames W, with F1 = X - C G A^T and target = E - J1 / rho.

    C is the dictionary. The polar factor of target F1^T = target X^T - (target G) C^T, which never forms the (r, n)
    residual F1. Where that product is zero every frame is a maximiser and the current one is kept.

    The subproblem is argmin_W ||W F1 - target||_F. The paper solves it as an orthogonal Procrustes problem, by this
    polar factor. That is the minimiser where ||W F1||_F is the same for all frames, that is for k >= d. For k < d it is
    not, and the augmented Lagrangian may rise in this block.
    """
    x = jnp.swapaxes(data.problem.data, -1, -2)
    gathered = target @ state.G
    if data.problem.anchors is None:
        argument = (target - gathered) @ x
    else:
        argument = target @ x - gathered @ jnp.swapaxes(data.problem.dictionary.data, -1, -2)
    zero = jnp.all(argument == 0, axis=(-2, -1), keepdims=True)
    frame = jnp.where(zero, state.W, stiefel(argument))
    return frame if data.active is None else jnp.where(data.active[:, None], frame, 0)


def _latent(data: Data, projection: Float[Array, "m k r"]) -> tuple[Float[Array, "m k n"], Float[Array, "m k a"]]:
    """The projected samples M and the projected dictionary D."""
    latent = projection @ data.problem.data if data.config.has_projection else data.problem.data
    return latent, latent if data.problem.anchors is None else latent[..., data.problem.anchors]


def _tensor_weight(data: Data, hyper: Hyper) -> Scalar | Array:
    return hyper.lam * data.problem.dictionary.n_samples if data.config.norm == "sum" else hyper.lam


@jax.jit
def step(data: Data, hyper: Hyper, state: State) -> tuple[State, Residuals]:
    """One iteration: W, G, E, B, P (or W, E, G, B, P), then the multipliers and the penalty.

    Examples
    --------
    >>> import jax
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.methods import jpltd
    >>> problem = jj.make_problem(jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8)).views)
    >>> data = jpltd.prepare(problem, 3, jj.Config(latent_dim=4))
    >>> state, residuals = jpltd.step(data, jj.Hyper(), jpltd.init(jax.random.key(0), data, jj.Hyper()))
    >>> state.B.shape, bool(residuals.fit >= 0)
    ((2, 30, 30), True)
    """
    config, mask, rho = data.config, data.problem.mask, state.rho
    inverse = 1 / rho
    scaled_J1 = state.J1 * inverse
    with jax.default_matmul_precision("highest"):
        W, E = state.W, state.E
        if config.has_projection:
            W = update_projection(data, state, E - scaled_J1)
        latent, dictionary = _latent(data, W)
        if config.updates == "reference":
            E = shrink_columns(latent - represent(dictionary, mask, state.G) + scaled_J1, inverse)
        split_target = state.B + state.P - state.J2 * inverse
        G, represented = ridge(dictionary, latent - E + scaled_J1, split_target, mask)
        if config.updates == "paper":
            E = shrink_columns(latent - represented + scaled_J1, inverse)
        shifted = G + state.J2 * inverse
        B = tubal_shrink(shifted - state.P, _tensor_weight(data, hyper) * inverse, data.transform)
    P, within = state.P, shifted - B - state.P
    if config.has_sparse_part:
        bound = hyper.theta * inverse
        within = jnp.clip(shifted - B, -bound, bound)
        P = shifted - B - within
    fit, split = latent - represented - E, G - B - P
    following = State(
        W=W,
        G=G,
        E=E,
        B=B,
        P=P,
        J1=state.J1 + rho * fit,
        J2=rho * within,
        rho=jnp.minimum(hyper.rho_max, hyper.growth * rho),
    )
    return following, Residuals(jnp.max(jnp.abs(fit)), jnp.max(jnp.abs(split)))


def settled(hyper: Hyper, n_iter: Int[Array, ""], before: Residuals, watched: Residuals) -> Bool[Array, ""]:
    """Whether both residuals are below ``hyper.tol``."""
    return jnp.maximum(watched.fit, watched.split) < hyper.tol


def readout(data: Data, state: State) -> Readout:
    """The learned affinity, :func:`jpltd_jax.spectral.affinity` of B, before it is thinned."""
    return Readout(affinity=affinity(state.B))


def neighbours_kept(data: Data) -> int | None:
    """max(min(n_kept, n / c), share a / c), at least 1: n samples, a of them in the dictionary. None stays None, all.

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.methods import jpltd
    >>> problem = jj.make_problem(jj.datasets.make_blobs(0, n_samples=60, dims=(10, 8)).views)
    >>> [jpltd.neighbours_kept(jpltd.prepare(problem, c, jj.Config(n_kept=15))) for c in (1, 3, 10)]
    [18, 15, 6]
    """
    if data.config.n_kept is None:
        return None
    fewest = max(1, min(data.config.n_kept, data.problem.n_samples // data.n_clusters))
    return max(fewest, _in_proportion(data))


def neighbours_reached(data: Data) -> int | None:
    """max(n_reach, share a / c), a samples in the dictionary. None stays None, all."""
    return None if data.config.n_reach is None else max(data.config.n_reach, _in_proportion(data))


def _in_proportion(data: Data) -> int:
    return int(data.config.share * data.problem.dictionary.n_samples / data.n_clusters + SLACK)


@jax.jit
def thin(data: Data, learned: Float[Array, "n a"]) -> Float[Array, "n a"]:
    """Drop links beyond :func:`neighbours_reached`, then keep the :func:`neighbours_kept` strongest of each sample.

    Where some are kept, none is a link of a sample to itself.
    """
    reach, kept = neighbours_reached(data), neighbours_kept(data)
    if reach is not None:
        learned = within_reach(learned, data.problem, reach)
    if kept is not None and data.problem.anchors is not None:
        learned = jnp.where(own_anchor(data.problem), 0, learned)
    return learned if kept is None else sparsify(learned, kept)


def _to_mean_degree_one(graph: Float[Array, "n a"]) -> Float[Array, "n a"]:
    return divide(graph, jnp.mean(jnp.sum(graph, axis=1)), 0.0)


def affinities(data: Data, learned: Float[Array, "n a"]) -> dict[str, Float[Array, "n a"]]:
    """The thinned affinity; or its sums with the graphs that ``config.partner`` names, both at mean degree one.

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.methods import jpltd
    >>> problem = jj.make_problem(jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8)).views)
    >>> data = jpltd.prepare(problem, 3, jj.ORDER_FREE)
    >>> list(jpltd.affinities(data, data.late))
    ['late', 'completed']
    """
    thinned = thin(data, learned)
    graphs = {"late": data.late, "completed": data.completed}
    added = {
        name: _to_mean_degree_one(graph) + _to_mean_degree_one(thinned)
        for name, graph in graphs.items()
        if graph is not None
    }
    return added or {"learned": thinned}


def judge(data: Data, labels: Int[Array, " n"]) -> Quality | None:
    """What the views say of a partition, if their graphs were kept."""
    return None if data.graphs is None else quality(data.problem, data.graphs, labels, data.n_clusters)


def objective(data: Data, hyper: Hyper, state: State) -> Float[Array, ""]:
    """sum_v ||E^v||_{2,1} + lam ||B||_* + theta ||P||_1 of an iterate."""
    columns = jnp.sum(jnp.linalg.norm(state.E, axis=1))
    norm = tensor_nuclear_norm(state.B, transform=data.transform)
    return columns + _tensor_weight(data, hyper) * norm + hyper.theta * jnp.sum(jnp.abs(state.P))


def augmented_lagrangian(data: Data, hyper: Hyper, state: State) -> Float[Array, ""]:
    """Objective + <J1, r1> + <J2, r2> + rho/2 (||r1||^2 + ||r2||^2) with the two constraint residuals r1, r2."""
    latent, dictionary = _latent(data, state.W)
    fit = latent - represent(dictionary, data.problem.mask, state.G) - state.E
    split = state.G - state.B - state.P
    penalty = state.rho / 2 * (jnp.vdot(fit, fit) + jnp.vdot(split, split))
    return objective(data, hyper, state) + jnp.vdot(state.J1, fit) + jnp.vdot(state.J2, split) + penalty


def _reach(data: Data, before: State, after: State) -> Float[Array, "2"]:
    """The lam above which B stays zero in this iteration, and the theta above which P does."""
    shifted = before.rho * after.G + before.J2
    grams, _ = data.transform.grams(shifted - before.rho * before.P)
    low = jnp.sqrt(jnp.max(jnp.linalg.eigvalsh(jnp.moveaxis(grams, -1, 0))))
    low = low / after.B.shape[-1] if data.config.norm == "sum" else low
    return jnp.stack([low, jnp.max(jnp.abs(shifted - before.rho * after.B))])


def _unused(data: Data) -> frozenset[str]:
    return frozenset() if data.config.has_sparse_part else frozenset({"theta"})


def _with_latent_dim(data: Data, latent_dim: Int[Array, ""]) -> Data:
    return replace(data, active=jnp.arange(data.config.latent_dim) < latent_dim)


JPLTD = Method(
    name="jpltd",
    title="JPLTD",
    Hyper=Hyper,
    Config=Config,
    prepare=prepare,
    init=init,
    step=step,
    settled=settled,
    readout=readout,
    max_iter=30,
    bounds={
        "lam": Interval(Real, 0, None, closed="left"),
        "theta": Interval(Real, 0, None, closed="left"),
        "rho": Interval(Real, 0, None, closed="neither"),
        "rho_max": Interval(Real, 0, None, closed="neither"),
        "growth": Interval(Real, 0, None, closed="neither"),
        "tol": Interval(Real, 0, None, closed="left"),
    },
    affinities=affinities,
    judge=judge,
    power=lambda data: data.config.power,
    objective=objective,
    resize={"latent_dim": _with_latent_dim},
    trunk=Trunk(("lam", "theta"), _reach, _unused),
    anchors=True,
)
"""30 iterations are early stopping, as in the authors' program; the paper speaks of convergence in less than 80."""


def solve(
    problem: Problem,
    hyper: Hyper,
    config: Config = ORDER_FREE,
    *,
    n_clusters: int | None = None,
    start: State | Solution | None = None,
    loop: Loop = Loop(),  # noqa: B008
) -> Solution:
    """Solve JPLTD: one compiled ``lax.while_loop`` of its step, for any values of ``hyper``.

    Parameters
    ----------
    problem
        From :func:`jpltd_jax.make_problem`.
    hyper
        Hyper-parameters; to sweep them, ``jax.vmap`` this function over a Hyper of arrays.
    config
        Options. The affinity of the solution is the learned one; ``n_reach`` and ``n_kept`` are for
        :func:`jpltd_jax.cluster`.
    n_clusters
        For the neighbours in proportion to the expected cluster size, which the basis of the graph transform has. None:
        ``config.n_neighbors``, whatever the number of samples.
    start
        State or solution to go on from.
    loop
        Number of iterations, and how they are made.

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> data = jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8))
    >>> solution = jj.solve(jj.make_problem(data.views), jj.Hyper(lam=1.0), jj.PUBLISHED)
    >>> solution.status.name, int(solution.n_iter), solution.affinity.shape
    ('MAX_ITER', 30, (30, 30))
    """
    config = replace(config, partner=None, share=config.share if n_clusters else 0.0)
    data = prepare_for(JPLTD, problem, n_clusters or 1, config)
    return run(JPLTD, data, hyper, jax.random.key(0) if start is None else start, loop)
