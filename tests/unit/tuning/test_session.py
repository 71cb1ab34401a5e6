"""Tuning somebody else's client: how near the best it comes, and what failures and interruptions do to it."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.models.s3.ranges import DownloadRanges, TransferSetting, UploadRanges
from penstock.optimizer.objective import BARGAIN
from penstock.tuning import session as tuning
from penstock.tuning.clients import small_object_count
from penstock.tuning.command import Failure, Report
from penstock.tuning.session import GIVE_UP_AFTER, TuningError, advise, propose
from penstock.tuning.state import Trial
from penstock.units import KiB, MiB
from penstock.vocabulary import Demand, Objective
from tests.unit.tuning.tuned_clients import (
    SIZE,
    Client,
    SteadyClock,
    a_setting,
    a_task,
    a_trial,
    ended,
    tuned,
)

OUT_OF_MEMORY = Failure(reason="it was ended by SIGKILL", stderr_tail="Killed")
ONE_PART_SIZE = UploadRanges(part_size_bytes_min=8 * MiB, part_size_bytes_max=8 * MiB)
ONE_THREAD_COUNT = UploadRanges(thread_count_min=16, thread_count_max=16)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.days) for seed in (2, 3))])
def test_twelve_runs_find_nearly_the_best(seed: int, tmp_path: Path) -> None:
    """The advice after the default number of probes reaches 95 % of the best setting of the whole grid."""
    client = Client(seed=seed)
    advice = tuned(a_task(seed=seed), client, tmp_path / "state").recommendation
    assert client.throughput(advice.setting) >= 0.95 * client.best(UploadRanges())
    assert advice.setting.thread_count <= 64  # where 25 carry the host: the rest would be for nothing


def test_a_client_that_reads_is_tuned_as_well_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    """Twelve runs, of which the state keeps ranges and not parts; within 5 % of the best of a grid."""
    client, task = Client(seed=2), a_task(ranges=DownloadRanges())
    half = tuned(replace(task, probe_count=6), client, tmp_path / "state")
    assert '"range_size_bytes"' in (tmp_path / "state").read_text()
    result = tuned(task, client, tmp_path / "state")
    assert result.trials[:6] == half.trials
    assert result.document()["recommendation"]["range_size_bytes"] >= MiB
    assert client.throughput(result.recommendation.setting) >= 0.95 * client.best(UploadRanges())


def test_each_small_object_is_a_request() -> None:
    """Three hundred objects in six seconds, and some refused: the limit is near fifty a second, not near one."""
    task = a_task(size=64 * KiB)
    runs = [
        ended(
            Report(transferred_bytes=300 * 64 * KiB, duration_seconds=300 / rate, throttled_count=refused),
            a_setting(threads, 5),
            index,
        )
        for index, (threads, rate, refused) in enumerate(((1, 12, 0), (4, 44, 3), (16, 50, 90), (8, 48, 40)))
    ]
    advice = advise(task, runs, SteadyClock())
    assert advice.bottleneck == "request-rate"
    assert 30 < advice.derived["request_rate_limit_per_second"] < 70
    assert advice.setting.thread_count >= 4


def test_of_small_objects_counts_what_a_stream_reaches_and_not_who_waited_at_the_end() -> None:
    """A bucket of seven at 726 a second: more threads bring more, and their last ones wait for seconds."""
    task = a_task(size=106 * KiB)
    seen = (
        (4, 512, 2.3, 222, 0),
        (16, 2048, 3.9, 689, 25),
        (60, 4946, 10.0, 719, 430),
        (10, 1280, 2.6, 555, 4),
        (20, 2560, 4.8, 697, 48),
        (26, 3328, 6.0, 701, 98),
    )
    runs = [
        ended(
            Report(
                transferred_bytes=count * 106 * KiB,
                duration_seconds=seconds,
                throttled_count=refused,
                steady_throughput_bytes_per_second=rate * 106 * KiB,
            ),
            a_setting(threads, 5),
            index,
        )
        for index, (threads, count, seconds, rate, refused) in enumerate(seen)
    ]
    advice = advise(task, runs, SteadyClock())
    expected = advice.prediction["throughput_bytes_per_second"].expected / (106 * KiB)
    assert advice.setting.thread_count >= 14
    assert 640 < expected < 750
    assert 650 < advice.derived["request_rate_limit_per_second"] < 950


@pytest.mark.parametrize("ranges", [ONE_PART_SIZE, ONE_THREAD_COUNT], ids=["part size", "threads"])
def test_a_client_with_one_knob_is_tuned_in_one_dimension(ranges: UploadRanges, tmp_path: Path) -> None:
    """A fixed value is the only one that is ever proposed or advised, and the other still comes near its best."""
    client = Client(seed=4)
    advice = tuned(a_task(ranges=ranges), client, tmp_path / "state").recommendation
    for setting in [*client.asked, advice.setting]:
        assert ranges.part_size_bytes_min <= setting.request_size_bytes <= ranges.part_size_bytes_max
        assert ranges.thread_count_min <= setting.thread_count <= ranges.thread_count_max
    assert client.throughput(advice.setting) >= 0.93 * client.best(ranges)


def test_the_prediction_is_of_the_client_that_was_tuned(tmp_path: Path) -> None:
    """Its interval holds what the client does at the advised setting, slow as it may be."""
    client = Client(seed=5, host_bytes_per_second=40e6)
    result = tuned(a_task(probe_count=8), client, tmp_path / "state")
    expected = result.recommendation.prediction["throughput_bytes_per_second"]
    truth = client.throughput(result.recommendation.setting)
    assert expected.low < truth < expected.high
    assert expected.high < 2 * expected.low


def test_an_interrupted_tuning_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    """The trials of two sittings are those of one, and the advice is the same."""
    task = a_task(probe_count=8)
    whole = tuned(task, Client(seed=6), tmp_path / "whole")
    first = tuned(a_task(probe_count=3), Client(seed=6), tmp_path / "parts")
    client = Client(seed=6)
    second = tuned(task, client, tmp_path / "parts")
    assert len(first.trials) == 3
    assert len(client.asked) == 5
    assert [t.setting for t in second.trials] == [t.setting for t in whole.trials]
    assert [t.report for t in second.trials] == [t.report for t in whole.trials]
    assert second.recommendation.setting == whole.recommendation.setting


def test_ctrl_c_keeps_what_was_learned(tmp_path: Path) -> None:
    """The running trial is forgotten, the others lead to advice."""

    def interrupt(_setting: TransferSetting, index: int) -> Failure | None:
        if index == 4:
            raise KeyboardInterrupt
        return None

    result = tuned(a_task(), Client(trouble=interrupt), tmp_path / "state")
    assert result.was_interrupted
    assert len(result.trials) == 4
    assert result.document()["recommendation"]["thread_count"] >= 1


@pytest.mark.parametrize("count", [1, 2])
def test_ctrl_c_during_the_advice(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and the advice is finished; twice, and it is not."""
    real = tuning.advise

    def interrupted(*arguments: Any) -> Any:
        for _ in range(count):
            signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(tuning, "advise", interrupted)
    if count > 1:
        with pytest.raises(KeyboardInterrupt):
            tuned(a_task(probe_count=1), Client(), tmp_path / "state")
    else:
        assert tuned(a_task(probe_count=1), Client(), tmp_path / "state").was_interrupted
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_before_anything_was_learned_says_so(tmp_path: Path) -> None:
    """Without a finished trial there is no advice."""

    def interrupt(_setting: TransferSetting, _index: int) -> Failure | None:
        raise KeyboardInterrupt

    with pytest.raises(TuningError, match="interrupted: no trial was finished") as raised:
        tuned(a_task(), Client(trouble=interrupt), tmp_path / "state")
    assert raised.value.was_interrupted


