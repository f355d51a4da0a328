"""The verifiers must condemn wrong operators, not only bless right ones."""

import jax.numpy as jnp
import numpy as np
import pytest

from jpltd_jax import optimality, prox

V = np.random.default_rng(0).normal(size=(4, 3))


def soft_threshold(v, tau):
    return np.asarray(prox.soft_threshold(v, tau))


def clip(v, tau):
    return np.clip(v, -1, 1)


def l1(x):
    return np.abs(x).sum()


WRONG = {
    "identity": lambda v, tau: v,
    "zero": lambda v, tau: 0 * v,
    "twice the threshold": lambda v, tau: soft_threshold(v, 2 * tau),
    "hard threshold": lambda v, tau: np.where(np.abs(v) > tau, v, 0),
}
every_wrong_one = pytest.mark.parametrize("name", WRONG)
CANDIDATES = [np.zeros_like(V), V, V - np.clip(V, -0.3, 0.3), -V]


def test_all_bless_the_right_operator():
    assert max(optimality.variational_gap(l1, soft_threshold, V, 0.3, y) for y in CANDIDATES) <= 1e-14
    assert optimality.moreau_gap(soft_threshold, clip, V, 0.3) <= 1e-14
    assert optimality.fixed_point_gap(soft_threshold, V, 0.3, 0.9) <= 1e-14
    assert optimality.firmness_gap(soft_threshold, V, V + 0.01, 0.3) <= 1e-14


@every_wrong_one
def test_variational_gap_condemns(name):
    assert max(optimality.variational_gap(l1, WRONG[name], V, 0.3, y) for y in CANDIDATES) > 1e-3


@every_wrong_one
def test_moreau_gap_condemns(name):
    assert optimality.moreau_gap(WRONG[name], clip, V, 0.3) > 1e-3


def test_fixed_point_gap_condemns():
    assert optimality.fixed_point_gap(lambda v, tau: v / 2, V, 0.3, 0.9) > 1e-3
    assert optimality.fixed_point_gap(lambda v, tau: 0.9 * v, V, 1.0, 0.0) > 1e-3


def test_variational_gap_condemns_a_projection_that_moves_what_is_inside():
    onto_the_sphere = lambda v, tau: v / np.linalg.norm(v)  # noqa: E731
    assert optimality.variational_gap(lambda x: jnp.asarray(0.0), onto_the_sphere, 0.1 * V, 1.0, 0.1 * V) > 1e-3


def test_firmness_gap_condemns():
    assert optimality.firmness_gap(lambda v, tau: 2 * v, V, V + 0.01, 0.3) > 0
    assert optimality.firmness_gap(lambda v, tau: -v, V, V + 0.01, 0.3) > 0
