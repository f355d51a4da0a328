# %% [markdown]
# # 5. Write your own prox or transform, and verify it
#
# A proximal operator is prox(v, tau) = argmin_x tau f(x) + ½‖x − v‖². It is easy to get a factor wrong and hard to see.
# The verifiers in `jj.optimality` do not search from your candidate, so a wrong operator cannot bless itself.

# %%
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp

import jpltd_jax as jj
from jpltd_jax import optimality, prox
from jpltd_jax.loop import prepare, run
from jpltd_jax.methods import JPLTD
from jpltd_jax.pipeline import label
from jpltd_jax.tensor import tensor_nuclear_norm
from jpltd_jax.transforms import SliceTransform

keys = jax.random.split(jax.random.key(0), 3)
v, w = 2 * jax.random.normal(keys[0], (2, 50))
others = 2 * jax.random.normal(keys[1], (200, 50))

# %% [markdown]
# ## A prox
#
# The elastic net f(x) = ‖x‖₁ + ½‖x‖² has the prox soft(v, tau) / (1 + tau). Beside it a wrong one, with the shrinkage
# and the division in the wrong order.

# %%
tau = 0.7


def elastic_net(x: jax.Array) -> jax.Array:
    """‖x‖₁ + ½‖x‖²."""
    return jnp.sum(jnp.abs(x)) + jnp.vdot(x, x) / 2


def right(v: jax.Array, tau: prox.Scalar) -> jax.Array:
    """Shrink, then divide."""
    return prox.soft_threshold(v, tau) / (1 + tau)


def wrong(v: jax.Array, tau: prox.Scalar) -> jax.Array:
    """Divide, then shrink."""
    return prox.soft_threshold(v / (1 + tau), tau)


# %% [markdown]
# p is the prox of v if and only if the variational gap is ≤ 0 for **every** y. So try many: far ones, and small steps
# from p along each coordinate, where a local error shows best. A correct operator is also firm, and constant along the
# ray from p through v.

# %%
steps = 0.1 * jnp.concatenate([jnp.eye(50), -jnp.eye(50)])
for operator in (right, wrong):
    candidates = jnp.concatenate([others, operator(v, tau) + steps])
    gap_to = partial(optimality.variational_gap, elastic_net, operator, v, tau)
    gaps = jax.jit(jax.vmap(gap_to))(candidates)
    print(
        f"{operator.__name__:6}",
        f"variational {float(jnp.max(gaps)):9.1e}",
        f"firmness {float(optimality.firmness_gap(operator, v, w, tau)):9.1e}",
        f"ray {float(optimality.fixed_point_gap(operator, v, tau, 3.0)):9.1e}",
    )

# %% [markdown]
# The wrong operator is firm, as the prox of some other function would be: one check is not enough. The variational gap
# and the ray find it.
#
# ## A transform
#
# The tensor norm takes any map of the last axis that is sqrt(n) times an orthonormal one. Derive from `SliceTransform`
# and give `slices`, its inverse `join`, and `weights`. As an example the discrete cosine transform, which treats the
# ends of the index as ends, where Fourier joins them.


# %%
@jax.tree_util.register_static
@dataclass(frozen=True)
class Cosine(SliceTransform):
    """Discrete cosine transform of the last axis."""

    def slices(self, x: jax.Array) -> jax.Array:
        """Orthonormal coefficients times sqrt(n)."""
        return jax.scipy.fft.dct(x, norm="ortho") * jnp.sqrt(x.shape[-1]).astype(x.dtype)

    def join(self, y: jax.Array, n: int) -> jax.Array:
        """Undo :meth:`slices`."""
        return jax.scipy.fft.idct(y, norm="ortho") / jnp.sqrt(n).astype(y.dtype)

    def weights(self, n: int) -> jax.Array:
        """Every slice stands for itself."""
        return jnp.ones(n)


# %% [markdown]
# Two identities make it a transform; the variational inequality then says whether the shrinkage under it is the prox of
# the norm under it.

# %%
cosine = Cosine()
x = jax.random.normal(keys[2], (2, 6, 8))
print("round trip", float(jnp.max(jnp.abs(cosine.join(cosine.slices(x), 8) - x))))
print("scale     ", float(jnp.abs(jnp.sum(cosine.slices(x) ** 2) / 8 - jnp.sum(x**2))))


# %%
def norm(x: jax.Array) -> jax.Array:
    """Tensor nuclear norm under the cosine transform."""
    return tensor_nuclear_norm(x, transform=cosine)


def shrink(v: jax.Array, tau: prox.Scalar) -> jax.Array:
    """Its prox."""
    return prox.tubal_shrink(v, tau, transform=cosine)


tensors = jax.random.normal(keys[1], (200, 2, 6, 8))
candidates = shrink(x, 0.5) + 0.1 * tensors
gaps = jax.jit(jax.vmap(partial(optimality.variational_gap, norm, shrink, x, 0.5)))(candidates)
print("variational", float(jnp.max(gaps)))

# %% [markdown]
# ## Used in JPLTD
#
# What a method prepares is a frozen dataclass. Replace its transform, and go on as `jj.cluster` does.

# %%
blobs = jj.datasets.make_blobs(0, n_samples=60, dims=(12, 8))
assert blobs.labels is not None
problem = jj.make_problem(blobs.views, jj.missing.paper_protocol(0, 60, 2, rate=0.3))
data = prepare(JPLTD, problem, 3, replace(jj.PUBLISHED, latent_dim=6))
data = replace(data, transform=cosine)
solution = run(JPLTD, data, jj.Hyper(lam=1.0), jax.random.key(0))
found = label(jax.random.key(0), JPLTD, data, solution, 3)
print(solution.status.name, f"accuracy {float(jj.metrics.accuracy(blobs.labels, found.labels)):.2f}, shuffled")

# %% [markdown]
# A transform along the index depends on the order of the samples, the cosine too: see notebook 4.
