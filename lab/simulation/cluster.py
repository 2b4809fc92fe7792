"""A history on a cluster with an API server and the operator as it is shipped: the same acts, in real time.

The server is devcluster's, with a kubelet without containers that places pods where virtual time does, or a
real control plane with kwok's nodes. What befalls the operator's requests does so in its client.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from elasticjob.api.paddle.trainingjob import TRAININGJOB
from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.install import install
from elasticjob.controllers.main import compose, webhooks_of
from elasticjob.controllers.settings import Settings
from elasticjob.devcluster.controllers.accounts import Accounts
from elasticjob.devcluster.server import ApiServer
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Informer
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config, Static
from elasticjob.kube.client.transport import TOTAL_TIMEOUT, Call, Transport
from elasticjob.kube.clock import SystemClock
from elasticjob.kube.errors import AlreadyExists, Conflict, Fenced, Invalid, KubeError, NotFound
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import (
    CONFIG_MAP,
    NAMESPACE,
    NETWORK_POLICY,
    NODE,
    POD,
    POD_DISRUPTION_BUDGET,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from elasticjob.kube.operator.operator import Operator
from elasticjob.kube.webhook.server import WebhookServer
from lab.clusters.namespaces import new_namespace
from lab.clusters.plane import pretended
from lab.clusters.webhooks import heeded
from lab.running import beside, running
from lab.simulation.connection import OPERATOR, USER, Strike
from lab.simulation.history import History
from lab.simulation.play import happens, heal
from lab.simulation.world import UNSCHEDULABLE, own_end, with_room
from lab.virtual import pods
from lab.virtual.cluster import MACHINES, TEAM, node
from lab.virtual.server import Verbs
from lab.waiting import until

KINDS: Final[tuple[Kind[Any], ...]] = (
    ELASTICJOB,
    JOBRESOURCE,
    SCALEPLAN,
    TRAININGJOB,
    POD,
    SERVICE,
    CONFIG_MAP,
    SECRET,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    NETWORK_POLICY,
    POD_DISRUPTION_BUDGET,
)
"""The kinds that are compared of a namespace: the most telling first."""
ASIDE: Final = ("/events", "/leases/", "/secrets/elasticjob-operator", "/secrets?")
"""Requests of the operator that are not its controllers'."""
SEEN: Final = 0.4
"""Seconds without a change after which the operator has done what follows from a deed."""
PATIENCE: Final = 3.0
STILL: Final = 4.0
"""Seconds without a change after which a cluster may be at rest."""
QUIET: Final = 50.0
"""Seconds without a change after which nothing comes any more."""
LONGEST: Final = 240.0
LARGE: Final = {"cpu": "640", "memory": "2560Gi", "pods": "1000"}
"""A machine of kwok, on which the pods of all histories are."""


class Wire(Transport):
    """The way of a program to the server: strikes befall its writes, until it is killed."""

    def __init__(self, config: Config, program: str, cluster: Cluster) -> None:
        super().__init__(config, SystemClock(), None, program, TOTAL_TIMEOUT)
        self.dead = False
        self._program, self._cluster = program, cluster

    async def _once(self, call: Call) -> bytes:
        """Each attempt is a write of its own, as the server sees it."""
        self._alive()
        strike = self._strike(call)
        if strike and not strike.after:
            await strike.befall(cast(Any, None))
            self._alive()
        answer = await super()._once(call)
        if strike and strike.after:
            await strike.befall(cast(Any, None))
        self._alive()
        return answer

    def _strike(self, call: Call) -> Strike | None:
        if not call.writes or any(part in call.path for part in ASIDE):
            return None
        number = self._cluster.next_number(f"write {self._program}")
        return self._cluster.strikes.pop((self._program, number), None)

    def _alive(self) -> None:
        if self.dead:
            raise Fenced("this process was killed")


class Program(Client):
    """A client whose requests pass a wire."""

    def __init__(self, config: Config, name: str, cluster: Cluster) -> None:
        super().__init__(config, user_agent=name)
        self.wire = self._transport = Wire(config, name, cluster)


