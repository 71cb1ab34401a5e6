"""Knows how the configuration's files are read and merged, and how all mistakes in them are reported at once.

Later files win, key by key:

    /usr/lib/penstock/*.toml  <  /etc/penstock/penstock.toml  <  /etc/penstock/penstock.d/*.toml

An endpoint that no file names is taken from the environment or from the SDK's own files, if they name one: the SDK
would use it anyway, without penstock pricing or showing it.
Each file is checked by itself, so that a problem names its file; the keys of all files are then merged as a flat table
of dotted paths.
"""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from penstock.daemon import host, regions
from penstock.daemon.config import Configuration
from penstock.daemon.contradictions import aws_regions, contradictions
from penstock.operations.operation import Service
from penstock.operations.sections.values import EndpointUrl, Kind
from penstock.units import UnitError

MAIN_FILE = Path("/etc/penstock/penstock.toml")
VENDOR_DIRECTORY = Path("/usr/lib/penstock")
DEFAULT_ORIGIN = "default"
_OF_ENVIRONMENT, _OF_SDK = "the environment", "the SDK's own files"
_CONTROL_GROUP = "daemon.control_group"
_IGNORED = "ignore_configured_endpoint_urls"
_ENDPOINT_KEYS = {Service.S3: "aws.s3_endpoint_url", Service.SQS: "aws.sqs_endpoint_url"}


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where it is, what was found, what was expected."""

    file: str
    key: str  # the dotted path; empty when the file itself is the problem
    sentence: str

    def __str__(self) -> str:
        where = f"{self.file}: {self.key}" if self.key else self.file
        return f"{where}: {self.sentence}"


class ConfigError(Exception):
    """The configuration cannot be used; `problems` holds every mistake in it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class LoadedConfiguration:
    """A configuration and which file each of its values came from."""

    configuration: Configuration
    origins: Mapping[str, str]  # by dotted path; keys that are missing here have their defaults
    files: tuple[Path, ...]  # in the order in which they were merged: later ones win

    def warnings(self) -> list[Problem]:
        """What is probably a mistake, unless it is newer than this penstock or meant for another host."""
        found = [
            (key, f'found "{name}", which is not a region that the SDK knows{regions.hint(name)}')
            for key, name in aws_regions(self.configuration)
            if not regions.is_known(name)
        ]
        group = self.configuration.daemon.control_group
        if _CONTROL_GROUP in self.origins and host.group_id(group) is None:
            sentence = f'found "{group}", which is no group here: root and the daemon\'s own user alone may control it'
            found.append((_CONTROL_GROUP, sentence))
        return [Problem(self.origins.get(key, DEFAULT_ORIGIN), key, sentence) for key, sentence in found]

    def endpoints_of_environment(self) -> list[str]:
        """A sentence for each endpoint that only this environment names: the daemon may be started with another one."""
        return [
            f"{service.value.upper()} is {self.configuration.aws.endpoint_urls[service]}, as {origin} says: "
            f"a daemon that is started without it uses AWS, unless {key} names it"
            for service, key in _ENDPOINT_KEYS.items()
            if (origin := self.origins.get(key, "")).endswith((_OF_ENVIRONMENT, _OF_SDK))
        ]

    def effective(self) -> dict[str, Any]:
        """Every key by section as ``{"value": ..., "origin": ...}``, as JSON (hence Any)."""
        return self._table(self.configuration, "")

    def _table(self, section: Struct, prefix: str) -> dict[str, Any]:
        rows: dict[str, Any] = {}
        for field in msgspec.structs.fields(section):
            value, path = getattr(section, field.name), prefix + field.name
            if isinstance(value, Struct):
                rows[field.name] = self._table(value, path + ".")
            else:
                plain = list(value) if isinstance(value, tuple) else value
                rows[field.name] = {"value": plain, "origin": self.origins.get(path, DEFAULT_ORIGIN)}
        return rows


def load(
    main_file: Path | None = None, *, root: Path = Path("/"), environment: Mapping[str, str] = os.environ
) -> LoadedConfiguration:
    """Read all files and merge them. Raises ConfigError with every mistake.

    A `main_file` that is named must exist; the default one need not. `root` is prefixed to the default paths. Of
    `environment`, only the SDK's variables for endpoints, profile and the places of its own files are read.
    """
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    files = list(_files(main_file, root, problems))
    for file in files:
        leaves = _read_file(file, problems)
        values.update(leaves)
        origins.update(dict.fromkeys(leaves, str(file)))
    for service, origin, url in _sdk_endpoints(environment, values.get("aws.profile", "")):
        key = _ENDPOINT_KEYS[service]
        if not values.get(key):
            origins[key] = origin
            try:
                values[key] = _read_value(url, EndpointUrl)
            except ValueError as error:
                problems.append(Problem(origins[key], key, str(error)))
    configuration = _build(Configuration, values, "")
    unreadable = {problem.key for problem in problems} - origins.keys()  # these have their defaults
    for wrong in contradictions(configuration):
        if wrong.key not in unreadable:
            origin = next((origins[k] for k in (wrong.key, *wrong.because) if k in origins), DEFAULT_ORIGIN)
            problems.append(Problem(origin, wrong.key, wrong.sentence))
    if problems:
        raise ConfigError(problems)
    return LoadedConfiguration(configuration, origins, tuple(files))


