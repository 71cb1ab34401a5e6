"""Knows how to restore the socket file and the snapshot file when somebody removed them, as by cleaning /run.

A listening socket whose file is gone goes on serving its connections, but no new client can find it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path

from penstock.api.acceptor import Acceptor
from penstock.api.listener import SocketPathError, open_socket, remove_socket
from penstock.api.routes import Api
from penstock.daemon.troubles import Troubles

LOOK_SECONDS = 10.0

log = logging.getLogger(__name__)


class Entrance:
    """The listening socket and its file, which outlive reloads. Raises SocketPathError.

    `inherited` is a socket that the service manager made; then only the manager can make it again.
    """

    def __init__(self, path: Path, *, mode: int, gid: int | None, inherited: socket.socket | None) -> None:
        self._path, self._mode, self._gid = path, mode, gid
        self._is_inherited = inherited is not None
        self.listening = inherited or open_socket(path, mode=mode, gid=gid)
        self.listening.setblocking(False)  # noqa: FBT003  # the method takes no other
        self._inode = self._inode_now()
        self.trouble: str | None = None  # one sentence while no new client can connect

    def mend(self) -> bool:
        """Check the socket file and make the socket again if it is gone; returns whether `listening` is a new one."""
        if self._inode_now() == self._inode:
            self.trouble = None
        elif self._is_inherited:
            self.trouble = (
                f"the socket {self._path} was removed or replaced, and systemd made it: `systemctl restart "
                "penstock.socket penstock.service`"
            )
        else:
            return self._reopen()
        return False

    def close(self) -> None:
        """Stop listening and remove the file, unless the service manager made it."""
        self.listening.close()
        if not self._is_inherited:
            remove_socket(self._path)

    def _reopen(self) -> bool:
        try:
            listening = open_socket(self._path, mode=self._mode, gid=self._gid)
        except SocketPathError as refusal:
            self.trouble = f"the socket was removed or replaced: {refusal}"
            return False
        log.warning("the socket %s was removed or replaced; it is there again", self._path)
        listening.setblocking(False)  # noqa: FBT003  # as above
        self.listening.close()
        self.listening, self._inode, self.trouble = listening, self._inode_now(), None
        return True

    def _inode_now(self) -> int | None:
        try:
            return self._path.lstat().st_ino
        except OSError:
            return None


async def keep_files(entrance: Entrance, acceptor: Acceptor, api: Api, troubles: Troubles) -> None:
    """Check both files every `LOOK_SECONDS` seconds, for as long as the daemon lives."""
    while True:
        look_after_files(entrance, acceptor, api, troubles)
        await asyncio.sleep(LOOK_SECONDS)


def look_after_files(entrance: Entrance, acceptor: Acceptor, api: Api, troubles: Troubles) -> None:
    """Make the socket and the snapshot again if somebody removed them."""
    if entrance.mend():
        acceptor.listen_on(entrance.listening.dup())
    troubles.note("socket", entrance.trouble)
    troubles.note("snapshot", api.mend_snapshot())
