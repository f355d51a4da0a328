"""Which of the methods depend on the order of the samples: the order audit of JPLTD and the methods of Table 2.

    python experiments/order_audit.py DATA_DIRECTORY

MSRC-v1 at rate 0.5, the mask of the tables; 2 random orders and 2 seeds each (see :func:`jpltd_jax.audit_order`);
default parameters; published JPLTD with lam 2, theta 0.1, latent_dim 40. JPLTD runs in single precision, the others in
double. The file is sorted by class: its order is the sorted one. Writes order_audit.csv, order_audit.md and
figures/order_audit.png.
"""

import csv
from dataclasses import replace
from typing import Any

import jax
from figures import data_directory, panels, save
from protocol import HERE, Case, load_case
from table2_baselines import COMPARED, printed
from tables import markdown, write_csv

import jpltd_jax as jj
from jpltd_jax.audit import OrderAudit
from jpltd_jax.plotting import plot_order_audit


def audited(name: str, case: Case, method: Any) -> tuple[OrderAudit, dict[str, Any]]:
    """The audit of a method, and its row in the table."""
    views = [x.astype(float) for x in case.views]
    audit = jj.audit_order(views, case.mask, case.labels, method=method, n_orders=2, n_seeds=2)
    print(f"{name}\n{audit.summary()}", flush=True)
    return audit, {
        "method": name,
        "accuracy, file order": 100 * audit.file,
        "accuracy, shuffled": 100 * float(audit.shuffled.mean()),
        "agreement after a shuffle": audit.agreement,
        "agreement with another seed": audit.repeat_agreement,
        "depends on the order": "yes" if audit.depends_on_order else "no",
    }


def write_page() -> None:
    """The rows of this script and of order_audit_imml.py."""
    rows = []
    for name in ("order_audit.csv", "order_audit_imml.csv"):
        if (HERE / name).exists():
            with (HERE / name).open(newline="") as file:
                rows += list(csv.reader(file))[bool(rows) :]
    lines = [[name, *(f"{float(x):.2f}" for x in numbers), verdict] for name, *numbers, verdict in rows[1:]]
    (HERE / "order_audit.md").write_text(
        "# Which methods depend on the order of the samples\n\nMSRC-v1, rate 0.5, one mask, default parameters; "
        "accuracy in %, agreement as adjusted Rand index. `python experiments/order_audit.py DATA`, and for the "
        "methods of iMML, which run as programs of their own, `python experiments/order_audit_imml.py DATA`.\n\n"
        + markdown(rows[0], lines)
    )


def main() -> None:
    data_directory(__doc__)
    case = load_case("msrcv1", 0.5, "file")
    c = case.n_clusters
    methods = {
        "JPLTD": jj.JPLTD(c, lam=2.0, config=replace(jj.PUBLISHED, latent_dim=40)),
        "JPLTD, order-free": jj.JPLTD(c),
    }
    methods |= {printed(method): jj.Clusterer(method, c) for method in COMPARED}
    audits, rows = {}, []
    for name, method in methods.items():
        with jax.enable_x64(isinstance(method, jj.Clusterer)):
            audits[name], row = audited(name, case, method)
        rows.append(row)
    write_csv(HERE / "order_audit.csv", rows)
    write_page()
    figure, axes = panels(1, 1, 4.5)
    figure.set_size_inches(9, 4)
    plot_order_audit(audits, ax=axes[0, 0])
    axes[0, 0].set_xticks(range(len(audits)), [name.replace(" (", "\n(").replace(", ", ",\n") for name in audits])
    axes[0, 0].tick_params(axis="x", labelsize=7)
    save(figure, "order_audit")


if __name__ == "__main__":
    main()
