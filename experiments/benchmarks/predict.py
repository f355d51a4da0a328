"""Labels of new samples by `predict` against a fit to all samples.

    python experiments/benchmarks/predict.py DATA_DIRECTORY [--sets msrcv1 bbcsport]

Rate 0.5, mask and shuffle of seed 0, default setting, without and with 150 anchors. Fitted on the first 80 % of the
shuffled samples, predicted for the rest; the accuracy of all labels together is compared with that of a fit to all.
"""

import argparse
import os
from pathlib import Path

import numpy as np

import jpltd_jax as jj


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", default=["msrcv1", "bbcsport"])
    arguments = parser.parse_args()
    os.environ["JPLTD_DATA"] = str(arguments.data)
    for name in arguments.sets:
        data = jj.datasets.load(name)
        n, n_clusters = len(data.labels), len(np.unique(data.labels))
        order = np.random.default_rng(0).permutation(n)
        views, labels = [x[order].astype(np.float32) for x in data.views], data.labels[order]
        mask = jj.missing.paper_protocol(0, n, len(views), 0.5)
        old = int(0.8 * n)
        for anchors in (None, 150):
            model = jj.JPLTD(n_clusters, n_anchors=anchors, random_state=0)
            whole = model.fit_predict(views, mask=mask)
            model.fit([x[:old] for x in views], mask=mask[:old])
            new = model.predict([x[old:] for x in views], mask=mask[old:])
            both = np.concatenate([model.labels_, new])
            predicted, refitted = (100 * float(jj.metrics.accuracy(labels, found)) for found in (both, whole))
            print(f"{name}, anchors {anchors}: fit and predict {predicted:.1f}, fit to all {refitted:.1f}", flush=True)


if __name__ == "__main__":
    main()
