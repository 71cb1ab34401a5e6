"""Knows in which batches many files of different sizes move, and what became of each file.

Time goes into requests, and how many should be in flight depends on their size. So files are sorted by size, the
largest first, because what starts last must be short. Sizes within a factor of four are asked about together. Groups
that are advised about alike, or that are too small to matter, move in one batch.
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

WINDOW_FILE_COUNT = 20_000  # sized, sorted and moved before more are listed
FAILED_COUNT_MAX = 10_000  # kept with their reasons
PART_SIZE_BYTES_MIN = 5 << 20  # S3 accepts no smaller part; a smaller object is one request
RANGE_SIZE_BYTES_MIN = 4 << 10  # that is ever advised
_ALIKE_RATIO = 1.5  # between two thread counts that are about equal
_EVIDENCE_RATIO_MAX = 16.0  # between largest and smallest file of a batch reported as one size
# Kept of a name for its temporary file: even at four bytes a character, the suffix fits a file name of 255 bytes.
_NAME_CHARACTERS_MAX = 60
_WAVE_COUNT_MIN = 2  # a batch with fewer waves of requests joins another


class File:
    """One file to move; after a failure `error` says why.

    `size_bytes` is -1 while it is unknown. `etag` is that of the only version of the object that may be read.
    """

    __slots__ = ("error", "etag", "key", "path", "size_bytes")

    def __init__(self, path: str, key: str, size_bytes: int = 0, error: BaseException | None = None) -> None:
        self.path = path
        self.key = key
        self.size_bytes = size_bytes
        self.error = error
        self.etag: str | None = None

    def fail(self, trouble: BaseException) -> None:
        """Keep why it was not moved, without tracebacks, whose frames would keep bodies in memory."""
        self.error = cause = trouble
        while cause:
            cause.__traceback__ = None
            cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"File({self.path!r}, {self.key!r}, {self.size_bytes} bytes, {self.error!r})"


class FilesFailedError(Exception):
    """Some files were not moved; `failed` lists them with their reasons."""

    def __init__(self, sentence: str, failed: Sequence[File] = ()) -> None:
        super().__init__(sentence)
        self.failed = failed  # unpickling sets it after construction


class Summary:
    """What became of all files.

    `moved_count`, `moved_bytes` and `failed_count` are totals; `failed` has the first 10,000 files that were not moved.
    """

    def __init__(self, on_file: Callable[[File], object] | None = None) -> None:
        self.moved_count = self.moved_bytes = self.failed_count = 0
        self.failed: list[File] = []
        self._on_file = on_file

    def note(self, file: File) -> None:
        """Count a file that has ended, moved or failed."""
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
    """Files that move together, the largest first, and with which setting."""

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
        """The setting with which a file of the mean size moves if no more threads can be had, as reports state it."""
        size_bytes = self.part_size_bytes
        if self.mean_bytes < self.multipart_threshold_bytes:
            size_bytes = whole_size_bytes(self.size_knob, self.mean_bytes)
        threads = min(thread_count, self.thread_count, self.request_count)
        return {"thread_count": threads, self.size_knob: size_bytes}

    @property
    def request_count(self) -> int:
        """Requests for all files, counting each part."""
        return sum(self.part_count(file) for file in self.files)

    def is_evidence(self) -> bool:
        """Whether all files were moved and are about equally large, so that the time taken tells about that size."""
        largest, smallest = self.files[0].size_bytes, self.files[-1].size_bytes
        is_one_size = self.mean_bytes > 0 and largest <= _EVIDENCE_RATIO_MAX * max(1, smallest)
        return is_one_size and all(file.error is None for file in self.files)

    def part_count(self, file: File) -> int:
        """How many parts a file is sent in; 1 if it is sent whole."""
        if file.size_bytes < self.multipart_threshold_bytes:
            return 1
        return -(-file.size_bytes // self.part_size_bytes)

    def joins(self, larger: Batch) -> bool:
        """Whether this batch should move together with one of larger files."""
        few, many = sorted((self.thread_count, larger.thread_count))
        return many <= _ALIKE_RATIO * few or self._is_little() or larger._is_little()

    def join(self, larger: Batch) -> None:
        """Add the files of the batch before, and split all files as that batch does.

        The thread count is the geometric mean of both counts, weighted by bytes: where the host is the limit, bytes are
        the time that each takes, and twice the right number of threads costs about as much as half of it.
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
    """The files in batches, in the order to move them; `ask` takes a size in bytes, and how many files have it."""
    found: list[Batch] = []
    default: Advice | None = None
    for alike in _by_size(files):
        mean_bytes = sum(file.size_bytes for file in alike) // len(alike)
        advice = default or ask(max(1, mean_bytes), len(alike))
        if advice.basis == "default":  # no daemon answers: do not ask again for every size
            default = advice
        batch = Batch(alike, advice)
        if found and batch.joins(found[-1]):
            batch.join(found.pop())
        found.append(batch)
    return found


