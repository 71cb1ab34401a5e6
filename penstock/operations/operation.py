"""Knows what an operation is to the rest of penstock: one row, which is read without NumPy and without msgspec.

The commands that only ask read the table for its words; what probes and learns is loaded when it is first needed.
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
    """Which of the two services the operation is one of: its requests share a client and a pool of connections."""

    S3 = "s3"
    SQS = "sqs"


class Outside(Protocol):
    """How the two services are reached: AWS in a daemon, the lab in virtual time."""

    async def object_store(self, region: str, endpoint_url: str | None = None) -> ObjectStore:
        """S3 in this region, at the endpoint that is configured unless another is named."""
        ...

    async def message_queues(self, region: str, endpoint_url: str | None = None) -> MessageQueues:
        """SQS likewise."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """What a probe is made from, beside its section."""

    clock: Clock
    journal: Journal
    outside: Outside
    region: str
    host_name: str  # tells apart the queues of hosts that share an account
    loop_tick_seconds: float  # how often a probe looks how late its event loop is


@dataclass(frozen=True, slots=True, kw_only=True)
class Ward:
    """Where permissions are tried."""

    outside: Outside
    region: str
    host_name: str
    subject: str  # how the findings are to be called


SectionT = TypeVar("SectionT", bound="Section")


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven(Generic[SettingT]):
    """How an application drives the operation, as far as its SDK tells of its calls."""

    sentence: str  # "10.0 parts in flight"
    setting: SettingT | None  # that does the same, to hold advice against; None where too little is told


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """How the operation is spoken of on the command line and in the report."""

    payload: str  # what `payload_size_bytes` is the size of: "object"
    payload_example: str  # "1GiB"
    payload_default: str | None = None  # None: whoever asks has to say it
    payload_note: str = ""  # what differs between small and large ones, in a sentence
    demand: tuple[str, ...]  # the fields of `Demand` that mean something here, beside those that always do
    # How the values of a setting read, for payloads of so many bytes: in short, "24 x 8 MiB", and with its nouns, "24
    # threads x 8 MiB".
    setting: Callable[[Mapping[str, float], int], str]
    setting_in_full: Callable[[Mapping[str, float], int], str]
    request_rate_help: str  # what would help where the service's request rate is the limit
    learned: tuple[str, ...]  # the parameters of a fit that say most of a place
    advice: str  # what is advised, in half a line
    query: str  # a sentence for each command
    explain: str
    probe: str
    examples: tuple[str, ...]  # the options of questions, the simplest first


@dataclass(frozen=True, kw_only=True)
class Operation(Generic[SectionT, SettingT]):
    """One row. The type parameters refuse a section, a probe and a model that do not belong together."""

    name: str  # in the configuration, on the socket and in the database
    service: Service
    service_classes: tuple[str, ...]
    load_section: Callable[[], type[SectionT]]  # imports msgspec
    load_model: Callable[[], PerformanceModel[SettingT]]  # imports NumPy, which most commands do without
    make_probe: Callable[[SectionT, Equipment], Awaitable[Probe[SettingT]]]
    try_permissions: Callable[[SectionT, Ward], AsyncIterator[Finding]]  # each action, with the least effect
    # From what was heard by API, the advised setting and the SDK's own; None where it does nothing of the kind.
    driven: Callable[[Mapping[str, Series], SettingT, SettingT], Driven[SettingT] | None]
    # SDKs tell no sizes, so what was heard is taken for the first of these, on the ladder, unless calls tell another.
    untold_payload_bytes: int
    told_payload_bytes: Callable[[Mapping[str, Series]], int | None] = lambda _: None
    payload_size_bytes_max: int  # the service takes no more
    payload_ladder_bytes: tuple[int, ...]  # sizes that standing advice covers, besides those that are probed
    words: Words

    def heard_payload_bytes(self, apis: Mapping[str, Series]) -> int:
        """The size that advice is given for to who is heard so."""
        return self.told_payload_bytes(apis) or self.untold_payload_bytes

    @cached_property
    def section_type(self) -> type[SectionT]:
        """What the operator may say of it."""
        return self.load_section()

    @cached_property
    def model(self) -> PerformanceModel[SettingT]:
        """Its physics."""
        return self.load_model()

    @property
    def setting_type(self) -> type[SettingT]:
        return self.model.setting_type

    @property
    def command(self) -> str:
        """Its word on the command line."""
        return self.name.replace("_", "-")
