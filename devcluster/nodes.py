"""Nodes of this machine in any cluster: they run pods as processes, and proxy connections from clusterIPs to
these pods.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from elasticjob.devcluster.controllers.endpoints import ENDPOINT_SLICE
from elasticjob.devcluster.node.addresses import Addresses
from elasticjob.devcluster.node.container.identity import Server
from elasticjob.devcluster.node.container.maker import Maker
from elasticjob.devcluster.node.container.place import Place
from elasticjob.devcluster.node.container.processes import SUPERVISOR, Nursery
from elasticjob.devcluster.node.heartbeat import Heartbeat, VirtualNode
from elasticjob.devcluster.node.images import IMAGES, Image, interpreter_path
from elasticjob.devcluster.node.kubelet import Kubelet, Machine
from elasticjob.devcluster.node.logserver import LogServer
from elasticjob.devcluster.node.pod.decide import Rules
from elasticjob.devcluster.node.pod.life import Backoff
from elasticjob.devcluster.proxy import Proxy
from elasticjob.devcluster.quantity import parse_all
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.client.recorder import Recorder
from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.controller.controller import Controller, Runner
from elasticjob.kube.objects.views import POD, SERVICE
from elasticjob.kube.operator.operator import Group, Operator

HOST = "127.0.0.1"
GRACE_SECONDS = 1.0
PODS_AT_ONCE = 16
MEMORY = Path("/dev/shm")
INHERITED = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE")
"""What containers get of this process's environment, besides PATH."""


class StateInUse(RuntimeError):
    """The state folder belongs to a cluster that runs."""


@dataclass(frozen=True)
class Api:
    """An API server that nodes join: as one of its administrators, trusting `ca` (PEM), which pods trust too.

    `kubelet_tls` is given where the server reads logs as from any kubelet, by TLS at the node's own port;
    devcluster's finds them by an annotation of the node.
    """

    config: Config
    ca: str
    kubelet_tls: ssl.SSLContext | None = None


Beside = Callable[[Operator], Sequence[Controller]]
"""More controllers that are to run with the nodes."""


class Nodes:
    """They live as long as the `async with`; when it ends, so do all processes of their pods.

    `state` holds logs and volumes; folders of claims in it are kept and found again. `restart` and `pull` are
    the back-offs of CrashLoopBackOff and ImagePullBackOff. `supervisor` is the program that starts
    containers. Raises StateInUse.
    """

    def __init__(
        self,
        state: Path,
        api: Api,
        *,
        nodes: Sequence[VirtualNode] | None = None,
        images: Mapping[str, Image] = IMAGES,
        restart: Backoff | None = None,
        pull: Backoff | None = None,
        beside: Beside = lambda operator: (),
        clock: Clock | None = None,
        environ: Mapping[str, str] = os.environ,
        supervisor: Sequence[str] = SUPERVISOR,
    ) -> None:
        self.state = state.absolute()
        self._supervisor = supervisor
        self.nodes = tuple(nodes if nodes is not None else (VirtualNode(),))
        self._api = api
        self._beside = beside
        self._rules = {
            node.name: Rules(images, restart or Backoff(), pull or Backoff(), parse_all(node.capacity))
            for node in self.nodes
        }
        self._clock = clock or SystemClock()
        self._env = container_environment(environ)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def wait(self) -> None:
        """Until a part fails; raises its error."""
        await asyncio.shield(self._running)

    async def _start(self, stack: AsyncExitStack) -> None:
        enter = stack.enter_async_context
        place = self._prepare(stack)
        client = await enter(Client(self._api.config, clock=self._clock, user_agent="devcluster"))
        nursery = await enter(Nursery(self._supervisor, self._env))
        operator = Operator(
            client, name="devcluster", probes=None, clock=self._clock, grace=GRACE_SECONDS, signals=False
        )
        kubelet = self._kubelet(operator, nursery, place)
        address = await enter(LogServer(kubelet.find, place, self._clock).serve(self._api.kubelet_tls))
        heartbeat = Heartbeat(client, self.nodes, address, HOST, self._clock)
        await heartbeat.register()
        operator.add(heartbeat)
        self._add_proxy(operator)
        for controller in self._beside(operator):
            operator.add(controller)
        await self._run(operator, stack)

    def _prepare(self, stack: AsyncExitStack) -> Place:
        """Make the folders; pods that an earlier cluster left there are deleted."""
        place = Place(self.state, _memory_folder(MEMORY if MEMORY.is_dir() else self.state))
        self.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        stack.enter_context(_lock(self.state))
        shutil.rmtree(self.state / "pods", ignore_errors=True)
        stack.callback(shutil.rmtree, place.memory, ignore_errors=True)
        return place

    def _kubelet(self, operator: Operator, nursery: Nursery, place: Place) -> Kubelet:
        client, pods = operator.client, operator.cache(POD)
        server = Server(self._api.config.server, self._api.ca)
        maker = Maker(client, server, place, self._env, HOST)
        addresses = Addresses(random.SystemRandom())
        machine = Machine(
            client, pods, nursery, maker, place, recorder(operator, "kubelet"), self._clock, addresses, HOST
        )
        kubelet = Kubelet(machine, self._rules)
        controller = Controller("kubelet", kubelet.reconcile, for_=POD, concurrency=PODS_AT_ONCE)
        runner = Runner(controller, {POD.resource: pods}, clock=self._clock, metrics=operator.metrics)
        kubelet.woken_by(runner.enqueue)
        operator.add(runner, Group.CONTROLLERS)
        operator.add(kubelet)
        return kubelet

    def _add_proxy(self, operator: Operator) -> None:
        services, pods, slices = (operator.cache(kind) for kind in (SERVICE, POD, ENDPOINT_SLICE))
        proxy = Proxy(services, pods, slices, recorder(operator, "service-proxy"))
        operator.add(proxy.controller())
        operator.add(proxy)

    async def _run(self, operator: Operator, stack: AsyncExitStack) -> None:
        """All parts run, until the nodes are left. Raises the error of the part that did not start."""
        self._running = asyncio.create_task(operator.run(), name="devcluster")
        stack.push_async_callback(_end, self._running)
        try:
            await operator.wait_started()
        except RuntimeError:  # the task ended early and raises its own error
            await self._running
            raise


def container_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment of every container: programs of this interpreter's environment first, the user's name and
    home.
    """
    path = f"{interpreter_path()}:{environ.get('PATH', '/usr/local/bin:/usr/bin:/bin')}"
    return {"PATH": path, "VIRTUAL_ENV": sys.prefix} | {n: environ[n] for n in INHERITED if n in environ}


def recorder(operator: Operator, component: str) -> Recorder:
    """Events of one component, written as long as the operator runs."""
    made = Recorder(operator.client, component, clock=operator.clock, metrics=operator.metrics)
    operator.add(made, Group.HTTP)
    return made


@contextmanager
def _lock(state: Path) -> Iterator[None]:
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
