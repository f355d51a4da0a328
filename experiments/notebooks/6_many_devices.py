# %% [markdown]
# # 6. Many devices
#
# A sweep uses every local device without being told. To try that without accelerators, split the CPU into four devices;
# this has to happen before JAX starts. On a machine with several GPUs or TPU cores leave this cell out.

# %%
import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"

import tempfile
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

import jpltd_jax as jj
from jpltd_jax.sweeps import SweepResult

print(jax.devices())

# %%
blobs = jj.datasets.make_blobs(0, n_samples=60, dims=(12, 8))
mask = jj.missing.paper_protocol(0, 60, 2, rate=0.5)
problem = jj.make_problem(blobs.views, mask)
grid = jj.grid({"lam": [0.1, 0.25, 0.5, 1.0], "theta": [0.1, 0.5]}, config=jj.Config(latent_dim=6))
key = jax.random.key(0)


def sweep(run: jj.Run, store: Path | None = None) -> SweepResult:
    """The same sweep, run in different ways."""
    return jj.sweep(problem, grid, n_clusters=3, key=key, y=blobs.labels, store=store, run=run)


# %% [markdown]
# ## All devices, and one
#
# Configurations are dealt to the devices, each of which stops its own ones when they are done. The labels do not depend
# on how many there are.

# %%
everywhere = sweep(jj.Run())
alone = sweep(jj.Run(devices=jax.devices()[:1]))
same = all(a["labels"] == b["labels"] for a, b in zip(everywhere.rows, alone.rows, strict=True))
print(len(everywhere.rows), "configurations; the same labels on one device and on four:", same)

# %% [markdown]
# ## Memory
#
# A device runs as many configurations at once as fit. The need is predicted by the compiled program's own account, so
# too little memory is refused before anything runs.

# %%
try:
    sweep(jj.Run(memory=10_000))
except ValueError as error:
    print(error)

# %% [markdown]
# ## Stop and go on
#
# With a store every finished row is on disk. The second call finds all of them.

# %%
store = Path(tempfile.mkdtemp()) / "sweep.jsonl"
first = sweep(jj.Run(), store)
again = sweep(jj.Run(), store)
print(len(store.read_text().splitlines()), "rows stored;", "the same table:", first.rows == again.rows)

# %% [markdown]
# ## One large problem
#
# Instead of configurations, spread the samples of one problem over the devices. Everything else is as ever. The row of
# the sweep with the same hyper-parameters has the same labels: its key is the sweep's with its seed folded in.

# %%
mesh = Mesh(np.array(jax.devices()), ("samples",))
spread = jj.shard_samples(problem, mesh)
found = jj.cluster(jax.random.fold_in(key, 0), spread, jj.Hyper(lam=0.25, theta=0.1), 3, jj.Config(latent_dim=6))
row = next(row for row in alone.rows if (row["lam"], row["theta"]) == (0.25, 0.1))
print("G lies on", len(found.solution.state.G.sharding.device_set), "devices")
print("the same labels:", found.labels.tolist() == row["labels"])

# %% [markdown]
# ## Several hosts
#
# Start the same program once on each host, with one more line before anything else:
#
# ```python
# jax.distributed.initialize()  # on clusters that JAX knows; else coordinator_address, num_processes, process_id
# ```
#
# Every process takes a contiguous part of the grid on its own devices, and all of them return all rows. Process i > 0
# appends to its own file, `sweep.jsonl.i`, so that hosts need not share locks.
#
# Workers that know nothing of each other, as those of Ray and Dask, each take `jj.Run(shard=(i, k))`: every k-th
# configuration. `jpltd_jax.sweeps.merge_stores` puts their files together.
