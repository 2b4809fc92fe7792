"""The examples over the store learn, on two servers and two workers, one of each killed on the way."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticjob.cli.laptop.ports import free_port
from elasticjob.trainer.store import read
from lab.paths import EXAMPLES, SCRIPTS
from lab.programs.training import MASTER, OverServers
from lab.waiting import PATIENCE, until

COUNTER = SCRIPTS / "e2e" / "seen.py"
SERVERS = ("ps-0", "ps-1")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[OverServers]:
    """A job as users start it, whose workers are still to come."""
    (tmp_path / "token").write_text("secret")
    found = OverServers(tmp_path, free_port())
    for name in (MASTER, *SERVERS):
        found.start(name)
    yield found
    found.end()


async def ends(job: OverServers, name: str, within: float = PATIENCE) -> int:
    """Return the exit code of a process, once it has ended."""
    async with asyncio.timeout(within):
        return await job.running[name].wait()


def output(job: OverServers) -> str:
    """Return all that servers and workers have printed."""
    return "".join(file.read_text() for file in job.folder.glob("*-?.log"))


async def test_processes_end_with_the_codes_that_users_expect(job: OverServers) -> None:
    """A worker with 0 after its last line, whose error has a code of its own; servers by SIGTERM."""
    folder = job.folder
    (folder / "gate").touch()
    broken = folder / "broken.py"
    broken.write_text(COUNTER.read_text().replace("batch.push(", "raise RuntimeError('my own')  # "))
    for name, script, code in (("worker-1", broken, 1), ("worker-0", COUNTER, 0)):
        job.worker = (script, 100, folder)
        job.start(name)
        assert await ends(job, name) == code, output(job)
        assert "RuntimeError: my own" in output(job)
    for name in SERVERS:
        job.running[name].send(signal.SIGTERM)
    assert [await ends(job, name) for name in SERVERS] == [143, 143]
    assert json.loads((folder / "counts").read_text()) == [1.0] * 100
    assert output(job).count("Traceback") == 1, output(job)
    assert len(read(folder / "kept", "seen")[0]) == 100


@pytest.mark.story
@pytest.mark.parametrize(
    ("script", "arguments", "at_most"),
    [("parameters", ("--epochs=4",), 0.6), ("keras", ("--records=60000", "--epochs=4"), 0.6)],
)
async def test_example_learns(
    job: OverServers, script: str, arguments: tuple[str, ...], at_most: float
) -> None:
    job.worker = (EXAMPLES / script / "train.py", *arguments, "--save-every=1000")
    for name in ("worker-0", "worker-1"):
        job.start(name)
    await until(lambda: "batch 50" in output(job), "the model learns")
    for name in ("ps-0", "worker-1"):
        job.running[name].kill()
        job.start(name)
    assert await ends(job, "worker-0", 2 * PATIENCE) == await ends(job, "worker-1") == 0
    losses = [float(loss) for loss in re.findall(r"batch \d+: loss ([\d.]+)", output(job))]
    assert min(losses) < at_most, output(job)
    ids, _ = read(job.folder / "kept", "users")
    assert len(ids) > 1_000
