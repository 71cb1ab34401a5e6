"""What others on this host do, by its counters, and whether a probe may begin beside it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from penstock.daemon.config import BudgetSection
from penstock.daemon.host import HostSample
from penstock.daemon.spending.budget import ALLOWED, Verdict
from penstock.daemon.yielding.host_watch import Flow, HostWatch, ceiling_bytes_per_second, others_flow
from penstock.models.burst import ceiling
from penstock.vocabulary import Estimate
from tests.factories import NOON, a_fit

CEILING = 100e6


@dataclass
class Host:
    """Counters that go on at a rate, and the clock by which they do."""

    seconds: float = 0.0
    sample: HostSample = field(default_factory=HostSample)

    def monotonic_seconds(self) -> float:
        return self.seconds

    def now(self):  # type: ignore[no-untyped-def]  # never asked for
        raise AssertionError

    def go_on(
        self, seconds: float, *, sent: float = 0.0, received: float = 0.0, own_sent: float = 0.0
    ) -> None:
        """For so long, at these bytes per second."""
        self.seconds += seconds
        self.sample = HostSample(
            received_bytes=self.sample.received_bytes + int(received * seconds),
            transmitted_bytes=self.sample.transmitted_bytes + int(sent * seconds),
            own_transmitted_bytes=self.sample.own_transmitted_bytes + int(own_sent * seconds),
        )


def watch_of(host: Host, *, ceiling: float | None = CEILING, most: float = 0.3) -> HostWatch:
    """On a host that carries so much."""
    section = BudgetSection(host_network_fraction_max=most)
    return HostWatch(section, host, lambda: host.sample, ceiling_bytes_per_second=lambda: ceiling)


def verdict_beside(*, ceiling: float | None = CEILING, **rates: float) -> Verdict:
    """After ten seconds of this traffic."""
    host = Host()
    watch = watch_of(host, ceiling=ceiling)
    host.go_on(10.0, **rates)
    return watch.verdict(NOON)


def test_a_network_that_others_use_is_left_to_them() -> None:
    """In either direction; the sentence names the key, and it is asked again soon."""
    assert verdict_beside(sent=29e6) == ALLOWED
    for busy in (verdict_beside(sent=40e6), verdict_beside(received=40e6)):
        assert not busy.is_allowed
        assert busy.sentence.startswith("the host's own work keeps its network 40% busy")
        assert "budget.host_network_fraction_max = 30%" in busy.sentence
        assert busy.retry_at is not None


def test_what_penstock_moved_itself_keeps_no_probe_waiting() -> None:
    """The window may hold the probe before: its bytes, and the headers that they travelled in, are taken off."""
    assert verdict_beside(sent=94e6, own_sent=90e6) == ALLOWED
    assert not verdict_beside(sent=94e6, own_sent=50e6).is_allowed


def test_where_nobody_knows_what_the_network_carries_nothing_is_concluded() -> None:
    """An application that is alone on a host of no known type would keep probes away for ever."""
    assert verdict_beside(sent=500e6, ceiling=None) == ALLOWED


def test_the_window_is_of_seconds_and_moves_on() -> None:
    """A burst long ago says nothing of now, and neither does a look a moment ago."""
    host = Host()
    watch = watch_of(host)
    host.go_on(10.0, sent=90e6)
    watch.look()
    host.go_on(10.0, sent=1e6)
    watch.look()
    host.go_on(0.1, sent=90e6)
    assert watch.neighbours().transmitted_bytes_per_second == pytest.approx(1.9e6, rel=0.1)


def test_the_status_says_what_others_use_and_what_they_may() -> None:
    """The threshold stands beside what it is held against."""
    host = Host()
    watch = watch_of(host, most=0.4)
    host.go_on(10.0, sent=50e6)
    document = watch.document(NOON)
    assert (document["others_network_fraction"], document["host_network_fraction_max"]) == (0.5, 0.4)
    assert document["network_ceiling_bytes_per_second"] == CEILING


def test_the_ceiling_is_the_tables_or_what_was_measured_above_it() -> None:
    """A slow path lowers nothing, reports raise nothing, and few measurements neither."""
    table = ceiling("c5.large")
    assert table is not None

    def known(expected: float, **changes: object) -> float | None:
        parameters = {"host_bytes_per_second": Estimate(expected, expected, expected)}
        fit = a_fit(**{"parameters": parameters, "observation_count": 12} | changes)
        return ceiling_bytes_per_second("c5.large", [fit, a_fit()])

    assert known(1e6) == table.baseline_bytes_per_second
    assert known(400e6) == 400e6
    assert known(400e6, is_from_reports=True) == table.baseline_bytes_per_second
    assert known(400e6, observation_count=2) == table.baseline_bytes_per_second
    assert ceiling_bytes_per_second("lab", []) is None


def test_counters_that_lag_behind_say_nothing() -> None:
    """A driver that counts by the second, or bytes that wait in the kernel: the window has to be longer."""
    host = Host()
    before = host.sample
    host.go_on(0.25, sent=10e6, own_sent=60e6)
    assert others_flow(before, host.sample, 0.25) is None
    host.go_on(0.75, sent=90e6, own_sent=60e6)
    assert others_flow(before, host.sample, 1.0) == Flow(received=0.0, transmitted=10e6)


def test_the_little_that_is_read_from_files_makes_no_window_void() -> None:
    """Reading the counters is reading: where hardly anything comes in, more is read than the network brought."""
    host = Host()
    before = host.sample
    host.go_on(0.25, sent=10e6, own_sent=10.2e6)
    assert others_flow(before, host.sample, 0.25) == Flow(received=0.0, transmitted=0.0)
    read = HostSample(own_received_bytes=50_000, transmitted_bytes=5_000_000)
    assert others_flow(HostSample(), read, 0.25) == Flow(received=0.0, transmitted=20e6)


@pytest.mark.parametrize(
    ("now", "has_collapsed"),
    [(Flow(0.0, 60e6), False), (Flow(0.0, 40e6), True), (Flow(9e6, 90e6), False), (Flow(0.0, 90e6), False)],
)
def test_less_than_half_of_what_was_there_is_a_collapse(now: Flow, *, has_collapsed: bool) -> None:
    """In a direction in which there was something: what was next to nothing is not missed."""
    assert now.has_collapsed_since(Flow(received=0.5e6, transmitted=100e6)) is has_collapsed
