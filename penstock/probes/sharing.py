"""Knows how hosts that read one object tell each other that they do: by a small key of each beside it.

Whoever uses it writes its key anew; a key that nobody wrote for days is of a host that is no more. So what somebody
reads stays, whoever put it, and who leaves last removes it.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.probes.outside import ObjectStore

SIGN = "used-by-"
SIGNED_SECONDS = 8 * 3600.0  # from then on it is written anew
UNUSED_SECONDS = 3 * 86_400.0  # a tight budget may leave days between two probes


def is_sign(key: str) -> bool:
    """Whether this is such a key."""
    return key.rpartition("/")[2].startswith(SIGN)


async def is_used(store: ObjectStore, bucket: str, run: str, *, besides: Collection[str]) -> bool:
    """Whether anybody reads what lies in this run, by one listing; `besides` are keys that tell of nobody else.

    Raises RequestError.
    """
    listed = await store.list_shared(bucket, run + SIGN)
    return any(one.age_seconds < UNUSED_SECONDS and one.key not in besides for one in listed)
