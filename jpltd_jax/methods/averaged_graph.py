"""Averaged graph: the mean of the views' neighbour graphs, clustered as it is.

No learning at all::

    H_ij = sum_v A^v_ij / #{views that hold both i and j}

with A^v the 0/1 graph in which one of two samples is among the ``n_neighbors`` nearest of the other. A control that
every method should beat, and the template for a new one: copy this file.

O(n^2 sum_v d_v) operations, once. Nothing depends on the order of the samples, up to ties between equal distances.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jpltd_jax._types import Key, check_count
from jpltd_jax.graphs import knn_graph
from jpltd_jax.loop import Method, Readout
from jpltd_jax.problem import Problem

__all__ = ["AVERAGED_GRAPH", "Config", "Data", "Hyper", "State", "init", "prepare", "readout", "settled", "step"]


class Hyper(NamedTuple):
    """Hyper-parameters: none. A method that has some lists them here, each with a default."""


@jax.tree_util.register_static
@dataclass(frozen=True)
class Config:
    """Options.

    Attributes
    ----------
    n_neighbors
        Neighbours of each sample in the graph of each view.
    """

    n_neighbors: int = 10

    def __post_init__(self) -> None:
        check_count("n_neighbors", self.n_neighbors)


class State(NamedTuple):
    """What the next iteration needs: nothing changes, so it is the result."""

    graph: Float[Array, "n n"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Data:
    """The graphs of the views, zero for missing samples."""

    graphs: Float[Array, "m n n"]
    mask: Bool[Array, "m n"]
    config: Config = field(metadata={"static": True})


@partial(jax.jit, static_argnames="n_clusters")
def prepare(problem: Problem, n_clusters: int, config: Config) -> Data:
    """The 0/1 neighbour graph of each view.

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.methods import averaged_graph
    >>> problem = jj.make_problem(jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8)).views)
    >>> averaged_graph.prepare(problem, 3, averaged_graph.Config()).graphs.shape
    (2, 30, 30)
    """
    graphs = jax.vmap(partial(knn_graph, n_neighbors=config.n_neighbors))(problem.data, problem.mask)
    return Data(graphs, problem.mask, config)


def init(key: Key, data: Data, hyper: Hyper) -> State:
    """Before the first iteration: zero."""
    return State(jnp.zeros_like(data.graphs[0]))


@jax.jit
def step(data: Data, hyper: Hyper, state: State) -> tuple[State, Float[Array, ""]]:
    """The mean graph, and how far it is from the graph before."""
    together = jnp.sum(data.mask[:, :, None] & data.mask[:, None, :], axis=0)
    graph = jnp.sum(data.graphs, axis=0) / jnp.maximum(together, 1)
    return State(graph), jnp.max(jnp.abs(graph - state.graph))


def settled(
    hyper: Hyper, n_iter: Int[Array, ""], before: Float[Array, ""], watched: Float[Array, ""]
) -> Bool[Array, ""]:
    """Whether the graph stays as it is: after the second iteration."""
    return watched == 0


def readout(data: Data, state: State) -> Readout:
    """The mean graph is the affinity."""
    return Readout(affinity=state.graph)


AVERAGED_GRAPH = Method(
    name="averaged_graph",
    title="averaged graph",
    Hyper=Hyper,
    Config=Config,
    prepare=prepare,
    init=init,
    step=step,
    settled=settled,
    readout=readout,
    max_iter=2,
)
"""The record of this method, for :func:`jpltd_jax.loop.run`."""
