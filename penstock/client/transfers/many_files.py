"""Knows what many files of any sizes ask of a transfer, in which batches they go, and what became of each.

Requests are what takes time, and how many should be under way depends on how large they are. So files are sorted by
size, the largest first, because what begins last must not last long. Sizes within a factor of four are asked about
together. What is advised about alike, or is too little to matter, moves in one batch.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from itertools import islice
from math import exp, log

from penstock.client.advice import Advice
from penstock.client.operations import S3_DOWNLOAD

TYPE_CHECKING = False  # `typing` costs an application 8 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    Path = str | os.PathLike[str]
    Files = Mapping[Any, str] | Iterable[tuple[Path, str]]  # Any: keys of a mapping are invariant
    Objects = Mapping[str, Any] | Iterable[tuple[str, Path] | "File"]

WINDOW_FILE_COUNT = 20_000  # that are sized, sorted and moved before more are looked for
FAILED_COUNT_MAX = 10_000  # that are kept with their reasons
PART_SIZE_BYTES_MIN = 5 << 20  # below, S3 takes no part: the whole object is one request
RANGE_SIZE_BYTES_MIN = 4 << 10  # of advice
_ALIKE_RATIO = 1.5  # of two numbers of threads
_EVIDENCE_RATIO_MAX = 16.0  # between the largest and the smallest file of what is reported as one size
# Of a name in that of the file beside it: of four bytes each they leave room for what follows.
_NAME_CHARACTERS_MAX = 60
_WAVE_COUNT_MIN = 2  # fewer waves of requests are no batch of their own


class File:
    """One file, and what became of it: `error` says why it was not moved.

    A size of -1 is not known yet. `etag` is that of an object of which no other version is to be read.
    """

    __slots__ = ("error", "etag", "key", "path", "size_bytes")

    def __init__(self, path: str, key: str, size_bytes: int = 0, error: BaseException | None = None) -> None:
        self.path = path
        self.key = key
        self.size_bytes = size_bytes
        self.error = error
        self.etag: str | None = None

    def fail(self, trouble: BaseException) -> None:
        """It was not moved; why is kept, but nothing that the frames held where it came from, such as a body."""
        self.error = cause = trouble
        while cause:
            cause.__traceback__ = None
            cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"File({self.path!r}, {self.key!r}, {self.size_bytes} bytes, {self.error!r})"


class FilesFailedError(Exception):
    """Some of many files were not moved; `failed` has each with its reason."""

    def __init__(self, sentence: str, failed: Sequence[File] = ()) -> None:
        super().__init__(sentence)
        self.failed = failed  # which unpickling sets afterwards


class Summary:
    """What became of all files; `failed` has the first 10,000 of those that were not moved."""

    def __init__(self, on_file: Callable[[File], object] | None = None) -> None:
        self.moved_count = self.moved_bytes = self.failed_count = 0
        self.failed: list[File] = []
        self._on_file = on_file

    def note(self, file: File) -> None:
        """It has moved, or it has not."""
        if file.error is None:
            self.moved_count += 1
            self.moved_bytes += file.size_bytes
        else:
            self.failed_count += 1
            if len(self.failed) < FAILED_COUNT_MAX:
                self.failed.append(file)
        if self._on_file is not None:
            self._on_file(file)

    def raise_for_failed(self) -> None:
        """Raise FilesFailedError if any file was not moved."""
        if self.failed:
            first = self.failed[0]
            raise FilesFailedError(
                f"{self.failed_count} of {self.failed_count + self.moved_count} files were not moved; "
                f"the first was {first.path}: {first.error}",
                self.failed,
            )

    def __repr__(self) -> str:
        return (
            f"Summary({self.moved_count} files moved, {self.moved_bytes} bytes, {self.failed_count} failed)"
        )


class Batch:
    """Files that move together, the largest first, and how."""

    def __init__(self, files: list[File], advice: Advice) -> None:
        from penstock.client.targets.advised import download_of, upload_of

        read = download_of if advice.operation == S3_DOWNLOAD else upload_of
        advised = read(advice.document, files[0].size_bytes)
        self.advice, self.files = advice, files
        self.size_knob = advised.size_knob
        self.thread_count = advised.thread_count
        self.part_size_bytes = advised.request_size_bytes
        self.multipart_threshold_bytes = advised.multipart_threshold_bytes
        self.rate_limit_bytes_per_second = advised.rate_limit_bytes_per_second

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def mean_bytes(self) -> int:
        return self.size_bytes // len(self.files)

    def setting(self, thread_count: int) -> dict[str, float]:
        """What is in force for a file of the mean size where no more threads can be had; as a report states it."""
        size_bytes = self.part_size_bytes
        if self.mean_bytes < self.multipart_threshold_bytes:
            size_bytes = whole_size_bytes(self.size_knob, self.mean_bytes)
        threads = min(thread_count, self.thread_count, self.request_count)
        return {"thread_count": threads, self.size_knob: size_bytes}

    @property
    def request_count(self) -> int:
        """For all files, or parts of them."""
        return sum(self.part_count(file) for file in self.files)

    def is_evidence(self) -> bool:
        """Whether what it took is that of files of one size, more or less, and all were moved."""
        largest, smallest = self.files[0].size_bytes, self.files[-1].size_bytes
        is_one_size = self.mean_bytes > 0 and largest <= _EVIDENCE_RATIO_MAX * max(1, smallest)
        return is_one_size and all(file.error is None for file in self.files)

    def part_count(self, file: File) -> int:
        """How many parts a file is sent in; one is the whole."""
        if file.size_bytes < self.multipart_threshold_bytes:
            return 1
        return -(-file.size_bytes // self.part_size_bytes)

    def joins(self, larger: Batch) -> bool:
        """Whether it moves together with one of larger files."""
        few, many = sorted((self.thread_count, larger.thread_count))
        return many <= _ALIKE_RATIO * few or self._is_little() or larger._is_little()

    def join(self, larger: Batch) -> None:
        """Take the files of a batch before it along, split as those are.

        The threads are the geometric mean of both, weighted by bytes: for where the host is the limit, that is how long
        each takes, and a number that is twice too large costs about as much as one that is half of what is right.
        """
        weights = larger.size_bytes, self.size_bytes
        if sum(weights):
            logs = weights[0] * log(larger.thread_count) + weights[1] * log(self.thread_count)
            self.thread_count = max(1, round(exp(logs / sum(weights))))
        self.part_size_bytes = larger.part_size_bytes
        self.multipart_threshold_bytes = larger.multipart_threshold_bytes
        self.files = larger.files + self.files

    def _is_little(self) -> bool:
        return self.request_count < _WAVE_COUNT_MIN * self.thread_count


def batches(files: Iterable[File], ask: Callable[[int, int], Advice]) -> list[Batch]:
    """The files in the order in which they should move; `ask` is asked about a size, and how many files have it."""
    found: list[Batch] = []
    default: Advice | None = None
    for alike in _by_size(files):
        mean_bytes = sum(file.size_bytes for file in alike) // len(alike)
        advice = default or ask(max(1, mean_bytes), len(alike))
        if advice.basis == "default":  # nobody answers: it is not tried for every size
            default = advice
        batch = Batch(alike, advice)
        if found and batch.joins(found[-1]):
            batch.join(found.pop())
        found.append(batch)
    return found


def planned(files: Files, ask: Callable[[int, int], Advice]) -> Iterator[tuple[list[Batch], list[File]]]:
    """So many files at a time: the batches in which they go, and those that do not go, with their errors.

    Of two that go to one key the second fails, where both are in one window: else one would be lost, by chance.
    """
    for window in windows(files):
        found = [_sized(os.fspath(path), key) for path, key in map(_pair, window)]
        for file, first in _seconds(found, lambda file: file.key):
            file.error = ValueError(f"{first.path!r} goes to the key {file.key!r}, too")
        yield divided(found, ask)


def wanted(objects: Objects) -> Iterator[list[File]]:
    """So many objects at a time, of the size that they are known to have. Of two that go to one file the second fails.

    To a file system `a//b` and `./a/b` are `a/b`. Which files are taken is known for as long as a window is.
    """
    for window in windows(objects):
        files = [item if isinstance(item, File) else _object(*_pair(item)) for item in window]
        for file, first in _seconds(files, lambda file: os.path.abspath(file.path)):  # noqa: PTH100 - as below
            if _is_file(file.path):
                file.error = ValueError(f"{first.key!r} goes to {file.path}, too")
                file.size_bytes = max(0, file.size_bytes)  # which is not asked for
        yield files


def _pair(item: Any) -> tuple[Any, Any]:
    """Raises TypeError; of a word the first two letters would be one."""
    try:
        if not isinstance(item, (str, bytes)):
            first, second = item
            return first, second
    except (TypeError, ValueError):
        pass
    raise TypeError(
        f"{item!r} is no pair: uploads take (path, key), downloads (key, path), or a mapping of them; "
        "see files_below and objects_below"
    )


def _object(key: str, path: Path) -> File:
    return File(os.fspath(path), key, -1)


def _seconds(files: Iterable[File], place_of: Callable[[File], Any]) -> Iterator[tuple[File, File]]:
    """Each file that goes where one before it goes already, and that one."""
    taken: dict[Any, File] = {}
    for file in files:
        if file.error is None and (first := taken.setdefault(place_of(file), file)) is not file:
            yield file, first


def windows(files: Any) -> Iterator[list[Any]]:
    """So many items of a mapping, or of anything else, at a time."""
    items = iter(files.items() if hasattr(files, "items") else files)
    while window := list(islice(items, WINDOW_FILE_COUNT)):
        yield window


def divided(found: list[File], ask: Callable[[int, int], Advice]) -> tuple[list[Batch], list[File]]:
    """The batches in which files go, and those of which it is known that they do not."""
    return (
        batches([file for file in found if file.error is None], ask),
        [file for file in found if file.error is not None],
    )


def whole_size_bytes(size_knob: str, size_bytes: int) -> int:
    """What a report states as the size of a request that moved a whole file: a legal part, or range."""
    return max(size_bytes, PART_SIZE_BYTES_MIN if size_knob == "part_size_bytes" else RANGE_SIZE_BYTES_MIN)


def files_below(folder: Path, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every file below a folder, and as its key the relative path behind the prefix; no links to folders.

    A folder that cannot be listed comes as a file would, and so is named among those that failed.
    """
    root = os.fspath(folder)
    unlisted: list[OSError] = []
    for place, _, names in os.walk(root, onerror=unlisted.append):
        for name in names:
            path = os.path.join(place, name)  # noqa: PTH118 - pathlib costs the application an import
            yield path, prefix + os.path.relpath(path, root).replace(os.sep, "/")
    for trouble in unlisted:
        yield trouble.filename, prefix + os.path.relpath(trouble.filename, root).replace(os.sep, "/")


