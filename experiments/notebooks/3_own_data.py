# %% [markdown]
# # 3. Your own data: CSV files, DataFrames, rows of NaN, MATLAB files
#
# One file per view, with the sample's id in the first column. A sample that a file does not list is missing in that
# view. Put the names of your files and the number of clusters here, or run this as a script with them:
# `python 3_own_data.py 3 a.csv b.csv`. Without any, two files are made up.

# %%
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.io

import jpltd_jax as jj
from jpltd_jax import plotting
from jpltd_jax.views import read_views

csv_files = [Path(name) for name in sys.argv[1:] if name.endswith(".csv")]
n_clusters = int(next((word for word in sys.argv[1:] if word.isdigit()), 3))
folder = Path(tempfile.mkdtemp())

# %%
if not csv_files:
    blobs = jj.datasets.make_blobs(0, n_samples=90, dims=(12, 8), n_clusters=n_clusters)
    observed = jj.missing.paper_protocol(0, 90, 2, rate=0.5)
    ids = [f"patient{i:02}" for i in range(90)]
    for v, name in enumerate(("genes", "images")):
        pd.DataFrame(blobs.views[v], index=ids)[observed[:, v]].to_csv(folder / f"{name}.csv")
        csv_files.append(folder / f"{name}.csv")

# %% [markdown]
# ## DataFrames
#
# Frames are matched by their index, so they may have different lengths and list their samples differently.

# %%
frames = [pd.read_csv(file, index_col=0) for file in csv_files]
for file, frame in zip(csv_files, frames, strict=True):
    print(f"{file.name}: {frame.shape[0]} samples, {frame.shape[1]} features")
ax = plotting.plot_availability(read_views(frames).mask)

# %% [markdown]
# Before clustering, think of three things.
#
# - **Categories** must be numbers: `pd.get_dummies(frame)`.
# - **Single missing values** are another problem than missing views. A row with some NaN is an error; impute it
#   (`sklearn.impute.SimpleImputer`) or set the whole row to NaN.
# - **Scales.** Features with different units have to be made comparable, and a long document is not another topic than
#   a short one. The estimator scales each view in the way whose neighbours agree best with those of the other views,
#   and tells what it took; `preparation=` sets it.
#
# It also tells which of two partitions it took and why: by a score that needs no labels.

# %%
model = jj.JPLTD(n_clusters, random_state=0).fit(frames)
print("scaled as", model.preparation_)
for name, tried in model.candidates_.items():
    print(f"{name:12}score {tried['score']:.3f}{'  <- taken' if name == model.chosen_ else ''}")
print(f"the least sure sample is {model.sample_ids_[model.margin_.argmin()]}")

# %%
prepared = frames
found = pd.Series(model.labels_, index=model.sample_ids_, name="label")
print(found.value_counts().sort_index().to_dict(), "samples in each cluster")
print(found.head())
found.to_csv(folder / "labels.csv", index_label="sample")

# %%
ax = plotting.plot_embedding(model.embedding_, model.labels_, title="Your samples")

# %% [markdown]
# ## Arrays with rows of NaN, or with a mask
#
# The same data as arrays on one sample axis. Whatever stands in a row that the mask hides is ignored.

# %%
read = read_views(prepared)
with_nan = [np.where(read.mask[:, [v]], view, np.nan) for v, view in enumerate(read.matrices)]
by_nan = jj.JPLTD(n_clusters, random_state=0).fit_predict(with_nan)
by_mask = jj.JPLTD(n_clusters, random_state=0).fit_predict(read.matrices, mask=read.mask)
print("the same labels:", bool((by_nan == model.labels_).all() and (by_mask == model.labels_).all()))

# %% [markdown]
# ## The command line, one file for all views, and MATLAB files
#
# `jpltd cluster genes.csv images.csv --n-clusters 3 --out labels.csv` reads the same files as this notebook. All views
# also go into one archive, `jpltd cluster own.npz --n-clusters 3`. MATLAB files need a cell array of views under one of
# the usual names; the orientation is found from the sizes. In both a row of NaN is a missing sample: never write zeros
# for it, which would be data. `ids` says what the samples are called.

# %%
jj.datasets.save_npz(folder / "own.npz", jj.datasets.MultiViewData(with_nan, None, None, "own", read.ids.astype(str)))
cells = np.empty((1, len(with_nan)), object)
cells[0, :] = [view.T for view in with_nan]
scipy.io.savemat(folder / "own.mat", {"X": cells, "ids": read.ids})
for name in ("own.npz", "own.mat"):
    data = jj.datasets.load(folder / name)
    loaded = read_views(data.views, ids=[data.ids] * len(data.views))
    print(name, [view.shape for view in loaded.matrices], "the same mask:", bool((loaded.mask == read.mask).all()))
    print("the first samples:", loaded.ids[:3])
print("written to", folder)
