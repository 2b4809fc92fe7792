"""A run with one worker, as a person at a terminal sees it."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from elasticjob.api.rpc import environment as names
from lab.waiting import PATIENCE

SCRIPT = """
import sys
print([stream.isatty() for stream in (sys.stdout, sys.stderr)])
print("loading ... ", end="")
open(sys.argv[1]).read()
raise ValueError("no data")
"""


@pytest.mark.parametrize("start", [pytest.param("forkserver", marks=pytest.mark.story), "spawn"])
async def test_terminal_stays_one_and_shows_text_before_the_line_ends(tmp_path: Path, start: str) -> None:
    script, gate = tmp_path / "train.py", tmp_path / "gate"
    script.write_text(SCRIPT)
    os.mkfifo(gate)
    ours, theirs = pty.openpty()
    command = ("-m", "elasticjob.cli", "run", "--max-restarts", "0", "--start-method", start, script, gate)
    environment = {**os.environ, names.TERMINATION_LOG: str(tmp_path / "words")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *map(str, command), stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        seen = b""
        async with asyncio.timeout(PATIENCE):
            while b"loading ... " not in seen:
                seen += await asyncio.to_thread(terminal.read, 4096)
            assert b"[True, True]" in seen
            with gate.open("w"):
                pass
            with suppress(OSError):  # how a terminal ends
                while True:
                    seen += await asyncio.to_thread(terminal.read, 4096)
            assert await process.wait() == 1
    assert b"ValueError: no data" in seen
    if start == "forkserver":
        assert "ValueError: no data" in json.loads((tmp_path / "words").read_text())["message"]
