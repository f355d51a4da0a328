"""Audits: does a clustering method depend on the order of the samples, or on values that it claims are missing.

Benchmark files are sorted by class. A method that looks at the sample index, as every method does that transforms along
it, can read the classes off the order; on data whose classes nobody knows it cannot.
"""

import contextlib
import csv
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from jaxtyping import ArrayLike
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from jpltd_jax._types import check_count
from jpltd_jax.metrics import accuracy
from jpltd_jax.views import ViewsLike, classes_of, read_views_to_learn_from, read_with_hidden

__all__ = ["Command", "LeakAudit", "OrderAudit", "as_method", "audit_leak", "audit_order", "from_command"]

Method = Callable[[list[np.ndarray], np.ndarray, int], ArrayLike]
"""(views, mask, seed) -> labels."""


class OrderAudit(NamedTuple):
    """What :func:`audit_order` found. Partitions are compared by their adjusted Rand index, which needs no classes."""

    file: float
    """Accuracy in file order, mean over the seeds; NaN without classes, like the next two."""
    shuffled: np.ndarray
    """Accuracy in each random order."""
    sorted: float
    """Accuracy with the samples sorted by class."""
    agreement: float
    """Mean agreement of the partitions in random order with that in file order."""
    repeat_agreement: float
    """Mean agreement of repeats in file order with other seeds: what chance alone leaves of 1."""

    @property
    def depends_on_order(self) -> bool:
        """Whether another order changes the partition more than another seed does, by over 0.1."""
        return self.agreement < self.repeat_agreement - 0.1

    def summary(self) -> str:
        """The findings in a few lines."""
        lines = []
        if not np.isnan(self.file):
            spread = f"{100 * self.shuffled.min():.1f} to {100 * self.shuffled.max():.1f}"
            lines += [
                f"accuracy in file order      {100 * self.file:5.1f} %",
                f"accuracy shuffled           {100 * self.shuffled.mean():5.1f} %  ({spread})",
                f"accuracy sorted by class    {100 * self.sorted:5.1f} %",
            ]
        lines += [
            f"same partition after a shuffle     {self.agreement:5.2f}  (adjusted Rand index)",
            f"same partition with another seed   {self.repeat_agreement:5.2f}",
            "This method DEPENDS on the order of the samples."
            if self.depends_on_order
            else "This method does not depend on the order of the samples.",
        ]
        return "\n".join(lines)


LAST_LINES = 5
"""Of what a program says before it fails, that are shown."""


