"""Processes of our own beside the workers, which are asked by lines and answer by lines."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from elasticjob.trainer.agent.processes import tether


def spawn(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, with pipes; it dies with this process."""
    return subprocess.Popen(
        [sys.executable, "-m", tether.__name__, str(os.getpid()), *command],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )


async def lines_of(process: subprocess.Popen[bytes]) -> asyncio.StreamReader:
    """Return the reader of a process's stdout."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
    return reader
