"""A whole cluster in this process: the API server, and the controllers and nodes that act on its objects.

    async with DevCluster(Path("state")) as cluster:
        ...  # KUBECONFIG=cluster.kubeconfig

The parts share no memory with the API server: they talk to it over HTTPS as any client does.
"""

from __future__ import annotations

import os
import secrets
import ssl
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from elasticjob.devcluster.controllers.accounts import Accounts
from elasticjob.devcluster.controllers.claims import Claims
from elasticjob.devcluster.controllers.endpoints import ENDPOINT_SLICE, Endpoints
from elasticjob.devcluster.controllers.scheduler import Scheduler
from elasticjob.devcluster.node.container.identity import Server, kubeconfig, write_private
from elasticjob.devcluster.node.container.processes import SUPERVISOR
from elasticjob.devcluster.node.heartbeat import VirtualNode
from elasticjob.devcluster.node.images import IMAGES, Image
from elasticjob.devcluster.node.pod.life import Backoff
from elasticjob.devcluster.nodes import HOST, Api, Nodes, recorder
from elasticjob.devcluster.server import ApiServer
from elasticjob.kube.client.credentials import Config, Static
from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.controller.controller import Controller
from elasticjob.kube.objects.views import NAMESPACE, NODE, PERSISTENT_VOLUME_CLAIM, POD, SERVICE
from elasticjob.kube.operator.operator import Operator


class DevCluster:
    """A cluster that lives as long as the `async with`; when it ends, so do all processes of its pods.

    `state` holds the kubeconfig, logs and volumes; folders of claims in it are kept and found again.
    `restart` and `pull` are the back-offs of CrashLoopBackOff and ImagePullBackOff. `rbac` makes Roles count.
    `establish_delay` is for how many seconds the objects of a new definition are not there yet. `supervisor`
    is the program that starts containers.
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
        establish_delay: float = 0.005,
        kubeconfig: Path | None = None,
        clock: Clock | None = None,
        environ: Mapping[str, str] = os.environ,
        supervisor: Sequence[str] = SUPERVISOR,
    ) -> None:
        self.state = state.absolute()
        self.kubeconfig = (kubeconfig or self.state / "kubeconfig").absolute()
        clock = clock or SystemClock()
        self._server = ApiServer(
            host=HOST, port=port, rbac=rbac, establish_delay=establish_delay, clock=clock.now
        )
        self._token = secrets.token_urlsafe(32)
        self._join = partial(
            Nodes,
            self.state,
            nodes=nodes,
            images=images,
            restart=restart,
            pull=pull,
            beside=self._controllers,
            clock=clock,
            environ=environ,
            supervisor=supervisor,
        )

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return self._server.url

    @property
    def ca_pem(self) -> str:
        """The authority that its clients trust."""
        return self._server.ca_pem

    def config(self) -> Config:
        """How a client of this process talks to the cluster, as its administrator."""
        context = ssl.create_default_context(cadata=self._server.ca_pem)
        return Config(self._server.url, context, Static(f"Bearer {self._token}"))

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
        """Until a part of the cluster fails; raises its error."""
        await self._nodes.wait()

    async def _start(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._server)
        self._server.add_token(self._token, "devcluster-admin", ["system:masters"])
        self._nodes = await stack.enter_async_context(self._join(Api(self.config(), self.ca_pem)))
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        server = Server(self._server.url, self._server.ca_pem)
        write_private(self.kubeconfig, kubeconfig(server, self._token))

    def _controllers(self, operator: Operator) -> Sequence[Controller]:
        """The controllers of a control plane, beside its API."""
        client, pods = operator.client, operator.cache(POD)
        services, slices = operator.cache(SERVICE), operator.cache(ENDPOINT_SLICE)
        nodes, claims = operator.cache(NODE), operator.cache(PERSISTENT_VOLUME_CLAIM)
        events = recorder(operator, "default-scheduler")
        return (
            Scheduler(client, pods, nodes, claims, events, operator.clock).controller(),
            Endpoints(client, services, pods, slices).controller(),
            Accounts(client, operator.cache(NAMESPACE), self._server.ca_pem).controller(),
            Claims(client, claims, self.state / "claims").controller(),
        )
