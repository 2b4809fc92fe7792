"""The kit's servers and whole clusters show the same face, whoever serves the API: writes are told alike, and
pods run, are read and reached alike.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeVar

import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import Forbidden
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import (
    CONFIG_MAP,
    NAMESPACE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
)
from lab.clusters.namespaces import new_namespace
from lab.clusters.served import Served
from lab.clusters.whole import WholeClusters
from lab.waiting import until

T = TypeVar("T")
ECHO = """
import os, socketserver
class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.readline().upper())
with socketserver.TCPServer((os.environ["IP"], 7777), Answer) as server:
    server.serve_forever()
"""
WHO_AM_I = """
import asyncio, json
from elasticjob.kube.client import config
from elasticjob.kube.client.client import Client
async def main():
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    async with Client(await config.load()) as client:
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        answer = await client.raw("POST", path, json.dumps(review).encode())
    print(json.loads(answer)["status"]["userInfo"]["username"])
asyncio.run(main())
"""


async def test_writes_are_told_with_who_what_and_the_answer(
    served: Served, client: Client, namespace: str
) -> None:
    async with Client(served.config("jane", ("people",)), user_agent="janes") as jane:
        with pytest.raises(Forbidden):
            await jane.create(CONFIG_MAP, {"metadata": {"name": "a"}}, namespace)
    await client.create(CONFIG_MAP, {"metadata": {"name": "a"}}, namespace)
    await client.merge_patch(CONFIG_MAP, "a", {"data": {"x": "1"}}, namespace)
    await client.delete(CONFIG_MAP, "a", namespace)
    await client.get(NAMESPACE, namespace)
    requests = [
        (found.user, found.verb, found.resource, found.name, found.code)
        for found in served.writes()
        if found.namespace == namespace and found.resource == "configmaps" and found.name in ("a", "")
    ]
    assert requests == [
        ("jane", "create", "configmaps", "", 403),
        ("admin", "create", "configmaps", "a", 201),
        ("admin", "patch", "configmaps", "a", 200),
        ("admin", "delete", "configmaps", "a", 200),
    ]
    (janes,) = [found for found in served.writes() if found.user == "jane"]
    assert janes.agent == "janes"
    assert janes.began <= janes.ended


class Place:
    """A namespace of a cluster."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace

    async def run(self, name: str, program: str, **spec: object) -> None:
        await self.client.create(POD, pod(name, program, **spec), self.namespace)

    async def make(self, kind: Kind[T], name: str, **more: object) -> T:
        return await self.client.create(kind, {"metadata": {"name": name}, **more}, self.namespace)

    async def succeeded(self, name: str) -> str:
        """Wait for the end of a pod; what it printed."""

        async def ended() -> bool:
            return (await self.client.get(POD, name, self.namespace)).status.phase == "Succeeded"

        await until(ended, f"pod {name} has succeeded")
        return b"".join([piece async for piece in self.client.logs(name, self.namespace)]).decode()


@pytest.fixture
async def place(whole_cluster: WholeClusters, tmp_path: Path) -> AsyncIterator[Place]:
    async with whole_cluster(tmp_path) as cluster, Client(cluster.config()) as client:
        yield Place(client, await new_namespace(client, f"test-{secrets.token_hex(4)}"))


def pod(name: str, program: str, **spec: object) -> Manifest:
    address = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    command = [sys.executable, "-c", program]
    container = {"name": "main", "image": "python:3", "command": command, "env": [address]}
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]} if "volumes" in spec else {}
    return {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "containers": [container | mounts],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            **spec,
        },
    }


async def test_a_pod_runs_to_its_end_and_its_log_can_be_read(place: Place) -> None:
    await place.run("a", "print('hello')")
    assert await place.succeeded("a") == "hello\n"


async def test_a_service_reaches_its_pod_and_nobody_when_it_is_gone(place: Place) -> None:
    await place.run("echo", ECHO)
    ports = [{"port": 80, "targetPort": 7777}]
    service = await place.make(SERVICE, "echo", spec={"selector": {"app": "echo"}, "ports": ports})

    async def answers() -> bool:
        try:
            return await shouted(service.spec.cluster_ip, "hello\n") == "HELLO\n"
        except OSError:
            return False

    async def is_silent() -> bool:
        return not await answers()

    await until(answers, "the service answers")
    await place.client.delete(POD, "echo", place.namespace)
    await until(is_silent, "nobody answers")


async def shouted(address: str, text: str) -> str:
    reader, writer = await asyncio.open_connection(address, 80)
    writer.write(text.encode())
    try:
        return (await reader.readline()).decode()
    finally:
        writer.close()


async def test_a_claim_keeps_what_pods_write(place: Place) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    await place.make(PERSISTENT_VOLUME_CLAIM, "kept", spec=spec)
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "kept"}}]
    await place.run("writes", "open('/data/x', 'w').write('kept')", volumes=volumes)
    await place.succeeded("writes")
    await place.run("reads", "print(open('/data/x').read())", volumes=volumes)
    assert await place.succeeded("reads") == "kept\n"


async def test_a_pod_speaks_to_the_server_as_its_service_account(place: Place) -> None:
    await place.make(SERVICE_ACCOUNT, "robot")
    await place.run("robot", WHO_AM_I, serviceAccountName="robot")
    assert await place.succeeded("robot") == f"system:serviceaccount:{place.namespace}:robot\n"
