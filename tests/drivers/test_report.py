"""Reports are read back with html.parser, and compared with what the model says."""

import base64
import io
import re
from collections import Counter
from html.parser import HTMLParser

import jax
import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import adjusted_rand_score

import jpltd_jax as jj
from jpltd_jax.audit import OrderAudit
from jpltd_jax.methods.jpltd import Residuals
from jpltd_jax.report import audit_report, cluster_report, sweep_report, write
from jpltd_jax.report.drawings import png
from jpltd_jax.selection import NumbersOfClusters
from jpltd_jax.sweeps import SweepResult
from jpltd_jax.views import Views, read_views_to_learn_from
from tests.browser import browser_page, find_browser

VOID = {"link", "meta"}
HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a&amp;b",
    "two\nlines",
    "\u202egp.exe",
]
NAN = float("nan")


class Read(HTMLParser):
    """Elements in their order, tables by caption, texts; every element must be closed by its own end tag."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.text, self.tables = [], [], [], {}
        self.rows, self.cell = [], None
        self.feed(page)
        self.close()
        assert not self.open, self.open
        self.all_text = " ".join(" ".join(self.text).split())
        self.facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page.replace("\xa0", " ")))
        self.tips = [
            attributes["data-tip"].replace("\xa0", " ") for _, attributes in self.elements if "data-tip" in attributes
        ]

    def handle_starttag(self, tag, attributes):
        assert tag not in VOID, "void elements end themselves"
        names = [name for name, _ in attributes]
        assert len(set(names)) == len(names), attributes
        self.elements.append((tag, dict(attributes)))
        self.open.append(tag)
        if tag == "table":
            self.rows = []
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th", "caption"):
            self.cell = []

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag in ("td", "th"):
            self.rows[-1].append(" ".join(" ".join(self.cell).split()))
        elif tag == "caption":
            self.caption = "".join(self.cell)
        elif tag == "table":
            self.tables[self.caption] = self.rows

    def handle_data(self, data):
        if self.cell is not None:
            self.cell.append(data)
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)


def names_of(n):
    return [*HOSTILE, *(f"s{i}" for i in range(len(HOSTILE), n))]


@pytest.fixture(scope="module")
def views():
    data = jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8))
    matrices = [view.copy() for view in data.views]
    matrices[0][:10] = NAN
    matrices[1][25:] = NAN
    names = ["rna <b>", 'the "protein"']
    return read_views_to_learn_from(dict(zip(names, matrices, strict=True)), ids=[names_of(30)] * 2)


@pytest.fixture(scope="module")
def model(views):
    with jax.enable_x64(True):
        return jj.JPLTD(3, random_state=0).fit(views)


@pytest.fixture(scope="module")
def page(model, views):
    return cluster_report(model, views, warnings=["<i>odd</i>"], command="jpltd cluster a.csv && b.csv")


def invented(n, c, *, n_columns=None, seed=0):
    """A model with attributes of the right kind, and views, without a fit; without candidates."""
    rng = np.random.default_rng(seed)
    model = jj.JPLTD(c, random_state=seed)
    model.labels_ = rng.permutation(np.arange(n) % c).astype(np.int32)
    model.margin_ = rng.uniform(size=n)
    model.embedding_ = np.eye(c)[model.labels_] + 0.1 * rng.normal(size=(n, c))
    model.affinity_ = rng.uniform(size=(n, n if n_columns is None else n_columns)).astype(np.float32)
    if n_columns is None:
        model.affinity_ += model.affinity_.T
    model.sample_ids_, model.view_names_in_ = np.arange(n), ("a", "b")
    model.clusters_tried_, model.unconnected_, model.fitted_samples_ = None, np.zeros(n, bool), None
    model.preparation_ = ["unit", "root"]
    model.candidates_, model.chosen_, model.support_ = {}, None, None
    model.hyper_, model.status_, model.n_iter_ = jj.Hyper(), jj.Status.CONVERGED, 4
    model.history_ = Residuals(np.array([1, 0.1, 1e-3, 1e-7, NAN]), np.array([0.5, 0.0, 1e-4, 1e-8, NAN]))
    mask = np.ones((n, 2), bool)
    mask[: n // 3, 0] = False
    return model, Views([np.zeros((n, 3)), np.zeros((n, 2))], mask, model.sample_ids_, ("a", "b"), (None, None))


def heat_levels(page):
    """The numbers of the colours in the image of the affinity."""
    data = re.search(r"data:image/png;base64,([^\"]+)", page)[1]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def test_page_asks_for_nothing_and_keeps_text_text(page, model, views):
    found = Read(page)
    for tag, attributes in found.elements:
        for name, value in attributes.items():
            assert not re.match(r"\s*(https?:|//|javascript:|file:)", value), (tag, name, value)
            assert not name.startswith("on"), (tag, name)
    assert not re.search(r"https?:|url\(|@import", page)
    assert sum(tag == "script" for tag, _ in found.elements) == 1
    assert "<script>alert" not in page
    plain = views._replace(ids=np.array([f"id{i}" for i in range(30)], object))
    harmless = jj.JPLTD(3, random_state=0)
    harmless.__dict__.update(model.__dict__ | {"sample_ids_": plain.ids})
    same = Read(cluster_report(harmless, plain, warnings=["odd"], command="jpltd"))
    assert [tag for tag, _ in same.elements] == [tag for tag, _ in found.elements]
    for text in ("rna <b>", 'the "protein"', "<i>odd</i>", "jpltd cluster a.csv && b.csv"):
        assert text in found.all_text
    tips = " ".join(found.tips)
    assert "two\\nlines ·" in tips
    assert "\\u202egp.exe ·" in tips
    assert "</script><script>alert(1)</script> ·" in tips


def test_what_came_in_is_counted(page, views):
    found = Read(page)
    assert found.facts["samples"] == "30"
    assert found.facts["seen in all views"] == "50 %"
    assert [row[:2] for row in found.tables["Views"][1:]] == [["rna <b>", "10"], ['the "protein"', "8"]]
    assert [row[2] for row in found.tables["Views"][1:]] == ["20 (67 %)", "25 (83 %)"]
    patterns = {
        tuple("yes" in cell for cell in row[1:]): int(row[0])
        for row in found.tables["Which views the samples have"][1:]
    }
    assert patterns == Counter(map(tuple, views.mask.tolist()))
    assert "Any two views share at least 15 samples" in found.all_text


def test_what_was_chosen_is_what_the_model_chose(page, model):
    found = Read(page)
    rows = found.tables["Candidates"][1:]
    assert [row[0].removesuffix(" (taken)") for row in rows] == list(model.candidates_)
    assert [row[0].endswith("(taken)") for row in rows] == [name == model.chosen_ for name in model.candidates_]
    for row, candidate in zip(rows, model.candidates_.values(), strict=True):
        same = adjusted_rand_score(model.candidates_[model.chosen_]["labels"], candidate["labels"])
        expected = [candidate["modularity"], candidate["explained"], candidate["score"], same]
        np.testing.assert_allclose([float(cell) for cell in row[2:]], expected, rtol=6e-3)
    assert [row[1] for row in found.tables["How each view was prepared"][1:]] == model.preparation_
    assert found.tables["Hyper-parameters"][1][:2] == ["lam", "0.25"]
    assert "The number of clusters was given: 3." in found.all_text
    assert "JPLTD(n_clusters=3, random_state=0)" in found.all_text


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        ((1.0, 1.1), "“completed” was taken: its score is 10.0 % above that of “late”."),
        ((1.0, 1.005), "“late” was taken although its score is 0.5 % below that of “completed”"),
        ((1.0, 0.5), "“late” was taken: its score is 100.0 % above that of “completed”."),
        ((1.0,), "There was one candidate, so there was nothing to choose."),
    ],
)
def test_reason_of_the_choice(scores, sentence):
    model, views = invented(12, 3)
    model.candidates_ = {
        name: {"labels": model.labels_, "modularity": 0.5, "explained": 0.1, "score": score}
        for name, score in zip(("late", "completed"), scores, strict=False)
    }
    model.chosen_ = "completed" if sentence.startswith("“completed") else "late"
    assert sentence in Read(cluster_report(model, views)).all_text


def test_clusters_have_their_sizes_and_samples(page, model):
    found = Read(page)
    rows = found.tables["Clusters, and samples with their margins"][1:]
    shown = {name: name.replace("\n", "\\n").replace("\u202e", "\\u202e") for name in model.sample_ids_}
    for cluster, (name, size, median, typical, uncertain) in enumerate(rows):
        members = [i for i in range(30) if model.labels_[i] == cluster]
        ranked = sorted(members, key=lambda i: -model.margin_[i])
        assert name == str(cluster)
        assert size.split()[0] == str(len(members))
        assert float(median) == pytest.approx(np.median([model.margin_[i] for i in members]), abs=0.006)
        for cell, expected in ((typical, ranked[:3]), (uncertain, ranked[::-1][:3])):
            assert cell == " ".join(f"{shown[model.sample_ids_[i]]} {model.margin_[i]:.2f}" for i in expected)
    support = [[float(cell) for cell in row[1:]] for row in found.tables["Support of the clusters by the views"][1:]]
    np.testing.assert_allclose(support, 100 * model.support_.T, atol=0.051)


def test_drawings_hold_every_sample(page, model):
    found = Read(page)
    marks = [attributes for tag, attributes in found.elements if tag == "use"]
    assert len(marks) == 30
    said = Counter(re.search(r"· cluster (\d+) ·", mark["data-tip"])[1] for mark in marks)
    assert said == Counter(map(str, model.labels_.tolist()))
    order = np.argsort(model.labels_, kind="stable")
    h = model.affinity_[np.ix_(order, order)] * (1 - np.eye(30))
    top = np.quantile(h[h > 0], 0.95)
    np.testing.assert_allclose(heat_levels(page), 255 * np.minimum(h / top, 1), atol=0.6)
    residuals = [tip for tip in found.tips if "iteration" in tip]
    assert len(residuals) == 2 * model.n_iter_
    assert f"fit, iteration 1: {model.history_.fit[0]:.3g}" in residuals


def test_a_model_without_candidates_and_its_odd_clusters():
    model, views = invented(20, 4)
    model.labels_[model.labels_ == 3] = 0
    model.labels_[model.labels_ == 2] = 0
    model.labels_[7] = 2
    model.unconnected_[11] = True
    found = Read(cluster_report(model, views))
    assert "There were no candidates" in found.all_text
    assert "does not tell how strongly each view supports" in found.all_text
    assert "1 cluster got no sample: the data have fewer clusters than 4." in found.all_text
    assert "1 cluster of one sample only: 2." in found.all_text
    assert "1 sample not connected to the others by any pair of views: 11." in found.all_text
    assert "numbered by their position" in found.all_text
    assert "It stopped after 4 iterations" in found.all_text
    assert len([tip for tip in found.tips if tip.startswith("split")]) == 3
    assert found.tables["Clusters, and samples with their margins"][4][1:] == ["0 (0 %)", "–", "", ""]


def test_views_without_a_common_sample_are_told():
    model, views = invented(12, 3)
    mask = np.arange(12)[:, None] % 2 == [0, 1]
    found = Read(cluster_report(model, views._replace(mask=mask)))
    assert "The views a (0, 2, 4, …) and b (1, 3, 5, …) share no sample." in found.all_text


def test_number_of_clusters_that_was_searched_for():
    model, views = invented(12, 3)
    counts = np.arange(2, 5)
    model.clusters_tried_ = NumbersOfClusters(counts, counts / 20, 1 / counts, counts / 10)
    found = Read(cluster_report(model, views))
    assert "2 to 4 clusters were tried, and 3 taken." in found.all_text
    rows = found.tables["Numbers of clusters that were tried"][1:]
    assert rows == [
        ["2", "0.100", "0.500", "0.200"],
        ["3", "0.150", "0.333", "0.300"],
        ["4", "0.200", "0.250", "0.400"],
    ]
    assert "score, number of clusters 4: 0.25" in found.tips


def test_the_affinity_of_a_model_fitted_on_a_part_is_of_that_part():
    model, views = invented(12, 3)
    part = np.arange(0, 12, 2)
    model.fitted_samples_, model.affinity_ = part, model.affinity_[np.ix_(part, part)]
    page = cluster_report(model, views)
    assert "Of the 6 samples that the model was fitted on." in Read(page).all_text
    order = np.argsort(model.labels_[part], kind="stable")
    h = model.affinity_[np.ix_(order, order)] * (1 - np.eye(6))
    np.testing.assert_allclose(heat_levels(page), 255 * np.minimum(h / np.quantile(h[h > 0], 0.95), 1), atol=0.6)


def test_large_pages_stay_small_and_say_what_is_drawn():
    model, views = invented(30_000, 20, n_columns=40)
    model.sample_ids_ = np.array([f"a long id of a sample, number {i:09d}" for i in range(30_000)], object)
    model.support_ = np.full((2, 20), 0.02)
    page = cluster_report(model, views._replace(ids=model.sample_ids_))
    assert len(page.encode()) < 1_000_000
    found = Read(page)
    assert "2,000 of the 30,000 samples are drawn" in found.all_text
    marks = [attributes["data-tip"] for tag, attributes in found.elements if tag == "use"]
    counts = Counter(re.search(r"· cluster (\d+) ·", tip)[1] for tip in marks)
    assert len(marks) == 2000
    assert set(counts.values()) <= {99, 100, 101}


def test_many_clusters_and_long_ids_are_cut():
    model, views = invented(3000, 1500, n_columns=5)
    model.sample_ids_ = np.array([f"{i}" + "x" * 5000 for i in range(3000)], object)
    model.support_ = np.zeros((2, 1500))
    page = cluster_report(model, views._replace(ids=model.sample_ids_))
    assert len(page.encode()) < 1_500_000
    found = Read(page)
    assert "The first 100 of 1,500 rows." in found.all_text
    assert len(found.tables["Clusters, and samples with their margins"]) == 101


@pytest.mark.parametrize("n_columns", [None, 7])
def test_affinity_of_many_samples_is_a_mean_over_pairs(n_columns):
    model, views = invented(450, 3, n_columns=n_columns)
    levels = heat_levels(cluster_report(model, views)).astype(float)
    z = model.affinity_.astype(float)
    h = z if n_columns is None else z / z.sum(axis=0) @ z.T
    order = sorted(range(450), key=lambda i: (model.labels_[i], i))
    edges = [round(i * 450 / 200) for i in range(201)]
    assert levels.shape == (200, 200)
    means = np.empty((200, 200))
    for i in range(200):
        for j in range(200):
            pairs = [
                h[a, b]
                for a in order[edges[i] : edges[i + 1]]
                for b in order[edges[j] : edges[j + 1]]
                if a != b or n_columns is not None
            ]
            means[i, j] = np.mean(pairs)
    np.testing.assert_allclose(levels, 255 * np.minimum(means / np.quantile(means, 0.95), 1), atol=0.6)


def test_image_has_the_colours_of_its_palette():
    rng = np.random.default_rng(0)
    palette = rng.integers(0, 256, (256, 4), np.uint8)
    pixels = rng.integers(0, 256, (5, 9), np.uint8)
    image = Image.open(io.BytesIO(png(pixels, palette)))
    np.testing.assert_array_equal(np.asarray(image.convert("RGBA")), palette[pixels])


def test_wrong_companions_are_refused(model, views):
    with pytest.raises(ValueError, match="samples that the model was fitted on"):
        cluster_report(model, views._replace(ids=views.ids[::-1]))


GRID = jj.grid({"lam": [1.0, 0.1], "theta": [0.1, 0.5], "latent_dim": [5, 6]})


def swept(values, name="accuracy", status="MAX_ITER"):
    rows = zip(GRID.parameters(), values, strict=False)
    return SweepResult(
        [
            row | {"status": "EMPTY" if np.isnan(x) else status, "n_iter": 30, name: x, "labels": [0, 1]}
            for row, x in rows
        ],
        8,
    )


def test_sweep_is_ranked_and_mapped():
    result = swept([0.5, 0.7, 0.9, 0.8, NAN, NAN, 0.6, NAN])
    found = Read(sweep_report(result, GRID, command="jpltd <sweep>"))
    assert found.facts == {"done": "8 of 8", "empty": "3", "not finite": "0", "best accuracy": "90.0 %"}
    assert found.tables["Parameters"][1:] == [
        ["lam", "0.1, 1", "2"],
        ["theta", "0.1, 0.5", "2"],
        ["latent_dim", "5, 6", "2"],
    ]
    rows = found.tables["The best 5 of 5 usable configurations"]
    assert rows[0] == ["rank", "lam", "theta", "latent_dim", "accuracy", "status", "iterations"]
    assert rows[1] == ["1", "1", "0.5", "5", "90.0 %", "MAX_ITER", "30"]
    assert [row[4] for row in rows[1:]] == ["90.0 %", "80.0 %", "70.0 %", "60.0 %", "50.0 %"]
    assert found.tips == [
        "theta 0.1, lam 0.1: none usable",
        "theta 0.1, lam 1: mean 60.0 %, best 70.0 % of 2",
        "theta 0.5, lam 0.1: mean 60.0 %, best 60.0 % of 1",
        "theta 0.5, lam 1: mean 85.0 %, best 90.0 % of 2",
    ]
    assert "needs the labels" in found.all_text
    assert "jpltd <sweep>" in found.all_text


def test_sweep_by_score_over_chosen_axes():
    page = sweep_report(swept([0.5, 1.7, 0.9, 0.8, 0.1, 0.2, 0.6, 0.3], "score"), GRID, axes=("latent_dim", "lam"))
    found = Read(page)
    assert found.facts["best score"] == "1.7"
    assert "needs no labels" in found.all_text
    assert "lam 1, latent_dim 6: mean 1.25, best 1.7 of 2" in found.tips
    with pytest.raises(ValueError, match="no parameter 'gamma'; it has lam, theta"):
        sweep_report(swept([0.5]), GRID, axes=("lam", "gamma"))


def test_sweep_that_was_interrupted_or_gave_nothing():
    found = Read(sweep_report(swept([0.5, 0.6]), GRID))
    assert "6 configurations not done: the sweep was interrupted." in found.all_text
    found = Read(sweep_report(swept([NAN] * 8), GRID))
    assert "No configuration gave a usable affinity." in found.all_text
    assert not found.tips
    assert Read(sweep_report(SweepResult([], 8), GRID)).facts["done"] == "0 of 8"
    unranked = SweepResult([row | {"status": "MAX_ITER", "n_iter": 3} for row in GRID.parameters()], 8)
    assert "the configurations are not ranked" in Read(sweep_report(unranked, GRID)).all_text


def test_sweep_over_very_many_values_has_no_map():
    grid = jj.grid({"lam": np.linspace(0.1, 1, 50), "theta": [0.1, 0.2]})
    rows = [row | {"status": "MAX_ITER", "n_iter": 3, "accuracy": 0.5} for row in grid.parameters()]
    found = Read(sweep_report(SweepResult(rows, 100), grid))
    assert "There is no map: a parameter has more than 40 values." in found.all_text
    assert len(found.tables["The best 10 of 100 usable configurations"]) == 11


AUDIT = OrderAudit(file=0.9, shuffled=np.array([0.5, 0.64]), sorted=1.0, agreement=0.31, repeat_agreement=0.97)


def test_audit_tells_the_verdict_and_every_order():
    free = AUDIT._replace(agreement=0.95)
    found = Read(audit_report({"published <1>": AUDIT, "free": free}, warnings=["short"], command="jpltd audit-order"))
    assert re.search(r"published <1> +depends on the order of the samples", found.all_text)
    assert re.search(r"free +does not depend on the order of the samples", found.all_text)
    assert found.tables["Same partition"][1] == ["published <1>", "0.31", "0.97", "2"]
    assert found.tables["Accuracy"][1] == ["published <1>", "90.0 %", "57.0 %", "50.0 % to 64.0 %", "100.0 %"]
    assert "published <1>, shuffled: 64.0 %" in found.tips
    assert len(found.tips) == 2 * (2 + 4)


def test_audit_without_classes_has_no_accuracies():
    unknown = AUDIT._replace(file=NAN, shuffled=np.array([NAN, NAN]), sorted=NAN)
    found = Read(audit_report({"a": unknown}))
    assert "Accuracy" not in found.tables
    assert len(found.tips) == 2
    with pytest.raises(ValueError, match="no audits"):
        audit_report({})


def test_written_whole_or_not_at_all(tmp_path):
    write(tmp_path / "r.html", "naïve \ud800")
    assert (tmp_path / "r.html").read_bytes() == "naïve &#55296;".encode()
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "nowhere" / "r.html", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


@pytest.mark.docs
@pytest.mark.skipif(find_browser() is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [1100, 390])
def test_opens_in_a_browser_and_hover_tells_the_id(page, model, tmp_path, width):
    write(tmp_path / "cluster.html", page)
    write(tmp_path / "sweep.html", sweep_report(swept([0.5, 0.7, 0.9, 0.8, NAN, NAN, 0.6, NAN]), GRID))
    write(tmp_path / "audit.html", audit_report({"published": AUDIT}))
    with browser_page(find_browser()) as browser:
        for name in ("cluster", "sweep", "audit"):
            browser.open(tmp_path / f"{name}.html", width=width)
            assert browser.value("document.documentElement.scrollWidth") <= width
            browser.value("document.querySelector('[data-tip]').scrollIntoView({block: 'center'})")
            expected, x, y = browser.value(
                "(mark => { const box = mark.getBoundingClientRect();"
                " return [mark.dataset.tip, box.x + box.width / 2, box.y + box.height / 2] })"
                "(document.querySelector('[data-tip]'))"
            )
            assert browser.value("document.getElementById('tip').hidden")
            browser.move(x, y)
            assert browser.value("document.getElementById('tip').textContent") == expected
            left, right = browser.value(
                "(box => [box.left, box.right])(document.getElementById('tip').getBoundingClientRect())"
            )
            assert 0 <= left <= right <= width
            browser.move(1, 1)
            assert browser.value("document.getElementById('tip').hidden")
        assert not browser.complaints
        assert {address.split(":")[0] for address in browser.requests} <= {"file", "data"}
        assert sum(address.startswith("file:") for address in browser.requests) == 3
