"""Knows how hosts that read the same object tell each other: each puts a small object, its sign, beside it.

A host that uses the object renews its sign; a sign that was not renewed for days is of a host that is gone. So an
object stays as long as any host reads it, whichever host put it, and the last one to leave removes it.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.probes.outside import ObjectStore

SIGN = "used-by-"
SIGNED_SECONDS = 8 * 3600.0  # the age at which a sign is renewed
UNUSED_SECONDS = 3 * 86_400.0  # older signs do not count; a tight budget may leave days between two probes


def is_sign(key: str) -> bool:
    """Whether this is the key of a sign."""
    return key.rpartition("/")[2].startswith(SIGN)


async def is_used(store: ObjectStore, bucket: str, run: str, *, besides: Collection[str]) -> bool:
    """Whether any other host reads the object of this run, by one listing; signs in `besides` do not count.

    Raises RequestError.
    """
    listed = await store.list_shared(bucket, run + SIGN)
    return any(one.age_seconds < UNUSED_SECONDS and one.key not in besides for one in listed)
