"""Private keys for libraries that only read files: a path in memory where the system has one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """A path under which this process can read `content`, until the block ends; in memory on Linux."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("key")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    with tempfile.TemporaryDirectory(prefix="key-") as folder:
        path = Path(folder, "key.pem")
        path.touch(mode=0o600)
        path.write_bytes(content)
        yield str(path)