def test_a_full_disk_ends_it_with_the_advice_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial that could not be written was made, and counts."""

    def fill_the_disk(_setting: TransferSetting, index: int) -> None:
        if index == 3:
            monkeypatch.setattr(os, "write", _no_space)

    result = tuned(a_task(), Client(trouble=fill_the_disk), tmp_path / "state")
    monkeypatch.undo()
    document = result.document()
    assert document["probe_count"] == 4
    assert document["recommendation"]["thread_count"] >= 1
    assert "(No space left on device): free space, or copy it and name the copy" in document["trouble"]
    assert not document["was_interrupted"]
    assert len(tuned(a_task(probe_count=3), Client(), tmp_path / "state").trials) == 3


def test_a_full_disk_before_anything_worked_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no advice, for two reasons."""

    def fail(_setting: TransferSetting, _index: int) -> Failure:
        monkeypatch.setattr(os, "write", _no_space)
        return OUT_OF_MEMORY

    with pytest.raises(TuningError, match=r"(?s)free space.*no trial was finished.*SIGKILL"):
        tuned(a_task(), Client(trouble=fail), tmp_path / "state")
    monkeypatch.undo()


def test_too_few_runs_to_give_up_say_why_they_failed(tmp_path: Path) -> None:
    """With fewer runs than it takes to call the command broken, its last words are not lost either."""
    client = Client(trouble=lambda _setting, _index: OUT_OF_MEMORY)
    with pytest.raises(TuningError, match=r"(?s)no trial was finished.*SIGKILL.*Killed") as raised:
        tuned(a_task(probe_count=2), client, tmp_path / "state")
    document = raised.value.document()
    assert document["recommendation"] is None
    assert document["trouble"] == str(raised.value)
    assert [trial["stderr_tail"] for trial in document["trials"]] == ["Killed", "Killed"]
    assert document["failed_probe_count"] == 2


