"""Blocks in shared memory: those of this node's workers, and copies of those of other nodes.

A slot has two blocks, so that one is whole while the other is written; a third one is made while one of them
is read for long. A writer holds the exclusive lock of a block's file, a reader a shared one: the kernel
releases both, however their owner ends. What shared memory has no room for (a container has 64 MiB of it by
default) is on disk: as slow as that, and safe.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from elasticjob.trainer.checkpoint import part
from elasticjob.trainer.checkpoint.part import Damaged, Head, Save

FOLDER: Final = "ELASTICJOB_MEMORY"  # the folder for the blocks of a node, which its agent sets
SERVER: Final = "ELASTICJOB_MEMORY_SERVER"  # host:port at which a node's agent serves them
SPILL: Final = "spill"  # a link in that folder to one on disk, for blocks that memory has no room for
SEEN: Final = "seen-"  # begins the name of a file with the newest step that was seen in a place
GIVEN: Final = "given-"  # begins the name of a file with the save of a block that the next node has a copy of
MOST: Final = 3  # blocks of one slot
NOT_WHOLE: Final = (-1, -1)
ZEROS: Final = memoryview(bytes(1 << 20))
Pin = Callable[[memoryview], Callable[[], object]]
"""Does something with a block that was mapped; returns what undoes that, before it is unmapped."""


@dataclass(frozen=True)
class Block:
    """A whole block, and the file that has it."""

    path: Path
    head: Head


class NoRoom(OSError):
    """There is not enough memory for a block."""


class Writer:
    """The blocks of one slot, written by one process."""

    def __init__(self, folder: Path, slot: str, pin: Pin = lambda _: bool) -> None:
        self._folder, self._slot, self._pin = folder, slot, pin
        self._open: dict[Path, SharedMapping] = {}

    @contextmanager
    def block(self, size: int) -> Iterator[memoryview]:
        """Lend the block to be overwritten, of `size` bytes or more, for a `with` statement.

        The newest whole block is never taken. NoRoom if there is no memory for it.
        """
        path, fd = self._choose()
        try:
            mapped = self._map(path, fd, size)
        except NoRoom as error:
            unlock(fd)
            fd, mapped = self._spill(path, size, error)
        try:
            yield mapped.view
        finally:
            unlock(fd)

    def prepare(self, size: int) -> None:
        """Take memory for two blocks, as far as there is some: their first saves need not wait for it."""
        for number in range(2):
            path = self._path(number)
            if (fd := lock(path, fcntl.LOCK_EX)) is None:
                continue
            try:
                if os.fstat(fd).st_size < size and _age(fd) == NOT_WHOLE:
                    _reserve(fd, path, size)
                    for at in range(0, size, len(ZEROS)):  # the kernel clears a page when it is first used
                        os.pwrite(fd, ZEROS[: size - at], at)
            except NoRoom:
                return  # a save tells, or finds another place
            finally:
                unlock(fd)

    def _choose(self) -> tuple[Path, int]:
        """Return the oldest block that nobody reads, or a new one, with its lock."""
        ages: list[tuple[tuple[int, int], Path, int]] = []
        for number in range(MOST):
            path = self._path(number)
            made = not path.exists()
            if made and len(ages) > 1:
                break
            if (fd := lock(path, fcntl.LOCK_EX)) is not None:
                ages.append((_age(fd), path, fd))
            if made:
                break
        ages.sort()
        if not ages or (len(ages) == 1 and ages[0][0] != NOT_WHOLE):
            for *_, fd in ages:
                unlock(fd)
            raise NoRoom(f"the other blocks of {self._slot} in {self._folder} are being read")
        (_, path, fd), *others = ages
        for _, _, other in others:
            unlock(other)
        return path, fd

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._slot}.{number}"

    def _spill(self, path: Path, size: int, full: NoRoom) -> tuple[int, SharedMapping]:
        """Return a locked block where there is more room, with a link to it; NoRoom if there is none."""
        beside = self._folder / SPILL
        if path.is_symlink() or not beside.is_dir():
            raise full
        path.unlink(missing_ok=True)
        path.symlink_to(beside.resolve() / path.name)
        fd = lock(path, fcntl.LOCK_EX)
        if fd is None:
            raise full
        try:
            return fd, self._map(path, fd, size)
        except NoRoom:
            unlock(fd)
            raise

    def _map(self, path: Path, fd: int, size: int) -> SharedMapping:
        known = self._open.get(path)
        if known is not None and known.is_of(fd) and len(known.view) >= size:
            part.begin(known.view)
            return known
        if known is not None:
            self._open.pop(path).close()
        _reserve(fd, path, size)
        self._open[path] = mapped = SharedMapping(fd, self._pin)
        part.begin(mapped.view)
        return mapped

    def close(self) -> None:
        """Unmap all blocks; they stay in memory."""
        while self._open:
            self._open.popitem()[1].close()


class SharedMapping:
    """A file of shared memory in this process's address space."""

    def __init__(self, fd: int, pin: Pin) -> None:
        self._inode = os.fstat(fd).st_ino
        self._map = mmap.mmap(fd, 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self.view = memoryview(self._map)
        self._unpin = weakref.finalize(self, pin(self.view))

    def is_of(self, fd: int) -> bool:
        """Whether this is the file open as `fd`."""
        return os.fstat(fd).st_ino == self._inode

    def close(self) -> None:
        """Unmap it, unless tensors still use it."""
        self._unpin()
        self.view.release()
        with suppress(BufferError):
            self._map.close()


@contextmanager
def reading(path: Path) -> Iterator[memoryview]:
    """Lend a whole block for a `with` statement, in which nobody overwrites it. Damaged if there is none."""
    fd = lock(path, fcntl.LOCK_SH, create=False)
    if fd is None:
        raise Damaged(f"{path} is being written, or gone")
    try:
        if not (size := os.fstat(fd).st_size):
            raise Damaged(f"{path} is empty")
        mapped = mmap.mmap(fd, size, access=mmap.ACCESS_COPY)
        view = memoryview(mapped)
        yield view[: part.size_of(view)]
        with suppress(BufferError):  # the last tensors on it go with whoever has read them
            view.release()
            mapped.close()
    finally:
        unlock(fd)


def mark_of(where: str) -> str:
    """Return the end of the names of blocks of one place: a script may keep checkpoints in several."""
    return f"{crc32(os.fsencode(where)):08x}"


def path_of(mark: str, save: Save, number: int) -> str:
    """Return the URL's path of a part at the server of a node's memory (`agent/checkpoints/endpoint.py`)."""
    return f"/v1/memory/{mark}/{save.step}/{save.round}/{number}"


def blocks_of(folder: Path, mark: str = "") -> list[Block]:
    """Return all whole blocks of a node, or those with a mark, the newest ones first."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() or path.name.startswith((SEEN, GIVEN)) or not path.stem.endswith(mark):
            continue
        with suppress(Damaged), reading(path) as block:
            head = part.head_in(block)
            found.append(Block(path, head))
    return sorted(found, key=lambda each: (each.head.save, each.path.name), reverse=True)


def forget(folder: Path, mark: str, after: int) -> None:
    """Take the blocks of steps `after` one for not whole: a training that goes on from it makes them anew.

    They are overwritten first then, and not the ones that it went on from.
    """
    for each in blocks_of(folder, mark):
        if each.head.step > after and (fd := lock(each.path, fcntl.LOCK_EX, create=False)) is not None:
            with mmap.mmap(fd, part.START) as first, memoryview(first) as view:
                part.begin(view)
            unlock(fd)


def note(path: Path, text: str) -> None:
    """Write a small file that others find whole; several processes may do so at once."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


def say_given(folder: Path, block: str, save: Save) -> None:
    """Note that the next node has a copy of a block, or cannot have one."""
    note(folder / f"{GIVEN}{block}", f"{save.round} {save.step}")


def is_given(folder: Path, block: str, save: Save) -> bool:
    """Whether the next node has a copy of a block, or cannot have one."""
    try:
        given = (folder / f"{GIVEN}{block}").read_text().split()
    except FileNotFoundError:
        return False
    return [int(each) for each in given] >= [save.round, save.step]


def lock(path: Path, kind: int, *, create: bool = True) -> int | None:
    """Open and lock a file; None if it is locked otherwise, or is not there."""
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    try:
        fd = os.open(path, flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def unlock(fd: int) -> None:
    """Give a lock back and close its file; a mapping of it would hold the lock as long as it lives."""
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def _age(fd: int) -> tuple[int, int]:
    """Return the round and step of a block, for sorting; one that is not whole is the oldest."""
    try:
        head = part.head_of(lambda at, size: os.pread(fd, size, at))
    except Damaged:
        return NOT_WHOLE
    return head.round, head.step


def _reserve(fd: int, path: Path, size: int) -> None:
    """Take memory for the whole file now: without it, a write to the mapping would be a SIGBUS."""
    try:
        os.ftruncate(fd, size)  # what it has of that stays: new pages cost more than the copy
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        with suppress(OSError):
            os.ftruncate(fd, 0)
        free = os.statvfs(path.parent)
        raise NoRoom(
            error.errno,
            f"no memory for a checkpoint of {size} bytes: {path.parent} has {free.f_bavail * free.f_frsize} "
            "free; give the pod more memory, or mount a larger emptyDir of medium Memory there",
        ) from error
