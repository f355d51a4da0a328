"""Pages of HTML by construction: whatever is not an element made here is text, and is escaped."""

import base64
import hashlib
import html
import itertools
import math
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jpltd_jax._files import replacing

__all__ = [
    "SHORT",
    "Html",
    "bar",
    "counted",
    "facts",
    "figure",
    "listed",
    "notes",
    "number",
    "page",
    "percent",
    "section",
    "shown",
    "table",
    "tag",
    "versions",
    "write",
]

SHORT = 14
"""Characters of a name where there is little room."""

MOST_ROWS = 100
"""Rows of a table that are shown."""

LONGEST = 60
"""Characters of a name that are shown."""

ALONE = frozenset({"circle", "image", "line", "link", "meta", "path", "polyline", "rect", "use"})
"""Elements that have no content."""


class Html(str):
    """Markup. Every other string is text."""

    __slots__ = ()


def tag(name: str, attributes: Mapping[str, Any] | None = None, *content: str | Iterable[str]) -> Html:
    """An element; text in its attributes and its content is escaped.

    Examples
    --------
    >>> from jpltd_jax.report.pages import tag
    >>> tag("p", {"class": "note"}, "a < b", tag("b", None, "!"))
    '<p class="note">a &lt; b<b>!</b></p>'
    """
    head = "".join(f' {key}="{html.escape(str(value))}"' for key, value in (attributes or {}).items())
    if name in ALONE:
        return Html(f"<{name}{head}/>")
    parts = (part for one in content for part in ((one,) if isinstance(one, str) else one))
    inside = "".join(part if isinstance(part, Html) else html.escape(part) for part in parts)
    return Html(f"<{name}{head}>{inside}</{name}>")


def shown(value: Any, most: int = LONGEST) -> str:
    r"""The name of something as one line of visible characters, cut where it is too long.

    Examples
    --------
    >>> from jpltd_jax.report.pages import shown
    >>> shown("line 1" + chr(10) + "line 2"), shown("a" * 9, most=4)
    ('line 1\\nline 2', 'aaa…')
    """
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value)[: most + 1])
    return visible if len(visible) <= most else visible[: most - 1] + "…"


def number(value: float | int) -> str:
    """A number in three digits, whole numbers in full; a dash for NaN.

    Examples
    --------
    >>> from jpltd_jax.report.pages import number
    >>> number(12345), number(0.123456), number(float("nan"))
    ('12,345', '0.123', '–')
    """
    if isinstance(value, int):
        return f"{value:,}"
    return "–" if math.isnan(value) else f"{value:.3g}"


def percent(share: float | int, digits: int = 0) -> str:
    r"""A share in percent, with a space that does not break the line; a dash for NaN.

    Examples
    --------
    >>> from jpltd_jax.report.pages import percent
    >>> percent(0.5), percent(0.123, digits=1)
    ('50\xa0%', '12.3\xa0%')
    """
    return "–" if math.isnan(share) else f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def bar(share: float | int, text: str) -> Html:
    """Text on a bar of this share of the width."""
    return tag("span", {"class": "bar", "style": f"--w:{100 * min(max(share, 0), 1):.1f}%"}, text)


