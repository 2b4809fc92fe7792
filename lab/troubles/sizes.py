"""What users do to a job that trains: scale it, suspend it for a while, delete one of its pods."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from elasticjob.cli.story.seen import is_suspended
from elasticjob.kube.errors import NotFound
from elasticjob.kube.objects.views import POD
from lab.jobs.digits import Digits
from lab.story import Trouble

SUSPENDED: Final = (3.0, 8.0)


async def scale(scene: Digits) -> str:
    """Ask for another number of workers."""
    before = scene.wanted.now
    after = scene.chance.choice([size for size in (1, 2, 3) if size != before])
    await scene.stage.scale(after)
    scene.want(after)
    return f"scaled {before} → {after}"


async def suspend(scene: Digits) -> str:
    """Suspend the job, and resume it after some seconds."""
    before = scene.wanted.now
    await scene.stage.suspend()
    scene.want(0)
    await scene.until(lambda seen: is_suspended(seen, seen))
    await asyncio.sleep(scene.chance.uniform(*SUSPENDED))
    await scene.stage.resume()
    scene.want(before)
    return "suspended and resumed"


async def delete_pod(scene: Digits) -> str:
    """Delete the pod of a worker."""
    name = scene.chance.choice(scene.seen.workers).name
    with suppress(NotFound):
        await scene.here.client.delete(POD, name, scene.job.key.namespace)
    return f"deleted pod {name}"


TROUBLES: Final = (
    Trouble("scale", Digits, scale),
    Trouble("suspend", Digits, suspend),
    Trouble("pod", Digits, delete_pod),
)
