"""The API server: assembles its parts, starts and stops them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from uuid import UUID

import aiohttp
from aiohttp import web

from elasticjob.devcluster.server.auth.access import Access
from elasticjob.devcluster.server.auth.tokens import Tokens
from elasticjob.devcluster.server.controllers.bootstrap import bootstrap, publish_address
from elasticjob.devcluster.server.controllers.cleanup import Cleanup
from elasticjob.devcluster.server.controllers.collector import Collector
from elasticjob.devcluster.server.controllers.establishing import Establishing
from elasticjob.devcluster.server.controllers.protection import Protection
from elasticjob.devcluster.server.crd.crd import CRDS, is_served, resources_of
from elasticjob.devcluster.server.http.certs import make_identity, server_context
from elasticjob.devcluster.server.http.http import Http, Observe
from elasticjob.devcluster.server.http.logs import Logs
from elasticjob.devcluster.server.http.subresources import Subresources
from elasticjob.devcluster.server.http.tokenrequests import TokenRequests
from elasticjob.devcluster.server.http.verbs import Verbs
from elasticjob.devcluster.server.kinds.builtins import builtin_resources
from elasticjob.devcluster.server.kinds.kinds import builtin_strategies
from elasticjob.devcluster.server.model.registry import Registry
from elasticjob.devcluster.server.model.store import Event, Store, Type
from elasticjob.devcluster.server.write.admission import Webhooks
from elasticjob.devcluster.server.write.core import Core
from elasticjob.devcluster.server.write.decoding import read_again
from elasticjob.kube.http.door import Bounds
from elasticjob.kube.http.serving import Runner
from elasticjob.kube.http.sockets import kept_alive
from elasticjob.kube.operator.rungroup import Runnable


def _utc() -> datetime:
    return datetime.now(UTC)


class ApiServer:
    """A Kubernetes API server on one address, for as long as the `async with` lasts.

    `clock` gives the time that objects are stamped with; `port` 0 takes a free one; `bookmark_interval` and
    `watch_timeout` are seconds; `history` is how many changes per type a watch may go back; `rbac` makes
    Roles count (members of system:masters may do everything in any case); `observe` is told of each request
    that was answered. For `establish_delay` seconds a new definition is shown, but its objects are not there
    yet: as long as a real server needs, about.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], datetime] = _utc,
        host: str = "127.0.0.1",
        port: int = 0,
        bookmark_interval: float = 60.0,
        watch_timeout: float = 1800.0,
        establish_delay: float = 0.005,
        history: int = 20_000,
        rbac: bool = False,
        chance: random.Random | None = None,
        observe: Observe | None = None,
    ) -> None:
        self._clock = clock
        self._host = host
        self._port = port
        self._bookmark_interval = bookmark_interval
        self._observe = observe
        self._watch_timeout = watch_timeout
        self._identity = make_identity(host, clock())
        self._registry = Registry()
        self._store = Store(history=history)
        self._chance = chance or random.SystemRandom()
        self._tokens = Tokens(self._store, clock, self._new_uid)
        self._access = Access(self._store, enforced=rbac)
        self._webhooks = Webhooks(self._store, self._registry, self._new_uid)
        self._core = Core(
            self._store,
            self._registry,
            builtin_strategies(self._store),
            self._webhooks,
            self._access,
            clock,
            self._chance,
        )
        self._collector = Collector(self._core)
        self._cleanup = Cleanup(self._core)
        self._protection = Protection(self._core)
        self._establishing = Establishing(self._core, establish_delay)
        for resource in builtin_resources():
            self._registry.add(resource)
        self._store.listen(self._follow_definitions)

    @property
    def url(self) -> str:
        """`https://host:port`; valid once started."""
        return f"https://{self._host}:{self._port}"

    @property
    def ca_pem(self) -> str:
        """The certificate authority that clients must trust."""
        return self._identity.ca

    def add_token(self, token: str, user: str, groups: Iterable[str] = ()) -> None:
        """Accept a bearer token as this user."""
        self._tokens.add(token, user, groups)

    def compact(self) -> None:
        """Forget all history, as etcd does now and then: older versions are answered with 410."""
        self._store.compact()

    async def __aenter__(self) -> ApiServer:
        bootstrap(self._core)
        async with AsyncExitStack() as stack:
            connector = aiohttp.TCPConnector(socket_factory=kept_alive)
            timeout = aiohttp.ClientTimeout(total=None, connect=5)
            session = aiohttp.ClientSession(connector=connector, timeout=timeout)
            self._webhooks.session = await stack.enter_async_context(session)
            await self._listen(stack, self._http(session))
            publish_address(self._core, self._host, self._port)
            for part in self._running:
                task = asyncio.create_task(part.run(), name=type(part).__name__)
                stack.push_async_callback(_end, task)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def _running(self) -> Sequence[Runnable]:
        return self._collector, self._cleanup, self._protection, self._establishing

    def _http(self, session: aiohttp.ClientSession) -> Http:
        return Http(
            self._core,
            Verbs(self._core, self._clock),
            Subresources(self._core, self._clock),
            TokenRequests(self._core, self._tokens, self._clock),
            Logs(self._core, session),
            self._tokens,
            self._access,
            self._clock,
            bookmark_interval=self._bookmark_interval,
            watch_timeout=self._watch_timeout,
            observe=self._observe,
        )

    async def _listen(self, stack: AsyncExitStack, http: Http) -> None:
        application = web.Application(client_max_size=8 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", http.handle)
        runner = Runner(application, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        tls, bounds = server_context(self._identity), Bounds(share=1.0)  # all clients share one address
        self._port = await runner.listen(self._host, self._port, tls, bounds)

    def _new_uid(self) -> str:
        return str(UUID(int=self._chance.getrandbits(128), version=4))

    def _follow_definitions(self, type_: Type, event: Event) -> None:
        """Serve the kinds of a CustomResourceDefinition as soon as its names are accepted."""
        if type_ != CRDS or _is_alike(event):
            return
        spec = event.new.body["spec"]
        self._registry.remove(spec["group"], spec["names"]["plural"])
        if event.change == "DELETED":
            self._store.end(Type(spec["group"], spec["names"]["plural"]))
            return
        for resource in resources_of(event.new.body) if is_served(event.new.body) else ():
            self._registry.add(resource)
            if event.change == "MODIFIED" and resource.version == resource.storage_version:
                self._store.amend(resource.type, partial(read_again, resource))


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _is_alike(event: Event) -> bool:
    """Whether an updated definition declares the same resources as before."""
    if event.change != "MODIFIED" or event.old is None:
        return False
    old, new = event.old.body, event.new.body
    return is_served(old) == is_served(new) and bool(old["spec"] == new["spec"])
