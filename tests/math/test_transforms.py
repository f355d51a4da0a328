from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jpltd_jax import prox, tensor
from jpltd_jax.transforms import Fourier, Grouped, Orthonormal, Sharded, SliceTransform
from tests.math import oracles
from tests.math.derivatives import Derivatives
from tests.strategies import orthonormal


@jax.tree_util.register_static
@dataclass(frozen=True)
class Cosine(SliceTransform):
    """A user's own transform, as the docstring of the module says how to write one."""

    def slices(self, x):
        return jax.scipy.fft.dct(x, norm="ortho") * x.shape[-1] ** 0.5

    def join(self, y, n):
        return jax.scipy.fft.idct(y, norm="ortho") / n**0.5

    def weights(self, n):
        return jnp.ones(n)


def cosine_basis(n):
    return scipy.fft.dct(np.eye(n), norm="ortho")


GROUPS = {4: np.array([0, 3, 1, 3]), 5: np.array([0, 0, 2, 2, 4])}
PART = np.array([0, 1, 1])
TRANSFORMS = {
    "Fourier": (lambda n: Fourier(), oracles.fourier_blocks),
    "Orthonormal": (lambda n: Orthonormal(orthonormal(0, n, n)), lambda n: oracles.basis_blocks(orthonormal(0, n, n))),
    "Grouped, complete": (
        lambda n: Grouped(orthonormal(0, n, n), GROUPS[n]),
        lambda n: oracles.grouped_blocks(orthonormal(0, n, n), GROUPS[n]),
    ),
    "Grouped": (
        lambda n: Grouped(orthonormal(0, n, 3), PART),
        lambda n: oracles.grouped_blocks(orthonormal(0, n, 3), PART),
    ),
    "Cosine": (lambda n: Cosine(), lambda n: oracles.basis_blocks(cosine_basis(n))),
}
CASES = [(name, shape) for name in TRANSFORMS for shape in [(2, 3, 4), (4, 2, 5)][: 1 if name == "Cosine" else 2]]
every_transform = pytest.mark.parametrize(("name", "shape"), CASES)
invertible = pytest.mark.parametrize(("name", "shape"), [case for case in CASES if case[0] != "Grouped"])


@jax.jit
def everything(x, transform):
    """Slices, what they join to, Gram matrices, the way back with them, singular values, weights."""
    slices = transform.slices(x)
    grams, back = transform.grams(x)
    return {
        "slices": slices,
        "joined": transform.join(slices, x.shape[-1]),
        "grams": grams,
        "cubed": back(grams),
        "singular values": transform.singular_values(x),
        "weights": transform.weights(x.shape[-1]),
    }


def of_a_random_tensor(name, shape):
    x = np.random.default_rng(0).normal(size=shape)
    make, blocks = TRANSFORMS[name]
    return x, jax.tree.map(np.asarray, everything(x, make(shape[2]))), blocks(shape[2])


@invertible
def test_transform_keeps_norms_and_inverts(name, shape):
    x, made, _ = of_a_random_tensor(name, shape)
    n = shape[2]
    np.testing.assert_allclose(made["joined"], x, atol=1e-13)
    weights = np.asarray(made["weights"], np.float64)
    energy = (np.abs(made["slices"]) ** 2 @ weights).sum() / n
    np.testing.assert_allclose(energy, (x**2).sum(), rtol=1e-12)
    assert weights.sum() == n


@every_transform
def test_singular_values_are_those_of_the_slices(name, shape):
    """Every one as often as the weights say; what a slice has beyond its rank is zero, to the root of rounding."""
    x, made, blocks = of_a_random_tensor(name, shape)
    weights = made["weights"].astype(int)
    values = np.sort(np.repeat(made["singular values"], weights, axis=0).ravel())[::-1]
    expected = np.sort(np.concatenate(oracles.singular_values(x, blocks)))[::-1]
    np.testing.assert_allclose(values[: len(expected)], expected, atol=1e-7)
    np.testing.assert_allclose(values[len(expected) :], 0, atol=1e-6)


@every_transform
def test_gram_matrices_and_the_way_back(name, shape):
    """Eigenvalues are the squares of singular values, and d -> (d d^H) d cubes them."""
    x, made, blocks = of_a_random_tensor(name, shape)
    cubed = oracles.map_singular_values(x, blocks, lambda s: s**3)
    np.testing.assert_allclose(made["cubed"], cubed, atol=1e-11 * np.abs(cubed).max())


def test_slices_are_those_of_numpy_and_scipy():
    x, made, _ = of_a_random_tensor("Fourier", (4, 2, 5))
    np.testing.assert_allclose(made["slices"], np.fft.rfft(x), atol=1e-13)
    np.testing.assert_array_equal(made["weights"], [1, 2, 2])
    x, made, _ = of_a_random_tensor("Cosine", (2, 3, 4))
    np.testing.assert_allclose(made["slices"], scipy.fft.dct(x, norm="ortho") * 2, atol=1e-13)


