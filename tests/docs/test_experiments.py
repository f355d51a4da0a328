"""The scripts of the tables: the paper's numbers, masks and orders, and how rows become tables."""

import csv
import json
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))

import protocol
import table2
import table2_baselines
import table3
import tables

import jpltd_jax as jj
from jpltd_jax.methods import METHODS

pytestmark = pytest.mark.docs


@pytest.mark.parametrize(
    ("table", "method", "name", "rate", "metric", "mean", "std"),
    [
        (2, "UEAF", "ORL", 0.1, "accuracy", 63.52, 2.84),
        (2, "UEAF", "MSRC-v1", 0.3, "ari", 46.07, 0.01),
        (2, "CLIMC-SC", "UCI", 0.7, "accuracy", 88.04, 5.95),
        (2, "IMVC-CBG", "BBCSport", 0.5, "nmi", 72.23, 1.61),
        (2, "IMVTSC-MVI", "NGs", 0.7, "nmi", 96.52, 0.00),
        (2, "TMBSD", "Scene", 0.1, "ari", 59.59, 0.63),
        (2, "TC-IMVC", "NGs", 0.5, "accuracy", 89.60, 0.00),
        (2, "VCL-IMVC", "NGs", 0.5, "accuracy", 86.4, 0.00),
        (2, "HCP-IMSC", "BBCSport", 0.5, "accuracy", 94.67, 0.00),
        (2, "JPLTD", "MSRC-v1", 0.1, "accuracy", 100.0, 0.00),
        (2, "JPLTD", "Scene", 0.7, "ari", 82.58, 0.02),
        (3, "JPLTD-N", "MSRC-v1", 0.7, "ari", 74.81, 0.64),
        (3, "JPLTD-B", "ORL", 0.7, "accuracy", 87.81, 2.74),
        (3, "JPLTD-O", "RGB-D", 0.3, "nmi", 53.13, 0.26),
    ],
)
def test_numbers_as_printed_in_the_paper(table, method, name, rate, metric, mean, std):
    assert tables.paper_numbers(table)[method, name, rate, metric] == (mean, std)


