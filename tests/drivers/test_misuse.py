"""What people do by mistake: a row is a call, the error or warning that it must give, and words that must be in it.

A warning is as good as an error here: the call ends at the first one. Each call is made in an empty directory, or in
one with the row's files, and must leave the directory as it was.
"""

import functools
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import jpltd_jax as jj
from jpltd_jax import estimator
from jpltd_jax.annotate import annotate
from jpltd_jax.problem import further_samples
from jpltd_jax.sweeps.grid import listed
from jpltd_jax.views import read_views
from tests.annotated import AnnData, MuData, anndata, mudata

DATA = jj.datasets.make_blobs(0, n_samples=30, dims=(10, 8))
VIEWS = DATA.views
A, B = VIEWS
KEY = jax.random.key(0)
IDS = [f"s{i}" for i in range(30)]
GRID = jj.grid({"lam": [0.25]}, max_iter=2)
SEEN = np.arange(30)[:, None] != [3, 4]


def frame(matrix, ids=None, prefix="f"):
    ids = IDS[: len(matrix)] if ids is None else ids
    return pd.DataFrame(matrix, index=ids, columns=[f"{prefix}{j}" for j in range(matrix.shape[1])])


RNA, PROTEIN = frame(A, prefix="g"), frame(B, prefix="p")
NAMED = {"rna": RNA, "protein": PROTEIN}


@functools.cache
def problem():
    return jj.make_problem(VIEWS)


def model(**changes):
    return jj.JPLTD(3, **({"random_state": 0} | changes))


@functools.cache
def fitted():
    return model().fit(NAMED)


def fit(views, **changes):
    return model(**changes).fit(views)


def solve(**hyper):
    return jj.solve(problem(), jj.Hyper(**hyper))


def cluster(key=KEY, problem_=None, hyper=jj.Hyper(), n_clusters=3, **changes):  # noqa: B008
    return jj.cluster(key, problem() if problem_ is None else problem_, hyper, n_clusters, **changes)


def sweep(problem_=None, grid=GRID, *, key=KEY, **changes):
    return jj.sweep(problem() if problem_ is None else problem_, grid, n_clusters=3, key=key, **changes)


def without(i, shape=(30, 2)):
    mask = np.ones(shape, bool)
    mask[i] = False
    return mask


def changed(matrix, sample, feature, value):
    matrix = matrix.astype(object if isinstance(value, str) else float)
    matrix[sample, feature] = value
    return matrix


def masked(*cells):
    hidden = np.zeros(A.shape, bool)
    for cell in cells:
        hidden[cell] = True
    return np.ma.masked_array(A, hidden)


def out_of_memory(**changes):
    error = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 29000520002472 bytes.")
    with mock.patch.object(estimator, "cluster", side_effect=error):
        fit(VIEWS, **changes)


def saved(save, array):
    file = io.BytesIO()
    save(file, array)
    return file.getvalue()


def constant(views, mask, seed):
    return np.zeros(30)


@dataclass(frozen=True)
class Row:
    id: str
    call: Callable[[], object]
    kind: type[BaseException]
    words: tuple[str, ...]
    files: dict[str, bytes] = field(default_factory=dict)


