"""All objects, their history and watchers: the only mutable state of the server.

- One counter numbers every change of any type; an object carries the number of its last change.
- A stored object is never modified: a change stores a new one. So readers need no copies and no locks.
- Nothing here awaits: a call is atomic for every task of the process.
- Each type keeps its newest changes; a watch that starts before them is refused with 410.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from elasticjob.devcluster.server.model.errors import expired, too_large, too_large_version

Manifest = dict[str, Any]
Change = Literal["ADDED", "MODIFIED", "DELETED"]
LARGEST = 1_572_864  # bytes of one object, as etcd has it
REMEMBERED = 32 * 1024 * 1024  # bytes of history per type, encoded; in memory it is a multiple of that
encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, order=True, slots=True)
class Type:
    """The storage type: all versions of one resource."""

    group: str
    plural: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One object as it is: `body` must not be modified, `copy()` may."""

    body: Manifest
    raw: bytes
    version: int

    def copy(self) -> Manifest:
        return decode(self.raw)  # type: ignore[no-any-return]  # a decoded edge

    @property
    def metadata(self) -> Manifest:
        return self.body["metadata"]  # type: ignore[no-any-return]  # a decoded edge


@dataclass(slots=True, eq=False)
class Event:
    """One change. `old` is None for ADDED. Encoded lines are kept, so that ten watchers cost one encoding."""

    change: Change
    version: int
    new: Entry
    old: Entry | None
    lines: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def line(self, change: Change, version: str, convert: Callable[[Entry], bytes]) -> bytes:
        """The JSON line `{"type": change, "object": …}` in one API version."""
        key = (change, version)
        if key not in self.lines:
            self.lines[key] = b'{"type":"%s","object":%s}\n' % (change.encode(), convert(self.new))
        return self.lines[key]


class Subscription:
    """The changes of one type from one moment on; `close()` when done."""

    def __init__(self, backlog: list[Event], limit: int) -> None:
        self._events = deque(backlog)
        self._limit = limit
        self._wake = asyncio.Event()
        self.overrun = False
        self.ended = False
        if backlog:
            self._wake.set()

    def push(self, event: Event) -> None:
        if len(self._events) >= self._limit:
            self.overrun = True
        else:
            self._events.append(event)
        self._wake.set()

    def end(self) -> None:
        """End the watch after the queued events."""
        self.ended = True
        self._wake.set()

    async def wait(self) -> None:
        """Return when there is something to take."""
        await self._wake.wait()

    def take(self) -> list[Event]:
        """All that came since the last call. A reader that fell too far behind is refused with 410."""
        if self.overrun:
            raise expired("too old resource version: the watch fell too far behind")
        events = list(self._events)
        self._events.clear()
        self._wake.clear()
        return events


@dataclass
class _Shelf:
    """Everything of one type."""

    items: dict[tuple[str, str], Entry] = field(default_factory=dict)
    history: deque[Event] = field(default_factory=deque)
    size: int = 0
    forgotten: int = 0
    subscriptions: set[Subscription] = field(default_factory=set)

    def forget(self, version: int) -> None:
        self.history.clear()
        self.size, self.forgotten = 0, version

    def remember(self, event: Event, most: int) -> None:
        """Append to the history, and drop its oldest events beyond `most` or the size limit."""
        self.history.append(event)
        self.size += len(event.new.raw)
        while len(self.history) > most or (self.size > REMEMBERED and len(self.history) > 1):
            oldest = self.history.popleft()
            self.size -= len(oldest.new.raw)
            self.forgotten = oldest.version


