"""What the daemon does beside its cycles."""

from __future__ import annotations

import asyncio
import threading
from unittest.mock import Mock, call

import pytest

from penstock.daemon.app import _tell_status
from penstock.processes import package


async def test_the_loop_turns_while_the_files_of_the_package_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They may lie on a slow disk, and whoever asks for advice waits for none."""
    turned, noted = threading.Event(), asyncio.Event()
    monkeypatch.setattr(package, "trouble", lambda: "replaced" if turned.wait(5.0) else None)
    app, harms = Mock(), Mock()
    app.conductor.activity, app.conductor.troubles.now.return_value = "idle", ()
    app.conductor.troubles.note.side_effect = lambda *_: noted.set()
    harms.take_told.return_value = []
    refusals = Mock(look=Mock(return_value=(False, None)))
    telling = asyncio.create_task(_tell_status(Mock(), app, harms, refusals))
    await asyncio.sleep(0)
    turned.set()
    await noted.wait()
    telling.cancel()
    assert app.conductor.troubles.note.mock_calls == [call("package", "replaced")]
