"""Knows how a consumer or producer of a queue asks for advice, at first and again."""

from __future__ import annotations

from penstock.client.advice import Advice, default_advice
from penstock.client.operations import SQS_DELIVERY
from penstock.client.sdk_client import advise_in, region_of

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class QueueAdvice:
    """The advice for one queue; `given` advice replaces asking."""

    def __init__(
        self,
        sqs_client: Any,
        queue_url: str,
        message_size_bytes: int,
        given: Advice | None,
        demand: Mapping[str, Any],
    ) -> None:
        # The queue's region and class, where stated or known.
        self.place = {name: demand[name] for name in ("region", "service_class") if demand.get(name)}
        if queue_url.endswith(".fifo"):
            self.place.setdefault("service_class", "fifo")
        self.place.setdefault("region", region_of(sqs_client))
        self._given, self._size_bytes, self._demand = given, message_size_bytes, demand

    def first(self, *, is_to_ask: bool) -> Advice:
        """The first advice; the SDK's defaults if asking is not possible yet."""
        if self._given is not None:
            return self._given
        return (
            self._asked()
            if is_to_ask
            else default_advice(SQS_DELIVERY, self._size_bytes, "no daemon was asked yet")
        )

    def news(self, known: Advice) -> Advice | None:
        """New advice, if it differs from the known one; never the SDK's defaults, which are not worth going back to."""
        if self._given is not None:
            return None
        advice = self._asked()
        told = ("setting", "derived", "demand")
        is_news = any(advice.document.get(name) != known.document.get(name) for name in told)
        return advice if is_news and advice.basis != "default" else None

    def _asked(self) -> Advice:
        return advise_in(self.place, SQS_DELIVERY, self._size_bytes, self._demand)
