"""How few places are shared among many users."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.api.places import Places

ROOT, HOSTILE, OTHER, NEXT = 0, 1, 2, 3


def filled(places: Places, uid: int, *, is_in_control: bool = False) -> int:
    """How many more this user gets when he takes all that he can."""
    count = 0
    while places.take(uid, is_in_control=is_in_control) is None:
        count += 1
    return count


def test_two_who_take_all_they_can_leave_places_to_the_next_and_to_root() -> None:
    """Two thirds for the first, less for the second, and there is room for a third; the reserve is root's."""
    places = Places(2048, 1280)
    counts = [filled(places, uid) for uid in (HOSTILE, OTHER, NEXT)]
    assert counts[0] == 1280
    assert counts[0] > counts[1] > counts[2] > 100
    assert filled(places, ROOT, is_in_control=True) >= 128


def test_who_leaves_makes_room_for_the_others() -> None:
    """A share is not for ever: it shrinks as the others come, and whoever holds more gets no more."""
    places = Places(160, 160)
    held = filled(places, HOSTILE)
    assert filled(places, OTHER) < held
    for _ in range(held // 2):
        places.give_back(HOSTILE, is_in_control=False)
    assert filled(places, HOSTILE) < held // 2
    assert filled(places, OTHER) > 0


def test_no_user_has_more_than_one_may_have() -> None:
    """Also those in control: a program of root's that leaks connections does not lock out the others of root."""
    assert filled(Places(100, 10), ROOT, is_in_control=True) == 10
    assert filled(Places(100, 10), HOSTILE) == 10


@given(st.integers(1, 200), st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=400))
def test_the_reserve_is_kept_whatever_strangers_do(count_max: int, acts: list[tuple[int, bool]]) -> None:
    """No more places than there are, none below nothing, and one in sixteen is root's whenever he comes."""
    places, held = Places(count_max, count_max), dict.fromkeys(range(6), 0)
    for uid, is_coming in acts:
        if is_coming:
            held[uid] += places.take(uid, is_in_control=uid == ROOT) is None
        elif held[uid]:
            places.give_back(uid, is_in_control=uid == ROOT)
            held[uid] -= 1
        assert len(places) == sum(held.values()) <= count_max
        assert sum(held.values()) - held[ROOT] <= count_max - count_max / 16
