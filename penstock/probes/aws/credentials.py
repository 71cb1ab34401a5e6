"""Knows how to make the SDK find credentials without a user: within a time limit, or with a sentence about why not."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable
from typing import Any, TypeVar

from aiobotocore.credentials import AioProcessProvider
from aiobotocore.session import AioSession
from botocore.exceptions import RefreshWithMFAUnsupportedError

from penstock.probes.aws.access import Access
from penstock.probes.aws.files import LeanFiles
from penstock.probes.outside import Unidentified

FINDING_SECONDS_MAX = 30.0  # a credential program or service may never answer
_KILLED_SECONDS_MAX = 1.0  # until a program that was killed is gone

FoundT = TypeVar("FoundT")


def session_of(access: Access) -> AioSession:
    """The session that finds credentials. It has the region, so that roles are assumed there."""
    session = AioSession(profile=access.profile)
    session.get_component("data_loader").file_loader = LeanFiles()
    session.set_config_variable("region", access.region)
    if access.credentials is None:
        chain = session.get_component("credential_provider")
        chain.get_provider("assume-role")._prompter = _typed  # noqa: SLF001 - the SDK's own would read from anywhere
    return session


async def in_time(finding: Awaitable[FoundT]) -> FoundT:
    """Await the finding of credentials. Raises Unidentified if that takes too long."""
    try:
        async with asyncio.timeout(FINDING_SECONDS_MAX) as limit:
            return await finding
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise Unidentified(
            f"fetching the credentials: none came within {FINDING_SECONDS_MAX:g} s: check the program or "
            "the service that provides them"
        ) from error


def _typed(prompt: str) -> str:
    """The code of an MFA device, typed by a user. Raises RefreshWithMFAUnsupportedError without a terminal."""
    if sys.stdin.isatty():
        return getpass.getpass(prompt)
    raise RefreshWithMFAUnsupportedError


async def _begin(*command: str, **options: Any) -> Process:  # Any: as the SDK calls it
    """Start a credential program, without our standard input; a cancelled wait kills it and all it has started."""
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, start_new_session=True, **options)
    communicate = process.communicate

    async def to_its_end() -> tuple[bytes, bytes]:
        try:
            return await communicate()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(TimeoutError):  # do not wait for one that the kernel blocks
                await asyncio.wait_for(process.wait(), _KILLED_SECONDS_MAX)
            raise

    process.communicate = to_its_end  # type: ignore[assignment]  # the SDK calls it without a word
    return process


# As a default, it also applies to providers of source profiles, which the SDK makes out of reach.
AioProcessProvider.__init__.__kwdefaults__["popen"] = _begin
