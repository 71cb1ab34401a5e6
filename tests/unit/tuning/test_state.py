"""The file that a tuning is resumed from: crashes, strangers and rivals."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.models.s3.ranges import UploadRanges
from penstock.models.s3.upload import S3UploadSetting
from penstock.tuning.command import Failure
from penstock.tuning.state import Subject, Trial, TuningStateError, default_path, open_state
from penstock.units import MiB
from tests.unit.tuning.tuned_clients import Client, a_setting, a_trial

SUBJECT = Subject.of("./upload.sh", 512 * MiB, UploadRanges(), {})
WORKED = a_trial(Client(), a_setting(4), 0)
FAILED = a_trial(Client(), a_setting(16), 1, Failure(reason="no", stderr_tail="\ufffd\n", is_timeout=True))


def keep(path: Path, *trials: Trial, subject: Subject = SUBJECT, restart: bool = False) -> tuple[Trial, ...]:
    """Open the state, append these trials; what was in it before."""
    with open_state(path, subject, S3UploadSetting, restart=restart) as state:
        before = state.trials
        for trial in trials:
            state.append(trial)
    return before


def test_trials_come_back_as_they_were(tmp_path: Path) -> None:
    """Settings, reports, reasons and dates survive."""
    path = tmp_path / "new" / "folder" / "state"
    keep(path, WORKED, FAILED)
    assert keep(path) == (WORKED, FAILED)


def test_a_torn_last_line_is_forgotten(tmp_path: Path) -> None:
    """Wherever a crash tore the file, the whole lines count, and appending goes on after them."""
    path = tmp_path / "state"
    keep(path, WORKED, FAILED)
    whole = path.read_bytes()
    header_length = whole.index(b"\n") + 1
    first_length = whole.index(b"\n", header_length) + 1
    for length in (0, 1, header_length - 1, header_length, first_length - 1, first_length, len(whole) - 1):
        path.write_bytes(whole[:length])
        expected = (WORKED,) if length >= first_length else ()
        assert keep(path) == expected, length
        keep(path, WORKED)
        assert keep(path) == (*expected, WORKED), length


def test_restart_forgets(tmp_path: Path) -> None:
    """What was known is gone, also of another subject."""
    path = tmp_path / "state"
    keep(path, WORKED)
    other = Subject.of("./other.sh", 1, UploadRanges(), {})
    assert keep(path, subject=other, restart=True) == ()
    assert keep(path, subject=other) == ()


def test_failures_alone_are_no_beginning(tmp_path: Path) -> None:
    """When nothing ever worked, the next run begins anew."""
    path = tmp_path / "state"
    keep(path, FAILED)
    assert keep(path) == ()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("content", [b"dear diary", b"a\nb\n", b"\n", b"{}\n", b"\xff", b"[" * 9000 + b"\n"])
def test_a_file_that_is_not_ours_is_left_alone(content: bytes, restart: bool, tmp_path: Path) -> None:
    """Naming the wrong file costs nothing, even with --restart."""
    path = tmp_path / "precious"
    path.write_bytes(content)
    with pytest.raises(TuningStateError, match="left alone"):
        keep(path, restart=restart)
    assert path.read_bytes() == content


@pytest.mark.parametrize("damage", [b"\0" * 40 + b"\n", b"\xff\n", b"[" * 9000 + b"\n", b"{}\n"])
def test_a_damaged_file_of_ours_can_begin_anew(damage: bytes, tmp_path: Path) -> None:
    """It is left as it is until that is asked for."""
    path = tmp_path / "state"
    keep(path, WORKED)
    path.write_bytes(whole := path.read_bytes() + damage)
    with pytest.raises(TuningStateError, match=r"damaged.*--restart"):
        keep(path)
    assert path.read_bytes() == whole
    assert keep(path, FAILED, restart=True) == ()


def test_another_subject_is_refused(tmp_path: Path) -> None:
    """Trials of one command say nothing about another."""
    path = tmp_path / "state"
    keep(path, WORKED)
    other = Subject.of("./upload.sh", 1, UploadRanges(), {})
    with pytest.raises(TuningStateError, match="another command, size, range, endpoint"):
        keep(path, subject=other)
    assert keep(path) == (WORKED,)


def test_one_tuning_at_a_time(tmp_path: Path) -> None:
    """Two at once would measure each other."""
    path = tmp_path / "state"
    with (
        open_state(path, SUBJECT, S3UploadSetting, restart=False),
        pytest.raises(TuningStateError, match="at work"),
    ):
        keep(path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The sentence says what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(TuningStateError, match="--state"):
        keep(tmp_path / "file" / "state")


def test_a_command_may_hold_any_bytes(tmp_path: Path) -> None:
    """Those that are no text are written as they are read by people, and tell subjects apart all the same."""
    strange, other = (
        Subject.of(os.fsdecode(b"./upload \xff" + end), 1, UploadRanges(), {}) for end in (b"", b"\xfe")
    )
    assert strange.command == r"./upload \xff"
    assert default_path(strange, {}) != default_path(other, {})
    path = tmp_path / os.fsdecode(b"\xff")
    keep(path, WORKED, subject=strange)
    assert keep(path, subject=strange) == (WORKED,)
    with pytest.raises(TuningStateError, match="another command"):
        keep(path, subject=other)


@pytest.mark.parametrize("name", ["/dev/null", "/dev/full", "pipe"])
def test_what_is_no_file_is_refused(name: str, tmp_path: Path) -> None:
    """A device or a pipe keeps nothing; neither is read or waited for."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TuningStateError, match="not a regular file: name one with --state"):
        keep(tmp_path / name)


def test_each_working_directory_has_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same ./upload.sh is another command elsewhere; without a directory there is a sentence."""
    paths = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        paths.add(default_path(SUBJECT, {}))
    assert len(paths) == 2
    (tmp_path / "two").rmdir()
    with pytest.raises(TuningStateError, match="--state"):
        default_path(SUBJECT, {})


def test_each_subject_has_a_file_of_its_own(tmp_path: Path) -> None:
    """Command, size, ranges and where S3 is each make another file, in the user's state directory."""
    others = [
        Subject.of("./other.sh", 512 * MiB, UploadRanges(), {}),
        Subject.of("./upload.sh", 1, UploadRanges(), {}),
        Subject.of("./upload.sh", 512 * MiB, UploadRanges(thread_count_max=9), {}),
        Subject.of("./upload.sh", 512 * MiB, UploadRanges(), {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}),
        Subject.of("./upload.sh", 512 * MiB, UploadRanges(), {"AWS_PROFILE": "far"}),
    ]
    paths = {default_path(subject, {"XDG_STATE_HOME": str(tmp_path)}) for subject in [SUBJECT, *others]}
    assert len(paths) == 6
    assert {path.parent for path in paths} == {tmp_path / "penstock"}
    assert default_path(SUBJECT, {"XDG_STATE_HOME": "relative"}).is_relative_to(Path.home())
