# %% [markdown]
# # 7. Patients with some of their omics measured
#
# Two studies of tumours. Each kind of measurement is a CSV file with patients as rows and their ids in the first
# column; the files have different patients, because not everything was measured for everybody. No label takes part in
# a fit. What is known besides is looked at afterwards: subtypes of breast cancer (BRCA), and how long patients with
# adrenocortical carcinoma (ACC) lived.
#
# Without files this runs on made-up ones of the same layout. With a directory of the real ones (`brca_mrna.csv`,
# `brca_subtype.csv`, `acc_clinical.csv` and so on) run `JPLTD_OMICS=DIRECTORY python 8_patients.py`.

# %%
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scipy.stats
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

import jpltd_jax as jj
from jpltd_jax import plotting
from jpltd_jax.report import cluster_report, write
from jpltd_jax.views import read_views

made = Path(tempfile.mkdtemp())
folder = Path(os.environ.get("JPLTD_OMICS", made))


# %%
def make_up(study: str, sizes: dict[str, tuple[int, float]], seed: int) -> tuple[list[str], np.ndarray]:
    """Write one file per view, each with its own number of columns and share of the patients; ids and classes."""
    blobs = jj.datasets.make_blobs(seed, n_samples=60, dims=tuple(width for width, _ in sizes.values()), noise=1.0)
    assert blobs.labels is not None
    rng = np.random.default_rng(seed)
    ids = [f"{study.upper()}-{i:02}" for i in range(60)]
    for (name, (width, share)), view in zip(sizes.items(), blobs.views, strict=True):
        columns = [f"{name}{j}" for j in range(width)]
        seen = np.sort(rng.choice(60, round(60 * share), replace=False)) if share < 1 else np.arange(60)
        pd.DataFrame(view, ids, columns).iloc[seen].to_csv(made / f"{study}_{name}.csv", index_label="sample")
    return ids, blobs.labels


if folder == made:
    ids, classes = make_up("brca", {"mrna": (20, 1.0), "mirna": (18, 1.0), "protein": (14, 0.7)}, seed=0)
    subtypes = np.array(["Basal", "Her2", "LumA"])[classes]
    pd.DataFrame({"subtype": subtypes}, ids).to_csv(folder / "brca_subtype.csv", index_label="sample")
    ids, classes = make_up("acc", {"RNASeq2GeneNorm": (20, 1.0), "miRNASeqGene": (24, 0.9), "RPPAArray": (10, 0.5)}, 1)
    days = np.random.default_rng(2).exponential(np.array([500, 2000, 6000])[classes]).round() + 1
    dead = days < 3000
    clinical = {
        "vital_status": dead.astype(int),
        "days_to_death": np.where(dead, days, np.nan),
        "days_to_last_followup": np.where(dead, np.nan, 3000),
        "COC": [f"COC{k + 1}" for k in classes],
    }
    pd.DataFrame(clinical, ids).to_csv(folder / "acc_clinical.csv", index_label="patientID")

# %% [markdown]
# ## Breast cancer: which patients are alike?
#
# The frames go in as they are, by name. Patients are matched by their ids.

# %%
brca = {name: pd.read_csv(folder / f"brca_{name}.csv", index_col=0) for name in ("mrna", "mirna", "protein")}
for name, frame in brca.items():
    print(f"{name:8} {frame.shape[0]:4} patients {frame.shape[1]:4} features")
views = read_views(brca)
ax = plotting.plot_availability(views.mask)
ticks = ax.set_yticks(range(len(brca)), list(brca))

# %% [markdown]
# How many clusters? Nobody knows. A range of numbers is compared without labels, and the one with the largest
# modularity is taken: a suggestion.

# %%
model = jj.JPLTD(range(2, 9), random_state=0).fit(brca)
tried = model.clusters_tried_
assert tried is not None
for count, modularity, gap in zip(tried.counts, tried.modularity, tried.eigengap, strict=True):
    taken = "  <- suggested" if count == model.n_clusters_ else ""
    print(f"{count} clusters: modularity {modularity:.3f}, eigengap {gap:.3f}{taken}")
axes = plotting.plot_n_clusters(tried, model.n_clusters_)

# %% [markdown]
# What was chosen: how each view is scaled, and which of two partitions the views support better.

# %%
print({name: kind for name, kind in zip(model.view_names_in_, model.preparation_, strict=True)})
for name, candidate in model.candidates_.items():
    print(f"{name:12}score {candidate['score']:.3f}{'  <- taken' if name == model.chosen_ else ''}")
assert model.support_ is not None
print(pd.DataFrame(100 * model.support_.astype(float), list(brca)).round(1).add_prefix("cluster "))
ax = plotting.plot_support(model.support_, model.view_names_in_)

# %% [markdown]
# How sure is each label? Patients with a margin near 0 lie between two clusters: look at them before you use theirs.

# %%
labels = pd.Series(model.labels_, model.sample_ids_, name="cluster")
margin = pd.Series(model.margin_.astype(float), model.sample_ids_)
print("least sure:", margin.nsmallest(5).round(2).to_dict())
ax = plotting.plot_margins(model.margin_, model.labels_)

# %%
ax = plotting.plot_embedding(model.embedding_, model.labels_, title="Patients, by cluster")

# %% [markdown]
# ### Against the known subtypes
#
# These were not seen by the fit. Agreement is 1 for equal partitions; the adjusted Rand index (ARI) is about 0 for
# unrelated ones. Do sure labels agree better than unsure ones? That is what the margin is for.

