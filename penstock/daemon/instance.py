"""Knows which machine this is: its region and instance type, and an identifier that no other machine has."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import os
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.daemon.config import AUTO, HostSection
from penstock.daemon.host import text_of
from penstock.vocabulary import UNKNOWN

if TYPE_CHECKING:
    import aiohttp

IMDS_SECONDS_MAX = 1.0
IMDS_BYTES_MAX = 64 * 1024
ASK_AGAIN_SECONDS, ASK_AGAIN_SECONDS_MAX = 5.0, 3600.0  # while metadata tell nothing; doubled each time
_MACHINE_FILES = ("etc/machine-id", "sys/devices/virtual/dmi/id/board_asset_tag", "sys/hypervisor/uuid")

METADATA_DISABLED = (
    "AWS_EC2_METADATA_DISABLED of the environment keeps the instance metadata from being asked"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostIdentity:
    """Region and kind of this host; `unknown` where nothing tells."""

    region: str
    instance_type: str
    sentence: str  # for the log: where this comes from, or why it is unknown
    is_instance: bool = False  # of EC2, as its metadata say
    has_public_address: bool = False  # so that it needs no NAT gateway
    machine: str = ""  # as returned by `machine()`


async def identify(section: HostSection, environment: Mapping[str, str] = os.environ) -> HostIdentity:
    """Ask the configuration, then the instance metadata, then the environment; takes at most a second."""
    configured = HostIdentity(
        region=_stated(section.region),
        instance_type=_stated(section.instance_type),
        sentence="configured",
        machine=machine(),
    )
    if UNKNOWN not in {configured.region, configured.instance_type}:
        return configured
    if environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        told, address, sentence = dict[str, str](), "", METADATA_DISABLED
    else:
        told, address, sentence = await _instance_identity(section.imds_endpoint_url)
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or UNKNOWN
    return HostIdentity(
        region=_first_known(configured.region, told.get("region", UNKNOWN), region),
        instance_type=_first_known(configured.instance_type, told.get("instanceType", UNKNOWN)),
        sentence=sentence,
        is_instance=bool(told),
        has_public_address=bool(address),
        machine=configured.machine,
    )


async def found_out(section: HostSection, known: HostIdentity) -> None:
    """Wait until more is known than now, for ever if need be: a host may start before its metadata are available."""
    pause_seconds, found = ASK_AGAIN_SECONDS, known
    while (found.region, found.instance_type) == (known.region, known.instance_type):
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, ASK_AGAIN_SECONDS_MAX)
        found = await identify(section)


def host_name() -> str:
    """A name that tells apart the queues of hosts that share an account: at most 24 characters valid in queue names."""
    # ip-172-31-100-200 has 17 characters; names of pods differ at their ends.
    own, _, _ = platform.node().partition(".")
    name = re.sub(r"[^A-Za-z0-9-]", "-", own)[-17:].strip("-") or "host"
    return f"{name}-{machine()[:6]}"


def machine(root: Path = Path("/")) -> str:
    """A stable identifier that differs between machines: 16 hexadecimal digits.

    `machine-id` may be copied with a disk image, so the instance's own ID is mixed in: Nitro shows it as the asset tag
    of the board, Xen as the UUID of the domain, and every user may read them.
    """
    told = "/".join(text_of(root / file).strip() for file in _MACHINE_FILES).strip("/") or platform.node()
    return hashlib.blake2b(told.encode(), digest_size=8, person=b"penstock").hexdigest()


def machine_seed(root: Path = Path("/")) -> int:
    """A seed of its own for each host, and for each pod of a machine: those of a fleet must not probe in step."""
    told = f"{machine(root)}/{platform.node()}"
    return int.from_bytes(hashlib.blake2b(told.encode(), digest_size=8).digest()) >> 1


async def _instance_identity(endpoint_url: str) -> tuple[dict[str, str], str, str]:
    """The identity document by IMDSv2, the public address where there is one, and a sentence for the log."""
    import aiohttp  # late: it takes as long to import as everything that reads the configuration

    limit = aiohttp.ClientTimeout(total=IMDS_SECONDS_MAX)
    try:
        async with (
            asyncio.timeout(IMDS_SECONDS_MAX),
            aiohttp.ClientSession(endpoint_url, timeout=limit) as session,
        ):
            lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
            token = await _answer(session, "PUT", "/latest/api/token", lifetime)
            path = "/latest/dynamic/instance-identity/document"
            proof = {"X-aws-ec2-metadata-token": token}
            identity = _identity(await _answer(session, "GET", path, proof))
            address = await _public_address(session, proof)
            return identity, address, "told by the instance metadata"
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError) as error:
        reason = str(error) or "no answer within a second"
        return (
            {},
            "",
            f"no instance metadata ({reason}); outside EC2, set host.region and host.instance_type",
        )


async def _public_address(session: aiohttp.ClientSession, proof: Mapping[str, str]) -> str:
    """The public IPv4 address; empty where there is none, which the metadata answer with 404."""
    with suppress(ValueError):
        address = ipaddress.IPv4Address(await _answer(session, "GET", "/latest/meta-data/public-ipv4", proof))
        return str(address)
    return ""


async def _answer(session: aiohttp.ClientSession, method: str, path: str, headers: Mapping[str, str]) -> str:
    async with session.request(method, path, headers=headers, allow_redirects=False) as response:
        if response.status != 200:
            raise ValueError(f"{method} {path} was answered with {response.status}")
        body = bytearray()
        async for chunk in response.content.iter_chunked(4096):
            body += chunk
            if len(body) > IMDS_BYTES_MAX:
                raise ValueError(f"{method} {path} has an endless answer")
        return body.decode("utf-8").strip()


def _identity(text: str) -> dict[str, str]:
    document = json.loads(text)
    fields = document if isinstance(document, dict) else {}
    names = {name: str(fields.get(name, "")) for name in ("region", "instanceType")}
    return {name: value for name, value in names.items() if re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,63}", value)}


def _stated(value: str) -> str:
    return UNKNOWN if value == AUTO else value


def _first_known(*values: str) -> str:
    return next((value for value in values if value != UNKNOWN), UNKNOWN)
