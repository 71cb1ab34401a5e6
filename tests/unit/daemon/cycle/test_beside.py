"""What transfers that move beside each other say of the host: the sum of what each of them says."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from penstock.daemon.cycle.beside import overlap_seconds, together
from penstock.models.s3.upload import S3UploadModel
from penstock.operations.s3.upload import UPLOAD
from penstock.operations.table import OPERATIONS
from penstock.optimizer.deliberation import Case, deliberate
from penstock.units import MiB
from penstock.vocabulary import Context, Demand, Observation, Origin
from tests.factories import NOON, PLACE, SETTING, a_context, a_queue_setting, an_observation

SIZE = 256 * MiB
RATE = 52e6  # bytes per second that the way carries, all processes together


def a_report(*, at_seconds: float = 0.0, uid: int = 1001, **fields: Any) -> Observation[Any]:
    """An application says that it moved an object of 64 MiB in ten seconds."""
    said: dict[str, Any] = {
        "started_at": NOON + timedelta(seconds=at_seconds),
        "duration_seconds": 10.0,
        "origin": Origin.APPLICATION,
        "reporter_uid": uid,
    }
    return an_observation(**(said | fields))


def figures(report: Observation[Any]) -> tuple[int, int, int]:
    """Connections, bytes and requests."""
    return report.setting.thread_count, report.transferred_bytes, report.request_count


def test_transfers_at_the_same_time_are_one_transfer_of_the_host() -> None:
    """Connections, bytes and requests of all of them, in the time of each; also what was refused."""
    said = [a_report(request_count=8), a_report(request_count=9, throttled_count=1)]
    one, other = together(said)
    # Each has eight parts, and so no more than eight connections in use.
    assert figures(one) == (16, 128 * MiB, 17)
    assert (one.throttled_count, other.throttled_count) == (1, 1)
    assert one.duration_seconds == 10.0
    assert one.setting.part_size_bytes == SETTING.part_size_bytes


def test_what_is_beside_it_for_a_part_of_the_time_counts_for_that_part() -> None:
    """Of another that goes on for longer, what fell into the time of this one."""
    one, long = together([a_report(), a_report(at_seconds=5.0, duration_seconds=20.0)])
    assert figures(one) == (12, 80 * MiB, 12)
    assert figures(long) == (10, 96 * MiB, 15)
    assert overlap_seconds(a_report(), a_report(at_seconds=5.0)) == 5.0
    assert overlap_seconds(a_report(at_seconds=5.0), a_report()) == 5.0
    assert overlap_seconds(a_report(), a_report(at_seconds=20.0)) < 0.0


def test_what_is_alone_or_of_another_user_or_about_queues_stays_as_it_is() -> None:
    """A user's reports are changed by nobody else's, and whose queue a report is about it does not say."""
    queue = Context(place=replace(PLACE, operation="sqs_delivery"), payload_size_bytes=1024)
    setting = a_queue_setting(1, 1, 1, batch=10)
    for said in (
        [a_report(), a_report(at_seconds=9.9)],
        [a_report(), a_report(uid=1002)],
        [a_report(context=queue, setting=setting), a_report(context=queue, setting=setting)],
    ):
        assert together(said) == said


class _Counting(S3UploadModel):
    """A model of what is counted, and not weighed in bytes."""

    value_metric = "deleted_objects_per_second"


def test_what_is_not_worth_its_bytes_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """To add up its threads alone would make each of them look slow."""
    row = replace(UPLOAD, load_model=_Counting)
    monkeypatch.setitem(cast("dict[str, Any]", OPERATIONS), UPLOAD.name, row)
    said = [a_report(measures={"deleted_objects_per_second": 900.0}) for _ in range(2)]
    assert together(said) == said


def test_no_more_connections_are_added_than_there_were_requests_to_make() -> None:
    """An object that goes whole has one, whatever was allowed."""
    whole = a_report(context=a_context(payload_size_bytes=MiB), transferred_bytes=MiB, request_count=1)
    assert [figures(each) for each in together([whole] * 2)] == [figures(whole)] * 2  # twice the very same
    assert together([whole, replace(whole)])[0].setting.thread_count == 2


def test_processes_that_share_the_host_do_not_make_it_look_small() -> None:
    """Four that upload at a time fill the way with nine connections each: the fit expects that of 36, not a quarter."""
    context = Context(place=PLACE, payload_size_bytes=SIZE)
    said = [
        a_report(
            context=context,
            setting=replace(SETTING, thread_count=threads),
            at_seconds=1000.0 * turn + process,
            duration_seconds=SIZE / (RATE / 4),
            transferred_bytes=SIZE,
            request_count=34,
        )
        for turn, threads in enumerate((9, 18, 9, 18))
        for process in range(4)
    ]
    expected = [_expected_bytes_per_second(context, reports) for reports in (said, together(said))]
    assert expected[0] < 0.5 * RATE
    assert expected[1] == pytest.approx(RATE, rel=0.2)


def _expected_bytes_per_second(context: Context, reports: list[Observation[Any]]) -> float:
    model = S3UploadModel()
    fit = deliberate(model, Case(place=PLACE, observations=tuple(reports), seed=1)).fit
    predicted = model.predict(fit, context, replace(SETTING, thread_count=36), Demand(object_count=4))
    return predicted[model.value_metric].expected
