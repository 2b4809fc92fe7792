"""Performs probes and hooks: HTTP request, TCP connection, or command. `probes.py` interprets the results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import aiohttp

from elasticjob.kube.http.messages import in_words
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import Container

Execute = Callable[[list[str], float], Awaitable[tuple[int, str]]]
"""Run a command as the container would: (argv, seconds) → exit code and output. Raises TimeoutError."""


@dataclass(frozen=True)
class Target:
    """The container that is probed."""

    container: Container
    ip: str
    execute: Execute


async def ask(handler: Manifest, target: Target, seconds: float) -> str:
    """Perform the handler of a probe or hook: "" when it passed, or why not."""
    try:
        async with asyncio.timeout(seconds):
            if (request := handler.get("httpGet")) is not None:
                return await _http(request, target)
            if (connection := handler.get("tcpSocket")) is not None:
                return await _tcp(connection, target)
            if (command := handler.get("exec")) is not None:
                return await _command(command, target, seconds)
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except UnknownPort as error:
        return str(error)
    return f"handler {sorted(handler)} is not supported by devcluster: use httpGet, tcpSocket or exec"


async def _http(request: Manifest, target: Target) -> str:
    host = request.get("host") or target.ip
    scheme = str(request.get("scheme") or "HTTP").lower()
    url = f"{scheme}://{host}:{_port(request['port'], target)}/{str(request.get('path') or '').lstrip('/')}"
    headers = {header["name"]: header["value"] for header in request.get("httpHeaders") or ()}
    try:
        async with (
            aiohttp.ClientSession() as session,  # no kept connection: the container may be another one next
            session.get(url, headers=headers, ssl=False, allow_redirects=False) as response,
        ):
            if 200 <= response.status < 400:
                return ""
            return f"HTTP probe failed with statuscode: {response.status}"
    except aiohttp.ClientError as error:
        return f'Get "{url}": {in_words(error)}'


async def _tcp(connection: Manifest, target: Target) -> str:
    try:
        _, writer = await asyncio.open_connection(
            connection.get("host") or target.ip, _port(connection["port"], target)
        )
    except OSError as error:
        return f"dial tcp: {error.strerror or error}"
    writer.close()
    return ""


async def _command(command: Manifest, target: Target, seconds: float) -> str:
    code, output = await target.execute(list(command.get("command") or ()), seconds)
    return "" if code == 0 else f"command exited with {code}: {output}"


class UnknownPort(ValueError):
    """The container has no port of that name."""


def _port(port: int | str, target: Target) -> int:
    """A number, or the number of the container's port of that name. Raises UnknownPort."""
    named = {entry.name: entry.container_port for entry in target.container.ports if entry.name}
    if port in named:
        return named[str(port)]
    if str(port).isdecimal():
        return int(port)
    raise UnknownPort(f"container {target.container.name} has no port {port!r}: it has {', '.join(named)}")
