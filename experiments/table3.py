"""Table 3, the ablations: JPLTD without projection (N), without sparse tensor (B), with neither (O), and whole.

    python experiments/table3.py DATA_DIRECTORY [--quick] [--grid ...] [--sets ...] [--rates ...] [--masks N]

As table2.py, whose finished configurations it shares. Writes table3.csv and table3.md beside this script, and says
where the paper's ordering, JPLTD above N and B and these above O, holds.
"""

from typing import Any

from protocol import HERE, ORDERS, arguments, cells
from tables import RUN, comparison, jpltd_protocol, markdown, merge_csv, paper_numbers, pooled

SETS = ("msrcv1", "ngs", "bbcsport")
VARIANTS = {"N": "JPLTD-N", "B": "JPLTD-B", "O": "JPLTD-O", "full": "JPLTD"}
PAIRS = (("full", "N"), ("full", "B"), ("N", "O"), ("B", "O"))


def orderings(rows: list[dict[str, Any]]) -> str:
    """For every pair that the paper orders: in how many cells ours agree, ties included, in each order of samples."""
    accuracy: dict[tuple, list] = {}
    for row in rows:
        accuracy.setdefault((row["set"], row["rate"], row["order"], row["variant"]), []).append(row)
    mean = {key: pooled(group, "accuracy").mean for key, group in accuracy.items()}
    lines = []
    for better, worse in PAIRS:
        line = [f"{VARIANTS[better]} ≥ {VARIANTS[worse]}"]
        for order in ORDERS:
            gaps = [
                value - mean[*key[:3], worse]
                for key, value in mean.items()
                if key[2:] == (order, better) and (*key[:3], worse) in mean
            ]
            held = sum(gap >= 0 for gap in gaps)
            line.append(f"{held} of {len(gaps)}, gap {min(gaps):.1f} to {max(gaps):.1f}" if gaps else "")
        lines.append(line)
    return markdown(["accuracy", "file order", "shuffled"], lines)


def main() -> None:
    args = arguments(__doc__, SETS, SETS)
    found = cells(args.sets, args.rates, list(VARIANTS), args.grid, args.masks)
    rows = merge_csv(HERE / "table3.csv", found, RUN)
    methods = {variant: (name, name) for variant, name in VARIANTS.items()}
    table = comparison([row | {"label": row["variant"]} for row in rows], paper_numbers(3), methods)
    text = f"# Table 3: ablations\n\n{jpltd_protocol(rows)}\n{table}\nCells where the paper's ordering holds:\n\n"
    text += orderings(rows)
    (HERE / "table3.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
