"""The SQS consumer against ElasticMQ: what it gives back is there for others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.stopping import (
    Stopping,
    test_a_stop_gives_back_what_is_in_hand,  # noqa: F401 - of this queue
    test_a_stop_waits_for_no_long_poll,  # noqa: F401 - likewise
)
from tests.real.servers import plain_client

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]  # the first test waits for the build


@pytest.fixture
def stopping(sqs_url: str, tmp_path: Path) -> Iterator[Stopping]:
    """A queue of its own."""
    one = Stopping(plain_client("sqs", sqs_url), tmp_path)
    yield one
    one.close()