class Team(Transport):
    """The way of a user to a namespace that stands for that of histories."""

    namespace = TEAM

    async def send(self, call: Call) -> bytes:
        own, body = self.namespace.encode(), call.body
        path = call.path.replace(f"/namespaces/{TEAM}/", f"/namespaces/{self.namespace}/")
        body = body and body.replace(b'"namespace":"%s"' % TEAM.encode(), b'"namespace":"%s"' % own)
        return await super().send(replace(call, path=path, body=body))


class User(Client):
    """The client of the user that histories are about, in a namespace."""

    def __init__(self, config: Config, namespace: str) -> None:
        super().__init__(config, user_agent=USER)
        self._transport = Team(config, self.clock, None, USER, TOTAL_TIMEOUT)
        self._transport.namespace = namespace


@dataclass
class Cluster:
    """One history on a cluster, as acts and faults see it. `plays`: whether pods need its kubelet."""

    history: History
    config: Config
    client: Client
    namespace: str
    plays: bool
    settings: Settings
    strikes: dict[tuple[str, int], Strike] = field(default_factory=dict)
    diary: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    changed: float = 0.0
    """When something changed last."""
    _began: float = 0.0
    _numbers: Counter[str] = field(default_factory=Counter)
    _caches: dict[str, Cache[Manifest]] = field(default_factory=dict)
    _operator: tuple[Program, Operator] | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _known: set[tuple[str, str]] = field(default_factory=set)

    # acts

    @property
    def user(self) -> Verbs:
        return cast(Verbs, self.client)

    @property
    def time(self) -> float:
        """The seconds since the beginning."""
        return asyncio.get_running_loop().time() - self._began

    def trouble(self, seconds: float) -> None:
        """No truth is about real seconds."""

    def every(self, kind: Kind[Any]) -> list[Manifest]:
        return self._caches[kind.resource].list()

    def there(self, kind: Kind[Any], name: str) -> Manifest | None:
        return self._caches[kind.resource].get((self.namespace if kind.namespaced else "", name))

    def of_job(self, kind: Kind[Any], job: str) -> list[Manifest]:
        """The objects of a kind that have the label of a job."""
        return self._caches[kind.resource].list(labels={LABEL_JOB: job})

    def strike(self, write: int, strike: Strike, program: str = OPERATOR) -> None:
        self.strikes[program, self._numbers[f"write {program}"] + write] = strike

    def next_number(self, what: str) -> int:
        self._numbers[what] += 1
        return self._numbers[what]

    def note(self, sentence: str) -> None:
        self.diary.append(f"{self.time:9.3f} {sentence}")

    async def tries(self, sentence: str, ask: Any) -> None:
        self.note(f"--- {sentence}")
        try:
            await ask
        except KubeError as error:
            self.note(f"    refused: {error}")

    async def after(self, deed: asyncio.Task[None]) -> None:
        """Wait until a deed is done, and what follows at once."""
        await asyncio.wait({deed})
        await asyncio.sleep(SEEN)
        with suppress(AssertionError):
            await until(lambda: self.time - self.changed > SEEN, within=PATIENCE)

    def at(self, seconds: float, call: Callable[..., object], *given: Any) -> None:
        asyncio.get_running_loop().call_later(seconds, call, *given)

    # the operator

    def start(self, _: int = 0) -> None:
        """The operator starts."""
        self._does(self._operate())

    async def _operate(self) -> None:
        async with Program(self.config, OPERATOR, self) as client:
            operator = compose(client, self.settings, signals=False)
            self._operator = client, operator
            try:
                await operator.run()
            except KubeError as error:
                if not client.wire.dead:
                    self.broken.append(f"the operator has ended: {error}")

    def crash(self, back: float = 1.0, behind: int = 0) -> None:
        """The operator is killed: it writes nothing more, and another one starts."""
        if self._operator:
            client, operator = self._operator
            client.wire.dead, self._operator = True, None
            operator.stop()
            self.at(back, self.start, behind)

    # machines

    def exits(self, pod: Manifest, code: int) -> None:
        self._says(pod, pods.ended(pod, code, SystemClock().now()))

    def cordon(self, machine: str, on: bool) -> None:
        if machine in self._machines():
            patch = {"spec": {"unschedulable": on or None}}
            self._does(self.client.merge_patch(NODE.untyped(), machine, patch))

    def lose(self, machine: str) -> None:
        if machine in self._machines():
            self._does(self.client.delete(NODE, machine))
            self.at(self.history.drawn("_collect_pods", machine).uniform(5, 40), self._collect, machine)

    def _collect(self, machine: str) -> None:
        for pod in self.every(POD):
            if pod["spec"].get("nodeName") == machine:
                self._does(self._ends_and_goes(pod, False))

    def find(self, machine: str) -> None:
        if machine not in self._machines():
            self._does(self._joins(machine))

    async def _joins(self, machine: str) -> None:
        made = node(machine)
        await self.client.create(NODE.untyped(), made)
        status = {"status": made["status"]}
        await self.client.merge_patch(NODE.untyped(), machine, status, subresource="status")

    def _machines(self) -> set[str]:
        return {each["metadata"]["name"] for each in self.every(NODE)}

    # the kubelet

    def _heard(self, change: Change, cache: Cache[Manifest]) -> None:
        self.changed = self.time
        if cache.kind.resource == POD.resource and change.new:
            self._pod(cache.view(change.new))

    def _pod(self, pod: Manifest) -> None:
        about, phase = pod["metadata"], pod.get("status", {}).get("phase")
        if self.plays and not pod["spec"].get("schedulingGates"):
            self._once("_starts", pod, self._delay("_starts", pod, 0.05, 2.0), self._starts)
        if self.plays and "deletionTimestamp" in about:
            self._once("_leaves", pod, self._delay("_leaves", pod, 0.05, 4.0), self._leaves)
        seconds, code = own_end(pod)
        if phase == "Running" and seconds:
            self._once("ends", pod, seconds, lambda pod: self._ends(pod, code))

    def _delay(self, what: str, pod: Manifest, least: float, most: float) -> float:
        """As in virtual time."""
        return self.history.drawn(what, pod["metadata"]["name"]).uniform(least, most)

    def _once(self, what: str, pod: Manifest, delay: float, do: Callable[[Manifest], None]) -> None:
        """Do something with a pod later, if it is still there."""
        about = pod["metadata"]
        mark = (what, about["uid"])

        def later() -> None:
            found = self.there(POD, about["name"])
            if found and found["metadata"]["uid"] == about["uid"]:
                do(found)

        if mark not in self._known:
            self._known.add(mark)
            self.at(delay, later)

    def _starts(self, pod: Manifest) -> None:
        about = pod["metadata"]
        if pod["status"]["phase"] != "Pending" or "deletionTimestamp" in about:
            return
        if machines := with_room(pod, self.every(POD), self.every(NODE)):
            names = sorted(each["metadata"]["name"] for each in machines)
            self._does(self._runs(pod, self.history.drawn("place", about["name"]).choice(names)))
        else:
            self._says(pod, {"conditions": [UNSCHEDULABLE]})
            self._known.discard(("_starts", about["uid"]))
            self._once("_starts", pod, 1.5, self._starts)

    async def _runs(self, pod: Manifest, machine: str) -> None:
        about = pod["metadata"]
        target = {"apiVersion": "v1", "kind": "Node", "name": machine}
        named = {name: about[name] for name in ("name", "uid")}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": named, "target": target}
        await self.client.post(POD, about["name"], "binding", binding, self.namespace)
        self._says(pod, pods.running(pod, SystemClock().now()))

    def _leaves(self, pod: Manifest) -> None:
        name, machine, runs = (
            pod["metadata"]["name"],
            pod["spec"].get("nodeName"),
            pod["status"]["phase"] == "Running",
        )
        if machine and machine not in self._machines():
            return
        self._does(self._ends_and_goes(pod, runs and self.history.drawn("code", name).random() < 0.5))

    async def _ends_and_goes(self, pod: Manifest, told: bool) -> None:
        about = pod["metadata"]
        if told:
            await self._status(pod, pods.ended(pod, 143, SystemClock().now()))
        await self.client.delete(POD, about["name"], self.namespace, uid=about["uid"], grace=0)

    def _ends(self, pod: Manifest, code: int) -> None:
        if pod["status"]["phase"] == "Running" and pod["spec"]["nodeName"] in self._machines():
            self.exits(pod, code)

    def _says(self, pod: Manifest, status: Manifest) -> None:
        self._does(self._status(pod, status))

    async def _status(self, pod: Manifest, status: Manifest) -> None:
        about = pod["metadata"]
        patch = {"metadata": {"uid": about["uid"]}, "status": status}
        await self.client.merge_patch(
            POD.untyped(), about["name"], patch, self.namespace, subresource="status"
        )

    def _does(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(self._done(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _done(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except (NotFound, Conflict, AlreadyExists, Invalid) as error:
            self.note(f"    {error}")
        except Exception as error:
            self.broken.append(f"{type(error).__name__}: {error}")

    # the whole

    async def play(self, expected: Callable[[], bool]) -> None:
        """Play the history, until it is at rest as `expected`, or nothing comes any more."""
        for kind in (*KINDS, NODE):
            cache = Cache(kind.untyped(), self.namespace if kind.namespaced else "")
            cache.subscribe(lambda change, cache=cache: self._heard(change, cache))  # type: ignore[misc]
            self._caches[kind.resource] = cache
        self._began = asyncio.get_running_loop().time()
        async with beside(*(Informer(self.client, each).run() for each in self._caches.values())):
            await asyncio.gather(*(each.wait_synced() for each in self._caches.values()))
            self.start()
            try:
                await asyncio.sleep(1.0)
                self._began = asyncio.get_running_loop().time()
                await happens(self)
                heal(self)
                await self._rests(expected)
            finally:
                await self._close()

    async def _rests(self, expected: Callable[[], bool]) -> None:
        healed, looked = self.time, -1.0
        while self.time - self.changed < QUIET and self.time - healed < LONGEST:
            await asyncio.sleep(1.0)
            still = self.time - max(self.changed, healed) > STILL
            if still and looked != self.changed and expected():
                return
            looked = self.changed if still else looked

    async def _close(self) -> None:
        if self._operator:
            self._operator[0].wire.dead = True
            self._operator[1].stop()
            self._operator = None
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                while self._tasks:
                    await asyncio.wait(set(self._tasks))
        for task in self._tasks:
            task.cancel()


def settings(namespace: str = "") -> Settings:
    """Return the settings of an operator as that of virtual time has them."""
    chosen = {
        "namespace": namespace,
        "probes": "",
        "webhooks": False,
        "trainer_image": "image",
        "master_cpu": "1",
    }
    return Settings.model_validate({**chosen, "concurrency": 2, "lease_namespace": "default"})


@asynccontextmanager
async def admission(client: Client) -> AsyncIterator[None]:
    """Serve the webhooks, which no restart of an operator ends."""
    name = "elasticjob"
    server = WebhookServer("127.0.0.1", 0, webhooks_of(settings(), client), client=client, name=name)
    async with beside(server.run()):
        await heeded(client)
        yield


@asynccontextmanager
async def on_devcluster(history: History) -> AsyncIterator[Cluster]:
    """Start a devcluster for one history."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        server = await enter(ApiServer())
        server.add_token("secret", "admin", ["system:masters"])
        config = Config(server.url, ssl.create_default_context(cadata=server.ca_pem), Static("Bearer secret"))
        client = await enter(User(config, TEAM))
        await install(client)
        control = Operator(client, name="control-plane", probes=None, signals=False)
        control.add(Accounts(client, control.cache(NAMESPACE), server.ca_pem).controller())
        await enter(running(control))
        await new_namespace(client, TEAM)
        await enter(admission(client))
        cluster = Cluster(history, config, client, TEAM, True, settings())
        for name in MACHINES:
            await cluster._joins(name)
        yield cluster


@asynccontextmanager
async def on_plane(config: Config, history: History) -> AsyncIterator[Cluster]:
    """Lend one history a namespace of a control plane that is set up."""
    namespace = f"{TEAM}-history-{history.seed}-{secrets.token_hex(3)}"
    async with User(config, namespace) as client:
        await new_namespace(client, namespace)
        try:
            yield Cluster(history, config, client, namespace, False, settings(namespace))
        finally:
            await client.delete(NAMESPACE, namespace)


@asynccontextmanager
async def set_up(config: Config) -> AsyncIterator[None]:
    """Give a control plane our kinds, webhooks, and machines that kwok keeps."""
    async with Client(config) as client:
        await install(client)
        for name in MACHINES:
            await client.create(NODE.untyped(), pretended.machine(name, LARGE))
        async with admission(client):
            yield
