import itertools

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

matplotlib.use("Agg")

from jpltd_jax import plotting
from jpltd_jax.audit import OrderAudit
from jpltd_jax.methods.jpltd import Residuals
from jpltd_jax.selection import NumbersOfClusters
from jpltd_jax.sweeps import SweepResult


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_affinity_is_grouped_and_framed():
    h = np.arange(16.0).reshape(4, 4)
    ax = plotting.plot_affinity(h, [1, 0, 1, 0])
    np.testing.assert_array_equal(ax.images[0].get_array(), h[np.ix_([1, 3, 0, 2], [1, 3, 0, 2])])
    assert len(ax.lines) == 2
    assert ax.lines[0].get_xdata().tolist() == [-0.5, 1.5, 1.5, -0.5, -0.5]
    assert ax.get_title() == "Affinity"


def test_affinity_without_labels_or_entries():
    ax = plotting.plot_affinity(np.zeros((3, 3)))
    assert not ax.lines
    assert ax.get_xlabel() == "samples"


def test_residuals_leave_out_what_was_not_run():
    ax = plotting.plot_history(Residuals(np.array([1.0, 0.1, np.nan]), np.array([0.5, 0.2, np.nan])), tol=1e-3)
    assert ax.get_yscale() == "log"
    assert [line.get_label() for line in ax.lines][2] == "tolerance"
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [1.0, 0.1, np.nan])


def test_given_axes_are_used():
    _, ax = plt.subplots()
    assert plotting.plot_affinity(np.eye(2), ax=ax) is ax


def test_order_audit_shows_every_order():
    audit = OrderAudit(0.9, np.array([0.5, 0.6, 0.7]), 1.0, 0.3, 1.0)
    ax = plotting.plot_order_audit({"a": audit, "b": audit._replace(shuffled=np.array([0.4]))})
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["a", "b"]
    np.testing.assert_allclose(ax.collections[0].get_offsets()[:, 1], [50, 60, 70])
    assert len(ax.get_legend().get_texts()) == 3


def test_normalized_residuals_start_from_their_largest():
    history = Residuals(np.array([4.0, 1.0, np.nan]), np.array([0.5, 2.0, np.nan]))
    ax = plotting.plot_history(history, tol=1e-3, normalize=True)
    np.testing.assert_array_equal([line.get_ydata() for line in ax.lines], [[1, 0.25, np.nan], [0.25, 1, np.nan]])


def test_neighbours_are_drawn_once_and_by_class():
    graph = np.array([[0, 1, 0], [1, 0, 1], [0, 0, 0]])
    ax = plotting.plot_neighbours([[0, 0], [1, 0], [2, 5]], graph, [0, 0, 1])
    edges = [(line.get_color(), np.transpose(line.get_data()).tolist()) for line in ax.lines]
    assert edges == [("0.75", [[0, 0], [1, 0]]), ("#D55E00", [[1, 0], [2, 5]])]


def test_score_grid_has_rows_upwards():
    ax = plotting.plot_score_grid([[10.0, 20.0], [30.0, 40.0]], rows=[1, 2], columns=[0.1, 0.5])
    assert ax.images[0].origin == "lower"
    assert [text.get_text() for text in ax.get_yticklabels()] == ["1", "2"]
    assert ax.images[0].get_clim() == (0, 100)


def sweep_row(lam, theta, k, accuracy, status="MAX_ITER"):
    return {"lam": lam, "theta": theta, "latent_dim": k, "status": status, "accuracy": accuracy}


