"""Knows how an idle process gives memory back that it no longer uses, which glibc would keep for later.

By default, each freed large block raises the size up to which glibc keeps blocks in the heap, up to 32 MiB, where one
small block above them keeps all of them; and each thread gets a heap of its own. After probes that was a sixth of the
daemon's memory. With other C libraries nothing is done.
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
# Blocks of this size are mapped and unmapped one by one: the body of a part is, the buffer of a socket is not.
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
    """From now on, use one heap for all threads, and map large blocks outside it."""
    if (library := _glibc()) is not None:
        library.mallopt(_ARENA_MAX, 1)
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)


@contextlib.contextmanager
def growing() -> Iterator[None]:
    """For a block whose objects stay for good, such as imports: they are checked for garbage once, and never again."""
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
    """For the import of aiohttp, which reads all CA certificates of the machine, twice, for connections not used here.

    For AWS, botocore brings its own; the metadata service uses none.
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
    """When memory runs out, have the kernel kill this process before the daemon it works for, and before all others."""
    with contextlib.suppress(OSError):  # not on Linux
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def give_back() -> None:
    """Give back free memory, and pages of libraries that only the start needed. Takes milliseconds."""
    if (library := _glibc()) is not None:
        library.malloc_trim(0)
        with contextlib.suppress(OSError):  # no such file in this kernel, or too many open files
            for begin, end in unchanged(_SMAPS.read_text(encoding="ascii", errors="replace")):
                library.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_DONTNEED)


def unchanged(smaps: str) -> Iterator[tuple[int, int]]:
    """Address ranges of mapped files without modified pages: the kernel can load them again when they are needed."""
    for match in _UNCHANGED.finditer(smaps):
        yield int(match["begin"], 16), int(match["end"], 16)