def test_a_command_that_is_always_too_slow_may_need_longer(tmp_path: Path) -> None:
    """The option that helps is named."""
    slow = Failure(reason="it took longer than 1 s", is_timeout=True)
    with pytest.raises(TuningError, match="longer with --timeout"):
        tuned(a_task(), Client(trouble=lambda _setting, _index: slow), tmp_path / "state")


def test_a_command_that_never_works_is_given_up(tmp_path: Path) -> None:
    """A few failures at the start end it, with what the command said; the next run begins anew."""
    client = Client(trouble=lambda _setting, _index: OUT_OF_MEMORY)
    with pytest.raises(TuningError, match=r"(?s)3 times in a row.*SIGKILL.*Killed"):
        tuned(a_task(), client, tmp_path / "state")
    assert len(client.asked) == GIVE_UP_AFTER
    mended = tuned(a_task(probe_count=4), Client(), tmp_path / "state")
    assert [trial.probe_index for trial in mended.trials] == [0, 1, 2, 3]
    assert all(trial.report for trial in mended.trials)


def test_a_command_that_is_not_there_ends_it_at_once(tmp_path: Path) -> None:
    """No setting can help; one that worked before may come back, and is tried on."""
    nothing = Failure(reason="it ended with status 127 (no such command)", is_no_command=True)
    client = Client(trouble=lambda _setting, _index: nothing)
    with pytest.raises(TuningError, match="cannot be run: it ended with status 127"):
        tuned(a_task(), client, tmp_path / "state")
    assert len(client.asked) == 1
    flaky = Client(trouble=lambda _setting, index: nothing if index == 2 else None)
    assert len(tuned(a_task(probe_count=4), flaky, tmp_path / "flaky").trials) == 4


def test_a_client_that_fails_with_much_is_neither_asked_nor_advised_much(tmp_path: Path) -> None:
    """A client that cannot have more than 30 threads is asked for more now and then, but not for ever."""
    client = Client(trouble=lambda setting, _index: OUT_OF_MEMORY if setting.thread_count > 30 else None)
    result = tuned(a_task(probe_count=16), client, tmp_path / "state")
    failed = [trial.setting for trial in result.trials if trial.failure]
    assert failed, "the optimum lies where it fails, so it must have been tried"
    assert len(failed) <= 6
    assert result.recommendation.setting.thread_count <= 30
    assert client.throughput(result.recommendation.setting) >= 0.8 * client.throughput(a_setting(30, 6))


@pytest.mark.parametrize(
    "indices",
    [(0, 1), (1, 2, 3), *(pytest.param(indices, marks=pytest.mark.days) for indices in ((1, 2), (1, 3)))],
)
def test_early_bad_luck_is_outgrown(indices: tuple[int, ...], tmp_path: Path) -> None:
    """Some of the first runs fail for a reason of their own: twelve runs are enough to find that out."""
    client = Client(trouble=lambda _setting, index: OUT_OF_MEMORY if index in indices else None)
    result = tuned(a_task(), client, tmp_path / "state")
    assert client.throughput(result.recommendation.setting) >= 0.9 * client.best(UploadRanges())


