"""The agent's folder for small files, removed at its end, or by the next agent if it was killed.

Its owner holds a lock on it, which the kernel releases however the owner ends: a folder that can be locked
has no owner any more.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PREFIX: Final = "elasticjob-agent-"


@contextmanager
def own_folder(parent: Path | None = None) -> Iterator[Path]:
    """Create a new folder below `parent` (default: the system's); sweep those of killed agents."""
    sweep(parent or Path(tempfile.gettempdir()))
    while (fd := hold(folder := Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)))) is None:
        pass  # another agent swept it before it was locked
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(fd)


def sweep(parent: Path) -> None:
    """Remove the folders that no agent has locked."""
    for folder in parent.glob(f"{PREFIX}*"):
        fd = hold(folder)
        if fd is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(fd)


def hold(folder: Path) -> int | None:
    """Lock a folder; None if another process holds the lock, or it is gone, or it is another user's."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    if not os.fstat(fd).st_nlink:
        os.close(fd)
        return None
    return fd