@pytest.mark.parametrize("shape", [(2, 3, 1), (3, 3, 2), (1, 4, 6), (10, 9, 4), (2, 17, 3)])
def test_fourier_of_every_shape(shape):
    """Two real rows travel as one complex row: odd and even numbers of them, more than are summed at once."""
    x, made, blocks = of_a_random_tensor("Fourier", shape)
    np.testing.assert_allclose(made["joined"], x, atol=1e-13)
    cubed = oracles.map_singular_values(x, blocks, lambda s: s**3)
    np.testing.assert_allclose(made["cubed"], cubed, atol=1e-11 * np.abs(cubed).max())
    d = np.moveaxis(np.fft.rfft(x), -1, 0)
    d = d if shape[0] <= shape[1] else d.swapaxes(1, 2)
    grams = np.moveaxis(d @ d.conj().swapaxes(1, 2), 0, -1)
    np.testing.assert_allclose(made["grams"], grams, atol=1e-12 * np.abs(grams).max())


def test_identity_and_random_bases_are_orthonormal():
    make = jax.jit(lambda seed: (Orthonormal.identity(4, jnp.float64), Orthonormal.random(jax.random.key(seed), 4)))
    identity, random = (np.asarray(transform.basis) for transform in make(0))
    np.testing.assert_array_equal(identity, np.eye(4), strict=True)
    np.testing.assert_allclose(random.T @ random, np.eye(4), atol=1e-6)


def test_all_fourier_transforms_are_one():
    assert Fourier() == Fourier()
    assert hash(Fourier()) == hash(Fourier())
    assert jax.tree.leaves(Fourier()) == []


# A user's own -------------------------------------------------------------------------------------------------------


def test_operators_under_a_users_own_transform():
    x, blocks = 3 * np.random.default_rng(1).normal(size=(2, 3, 4)), oracles.basis_blocks(cosine_basis(4))
    shrunk = oracles.map_singular_values(x, blocks, lambda s: np.maximum(s - 0.7, 0))
    np.testing.assert_allclose(prox.tubal_shrink(x, np.float64(0.7), Cosine()), shrunk, atol=1e-12)

    @jax.jit
    def norm_and_rotated(x):
        u, s, _ = tensor.t_svd(x, transform=Cosine())
        return tensor.tensor_nuclear_norm(x, transform=Cosine()), tensor.t_product(u, s, transform=Cosine())

    norm, rotated = map(np.asarray, norm_and_rotated(x))
    np.testing.assert_allclose(norm, oracles.nuclear_norm(x, blocks), rtol=1e-13)
    for part, of_x in zip(oracles.slices(rotated, blocks), oracles.slices(x, blocks), strict=True):
        np.testing.assert_allclose(part @ part.T, of_x @ of_x.T, atol=1e-11)


def test_gradient_under_a_users_own_transform():
    of_shrink = Derivatives(lambda v, tau: prox.tubal_shrink(v, tau, Cosine()))
    of_shrink.check(3 * np.random.default_rng(1).normal(size=(2, 3, 4)), np.float64(0.7))
    assert of_shrink.are_finite(np.zeros((2, 3, 4)), np.float64(0.7))


def test_what_a_users_own_transform_must_define_is_named():
    class Empty(SliceTransform):
        pass

    for name, arguments in (("slices", (np.ones(3),)), ("join", (np.ones(3), 3)), ("weights", (3,))):
        with pytest.raises(TypeError, match=f"Empty does not define {name}"):
            getattr(Empty(), name)(*arguments)


# Many devices -------------------------------------------------------------------------------------------------------


@pytest.fixture
def mesh():
    if len(jax.devices()) < 4:
        pytest.skip("needs four devices")
    return Mesh(np.array(jax.devices()[:4]), ("rows",))


@pytest.mark.parametrize("q", [12, 4])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_rows_on_many_devices(mesh, name, q):
    """An odd number of rows on each device, and fewer than there are matrices."""
    x = np.random.default_rng(0).normal(size=(2, q, 4))
    make, blocks = TRANSFORMS[name]
    spread = jax.device_put(x, NamedSharding(mesh, P(None, "rows")))
    made = everything(spread, Sharded(make(4), mesh))
    plain = everything(x, make(4))
    for part in ("slices", "joined", "grams", "weights"):
        np.testing.assert_allclose(made[part], plain[part], atol=1e-12, err_msg=part)
    cubed = oracles.map_singular_values(x, blocks(4), lambda s: s**3)
    np.testing.assert_allclose(made["cubed"], cubed, atol=1e-11 * np.abs(cubed).max())
    np.testing.assert_allclose(
        np.sort(made["singular values"])[:, -2:], np.sort(plain["singular values"])[:, -2:], atol=1e-7
    )
    if q == 12:
        assert made["cubed"].sharding.spec == P(None, "rows")


def test_gradient_and_batches_on_many_devices(mesh):
    x, taus = 3 * np.random.default_rng(1).normal(size=(2, 12, 4)), np.array([0.3, 0.7])

    @jax.jit
    def slopes(x, transform):
        def total(x, tau):
            return jnp.sum(prox.tubal_shrink(x, tau, transform) ** 3)

        return jax.vmap(jax.grad(total, (0, 1)), (None, 0))(x, taus)

    spread = jax.device_put(x, NamedSharding(mesh, P(None, "rows")))
    for many, one in zip(slopes(spread, Sharded(Fourier(), mesh)), slopes(x, Fourier()), strict=True):
        np.testing.assert_allclose(many, one, rtol=1e-9, atol=1e-9)
