"""What tests give to the client in place of an SDK's client, and of the daemon that it reports to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.client.reporting import Reporter


def a_meta(connection_count: int = 8, *, region: str = "eu-west-1") -> SimpleNamespace:
    """As much of a client's `meta` as is looked at; its events tell nobody."""
    return SimpleNamespace(
        region_name=region,
        config=SimpleNamespace(max_pool_connections=connection_count),
        events=SimpleNamespace(register=lambda *_: None, register_first=lambda *_: None),
    )


class KeptReports(Reporter):
    """Keeps what would be posted."""

    def __init__(self) -> None:
        super().__init__(socket="/nowhere")
        self.reports: list[dict[str, Any]] = []

    def report(self, operation: Any, payload_size_bytes: Any, setting: Any, **what: Any) -> bool:
        """As it was said."""
        self.reports.append(
            {"operation": operation, "payload_size_bytes": payload_size_bytes, "setting": setting, **what}
        )
        return True
