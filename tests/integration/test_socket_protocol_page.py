"""The page of the socket does what it says: every example on it is run against a real server."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.shared_limit import Outside, host_limits
from penstock.api import wire
from penstock.lab.virtual_time import VirtualClock
from penstock.vocabulary import Basis
from tests.integration.scripted_advisor import Served, served_in_thread
from tests.programs import printed
from tests.unit.daemon.fleet.test_exchange import a_fleet, measured
from tests.unit.probes.fakes import MemoryStore, virtually

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "socket-protocol.md").read_text(encoding="utf-8")
OPENAPI: dict[str, Any] = json.loads((DOCS / "openapi.json").read_text(encoding="utf-8"))
ASK = 'ask() { curl --silent --unix-socket $PENSTOCK_SOCKET "$@"; }\n'


def examples() -> list[tuple[str, str]]:
    """Each command of the page with the output below it."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = example.partition("\n")
            found.append((command, output.strip()))
    return found


def shape(value: Any) -> Any:
    """The keys and types of a document, without its values."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return "number" if isinstance(value, (int, float)) else type(value).__name__


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One daemon for all examples."""
    with served_in_thread(tmp_path_factory.mktemp("page")) as running:
        yield running


def run(server: Served, command: str) -> str:
    """What an example prints."""
    for tool in ("curl", "jq"):
        if (tool == "curl" or tool in command) and shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    return printed(
        ["bash", "-c", ASK + command],
        env={"PENSTOCK_SOCKET": str(server.socket_path), "PATH": "/usr/local/bin:/usr/bin:/bin"},
    ).strip()


@pytest.mark.parametrize(("command", "output"), examples())
def test_every_example_answers_as_it_is_shown(server: Served, command: str, output: str) -> None:
    """Documents have the keys and types that are shown; anything else is the same text."""
    answered = run(server, command)
    if output.startswith("{"):
        assert shape(json.loads(answered)) == shape(json.loads(output))
    else:
        assert answered == output


def test_the_page_and_the_interface_name_every_parameter() -> None:
    """A parameter that is not documented cannot be found, and one that is gone must not be promised."""
    table = PAGE.split("being required:")[1].split("```")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert documented == set(wire.QUESTION_PARAMETERS)
    for target in ("/v1/recommendation", "/v1/explain"):
        listed = [resolved(parameter)["name"] for parameter in OPENAPI["paths"][target]["get"]["parameters"]]
        assert set(listed) == set(wire.QUESTION_PARAMETERS)
        assert len(listed) == len(set(listed))


def test_every_description_is_text() -> None:
    """A generator of clients refuses the whole document for one that is null."""
    described = re.findall(r'"description": (.)', json.dumps(OPENAPI))
    assert set(described) == {'"'}


def test_generators_of_clients_take_the_interface() -> None:
    """They follow references to whole components alone, and name what they make by operations and by components."""
    text = json.dumps(OPENAPI)
    for section, name in re.findall(r'"\$ref": "#/components/([^"/]*)/([^"]*)"', text):
        assert name in OPENAPI["components"][section], name
    assert text.count('"$ref"') == text.count('"$ref": "#/components/')
    calls = [call for methods in OPENAPI["paths"].values() for call in methods.values()]
    assert len({call["operationId"] for call in calls}) == len(calls)
    parts = OPENAPI["components"]
    types = [name.replace("_", "").lower() for name in (*parts["parameters"], *parts["schemas"])]
    assert len(set(types)) == len(types)


