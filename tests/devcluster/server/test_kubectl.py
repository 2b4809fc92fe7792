"""The real kubectl against the server. Skipped as a whole where there is no kubectl on PATH."""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from elasticjob.devcluster.node.container.identity import Server, kubeconfig
from elasticjob.devcluster.server import ApiServer
from lab.clusters.installed.kubectl import Kubectl
from lab.waiting import PATIENCE
from tests.conformance.play import dig
from tests.kit.devcluster.api import Api, client, config_map, definition, pod, thing

KUBECTL = shutil.which("kubectl")
pytestmark = [
    pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH"),
    pytest.mark.asyncio(loop_scope="module"),
]
WAIT = f"--timeout={PATIENCE:.0f}s"


@dataclass(frozen=True)
class Typed:
    """kubectl in a namespace of its own; documents go to its stdin."""

    kubectl: Kubectl

    @property
    def namespace(self) -> str:
        return self.kubectl.namespace

    async def __call__(self, command: str, *documents: dict[str, Any], code: int = 0) -> str:
        return await self.kubectl(command, given="\n".join(map(json.dumps, documents)), code=code)

    async def first_lines(self, command: str, count: int) -> list[str]:
        """The first lines of a command that does not end by itself."""
        process = await asyncio.create_subprocess_exec(
            *self.kubectl.line(command), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            return [(await process.stdout.readline()).decode() for _ in range(count)]
        finally:
            process.kill()
            await process.communicate()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        running.add_token("secret", "admin", ["system:masters"])
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def api(server: ApiServer) -> AsyncIterator[Api]:
    async with client(server) as ready:
        yield ready


@pytest.fixture(scope="module")
def config(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kubectl") / "config"
    path.write_text(kubeconfig(Server(server.url, server.ca_pem), "secret"))
    return path


@pytest_asyncio.fixture(loop_scope="module")
async def kubectl(api: Api, config: Path) -> Typed:
    made = Typed(Kubectl(Path(str(KUBECTL)), config, f"test-{secrets.token_hex(4)}", errors=True))
    assert (await api.post("/api/v1/namespaces", {"metadata": {"name": made.namespace}})).code == 201
    return made


async def test_apply_creates_configures_and_leaves_alone(kubectl: Typed) -> None:
    body = config_map("a", x="1")
    assert await kubectl("apply -f -", body, pod("p")) == "configmap/a created\npod/p created\n"
    assert await kubectl("apply -f -", body, pod("p")) == "configmap/a unchanged\npod/p unchanged\n"
    assert await kubectl("apply -f -", config_map("a", y="2")) == "configmap/a configured\n"
    assert await kubectl("get cm a -o jsonpath={.data}") == '{"y":"2"}'


async def test_a_definition_and_its_objects(kubectl: Typed) -> None:
    await kubectl("apply -f -", definition())
    await kubectl(f"wait --for=condition=Established crd/things.example.com {WAIT}")
    assert await kubectl("apply -f -", thing(replicas=2)) == "thing.example.com/one created\n"
    assert await kubectl("apply -f -", thing(replicas=3)) == "thing.example.com/one configured\n"
    assert await kubectl("scale th/one --replicas=5") == "thing.example.com/one scaled\n"
    table = await kubectl("get things")
    assert table.split() == ["NAME", "REPLICAS", "AGE", "one", "5", table.split()[-1]]
    assert await kubectl("get all -o name") == "thing.example.com/one\n"
    assert "replicas\t<integer> -required-" in await kubectl("explain thing --recursive")
    assert "Replicas:  5" in await kubectl("describe th one")
    deleted = await kubectl("delete th one")  # some kubectl say from which namespace
    assert deleted.startswith('thing.example.com "one" deleted')
    assert "No resources found" in await kubectl("get th")
    output = await kubectl("apply -f -", thing(replicas=-1, mode="odd"), code=1)
    assert 'The Thing "one" is invalid' in output
    assert (
        "spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0"
        in output
    )
    assert 'spec.mode: Unsupported value: "odd": supported values: "fast", "slow"' in output
    assert 'unknown field "spec.nonsense"' in await kubectl(
        "apply -f -", thing(replicas=1, nonsense=1), code=1
    )
    assert "no matches for kind" in await kubectl("apply -f -", thing() | {"kind": "Nothing"}, code=1)


async def test_server_side_apply_and_its_conflicts(kubectl: Typed) -> None:
    assert (
        await kubectl("apply --server-side -f -", config_map("a", x="1"))
        == "configmap/a serverside-applied\n"
    )
    await kubectl('patch cm a --type=merge -p {"data":{"x":"2"}}')
    output = await kubectl("apply --server-side -f -", config_map("a", x="3"), code=1)
    assert 'conflict with "kubectl-patch" using v1: .data.x' in output
    await kubectl("apply --server-side --force-conflicts -f -", config_map("a", x="3"))
    assert await kubectl("get cm a -o jsonpath={.data.x}") == "3"


async def test_edits_of_every_kind(kubectl: Typed) -> None:
    await kubectl("create -f -", config_map("a", x="1"))
    await kubectl("label cm a color=red")
    await kubectl('patch cm a -p {"data":{"y":"2"}}')
    await kubectl('patch cm a --type=json -p [{"op":"remove","path":"/data/x"}]')
    found = json.loads(await kubectl("get cm -l color=red -o json"))["items"][0]
    assert found["data"] == {"y": "2"}
    await kubectl("replace -f -", config_map("a", z="3"))
    assert yaml.safe_load(await kubectl("get cm a -o yaml"))["data"] == {"z": "3"}
    assert "AlreadyExists" in await kubectl("create -f -", config_map("a"), code=1)


async def test_pods_are_shown_described_and_waited_for(kubectl: Typed, api: Api) -> None:
    pods = f"/api/v1/namespaces/{kubectl.namespace}/pods"
    await kubectl("apply -f -", pod("p", nodeName="n"))
    status = {
        "phase": "Running",
        "podIP": "127.1.2.3",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {
                "name": "main",
                "ready": True,
                "restartCount": 0,
                "image": "i",
                "imageID": "",
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }
        ],
    }
    await api.patch(f"{pods}/p/status", {"status": status}, "strategic")
    line = (await kubectl("get pods -o wide --no-headers")).split()
    assert line[:4] == ["p", "1/1", "Running", "0"]
    assert line[5:7] == ["127.1.2.3", "n"]
    await kubectl(f"wait --for=condition=Ready pod/p {WAIT}")
    uid = (await api.get(f"{pods}/p")).body["metadata"]["uid"]
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": kubectl.namespace, "uid": uid},
        "reason": "Started",
        "message": "it runs",
        "type": "Normal",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }
    await api.post(f"/api/v1/namespaces/{kubectl.namespace}/events", event)
    described = await kubectl("describe pod p")
    assert "it runs" in described
    assert "Service Account:  default" in described
    assert "Started" in await kubectl("get events")
    assert await kubectl("delete pod p --force --grace-period=0") != ""


