# %% [markdown]
# # 1. Compose JPLTD from its pieces
#
# JPLTD is views + mask → problem → iterations → affinity → labels. Every arrow is a pure function. Here they are called
# one by one, and one iteration is written out in terms of its block updates, to see what W, G, B and P are.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jpltd_jax as jj
from jpltd_jax import blocks, plotting, prox

# %% [markdown]
# ## Data
#
# The bundled handwritten digits have three views: pixels, Fourier magnitudes and histograms of gradient directions. We
# take the digits 0 to 4 among the first 300 and hide views of half of the samples, as in the paper. The samples are not
# sorted by class.

# %%
digits = jj.datasets.load_digits_multiview(300)
assert digits.labels is not None
chosen = digits.labels < 5
views, labels = [view[chosen] for view in digits.views], digits.labels[chosen]
n, m, n_clusters = len(labels), len(views), 5
mask = jj.missing.paper_protocol(0, n, m, rate=0.5)
ax = plotting.plot_availability(mask)
print(n, "samples,", [view.shape[1] for view in views], "features")

# %% [markdown]
# ## The problem
#
# `make_problem` checks the views, scales every observed sample to unit length and stacks the views on one axis: data
# are (view, feature, sample), zero where missing.

# %%
problem = jj.make_problem(views, mask)
print(problem.data.shape, problem.data.dtype)

# %% [markdown]
# ## The transform
#
# The tensor norm looks at G after a transform along the samples. The paper's is Fourier, for which the order of the
# samples matters. The eigenvectors of a neighbour graph move with the samples; this is what `jj.JPLTD` uses.

# %%
graph = jj.graphs.consensus_graph(problem)
transform = jj.graphs.graph_transform(graph)
ax = plotting.plot_affinity(graph, labels, title="Neighbour graph, grouped by true class")

# %% [markdown]
# ## One iteration, written out
#
# W projects every view to k dimensions, G represents every sample by the others, E is what that leaves, and G is split
# into B, which is low rank as a tensor, and P, which is sparse. J1 and J2 are the multipliers of the two constraints.


# %%
def iterate(state: jj.State, hyper: jj.Hyper) -> jj.State:
    """W, G, E, B, P, then the multipliers and the penalty."""
    rho = state.rho
    J1, J2 = state.J1 / rho, state.J2 / rho
    W = blocks.update_projection(problem.data, state.G, state.E - J1, state.W)
    latent = W @ problem.data
    G, represented = blocks.update_graph(latent, problem.mask, latent - state.E + J1, state.B + state.P - J2)
    E = blocks.update_error(latent - represented + J1, rho)
    B = prox.tubal_shrink(G - state.P + J2, hyper.lam / rho, transform=transform)
    P = prox.soft_threshold(G - B + J2, hyper.theta / rho)
    fit, split = latent - represented - E, G - B - P
    return jj.State(
        W=W,
        G=G,
        E=E,
        B=B,
        P=P,
        J1=state.J1 + rho * fit,
        J2=state.J2 + rho * split,
        rho=jnp.minimum(hyper.rho_max, hyper.growth * rho),
        iteration=state.iteration + 1,
    )


# %% [markdown]
# The first iterations see neither `lam` nor `theta`: the penalty is so small that both thresholds are above everything,
# and B and P stay zero. The iteration is pure, so `jax.jit` compiles it. (`theta` is smaller than the default 0.1, with
# which P stays zero on these data.)

# %%
hyper = jj.Hyper(lam=1.0, theta=0.01)
state = jj.init(problem, hyper, latent_dim=30, w_init="svd")
compiled = jax.jit(iterate)
for _ in range(30):
    state = compiled(state, hyper)
    if int(state.iteration) % 5 == 0:
        low_rank, sparse = (100 * np.mean(np.asarray(x) != 0) for x in (state.B, state.P))
        print(f"iteration {int(state.iteration):2}: entries that are not zero: B {low_rank:5.1f} %, P {sparse:4.1f} %")

# %% [markdown]
# ## Looking at the tensors
#
# One view of each, samples grouped by true class. B carries the groups; P takes single strong entries.

# %%
grouped = np.argsort(labels, kind="stable")
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
for ax, (name, tensor) in zip(axes, {"G": state.G, "B": state.B, "P": state.P}.items(), strict=True):
    block = np.abs(np.asarray(tensor[0]))[np.ix_(grouped, grouped)]
    ax.imshow(block, cmap="cividis", vmax=max(float(np.quantile(block, 0.98)), 1e-6))
    ax.set(title=f"|{name}|, view 0", xlabel="dictionary sample", ylabel="sample")

# %% [markdown]
# ## The same in one compiled loop, and the labels
#
# `jj.solve` is a `lax.while_loop` of `jj.step`, which is the iteration above.

# %%
result = jj.solve(problem, hyper, latent_dim=30, max_iter=30, transform=transform, w_init="svd")
ax = plotting.plot_residuals(result.history)
print(jj.Status(int(result.status)).name, "after", int(result.n_iter), "iterations")
print(f"largest difference in B from the loop above: {float(jnp.max(jnp.abs(state.B - result.state.B))):.1e}")

# %%
affinity = jj.graphs.sparsify(result.affinity, 20)
found = jj.spectral_cluster(jax.random.key(0), affinity, n_clusters)
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
plotting.plot_affinity(affinity, found, ax=left)
plotting.plot_embedding(jj.spectral_embedding(affinity, n_clusters), found, ax=right, title="Spectral embedding")
print(f"accuracy {100 * float(jj.metrics.accuracy(labels, found)):.1f} % (samples not sorted by class)")
