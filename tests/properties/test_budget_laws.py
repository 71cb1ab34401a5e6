"""No sequence of acts, restarts and clock steps gets more out of the budget than it allows."""

from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.daemon.spending.budget import DAY, Ledger
from penstock.vocabulary import Cost, Spend
from tests.factories import NOON

LIMIT = Cost(transferred_bytes=1000, request_count=50, usd=1.0, credit_bytes=10, duration_seconds=100.0)
OWN_USD = {"sqs_delivery": 0.7}
COSTS = st.builds(
    Cost,
    transferred_bytes=st.integers(0, 600),
    request_count=st.integers(0, 30),
    usd=st.floats(0, 0.6),
    credit_bytes=st.integers(0, 6),
    duration_seconds=st.floats(0, 60),
)
# Mostly forward by minutes or hours; now and then a step of days, back or forth.
STEPS = st.one_of(st.integers(0, 7200), st.integers(0, 100_000), st.integers(-10 * 86400, 10 * 86400))
ACTS = st.lists(
    st.tuples(STEPS, COSTS, st.booleans(), st.floats(0, 1), st.sampled_from(["s3_upload", "sqs_delivery"])),
    max_size=40,
)


def _part(cost: Cost, fraction: float) -> Cost:
    return Cost(request_count=int(cost.request_count * fraction), usd=cost.usd * fraction)


def _sums_within(acts: list[tuple[datetime, str, Cost]]) -> None:
    for end, *_ in acts:
        day = [(operation, cost) for at, operation, cost in acts if end - DAY <= at <= end]
        window = sum((cost for _, cost in day), Cost())
        assert window.transferred_bytes <= LIMIT.transferred_bytes
        assert window.request_count <= LIMIT.request_count
        assert window.usd <= LIMIT.usd + 1e-9
        assert window.credit_bytes <= LIMIT.credit_bytes
        assert window.duration_seconds <= LIMIT.duration_seconds + 1e-9
        for own, usd in OWN_USD.items():
            assert sum(cost.usd for operation, cost in day if operation == own) <= usd + 1e-9


@settings(deadline=None)  # of the machine's load nothing follows
@given(ACTS)
def test_no_day_exceeds_the_limit(acts: list[tuple[int, Cost, bool, float, str]]) -> None:
    """Every window of 24 hours stays within the limit; a crash between reserving and settling only costs more."""
    now, ledger, disk, done = (
        NOON,
        Ledger(LIMIT, usd_limits=OWN_USD),
        list[Spend](),
        list[tuple[datetime, str, Cost]](),
    )
    for step, cost, has_crashed, used_fraction, operation in acts:
        now += timedelta(seconds=step)
        if not ledger.allows(operation, cost, now).is_allowed:
            continue
        ledger, reserved = ledger.reserve(operation, cost, now)
        disk.append(reserved)
        if has_crashed:
            ledger = Ledger(LIMIT, tuple(disk), OWN_USD)
            done.append((now, operation, cost))
        else:
            used = _part(cost, used_fraction)
            ledger, correction = ledger.settle(reserved, used, now)
            disk.append(correction)
            done.append((now, operation, used))
    _sums_within(done)


@settings(deadline=None)  # of the machine's load nothing follows
@given(ACTS, COSTS)
def test_retry_at_is_the_moment(acts: list[tuple[int, Cost, bool, float, str]], cost: Cost) -> None:
    """A refusal that names a moment is right: then it is allowed, and without one it never is."""
    now, ledger = NOON, Ledger(LIMIT, usd_limits=OWN_USD)
    for step, act, *_, operation in acts:
        now += timedelta(seconds=step)
        if ledger.allows(operation, act, now).is_allowed:
            ledger, _ = ledger.reserve(operation, act, now)
    verdict = ledger.allows("sqs_delivery", cost, now)
    if not verdict.is_allowed:
        assert verdict.retry_at is not None  # each cost alone is within the limit
        assert verdict.retry_at > now
        assert ledger.allows("sqs_delivery", cost, verdict.retry_at).is_allowed


@settings(deadline=None)  # of the machine's load nothing follows
@given(ACTS)
def test_what_is_affordable_is_allowed(acts: list[tuple[int, Cost, bool, float, str]]) -> None:
    """`affordable` is the whole rest: it may be reserved, and then nothing is left."""
    now, ledger = NOON, Ledger(LIMIT, usd_limits=OWN_USD)
    for step, act, *_, operation in acts:
        now += timedelta(seconds=step)
        if ledger.allows(operation, act, now).is_allowed:
            ledger, _ = ledger.reserve(operation, act, now)
    rest = ledger.affordable("s3_upload", now)
    whole = Cost(
        transferred_bytes=rest.transferred_bytes,
        request_count=rest.request_count,
        credit_bytes=rest.credit_bytes,
    )
    ledger, _ = ledger.reserve("s3_upload", whole, now)
    assert ledger.affordable("s3_upload", now).request_count == 0
    assert ledger.affordable("s3_upload", now).transferred_bytes == 0
