"""Knows which actions install and remove the service: files, links and commands, as values that can be shown.

    PREFIX/bin/penstock, PREFIX/bin/penstockd   links to the commands
    PREFIX/lib/systemd/system/penstock.*        service and socket, with the true path of the commands
    PREFIX/lib/sysusers.d, PREFIX/lib/tmpfiles.d   the user and its folders
    PREFIX/share/man, and the folders of shells  manual pages, and completion of the commands
    PREFIX/share/penstock                       the least IAM policy, and an example of a configuration
    /etc/penstock/penstock.toml                 the same example, where there is no configuration yet

Files that somebody else wrote are never replaced: a unit that lacks the first line written here is refused.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias

from penstock.api.snapshot import write_snapshot

MARK = "# Written by `penstock service install`, and anew by the next; `systemctl edit penstock` changes it for good.\n"
COMMANDS = ("penstock", "penstockd")
CONFIGURATION = Path("etc/penstock/penstock.toml")
KEPT = (Path("var/lib/penstock"), CONFIGURATION.parent)
"""Kept when the service is removed, unless it is purged."""
_UNITS = {
    "penstock.service": "lib/systemd/system/penstock.service",
    "penstock.socket": "lib/systemd/system/penstock.socket",
    "penstock.sysusers": "lib/sysusers.d/penstock.conf",
    "penstock.tmpfiles": "lib/tmpfiles.d/penstock.conf",
}
_SHARED = {name: f"share/penstock/{name}" for name in ("iam-policy.json", "penstock.toml")}
_IN_UNITS = "/usr/bin"  # the commands' folder in the shipped units
_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - by ProtectHome and PrivateTmp of the unit
_BOOTED = Path("/run/systemd/system")
_PLAIN = re.compile(r"[\w/.+@-]+")


@dataclass(frozen=True, slots=True)
class Write:
    """A file with this content; `is_marked` if somebody else's file must not be replaced."""

    path: Path
    content: str
    is_marked: bool = False

    def __str__(self) -> str:
        return f"write {self.path}"


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a command."""

    path: Path
    target: Path

    def __str__(self) -> str:
        return f"link {self.path} to {self.target}"


@dataclass(frozen=True, slots=True)
class Remove:
    """A file, a link or a folder to remove."""

    path: Path

    def __str__(self) -> str:
        return f"remove {self.path}"


@dataclass(frozen=True, slots=True)
class Run:
    """A command of systemd; `may_fail` if there may be nothing to do."""

    command: tuple[str, ...]
    may_fail: bool = False

    def __str__(self) -> str:
        return f"run {' '.join(self.command)}"


Action: TypeAlias = "Write | Link | Remove | Run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where to install; `root` is not / while a package is made, and then no command is run."""

    root: Path = Path("/")
    prefix: Path = Path("/usr/local")
    commands: Path  # the folder of the commands, as the installed unit sees it

    def at(self, relative: str | Path) -> Path:
        """A path below the prefix."""
        return self.root / self.prefix.relative_to("/") / relative

    @property
    def is_live(self) -> bool:
        """Whether it is the running system."""
        return self.root == Path("/")

    @property
    def is_booted(self) -> bool:
        return self.is_live and _BOOTED.exists()


def installation(layout: Layout, *, is_enabled: bool) -> list[Action]:
    """The actions that install the service, or upgrade it."""
    actions: list[Action] = [
        Write(layout.at(place), MARK + _shipped(name, layout.commands), is_marked=True)
        for name, place in _UNITS.items()
    ]
    actions += [Write(layout.at(place), _shipped(name)) for name, place in _SHARED.items()]
    actions += [Write(layout.at(place), content) for place, content in _for_readers().items()]
    if not (layout.root / CONFIGURATION).exists():
        actions.append(Write(layout.root / CONFIGURATION, _shipped("penstock.toml")))
    links = (Link(layout.at("bin") / name, layout.commands / name) for name in COMMANDS)
    actions += [link for link in links if link.path != layout.root / link.target.relative_to("/")]
    if layout.is_live:
        actions.append(Run(("systemd-sysusers", str(layout.at(_UNITS["penstock.sysusers"])))))
        actions.append(Run(("systemd-tmpfiles", "--create", str(layout.at(_UNITS["penstock.tmpfiles"])))))
    if layout.is_booted:
        actions.append(Run(("systemctl", "daemon-reload")))
        actions.append(Run(("systemctl", "try-restart", "penstock.service")))
        if is_enabled:
            actions.append(Run(("systemctl", "enable", "--now", "penstock.socket", "penstock.service")))
    return actions