class Store:
    """Objects by (type, namespace, name); the namespace of cluster-scoped objects is ""."""

    def __init__(self, *, history: int = 20_000, backlog: int = 50_000) -> None:
        self.version = 1
        self.compacted = 0
        self._history = history
        self._backlog = backlog
        self._shelves: dict[Type, _Shelf] = {}
        self._listeners: list[Callable[[Type, Event], None]] = []

    def get(self, type_: Type, namespace: str, name: str) -> Entry | None:
        shelf = self._shelves.get(type_)
        return shelf.items.get((namespace, name)) if shelf else None

    def every(self, type_: Type, namespace: str = "") -> list[Entry]:
        """All objects of a type, or those of one namespace, ordered by namespace and name."""
        shelf = self._shelves.get(type_)
        if shelf is None:
            return []
        return [item for key, item in sorted(shelf.items.items()) if not namespace or key[0] == namespace]

    def every_at(self, type_: Type, namespace: str, version: int) -> list[Entry]:
        """The same as of a version of the past; 410 when the history does not reach back so far."""
        shelf = self._shelves.get(type_)
        if shelf is None:
            return []
        if version < shelf.forgotten:
            raise expired(f"too old resource version: {version} ({shelf.forgotten})")
        items = dict(shelf.items)
        for event in reversed(shelf.history):
            if event.version <= version:
                break
            key = (event.new.metadata.get("namespace", ""), event.new.metadata["name"])
            items.pop(key, None)
            if event.old is not None:
                items[key] = event.old
        return [item for key, item in sorted(items.items()) if not namespace or key[0] == namespace]

    def types(self) -> Iterator[Type]:
        return iter(list(self._shelves))

    def put(self, type_: Type, body: Manifest) -> Entry:
        """Store a new object or a new state of one; the store owns `body` from here on and numbers it."""
        shelf = self._shelf(type_)
        metadata = body["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        old = shelf.items.get(key)
        stored = self._number(body)
        shelf.items[key] = stored
        self._publish(type_, shelf, Event("MODIFIED" if old else "ADDED", stored.version, stored, old))
        return stored

    def remove(self, type_: Type, body: Manifest) -> Entry:
        """Remove an object; `body` is its last state, returned to the writer. Watchers get the stored object
        with the resourceVersion of the deletion.
        """
        shelf = self._shelf(type_)
        metadata = body["metadata"]
        old = shelf.items.pop((metadata.get("namespace", ""), metadata["name"]))
        last = self._number(old.copy())
        self._publish(type_, shelf, Event("DELETED", last.version, last, old))
        return Entry(body, encode(body), last.version)

    def amend(self, type_: Type, change: Callable[[Manifest], None]) -> None:
        """Have all objects of a type be as `change` makes them. Versions stay, and no watch hears of it."""
        items = self._shelf(type_).items
        for key, stored in list(items.items()):
            body = stored.copy()
            change(body)
            if body != stored.body:
                items[key] = Entry(body, encode(body), stored.version)

    def end(self, type_: Type) -> None:
        """Forget the history of a type that is no longer served, and end its watches."""
        shelf = self._shelf(type_)
        shelf.forget(self.version)
        for subscription in shelf.subscriptions:
            subscription.end()

    def watch(self, type_: Type, since: int | None) -> Subscription:
        """Changes after `since`, or from now on (None). 410 when they are forgotten, 504 for the future."""
        shelf = self._shelf(type_)
        backlog = [] if since is None else self._after(shelf, since)
        subscription = Subscription(backlog, self._backlog)
        shelf.subscriptions.add(subscription)
        return subscription

    def close(self, type_: Type, subscription: Subscription) -> None:
        self._shelf(type_).subscriptions.discard(subscription)

    def check_version(self, asked: int) -> None:
        """Refuse a version that this store has not reached: it comes from another life of the server."""
        if asked > self.version:
            raise too_large_version(asked, self.version)

    def compact(self) -> None:
        """Forget all history: every version before now is answered with 410."""
        self.compacted = self.version
        for shelf in self._shelves.values():
            shelf.forget(self.version)

    def listen(self, listener: Callable[[Type, Event], None]) -> None:
        """Call `listener` with each change, at once; it must neither await nor write."""
        self._listeners.append(listener)

    def _shelf(self, type_: Type) -> _Shelf:
        if type_ not in self._shelves:
            self._shelves[type_] = _Shelf(forgotten=self.compacted)
        return self._shelves[type_]

    def _number(self, body: Manifest) -> Entry:
        body["metadata"]["resourceVersion"] = str(self.version + 1)
        if next(iter(body)) != "kind":  # as the real server writes it; lists of built-in kinds cut it off
            body = {"kind": body.get("kind"), "apiVersion": body.get("apiVersion")} | body
        raw = encode(body)
        if len(raw) > LARGEST:
            raise too_large(len(raw), LARGEST)
        self.version += 1
        return Entry(body, raw, self.version)

    def _after(self, shelf: _Shelf, since: int) -> list[Event]:
        if since < shelf.forgotten:
            raise expired(f"too old resource version: {since} ({shelf.forgotten})")
        events = list(shelf.history)
        return events[bisect_right(events, since, key=lambda event: event.version) :]

    def _publish(self, type_: Type, shelf: _Shelf, event: Event) -> None:
        shelf.remember(event, self._history)
        for subscription in shelf.subscriptions:
            subscription.push(event)
        for listener in self._listeners:
            listener(type_, event)
