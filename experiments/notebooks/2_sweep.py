# %% [markdown]
# # 2. Sweep hyper-parameters, read the heat map, compare methods
#
# Hyper-parameters are traced: one compiled program serves a whole grid, and configurations share the iterations in
# which they do not differ.

# %%
import jax

import jpltd_jax as jj
from jpltd_jax import plotting
from jpltd_jax.selection import clarity

digits = jj.datasets.load_digits_multiview(150)
assert digits.labels is not None
mask = jj.missing.paper_protocol(0, 150, 3, rate=0.5)
problem = jj.make_problem(digits.views, mask)
key = jax.random.key(0)

# %% [markdown]
# ## The grid, on one line
#
# Any field of the method's `Hyper` and `Config` can be an axis. The samples are in file order, in which the digits are
# mixed.

# %%
grid = jj.grid({"lam": [0.1, 1, 10, 100], "theta": [0.02, 0.1, 0.5], "latent_dim": [20, 30]})
table = jj.sweep(problem, grid, n_clusters=10, key=key, y=digits.labels)
print(len(table.rows), "configurations,", sum(row["status"] == "EMPTY" for row in table.rows), "with an empty affinity")

# %% [markdown]
# ## The heat map
#
# A cell is the mean over the two values of k, the latent dimension. Read it so:
#
# - **A plateau**, not a peak, is what you want: a value in its middle will do on other data too.
# - **Crosses** on the side of large lam: the low-rank tensor was shrunk to nothing. Take a smaller lam.
# - **Rows that do not change with theta**: theta is so large that the sparse tensor stays zero (variant B).
# - The framed cell was **chosen by the labels**. Its accuracy is what a person who knows the answer would get.

# %%
ax = plotting.plot_sweep(table)

# %%
best = table.best("accuracy")
print("best by the labels:", {name: best[name] for name in ("lam", "theta", "latent_dim")}, f"{best['accuracy']:.3f}")
for name in ("lam", "theta", "latent_dim"):
    marginal = table.marginal("accuracy", by=name)
    print(name, dict(zip(marginal.values.tolist(), marginal.mean.round(3).tolist(), strict=True)))

# %% [markdown]
# ## Without labels
#
# Every row also has the `score` of its partition on the views' own graphs, see `jpltd_jax.quality.Quality`. The best by
# the score is a choice that anybody could make.

# %%
chosen = table.best("score")
print("best by the score:", {name: chosen[name] for name in ("lam", "theta", "latent_dim")})
print(f"its accuracy {chosen['accuracy']:.3f}, against {best['accuracy']:.3f} by the labels")

# %% [markdown]
# `clarity` is the eigengap of the affinity: large when there are n_clusters separate groups. `jj.JPLTD(lam="auto")`
# takes the lam with the largest one. It is a hint: the clearest affinity need not be the most accurate one. Here:

# %%
for lam in (0.1, 1.0, 10.0):
    found = jj.cluster(key, problem, jj.Hyper(lam=lam), 10, jj.Config(latent_dim=30))
    assert found.affinity is not None
    accuracy = float(jj.metrics.accuracy(digits.labels, found.labels))
    print(f"lam {lam:5}: clarity {float(clarity(found.affinity, 10)):.3f}, accuracy {accuracy:.3f}")

# %% [markdown]
# ## Other methods
#
# `jj.methods.METHODS` lists them. A sweep of another one differs in the names of its axes only, so methods can be
# compared on the same samples, mask and seeds. Say how many configurations each had: the best of many is larger by
# chance alone.

# %%
axes: dict[str, dict[str, list[float]]] = {
    "averaged_graph": {},
    "hcp_imsc": {"lam1": [0.1, 1, 10], "lam2": [1, 10, 100]},
}
tables = {"jpltd": table}
for name, values in axes.items():
    tables[name] = jj.sweep(problem, jj.grid(values, method=name), n_clusters=10, key=key, y=digits.labels)
for name, swept in tables.items():
    title = jj.methods.METHODS[name].title
    print(f"{title:15} {swept.best('accuracy')['accuracy']:.3f}, best of {swept.total} by the labels")

# %%
ax = plotting.plot_sweep(tables["hcp_imsc"], x="lam2", y="lam1")

# %% [markdown]
# A long sweep should get `store="sweep.jsonl"`: rows are written as they finish, and the same call goes on where an
# interrupted one stopped. `table.to_csv(...)` and `table.to_pandas()` give the table; `jpltd sweep FILE` does all of
# this on the command line.
