"""Operators in this process, until the end of a block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from elasticjob.kube.operator.operator import Operator


@asynccontextmanager
async def running(operator: Operator) -> AsyncIterator[Operator]:
    """Run an operator; the block begins when all of it has started."""
    task = asyncio.create_task(operator.run())
    try:
        await operator.wait_started()
        yield operator
    finally:
        operator.stop()
        await task
