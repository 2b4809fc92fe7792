"""Storage and clocks that misbehave, in the agents and workers of a job: `install` changes os and time.

Files in the folder $LIFE say what is wrong now, so one job's trouble is its own:

    storage     JSON: {"kind": …, "node": …, "wait": …}; of one node alone if `node` is not empty
    clock       JSON: seconds that time.time() is ahead, by node ("" for all)
    saving      made by the first write of a checkpoint

Only paths below $LIFE/saved are storage, whether opened as files or by `life://`, which behaves as an object
store: it has no renames, and an object appears when it is closed.
"""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import fsspec
from fsspec.implementations.local import LocalFileSystem

from elasticjob.api.rpc import environment as names

FOLDER: Final = "LIFE"
SCHEME: Final = "life"
NUMBERS: Final = {
    "timeout": errno.ETIMEDOUT,
    "full": errno.ENOSPC,
    "readonly": errno.EROFS,
    "missing": errno.ENOENT,
}
WRITES: Final = {"full", "readonly"}
"""Kinds of trouble in which reading goes on."""
READING: Final = ("listdir", "scandir", "stat", "lstat")
WRITING: Final = ("mkdir", "rename", "replace", "unlink", "remove", "rmdir", "link", "symlink", "truncate")
ROOM: Final = 100
"""Bytes that still fit into a file when storage is full."""
LATE: Final = 0.3
"""Seconds that a slow write takes, and an access until it times out."""

Call = Callable[..., Any]
real: Final[dict[str, Call]] = {name: getattr(os, name) for name in (*READING, *WRITING, "open")}
real_open, real_time = io.open, time.time


def trouble() -> dict[str, Any]:
    """Return what is wrong with storage on this node now, empty if nothing is."""
    said = _said("storage")
    return said if said.get("node", "") in ("", os.environ.get(names.NODE, "")) else {}


def fail(path: Any, *, writes: bool) -> str:
    """Raise OSError if an access to `path` fails now; return the kind of trouble."""
    if not isinstance(path, (str, bytes, os.PathLike)) or not _is_storage(path):
        return ""
    kind: str = trouble().get("kind", "")
    if writes:
        _note("saving")
    if kind == "timeout" or (kind == "slow" and writes):
        time.sleep(LATE)
    if kind in NUMBERS and (writes or kind not in WRITES):
        raise OSError(NUMBERS[kind], os.strerror(NUMBERS[kind]), os.fspath(path))
    return kind


class Full(io.FileIO):
    """A file on storage that gets full while it is written."""

    def write(self, block: Any) -> int:
        """Write what fits."""
        fits = ROOM - self.tell()
        if fits <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.name)
        return super().write(memoryview(block)[:fits])


def opened(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
    """Open a file as `open` does, or as storage does now."""
    writes = any(letter in mode for letter in "wxa+")
    try:
        fail(file, writes=writes)
    except OSError as error:
        if error.errno == errno.ENOSPC and "b" in mode:
            return io.BufferedWriter(Full(real["open"](file, os.O_WRONLY | os.O_CREAT, 0o644), "wb"))
        raise
    return real_open(file, mode, *more, **named)


def guarded(name: str, *, writes: bool) -> Call:
    """Return a function of os that fails as storage does now; a full disk can still remove and rename."""
    freeing = name in ("unlink", "remove", "rmdir", "rename", "replace")

    def call(path: Any = ".", *more: Any, **named: Any) -> Any:
        if not (freeing and trouble().get("kind") == "full"):
            fail(path, writes=writes)
        return real[name](path, *more, **named)

    return call


def guarded_open(path: Any, flags: int, *more: Any, **named: Any) -> int:
    """Open a descriptor, or fail as storage does now."""
    fail(path, writes=bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)))
    found: int = real["open"](path, flags, *more, **named)
    return found


def clock() -> float:
    """Return the time of a clock that jumps; monotonic clocks do not."""
    ahead = _said("clock")
    return real_time() + float(ahead.get(os.environ.get(names.NODE, ""), ahead.get("", 0.0)))


class Bucket(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A folder as an object store: `life:///path`."""

    protocol = SCHEME
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return LocalFileSystem._strip_protocol(str(path).removeprefix(f"{SCHEME}://"))

    def _open(self, path: str, mode: str = "rb", **more: Any) -> Any:
        if "w" not in mode:
            return super()._open(path, mode, **more)
        return Upload(path)


class Upload(io.BytesIO):
    """An object that is being written: it exists, whole, when it is closed without an error."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def __exit__(self, kind: Any, *more: Any) -> None:
        if kind is None:
            self.close()
        else:
            super().close()

    def close(self) -> None:
        """Make the object."""
        if self.closed:
            return
        temporary = f"{self._path}.{os.getpid()}.upload"
        try:
            with opened(temporary, "wb") as file:
                file.write(self.getbuffer())
            real["replace"](temporary, self._path)
        finally:
            super().close()
            Path(temporary).unlink(missing_ok=True)


def _said(name: str) -> dict[str, Any]:
    folder = os.environ.get(FOLDER)
    if not folder:
        return {}
    try:
        with real_open(f"{folder}/{name}", "rb") as file:
            found: dict[str, Any] = json.loads(file.read() or "{}")
            return found
    except (OSError, ValueError):  # nothing is said, or it is being said
        return {}


def _is_storage(path: str | bytes | os.PathLike[Any]) -> bool:
    folder = os.environ.get(FOLDER)
    return bool(folder) and os.fsdecode(path).startswith(f"{folder}/saved")


def _note(name: str) -> None:
    where = Path(os.environ[FOLDER], name)
    if not os.path.exists(where):
        where.touch()


def install() -> None:
    """Put all of this in place of the originals; once."""
    if builtins.open is opened:
        return
    for name in READING:
        setattr(os, name, guarded(name, writes=False))
    for name in WRITING:
        setattr(os, name, guarded(name, writes=True))
    os.open = guarded_open
    builtins.open = io.open = opened
    time.time = clock
    fsspec.register_implementation(SCHEME, Bucket, clobber=True)
