"""The demo drives a queue of the lab with plain boto3, and keeps to what is advised."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from penstock.lab.worlds import DEMO
from penstock.trial.faces import delivery
from penstock.trial.faces.face import Clients
from penstock.trial.stage import StageError, lab_endpoint

SETTING = {
    "sender_thread_count": 1.0,
    "receiver_thread_count": 1.0,
    "deleter_thread_count": 2.0,
    "batch_message_count": 5.0,
    "send_rate_limit_messages_per_second": 40.0,
    "send_window_message_count": 60.0,
    "receive_window_message_count": 100.0,
}


def test_a_queue_is_driven_as_advised_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is sent than the limit allows, nothing comes twice, and the name is free again afterwards."""
    monkeypatch.setattr(delivery, "WARM_UP_SECONDS", 1.0)
    monkeypatch.setattr(delivery, "MEASURED_SECONDS", 2.0)
    with lab_endpoint("sqs", DEMO, tmp_path) as url:
        clients = Clients("http://127.0.0.1:1", url)
        run = delivery._drive(clients, "driven", SETTING, receive_pause_seconds=3.0)
        assert clients.sqs(1).list_queues().get("QueueUrls", []) == []
    assert 0.0 < run.goodput_messages_per_second < 80.0
    assert run.duplicate_count == 0


def test_a_service_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo ends with the reason, and not with figures of nothing."""
    monkeypatch.setattr(delivery, "WARM_UP_SECONDS", 0.1)
    with lab_endpoint("sqs", DEMO, tmp_path) as url:
        clients = Clients("http://127.0.0.1:1", url)
        client = clients.sqs(1)
        queue_url = client.create_queue(QueueName="gone")["QueueUrl"]
        client.delete_queue(QueueUrl=queue_url)
        monkeypatch.setattr(delivery, "_queue", lambda *_: nullcontext(queue_url))
        with pytest.raises(StageError, match="does not exist"):
            delivery._drive(clients, "gone", SETTING)
