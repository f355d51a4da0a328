import os
from importlib.metadata import version
from pathlib import Path

# Test workers share the cores; threads of their own would only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Tests of many devices run in the same process. A device that waits for the others holds its thread, hence NPROC.
os.environ.setdefault("NPROC", "8")
# Most of the time of the tests goes to compilation, so it does not optimise. One CI pass does: it sets XLA_FLAGS.
NOT_OPTIMISED = "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0"
if version("jaxlib").startswith("0.10."):  # five times as fast; XLA aborts at a flag that it does not know
    NOT_OPTIMISED += " --xla_cpu_use_fusion_emitters=false"
FOUR_DEVICES = "--xla_force_host_platform_device_count=4"
flags = os.environ.get("XLA_FLAGS", NOT_OPTIMISED)
os.environ["XLA_FLAGS"] = flags if FOUR_DEVICES.partition("=")[0] in flags else f"{flags} {FOUR_DEVICES}"

# Compiled programs are kept for the next run of the tests, which then takes a third of the time; one folder per worker,
# which inherits the environment of the process that started it.
KEPT = os.environ.setdefault("JPLTD_TEST_PROGRAMS", str(Path(__file__).parents[1] / ".pytest_cache" / "jax"))
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(KEPT, os.environ.get("PYTEST_XDIST_WORKER", "main")))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import hypothesis
import jax
import numpy as np
import pytest

hypothesis.settings.register_profile("local", deadline=None, derandomize=True, max_examples=10)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=300)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "local"))

DATA = Path(__file__).parent / "data"
MAPS = Path("/proc/self/maps")
MOST_MAPS = 20_000


@pytest.fixture(autouse=True)
def x64():
    """Tests run with x64 on and say which dtype they mean; doctests and subprocesses run as users do, without."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_programs():
    """Every compiled program takes memory maps, of which a process may have 65530; modules share what fits."""
    yield
    if MAPS.exists() and len(MAPS.read_bytes().splitlines()) > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture(scope="session")
def reference_run():
    with np.load(DATA / "jpltd_reference_run.npz") as archive:
        return {name: archive[name] for name in archive.files}