def test_a_limit_that_was_inferred_is_said_to_be(tmp_path: Path) -> None:
    """Nobody can tell from the advice alone that it was held back by failures."""
    client = Client(trouble=lambda setting, _index: OUT_OF_MEMORY if setting.thread_count > 10 else None)
    document = tuned(a_task(), client, tmp_path / "state").document()
    limit = document["inferred_limit"]
    assert limit["thread_count_max"] <= 10 < limit["failed_thread_count_min"]
    assert limit["failed_probe_count"] == document["failed_probe_count"]
    assert document["recommendation"]["thread_count"] <= 10
    assert tuned(a_task(), Client(), tmp_path / "other").document()["inferred_limit"] is None


def test_a_limit_on_threads_is_found_by_halving() -> None:
    """After a failure with more threads than ever worked, about the geometric mean is the most that is tried."""
    trials = [*_trials(), a_trial(Client(), a_setting(144, 8), 6, OUT_OF_MEMORY)]
    assert propose(a_task(), trials).setting.thread_count <= 96  # 64 worked
    assert advise(a_task(), trials, SteadyClock()).setting.thread_count <= 64


def test_a_limit_on_memory_is_found_where_threads_do_not_explain_it() -> None:
    """Failures with few threads and large parts leave many threads with small parts possible."""
    failures = [
        a_trial(Client(), a_setting(32, part), 6 + i, OUT_OF_MEMORY) for i, part in enumerate((64, 32))
    ]
    proposal = propose(a_task(), [*_trials(), *failures]).setting
    assert proposal.thread_count * proposal.request_size_bytes <= 724 * MiB  # 512 MiB worked, 1 GiB did not


def test_one_failure_is_forgiven() -> None:
    """What failed once may have been bad luck: when other trials have worked since, it counts no more."""
    client = Client(seed=8)
    trials = [a_trial(client, a_setting(4), 0), a_trial(client, a_setting(16), 1)]
    failure = a_trial(client, a_setting(64), 2, OUT_OF_MEMORY)
    since = [a_trial(client, a_setting(24), 3), a_trial(client, a_setting(30), 4)]
    assert propose(a_task(), [*trials, failure]).setting.thread_count <= 32
    assert propose(a_task(), [*trials, failure, *since]).setting.thread_count > 32


def test_a_time_out_does_not_forbid_more_threads() -> None:
    """What was too slow may be faster with more of everything: only the setting itself is avoided."""
    trials = _trials_that_end_with(Failure(reason="slow", is_timeout=True))
    task = a_task(ranges=UploadRanges(thread_count_min=trials[-1].setting.thread_count))
    proposal = propose(task, trials).setting
    assert proposal != trials[-1].setting
    assert proposal.thread_count >= trials[-1].setting.thread_count


def test_a_setting_that_failed_is_not_advised_until_it_worked() -> None:
    """One failure at what would be advised moves the advice away from it, and one success brings it back."""
    trials, client = _trials(), Client(seed=8)
    preferred = advise(a_task(), trials, SteadyClock()).setting
    failed = a_trial(client, preferred, len(trials), Failure(reason="slow", is_timeout=True))
    worked = a_trial(client, preferred, len(trials) + 1)
    assert advise(a_task(), [*trials, failed], SteadyClock()).setting != preferred
    assert not tuning._avoided([*trials, worked, failed], is_advice=True)


def test_the_memory_limit_holds_for_what_is_tried_and_advised(tmp_path: Path) -> None:
    """A client that holds parts in memory is never asked for more than the limit."""
    client = Client(seed=7)
    task = a_task(demand=Demand(memory_bytes_max=128 * MiB), probe_count=6)
    advice = tuned(task, client, tmp_path / "state").recommendation.setting
    for setting in [*client.asked, advice]:
        assert setting.thread_count * setting.request_size_bytes <= 128 * MiB


def test_frugal_advice_takes_less() -> None:
    """The objective reaches the advice."""
    trials = _trials()
    frugal = a_task(demand=Demand(objective=Objective.FRUGAL))
    less, more = (advise(task, trials, SteadyClock()).setting for task in (frugal, a_task()))
    assert less.thread_count < more.thread_count


def test_the_page_names_every_key(tmp_path: Path) -> None:
    """What a script can read is documented."""
    page = (Path(__file__).parents[3] / "docs/tune.md").read_text(encoding="utf-8")
    document = tuned(a_task(probe_count=1), Client(), tmp_path / "state").document()
    described = set(document) - {"recommendation", "object_size_bytes", "ranges", "objective"}
    for key in {*described, *document["recommendation"], *document["trials"][0]}:
        assert f"`{key}`" in page or f".{key}`" in page, key


