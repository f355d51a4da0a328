"""``jpltd demo``."""

import argparse
import time
from pathlib import Path
from typing import Any

from jpltd_jax.cli.figures import NO_FIGURE, pyplot, save
from jpltd_jax.cli.inputs import print_scores
from jpltd_jax.cli.outputs import UserError, aside, output, write_labels

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Add the command to the parser."""
    demo = commands.add_parser(
        "demo",
        help="cluster bundled data and draw the result",
        description="Cluster scikit-learn's handwritten digits, shuffled, with half of the samples incomplete; print "
        "scores, write labels.csv and demo.png.",
    )
    demo.add_argument("--out", default="jpltd-demo", metavar="DIR", help="where to write (default: %(default)s)")
    demo.add_argument("--samples", type=int, default=600, metavar="N", help="digits to use, at most 1797 (%(default)s)")
    demo.add_argument("--seed", type=int, default=0, help="of the shuffle, the mask and k-means (%(default)s)")
    demo.set_defaults(run=run)


@aside()
def run(arguments: argparse.Namespace) -> None:
    """Cluster digits; write labels and a figure."""
    import numpy as np

    from jpltd_jax import datasets, missing
    from jpltd_jax.estimator import JPLTD
    from jpltd_jax.plotting import plot_affinity, plot_history

    out = Path(arguments.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the directory {out}: {error.strerror}") from error
    labels_file, figure_file = output(str(out / "labels.csv")), output(str(out / "demo.png"))
    data = datasets.load_digits_multiview(arguments.samples)
    assert data.labels is not None
    n, m = len(data.labels), len(data.views)
    order = np.random.default_rng(arguments.seed).permutation(n)
    views, labels = [view[order] for view in data.views], data.labels[order]
    mask = missing.paper_protocol(arguments.seed, n, m, 0.5)
    print(f"{n} handwritten digits in {m} views, shuffled; half of the samples lack one or two views")
    start = time.perf_counter()
    model = JPLTD(n_clusters=10, random_state=arguments.seed, verbose=True).fit(views, mask=mask)
    print(f"{model.n_iter_} iterations in {time.perf_counter() - start:.1f} s, compilation included")
    print_scores(labels, model.labels_, "shuffled")
    write_labels(labels_file, order.tolist(), model.labels_.tolist())
    plt = pyplot()
    if plt is None:
        print(NO_FIGURE)
        return
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    plot_affinity(model.affinity_, model.labels_, ax=left, title="Learned affinity")
    plot_history(model.history_, ax=right)
    save(plt, figure, figure_file)
