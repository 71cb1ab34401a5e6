"""Applications have a table of operations of their own; it says what the daemon's does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from penstock.api.wire import QUESTION_PARAMETERS
from penstock.client import demand, operations
from penstock.client.operations import ADVISED_FIELDS, SDK_DEFAULTS
from penstock.client.sizes import SIZE_BYTES_MAX
from penstock.operations.operation import Operation
from penstock.operations.sections.values import PayloadBytes
from penstock.operations.table import OPERATIONS
from penstock.vocabulary import Context, Objective, Place, Regime, knobs, setting_values


def test_both_tables_have_the_same_operations() -> None:
    """What a daemon measures, an application can be sure of; what no daemon measures is promised to nobody."""
    assert ADVISED_FIELDS.keys() == OPERATIONS.keys()
    assert OPERATIONS.keys() <= SDK_DEFAULTS.keys()


def test_the_largest_object_is_the_same_wherever_a_size_is_stated() -> None:
    """In an application, on the socket and in the configuration: what one takes for valid, the others do."""
    assert max(row.payload_size_bytes_max for row in OPERATIONS.values()) == SIZE_BYTES_MAX
    assert msgspec.convert(SIZE_BYTES_MAX, PayloadBytes) == SIZE_BYTES_MAX
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(SIZE_BYTES_MAX + 1, PayloadBytes)


def test_type_checkers_know_the_names() -> None:
    """They read them where they are written out, which is not executed: it would import `typing`."""
    source = Path(operations.__file__).read_text(encoding="utf-8")
    names = re.findall(r"    Operation = Literal\[(.+)\]", source)
    assert [name.strip('"') for name in names[0].split(", ")] == list(SDK_DEFAULTS)


def test_an_application_may_state_what_the_socket_reads() -> None:
    """A parameter or a word that the types do not know would be an error to the checker of every application."""
    assert set(demand.Demand.__annotations__) == set(QUESTION_PARAMETERS) - {
        "operation",
        "payload_size_bytes",
    }
    known = get_type_hints(demand.Demand)
    assert set(get_args(known["objective"])) == set(Objective)
    assert set(get_args(known["regime"])) == set(Regime)
    classes = {name for row in OPERATIONS.values() for name in row.service_classes}
    assert set(get_args(known["service_class"])) == classes


def test_advice_has_to_hold_every_knob(row: Operation[Any, Any]) -> None:
    """Advice that lacks a knob is refused, and one that has all of them is not."""
    assert ADVISED_FIELDS[row.name] == knobs(row.setting_type).keys()


def test_both_know_the_same_defaults(row: Operation[Any, Any]) -> None:
    """What an application does without a daemon is what the daemon takes for unadvised."""
    place = Place(operation=row.name, region="r", instance_type="i")
    size = row.payload_ladder_bytes[len(row.payload_ladder_bytes) // 2]
    default = row.model.default_setting(Context(place=place, payload_size_bytes=size))
    assert SDK_DEFAULTS[row.name]["setting"] == setting_values(default)
