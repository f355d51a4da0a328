"""All tables and figures, one after the other; what is finished in stores/ is not made again.

python experiments/reproduce.py DATA_DIRECTORY [--quick]
"""

import argparse
import subprocess
import sys
from pathlib import Path

TABLES = ("table2", "table3", "table2_baselines")
OTHERS = ("settings", "order_audit", "fig1", "fig3", "fig4", "fig5", "fig6")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="directory with NAME.npz of every set, and masks.npz if there is one")
    parser.add_argument("--quick", action="store_true", help="quick settings of the tables")
    args = parser.parse_args()
    for script in (*TABLES, *OTHERS):
        options = ["--quick"] if args.quick and script in TABLES else []
        print(f"== {script} {' '.join(options)}", flush=True)
        subprocess.run([sys.executable, Path(__file__).with_name(f"{script}.py"), args.data, *options], check=True)


if __name__ == "__main__":
    main()
