"""Knows how to choose what to advise: the fewest threads and least memory that are within reach of the best.

What is advised is held against what the SDK does by itself, by the draws of the posterior that both share. Advice is
never expected to fall further behind that than the demand's aim allows of the best; where it gains no more than that
and takes as many connections, the SDK's own setting is advised.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np

from penstock.models.model import Appraisal, Cell, Fit, HasWork, PerformanceModel, is_current
from penstock.optimizer import evidence, objective
from penstock.optimizer.comparison import comparison_words, gain, sdks_own
from penstock.units import counted, is_rate, quantity, rounded
from penstock.vocabulary import (
    Basis,
    Context,
    Demand,
    Estimate,
    Objective,
    Place,
    Prediction,
    Recommendation,
    knobs,
    setting_values,
)

UNDARED = "are not advised before probes have tried more"
_KEEP_WITHIN = 0.01  # of the best, beyond what is tolerated anyway: advice that stands is kept
_UNMEASURED_OVER_DEFAULT = 4  # times the SDK's own threads, as long as nothing was measured in a place


def recommend(
    model: PerformanceModel[Any],
    fit: Fit | None,
    context: Context,
    demand: Demand,
    *,
    previous: Recommendation[Any] | None,
    now: datetime,
    validity_seconds: float,
    within: Demand | None = None,
) -> Recommendation[Any]:
    """The advice for this context and demand, from the fit; without a fit that can be read, what the SDK would do.

    `previous` is the advice that stands: it is kept while it is as good as the new one (hysteresis). `within` is the
    demand as the operator's limits narrow it; the advice keeps them and answers what was asked. Runs in the daemon's
    own process for every new question on the socket: milliseconds, NumPy only.
    """
    expires_at, narrowed = now + timedelta(seconds=validity_seconds), within or demand
    if fit is None or not is_current(fit, model):
        found = _default(model, context, narrowed, now, expires_at)
    else:
        candidates = list(model.candidates(fit, context, narrowed))
        near = within_reach(model, fit, context, narrowed, candidates)
        standing = _standing(previous, context, demand)
        setting = _choose(model, fit, context, narrowed, candidates, near=near, standing=standing)
        is_frugal = demand.objective is Objective.FRUGAL
        found = _advice(
            model,
            fit,
            context,
            narrowed,
            setting,
            aim=_aim(demand),
            why_less="that is what the aim allows" if is_frugal else "the limits that are set allow no more",
            remarks=tuple(_undared_words(candidates, near, setting)),
            now=now,
            expires_at=expires_at,
        )
    return replace(found, demand=demand)


def alternatives(
    model: PerformanceModel[Any], fit: Fit, context: Context, demand: Demand, *, advised: Any, count_max: int
) -> tuple[list[Any], Appraisal]:
    """The advised setting, and after it what it was chosen from: what is good enough by its rank, then by its use.

    They are judged for the same demand, and within the same reach of what was measured, as the advice is.
    """
    others = within_reach(model, fit, context, demand, list(model.candidates(fit, context, demand)))
    settings = [advised, *(setting for setting in others if setting != advised)]
    appraisal = model.appraise(fit, context, settings, demand)
    useful = objective.utility(appraisal, demand.objective)
    ranks = objective.rank(appraisal, demand.objective)
    order = np.lexsort((-useful[1:], ranks[1:]))[: count_max - 1] + 1
    chosen = [0, *(int(i) for i in order)]
    columns = {field.name: getattr(appraisal, field.name)[chosen] for field in fields(appraisal)}
    return [settings[i] for i in chosen], Appraisal(**columns)


def assess(
    model: PerformanceModel[Any],
    fit: Fit | None,
    context: Context,
    demand: Demand,
    setting: Any,  # of the model's own type
    *,
    now: datetime,
    validity_seconds: float,
) -> Recommendation[Any]:
    """What a setting that was chosen elsewhere will do, as a recommendation.

    Without a fit that can be read there is nothing to expect of it.
    """
    expires_at = now + timedelta(seconds=validity_seconds)
    if fit is None or not is_current(fit, model):
        return replace(_default(model, context, demand, now, expires_at), setting=setting)
    return _advice(model, fit, context, demand, setting, aim="given setting", now=now, expires_at=expires_at)


def _advice(
    model: PerformanceModel[Any],
    fit: Fit,
    context: Context,
    demand: Demand,
    setting: Any,
    *,
    aim: str,
    why_less: str = "",
    remarks: tuple[str, ...] = (),
    now: datetime,
    expires_at: datetime,
) -> Recommendation[Any]:
    prediction = predict(model, fit, context, setting, demand)
    over_default = gain(
        model, fit, context, demand, setting=setting, reference=model.default_setting(context)
    )
    basis = _basis(fit, context, setting)
    limiting = model.bottleneck(fit, context, setting, demand)
    is_told = not fit.is_from_reports or _tells_of_fewer(evidence.thread_counts(model, fit.cells))
    if limiting in _TOLD_BY_THREADS and not is_told:
        limiting = "unsure"
    limit = _limit(model, prediction, demand, limiting)
    if limiting == "demand" and _falls_short(model, prediction, demand):
        limiting = "unsure" if fit.observation_count else "unknown"
    expected = _explain(model.value_metric, prediction, aim, basis, limit)
    remarks = (*_suspicion_words(fit), *model.remarks(fit, context, setting, demand), *remarks)
    compared = comparison_words(
        model, fit, context, demand, setting=setting, over_default=over_default, why_less=why_less
    )
    return Recommendation(
        context=context,
        setting=setting,
        derived={name: rounded(value) for name, value in model.derive(fit, context, setting, demand).items()},
        prediction=prediction,
        demand=demand,
        basis=basis,
        bottleneck=limiting,
        explanation=" ".join((expected, *remarks, compared)),
        observation_count=fit.observation_count,
        newest_observation_at=fit.newest_observation_at,
        issued_at=now,
        expires_at=expires_at,
        gain_over_default=over_default,
    )


def predict(
    model: PerformanceModel[Any], fit: Fit, context: Context, setting: Any, demand: Demand
) -> Prediction:
    """What the model expects; while a change is suspected each interval reaches as far as the newest surprise did."""
    prediction, suspicion = model.predict(fit, context, setting, demand), fit.suspicion
    if not suspicion.is_raised:
        return prediction
    return {
        metric: _reaching(estimate, suspicion.value_ratio if is_rate(metric) else suspicion.seconds_ratio)
        for metric, estimate in prediction.items()
    }


def _reaching(estimate: Estimate, ratio: float) -> Estimate:
    """The interval, wide enough to hold so many times what is expected."""
    moved = ratio * estimate.expected
    return Estimate(min(estimate.low, moved), estimate.expected, max(estimate.high, moved))


def _suspicion_words(fit: Fit) -> Iterator[str]:
    suspicion = fit.suspicion
    if not suspicion.is_raised:
        return
    if suspicion.subject:
        share = f"{100 * suspicion.subject_ratio:.0f} % of the time that was expected"
        found = f"In the newest measurement {suspicion.subject} took {share}"
    else:
        found = (
            f"The newest measurement reached {100 * suspicion.value_ratio:.0f} % of what was expected of it"
        )
    before = "" if suspicion.is_surprised else "Several measurements in a row lie to one side. "
    yield f"Changed? {before}{found}; this advice waits for the next."


def _default(
    model: PerformanceModel[Any], context: Context, demand: Demand, now: datetime, expires_at: datetime
) -> Recommendation[Any]:
    setting = _default_setting(model, context, demand)
    is_sdks = setting == model.default_setting(context)
    origin = "what the SDK does by itself" if is_sdks else "as near to what the SDK does as the limits allow"
    return Recommendation(
        context=context,
        setting=setting,
        derived={},
        prediction={},
        demand=demand,
        basis=Basis.DEFAULT,
        bottleneck="unknown",
        explanation=f"Nothing is known about this place yet: this is {origin}.",
        observation_count=0,
        newest_observation_at=None,
        issued_at=now,
        expires_at=expires_at,
    )


def _default_setting(model: PerformanceModel[Any], context: Context, demand: Demand) -> Any:
    """What the SDK does, or the most of it that the demand's limits allow."""
    setting = model.default_setting(context)
    if demand.thread_count_max is None and demand.memory_bytes_max is None:
        return setting
    return _default_within(model, context, demand)  # type: ignore[arg-type]  # as in `from_tables`


