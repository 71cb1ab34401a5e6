"""Knows what to do when the files of the socket and of the snapshot have gone: whoever cleans /run takes the way in.

A socket without a name goes on serving those who are in, and nobody else finds it.
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
    """One listening socket and its file, for all lives of the daemon. Raises SocketPathError.

    `inherited` is one that the manager made, which alone can make it again.
    """

    def __init__(self, path: Path, *, mode: int, gid: int | None, inherited: socket.socket | None) -> None:
        self._path, self._mode, self._gid = path, mode, gid
        self._is_inherited = inherited is not None
        self.listening = inherited or open_socket(path, mode=mode, gid=gid)
        self.listening.setblocking(False)  # noqa: FBT003  # the method takes no other
        self._inode = self._inode_now()
        self.trouble: str | None = None  # one sentence while nobody can come in

    def mend(self) -> bool:
        """Look for the file, and make the socket anew when it is gone; whether there is another to listen on."""
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
        """Let nobody in any more; the file goes, too, unless another made it."""
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
    """Look after them for as long as the daemon lives."""
    while True:
        look_after_files(entrance, acceptor, api, troubles)
        await asyncio.sleep(LOOK_SECONDS)


def look_after_files(entrance: Entrance, acceptor: Acceptor, api: Api, troubles: Troubles) -> None:
    """Make the socket and the snapshot again where somebody has removed them."""
    if entrance.mend():
        acceptor.listen_on(entrance.listening.dup())
    troubles.note("socket", entrance.trouble)
    troubles.note("snapshot", api.mend_snapshot())
