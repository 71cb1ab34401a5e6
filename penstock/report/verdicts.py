"""Knows what a reader should see first of each place: the sentence, the setting to copy, and what it brings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from penstock.models.model import Fit, PerformanceModel
from penstock.optimizer.comparison import gain
from penstock.optimizer.verdict import Verdict, day_words, sentence, signed_percent
from penstock.report.changes import ChangeFinding
from penstock.report.episodes import Episode
from penstock.report.material import Copy
from penstock.report.rhythm import Rhythm
from penstock.report.wording import percent
from penstock.units import counted
from penstock.vocabulary import Basis, Estimate, Recommendation

RHYTHMIC_CHANGE_COUNT_MIN = 3  # changes of a place with a rhythm: its turns, and not news
# A fit that an older penstock left.
UNREADABLE = (KeyError, IndexError, TypeError, ValueError, ArithmeticError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientGain:
    """What the advice brings over what one client does by itself."""

    client: str
    setting: Any  # of the operation's own type, as the service accepts it
    setting_words: str
    gain: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceVerdict:
    """The first screen of one place."""

    sentence: str
    payload_size_bytes: int
    setting_words: str
    copies: tuple[Copy, ...]
    gains: tuple[ClientGain, ...]  # the SDK's own first
    usd: float | None  # of the operation, in the time that the report covers
    usd_period_seconds: float | None
    usd_place_count: int  # of the operation, which share that cost
    days: tuple[tuple[date, int], ...]  # how often it was measured, by day
    is_expired: bool

    @property
    def gained(self) -> float:
        """Over the SDK's defaults; what places are sorted by."""
        return self.gains[0].gain.expected if self.gains else 0.0


def client_gains(
    model: PerformanceModel[Any],
    fit: Fit | None,
    advice: Recommendation[Any],
    unadvised: Mapping[str, Any],
    words: Callable[[Any], str],
) -> tuple[ClientGain, ...]:
    """Over each client's defaults, where anything is known."""
    if fit is None or advice.basis is Basis.DEFAULT:
        return ()
    found = []
    for client, setting in unadvised.items():
        legal = model.legal(advice.context, setting)
        try:
            over = gain(model, fit, advice.context, advice.demand, setting=advice.setting, reference=legal)
        except UNREADABLE:
            return ()
        found.append(ClientGain(client=client, setting=legal, setting_words=words(legal), gain=over))
    return tuple(found)


def sentence_of(
    advice: Recommendation[Any],
    *,
    setting_words: str,
    gains: Sequence[ClientGain],
    changes: Sequence[ChangeFinding],
    episodes: Sequence[Episode],
    rhythm: Rhythm | None,
    unmeasured_count: int,  # probes without a result, where none had one
    usd: float | None,
    usd_period_seconds: float | None,
    now: datetime,
) -> str:
    """The verdict; of several changes the newest that is certain, none where a rhythm explains them."""
    certain = [change for change in changes if change.is_certain]
    is_rhythmic = rhythm is not None and len(certain) >= RHYTHMIC_CHANGE_COUNT_MIN
    newest = certain[-1] if certain and not is_rhythmic else None
    return sentence(
        Verdict(
            setting_words=setting_words,
            basis=advice.basis,
            bottleneck=advice.bottleneck,
            gains={each.client: each.gain for each in gains},
            changed_at=newest.changed_at if newest else None,
            changed_fraction=newest.fraction.expected if newest and newest.fraction else None,
            notes=tuple(_notes(episodes, rhythm, unmeasured_count)),
            usd=usd,
            usd_period_seconds=usd_period_seconds,
            expired_at=advice.expires_at if advice.has_expired(now) else None,
        )
    )


def _notes(episodes: Sequence[Episode], rhythm: Rhythm | None, unmeasured_count: int) -> Iterator[str]:
    if unmeasured_count:
        yield f"none of {counted(unmeasured_count, 'probe')} had a result"
    if rhythm is not None and rhythm.fraction is not None:
        yield f"slower {rhythm.span}, {signed_percent(rhythm.fraction.expected)}"
    if episodes:
        newest = episodes[-1]
        yield f"{percent(newest.refused_fraction)} of requests refused on {day_words(newest.begins_at)}"


def days_of(moments: Iterable[tuple[float, int]]) -> tuple[tuple[date, int], ...]:
    """How often was measured on each day that anything was: of seconds since 1970, and how often then."""
    counts: Counter[date] = Counter()
    for at, count in moments:
        counts[datetime.fromtimestamp(at, UTC).date()] += count
    return tuple(sorted(counts.items()))
