"""A job's master with a socket that serves it."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack

from aiohttp import web

from elasticjob.api.rpc.address import host_port
from elasticjob.kube.clock import Clock
from elasticjob.kube.http.door import Bounds
from elasticjob.kube.http.serving import ServerRunner
from elasticjob.master.durable.store import Store
from elasticjob.master.serving import pages
from elasticjob.master.serving.core import Core
from elasticjob.master.serving.http import Server, Watching
from elasticjob.master.state.job import Job

log = logging.getLogger("elasticjob.master")

BOUNDS = Bounds(connections=65_536)  # three for each of twenty thousand nodes


class Master(Core):
    """One job's master: `async with Master(job, token, store) as master: master.address`.

    Without the token every request is refused.
    """

    def __init__(
        self,
        job: Job,
        token: str,
        store: Store,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        node: str = "",
    ) -> None:
        """`node` names the node of the job in whose process this master runs, if it is one."""
        super().__init__(job, store, clock=clock, node=node)
        self._host, self._port, self._token = host, port, token
        self._watching = Watching(self.doubt)

    @property
    def address(self) -> str:
        """Where agents find this master: host:port."""
        return host_port(self._host, self._port)

    async def _open(self, stack: AsyncExitStack) -> None:
        """Listen until the stack is closed."""
        server = Server(self, self._token, self._watching, self._page)
        runner = ServerRunner(server, handler_cancellation=True, shutdown_timeout=0.1)
        server.serve_plainly(BOUNDS.body, lambda line: runner.trust(line.transport))
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        self._port = await runner.listen(self._host, self._port, bounds=BOUNDS)
        log.info("master of job %s listens on %s", self.job.spec.job, self.address)

    def _page(self, request: web.BaseRequest) -> web.StreamResponse:
        trouble = pages.Trouble(self._saving.seconds_without_save(), self.failed_passes())
        return pages.render(request, self.job, self.now(), trouble)