def test_numbers_are_complete_and_the_two_tables_agree_on_jpltd():
    second, third = tables.paper_numbers(2), tables.paper_numbers(3)
    assert [len({key[i] for key in second}) for i in range(4)] == [9, 7, 4, 3]
    assert len(second) == 9 * 7 * 4 * 3
    assert [len({key[i] for key in third}) for i in range(4)] == [4, 5, 4, 3]
    assert len(third) == 4 * 5 * 4 * 3
    shared = [key for key in third if key[0] == "JPLTD"]
    assert all(second[key] == third[key] for key in shared)


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Set ``toy`` of 12 samples whose first view holds the sample's number in file order, with published masks."""
    rng = np.random.default_rng(0)
    views = {
        "view0": np.arange(12.0)[:, None] + 1,
        "view1": rng.normal(size=(12, 3)),
        "view2": rng.normal(size=(12, 2)),
    }
    np.savez(tmp_path / "toy.npz", **views, labels=np.arange(12) // 4)
    published = np.ones((2, 12, 3), bool)
    published[1, [1, 7], [0, 2]] = False
    np.savez(tmp_path / "masks.npz", toy_30=published.astype(np.uint8), toy_50=published[:, :, :2])
    monkeypatch.setenv("JPLTD_DATA", str(tmp_path))
    return published


def test_published_masks_where_they_fit_and_seeded_ones_else(data):
    mask, whence = protocol.mask_of("toy_variant", 12, 3, 0.3, 1)
    assert whence == "published"
    assert np.array_equal(mask, data[1])
    for rate, number in ((0.3, 2), (0.5, 0), (0.1, 0)):
        mask, whence = protocol.mask_of("toy", 12, 3, rate, number)
        assert whence == "seeded"
        assert (~mask.all(axis=1)).sum() == round(12 * rate)


def test_shuffling_moves_samples_mask_and_classes_together(data):
    case = protocol.load_case("toy", 0.3, "shuffled", 1)
    at = case.views[0][:, 0].astype(int) - 1
    assert sorted(at) == list(range(12))
    assert not np.array_equal(at, np.arange(12))
    assert np.array_equal(case.labels, at // 4)
    assert np.array_equal(case.mask, data[1][at])
    in_order = protocol.load_case("toy", 0.3, "file", 1)
    assert np.array_equal(in_order.mask, data[1])
    assert np.array_equal(in_order.labels, np.arange(12) // 4)


def test_grids_have_no_value_that_the_variant_does_not_use():
    configs = {v: replace(jj.PUBLISHED, variant=v) for v in ("full", "N", "B", "O")}
    sizes = {v: [len(x) for x in protocol.PAPER_GRID.of(config)] for v, config in configs.items()}
    assert sizes == {"full": [9, 8, 3], "N": [9, 8, 1], "B": [9, 1, 3], "O": [9, 1, 1]}


def test_pooled_spread_is_that_of_all_repeats():
    runs = np.random.default_rng(0).normal(70, 5, size=(3, 20))
    rows = [{"accuracy": x.mean(), "accuracy_std": x.std()} for x in runs]
    assert tables.pooled(rows, "accuracy") == pytest.approx((runs.mean(), runs.std()))


def row(name, order, accuracy, **other):
    scores = {"accuracy": accuracy, "accuracy_std": 0.5, "nmi": 2.0, "nmi_std": 0.0, "ari": 3.0, "ari_std": 0.0}
    return {"set": name, "rate": 0.5, "order": order, "mask": 0, "variant": "full"} | other | scores


def test_comparison_has_paper_file_order_and_shuffled_in_this_order():
    rows = [row("ngs", "shuffled", 90.0), row("ngs", "file", 99.0), row("orl_4view", "file", 80.0)]
    rows.append(row("orl_4view", "file", 80.0) | {"mask": 1})
    rows = [x | {"label": "full"} for x in rows]
    text = tables.comparison(rows, tables.paper_numbers(2), {"full": ("JPLTD", "JPLTD")})
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert lines[0][3:6] == ["accuracy, paper", "accuracy, file order", "accuracy, shuffled"]
    assert lines[2][:6] == ["ngs", "0.5", "JPLTD", "99.6 ± 0.0", "99.0 ± 0.5", "90.0 ± 0.5"]
    assert lines[3][:6] == ["orl_4view (other features)", "0.5", "JPLTD (2 masks)", "96.4 ± 1.3", "80.0 ± 0.5", ""]


def test_rows_are_replaced_by_newer_ones_of_the_same_run(tmp_path):
    path = tmp_path / "table.csv"
    tables.merge_csv(path, [row("ngs", "file", 50.0), row("msrcv1", "file", 60.0)], tables.RUN)
    rows = tables.merge_csv(path, [row("ngs", "file", 70.0), row("ngs", "shuffled", 40.0)], tables.RUN)
    assert [(x["set"], x["order"], x["accuracy"]) for x in rows] == [
        ("msrcv1", "file", 60.0),
        ("ngs", "file", 70.0),
        ("ngs", "shuffled", 40.0),
    ]


def test_orderings_count_cells_with_ties():
    rows = [row("ngs", "file", a, variant=v) for v, a in (("full", 99.0), ("N", 99.0), ("B", 99.5), ("O", 90.0))]
    lines = table3.orderings(rows).splitlines()[2:]
    held = [line.split("|")[2].strip() for line in lines]
    assert held == [
        "1 of 1, gap 0.0 to 0.0",
        "0 of 1, gap -0.5 to -0.5",
        "1 of 1, gap 9.0 to 9.0",
        "1 of 1, gap 9.5 to 9.5",
    ]


def test_tuned_rows_are_the_best_of_several_settings():
    rows = [row("ngs", "file", a, method="ueaf", params=p) for p, a in (("{}", 50.0), ('{"lam2": 1.0}', 60.0))]
    rows.append(row("ngs", "file", 70.0, method="tmbsd", params="{}"))
    labels = {x["label"]: x["accuracy"] for x in table2_baselines.labelled(rows)}
    assert labels == {"ueaf": 50.0, "tmbsd": 70.0, "ueaf, tuned": 60.0}


def parameters(method):
    record = METHODS[method]
    return {*record.Hyper._fields, *(field.name for field in fields(record.Config))}


def test_every_method_of_the_paper_has_settings():
    methods = {name for name, *_ in tables.paper_numbers(2)} - {"JPLTD"}
    assert {METHODS[method].title for method in table2_baselines.COMPARED} == methods
    assert set(table2_baselines.CHEAPEST_FIRST) == set(table2_baselines.COMPARED)
    for method in table2_baselines.COMPARED:
        default, *others = table2_baselines.settings(method, 3)
        assert default == {}
        assert all(set(params) <= parameters(method) for params in others)


def test_finished_runs_name_their_settings_as_the_methods_do():
    with (Path(protocol.__file__).parent / "table2_baselines.csv").open(newline="") as file:
        stored = {(row["method"], row["params"]) for row in csv.DictReader(file)}
    assert all(set(json.loads(params)) <= parameters(method) for method, params in stored)


def test_table_of_a_tiny_set_is_written_and_resumed(tmp_path, monkeypatch, capsys):
    """Three well separated classes in file order: the grid finds them, and a second run makes nothing again."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 8)
    views = {f"view{v}": rng.normal(size=(3, 6))[y] + 0.05 * rng.normal(size=(24, 6)) for v in range(2)}
    np.savez(tmp_path / "msrcv1.npz", **views, labels=y)
    for module in (protocol, table2, tables):
        monkeypatch.setattr(module, "HERE", tmp_path)
    (tmp_path / "paper_numbers.csv").write_bytes((Path(protocol.__file__).parent / "paper_numbers.csv").read_bytes())
    monkeypatch.setattr(protocol, "STORES", tmp_path / "stores")
    monkeypatch.setitem(protocol.GRIDS, "quick", protocol.Values((0.5, 2.0), (0.1,), (4,)))
    monkeypatch.setenv("JPLTD_DATA", "")
    monkeypatch.setattr(sys, "argv", ["table2", str(tmp_path), "--quick", "--sets", "msrcv1", "--rates", "0.3"])
    table2.main()
    text = (tmp_path / "table2.md").read_text()
    assert "| msrcv1 | 0.3 | JPLTD | 99.5 ± 0.0 | 100.0 ± 0.0 | " in text
    stores = {path: path.read_bytes() for path in (tmp_path / "stores").iterdir()}
    assert len(stores) == 2
    table2.main()
    assert stores == {path: path.read_bytes() for path in (tmp_path / "stores").iterdir()}
    assert (tmp_path / "table2.md").read_text() == text
