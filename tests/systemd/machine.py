"""Knows how a systemd of its own is booted over this machine's files: in a container, in namespaces, on an overlay.

Nothing of this machine changes: what is written goes to memory, the network is a loopback of its own, and process 1
in there knows only what is in there. Python and what is installed beside it are bound to /opt, because the unit hides
home folders; or packages lie in /srv, and bring all of that with them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCE = Path(__file__).parents[2]
_NAME = "penstock-test"
_CGROUP = Path("/sys/fs/cgroup") / _NAME
_WAIT_SECONDS = 120.0
_NEEDED = ("systemd-nspawn", "nsenter", "unshare", "setpriv")
_INIT = Path("/usr/lib/systemd/systemd")

# The group is of a hierarchy that only this mount namespace sees where the machine has the older kind.
_BOOT = f"""
set -e
mount --make-rprivate /
umount -l /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup
mkdir -p {_CGROUP}/payload; echo $$ > {_CGROUP}/cgroup.procs
mount -t tmpfs tmpfs /run
mkdir -p /run/o/upper /run/o/work /run/o/tree
mount -t overlay overlay -o lowerdir=/,upperdir=/run/o/upper,workdir=/run/o/work /run/o/tree
if [ $# = 1 ]; then
  cp "$1"/* /run/o/tree/srv/
  set --
else
  mkdir -p /run/o/tree/opt/penstock/source/penstock /run/o/tree/opt/penstock/site /run/o/tree/opt/python
  cp -r "$1" /run/o/tree/opt/penstock/bin
  chmod -R go+rX /run/o/tree/opt/penstock
  set -- --bind-ro="$2:/opt/python" --bind-ro="$3:/opt/penstock/site" --bind-ro="$4:/opt/penstock/source/penstock"
fi
exec systemd-nspawn -q --register=no --keep-unit -D /run/o/tree --machine={_NAME} --private-network "$@" \\
  --console=pipe --boot systemd.unit=multi-user.target
"""
_COMMAND = """#!/bin/sh
export PYTHONHOME=/opt/python LD_LIBRARY_PATH=/opt/python/lib PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=/opt/penstock/source:/opt/penstock/site
exec /opt/python/bin/{python} {what} "$@"
"""


def missing() -> str | None:
    """Why no systemd can be booted here; None where it can be tried."""
    if os.geteuid() != 0:
        return "only root can boot a systemd in a container"
    absent = [name for name in _NEEDED if shutil.which(name) is None]
    if absent or not _INIT.exists():
        return f"not installed here: {', '.join(absent) or 'systemd'} (apt-get install systemd-container)"
    return None


class Machine:
    """A booted system."""

    def __init__(self, init: int) -> None:
        self._init = init

    def run(self, *command: str, seconds: float = _WAIT_SECONDS) -> subprocess.CompletedProcess[str]:
        """As root in there; the exit status is the caller's to judge."""
        inside = ("nsenter", "-t", str(self._init), "-m", "-p", "-n", "-u", "-i", "-C", "--", *command)
        return subprocess.run(inside, capture_output=True, text=True, timeout=seconds, check=False)

    def do(self, *command: str, seconds: float = _WAIT_SECONDS) -> str:
        """What it says; a failure of it is one of the test."""
        done = self.run(*command, seconds=seconds)
        if done.returncode:
            said = self.run("journalctl", "-u", "penstock.service", "-n", "20", "--no-pager").stdout
            raise AssertionError(
                f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}\n{said}"
            )
        return done.stdout

    def start(self, *command: str) -> subprocess.Popen[str]:
        """As root in there, beside what follows."""
        inside = ("nsenter", "-t", str(self._init), "-m", "-p", "-n", "-u", "-i", "-C", "--", *command)
        return subprocess.Popen(inside, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def write(self, path: str, text: str) -> None:
        """A file in there."""
        self.do("sh", "-c", 'mkdir -p "$(dirname "$1")" && printf %s "$2" > "$1"', "sh", path, text)

    def shown(self, name: str) -> str:
        """A property of the service."""
        return self.do("systemctl", "show", "penstock.service", "-P", name).strip()


@contextlib.contextmanager
def booted(packages: Mapping[str, Path] | None = None) -> Iterator[Machine]:
    """One that has come up, with this code in /opt/penstock, or with packages in /srv by the names that are given.

    Raises RuntimeError, with what it said, when it does not come up.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for there, package in (packages or {}).items():
            (folder / "srv").mkdir(exist_ok=True)
            shutil.copy(package, folder / "srv" / there)
        arguments = [str(folder / "srv")] if packages else _this_code(folder)
        with (folder / "log").open("w+", encoding="utf-8") as log:
            child = subprocess.Popen(
                ["unshare", "-m", "bash", "-c", _BOOT, "boot", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                yield _come_up(child, folder / "log")
            finally:
                _power_off(child)


def _come_up(child: subprocess.Popen[bytes], log: Path) -> Machine:
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline and child.poll() is None:
        init = _child_of(child.pid)
        if init is not None:
            state = Machine(init).run("systemctl", "is-system-running").stdout.strip()
            if state in {"running", "degraded"}:
                return Machine(init)
        time.sleep(0.2)
    raise RuntimeError(f"systemd did not come up in the container: {log.read_text(encoding='utf-8')}")


def _child_of(process_id: int) -> int | None:
    """Process 1 of the container is the child of nspawn, which took the place of the shell."""
    children = Path(f"/proc/{process_id}/task/{process_id}/children").read_text(encoding="ascii").split()
    is_init = [int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == "systemd"]
    return is_init[0] if is_init else None


def _power_off(child: subprocess.Popen[bytes]) -> None:
    """By its process 1, which nspawn tells; then without asking."""
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(30.0)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _this_code(folder: Path) -> list[str]:
    """Commands, Python, what is installed beside it, and the package, where they are on this machine."""
    return [
        str(_commands(folder / "bin")),
        sys.base_prefix,
        sysconfig.get_path("purelib"),
        str(SOURCE / "penstock"),
    ]


def _commands(folder: Path) -> Path:
    """The three commands, as an environment below /opt would have them."""
    folder.mkdir()
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for name, what in (
        ("penstock", "-m penstock"),
        ("penstockd", "-m penstock.daemon.main"),
        ("python3", ""),
    ):
        path = folder / name
        path.write_text(_COMMAND.format(python=python, what=what), encoding="utf-8")
        path.chmod(0o755)
    return folder
