"""Whatever a model advises can be divided, and every share of it is a setting that the service accepts."""

from __future__ import annotations

from typing import Any

from penstock.api.leases import Appetite, divide
from penstock.operations.operation import Operation
from penstock.vocabulary import Context, Demand, Place, knobs, setting_values

PLACE = Place(operation="", region="eu-west-1", instance_type="m7i.large")


def test_a_share_of_a_legal_setting_is_legal(row: Operation[Any, Any]) -> None:
    """However small the share; and the shares of the threads sum to the whole, as long as there is one for each."""
    model = row.model
    place = Place(operation=model.operation, region=PLACE.region, instance_type=PLACE.instance_type)
    context = Context(place=place, payload_size_bytes=row.payload_ladder_bytes[-1])
    fit = model.fit(place, [], prior=None, seed=1)
    for setting in list(model.candidates(fit, context, Demand()))[::7]:
        for count in (1, 3, 50):
            wanted = Appetite(setting=setting, use_fraction=1.0)
            shares = [share.setting for share in divide([wanted] * count, [1.0 + i for i in range(count)])]
            assert all(model.legal(context, share) == share for share in shares)
            for name, value in setting_values(setting).items():
                if name.endswith("thread_count"):
                    assert sum(getattr(share, name) for share in shares) == max(value, count)


def test_threads_are_divided(row: Operation[Any, Any]) -> None:
    """A knob that counts threads counts those of the host."""
    for name, knob in knobs(row.setting_type).items():
        assert knob.is_divided or not name.endswith("thread_count")
