"""Whatever the vocabulary can say, the store repeats."""

from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.daemon.memory.store import Store
from penstock.models.s3.upload import S3UploadSetting
from penstock.probes.probe import Leftover, LeftoverKind
from penstock.vocabulary import Context, Observation, Origin, Place
from tests.factories import NOON, PLACE, SETTING_TYPES

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=64)
TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
OBSERVATIONS = st.builds(
    Observation,
    context=st.builds(Context, place=st.just(PLACE), payload_size_bytes=st.integers(0, 2**50)),
    setting=st.builds(
        S3UploadSetting, thread_count=st.integers(1, 1024), part_size_bytes=st.integers(1, 2**40)
    ),
    started_at=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    duration_seconds=NUMBERS,
    transferred_bytes=st.integers(0, 2**60),
    request_count=st.integers(0, 2**31),
    latency_seconds_p99=NUMBERS,
    origin=st.sampled_from(Origin),
    client=TEXT,
    measures=st.dictionaries(TEXT, NUMBERS, max_size=3),
)
PLACES = st.builds(Place, operation=st.just("s3_upload"), region=TEXT, instance_type=TEXT, service_class=TEXT)


@settings(max_examples=25, deadline=None)
@given(st.lists(OBSERVATIONS, max_size=20), st.integers(1, 25))
def test_observations_come_back_in_order(
    observations: list[Observation[S3UploadSetting]], count: int
) -> None:
    """The newest `count` of either origin, oldest first, equal field by field."""
    with TemporaryDirectory() as folder:
        store = Store(Path(folder) / "penstock.db", SETTING_TYPES)
        store.add_observations(observations)
        stored = {
            Origin.PROBE: store.observations(PLACE, count_max=count),
            Origin.APPLICATION: store.reports(PLACE, count_max=count, count_max_per_user=count),
        }
        store.close()
    for origin, found in stored.items():
        own = [o for o in observations if o.origin is origin]
        expected = sorted(own, key=lambda o: o.started_at)[-count:]
        assert [o.started_at for o in found] == [o.started_at for o in expected]
        assert all(observation in own for observation in found)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8, unique=True), PLACES)
def test_the_journal_holds_any_name(names: list[tuple[str, str]], place: Place) -> None:
    """Also after the file is broken at its head: names with quotes, control characters or none at all."""
    leftovers = [
        Leftover(kind=LeftoverKind.SQS_QUEUE, service=place.region, container=container, name=name)
        for container, name in names
    ]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "penstock.db"
        store = Store(path, SETTING_TYPES)
        for leftover in leftovers:
            store.record_leftover(leftover, now=NOON)
        assert set(store.open_leftovers()) == set(leftovers)
        store.close()
        with path.open("r+b") as file:
            file.write(bytes(100))
        store = Store(path, SETTING_TYPES)
        assert set(store.open_leftovers()) == set(leftovers)
        store.close()
