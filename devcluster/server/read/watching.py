"""Watches: an endless answer of JSON lines.

- With a resourceVersion: every later change. Without one, or with "0": first the objects, then changes.
- `sendInitialEvents`: the same, with a bookmark marked `k8s.io/initial-events-end` after the last object.
- A selector turns changes into what they mean to it: an object that no longer matches is DELETED.
- Bookmarks come on request only; the answer ends after `timeoutSeconds`, with an ERROR event, or
  when its resource is no longer served.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from elasticjob.devcluster.server.model.errors import Cause, StatusError, bad_request, invalid, not_a_number
from elasticjob.devcluster.server.model.names import unsupported
from elasticjob.devcluster.server.model.selectors import Predicate
from elasticjob.devcluster.server.model.store import (
    Change,
    Entry,
    Event,
    Manifest,
    Store,
    Subscription,
    encode,
)
from elasticjob.devcluster.server.model.target import Target
from elasticjob.devcluster.server.read.lists import (
    Form,
    flag,
    in_version,
    page,
    selection,
    served_raw,
    version_of,
)
from elasticjob.devcluster.server.read.table import partial, table

INITIAL_END = "k8s.io/initial-events-end"


LAST_BOOKMARK: Final = 2.0
"""Seconds before the end of a watch at which a bookmark is sent, as a real server does."""


@dataclass(frozen=True)
class Request:
    """The options of a watch."""

    target: Target
    form: Form
    keep: Predicate | None
    since: int | None
    initial: bool
    bookmarks: bool
    marked: bool
    timeout: float


def request_of(target: Target, query: Mapping[str, str], form: Form, default_timeout: float) -> Request:
    """Read the parameters of a watch; 400 where they contradict each other."""
    problems = list(_match_problems(query))
    if problems:
        raise invalid("meta.k8s.io", "ListOptions", "", problems)
    version = version_of(query)
    initial, bookmarks = flag(query, "sendInitialEvents"), bool(flag(query, "allowWatchBookmarks"))
    marked, whole = bool(initial), not version if initial is None else initial
    return Request(
        target,
        form,
        selection(target, query),
        None if whole else version or None,
        whole,
        bookmarks,
        marked and bookmarks,
        _seconds(query.get("timeoutSeconds", "")) or default_timeout,
    )


def _match_problems(query: Mapping[str, str]) -> Iterator[Cause]:
    """Invalid combinations of resourceVersion, resourceVersionMatch and sendInitialEvents."""
    match, initial = query.get("resourceVersionMatch", ""), "sendInitialEvents" in query
    field, forbidden = "resourceVersionMatch", "FieldValueForbidden"
    if initial and match != "NotOlderThan":
        why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        yield Cause(field, why, forbidden)
    if match and not initial:
        why = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        yield Cause(field, why, forbidden)
    elif match not in ("", "NotOlderThan"):
        yield unsupported(field, match, ["NotOlderThan"])


def _seconds(text: str) -> float:
    """Also parts of a second, which a real server does not take: tests are in a hurry."""
    if not re.fullmatch(r"|[0-9]+\.?[0-9]*|\.[0-9]+", text):
        raise bad_request(not_a_number(text))
    return float(text or 0)


class Watch:
    """One watch: `lines()` are the pieces of its answer."""

    def __init__(
        self,
        store: Store,
        request: Request,
        query: Mapping[str, str],
        now: Callable[[], datetime],
        bookmark_interval: float,
    ) -> None:
        self._store = store
        self._request = request
        self._now = now
        self._interval = bookmark_interval
        self._type = request.target.resource.type
        self._headers = True
        if request.marked and query.get("resourceVersion"):
            store.check_version(version_of(query))
        self._first = page(store, request.target, _without_paging(query)).items if request.initial else []
        self._subscription: Subscription = store.watch(self._type, request.since)
        self._seen = store.version if request.since is None else request.since

    def close(self) -> None:
        self._store.close(self._type, self._subscription)

    async def lines(self) -> AsyncIterator[bytes]:
        """Pieces of the answer until the time is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._request.timeout
        if self._first or self._request.marked:
            yield self._initial()
        bookmark = self._next_bookmark(loop.time(), end)
        while True:
            pause = min(end, bookmark if self._request.bookmarks else end) - loop.time()
            if pause > 0:
                await self._arrival(pause)
            try:
                lines = b"".join(self._translate(self._subscription.take()))
                self._seen = (
                    self._store.version
                )  # events up to here are taken; later ones wait for the next round
            except StatusError as error:
                yield self._line("ERROR", error.body())
                return
            mark = self._bookmark({})
            if lines:
                yield lines
            if self._subscription.ended:
                return
            if self._request.bookmarks and loop.time() >= bookmark:
                bookmark = self._next_bookmark(loop.time(), end)
                yield mark
            if loop.time() >= end:
                return

    def _next_bookmark(self, now: float, end: float) -> float:
        last = end - LAST_BOOKMARK
        return min(now + self._interval, last if last > now else end)

    async def _arrival(self, pause: float) -> None:
        try:
            async with asyncio.timeout(pause):
                await self._subscription.wait()
        except TimeoutError:
            return

    def _initial(self) -> bytes:
        lines = [self._encode("ADDED", stored) for stored in self._first]
        self._first = []
        if self._request.marked:
            lines.append(self._bookmark({"annotations": {INITIAL_END: "true"}}))
        return b"".join(lines)

    def _bookmark(self, metadata: Manifest) -> bytes:
        resource = self._request.target.resource
        mark = metadata | {"resourceVersion": str(self._seen)}
        body: Manifest = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": mark}
        if self._request.form.kind == "Table":
            body = table(resource, [], mark, self._now(), headers=False)
        return self._line("BOOKMARK", body)

    def _translate(self, events: list[Event]) -> list[bytes]:
        return [line for event in events if (line := self._in_version(event))]

    def _in_version(self, event: Event) -> bytes:
        target = self._request.target
        metadata = event.new.metadata
        if event.version <= (self._request.since or 0):
            return b""  # asked for from the future: silence until then
        if target.namespace and metadata.get("namespace") != target.namespace:
            return b""
        if target.name and metadata["name"] != target.name:
            return b""
        change = self._meaning(event)
        if change is None:
            return b""
        if change == "DELETED" and event.change != "DELETED":
            return self._encode(change, _last_seen(event))
        if self._request.form.kind:
            return self._encode(change, event.new)
        resource = target.resource
        return event.line(change, resource.api_version, lambda stored: served_raw(resource, stored))

    def _meaning(self, event: Event) -> Change | None:
        """The event that a watch with selectors gets for a change."""
        keep, resource = self._request.keep, self._request.target.resource
        if keep is None:
            return event.change
        now = event.change != "DELETED" and keep(in_version(resource, event.new))
        before = event.old is not None and keep(in_version(resource, event.old))
        return _MEANINGS[before, now]

    def _encode(self, change: str, stored: Entry) -> bytes:
        resource, form = self._request.target.resource, self._request.form
        if form.kind == "Table":
            metadata = {"resourceVersion": str(stored.version)}
            body = table(
                resource,
                [in_version(resource, stored)],
                metadata,
                self._now(),
                include=form.include,
                headers=self._headers,
            )
            self._headers = False
            return self._line(change, body)
        if form.kind == "Partial":
            return self._line(change, partial(stored.body))
        return b'{"type":"%s","object":%s}\n' % (change.encode(), served_raw(resource, stored))

    def _line(self, change: str, body: Manifest) -> bytes:
        return encode({"type": change, "object": body}) + b"\n"


def _last_seen(event: Event) -> Entry:
    """The last state of an object that left a selector, with the resourceVersion of the change."""
    body = (event.old or event.new).copy()
    body["metadata"]["resourceVersion"] = str(event.version)
    return Entry(body, encode(body), event.version)


_MEANINGS: dict[tuple[bool, bool], Change | None] = {
    (True, True): "MODIFIED",
    (False, True): "ADDED",
    (True, False): "DELETED",
    (False, False): None,
}


def _without_paging(query: Mapping[str, str]) -> dict[str, str]:
    left_out = ("limit", "continue", "resourceVersion", "resourceVersionMatch", "sendInitialEvents")
    return {name: value for name, value in query.items() if name not in left_out}