# Until something is measured, all advice that stands is worked out with every snapshot.
@lru_cache(maxsize=64)
def _default_within(model: PerformanceModel[Any], context: Context, demand: Demand) -> Any:
    setting, table = model.default_setting(context), from_tables(model, context.place)
    appraisal = model.appraise(table, context, [setting], demand)
    if objective.is_within([setting], appraisal, demand)[0]:
        return setting
    settings = list(model.candidates(table, context, demand))
    points = objective.coordinates(model.setting_type, [setting, *settings])
    return settings[int(np.argmin(np.abs(points[1:] - points[0]).sum(axis=1)))]


def from_tables(model: PerformanceModel[Any], place: Place) -> Fit:
    """What is known of a place where nothing was seen; asked for with every question about it, and always the same."""
    return _from_tables(model, place)  # type: ignore[arg-type]  # models are values, or the only one of their kind


@lru_cache(maxsize=64)
def _from_tables(model: PerformanceModel[Any], place: Place) -> Fit:
    return model.fit(place, (), prior=None, seed=0)


def _choose(
    model: PerformanceModel[Any],
    fit: Fit,
    context: Context,
    demand: Demand,
    candidates: list[Any],  # settings of the model's own type; as is what is returned
    *,
    near: list[Any],  # of these, within reach
    standing: Any,  # another, or None
) -> Any:
    own = sdks_own(model, fit, context, demand)
    may_stand = standing is not None and _may_stand(model, fit, context, demand, [standing, *candidates])
    since = _since_change(fit, context)
    if may_stand and since is not None and sum(cell.count for cell in since) < _STEADY_SINCE_CHANGE:
        near = _a_step_from(standing, near) or near
    others = [own] * (own in candidates) + [standing] * may_stand
    settings = list(dict.fromkeys([*near, *others]))  # what the SDK does by itself needs no daring
    appraisal = model.appraise(fit, context, settings, demand)
    share, least = objective.required_share(demand.objective), 0.0
    if own in settings:
        least = share * float(objective.utility(appraisal, demand.objective)[settings.index(own)])
    chosen = [objective.choose(appraisal, demand.objective, least=least)]
    if may_stand and (fit.suspicion.is_surprised or _is_new_since_change(model, since)):
        return standing  # the next measurement, which comes soon, tells more
    if may_stand and _is_as_good(appraisal, demand, settings.index(standing), chosen[0]):
        chosen.insert(0, settings.index(standing))
    if own is None:
        return settings[chosen[0]]
    for index in chosen:
        gained = gain(model, fit, context, demand, setting=settings[index], reference=own).expected
        if gained >= share:
            is_alike = gained * share < 1.0 and own in settings
            is_needless = is_alike and _is_as_thrifty(appraisal, demand, settings.index(own), index)
            return own if is_needless else settings[index]
    return own


