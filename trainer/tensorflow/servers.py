"""Training with parameter servers that come, go, move and are lost: the loop of a worker.

A step belongs to a version of the servers. Between two steps the worker takes part in changes and saves; for
each version it has a graph and a session. A step that fails is not repeated with the same servers before it
is known that they are well, and that it does not count already; if it fails again then, the error is its own.
A step may take any time: what ends it is a server that is lost, or does not answer beside it.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Final, Self

from elasticjob.api.rpc import environment as names
from elasticjob.trainer.servers.link import way_of
from elasticjob.trainer.servers.visits import Visit, Visits
from elasticjob.trainer.shards import Dataset, Shard, Way
from elasticjob.trainer.tensorflow import files
from elasticjob.trainer.tensorflow.compat import PATIENCE, config, message_of, start_server, tf, v1
from elasticjob.trainer.tensorflow.graph import (
    CUT,
    FIT,
    SERVERS,
    Blueprint,
    Model,
    check_repeats,
    difference,
    draw,
    with_settings,
)
from elasticjob.trainer.tensorflow.partitions import decode, encode
from elasticjob.trainer.tensorflow.threads import LeftBehind, Threads

log = logging.getLogger("elasticjob.tensorflow")

PAUSE: Final = 0.05
DRAWN: Final = 4
"""Models for so many numbers of servers are kept."""
ENDLESS: Final = 1 << 40
"""Milliseconds that a step may take: it counts once, however long it takes."""
LOST: Final = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.NotFoundError,
    tf.errors.UnavailableError,
    tf.errors.UnknownError,
)
"""What a step may end with when a server is lost."""
OWN: Final = (tf.errors.FailedPreconditionError, tf.errors.InternalError, tf.errors.NotFoundError)
"""Of these, what is the step's own fault when the servers are well."""


@dataclass
class _Present:
    """The servers of a version as this worker reaches them. `begun`: there are values."""

    version: int
    addresses: tuple[str, ...]
    drawn: Blueprint
    session: Any
    threads: Threads
    begun: bool = False

    def __post_init__(self) -> None:
        self._answer: SimpleQueue[Any] = SimpleQueue()

    def ask(self, *what: Any) -> Any:
        """Run in the session what takes no time. Raises what is in LOST, DeadlineExceeded after PATIENCE."""
        return self._run(*what, seconds=None)

    def run(self, *what: Any) -> Any:
        """Run in the session what may take any time. Raises what is in LOST, if servers do not answer.

        What is seen only by looking is a server that does not answer, while this process does.
        """
        return self._run(*what, seconds=PATIENCE)

    def _run(self, what: Any, feed: Any = None, *, seconds: float | None) -> Any:
        """Run it. Raises what is in LOST, also if another session takes its place."""
        answer: SimpleQueue[Any] = SimpleQueue()
        self._answer = answer  # before the session is looked at: see `renew`
        session = self.session
        options = v1.RunOptions(timeout_in_ms=ENDLESS) if seconds else None

        def do() -> None:
            try:
                answer.put((session.run(what, feed, options), None))
            except Exception as error:
                answer.put((None, error))

        def look() -> None:
            with suppress(*LOST, RuntimeError):  # the step takes all threads of this process
                try:
                    session.run(self.drawn.names.probe)
                except LOST as error:
                    session.run(self.drawn.names.here, {self.drawn.names.at: 0})
                    answer.put((None, error))

        self.threads.start(do, "run")
        while True:
            try:
                found, error = answer.get(timeout=seconds)
                break
            except Empty:
                self.threads.start(look, "look")
        if isinstance(error, RuntimeError) and session is not self.session:
            raise _closed()
        if error:
            raise error
        return found

    def renew(self, session: Any) -> None:
        """Take a new session. What is under way in the other one is left behind: closing does not end it."""
        broken, self.session, self.begun = self.session, session, False
        self._answer.put((None, _closed()))
        self.threads.close(broken)


def _closed() -> Exception:
    return tf.errors.CancelledError(None, None, "the session was closed")  # type: ignore[no-any-return]


