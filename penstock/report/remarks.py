"""Knows what to point out to a reader: rules with a code, a title, and the reason with numbers and thresholds."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import date

from penstock.optimizer.verdict import LIMITS
from penstock.report.findings import Advice, PlaceFindings, Remark, Report
from penstock.report.wording import age_words, capital, date_words, interval, knob_value, percent
from penstock.units import counted, format_bytes, format_seconds, label, number, quantity
from penstock.vocabulary import WIDE_FACTOR, Basis, Cost

THROTTLED_FRACTION = 0.01
FAILED_FRACTION = 0.02
INCONCLUSIVE_FRACTION = 0.2
COVERAGE_FRACTION = 0.8  # of measurements within their 90 % intervals; with fewer, these are too narrow
JUDGED_COUNT_MIN = 10
BUDGET_FRACTION = 0.9
_CLIENT_COUNT_MAX = 3  # named in a remark
HELPS_FROM = 0.1  # if twice the connections gain less than this fraction, more of them do not help

_TROUBLES = (  # the field that counts it, code, title, threshold
    ("throttled_count", "throttled", "The service throttled requests", THROTTLED_FRACTION),
    ("failed_count", "failed-requests", "Requests failed", FAILED_FRACTION),
)


def remark(report: Report) -> Report:
    """The report with all remarks that apply, warnings first."""
    places = tuple(
        dataclasses.replace(place, remarks=_sorted(_about_place(place, report))) for place in report.places
    )
    return dataclasses.replace(report, places=places, remarks=_sorted(_about_all(report)))


def _sorted(remarks: Iterator[Remark]) -> tuple[Remark, ...]:
    return tuple(sorted(remarks, key=lambda remark: not remark.is_warning))


def _about_place(place: PlaceFindings, report: Report) -> Iterator[Remark]:
    yield from _about_age(place, report)
    yield from _about_limits(place)
    yield from _about_guesses(place)
    yield from _about_fit(place)
    yield from _about_trouble(place)
    yield from _about_inconclusive(place)
    yield from _about_reports(place)


def _about_age(place: PlaceFindings, report: Report) -> Iterator[Remark]:
    if place.fit is None:
        learning = " until a daemon starts with this database, probes here and learns from them" * bool(
            place.observation_count
        )
        is_advised = any(a.recommendation.basis is not Basis.DEFAULT for a in place.advice)
        yield Remark(
            code="no-fit",
            title="No fit can be read" if is_advised else "Nothing was learned here yet",
            reason=f"{counted(place.observation_count, 'observation')} and no usable fit: "
            + (
                "the advice is the last that was issued, and stays without remarks until the daemon has learned again."
                if is_advised
                else f"the advice is the SDK's default{learning}."
            ),
            is_warning=True,
        )
        return
    if place.fit.observation_count == 0:
        yield Remark(
            code="nothing-measured",
            title="Nothing was measured here yet",
            reason="The advice rests on tables and neighbours, so its intervals are wide.",
        )
    ends = [advice.recommendation.expires_at for advice in place.ordinary_advice]
    if ends and max(ends) <= report.generated_at:
        newest = place.fit.newest_observation_at
        yield Remark(
            code="advice-expired",
            title="The advice is out of date",
            reason=f"It was valid until {date_words(max(ends))}, {age_words(max(ends), report.generated_at)}; "
            f"the newest observation is from {date_words(newest) if newest else 'no date'}.",
            is_warning=True,
        )


def _about_limits(place: PlaceFindings) -> Iterator[Remark]:
    """What limits ordinary advice, and what twice as much would bring. Advice with the same limit shares a remark."""
    groups: dict[str, list[Advice]] = defaultdict(list)
    for advice in place.ordinary_advice:
        if advice.recommendation.basis is not Basis.DEFAULT:
            groups[advice.recommendation.bottleneck].append(advice)
    total = sum(map(len, groups.values()))
    for bottleneck, group in groups.items():
        if bottleneck in LIMITS:
            ends = group if len(group) == 1 else (group[0], group[-1])
            share = f"{len(group)} of {counted(total, f'{place.payload_noun} size')}"
            yield Remark(
                code=f"limit-{bottleneck}",
                title=f"{capital(LIMITS[bottleneck])} at {share}",
                reason=capital("; ".join(_limit_reason(place, advice) for advice in ends)) + ".",
            )


def _limit_reason(place: PlaceFindings, advice: Advice) -> str:
    made, knob, gain = advice.recommendation, advice.doubled_knob, advice.doubled_gain_fraction
    words = f"for {format_bytes(advice.payload_size_bytes)}: {label(knob)} {knob_value(made.setting, knob)}"
    if (expected := made.prediction.get(place.value_metric)) is not None:
        words += f" is expected to reach {interval(place.value_metric, expected)}"
    if gain is not None:
        much = percent(abs(gain))
        change = "no difference" if much in {"0 %", "0.0 %"} else f"{much} {'more' if gain > 0 else 'less'}"
        words += f", and twice the threads would bring {change}"
        if made.bottleneck == "connections" and gain < HELPS_FROM:  # explains the apparent contradiction
            words += ", as there is too little work here for more"
    return words


def _about_guesses(place: PlaceFindings) -> Iterator[Remark]:
    expected = [(a, a.recommendation.prediction.get(place.value_metric)) for a in place.advice]
    known = [(a, e) for a, e in expected if e is not None]
    wide = [(a, e) for a, e in known if e.is_guess]
    if wide:
        advice, estimate = max(wide, key=lambda pair: pair[1].high / max(pair[1].low, 1e-9))
        is_measured = advice.recommendation.basis is Basis.MEASURED
        share = f"{len(wide)} of {counted(len(known), 'prediction')} {'are' if wide[1:] else 'is'}"
        yield Remark(
            code="wide-interval",
            title=f"{share} little more than a guess",
            reason=f"A 90 % interval there spans more than a factor of {WIDE_FACTOR:.0f}; the widest is that of "
            f"{format_bytes(advice.payload_size_bytes)}: {interval(place.value_metric, estimate)}. "
            + ("The measurements there vary as much." if is_measured else "Nothing similar was measured."),
        )


def _about_fit(place: PlaceFindings) -> Iterator[Remark]:
    if place.fit is not None and place.fit.is_off_model:
        yield Remark(
            code="off-model",
            title="The model describes this place badly",
            reason=f"The median of {place.fit.observation_count} measurements is off by "
            f"{percent(place.fit.residual_fraction_p50)}, more than they vary among themselves, or in a "
            "pattern that the model does not have. So the advice follows measurements of similar settings, and its "
            "intervals are wide.",
            is_warning=True,
        )
    if place.fit is not None and place.fit.drift_count:
        yield Remark(
            code="place-changed",
            title="This place changed while it was watched",
            reason=f"{_times(place.fit.drift_count).capitalize()} within the observations that the fit "
            "rests on. Each time the fit started again, from measurements of the place as it is now; the others may "
            "lie off the curves.",
        )
    judged = place.promised_coverage
    if judged.count >= JUDGED_COUNT_MIN and judged.fraction < COVERAGE_FRACTION:
        yield Remark(
            code="promise-missed",
            title="Predictions promised more certainty than there was",
            reason=f"{judged.within_count} of {judged.count} measurements "
            f"({percent(judged.fraction)}) fell within the 90 % interval that was predicted for them; "
            f"below {percent(COVERAGE_FRACTION)} is a warning.",
            is_warning=True,
        )


def _about_trouble(place: PlaceFindings) -> Iterator[Remark]:
    seen = "measurements" if place.measured_count else "believed reports"
    for name, code, title, threshold in _TROUBLES:
        counts = [count for one in place.measured if (count := getattr(one, name))]
        fraction = len(counts) / max(len(place.measured), 1)
        if fraction > threshold:
            yield Remark(
                code=code,
                title=title,
                reason=f"In {len(counts)} of the last {len(place.measured)} {seen} ({percent(fraction)}, a "
                f"warning from {percent(threshold)}), {number(sum(counts))} requests in all.",
                is_warning=True,
            )


def _about_inconclusive(place: PlaceFindings) -> Iterator[Remark]:
    missed, total = len(place.inconclusives), len(place.inconclusives) + place.measured_count
    if missed:
        yield Remark(
            code="inconclusive",
            title="Some probes could not measure",
            reason=f"{missed} of {counted(total, 'probe')} ({percent(missed / total)}, a warning from "
            f"{percent(INCONCLUSIVE_FRACTION)}); {likeliest_failure(place)}",
            is_warning=missed / total > INCONCLUSIVE_FRACTION,
        )


def _about_reports(place: PlaceFindings) -> Iterator[Remark]:
    unheard = [each for each in place.hearsay if each.heard_count and not each.believed_count]
    if unheard:
        known = "what was measured here" if place.measured_count else "tables and neighbouring places"
        yield Remark(
            code="reports-not-believed",
            title=f"What {counted(len(unheard), 'client')} reported is not believed",
            reason=f"{', '.join(each.client for each in unheard[:_CLIENT_COUNT_MAX])}: too few of the reports agree "
            f"with {known}, so neither the advice nor any figure rests on them.",
        )


def likeliest_failure(place: PlaceFindings) -> str:
    """The most frequent reason why probes could not measure."""
    reason, count = Counter(i.reason for i in place.inconclusives).most_common(1)[0]
    return f"most often ({_times(count)}): {reason}"


def _about_all(report: Report) -> Iterator[Remark]:
    if report.damage:
        yield Remark(
            code="database-damaged",
            title="Not all of the database can be read",
            reason=f"Only what can be read is shown: {'; '.join(report.damage)}.",
            is_warning=True,
        )
    if report.leftover_count:
        yield Remark(
            code="leftovers-open",
            title="Probes may have left something behind",
            reason=f"The journal still holds {counted(report.leftover_count, 'thing')}: objects, uploads "
            "or queues of running or interrupted probes, or objects that the next probe reads again. "
            "penstockd removes whatever is no longer used; `penstock leftovers list` names it.",
        )
    if report.unreadable_count:
        yield Remark(
            code="rows-left-out",
            title="Some rows were left out",
            reason=f"{counted(report.unreadable_count, 'row')} of operations or settings that this version of penstock "
            "does not know; a newer one may have written them.",
            is_warning=True,
        )
    if report.daily_limit is not None:
        yield from _about_budget(report, report.daily_limit)
    for operation, usd in report.usd_limits.items():
        yield from _about_dollars(report, operation, usd)


def _dearest_day(report: Report, name: str, operation: str | None = None) -> tuple[date, float] | None:
    """The day on which most was spent of a field of `Cost`, and how much, by one operation or by all."""
    days: dict[date, float] = defaultdict(float)
    for spend in report.spending:
        if operation in {None, spend.operation}:
            days[spend.day] += getattr(spend.cost, name)
    return max(days.items(), key=lambda day: day[1], default=None)


def _about_budget(report: Report, limit: Cost) -> Iterator[Remark]:
    for field in dataclasses.fields(Cost):
        most, dearest = getattr(limit, field.name), _dearest_day(report, field.name)
        if dearest is None or most <= 0:
            continue
        day, spent = dearest
        if spent >= BUDGET_FRACTION * most:
            yield Remark(
                code="budget-used-up",
                title=f"The budget was nearly used up: {SPENT[field.name]}",
                reason=f"On {day} {cost_words(field.name, spent)} of {cost_words(field.name, most)} were spent "
                f"({percent(spent / most)}, a remark from {percent(BUDGET_FRACTION)}): probes wait until "
                "it allows more.",
            )


def _about_dollars(report: Report, operation: str, limit: float) -> Iterator[Remark]:
    if (dearest := _dearest_day(report, "usd", operation)) is None:
        return
    day, spent = dearest
    is_used_up = spent >= BUDGET_FRACTION * limit
    waiting = ": the budget was nearly used up, and probes wait until it allows more" if is_used_up else ""
    yield Remark(
        code="dollars-of-a-day",
        title=f"What a day of {operation} probes costs",
        reason=f"At most {cost_words('usd', spent)} at list price, on {day}; "
        f"probes.{operation}.usd_per_day allows {cost_words('usd', limit)}{waiting}.",
    )


SPENT = {  # the fields of `Cost`, in words for whoever pays
    "transferred_bytes": "bytes moved",
    "request_count": "requests",
    "usd": "dollars",
    "credit_bytes": "network burst credits",
    "duration_seconds": "probing time",
}


def cost_words(name: str, amount: float) -> str:
    """An amount of one field of `Cost`, in words."""
    if name.endswith("_bytes"):
        return format_bytes(amount)
    if name == "duration_seconds":
        return format_seconds(amount)
    return quantity(name, amount)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
