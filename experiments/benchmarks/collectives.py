"""What devices exchange in one iteration of a sharded problem: bytes by operation, from the compiled program.

    python experiments/benchmarks/collectives.py

Three views of at most 100 features, latent_dim 60, 300 eigenvectors, float32, on simulated devices. Programs are
compiled from shapes and not run, so any size fits. Prints the table of docs/limits.md.
"""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jpltd_jax as jj
from jpltd_jax.methods import jpltd
from jpltd_jax.sharding import collectives
from jpltd_jax.transforms import Fourier, Grouped, Sharded, Transform

VIEWS, FEATURES = 3, 100


def exchanged(n: int, anchors: int | None, devices: int, config: jj.Config) -> dict[str, int]:
    """Bytes by operation of one step."""
    mesh = Mesh(np.array(jax.devices()[:devices]), ("samples",))
    a = n if anchors is None else anchors

    def array(*shape: int, axis: int | None = None, dtype: type = jnp.float32) -> jax.ShapeDtypeStruct:
        spec = P() if axis is None else P(*[None] * axis, "samples")
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    large, small = array(VIEWS, n, a, axis=1), array(VIEWS, config.latent_dim, n, axis=2)
    problem = jj.Problem(
        array(VIEWS, FEATURES, n, axis=2),
        array(VIEWS, n, axis=1, dtype=jnp.bool_),
        (None,) * VIEWS,
        None if anchors is None else array(a, dtype=jnp.int32),
        (FEATURES,) * VIEWS,
        mesh,
    )
    transform: Transform = Fourier()
    if config.transform == "graph":
        vectors = min(a, config.n_vectors or a)
        transform = Grouped(array(a, vectors), array(vectors, dtype=jnp.int32))
    state = jpltd.State(array(VIEWS, config.latent_dim, FEATURES), large, small, large, large, small, large, array())
    data = jpltd.Data(problem, Sharded(transform, mesh), config=config)
    hyper = jax.tree.map(lambda _: array(), jj.Hyper())
    return collectives(jpltd.step.lower(data, hyper, state).compile())


def main() -> None:
    print("| samples | anchors | devices | transform | sums | gathered | one view of G |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for n in (1000, 10000):
        for anchors in (None, 500):
            for devices in (4, 8):
                for config in (jj.ORDER_FREE, jj.PUBLISHED):
                    found = exchanged(n, anchors, devices, config)
                    sums, gathered = found.pop("all-reduce", 0), found.pop("all-gather", 0)
                    assert not found, found
                    sizes = [f"{size / 1e6:.2f} MB" for size in (sums, gathered, 4 * n * (anchors or n))]
                    cells = [f"{n:,}", anchors or "none", devices, config.transform, *sizes]
                    print("|", " | ".join(map(str, cells)), "|", flush=True)


if __name__ == "__main__":
    main()
