"""Table 2, JPLTD: the paper's numbers, ours in file order, and ours shuffled.

    python experiments/table2.py DATA_DIRECTORY [--quick] [--grid ...] [--sets ...] [--rates ...] [--masks N]

Every cell is the configuration with the largest accuracy by the labels over the grid, as in the paper, and the mean and
standard deviation over 20 repeats of the spectral step. Finished configurations are in stores/ and are not made again,
so a larger grid goes on where a smaller one stopped. Writes table2.csv and table2.md beside this script.
"""

from protocol import HERE, arguments, cells
from tables import PAPER_SETS, RUN, comparison, jpltd_protocol, merge_csv, paper_numbers

QUICK_SETS = ("msrcv1", "ngs", "bbcsport", "uci", "orl_recomputed")


def main() -> None:
    args = arguments(__doc__, list(PAPER_SETS), QUICK_SETS)
    found = cells(args.sets, args.rates, ["full"], args.grid, args.masks)
    rows = merge_csv(HERE / "table2.csv", found, RUN)
    table = comparison([row | {"label": "full"} for row in rows], paper_numbers(2), {"full": ("JPLTD", "JPLTD")})
    text = f"# Table 2: JPLTD\n\n{jpltd_protocol(rows)}\n{table}"
    (HERE / "table2.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
