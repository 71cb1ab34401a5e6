"""Knows how to price a configuration before any daemon runs: from what this host tells, and else from tables."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from penstock.cli.output import filled, print_mapping

if TYPE_CHECKING:
    from penstock.daemon.config import Configuration
    from penstock.daemon.spending.forecast import Forecast
    from penstock.models.model import Fit
    from penstock.vocabulary import Context, Setting

_MANNERS: Mapping[str, str] = {"at_most": "at most", "typically": "typically"}


def costs_of(configuration: Configuration) -> Sequence[Forecast]:
    """Forecasts for each operation that is probed. May ask the instance metadata, for a second at most."""
    if not any(configuration.enabled()):
        return ()
    from penstock.daemon.instance import identify
    from penstock.daemon.spending.forecast import forecasts
    from penstock.daemon.spending.tariffs import Tariffs

    tariffs = Tariffs(configuration, asyncio.run(identify(configuration.host)))
    return forecasts(configuration, tariffs, _by_tables, datetime.now(UTC))


def _by_tables(context: Context) -> tuple[Fit, Setting]:
    """The advice where nothing was measured."""
    from penstock.operations.table import OPERATIONS
    from penstock.optimizer.recommendation import recommend
    from penstock.vocabulary import Demand

    model = OPERATIONS[context.operation].model
    fit = model.fit(context.place, (), prior=None, seed=0)
    advice = recommend(
        model, fit, context, Demand(), previous=None, now=datetime.now(UTC), validity_seconds=1.0
    )
    return fit, advice.setting


def print_costs(found: Sequence[Forecast], configuration: Configuration) -> None:
    """Print a table, and a sentence for each operation about its route and its limiting budget."""
    from penstock.daemon.spending.budget import daily_limit
    from penstock.daemon.spending.forecast import by_period, together

    costs = {forecast.operation: forecast.document() for forecast in found}
    if len(found) > 1:
        costs["all together"] = by_period(*together(found, daily_limit(configuration.budget)))
    rows = [
        {
            "operation": operation,
            "within": f"a {period} {words}",
            "cost_usd": document[period][manner]["usd"],
            "moved_bytes": document[period][manner]["transferred_bytes"],
            "requests": document[period][manner]["request_count"],
        }
        for operation, document in costs.items()
        for period in ("day", "month")
        for manner, words in _MANNERS.items()
    ]
    print_mapping({"what probes cost": rows})
    for forecast in found:
        click.echo(filled(forecast.sentence))
