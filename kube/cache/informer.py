"""Keeping one cache equal to the server: performs what the watch protocol (protocol.py) asks for, forever.

Pauses come in three series, each with its own count of failures.
- A failure after which everything is *listed* again (version too old, broken list) is expensive: such ones
  add up unless two minutes pass without one, as in client-go, or a watch is open for LONG_HEALTHY seconds.
  The longest pause depends on the cost of such a list: the size of the cache. It counts from the end of the
  last list, so that time spent waiting for an unreachable server is not added.
- A *resumed* watch costs the server almost nothing, a failed connection nothing.
  While the server is unreachable, or refuses to resume (429, 5xx), pauses stay short
  (backoff.py) unless a 429 says how long they should be.
- An error that waiting does not cure, such as a missing right, is retried less often each time: it is told
  by log and metric. Where a person waits, `heed` ends the informer instead.
A stream that is open for HEALTHY seconds ends the last two, so that a load balancer that cuts each minute
costs a second each time, and not 30.
Either way no watch is resumed without a pause, or SHORTEST_WATCH seconds of the one before.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import islice
from math import inf
from typing import Generic, TypeVar

from elasticjob.kube.backoff import (
    BEGIN_WHEN_REFUSED,
    RESUME_WHEN_AWAY,
    WATCH,
    Backoff,
    Failures,
    longest_before_list,
)
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.protocol import (
    Confirmed,
    Doubting,
    Empty,
    Ended,
    Given,
    Listing,
    Paging,
    Restarted,
    Silent,
    State,
    Streaming,
    Synced,
    Then,
    Turn,
    Watching,
    step,
)
from elasticjob.kube.cache.store import Change
from elasticjob.kube.cache.wire import Bookmark, Failed, Lines, Malformed, items_of, line_of
from elasticjob.kube.client.client import Client, as_page, selectors
from elasticjob.kube.client.patience import is_refusal
from elasticjob.kube.client.transport import Call
from elasticjob.kube.clock import Clock, deadline
from elasticjob.kube.errors import (
    ApiError,
    Forbidden,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Kind

T = TypeVar("T")

SERVER_TIMEOUT = (300, 600)
"""Seconds after which the server is to end a watch; drawn at random, so that watches do not end together."""
OFTEN = (24, 28)
"""The same where silence is to be noticed soon: bookmarks come each minute, and 2 s before the end."""
IDLE = 30.0
"""Seconds without a byte after which a watch is dead: longer than OFTEN."""
IDLE_OF_MANY = 90.0
"""The same where a thousand programs watch, with SERVER_TIMEOUT: longer than the pause between bookmarks."""
IDLE_INITIAL = 20.0
"""The same while the initial events are coming."""
BEGINNING = 30.0
"""Seconds that the answer to a watch may take to begin: at once, unless the server queues us."""
CONFIRMING = 10.0
"""Seconds that the server has to say whether it knows a version."""
BELIEVED = 5
"""How often in a row a server says that it does not have a kind that it had, until that is believed."""
ABSENT = 15.0
"""Seconds between two looks for an optional kind that the server does not have."""
HEALTHY = 5.0
LONG_HEALTHY = 20.0
"""Seconds that a stream must be open to count as success, whatever its end and however little it said."""
SHORTEST_WATCH = 1.0
"""A watch that ends sooner counts as failed: asking again at once would be a hot loop."""
INITIAL_EVENTS = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
TOLD_AT_ONCE = 500
"""How many changes are told between two breaths of the event loop."""

Heed = Callable[[KubeError | None], None]
"""Is told each error after which an informer would wait and ask again, and None once the server answers
again. An error that it raises ends the informer."""

log = logging.getLogger(__name__)


def patient(error: KubeError | None) -> None:
    """Heed no error: what runs for months asks again until rights and servers are back."""


class Informer(Generic[T]):
    """Lists, watches, and recovers from everything: only cancelling ends `run()`, or what `heed` raises."""

    def __init__(
        self,
        client: Client,
        cache: Cache[T],
        *,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        backoff: Backoff = WATCH,
        chance: random.Random | None = None,
        one_of_many: bool = False,
        heed: Heed = patient,
    ) -> None:
        """Follow `cache.kind` with `client`.

        `one_of_many`: a thousand programs have such an informer each; a server in trouble is asked by it as
        seldom as by client-go, whatever its own lists cost, and versions that all lose at once are not listed
        at once. `heed`: what is made of errors.
        """
        self.cache = cache
        self._client = client
        self._clock = clock or client.clock
        self._metrics = metrics
        if metrics:
            metrics.cache_objects.labels(kind=cache.kind.name).set_function(lambda: len(cache))
            metrics.cache_bytes.labels(kind=cache.kind.name).set_function(lambda: cache.bytes)
        self._lists_failed = self._watches_refused = self._troubled = Failures(backoff)
        self._chance = chance or random.Random(random.getrandbits(64))  # of the process' seed
        self._error: KubeError | None = None
        self._one_of_many = one_of_many
        self._heed = heed
        self._heeded = False
        self._denials = 0
        self._denied = False
        self._listed_at = -inf
        self.last_heard = self._clock.monotonic()
        """When the server last said something about the objects, or that there is nothing to say."""

    @property
    def kind(self) -> Kind[T]:
        return self.cache.kind

    async def run(self) -> None:
        """Keep the cache equal to the server until cancelled. Raises what `heed` raises."""
        state: State = Empty()
        while True:
            before, turn = state, await self._ask(state)
            state = turn.state
            if turn.then is Then.BACK_OFF and self._is_absent():
                state = Empty()
                self._empty()
                await self._clock.sleep(ABSENT)
            elif turn.then is Then.BACK_OFF:
                if self._error and not _has_another_way(before, state):
                    self._heeded = True
                    self._heed(self._error)
                await self._pause(state)

    async def wait_started(self) -> None:
        """Return once the cache is in step with the server."""
        await self.cache.wait_synced()

    def _is_absent(self) -> bool:
        """Whether the server does not have an optional kind, or has always kept it from us.

        A kind that was there is believed to be gone once the server has said so several times.
        """
        if not self.cache.optional or not isinstance(self._error, NotFound | Forbidden):
            return False
        return self._denials >= BELIEVED or not self.cache.served

    def _empty(self) -> None:
        """Take over that there are no objects: the cache is in step, with none."""
        if isinstance(self._error, Forbidden) and not self._denied:
            self._denied = True
            log.warning("we may not list an optional kind", extra={"error": _in_words(self._error)})
        self.cache.served = False
        self._heard()
        for event in (Restarted(), Synced(str(self.cache.version))):
            self.cache.tell(self.cache.take(event))
        self.cache.advanced()

    async def _ask(self, state: State) -> Turn:
        """Perform one request and take over its answer, until a turn asks for another request."""
        async with aclosing(self._answers(state)) as answers:
            async for some in answers:
                turn = await self._take(state, some)
                if turn.then is not Then.READ_ON:
                    return turn
                state = turn.state
        raise AssertionError("an answer always ends with a turn that asks for the next request")

    async def _answers(self, state: State) -> AsyncGenerator[Sequence[Given]]:
        """The response to the request of `state`, as it streams; the last element is never an item."""
        try:
            match state:
                case Empty(streaming=False):
                    yield (await self._page(""),)
                case Paging(token):
                    yield (await self._page(token),)
                case Doubting(version):
                    yield (await self._confirm(version),)
                case Watching() | Empty() | Streaming():
                    async with aclosing(self._watch(state)) as given_by_watch:
                        async for some in given_by_watch:
                            yield some
        except KubeError as error:
            yield (Failed(error),)

    async def _page(self, token: str) -> Listing:
        cache = self.cache
        page = await self._client.page(
            self.kind, cache.namespace, labels=cache.labels, fields=cache.fields, token=token
        )
        self._on_answer()
        items = []
        for item in items_of(page.items or ()):
            if isinstance(item, Malformed):
                self._count_malformed(item)
            else:
                items.append(item)
        return Listing(tuple(items), page.version, page.token)

    async def _confirm(self, version: str) -> Confirmed:
        cache = self.cache
        asked = {"limit": "1", "resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
        path, chosen = self.kind.path(cache.namespace), selectors(cache.labels, cache.fields)
        try:
            async with deadline(self._clock, CONFIRMING):
                as_page(await self._client.raw("GET", path, None, **asked, **chosen), path)
        except TimeoutError as error:
            what = f"GET {path}: whether version {version} is known is not said within {CONFIRMING:.0f} s"
            raise Unreachable(what) from error
        self._heard()
        return Confirmed()

    async def _watch(self, state: State) -> AsyncGenerator[Sequence[Given]]:
        lines, began = Lines(), self._clock.monotonic()
        quiet = IDLE_OF_MANY if self._one_of_many else IDLE
        idle = quiet if isinstance(state, Watching) else IDLE_INITIAL
        begun = min(idle, BEGINNING)
        async with self._client.stream(self._call(state), patience=begun) as chunks, self._judge():
            while chunk := await self._next(chunks, idle):
                self._on_answer()
                some = self._read(lines.feed(chunk))
                if some:
                    yield some
                if idle < quiet and any(isinstance(given, Bookmark) and given.initial_done for given in some):
                    idle = quiet
        if chunk is None and idle == IDLE and not isinstance(state, Watching):
            yield (Ended(),)  # what began with all objects has a bookmark each minute: now one that has more
        elif chunk is None:
            log.warning("a watch is silent", extra={"kind": self.kind.name, "seconds": idle})
            yield (Silent(),)
        elif self._clock.monotonic() - began < SHORTEST_WATCH:
            yield (Failed(Unreachable(f"the watch of {self.kind.plural} was closed at once")),)
        else:
            yield (Ended(),)

    @asynccontextmanager
    async def _judge(self) -> AsyncIterator[None]:
        """An open stream: whether it was healthy shows at its end."""
        opened = self._clock.monotonic()
        try:
            yield
        finally:
            lived = self._clock.monotonic() - opened
            if lived >= HEALTHY:
                self._watches_refused, self._troubled = self._watches_refused.over(), self._troubled.over()
            if lived >= LONG_HEALTHY:
                self._lists_failed = self._lists_failed.over()

    def _read(self, lines: Iterable[bytes]) -> list[Given]:
        found: list[Given] = []
        for given in map(line_of, lines):
            if isinstance(given, Malformed):
                self._count_malformed(given)
            else:
                found.append(given)
        return found

    async def _next(self, chunks: AsyncIterator[bytes], idle: float) -> bytes | None:
        """The next bytes; none at the end of the stream, None when none came for `idle` seconds.

        All that has come is given at once, and more can come only while others run.
        """
        try:
            async with deadline(self._clock, idle):
                return await anext(chunks, b"")
        except TimeoutError:
            return None

    def _call(self, state: State) -> Call:
        cache = self.cache
        params = {"resourceVersion": state.version} if isinstance(state, Watching) else INITIAL_EVENTS
        often = isinstance(state, Watching) and not self._one_of_many
        return Call(
            "GET",
            self.kind.path(cache.namespace),
            {
                "watch": "true",
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(self._chance.randint(*(OFTEN if often else SERVER_TIMEOUT))),
                **params,
                **selectors(cache.labels, cache.fields),
            },
        )

    async def _take(self, state: State, some: Iterable[Given]) -> Turn:
        """Take over what came together, until a turn asks for the next request."""
        if not isinstance(state, Watching | Doubting):
            self._listed_at = self._clock.monotonic()
        turn = Turn(state)
        for given in some:
            if isinstance(given, Failed | Silent | Ended):
                self._count_end(given, turn.state)
            turn = step(turn.state, given)
            for event in turn.events:
                changes = self.cache.take(event)
                if len(changes) <= TOLD_AT_ONCE:
                    self.cache.tell(changes)
                else:
                    await self._tell(changes)
                if isinstance(event, Synced):
                    self.cache.served = True
                    log.info("cache is in step", extra={"kind": self.kind.name, "objects": len(self.cache)})
            if turn.then is not Then.READ_ON:
                break
        self.cache.advanced()
        return turn

    async def _tell(self, changes: list[Change]) -> None:
        rest = iter(changes)
        while some := list(islice(rest, TOLD_AT_ONCE)):
            await asyncio.sleep(0)
            self.cache.tell(some)

    def _count_end(self, end: Failed | Silent | Ended, state: State) -> None:
        self._error = end.error if isinstance(end, Failed) else None
        self._denials = self._denials + 1 if isinstance(self._error, NotFound) else 0
        if self._is_absent():
            return  # nothing is wrong: the system that has this kind is not installed
        if isinstance(end, Failed):
            log.warning(
                "list or watch is refused" if is_refusal(end.error) else "list or watch failed",
                extra={"kind": self.kind.name, "state": type(state).__name__, "error": _in_words(end.error)},
            )
        if self._metrics:
            self._metrics.watch_reconnects.labels(kind=self.kind.name, cause=_cause(end)).inc()

    def _count_malformed(self, malformed: Malformed) -> None:
        log.warning(
            "an object has unreadable metadata", extra={"kind": self.kind.name, "error": malformed.why}
        )
        if self._metrics:
            self._metrics.undecodable.labels(kind=self.kind.name).inc()

    def _on_answer(self) -> None:
        """Take note that the server has the kind: also where it was away, for too short to be believed."""
        self._heard()
        if self.cache.optional and self.cache.served and self._denials:
            self.cache.served = False
            self.cache.served = True
        self._denials = 0

    def _heard(self) -> None:
        self.last_heard = self._clock.monotonic()
        if self._heeded:
            self._heeded = False
            self._heed(None)

    async def _pause(self, state: State) -> None:
        """Wait before the request of `state`; see the module."""
        now, chance, error = self._clock.monotonic(), self._chance.random, self._error
        asked = (error.stay_away or 0.0) if isinstance(error, ApiError) else 0.0
        resumed = isinstance(state, Watching | Doubting)
        never_sent = isinstance(error, Unreachable) and error.never_sent
        if never_sent or (resumed and self._passes(error)):
            self._troubled, seconds = self._troubled.another(
                now, chance, at_least=asked, at_most=RESUME_WHEN_AWAY
            )
        elif resumed:
            self._watches_refused, seconds = self._watches_refused.another(now, chance, at_least=asked)
        else:
            self._lists_failed, apart = self._lists_failed.another(
                now, chance, at_most=self._longest_before_list(error)
            )
            listed = now if self._one_of_many else self._listed_at
            seconds = max(asked, listed + apart - now)
        await self._clock.sleep(seconds)

    def _passes(self, error: KubeError | None) -> bool:
        """Whether a refusal ends by itself, and may be waited for at the server's door."""
        if isinstance(error, TooManyRequests | ServerError):
            return not self._one_of_many
        return isinstance(error, Unreachable)

    def _longest_before_list(self, error: KubeError | None) -> float:
        if self._one_of_many:
            return inf
        if self.cache.synced:
            return longest_before_list(self.cache.bytes)
        # the size of the list is not known yet; a server too busy to begin it has spent nothing on it
        refused = isinstance(error, ApiError) and error.status in (429, 503)
        return BEGIN_WHEN_REFUSED if refused else inf


def _has_another_way(before: State, after: State) -> bool:
    """Whether the next request is of another kind: who may not list, and asks for a version, may watch."""
    return isinstance(before, Doubting) and isinstance(after, Watching)


def _cause(end: Failed | Silent | Ended) -> str:
    """The cause of a new request, as the metric has it: failed, refused, silent, ended."""
    if isinstance(end, Failed) and is_refusal(end.error):
        return "refused"
    return type(end).__name__.lower()


def _in_words(error: KubeError) -> str:
    """An error with its request, where the message may not name that."""
    asked = error.asked if isinstance(error, ApiError) else None
    return f"{asked.in_words}: {error}" if asked else str(error)
