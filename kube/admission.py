"""Serving admission webhooks (review.py) over TLS, and telling the API server where: a part of an Operator.

The authority is shared through a Secret where one is named, else made anew by each process. Serving
certificates are made in memory and renewed on the live socket. Not ready until the API server has been told
which authority to trust, and where we are: a URL for a process on a host, a Service in a cluster.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from aiohttp import web

from elasticjob.kube.backoff import WATCH, Failures
from elasticjob.kube.certificates import (
    Authority,
    Leaf,
    issue,
    load_leaf,
    new_authority,
    shared_authority,
)
from elasticjob.kube.client import Client
from elasticjob.kube.clock import Clock
from elasticjob.kube.errors import KubeError
from elasticjob.kube.kinds import Key, Kind, Manifest
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from elasticjob.kube.problem import Problem
from elasticjob.kube.review import (
    AdmissionReview,
    Answer,
    Mutate,
    Reader,
    Request,
    Review,
    Validate,
    Webhook,
    mutated,
    validated,
)
from elasticjob.kube.rungroup import Group

__all__ = [
    "AdmissionServer",
    "Mutate",
    "Problem",
    "Reader",
    "Review",
    "ServiceRef",
    "Validate",
    "Webhook",
]

LARGEST_REVIEW = 8 * 1024 * 1024
"""Bytes: the API server stores up to 1.5 MiB, and sends the old and the new object."""
TIMEOUT = 10
"""Seconds that the API server waits for an answer; then the write is refused."""
LOOK_AGAIN = 60.0
"""Seconds between two looks at the certificate and at what the API server has been told."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServiceRef:
    """The Service through which the API server reaches us."""

    namespace: str
    name: str
    port: int = 443

    @property
    def host(self) -> str:
        return f"{self.name}.{self.namespace}.svc"


