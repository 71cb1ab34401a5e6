"""Knows which endpoints the SDK takes from its environment where none is named; variables and order are its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.operations.operation import Service

_EVERY = "AWS_ENDPOINT_URL"
_IGNORED = "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"


def endpoints(environment: Mapping[str, str]) -> Iterator[tuple[Service, str, str]]:
    """Each service that has one, the variable that names it, and the URL; an empty variable names none."""
    if environment.get(_IGNORED, "").lower() == "true":
        return
    for service in Service:
        for variable in (f"{_EVERY}_{service.value.upper()}", _EVERY):
            if url := environment.get(variable):
                yield service, variable, url
                break
