"""The page of a fitted model."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.validation import check_is_fitted

from jpltd_jax.estimator import JPLTD
from jpltd_jax.loop import Status
from jpltd_jax.pipeline import HEAD_START
from jpltd_jax.plotting import principal_plane
from jpltd_jax.report.drawings import Curve, curves, heat_image, key, scatter
from jpltd_jax.report.pages import (
    SHORT,
    Html,
    bar,
    counted,
    facts,
    figure,
    listed,
    notes,
    number,
    page,
    percent,
    section,
    shown,
    table,
    tag,
    versions,
)
from jpltd_jax.selection import LAMS, NumbersOfClusters
from jpltd_jax.views import Views

__all__ = ["cluster_report"]

"""Score and eigengap by number of clusters."""

NAMED = 3
"""Samples that are named as typical of a cluster, and as uncertain."""

MOST_POINTS, MOST_FIELDS = 2000, 200
"""Samples that are drawn, and fields along a side of the affinity."""

MOST_SUPPORTS = 3000
"""Fields of the table of support."""

PREPARATIONS = {
    "unit": "every sample scaled to length 1",
    "root": "signed square roots, then every sample scaled to length 1",
    "standard": "every feature to mean 0 and equal variance",
    "standard_unit": "every feature to mean 0 and equal variance, then every sample scaled to length 1",
    "tfidf": "counts weighted by how rare the feature is, then every sample scaled to length 1",
}

CANDIDATES = {
    "late": "learned affinity + mean of the views' graphs",
    "completed": "learned affinity + graph of the completed views",
    "learned": "learned affinity alone",
}

HYPER = {
    "lam": "weight of the low-rank tensor",
    "theta": "weight of the sparse tensor",
    "rho": "penalty in the first iteration",
    "rho_max": "largest penalty",
    "growth": "growth of the penalty per iteration",
    "tol": "residual below which it stops",
}

ENDS = {
    Status.CONVERGED: "It stopped after {n} iterations, when both residuals were below the tolerance.",
    Status.MAX_ITER: "It made all its {n} iterations. By default these are few: stopping early is part of the method.",
}


def _least_shared(mask: np.ndarray) -> tuple[int, int, int]:
    """The smallest number of samples that two views share; and which views these are."""
    shared = mask.T.astype(int) @ mask.astype(int)
    return min((int(shared[v, u]), v, u) for v, u in itertools.combinations(range(mask.shape[1]), 2))


def _patterns(mask: np.ndarray, names: Sequence[str]) -> Html:
    """How many samples are seen in which combination of views."""
    kinds, counts = np.unique(mask, axis=0, return_counts=True)
    marks = {True: tag("span", {"class": "some"}, "● yes"), False: tag("span", {"class": "none"}, "– no")}
    rows = [
        (bar(counts[i] / len(mask), f"{counts[i]:,}"), *(marks[seen] for seen in kinds[i].tolist()))
        for i in np.lexsort((-kinds.sum(axis=1), -counts)).tolist()
    ]
    return table("Which views the samples have", ["samples", *(shown(name, SHORT) for name in names)], rows)


def _what_came_in(views: Views, names: Sequence[str]) -> Html:
    n, m = views.mask.shape
    rows = [
        (shown(name), x.shape[1], bar(count / n, f"{count:,} ({percent(count / n)})"))
        for name, x, count in zip(names, views.matrices, views.mask.sum(axis=0).tolist(), strict=True)
    ]
    if np.array_equal(views.ids, np.arange(n)):
        text = "The samples have no ids of their own: they are numbered by their position, from 0."
    else:
        text = f"The samples have ids ({listed(views.ids)})."
    if m > 1:
        count, v, u = _least_shared(views.mask)
        text += f" Any two views share at least {counted(count, 'sample')} ({shown(names[v])} and {shown(names[u])})."
    return section(
        "What came in",
        tag("p", None, text),
        tag(
            "div",
            {"class": "beside"},
            table("Views", ["view", "features", "samples"], rows),
            _patterns(views.mask, names),
        ),
    )


def _number_of_clusters(n_clusters: int, tried: NumbersOfClusters | None) -> list[Html]:
    if tried is None:
        return [tag("p", None, f"The number of clusters was given: {n_clusters:,}.")]
    counts = tried.counts.tolist()
    measures = {"modularity": tried.modularity, "score": tried.score, "eigengap": tried.eigengap}
    drawings = []
    for measure, values in measures.items():
        better = "Larger is clearer." if measure == "eigengap" else "Larger is better."
        curve = Curve(measure, counts, values.tolist())
        title = f"{measure.capitalize()} by number of clusters"
        drawing = curves([curve], ("number of clusters", measure), title, marked=n_clusters)
        drawings.append(figure(drawing, title, f"{better} The dashed line is at the number that was taken."))
    rows = [(str(c), *map("{:.3f}".format, values)) for c, *values in zip(counts, *measures.values(), strict=True)]
    numbers = table("Numbers of clusters that were tried", ["clusters", *measures], rows)
    return [
        tag(
            "p",
            None,
            f"{counts[0]:,} to {counts[-1]:,} clusters were tried, and {n_clusters:,} taken. This is a suggestion: "
            "several numbers can be right.",
        ),
        tag("div", {"class": "figures"}, drawings),
        tag("details", None, tag("summary", None, "The numbers"), numbers),
    ]


def _why(candidates: Mapping[str, Mapping[str, Any]], chosen: str) -> str:
    """The sentence that says which candidate was taken, and by how much."""
    others = {name: found["score"] for name, found in candidates.items() if name != chosen}
    if not others:
        return "There was one candidate, so there was nothing to choose."
    score = candidates[chosen]["score"]
    other = max(others, key=lambda name: others[name])
    lead = percent(abs(score - others[other]) / max(abs(others[other]), np.finfo(float).tiny), 1)
    if score >= others[other]:
        return f"“{chosen}” was taken: its score is {lead} above that of “{other}”."
    return (
        f"“{chosen}” was taken although its score is {lead} below that of “{other}”: the first candidate stays unless "
        f"another one is better by {percent(HEAD_START)}."
    )


def _candidates(model: JPLTD) -> list[Html]:
    if model.chosen_ is None:
        return [tag("p", None, "The samples were clustered on the learned affinity. There were no candidates.")]
    taken = model.candidates_[model.chosen_]["labels"]
    rows = [
        (
            tag("span", {"class": "taken"}, f"{name} (taken)") if name == model.chosen_ else name,
            CANDIDATES.get(name, ""),
            found["modularity"],
            found["explained"],
            found["score"],
            float(adjusted_rand_score(taken, found["labels"])),
        )
        for name, found in model.candidates_.items()
    ]
    text = (
        "Each candidate is an affinity that gives a partition. The views judge the partitions without labels: Q says "
        "how well one fits their neighbour graphs (modularity), R² how much of their variance it explains, and the "
        "score is Q / (1 − R²). The last column compares with the partition that was taken, by the adjusted Rand "
        "index: near 1 the choice makes little difference."
    )
    return [
        tag("p", None, tag("strong", None, _why(model.candidates_, model.chosen_)), f" {text}"),
        table("Candidates", ["candidate", "affinity", "Q", "R²", "score", "same partition"], rows, stacked=True),
    ]


def _what_was_chosen(model: JPLTD, names: Sequence[str]) -> Html:
    preparations = [
        (shown(name), kind, PREPARATIONS.get(kind, "")) for name, kind in zip(names, model.preparation_, strict=True)
    ]
    meanings = HYPER
    if model.lam == "auto":
        meanings = HYPER | {
            "lam": f"{HYPER['lam']}; of {', '.join(map(number, LAMS))} the one with the clearest clusters"
        }
    hyper = [(name, float(value), meanings.get(name, "")) for name, value in model.hyper_._asdict().items()]
    return section(
        "What was chosen, and why",
        _number_of_clusters(model.embedding_.shape[1], model.clusters_tried_),
        _candidates(model),
        table("How each view was prepared", ["view", "preparation", "what it does"], preparations, stacked=True),
        table("Hyper-parameters", ["name", "value", "what it is"], hyper),
    )


def _samples(model: JPLTD, at: Sequence[int]) -> Html:
    """Ids of samples with their margins."""
    lines = [
        tag(
            "span",
            {"class": "sample"},
            f"{shown(model.sample_ids_[i])} ",
            tag("small", None, f"{model.margin_[i]:.2f}"),
        )
        for i in at
    ]
    return tag("span", None, lines)


def _cluster_rows(model: JPLTD, sizes: np.ndarray) -> Iterator[tuple[Any, ...]]:
    """Of each cluster its size, its median margin, its typical and its uncertain samples."""
    n = len(model.labels_)
    by_margin = np.lexsort((-model.margin_, model.labels_))
    for cluster, members in enumerate(np.split(by_margin, np.cumsum(sizes)[:-1])):
        size, median = len(members), float(np.median(model.margin_[members])) if len(members) else 0.0
        yield (
            tag("span", None, key(cluster), str(cluster)),
            bar(size / n, f"{size:,} ({percent(size / n)})"),
            bar(median, f"{median:.2f}" if size else "–"),
            _samples(model, members[:NAMED].tolist()),
            _samples(model, members[NAMED:][::-1][:NAMED].tolist()),
        )


def _support(model: JPLTD, names: Sequence[str]) -> list[Html]:
    if model.support_ is None:
        return [tag("p", None, "This kind of fit does not tell how strongly each view supports each cluster.")]
    support = 100 * np.asarray(model.support_, float)
    if support.size > MOST_SUPPORTS:
        return [tag("p", None, f"The support of the clusters by the views is left out: {support.size:,} numbers.")]
    most = max(float(support.max()), np.finfo(float).tiny)

    def field(value: float) -> Html:
        strength = f"--v:{max(value, 0.0) / most:.2f}"
        return tag("span", {"class": "heat", "style": strength}, f"{value:.1f}")

    rows = [
        (tag("span", None, key(cluster), str(cluster)), *map(field, column))
        for cluster, column in enumerate(support.T.tolist())
    ]
    text = (
        "How strongly each view supports each cluster: the cluster's part of the modularity of the view's neighbour "
        "graph, times 100. Near zero, or far below the other views, this view hardly shows the cluster. Large clusters "
        "can have more support than small ones."
    )
    heads = ["cluster", *(shown(name, SHORT) for name in names)]
    return [tag("p", None, text), table("Support of the clusters by the views", heads, rows)]


def _clusters(model: JPLTD, names: Sequence[str], sizes: np.ndarray) -> Html:
    text = (
        "The margin of a sample says how sure its label is: 1 − d₁ / d₂ with its distances to the nearest and the "
        "second nearest cluster centre in the embedding. 1 is sure; 0 lies halfway between two clusters. Typical "
        "samples have the largest margins of their cluster, uncertain ones the smallest."
    )
    heads = ["cluster", "samples", "median margin", "typical", "uncertain"]
    return section(
        "Clusters",
        tag("p", None, text),
        table("Clusters, and samples with their margins", heads, list(_cluster_rows(model, sizes)), stacked=True),
        _support(model, names),
    )


def _drawn(labels: np.ndarray) -> np.ndarray:
    """The samples to draw: all, or about the same share of every cluster."""
    n = len(labels)
    if n <= MOST_POINTS:
        return np.arange(n)
    by_cluster = np.lexsort((np.random.default_rng(0).permutation(n), labels))
    return np.sort(by_cluster[np.linspace(0, n - 1, MOST_POINTS).astype(int)])


def _embedding(model: JPLTD) -> Html:
    plane, share = principal_plane(model.embedding_)
    at = _drawn(model.labels_)
    ids, labels, margin = model.sample_ids_, model.labels_, model.margin_
    tips = [f"{shown(ids[i])} · cluster {labels[i]} · margin {margin[i]:.2f}" for i in at.tolist()]
    drawing = scatter(plane[at], labels[at], tips, "Embedding of the samples, by cluster")
    caption = (
        "Each mark is a sample: point at it to see its id. The two directions are those in which the spectral "
        f"embedding varies most: {percent(share[0])} of the variance across, {percent(share[1])} upwards. Clusters "
        "that overlap here may be apart in the others."
    )
    if len(at) < len(plane):
        caption += f" {len(at):,} of the {len(plane):,} samples are drawn, about the same share of every cluster."
    return figure(drawing, "Embedding", caption)


def _pooled(affinity: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Mean affinity between groups of samples that are sorted by cluster, without that of a sample with itself.

    With the affinity Z (n, a) to anchors that of two samples is an entry of Z D^-1 Z^T, D the column sums of Z.
    """
    n = len(labels)
    order = np.argsort(labels, kind="stable")
    edges = np.linspace(0, n, min(n, MOST_FIELDS) + 1).round().astype(int)
    groups = [order[start:end] for start, end in itertools.pairwise(edges.tolist())]
    sums = np.stack([np.asarray(affinity[members], np.float64).sum(axis=0) for members in groups])
    sizes = np.diff(edges).astype(float)
    pairs = np.outer(sizes, sizes)
    if affinity.shape[1] < n:
        degree = sums.sum(axis=0)
        return (sums / np.where(degree > 0, degree, 1)) @ sums.T / pairs
    within = np.add.reduceat(sums[:, order], edges[:-1], axis=1)
    own = np.array([np.asarray(affinity[members, members], np.float64).sum() for members in groups])
    return (within - np.diag(own)) / np.maximum(pairs - np.diag(sizes), 1)


