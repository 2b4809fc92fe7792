"""A server of the store: threads that answer connections, and a line to the server that has the copies.

An update is made here, sent on in the same order, and acknowledged when the copy has it. One that is
repeated is sent on as well: the copy knows by itself whether it has counted it.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Final, Self

import msgspec

from elasticjob.trainer.checkpoint.part import Damaged
from elasticjob.trainer.servers.serving import Gone, Move
from elasticjob.trainer.store.held import PartitionSet
from elasticjob.trainer.store.partitions import owners
from elasticjob.trainer.store.saved import Commits, Files
from elasticjob.trainer.store.wire import (
    Answer,
    Connection,
    Fetch,
    Hello,
    Partitions,
    Push,
    Refused,
    Request,
    Taken,
    WireError,
    Written,
    connect,
)

log = logging.getLogger("elasticjob.store")

ANSWER: Final = 5.0
"""Seconds in which another server answers."""
TRIES: Final = 3
PAUSE: Final = 0.2
"""Values are gone if neither their owner nor its copy answers so often, with such pauses (seconds)."""
COMMIT: Final = 30.0
"""Seconds in which a server commits a checkpoint whose parts are there."""
MOST: Final = 4096
"""Connections at once."""
AT_ONCE: Final = 64
"""Updates that are on their way to the copy."""


@dataclass(frozen=True)
class Copy:
    """The partitions that a server owned in a save, and the address of the server that commits it."""

    partitions: Partitions
    committer: str


class Server:
    """Listens at `host`:`port`; has the values of a cluster's versions, as the master directs."""

    def __init__(self, host: str, port: int, *, token: str, files: Files | None = None) -> None:
        self._token, self.files = token, files
        self._commits = Commits(files) if files else None
        self._held, self._next = PartitionSet(), PartitionSet()
        self._servers: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._line: _Line | None = None
        self._room = threading.BoundedSemaphore(MOST)
        self._open: set[socket.socket] = set()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._sock = socket.create_server((host, port), family=family, backlog=256)
        at = f"[{host}]" if ":" in host else host
        self.address = f"{at}:{self._sock.getsockname()[1]}"
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="elasticjob-store", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        with self._lock:
            self._replace_line(None)
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    # Directed by the master: elasticjob.trainer.parameters.Values and Checkpoints.

    def take_over(self, move: Move) -> None:
        """Get the partitions of this server: from their owners, from their copies, or from the checkpoint."""
        self._become(move.since)
        found = PartitionSet(move.version, move.me, len(move.after))
        if move.restores is not None:
            self._restored(found, move.restores)
        else:
            with self._lock:
                self._held.frozen = True
            self._fetched(found, move)
        self._next = found

    def use(self, version: int, servers: tuple[str, ...]) -> None:
        """Answer for this version."""
        self._become(version)
        with self._lock:
            if self._held.version != version:
                self._held = PartitionSet()
            self._next = PartitionSet()
            self._held.frozen = False
            self._servers = servers
            copy = None
            if self.address in servers and len(servers) > 1:
                copy = servers[(servers.index(self.address) + 1) % len(servers)]
            self._replace_line(_Line(copy, self._token, self._greeting) if copy else None)

    def copy(self) -> Copy:
        """Return a copy of all that this server owns."""
        with self._lock:
            return Copy(self._held.part(self._held.owned), self._servers[0])

    def commit(self, at: str, written: Written, wanted: Callable[[], bool]) -> None:
        """Return when the server at this address has committed a checkpoint, of which others may still write.

        Raises OSError if it cannot, or if the checkpoint is not `wanted` any more.
        """
        why = "another one is written"
        while wanted() and not self._closed.is_set():
            answer = self._ask(at, written, COMMIT)
            if isinstance(answer, Taken):
                return
            why = answer.why if isinstance(answer, Refused) else str(answer)
            if not isinstance(answer, Refused) or not answer.later:
                break
            self._closed.wait(PAUSE)
        raise OSError(f"{at} has not committed it: {why}")

    # Requests of clients and of other servers.

    def answer(self, request: Request) -> Answer:
        """Carry out a request; an update is acknowledged when its copy is made."""
        if isinstance(request, Written):
            return self._written(request)
        if isinstance(request, Fetch):
            self._become(request.since)
        with self._lock:
            answer = self._held.answer(request)
            if not isinstance(request, Push) or request.copy or not isinstance(answer, Taken):
                return answer
            if self._line is None:
                return answer
            copied = self._line.send(msgspec.structs.replace(request, copy=True))
        try:
            return copied.result(4 * ANSWER)
        except (OSError, TimeoutError) as error:
            return Refused(f"the copy is not made: {error}", later=True)

    def _written(self, request: Written) -> Answer:
        if self._commits is None:
            return Refused(f"{self.address} was given no folder")
        try:
            why = self._commits.add(request.number, request.parts)
        except OSError as error:
            return Refused(str(error))
        return Refused(why, later=True) if why else Taken()

    def _become(self, version: int) -> None:
        """Go on to values that were taken over for a version which the master, or another server, now names.

        Another change may begin before `use`: then these are the values of before. Workers who greeted early
        do not greet again.
        """
        with self._lock:
            if version and self._next.version == version:
                self._next.know(self._held.tables)
                self._held, self._next = self._next, PartitionSet()
                self._held.frozen = True

    def _restored(self, found: PartitionSet, number: int) -> None:
        if not number:
            return
        if self.files is None:
            raise OSError(f"checkpoint {number} cannot be read: this server was given no folder")
        try:
            for partitions in self.files.read(number, found.owned | found.copied):
                found.put(partitions)
        except Damaged as error:
            self.files.set_aside(number, str(error))
            raise Gone(f"checkpoint {number} is damaged: {error}") from error

    def _fetched(self, found: PartitionSet, move: Move) -> None:
        wanted, servers = found.owned | found.copied, len(move.before)
        owner = owners(servers)
        away = set[str]()
        for place in sorted({owner[each] for each in wanted}):
            partitions = tuple(sorted(each for each in wanted if owner[each] == place))
            sources = tuple(dict.fromkeys((move.before[place], move.before[(place + 1) % servers])))
            for partition in partitions:  # one at a time: a frame has its limit
                found.put(self._fetch(sources, Fetch(move.since, (partition,)), away))

    def _fetch(self, sources: tuple[str, ...], request: Fetch, away: set[str]) -> Partitions:
        """Return partitions from the first source that has them. Raises Gone.

        Those that did not answer are `away` and asked last: a pod that is gone costs its timeout once, not
        for each partition.
        """
        said: Mapping[str, str] = {}
        for number in range(TRIES):
            time.sleep(PAUSE if number else 0.0)
            said = {}
            for source in sorted(sources, key=away.__contains__):
                try:
                    answer = self._ask(source, request, ANSWER)
                except OSError as error:
                    said |= {source: str(error)}
                    away.add(source)
                    continue
                if isinstance(answer, Partitions):
                    return answer
                said |= {source: answer.why if isinstance(answer, Refused) else str(answer)}
        raise Gone(f"partition {request.partitions[0]} is nowhere: {dict(said)}")

    def _ask(self, source: str, request: Fetch | Written, timeout: float) -> Answer:
        if source == self.address:
            return self.answer(request)
        connection = connect(source, self._token, timeout)
        try:
            connection.send(request)
            return connection.answer()
        finally:
            connection.close()

    def _greeting(self) -> Hello:
        return Hello(self._held.tables)

    def _replace_line(self, line: _Line | None) -> None:
        if self._line is not None:
            self._line.close()
        self._line = line

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                sock, _ = self._sock.accept()
            except OSError:
                if self._closed.is_set():
                    return
                log.warning("a connection is not accepted", exc_info=True)
                time.sleep(PAUSE)
                continue
            if not self._room.acquire(blocking=False):
                sock.close()
                continue
            with self._lock:
                self._open.add(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        """Answer one connection to its end."""
        try:
            with sock:
                sock.settimeout(ANSWER)
                connection = Connection(sock)
                connection.prove(self._token, asks=False)
                sock.settimeout(None)
                while True:
                    connection.send(self.answer(connection.request()))
        except WireError as error:
            log.warning("a connection is closed: %s", error)
        except OSError:
            pass  # the client has gone
        finally:
            with self._lock:
                self._open.discard(sock)
            self._room.release()


class _Line:
    """Sends updates to the server with the copies, in order, some at a time."""

    def __init__(self, address: str, token: str, greeting: Callable[[], Hello]) -> None:
        self._address, self._token, self._greeting = address, token, greeting
        self._queue: SimpleQueue[tuple[Push, Future[Answer]] | None] = SimpleQueue()
        self._connection: Connection | None = None
        self._known: tuple[object, ...] = ()
        self._closed = False
        threading.Thread(target=self._run, name="elasticjob-store-copies", daemon=True).start()

    def send(self, push: Push) -> Future[Answer]:
        """Return the future answer of the copy."""
        future: Future[Answer] = Future()
        if self._closed:
            future.set_exception(ConnectionError("other servers are in use"))
        else:
            self._queue.put((push, future))
        return future

    def close(self) -> None:
        """End; updates on their way are not acknowledged."""
        self._closed = True
        self._queue.put(None)

    def _run(self) -> None:
        waiting: list[tuple[Push, Future[Answer]]] = []
        while (found := self._queue.get()) is not None:
            waiting = [found]
            while (
                len(waiting) < AT_ONCE and not self._queue.empty() and (more := self._queue.get()) is not None
            ):
                waiting.append(more)
            self._exchange(waiting)
            if self._closed:
                break
        while not self._queue.empty():
            if (left := self._queue.get()) is not None:
                left[1].set_exception(ConnectionError("other servers are in use"))
        if self._connection is not None:
            self._connection.close()

    def _exchange(self, waiting: list[tuple[Push, Future[Answer]]]) -> None:
        try:
            connection = self._connected()
            for push, _ in waiting:
                connection.send(push)
            for _, future in waiting:
                future.set_result(connection.answer())
        except OSError as error:
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)

    def _connected(self) -> Connection:
        greeting = self._greeting()
        if self._connection is None:
            self._connection, self._known = connect(self._address, self._token, ANSWER), ()
        if greeting.tables != self._known:
            self._connection.send(greeting)
            answer = self._connection.answer()
            if isinstance(answer, Refused):
                raise WireError(answer.why)
            self._known = greeting.tables
        return self._connection
