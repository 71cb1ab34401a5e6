"""Knows a program on a socket that may be no daemon: it says one thing to one caller, and hangs up."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def speaking(path: Path, spoken: bytes) -> Iterator[None]:
    """As long as the block; who calls is heard first."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def speak() -> None:
            with listening.accept()[0] as connection:
                connection.recv(65536)
                with contextlib.suppress(OSError):
                    connection.sendall(spoken)

        speaker = threading.Thread(target=speak)
        speaker.start()
        yield
        speaker.join()
