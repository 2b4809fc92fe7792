"""The conversation with the master of a server, or of a worker that follows servers, in a thread."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from elasticjob.api.rpc import environment as names
from elasticjob.api.rpc.parameters import Follow, Phase, Plane, Serve
from elasticjob.trainer.link.address import FILE, Way, way_from
from elasticjob.trainer.link.master import MasterClient, MasterError, Stopping
from elasticjob.trainer.usage.own import Own

log = logging.getLogger("elasticjob.parameters")

BEAT: Final = 1.0
"""Seconds of a long poll, each of which is a heartbeat, too."""
PAUSE: Final = 0.5
"""Seconds until the master is asked again after it refused, and what failed is tried again."""
FAREWELL: Final = 10.0
STOPS: Final = frozenset({Phase.DRAIN, Phase.MOVE, Phase.SAVE})
"""Phases in which workers have nothing under way."""


class Link:
    """The conversation with the master, in a thread of its own."""

    def __init__(self, way: Way | None) -> None:
        self.way = way or way_of(os.environ)
        self.incarnation = uuid.uuid4().hex
        self.ended = threading.Event()
        self.failure: Exception | None = None
        self._own = Own()
        self._thread = threading.Thread(target=self._run, name="elasticjob-parameters", daemon=True)
        self._others: list[threading.Thread] = []
        self._again = asyncio.Event()

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended.set()
        self._poke()
        for each in (self._thread, *self._others):
            each.join(FAREWELL)

    def _poke(self) -> None:
        """Have the master asked at once."""
        with suppress(RuntimeError):  # the job has ended, and with it the thread
            self._loop.call_soon_threadsafe(self._again.set)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._talk())
        except Exception as error:
            self.failure = error
        finally:
            self.ended.set()
            self._loop.close()

    async def _talk(self) -> None:
        async with MasterClient(self.way.address, token=self.way.token()) as master:
            while not self.ended.is_set():
                try:
                    await self._turn(master)
                except Stopping:
                    break
                except MasterError as error:
                    log.warning("the master does not answer as it should, again soon: %s", error)
                    await asyncio.sleep(PAUSE)
            await self._farewell(master)

    async def _turn(self, master: MasterClient) -> None:
        raise NotImplementedError

    async def _farewell(self, master: MasterClient) -> None:
        """Send nothing: the master drops members that miss their heartbeat, and waits for none of them."""

    async def _ask(self, master: MasterClient, request: Serve | Follow) -> Plane | None:
        """Return the answer; None if there is something to tell before it comes."""
        self._again.clear()
        asking = asyncio.ensure_future(master.call(request))
        telling = asyncio.ensure_future(self._again.wait())
        try:
            await asyncio.wait((asking, telling), return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            for each in (asking, telling):
                each.cancel()


class Leaving:
    """Whether a worker was told by SIGTERM to leave. A handler that the script has set itself is left alone.

    A container's first process would not even end by SIGTERM, as it has no handler by default.
    """

    def __init__(self) -> None:
        self._told = threading.Event()
        self._hears = False

    def is_set(self) -> bool:
        """Whether it is to leave."""
        return self._told.is_set()

    def hear(self) -> None:
        """Heed SIGTERM from now on; signals reach a process's main thread alone."""
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, lambda *_: self._told.set())
            self._hears = True

    def close(self) -> None:
        """Leave SIGTERM as it was."""
        if self._hears:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._hears = False


def end_by_sigterm(end: Callable[[int], object]) -> None:
    """Have SIGTERM end a server, with the code that a shell gives: nothing is gained by its waiting."""
    signal.signal(signal.SIGTERM, lambda number, _: end(128 + number))


def way_of(environment: Mapping[str, str]) -> Way:
    """Return the way to the master, by the agent's file or the pod's environment. Raises NoMaster."""
    if environment.get(FILE) or names.MASTER not in environment:
        return way_from(environment)
    token = environment.get(names.TOKEN_FILE, names.TOKEN_PATH)
    return Way(
        address=environment[names.MASTER],
        token_file=token if Path(token).is_file() else "",
        node=environment.get(names.NODE, ""),
    )
