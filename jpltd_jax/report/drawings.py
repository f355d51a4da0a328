"""Drawings for pages: SVG elements without fonts, files or sizes of their own; what they show is in ``data-tip``."""

import base64
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jpltd_jax.report.pages import Html, number, tag

__all__ = ["Curve", "columns", "curves", "heat_cells", "heat_image", "key", "png", "scatter"]

WIDTH = 460.0
"""Of every drawing, in its own units; pages scale it."""

N_COLORS, N_MARKS = 8, 5
"""Classes ``k0``, ``k1``, ... of the style sheet, and the shapes in :func:`_mark`: 40 pairs."""

Number = float | int
Shape = tuple[str, dict[str, Number | str]]
MARKS: tuple[Shape, ...] = (
    ("circle", {"r": 3.4}),
    ("rect", {"x": -3, "y": -3, "width": 6, "height": 6}),
    ("path", {"d": "M0-4.2L3.9 3.1H-3.9Z"}),
    ("path", {"d": "M0-4.4L4.4 0L0 4.4L-4.4 0Z"}),
    ("path", {"d": "M-3.6-1.2H-1.2V-3.6H1.2V-1.2H3.6V1.2H1.2V3.6H-1.2V1.2H-3.6Z"}),
)
"""Marks of clusters, about (0, 0): circle, square, triangle, diamond, cross."""


class Curve(NamedTuple):
    """One line of :func:`curves`."""

    name: str
    x: Sequence[Number]
    y: Sequence[Number]


def _svg(height: Number, label: str, *content: str | list[Html]) -> Html:
    return tag("svg", {"viewBox": f"0 0 {WIDTH:g} {height:g}", "role": "img", "aria-label": label}, *content)


def _mark(cluster: int) -> Html:
    return tag(*MARKS[cluster % N_MARKS])


