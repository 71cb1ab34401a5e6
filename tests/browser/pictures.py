"""Draws the pictures of the README: `make pictures`. The week is made up, so that everybody gets the same ones."""

from __future__ import annotations

import dataclasses
import math
import os
import random
import shutil
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock.cli.report import copies_of
from penstock.client.targets.unadvised import unadvised_settings
from penstock.models.inference.histogram import histogram_of, pairs_of
from penstock.models.s3.upload import S3UploadSetting
from penstock.optimizer.recommendation import recommend
from penstock.units import MiB
from penstock.vocabulary import AdviceMoved, Context, Cost, Demand, Estimate, Moved, Observation, Spend
from tests.factories import NOON, PLACE, a_change, an_observation
from tests.unit.report.materials import UPLOAD, a_report, html_of

HOST = dataclasses.replace(PLACE, instance_type="c6in.8xlarge")
SIZE_BYTES = 512 * MiB
PROBE_COUNT, CHANGED_AFTER = 72, 40
THREADS = (1, 2, 4, 8, 12, 16, 24, 32, 48)
FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
WIDTH = 1400


def a_week() -> list[Observation[Any]]:
    """A link of 25 MB/s a connection and 500 MB/s in all, which falls to two thirds."""
    chance, found = random.Random(4), []
    context = Context(place=HOST, payload_size_bytes=SIZE_BYTES)
    for n in range(PROBE_COUNT):
        threads = THREADS[n] if n < len(THREADS) else chance.choice(THREADS[2:])
        share = 1.0 if n < CHANGED_AFTER else 0.66
        rate = share * min(25e6 * threads, 500e6) * math.exp(chance.gauss(0, 0.05))
        part = 8 * MiB
        seconds = [
            threads * part / rate * math.exp(chance.gauss(0, 0.2)) * (4 if chance.random() < 0.02 else 1)
            for _ in range(SIZE_BYTES // part)
        ]
        found.append(
            an_observation(
                context=context,
                setting=S3UploadSetting(thread_count=threads, part_size_bytes=part),
                started_at=NOON + timedelta(hours=2.3 * n + chance.random()),
                duration_seconds=SIZE_BYTES / rate + 0.1,
                transferred_bytes=SIZE_BYTES,
                request_count=len(seconds) + 3,
                measures={
                    "part_count": len(seconds),
                    "connection_count": threads,
                    "object_part_count": len(seconds),
                    "part_size_bytes_sent": part,
                    "steady_throughput_bytes_per_second": rate,
                    "steady_seconds": SIZE_BYTES / rate,
                    "part_seconds_mean": sum(seconds) / len(seconds),
                    "part_seconds_p50": threads * part / rate,
                },
                histograms={"request_seconds": histogram_of(seconds)},
                successive=pairs_of([seconds]),
            )
        )
    return found


def page() -> str:
    """The report of that week."""
    week = a_week()
    now = week[-1].started_at + timedelta(hours=1)
    before = UPLOAD.fit(HOST, week[:CHANGED_AFTER], prior=None, seed=1)
    fit = dataclasses.replace(
        UPLOAD.fit(HOST, week[CHANGED_AFTER:], prior=None, seed=1), changed_at=week[CHANGED_AFTER].started_at
    )
    context = week[0].context
    advice, advised = (
        recommend(UPLOAD, each, context, Demand(), previous=None, now=at, validity_seconds=21600.0)
        for each, at in ((fit, now), (before, week[len(THREADS)].started_at))
    )
    change = a_change(
        place=HOST,
        changed_at=week[CHANGED_AFTER].started_at,
        unchanged_at=week[CHANGED_AFTER - 1].started_at,
        parameters={n: Moved(before.parameters[n], e) for n, e in fit.parameters.items()},
        advice=(
            AdviceMoved(
                payload_size_bytes=SIZE_BYTES,
                before=advised.setting,
                after=advice.setting,
                value=Moved(Estimate(4e8, 5e8, 6e8), Estimate(2.8e8, 3.3e8, 4e8)),
            ),
        ),
    )
    expenses = [
        Spend(hour_at=NOON + timedelta(days=n), operation="s3_upload", cost=Cost(request_count=700, usd=0.01))
        for n in range(7)
    ]
    return html_of(
        a_report(
            generated_at=now,
            observations={HOST: week},
            inconclusives=[],
            fits=[fit],
            recommendations=[advice],
            histories={context: [advised, advice]},
            changes=[change],
            expenses=expenses,
            unadvised=lambda at: unadvised_settings(at.operation, at.payload_size_bytes),
            copies=copies_of,
        )
    )


def main() -> None:
    """The verdict by day, and the evidence by night."""
    from playwright.sync_api import sync_playwright

    FOLDER.mkdir(exist_ok=True)
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or "chromium"
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        file = Path(directory) / "week.html"
        file.write_text(page(), encoding="utf-8")
        browser: Any = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        for scheme, name, selector in (("light", "verdict", ".card"), ("dark", "evidence", ".figures")):
            view = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme=scheme)
            view.goto(file.as_uri())
            view.locator(selector).first.scroll_into_view_if_needed()
            view.evaluate("document.querySelectorAll('figure').forEach(f => f.scrollIntoView())")
            view.wait_for_timeout(1500)
            view.locator(selector).first.screenshot(path=FOLDER / f"report-{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
