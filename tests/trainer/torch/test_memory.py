"""A plain script whose checkpoints an agent keeps in memory: real processes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elasticjob.trainer.checkpoint.memory import blocks_of
from lab.jobs.training.harness import Scenario, scenario
from lab.jobs.training.warm import Warm
from lab.waiting import until

pytestmark = pytest.mark.story


def losses(job: Scenario) -> dict[int, set[float]]:
    found: dict[int, set[float]] = {}
    for each in job.records("loss"):
        found.setdefault(each["step"], set()).add(round(each["loss"], 5))
    return found


async def is_whole(folder: str, step: int) -> bool:
    """Whether a node has all parts of a step in its memory."""
    found = [each.head for each in blocks_of(Path(folder)) if each.head.step == step]
    return {head.part for head in found} == set(range(found[0].parts)) if found else False


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
async def test_a_plain_script_goes_on_from_memory(tmp_path: Path, warm: Warm, kind: str) -> None:
    """Two nodes; a worker is killed, then a node with all its memory: no storage is needed."""
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:

        def said(**words: object) -> dict[str, Any] | None:
            found = (each.record for each in job.lines if words.items() <= each.record.items())
            return next(found, None)

        sizes = ("--steps", 100, "--every", 5, "--save-every", 20)
        arguments = ("saved.py", "memory://", "--kind", kind, *sizes)
        for step in (33, 73):
            (job.counted / f"stand-{step}-1").touch()
        first = await job.agent(0, *arguments)
        other = await job.agent(1, *arguments)
        await job.strike("stand-33")
        await job.until(lambda: said(begins=30, rank=0) and said(begins=30, rank=1))
        await job.until(lambda: said(stands="stand-73"))
        blocks = job.records("memory", first.node)[0]["memory"]
        await until(partial(is_whole, blocks, 70), "all of step 70 is on node 0")
        other.kill()  # its workers die with it, and the next agent begins with empty memory
        last = await job.agent(1, *arguments)
        await job.until(lambda: said(begins=70, rank=0) and said(begins=70, rank=1))
        assert await job.ends(last) == await job.ends(first) == 0
        assert {each["begins"] for each in job.records("begins")} == {0, 30, 70}
        assert all(len(each) == 1 for each in losses(job).values())  # the same model, whoever computed it
