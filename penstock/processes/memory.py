"""Knows how a process that rests gives back what it no longer uses: glibc alone keeps it for the next time.

By itself glibc takes every block that was freed as a sign to keep blocks of that size in the heap, up to 32 MiB, where
one small block above them holds them all; and it gives each thread a heap of its own. After probes that was a sixth of
the daemon's memory. Without glibc nothing is done.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_ARENA_MAX = -8  # names of <malloc.h>
_MMAP_THRESHOLD = -3
# Mapped and unmapped for itself: the body of a part is, what a socket reads at a time is not.
_LARGE_BYTES = 1 << 20

_MADV_DONTNEED = 4
_SMAPS = Path("/proc/self/smaps")
_UNCHANGED = re.compile(
    r"^(?P<begin>[0-9a-f]+)-(?P<end>[0-9a-f]+) r-[x-]p \S+ \S+ \S+ +/.*\n(?:[A-Z].*\n)*?Anonymous: +0 kB$",
    re.MULTILINE,
)


@cache
def _glibc() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None)
    return library if hasattr(library, "malloc_trim") and hasattr(library, "mallopt") else None


def keep_little() -> None:
    """From now on: one heap for all threads, and large blocks beside it."""
    if (library := _glibc()) is not None:
        library.mallopt(_ARENA_MAX, 1)
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)


@contextlib.contextmanager
def growing() -> Iterator[None]:
    """What is made here stays: it is looked through for garbage once, and never again."""
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
        give_back()


@contextlib.contextmanager
def without_certificates() -> Iterator[None]:
    """For aiohttp, which as it is imported reads all that the machine has, twice, for connections never opened here.

    To AWS botocore brings its own; the metadata service has none.
    """
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = os.devnull
    try:
        yield
    finally:
        del os.environ["SSL_CERT_FILE"]
        if before is not None:
            os.environ["SSL_CERT_FILE"] = before


def go_first() -> None:
    """When memory ends, the kernel ends this process before the daemon that it works for, and all others."""
    with contextlib.suppress(OSError):  # not on Linux
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def give_back() -> None:
    """What is free now, and what of libraries only the start needed. Takes milliseconds."""
    if (library := _glibc()) is not None:
        library.malloc_trim(0)
        with contextlib.suppress(OSError):  # a kernel may be built without it, and a file may be one too many
            for begin, end in unchanged(_SMAPS.read_text(encoding="ascii", errors="replace")):
                library.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_DONTNEED)


def unchanged(smaps: str) -> Iterator[tuple[int, int]]:
    """Where files lie of which no page differs: the kernel keeps them anyway, and maps again what is needed again."""
    for match in _UNCHANGED.finditer(smaps):
        yield int(match["begin"], 16), int(match["end"], 16)
