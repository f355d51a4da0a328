"""Every compiled program lowers for GPUs and TPUs: by JAX's export, which needs the platform's name but no device.

Lowering fails on an operation that JAX cannot express for a platform. What XLA's compiler for it lacks does not show
here; what is known of that is asserted: TPUs have no float64 for FFTs and decompositions.

All products of float32 numbers ask for full precision, which is not the default on either: distances cancel, iterates
are compared with tolerances below 1e-5, and eigenvectors of rounded Gram matrices are others. (In the programs for
GPUs; for TPUs JAX writes its own decompositions into them, which choose by themselves.)
"""

import importlib
import inspect
import re
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import jpltd_jax as jj
from jpltd_jax import graphs, linalg, metrics, pipeline, preparation, prox, quality, selection, spectral, tensor
from jpltd_jax.loop import Loop, as_dtype, begin, finish, prepare
from jpltd_jax.methods import JPLTD, METHODS
from jpltd_jax.sweeps import trunk
from jpltd_jax.transforms import Fourier, Grouped, Orthonormal
from tests.test_architecture import SOURCES

N, C, DIMS = 30, 3, (10, 8)
ROOT = Path(__file__).parents[2]
SOLVERS = {
    "cuda": {
        "cusolver_potrf_ffi": "Cholesky factor",
        "cusolver_syevd_ffi": "eigenvectors of symmetric matrices",
        "cusolver_gesvd_ffi": "singular vectors",
        "cusolver_gesvdj_ffi": "singular vectors of small matrices, by Jacobi's method",
        "cusolver_geqrf_ffi": "QR factors",
        "cusolver_orgqr_ffi": "the Q of QR factors",
        "cusolver_getrf_ffi": "LU factors",
        "cu_lu_pivots_to_permutation": "the permutation of LU factors",
    },
    "tpu": {
        "Eigh": "eigenvectors of symmetric matrices of at most 256 rows, by Jacobi's method; larger ones are split",
        "Qr": "QR factors",
        "ProductOfElementaryHouseholderReflectors": "the Q of QR factors",
        "LuDecomposition": "LU factors",
    },
}
"""Custom calls, all among those that JAX guarantees to keep: export refuses others, and no check of it is turned off.

On GPUs they are kernels of jaxlib that call cuSOLVER, on TPUs names that XLA's compiler for TPUs expands itself. SVDs
there are QDWH polar factors and ``Eigh``; Cholesky factors, triangular solves and FFTs are operations of StableHLO.
"""

LOW = re.compile(r"stablehlo\.dot_general(?!.*precision = \[HIGHEST, HIGHEST\]).*")
"""A product that a GPU may compute with 10 bits, and a TPU with 8."""

DOUBLE = re.compile(r"[<x]f64[>,]|complex<f64>")


@pytest.fixture(autouse=True)
def x64():
    """As users run it, without; and methods that need it turn it on themselves."""
    with jax.enable_x64(False):
        yield


