"""This node as a standby for the master, and the way to the present one for its workers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from elasticjob.api.rpc.address import host_port, parts
from elasticjob.api.rpc.nodes import Succession
from elasticjob.trainer.agent.settings import Place
from elasticjob.trainer.agent.shell import succession
from elasticjob.trainer.link import address
from elasticjob.trainer.link.master import MasterClient

log = logging.getLogger("elasticjob.agent")

EVERY: Final = 0.2  # seconds
WAY: Final = "master.json"

TakeOver = Callable[[Succession | None], Awaitable[None]]
"""Holds the next master in this process, at this node's address; OSError if that is not possible."""


class Standby:
    """Follows the job's master, whose way is in the file `way`."""

    def __init__(
        self,
        place: Place,
        master: MasterClient,
        folder: Path,
        environment: Mapping[str, str],
        incarnation: str,
    ) -> None:
        self._place = place
        self._master = master
        self._folder = folder
        self._environment = environment
        self._incarnation = incarnation
        self._written: address.Way | None = None
        self._left: Succession | None = None

    @property
    def way(self) -> Path:
        """The file with the way to the master, for the workers."""
        return self._folder / WAY

    def hear(self, left: Succession) -> None:
        """Keep what the master would leave to its successor."""
        self._left = left

    def point(self) -> None:
        """Write the way to the master for the workers, at first and when it has moved."""
        place, master = self._place, self._master.address
        if self._written is not None and self._written.address == master:
            return
        token = address.token_file(self._environment, place.token, self._folder)
        self._written = address.Way(master, str(token), place.node, self._incarnation)
        address.write(self.way, self._written)

    async def succeed(self, take_over: TakeOver) -> None:
        """While the master is gone, look for its successor, or be it."""
        _, port = parts(self._place.master)
        loop, refused = asyncio.get_running_loop(), ""
        while True:
            await asyncio.sleep(EVERY)
            if self._master.failing is None:
                continue
            silent, left = loop.time() - self._master.failing, self._left
            heirs = succession.heirs(left, silent) if left else ()
            self._master.look_for(host_port(heir.address, port) for heir in heirs)
            if succession.is_next(self._place.node, left, silent):
                try:
                    await take_over(left)
                except OSError as error:  # another node on this machine may have it
                    if str(error) != refused:
                        refused = str(error)
                        log.info("this node does not hold the master: %s", error.strerror or error)
                else:
                    gone = left.host if left else f"the master at {self._master.address}"
                    log.warning("%s is gone; this node holds the master now", gone)
                    self._left, self._master.failing = None, None
