"""THE TABLE: one row for each operation that penstock knows. A new operation is a model, a probe and a row here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.operations.operation import Operation
from penstock.operations.s3.download import DOWNLOAD
from penstock.operations.s3.upload import UPLOAD
from penstock.operations.sqs.delivery import DELIVERY
from penstock.vocabulary import Setting

OPERATIONS: Mapping[str, Operation[Any, Any]] = {row.name: row for row in (UPLOAD, DOWNLOAD, DELIVERY)}


def setting_types() -> dict[str, type[Setting]]:
    """The dataclass of each operation's settings, as the store and the socket need it."""
    return {name: row.setting_type for name, row in OPERATIONS.items()}
