"""Probes as they are performed: HTTP, TCP, command, and what is said when they fail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from elasticjob.devcluster.node.container.checks import Target, ask
from elasticjob.kube.objects.views import Container, ContainerPort


async def _answer(request: web.Request) -> web.Response:
    return web.Response(status=int(request.match_info["status"]))


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server whose path is the status that it answers with."""
    app = web.Application()
    app.router.add_get("/{status}", _answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


def target(port: int) -> Target:
    async def execute(command: list[str], seconds: float) -> tuple[int, str]:
        if command[0] == "slow":
            raise TimeoutError
        return (0, "") if command[0] == "true" else (3, "no")

    ports = [ContainerPort(name="web", container_port=port)]
    return Target(Container(name="c", ports=ports), "127.0.0.1", execute)


@pytest.mark.parametrize(
    ("handler", "problem"),
    [
        ({"httpGet": {"port": "web", "path": "/200"}}, ""),
        ({"httpGet": {"port": "web", "path": "302"}}, ""),
        ({"httpGet": {"port": "web", "path": "/500"}}, "HTTP probe failed with statuscode: 500"),
        ({"tcpSocket": {"port": "web"}}, ""),
        ({"tcpSocket": {"port": "none"}}, "container c has no port 'none': it has web"),
        ({"exec": {"command": ["true"]}}, ""),
        ({"exec": {"command": ["false"]}}, "command exited with 3: no"),
        ({"exec": {"command": ["slow"]}}, "no answer within 5 s"),
        ({"grpc": {"port": 1}}, "handler ['grpc'] is not supported by devcluster"),
    ],
)
async def test_ask(handler: dict[str, Any], problem: str, port: int) -> None:
    answer = await ask(handler, target(port), 5)
    assert answer.startswith(problem) if problem else answer == ""


@pytest.mark.parametrize("kind", ["httpGet", "tcpSocket"])
async def test_nobody_listens(kind: str, unused_tcp_port: int) -> None:
    assert await ask({kind: {"port": unused_tcp_port}}, target(1), 5) != ""
