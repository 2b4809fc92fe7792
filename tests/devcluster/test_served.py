"""docs/devcluster.md, sentence by sentence: the API server's own Service, and each absence."""

from __future__ import annotations

import json
import os
import ssl
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from elasticjob.devcluster import DevCluster
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import AlreadyExists
from elasticjob.kube.objects.views import POD
from lab.waiting import PATIENCE
from tests.kit.devcluster.documented import pod
from tests.kit.devcluster.live import kubectl

pytestmark = pytest.mark.asyncio(loop_scope="module")
WAIT = f"--timeout={PATIENCE:.0f}s"
ABSENT = "devcluster does not serve '{}', see docs/devcluster.md"


async def told(cluster: DevCluster, command: str) -> str:
    """Return the output and errors of a command of kubectl."""
    return (await kubectl(cluster, *command.split()))[1]


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("exec ready -- true", ABSENT.format("exec")),
        ("attach ready", ABSENT.format("attach")),
        ("port-forward ready 8080:80", ABSENT.format("portforward")),
        ("cp ready:/etc/hosts /dev/null", ABSENT.format("exec")),
        ("debug ready --image=busybox", ABSENT.format("ephemeralcontainers")),
        ("get --raw /api/v1/namespaces/default/pods/ready/proxy/", ABSENT.format("proxy")),
        ("get pods --as=alice", "devcluster does not serve impersonation: use a token of that user"),
        ("top pods", "Metrics API not available"),
        ("get horizontalpodautoscalers", "the server doesn't have a resource type"),
    ],
)
async def test_absent_parts_answer_with_a_sentence(shared: DevCluster, command: str, sentence: str) -> None:
    async with Client(shared.config()) as client:
        try:
            await client.create(POD, pod("ready", "sleep 600"))
        except AlreadyExists:
            pass
        else:
            await told(shared, f"wait --for=condition=Ready pod/ready {WAIT}")
    assert sentence in await told(shared, command)


@pytest.mark.parametrize(
    "command",
    [
        "create deployment stored --image=busybox",
        "create job stored --image=busybox",
        "create cronjob stored --image=busybox --schedule=@hourly",
    ],
)
async def test_no_pods_are_made_of_workloads(shared: DevCluster, command: str) -> None:
    assert "created" in await told(shared, f"{command} -n kube-public")
    assert "No resources found" in await told(shared, "get pods,replicasets -n kube-public")


async def test_quotas_users_and_cpu_limits_have_no_effect(shared: DevCluster) -> None:
    assert "created" in await told(shared, "create quota none --hard=pods=0")
    limited = pod(
        "limited", "id -u", securityContext={"runAsUser": 12345}, resources={"limits": {"cpu": "1m"}}
    )
    async with Client(shared.config()) as client:
        await client.create(POD, limited)
    await told(shared, f"wait --for=jsonpath={{.status.phase}}=Succeeded pod/limited {WAIT}")
    assert await told(shared, "logs limited") == f"{os.getuid()}\n"


async def ask(cluster: DevCluster, path: str, accept: str = "application/json") -> tuple[str, Any]:
    """Return the media type and the body of a GET."""
    config = cluster.config()
    headers = {"Accept": accept, "Authorization": await config.credentials.header() or ""}
    trusting = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=cluster.ca_pem))
    async with (
        aiohttp.ClientSession(connector=trusting, headers=headers) as session,
        session.get(f"{cluster.url}{path}") as answer,
    ):
        return answer.content_type, json.loads(await answer.read())


async def test_answers_to_protobuf_clients_are_json(shared: DevCluster) -> None:
    accept = "application/vnd.kubernetes.protobuf,application/json"
    media, found = await ask(shared, "/api/v1/namespaces/default", accept)
    assert (media, found["kind"]) == ("application/json", "Namespace")


async def test_service_of_the_api_server_names_its_address(shared: DevCluster) -> None:
    url, where = urlsplit(shared.url), "namespaces/default"
    _, service = await ask(shared, f"/api/v1/{where}/services/kubernetes")
    _, endpoints = await ask(shared, f"/api/v1/{where}/endpoints/kubernetes")
    label = "labelSelector=kubernetes.io/service-name%3Dkubernetes"
    _, slices = await ask(shared, f"/apis/discovery.k8s.io/v1/{where}/endpointslices?{label}")
    port = [{"name": "https", "protocol": "TCP", "port": url.port}]
    assert service["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["ports"] == [port[0] | {"targetPort": url.port}]
    assert endpoints["subsets"] == [{"addresses": [{"ip": url.hostname}], "ports": port}]
    (found,) = slices["items"]
    assert found["endpoints"] == [{"addresses": [url.hostname], "conditions": {"ready": True}}]
    assert found["ports"] == port


async def test_pods_reach_the_api_server(shared: DevCluster) -> None:
    """In-cluster configuration works: the environment, and the files of the service account."""
    script = 'echo "$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT"'
    async with Client(shared.config()) as client:
        await client.create(POD, pod("inside", script))
        await told(shared, f"wait --for=jsonpath={{.status.phase}}=Succeeded pod/inside {WAIT}")
    url = urlsplit(shared.url)
    assert await told(shared, "logs inside") == f"{url.hostname}:{url.port}\n"
