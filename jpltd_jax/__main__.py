"""``python -m jpltd_jax`` is ``jpltd``."""

import sys

from jpltd_jax.cli import main

if __name__ == "__main__":
    sys.exit(main())
