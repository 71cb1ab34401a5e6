"""Knows which process is at the other end of a unix socket's connection, as the kernel tells it."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass

_UCRED = struct.Struct("iII")  # users and groups are numbers up to 2^32, as directories hand them out
_SO_PEERGROUPS = 59  # not in the socket module: the supplementary groups of the peer (Linux 4.13)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The identity of a process at the moment it connected."""

    process_id: int
    uid: int
    group_ids: frozenset[int]

    def is_in_control(self, control_gid: int | None) -> bool:
        """Whether it may do more than ask questions: root, the daemon's own user, and members of this group may."""
        return self.uid in {0, os.geteuid()} or control_gid in self.group_ids


def peer_behind(connection: socket.socket) -> Peer:
    """The identity of the process behind a connection."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    process_id, uid, gid = _UCRED.unpack(credentials)
    try:
        packed = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 1024)
    except OSError:  # more groups than Python can ask for: the primary one remains
        packed = b""
    supplementary = struct.unpack(f"{len(packed) // 4}I", packed)
    return Peer(process_id=process_id, uid=uid, group_ids=frozenset({gid, *supplementary}))