class Servers:
    """The parameter servers of a job, for a worker that trains `model` with the records of `dataset`.

    `model` is called for each number of servers and returns a Step. Variables with `cut` rows or more lie in
    rows over the servers. `checkpoint` is the folder that servers and workers share; the first worker asks
    for a checkpoint every `save_every` seconds, and at the end.
    """

    def __init__(
        self,
        model: Model,
        dataset: Dataset,
        *,
        checkpoint: str | Path = "",
        save_every: float = 600.0,
        cut: int = CUT,
        way: Way | None = None,
    ) -> None:
        if hasattr(model, "fit"):
            raise TypeError(FIT)
        self.dataset = dataset
        self._model, self._cut = with_settings(model), cut
        self._folder = Path(checkpoint) if checkpoint else None
        self._visits = Visits(
            dataset,
            way or way_of(os.environ),
            self._boundary,
            save_every=save_every if checkpoint else None,
            prepare=self._prepare,
            finish=self._finish if checkpoint else None,
            abandon=self._renew,
        )
        self._following = self._visits.following
        # A server ends the sessions of another client whose job has the same name.
        self._name = f"worker{uuid.uuid4().hex[:12]}"
        self._now: _Present | None = None
        self._made: dict[int, _Present] = {}
        self._drawn: dict[int, Blueprint] = {}
        self._making = threading.Lock()
        self._threads = Threads()
        self._failed: tuple[_Present, object] | None = None

    def __enter__(self) -> Self:
        host = os.environ.get(names.POD_IP, "127.0.0.1")
        self._local, self._address = start_server(f"{host}:0")
        self._visits.__enter__()
        atexit.register(self._end)  # for a script that does not leave the block
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._visits.__exit__(kind, error, trace)
        self._end()

    def _end(self) -> None:
        """Leave no thread behind that is inside of TensorFlow."""
        atexit.unregister(self._end)
        self._following.__exit__(None, None, None)
        with self._making:
            for each in self._made.values():
                self._threads.close(each.session)
        self._threads.join()

    def steps(self, batch: int) -> Iterator[tuple[Sequence[int], StepMaker]]:
        """Yield records, and what makes the step with them, until all records are counted.

        The step is called once, with the placeholders of the model by name. It returns what the model's Step
        fetches; None if a change of servers ended it: the same records come again then.
        """
        for visit in self._visits:
            yield from self._steps_of(visit, batch)

    @property
    def is_chief(self) -> bool:
        """Whether this is the first worker of those that are there."""
        return self._following.is_chief

    def save(self) -> None:
        """Ask for a checkpoint soon: all workers stop for a moment, files are written meanwhile."""
        self._visits.save()

    def _steps_of(self, visit: Visit, batch: int) -> Iterator[tuple[Sequence[int], StepMaker]]:
        """Yield the steps of a shard, from where it is counted, and report it."""
        shard = visit.shard
        at, end = max(shard.used, self._count(shard)), shard.used + len(shard)
        while at < end and visit.goes_on():
            until = min(at + batch, end)
            made = StepMaker(self, visit, until)
            yield shard.records[at - shard.used : until - shard.used], made
            if not made.called:
                raise RuntimeError("a step of Servers.steps was not called: each is to be made")
            if made.counts:
                at = until
            elif visit.goes_on():
                at = max(at, self._count(shard))
            else:
                return
            visit.applied(at - shard.used)
        if at >= end:
            visit.done()

    def _boundary(self) -> int:
        """Take part in changes until there are servers with values; return when those were restored."""
        following = self._following
        while True:
            following.at_boundary()
            now = self._now
            if now is None or now.version != following.version:
                now = self._reach(following.version, following.addresses)
                self._enter(now)
            if now.begun or self._begin(now):
                self._visits.save_if_due()
                return following.restored

    def _reach(self, version: int, addresses: tuple[str, ...]) -> _Present:
        """Return the graph and session for a version; that which was prepared, if it was."""
        with self._making:
            if version not in self._made:
                drawn = self._draw(len(addresses))
                session = self._session(drawn.graph(version), addresses)
                self._made[version] = _Present(version, addresses, drawn, session, self._threads)
            return self._made[version]

    def _session(self, graph: Any, addresses: tuple[str, ...]) -> Any:
        jobs = {SERVERS: addresses, self._name: [self._address]}
        return v1.Session(self._local.target, graph=graph, config=config(jobs, PATIENCE))

    def _renew(self) -> None:
        """Take a new session in place of one that is broken, or waits for a server that was lost."""
        if now := self._now:
            now.renew(self._session(now.session.graph, now.addresses))

    def _prepare(self, version: int, addresses: tuple[str, ...]) -> None:
        self._reach(version, addresses)

    def _enter(self, now: _Present) -> None:
        """Leave the earlier servers, whether they are there or not."""
        with self._making:
            for version in [each for each in self._made if each < now.version]:
                self._threads.close(self._made.pop(version).session)
        self._now = now
        log.info("trains with version %d of the servers: %d of them", now.version, now.drawn.servers)

    def _draw(self, servers: int) -> Blueprint:
        """Return the model for so many servers; it is kept, as the next change may need it."""
        if servers not in self._drawn:
            for oldest in list(self._drawn)[: 1 - DRAWN]:
                del self._drawn[oldest]
            drawn = self._drawn[servers] = draw(self._model, servers, self._name, self._cut)
            if len(self._drawn) == 1:  # what is wrong only with several servers, or again, is told now
                more = self._drawn[servers + 1] = draw(self._model, servers + 1, self._name, self._cut)
                check_repeats(drawn, more)
        return self._drawn[servers]

    def _begin(self, now: _Present) -> bool:
        """Return whether there are values; the first worker makes the first ones, the others wait."""
        names, makes = now.drawn.names, False
        try:
            told = self._while_there(now, names.told)
            makes = bool(told) or self._following.is_chief
            if not told and self._following.is_chief:
                log.info("makes the first values")
                now.run(names.begin)
                told = encode(now.drawn.manifest)
                now.ask(names.tell, {names.text: told})
            if told:
                now.run(names.begin_here)
        except ConnectionError as error:
            log.info("version %d of the servers is not there: %s", now.version, error)
            self._following.wait_for_change(1.0)
            return False
        except LOST as error:
            log.info(
                "version %d of the servers is not there yet, or not any more: %s",
                now.version,
                message_of(error),
            )
            if makes and self._are_well(now):
                self._blame(error, now, "the first values")
            self._following.wait_for_change(1.0)
            return False
        if told and (sentence := difference(now.drawn.manifest, decode(told))):
            raise ValueError(sentence)
        if not told:
            time.sleep(PAUSE)
        now.begun = bool(told)
        return now.begun

    def _make(self, number: int, until: int, values: dict[str, Any]) -> Any:
        """Return what a step fetches; raises what is in LOST."""
        assert self._now
        names = self._now.drawn.names
        if values.keys() != names.feed.keys():
            raise TypeError(f"the step has {_list(values)}, and the model takes {_list(names.feed)}")
        feed = {names.feed[name]: value for name, value in values.items()}
        with self._visits.shards.busy():
            fetched, _ = self._now.run(
                (dict(names.fetch), names.mark), feed | {names.shard: number, names.at: until}
            )
        return fetched

    def _count(self, shard: Shard) -> int:
        """Return how many records of a shard are in the values."""
        while True:
            self._boundary()
            assert self._now
            names = self._now.drawn.names
            try:
                number, count = self._now.ask(names.so_far, {names.shard: shard.number})
            except LOST as error:
                self._recover(error, ("the count", shard.number))
            else:
                return int(count) if number == shard.number else 0

    def _recover(self, error: Any, what: object) -> None:
        """Return when it is known that the servers are well, or others serve. Raises a step's own error."""
        now, following = self._now, self._following
        assert now
        log.warning("a step with version %d of the servers failed: %s", now.version, message_of(error))
        session = now.session
        while self._visits.goes_on():
            if following.changing:
                self._boundary()
            if self._now is not now:
                return
            if self._are_well(now):
                if now.session is session:  # whatever it was, it was not well otherwise
                    self._blame(error, now, what)
                return
            following.wait_for_change(1.0)

    def _blame(self, error: Any, now: _Present, what: object) -> None:
        """Raise an error that well servers do not make: it is in OWN, or came from the same before."""
        if isinstance(error, OWN) or self._failed == (now, what):
            raise error
        self._failed = now, what

    def _are_well(self, now: _Present) -> bool:
        """Whether all servers of a version answer and have values; if not, there is a new session."""
        try:
            self._while_there(now, now.drawn.names.probe)
        except ConnectionError as error:
            log.info("version %d of the servers is not there: %s", now.version, error)
            return False
        except LOST as error:  # a session does not always outlive a connection that was broken
            log.warning("version %d of the servers is not well: %s", now.version, message_of(error))
            self._renew()
            return False
        return True

    def _while_there(self, now: _Present, what: Any) -> Any:
        """Ask for something that takes no time, while all servers can be reached."""
        try:
            return self._threads.while_there(now.addresses, lambda: now.ask(what))
        except LeftBehind:
            self._renew()
            raise

    def _finish(self, number: int) -> None:
        """Make one checkpoint of what the servers have written."""
        assert self._folder
        files.finish(self._folder, number, merge)
        v1.train.update_checkpoint_state(str(self._folder), files.prefix(self._folder, number).name)


