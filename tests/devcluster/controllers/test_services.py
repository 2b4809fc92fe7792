"""Services on a dev cluster: who stands behind them, and connections through the proxy."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from elasticjob.devcluster.controllers.endpoints import (
    ENDPOINT_SLICE,
    SERVICE_NAME,
    EndpointSlice,
    backends,
    endpoints,
    slices,
)
from elasticjob.devcluster.proxy import listeners
from elasticjob.kube.objects.views import POD, SERVICE, Pod, Service
from lab.waiting import PATIENCE
from tests.kit.devcluster.live import Live

in_a_cluster = pytest.mark.asyncio(loop_scope="module")
SERVER = """
import asyncio, os, socket, struct
async def serve(reader, writer):
    word = (await reader.readline()).decode().strip()
    if word == "reset":
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    elif word == "rest":
        writer.write(await reader.read())
        writer.close()
    elif word == "watch":
        writer.write(b"watching\\n")
        try:
            await reader.readline()
            print("half closed", flush=True)
        except ConnectionResetError:
            print("was reset", flush=True)
    else:
        writer.write(os.environ["NAME"].encode() + b"\\n")
        writer.close()
async def main():
    server = await asyncio.start_server(serve, os.environ["IP"], 8080)
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


async def serve(cluster: Live, *names: str, ready: bool = True) -> tuple[str, int]:
    """Pods that answer behind one service; its address."""
    manifest = {
        "metadata": {"name": "s", "namespace": cluster.namespace},
        "spec": {"selector": {"app": "s"}, "ports": [{"name": "tcp", "port": 80, "targetPort": "web"}]},
    }
    service = await cluster.client.create(SERVICE, manifest)
    container = {
        "env": [field("NAME", "metadata.name"), field("IP", "status.podIP")],
        "ports": [{"name": "web", "containerPort": 8080}],
    }
    for name in names:
        await cluster.start(name, "python", "-c", SERVER, labels={"app": "s"}, container=container)
    for name in names:
        await cluster.logged(name, "ready")
    address = service.spec.cluster_ip, 80
    if ready:
        await cluster.until(lambda: ready_count(cluster) == len(names))
        await in_turn(address, names)
    return address


async def in_turn(address: tuple[str, int], names: Sequence[str]) -> None:
    """Return once the proxy has heard of all of them too, by a watch of its own."""
    async with asyncio.timeout(PATIENCE):
        wanted = {f"{name}\n".encode() for name in names}
        while {await answered(address) for _ in names} != wanted:  # noqa: ASYNC110 - only asking tells
            await asyncio.sleep(0)


async def answered(address: tuple[str, int]) -> bytes:
    """Who answers; b"" where nobody listens yet."""
    try:
        return await ask(address, b"who")
    except ConnectionError:
        return b""


def ready_count(cluster: Live) -> int:
    found = cluster.slices.list(cluster.namespace, {SERVICE_NAME: "s"})
    return sum(bool(endpoint.conditions.ready) for each in found for endpoint in each.endpoints)


async def ask(address: tuple[str, int], word: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(word + b"\n")
        return await reader.read()
    finally:
        writer.close()


@in_a_cluster
async def test_connections_go_to_all_ready_pods_in_turn(cluster: Live) -> None:
    address = await serve(cluster, "a", "b")
    answers = [await ask(address, b"who") for _ in range(4)]
    assert sorted(answers) == [b"a\n", b"a\n", b"b\n", b"b\n"]


@in_a_cluster
async def test_half_closed_connection_still_answers(cluster: Live) -> None:
    address = await serve(cluster, "a")
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"rest\n" + b"x" * 1_000_000)
    writer.write_eof()
    assert await reader.read() == b"x" * 1_000_000
    writer.close()


@in_a_cluster
async def test_reset_by_the_pod_reaches_the_client(cluster: Live) -> None:
    address = await serve(cluster, "a")
    with pytest.raises(ConnectionResetError):
        await ask(address, b"reset")


@in_a_cluster
async def test_reset_by_the_client_reaches_the_pod(cluster: Live) -> None:
    address = await serve(cluster, "a")
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"watch\n")
    assert await reader.readline() == b"watching\n"
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    await cluster.logged("a", "was reset")


@in_a_cluster
async def test_killed_pod_ends_its_connections_at_once(cluster: Live) -> None:
    address = await serve(cluster, "a")
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"watch\n")
    assert await reader.readline() == b"watching\n"
    await cluster.client.delete(POD, "a", cluster.namespace, grace=0)
    assert await reader.read() == b""
    writer.close()


@in_a_cluster
async def test_service_without_ready_pods_refuses(cluster: Live) -> None:
    address = await serve(cluster, "a")
    await cluster.delete("a")
    await cluster.until(lambda: ready_count(cluster) == 0 or None)
    await refused(address)


async def refused(address: tuple[str, int]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                _, writer = await asyncio.open_connection(*address)
            except ConnectionRefusedError:
                return
            writer.close()


def a_service(**spec: Any) -> Service:
    ports = [{"name": "web", "port": 80, "targetPort": "web"}]
    spec = {"clusterIP": "127.96.0.9", "selector": {"app": "s"}, "ports": ports, **spec}
    return SERVICE.convert({"metadata": {"name": "s", "namespace": "default", "uid": "1"}, "spec": spec})


def a_pod(name: str, ip: str, *, ready: bool = True, port: int = 8080, **metadata: Any) -> Pod:
    return POD.convert(
        {
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "s"}, **metadata},
            "spec": {"containers": [{"name": "c", "ports": [{"name": "web", "containerPort": port}]}]},
            "status": {
                "podIP": ip,
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": str(ready)}],
            },
        }
    )


def listened(service: Service, *pods: Pod) -> dict[tuple[str, int], list[tuple[str, int]]]:
    made: list[EndpointSlice] = [
        ENDPOINT_SLICE.convert(each) for each in slices(service, backends(service, pods))
    ]
    return listeners(service, made)


def test_only_ready_pods_are_forwarded_to() -> None:
    pods = a_pod("a", "127.64.0.1"), a_pod("b", "127.64.0.2", ready=False)
    assert listened(a_service(), *pods) == {("127.96.0.9", 80): [("127.64.0.1", 8080)]}
    published = a_service(publishNotReadyAddresses=True)
    assert len(listened(published, *pods)["127.96.0.9", 80]) == 2


def test_pods_may_give_a_named_port_different_numbers() -> None:
    pods = a_pod("a", "127.64.0.1"), a_pod("b", "127.64.0.2", port=9090)
    assert listened(a_service(), *pods) == {("127.96.0.9", 80): [("127.64.0.1", 8080), ("127.64.0.2", 9090)]}


@pytest.mark.parametrize(
    "service",
    [a_service(clusterIP="None"), a_service(selector={"app": "other"}), a_service(selector={})],
    ids=["headless", "selects others", "selects none"],
)
def test_services_that_forward_to_nobody(service: Service) -> None:
    assert listened(service, a_pod("a", "127.64.0.1")) == {}


def test_leaving_pods_are_not_ready() -> None:
    leaving = a_pod("a", "127.64.0.1", deletionTimestamp="2026-01-01T00:00:00Z")
    assert listened(a_service(), leaving) == {}
    found = endpoints(a_service(), backends(a_service(), [leaving]))
    assert [each["ip"] for each in found["subsets"][0]["notReadyAddresses"]] == ["127.64.0.1"]
