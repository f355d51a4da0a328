"""Which of the methods depend on the order of the samples: the order audit of JPLTD and the methods of Table 2.

    python experiments/order_audit.py DATA_DIRECTORY

MSRC-v1 at rate 0.5, the mask of the tables; 2 random orders and 2 seeds each (see :func:`jpltd_jax.audit_order`);
default parameters; published JPLTD with lam 2, theta 0.1, latent_dim 40. JPLTD runs in single precision, the others in
double. The file is sorted by class: its order is the sorted one. Writes order_audit.csv, order_audit.md and
figures/order_audit.png.
"""

from dataclasses import replace

import jax
from figures import data_directory, panels, save
from protocol import HERE, load_case
from table2_baselines import COMPARED, printed
from tables import markdown, write_csv

import jpltd_jax as jj
from jpltd_jax.plotting import plot_order_audit


def main() -> None:
    data_directory(__doc__)
    case = load_case("msrcv1", 0.5, "file")
    views, c = [x.astype(float) for x in case.views], case.n_clusters
    methods = {
        "JPLTD": jj.JPLTD(c, lam=2.0, config=replace(jj.PUBLISHED, latent_dim=40)),
        "JPLTD, order-free": jj.JPLTD(c),
    }
    methods |= {printed(method): jj.Clusterer(method, c) for method in COMPARED}
    audits, rows = {}, []
    for name, method in methods.items():
        with jax.enable_x64(isinstance(method, jj.Clusterer)):
            audit = jj.audit_order(views, case.mask, case.labels, method=method, n_orders=2, n_seeds=2)
        print(f"{name}\n{audit.summary()}", flush=True)
        audits[name] = audit
        rows.append(
            {
                "method": name,
                "accuracy, file order": 100 * audit.file,
                "accuracy, shuffled": 100 * float(audit.shuffled.mean()),
                "agreement after a shuffle": audit.agreement,
                "agreement with another seed": audit.repeat_agreement,
                "depends on the order": "yes" if audit.depends_on_order else "no",
            }
        )
    write_csv(HERE / "order_audit.csv", rows)
    lines = [[f"{x:.2f}" if isinstance(x, float) else x for x in row.values()] for row in rows]
    (HERE / "order_audit.md").write_text(
        "# Which methods depend on the order of the samples\n\nMSRC-v1, rate 0.5, one mask, default parameters; "
        "accuracy in %, agreement as adjusted Rand index.\n\n" + markdown(list(rows[0]), lines)
    )
    figure, axes = panels(1, 1, 4.5)
    figure.set_size_inches(9, 4)
    plot_order_audit(audits, ax=axes[0, 0])
    axes[0, 0].set_xticks(range(len(audits)), [name.replace(" (", "\n(").replace(", ", ",\n") for name in audits])
    axes[0, 0].tick_params(axis="x", labelsize=7)
    save(figure, "order_audit")


if __name__ == "__main__":
    main()
