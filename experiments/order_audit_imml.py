"""The order audit of two methods that are not ours, NEMO and PIMVC of iMML, which run as programs of their own.

    python experiments/order_audit_imml.py DATA_DIRECTORY

The same samples, mask, orders and seeds as in order_audit.py; the methods are started by ``imml_program.py``, and see
files only. ``pip install imml``. Writes order_audit_imml.csv, and order_audit.md with the rows of both scripts.
"""

import shlex
import sys

from figures import data_directory
from order_audit import audited, write_page
from protocol import HERE, load_case
from tables import write_csv

from jpltd_jax.audit import from_command

METHODS = ("NEMO", "PIMVC")


def main() -> None:
    data_directory(__doc__)
    case = load_case("msrcv1", 0.5, "file")
    program = shlex.join([sys.executable, str(HERE / "imml_program.py")])
    commands = {name: f"{program} {name} {case.n_clusters} {{input}} {{output}}" for name in METHODS}
    rows = [
        audited(f"{name} (iMML)", case, from_command(command, timeout=600))[1] for name, command in commands.items()
    ]
    write_csv(HERE / "order_audit_imml.csv", rows)
    write_page()


if __name__ == "__main__":
    main()
