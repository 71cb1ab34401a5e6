"""The budget: what it refuses, what it says, when it allows again."""

from datetime import timedelta

import pytest

from penstock.daemon.config import BudgetSection
from penstock.daemon.spending.budget import ALLOWED, Ledger, daily_limit, host_verdict
from penstock.units import GiB, MiB
from penstock.vocabulary import Cost
from tests.factories import NOON

LIMIT = Cost(transferred_bytes=GiB, request_count=100, usd=1.0, credit_bytes=0, duration_seconds=600.0)
HOUR = timedelta(hours=1)


def test_an_act_within_the_limit_is_allowed() -> None:
    """Up to the limit itself."""
    assert Ledger(LIMIT).allows("s3_upload", LIMIT, NOON) == ALLOWED


def test_a_refusal_says_why_and_until_when() -> None:
    """The sentence names need, limit, key and what is left; `retry_at` is when the old row has aged out."""
    ledger, _ = Ledger(LIMIT).reserve("s3_upload", Cost(transferred_bytes=900 * MiB), NOON)
    verdict = ledger.allows("s3_upload", Cost(transferred_bytes=200 * MiB), NOON + HOUR)
    assert not verdict.is_allowed
    assert verdict.sentence == (
        "a probe may need 200 MiB; of 1 GiB in 24 hours (budget.transferred_bytes_per_day) "
        "124 MiB are left until 2026-03-02 13:00 UTC"
    )
    assert verdict.retry_at == NOON + 25 * HOUR
    assert ledger.allows("s3_upload", Cost(transferred_bytes=200 * MiB), verdict.retry_at).is_allowed


def test_an_act_late_in_its_hour_counts_for_a_whole_day() -> None:
    """Rows know only the hour: what was done at 12:59 still counts at 12:30 of the next day."""
    ledger, _ = Ledger(LIMIT).reserve("s3_upload", Cost(request_count=90), NOON + 59 * HOUR / 60)
    assert not ledger.allows("s3_upload", Cost(request_count=90), NOON + 24.5 * HOUR).is_allowed


@pytest.mark.parametrize(
    ("cost", "sentence"),
    [
        (
            Cost(credit_bytes=MiB),
            "need 1 MiB of burst credit, but budget.credit_fraction_per_day allows only 0 B of burst credit in",
        ),
        (
            Cost(transferred_bytes=2 * GiB),
            "need 2 GiB, but budget.transferred_bytes_per_day allows only 1 GiB in",
        ),
        (
            Cost(request_count=1234),
            "need 1,234 requests, but budget.request_count_per_day allows only 100 requests in",
        ),
        (Cost(usd=1.25), "need $1.25, but budget.usd_per_day allows only $1 in"),
        (
            Cost(duration_seconds=900.0),
            "need 15 min of probing, but budget.duty_cycle_fraction allows only 10 min of probing in",
        ),
    ],
)
def test_what_never_fits_says_so(cost: Cost, sentence: str) -> None:
    """Waiting does not help; raising the limit does. Each amount has its unit, each limit its key."""
    verdict = Ledger(LIMIT).allows("s3_upload", cost, NOON)
    assert (verdict.is_allowed, verdict.retry_at) == (False, None)
    assert f"{sentence} 24 hours: raise it" in verdict.sentence


def test_settling_gives_back_what_was_not_used() -> None:
    """The reservation is the most that an act may cost; what counts in the end is what it did cost."""
    ledger, reserved = Ledger(LIMIT).reserve("s3_upload", Cost(request_count=90), NOON)
    assert ledger.affordable("s3_upload", NOON).request_count == 10
    ledger, correction = ledger.settle(reserved, Cost(request_count=30), NOON)
    assert correction.cost.request_count == -60
    assert ledger.affordable("s3_upload", NOON).request_count == 70
    assert Ledger(LIMIT, (reserved, correction)).spent(NOON) == ledger.spent(NOON)