# %%
subtype = pd.read_csv(folder / "brca_subtype.csv", index_col=0)["subtype"].reindex(labels.index)
print(pd.crosstab(subtype, labels))


def agreement(some: pd.Series) -> str:
    ari = adjusted_rand_score(subtype[some], labels[some])
    nmi = normalized_mutual_info_score(subtype[some], labels[some])
    return f"ARI {ari:.2f}, NMI {nmi:.2f} ({some.sum()} patients)"


print("all:      ", agreement(margin >= 0))
print("sure half:", agreement(margin >= margin.median()))
print("the others:", agreement(margin < margin.median()))
for name, frame in brca.items():
    alone = jj.JPLTD(model.n_clusters_, random_state=0).fit_predict([frame.to_numpy()])
    print(f"{name} alone: ARI {adjusted_rand_score(subtype[frame.index], alone):.2f} ({len(frame)} patients)")

# %% [markdown]
# One page that holds all of this, to keep and to send. The command line makes the same one:
# `jpltd cluster brca_mrna.csv brca_mirna.csv brca_protein.csv --n-clusters 2-8 --report brca.html`.

# %%
write(made / "brca.html", cluster_report(model, views))
print(f"brca.html: {(made / 'brca.html').stat().st_size / 1000:.0f} kB, nothing else needed")

# %% [markdown]
# ## Adrenocortical carcinoma: do the clusters differ in survival?
#
# Some of these files hold raw counts over several powers of ten: their logarithms are taken first.

# %%
acc = {
    file.stem.removeprefix("acc_"): pd.read_csv(file, index_col=0)
    for file in sorted(folder.glob("acc_*.csv"))
    if file.stem != "acc_clinical"
}
acc = {name: np.log2(1 + x) if x.to_numpy().min() >= 0 and x.to_numpy().max() > 100 else x for name, x in acc.items()}
acc_model = jj.JPLTD(range(2, 9), random_state=0).fit(acc)
acc_labels = pd.Series(acc_model.labels_, acc_model.sample_ids_, name="cluster")
for name, frame, kind in zip(acc, acc.values(), acc_model.preparation_, strict=True):
    print(f"{name:16} {frame.shape[0]:3} patients {frame.shape[1]:4} features, prepared as {kind}")
print(f"{acc_model.n_clusters_} clusters of {np.bincount(acc_model.labels_).tolist()} patients")
ax = plotting.plot_availability(read_views(acc).mask)
ticks = ax.set_yticks(range(len(acc)), list(acc))

# %% [markdown]
# Kaplan-Meier curves: the share of patients who live longer than so many days. Those who were alive when last seen are
# censored: they count until then.

# %%
clinical = pd.read_csv(folder / "acc_clinical.csv", index_col=0).reindex(acc_labels.index)
died = clinical["vital_status"] == 1
time = clinical["days_to_death"].where(died, clinical["days_to_last_followup"])


def survival(some: pd.Series) -> scipy.stats.CensoredData:
    """Times of death, and of the last visit of those who were alive."""
    return scipy.stats.CensoredData(uncensored=time[some & died], right=time[some & ~died])


figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
for c, members in acc_labels.groupby(acc_labels).groups.items():
    some = pd.Series(acc_labels.index.isin(members), acc_labels.index)
    curve = scipy.stats.ecdf(survival(some)).sf
    name = f"cluster {c}: {int((some & died).sum())} of {some.sum()} died"
    ax.step(np.append(0, curve.quantiles), np.append(1, curve.probabilities), where="post", label=name)
ax.set(xlabel="days", ylabel="share alive", ylim=(0, 1.02), title="Survival by cluster")
legend = ax.legend(loc="upper left", bbox_to_anchor=(1, 1))

# %% [markdown]
# The log-rank test compares the deaths in each cluster with those expected if all had the same survival. For two groups
# it is `scipy.stats.logrank`, which is asked here whether it says the same.


# %%
def log_rank(groups: np.ndarray) -> tuple[float, float]:
    """Statistic and p of the log-rank test of any number of groups."""
    t, d = time.to_numpy(), died.to_numpy()
    members = np.unique(groups)[:, None] == groups
    excess, spread = np.zeros(len(members)), np.zeros((len(members), len(members)))
    for at in np.unique(t[d]):
        n, dead = (members & (t >= at)).sum(axis=1), (members & (t == at) & d).sum(axis=1)
        share = n / n.sum()
        excess += dead - dead.sum() * share
        ties = dead.sum() * (n.sum() - dead.sum()) / max(n.sum() - 1, 1)
        spread += ties * (np.diag(share) - np.outer(share, share))
    statistic = excess[1:] @ np.linalg.solve(spread[1:, 1:], excess[1:])
    return float(statistic), float(scipy.stats.chi2.sf(statistic, len(members) - 1))


statistic, p = log_rank(acc_model.labels_)
print(f"log-rank test of {acc_model.n_clusters_} clusters: {statistic:.1f}, p = {p:.1g}")
first = pd.Series(acc_model.labels_ == 0, acc_labels.index)
two = scipy.stats.logrank(survival(first), survival(~first))
assert np.isclose(log_rank(first.to_numpy())[0], two.statistic**2)

# %%
published = clinical["COC"].dropna()
ari = adjusted_rand_score(published, acc_labels[published.index])
print(f"agreement with the published clusters of clusters: ARI {ari:.2f} ({len(published)} patients)")
print(pd.crosstab(clinical["COC"], acc_labels))

# %% [markdown]
# A small p does not say that the clusters are the right ones, only that those who are in them do not live equally long.
# It is not corrected for the choices made before it; here these were made without looking at survival.
