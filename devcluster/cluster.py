"""A whole cluster in this process: the API server, and all that makes pods, services and accounts real.

    async with DevCluster(Path("state")) as cluster:
        ...  # KUBECONFIG=cluster.kubeconfig

The parts share no memory with the API server: they talk to it over HTTPS as any client does.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import secrets
import shutil
import ssl
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from elasticjob.devcluster.accounts import Accounts
from elasticjob.devcluster.claims import Claims
from elasticjob.devcluster.node.addresses import Addresses
from elasticjob.devcluster.node.decide import Rules
from elasticjob.devcluster.node.heartbeat import Heartbeat, VirtualNode
from elasticjob.devcluster.node.identity import Server, kubeconfig, write_private
from elasticjob.devcluster.node.images import IMAGES, Image, interpreter_path
from elasticjob.devcluster.node.kubelet import Kubelet, Machine
from elasticjob.devcluster.node.life import Backoff
from elasticjob.devcluster.node.logserver import LogServer
from elasticjob.devcluster.node.maker import Maker
from elasticjob.devcluster.node.place import Place
from elasticjob.devcluster.node.processes import Nursery
from elasticjob.devcluster.proxy import Proxy
from elasticjob.devcluster.quantity import parse_all
from elasticjob.devcluster.scheduler import Scheduler
from elasticjob.devcluster.server import ApiServer
from elasticjob.devcluster.services import ENDPOINT_SLICE, Endpoints
from elasticjob.kube.client import Client
from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.config import Config, Static
from elasticjob.kube.controller import Controller, Runner
from elasticjob.kube.events import Recorder
from elasticjob.kube.objects import NAMESPACE, NODE, PERSISTENT_VOLUME_CLAIM, POD, SERVICE
from elasticjob.kube.operator import Group, Operator

HOST = "127.0.0.1"
GRACE_SECONDS = 1.0
PODS_AT_ONCE = 16
MEMORY = Path("/dev/shm")
INHERITED = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE")
"""What containers get of this process's environment, besides PATH."""


class StateInUse(RuntimeError):
    """The state folder belongs to a cluster that runs."""


