"""Small cases of `make shardings`: those that were once saved, loaded or trained wrongly."""

from __future__ import annotations

import os

import pytest

from lab.jobs.training.warm import Warm

CASES = """sp2 > sp2: killed; pp2 > one1: killed uneven; fsdp2.tp2 > fsdp2; megatron2 > megatron2;
zero2 > zero2; ep2 > pp2: experts random; ddp2 > ddp2: batchnorm memory random; tp2 > fsdp2: buffers two"""


@pytest.mark.story
async def test_any_sharding_is_loaded_as_it_was_saved_or_refused(warm: Warm) -> None:
    played = await warm.run(["lab.shardings", "--only", *CASES.split(";")], os.environ, module=True)
    printed = (await played.stdout.read()).decode()
    assert await played.wait() == 0, printed