def test_an_operation_keeps_to_its_own_dollars() -> None:
    """What one operation may spend is less than all may; the others are not held by it."""
    ledger, _ = Ledger(LIMIT, usd_limits={"sqs_delivery": 0.03}).reserve("sqs_delivery", Cost(usd=0.02), NOON)
    assert ledger.affordable("sqs_delivery", NOON).usd == pytest.approx(0.01)
    assert ledger.affordable("s3_upload", NOON).usd == pytest.approx(0.98)
    assert ledger.allows("s3_upload", Cost(usd=0.5), NOON) == ALLOWED
    verdict = ledger.allows("sqs_delivery", Cost(usd=0.02), NOON)
    assert verdict.retry_at == NOON + 25 * HOUR
    assert "of $0.03 in 24 hours (probes.sqs_delivery.usd_per_day) $0.01 are left until" in verdict.sentence
    assert (
        "allows only $0.03 in 24 hours: raise it"
        in ledger.allows("sqs_delivery", Cost(usd=0.04), NOON).sentence
    )


def test_what_was_spent_ahead_of_the_clock_counts_until_it_has_come() -> None:
    """A clock that was 400 days ahead, or is that much behind now, gives no budget back."""
    ahead = NOON + timedelta(days=400)
    ledger, _ = Ledger(LIMIT).reserve("s3_upload", Cost(request_count=90), ahead)
    assert [spend.hour_at for spend in ledger.ahead(NOON)] == [ahead]
    verdict = ledger.allows("s3_upload", Cost(request_count=20), NOON)
    assert (verdict.is_allowed, verdict.retry_at) == (False, ahead + 25 * HOUR)
    assert ledger.ahead(ahead + HOUR) == []


def test_a_clock_that_is_believed_makes_what_was_ahead_spent_now() -> None:
    """It counts for a day, as all that is spent does; what was given back again is not in it."""
    ahead = NOON + timedelta(days=400)
    ledger, reserved = Ledger(LIMIT).reserve("s3_upload", Cost(request_count=90), ahead)
    ledger, _ = ledger.settle(reserved, Cost(request_count=60), ahead)
    ledger, _ = ledger.reserve("sqs_delivery", Cost(request_count=20), ahead + HOUR)
    ledger, _ = ledger.reserve("s3_upload", Cost(request_count=5), NOON)
    ledger, _ = ledger.reserve("s3_upload", Cost(request_count=10), NOON - HOUR)
    ledger = ledger.believing(NOON)
    assert ledger.ahead(NOON) == []
    assert ledger.spent(NOON).request_count == 95
    assert ledger.spent(NOON, "sqs_delivery").request_count == 20
    assert ledger.spent(NOON + 25 * HOUR).request_count == 0


def test_the_limit_comes_from_the_configuration() -> None:
    """Fractions of a day become seconds and bytes."""
    section = BudgetSection(duty_cycle_fraction=0.5, credit_fraction_per_day=0.1)
    limit = daily_limit(section, credit_bytes_per_day=1000.0)
    assert (limit.duration_seconds, limit.credit_bytes) == (43200.0, 100)
    assert daily_limit(BudgetSection(credit_fraction_per_day=1.0)).credit_bytes == 0


def test_a_busy_host_is_left_alone_for_a_minute() -> None:
    """Applications come first."""
    section = BudgetSection(host_cpu_fraction_max=0.5, host_network_fraction_max=0.2)
    for network in (0.2, None):
        assert host_verdict(0.5, network, section, NOON) == ALLOWED
    for verdict, what in (
        (host_verdict(0.8, 0.0, section, NOON), "processors"),
        (host_verdict(0.0, 0.8, section, NOON), "network"),
    ):
        assert not verdict.is_allowed
        assert verdict.retry_at == NOON + timedelta(minutes=1)
        assert verdict.sentence.startswith(f"the host's own work keeps its {what} 80% busy")
