# %% [markdown]
# # 2. Sweep lambda, theta and k, and read the heat map
#
# Hyper-parameters are traced: one compiled program serves a whole grid, and configurations share the iterations in
# which they do not differ.

# %%
import jax

import jpltd_jax as jj
from jpltd_jax import plotting

digits = jj.datasets.load_digits_multiview(150)
mask = jj.missing.paper_protocol(0, 150, 3, rate=0.5)
problem = jj.make_problem(digits.views, mask)

# %% [markdown]
# ## The grid, on one line
#
# The samples are in file order, in which the digits are mixed.

# %%
grid = jj.grid(lam=[0.1, 1, 10, 100], theta=[0.02, 0.1, 0.5], latent_dim=[20, 30])
table = jj.sweep(
    problem,
    grid,
    n_clusters=10,
    y_true=digits.labels,
    key=jax.random.key(0),
    max_iter=30,
    transform="graph",
    n_kept=20,
    w_init="svd",
)
print(len(table.rows), "configurations,", sum(row["status"] == "EMPTY" for row in table.rows), "with an empty affinity")

# %% [markdown]
# ## The heat map
#
# A cell is the mean over the two values of k. Read it so:
#
# - **A plateau**, not a peak, is what you want: a value in its middle will do on other data too.
# - **Crosses** on the side of large lambda: the low-rank tensor was shrunk to nothing. Take a smaller lambda.
# - **Rows that do not change with theta**: theta is so large that the sparse tensor stays zero (variant B).
# - The framed cell was **chosen by the labels**. Its accuracy is what a person who knows the answer would get.

# %%
ax = plotting.plot_sweep(table)

# %%
ax = plotting.plot_sweep(table, x="latent_dim", y="lam")

# %%
best = table.best("accuracy")
print("best by the labels:", {name: best[name] for name in ("lam", "theta", "latent_dim")}, f"{best['accuracy']:.3f}")
for name in ("lam", "theta", "latent_dim"):
    marginal = table.marginal("accuracy", by=name)
    print(name, dict(zip(marginal.values.tolist(), marginal.mean.round(3).tolist(), strict=True)))

# %% [markdown]
# ## Without labels
#
# `clarity` is the eigengap of the affinity: large when there are n_clusters separate groups. `jj.JPLTD(lam="auto")`
# takes the lambda with the largest one. It is a hint: the clearest affinity need not be the most accurate one. Here:

# %%
transform = jj.graphs.graph_transform(jj.graphs.consensus_graph(problem))
for lam in (0.1, 1.0, 10.0):
    result = jj.solve(
        problem, jj.Hyper(lam=lam, theta=0.1), latent_dim=30, max_iter=30, transform=transform, w_init="svd"
    )
    affinity = jj.graphs.sparsify(result.affinity, 20)
    row = next(row for row in table.rows if (row["lam"], row["theta"], row["latent_dim"]) == (lam, 0.1, 30))
    print(f"lam {lam:5}: clarity {float(jj.selection.clarity(affinity, 10)):.3f}, accuracy {row['accuracy']:.3f}")

# %% [markdown]
# A long sweep should get `store="sweep.jsonl"`: rows are written as they finish, and the same call goes on where an
# interrupted one stopped. `table.to_csv(...)` and `table.to_pandas()` give the table; `jpltd sweep FILE` does all of
# this on the command line.
