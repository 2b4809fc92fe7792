"""Asking masters for their /status: through the API server, or at their pods' addresses."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from ipaddress import ip_address
from typing import Final

import aiohttp

from elasticjob.api.rpc.address import host_port
from elasticjob.api.rpc.environment import MASTER_PORT
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.transport import Call
from elasticjob.kube.errors import ApiError, Forbidden, Unreachable
from elasticjob.kube.http.bodies import read_at_most
from elasticjob.kube.objects.views import POD, Pod
from elasticjob.page.status import LARGEST, Status, status_of

SECONDS: Final = 5.0
"""The longest time of a request."""
ABSENT: Final = (404, 501)
"""Answers of an API server that has no proxy, such as devcluster's."""


class CannotAsk(Unreachable):
    """A master cannot be asked from here, which says nothing about it."""


class NoProxy(CannotAsk):
    """The API server has no proxy, or the pod is gone."""


class Way(StrEnum):
    """How masters are reached."""

    AUTO = "auto"  # by proxy; where the API server has none and pods are on this machine, directly
    PROXY = "proxy"  # GET /api/v1/namespaces/…/pods/…:50001/proxy/status, with the right to get pods/proxy
    DIRECT = "direct"  # at the pod's address: from inside of the cluster
    NONE = "none"  # not at all: what the API server knows has to do


class Masters:
    """Asks masters. A master that does not answer raises KubeError."""

    def __init__(self, client: Client, session: aiohttp.ClientSession, way: Way = Way.AUTO) -> None:
        self._client, self._session, self._way = client, session, way

    async def status(self, pod: Pod) -> Status:
        """Return what the master in a pod says. Raises KubeError with a sentence."""
        body = await self.read(pod, "status")
        if len(body) > LARGEST:
            raise Unreachable(f"{pod.metadata.name} answers with more than {LARGEST >> 20} MiB")
        try:  # in a thread: the largest takes a tenth of a second
            return await asyncio.to_thread(status_of, body)
        except UNREADABLE as error:
            raise Unreachable(
                f"the status of {pod.metadata.name} cannot be read: {str(error)[:200]}"
            ) from error

    async def read(self, pod: Pod, path: str) -> bytes:
        """Return what a master answers at a path, a byte more than LARGEST at most. Raises KubeError."""
        match self._way:
            case Way.DIRECT:
                return await self._direct(pod, path)
            case Way.PROXY:
                return await self._proxy(pod, path)
            case Way.NONE:
                raise CannotAsk("masters are not asked: --masters none")
            case Way.AUTO:
                return await self._either(pod, path)

    async def _either(self, pod: Pod, path: str) -> bytes:
        try:
            return await self._proxy(pod, path)
        except NoProxy:
            if not _is_here(pod.status.pod_ip):
                raise
        return await self._direct(pod, path)

    async def _proxy(self, pod: Pod, path: str) -> bytes:
        name = f"{pod.metadata.name}:{MASTER_PORT}"
        call = Call("GET", f"{POD.path(pod.metadata.namespace, name)}/proxy/{path}", repeatable=False)
        body = b""
        try:
            async with asyncio.timeout(SECONDS), self._client.stream(call, patience=SECONDS) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) > LARGEST:
                        break
        except TimeoutError:
            raise Unreachable(f"{name} does not answer within {SECONDS:g} s") from None
        except Forbidden as error:
            raise CannotAsk(f"you may not read masters (get pods/proxy): {error.message}") from error
        except ApiError as error:
            raised = NoProxy if error.status in ABSENT else Unreachable
            raise raised(f"{name} cannot be reached through the API server: {error.message}") from error
        return body

    async def _direct(self, pod: Pod, path: str) -> bytes:
        """Ask at the pod's address. Redirects are not followed: they could lead to anything near."""
        if not pod.status.pod_ip:
            raise Unreachable(f"{pod.metadata.name} has no address yet")
        url = f"http://{host_port(pod.status.pod_ip, MASTER_PORT)}/{path}"
        try:
            async with asyncio.timeout(SECONDS), self._session.get(url, allow_redirects=False) as response:
                body = await read_at_most(response, LARGEST)
        except TimeoutError:
            raise Unreachable(f"{url} does not answer within {SECONDS:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{url} cannot be reached: {error}") from error
        if response.status != 200:
            raise Unreachable(f"{url} answers {response.status}")
        return body


def _is_here(address: str) -> bool:
    """Whether a pod's address is one of this machine: a dev cluster's."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