def _undared_words(candidates: list[Any], near: list[Any], setting: Any) -> Iterator[str]:
    """Why twice as many would bring more and are not advised, where the most that is dared was chosen."""
    advised, dared, most = (
        objective.thread_counts(some).max(initial=0.0) for some in ([setting], near, candidates)
    )
    if dared <= advised < most:
        yield f"More than {counted(round(advised), 'thread')} {UNDARED}."


_SINCE_CHANGE_MIN = 3  # measurements
_STEADY_SINCE_CHANGE = 6  # measurements: up to here each of them moves the advice by a step at the most
_TELLING_RATIO = 1.4  # of threads: what differs by so much tells a slower connection from a lower ceiling


def _since_change(fit: Fit, context: Context) -> list[Cell] | None:
    """What was measured since the place became a new one; None where it did not, or where nothing was measured."""
    if fit.changed_at is None or fit.earlier or fit.is_from_reports:
        return None
    return [c for c in fit.cells if evidence.is_current(c, fit) and evidence.is_about(c, context)]


def _is_new_since_change(model: PerformanceModel[Any], since: list[Cell] | None) -> bool:
    """Whether little was measured since the place changed, or all of it with about as many threads."""
    if since is None:
        return False
    threads = evidence.thread_counts(model, since)
    is_little = 0 < sum(cell.count for cell in since) < _SINCE_CHANGE_MIN
    return is_little or (len(threads) > 0 and not _tells_of_fewer(threads))


