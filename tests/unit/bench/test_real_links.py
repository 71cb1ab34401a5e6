"""The benchmark on real links: its grids, its bounds, and what it calls passed."""

import time
from math import ceil
from types import SimpleNamespace

import pytest

from bench import exported_clients, real_downloads, real_links, results
from bench.real_links import CLIENTS, LINKS, Measured, Row
from bench.shaped_links import NotMeasuredError, Purse, ShapedLink
from penstock.client.targets.launch import PROGRAMS
from penstock.client.targets.table import TARGETS
from penstock.models.s3.upload import S3UploadSetting
from penstock.operations.table import OPERATIONS
from penstock.units import MiB


def a_row(*, default: float = 10e6, advised: float, best: float) -> Row:
    """One link and client of which a test names the rates."""

    def measured(rate: float) -> Measured:
        return Measured(
            setting=S3UploadSetting(thread_count=4, part_size_bytes=8 * MiB),
            bytes_per_second=rate,
            rounds=(rate,),
        )

    return Row(
        link="near",
        client="boto3",
        server="versitygw",
        object_count=1,
        default=measured(default),
        advised=measured(advised),
        best=measured(best),
        predicted_low=1e6,
        predicted_high=1e8,
        probe_count=8,
        probe_bytes=10**8,
        probe_seconds=10.0,
        grid=(measured(best),),
        grid_bytes=10**9,
        grid_seconds=60.0,
    )


@pytest.mark.parametrize(
    "link",
    [*LINKS, *real_downloads.LINKS, exported_clients.LINK],
    ids=lambda link: f"{link.transfer.operation}-{link.name}",
)
def test_a_grid_has_every_point_once_and_none_that_is_another_in_disguise(link: ShapedLink) -> None:
    """Legal settings only; threads without a part would be the same as fewer threads."""
    assert len(set(link.grid)) == len(link.grid) >= 7
    for setting in link.grid:
        assert OPERATIONS[link.transfer.operation].model.legal(link.context, setting) == setting
        parts = ceil(link.object_size_bytes / setting.request_size_bytes) * link.object_count
        assert setting.thread_count <= parts


def test_threads_reach_what_the_link_of_exported_settings_can_carry() -> None:
    """Some are too few for it, and some are enough."""
    link = exported_clients.LINK
    needed = link.truth.host_rate_bytes_per_second / link.truth.connection_rate_bytes_per_second
    threads = [point.thread_count for point in link.grid]
    assert max(threads) >= needed > min(threads)


def test_every_client_of_exported_settings_can_be_told() -> None:
    """Libraries by their target, programs by the way they are run."""
    assert all(name in TARGETS or name in PROGRAMS for name in exported_clients.SUITE.clients)


@pytest.mark.parametrize("links", [LINKS, real_downloads.LINKS], ids=["uploads", "downloads"])
def test_each_link_has_its_own_trouble(links: tuple[ShapedLink, ...]) -> None:
    """Distance, crowding, a window and a request rate: what the advice must cope with."""
    truths = [link.truth for link in links]
    assert len({link.name for link in links}) == 4
    assert max(truth.round_trip_seconds for truth in truths) > 0.1
    assert any(truth.oversubscription_loss for truth in truths)
    assert any(truth.window_bytes for truth in truths)
    assert any(truth.prefix_request_rate_per_second for truth in truths)
    assert all(truth.host_rate_bytes_per_second <= 60e6 for truth in truths)  # what two cores can carry


def test_a_purse_refuses_before_it_is_overdrawn() -> None:
    """Bytes and seconds are bounds, not wishes."""
    purse = Purse(bytes_left=10, seconds_max=60.0, began_seconds=time.monotonic())
    purse.spend(7)
    with pytest.raises(NotMeasuredError, match="bytes"):
        purse.spend(4)
    assert purse.bytes_left == 3
    with pytest.raises(NotMeasuredError, match="time"):
        Purse(bytes_left=10, seconds_max=1.0, began_seconds=time.monotonic() - 2.0).spend(1)


@pytest.mark.parametrize(
    ("rows", "gaps", "verdict"),
    [
        ([a_row(advised=96e6, best=100e6)], [], "pass"),
        ([a_row(advised=96e6, best=100e6), a_row(advised=94e6, best=100e6)], [], "MISS"),
        ([a_row(advised=96e6, best=100e6)], ["regional, s5cmd: the time is over"], "MISS"),
        ([], [], "MISS"),
    ],
)
def test_the_worst_pair_decides_and_what_was_not_measured_is_not_passed(
    *,
    rows: list[Row],
    gaps: list[str],
    verdict: str,
    tmp_path: object,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Advised / best at least 0.95 for every link and client; a gap is no pass."""
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    suite = real_links.Suite(name="real_links", links=LINKS, clients=CLIENTS)
    found = real_links._conclude(suite, rows, gaps, seconds=1.0, long=True)

    assert found["verdict"] == verdict
    assert verdict in capsys.readouterr().out
    assert found["not_measured"] == gaps


def test_a_suite_has_its_own_target(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that did not learn for themselves need to be less near."""
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    rows = [a_row(advised=91e6, best=100e6)]
    assert real_links._conclude(exported_clients.SUITE, rows, [], seconds=1.0, long=True)["verdict"] == "pass"


@pytest.mark.parametrize(("noise", "count"), [(0.01, 5), (0.5, 15)])
def test_the_advice_and_the_best_go_on_until_they_are_told_apart(noise: float, count: int) -> None:
    """Within bounds, and by rounds that hold both; the default is not compared."""
    one, other = (S3UploadSetting(thread_count=n, part_size_bytes=8 * MiB) for n in (4, 6))
    rounds = [{None: 1.0, one: 1.0 + noise * (i % 2), other: 1.0 + noise * (i // 2 % 2)} for i in range(20)]
    ends = [length for length in range(20) if real_links._is_settled(rounds[:length])]
    assert ends[0] == count


def test_small_objects_are_told_by_their_threads_alone() -> None:
    """Each is one request, whatever the size of one: two settings with as many threads are the same."""
    small = SimpleNamespace(name="s5cmd", link=real_links.THROTTLED)
    large = SimpleNamespace(name="s5cmd", link=LINKS[0])
    asked = S3UploadSetting(thread_count=4, part_size_bytes=6 * MiB + 1)
    assert real_links._told(small, asked) == real_links.THROTTLED.whole(4)  # type: ignore[arg-type]
    assert real_links._told(large, asked).request_size_bytes == 7 * MiB  # type: ignore[arg-type]


@pytest.mark.parametrize("links", [LINKS, real_downloads.LINKS, [exported_clients.LINK]])
def test_every_client_has_defaults_for_large_and_small_objects(links: tuple[ShapedLink, ...]) -> None:
    """What nobody advised is what the advice is compared with."""
    for name in exported_clients.SUITE.clients:
        for link in links:
            assert link.unadvised(name).thread_count >= (4 if name == "rclone" else 5)
