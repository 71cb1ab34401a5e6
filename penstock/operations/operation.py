"""Knows what an operation is to the rest of penstock: one row, which is imported without NumPy and msgspec.

Commands that only ask the daemon use the words in the table; probes and models are imported when they are first needed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from penstock.vocabulary import SettingT

if TYPE_CHECKING:
    from penstock.clock import Clock
    from penstock.listening.tally import Series
    from penstock.models.model import PerformanceModel
    from penstock.operations.sections.section import Section
    from penstock.probes.finding import Finding
    from penstock.probes.outside import MessageQueues, ObjectStore
    from penstock.probes.probe import Journal, Probe


class Service(StrEnum):
    """The service of an operation; requests to one service share a client and its connection pool."""

    S3 = "s3"
    SQS = "sqs"


class Outside(Protocol):
    """Access to the two services: AWS in a daemon, the lab in virtual time."""

    async def object_store(self, region: str, endpoint_url: str | None = None) -> ObjectStore:
        """S3 in this region, at the configured endpoint unless another one is given. Raises RequestError."""
        ...

    async def message_queues(self, region: str, endpoint_url: str | None = None) -> MessageQueues:
        """SQS in this region, at the configured endpoint unless another one is given. Raises RequestError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """What a probe is made from, beside its configuration section."""

    clock: Clock
    journal: Journal
    outside: Outside
    region: str
    host_name: str  # tells apart the queues of hosts that share an account
    loop_tick_seconds: float  # how often a probe measures the lateness of its event loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Ward:
    """Where and how permissions are tried."""

    outside: Outside
    region: str
    host_name: str
    subject: str  # of the findings


SectionT = TypeVar("SectionT", bound="Section")


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven(Generic[SettingT]):
    """How an application drives the operation, as far as its SDK's calls show."""

    sentence: str  # "10.0 parts in flight"
    setting: SettingT | None  # that does the same, to compare with advice; None if too little is heard


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The words for the operation on the command line and in the report."""

    payload: str  # what `payload_size_bytes` is the size of: "object"
    payload_example: str  # "1GiB"
    payload_default: str | None = None  # None: the size must be stated
    payload_note: str = ""  # a sentence about the difference between small and large ones
    demand: tuple[str, ...]  # the fields of `Demand` that apply here, beside those that always do
    # The values of a setting as text, given the payload size in bytes: in short, "24 x 8 MiB", and with nouns, "24
    # threads x 8 MiB".
    setting: Callable[[Mapping[str, float], int], str]
    setting_in_full: Callable[[Mapping[str, float], int], str]
    request_rate_help: str  # what would help where the service's request rate is the limit
    learned: tuple[str, ...]  # the parameters of a fit that say most of a place
    advice: str  # what is advised, in half a line
    query: str  # here and below: a sentence for the help of each command
    explain: str
    probe: str
    examples: tuple[str, ...]  # options of example questions, the simplest first


@dataclass(frozen=True, kw_only=True)
class Operation(Generic[SectionT, SettingT]):
    """One row. The type parameters refuse a section, a probe and a model that do not belong together."""

    name: str  # in the configuration, on the socket and in the database
    service: Service
    service_classes: tuple[str, ...]
    load_section: Callable[[], type[SectionT]]  # imports msgspec
    load_model: Callable[[], PerformanceModel[SettingT]]  # imports NumPy, which most commands do not need
    make_probe: Callable[[SectionT, Equipment], Awaitable[Probe[SettingT]]]
    try_permissions: Callable[[SectionT, Ward], AsyncIterator[Finding]]  # each action, with the least effect
    # How an application drives it, from the series by API, the advised setting and the SDK's; None if it does not.
    driven: Callable[[Mapping[str, Series], SettingT, SettingT], Driven[SettingT] | None]
    # SDKs report no sizes: the size assumed for heard transfers, and the size that calls imply, if they do.
    untold_payload_bytes: int
    told_payload_bytes: Callable[[Mapping[str, Series]], int | None] = lambda _: None
    payload_size_bytes_max: int  # the limit of the service
    payload_ladder_bytes: tuple[int, ...]  # sizes with standing advice, beside those that are probed
    words: Words

    def heard_payload_bytes(self, apis: Mapping[str, Series]) -> int:
        """The payload size for which an application that was heard like this is compared with advice."""
        return self.told_payload_bytes(apis) or self.untold_payload_bytes

    @cached_property
    def section_type(self) -> type[SectionT]:
        """The class of the operation's configuration section."""
        return self.load_section()

    @cached_property
    def model(self) -> PerformanceModel[SettingT]:
        """The operation's model."""
        return self.load_model()

    @property
    def setting_type(self) -> type[SettingT]:
        return self.model.setting_type

    @property
    def command(self) -> str:
        """The operation's name on the command line."""
        return self.name.replace("_", "-")
