"""`pods/NAME/log`: proxied to the kubelet of the pod's node.

The node says where its agent listens: annotation `devcluster/kubelet-url`, e.g. `http://127.0.0.1:10250`. The
agent answers `GET /containerLogs/{namespace}/{pod}/{container}` with plain text, and takes the query of
`kubectl logs` (follow, previous, tailLines, limitBytes, sinceSeconds, sinceTime, timestamps).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
from aiohttp import web

from elasticjob.devcluster.server.model.errors import StatusError, bad_request
from elasticjob.devcluster.server.model.store import Type
from elasticjob.devcluster.server.model.target import Target
from elasticjob.devcluster.server.write.core import Core

KUBELET_URL = "devcluster/kubelet-url"
_NODES = Type("", "nodes")
_OPTIONS = ("follow", "previous", "tailLines", "limitBytes", "sinceSeconds", "sinceTime", "timestamps")


class Logs:
    """`session` is a running client session, owned by the server."""

    def __init__(self, core: Core, session: aiohttp.ClientSession) -> None:
        self._core = core
        self._session = session

    async def serve(self, request: web.Request, target: Target) -> web.StreamResponse:
        """Stream the log of one container; 400 before the container has started."""
        pod = self._core.get(target.resource, target.namespace, target.name).body
        container = _container(pod, request.query.get("container", ""))
        url = self._agent(pod, container)
        path = f"{url.rstrip('/')}/containerLogs/{target.namespace}/{target.name}/{quote(container)}"
        query = {name: request.query[name] for name in _OPTIONS if name in request.query}
        try:
            answer = await self._session.get(path, params=query)
        except aiohttp.ClientConnectionError as error:
            message = f"Get {path!r}: {error}: is the node's agent running?"
            raise StatusError(500, "InternalError", message) from error
        async with answer:
            return await self._relay(request, answer)

    async def _relay(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        if answer.status != 200:
            text = (await answer.text()).strip()
            raise StatusError(answer.status, "BadRequest" if answer.status == 400 else "InternalError", text)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        try:
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
        except (ConnectionResetError, aiohttp.ClientError):  # the reader went away, or the agent did
            if request.transport is not None:
                request.transport.abort()  # half an answer must not look like a whole one
        return response

    def _agent(self, pod: Mapping[str, Any], container: str) -> str:
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
        if not node:
            raise bad_request(f"pod {name} does not have a host assigned")
        found = self._core.store.get(_NODES, "", node)
        url = (found.metadata.get("annotations") or {}).get(KUBELET_URL) if found else None
        if not url:
            raise bad_request(
                f'container "{container}" in pod "{name}": node {node!r} has no annotation {KUBELET_URL}'
            )
        return str(url)


def _container(pod: Mapping[str, Any], asked: str) -> str:
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [each["name"] for part in ("containers", "initContainers") for each in spec.get(part) or ()]
    if asked:
        if asked not in names:
            raise bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    if len(spec["containers"]) > 1:
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: {names}")
    return str(names[0])
