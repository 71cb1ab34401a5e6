"""Knows the pages that are looked at: a full one, one of many places, an empty one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from penstock.vocabulary import Context
from tests.factories import PLACE
from tests.unit.report.materials import a_real_fit, a_report, html_of, real_advice, some_observations

SIZE_BYTES = 64 * 2**20
PLACE_COUNT = 8


def full() -> str:
    """One place with all there is to say."""
    return html_of(a_report())


def pair() -> str:
    """Two places."""
    return many(2)


def many(place_count: int = PLACE_COUNT) -> str:
    """A fleet: many regions and hosts."""
    places = [
        dataclasses.replace(PLACE, region=f"ap-southeast-{n}", instance_type="u7inh-32tb.480xlarge")
        for n in range(place_count)
    ]
    contexts = [Context(place=place, payload_size_bytes=SIZE_BYTES) for place in places]
    return html_of(
        a_report(
            observations={
                c.place: [dataclasses.replace(o, context=c) for o in some_observations()] for c in contexts
            },
            fits=[dataclasses.replace(a_real_fit(), place=place) for place in places],
            recommendations=[dataclasses.replace(real_advice(), context=context) for context in contexts],
            histories={},
            inconclusives=[],
            changes=[],
        )
    )


def fleet() -> str:
    """More places than anybody reads on paper."""
    return many(40)


def empty() -> str:
    """A daemon that has just begun."""
    return html_of(
        a_report(
            observations={},
            inconclusives=[],
            fits=[],
            recommendations=[],
            histories={},
            expenses=[],
            changes=[],
        )
    )


PAGES: Mapping[str, Callable[[], str]] = {
    "full": full,
    "pair": pair,
    "many": many,
    "fleet": fleet,
    "empty": empty,
}
