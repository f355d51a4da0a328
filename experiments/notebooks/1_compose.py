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
from jpltd_jax import linalg, plotting, prox
from jpltd_jax.methods import jpltd

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
views, classes = [view[chosen] for view in digits.views], digits.labels[chosen]
n, m, n_clusters = len(classes), len(views), 5
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
# ## What no hyper-parameter changes
#
# Options are in a `Config`, numbers in a `Hyper`. `prepare` does all that needs options only. For JPLTD this is the
# transform along the samples, under which the tensor norm looks at G. The paper's is Fourier, for which the order of
# the samples matters. The default is the eigenvectors of a neighbour graph, which move with the samples.

# %%
config = jj.Config(latent_dim=30)
data = jpltd.prepare(problem, n_clusters, config)
ax = plotting.plot_affinity(data.late, classes, title="Neighbour graph, grouped by true class")

# %% [markdown]
# ## One iteration, written out
#
# W projects every view to k dimensions, G represents every sample by the others, E is what that leaves, and G is split
# into B, which is low rank as a tensor, and P, which is sparse. J1 and J2 are the multipliers of the two constraints.


# %%
@jax.jit
def iterate(state: jpltd.State, hyper: jj.Hyper) -> jpltd.State:
    """W, G, E, B, P, then the multipliers and the penalty."""
    rho = state.rho
    J1, J2 = state.J1 / rho, state.J2 / rho
    W = jpltd.update_projection(data, state, state.E - J1)
    latent = W @ problem.data
    G, represented = linalg.ridge(latent, latent - state.E + J1, state.B + state.P - J2, problem.mask)
    E = prox.shrink_columns(latent - represented + J1, 1 / rho)
    B = prox.tubal_shrink(G - state.P + J2, hyper.lam / rho, data.transform)
    P = prox.soft_threshold(G - B + J2, hyper.theta / rho)
    J1 = state.J1 + rho * (latent - represented - E)
    J2 = state.J2 + rho * (G - B - P)
    return jpltd.State(W, G, E, B, P, J1, J2, rho=jnp.minimum(hyper.rho_max, hyper.growth * rho))


# %% [markdown]
# The first iterations see neither `lam` nor `theta`: the penalty is so small that both thresholds are above everything,
# and B and P stay zero. (`theta` is smaller than the default 0.1, with which P stays zero on these data.)

# %%
hyper = jj.Hyper(lam=1.0, theta=0.01)
state = jpltd.init(jax.random.key(0), data, hyper)
for iteration in range(1, 31):
    state = iterate(state, hyper)
    if iteration % 5 == 0:
        low_rank, sparse = (100 * np.mean(np.asarray(x) != 0) for x in (state.B, state.P))
        print(f"iteration {iteration:2}: entries that are not zero: B {low_rank:5.1f} %, P {sparse:4.1f} %")

# %% [markdown]
# ## Looking at the tensors
#
# One view of each, samples grouped by true class. B carries the groups; P takes single strong entries.

# %%
grouped = np.argsort(classes, kind="stable")
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
for ax, (name, tensor) in zip(axes, {"G": state.G, "B": state.B, "P": state.P}.items(), strict=True):
    block = np.abs(np.asarray(tensor[0]))[np.ix_(grouped, grouped)]
    ax.imshow(block, cmap="cividis", vmax=max(float(np.quantile(block, 0.98)), 1e-6))
    ax.set(title=f"|{name}|, view 0", xlabel="dictionary sample", ylabel="sample")

# %% [markdown]
# ## All of it in one call
#
# `jj.cluster` prepares, iterates `jpltd.step`, which is the iteration above, in a compiled loop, thins the affinity,
# adds a neighbour graph to it and clusters its spectral embedding. It does so with two graphs, and takes the partition
# that the views support better. It is pure too: `jax.vmap` it over keys, hyper-parameters or masks.

# %%
found = jj.cluster(jax.random.key(0), problem, hyper, n_clusters, config)
solution = found.solution
print(solution.status.name, "after", int(solution.n_iter), "iterations")
print(f"largest difference in B from the loop above: {float(jnp.max(jnp.abs(state.B - solution.state.B))):.1e}")
print(f"accuracy {100 * float(jj.metrics.accuracy(classes, found.labels)):.1f} % (samples not sorted by class)")
ax = plotting.plot_history(solution.history)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
plotting.plot_affinity(found.affinity, found.labels, ax=left)
ax = plotting.plot_embedding(found.embedding, found.labels, ax=right, title="Spectral embedding")
