"""Where things are that probes made, and whose they are, is in the journal and not in the probe."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from penstock.daemon.memory.rows import plain_document
from penstock.daemon.memory.store import Store
from penstock.daemon.outside.whereabouts import PlacedJournal
from penstock.operations.table import setting_types
from tests.factories import a_leftover
from tests.unit.daemon.house import WHEREABOUTS
from tests.unit.probes.fakes import MemoryJournal

MINE = a_leftover()
HERE = dataclasses.replace(WHEREABOUTS, machine="here")


async def test_a_probe_knows_again_what_an_earlier_life_of_this_machine_made() -> None:
    """The queue of a life that was killed was found, taken for an application's, and deleted between two probes."""
    memory = MemoryJournal()
    journal = PlacedJournal(memory, HERE)
    await journal.record(MINE)
    assert [entry.machine for entry in memory.entries] == ["here"]
    assert MINE in await journal.open_entries()
    assert MINE not in await PlacedJournal(memory, dataclasses.replace(HERE, machine="copy")).open_entries()


def test_whose_it_is_is_told_only_where_both_machines_are_known() -> None:
    """An entry of an older penstock, and a machine that tells no identity, are as they were."""
    made = HERE.located(MINE)
    assert not HERE.is_of_another(made)
    assert not HERE.is_of_another(MINE)
    assert not WHEREABOUTS.is_of_another(made)
    assert dataclasses.replace(HERE, machine="copy").is_of_another(made)


def test_whose_it_is_is_found_in_the_bytes_of_a_broken_file(tmp_path: Path) -> None:
    """What was saved without it would be swept by a copy."""
    path, entries = tmp_path / "penstock.db", [HERE.located(MINE), MINE]
    path.write_text(" ".join(map(plain_document, entries)))
    store = Store(path, setting_types())
    assert set(store.open_leftovers()) == set(entries)
    store.close()
