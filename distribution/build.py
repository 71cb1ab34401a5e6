"""Knows how a Debian package and an RPM are made: a private environment in /opt/penstock, and the service around it.

    python distribution/build.py --nfpm nfpm [--python /usr/bin/python3.11] [--output dist]

A package is for one version of Python, that of the distribution: the environment is built with it and runs on it.
nfpm packs both kinds from one description; `penstock service install` puts units, pages and the rest into the tree.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROJECT = HERE.parent
HOME = Path("/opt/penstock")
KINDS = ("deb", "rpm")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# Nothing of these is ever read: botocore describes all services of AWS, and libraries bring their own tests.
SERVICES = frozenset({"s3", "sqs", "sts", "sso", "sso-oidc", "signin"})
SCRIPTS = ("preinstall", "postinstall", "preremove", "postremove")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build both packages and name their files."""
    parser = argparse.ArgumentParser(
        prog="distribution/build.py", description="Make a Debian package and an RPM."
    )
    parser.add_argument("--nfpm", default="nfpm", help="the packager, github.com/goreleaser/nfpm")
    parser.add_argument("--python", default="/usr/bin/python3", help="the distribution's own")
    parser.add_argument("--output", type=Path, default=PROJECT / "dist")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="penstock-package-") as folder:
        root = Path(folder) / "root"
        environment = root / HOME.relative_to("/")
        interpreter = Path(options.python).resolve()
        fill(environment, interpreter)
        slim(environment)
        put_service(environment, root)
        description = describe(root, interpreter)
        (Path(folder) / "nfpm.json").write_text(json.dumps(description, indent=2))
        for kind in KINDS:
            run(
                [
                    options.nfpm,
                    "package",
                    "--packager",
                    kind,
                    "--config",
                    "nfpm.json",
                    "--target",
                    str(options.output.resolve()),
                ],
                Path(folder),
            )
    return 0


def fill(environment: Path, interpreter: Path) -> None:
    """The environment, with what the daemon needs in the locked versions; nothing else, not even pip."""
    run([str(interpreter), "-m", "venv", "--without-pip", str(environment)], PROJECT)
    with tempfile.TemporaryDirectory() as folder:
        run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], PROJECT)
        (wheel,) = Path(folder).glob("*.whl")
        python = str(environment / "bin/python3")
        locked = ["--constraint", "locks/runtime.txt", f"penstock[daemon] @ file://{wheel}"]
        run(
            [
                *_uv(),
                "pip",
                "install",
                "--quiet",
                "--link-mode=copy",
                "--compile-bytecode",
                "--python",
                python,
                *locked,
            ],
            PROJECT,
        )
    for script in (environment / "bin").iterdir():
        _lead(script, environment)
    settings = environment / "pyvenv.cfg"
    settings.write_text(settings.read_text().replace(str(environment), str(HOME)))


def slim(environment: Path) -> None:
    """Without what the daemon never reads."""
    (packages,) = (environment / "lib").glob("python3*/site-packages")
    for service in (packages / "botocore/data").iterdir():
        if service.is_dir() and service.name not in SERVICES:
            shutil.rmtree(service)
    for tests in [path for path in packages.rglob("tests") if path.is_dir()]:
        shutil.rmtree(tests, ignore_errors=True)  # of a folder that went with another
    (environment / ".lock").unlink(missing_ok=True)  # of what installed them


def put_service(environment: Path, root: Path) -> None:
    """Units, user, pages, completion, policy and example, as `penstock service install` puts them."""
    command = [str(environment / "bin/python3"), "-m", "penstock", "service", "install"]
    run([*command, "--root", str(root), "--prefix", "/usr", "--commands", str(HOME / "bin")], root)


def describe(root: Path, interpreter: Path) -> dict[str, Any]:
    """The package, in the words of nfpm (Any: JSON)."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    contents = [{"src": str(root) + str(HOME), "dst": str(HOME), "type": "tree"}]
    # One by one: the folders of /usr are those of other packages.
    for path in sorted((root / "usr").rglob("*")):
        place = "/" + str(path.relative_to(root))
        if path.is_symlink():
            contents.append({"src": str(path.readlink()), "dst": place, "type": "symlink"})
        elif path.is_file():
            contents.append({"src": str(path), "dst": place})
    scripts = {name: str(HERE / f"{name}.sh") for name in SCRIPTS}
    return {
        "name": project["name"],
        "version": project["version"],
        "release": "1." + interpreter.name.replace("python", "py").replace(".", ""),
        "arch": ARCHITECTURES[platform.machine()],
        "maintainer": "penstock maintainers <maintainers@penstock.invalid>",
        "description": project["description"],
        "license": project["license"],
        "section": "admin",
        "depends": [interpreter.name, "systemd"],
        "contents": contents,
        "scripts": scripts,
    }


def _lead(script: Path, environment: Path) -> None:
    """To the interpreter where it will be."""
    if script.is_symlink() or not script.is_file():
        return
    content = script.read_bytes()
    script.write_bytes(content.replace(str(environment).encode(), str(HOME).encode()))


def _uv() -> Iterator[str]:
    yield from (sys.executable, "-m", "uv")


def run(command: Sequence[str], directory: Path) -> None:
    """One step; what it says is shown when it fails."""
    done = subprocess.run(  # noqa: S603 - from above
        command,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SOURCE_DATE_EPOCH": "0"},
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


if __name__ == "__main__":
    raise SystemExit(main())
