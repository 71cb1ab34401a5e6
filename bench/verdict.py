"""Knows the targets of S3 transfers, computes each from the rows, and prints pass or miss beside the figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.figures import Figure, at_most, mean, median, quantile
from bench.surfaces import Group, Split

GOOD = 0.05  # regret that counts as good
DRIFT_AT = 20  # probes before the place changes
HOLDS = 3  # recommendations in a row that must be good before a recovery counts
OWN, RIVAL = "penstock", "skopt-gp"


@dataclass(slots=True)
class Row:
    """The results of one run. `regrets[i]` is that of the recommendation after i + 1 probes."""

    kind: str
    tuner: str
    place: str
    group: str
    split: str
    seed: int
    regrets: list[float] = field(default_factory=list)
    connection_ratios: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # spent probing, cumulative
    bytes: list[int] = field(default_factory=list)
    think_seconds: float = 0.0  # the tuner's own mean time per probe
    covered: dict[int, list[bool]] = field(default_factory=dict)
    interval_widths: dict[int, list[float]] = field(default_factory=dict)  # high / low
    alarms: list[int] = field(default_factory=list)  # probes, from 1, after which drift was reported
    neighbour: str = ""
    # For a drift: whether the old optimum's speed changed by a tenth, or it is no longer good.
    is_felt: bool = True


@dataclass(frozen=True, slots=True)
class GridCost:
    """The cost of probing every power of two once on a surface."""

    seconds: float
    bytes: int


def verdict(rows: list[Row], grid: Mapping[str, GridCost], fit_seconds: list[float]) -> dict[str, Any]:
    """Print every table and return the figures."""
    tables = {
        title: regret_table([r for r in rows if r.kind == "cold" and keep(r)])
        for title, keep in SLICES.items()
    }
    for title, table in tables.items():
        print(f"\n{title}\n" + "\n".join(format_table(table)))
    figures = targets(rows, grid, fit_seconds) if any(row.tuner == OWN for row in rows) else []
    for line in _details(rows):
        print(line)
    if figures:
        print("\nTargets")
        print("\n".join(figure.line() for figure in figures))
    return {"tables": tables, "targets": [figure.document() for figure in figures]}


def is_on_model(row: Row) -> bool:
    """Everything except the shapes that no law of uploads gives."""
    return row.group != Group.OFF_MODEL


SLICES: dict[str, Callable[[Row], bool]] = {
    "S3 surfaces (calibrated, generic, flat): regret % of the recommendation, median / p90": is_on_model,
    "S3 surfaces, held out": lambda row: is_on_model(row) and row.split == Split.HELD_OUT,
    "Off-model surfaces": lambda row: not is_on_model(row),
    "Flat-topped surfaces": lambda row: row.group == Group.FLAT,
}


def regret_table(rows: list[Row]) -> list[dict[str, float | str]]:
    """A line for each tuner."""
    return [
        _tuner_line(name, [r for r in rows if r.tuner == name])
        for name in dict.fromkeys(r.tuner for r in rows)
    ]


def _tuner_line(name: str, rows: list[Row]) -> dict[str, float | str]:
    line: dict[str, float | str] = {"tuner": name, "runs": len(rows)}
    for probes in (5, 6, 10, 20):
        regrets = 100 * np.array([row.regrets[probes - 1] for row in rows])
        line[f"median_{probes}"], line[f"p90_{probes}"] = (
            float(np.median(regrets)),
            float(np.quantile(regrets, 0.9)),
        )
        line[f"within_5_{probes}"] = 100 * float(np.mean(regrets <= 100 * GOOD))
    line["connection_ratio"] = float(np.median([row.connection_ratios[-1] for row in rows]))
    line["connection_ratio_p90"] = float(np.quantile([row.connection_ratios[-1] for row in rows], 0.9))
    line["seconds_to_95"] = float(np.median([cost_to_good(row)[0] for row in rows]))
    line["probes_to_95"] = float(np.median([probes_to_good(row.regrets) for row in rows]))
    line["think_ms"] = 1e3 * float(np.mean([row.think_seconds for row in rows]))
    return line


def format_table(table: list[dict[str, float | str]]) -> list[str]:
    """As text with aligned columns."""
    head = f"{'tuner':18s} {'runs':>4s} " + " ".join(f"{f'@{p}':>12s}" for p in (5, 6, 10, 20))
    head += f" {'<=5% @10':>8s} {'@20':>5s} {'conn/n95':>9s} {'p90':>5s} {'probes':>6s} {'s to 95':>8s}"
    head += f" {'ms/probe':>8s}"
    return [head, *(_format_line(line) for line in table)]


def _format_line(line: Mapping[str, Any]) -> str:
    regrets = " ".join(f"{line[f'median_{p}']:5.1f} /{line[f'p90_{p}']:5.1f}" for p in (5, 6, 10, 20))
    return (
        f"{line['tuner']:18s} {line['runs']:4d} {regrets} {line['within_5_10']:8.0f} {line['within_5_20']:5.0f}"
        f" {line['connection_ratio']:9.2f} {line['connection_ratio_p90']:5.2f} {line['probes_to_95']:6.0f}"
        f" {line['seconds_to_95']:8.1f} {line['think_ms']:8.1f}"
    )


def probes_to_good(regrets: list[float]) -> int:
    """Probes until the recommendation is, and stays, within 5 %; one more than were made if it never does."""
    bad = [i for i, regret in enumerate(regrets) if regret > GOOD]
    return bad[-1] + 2 if bad else 1


def cost_to_good(row: Row) -> tuple[float, float]:
    """Seconds and bytes until then; if never, everything that was spent (a lower bound)."""
    at = min(probes_to_good(row.regrets), len(row.regrets)) - 1
    return row.seconds[at], float(row.bytes[at])


def targets(rows: list[Row], grid: Mapping[str, GridCost], fit_seconds: list[float]) -> list[Figure]:
    """All targets of the product."""
    cold = [row for row in rows if row.kind == "cold"]
    own = [row for row in cold if row.tuner == OWN]
    figures = [*_cold_targets("", [r for r in own if is_on_model(r)])]
    figures += _cold_targets(" (held out)", [r for r in own if is_on_model(r) and r.split == Split.HELD_OUT])
    figures += _connection_targets([r for r in own if r.group == Group.FLAT])
    figures += _off_model_targets([r for r in cold if not is_on_model(r)])
    figures += _cost_targets([r for r in cold if is_on_model(r)], grid)
    figures += _coverage_targets(own)
    figures += _warm_targets(rows)
    return [*figures, *_drift_targets(rows), *_fit_targets(fit_seconds)]


def _cold_targets(suffix: str, rows: list[Row]) -> list[Figure]:
    def at(probes: int) -> list[float]:
        return [100 * row.regrets[probes - 1] for row in rows]

    good = [100.0 * (regret <= 5) for regret in at(20)]
    fraction, name = [100 - regret for regret in at(6)], "fraction of best after 6 cold probes"
    return [
        *at_most("regret after 10 probes", at(10), "%", suffix, median=0.8, p90=6),
        *at_most("regret after 20 probes", at(20), "%", suffix, median=0.5, p90=4),
        Figure(f"runs within 5 % after 20 probes{suffix}", mean(good), low=95, unit="%"),
        Figure(f"{name}, mean{suffix}", mean(fraction), low=97, unit="%"),
        Figure(f"{name}, worst 5 %{suffix}", quantile(fraction, 0.05), low=93, unit="%"),
    ]


def _connection_targets(rows: list[Row]) -> list[Figure]:
    ratios = [row.connection_ratios[-1] for row in rows]
    return at_most("connections used / needed for 95 %, flat-topped", ratios, median=1.15, mean=1.15)


def _off_model_targets(rows: list[Row]) -> list[Figure]:
    own, rival = ([100 * r.regrets[19] for r in rows if r.tuner == name] for name in (OWN, RIVAL))
    bounds = {"median": median(rival), "p90": quantile(rival, 0.9)}
    return at_most("off-model: regret after 20", own, "%", ", at most scikit-optimize's", **bounds)


def _cost_targets(rows: list[Row], grid: Mapping[str, GridCost]) -> list[Figure]:
    """Sums over paired runs (same surface, same seed), so that a slow surface counts for what it costs."""
    rival = {(r.place, r.seed): cost_to_good(r) for r in rows if r.tuner == RIVAL}
    own = {(r.place, r.seed): cost_to_good(r) for r in rows if r.tuner == OWN}
    pairs = [key for key in own if key in rival]
    figures = []
    for index, word in enumerate(("seconds", "bytes")):
        name = f"{word} of probing to 95 %"
        ours, theirs = (sum(costs[key][index] for key in pairs) for costs in (own, rival))
        whole = sum(getattr(grid[place], word) for place, _ in pairs)
        ratios = [own[key][index] / rival[key][index] for key in pairs]
        figures += [
            Figure(f"{name}, in sum, over scikit-optimize's", ours / theirs if theirs else None, high=0.5),
            Figure(f"{name}, median of ratios", median(ratios), high=0.5),
            Figure(f"{name}, in sum, over the whole grid's", ours / whole if whole else None, high=0.2),
        ]
    return figures


def _coverage_targets(rows: list[Row]) -> list[Figure]:
    figures = []
    held_out = [row for row in rows if row.split == Split.HELD_OUT]
    for title, chosen in (
        ("S3 held out", [r for r in held_out if is_on_model(r)]),
        ("off-model held out", [r for r in held_out if not is_on_model(r)]),
    ):
        for probes in (10, 20):
            covered = [100.0 * inside for row in chosen for inside in row.covered.get(probes, [])]
            name = f"90 % intervals cover, after {probes} probes, {title}"
            figures.append(Figure(name, mean(covered), low=85, high=95, unit="%"))
    return figures


def _warm_targets(rows: list[Row]) -> list[Figure]:
    warm = [row for row in rows if row.kind == "warm" and row.tuner == OWN]
    right = [100 * row.regrets[2] for row in warm if row.neighbour in ("size", "instance")]
    region = [100 * row.regrets[2] for row in warm if row.neighbour == "region"]
    cold = {
        (r.place, r.seed): probes_to_good(r.regrets) for r in rows if r.kind == "warm-cold" and r.tuner == OWN
    }
    extra = [float(probes_to_good(r.regrets) - cold[r.place, r.seed]) for r in warm if r.neighbour == "wrong"]
    return [
        *at_most("warm from a size or instance: regret after 3 probes", right, "%", median=0.5, p90=5),
        *at_most("warm from another region: regret after 3 probes", region, "%", median=None),
        *at_most("wrong neighbour: probes more than cold to stay at 95 %", extra, mean=2, median=2),
    ]


def detection_delay(row: Row) -> float:
    """Probes from the change to the first alarm; beyond the horizon if there was none."""
    after = [alarm - DRIFT_AT for alarm in row.alarms if alarm > DRIFT_AT]
    return float(after[0]) if after else float(len(row.regrets) - DRIFT_AT + 1)


def recovery(row: Row) -> float:
    """Probes from the change until three recommendations in a row are within 5 % of the new optimum."""
    after = row.regrets[DRIFT_AT:]
    held = [i + 1 for i in range(len(after) - HOLDS + 1) if max(after[i : i + HOLDS]) <= GOOD]
    return float(held[0]) if held else float(len(after) + 1)


def _drift_targets(rows: list[Row]) -> list[Figure]:
    """A change that neither slows the old setting nor makes another better need not be noticed, and does not count."""
    drifted = [row for row in rows if row.kind == "drift" and row.tuner == OWN and row.is_felt]
    alarms = [
        200 * len(row.alarms) / len(row.regrets) for row in rows if row.kind == "steady" and row.tuner == OWN
    ]
    after = [100 * r.regrets[DRIFT_AT + 7] for r in drifted]
    return [
        *at_most("drift: probes until noticed", [detection_delay(r) for r in drifted], median=3),
        *at_most("drift: probes until back within 5 %", [recovery(r) for r in drifted], median=8),
        *at_most("drift: regret 8 probes after", after, "%", median=5),
        *at_most("false alarms in 200 probes", alarms, mean=1, most=1),
    ]


def _fit_targets(fit_seconds: list[float]) -> list[Figure]:
    """CPU time, because a fit runs beside the traffic of others."""
    milliseconds = [1e3 * seconds for seconds in fit_seconds]
    return at_most("a fit of 100 observations, CPU time", milliseconds, " ms", median=300, most=300)


def _details(rows: list[Row]) -> Iterable[str]:
    """Where the figures come from: each pair, each change, each difficult surface."""
    yield from _warm_details([r for r in rows if r.kind in ("warm", "warm-cold")])
    yield from _drift_details([r for r in rows if r.kind == "drift"])
    yield from _hard_details([r for r in rows if r.kind == "cold" and r.tuner == OWN])


def _warm_details(rows: list[Row]) -> Iterable[str]:
    if rows:
        yield "\nWarm starts: median regret % after 1, 2, 3, 5, 10 probes"
    for place in dict.fromkeys(row.place for row in rows):
        for kind, tuner in dict.fromkeys((r.kind, r.tuner) for r in rows):
            chosen = [r for r in rows if (r.place, r.kind, r.tuner) == (place, kind, tuner)]
            at = " ".join(
                f"{100 * float(np.median([r.regrets[p - 1] for r in chosen])):6.1f}" for p in (1, 2, 3, 5, 10)
            )
            yield f"  {place:22s} {tuner:10s} {'cold' if kind == 'warm-cold' else 'warm':5s} {at}"


def _drift_details(rows: list[Row]) -> Iterable[str]:
    if rows:
        yield "\nDrift that is felt: median probes until noticed, until back; median regret % 3, 8, 20 probes after"
    rows = [row for row in rows if row.is_felt]
    for change in dict.fromkeys(row.place.split("-", 1)[1] for row in rows):
        for tuner in dict.fromkeys(row.tuner for row in rows):
            chosen = [r for r in rows if r.place.split("-", 1)[1] == change and r.tuner == tuner]
            noticed = np.median([detection_delay(r) for r in chosen]) if tuner == OWN else np.nan
            back = np.median([recovery(r) for r in chosen])
            at = " ".join(
                f"{100 * float(np.median([r.regrets[DRIFT_AT + p - 1] for r in chosen])):6.1f}"
                for p in (3, 8, 20)
            )
            yield f"  {change:14s} {tuner:10s} {noticed:5.1f} {back:5.1f}   {at}"


def _hard_details(rows: list[Row]) -> Iterable[str]:
    if rows:
        yield "\nHardest surfaces for penstock: mean regret % after 6, 10, 20 probes; connections / n95"
    by_place = {
        place: [r for r in rows if r.place == place] for place in dict.fromkeys(r.place for r in rows)
    }
    hard = sorted(
        by_place.items(), key=lambda item: -float(np.mean([r.regrets[19] + r.regrets[9] for r in item[1]]))
    )
    for place, chosen in hard[:12]:
        at = " ".join(f"{100 * float(np.mean([r.regrets[p - 1] for r in chosen])):6.1f}" for p in (6, 10, 20))
        ratio = float(np.mean([r.connection_ratios[-1] for r in chosen]))
        yield f"  {place:28s} {chosen[0].split:12s} {at} {ratio:6.2f}"
