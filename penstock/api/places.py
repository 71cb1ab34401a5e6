"""Knows how a limited number of places is shared among users: none can take all, and some are kept for control.

The threshold is dynamic, as for packets of many flows in the memory of a switch (Choudhury and Hahne, IEEE/ACM
Transactions on Networking 6, 1998): a user may hold up to twice as many places as are free at that moment. So a single
user gets two thirds of the places, two who both want all get two fifths each, and the next one still finds a place. It
needs no list of users, and nobody is turned out. The last sixteenth is reserved for those in control.
"""

from __future__ import annotations

from collections import Counter
from math import ceil

_OVER_FREE = 2  # places that one user may hold, per free place
_RESERVE_SHARE = 1 / 16


class Places:
    """How many places each user holds."""

    def __init__(self, count_max: int, count_max_per_uid: int) -> None:
        self._count_max = count_max
        self._count_max_per_uid = count_max_per_uid
        self._count_by_uid: Counter[int] = Counter()
        self._strangers = 0  # places held by users who are not in control

    def __len__(self) -> int:
        return self._count_by_uid.total()

    def take(self, uid: int, *, is_in_control: bool) -> str | None:
        """Take a place; returns None, or the end of a sentence about why this user gets none now."""
        held = self._count_by_uid[uid]
        if len(self) >= self._count_max:
            return f"all {self._count_max} are taken"
        if held >= self._count_max_per_uid:
            return f"this user holds {held}, and no user may hold more"
        if not is_in_control and held >= _OVER_FREE * self._free_to_strangers():
            return f"this user holds {held}, and few are left for the others"
        self._count_by_uid[uid] += 1
        self._strangers += not is_in_control
        return None

    def give_back(self, uid: int, *, is_in_control: bool) -> None:
        """Give a place back."""
        self._count_by_uid[uid] -= 1
        if not self._count_by_uid[uid]:
            del self._count_by_uid[uid]
        self._strangers -= not is_in_control

    def _free_to_strangers(self) -> int:
        """The places free to users who are not in control; those in control use up the reserve first."""
        reserve = ceil(_RESERVE_SHARE * self._count_max)
        of_others = max(reserve, len(self) - self._strangers)
        return self._count_max - of_others - self._strangers
