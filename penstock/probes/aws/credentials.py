"""Knows how the SDK is had to find credentials where nobody can be asked: within bounds, or with a word of why not."""

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

FINDING_SECONDS_MAX = 30.0  # a program, or who is asked over the network, may never answer
_KILLED_SECONDS_MAX = 1.0  # until a program that was killed is gone

FoundT = TypeVar("FoundT")


def session_of(access: Access) -> AioSession:
    """Where credentials are found; roles are assumed in the region, which create_client alone would tell it."""
    session = AioSession(profile=access.profile)
    session.get_component("data_loader").file_loader = LeanFiles()
    session.set_config_variable("region", access.region)
    if access.credentials is None:
        chain = session.get_component("credential_provider")
        chain.get_provider("assume-role")._prompter = _typed  # noqa: SLF001 - the SDK would read from anywhere
    return session


async def in_time(finding: Awaitable[FoundT]) -> FoundT:
    """What is found of credentials. Raises Unidentified where that takes too long."""
    try:
        async with asyncio.timeout(FINDING_SECONDS_MAX) as limit:
            return await finding
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise Unidentified(
            f"fetching the credentials: none came within {FINDING_SECONDS_MAX:g} s: check the program or the service "
            "that gives them"
        ) from error


def _typed(prompt: str) -> str:
    """The code of an MFA device, from who sits before it."""
    if sys.stdin.isatty():
        return getpass.getpass(prompt)
    raise RefreshWithMFAUnsupportedError


async def _begin(*command: str, **options: Any) -> Process:  # Any: as the SDK calls it
    """A program that gives credentials. It reads nothing of ours, and ends with who waits for it, and all it began."""
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, start_new_session=True, **options)
    communicate = process.communicate

    async def to_its_end() -> tuple[bytes, bytes]:
        try:
            return await communicate()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(TimeoutError):  # one that the kernel holds is not waited for
                await asyncio.wait_for(process.wait(), _KILLED_SECONDS_MAX)
            raise

    process.communicate = to_its_end  # type: ignore[assignment]  # the SDK calls it without a word
    return process


# Also of those that a profile is built of, which the SDK makes where nobody gets at them.
AioProcessProvider.__init__.__kwdefaults__["popen"] = _begin
