"""The block updates of JPLTD's ADMM, in closed form.

All but the projection's are exact minimisers of the augmented Lagrangian in their block.

Big tensors are laid out (view, sample, dictionary): ``G[v, i, j]`` is the weight of dictionary sample j in the
representation of sample i, the transpose of the paper's G^v. M^v = W^v X^v (view, k, sample) is zero on missing
samples, and so are E and the multiplier J1. The dictionary is all samples, as in the paper, or some of them (anchors).
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jpltd_jax.prox import Scalar, inverse_cholesky, shrink_columns, stiefel


def represent(
    dictionary: Float[Array, "m k a"], mask: Bool[Array, "m n"], graph: Float[Array, "m n a"]
) -> Float[Array, "m k n"]:
    """D G A^T: every observed sample as the combination of dictionary samples that G says; D is M A if they are all."""
    return jnp.where(mask[:, None, :], jnp.einsum("vkj,vij->vki", dictionary, graph), 0)


def update_projection(
    data: Float[Array, "m r n"],
    graph: Float[Array, "m n a"],
    target: Float[Array, "m k n"],
    current: Float[Array, "m k r"],
    *,
    dictionary: Float[Array, "m r a"] | None = None,
    active: Bool[Array, " k"] | None = None,
) -> Float[Array, "m k r"]:
    """argmax_W <target, W F1> over orthonormal frames W, with F1 = X - C G A^T and target = E - J1 / rho.

    C is the ``dictionary``, by default X A. The polar factor of target F1^T = target X^T - (target G) C^T, which never
    forms the (r, n) residual F1. Where that product is zero every frame is a maximiser and the current one is kept.
    Rows that are not ``active`` are zero.

    The subproblem is argmin_W ||W F1 - target||_F. The paper solves it as an orthogonal Procrustes problem, by this
    polar factor; that is the minimiser where ||W F1||_F is the same for all frames, that is for k >= d. For k < d it is
    not, and the augmented Lagrangian may rise in this block.
    """
    gathered = target @ graph
    if dictionary is None:
        argument = (target - gathered) @ jnp.swapaxes(data, -1, -2)
    else:
        argument = target @ jnp.swapaxes(data, -1, -2) - gathered @ jnp.swapaxes(dictionary, -1, -2)
    zero = jnp.all(argument == 0, axis=(-2, -1), keepdims=True)
    frame = jnp.where(zero, current, stiefel(argument))
    return frame if active is None else jnp.where(active[:, None], frame, 0)


def update_graph(
    dictionary: Float[Array, "m k a"],
    mask: Bool[Array, "m n"],
    target: Float[Array, "m k n"],
    split_target: Float[Array, "m n a"],
) -> tuple[Float[Array, "m n a"], Float[Array, "m k n"]]:
    """argmin_G ||target - D G A^T||_F^2 + ||G - split_target||_F^2, and D G A^T at that G.

    D is the projected dictionary, target = M - E + J1 / rho and split_target = B + P - J2 / rho. With S = I_k + D D^T
    and, on observed samples, Y = S^-1 (target - D split_target): G = split_target + D^T Y and D G = target - Y. One
    k x k Cholesky factor per view instead of the paper's n x n Sylvester equation.
    """
    eye = jnp.eye(dictionary.shape[1], dtype=dictionary.dtype)
    factor = inverse_cholesky(eye + dictionary @ jnp.swapaxes(dictionary, -1, -2))
    inverse = jnp.swapaxes(factor, -1, -2) @ factor
    y = inverse @ (target - represent(dictionary, mask, split_target))
    return split_target + jnp.einsum("vki,vkj->vij", y, dictionary), target - y


def update_error(target: Float[Array, "m k n"], rho: Scalar) -> Float[Array, "m k n"]:
    """argmin_E ||E||_{2,1} + rho/2 ||E - target||_F^2 with target = M - M A G A^T + J1 / rho."""
    return shrink_columns(target, 1 / rho)