def _sdk_endpoints(environment: Mapping[str, str], name: str) -> Iterator[tuple[Service, str, str]]:
    """The endpoints that the SDK would use by itself: service, who names it, and URL. Empty URLs do not count.

    Variables, files, keys and their order are the SDK's own.
    """
    name = name or environment.get("AWS_DEFAULT_PROFILE") or environment.get("AWS_PROFILE") or "default"
    config = _sdk_file("load_config", environment.get("AWS_CONFIG_FILE", "~/.aws/config"))
    secrets = environment.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    profile = {
        **config.get("profiles", {}).get(name, {}),
        **_sdk_file("raw_config_parse", secrets).get(name, {}),
    }
    ignored = environment.get(f"AWS_{_IGNORED.upper()}", profile.get(_IGNORED))
    if str(ignored).lower() == "true":
        return
    services = config.get("services", {}).get(str(profile.get("services")), {})
    for service in Service:
        section = services.get(service.value)
        variables = (f"AWS_ENDPOINT_URL_{service.value.upper()}", "AWS_ENDPOINT_URL")
        found = (
            *((f"{v} of {_OF_ENVIRONMENT}", environment.get(v)) for v in variables),
            (
                f"profile {name}, services, in {_OF_SDK}",
                isinstance(section, dict) and section.get("endpoint_url"),
            ),
            (f"profile {name} in {_OF_SDK}", profile.get("endpoint_url")),
        )
        yield from [(service, origin, url) for origin, url in found if url][:1]


def _sdk_file(read: str, path: str) -> dict[str, Any]:
    """The file as the SDK parses it; empty where missing, or broken, which the search for credentials reports."""
    if not os.path.isfile(os.path.expanduser(os.path.expandvars(path))):  # noqa: PTH111, PTH113 - no exceptions
        return {}
    from botocore import configloader, exceptions  # late: takes a third of a megabyte, and few need it

    try:
        return getattr(configloader, read)(path)  # type: ignore[no-any-return]
    except exceptions.ConfigParseError:
        return {}


