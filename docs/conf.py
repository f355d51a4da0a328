"""Configuration of the documentation: ``python -m sphinx -W docs build/docs``."""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

import docstrings
import pages
from sphinx.application import Sphinx

import jpltd_jax

project = "jpltd_jax"
author = "The jpltd_jax developers"
version = release = jpltd_jax.__version__
extensions = ["sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon", "myst_parser"]
exclude_patterns: list[str] = []
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "jpltd_jax"
html_copy_source = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_default_options = {"exclude-members": "set_fit_request, set_predict_request"}
napoleon_attr_annotations = False
napoleon_google_docstring = False
napoleon_use_ivar = True


def setup(app: Sphinx) -> None:
    """Write the generated pages, and stop at a public name without a docstring."""
    bare = docstrings.undocumented()
    if bare:
        raise ValueError("public names without a docstring: " + ", ".join(bare))
    pages.write(DOCS / "generated")
    app.connect("autodoc-process-docstring", docstrings.as_rst, priority=900)
    app.connect("autodoc-process-docstring", docstrings.whole_sentence, priority=100)
    app.connect("doctree-read", docstrings.short_types)
