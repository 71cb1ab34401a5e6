"""Knows the anchors of the page's figures, which commands and the page agree on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def place_anchor(*, operation: str, region: str, instance_type: str, service_class: str) -> str:
    """The anchor of a place's section."""
    return ".".join((operation, region, instance_type, service_class)).replace(" ", "_")


def curve_anchor(knob: str) -> str:
    """The anchor, within a place, of the curve over a knob."""
    return f"curve-{knob}"


FORESEEN, PHYSICS, COURSE, HOURS, SURFACE = "foreseen", "physics", "course", "hours", "surface"
PREDICTED, LOST, RETRIES = "predicted", "lost", "retries"


def figures_of(place: str, knobs: Iterable[str]) -> Mapping[str, str]:
    """By number of an advice: the page fragment that shows what the number is based on."""
    return {
        **{knob: f"#{place}.{curve_anchor(knob)}" for knob in knobs},
        "prediction": f"#{place}.{PREDICTED}",
        "parameters": f"#{place}.{PHYSICS}",
    }
