"""Who is at the other end, from what the kernel says in bytes."""

from __future__ import annotations

import socket
import struct
from typing import cast

from penstock.api.peer import peer_behind

LARGE = 3_000_000_000  # as directories hand them out: more than a signed number holds


class KernelsWord:
    """What is asked of a connection, of a user and a group with large numbers."""

    def getsockopt(self, _level: int, option: int, _length: int) -> bytes:
        """The credentials, or the supplementary groups: none."""
        return struct.pack("=iII", 42, LARGE, LARGE + 1) if option == socket.SO_PEERCRED else b""


def test_large_numbers_of_users_and_groups_are_what_they_are() -> None:
    """As a negative number no group is the control group, and no user is the one in the list of leases."""
    peer = peer_behind(cast("socket.socket", KernelsWord()))
    assert (peer.process_id, peer.uid, peer.group_ids) == (42, LARGE, frozenset({LARGE + 1}))
    assert peer.is_in_control(LARGE + 1)