def _text(x: Number, y: Number, text: str, anchor: str = "middle") -> Html:
    return tag("text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}, text)


def _line(x1: Number, y1: Number, x2: Number, y2: Number, kind: str) -> Html:
    ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    return tag("line", {name: f"{value:.1f}" for name, value in ends.items()} | {"class": kind})


def key(cluster: int) -> Html:
    """The mark of a cluster, to stand in a line of text."""
    mark = tag("g", {"class": f"k{cluster % N_COLORS}"}, _mark(cluster))
    return tag("svg", {"class": "key", "viewBox": "-5 -5 10 10", "aria-hidden": "true"}, mark)


def scatter(points: np.ndarray, clusters: np.ndarray, tips: Sequence[str], label: str) -> Html:
    """Points in the plane, at the same scale in both directions, with the number of each cluster at its median."""
    pad, height = 14.0, 380.0
    low, high = points.min(axis=0), points.max(axis=0)
    room = np.array([WIDTH, height]) - 2 * pad
    spread = high - low
    scale = min((room[spread > 0] / spread[spread > 0]).tolist(), default=1.0)
    at = (points - (low + high) / 2) * [scale, -scale] + np.array([WIDTH, height]) / 2
    found = np.unique(clusters).tolist()
    groups, names = [], []
    for cluster in found:
        members = np.flatnonzero(clusters == cluster)
        marks = [
            tag("use", {"href": f"#mark{cluster % N_MARKS}", "x": f"{x:.1f}", "y": f"{y:.1f}", "data-tip": tips[i]})
            for i, (x, y) in zip(members.tolist(), at[members].tolist(), strict=True)
        ]
        groups.append(tag("g", {"class": f"k{cluster % N_COLORS}"}, marks))
        x, y = np.median(at[members], axis=0)
        names.append(_text(float(x), float(y) + 5, str(cluster)))
    used = sorted({cluster % N_MARKS for cluster in found})
    shapes = tag("defs", None, [tag("g", {"id": f"mark{i}"}, tag(*MARKS[i])) for i in used])
    return _svg(height, label, shapes, tag("g", {"class": "points"}, groups), tag("g", {"class": "names"}, names))


def _steps(low: Number, high: Number) -> list[float]:
    """About five round numbers from ``low`` to ``high``."""
    raw = (high - low) / 5
    size = 10.0 ** math.floor(math.log10(raw))
    step = min((s * size for s in (1, 2, 5, 10)), key=lambda s: abs(s - raw))
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _power(exponent: int) -> str:
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def curves(
    lines: Sequence[Curve],
    names: tuple[str, str],
    label: str,
    *,
    log: bool = False,
    level: tuple[str, Number] | None = None,
    marked: Number | None = None,
) -> Html:
    """Curves over whole numbers, with a horizontal ``level`` and a vertical line where ``marked`` says."""
    height, left, right, top, bottom = 300.0, 62.0, WIDTH - 12.0, 34.0 if len(lines) > 1 else 8.0, 252.0
    change = math.log10 if log else float

    def usable(y: Number) -> bool:
        return math.isfinite(y) and (y > 0 or not log)

    drawn = [[(x, change(y)) for x, y in zip(line.x, line.y, strict=True) if usable(y)] for line in lines]
    xs = [x for points in drawn for x, _ in points] or [0.0]
    ys = [y for points in drawn for _, y in points] or [0.0]
    if level is not None and usable(level[1]):
        ys.append(change(level[1]))
    x_low, x_high, y_low, y_high = min(xs), max(xs), min(ys), max(ys)
    x_low, x_high = (x_low, x_high) if x_high > x_low else (x_low - 1, x_high + 1)
    y_low, y_high = (y_low, y_high) if y_high > y_low else (y_low - 1, y_high + 1)
    if log:
        y_low, y_high = float(math.floor(y_low)), float(math.ceil(y_high))

    def place(x: Number, y: Number) -> tuple[float, float]:
        across, up = (x - x_low) / (x_high - x_low), (y - y_low) / (y_high - y_low)
        return left + 8 + across * (right - left - 16), bottom - 8 - up * (bottom - top - 16)

    parts = []
    every = max(1, math.ceil((y_high - y_low) / 6))
    whole = [float(y) for y in range(math.ceil(y_low), math.floor(y_high) + 1, every)]
    for y in whole if log else _steps(y_low, y_high):
        at = place(x_low, y)[1]
        parts += [
            _line(left, at, right, at, "grid"),
            _text(left - 8, at + 5, _power(int(y)) if log else number(y), "end"),
        ]
    inside = range(math.ceil(x_low), math.floor(x_high) + 1)
    for tick in sorted({round(x) for x in _steps(x_low, x_high)} & set(inside)):
        parts.append(_text(place(tick, y_low)[0], bottom + 19, str(tick)))
    parts += [_line(left, bottom, right, bottom, "axis"), _text((left + right) / 2, height - 6, names[0])]
    if marked is not None and x_low <= marked <= x_high:
        at = place(marked, y_low)[0]
        parts.append(_line(at, top, at, bottom, "marked"))
    if level is not None and usable(level[1]):
        at = place(x_low, change(level[1]))[1]
        parts += [_line(left, at, right, at, "level"), _text(right, at - 5, level[0], "end")]
    for i, (line, points) in enumerate(zip(lines, drawn, strict=True)):
        placed = [place(x, y) for x, y in points]
        color = {"class": f"curve k{i % N_COLORS} dash{i % 3}"}
        parts.append(tag("polyline", color | {"points": " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)}))
        if len(lines) > 1:
            start = left + 130 * i
            parts += [tag("polyline", color | {"points": f"{start:g},14 {start + 28:g},14"})]
            parts.append(_text(start + 34, 19, line.name, "start"))
        shown = [y for y in line.y if usable(y)]
        for (x, _), (at_x, at_y), y in zip(points, placed, shown, strict=True):
            tip = f"{line.name}, {names[0]} {number(x)}: {number(y)}"
            dot = {"cx": f"{at_x:.1f}", "cy": f"{at_y:.1f}", "r": 1.8, "class": f"k{i % N_COLORS}", "data-tip": tip}
            parts.append(tag("circle", dot))
    return _svg(height, label, parts)


def heat_cells(
    values: np.ndarray, rows: Sequence[str], heads: Sequence[str], tips: Sequence[Sequence[str]], names: tuple[str, str]
) -> Html:
    """A field for each pair of values, darker where more; the largest is framed and NaN is a cross.

    Parameters
    ----------
    values
        (rows, columns), as they are written into the fields.
    rows, heads
        What stands beside the rows, upwards, and below the columns.
    tips
        What a field tells.
    names
        Of what goes upwards and of what goes across.
    """
    across, up = len(heads), len(rows)
    left = 30.0 + 8 * max(map(len, rows))
    wide, high = (WIDTH - left - 6) / across, min(44.0, max(22.0, 260.0 / up))
    height = 10 + up * high + 46
    low, top = (float(np.nanmin(values)), float(np.nanmax(values))) if np.isfinite(values).any() else (0.0, 1.0)
    best = None if np.isnan(values).all() else divmod(int(np.nanargmax(values)), across)
    parts, frame = [], []
    for i, name in enumerate(rows):
        y = 10 + (up - 1 - i) * high
        parts.append(_text(left - 7, y + high / 2 + 5, name, "end"))
        for j in range(across):
            x, value = left + j * wide, float(values[i, j])
            strength = 0.0 if math.isnan(value) else 0.08 + 0.52 * ((value - low) / (top - low) if top > low else 1)
            place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{wide:.1f}", "height": f"{high:.1f}"}
            parts.append(
                tag("rect", place | {"class": "cell", "fill-opacity": f"{strength:.2f}", "data-tip": tips[i][j]})
            )
            if best == (i, j):
                frame.append(tag("rect", place | {"class": "best"}))
            if wide >= 26:
                text = "×" if math.isnan(value) else number(value)
                parts.append(_text(x + wide / 2, y + high / 2 + 5, text))
    every = math.ceil(9 * max(map(len, heads)) / wide)
    for j in range(0, across, every):
        parts.append(_text(left + (j + 0.5) * wide, 10 + up * high + 18, heads[j]))
    parts.append(_text((left + WIDTH) / 2, height - 6, names[1]))
    middle = 10 + up * high / 2
    upwards = {"x": 14, "y": f"{middle:.1f}", "text-anchor": "middle", "transform": f"rotate(-90 14 {middle:.1f})"}
    parts.append(tag("text", upwards, names[0]))
    return _svg(height, f"{names[0]} upwards, {names[1]} across", parts, frame)


def columns(groups: Mapping[str, Mapping[str, Sequence[Number]]], label: str) -> Html:
    """Values from 0 to 100 above the name of each group, each kind with a mark of its own."""
    height, left, top, bottom = 320.0, 46.0, 38.0, 280.0
    kinds = list(dict.fromkeys(kind for one in groups.values() for kind in one))
    parts = []
    for level in range(0, 101, 20):
        y = bottom - level / 100 * (bottom - top)
        parts += [_line(left, y, WIDTH, y, "grid"), _text(left - 8, y + 5, str(level), "end")]
    wide = (WIDTH - left) / max(len(groups), 1)
    for i, kind in enumerate(kinds):
        place = {"class": f"k{i % N_COLORS}", "transform": f"translate({left + 8 + 140 * i:g} 12)"}
        parts += [tag("g", place, _mark(i)), _text(left + 18 + 140 * i, 17, kind, "start")]
    for g, (name, one) in enumerate(groups.items()):
        middle = left + (g + 0.5) * wide
        parts.append(_text(middle, bottom + 22, name))
        for kind, values in one.items():
            i, room = kinds.index(kind), wide / (len(kinds) + 1)
            for j, value in enumerate(values):
                spread = (j - (len(values) - 1) / 2) * min(12.0, room / len(values))
                x, y = middle + (i - (len(kinds) - 1) / 2) * room + spread, bottom - value / 100 * (bottom - top)
                place = {"class": f"k{i % N_COLORS}", "transform": f"translate({x:.1f} {y:.1f}) scale(1.5)"}
                parts.append(tag("g", place | {"data-tip": f"{name}, {kind}: {value:.1f} %"}, _mark(i)))
    return _svg(height, label, parts)


def png(pixels: np.ndarray, palette: np.ndarray) -> bytes:
    r"""An image of (height, width) uint8 numbers of colours in a (256, 4) uint8 palette: red, green, blue, opacity.

    Examples
    --------
    >>> import numpy as np
    >>> from jpltd_jax.report.drawings import png
    >>> png(np.zeros((2, 3), np.uint8), np.zeros((256, 4), np.uint8))[:8]
    b'\x89PNG\r\n\x1a\n'
    """

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    height, width = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels], axis=1)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            chunk(b"PLTE", palette[:, :3].tobytes()),
            chunk(b"tRNS", palette[:, 3].tobytes()),
            chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
            chunk(b"IEND", b""),
        ]
    )


