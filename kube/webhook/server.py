"""A webhook server as a part of an Operator: it answers (handlers.py), tells the API server where
(registration.py), and keeps a certificate that is trusted (secret.py; mounted.py where others issue it).

It serves first and registers then. It is ready while the API server's own copy of the registration trusts
the served certificate; a changed registration is repaired as soon as a watch reports it.
An API server may present a client certificate (its admission configuration says so); none is asked for here:
a client that reaches the port learns what would be admitted, and nothing else. A NetworkPolicy keeps others
out.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from elasticjob.kube.backoff import WATCH, Backoff, Failures
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Informer
from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import Clock, deadline
from elasticjob.kube.errors import KubeError
from elasticjob.kube.http.serving import Runner
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Key, Kind
from elasticjob.kube.objects.owner import Owner
from elasticjob.kube.objects.problem import Problem
from elasticjob.kube.objects.views import SECRET
from elasticjob.kube.operator.rungroup import Group
from elasticjob.kube.webhook.certs.certificates import Leaf, Policy, load_leaf, server_context
from elasticjob.kube.webhook.certs.mounted import MountedPair
from elasticjob.kube.webhook.certs.secret import CaSecret
from elasticjob.kube.webhook.handlers import Handlers
from elasticjob.kube.webhook.registration import (
    Address,
    Registration,
    ServiceRef,
    admission_places,
)
from elasticjob.kube.webhook.review import Mutate, Reader, Review, Terms, Validate, Webhook

__all__ = [
    "Mutate",
    "Owner",
    "Policy",
    "Problem",
    "Reader",
    "Review",
    "ServiceRef",
    "Terms",
    "Validate",
    "Webhook",
    "WebhookServer",
]

KEEP_ALIVE = 120.0
"""Seconds that an idle connection stays open: longer than API servers keep theirs (90), so that none of them
sends into a connection that we are closing."""
DRAIN = 10.0
"""Seconds that reviews under way have when the server stops."""
PARTING = 2.0
"""Seconds in which a server behind a Service still answers when it stops, each response the last of its
connection: one that is closed while a review is on its way would fail the write."""
REPAIR = Backoff(first=0.5, limit=30.0, reset_after=120.0)
"""Between two repairs of the registration: two versions of a program may be of different minds about it."""

log = logging.getLogger(__name__)


class WebhookServer:
    """Answers for `webhooks`; `name` is that of both webhook configurations, which it owns.

    `service` makes it register as a Service, else it registers by a URL: `reachable_as` is the host, or the
    host:port of something before it, by which the API server reaches it. Port 0 takes a free one.
    The certificate is of an authority of our own, which replicas share through `secret`; without one, each
    process has its own. Or, with `certificates`, it is read from that folder, and the API server's trust in
    it is left to cert-manager's injector: `inject_from` is the namespace/name of its Certificate.
    With an `owner`, the configurations are deleted with it, and the Secret with `secret_owner`.
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
        certificates: Path | None = None,
        inject_from: str = "",
        owner: Owner | None = None,
        secret_owner: Owner | None = None,
        policy: Policy | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._client = client
        self._name = name
        self._service = service
        self._secret = None if certificates else secret
        self._secret_owner = secret_owner
        self._reachable_as = _host_and_port(reachable_as or host)
        self._policy = policy or Policy()
        self._clock = clock or client.clock
        self._expires = metrics and metrics.certificate_expires.labels(configuration=name)
        self._tls = server_context()
        self._places = admission_places(name, webhooks)
        self._registration = Registration(client, name, self._places, self._address, inject_from, owner)
        self._answering = Handlers(webhooks, reader=client, clock=self._clock, metrics=metrics)
        self._mounted = self._read_from(certificates, metrics) if certificates else None
        self._trust = self._mounted or self._own_authority()
        self._failures, self._repairs = Failures(WATCH), Failures(REPAIR)
        self._changed = asyncio.Event()
        self._registered = asyncio.Event()
        self._problem: str | None = "the API server has not been told about the webhooks"

    @property
    def url(self) -> str:
        """Where it listens, once it runs."""
        host, port = self._reachable_as
        return f"https://{_in_brackets(host)}:{port or self._port}"

    @property
    def port(self) -> int:
        """Where it listens itself, once it runs."""
        return self._port

    def ready(self) -> str | None:
        """A check for /readyz."""
        return self._problem

    async def wait_started(self) -> None:
        """Return once the API server has been told, and trusts what is served."""
        await self._registered.wait()

    async def run(self) -> None:
        """Serve until cancelled; certificates are renewed, registrations repaired."""
        app = self._answering.app()
        runner = Runner(
            app,
            shutdown_timeout=DRAIN,
            keepalive_timeout=KEEP_ALIVE,
            handler_cancellation=True,
        )
        await runner.setup()
        try:
            self._port = await runner.listen(self._host, self._port, self._tls)
            async with asyncio.TaskGroup() as tasks:
                for informer in self._informers():
                    tasks.create_task(informer.run())
                if self._mounted:
                    tasks.create_task(self._mounted.run(self._changed.set))
                tasks.create_task(self._keep_trusted())
        finally:
            self._problem = "the webhook server has stopped"
            self._answering.parting = True
            if self._service and runner.transports:
                await asyncio.sleep(PARTING)
            await runner.cleanup(PARTING if self._service else 0.0)

    async def _keep_trusted(self) -> None:
        """Look whenever something has changed, and now and then; in no hurry against others' writes."""
        while True:
            self._changed.clear()
            before = self._registration.writes
            try:
                self._tell(await self._trust.look())
            except KubeError as error:
                self._cannot_look(error)
                self._failures, pause = self._failures.another(self._clock.monotonic(), random.random)
                await self._change(pause)
                continue
            if self._registration.writes > before:
                self._repairs, pause = self._repairs.another(self._clock.monotonic(), random.random)
                await self._clock.sleep(pause)
            await self._change(self._policy.look.total_seconds())

    async def _change(self, within: float) -> None:
        """Return when something has changed, or after `within` seconds."""
        try:
            async with deadline(self._clock, within):
                await self._changed.wait()
        except TimeoutError:
            return

    def _tell(self, problem: str | None) -> None:
        """Be ready, or not."""
        if problem is None:
            if self._problem is not None:
                log.info("webhooks are registered", extra={"configuration": self._name, "url": self.url})
            self._registered.set()
        elif problem != self._problem:
            log.warning("webhooks cannot be reached", extra={"configuration": self._name, "why": problem})
        self._problem = problem

    def _cannot_look(self, error: KubeError) -> None:
        """While the API server is unreachable, the last known state is kept: it sends no reviews either."""
        log.warning("webhooks cannot be registered", extra={"configuration": self._name, "error": str(error)})
        if not self._registered.is_set():
            self._problem = f"the API server has not been told about the webhooks: {error}"

    def _informers(self) -> Iterator[Informer[Any]]:
        """Watches of the objects that others may spoil; they only tell that it is time to look."""
        for kind, key in self._watched():
            cache = Cache(kind, key.namespace, fields=f"metadata.name={key.name}")
            cache.subscribe(lambda _: self._changed.set())
            yield Informer(self._client, cache, clock=self._clock)

    def _watched(self) -> Iterator[tuple[Kind[Any], Key]]:
        for place in self._places:
            yield place.kind, Key("", place.name)
        if self._secret:
            yield SECRET, self._secret

    def _own_authority(self) -> CaSecret:
        return CaSecret(
            self._client,
            self._secret,
            self._registration,
            self._serve,
            name=f"{self._name} webhooks",
            hosts=self._hosts(),
            clock=self._clock,
            policy=self._policy,
            owner=self._secret_owner,
        )

    def _read_from(self, folder: Path, metrics: Metrics | None) -> MountedPair:
        return MountedPair(
            folder,
            self._registration,
            self._serve,
            host=self._hosts()[0],
            clock=self._clock,
            poll=self._policy.poll,
            metrics=metrics,
        )

    def _serve(self, leaf: Leaf) -> None:
        load_leaf(self._tls, leaf)
        if self._expires:
            self._expires.set(leaf.expires.timestamp())

    def _hosts(self) -> list[str]:
        service = self._service
        return [service.host, f"{service.host}.cluster.local"] if service else [self._reachable_as[0]]

    def _address(self) -> Address:
        return Address(self.url, self._service)


def _host_and_port(address: str) -> tuple[str, str]:
    """`host`, `host:port`, `[::1]:port` or a bare IPv6 address; the port is "" where none is named."""
    if address.count(":") > 1 and not address.startswith("["):
        return address, ""
    host, _, port = address.rpartition(":") if ":" in address.rpartition("]")[2] else (address, "", "")
    return host.strip("[]"), port


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host
