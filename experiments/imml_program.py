"""A method of iMML as a program for the order audit: views in an .npz file, labels out as .csv.

    python experiments/imml_program.py NEMO CLUSTERS INPUT.npz OUTPUT.csv

Defaults of the method, on rows of unit length; rows of NaN are missing. ``pip install imml``. Nothing of this package
is used: a program in any language can be audited in the same way.
"""

import sys
from itertools import count, takewhile

import imml.cluster
import numpy as np
import pandas as pd


def main() -> None:
    name, n_clusters, given, made = sys.argv[1:]
    with np.load(given) as file:
        views = [file[key] for key in takewhile(lambda key: key in file, (f"view{v}" for v in count()))]
        seed = int(file["seed"])
    frames = [pd.DataFrame(view / np.linalg.norm(view, axis=1, keepdims=True)) for view in views]
    method = getattr(imml.cluster, name)(n_clusters=int(n_clusters), random_state=seed)
    np.savetxt(made, method.fit_predict(frames), fmt="%d", header="label", comments="")


if __name__ == "__main__":
    main()