def all_keys(section: type[Struct] = Configuration, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every dotted path with its default and its type, in the order of declaration (Any: each key has its own)."""
    hints = get_type_hints(section, include_extras=True)
    for field in msgspec.structs.fields(section):
        hint = hints[field.name]
        if _is_section(hint):
            yield from all_keys(hint, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, field.default, hint


def expectation(hint: Any) -> str:
    """What a key of this type expects, in words (Any: a type hint)."""
    kind = _kind(hint)
    if kind is not None:
        return kind.expected
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(json.dumps(choice) for choice in get_args(hint))
    if get_origin(hint) is tuple:
        return f"a list, each {expectation(get_args(hint)[0])}"
    return {bool: "true or false", str: "text in quotes"}[hint]


def _files(main_file: Path | None, root: Path, problems: list[Problem]) -> Iterator[Path]:
    yield from _files_in(root / VENDOR_DIRECTORY.relative_to("/"), problems)
    main = main_file or root / MAIN_FILE.relative_to("/")
    try:
        main.stat()
    except (FileNotFoundError, NotADirectoryError):
        if main_file is not None:
            problems.append(
                Problem(str(main), "", "there is no such file; name one with --config, or leave it out")
            )
    except OSError as error:
        problems.append(_unreadable(main, error))
    else:
        yield main
    yield from _files_in(main.with_suffix(".d"), problems)


def _files_in(folder: Path, problems: list[Problem]) -> list[Path]:
    """The folder's TOML files. One that cannot be listed is a problem: it may hold a lower budget."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        problems.append(_unreadable(folder, error))
        return []


def _unreadable(path: Path, error: OSError) -> Problem:
    return Problem(str(path), "", f"it cannot be read: {error.strerror}")


def _read_file(file: Path, problems: list[Problem]) -> dict[str, Any]:
    """The valid values of one file by dotted path; mistakes are appended to `problems`."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        problems.append(_unreadable(file, error))
    except UnicodeDecodeError as error:
        problems.append(Problem(str(file), "", f"it is not UTF-8 text (byte {error.start})"))
    except tomllib.TOMLDecodeError as error:
        problems.append(_syntax_problem(file, str(error)))
    except RecursionError:
        problems.append(Problem(str(file), "", "it is nested deeper than any configuration"))
    except ValueError:  # last, as their base class: Python refuses integers of thousands of digits
        problems.append(Problem(str(file), "", "it has a number that is longer than any that is meant"))
    else:
        return dict(_read_table(Configuration, table, "", str(file), problems))
    return {}


def _syntax_problem(file: Path, message: str) -> Problem:
    position = re.search(r" ?\(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    if position is None or position.group(1) is None:
        return Problem(str(file), "", f"not TOML: {message}")
    place = f"{file}:{position.group(1)}:{position.group(2)}"
    return Problem(place, "", f"not TOML: {message[: position.start()]}")


def _read_table(
    section: type[Struct], table: Mapping[str, Any], prefix: str, file: str, problems: list[Problem]
) -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(section, include_extras=True)
    for key, raw in table.items():
        path = prefix + key
        if key not in section.__struct_fields__:
            problems.append(Problem(file, path, _unknown_key(key, section)))
        elif not _is_section(hints[key]):
            try:
                yield path, _read_value(raw, hints[key])
            except ValueError as error:
                problems.append(Problem(file, path, str(error)))
        elif isinstance(raw, dict):
            yield from _read_table(hints[key], raw, path + ".", file, problems)
        else:
            problems.append(Problem(file, path, f"found {_shown(raw)}; expected a table, [{path}]"))


def _unknown_key(key: str, section: type[Struct]) -> str:
    import difflib

    if re.search("secret|password|token|access_?key|credential", key, re.IGNORECASE):
        return "unknown key; credentials never belong in the configuration: name a profile in aws.profile"
    names = section.__struct_fields__
    close = (
        difflib.get_close_matches(key, names, n=1, cutoff=0.6)
        or [n for n in names if n.startswith(key + "_")][:1]
    )
    if close:
        return f"unknown key; did you mean {close[0]}?"
    elsewhere = [path for path, _, _ in all_keys() if path.rpartition(".")[2] == key]
    if elsewhere:
        return f"unknown key here; did you mean {elsewhere[0]}?"
    return f"unknown key; expected one of {', '.join(names)}"


def _read_value(raw: Any, hint: Any) -> Any:
    """The value converted to the key's type. Raises ValueError with a message for the operator (Any: raw TOML)."""
    try:
        return _convert(raw, hint)
    except UnitError as error:
        raise ValueError(str(error)) from None
    except msgspec.ValidationError:
        raise ValueError(f"found {_shown(raw)}; expected {expectation(hint)}") from None


def _convert(raw: Any, hint: Any) -> Any:
    kind = _kind(hint)
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if get_origin(bare) is tuple and isinstance(raw, list):
        return msgspec.convert(_convert_each(raw, get_args(bare)[0]), hint)
    if kind is not None and kind.parse is not None and isinstance(raw, str):
        number = kind.parse(raw)
        raw = round(number) if bare is int else number
    if isinstance(raw, float) and not math.isfinite(raw):
        raise msgspec.ValidationError("not finite")
    return msgspec.convert(raw, hint)


def _convert_each(raw: list[Any], hint: Any) -> tuple[Any, ...]:
    """All elements of a list, converted. Raises ValueError that names each wrong one."""
    converted, unread, unexpected = list[Any](), list[str](), list[str]()
    for item in raw:
        try:
            converted.append(_convert(item, hint))
        except UnitError as error:
            unread.append(str(error))
        except msgspec.ValidationError:
            unexpected.append(_shown(item))
    if unexpected:
        unread.append(f"found {', '.join(unexpected)}; expected a list, each {expectation(hint)}")
    if unread:
        raise ValueError("; ".join(unread))
    return tuple(converted)


def _shown(raw: Any) -> str:
    """A value as it was found, shortened; a URL with a user part is shown without it."""
    if isinstance(raw, str) and "@" in raw:
        return f'a URL at "{urlsplit(raw).hostname or "?"}" with a user name'
    text = json.dumps(raw, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _build(section: type[Struct], values: Mapping[str, Any], prefix: str) -> Any:
    """The section from the flat table (Any: mypy cannot follow a Struct chosen at run time)."""
    hints = get_type_hints(section)
    arguments: dict[str, Any] = {}
    for name in section.__struct_fields__:
        path = prefix + name
        if _is_section(hints[name]):
            arguments[name] = _build(hints[name], values, path + ".")
        elif path in values:
            arguments[name] = values[path]
    return section(**arguments)


def _is_section(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct)


def _kind(hint: Any) -> Kind | None:
    for item in getattr(hint, "__metadata__", ()):
        if isinstance(item, Meta) and item.extra:
            return item.extra["kind"]  # type: ignore[no-any-return]  # msgspec types `extra` as a plain dict
    return None