def _ramp() -> np.ndarray:
    """From nothing over blue to orange: seen on white and on black, and by people with any kind of colour vision."""
    stops = np.array([[0, 114, 178, 0], [0, 114, 178, 160], [60, 150, 200, 255], [230, 159, 0, 255]])
    where = np.linspace(0, 3, 256)
    return np.stack([np.interp(where, range(4), stops[:, c]) for c in range(4)], axis=1).round().astype(np.uint8)


def heat_image(levels: np.ndarray, sizes: Sequence[int], label: str) -> Html:
    """A square matrix of levels 0 to 1 as an image, with groups of these sizes along its sides framed and numbered."""
    left, side = 34.0, WIDTH - 40.0
    address = base64.b64encode(png((255 * levels).round().astype(np.uint8), _ramp())).decode()
    place = {"x": left, "y": 4, "width": side, "height": side}
    image = tag("image", place | {"href": f"data:image/png;base64,{address}", "preserveAspectRatio": "none"})
    edges = np.concatenate([[0.0], np.cumsum(sizes) / sum(sizes)]) * side
    frames, last = [tag("rect", place | {"class": "frame"})], -math.inf
    for group, (start, end) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        if end <= start:
            continue
        square = {"x": f"{left + start:.1f}", "y": f"{4 + start:.1f}"}
        frames.append(
            tag("rect", square | {"width": f"{end - start:.1f}", "height": f"{end - start:.1f}", "class": "frame"})
        )
        if (middle := (start + end) / 2) > last + 15:
            frames.append(_text(left - 7, 4 + middle + 5, str(group), "end"))
            last = middle
    return _svg(side + 10, label, image, frames)
