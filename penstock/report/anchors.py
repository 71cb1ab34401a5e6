"""Knows where on the page a number is drawn: names that commands and the page agree on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def place_anchor(*, operation: str, region: str, instance_type: str, service_class: str) -> str:
    """Of the section of a place."""
    return ".".join((operation, region, instance_type, service_class)).replace(" ", "_")


def curve_anchor(knob: str) -> str:
    """Of the value against a knob, within a place."""
    return f"curve-{knob}"


FORESEEN, PHYSICS, COURSE, HOURS, SURFACE = "foreseen", "physics", "course", "hours", "surface"
PREDICTED, LOST, RETRIES = "predicted", "lost", "retries"


def figures_of(place: str, knobs: Iterable[str]) -> Mapping[str, str]:
    """For the numbers of advice: the fragment of the page that shows what each rests on."""
    return {
        **{knob: f"#{place}.{curve_anchor(knob)}" for knob in knobs},
        "prediction": f"#{place}.{PREDICTED}",
        "parameters": f"#{place}.{PHYSICS}",
    }