def test_sweep_cells_are_means_and_the_best_is_framed():
    nan = float("nan")
    rows = [
        sweep_row(1.0, 0.5, 10, 0.5),
        sweep_row(1.0, 0.5, 20, 0.7),
        sweep_row(1.0, 0.1, 10, 0.2),
        sweep_row(5.0, 0.1, 10, nan, "EMPTY"),
        sweep_row(5.0, 0.5, 10, 0.9),
        sweep_row(5.0, 0.5, 20, nan, "EMPTY"),
    ]
    ax = plotting.plot_sweep(SweepResult(rows, 6))
    np.testing.assert_allclose(ax.images[0].get_array().filled(np.nan), [[20, 60], [np.nan, 90]])
    assert [text.get_text() for text in ax.texts] == ["20", "60", "×", "90"]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["1", "5"]
    assert ax.get_title() == "accuracy (%), mean of 2, × none usable"
    assert (min(ax.lines[0].get_xdata()), min(ax.lines[0].get_ydata())) == (0.5, 0.5)


def test_sweep_without_usable_rows_or_scores():
    empty = SweepResult([sweep_row(1.0, 0.1, 10, float("nan"), "EMPTY")], 1)
    ax = plotting.plot_sweep(empty, x="latent_dim")
    assert [text.get_text() for text in ax.texts] == ["×"]
    assert not ax.lines
    with pytest.raises(ValueError, match="have no 'nmi'; they have lam, theta"):
        plotting.plot_sweep(empty, metric="nmi")
    with pytest.raises(ValueError, match="no rows"):
        plotting.plot_sweep(SweepResult([], 0))


def test_sweep_of_scores_without_labels():
    """The score is no percentage, and a usable row of a method that does not judge has none."""
    row = {"lam": 1.0, "theta": 0.1, "status": "MAX_ITER", "score": 1.2}
    ax = plotting.plot_sweep(SweepResult([row, row | {"theta": 0.5, "score": 0.6}], 2), metric="score")
    assert ax.get_title() == "score (× 100)"
    assert [text.get_text() for text in ax.texts] == ["120", "60"]
    ax = plotting.plot_sweep(SweepResult([row | {"score": float("nan")}], 1), metric="score")
    assert [text.get_text() for text in ax.texts] == ["×"]


def test_availability_puts_equal_samples_side_by_side():
    mask = np.array([[1, 0, 1], [1, 1, 1], [0, 1, 0], [1, 0, 1], [1, 1, 1]], bool)
    ax = plotting.plot_availability(mask)
    shown = np.asarray(ax.images[0].get_array()).astype(bool)
    assert sorted(map(tuple, shown.T)) == sorted(map(tuple, mask))
    changes = (shown[:, 1:] != shown[:, :-1]).any(axis=0).sum()
    assert changes == 2
    assert shown[:, :2].all()
    assert ax.get_title() == "Observed views: 2 of 5 samples complete"
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["view 0\n80 %", "view 1\n60 %", "view 2\n80 %"]
    with pytest.raises(ValueError, match="mask must be boolean"):
        plotting.plot_availability(mask.astype(int))


def test_embedding_keeps_the_plane_it_is_given():
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(30, 2)) * [5, 1]
    basis = np.linalg.qr(rng.normal(size=(6, 2)))[0]
    labels = np.arange(30) % 3
    ax = plotting.plot_embedding(plane @ basis.T, labels)
    drawn = np.empty((30, 2))
    for label, points in enumerate(ax.collections):
        drawn[labels == label] = points.get_offsets()
    distances = [np.linalg.norm(x[:, None] - x, axis=-1) for x in (plane, drawn)]
    np.testing.assert_allclose(*distances, atol=1e-10)
    assert drawn.std(axis=0)[0] > drawn.std(axis=0)[1]
    assert len({tuple(points.get_facecolor()[0]) for points in ax.collections}) == 3


def test_embedding_of_one_column_and_of_many_clusters():
    assert len(plotting.plot_embedding(np.arange(4.0)[:, None]).collections) == 1
    many = plotting.plot_embedding(np.eye(20), np.arange(20))
    looks = {(tuple(c.get_facecolor()[0]), c.get_paths()[0].vertices.shape) for c in many.collections}
    assert len(looks) == 20


CANDIDATES = {
    "late": {"modularity": 0.5, "explained": 0.2, "score": 0.625},
    "completed": {"modularity": 0.6, "explained": 0.25, "score": 0.8},
}


