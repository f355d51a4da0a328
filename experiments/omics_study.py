"""The default on two sets of patients whose views are naturally incomplete.

    python experiments/omics_study.py OMICS_DIRECTORY

BRCA (220 breast cancers; mRNA, microRNA and protein, which 70 lack) is compared with its three subtypes, ACC (92
adrenocortical carcinomas; five views, of which 46 to 90 patients are in each) with three clusterings that its study
published. No labels are used in any run; the number of clusters is that of the classes; five seeds of k-means. Prints
and writes omics_study.csv: adjusted Rand index and accuracy, means over the seeds.
"""

import csv
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from default_study import METHODS, Case
from sklearn.metrics import adjusted_rand_score

import jpltd_jax as jj
from jpltd_jax.views import read_views

STORE = Path(__file__).with_suffix(".csv")
SEEDS = 5
VIEWS = {
    "brca": ("mrna", "mirna", "protein"),
    "acc": ("RNASeq2GeneNorm", "miRNASeqGene", "RPPAArray", "gistict", "Mutations"),
}
TRUTH = {"brca": ("subtype", None), "acc": ("clinical", ("COC", "C1A.C1B", "mRNA_K4"))}
SHOWN = (
    "default",
    "before",
    "fast",
    "learned_alone",
    "late_alone",
    "completed_alone",
    "averaged_knn",
    "local_scaling_10",
    "knn_impute_kmeans",
    "nemo",
)


def cases(folder: Path, name: str, seed: int) -> list[tuple[str, Case, np.ndarray]]:
    """For each known clustering its name, the patients, and which of them it covers."""
    frames = {view: pd.read_csv(folder / f"{name}_{view}.csv", index_col=0) for view in VIEWS[name]}
    views = read_views(frames)
    file, columns = TRUTH[name]
    truth = pd.read_csv(folder / f"{name}_{file}.csv", index_col=0)
    made = []
    for column in columns or truth.columns[:1]:
        classes = truth[column].reindex(views.ids)
        codes, _ = pd.factorize(classes)
        case = Case(views, codes, seed)
        case.n_clusters = int(classes.nunique())
        made.append((f"{name} {column}", case, (codes >= 0)))
    return made


def main() -> None:
    folder = Path(sys.argv[1])
    with STORE.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["truth", "method", "ari", "accuracy"])
        for name in VIEWS:
            for runs in zip(*(cases(folder, name, seed) for seed in range(SEEDS)), strict=True):
                for method in SHOWN:
                    scores = []
                    for _, case, known in runs:
                        labels, classes = METHODS[method](case)[0][known], case.labels[known]
                        scores.append((adjusted_rand_score(classes, labels), jj.metrics.accuracy(classes, labels)))
                    ari, accuracy = np.mean(np.asarray(scores, float), axis=0)
                    truth = runs[0][0]
                    writer.writerow([truth, method, f"{ari:.3f}", f"{100 * accuracy:.1f}"])
                    file.flush()
                    print(f"{truth:<16}{method:<20} ARI {ari:.2f}  accuracy {100 * accuracy:.1f} %", flush=True)
                jax.clear_caches()


if __name__ == "__main__":
    main()