def floats(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def integers(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def flags(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.bool_)


KEY = jax.eval_shape(lambda: jax.random.key(0))
NUMBER = floats()


def problem_of(n=N, anchors=None):
    data, mask = floats(len(DIMS), max(DIMS), n), flags(len(DIMS), n)
    return jj.Problem(data, mask, (None,) * len(DIMS), None if anchors is None else integers(anchors), DIMS)


def hyper_of(method):
    return jax.eval_shape(lambda: as_dtype(method.Hyper(), jnp.float64 if method.needs_x64 else jnp.float32))


def lowered(platform, function, *arguments):
    """StableHLO of a function for a platform, and the custom calls in it."""
    text = jax.export.export(jax.jit(function), platforms=[platform])(*arguments).mlir_module()
    return text, set(re.findall(r"custom_call @([\w.$]+)", text))


def labels(key, problem, hyper, config, method=JPLTD):
    return jj.cluster(key, problem, hyper, C, config, method=method).labels


def learned(problem, hyper, config, kind="while"):
    return jj.solve(problem, hyper, config, loop=Loop(kind=kind))


def fitted(problem):
    found = jj.cluster(jax.random.key(0), problem, jj.Hyper(), C)
    return pipeline.Model.of(problem, jj.ORDER_FREE, found)


def prepared(name, x, present):
    return preparation.fit_preparation(name, x, present)(x)


def shared(problem, hyper):
    data = prepare(JPLTD, problem, C)
    return trunk.shared_step(JPLTD, data, hyper, begin(JPLTD, data, hyper, jax.random.key(0), 64))


PROBLEM, ANCHORED, HYPER = problem_of(), problem_of(anchors=12), hyper_of(JPLTD)
SQUARE, TENSOR = floats(N, N), floats(2, N, N)
SCORES = ("accuracy", "nmi", "ari", "purity", "precision", "recall", "f_score", "scores")
PROGRAMS = {
    "cluster": (partial(labels, config=None), KEY, PROBLEM, HYPER),
    "cluster of PUBLISHED": (partial(labels, config=jj.PUBLISHED), KEY, PROBLEM, HYPER),
    "cluster of anchors": (partial(labels, config=None), KEY, ANCHORED, HYPER),
    "cluster of many": (partial(labels, config=None), KEY, problem_of(2000), HYPER),
    "solve": (partial(learned, config=jj.ORDER_FREE), PROBLEM, HYPER),
    "solve of PUBLISHED": (partial(learned, config=jj.PUBLISHED), PROBLEM, HYPER),
    "gradient of solve": (
        jax.grad(lambda hyper, problem: jnp.sum(learned(problem, hyper, jj.ORDER_FREE, "scan").affinity)),
        HYPER,
        PROBLEM,
    ),
    "spectral_cluster": (partial(spectral.spectral_cluster, n_clusters=C), KEY, SQUARE),
    "spectral_cluster of anchors": (partial(spectral.spectral_cluster, n_clusters=C), KEY, floats(N, 12)),
    "spectral_cluster of many": (partial(spectral.spectral_cluster, n_clusters=C), KEY, floats(1200, 1200)),
    "kmeans": (partial(spectral.kmeans, n_clusters=C), KEY, floats(N, C)),
    "quality": (partial(quality.quality, n_clusters=C), PROBLEM, TENSOR, integers(N)),
    "clarity": (partial(selection.clarity, n_clusters=C), SQUARE),
    "margins": (pipeline.margins, floats(N, C), floats(C, C)),
    "nearest_center": (pipeline.nearest_center, floats(7, C), floats(C, C)),
    "place": (pipeline.place, jax.eval_shape(fitted, PROBLEM), problem_of(7)),
    "assign": (pipeline.assign, jax.eval_shape(fitted, PROBLEM), problem_of(7)),
    "agreements": (preparation.agreements, [floats(N, d) for d in DIMS], flags(N, 2)),
    "choose": (preparation.choose, preparation.Agreement(floats(2, 5, 2, 5), floats(2, 5, 2, 5))),
    **{f"preparation {name}": (partial(prepared, name), floats(N, 10), flags(N)) for name in preparation.PREPARATIONS},
    **{name: (partial(getattr(metrics, name), n_labels=C), integers(N), integers(N)) for name in SCORES},
    "view_graphs": (graphs.view_graphs, PROBLEM),
    "anchor_graphs": (graphs.anchor_graphs, ANCHORED),
    "consensus_graph": (graphs.consensus_graph, PROBLEM),
    "completed": (graphs.completed, PROBLEM, SQUARE),
    "completed_graph": (graphs.completed_graph, PROBLEM, SQUARE),
    "nearest_rows": (graphs.nearest_rows, problem_of(7), PROBLEM),
    "within_reach": (partial(graphs.within_reach, n_neighbors=5), SQUARE, PROBLEM),
    "graph_transform": (graphs.graph_transform, SQUARE),
    "soft_threshold": (prox.soft_threshold, SQUARE, NUMBER),
    "shrink_columns": (prox.shrink_columns, SQUARE, NUMBER),
    "singular_value_threshold": (prox.singular_value_threshold, floats(10, 8), NUMBER),
    "stiefel": (prox.stiefel, floats(2, 5, 8)),
    "simplex": (prox.simplex, SQUARE, flags(N, N)),
    "power_shrink": (prox.power_shrink, floats(9), NUMBER, NUMBER),
    "power_threshold": (prox.power_threshold, NUMBER, NUMBER),
    "schatten_shrink": (prox.schatten_shrink, TENSOR, NUMBER, NUMBER),
    "tubal_shrink": (prox.tubal_shrink, TENSOR, NUMBER, Fourier()),
    "tubal_shrink in a basis": (prox.tubal_shrink, TENSOR, NUMBER, Orthonormal(SQUARE)),
    "tubal_shrink in groups": (prox.tubal_shrink, TENSOR, NUMBER, Grouped(floats(N, 9), integers(9))),
    "t_svd": (tensor.t_svd, TENSOR),
    "tensor_nuclear_norm": (tensor.tensor_nuclear_norm, TENSOR),
    "polar_factor": (linalg.polar_factor, floats(2, 5, 8)),
    "derivative of polar_factor": (jax.grad(lambda v: linalg.polar_factor(v)[0, 0]), floats(5, 8)),
    "shared_step": (shared, PROBLEM, HYPER),
}

every_platform = pytest.mark.parametrize("platform", SOLVERS)


@every_platform
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_lowers(name, platform):
    text, calls = lowered(platform, *PROGRAMS[name])
    assert calls <= SOLVERS[platform].keys()
    assert not DOUBLE.search(text), "float32 was asked for"
    assert platform == "tpu" or not LOW.findall(text), "say precision='highest'"


def test_no_compiled_function_is_left_out():
    compiled = type(jax.jit(lambda: 0))
    for name in SOURCES:
        if name in ("__init__", "__main__", "loop") or name.startswith(("methods.", "cli")):
            continue
        module = importlib.import_module(f"jpltd_jax.{name}")
        for public in module.__all__:
            function = getattr(module, public)
            if isinstance(function, compiled) and inspect.unwrap(function).__module__ == module.__name__:
                assert public in PROGRAMS, f"{public} of {name} is compiled: add it to PROGRAMS"


def parts(method):
    """Name, function and arguments of everything that a record has compiled, and of the pipeline around it."""
    problem, hyper = problem_of(), hyper_of(method)
    made = jax.eval_shape(lambda problem: prepare(method, problem, C), problem)
    state = jax.eval_shape(method.init, KEY, made, hyper)
    carry = jax.eval_shape(lambda *a: begin(method, *a, 64), made, hyper, KEY)
    yield "prepare", lambda problem: prepare(method, problem, C), problem
    yield "init", method.init, KEY, made, hyper
    yield "step", method.step, made, hyper, state
    yield "readout", method.readout, made, state
    yield "finish", lambda data, carry: finish(method, data, carry, 5), made, carry
    yield "cluster", lambda *a: labels(*a, None, method), KEY, problem, hyper


@every_platform
@pytest.mark.parametrize("name", METHODS)
def test_method_lowers(name, platform):
    method = METHODS[name]
    with method.precision():
        for part, function, *arguments in parts(method):
            text, calls = lowered(platform, function, *arguments)
            assert calls <= SOLVERS[platform].keys(), part
            assert bool(DOUBLE.search(text)) == method.needs_x64, part
            assert method.needs_x64 or platform == "tpu" or not LOW.findall(text), part


def test_the_limits_say_which_methods_tpus_lack():
    """XLA for TPUs refuses complex128 and decomposes no float64, so what needs them has no place there."""
    points = (ROOT / "docs/limits.md").read_text().split("\n- ")
    (point,) = [one for one in points if one.startswith("**TPUs have no float64**")]
    for method in METHODS.values():
        assert (method.title in point) == method.needs_x64, method.title


def test_what_a_platform_lacks_is_noticed():
    with pytest.raises(NotImplementedError, match="not found for platform tpu"):
        lowered("tpu", jnp.linalg.eigvals, SQUARE)
    with pytest.raises(NotImplementedError, match="not found for platform cuda"):
        lowered("cuda", jax.scipy.linalg.schur, SQUARE)