def resolved(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of the interface, or what it refers to."""
    found: Any = entry
    if "$ref" in entry:
        found = OPENAPI
        for key in entry["$ref"].removeprefix("#/").split("/"):
            found = found[key]
    assert isinstance(found, dict)
    if "allOf" not in found:
        return found
    parts = [resolved(part) for part in found["allOf"]]
    return {
        "type": "object",
        "required": [name for part in parts for name in part["required"]],
        "properties": {name: inner for part in parts for name, inner in part["properties"].items()},
    }


def test_the_interface_lists_the_routes_of_the_server(server: Served) -> None:
    """No more, no fewer, each with its method; and the page mentions all of them."""
    routes = {
        (route.resource.canonical, route.method.lower())
        for route in server.api.application().router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    listed = {(path, method) for path, methods in OPENAPI["paths"].items() for method in methods}
    assert listed == routes
    assert all(path in PAGE for path, _ in routes)


@pytest.mark.parametrize(
    ("target", "schema"),
    [
        ("/v1/recommendation?operation=s3_upload&payload_size_bytes=1GiB", "Recommendation"),
        ("/v1/recommendations", "Snapshot"),
        ("/v1/ready", "Readiness"),
        ("/v1/clients", "Clients"),
        ("/v1/recommendation", "Problem"),
    ],
)
def test_answers_keep_to_the_interface(server: Served, target: str, schema: str) -> None:
    """Every key that comes is described, every key that is promised comes, and types agree."""
    document = json.loads(run(server, f"ask 'http://localhost{target}'"))
    agree(document, OPENAPI["components"]["schemas"][schema], schema)


def test_leases_keep_to_the_interface(server: Served) -> None:
    """A line of a lease, and the list while it is held, have every key that is promised and no other."""
    claim = '{"operation":"s3_upload","payload_size_bytes":"1GiB"}'
    post = f"ask --no-buffer --max-time 0.5 --json '{claim}' http://localhost/v1/leases"
    line, listed = run(server, f"{post} | (head -1; ask http://localhost/v1/leases)").splitlines()
    schemas = OPENAPI["components"]["schemas"]
    agree(json.loads(line), schemas["Lease"], "Lease")
    agree(json.loads(listed), schemas["Leases"], "Leases")
    assert len(json.loads(listed)["leases"]) == 1
    assert set(schemas["Claim"]["properties"]) == {*wire.QUESTION_PARAMETERS, *wire.CLAIM_KEYS}


def test_what_the_fleet_has_to_do_with_it_keeps_to_the_interface() -> None:
    """As a host tells it that read what another one wrote, and shares a limit."""

    async def told(clock: VirtualClock) -> tuple[Any, Any]:
        store, limits = MemoryStore(), host_limits(1, clock, Outside(clock), 1000.0, lambda _: 900.0)
        writer, reader = a_fleet(clock, store), a_fleet(clock, store, name="z", may_write=False)
        await writer.visit(measured(writer, clock, 3))
        await reader.visit(measured(reader, clock, 0))
        return reader.document(), limits.document()

    fleet, limits = (json.loads(wire.encode(document)) for document in virtually(told))
    schemas = OPENAPI["components"]["schemas"]
    agree(fleet, schemas["Fleet"], "Fleet")
    agree(limits[0], schemas["SharedLimit"], "SharedLimit")
    assert fleet["places"][0]["observation_count"] == 3


def agree(value: Any, schema: dict[str, Any], where: str) -> None:
    """Check a value against the part of JSON Schema that the interface uses."""
    if value is None and {"type": "null"} in schema.get("oneOf", ()):
        return
    schema = resolved(schema.get("oneOf", [schema])[0])
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    name = "null" if value is None else names[type(value)]
    assert name in types or (name == "integer" and "number" in types), (where, name, types)
    if "enum" in schema:
        assert value in schema["enum"], where
    if name == "object" and "properties" in schema:
        assert set(schema.get("required", ())) <= value.keys() <= schema["properties"].keys(), where
        for key, inner in value.items():
            agree(inner, schema["properties"][key], f"{where}.{key}")
    if name == "object" and isinstance(schema.get("additionalProperties"), dict):
        for key, inner in value.items():
            agree(inner, schema["additionalProperties"], f"{where}.{key}")
    if name == "array":
        for inner in value:
            agree(inner, schema["items"], f"{where}[]")


def test_the_interface_knows_the_words_of_the_vocabulary() -> None:
    """The bases of advice are listed in full, on the page too."""
    basis = OPENAPI["components"]["schemas"]["Recommendation"]["properties"]["basis"]["enum"]
    assert basis == [word.value for word in Basis]
    assert all(f"`{word}`" in PAGE for word in Basis)


def test_the_interface_says_what_a_report_must_have() -> None:
    """Required and optional keys of a report are those that the daemon reads."""
    import msgspec

    schema = OPENAPI["components"]["schemas"]["Report"]
    fields = msgspec.structs.fields(wire._Report)
    assert set(schema["properties"]) == {field.name for field in fields}
    assert set(schema["required"]) == {field.name for field in fields if field.required}
