"""Calls the webhooks repeatedly, as users do who create jobs, and records each refusal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.story.example import Example
from elasticjob.kube.client.credentials import Config
from lab.running import beside

EVERY: Final = 0.1
"""Seconds between two questions."""


@dataclass
class Asked:
    """The number of requests, and all responses other than 201 Created."""

    times: int = 0
    refusals: list[str] = field(default_factory=list)
    slowest: float = 0.0


@asynccontextmanager
async def asking(config: Config, example: Example) -> AsyncIterator[Asked]:
    """Create a job with dryRun, which changes nothing but passes the webhooks, for as long as this lasts."""
    asked = Asked()
    async with aiohttp.ClientSession() as session, beside(_ask(session, config, example, asked)):
        yield asked


async def _ask(session: aiohttp.ClientSession, config: Config, example: Example, asked: Asked) -> None:
    path = f"/apis/{ELASTICJOB.api_version}/namespaces/{example.key.namespace}/{ELASTICJOB.plural}"
    job = {**example.job, "metadata": {"name": "asked", "namespace": example.key.namespace}}
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        async with session.post(
            f"{config.server}{path}?dryRun=All", json=job, ssl=config.tls() or True
        ) as answer:
            if answer.status != 201:
                asked.refusals.append(f"{answer.status}: {await answer.text()}")
        asked.times += 1
        asked.slowest = max(asked.slowest, loop.time() - began)
        await asyncio.sleep(max(0.0, began + EVERY - loop.time()))