def _a_step_from(standing: Any, settings: list[Any]) -> list[Any]:
    """Those with at most twice its threads, and at least half of them."""
    old, counts = (objective.thread_counts(some) for some in ([standing], settings))
    low, high = old[0] / _STEP_RATIO_MAX, old[0] * _STEP_RATIO_MAX
    return [x for x, n in zip(settings, counts, strict=True) if low <= n <= high]


def _is_as_thrifty(appraisal: Appraisal, demand: Demand, own: int, chosen: int) -> bool:
    """Whether the SDK's own setting is good enough as well, and takes no more connections than what was chosen.

    Who is frugal is told what takes the least of everything.
    """
    is_good = objective.rank(appraisal, demand.objective)[own] < np.inf
    few = appraisal.connection_count[own] <= appraisal.connection_count[chosen]
    return bool(is_good and few and demand.objective is not Objective.FRUGAL)


def _may_stand(
    model: PerformanceModel[Any], fit: Fit, context: Context, demand: Demand, settings: list[Any]
) -> bool:
    """Whether old advice, the first setting, keeps the limits and is as near to what was measured as new has to be."""
    old = settings[:1]
    if not objective.is_within(old, model.appraise(fit, context, old, demand), demand)[0]:
        return False
    return old[0] in within_reach(model, fit, context, demand, settings)


_REACH_OCTAVES = 1.0
_STEP_RATIO_MAX = 2.0  # threads that are advised over the most that went well, while little was measured
_REACH_OCTAVES_OFF_MODEL = 0.3
_TRUST_CELL_COUNT = 5  # settings measured at a size: from here on advice stays near what was measured


def within_reach(
    model: PerformanceModel[Any], fit: Fit, context: Context, demand: Demand, settings: list[Any]
) -> list[Any]:
    """The settings near a measured one, once enough were measured: beyond, the physics would speak alone.

    Where the physics is known to be wrong, near means almost there. Where nothing was measured but reported, near is
    near what would be advised without the reports, or near what several users reported alike. Where nothing that would
    serve is near, as for ranges that are smaller than any that was measured, threads alone are held. Threads that the
    application's own work holds dare nothing.
    """
    if fit.is_from_reports:
        return _near_unreported(model, fit, context, demand, settings)
    if not isinstance(model, HasWork):
        return _near_measured(model, fit, context, settings)
    shown = model.without_work(fit, context, settings, demand)
    near = set(_near_measured(model, fit, context, list(shown)))
    return [setting for setting, asking in zip(settings, shown, strict=True) if asking in near]


def _near_measured(
    model: PerformanceModel[Any], fit: Fit, context: Context, settings: list[Any]
) -> list[Any]:
    known = [cell.setting for cell in fit.cells if evidence.is_about(cell, context)]
    if len(known) < _TRUST_CELL_COUNT:
        return _dared(model, fit, context, settings)
    reach = _REACH_OCTAVES_OFF_MODEL if fit.is_off_model else _REACH_OCTAVES
    tried = [model.setting_type(**values) for values in known]
    return _near(model, settings, tried, reach, in_limits=False) or _dared(model, fit, context, settings)


def _near(
    model: PerformanceModel[Any],
    settings: list[Any],
    known: list[Any],
    reach: float,
    *,
    in_limits: bool = True,
) -> list[Any]:
    """Those that differ from any of the known ones by no more than so many octaves, in every knob.

    Or in every one but the limits, which may be 0 for none: they follow from the others, and dare nothing.
    """
    if not settings:
        return []
    counts = np.array([in_limits or knob.low > 0 for knob in knobs(model.setting_type).values()])
    here, there = (objective.coordinates(model.setting_type, some)[:, counts] for some in (settings, known))
    distance = np.abs(here[:, None, :] - there[None, :, :]).max(axis=2).min(axis=1)
    return [setting for setting, octaves in zip(settings, distance, strict=True) if octaves <= reach]


