"""Servers of the store that a test makes use memory or cores, and what workers have counted with them.

A folder that all see has the checkpoints (`kept`), a line for each batch (`steps`), what the workers wait
for before their last batches (`gate`), how often each record was counted in the end (`counts`), and what
servers are told: `hungry-POD`, `hot-POD`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Final

from lab.paths import SCRIPTS
from lab.truths.steps import Steps

COUNTER: Final = SCRIPTS / "e2e" / "seen.py"
"""A worker that counts records: its arguments are their number and the folder."""
SERVER: Final = """\
import os, runpy, sys, threading, time

folder = {folder!r}

def is_told(what):
    return os.path.exists(folder + "/" + what + "-" + os.environ["POD_NAME"])

def eat():
    while not is_told("hungry"):
        time.sleep(0.05)
    meal = bytearray(b"x") * (400 << 20)
    time.sleep(3600)

def work():
    while True:
        due = time.monotonic() + 0.05 * is_told("hot")
        while time.monotonic() < due:
            pass
        time.sleep(0.05)

for each in (eat, work):
    threading.Thread(target=each, daemon=True).start()
sys.argv = ["serve", folder + "/kept"]
runpy.run_module("elasticjob.trainer.store.serve", run_name="__main__")
"""


def serving(folder: Path) -> list[str]:
    """Return the command of a server."""
    return ["python3", "-c", SERVER.format(folder=str(folder))]


class Training:
    """The progress of the workers, as they write it to their folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.steps = Steps(folder)

    async def goes_on(self) -> None:
        """Wait for more batches."""
        await self.steps.more(20)

    def tell(self, what: str, pod: str) -> None:
        """Make a server `hungry` or `hot`."""
        (self._folder / f"{what}-{pod}").touch()

    def may_end(self) -> None:
        """Let the workers make their last batches."""
        (self._folder / "gate").touch()

    async def counts(self) -> list[float]:
        """Return how often each record was counted."""
        counts: list[float] = json.loads(await asyncio.to_thread((self._folder / "counts").read_text))
        return counts
