"""The block updates of JPLTD's ADMM, in closed form.

All but the projection's are exact minimisers of the augmented Lagrangian in their block.

Big tensors are laid out (view, sample, dictionary): ``G[v, i, j]`` is the weight of dictionary sample j in the
representation of sample i, the transpose of the paper's G^v. ``latent`` is M^v = W^v X^v (view, k, sample), zero on
missing samples, and so are E and the multiplier J1.
"""

import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Bool, Float

from jpltd_jax.prox import Scalar, shrink_columns, stiefel


def represent(
    latent: Float[Array, "m k n"], mask: Bool[Array, "m n"], graph: Float[Array, "m n n"]
) -> Float[Array, "m k n"]:
    """M A G A^T: every observed sample as the combination of the others that G says."""
    return jnp.where(mask[:, None, :], jnp.einsum("vkj,vij->vki", latent, graph), 0)


def update_projection(
    data: Float[Array, "m r n"],
    graph: Float[Array, "m n n"],
    target: Float[Array, "m k n"],
    current: Float[Array, "m k r"],
    active: Bool[Array, " k"] | None = None,
) -> Float[Array, "m k r"]:
    """argmax_W <target, W F1> over orthonormal frames W, with F1 = X - X A G A^T and target = E - J1 / rho.

    The polar factor of target F1^T = (target - target G) X^T, which never forms the (r, n) residual F1. Where that
    product is zero every frame is a maximiser and the current one is kept. Rows that are not ``active`` are zero.

    The subproblem is argmin_W ||W F1 - target||_F. The paper solves it as an orthogonal Procrustes problem, by this
    polar factor; that is the minimiser where ||W F1||_F is the same for all frames, that is for k >= d. For k < d it is
    not, and the augmented Lagrangian may rise in this block.
    """
    argument = (target - target @ graph) @ jnp.swapaxes(data, -1, -2)
    zero = jnp.all(argument == 0, axis=(-2, -1), keepdims=True)
    frame = jnp.where(zero, current, stiefel(argument))
    return frame if active is None else jnp.where(active[:, None], frame, 0)


def update_graph(
    latent: Float[Array, "m k n"],
    mask: Bool[Array, "m n"],
    target: Float[Array, "m k n"],
    split_target: Float[Array, "m n n"],
) -> tuple[Float[Array, "m n n"], Float[Array, "m k n"]]:
    """argmin_G ||target - M A G A^T||_F^2 + ||G - split_target||_F^2, and M A G A^T at that G.

    target = M - E + J1 / rho and split_target = B + P - J2 / rho. With S = I_k + M M^T and, on observed samples,
    Y = S^-1 (target - M split_target): G = split_target + M^T Y and M G = target - Y. One k x k Cholesky factor per
    view instead of the paper's n x n Sylvester equation.
    """
    k = latent.shape[1]
    gram = jnp.eye(k, dtype=latent.dtype) + latent @ jnp.swapaxes(latent, -1, -2)
    misfit = target - represent(latent, mask, split_target)
    y = cho_solve(cho_factor(gram), misfit)
    return split_target + jnp.einsum("vki,vkj->vij", y, latent), target - y


def update_error(target: Float[Array, "m k n"], rho: Scalar) -> Float[Array, "m k n"]:
    """argmin_E ||E||_{2,1} + rho/2 ||E - target||_F^2 with target = M - M A G A^T + J1 / rho."""
    return shrink_columns(target, 1 / rho)
