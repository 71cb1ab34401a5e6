"""The page of the configuration and the configuration itself say the same."""

import re
import tomllib
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from penstock.cli.costs import costs_of
from penstock.cli.main import cli
from penstock.daemon import config_files
from penstock.daemon.config import Configuration

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")


def _rows() -> dict[str, tuple[str, str]]:
    """Default and expectation of each documented key, by dotted path."""
    rows: dict[str, tuple[str, str]] = {}
    section = ""
    for line in PAGE.splitlines():
        if heading := re.fullmatch(r"## `\[(.+)]`", line):
            section = heading.group(1)
        elif row := re.fullmatch(r"\| `(\w+)` \| `(.+?)` \| (.+) \| (.+) \|", line):
            rows[f"{section}.{row.group(1)}"] = row.group(2), row.group(3)
    return rows


def test_every_key_is_documented_and_every_documented_key_exists() -> None:
    """A key without a row, or a row without a key, fails."""
    assert list(_rows()) == [path for path, _, _ in config_files.all_keys()]


def test_documented_defaults_are_the_defaults() -> None:
    """What the page shows as default is valid TOML and means the default."""
    rows = _rows()
    for path, default, hint in config_files.all_keys():
        shown: Any = tomllib.loads(f"value = {rows[path][0]}")["value"]
        assert config_files._read_value(shown, hint) == default, path


def test_documented_expectations_are_those_of_the_messages() -> None:
    """The page and the error message describe a key in the same words."""
    rows = _rows()
    assert {path: rows[path][1] for path in rows} == {
        path: config_files.expectation(hint) for path, _, hint in config_files.all_keys()
    }


def test_examples_are_valid(tmp_path: Path) -> None:
    """The example on the page and the one that is shipped can be used as they are."""
    example = re.search(r"```toml\n(.+?)```", PAGE, re.DOTALL)
    assert example is not None
    (tmp_path / "page.toml").write_text(example.group(1), encoding="utf-8")
    (tmp_path / "shipped.toml").write_text(
        (ROOT / "penstock/cli/systemd/penstock.toml").read_text("utf-8"), encoding="utf-8"
    )
    assert (
        config_files.load(tmp_path / "page.toml", root=tmp_path).configuration.probes.s3_upload.bucket
        == "my-bucket"
    )
    assert config_files.load(tmp_path / "shipped.toml", root=tmp_path).configuration == Configuration()


def test_the_costs_that_the_page_shows_are_those_of_its_configuration(tmp_path: Path) -> None:
    """As `config check` prints them."""
    shown = re.search(
        r"```toml\n([^`]+)```\n\n```console\n\$ penstock config check\n(.+?)```", PAGE, re.DOTALL
    )
    assert shown is not None
    file = tmp_path / "penstock.toml"
    file.write_text(shown.group(1), encoding="utf-8")
    told = CliRunner().invoke(cli, ["config", "check", "--config", str(file)]).stdout
    assert told.replace(str(file), "/etc/penstock/penstock.toml") == shown.group(2)


def test_what_the_readme_configures_is_measured_before_its_advice_expires(tmp_path: Path) -> None:
    """Each size, within its budgets, and where nothing is known of the way to SQS."""
    example = re.search(
        r"```toml\n(# /etc/penstock.+?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL
    )
    assert example is not None
    (tmp_path / "penstock.toml").write_text(example.group(1), encoding="utf-8")
    loaded = config_files.load(tmp_path / "penstock.toml", root=tmp_path).configuration
    days_valid = loaded.advice.validity_seconds / 86400
    for forecast in costs_of(loaded):
        sizes = getattr(loaded.probes, forecast.operation).payload_size_bytes
        assert forecast.probe_count * days_valid / len(sizes) > 1.5, forecast.sentence
