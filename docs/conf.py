"""Configuration of the documentation: ``python -m sphinx -W docs build/docs``."""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

import jax

jax.Array.__name__ = jax.Array.__qualname__ = "Array"  # as signatures show it; jaxtyping reads it when imported

import docstrings
import pages
from sphinx.application import Sphinx

import jpltd_jax

project = "jpltd_jax"
author = "The jpltd_jax developers"
version = release = jpltd_jax.__version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "myst_parser",
]
exclude_patterns: list[str] = []
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "jpltd_jax"
html_copy_source = False
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(collections|contextlib|jax|jaxlib|jaxtyping|numpy|os|pathlib|sklearn|typing)\..*|Array|ndarray"),
    ("py:.*", r"jpltd_jax\._types\..*|jpltd_jax\.saving\.Estimator"),
]
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_default_options = {
    "exclude-members": "set_fit_request, set_predict_request",
    "inherited-members": "BaseEstimator, SliceTransform, _MetadataRequester, int, tuple",
}
napoleon_attr_annotations = False
napoleon_custom_sections = [("Attributes", "params_style")]
napoleon_google_docstring = False


def setup(app: Sphinx) -> None:
    """Write the generated pages, and stop at a public name without a docstring."""
    pages.write(DOCS / "generated")
    app.connect("autodoc-process-docstring", docstrings.as_rst, priority=900)
    app.connect("autodoc-process-docstring", docstrings.whole_sentence, priority=100)
    app.connect("autodoc-process-signature", docstrings.short_types)
    app.connect("missing-reference", docstrings.by_short_name)
    app.connect("env-check-consistency", docstrings.every_name_is_described)
