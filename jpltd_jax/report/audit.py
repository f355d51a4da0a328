"""The page of order audits."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from jpltd_jax.audit import OrderAudit
from jpltd_jax.report.drawings import columns
from jpltd_jax.report.pages import SHORT, Html, figure, notes, page, percent, section, shown, table, tag, versions

__all__ = ["audit_report"]


def _verdict(name: str, audit: OrderAudit) -> Html:
    does = "depends" if audit.depends_on_order else "does not depend"
    return tag("p", {"class": "verdict"}, tag("strong", None, shown(name)), f" {does} on the order of the samples.")


def _agreements(audits: Mapping[str, OrderAudit]) -> Html:
    groups = {
        name: {
            "another seed": [100 * max(audit.repeat_agreement, 0.0)],
            "another order": [100 * max(audit.agreement, 0.0)],
        }
        for name, audit in audits.items()
    }
    title = "How much of the partition stays"
    caption = (
        "Agreement of the partitions, adjusted Rand index × 100. If another order leaves less than another seed, the "
    )
    return figure(columns(groups, title), title, caption + "order matters.")


def _accuracies(audits: Mapping[str, OrderAudit]) -> Html:
    groups = {
        name: {
            "file order": [100 * audit.file],
            "shuffled": (100 * np.asarray(audit.shuffled, float)).tolist(),
            "sorted by class": [100 * audit.sorted],
        }
        for name, audit in audits.items()
    }
    title = "Accuracy by order of the samples"
    return figure(columns(groups, title), title, "In %. Each mark of “shuffled” is one random order.")


def _numbers(audits: Mapping[str, OrderAudit]) -> Html:
    heads = ["method", "same after a shuffle", "same with another seed", "random orders"]
    rows = [
        (shown(name), f"{audit.agreement:.2f}", f"{audit.repeat_agreement:.2f}", len(audit.shuffled))
        for name, audit in audits.items()
    ]
    text = (
        "Partitions are compared by the adjusted Rand index: 1 if they are the same, about 0 if they have nothing in "
        "common. A method depends on the order if a shuffle changes its partition more than another seed does, by over "
        "0.1."
    )
    known = {name: audit for name, audit in audits.items() if not math.isnan(audit.file)}
    accuracies = [
        (
            shown(name),
            percent(audit.file, 1),
            percent(float(audit.shuffled.mean()), 1),
            f"{percent(float(audit.shuffled.min()), 1)} to {percent(float(audit.shuffled.max()), 1)}",
            percent(audit.sorted, 1),
        )
        for name, audit in known.items()
    ]
    by_order = ["method", "file order", "shuffled, mean", "shuffled, range", "sorted by class"]
    return section(
        "The numbers",
        tag("p", None, text),
        table("Same partition", heads, rows),
        table("Accuracy", by_order, accuracies, stacked=True) if known else [],
    )


def audit_report(audits: Mapping[str, OrderAudit], *, warnings: Sequence[str] = (), command: str | None = None) -> str:
    """The page of one or more order audits: the verdict, the numbers, and each order's accuracy if classes are known.

    Parameters
    ----------
    audits
        From :func:`jpltd_jax.audit_order`, by the name of the method.
    warnings
        To show at the top.
    command
        What made them.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.audit import OrderAudit
    >>> from jpltd_jax.report import audit_report
    >>> audit = OrderAudit(file=0.9, shuffled=np.array([0.5, 0.6]), sorted=1.0, agreement=0.3, repeat_agreement=1.0)
    >>> "<strong>published</strong> depends on the order" in audit_report({"published": audit})
    True
    """
    if not audits:
        raise ValueError("there are no audits")
    short = {shown(name, SHORT): audit for name, audit in audits.items()}
    known = {name: audit for name, audit in short.items() if not math.isnan(audit.file)}
    drawings = [_agreements(short)] + ([_accuracies(known)] if known else [])
    content = [
        *(_verdict(name, audit) for name, audit in audits.items()),
        notes(warnings),
        _numbers(audits),
        section("Pictures", tag("div", {"class": "figures"}, drawings)),
        section("How this was made", versions()),
    ]
    return page("Does the order of the samples matter?", "Order audit of jpltd_jax", command, content)
