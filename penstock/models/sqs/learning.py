"""Knows how the costs of a queue are learned from observations, and since which change.

An observation contains measurements of several kinds (`observed`); the spread of each kind is learned together with
the costs (`posterior`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import compress, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.models.inference import drift, posterior
from penstock.models.inference.draws import quantiles
from penstock.models.inference.posterior import Gaussian, Goal
from penstock.models.model import STATE_VERSION, SURPRISE_AFTER, Array, Fit, Periods, Suspicion, is_as_now
from penstock.models.sqs.observed import IDLE_BATCHES, UNLIMITED, Columns, ceilings, columns_of
from penstock.models.sqs.physics import (
    ACTIONS,
    Forecast,
    QueueCosts,
    client_wait_seconds,
    forecast,
    latency_quantile_seconds,
    request_seconds,
)
from penstock.vocabulary import NORMAL_90, Estimate, Observation, Origin, Place

FIT_STATE_VERSION = 4  # of the state in a fit; fits with another version are not read
_DRAW_COUNT = 48
# Two and six are no better on 24 simulated queues, and take 1.5 and 3 times as long.
_DRAW_ITERATIONS = 1
_ROUNDS = 3  # five are no better
# In each round: with three, predictions of goodput after five probes are worse; with twelve, they are no better.
_ITERATIONS = 6
_IDLE_SPREAD = 0.25  # of the logarithm of the mean of a few requests one after another
_WAITING_SCATTER = 3.0
_USUAL_COUNT = 4.0  # measurements, as which the prior of `p99_ratio` counts
_LAW_SPREAD = 0.1  # of a logarithm: the law's misfit under load, without a change
_CHANGE_WIDTH = 0.4  # of the prior's standard deviation: how far costs move when a place changes
_PACED_CALM = 0.85
_FULL_CLIENT = 0.9  # of the client's request rate

# name: (prior median, standard deviation of its logarithm)
_PRIOR = {
    "send_request_seconds": (0.010, 0.8),
    "send_message_seconds": (0.0008, 1.2),
    "receive_request_seconds": (0.010, 0.8),
    "receive_message_seconds": (0.0008, 1.2),
    "delete_request_seconds": (0.010, 0.8),
    "delete_message_seconds": (0.0008, 1.2),
    "payload_seconds_per_byte": (2e-8, 1.0),
    "contention_fraction": (0.001, 1.2),
    "coherence_fraction": (1e-5, 1.5),
    "delivery_seconds": (0.012, 0.8),
    "variation_fraction": (0.4, 0.4),
    "efficiency_fraction": (1.0, 0.02),
}
_NAMES = tuple(_PRIOR)
# Requests of one service cost about the same whatever they do: pairs, and the deviation of their difference.
_ALIKE = (
    ("send_request_seconds", "receive_request_seconds", 0.5),
    ("send_request_seconds", "delete_request_seconds", 0.5),
    ("send_message_seconds", "receive_message_seconds", 0.8),
    ("send_message_seconds", "delete_message_seconds", 0.8),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The standard deviation of the logarithm of one measurement of each kind, around its expectation."""

    seconds: float = 0.10
    idle: float = _IDLE_SPREAD
    goodput: float = 0.035
    latency: float = 0.05  # without waiting; see `latency_scale`
    latency_p99: float = 0.12
    p99_ratio: float = 1.0  # of measured 99th percentiles over those of the physics


