"""Knows what operations on objects have in common: classes, sizes, words for the command line, and a workspace."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.operations.operation import Words
from penstock.units import GiB, KiB, MiB, TiB, counted, format_bytes, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.operations.operation import Equipment
    from penstock.operations.sections.objects import ObjectSection
    from penstock.probes.s3.workspace import Workspace

OBJECT_CLASSES = ("standard", "express")
OBJECT_LADDER_BYTES = (64 * KiB, MiB, 8 * MiB, 64 * MiB, 512 * MiB, 4 * GiB, 32 * GiB, TiB)
UNTOLD_SIZE_BYTES = 512 * MiB  # assumed for objects that are transferred in several parts
UNTOLD_PART_BYTES = 8 * MiB  # the default of boto3 and the AWS CLI
OBJECT_DEMAND = ("object_count", "memory_bytes_max", "bandwidth_bytes_per_second_max")


def object_section() -> type[ObjectSection]:
    """The section for operations without keys of their own."""
    from penstock.operations.sections.objects import ObjectSection

    return ObjectSection


def object_words(size_knob: str, whole_bytes_max: int, **words: Any) -> Words:
    """The words for an operation in which small objects are transferred whole (Any: the other words, by name).

    ``24 x 8 MiB`` means 24 threads with 8 MiB each at a time; ``24 at a time`` means whole objects.
    """

    def in_short(values: Mapping[str, float], payload_size_bytes: int) -> str:
        threads, size = values["thread_count"], values[size_knob]
        is_whole = payload_size_bytes <= size
        return f"{number(threads)} at a time" if is_whole else f"{number(threads)} x {format_bytes(size)}"

    def in_full(values: Mapping[str, float], payload_size_bytes: int) -> str:
        threads, size = counted(values["thread_count"], "thread"), values[size_knob]
        return (
            f"{threads}, whole objects" if payload_size_bytes <= size else f"{threads} x {format_bytes(size)}"
        )

    return Words(
        payload="object",
        payload_example="1GiB",
        payload_note=f"Objects of up to {format_bytes(whole_bytes_max)} are many, one after another in each thread; "
        "a larger one is alone, begins and ends.",
        setting=in_short,
        setting_in_full=in_full,
        request_rate_help="larger requests, or more key prefixes",
        learned=("request_seconds", "connection_bytes_per_second", "host_bytes_per_second"),
        **words,
    )


async def workspace(section: ObjectSection, equipment: Equipment) -> Workspace:
    """The workspace for probes of objects. Raises RequestError."""
    from penstock.probes.aws.objects import AwsObjectStore  # late: takes half a second, and reports need none
    from penstock.probes.s3 import workers
    from penstock.probes.s3.workspace import Workspace

    store, hire = await equipment.outside.object_store(equipment.region), None
    if isinstance(store, AwsObjectStore):  # only this store can be opened by other processes
        tick_seconds = equipment.loop_tick_seconds
        hire = partial(workers.hired, access=store.access, loop_tick_seconds=tick_seconds)
    return Workspace(
        store,
        equipment.clock,
        equipment.journal,
        section.bucket_in(equipment.region),
        key_prefix=section.key_prefix,
        loop_tick_seconds=equipment.loop_tick_seconds,
        hire=hire,
        worker_count_max=min(section.worker_count_max, workers.processor_count()),
    )