def counted(count: int, what: str) -> str:
    """A number of things.

    Examples
    --------
    >>> from jpltd_jax.report.pages import counted
    >>> counted(1, "sample"), counted(2000, "sample")
    ('1 sample', '2,000 samples')
    """
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def listed(names: Iterable[Any], most: int = 3) -> str:
    """The first names, as :func:`shown` writes them.

    Examples
    --------
    >>> from jpltd_jax.report.pages import listed
    >>> listed("ab"), listed("abcd")
    ('a, b', 'a, b, c, …')
    """
    first = [shown(name) for name in itertools.islice(names, most + 1)]
    return ", ".join([*first[:most], "…"] if len(first) > most else first)


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Any]], *, stacked: bool = False) -> Html:
    """A table, of which at most a hundred rows are shown; it says so.

    The first cell of a row is its head, and numbers are written by :func:`number`. A stacked table shows each row as a
    block of its own on narrow screens; other ones are scrolled there.

    Examples
    --------
    >>> from jpltd_jax.report.pages import table
    >>> '<th scope="row">a</th><td class="number">2</td>' in table("Sizes", ["name", "size"], [["a", 2]])
    True
    """

    def cell(i: int, value: Any) -> Html:
        numeric = isinstance(value, int | float)
        attributes = {"scope": "row"} if i == 0 else {}
        if numeric:
            attributes["class"] = "number"
        if stacked:
            attributes["data-head"] = heads[i]
        return tag("td" if i else "th", attributes, number(value) if numeric else value)

    numeric = [all(isinstance(row[i], int | float) for row in rows) for i in range(len(heads))] if rows else []
    head = [
        tag("th", {"scope": "col"} | ({"class": "number"} if rows and numeric[i] else {}), name)
        for i, name in enumerate(heads)
    ]
    body = [tag("tr", None, [cell(i, value) for i, value in enumerate(row)]) for row in rows[:MOST_ROWS]]
    made = tag(
        "table",
        {"class": "stacked"} if stacked else None,
        tag("caption", None, caption),
        tag("thead", None, tag("tr", None, head)),
        tag("tbody", None, body),
    )
    rest = f"The first {MOST_ROWS} of {len(rows):,} rows." if len(rows) > MOST_ROWS else ""
    around = {"class": "scrolled", "role": "region", "aria-label": caption, "tabindex": "0"}
    return tag("div", around, made, tag("p", None, rest) if rest else [])


def notes(lines: Sequence[str]) -> Html:
    """What a reader must not overlook; nothing if there is nothing."""
    if not lines:
        return Html("")
    items = tag("ul", None, [tag("li", None, line) for line in lines])
    return tag("aside", {"class": "notes", "aria-label": "Warnings"}, tag("h2", None, "Please note"), items)


def versions() -> Html:
    """The programs that a result depends on, with their versions."""
    found = {
        "jpltd_jax": version("jpltd_jax"),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    return tag("p", None, "Made with " + ", ".join(f"{name} {number}" for name, number in found.items()) + ".")


def facts(pairs: Mapping[str, str]) -> Html:
    """The few numbers that matter most, large."""
    return tag(
        "dl", {"class": "facts"}, [tag("div", None, tag("dt", None, k), tag("dd", None, v)) for k, v in pairs.items()]
    )


def figure(drawing: Html, title: str, caption: str) -> Html:
    """A drawing with its title above and what it shows below."""
    return tag("figure", None, tag("h3", None, title), drawing, tag("figcaption", None, caption))


def section(title: str, *content: str | Iterable[str]) -> Html:
    """A part of the page with its heading."""
    return tag("section", None, tag("h2", None, title), *content)


def _own_file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def page(title: str, kicker: str, command: str | None, content: Iterable[str]) -> str:
    """A whole page that asks for nothing: style and script are in it, and the browser is told to load nothing else.

    Parameters
    ----------
    title
        Its heading.
    kicker
        The kind of the page, above the heading.
    command
        What made it, below the heading.
    content
        Its sections.
    """
    style, script = _own_file("page.css"), _own_file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = tag(
        "head",
        None,
        tag("meta", {"charset": "utf-8"}),
        tag("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        tag("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        tag("meta", {"name": "color-scheme", "content": "light dark"}),
        tag("link", {"rel": "icon", "href": "data:,"}),
        tag("title", None, f"{title} – {kicker}"),
        tag("style", None, Html(style)),
    )
    top = tag(
        "header",
        None,
        tag("p", {"class": "kicker"}, kicker),
        tag("h1", None, title),
        [] if command is None else tag("pre", {"class": "command"}, tag("code", None, command)),
    )
    body = tag(
        "body",
        None,
        tag("main", None, top, content),
        tag("div", {"id": "tip", "role": "status", "hidden": "hidden"}),
        tag("script", None, Html(script)),
    )
    return "<!DOCTYPE html>\n" + tag("html", {"lang": "en"}, head, body) + "\n"


def write(path: str | os.PathLike[str], page: str) -> None:
    """Write a page to a file: whole, or not at all.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from jpltd_jax.report import write
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(f"{folder}/report.html", "<!DOCTYPE html>")
    ...     Path(f"{folder}/report.html").read_text()
    '<!DOCTYPE html>'
    """
    with replacing(Path(path), "wb") as file:
        file.write(page.encode("utf-8", "xmlcharrefreplace"))
