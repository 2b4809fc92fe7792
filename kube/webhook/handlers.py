"""Answering the API server's reviews over HTTP: bounded in time, number and bytes, never by a stall.

- An answer comes before the API server gives up: a handler that takes longer is cancelled, and the write is
  refused with a sentence that says so. A client that does not send its bytes in time gives the room back.
- What does not fit into the room is answered with 429 and Retry-After, which the API server heeds.
- Plain functions run in daemon threads; neither they nor reconcilers wait for the other. One that never
  returns holds its thread, not the server, nor the end of the process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from aiohttp import web

from elasticjob.kube.clock import Clock, deadline
from elasticjob.kube.http.threads import Threads
from elasticjob.kube.json import JsonReader
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.webhook.registration import path_of
from elasticjob.kube.webhook.review import (
    AdmissionReview,
    Answer,
    Reader,
    Request,
    Webhook,
    mutate,
    too_late,
    validate,
)
from elasticjob.kube.webhook.room import Full, InFlight

_REVIEW = JsonReader(AdmissionReview)

Handler = Callable[[web.Request], Awaitable[web.Response]]

MIB = 1 << 20
REVIEWS = 200, 64 * MIB
"""How many admission reviews may be under way at once, and of how many bytes together."""
LARGEST_REVIEW = 8 * MIB
"""The API server stores up to 1.5 MiB, and sends the old and the new object."""
SHARE = 0.9
"""Of the time that the API server waits; the rest is for the way back."""
THREADS = 16
FAILED = 500
"""Codes from here on are our own failures, not the object's."""


class Handlers:
    """The application behind one webhook server."""

    def __init__(
        self,
        webhooks: Sequence[Webhook[Any]],
        *,
        reader: Reader,
        clock: Clock,
        metrics: Metrics | None,
    ) -> None:
        self._webhooks = webhooks
        self._reader = reader
        self._clock = clock
        self._metrics = metrics
        self._threads = Threads(THREADS, "webhook")
        self.parting = False
        """Whether each response is the last of its connection."""

    def app(self) -> web.Application:
        """The application; its paths are those of registration.py."""
        app = web.Application()
        reviews = InFlight(*REVIEWS)
        for webhook in self._webhooks:
            for verb, answer in (("mutate", self._mutate), ("validate", self._validate)):
                path = path_of(verb, webhook.kind)
                handler = self._review(webhook, answer)
                app.router.add_post(path, self._within_room(handler, reviews, LARGEST_REVIEW))
        return app

    def _within_room(
        self, handle: Callable[[web.Request, bytes], Awaitable[web.Response]], room: InFlight, largest: int
    ) -> Handler:
        """`handle`, given the body, if there is room for it."""

        async def bounded(http: web.Request) -> web.Response:
            response = await answered(http)
            if self.parting:
                response.force_close()
            return response

        async def answered(http: web.Request) -> web.Response:
            size = largest if http.content_length is None else http.content_length
            if size > largest:
                return _refused(413, f"a review of {size} bytes is more than {largest}")
            seconds = SHARE * waits(http.query.get("timeout", ""))
            try:
                with room.hold(size):
                    async with deadline(self._clock, seconds):
                        body = await _body(http, largest)
                    return await handle(http, body)
            except TimeoutError:
                return _refused(408, f"the review was not sent within {seconds:g} s")
            except Full:
                return _refused(429, "too many reviews are under way: try again", {"Retry-After": "1"})

        return bounded

    def _review(
        self, webhook: Webhook[Any], answer: Callable[[Webhook[Any], Request], Awaitable[Answer]]
    ) -> Callable[[web.Request, bytes], Awaitable[web.Response]]:
        async def handle(http: web.Request, body: bytes) -> web.Response:
            try:
                review = _REVIEW.decode(body)
            except msgspec.DecodeError as error:
                return _refused(400, f"this is no AdmissionReview: {error}")
            seconds = SHARE * min(webhook.terms.timeout, waits(http.query.get("timeout", "")))
            found = await self._measure(http.path, self._in_time(webhook, review.request, answer, seconds))
            if found.code >= FAILED and webhook.terms.failure_policy == "Ignore":
                return _refused(found.code, str(found.problems[0].message))  # the API server lets it through
            return _json(found.manifest(review.request.uid))

        return handle

    async def _in_time(
        self,
        webhook: Webhook[Any],
        request: Request,
        answer: Callable[[Webhook[Any], Request], Awaitable[Answer]],
        seconds: float,
    ) -> Answer:
        try:
            async with deadline(self._clock, seconds):
                return await answer(webhook, request)
        except TimeoutError:
            return too_late(webhook, request, seconds)

    async def _mutate(self, webhook: Webhook[Any], request: Request) -> Answer:
        return await mutate(webhook, request, self._threads.run)

    async def _validate(self, webhook: Webhook[Any], request: Request) -> Answer:
        return await validate(webhook, request, self._reader, self._threads.run)

    async def _measure(self, path: str, answering: Awaitable[Answer]) -> Answer:
        metrics = self._metrics
        if metrics is None:
            return await answering
        with metrics.webhook_in_flight.labels(webhook=path).track_inprogress():
            began = self._clock.monotonic()
            answer = await answering
            metrics.webhook_seconds.labels(webhook=path).observe(self._clock.monotonic() - began)
        metrics.webhook_requests.labels(webhook=path, code=str(answer.code)).inc()
        return answer


def waits(timeout: str) -> float:
    """The seconds that an API server says it waits (`10s`, as Go writes it); without a word, its longest."""
    seconds = timeout.removesuffix("s")
    return float(seconds) if seconds.isdecimal() else 30.0


async def _body(http: web.Request, largest: int) -> bytes:
    pieces, size = [], 0
    async for piece in http.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > largest:
            raise web.HTTPRequestEntityTooLarge(largest, size)
    return b"".join(pieces)


def _json(review: Manifest) -> web.Response:
    return web.Response(body=msgspec.json.encode(review), content_type="application/json")


def _refused(status: int, why: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=why, headers=headers)
