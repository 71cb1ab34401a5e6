"""Both packages, made and installed for real, on a copy of this system that goes away with the test."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from distribution import build
from tests.programs import ran
from tests.real import provision

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]
PYTHON = Path("/usr/bin/python3")
# A mount namespace of its own over the root that is named: what is written lies in memory and ends with it.
OVERLAY = """
set -e
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/copy"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/copy"
mount --bind /proc "$1/copy/proc"
mount --bind /dev "$1/copy/dev"
rm -rf "$1/copy/opt"
mkdir "$1/copy/opt"
"""
COPY = """
cp "$3" "$1/copy/srv/"
cp -r "$4/usr/." "$1/copy/usr/"
chroot "$1/copy" /bin/sh -exc "$5"
"""
# This system may have its Python from elsewhere; on another distribution FORCE says nothing.
LIFE = """
install="dpkg ${FORCE---force-depends} -i"
mkdir -p /opt/penstock /etc/penstock
touch /opt/penstock/pyvenv.cfg
if $install /srv/*.deb; then exit 1; fi
rm -r /opt/penstock
echo '# made by hand' > /etc/penstock/penstock.toml
$install /srv/*.deb < /dev/null
grep -q 'made by hand' /etc/penstock/penstock.toml
dpkg -P penstock
$install /srv/*.deb
penstock --version
as_penstock="setpriv --reuid penstock --regid penstock --clear-groups"
$as_penstock penstock config check
if systemd-analyze verify /usr/lib/systemd/system/penstock.service 2>&1 | grep penstock; then exit 1; fi
man -w penstock-query
echo '# mine' >> /etc/penstock/penstock.toml
echo measured > /var/lib/penstock/kept
$install /srv/*.deb
grep -q mine /etc/penstock/penstock.toml
dpkg -r penstock
if test -e /opt/penstock || test -e /run/penstock || ! test -d /opt; then exit 1; fi
grep -q mine /etc/penstock/penstock.toml
grep -q measured /var/lib/penstock/kept
dpkg -P penstock
if test -e /etc/penstock; then exit 1; fi
if test -e /var/lib/penstock; then exit 1; fi
mkdir /var/lib/penstock
mount -t tmpfs none /var/lib/penstock
$install /srv/*.deb
touch /var/lib/penstock/kept
dpkg -P penstock
if test -e /var/lib/penstock/kept; then exit 1; fi
umount /var/lib/penstock
echo lived
"""
# Upgrades and removal keep what was changed. The distribution of this system is another one.
LIFE_OF_RPM = """
ldconfig
rpm --initdb
rpm --nodeps -i /srv/*.rpm
penstock --version
setpriv --reuid penstock --regid penstock --clear-groups penstock config check
echo '# mine' >> /etc/penstock/penstock.toml
echo measured > /var/lib/penstock/kept
rpm --nodeps -U --force /srv/*.rpm
grep -q mine /etc/penstock/penstock.toml
rpm -e penstock
if test -e /opt/penstock/bin; then exit 1; fi
grep -q mine /etc/penstock/penstock.toml
grep -q measured /var/lib/penstock/kept
echo lived
"""
# The project is read, and pip finds what it finds here.
ELSEWHERE = """
mkdir "$1/copy/mnt/project"
mount --bind -o ro "$3" "$1/copy/mnt/project"
for file in resolv.conf hosts pip.conf ssl/certs/ca-certificates.crt; do
    if test -e "/etc/$file"; then cp "/etc/$file" "$1/copy/etc/$file"; fi
done
clean="PATH=$PATH HOME=/root FORCE= SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"
chroot "$1/copy" env -i $clean /bin/sh -exc "cd /mnt/project; $4"
"""
BUILD = """
python3 -m venv /opt/tools
grep -oE '^(uv|hatchling)==[^ ]+' locks/development.txt > /opt/tools/wanted
/opt/tools/bin/pip install --quiet --requirement /opt/tools/wanted
python=$(readlink -f /usr/bin/python3)
/opt/tools/bin/python distribution/build.py --nfpm "$PWD/build/nfpm" --python "$python" --output /srv
rm /srv/*.rpm
cd /
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of both."""
    provision.require("go", "dpkg-deb", "unshare")
    output = tmp_path_factory.mktemp("packages")
    subprocess.run(
        ["make", "packages", f"ARGS=--output {output} --python {PYTHON}"], cwd=build.PROJECT, check=True
    )
    return output


def test_both_kinds_are_made(packages: Path) -> None:
    """One file each, of a size that a fleet can be sent."""
    assert sorted(path.suffix for path in packages.iterdir()) == [".deb", ".rpm"]
    assert all(path.stat().st_size < 150e6 for path in packages.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can install anything")
def test_a_life_of_the_debian_package(packages: Path, tmp_path: Path) -> None:
    """Refused beside another installation, installed, configured, upgraded, removed with all that is kept, purged."""
    (tmp_path / "none/usr").mkdir(parents=True)
    assert_it_lives(tmp_path, packages, ".deb", LIFE, tmp_path / "none")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can install anything")
def test_a_life_of_the_rpm(packages: Path, tmp_path: Path) -> None:
    """The same of the other kind, by rpm itself."""
    try:
        tools = provision.rpm()
    # In CI, too: its archive of the distribution may be out of reach.
    except provision.ToolMissingError as missing:
        pytest.skip(f"no rpm can be had here: {missing}")
    assert_it_lives(tmp_path, packages, ".rpm", LIFE_OF_RPM, tools)


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can install anything")
@pytest.mark.parametrize("suite", ["trixie", "noble"])
def test_a_life_on_another_distribution(suite: str, tmp_path: Path) -> None:
    """Made there with its own Python, and installed with all that it depends on."""
    root = provision.distribution(suite)
    subprocess.run(["make", "build/nfpm"], cwd=build.PROJECT, check=True)
    assert_lived(tmp_path, ELSEWHERE, root, build.PROJECT, BUILD + LIFE)


def assert_it_lives(tmp_path: Path, packages: Path, kind: str, life: str, tools: Path) -> None:
    """In a copy of this system, beside which the tools are put."""
    (package,) = packages.glob(f"*{kind}")
    assert_lived(tmp_path, COPY, Path("/"), package, tools, life)
    assert not Path("/opt/penstock").exists()


def assert_lived(tmp_path: Path, script: str, root: Path, *arguments: str | Path) -> None:
    """To its last word, over this root."""
    copy = tmp_path / "copy"
    copy.mkdir()
    lived = ran(["unshare", "--mount", "sh", "-c", OVERLAY + script, "sh", copy, root, *arguments])
    assert lived.stdout.endswith("lived\n"), lived.stdout + lived.stderr