ROWS = [
    # Silent wrong answers: what is given to predict ---------------------------------------------------------------
    Row(
        "predict: columns reversed",
        lambda: fitted().predict({"rna": RNA.iloc[:, ::-1], "protein": PROTEIN}),
        ValueError,
        ("view 'rna'", "same order", "another order", "'g9'", "'g0'"),
    ),
    Row(
        "predict: two columns swapped",
        lambda: fitted().predict(NAMED | {"protein": PROTEIN[["p0", "p2", "p1", *PROTEIN.columns[3:]]]}),
        ValueError,
        ("view 'protein'", "another order, from 'p2' on, where 'p1' is expected"),
    ),
    Row(
        "predict: a column renamed",
        lambda: fitted().predict(NAMED | {"rna": RNA.rename(columns={"g3": "h"})}),
        ValueError,
        ("view 'rna'", "unexpected 'h'", "missing 'g3'"),
    ),
    Row(
        "predict: a column lacking",
        lambda: fitted().predict(NAMED | {"rna": RNA.iloc[:, 1:]}),
        ValueError,
        ("view 'rna'", "missing 'g0'"),
    ),
    Row(
        "predict: arrays for frames",
        lambda: fitted().predict({"rna": A, "protein": B}),
        UserWarning,
        ("view 'rna'", "has no feature names", "fitted with them"),
    ),
    Row(
        "predict: a list for a dictionary",
        lambda: fitted().predict([RNA, PROTEIN]),
        UserWarning,
        ("'rna', 'protein'", "a list is taken in that order"),
    ),
    Row(
        "predict: another view",
        lambda: fitted().predict({"rna": RNA, "lipids": PROTEIN}),
        ValueError,
        ("unexpected 'lipids'", "missing 'protein'"),
    ),
    Row("predict: a view too few", lambda: fitted().predict({"rna": RNA}), ValueError, ("2 views, got 1", "'protein'")),
    Row(
        "predict: ids of frames",
        lambda: fitted().predict(NAMED, ids=[IDS, IDS]),
        ValueError,
        ("leave ids out",),
    ),
    Row(
        "further samples: another view",
        lambda: further_samples(jj.make_problem({"a": A, "b": B}), {"a": A, "c": B}),
        ValueError,
        ("unexpected 'c'", "missing 'b'"),
    ),
    # Ids that never match --------------------------------------------------------------------------------------------
    Row(
        "ids: numbers and text",
        lambda: fit([frame(A, range(30)), frame(B, map(str, range(30)))]),
        UserWarning,
        ("view 0 and view 1", "no sample id in common", "0, 1, 2, ...", "'0', '1', '2', ..."),
    ),
    Row(
        "ids: a space behind",
        lambda: fit(NAMED | {"protein": PROTEIN.rename(index=lambda i: i + " ")}),
        UserWarning,
        ("view 'rna' and view 'protein'", "'s0', 's1', 's2', ...", "'s0 ', 's1 ', 's2 ', ..."),
    ),
    Row(
        "ids: given for arrays",
        lambda: jj.views.read_views([A, B], ids=[range(30), range(30, 60)]),
        UserWarning,
        ("no sample id in common", "30, 31, 32, ..."),
    ),
    Row(
        "audit_order: classes of other samples",
        lambda: jj.audit_order([RNA], y=pd.Series(range(30), index=range(30)), method=constant),
        ValueError,
        ("y has no class", "'s0', 's1', 's2', ..."),
    ),
    # Masks -----------------------------------------------------------------------------------------------------------
    Row(
        "masked array: part of a row",
        lambda: fit([masked((4, 7)), B]),
        ValueError,
        ("view 0, sample 4, feature 7", "only whole rows can be missing"),
    ),
    Row(
        "masked array: a row that the mask calls observed",
        lambda: read_views([masked(4), B], np.ones((30, 2), bool)),
        ValueError,
        ("view 0, sample 4", "the mask says that it is observed"),
    ),
    Row(
        "masked array: a sample without a view",
        lambda: read_views([masked(4)]),
        ValueError,
        ("sample 4 is missing in all views",),
    ),
    Row("restrict: a sample hidden", lambda: problem().restrict(without(7)), ValueError, ("sample 7", "all views")),
    Row(
        "restrict: a sample hidden by both masks",
        lambda: jj.make_problem(VIEWS, SEEN).restrict(np.arange(30)[:, None] != [9, 3]),
        ValueError,
        ("sample 3", "all views"),
    ),
    Row("restrict: numbers", lambda: problem().restrict(np.ones((30, 2))), ValueError, ("boolean", "astype(bool)")),
    Row("restrict: turned", lambda: problem().restrict(np.ones((2, 30), bool)), ValueError, ("(30, 2)", "(2, 30)")),
    Row(
        "restrict: turned, traced",
        lambda: jax.vmap(lambda mask: problem().restrict(mask).mask)(jnp.ones((4, 2, 30), bool)),
        ValueError,
        ("(30, 2)", "(2, 30)"),
    ),
    Row(
        "sweep: a sample hidden in every view",
        lambda: sweep(masks=np.stack([without(()) | True, without(5)])),
        ValueError,
        ("masks[1] hides sample 5 in all views",),
    ),
    Row("sweep: no mask", lambda: sweep(masks=np.ones((0, 30, 2), bool)), ValueError, ("holds no mask",)),
    Row("sweep: one mask alone", lambda: sweep(masks=without(())), ValueError, ("(number, 30, 2)",)),
    # Classes and numbers ---------------------------------------------------------------------------------------------
    Row(
        "sweep: NaN is no class",
        lambda: sweep(y=np.where(np.arange(30) == 6, np.nan, DATA.labels)),
        ValueError,
        ("no class for sample 6", "nan"),
    ),
    Row(
        "sweep: None is no class",
        lambda: sweep(y=np.array(["a"] * 29 + [None], object)),
        ValueError,
        ("no class for sample 29", "None"),
    ),
    Row("sweep: classes of other samples", lambda: sweep(y=np.zeros(5)), ValueError, ("30 samples", "(5,)")),
    Row("solve: lam below zero", lambda: solve(lam=-1.0), ValueError, ("lam", "[0.0, inf)", "-1")),
    Row("solve: theta below zero", lambda: solve(theta=jnp.asarray(-0.5)), ValueError, ("theta", "-0.5")),
    Row("solve: rho below zero", lambda: solve(rho=-1e-3), ValueError, ("rho", "-0.001")),
    Row("solve: several lam", lambda: solve(lam=jnp.array([0.1, 0.2])), ValueError, ("lam", "(2,)", "jax.vmap")),
    Row("solve: as many lam as samples", lambda: solve(lam=np.ones(30)), ValueError, ("lam", "(30,)", "jax.vmap")),
    Row("solve: lam in words", lambda: solve(lam="small"), TypeError, ("lam must be a number", "'small'")),
    Row("solve: lam=None", lambda: solve(lam=None), TypeError, ("lam must be a number", "None")),
    Row(
        "sweep: lam below zero past the grid",
        lambda: sweep(grid=GRID._replace(configurations=[GRID.configurations[0]._replace(hyper=jj.Hyper(lam=-1.0))])),
        ValueError,
        ("lam", "[0.0, inf)", "-1"),
    ),
    # Scale -----------------------------------------------------------------------------------------------------------
    Row(
        "fit: samples that are zero everywhere",
        lambda: fit([np.where(np.arange(30)[:, None] > 26, 0, view) for view in VIEWS]),
        UserWarning,
        ("3 of 30 samples are zero in all their views", "27, 28, 29"),
    ),
    Row(
        "fit: a view of identical rows",
        lambda: fit({"a": A, "flat": np.ones((30, 8))}),
        UserWarning,
        ("all samples of view 'flat' are identical",),
    ),
    Row(
        "fit: fewer samples than clusters",
        lambda: fit([np.repeat(view[:2], 15, axis=0) for view in VIEWS]),
        UserWarning,
        ("fewer distinct samples (2) than clusters (3)",),
    ),
    Row("fit: one anchor", lambda: fit(VIEWS, n_anchors=1), UserWarning, ("fewer anchors (1) than clusters (3)",)),
    Row(
        "fit: views far from zero",
        lambda: fit([view + 1000 for view in VIEWS], preparation="unit"),
        UserWarning,
        ("the mean of view 0", "far from zero", "subtract the mean"),
    ),
    Row(
        "make_problem: a view far from zero",
        lambda: jj.make_problem([A, B - 1e6]),
        UserWarning,
        ("the mean of view 1", "far from zero"),
    ),
    Row(
        "make_problem: too small for squares",
        lambda: jj.make_problem([A, 1e-200 * B], normalize=False),
        ValueError,
        ("view 1 is too small", "normalize=True"),
    ),
    # Not a list of views ---------------------------------------------------------------------------------------------
    Row("fit: None", lambda: fit(None), TypeError, ("list or a dictionary", "got None")),
    Row("fit: a path", lambda: fit("views.npz"), TypeError, ("list or a dictionary", "'views.npz'")),
    Row("fit: a pathlib path", lambda: fit(Path("a.npz")), TypeError, ("list or a dictionary", "a.npz")),
    Row("fit: a number", lambda: fit(3), TypeError, ("list or a dictionary", "got int")),
    Row("fit: one frame", lambda: fit(RNA), TypeError, ("a single DataFrame", "[view]")),
    Row("fit: one array", lambda: fit(A), ValueError, ("(30, 10)", "[view]")),
    Row("fit: one sparse matrix", lambda: fit(scipy.sparse.csr_array(A)), TypeError, ("a single csr_array", "[view]")),
    Row("fit: one AnnData", lambda: fit(anndata(A, IDS)), TypeError, ("a single AnnData", "MuData", "'name'")),
    Row("fit: no view", lambda: fit([]), ValueError, ("views is empty", "list or a dictionary")),
    Row("fit: no view in a dictionary", lambda: fit({}), ValueError, ("views is empty", "list or a dictionary")),
    Row("fit: no view in a generator", lambda: fit(x for x in ()), ValueError, ("views is empty",)),
    Row("fit: names that are numbers", lambda: fit({0: A, 1: B}), TypeError, ("names of views", "got 0")),
    # Not a matrix ----------------------------------------------------------------------------------------------------
    Row("fit: a view is None", lambda: fit([A, None]), ValueError, ("view 1 must be a matrix", "got None")),
    Row("fit: a view is a path", lambda: fit([A, "b.csv"]), ValueError, ("view 1 must be a matrix", "got str")),
    Row("fit: a view is a vector", lambda: fit([A, B[:, 0]]), ValueError, ("view 1", "(30,)", "x[:, None]")),
    Row("fit: rows of two lengths", lambda: fit({"b": [[1, 2], [3]]}), ValueError, ("view 'b'", "differ in length")),
    Row("fit: text in an array", lambda: fit([A, B.astype(str)]), ValueError, ("view 1", "real numbers", "<U")),
    Row("fit: complex numbers", lambda: fit([A, B * 1j]), ValueError, ("view 1", "real numbers", "complex128")),
    Row(
        "fit: columns of text",
        lambda: fit({"rna": RNA.assign(sex="f", site="x")}),
        ValueError,
        ("view 'rna'", "not numbers", "'sex', 'site'"),
    ),
    Row(
        "fit: a missing entry of a nullable column",
        lambda: fit({"rna": RNA.assign(age=pd.array([*range(29), None], "Int64"))}),
        ValueError,
        ("view 'rna', sample 's29', feature 'age' is nan", "only whole rows"),
    ),
    Row(
        "fit: infinite",
        lambda: fit({"a": A, "b": changed(B, 3, 2, np.inf)}),
        ValueError,
        ("view 'b', sample 3, feature 2 is inf",),
    ),
    Row("fit: other lengths", lambda: fit({"a": A, "b": B[1:]}), ValueError, ("view 'b' has 29", "view 'a' has 30")),
    Row("fit: no features", lambda: fit({"a": A, "b": B[:, :0]}), ValueError, ("view 'b' has no features",)),
    # Ids -------------------------------------------------------------------------------------------------------------
    Row(
        "ids: twice",
        lambda: fit(NAMED | {"rna": pd.concat([RNA, RNA[:1]])}),
        ValueError,
        ("view 'rna'", "'s0' more than once"),
    ),
    Row("ids: none", lambda: fit([frame(A, [None, *IDS[1:]])]), ValueError, ("view 0, row 0 has no sample id",)),
    Row("ids: NaN", lambda: fit([frame(A, [*range(29), np.nan])]), ValueError, ("view 0, row 29 has no sample id",)),
    Row("ids: lists", lambda: read_views([A], ids=[[[i] for i in range(30)]]), TypeError, ("row 0", "got [0]")),
    Row("ids: one for all", lambda: read_views(VIEWS, ids=IDS), ValueError, ("one sequence per view", "2 views")),
    Row(
        "ids: of other views",
        lambda: read_views({"a": A, "b": B}, ids={"a": IDS, "c": IDS}),
        ValueError,
        ("'a', 'b'", "'a', 'c'"),
    ),
    Row("ids: for some views", lambda: fit([RNA, B]), ValueError, ("view 0 is a DataFrame and view 1 is not",)),
    # AnnData and MuData ----------------------------------------------------------------------------------------------
    Row(
        "MuData: a sample in no modality",
        lambda: fit(MuData({"rna": anndata(A, IDS)}, pd.Index([*IDS, "late"]))),
        ValueError,
        ("sample 'late' is missing in all views",),
    ),
    Row(
        "MuData: not updated",
        lambda: fit(MuData({"rna": anndata(A, IDS)}, pd.Index(IDS[1:]))),
        ValueError,
        ("view 'rna'", "obs_names lacks", "'s0'", "update()"),
    ),
    Row(
        "MuData: no matrix",
        lambda: fit(mudata(rna=AnnData(None, pd.Index(IDS), pd.Index([])))),
        ValueError,
        ("view 'rna' must be a matrix", "got None"),
    ),
    Row("annotate: a frame", lambda: annotate(RNA, fitted()), TypeError, ("AnnData or a MuData", "got DataFrame")),
    Row("annotate: not fitted", lambda: annotate(anndata(A, IDS), model()), ValueError, ("not fitted",)),
    Row(
        "annotate: other samples",
        lambda: annotate(anndata(A[:2], ["s0", "t"]), fitted()),
        ValueError,
        ("1 samples", "not clustered", "'t'"),
    ),
    # Options ---------------------------------------------------------------------------------------------------------
    Row("cluster: key=0", lambda: cluster(0), TypeError, ("jax.random.key(0)", "got 0")),
    Row("cluster: key=None", lambda: cluster(None), TypeError, ("jax.random.key(0)", "got None")),
    Row("cluster: several keys", lambda: cluster(jax.random.split(KEY, 2)), ValueError, ("one key", "(2,)")),
    Row("fit function: key=0", lambda: jj.fit("ueaf", VIEWS, None, 3, key=0), TypeError, ("jax.random.key(0)",)),
    Row("sweep: key=0", lambda: sweep(key=0), TypeError, ("jax.random.key(0)", "got 0")),
    Row("cluster: views", lambda: cluster(KEY, VIEWS), TypeError, ("jpltd_jax.make_problem", "got list")),
    Row("sweep: views", lambda: sweep(VIEWS), TypeError, ("jpltd_jax.make_problem", "got list")),
    Row("sweep: values for a grid", lambda: sweep(grid={"lam": [1.0]}), TypeError, ("jpltd_jax.grid", "got dict")),
    Row("cluster: half a cluster", lambda: cluster(n_clusters=2.5), TypeError, ("n_clusters", "integer", "2.5")),
    Row("cluster: clusters in words", lambda: cluster(n_clusters="3"), TypeError, ("n_clusters", "integer", "'3'")),
    Row("cluster: more clusters than samples", lambda: cluster(n_clusters=31), ValueError, ("between 1 and 30", "31")),
    Row("cluster: a number for a loop", lambda: cluster(loop=30), TypeError, ("Loop(max_iter=30)", "got 30")),
    Row("cluster: no such method", lambda: cluster(method=["ueaf"]), ValueError, ("jpltd, ueaf", "got ['ueaf']")),
    Row("Config: no such transform", lambda: jj.Config(transform="dct"), ValueError, ("'graph', 'fourier'", "'dct'")),
    Row("Config: n_kept=0", lambda: jj.Config(n_kept=0), ValueError, ("n_kept must be at least 1", "got 0")),
    Row("Config: n_kept=2.5", lambda: jj.Config(n_kept=2.5), TypeError, ("n_kept", "integer", "2.5")),
    Row("Config: latent_dim=None", lambda: jj.Config(latent_dim=None), TypeError, ("latent_dim", "integer", "None")),
    Row("Loop: half an iteration", lambda: jj.Loop(max_iter=2.5), TypeError, ("max_iter", "integer", "2.5")),
    Row(
        "tubal_shrink: a transform by name",
        lambda: jj.prox.tubal_shrink(jnp.ones((2, 3, 4)), 1.0, "fourier"),
        TypeError,
        ("transform", "Fourier()", "'fourier'"),
    ),
    Row(
        "tensor norm: the class of a transform",
        lambda: jj.tensor.tensor_nuclear_norm(jnp.ones((2, 3, 4)), transform=jj.transforms.Fourier),
        TypeError,
        ("transform", "Fourier()", "class"),
    ),
    Row("grid: no values", lambda: jj.grid({"theta": []}), ValueError, ("theta has no value",)),
    Row("grid: a list", lambda: jj.grid([0.1, 0.2]), TypeError, ("dictionary", "[0.1, 0.2]")),
    Row("grid: words", lambda: jj.grid({"lam": ["small"]}), TypeError, ("lam must be a number", "'small'")),
    Row("grid: no iterations", lambda: jj.grid({"lam": 1.0}, max_iter=0), ValueError, ("max_iter", "got 0")),
    Row("grid: a preset by name", lambda: jj.grid({"lam": 1.0}, config="published"), TypeError, ("Config", "got str")),
    Row("listed: nothing", lambda: listed({}), ValueError, ("no configuration",)),
    Row("sweep: nothing", lambda: sweep(grid=GRID._replace(configurations=[])), ValueError, ("no configuration",)),
    Row(
        "make_problem: a wrong dtype",
        lambda: jj.make_problem(VIEWS, dtype="half-precision"),
        ValueError,
        ("float32 or float64",),
    ),
    Row("make_problem: normalize=no", lambda: jj.make_problem(VIEWS, normalize="no"), TypeError, ("True or False",)),
    Row("verbose=yes", lambda: fit(VIEWS, verbose="yes"), ValueError, ("'verbose' parameter", "'yes'")),
    Row("audit_order: no method", lambda: jj.audit_order(VIEWS, method=None), TypeError, ("fit_predict", "None")),
    Row(
        "audit_order: half an order", lambda: jj.audit_order(VIEWS, method=constant, n_orders=2.5), TypeError, ("2.5",)
    ),
    Row("audit_leak: no mask", lambda: jj.audit_leak(VIEWS, None, method=constant), ValueError, ("mask is None",)),
    Row(
        "audit_leak: views in two orders",
        lambda: jj.audit_leak([RNA, PROTEIN[::-1]], SEEN, method=constant),
        ValueError,
        ("mask rows go by position",),
    ),
    # Results that cannot be ------------------------------------------------------------------------------------------
    Row("fit: theta=0", lambda: fit(VIEWS, theta=0), ValueError, ("theta=0", "raise theta")),
    Row("fit: lam too large", lambda: fit(VIEWS, lam=1e9), ValueError, ("lam=1e+09", "lower lam")),
    Row("fit: too few iterations", lambda: fit(VIEWS, max_iter=2), ValueError, ("after 2 iterations", "max_iter")),
    Row(
        "fit: out of memory",
        lambda: out_of_memory(config=jj.Config(latent_dim=8)),
        MemoryError,
        ("30 samples in 2 views", "set n_anchors", "latent_dim=8"),
    ),
    Row(
        "fit: out of memory with anchors",
        lambda: out_of_memory(n_anchors=29, config=jj.Config(latent_dim=8)),
        MemoryError,
        ("n_anchors=29", "lower n_anchors"),
    ),
    Row(
        "fit: out of memory by the latent dimension",
        lambda: out_of_memory(config=jj.Config(latent_dim=10**6)),
        MemoryError,
        ("lower latent_dim=1000000", "10 features"),
    ),
    # Checkpoints -----------------------------------------------------------------------------------------------------
    *(
        Row(
            f"checkpoint: {what}",
            lambda: fit(VIEWS, checkpoint="run.npz"),
            ValueError,
            ("run.npz is not a checkpoint, or is damaged",),
            {"run.npz": content},
        )
        for what, content in {
            "empty": b"",
            "text": b"lam = 3",
            "cut off": b"PK\x03\x04" + bytes(30),
            "one array": saved(np.save, np.ones(3)),
            "another archive": saved(np.savez, np.ones(3)),
            "an archive without members": b"PK\x05\x06" + bytes(18),
        }.items()
    ),
    Row("checkpoint: a directory", lambda: fit(VIEWS, checkpoint="."), IsADirectoryError, ("is a directory",)),
    Row("checkpoint: nowhere", lambda: fit(VIEWS, checkpoint="a/b.npz"), FileNotFoundError, ("b.npz does not exist",)),
]


def test_the_table_is_whole():
    assert len({row.id for row in ROWS}) == len(ROWS) >= 80


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ROWS])
def test_mistakes_are_named(row, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in row.files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(row.kind) as caught:
        row.call()
    assert type(caught.value).__module__ != "jax.errors"
    for word in row.words:
        assert word in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == row.files
