"""Knows where each program takes its options: from its arguments, its environment, or its configuration.

Arguments and environment variables that the user has set stay as they are. Settings in a configuration file give way to
the advice, for this one run.
"""

from __future__ import annotations

import configparser
import io
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.client.targets.command_lines import rclone_variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.client.targets.target import Option, Translation

_TRANSFERRING = ("cp", "mv", "sync")
_AWS_FILES = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}


class Launch(NamedTuple):
    """How to run a program: the whole command, additions to the environment, and settings for the AWS CLI."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = {}
    aws_settings: Mapping[str, str] = {}


class Program(NamedTuple):
    """A program that can be run with advice for its target; downloads use `download_target`."""

    target: str
    # The position of the word that makes the command a transfer; None if it is none.
    verb_at: Callable[[Sequence[str]], int | None]
    apply: Callable[[Sequence[str], int, Mapping[str, str], Translation], Launch]
    marks: tuple[str, ...] = ("s3://",)  # what a name in S3 contains
    switches: frozenset[str] = frozenset()  # options without a value; others take the next word
    unseen: frozenset[str] = frozenset()  # verbs whose transfers the command line does not show

    @property
    def download_target(self) -> str:
        """The target for downloads."""
        return f"{self.target}-download"

    def is_unseen(self, command: Sequence[str]) -> bool:
        """Whether the verb is one of `unseen`, after options that may take values; file names do not count."""
        before = ""
        for word in command[1:]:
            if word in self.unseen:
                return True
            is_value = before.startswith("-") and "=" not in before and before not in self.switches
            if not (is_value or word.startswith("-")):
                return False
            before = word
        return False


def sink_of(program: Program, command: Sequence[str]) -> str | None:
    """The sink of a command that reads from S3, as a demand names it; None if it does not show that it reads.

    It shows it by a local name directly after the last one in S3, or by reading to its standard output.
    """
    place = _destination_at(program, command)
    if place is None:
        return None
    behind = next(_arguments(program, command[place + 1 :]), None)
    if behind is None:
        return "memory" if place + 1 == len(command) and _first(command, ("cat",)) is not None else None
    return {"-": "memory", "/dev/null": "null"}.get(behind, "file")


def source_of(program: Program, command: Sequence[str], verb: int) -> str | None:
    """The argument before the destination, if it is a local name: the file that is uploaded; else None."""
    place = _destination_at(program, command)
    if place is None or place - 1 <= verb:
        return None
    source = command[place - 1]
    return None if source.startswith("-") or _is_remote(program, source) else source


def aws_configuration(
    command: Sequence[str], environment: Mapping[str, str], settings: Mapping[str, str]
) -> str:
    """The user's own AWS configuration, with these settings in the active profile.

    An unknown profile is not created: the AWS CLI would then use other credentials, where it should refuse. Raises
    OSError, UnicodeError, configparser.Error.
    """
    own, secrets = (
        Path(os.path.expandvars(environment.get(name) or usual)).expanduser()
        for name, usual in _AWS_FILES.items()
    )
    text, profile = own.read_text(encoding="utf-8") if own.exists() else "", aws_profile(command, environment)
    known = {"default", *map(_profile_of, _parsed(text).sections())}
    if profile not in known and secrets.is_file():  # a pipe can be read only once, by the AWS CLI
        known.update(_parsed(secrets.read_text(encoding="utf-8")).sections())
    return with_aws_settings(text, profile, settings) if profile in known else text


def _parsed(text: str) -> configparser.RawConfigParser:
    found = configparser.RawConfigParser(default_section="no section has defaults for the others")
    found.read_string(text)
    return found


def with_aws_settings(text: str, profile: str, settings: Mapping[str, str]) -> str:
    """An AWS configuration with these settings in the s3 section of a profile, and everything else unchanged.

    Raises configparser.Error if the text is not a configuration.
    """
    found = _parsed(text)
    own = [section for section in found.sections() if _profile_of(section) == profile]
    section = "default" if profile == "default" else f"profile {shlex.quote(profile)}"
    if own:
        section = own[-1]  # botocore uses the last one
    else:
        found.add_section(section)
    nested = dict(_nested(found.get(section, "s3", fallback="")))
    lines = [f"{name} = {value}" for name, value in {**nested, **settings}.items()]
    found.set(section, "s3", "\n" + "\n".join(lines))
    written = io.StringIO()
    found.write(written)
    return written.getvalue()


def _profile_of(section: str) -> str | None:
    """The profile of a section by botocore's rules, which allow quotes in its name; None if it is no profile's."""
    try:
        words = ["profile", section] if section == "default" else shlex.split(section)
    except ValueError:
        return None
    return words[1] if len(words) == 2 and words[0].startswith("profile") else None


def aws_profile(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The active profile: from the command line, else from the environment, else the default."""
    for place, word in enumerate(command):
        if word == "--profile" and place + 1 < len(command):
            return command[place + 1]
        if word.startswith("--profile="):
            return word.partition("=")[2]
    return environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or "default"


def _destination_at(program: Program, command: Sequence[str]) -> int | None:
    """The position of the last argument that names something in S3; None if there is none."""
    for place in range(len(command) - 1, 0, -1):
        if not command[place].startswith("-") and _is_remote(program, command[place]):
            return place
    return None


def _is_remote(program: Program, word: str) -> bool:
    """Whether a word names something in S3; an endpoint's URL does not, though rclone's remotes contain a colon."""
    return any(mark in word for mark in program.marks) and not word.startswith(("http://", "https://"))


def _arguments(program: Program, words: Sequence[str]) -> Iterator[str]:
    """The words that are neither options nor values of options."""
    left = iter(words)
    for word in left:
        if not word.startswith("-") or word == "-":
            yield word
        elif "=" not in word and word not in program.switches:
            next(left, None)


