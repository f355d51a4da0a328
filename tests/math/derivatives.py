"""Compiled derivatives of an operator, and their comparison with finite differences."""

import jax
import numpy as np
from jax.test_util import check_jvp, check_vjp

ACCURACY = {"atol": 1e-6, "rtol": 1e-6}


class Derivatives:
    """Forward and reverse mode, compiled once per shape."""

    def __init__(self, operator):
        self.operator = operator
        self.forward = jax.jit(lambda primals, tangents: jax.jvp(operator, primals, tangents))
        self.pulled = jax.jit(lambda primals, cotangent: jax.vjp(operator, *primals)[1](cotangent))

    def reverse(self, *primals):
        """The value and the function from cotangents to gradients, as jax.vjp."""
        return self.operator(*primals), lambda cotangent: self.pulled(primals, cotangent)

    def check(self, *primals):
        check_jvp(self.operator, self.forward, primals, **ACCURACY)
        check_vjp(self.operator, self.reverse, primals, **ACCURACY)

    def are_finite(self, *primals):
        cotangent = np.random.default_rng(0).normal(size=np.shape(primals[0]))
        return all(np.isfinite(gradient).all() for gradient in self.pulled(primals, cotangent))