def removal(layout: Layout, *, is_purged: bool) -> list[Action]:
    """The actions that remove the service; state and configuration stay unless purged."""
    actions: list[Action] = []
    if layout.is_booted:
        disable = ("systemctl", "disable", "--now", "penstock.service", "penstock.socket")
        actions.append(Run(disable, may_fail=True))
    places = [layout.at(place) for place in (*_UNITS.values(), *_SHARED.values(), *_for_readers())]
    places += [layout.at("bin") / name for name in COMMANDS if (layout.at("bin") / name).is_symlink()]
    places += [layout.root / kept for kept in KEPT] if is_purged else []
    actions += [Remove(place) for place in places if place.exists() or place.is_symlink()]
    if layout.is_booted:
        actions.append(Run(("systemctl", "daemon-reload")))
    return actions


def refusals(actions: Sequence[Action]) -> Iterator[str]:
    """Reasons why the actions cannot be carried out, checked before the first one."""
    for action in actions:
        match action:
            case Write(path, _, is_marked=True) if path.exists() and not _is_marked(path):
                yield f"{path} was not written by `penstock service install`: move it away first"
            case Link(path) if path.exists() and not path.is_symlink():
                yield f"{path} is another program: remove it, or choose another --prefix"
            case Remove(path) if path.suffix in {".service", ".socket"} and not _is_marked(path):
                yield f"{path} was not written by `penstock service install`: it is not removed"
            case Run(command) if shutil.which(command[0]) is None:
                yield f"{command[0]} is not here: the service needs systemd. Without it, run penstockd yourself"


def hidden(layout: Layout) -> str | None:
    """Why this installation would hide a package's unit from systemd, in one sentence; None if it would not."""
    unit = _UNITS["penstock.service"]
    packaged = layout.root / "usr" / unit
    if layout.at(unit) == packaged or not packaged.exists():
        return None
    return f"{packaged} is of a package, and the service is in place with it: remove that package first"


def unreachable(commands: Path) -> str | None:
    """Why the service could not run the commands in this folder, in one sentence; None if it can."""
    if not _PLAIN.fullmatch(str(commands)):
        return f"{commands} has characters that a unit cannot hold: install penstock into a plain path"
    named = [commands / name for name in (*COMMANDS, "python3")]
    for command in named:
        if not os.access(command, os.X_OK):
            return f"there is no {command}: install penstock[daemon] there, with an environment of its own"
    for path in (path for command in named for path in (command, command.resolve())):
        if any(path.is_relative_to(hidden) for hidden in _HIDDEN):
            return f"{path} is hidden from the service, which sees no home: use an environment such as /opt/penstock"
        if closed := next(filter(_is_closed, path.parents), None):
            return f"the user penstock may not enter {closed}: chmod o+x {closed}"
    return None


def _is_closed(folder: Path) -> bool:
    return not folder.stat().st_mode & 0o001


def carry_out(action: Action) -> None:
    """Do it. Raises OSError, subprocess.CalledProcessError."""
    match action:
        case Write(path, content):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_snapshot(path, [content.encode()])
        case Link(path, target):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.symlink_to(target)
        case Remove(path) if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        case Remove(path):
            path.unlink()
        case Run(command, may_fail):
            subprocess.run(command, check=not may_fail, capture_output=True, text=True)  # noqa: S603 - from above


def _for_readers() -> dict[str, str]:
    """Manual pages and completions, by their paths below the prefix."""
    from penstock.cli.manual import completions, pages  # imports all commands

    found = pages().items()
    return {f"share/man/man{name[-1]}/{name}": content for name, content in found} | completions()


def _shipped(name: str, commands: Path | None = None) -> str:
    content = (files("penstock.cli") / "systemd" / name).read_text(encoding="utf-8")
    return content if commands is None else content.replace(f"{_IN_UNITS}/penstock", f"{commands}/penstock")


def _is_marked(path: Path) -> bool:
    return path.read_text(encoding="utf-8", errors="replace").startswith(MARK)
