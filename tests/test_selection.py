import jax.numpy as jnp
import numpy as np

import jpltd_jax as jj
from jpltd_jax.selection import LAMS, choose_lam, clarity, neighbours_kept


def test_clarity_is_the_eigengap_of_the_normalised_affinity():
    rng = np.random.default_rng(0)
    h = rng.random((6, 6))
    h = h + h.T
    root = 1 / np.sqrt(h.sum(1))
    values = np.linalg.eigvalsh(root[:, None] * h * root)[::-1]
    for c in range(1, 6):
        np.testing.assert_allclose(clarity(jnp.asarray(h), c), values[c - 1] - values[c], atol=1e-12)
    np.testing.assert_allclose(clarity(jnp.asarray(h), 6), values[5], atol=1e-12)


def fake(status, strength):
    blocks = jnp.kron(jnp.eye(2), jnp.ones((3, 3))) + (1 - strength)
    return jj.Result(blocks, jnp.asarray(status), jnp.asarray(1), None, None, None)


def test_unusable_results_never_win():
    statuses = {
        LAMS[0]: (jj.Status.EMPTY, 1.0),
        LAMS[1]: (jj.Status.NONFINITE, 1.0),
        LAMS[2]: (jj.Status.MAX_ITER, 0.5),
    }
    lam, result = choose_lam(lambda lam: fake(*statuses.get(lam, (jj.Status.MAX_ITER, 0.1))), lambda r: r.affinity, 2)
    assert lam == LAMS[2]
    assert int(result.status) == jj.Status.MAX_ITER


def test_no_more_neighbours_than_a_cluster_has_members():
    assert [neighbours_kept(20, 60, c) for c in (1, 3, 4, 59, 60)] == [20, 20, 15, 1, 1]
    assert neighbours_kept(None, 60, 4) is None