@dataclass(frozen=True)
class Command:
    """An external program as a function (views, mask, seed) -> labels; from :func:`from_command`."""

    words: tuple[str, ...]
    timeout: float | None

    def __call__(self, views: Sequence[np.ndarray], mask: np.ndarray, seed: int) -> np.ndarray:
        """Write the views as they are, with mask and seed; run the program; read the labels."""
        with tempfile.TemporaryDirectory(prefix="jpltd-") as folder:
            given, made = Path(folder, "input.npz"), Path(folder, "output.csv")
            arrays: dict[str, Any] = {f"view{v}": x for v, x in enumerate(views)}
            np.savez(given, mask=mask, seed=np.asarray(seed), **arrays)
            self._start([word.replace("{input}", str(given)).replace("{output}", str(made)) for word in self.words])
            if not made.is_file():
                raise ValueError(f"{self.words[0]} ended without an error, but wrote no {{output}}")
            return self._labels(made.read_text(encoding="utf-8-sig", errors="replace"), len(mask))

    def _start(self, words: list[str]) -> None:
        """Run to the end. If it is stopped, so are the programs that it started."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
            try:
                code = process.wait(self.timeout)
            except BaseException as error:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise TimeoutError(f"{self.words[0]} was stopped after {self.timeout:g} seconds") from None
                raise
            if code:
                said = f"{_end_of(out)}\n{_end_of(err)}".strip()
                last = " | ".join(line.strip() for line in said.splitlines()[-LAST_LINES:])
                raise ValueError(f"{self.words[0]} ended with exit code {code}: {last or 'it said nothing'}")

    def _labels(self, text: str, n: int) -> np.ndarray:
        """0..c-1 from one column of labels, with or without a header."""
        rows = [row for row in csv.reader(text.splitlines()) if row]
        for number, row in enumerate(rows, 1):
            if len(row) != 1:
                raise ValueError(f"{self.words[0]} wrote {len(row)} values in row {number}; expected one label per row")
        cells = [row[0].strip() for row in rows]
        if len(cells) == n + 1 or (cells and not _is_number(cells[0]) and all(map(_is_number, cells[1:]))):
            del cells[0]
        if len(cells) != n:
            raise ValueError(f"{self.words[0]} wrote {len(cells)} labels for {n} samples")
        for sample, cell in enumerate(cells):
            if cell.lower() in ("", "na", "nan"):
                raise ValueError(f"{self.words[0]} wrote no label for sample {sample}, but {cell!r}")
        return np.unique(cells, return_inverse=True)[1]


def _end_of(file: IO[bytes]) -> str:
    file.seek(max(file.seek(0, os.SEEK_END) - 4000, 0))
    return file.read().decode(errors="replace")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def from_command(command: str, *, timeout: float | None = None) -> Command:
    """An external program as a method to audit.

    Parameters
    ----------
    command
        The program and its arguments; no shell reads it. ``{input}`` stands for an .npz file with ``view0``,
        ``view1``, ... (samples as rows), ``mask`` (samples, views; True where observed) and ``seed``. ``{output}``
        stands for the .csv file that the program must write: one label per row, with or without a header.
        :func:`audit_order` gives rows of NaN for what is missing. :func:`audit_leak` gives rows of numbers there,
        which the program must not look at: it has to go by the mask.
    timeout
        Seconds after which a run is stopped, with an error. None: never.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.audit import audit_order, from_command
    >>> script = 'n=0; while [ $n -lt 40 ]; do echo $((n / 20)); n=$((n + 1)); done > "$1"'
    >>> by_position = from_command(f"sh -c '{script}' {{input}} {{output}}", timeout=60.0)
    >>> views = [np.random.default_rng(0).normal(size=(40, 3))]
    >>> audit_order(views, method=by_position).depends_on_order
    True
    """
    words = shlex.split(command)
    for place in ("{input}", "{output}"):
        if not any(place in word for word in words):
            raise ValueError(f"the command must hold {place}, where the name of the {place[1:-1]} file goes: {command}")
    if shutil.which(words[0]) is None:
        raise FileNotFoundError(f"there is no program {words[0]}, or it may not be run")
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout must be more than 0 seconds, got {timeout}")
    return Command(tuple(words), timeout)


def as_method(method: Any) -> Method:
    """A callable as it is; a scikit-learn style clusterer as: clone, set its ``random_state``, ``fit_predict``.

    The clusterer gets the list of views with rows of NaN for what is missing, and so does a :class:`Command`.
    """
    if isinstance(method, Command):
        return lambda views, mask, seed: method(_with_nan(views, mask), mask, seed)
    if not hasattr(method, "fit_predict"):
        if not callable(method):
            raise TypeError(
                "method must be a function (views, mask, seed) -> labels, or an estimator with fit_predict; "
                f"got {method!r}"
            )
        return method

    def run(views: list[np.ndarray], mask: np.ndarray, seed: int) -> ArrayLike:
        fresh = clone(method)
        if "random_state" in fresh.get_params():
            fresh.set_params(random_state=seed)
        return fresh.fit_predict(_with_nan(views, mask))

    return run


def _with_nan(views: Sequence[np.ndarray], mask: np.ndarray) -> list[np.ndarray]:
    return [np.where(mask[:, [v]], x, np.nan) for v, x in enumerate(views)]


def audit_order(
    views: ViewsLike,
    mask: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    method: Any,
    n_orders: int = 5,
    n_seeds: int = 3,
    seed: int = 0,
) -> OrderAudit:
    """Run a method in file order, in random orders and sorted by class, and compare.

    Parameters
    ----------
    views, mask
        As for :func:`jpltd_jax.make_problem`.
    y
        Classes, for the accuracies and the sorted order; the verdict does not need them. If the views have sample ids,
        a Series is matched by its index; all else goes in the order in which the ids first appear.
    method
        A function (views, mask, seed) -> labels; an estimator with ``fit_predict``; or a program, by
        :func:`from_command`.
    n_orders
        Number of random orders.
    n_seeds
        Number of seeds in file order, against which the effect of the order is judged.
    seed
        Of the orders and of the method.

    Examples
    --------
    >>> import numpy as np
    >>> import jpltd_jax as jj
    >>> views = [np.random.default_rng(0).normal(size=(40, 3))]
    >>> halves = lambda views, mask, seed: np.arange(40) // 20
    >>> print(jj.audit_order(views, y=np.arange(40) // 20, method=halves).summary())
    accuracy in file order      100.0 %
    accuracy shuffled            56.0 %  (55.0 to 60.0)
    accuracy sorted by class    100.0 %
    same partition after a shuffle     -0.01  (adjusted Rand index)
    same partition with another seed    1.00
    This method DEPENDS on the order of the samples.
    """
    check_count("n_orders", n_orders)
    check_count("n_seeds", n_seeds, least=2)
    run = as_method(method)
    read = read_views_to_learn_from(views, mask)
    matrices, present = read.matrices, read.mask
    n = len(present)
    classes = None if y is None else classes_of(y, read)

    def partition(order: np.ndarray, seed: int) -> np.ndarray:
        """Labels in file order of a run on the reordered samples."""
        labels = np.asarray(run([x[order] for x in matrices], present[order], seed))
        if labels.shape != (n,):
            raise ValueError(f"the method returned labels of shape {labels.shape} for {n} samples")
        back = np.empty(n, labels.dtype)
        back[order] = labels
        return back

    def score(labels: np.ndarray) -> float:
        return float("nan") if classes is None else float(accuracy(classes, labels))

    rng = np.random.default_rng(seed)
    repeats = [partition(np.arange(n), seed + i) for i in range(n_seeds)]
    shuffles = [partition(rng.permutation(n), seed) for _ in range(n_orders)]
    by_class = None if classes is None else partition(np.argsort(classes, kind="stable"), seed)
    return OrderAudit(
        file=float(np.mean([score(labels) for labels in repeats])),
        shuffled=np.array([score(labels) for labels in shuffles]),
        sorted=float("nan") if by_class is None else score(by_class),
        agreement=float(np.mean([adjusted_rand_score(repeats[0], labels) for labels in shuffles])),
        repeat_agreement=float(np.mean([adjusted_rand_score(repeats[0], labels) for labels in repeats[1:]])),
    )


class LeakAudit(NamedTuple):
    """What :func:`audit_leak` found. Partitions are compared by their adjusted Rand index."""

    noise: np.ndarray
    """Agreement of the partition with the one found when the hidden values are noise; one number per draw."""
    huge: float
    """The same when all hidden values are 1e30; NaN if the method stopped with an error."""
    repeat_agreement: float
    """Agreement of two runs on the same values: below 1 the method is not deterministic for a seed."""

    @property
    def leaks(self) -> bool:
        """Whether hidden values change the partition more than a second run does."""
        found = np.append(self.noise, -1.0 if np.isnan(self.huge) else self.huge)
        return bool(found.min() < self.repeat_agreement)

    def summary(self) -> str:
        """The findings in a few lines."""
        huge = "the method failed" if np.isnan(self.huge) else f"{self.huge:5.2f}"
        return "\n".join(
            [
                f"same partition, hidden values noise   {self.noise.min():5.2f}  (adjusted Rand index, the lowest)",
                f"same partition, hidden values 1e30    {huge}",
                f"same partition, run again             {self.repeat_agreement:5.2f}",
                "This method USES values that it claims are missing."
                if self.leaks
                else "This method does not use the values that are missing.",
            ]
        )


def audit_leak(
    views: ViewsLike, mask: ArrayLike, *, method: Callable[..., Any], n_draws: int = 3, seed: int = 0
) -> LeakAudit:
    """Replace the hidden values by noise and by 1e30 and see whether the partition changes.

    Parameters
    ----------
    views
        Complete views, or views whose hidden rows may hold anything.
    mask
        (n, m) bool, True where observed.
    method
        A function (views, mask, seed) -> labels, or a program by :func:`from_command`. It is given the values under
        the mask and must not look at them. An estimator
        that takes rows of NaN never gets these values, so there is nothing to audit.
    n_draws
        Number of draws of noise.
    seed
        Of the noise and of the method.

    Examples
    --------
    >>> import numpy as np
    >>> import jpltd_jax as jj
    >>> data = jj.datasets.make_blobs(0, n_samples=30, dims=(4, 3))
    >>> mask = jj.missing.paper_protocol(0, 30, 2, 0.5)
    >>> peeks = lambda views, mask, seed: views[0][:, 0] > np.median(views[0][:, 0])
    >>> print(jj.audit_leak(data.views, mask, method=peeks).summary().splitlines()[-1])
    This method USES values that it claims are missing.
    """
    if hasattr(method, "fit_predict"):
        raise TypeError("an estimator gets rows of NaN, not the hidden values: give a function (views, mask, seed)")
    check_count("n_draws", n_draws)
    if not callable(method):
        raise TypeError(f"method must be a function (views, mask, seed) -> labels, got {method!r}")
    if mask is None:
        raise ValueError("mask is None: it must say which values the method may not look at")
    read, given_views = read_with_hidden(views, mask)
    matrices, present = [x.astype(float) for x in given_views], read.mask
    if present.all():
        raise ValueError("the mask hides nothing")
    rng = np.random.default_rng(seed)

    def partition(fill: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        given = [np.where(present[:, [v]], x, fill(x)) for v, x in enumerate(matrices)]
        return np.asarray(method(given, present.copy(), seed))

    first, again = partition(lambda x: x), partition(lambda x: x)

    def noise(x: np.ndarray) -> np.ndarray:
        return rng.normal(np.nanmean(x), np.nanstd(x) + 1, size=x.shape)

    try:
        huge = float(adjusted_rand_score(first, partition(lambda x: np.full_like(x, 1e30))))
    except (ArithmeticError, ValueError):
        huge = float("nan")
    return LeakAudit(
        noise=np.array([adjusted_rand_score(first, partition(noise)) for _ in range(n_draws)]),
        huge=huge,
        repeat_agreement=float(adjusted_rand_score(first, again)),
    )
