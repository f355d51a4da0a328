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

import jpltd_jax as jj

print(jax.devices())

# %%
blobs = jj.datasets.make_blobs(0, n_samples=60, dims=(12, 8))
mask = jj.missing.paper_protocol(0, 60, 2, rate=0.5)
problem = jj.make_problem(blobs.views, mask)
grid = jj.grid(lam=[0.1, 0.25, 0.5, 1.0], theta=[0.1, 0.5], latent_dim=6)


def run(
    devices: list[jax.Device] | None = None, store: Path | None = None, memory_budget: int | None = None
) -> jj.SweepResult:
    """The same sweep on the given devices; None: on all."""
    return jj.sweep(
        problem,
        grid,
        n_clusters=3,
        y_true=blobs.labels,
        key=jax.random.key(0),
        max_iter=30,
        transform="graph",
        n_kept=10,
        w_init="svd",
        devices=devices,
        store=store,
        memory_budget=memory_budget,
    )


# %% [markdown]
# ## All devices, and one
#
# Configurations are dealt to the devices, each of which stops its own ones when they are done. The labels do not depend
# on how many there are.

# %%
everywhere = run()
alone = run(jax.devices()[:1])
same = all(a["labels"] == b["labels"] for a, b in zip(everywhere.rows, alone.rows, strict=True))
print(len(everywhere.rows), "configurations; the same labels on one device and on four:", same)

# %% [markdown]
# ## Memory
#
# A device runs as many configurations at once as fit. The need is predicted by the compiled program's own account, so a
# budget that is too small is refused before anything runs.

# %%
try:
    run(memory_budget=10_000)
except ValueError as error:
    print(error)

# %% [markdown]
# ## Stop and go on
#
# With a store every finished row is on disk. The second call finds all of them.

# %%
store = Path(tempfile.mkdtemp()) / "sweep.jsonl"
first = run(store=store)
again = run(store=store)
print(len(store.read_text().splitlines()), "rows stored;", "the same table:", first.rows == again.rows)

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