def _near_unreported(
    model: PerformanceModel[Any], fit: Fit, context: Context, demand: Demand, settings: list[Any]
) -> list[Any]:
    """Near what would be advised without reports, or near what at least two users reported alike; never empty.

    No more threads than that are dared where nobody came near them. Where all reports are of as many, so many more are
    advised that it tells what they did not, and no fewer.
    """
    before = fit.unreported or from_tables(model, context.place)
    calm = unmeasured(model, before, context, demand)
    candidates = list(model.candidates(before, context, calm))
    near_before = within_reach(model, before, context, calm, candidates)
    anchor = _choose(model, before, context, calm, candidates, near=near_before, standing=None)
    alike = [cell for cell in fit.corroborated_cells if evidence.is_about(cell, context)]
    known = [anchor, *(model.setting_type(**cell.setting) for cell in alike if not cell.had_trouble)]
    near = _near(model, [s for s in settings if _has_same_limits(s, anchor)], known, _REACH_OCTAVES)
    used = evidence.thread_counts(model, fit.cells)
    before_used, threads = (objective.thread_counts(some) for some in (known, near))
    most = max(evidence.STEP_RATIO_MAX * used.max(initial=0.0), before_used.max())
    least = 0.0 if _tells_of_fewer(used) else _TELLING_RATIO * used.max(initial=0.0)
    return [s for s, count in zip(near, threads, strict=True) if least <= count <= most] or [anchor]


def _tells_of_fewer(threads: objective.Array) -> bool:
    """Whether such different numbers of threads were measured that a slower connection is told from a lower ceiling.

    What is slower with so many may be each connection or all of them together: more would help, or fewer do as well.
    """
    return bool(len(threads) and threads.max() >= _TELLING_RATIO * threads.min())


def _has_same_limits(setting: Any, anchor: Any) -> bool:
    """Whether 0, which is no limit, is 0 in both: from none to the smallest there is would be but an octave."""
    pairs = zip(setting_values(setting).values(), setting_values(anchor).values(), strict=True)
    return all((one == 0) == (other == 0) for one, other in pairs)


def unmeasured(model: PerformanceModel[Any], fit: Fit, context: Context, demand: Demand) -> Demand:
    """The demand with no more threads than are near the SDK's default, where nothing was measured."""
    if fit.observation_count > 0:
        return demand
    most = _most_unmeasured(model, context)
    return replace(demand, thread_count_max=min(demand.thread_count_max or most, most))


def _most_unmeasured(model: PerformanceModel[Any], context: Context) -> int:
    sdks = objective.thread_counts([model.default_setting(context)])[0]
    return _UNMEASURED_OVER_DEFAULT * int(sdks)


def _dared(model: PerformanceModel[Any], fit: Fit, context: Context, settings: list[Any]) -> list[Any]:
    """Where little was measured, no more than twice the threads that went well: whether more are borne is not known.

    Or what other hosts of the place bore, as far as is dared where nothing was measured, until it goes badly here.

    Or fewer than the least with which requests were refused or failed: between the two both ends were measured.
    The next probe dares more. Where all was measured below a ceiling, as with objects of few parts, nothing else keeps
    the advice from what the physics alone promises.
    """
    quiet = [cell for cell in fit.cells if not cell.had_trouble] or fit.cells
    if not quiet:
        return settings
    borne = evidence.thread_counts(model, quiet).max()
    troubled = evidence.thread_counts(model, [cell for cell in fit.cells if cell.had_trouble])
    more = troubled[troubled > borne]
    below = more.min() if len(more) else 0.0
    threads = objective.thread_counts(settings)
    told = min(fit.told_thread_count, _most_unmeasured(model, context)) if not len(troubled) else 0.0
    least = threads.min(initial=np.inf)  # where all that would serve take more than is dared
    is_dared = (threads <= max(_STEP_RATIO_MAX * borne, told, least)) | (threads < below)
    return [setting for setting, is_one in zip(settings, is_dared, strict=True) if is_one]


def _standing(previous: Recommendation[Any] | None, context: Context, demand: Demand) -> Any:
    """The setting of advice that answers the same question and rests on something."""
    if previous is None or previous.basis is Basis.DEFAULT:
        return None
    return previous.setting if (previous.context, previous.demand) == (context, demand) else None