class DevCluster:
    """A cluster that lives as long as the `async with`; when it ends, so do all processes of its pods.

    `state` holds the kubeconfig, logs and volumes; folders of claims in it are kept and found again.
    `restart` and `pull` are the back-offs of CrashLoopBackOff and ImagePullBackOff. `rbac` makes Roles count.
    """

    def __init__(
        self,
        state: Path,
        *,
        nodes: Sequence[VirtualNode] | None = None,
        images: Mapping[str, Image] = IMAGES,
        restart: Backoff | None = None,
        pull: Backoff | None = None,
        port: int = 0,
        rbac: bool = False,
        kubeconfig: Path | None = None,
        clock: Clock | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.state = state.absolute()
        self.kubeconfig = (kubeconfig or self.state / "kubeconfig").absolute()
        self.nodes = tuple(nodes if nodes is not None else (VirtualNode(),))
        self._rules = {
            node.name: Rules(images, restart or Backoff(), pull or Backoff(), parse_all(node.capacity))
            for node in self.nodes
        }
        self._clock = clock or SystemClock()
        self._env = container_environment(environ)
        self._server = ApiServer(host=HOST, port=port, rbac=rbac, clock=self._clock.now)
        self._token = secrets.token_urlsafe(32)
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return self._server.url

    def config(self) -> Config:
        """How a client of this process talks to the cluster, as its administrator."""
        context = ssl.create_default_context(cadata=self._server.ca_pem)
        return Config(self._server.url, context, Static(f"Bearer {self._token}"))

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def wait(self) -> None:
        """Until a part of the cluster fails; raises its error."""
        await asyncio.shield(self._running)

    async def _start(self) -> None:
        enter = self._stack.enter_async_context
        place = self._prepare()
        await enter(self._server)
        self._server.add_token(self._token, "devcluster-admin", ["system:masters"])
        server = Server(self._server.url, self._server.ca_pem)
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        write_private(self.kubeconfig, kubeconfig(server, self._token))
        client = await enter(Client(self.config(), clock=self._clock, user_agent="devcluster"))
        nursery = await enter(Nursery())
        operator = Operator(
            client, name="devcluster", probes=None, clock=self._clock, grace=GRACE_SECONDS, signals=False
        )
        kubelet = self._kubelet(operator, nursery, place, server)
        url = await enter(LogServer(kubelet.find, place, self._clock).serve())
        heartbeat = Heartbeat(client, self.nodes, url, HOST, self._clock)
        await heartbeat.register()
        operator.add(heartbeat)
        self._add_controllers(operator)
        await self._run(operator)

    def _prepare(self) -> Place:
        """The folders; what an earlier cluster left of its pods is deleted."""
        place = Place(self.state, _memory_folder(MEMORY if MEMORY.is_dir() else self.state))
        self.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._stack.enter_context(_locked(self.state))
        shutil.rmtree(self.state / "pods", ignore_errors=True)
        self._stack.callback(shutil.rmtree, place.memory, ignore_errors=True)
        return place

    def _kubelet(self, operator: Operator, nursery: Nursery, place: Place, server: Server) -> Kubelet:
        client, pods = operator.client, operator.cache(POD)
        recorder = _recorder(operator, "kubelet")
        maker = Maker(client, server, place, self._env, HOST)
        addresses = Addresses(random.SystemRandom())
        machine = Machine(client, pods, nursery, maker, place, recorder, self._clock, addresses, HOST)
        kubelet = Kubelet(machine, self._rules)
        controller = Controller("kubelet", kubelet.reconcile, for_=POD, concurrency=PODS_AT_ONCE)
        runner = Runner(controller, {POD.resource: pods}, clock=self._clock, metrics=operator.metrics)
        kubelet.woken_by(runner.enqueue)
        operator.add(runner, Group.CONTROLLERS)
        operator.add(kubelet)
        return kubelet

    def _add_controllers(self, operator: Operator) -> None:
        client, pods, services = operator.client, operator.cache(POD), operator.cache(SERVICE)
        slices = operator.cache(ENDPOINT_SLICE)
        scheduler = Scheduler(
            client, pods, operator.cache(NODE), _recorder(operator, "default-scheduler"), self._clock
        )
        proxy = Proxy(services, slices, _recorder(operator, "service-proxy"))
        operator.add(scheduler.controller())
        operator.add(Endpoints(client, services, pods, slices).controller())
        operator.add(proxy.controller())
        operator.add(proxy)
        operator.add(Accounts(client, operator.cache(NAMESPACE), self._server.ca_pem).controller())
        operator.add(Claims(client, operator.cache(PERSISTENT_VOLUME_CLAIM)).controller())

    async def _run(self, operator: Operator) -> None:
        """All parts run, until the cluster is left."""
        self._running = asyncio.create_task(operator.run(), name="devcluster")
        self._stack.push_async_callback(_end, self._running)
        started = asyncio.create_task(operator.wait_started())
        await asyncio.wait((started, self._running), return_when=asyncio.FIRST_COMPLETED)
        if self._running.done():
            started.cancel()
            self._running.result()


def container_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What every container gets: programs of this interpreter's environment first, and who and where the user
    is.
    """
    path = f"{interpreter_path()}:{environ.get('PATH', '/usr/local/bin:/usr/bin:/bin')}"
    return {"PATH": path, "VIRTUAL_ENV": sys.prefix} | {n: environ[n] for n in INHERITED if n in environ}


def _recorder(operator: Operator, component: str) -> Recorder:
    recorder = Recorder(operator.client, component, clock=operator.clock, metrics=operator.metrics)
    operator.add(recorder, Group.HTTP)
    return recorder


@contextmanager
def _locked(state: Path) -> Iterator[None]:
    """The folder is ours alone; the lock ends with the process, however it ends."""
    with (state / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StateInUse(
                f"another dev cluster runs in {state}: stop it, or use another folder"
            ) from error
        yield


def _memory_folder(root: Path) -> Path:
    """A folder of this process in memory; those of processes that were killed are deleted."""
    for left in root.glob("elasticjob-devcluster-*"):
        if not Path("/proc", left.name.rpartition("-")[2]).exists():
            shutil.rmtree(left, ignore_errors=True)
    return root / f"elasticjob-devcluster-{secrets.token_hex(4)}-{os.getpid()}"


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
