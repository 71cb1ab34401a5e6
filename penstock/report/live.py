"""Knows what a page may run: drawings as data for a script, the script and its libraries, and their hashes.

The page contains everything. Observable Plot and d3 are kept beside this file as npm publishes them, by version and
hash (`vendored/vendored.toml`); the page's own content security policy admits these texts and no others.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from functools import cache
from importlib import resources

from penstock.report.chart import Axis, Band, Bar, Grid, Layer, Line, Mark, Point, Whiskers, labels

LIBRARIES = ("vendored/d3.min.js", "vendored/plot.umd.min.js")
OWN = "templates/report.js"


@cache
def scripts() -> tuple[str, ...]:
    """The scripts, in the order in which they run."""
    return tuple(
        resources.files("penstock.report").joinpath(name).read_text(encoding="utf-8").strip()
        for name in (*LIBRARIES, OWN)
    )


@cache
def script_hashes() -> str:
    """The hashes of the scripts, as a content security policy lists them."""
    digests = (hashlib.sha256(text.encode()).digest() for text in scripts())
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def live(title: str, x: Axis, y: Axis, layers: Sequence[Layer]) -> str:
    """The figure as JSON that is safe inside a page: nothing in it closes the element around it."""
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
    """One entry for each line and band, and one for all points or bars of the same style.

    A point's or bar's title occurs only in the static drawing; `told` is its index there.
    """
    told, found = 0, list[dict[str, object]]()
    alike: dict[tuple[str, str], dict[str, list[object]]] = {}
    for layer in layers:
        match layer:
            case Band():
                found.append(_columns("band", layer.css, x=layer.x, low=layer.low, high=layer.high))
            case Line():
                kind = "stairs" if layer.is_stepped else "line"
                found.append(_columns(kind, layer.css, x=layer.x, y=layer.y))
            case Whiskers():
                x1, x2 = zip(*layer.x, strict=True)
                y1, y2 = zip(*layer.y, strict=True)
                found.append(_columns("whisker", layer.css, x1=x1, x2=x2, y1=y1, y2=y2))
            case Mark():
                found.append(
                    _columns("mark", layer.css, x=[layer.x]) | {"text": [layer.text], "row": layer.row}
                )
            case Point():
                kind = "cross" if layer.is_cross else "dot"
                _add(alike, kind, layer.css, x=layer.x, y=layer.y, told=told)
                told += 1
            case Bar():
                ends = {"x1": layer.x_low, "x2": layer.x_high, "y1": layer.y_low, "y2": layer.y}
                _add(alike, "bar", layer.css, **ends, told=told)
                told += 1
            case Grid():
                found.append(
                    _columns("grid", layer.css, x=layer.x, y=layer.y)
                    | {
                        "name": layer.name,
                        "words": layer.words,
                        "counted": layer.is_counted,
                        "values": [[_short(v) for v in row] for row in layer.values],
                    }
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


def _add(alike: dict[tuple[str, str], dict[str, list[object]]], kind: str, css: str, **values: float) -> None:
    columns = alike.setdefault((kind, css), {name: [] for name in values})
    for name, value in values.items():
        columns[name].append(_short(value))


def _short(value: float) -> float | int | None:
    """Four digits suffice for a screen; dates need ten. Whole numbers are written without a decimal point."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.10g}" if 1e8 < abs(value) < 1e10 else f"{value:.4g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
