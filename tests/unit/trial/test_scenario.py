"""A scenario has a world for every operation of the table, also for one that nobody has thought of yet."""

from dataclasses import replace

from penstock.lab.worlds import NEAR
from penstock.operations.s3.download import DOWNLOAD
from penstock.operations.s3.upload import UPLOAD
from tests.scenario import Scenario, _truth


def test_what_is_no_known_transfer_meets_the_link_of_writes() -> None:
    """Weeks of the contracts play every row, and an operation need not move objects."""
    scenario = Scenario(link=NEAR.link, inbound=NEAR.inbound)
    assert _truth(scenario, replace(DOWNLOAD, name="s3_made_up")) is NEAR.link
    assert [_truth(scenario, row) for row in (UPLOAD, DOWNLOAD)] == [NEAR.link, NEAR.inbound]
