"""Knows what a page may run: the drawings as data for a script, the script and its libraries, and their hashes.

Everything is in the page itself. Observable Plot and d3 are kept beside this file as npm has them, by version and
hash (`vendored/vendored.toml`); a page's own policy admits these texts and no other.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from functools import cache
from importlib import resources

from penstock.report.chart import Axis, Band, Bar, Cell, Layer, Line, Mark, Point, labels

LIBRARIES = ("vendored/d3.min.js", "vendored/plot.umd.min.js")
OWN = "templates/report.js"


@cache
def scripts() -> tuple[str, ...]:
    """The texts in the order in which they run."""
    return tuple(
        resources.files("penstock.report").joinpath(name).read_text(encoding="utf-8").strip()
        for name in (*LIBRARIES, OWN)
    )


@cache
def script_hashes() -> str:
    """What the page's policy admits, in its own words."""
    digests = (hashlib.sha256(text.encode()).digest() for text in scripts())
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def live(title: str, x: Axis, y: Axis, layers: Sequence[Layer]) -> str:
    """The figure as JSON that may stand in a page: nothing in it ends the element around it."""
    document = {"title": title, "x": _axis(x), "y": _axis(y), "layers": _layers(layers)}
    return json.dumps(document, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _axis(axis: Axis) -> dict[str, object]:
    texts, title = labels(axis)
    return {
        "title": title,
        "name": axis.name,
        "low": _short(axis.low),
        "high": _short(axis.high),
        "type": "utc" if axis.is_date else "log" if axis.is_log else "linear",
        "ticks": [_short(tick) for tick in axis.ticks],
        "texts": texts,
    }


def _layers(layers: Sequence[Layer]) -> list[dict[str, object]]:
    """One entry for each line and band, and one for all points, bars or cells that look alike."""
    found: list[dict[str, object]] = []
    alike: dict[tuple[str, str], dict[str, list[object]]] = {}
    for layer in layers:
        match layer:
            case Band():
                found.append(_columns("band", layer.css, x=layer.x, low=layer.low, high=layer.high))
            case Line():
                kind = "stairs" if layer.is_stepped else "line"
                found.append(_columns(kind, layer.css, x=layer.x, y=layer.y))
            case Mark():
                found.append(_columns("mark", layer.css, x=[layer.x]) | {"text": [layer.text]})
            case Point():
                kind = "cross" if layer.is_cross else "dot"
                _add(alike, kind, layer.css, x=layer.x, y=layer.y, title=layer.title)
            case Bar():
                _add(
                    alike,
                    "bar",
                    layer.css,
                    x1=layer.x_low,
                    x2=layer.x_high,
                    y1=layer.y_low,
                    y2=layer.y,
                    title=layer.title,
                )
            case Cell():
                _add(
                    alike,
                    "cell",
                    layer.css,
                    x1=layer.x_low,
                    x2=layer.x_high,
                    y1=layer.y_low,
                    y2=layer.y_high,
                    share=layer.share,
                    title=layer.title,
                )
    for (kind, css), columns in alike.items():
        found.append({"kind": kind, "css": css, **columns})
    return found


def _columns(kind: str, css: str, **columns: Sequence[float]) -> dict[str, object]:
    return {
        "kind": kind,
        "css": css,
        **{name: [_short(v) for v in values] for name, values in columns.items()},
    }


def _add(
    alike: dict[tuple[str, str], dict[str, list[object]]], kind: str, css: str, **values: float | str
) -> None:
    columns = alike.setdefault((kind, css), {name: [] for name in values})
    for name, value in values.items():
        columns[name].append(value if isinstance(value, str) else _short(value))


def _short(value: float) -> float | None:
    """Six digits are more than a screen has; dates need ten."""
    return float(f"{value:.10g}" if abs(value) > 1e8 else f"{value:.6g}") if math.isfinite(value) else None
