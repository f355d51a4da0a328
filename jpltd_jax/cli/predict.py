"""``jpltd predict``."""

import argparse
from pathlib import Path
from typing import Any

from jpltd_jax.cli.inputs import FILE_FORMATS, paths_of, print_scores, read
from jpltd_jax.cli.outputs import aside, check_outputs, output, write_labels

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Add the command to the parser."""
    predict = commands.add_parser(
        "predict",
        help="label further samples with a saved model",
        description="Label samples that a model was not fitted on; each needs one of the views, whichever. Tables that "
        "are called as the views of the model are matched to them, and some of them may be left out; tables of other "
        "names are taken in the order of the views, all of them. Columns are matched by name.",
        epilog=f"{FILE_FORMATS} Example: jpltd cluster rna.csv mirna.csv --n-clusters 5 --save model.npz; "
        "jpltd predict model.npz new/rna.csv",
    )
    predict.add_argument("model", metavar="MODEL", help="from jpltd cluster --save")
    predict.add_argument("files", metavar="FILE", nargs="+")
    predict.add_argument("--labels", metavar="FILE", help="known classes, for scores")
    predict.add_argument(
        "--out", default="predicted.csv", metavar="CSV", help="where the labels go; - is standard output (%(default)s)"
    )
    predict.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Label files with a model; write labels."""
    from jpltd_jax.estimator import JPLTD

    out = output(arguments.out, stream=True)
    with aside(out):
        check_outputs([Path(arguments.model), *paths_of(arguments.files, arguments.labels)], [out])
        model = JPLTD.load(arguments.model)
        data = read(arguments.files, arguments.labels, like=model)
        labels = model.predict(data.views)
        n, m = data.views.mask.shape
        print(f"{n} samples, {m} views, {model.n_clusters_} clusters")
        if data.labels is not None:
            print_scores(data.labels, labels, "file")
        write_labels(out, data.views.ids.tolist(), labels.tolist())