class StepMaker:
    """Makes the step of some records, once."""

    def __init__(self, servers: Servers, visit: Visit, until: int) -> None:
        self._servers, self._visit, self._until = servers, visit, until
        self.called = self.counts = False

    def __call__(self, **values: Any) -> Any:
        """Make the step, with the placeholders of the model by name; return what its Step fetches.

        None if a change of servers ended it: the records come again.
        """
        if self.called:
            raise RuntimeError("a step of Servers.steps was called twice: take the next records")
        self.called = True
        try:
            return self._make(values)
        except tf.errors.OpError as error:
            error.add_note(
                f"a step of the model failed: {message_of(error)}"
            )  # the last line is what pods show
            raise

    def _make(self, values: dict[str, Any]) -> Any:
        number = self._visit.shard.number
        if not self._visit.holds():  # this process was stopped, and the shard is another's now
            return None
        try:
            fetched = self._servers._make(number, self._until, values)
        except LOST as error:
            self._servers._recover(error, (number, self._until))
            return None
        self.counts = True
        return fetched


def merge(prefixes: list[str], into: str) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        session.run(
            tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=prefixes, destination_prefix=into, delete_old_dirs=False
            )
        )


def _list(names: Any) -> str:
    return ", ".join(sorted(names)) or "nothing"
