"""Knows the findings of `penstock doctor`: one sentence about one thing, and what to do about it."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from penstock.probes.outside import (
    Barred,
    Denied,
    Forbidden,
    Missing,
    NotOffered,
    RequestError,
    Throttled,
    Unidentified,
    Unreachable,
)

AnswerT = TypeVar("AnswerT")


class Health(StrEnum):
    """The state of a thing, best first."""

    WELL = "well"
    UNKNOWN = "unknown"  # it cannot be seen from here
    POOR = "poor"  # it works, but not as well as it could
    ILL = "ill"  # it keeps probes or applications from working


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about one thing."""

    subject: str
    health: Health
    sentence: str
    remedy: str = ""
    cause: str = ""  # the reason of a failure, without what was tried: equal for all failures of one cause

    def document(self) -> dict[str, str]:
        """The finding as JSON values."""
        return {
            "subject": self.subject,
            "health": self.health,
            "sentence": self.sentence,
            "remedy": self.remedy,
        }


NO_CREDENTIALS = (
    "attach a role to this host, or set aws.profile; run this as the user penstock, with the environment "
    "that `systemctl edit penstock` gives it; in a container on EC2 the instance metadata need a hop limit of 2"
)
NO_ANSWER = "check endpoint, route, security group and DNS"
_TROUBLES: tuple[tuple[type[RequestError], Health, str], ...] = (
    (Unidentified, Health.ILL, NO_CREDENTIALS),
    (Barred, Health.ILL, ""),
    (Forbidden, Health.ILL, "exempt this from the policy that denies {action}, or configure another place"),
    (Denied, Health.ILL, "allow {action}, as the IAM policy that comes with the service does"),
    (Unreachable, Health.ILL, NO_ANSWER),
    (Throttled, Health.UNKNOWN, "try again later"),
    (NotOffered, Health.POOR, ""),
    (RequestError, Health.ILL, ""),
)


async def tried(
    subject: str, action: str, act: Awaitable[object], *, if_missing: str = "", if_denied: str = ""
) -> Finding:
    """Try whether an action is permitted; an answer that the thing does not exist also shows that it is.

    `action` is its name in a policy, such as ``s3:AbortMultipartUpload``. `if_missing` is the remedy where the thing
    has to exist; `if_denied` is what else may be in the way, beside a missing permission.
    """
    finding, _ = await asked(subject, action, act, if_missing=if_missing, if_denied=if_denied)
    return finding


async def asked(
    subject: str, action: str, act: Awaitable[AnswerT], *, if_missing: str = "", if_denied: str = ""
) -> tuple[Finding, AnswerT | None]:
    """The same as `tried`, and the answer; None where there was none."""
    answer, found = None, Finding(subject, Health.WELL, f"{action} is permitted")
    try:
        answer = await act
    except RequestError as trouble:
        sentence = f"{action}: {trouble}"
        if not isinstance(trouble, Missing):
            health, remedy = next((h, r) for kind, h, r in _TROUBLES if isinstance(trouble, kind))
            more = if_denied if type(trouble) is Denied else ""
            found = Finding(subject, health, sentence, remedy.format(action=action) + more, trouble.reason)
        elif if_missing:
            found = Finding(subject, Health.ILL, sentence, if_missing, trouble.reason)
    return found, answer
