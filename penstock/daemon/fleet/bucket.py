"""Knows how a host reads and writes the fleet's bucket, what that costs, and whether it may write."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from random import Random

import msgspec

from penstock.clock import Clock
from penstock.daemon.config import FleetSection
from penstock.operations.operation import Outside
from penstock.probes.outside import Changed, Denied, Missing, NoBucket, ObjectStore, Refused
from penstock.vocabulary import BESIDE_PAYLOAD_BYTES, Cost, Tariff

TRIAL_REQUEST_COUNT_MAX = 5
TRY_AGAIN_SECONDS = 4 * 3600.0  # after writing was refused
REFUSAL_COUNT_MAX = 3  # visits: two hosts that try the conditions at the same moment may both be refused
_TRIAL_BYTES_MAX = 1024
_WRONG_ETAG = '"00000000000000000000000000000000"'

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """The object under a key; no tag where there is none."""

    body: bytes
    etag: str | None


class Bucket:
    """One host's requests to the bucket; each is counted before it is sent, and raises RequestError if it fails.

    `used` is the cost of the present visit, or of the last one.
    """

    def __init__(self, section: FleetSection, outside: Outside, *, region: str, tariff: Tariff) -> None:
        self._name, self._region = section.bucket, region
        self.cost = partial(requests_cost, tariff)  # of a number of requests and bytes
        self._outside = outside
        self._store: ObjectStore | None = None
        self.used = Cost()

    async def open(self) -> None:
        """Begin a visit."""
        self.used = Cost()
        self._store = await self._outside.object_store(self._region)

    async def get(self, key: str, etag: str | None, size_bytes_max: int) -> Found | None:
        """The object; None where it still has this tag. Objects larger than `size_bytes_max` are refused."""
        assert self._store is not None
        self.used += self.cost(reads=1)
        try:
            found = await self._store.get_unless(self._name, key, etag, size_bytes_max=size_bytes_max)
        except NoBucket:
            raise
        except Missing:
            return Found(b"", None)
        if found is None:
            return None
        self.used += self.cost(received=len(found.body))
        return Found(found.body, found.etag)

    async def put(self, key: str, body: bytes, etag: str | None) -> str | None:
        """Replace the object with this tag (None: no object); returns its new tag, or None if it changed meanwhile."""
        assert self._store is not None
        self.used += self.cost(writes=1, sent=len(body))
        try:
            return await self._store.put_if(self._name, key, body, etag)
        except NoBucket:
            raise
        except (Changed, Missing):
            return None


def requests_cost(
    tariff: Tariff, *, reads: int = 0, writes: int = 0, received: int = 0, sent: int = 0
) -> Cost:
    """The cost of this many requests and bytes, with the bytes that requests take beside their payloads."""
    cost = tariff.cost(
        read_request_count=reads, write_request_count=writes, received_bytes=received, sent_bytes=sent
    )
    return cost + Cost(transferred_bytes=(reads + writes) * BESIDE_PAYLOAD_BYTES)


class RightToWrite:
    """Whether this host may write into the bucket, which has to be tried.

    A store that ignores the conditions of writes must not be used: hosts would overwrite each other's evidence.
    """

    def __init__(self, section: FleetSection, clock: Clock, host: str, chance: Random) -> None:
        self._section, self._clock, self._host, self._chance = section, clock, host, chance
        self.is_held: bool | None = None if section.may_write else False  # None: to be tried
        self._why_not = "" if section.may_write else "fleet.may_write is false"
        self._try_seconds = 0.0  # when to try again after a refusal, on the monotonic clock
        self._refusal_count = 0

    @property
    def is_to_be_tried(self) -> bool:
        """Whether to try now: at the start, and now and then after a refusal, because rights may come back."""
        if self.is_held is False:
            return self._section.may_write and self._try_seconds <= self._clock.monotonic_seconds()
        return self.is_held is None

    @property
    def sentence(self) -> str:
        """One sentence about what this host may do with the bucket."""
        bucket = f"{self._section.bucket}/{self._section.key_prefix}"
        if self.is_held:
            return f"{bucket} is read and written"
        if self.is_held is None:
            return f"{bucket} is read, and whether it can be written is not known yet"
        return f"{bucket} is read, and not written: {self._why_not}"

    def lose(self, why: str) -> None:
        """Note that the store refuses writes, and why."""
        is_news = why != self._why_not
        self.is_held, self._why_not = False, why
        self._try_seconds = self._clock.monotonic_seconds() + TRY_AGAIN_SECONDS
        if is_news:
            _log.warning("%s", self.sentence)

    async def try_it(self, bucket: Bucket) -> None:
        """Try whether the store allows writes whose condition holds, and refuses those whose condition does not."""
        try:
            why_not = await self._trial(bucket)
        except Denied as trouble:
            why_not = str(trouble)
        except Refused as trouble:
            why_not = f"the store refuses conditional writes ({trouble})"
        if why_not is not None:
            self.lose(why_not)
        elif self.is_held:
            _log.info("%s", self.sentence)

    async def _trial(self, bucket: Bucket) -> str | None:
        """Why not to write; None where writing works, or where the next visit has to try again."""
        key = f"{self._section.key_prefix}conditions.json"
        etag = await self._etag(bucket, key)
        if await bucket.put(key, self._body(), etag) is None:
            # Another host may have tried at the same moment: then try again at the next visit.
            self._refusal_count += await self._etag(bucket, key) == etag
            is_sure = self._refusal_count >= REFUSAL_COUNT_MAX
            return "the store refuses conditional writes whose condition holds" if is_sure else None
        for name, wrong in (("If-None-Match", None), ("If-Match", _WRONG_ETAG)):
            if await bucket.put(key, self._body(), wrong) is not None:
                return f"the store ignores {name}, and hosts would overwrite each other"
        self.is_held, self._why_not = True, ""
        return None

    def _body(self) -> bytes:
        """A different body each time, so that each has a tag of its own."""
        return msgspec.json.encode({"host": self._host, "tried": self._chance.getrandbits(64)})

    @staticmethod
    async def _etag(bucket: Bucket, key: str) -> str | None:
        found = await bucket.get(key, None, _TRIAL_BYTES_MAX)
        return found.etag if found else None
