"""The master that `agents` load, in a process of its own: `python -m benchmarks.services.master NODES`."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Final

from elasticjob.api.sizes.role import Range
from elasticjob.kube.clock import SystemClock
from elasticjob.master.durable.store import Nowhere
from elasticjob.master.main import collect_rarely
from elasticjob.master.serving.server import Master
from elasticjob.master.state.job import Job, Spec

TOKEN: Final = "secret"


async def main(nodes: int) -> None:
    """Print the port, and serve until the standard input ends."""
    collect_rarely()
    spec = Spec(job="agents", bounds=Range(least=nodes, most=nodes))
    clock = SystemClock()
    async with Master(Job(spec=spec, gathering=clock.now()), TOKEN, Nowhere(), clock=clock) as master:
        print(master.address.rpartition(":")[2], flush=True)
        await asyncio.to_thread(sys.stdin.read)
        os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