def _is_as_good(appraisal: Appraisal, demand: Demand, standing: int, best: int) -> bool:
    ranks = objective.rank(appraisal, demand.objective, slack=_KEEP_WITHIN)
    return bool(ranks[standing] <= ranks[best] + objective.kept_within(demand.objective))


def _basis(fit: Fit, context: Context, setting: Any) -> Basis:
    if fit.observation_count == 0:
        return Basis.PRIOR
    if fit.is_from_reports:
        return Basis.REPORTED
    values = {name: float(value) for name, value in setting_values(setting).items()}
    current = [c for c in fit.cells if evidence.is_current(c, fit) and evidence.is_about(c, context)]
    measured = any(_is_near(cell.setting, values) for cell in current)
    return Basis.MEASURED if measured else Basis.MODEL


def _is_near(measured: Any, advised: Any) -> bool:
    """Within a tenth, knob by knob: closer than any measurement can tell apart."""
    pairs = [(measured[name], value) for name, value in advised.items()]
    return all(abs(a - b) <= 0.1 * max(abs(a), abs(b)) for a, b in pairs)


_LIMITS = {
    "connections": "what one connection carries is the limit",
    "host-ceiling": "a ceiling on the path is reached: the host's network, the way, or the service",
    "request-rate": "the service's request rate is reached",
    "client-cpu": "the client's CPU is the limit",
    "message-groups": "each message group has one receiver at a time, and there are few",
    "work": "the consumer's own work on its messages is the limit",
    "memory": "memory is the limit",
    "disk": "the disk takes no more",
    "demand": "this carries what was asked for",
    "unsure": "what limits it cannot be told from what was measured",
}

_TOLD_BY_THREADS = frozenset({"connections", "host-ceiling"})  # by different numbers of them

_DEMAND_SHARE = 0.98  # of a rate that was asked for: what comes so near carries it


def _limit(model: PerformanceModel[Any], prediction: Prediction, demand: Demand, bottleneck: str) -> str:
    """What is in the way; of a demand, whether it is met by what is expected."""
    limit = _LIMITS.get(bottleneck, "what limits it is not known yet")
    expected, asked = prediction.get(model.value_metric), demand.message_rate_per_second
    if expected is None or asked is None or expected.expected >= asked:
        return limit
    if _falls_short(model, prediction, demand):
        short = f"this falls short of the {quantity(model.value_metric, asked)} that were asked for"
        return short if bottleneck == "demand" else f"{limit}, and {short}"
    return "this carries what was asked for to within 2 %" if bottleneck == "demand" else limit


def _falls_short(model: PerformanceModel[Any], prediction: Prediction, demand: Demand) -> bool:
    """Whether clearly less is expected than the rate that was asked for."""
    expected, asked = prediction.get(model.value_metric), demand.message_rate_per_second
    return expected is not None and asked is not None and expected.expected < _DEMAND_SHARE * asked


def _explain(metric: str, prediction: Prediction, aim: str, basis: Basis, limit: str) -> str:
    expected = prediction.get(metric)
    reached = f"Expects {_range(metric, expected)}" if expected is not None else "Follows the model"
    rest = {
        Basis.PRIOR: "from tables and neighbours, nothing was measured here",
        Basis.REPORTED: "reported by applications, not measured here",
        Basis.MODEL: "from what was measured at other settings here",
        Basis.MEASURED: "measured at this setting or within a tenth of it",
        Basis.DEFAULT: "by default",
    }[basis]
    return f"{reached} with the {aim}, {rest}; {limit}."


def _aim(demand: Demand) -> str:
    return {
        "throughput": "connections that are worth what they bring",
        "peak": "connections that reach the best",
        "latency": "shortest time for one",
        "frugal": "least memory, connections and requests that reach 80 % of the best",
    }[demand.objective.value]


def _range(metric: str, estimate: Estimate) -> str:
    low, expected, high = (quantity(metric, v) for v in (estimate.low, estimate.expected, estimate.high))
    return f"{expected} (90 %: {low} to {high})"