async def test_a_watch_prints_rows_as_they_come(kubectl: Typed, api: Api) -> None:
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods"
    await api.post(path, pod("p", nodeName="n"))
    watching = asyncio.create_task(kubectl(f"wait pod/p --for=jsonpath={{.status.phase}}=Running {WAIT}"))
    await asyncio.sleep(0)
    await api.patch(f"{path}/p/status", {"status": {"phase": "Running"}})
    assert await watching == "pod/p condition met\n"
    header, row = await kubectl.first_lines("get pods -w", 2)
    assert (header.split()[0], row.split()[:3]) == ("NAME", ["p", "0/1", "Running"])


async def test_general_questions(kubectl: Typed) -> None:
    assert "v1.35" in await kubectl("version")
    assert "deployments" in await kubectl("api-resources --api-group=apps")
    assert "containers\t<[]Container> -required-" in await kubectl("explain pod.spec")
    assert await kubectl("get --raw /readyz") == "ok"
    assert "docs/devcluster.md" in await kubectl("get --raw /api/v1/namespaces/x/pods/p/exec", code=1)


async def test_dry_run_and_deletion(kubectl: Typed) -> None:
    output = await kubectl("apply --dry-run=server -f -", config_map("a"))
    assert output == "configmap/a created (server dry run)\n"
    assert "not found" in await kubectl("get cm a", code=1)
    assert await kubectl("create namespace gone") == "namespace/gone created\n"
    deleted = await kubectl("delete ns gone")  # some kubectl warn of the namespace that was given
    assert deleted.endswith('namespace "gone" deleted\n')


async def test_what_kubectl_sends_as_protobuf(kubectl: Typed) -> None:
    assert await kubectl("create configmap a --from-literal=x=1") == "configmap/a created\n"
    assert await kubectl("create secret generic s --from-literal=k=v") == "secret/s created\n"
    found = json.loads(await kubectl("get cm/a secret/s -o json"))["items"]
    assert [each["data"] for each in found] == [{"x": "1"}, {"k": "dg=="}]
    assert await kubectl("create serviceaccount bot") == "serviceaccount/bot created\n"
    assert len(await kubectl("create token bot --duration=10m")) > 20
    assert await kubectl("auth can-i create pods") == "yes\n"
    assert "admin" in await kubectl("auth whoami")


# command → (name of the object, path to a field, its value)
CREATED: dict[str, tuple[str, str, object]] = {
    "deployment d --image=busybox --replicas=0": ("deploy/d", "spec.replicas", 0),
    "deployment p --image=busybox --port=80": (
        "deploy/p",
        "spec.template.spec.containers.0.ports.0.containerPort",
        80,
    ),
    "job j --image=busybox -- echo hi": ("job/j", "spec.template.spec.containers.0.command.1", "hi"),
    "cronjob c --image=busybox --schedule=@hourly": ("cronjob/c", "spec.schedule", "@hourly"),
    "service clusterip s --tcp=80:8080": ("service/s", "spec.ports.0.targetPort", 8080),
    "role r --verb=get,list --resource=pods": ("role/r", "rules.0.verbs", ["get", "list"]),
    "rolebinding b --role=r --user=me": ("rolebinding/b", "subjects.0.name", "me"),
    "clusterrole cr --verb=get --non-resource-url=/logs": (
        "clusterrole/cr",
        "rules.0.nonResourceURLs.0",
        "/logs",
    ),
    "clusterrolebinding cb --clusterrole=cr --group=us": ("clusterrolebinding/cb", "roleRef.name", "cr"),
    "quota q --hard=cpu=1024m,memory=1024Mi": ("quota/q", "spec.hard.memory", "1Gi"),
    "ingress i --rule=a.example/x*=s:80": (
        "ingress/i",
        "spec.rules.0.http.paths.0.backend.service.port.number",
        80,
    ),
    "poddisruptionbudget pb --selector=app=x --min-available=50%": ("pdb/pb", "spec.minAvailable", "50%"),
    "priorityclass pc --value=-5": ("priorityclass/pc", "value", -5),
}


async def test_kubectl_creates(kubectl: Typed) -> None:
    for command in CREATED:
        assert "created" in await kubectl(f"create {command}")
    names = " ".join(name for name, _, _ in CREATED.values())
    found = json.loads(await kubectl(f"get {names} -o json"))["items"]
    for body, (name, path, expected) in zip(found, CREATED.values(), strict=True):
        assert dig(body, path) == expected, name
