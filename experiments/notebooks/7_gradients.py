# %% [markdown]
# # 7. A weight by gradient
#
# `jax.grad` goes through a whole run of JPLTD: so a hyper-parameter can follow the slope of any smooth criterion. Here
# lam climbs the eigengap of the learned affinity, which needs no labels: it is 1 for separate clusters of strong links,
# and 0 where nothing separates them.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax

import jpltd_jax as jj
from jpltd_jax.selection import clarity

blobs = jj.datasets.make_blobs(3, n_samples=60, dims=(12, 8), n_clusters=3, separation=2.5)
assert blobs.labels is not None
problem = jj.make_problem(blobs.views, jj.missing.paper_protocol(0, 60, 2, rate=0.3))
config = jj.Config(latent_dim=6)

# %% [markdown]
# The loop has to be a scan of fixed length, since nothing can go backwards through a loop that stops by itself. Labels
# have no derivative, so the criterion is one of the affinity.

# %%
loop = jj.Loop(max_iter=25, kind="scan")


def criterion(log_lam: jax.Array) -> jax.Array:
    """Eigengap of the learned affinity."""
    affinity = jj.solve(problem, jj.Hyper(lam=jnp.exp(log_lam)), config, loop=loop).affinity
    assert affinity is not None
    return clarity(affinity, 3)


value_and_slope = jax.jit(jax.value_and_grad(criterion))
start, h = jnp.log(1.0), 1e-3
value, slope = value_and_slope(start)
difference = (criterion(start + h) - criterion(start - h)) / (2 * h)
print(f"eigengap {value:.4f}, slope {slope:.4f}, by differences {difference:.4f}")

# %% [markdown]
# From there uphill, in steps of Adam on log lam.

# %%
optimizer = optax.adam(0.3)
log_lam = start
state = optimizer.init(log_lam)
path = []
for _ in range(25):
    value, slope = value_and_slope(log_lam)
    path.append((float(jnp.exp(log_lam)), float(value)))
    update, state = optimizer.update(-slope, state)
    log_lam = optax.apply_updates(log_lam, update)

for lam, gap in path[::6]:
    print(f"lam {lam:.3f}: eigengap {gap:.4f}")

# %%
lams = jnp.geomspace(0.1, 10, 15)
gaps = jax.jit(jax.vmap(criterion))(jnp.log(lams))
figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
axes.semilogx(lams, gaps, label="grid of 15")
axes.semilogx(*zip(*path, strict=True), "o-", markersize=3, label="path of the gradient")
axes.set(xlabel="lam", ylabel="eigengap")
axes.legend()

# %% [markdown]
# At small weights the curve is made of many short pieces, between which entries of the affinity appear or vanish: the
# slope at one point says little there, so start where the curve is smooth. The path against the grid, and what the
# labels say, which nothing above has seen:

# %%
print(f"best of the path {max(gap for _, gap in path):.4f}, of the grid {float(gaps.max()):.4f}")
for lam in (path[0][0], max(path, key=lambda step: step[1])[0]):
    found = jj.cluster(jax.random.key(0), problem, jj.Hyper(lam=lam), 3, config)
    print(f"lam {lam:.3f}: accuracy {float(jj.metrics.accuracy(blobs.labels, found.labels)):.2f}")
