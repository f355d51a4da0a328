"""Reports: one page of HTML that holds everything it shows, to open, print and send.

The functions return the page as text, and :func:`jpltd_jax.report.pages.write` puts it into a file. A page needs no
network and no other file. Its drawings tell, under the mouse or the finger, what each mark stands for.
"""

from jpltd_jax.report.audit import audit_report
from jpltd_jax.report.cluster import cluster_report
from jpltd_jax.report.pages import write
from jpltd_jax.report.sweep import sweep_report

__all__ = ["audit_report", "cluster_report", "sweep_report", "write"]