class AdmissionServer:
    """Answers for `webhooks`; `name` is that of both webhook configurations, which it owns entirely.

    `service` makes it register as a Service, else it registers as https://`reachable_as`:port. `secret` names
    the Secret that replicas share their authority through. Port 0 takes a free one.
    """

    group = Group.WEBHOOKS

    def __init__(
        self,
        host: str,
        port: int,
        webhooks: Sequence[Webhook[Any]],
        *,
        client: Client,
        name: str,
        service: ServiceRef | None = None,
        secret: Key | None = None,
        reachable_as: str = "",
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._webhooks = tuple(webhooks)
        self._client = client
        self._name = name
        self._service = service
        self._secret = secret
        self._reachable_as = reachable_as or host
        self._clock = clock or client.clock
        self._metrics = metrics
        self._failures = Failures(WATCH)
        self._registered = asyncio.Event()
        self._own: Authority | None = None
        self._leaf: Leaf | None = None
        self._issuer = b""

    @property
    def url(self) -> str:
        """Where it listens, once it runs."""
        return f"https://{_bracketed(self._reachable_as)}:{self._port}"

    def ready(self) -> str | None:
        """A check for /readyz."""
        return None if self._registered.is_set() else "the API server has not been told about the webhooks"

    async def wait_started(self) -> None:
        """Return once the API server has been told."""
        await self._registered.wait()

    async def run(self) -> None:
        """Serve until cancelled; certificates are renewed, registrations repaired."""
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=TIMEOUT)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host or None, self._port, ssl_context=tls)
            await site.start()
            self._port = runner.addresses[0][1]
            await self._keep_trusted(tls)
        finally:
            self._registered.clear()
            await runner.cleanup()

    async def _keep_trusted(self, tls: ssl.SSLContext) -> None:
        while True:
            try:
                await self._trust(tls)
            except KubeError as error:
                self._failures, pause = self._failures.another(self._clock.monotonic(), random.random)
                log.warning("webhooks cannot be registered", extra={"error": str(error)})
            else:
                if not self._registered.is_set():
                    log.info("webhooks are registered", extra={"configuration": self._name, "url": self.url})
                self._registered.set()
                pause = LOOK_AGAIN
            await self._clock.sleep(pause)

    async def _trust(self, tls: ssl.SSLContext) -> None:
        """Have the API server trust our authority, then serve a leaf of it: no call fails in between.

        The first leaf is served before: without any, calls would fail from the moment of being told.
        """
        authority, now = await self._authority(), self._clock.now()
        if self._leaf is None:
            self._leaf = self._served(tls, authority, now)
        await self._register(authority.bundle)
        if self._leaf.is_due(now) or self._issuer != authority.certificate:
            self._leaf = self._served(tls, authority, now)

    def _served(self, tls: ssl.SSLContext, authority: Authority, now: datetime) -> Leaf:
        leaf, self._issuer = issue(authority, self._hosts(), now), authority.certificate
        load_leaf(tls, leaf)
        return leaf

    async def _authority(self) -> Authority:
        now = self._clock.now()
        if self._secret:
            return await shared_authority(self._client, *self._secret, now)
        if self._own is None:
            self._own = new_authority(f"{self._name} webhooks", now)
        return self._own

    def _hosts(self) -> list[str]:
        service = self._service
        return [service.host, f"{service.host}.cluster.local"] if service else [self._reachable_as]

    async def _register(self, bundle: bytes) -> None:
        for kind, verb, chosen in (
            (MUTATING_WEBHOOKS, "mutate", [webhook for webhook in self._webhooks if webhook.mutate]),
            (VALIDATING_WEBHOOKS, "validate", [webhook for webhook in self._webhooks if webhook.validate]),
        ):
            entries = [self._entry(webhook.kind, webhook.operations, verb, bundle) for webhook in chosen]
            manifest = {"metadata": {"name": self._name}, "webhooks": entries}
            await self._client.apply(kind, manifest, manager=self._name)

    def _entry(self, kind: Kind[Any], operations: Sequence[str], verb: str, bundle: bytes) -> Manifest:
        path = _path(verb, kind)
        if self._service:
            service = {"namespace": self._service.namespace, "name": self._service.name}
            where: Manifest = {"service": service | {"port": self._service.port, "path": path}}
        else:
            where = {"url": self.url + path}
        rule = {
            "apiGroups": [kind.group],
            "apiVersions": [kind.version],
            "resources": [kind.plural],
            "operations": list(operations),
            "scope": "Namespaced" if kind.namespaced else "Cluster",
        }
        return {
            "name": f"{verb}.{kind.plural}.{kind.group or 'core'}",  # three parts, or it is refused
            "clientConfig": where | {"caBundle": base64.b64encode(bundle).decode()},
            "rules": [rule],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "timeoutSeconds": TIMEOUT,
        }

    # serving

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST_REVIEW)
        for webhook in self._webhooks:
            app.router.add_post(_path("mutate", webhook.kind), self._handler(webhook, self._mutated))
            app.router.add_post(_path("validate", webhook.kind), self._handler(webhook, self._validated))
        return app

    def _handler(
        self, webhook: Webhook[Any], answer: Callable[[Webhook[Any], Request], Awaitable[Answer]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(http: web.Request) -> web.Response:
            try:
                review = msgspec.json.decode(await http.read(), type=AdmissionReview)
            except msgspec.DecodeError as error:
                return web.Response(status=400, text=f"this is no AdmissionReview: {error}")
            found = await self._measured(http.path, answer(webhook, review.request))
            body = msgspec.json.encode(found.manifest(review.request.uid))
            return web.Response(body=body, content_type="application/json")

        return handle

    async def _mutated(self, webhook: Webhook[Any], request: Request) -> Answer:
        return await mutated(webhook, request)

    async def _validated(self, webhook: Webhook[Any], request: Request) -> Answer:
        return await validated(webhook, request, self._client)

    async def _measured(self, path: str, answering: Awaitable[Answer]) -> Answer:
        metrics = self._metrics
        if metrics is None:
            return await answering
        with metrics.webhook_in_flight.labels(webhook=path).track_inprogress():
            began = self._clock.monotonic()
            answer = await answering
            metrics.webhook_seconds.labels(webhook=path).observe(self._clock.monotonic() - began)
        metrics.webhook_requests.labels(webhook=path, code=str(answer.code)).inc()
        return answer


def _path(verb: str, kind: Kind[Any]) -> str:
    return f"/{verb}/{kind.resource}/{kind.version}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
