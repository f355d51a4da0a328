"""Figures from the command line, if Matplotlib is there."""

from typing import Any

from jpltd_jax.cli.outputs import Output, UserError, output

__all__ = ["NO_FIGURE", "figure_output", "pyplot", "save"]

NO_FIGURE = 'no figure: matplotlib is not installed (pip install "jpltd_jax[plot]")'


def pyplot() -> Any:
    """Pyplot drawing to files, or None without Matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def figure_output(text: str) -> Output:
    """The output of a figure, if Matplotlib is there and can write its format."""
    plt = pyplot()
    if plt is None:
        raise UserError(NO_FIGURE)
    from matplotlib.backend_bases import FigureCanvasBase

    return output(text, suffixes=sorted(f".{name}" for name in FigureCanvasBase.filetypes))


def save(plt: Any, figure: Any, where: Output) -> None:
    """Draw the figure into the file, in the format of its name."""
    with where.open("wb") as file:
        figure.savefig(file, dpi=120, format=where.path.suffix[1:].lower())
    plt.close(figure)
    print(f"figure: {where}")