def _affinity(model: JPLTD) -> Html:
    assert model.affinity_ is not None
    n, columns = model.affinity_.shape
    labels = model.labels_ if model.fitted_samples_ is None else model.labels_[model.fitted_samples_]
    sizes = np.bincount(labels, minlength=model.embedding_.shape[1])
    pooled = _pooled(model.affinity_, labels)
    positive = pooled[pooled > 0]
    top = float(np.quantile(positive, 0.95)) if positive.size else 1.0
    drawing = heat_image(np.clip(pooled / top, 0, 1), sizes.tolist(), "Affinity between samples, sorted by cluster")
    caption = (
        "Samples on both sides, sorted by cluster; each cluster is framed. Blue, and even more orange, joins samples "
        "that are alike. What lies outside the frames joins clusters."
    )
    if n > len(pooled):
        caption += f" Each field is a mean over at most {math.ceil(n / len(pooled))} samples per side."
    if columns < n:
        caption += f" Two samples are alike here if they are close to the same of the {columns:,} anchors."
    if model.fitted_samples_ is not None:
        caption += f" Of the {n:,} samples that the model was fitted on."
    return figure(drawing, "Affinity", caption)


def _convergence(model: JPLTD) -> Html:
    lines = [
        Curve(name, range(1, len(values) + 1), np.asarray(values, float).tolist())
        for name, values in model.history_._asdict().items()
    ]
    tol = float(model.hyper_.tol)
    names, level = ("iteration", "residual"), (f"tolerance {tol:g}", tol)
    drawing = curves(lines, names, "Residuals after each iteration", log=True, level=level)
    caption = "Largest entries of the two constraint residuals: fit, of W X − W X G − E; split, of G − B − P."
    end = ENDS.get(model.status_, model.status_.name).format(n=model.n_iter_)
    return section("Convergence", tag("p", None, end), figure(drawing, "Residuals after each iteration", caption))


