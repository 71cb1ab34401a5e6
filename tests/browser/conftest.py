"""A browser of the system, and pages that it opens without any network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.pages import PAGES

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:  # playwright's types are not there without `make test-browser`
    """The system's Chromium."""
    from playwright.sync_api import sync_playwright

    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "there is no Chromium: `apt-get install chromium`, or name it in CHROMIUM"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*ARGUMENTS])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each page, as it would be mailed."""
    directory = tmp_path_factory.mktemp("pages")
    for name, make in PAGES.items():
        (directory / f"{name}.html").write_text(make(), encoding="utf-8")
    return {name: directory / f"{name}.html" for name in PAGES}
