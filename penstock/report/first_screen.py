"""Knows what the first screen shows of each place, in words and small drawings, for both page and Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from penstock.optimizer.verdict import HELP, LIMITS, period_words
from penstock.report.changes import change_sentence
from penstock.report.episodes import episode_sentence
from penstock.report.findings import Advice, ClientGain, PlaceFindings, PlaceVerdict, Report
from penstock.report.material import Copy
from penstock.report.remarks import HELPS_FROM, JUDGED_COUNT_MIN, cost_words, likeliest_failure
from penstock.report.rhythm import rhythm_sentence
from penstock.report.wording import (
    age_words,
    capital,
    date_words,
    gain_span,
    interval,
    percent,
    place_words,
    span,
)
from penstock.units import counted, format_bytes, format_seconds, label, number, quantity, rate_noun
from penstock.vocabulary import Basis, Estimate, Obstacle, Origin, Setting, setting_values

STRIP_DAY_COUNT_MAX = 60
COPY_COUNT_SHOWN = 4  # visible at once; the others are one click away
CARD_COUNT_MAX = 4  # with more places, a table comes first
_BAR_WIDTH, _BAR_HEIGHT = 120, 14
_HELP_AGAINST = {
    Obstacle.UNTRIED: "more connections, once probes have tried that many, or a shorter network path",
    Obstacle.THREADS: "more connections than are allowed, or a shorter network path",
    Obstacle.MEMORY: "more memory than is allowed, for more connections, or a shorter network path",
}
_SURE = {
    Basis.MEASURED: "The advised setting, or one within a tenth of it, was measured",
    Basis.MODEL: "Estimated from measurements of this place at other settings",
    Basis.REPORTED: "Applications reported it; nothing was measured here",
    Basis.PRIOR: "Tables and neighbouring places; nothing was measured here",
    Basis.DEFAULT: "Nothing is known",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstScreen:
    """The first screen of one place."""

    number: int  # of the place's section on the page
    name: str
    size: str
    sentence: str
    setting: str
    gain: str
    limit: str
    fresh: str
    cost: str
    copies: tuple[Copy, ...]  # for the most used clients
    other_copies: tuple[Copy, ...]
    gains: tuple[tuple[ClientGain, str], ...]  # each with its drawing as SVG
    facts: tuple[tuple[str, str], ...]
    changes: tuple[str, ...]
    strip: str  # SVG of the days with measurements
    is_warning: bool


def first_screens(report: Report) -> list[FirstScreen]:
    """All places with advice, the largest gain first; expired advice comes last."""
    shown = [
        (findings.verdict, _first_screen(number, findings, findings.verdict, report))
        for number, findings in enumerate(report.places, start=1)
        if findings.verdict is not None
    ]
    return [screen for _, screen in sorted(shown, key=lambda each: (each[0].is_expired, -each[0].gained))]


def _first_screen(section: int, place: PlaceFindings, verdict: PlaceVerdict, report: Report) -> FirstScreen:
    size_bytes = verdict.payload_size_bytes
    advice = next(a for a in place.ordinary_advice if a.payload_size_bytes == size_bytes)
    made, now = advice.recommendation, report.generated_at
    highest = max((each.gain.high for each in verdict.gains), default=1.0)
    lowest = min((each.gain.low for each in verdict.gains), default=1.0)
    return FirstScreen(
        number=section,
        name=place_words(place.place),
        size=f"{place.payload_noun}s of {format_bytes(size_bytes)}",
        sentence=verdict.sentence,
        setting=verdict.setting_words,
        gain=f"{verdict.gains[0].words}{gain_span(verdict.gains[0].gain)}" if verdict.gains else "-",
        limit=LIMITS.get(made.bottleneck, "not known")
        .removesuffix(" is the limit")
        .removesuffix(" are the limit"),
        fresh=age_words(made.newest_observation_at, now) + (", out of date" if verdict.is_expired else ""),
        cost=_cost(verdict),
        copies=verdict.copies[:COPY_COUNT_SHOWN],
        other_copies=verdict.copies[COPY_COUNT_SHOWN:],
        gains=tuple((each, _bar(each.gain, min(lowest, 1.0), max(highest, 1.0))) for each in verdict.gains),
        facts=tuple(_facts(place, advice, verdict, now)),
        changes=tuple(_told(place)),
        strip=_strip(verdict.days),
        is_warning=verdict.is_expired or made.basis is Basis.DEFAULT,
    )


def _told(place: PlaceFindings) -> list[str]:
    """What happened at the place, a sentence each: the rhythm, and the newest of the rest that fit a screen."""
    rhythmic = [rhythm_sentence(rhythm) for rhythm in place.rhythms if rhythm.is_significant]
    changes = [change_sentence(change, place.value_metric) for change in reversed(place.news)]
    failures = []
    if place.inconclusives and not place.observation_count:
        failures = [f"Probes could not measure, {likeliest_failure(place)}."]
    return [*failures, *rhythmic, *[episode_sentence(e) for e in reversed(place.episodes)][:2], *changes[:2]]


def _facts(
    place: PlaceFindings, advice: Advice, verdict: PlaceVerdict, now: datetime
) -> list[tuple[str, str]]:
    made = advice.recommendation
    expected = made.prediction.get(place.value_metric)
    facts = []
    if expected is not None:
        words = interval(place.value_metric, expected)
        words += " while burst credits last" if _credit_seconds(made.derived) < math.inf else ""
        facts.append((f"Expected {label(place.value_metric)}", words))
        facts += _worth(place.value_metric, expected, advice, verdict.gains)
    facts.append(("How sure", _sure(place, made.basis)))
    until = f"valid until {date_words(made.expires_at)} UTC"
    if made.has_expired(now):
        until = f"out of date since {date_words(made.expires_at)} UTC"
    seen = "reported" if made.basis is Basis.REPORTED else "measured"
    age = age_words(made.newest_observation_at, now)
    facts.append(("How fresh", f"{f'never {seen}' if age == 'never' else f'{seen} {age}'}; {until}"))
    facts += _refutation(place.value_metric, expected, advice, verdict.gains)
    facts += _tried(place, advice)
    facts += _limits(place, advice)
    facts.append(("What it cost", _cost(verdict, is_in_full=True)))
    return facts


def _worth(
    metric: str, expected: Estimate, advice: Advice, gains: tuple[ClientGain, ...]
) -> list[tuple[str, str]]:
    """What the gain over the first client is worth: in time if there is a gain, in money if prices differ."""
    found, derived = [], advice.recommendation.derived
    credited = expected.expected * _credit_seconds(derived)
    if (noun := rate_noun(metric)) and gains and gains[0].gain.low > 1.0:
        amount, words = (1e12, "1 TB") if noun == "bytes" else (1e6, f"a million {noun}")
        if amount > credited:
            words = f"the {credited / 1e9:.3g} GB for which burst credits last"
        seconds = min(amount, credited) / expected.expected
        alone = seconds * gains[0].gain.expected
        by_itself = f"where {gains[0].client} by itself takes {format_seconds(alone)}"
        found.append(
            f"{words} in {format_seconds(seconds)}, {by_itself}: {format_seconds(alone - seconds)} less"
        )
    for name, price in advice.default_prices.items():
        if f"{derived.get(name, price):.2g}" != f"{price:.2g}":
            found.append(f"{_usd(derived[name])} {label(name).removeprefix('usd ')} instead of {_usd(price)}")
    return [("What it is worth", capital("; ".join(found)))] if found else []


def _credit_seconds(derived: Mapping[str, float]) -> float:
    """The seconds for which burst credits last; infinite for advice that needs none, because it is no faster."""
    return derived.get("burst_seconds_left", math.inf) if derived.get("is_burst") else math.inf


def _usd(amount: float) -> str:
    return f"${amount:.2f}" if amount >= 0.01 else cost_words("usd", amount)


def _sure(place: PlaceFindings, basis: Basis) -> str:
    words = _SURE[basis]
    if place.fit is not None and place.fit.observation_count:
        used, seen = place.fit.observation_count, place.observation_count
        some = f"{number(used)} of " if used < seen else ""
        newest = "the newest " if some and place.measured_count == seen else ""  # of reports only a share
        words += f"; it rests on {newest}{some}{counted(seen if some else used, 'observation')}"
    judged = place.promised_coverage
    if judged.count >= JUDGED_COUNT_MIN:
        words += f"; {judged.within_count} of the last {judged.count} came as predicted (90 % is right)"
    return words


def _refutation(
    metric: str, expected: Estimate | None, advice: Advice, gains: tuple[ClientGain, ...]
) -> list[tuple[str, str]]:
    """The measurements that would refute the verdict, for readers who doubt it."""
    default = advice.default_expected
    if expected is None or default is None or not gains:
        return []
    words = (
        f"More than one in ten measurements of {gains[0].client}'s defaults outside {span(metric, default)}"
    )
    if default != expected:
        words += f", or of the advised setting outside {span(metric, expected)}"
    return [("What would refute it", words)]


def _tried(place: PlaceFindings, advice: Advice) -> list[tuple[str, str]]:
    """What probes of this size measured with other settings, while the place was as it is now."""
    setting, size = advice.recommendation.setting, advice.payload_size_bytes
    mine = _thread_count(setting)
    groups: dict[str, list[float]] = {"fewer threads": [], "as many threads": [], "more threads": []}
    tried = [
        each
        for each in place.measured
        if each.origin == Origin.PROBE.value
        and (each.context.payload_size_bytes, each.setting == setting) == (size, False)
        and place.is_about_now(each.started_at)
    ]
    for each in tried:
        theirs = _thread_count(each.setting)
        groups[
            "fewer threads" if theirs < mine else "more threads" if theirs > mine else "as many threads"
        ].append(each.value)
    words = [f"{name} {_reach(place.value_metric, values)}" for name, values in groups.items() if values]
    troubled = sum(each.throttled_count + each.failed_count > 0 for each in tried)
    if troubled:
        words.append(f"requests refused or failed in {troubled} of them")
    return [("What other settings gave", capital("; ".join(words)))] if words else []


def _reach(metric: str, values: list[float]) -> str:
    """``18 to 144 MB/s (3 measurements)``; for one measurement only its value."""
    low, high = min(values), max(values)
    words = span(metric, Estimate(low, low, high)) if low < high else quantity(metric, low)
    return f"{words} ({counted(len(values), 'measurement')})"


def _thread_count(setting: Setting) -> float:
    """All threads; for a queue the sum of senders, receivers and deleters."""
    return sum(value for name, value in setting_values(setting).items() if name.endswith("thread_count"))


def _limits(place: PlaceFindings, advice: Advice) -> list[tuple[str, str]]:
    """What limits, what twice the threads would bring, and what would help beyond the advice."""
    name, more = advice.recommendation.bottleneck, advice.doubled_gain_fraction
    words = LIMITS.get(name, "not known")
    helping = place.request_rate_help if name == "request-rate" else HELP.get(name)
    if name == "connections" and more is not None and more < HELPS_FROM:
        words, helping = f"{words}, and there is too little work here for more connections", None
    elif name == "connections" and (obstacle := advice.recommendation.obstacle) is not None:
        helping = _HELP_AGAINST[obstacle]
    if more is not None:
        much = f"{percent(abs(more))} {'more' if more > 0 else 'less'}"
        brought = much if abs(more) >= 0.01 else f"no more{_why_not(advice)}"
        words += f"; twice the threads bring {brought}"
    return [("What limits", capital(words)), *([("What would help", capital(helping))] if helping else [])]


def _why_not(advice: Advice) -> str:
    """The reason, for a large object that has few requests; small objects have many."""
    setting, size = advice.recommendation.setting, advice.payload_size_bytes
    count = math.ceil(size / getattr(setting, "request_size_bytes", math.inf))
    return f", as each of its {count} requests already has one" if 1 < count <= setting.thread_count else ""


def _cost(verdict: PlaceVerdict, *, is_in_full: bool = False) -> str:
    """The cost in money; in full, also bytes moved and probing time, which others on the host may have felt."""
    if verdict.spent is None or not verdict.usd_period_seconds:
        return "nothing was spent"
    words = _usd(verdict.spent.usd)
    if is_in_full:
        moved, busy = verdict.spent.transferred_bytes, verdict.spent.duration_seconds
        words += f", {format_bytes(moved)} moved and {format_seconds(busy)} of probing"
    words += f" in {period_words(verdict.usd_period_seconds)}"
    return words if verdict.usd_place_count == 1 else f"{words}, all {verdict.usd_place_count} places"


def _bar(gain: Estimate, low: float, high: float) -> str:
    """The interval on a logarithmic scale that all clients of the place share; the dashed line is no difference."""
    low, high = low * 0.97, high * 1.03

    def left(value: float) -> float:
        share = math.log(max(value, low) / low) / math.log(high / low)
        return 4 + share * (_BAR_WIDTH - 8)

    middle = _BAR_HEIGHT / 2
    return (
        f'<svg class="bar" viewBox="0 0 {_BAR_WIDTH} {_BAR_HEIGHT}" aria-hidden="true">'
        f'<path class="one" d="M{left(1.0):.1f} 0V{_BAR_HEIGHT}"/>'
        f'<path class="reach" d="M{left(gain.low):.1f} {middle}H{left(gain.high):.1f}"/>'
        f'<circle cx="{left(gain.expected):.1f}" cy="{middle}" r="4"/></svg>'
    )


def _strip(days: tuple[tuple[date, int], ...]) -> str:
    """A cell for each day up to the last with measurements, darker with more: 0 for none, else 1 to 4."""
    if not days:
        return ""
    counts, last = dict(days), days[-1][0]
    span = min(max((last - days[0][0]).days + 1, 7), STRIP_DAY_COUNT_MAX)
    shown = [last - timedelta(days=span - 1 - n) for n in range(span)]
    most = max(counts.values())
    cells = "".join(
        f'<rect x="{n}" y="0" width="0.85" height="1" class="h{math.ceil(4 * counts.get(day, 0) / most)}">'
        f"<title>{day}: {counted(counts.get(day, 0), 'measurement')}</title></rect>"
        for n, day in enumerate(shown)
    )
    measured = sum(1 for day in shown if counts.get(day))
    words = f"Measured on {measured} of {span} days up to {last}"
    return (
        f'<svg class="strip" viewBox="0 0 {span} 1" preserveAspectRatio="none" role="img" aria-label="{words}">'
        f"{cells}</svg>"
    )
