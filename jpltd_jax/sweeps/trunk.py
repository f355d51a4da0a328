"""Iterations that configurations have in common are made once.

With B = P = 0 an iteration of JPLTD does not see lam and theta, and with P = 0 it does not see theta. So configurations
follow one path until the argument of the shrinkage of B has a singular value above lam / rho, or that of P an entry
above theta / rho; there they part. Parting an iteration early changes nothing but the time, which leaves room for
rounding.

What a method offers is its :class:`jpltd_jax.loop.Trunk`; this module only follows it.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jpltd_jax.loop import Carry, Method, advance, as_dtype, begin, floating_dtype

__all__ = ["Solve", "leaves", "resized", "shared_step"]

MARGIN = 1e-3
"""Configurations part this much, relatively, before they must: far above the rounding of the test."""


class Solve(NamedTuple):
    """One run of the iterations, for all configurations that share it."""

    hyper: Any
    sizes: dict[str, int]
    """Values of the options that vary inside the program."""
    rows: list[int]
    """Places of the configurations in the grid."""
    seeds: list[int]


Follow = Callable[[Carry, Solve, Any], tuple[Carry, np.ndarray]]


def resized(method: Method, data: Any, sizes: dict[str, Any]) -> Any:
    """The data at the given values of the options that may vary inside one program."""
    for name, value in sizes.items():
        data = method.resize[name](data, jnp.asarray(value))
    return data


@jax.jit
def shared_step(method: Method, data: Any, hyper: Any, carry: Carry) -> tuple[Carry, Float[Array, " numbers"]]:
    """One iteration; for each field of the trunk the value down to which it is common; then the largest residual."""
    assert method.trunk is not None
    following = advance(method, data, hyper, carry, carry.n_iter + 1)
    reach = method.trunk.reach(data, carry.state, following.state)
    watched = [record[carry.n_iter] for record in jax.tree.leaves(following.history)]
    return following, jnp.concatenate([reach, jnp.max(jnp.stack(watched))[None]])


def _follow_until_parting(
    fields: tuple[str, ...], follow: Follow, carry: Carry, members: list[Solve], live: frozenset[str], stop: int
) -> Iterator[tuple[Carry, Solve]]:
    """Every member with the carry from which it has to go on alone. Members share the values of the live fields."""
    while len(members) > 1 and not live.issuperset(fields) and int(carry.n_iter) < stop:
        first = members[0].hyper
        unseen = {name: math.inf for name in fields if name not in live}
        following, (*reach, worst) = follow(carry, members[0], first._replace(**unseen, tol=0.0))
        staying: list[Solve] = []
        parting: dict[tuple[Any, ...], list[Solve]] = {}
        for member in members:
            if not worst >= member.hyper.tol * (1 + MARGIN):
                yield carry, member
                continue
            values = [getattr(member.hyper, name) for name in fields]
            now = live | {name for name, r, x in zip(fields, reach, values, strict=True) if not r <= x * (1 - MARGIN)}
            if now == live:
                staying.append(member)
            else:
                shared = tuple(x for name, x in zip(fields, values, strict=True) if name in now)
                parting.setdefault((now, shared), []).append(member)
        for (now, _), group in parting.items():
            yield from _follow_until_parting(fields, follow, carry, group, now, stop)
        carry, members = following, staying
    for member in members:
        yield carry, member


def leaves(
    method: Method, data: Any, solves: list[Solve], key: jax.Array, max_iter: int, length: int
) -> Iterator[tuple[Carry, Solve]]:
    """Every solve with the carry from which it has to go on alone; from the start for a method without a trunk."""
    dtype = floating_dtype(data)

    def start(solve: Solve) -> Carry:
        start_key, _ = jax.random.split(jax.random.fold_in(key, solve.seeds[0]))
        return begin(method, resized(method, data, solve.sizes), as_dtype(solve.hyper, dtype), start_key, length)

    if method.trunk is None:
        for solve in solves:
            yield start(solve), solve
        return
    fields = method.trunk.fields
    groups: dict[tuple[Any, ...], list[Solve]] = {}
    for solve in solves:
        rest = [x for name, x in solve.hyper._asdict().items() if name not in (*fields, "tol")]
        groups.setdefault((*solve.sizes.values(), *rest), []).append(solve)

    def follow(carry: Carry, member: Solve, hyper: Any) -> tuple[Carry, np.ndarray]:
        sized = resized(method, data, member.sizes)
        following, numbers = shared_step(method, sized, as_dtype(hyper, dtype), carry)
        return following, np.asarray(numbers, np.float64)

    unused = method.trunk.unused(data)
    for members in groups.values():
        yield from _follow_until_parting(fields, follow, start(members[0]), members, unused, max_iter)