def _nested(text: str) -> Iterable[tuple[str, str]]:
    for line in text.splitlines():
        name, joint, value = line.partition("=")
        if joint:
            yield name.strip(), value.strip()


def _first(command: Sequence[str], words: Sequence[str]) -> int | None:
    return next((place for place, word in enumerate(command) if place > 0 and word in words), None)


def _is_given(command: Sequence[str], *names: str) -> bool:
    return any(word == name or word.startswith(f"{name}=") for word in command for name in names)


def _missing(options: Iterable[Option], command: Sequence[str], short: Mapping[str, str]) -> list[str]:
    """The options that the user has not given, as words."""
    return [
        word
        for option in options
        if not _is_given(command, option.name, short.get(option.name, option.name))
        for word in (option.name, str(option.value))
    ]


def _s5cmd(command: Sequence[str], verb: int, _: Mapping[str, str], translation: Translation) -> Launch:
    before = [option for option in translation.options if option.group == "s5cmd"]
    behind = [option for option in translation.options if option.group == "cp"]
    return Launch(
        (
            command[0],
            *_missing(before, command[:verb], {}),
            *command[1 : verb + 1],
            *_missing(behind, command[verb:], {"--concurrency": "-c", "--part-size": "-p"}),
            *command[verb + 1 :],
        )
    )


def _rclone(
    command: Sequence[str], _: int, environment: Mapping[str, str], translation: Translation
) -> Launch:
    variables = {
        rclone_variable(option.name): str(option.value)
        for option in translation.options
        if not _is_given(command, option.name) and rclone_variable(option.name) not in environment
    }
    return Launch(tuple(command), environment=variables)


def _aws(command: Sequence[str], _: int, __: Mapping[str, str], translation: Translation) -> Launch:
    settings = {option.name: str(option.value) for option in translation.options}
    return Launch(tuple(command), aws_settings=settings)


def _aws_verb_at(command: Sequence[str]) -> int | None:
    places = range(2, len(command))  # a profile may be named s3
    return next((at for at in places if command[at - 1] == "s3" and command[at] in _TRANSFERRING), None)


def _mountpoint(command: Sequence[str], _: int, __: Mapping[str, str], translation: Translation) -> Launch:
    either = dict.fromkeys(("--write-part-size", "--read-part-size"), "--part-size")
    words = _missing(translation.options, command, either)
    return Launch((command[0], *words, *command[1:]))


def _spark(command: Sequence[str], _: int, __: Mapping[str, str], translation: Translation) -> Launch:
    words = [word for stated in _unstated(translation, command) for word in ("--conf", stated)]
    return Launch((command[0], *words, *command[1:]))


def _hadoop(command: Sequence[str], verb: int, _: Mapping[str, str], translation: Translation) -> Launch:
    words = [f"-D{stated}" for stated in _unstated(translation, command)]
    return Launch((*command[: verb + 1], *words, *command[verb + 1 :]))


def _unstated(translation: Translation, command: Sequence[str]) -> list[str]:
    """The properties that the user has not set, with their values."""
    return [
        f"{option.name}={option.value}"
        for option in translation.options
        if not any(f"{option.name}=" in given for given in command)
    ]


_AWS_SWITCHES = """
    --recursive --quiet --dryrun --only-show-errors --no-progress --delete --exact-timestamps --size-only
    --follow-symlinks --no-follow-symlinks --force-glacier-transfer --ignore-glacier-warnings --no-guess-mime-type
    --no-overwrite --debug --no-verify-ssl --no-sign-request --no-paginate --no-cli-pager
"""
_RCLONE_SWITCHES = """
    -P --progress -v -vv --verbose -q --quiet -n --dry-run -i --interactive -c --checksum -u --update --size-only
    --ignore-existing -I --ignore-times --ignore-checksum --fast-list --no-traverse -M --metadata --inplace --immutable
    --create-empty-src-dirs --delete-after --delete-before --delete-during --stats-one-line --human-readable
    --no-check-dest --s3-no-check-bucket --s3-env-auth
"""
_S5CMD_SWITCHES = "--json --dry-run --no-sign-request --no-verify-ssl --stat --use-list-objects-v1"
_SPARK = Program("spark", lambda command: 0 if command else None, _spark, ("s3a://", "s3://"))
_HADOOP = Program(
    "hadoop-s3a", lambda command: _first(command, ("fs", "dfs", "distcp")), _hadoop, ("s3a://",)
)

PROGRAMS: Mapping[str, Program] = {
    "s5cmd": Program(
        "s5cmd",
        lambda command: _first(command, (*_TRANSFERRING, "pipe", "cat")),
        _s5cmd,
        switches=frozenset(_S5CMD_SWITCHES.split()),
        unseen=frozenset({"run"}),
    ),
    "rclone": Program(
        "rclone",
        lambda command: _first(command, ("copy", "copyto", "move", "moveto", "sync", "rcat")),
        _rclone,
        (":",),
        frozenset(_RCLONE_SWITCHES.split()),
        frozenset({"bisync", "copyurl", "mount", "nfsmount", "rcd", "serve"}),
    ),
    "aws": Program("aws-cli", _aws_verb_at, _aws, switches=frozenset(_AWS_SWITCHES.split())),
    "mount-s3": Program("mountpoint", lambda command: 0 if command else None, _mountpoint),
    "spark-submit": _SPARK,
    "spark-shell": _SPARK,
    "spark-sql": _SPARK,
    "pyspark": _SPARK,
    "hadoop": _HADOOP,
    "hdfs": _HADOOP,
}
"""By the name of the command."""
