"""The methods, one module each, all in one shape.

A module has ``Hyper``, ``Config``, ``State``, ``Data``, ``prepare``, ``init``, ``step``, ``settled``, ``readout``, and
one record of them, a :class:`jpltd_jax.loop.Method`. The estimator, sweeps, checkpoints and documentation follow from
the record. ``averaged_graph`` is the template for a new one.
"""

from collections.abc import Mapping

from jpltd_jax.loop import Method
from jpltd_jax.methods import (
    averaged_graph,
    climc_sc,
    hcp_imsc,
    imvc_cbg,
    imvtsc_mvi,
    jpltd,
    tc_imvc,
    tmbsd,
    ueaf,
    vcl_imvc,
)
from jpltd_jax.methods.averaged_graph import AVERAGED_GRAPH
from jpltd_jax.methods.climc_sc import CLIMC_SC
from jpltd_jax.methods.hcp_imsc import HCP_IMSC
from jpltd_jax.methods.imvc_cbg import IMVC_CBG
from jpltd_jax.methods.imvtsc_mvi import IMVTSC_MVI
from jpltd_jax.methods.jpltd import JPLTD
from jpltd_jax.methods.tc_imvc import TC_IMVC
from jpltd_jax.methods.tmbsd import TMBSD
from jpltd_jax.methods.ueaf import UEAF
from jpltd_jax.methods.vcl_imvc import VCL_IMVC

__all__ = [
    "AVERAGED_GRAPH",
    "CLIMC_SC",
    "HCP_IMSC",
    "IMVC_CBG",
    "IMVTSC_MVI",
    "JPLTD",
    "METHODS",
    "TC_IMVC",
    "TMBSD",
    "UEAF",
    "VCL_IMVC",
    "averaged_graph",
    "climc_sc",
    "hcp_imsc",
    "imvc_cbg",
    "imvtsc_mvi",
    "jpltd",
    "tc_imvc",
    "tmbsd",
    "ueaf",
    "vcl_imvc",
]

METHODS: Mapping[str, Method] = {
    record.name: record
    for record in (
        JPLTD,
        UEAF,
        CLIMC_SC,
        IMVC_CBG,
        IMVTSC_MVI,
        TMBSD,
        TC_IMVC,
        VCL_IMVC,
        HCP_IMSC,
        AVERAGED_GRAPH,
    )
}
"""By name: JPLTD, the eight methods of the paper's Table 2 in its order, and the averaged graph as a control."""
