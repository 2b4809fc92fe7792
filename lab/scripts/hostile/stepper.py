"""A node without torch: it joins its master, makes a step a second and regroups when it is told to."""

import asyncio
import os
import secrets
import signal
import time
from pathlib import Path
from typing import Any

from elasticjob.api.rpc import environment as env
from elasticjob.api.rpc.nodes import Order, Progress, Report, Watch
from elasticjob.api.rpc.rendezvous import Join, Leave, Recovery
from elasticjob.trainer.link.master import MasterClient, Stale, Stopping

NODE, ROLE, INDEX = os.environ[env.NODE], os.environ[env.ROLE], int(os.environ[env.INDEX])
TOKEN = Path(os.environ[env.TOKEN_FILE]).read_text().strip()
BEGAN = float(os.environ["BEGAN"])


async def main() -> None:
    ends = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ends.set)
    async with MasterClient(os.environ[env.MASTER], token=TOKEN) as master:
        while not ends.is_set():
            try:
                await live(master, ends)
            except Stale:
                continue
            except Stopping:
                return


async def live(master: MasterClient, ends: asyncio.Event) -> None:
    """Train until the job ends, or this pod does."""
    me: dict[str, Any] = {"node": NODE, "incarnation": secrets.token_hex(4)}
    whole = me | {"role": ROLE, "index": INDEX}
    number = 0
    while not ends.is_set():
        place: dict[str, Any] = {"slots": 1, "address": os.environ[env.POD_IP], "port": 1}
        join = Join(**whole, **place, recovery=Recovery.IN_PROCESS, after=number)
        joining, ending = asyncio.ensure_future(master.call(join)), asyncio.ensure_future(ends.wait())
        await asyncio.wait({joining, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not joining.done():
            joining.cancel()
            break
        number, seen, order = joining.result().round, 0, Order.TRAIN
        while order is Order.TRAIN and not ends.is_set():
            progress = Progress(step=int(time.time() - BEGAN), samples=8 * int(time.time() - BEGAN))
            await master.call(Report(**me, round=number, progress=progress))
            orders = await master.call(Watch(**whole, seen=seen, wait=0.0, round=number))
            seen, order = orders.version, orders.order
            await asyncio.sleep(1)
        if order is Order.STOP:
            raise SystemExit(0)
    await master.call(Leave(**me, round=number, planned=True), patience=5)


if __name__ == "__main__":
    asyncio.run(main())