def _remarks(views: Views, names: Sequence[str], sizes: np.ndarray, alone: np.ndarray) -> Iterator[str]:
    """What a reader must not overlook in a result."""
    if views.mask.shape[1] > 1:
        count, v, u = _least_shared(views.mask)
        if count == 0:
            ids = [listed(views.ids[views.mask[:, one]]) for one in (v, u)]
            yield (
                f"The views {shown(names[v])} ({ids[0]}) and {shown(names[u])} ({ids[1]}) share no sample. If they "
                "should, compare how their ids are written."
            )
    if empty := int((sizes == 0).sum()):
        yield f"{counted(empty, 'cluster')} got no sample: the data have fewer clusters than {len(sizes):,}."
    if singles := np.flatnonzero(sizes == 1).tolist():
        yield f"{counted(len(singles), 'cluster')} of one sample only: {listed(singles, 10)}."
    if len(alone):
        yield f"{counted(len(alone), 'sample')} not connected to the others by any pair of views: {listed(alone, 10)}."


def cluster_report(
    model: JPLTD,
    views: Views,
    *,
    warnings: Sequence[str] = (),
    command: str | None = None,
) -> str:
    """The page of a fitted model: what came in, what was chosen and why, the clusters, and pictures of them.

    Parameters
    ----------
    model
        Fitted on ``views``.
    views
        From :func:`jpltd_jax.views.read_views_to_learn_from`.
    warnings
        To show at the top.
    command
        What made the model. The call of the estimator is shown in any case.

    Examples
    --------
    >>> import jpltd_jax as jj
    >>> from jpltd_jax.report import cluster_report
    >>> from jpltd_jax.views import read_views_to_learn_from
    >>> views = read_views_to_learn_from(jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8)).views)
    >>> page = cluster_report(jj.JPLTD(n_clusters=3, random_state=0).fit(views), views)
    >>> "<h1>30 samples in 3 clusters</h1>" in page
    True
    """
    check_is_fitted(model)
    n, m = views.mask.shape
    named = list(model.view_names_in_)
    if not np.array_equal(model.sample_ids_, views.ids):
        raise ValueError("views must hold the samples that the model was fitted on, in the same order")
    sizes = np.bincount(model.labels_, minlength=model.embedding_.shape[1])
    alone = views.ids[model.unconnected_]
    complete = int(views.mask.all(axis=1).sum())
    content = [
        facts(
            {
                "samples": f"{n:,}",
                "views": f"{m:,}",
                "seen in all views": percent(complete / n),
                "clusters": f"{len(sizes):,}",
                "median margin": f"{float(np.median(model.margin_)):.2f}",
            }
        ),
        notes([*warnings, *_remarks(views, named, sizes, alone)]),
        _what_came_in(views, named),
        _what_was_chosen(model, named),
        _clusters(model, named, sizes),
        section("Pictures", tag("div", {"class": "figures"}, _embedding(model), _affinity(model))),
        _convergence(model),
        section("How this was made", tag("pre", {"class": "command"}, tag("code", None, repr(model))), versions()),
    ]
    title = f"{counted(n, 'sample')} in {counted(len(sizes), 'cluster')}"
    return page(title, "Clustering report of jpltd_jax", command, content)