def test_the_page_states_the_numbers_of_the_code() -> None:
    """What the advice gives up for fewer connections, and how many small objects a trial moves."""
    page = (Path(__file__).parents[3] / "docs/tune.md").read_text(encoding="utf-8")
    assert f"at most {100 * BARGAIN.within:g} % below the best" in page
    said = re.search(
        r"move (\d+) objects for each thread \(no more than (\d+), or (\d+) .+\) and at least (\d+), .+ (\d+) MiB",
        page,
    )
    assert said is not None
    usual, many, least_of_many, least, mebibytes = map(int, said.groups())
    assert small_object_count(1, 4) == 4 * usual
    assert small_object_count(1, 1) == least
    assert small_object_count(1, 100) == many
    assert small_object_count(1, 1000) == 1000 * least_of_many
    assert small_object_count(4 * MiB, 32) == mebibytes // 4


def test_slow_runs_are_rare(tmp_path: Path) -> None:
    """Time is the price of a trial: after the start, none takes several times as long as the best."""
    trials = tuned(a_task(), Client(seed=9, connection_bytes_per_second=5e6), tmp_path / "state").trials
    seconds = [trial.report.duration_seconds for trial in trials if trial.report]
    assert max(seconds[3:]) < 5 * min(seconds)


def test_the_document_keeps_the_contract(tmp_path: Path) -> None:
    """Scripts rely on these names."""
    client = Client(trouble=lambda _setting, index: OUT_OF_MEMORY if index == 2 else None)
    document = json.loads(
        json.dumps(tuned(a_task(probe_count=4), client, tmp_path / "s").document(), default=str)
    )
    advice = document["recommendation"]
    assert isinstance(advice["thread_count"], int)
    assert isinstance(advice["part_size_bytes"], int)
    assert advice["interval"]["low"] < advice["predicted_bytes_per_second"] < advice["interval"]["high"]
    assert document["interval"] == advice["interval"]
    assert (document["probe_count"], document["failed_probe_count"]) == (4, 1)
    assert document["basis"] in {"model", "measured"}
    assert document["explanation"]
    worked, failed = document["trials"][0], document["trials"][2]
    assert worked["throughput_bytes_per_second"] == pytest.approx(SIZE / worked["duration_seconds"])
    assert (failed["failure"], failed["stderr_tail"]) == ("it was ended by SIGKILL", "Killed")
    assert failed["duration_seconds"] is None


def test_what_follows_from_the_advice_is_as_a_client_takes_it(tmp_path: Path) -> None:
    """Bytes and counts are whole, and an object that is to be split is not below the threshold for it."""
    six = UploadRanges(part_size_bytes_min=5 * MiB, part_size_bytes_max=5 * MiB, thread_count_max=2)
    task = a_task(size=6 * MiB, ranges=six, probe_count=3)
    result = tuned(task, Client(), tmp_path / "state")
    advice = result.document()["recommendation"]
    assert advice["part_size_bytes"] == 5 * MiB
    assert advice["derived"]["multipart_threshold_bytes"] == 6 * MiB
    for name in ("multipart_threshold_bytes", "connection_pool_count", "memory_bytes"):
        assert isinstance(advice["derived"][name], int), name


def test_a_suspected_limit_on_memory_leaves_something_to_try() -> None:
    """The only number of threads failed at once: half-way to nothing is less than any setting holds."""
    sixteen = UploadRanges(thread_count_min=16, thread_count_max=16)
    failed = a_trial(Client(), a_setting(16, 64), 0, Failure(reason="it ended with status 1"))
    assert propose(a_task(ranges=sixteen), [failed]).setting == a_setting(16, 5)


def _no_space(_descriptor: int, _data: bytes) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _trials() -> list[Trial]:
    client = Client(seed=8)
    design = [a_setting(*pair) for pair in ((4, 8), (16, 8), (64, 8), (32, 8), (24, 16), (40, 6))]
    return [a_trial(client, setting, index) for index, setting in enumerate(design)]


def _trials_that_end_with(failure: Failure) -> list[Trial]:
    trials = _trials()
    setting = propose(a_task(), trials).setting
    return [*trials, a_trial(Client(), setting, len(trials), failure)]