def object_below(folder: Path, prefix: str, listed: Mapping[str, Any]) -> File | None:
    """Where an object of a listing goes; None for what only stands for a folder.

    A key may be anything. One that would lead out of the folder, or by `.` and `..` to the place of another, is not
    followed, and has that as its error.
    """
    key: str = listed["Key"]
    name = key[len(prefix) :].lstrip("/") or posixpath.basename(key)
    if key.endswith("/") or not name:
        return None
    root = os.path.abspath(os.fspath(folder))  # noqa: PTH100 - pathlib costs the application an import
    path = os.path.normpath(os.path.join(root, *name.split("/")))  # noqa: PTH118
    file = File(path, key, listed["Size"])
    file.etag = listed.get("ETag")
    if not path.startswith(root.rstrip(os.sep) + os.sep):
        file.error = ValueError(f"the key {key!r} leads out of {root}")
    elif not {".", ".."}.isdisjoint(name.split("/")):
        file.error = ValueError(
            f"the key {key!r} leads to {path}, which is the place of another key: state a path for it"
        )
    return file


def _is_file(path: str) -> bool:
    """Or will be one. What many may write to, such as /dev/null, is none."""
    return os.path.isfile(path) or not os.path.exists(path)  # noqa: PTH110, PTH113 - as above


