"""The verifiers must condemn wrong operators, not only bless right ones."""

import jax.numpy as jnp
import numpy as np
import pytest

from jpltd_jax import optimality, prox

V = np.random.default_rng(0).normal(size=(4, 3))
WRONG = {
    "identity": lambda v, tau: v,
    "zero": lambda v, tau: 0 * v,
    "twice the threshold": lambda v, tau: prox.soft_threshold(v, 2 * tau),
    "hard threshold": lambda v, tau: jnp.where(jnp.abs(v) > tau, v, 0),
}


def l1(x):
    return jnp.abs(x).sum()


@pytest.mark.parametrize("name", WRONG)
def test_variational_gap_condemns(name):
    candidates = [jnp.zeros_like(V), V, prox.soft_threshold(V, 0.3), -V]
    gaps = [optimality.variational_gap(l1, WRONG[name], V, 0.3, y) for y in candidates]
    assert max(gaps) > 1e-3


@pytest.mark.parametrize("name", WRONG)
def test_moreau_gap_condemns(name):
    assert optimality.moreau_gap(WRONG[name], lambda v, tau: jnp.clip(v, -1, 1), V, 0.3) > 1e-3


def test_fixed_point_gap_condemns():
    assert optimality.fixed_point_gap(lambda v, tau: v / 2, V, 0.3, 0.9) > 1e-3
    ball_wrong = lambda v, tau: v / jnp.linalg.norm(v)  # noqa: E731 (also scales points inside the ball)
    assert optimality.fixed_point_gap(lambda v, tau: 0.9 * v, V, 1.0, 0.0) > 1e-3
    assert optimality.variational_gap(lambda x: jnp.asarray(0.0), ball_wrong, 0.1 * V, 1.0, 0.1 * V) > 1e-3


def test_firmness_gap_condemns():
    w = V + 0.01
    assert optimality.firmness_gap(lambda v, tau: 2 * v, V, w, 0.3) > 0
    assert optimality.firmness_gap(lambda v, tau: -v, V, w, 0.3) > 0
