"""What follows from a direction alone: who learns from whom, and what the host's network has to do with it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from penstock.models import burst
from penstock.models.s3.directions import BY_OPERATION, UPLOADS, host_ceiling, kindred
from penstock.models.s3.download import S3DownloadModel
from penstock.models.s3.law import HOST_RATE
from penstock.models.s3.studies import studies
from penstock.models.s3.tables import table_prior
from penstock.models.s3.upload import S3UploadModel, S3UploadSetting
from penstock.units import MiB
from penstock.vocabulary import Demand, Place
from tests.factories import CONTEXT, an_observation
from tests.unit.models.told import told

BESIDE = "s3_beside"
DIRECTION = dataclasses.replace(
    UPLOADS,
    typical={**UPLOADS.typical, "host_bytes_per_second": (1e12, 0.01)},
    absent=frozenset({"host_bytes_per_second"}),
)
PLACE = Place(operation="s3_upload", region="eu-west-1", instance_type="c6i.large")


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Place:
    """Where an operation is measured whose bytes never pass the host."""
    monkeypatch.setitem(BY_OPERATION, BESIDE, DIRECTION)
    return dataclasses.replace(PLACE, operation=BESIDE)


@pytest.mark.usefixtures("beside")
def test_what_takes_another_way_teaches_nobody() -> None:
    """Uploads and downloads share a way and a host, and learn from each other; what passes neither does not."""
    assert S3UploadModel().kindred == {"s3_download"}
    assert S3DownloadModel().kindred == {"s3_upload"}
    assert kindred(BESIDE) == frozenset()


def test_the_network_of_the_host_is_no_ceiling_of_what_does_not_pass_it(beside: Place) -> None:
    """The table of instance types is about what this host moves itself."""
    known = burst.ceiling(PLACE.instance_type)
    assert known is not None
    assert host_ceiling(PLACE) == S3UploadModel().host_ceiling(PLACE) == known
    assert host_ceiling(beside) is None
    assert table_prior(PLACE).mean[HOST_RATE] == pytest.approx(np.log(known.baseline_bytes_per_second))
    assert table_prior(beside).mean[HOST_RATE] == pytest.approx(np.log(1e12))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _BesideSetting(S3UploadSetting):
    direction = DIRECTION


class _BesideModel(S3UploadModel):
    """Of an operation whose bytes never pass the host."""

    operation = BESIDE
    setting_type = _BesideSetting


def test_what_does_not_pass_the_host_takes_none_of_its_memory(beside: Place) -> None:
    """A limit of a container's memory would otherwise keep it from the threads that fill the service."""
    found = []
    for model, place in ((S3UploadModel(), PLACE), (_BesideModel(), beside)):
        context = dataclasses.replace(CONTEXT, place=place)
        fit = model.fit(place, [an_observation(context=context)], prior=None, seed=1)
        demand = Demand(memory_bytes_max=16 * MiB)
        settings = model.candidates(fit, context, demand)
        most = max(settings, key=lambda each: each.thread_count)
        held = model.derive(fit, context, most, demand)["memory_bytes"]
        found.append((most.thread_count > 3, held > 0, model.bottleneck(fit, context, most, demand)))
    assert found[0][:2] == (False, True)
    assert found[1][:2] == (True, False)
    assert found[1][2] != "memory"


def test_a_faster_host_is_promised_to_nobody_who_does_not_need_it(beside: Place) -> None:
    """What the host does not carry is not faster on another one, so that nothing is said of one."""
    said = []
    for model, place in ((S3UploadModel(), PLACE), (_BesideModel(), beside)):
        context = dataclasses.replace(CONTEXT, place=place)
        measured = [an_observation(context=context)]
        fit = model.fit(place, measured, prior=None, seed=1)
        said.append(" ".join(told(model, fit, context, model.default_setting(context), Demand())))
    assert ["a host and path twice as fast" in words for words in said] == [True, False]


def test_what_was_made_of_parts_is_not_called_an_upload(beside: Place) -> None:
    """Parts may be copied as well as sent."""
    measured = an_observation(measures={"object_part_count": 8.0, "complete_seconds": 0.05})
    (study,) = studies(S3UploadModel().fit(beside, [], prior=None, seed=1), [measured])
    assert study.sentence.startswith("1 object made of parts: the merge alone took 50 ms")
    assert "upload" not in study.sentence


def test_an_operation_without_a_direction_is_taken_for_an_upload() -> None:
    """Also in the report: what it took to create and to merge its objects is shown, not looked up in vain."""
    unlisted = dataclasses.replace(PLACE, operation="s3_made_up")
    measured = an_observation(measures={"object_part_count": 8.0, "complete_seconds": 0.05})
    model = S3UploadModel()
    titles = [
        [study.title for study in studies(model.fit(place, [], prior=None, seed=1), [measured])]
        for place in (PLACE, unlisted)
    ]
    assert titles[0] == titles[1] != []