def learn(place: Place, observations: Sequence[Observation[Any]], *, prior: Fit | None, seed: int) -> Fit:
    """The posterior of one place, from its observations of any payload size.

    If request times have changed, the posterior before the change, widened, is the prior of what came after it.
    """
    usable = sorted(
        (o for o in observations if o.duration_seconds > 0 and o.request_count > 0),
        key=lambda o: o.started_at,
    )
    belief = _belief(prior)
    learned = _learn_all(place, usable, prior, belief)
    own = [o for o in usable if o.origin is Origin.PROBE] or usable
    shifts = _shifts(learned, own) if own else None
    watched = drift.watch(*shifts) if shifts else drift.Watched()
    suspicion = _suspicion(learned, own, watched)
    changed_at: datetime | None = None
    earlier: Periods = ()
    if shifts and watched.begins:
        moments = [own[begin].started_at for begin in watched.begins]
        changed_at, spells = moments[-1], pairwise([usable[0].started_at, *moments])
        earlier = tuple(compress(spells, drift.alike(*shifts, watched.begins)))
        widened = learned.covariance + _CHANGE_WIDTH**2 * belief.covariance
        now = [o for o in usable if is_as_now(o.started_at, changed_at, earlier)]
        learned = _learn_all(place, now, prior, Gaussian(mean=learned.mode, covariance=widened))
    draws = posterior.draw(
        learned.goal, learned.belief, learned.mode, count=_DRAW_COUNT, seed=seed, iterations=_DRAW_ITERATIONS
    )
    return Fit(
        place=place,
        parameters=_parameters(draws, learned.mode, learned.caps),
        observation_count=len(learned.used),
        newest_observation_at=usable[-1].started_at if usable else None,
        residual_fraction_p50=learned.residual_fraction_p50,
        is_off_model=len(usable) >= 6 and learned.residual_fraction_p50 > 0.3,
        drift_count=len(watched.begins),
        changed_at=changed_at,
        earlier=earlier,
        suspicion=suspicion,
        state=_state(learned, draws),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Learned:
    """The posterior of the logarithms of costs, and what it was learned from."""

    belief: Gaussian
    goal: Goal
    mode: Array
    covariance: Array
    spread: Spread
    residual_fraction_p50: float
    caps: tuple[float, float]
    used: Sequence[Observation[Any]]


def _learn_all(
    place: Place, used: Sequence[Observation[Any]], prior: Fit | None, belief: Gaussian
) -> _Learned:
    """Learn mode and spreads together, by updating each given the other."""
    caps = ceilings(place, used, prior)
    evidence = columns_of(used, caps)
    law, spread, theta = _Law(evidence, belief.mean), Spread(), _start(evidence, belief.mean)[None]
    weights = np.ones(len(law.kinds))
    goal = law.goal(spread, weights, belief)
    for _ in range(_ROUNDS):
        theta = posterior.descend(goal, theta, iterations=_ITERATIONS)
        slower = law(theta)[0]
        spread, weights = law.learned(slower, weights)
        goal = law.goal(spread, weights, belief)
    goodput = slower[law.kinds == "goodput"]
    return _Learned(
        belief=belief,
        goal=goal,
        mode=theta[0],
        covariance=posterior.inverse(goal.information(theta))[0],
        spread=spread,
        residual_fraction_p50=float(np.median(np.abs(np.expm1(goodput)))) if goodput.size else 0.0,
        caps=caps,
        used=used,
    )


def _shifts(learned: _Learned, observations: Sequence[Observation[Any]]) -> tuple[Array, Array]:
    """How much longer than expected the requests of each action took, and one message over a cold connection.

    Logarithms and their standard deviations, (actions + 1, observations); deviations are inf where an observation does
    not state a time. Requests one after another tell at any setting; under load, requests also wait for the client's
    CPU, however fast the service is.
    """
    misfits = _misfits(learned.mode[None, :], columns_of(observations, learned.caps))
    count = len(observations)
    under_load = learned.spread.seconds**2 + _LAW_SPREAD**2
    shifts, deviations = [], []
    for action in ACTIONS:
        idle = misfits.idle_seconds.get(action, np.empty((1, 0))).reshape(-1, count)
        slopes = np.vstack([misfits.own_share[action], np.ones_like(idle)])
        weights = slopes / np.array([under_load] + [_IDLE_SPREAD**2] * len(idle))[:, None]
        values = np.vstack([misfits.seconds[action], idle])
        weights = np.where(np.isfinite(values), weights, 0.0)
        precision = np.maximum((weights * slopes).sum(axis=0), _PRECISION_MIN)
        shifts.append((weights * np.nan_to_num(values, nan=0.0)).sum(axis=0) / precision)
        deviations.append(np.where(precision > _PRECISION_MIN, precision**-0.5, np.inf))
    cold = np.array([o.measures.get("cold_delivery_seconds", 0.0) for o in observations])
    shifts.append(np.log(np.where(cold > 0, cold, 1.0)))
    deviations.append(np.where(cold > 0, _IDLE_SPREAD, np.inf))
    return np.array(shifts), np.array(deviations)


_PRECISION_MIN = 1e-2  # of a logarithm: the precision without a measurement


def _suspicion(
    learned: _Learned, observations: Sequence[Observation[Any]], watched: drift.Watched
) -> Suspicion:
    """The suspicion of a change at the newest observation; none while there are few, or just after a change."""
    if len(observations) - (watched.begins or (0,))[-1] <= SURPRISE_AFTER:
        return Suspicion()
    misfits = _misfits(learned.mode[None, :], columns_of(observations[-1:], learned.caps))
    more = float(np.nan_to_num(misfits.goodput, nan=0.0)[0, 0])
    return Suspicion(
        level=watched.level,
        surprise=-watched.surprise,
        value_ratio=math.exp(more),
        subject=_WATCHED[watched.quantity],
        subject_ratio=math.exp(watched.away),
    )


# What the rows of `_shifts` are times of.
_WATCHED = (*(f"{action} requests" for action in ACTIONS), "messages over a cold connection")


def _state(learned: _Learned, draws: Array) -> dict[str, Any]:
    """All that predictions need, as plain data."""
    state: dict[str, Any] = {
        STATE_VERSION: FIT_STATE_VERSION,
        "mode": learned.mode.tolist(),
        "width": np.sqrt(np.diag(learned.covariance)).tolist(),
        "draws": np.round(draws, 5).tolist(),
        "spread": asdict(learned.spread),
        "request_rate_max_per_second": learned.caps[0],
        "client_request_rate_max_per_second": learned.caps[1],
    }
    if learned.used:
        state["sender_count_tried"] = max(o.setting.sender_thread_count for o in learned.used)
    cold = [seconds for o in learned.used if (seconds := o.measures.get("cold_delivery_seconds"))]
    if cold:
        state["cold_delivery_seconds"] = float(np.median(cold))
    timeouts = [t for o in learned.used if (t := o.measures.get("visibility_timeout_seconds"))]
    if timeouts:
        state["visibility_timeout_seconds"] = float(timeouts[-1])
    return state


def mean_costs(fit: Fit) -> QueueCosts:
    """The costs at the posterior's mode, one row."""
    return _costs(np.array([fit.state["mode"]]), _caps(fit))


def drawn_costs(fit: Fit) -> QueueCosts:
    """The costs of every draw, one row each."""
    return _costs(np.array(fit.state["draws"]), _caps(fit))


def spread(fit: Fit) -> Spread:
    """The spread of single measurements in this place."""
    return Spread(**fit.state["spread"])


def goodput_scale(paced_fraction: Array) -> Array:
    """The factor on the spread of goodput that a rate limit holds (calibrated: 1 without, to 0.15)."""
    return 1.0 - _PACED_CALM * paced_fraction


def latency_scale(waiting_fraction: Array) -> Array:
    """The factor on the spread of latency that consists of waiting (calibrated: 1 without, to 4)."""
    return 1.0 + _WAITING_SCATTER * waiting_fraction


def sender_count_tried(fit: Fit) -> int:
    """The most senders that were tried here."""
    return int(fit.state.get("sender_count_tried", 1))


def middles(drawn: Array) -> Array:
    """The expected value of each column, as in `estimate`: draws (draws, settings) give (settings,)."""
    return np.asarray(np.exp(np.log(np.maximum(drawn, 1e-12)).mean(axis=0)), dtype=np.float64)


def estimate(drawn: Array, scatter: float, fit: Fit) -> Estimate:
    """The 90 % interval of one future measurement: the variance of the draws plus that of measurements."""
    logs = np.log(np.maximum(drawn, 1e-12))
    centre = float(logs.mean())
    deviation = math.sqrt(float(logs.var()) + scatter**2)
    width = NORMAL_90 * posterior.widened(fit.observation_count) * deviation
    return Estimate(math.exp(centre - width), math.exp(centre), math.exp(centre + width))


def discrepancies(fit: Fit, observations: Sequence[Observation[Any]]) -> tuple[Array, Array]:
    """Logarithms of measured over expected, (observations, 4), and the standard deviation of each.

    Columns: goodput, and the seconds of a send, a receive and a delete; NaN where an observation does not state one.
    """
    evidence, scatter = columns_of(observations, _caps(fit)), spread(fit)
    misfits = _misfits(np.array(fit.state["draws"]), evidence)
    draws = np.stack([misfits.goodput, *(misfits.seconds[action] for action in ACTIONS)], axis=2)
    own = np.array([scatter.goodput, scatter.seconds, scatter.seconds, scatter.seconds])
    return draws.mean(axis=0), np.sqrt(draws.var(axis=0) + own**2)


def _belief(fit: Fit | None) -> Gaussian:
    """The prior: from tables, or a neighbour's posterior, widened because another place is only similar."""
    centre = np.log([median for median, _ in _PRIOR.values()])
    width = np.array([deviation for _, deviation in _PRIOR.values()])
    if fit is not None and "mode" in fit.state:
        neighbour = np.array(fit.state["width"])
        centre = np.array(fit.state["mode"])
        width = np.minimum(width, np.sqrt(neighbour**2 + (0.4 * width) ** 2))
    one, other = ([_NAMES.index(pair[side]) for pair in _ALIKE] for side in (0, 1))
    apart = (np.eye(len(_NAMES))[one] - np.eye(len(_NAMES))[other]) / np.array([[d] for _, _, d in _ALIKE])
    covariance = posterior.inverse(np.diag(width**-2.0) + apart.T @ apart)
    return Gaussian(mean=covariance @ (centre / width**2), covariance=covariance)


def _caps(fit: Fit) -> tuple[float, float]:
    return fit.state["request_rate_max_per_second"], fit.state["client_request_rate_max_per_second"]


def _costs(rows: Array, caps: tuple[float, float]) -> QueueCosts:
    columns = {name: np.exp(rows[:, index : index + 1]) for index, name in enumerate(_NAMES)}
    # No more arrives than is sent, however much a short probe counts.
    columns["efficiency_fraction"] = np.minimum(columns["efficiency_fraction"], 1.0)
    return QueueCosts(
        **columns,
        request_rate_max_per_second=np.full((len(rows), 1), caps[0]),
        client_request_rate_max_per_second=np.full((len(rows), 1), caps[1]),
    )


def _start(evidence: Columns, centre: Array) -> Array:
    """Where the search begins: assuming that messages with the shortest latency did not wait.

    Otherwise the search might take all of a latency for waiting.
    """
    on_the_way = evidence.latency_seconds - evidence.seconds["send"] / 2.0
    known = on_the_way[np.isfinite(on_the_way) & (on_the_way > 0)]
    start = centre.copy()
    if known.size:
        start[_NAMES.index("delivery_seconds")] = math.log(known.min())
    return start


_KINDS = ("seconds", "idle", "goodput", "latency", "latency_p99")
_ABSURD = 5.0  # of a logarithm; a report that is farther off has no more effect


class _Law:
    """The logarithm of how much slower than expected each measurement is, for `posterior`; and the kind of each.

    Missing measurements are left out. Disturbances make a queue slower, which counts as dips.
    """

    def __init__(self, evidence: Columns, centre: Array) -> None:
        slower = _slower(centre[None], evidence)
        self._evidence, self._known = evidence, np.isfinite(np.hstack(slower)[0])
        self.kinds = np.repeat(_KINDS, [each.shape[1] for each in slower])[self._known]
        self._is_tail = self.kinds == "latency_p99"

    def __call__(self, thetas: Array) -> Array:
        slower = np.hstack(_slower(thetas, self._evidence))[:, self._known]
        return np.asarray(np.clip(slower, -_ABSURD, _ABSURD))

    def goal(self, spread: Spread, weights: Array, belief: Gaussian) -> Goal:
        """The problem of finding costs that explain the measurements; the latency tail may exceed the physics'."""
        whiten = np.sqrt(weights) / self._deviations(spread)
        return posterior.goal(self, self._is_tail * math.log(spread.p99_ratio), whiten[None], belief)

    def learned(self, slower: Array, weights: Array) -> tuple[Spread, Array]:
        """The spread of each kind, shrunk towards the usual, and the probability that each measurement is no dip."""
        tails, usual = slower[self._is_tail], Spread()
        tail = float(np.median(tails)) * len(tails) / (len(tails) + _USUAL_COUNT) if tails.size else 0.0
        away, scatter = self._is_tail * tail - slower, dict[str, float]()
        for kind in _KINDS:
            some = self.kinds == kind
            scatter[kind] = float(posterior.deviation(away[some], weights[some], getattr(usual, kind)))
        spread = Spread(**scatter, p99_ratio=math.exp(tail))
        return spread, posterior.no_dip(away, self._deviations(spread))

    def _deviations(self, spread: Spread) -> Array:
        return np.array([getattr(spread, kind) for kind in self.kinds])


def _slower(thetas: Array, evidence: Columns) -> list[Array]:
    """Logarithms of measured over expected times: an array (thetas, measurements) for each kind."""
    misfits, none = _misfits(thetas, evidence), np.empty((len(thetas), 0))
    seconds = [np.hstack([none, *each.values()]) for each in (misfits.seconds, misfits.idle_seconds)]
    return [*seconds, -misfits.goodput, misfits.latency, misfits.latency_p99]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Misfits:
    """Logarithms of measured over expected, (thetas, observations).

    Goodput and latencies are divided by their scale (`goodput_scale`, `latency_scale`).
    """

    seconds: dict[str, Array]
    # The share of these seconds that is not waiting for the client's CPU; 0 if the CPU is full.
    own_share: dict[str, Array]
    idle_seconds: dict[str, Array]  # (thetas, batches of all observations)
    goodput: Array
    latency: Array
    latency_p99: Array


def _misfits(thetas: Array, evidence: Columns) -> _Misfits:
    costs = _costs(thetas, evidence.caps)
    drive = evidence.drive
    outcome = forecast(costs, drive)
    is_full = evidence.request_rate >= _FULL_CLIENT * costs.client_request_rate_max_per_second
    client_wait = _client_wait(costs, evidence, outcome, is_full)
    seconds, own_share = {}, {}
    for action, observed in evidence.seconds.items():
        undisturbed = request_seconds(
            costs, action, evidence.filled[action], drive.payload_size_bytes, drive.thread_count
        )
        expected = undisturbed + client_wait
        if action == "receive":
            expected = np.where(evidence.has_idle_receives, _with_idle_wait(expected, evidence), expected)
        seconds[action] = np.log(observed / expected)
        own_share[action] = np.where(is_full, 0.0, undisturbed / expected)
    batches = np.repeat(np.array(IDLE_BATCHES, dtype=float), len(evidence.goodput))
    sizes = np.tile(np.asarray(drive.payload_size_bytes), len(IDLE_BATCHES))
    alone = np.ones_like(batches)
    idle_seconds = {
        action: np.log(observed / request_seconds(costs, action, batches, sizes, alone))
        for action, observed in evidence.idle_seconds.items()
    }
    goodput = np.log(evidence.goodput / outcome.goodput)
    latency = np.log(evidence.latency_seconds / outcome.latency_seconds)
    p99_seconds = latency_quantile_seconds(outcome.moments, 0.99)
    waiting = latency_scale(outcome.waiting_fraction)
    return _Misfits(
        seconds=seconds,
        own_share=own_share,
        idle_seconds=idle_seconds,
        goodput=goodput / goodput_scale(outcome.paced_fraction),
        latency=latency / waiting,
        latency_p99=np.log(evidence.latency_seconds_p99 / p99_seconds) / waiting,
    )


def _client_wait(
    costs: QueueCosts, evidence: Columns, outcome: Forecast, is_full: NDArray[np.bool_]
) -> Array:
    """The wait for the client's CPU at the measured request rate; if that fills the CPU, as in the forecast."""
    measured = client_wait_seconds(costs, evidence.request_rate, evidence.drive.thread_count)
    return np.where(is_full, outcome.client_wait_seconds, measured)


def _with_idle_wait(expected: Array, evidence: Columns) -> Array:
    """Expected seconds of receives, including long polls: receivers with little to do measure the wait, not the cost.

    n receivers that fetch `filled` messages per request at this rate spend n * filled / rate seconds on each request;
    the larger of this and the cost is measured (here an 8-norm, which is smooth).
    """
    paced = evidence.drive.receiver_count * evidence.filled["receive"] / evidence.received_rate
    paced = np.nan_to_num(paced, nan=0.0)
    return np.asarray((expected**8 + paced**8) ** 0.125)


def _parameters(draws: Array, mode: Array, caps: tuple[float, float]) -> dict[str, Estimate]:
    low, high = quantiles(draws, [0.05, 0.95])
    # All by NumPy: another exponential may put the middle a rounding above the high end.
    low, middle, high = np.exp([np.minimum(low, mode), mode, np.maximum(high, mode)])
    parameters = {
        name: Estimate(float(low[i]), float(middle[i]), float(high[i])) for i, name in enumerate(_NAMES)
    }
    if caps[0] < UNLIMITED:
        parameters["request_rate_max_per_second"] = Estimate(0.9 * caps[0], caps[0], 1.1 * caps[0])
    parameters["client_request_rate_max_per_second"] = Estimate(0.8 * caps[1], caps[1], 1.2 * caps[1])
    return parameters