def planned(files: Files, ask: Callable[[int, int], Advice]) -> Iterator[tuple[list[Batch], list[File]]]:
    """For each window of files: the batches to move, and the files that cannot be moved, with their errors.

    Of two files with the same key in one window, the second fails: otherwise chance would decide which one is lost.
    """
    for window in windows(files):
        found = [_sized(os.fspath(path), key) for path, key in map(_pair, window)]
        for file, first in _seconds(found, lambda file: file.key):
            file.error = ValueError(f"{first.path!r} goes to the key {file.key!r}, too")
        yield divided(found, ask)


def wanted(objects: Objects) -> Iterator[list[File]]:
    """Windows of objects, with their sizes as far as known. Of two with the same destination, the second fails.

    `a//b`, `./a/b` and `a/b` are the same file. Destinations are compared within one window only.
    """
    for window in windows(objects):
        files = [item if isinstance(item, File) else _object(*_pair(item)) for item in window]
        for file, first in _seconds(files, lambda file: os.path.abspath(file.path)):  # noqa: PTH100 - as below
            if _is_file(file.path):
                file.error = ValueError(f"{first.key!r} goes to {file.path}, too")
                file.size_bytes = max(0, file.size_bytes)  # so that it is not looked up
        yield files


def _pair(item: Any) -> tuple[Any, Any]:
    """The two members of a pair. Raises TypeError; a string is refused, else its two letters could be taken for one."""
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
    """Each file whose place is already taken by an earlier one, and that one."""
    taken: dict[Any, File] = {}
    for file in files:
        if file.error is None and (first := taken.setdefault(place_of(file), file)) is not file:
            yield file, first


def windows(files: Any) -> Iterator[list[Any]]:
    """The items of a mapping, or of any other iterable, in lists of `WINDOW_FILE_COUNT`."""
    items = iter(files.items() if hasattr(files, "items") else files)
    while window := list(islice(items, WINDOW_FILE_COUNT)):
        yield window


def divided(found: list[File], ask: Callable[[int, int], Advice]) -> tuple[list[Batch], list[File]]:
    """The batches to move, and the files that already have an error."""
    return (
        batches([file for file in found if file.error is None], ask),
        [file for file in found if file.error is not None],
    )


def whole_size_bytes(size_knob: str, size_bytes: int) -> int:
    """The request size in bytes that a report states for a file moved whole: at least the smallest part or range."""
    return max(size_bytes, PART_SIZE_BYTES_MIN if size_knob == "part_size_bytes" else RANGE_SIZE_BYTES_MIN)


def files_below(folder: Path, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every file below a folder with its key: the prefix and the relative path; links to folders are not followed.

    A folder that cannot be listed is yielded like a file, so that it ends up among the failed ones.
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
    """Where an object of a listing goes; None for a placeholder of a folder.

    A key may be any text. One that would lead out of the folder, or by `.` and `..` to the path of another key, gets an
    error instead.
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
    """Whether it is, or would become, a regular file; special files such as /dev/null may be written by many."""
    return os.path.isfile(path) or not os.path.exists(path)  # noqa: PTH110, PTH113 - as above


def make_folder_of(path: str) -> None:
    """Make the folder of a path. Raises OSError, also if the path itself is a folder."""
    folder = os.path.dirname(path)  # noqa: PTH120
    if folder:
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    refuse_folder(path)


def refuse_folder(path: str) -> None:
    """Raises OSError if the path is a folder; else that would show only after the whole download."""
    if os.path.isdir(path):  # noqa: PTH112
        raise IsADirectoryError(errno.EISDIR, "it is a folder: name the file in it", path)


def beside(path: str) -> str:
    """The path of a new file in the same folder, with a random suffix."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f"{name[:_NAME_CHARACTERS_MAX]}.{os.urandom(4).hex()}")  # noqa: PTH118 - as above


def _sized(path: str, key: str) -> File:
    try:
        found = os.stat(path)  # noqa: PTH116 - as above
    except (OSError, ValueError) as trouble:
        return File(path, key, error=trouble)
    if not stat.S_ISREG(found.st_mode):  # opening a pipe could block for ever
        return File(path, key, error=OSError(errno.EINVAL, "it is no regular file", path))
    return File(path, key, found.st_size)


def _by_size(files: Iterable[File]) -> list[list[File]]:
    """The files in groups whose sizes lie within a factor of four, the largest first."""
    classes: dict[int, list[File]] = {}
    for file in sorted(files, key=lambda file: file.size_bytes, reverse=True):
        classes.setdefault(file.size_bytes.bit_length() // 2, []).append(file)
    return list(classes.values())