def make_folder_of(path: str) -> None:
    """Raises OSError, also where the path is a folder itself."""
    folder = os.path.dirname(path)  # noqa: PTH120
    if folder:
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    refuse_folder(path)


def refuse_folder(path: str) -> None:
    """Raises OSError: else it would be found out when the whole object has come and is to take its place."""
    if os.path.isdir(path):  # noqa: PTH112
        raise IsADirectoryError(errno.EISDIR, "it is a folder: name the file in it", path)


def beside(path: str) -> str:
    """A name in the same folder that nothing else has."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f"{name[:_NAME_CHARACTERS_MAX]}.{os.urandom(4).hex()}")  # noqa: PTH118 - as above


def _sized(path: str, key: str) -> File:
    try:
        found = os.stat(path)  # noqa: PTH116 - as above
    except (OSError, ValueError) as trouble:
        return File(path, key, error=trouble)
    if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for, without end
        return File(path, key, error=OSError(errno.EINVAL, "it is no regular file", path))
    return File(path, key, found.st_size)


def _by_size(files: Iterable[File]) -> list[list[File]]:
    """Lists of files whose sizes lie within a factor of four, the largest first."""
    classes: dict[int, list[File]] = {}
    for file in sorted(files, key=lambda file: file.size_bytes, reverse=True):
        classes.setdefault(file.size_bytes.bit_length() // 2, []).append(file)
    return list(classes.values())
