"""Run a notebook in the percent format and write it as Markdown, with what it prints and draws.

python docs/run_notebook.py NOTEBOOK.py PAGE.md
"""

import contextlib
import io
import os
import re
import sys
from pathlib import Path
from typing import Any

os.environ["MPLBACKEND"] = "Agg"

CELL = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)


def cells(text: str) -> list[tuple[bool, int, str]]:
    """(is Markdown, number of its first line, content) of every cell."""
    marks = list(CELL.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    return [
        (mark[1] is not None, text.count("\n", 0, mark.end()), text[mark.end() : end].strip("\n"))
        for mark, end in zip(marks, ends, strict=True)
    ]


def run(code: str, first_line: int, name: str, namespace: dict[str, Any]) -> str:
    """Execute a cell; what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * first_line + code, name, "exec"), namespace)
    return printed.getvalue()


def render(notebook: Path, page: Path) -> None:
    """Write the page, and its figures beside it."""
    import matplotlib.pyplot as plt

    sys.argv = [str(notebook)]
    namespace: dict[str, Any] = {"__name__": "__main__"}
    blocks = []
    for is_markdown, first_line, content in cells(notebook.read_text()):
        if is_markdown:
            blocks.append(re.sub(r"^# ?", "", content, flags=re.MULTILINE))
            continue
        blocks.append(f"```python\n{content}\n```")
        printed = run(content, first_line, str(notebook), namespace)
        if printed:
            blocks.append(f"```text\n{printed}```")
        for number in plt.get_fignums():
            figure = page.with_name(f"{page.stem}_{len(blocks)}.png")
            plt.figure(number).savefig(figure, dpi=80)
            blocks.append(f"![what the cell above draws]({figure.name})")
        plt.close("all")
    page.write_text("\n\n".join(blocks) + "\n")


if __name__ == "__main__":
    render(Path(sys.argv[1]), Path(sys.argv[2]))
