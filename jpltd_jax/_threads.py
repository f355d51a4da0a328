"""Give XLA's CPU client enough threads, before it is made.

On a CPU, XLA runs independent operations in one pool of threads, by default one per core, and a batched LAPACK call in
one of them waits for tasks that it puts into the same pool. On a machine with two cores both threads can wait at once,
for ever (seen with jaxlib 0.10.2 in a QR factorisation beside a triangular solve). The environment variable NPROC sets
the size of the pool. It is left alone where it is set, and has no effect if JAX was used before this package was
imported.
"""

import os

__all__ = ["FEWEST"]

FEWEST = 8
"""Threads of the pool on machines with fewer cores."""

if (os.cpu_count() or 1) < FEWEST:
    os.environ.setdefault("NPROC", str(FEWEST))
