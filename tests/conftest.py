import os
from pathlib import Path

# Test workers share the cores; threads of their own would only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Most of the time of the tests goes to compilation, so it does not optimise.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0")

import hypothesis
import jax
import numpy as np
import pytest

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=300)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

DATA = Path(__file__).parent / "data"


@pytest.fixture(autouse=True)
def x64():
    """Tests run with x64 on and say which dtype they mean; doctests and subprocesses run as users do, without."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_programs():
    """Every compiled program takes memory maps, of which a process may have 65530: a module leaves none behind."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="session")
def reference_run():
    with np.load(DATA / "jpltd_reference_run.npz") as archive:
        return {name: archive[name] for name in archive.files}
