import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

matplotlib.use("Agg")

from jpltd_jax import Info, OrderAudit, plotting


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
    ax = plotting.plot_residuals(Info(np.array([1.0, 0.1, np.nan]), np.array([0.5, 0.2, np.nan])), tol=1e-3)
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
    history = Info(np.array([4.0, 1.0, np.nan]), np.array([0.5, 2.0, np.nan]))
    ax = plotting.plot_residuals(history, tol=1e-3, normalize=True)
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