def test_candidates_are_bars_of_their_numbers_and_the_taken_one_is_framed():
    ax = plotting.plot_candidates(CANDIDATES, "completed")
    assert [[bar.get_height() for bar in bars] for bars in ax.containers] == [[0.5, 0.2, 0.625], [0.6, 0.25, 0.8]]
    assert [bars[0].get_linewidth() for bars in ax.containers] == [0, 2]
    assert [text.get_text() for text in ax.texts] == ["0.50", "0.20", "0.62", "0.60", "0.25", "0.80"]
    edges = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bars in ax.containers for bar in bars)
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(edges))
    assert [text.get_text() for text in plotting.plot_candidates(CANDIDATES).get_legend().get_texts()] == [*CANDIDATES]
    with pytest.raises(ValueError, match="no candidates"):
        plotting.plot_candidates({})


def test_support_has_one_row_per_view():
    support = np.array([[0.25, 0.1, 0.0], [0.05, -0.01, 0.2]])
    ax = plotting.plot_support(support, ["rna", "protein"])
    np.testing.assert_allclose(ax.images[0].get_array(), 100 * support)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["rna", "protein"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "1", "2"]
    assert [tick.get_text() for tick in plotting.plot_support(support).get_yticklabels()] == ["view 0", "view 1"]
    with pytest.raises(ValueError, match="each of the 2 views, got 1"):
        plotting.plot_support(support, ["rna"])
    with pytest.raises(ValueError, match="no support"):
        plotting.plot_support(None)


def test_margins_fall_from_left_to_right():
    ax = plotting.plot_margins([0.2, 0.9, 0.4, 0.5, 0.1], [1, 0, 0, 1, 0])
    assert [line.get_ydata().tolist() for line in ax.lines] == [[0.9, 0.4, 0.1], [0.5, 0.2]]
    np.testing.assert_allclose(ax.lines[1].get_xdata(), [0.25, 0.75])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["0 (3)", "1 (2)"]
    with pytest.raises(ValueError, match="one entry per sample"):
        plotting.plot_margins([0.2], [0, 1])


def test_the_largest_of_each_measure_is_marked():
    columns = [[2, 3, 4], [0.1, 0.4, 0.3], [0.5, 0.9, 0.7], [0.3, 0.1, 0.2]]
    tried = NumbersOfClusters(*map(np.array, columns))
    axes = plotting.plot_n_clusters(tried, 3)
    for ax, values in zip(axes, columns[1:], strict=True):
        assert ax.lines[0].get_xdata().tolist() == [2, 3, 4]
        assert ax.lines[0].get_ydata().tolist() == values
    legends = [[text.get_text() for text in ax.get_legend().get_texts()] for ax in axes]
    assert legends == [["largest: 3", "taken: 3"], ["largest: 3", "taken: 3"], ["largest: 2", "taken: 3"]]
    assert all(tick == int(tick) for tick in axes[0].get_xticks())
    _, given = plt.subplots(1, 3)
    assert plotting.plot_n_clusters(tried, axes=given) == tuple(given)


def test_plane_keeps_distances_of_points_in_a_plane_and_pads_a_line():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(20, 2)) @ np.linalg.qr(rng.normal(size=(5, 2)))[0].T + 3
    plane, share = plotting.principal_plane(points)
    distances = [np.linalg.norm(x[:, None] - x, axis=-1) for x in (points, plane)]
    np.testing.assert_allclose(*distances, atol=1e-10)
    np.testing.assert_allclose(share, plane.var(axis=0) / points.var(axis=0).sum())
    plane, share = plotting.principal_plane([[1.0], [3.0]])
    np.testing.assert_allclose(np.abs(plane), [[1, 0], [1, 0]], atol=1e-12)
    np.testing.assert_allclose(share, [1, 0])
    assert plotting.principal_plane(np.ones((4, 3)))[1].tolist() == [0, 0]
