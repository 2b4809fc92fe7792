"""docs/framework.md: every piece of its code, run against an API server."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from elasticjob.kube import Client, Declaration, Kind, Manifest, crd_manifest
from elasticjob.kube.errors import ApiError, Conflict, Invalid
from elasticjob.kube.objects.views import CRD, LEASE, ROLE, ROLE_BINDING, SECRET, SERVICE
from lab.clusters.served import Served
from lab.processes import Process
from lab.running import running
from lab.waiting import PATIENCE, until

PAGE = Path(__file__).parents[2] / "docs" / "framework.md"
PYTHON = re.compile(r"^```python\n# (\w+)\.py\n(.*?)^```$", re.DOTALL | re.MULTILINE)
YAML = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
RIGHTS: dict[str, Kind[Any]] = {
    "ClusterRole": Kind(
        "rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", dict, namespaced=False
    ),
    "ClusterRoleBinding": Kind(
        "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", dict, namespaced=False
    ),
    "Role": ROLE,
    "RoleBinding": ROLE_BINDING,
}
SYSTEM = "website-system"
HTML = "<h1>Hello</h1>"


def programs() -> dict[str, str]:
    """The Python of the page, by the name of its module."""
    return dict(PYTHON.findall(PAGE.read_text()))


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's modules, in a folder from which they can be imported."""
    folder = tmp_path / "page"
    folder.mkdir()
    for name, text in programs().items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in programs():
        sys.modules.pop(name, None)


@pytest.fixture
def website(page: Path) -> ModuleType:
    return importlib.import_module("website")


@pytest.fixture
async def installed(client: Client, website: ModuleType) -> Client:
    """An administrator's client of a cluster that knows Websites."""
    declared = Declaration(website.WEBSITE, columns=website.COLUMNS)
    await client.apply(CRD, crd_manifest(declared), manager="test")
    await until(lambda: _served(client, website), "websites are served")
    return client


async def _served(client: Client, website: ModuleType) -> bool:
    try:
        await client.list(website.WEBSITE)
    except ApiError:
        return False
    return True


@asynccontextmanager
async def allowed(admin: Client, served: Served, namespace: str) -> AsyncIterator[Client]:
    """A client with the rights that the page gives, and no others, as a pod of `namespace` has it."""
    rights = [
        found
        for block in YAML.findall(PAGE.read_text().replace(SYSTEM, namespace))
        for found in yaml.safe_load_all(block)
        if found["kind"] in RIGHTS
    ]
    assert [found["kind"] for found in rights] == list(RIGHTS)
    for found in rights:
        await admin.apply(RIGHTS[found["kind"]], found, manager="test")
    account = f"system:serviceaccount:{namespace}:website-operator"
    config = replace(served.config(account, ("system:serviceaccounts",)), namespace=namespace)
    try:
        async with Client(config) as client:
            yield client
    finally:
        for found in rights:
            if found["kind"].startswith("Cluster"):
                await admin.delete(RIGHTS[found["kind"]], found["metadata"]["name"])


def site(namespace: str, html: str = HTML, **spec: Any) -> Manifest:
    return {"metadata": {"name": "hello", "namespace": namespace}, "spec": {"html": html, **spec}}


def test_the_operator_has_fewer_than_60_lines() -> None:
    assert len([line for line in programs()["website"].splitlines() if line.strip()]) < 60


async def test_a_website_becomes_a_deployment_and_a_service_and_stays_so(
    served: Served, installed: Client, namespace: str, website: ModuleType
) -> None:
    async def deployment() -> Manifest | None:
        return await installed.find(website.DEPLOYMENT, "hello", namespace)

    async def shows(html: str) -> bool:
        found = await deployment()
        (container,) = found["spec"]["template"]["spec"]["containers"] if found else ({},)
        return bool(container) and container["env"] == [{"name": "HTML", "value": html}]

    async def has_replicas(count: int) -> bool:
        found = await deployment()
        return found is not None and found["spec"]["replicas"] == count

    async def service_of(uid: str) -> bool:
        found = await installed.find(SERVICE, "hello", namespace)
        return found is not None and found.metadata.uid != uid

    async with (
        allowed(installed, served, namespace) as client,
        running(website.compose(client, probes=None, signals=False)),
    ):
        made = await installed.create(website.WEBSITE, site(namespace, replicas=2))
        await until(lambda: shows(HTML), "the deployment shows the page")
        await until(lambda: service_of(""), "there is a service")
        found = await installed.get(SERVICE, "hello", namespace)
        assert [(owner.kind, owner.uid) for owner in found.metadata.owner_references] == [
            ("Website", made.metadata.uid)
        ]
        assert await has_replicas(2)

        await installed.merge_patch(website.WEBSITE, "hello", {"spec": {"html": "<p>new</p>"}}, namespace)
        await until(lambda: shows("<p>new</p>"), "the new page is shown")
        await installed.delete(SERVICE, "hello", namespace)
        await until(lambda: service_of(found.metadata.uid), "the service comes back")
        await installed.merge_patch(website.DEPLOYMENT, "hello", {"spec": {"replicas": 7}}, namespace)
        await until(lambda: has_replicas(2), "what was scaled by hand is put right")


async def test_a_website_says_how_it_is_doing(installed: Client, namespace: str, website: ModuleType) -> None:
    async def status() -> tuple[int, str]:
        found = await installed.get(website.WEBSITE, "hello", namespace)
        return found.status.ready, found.status.url

    async def tells_of_a_server() -> bool:
        """A Deployment's own controller, where there is one, knows better, and soon says so again."""
        up = {"status": {"replicas": 1, "readyReplicas": 1}}
        await installed.merge_patch(website.DEPLOYMENT, "hello", up, namespace, subresource="status")
        for _ in range(20):
            if (await status())[0] == 1:
                return True
            await asyncio.sleep(0.01)
        return False

    async def has_url() -> bool:
        return (await status())[1] == f"http://hello.{namespace}.svc"

    async with running(website.compose(installed, probes=None, signals=False)):
        await installed.create(website.WEBSITE, site(namespace))
        await until(has_url, "the url is told")
        await until(tells_of_a_server, "the servers that are up are counted")


async def test_the_api_server_holds_the_models_bounds(
    installed: Client, namespace: str, website: ModuleType
) -> None:
    with pytest.raises(Invalid, match=r"spec\.replicas"):
        await installed.create(website.WEBSITE, site(namespace, replicas=101))
    made = await installed.create(website.WEBSITE, site(namespace))
    assert made.spec.replicas == 1


async def test_the_program_runs_as_it_stands(
    served: Served, client: Client, namespace: str, page: Path, website: ModuleType
) -> None:
    program = page / "website.py"
    assert "0.0.0.0:8081" in program.read_text()
    program.write_text(program.read_text().replace("0.0.0.0:8081", "127.0.0.1:0"))
    environment = {**os.environ, "KUBECONFIG": str(served.kubeconfig), "PYTHONPATH": str(Path.cwd())}

    async def created() -> bool:
        try:
            await client.create(website.WEBSITE, site(namespace))
        except ApiError:
            return False
        return True

    async def has_service() -> bool:
        return await client.find(SERVICE, "hello", namespace) is not None

    async with Process("website", (sys.executable, program), page, environment) as process:
        await until(created, "the program has declared its kind")
        await until(has_service, "the program works")
        process.send(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0


async def test_the_finalizer_holds_a_website_until_its_name_is_gone(
    installed: Client, namespace: str, website: ModuleType
) -> None:
    outside = importlib.import_module("outside")
    names: dict[str, str] = {}
    made = await installed.create(website.WEBSITE, site(namespace))
    await outside.keep_name(installed, made, names)
    assert names == {"hello": "10.0.0.1"}
    await installed.delete(website.WEBSITE, "hello", namespace)
    ending = await installed.get(website.WEBSITE, "hello", namespace)
    assert ending.metadata.finalizers == ["example.com/dns"]
    await outside.keep_name(installed, ending, names)
    assert names == {}
    assert await installed.find(website.WEBSITE, "hello", namespace) is None
    with pytest.raises(Conflict):  # a stale copy revives nothing
        await outside.keep_name(installed, ending, names)


async def test_the_webhook_refuses_in_its_own_words(
    served: Served, installed: Client, namespace: str, website: ModuleType
) -> None:
    checks = importlib.import_module("checks")

    async def refused() -> bool:
        try:
            await installed.create(website.WEBSITE, site(namespace, "<blink>no</blink>"), dry_run=True)
        except ApiError as error:
            return "use CSS" in error.message
        return False

    async with allowed(installed, served, namespace) as client:
        operator = website.compose(client, probes=None, signals=False)
        secret = checks.IN_CLUSTER["secret"]._replace(namespace=namespace)
        checks.serve(operator, "127.0.0.1", 0, secret=secret)
        async with running(operator):
            await until(refused, "the webhook is heeded, and uses its own words")
            await installed.create(website.WEBSITE, site(namespace))
        assert (await installed.get(SECRET, secret.name, namespace)).data.keys() == {"tls.crt", "tls.key"}


async def test_replicas_share_a_lease(
    served: Served, installed: Client, namespace: str, website: ModuleType
) -> None:
    replicas = importlib.import_module("replicas")
    async with (
        allowed(installed, served, namespace) as client,
        running(replicas.one_of_several(client, probes=None, signals=False)) as operator,
    ):
        await asyncio.wait_for(operator.wait_leading(), PATIENCE)
        held = await installed.get(LEASE, website.NAME, namespace)
        assert operator.election is not None
        assert held.spec.holder_identity == operator.election.identity
    assert (await installed.get(LEASE, website.NAME, namespace)).spec.holder_identity == ""


async def test_the_test_of_the_page_passes(page: Path, tmp_path: Path) -> None:
    await importlib.import_module("test_website").test_a_website_has_a_service_although_watches_are_cut(
        tmp_path / "cluster"
    )


def test_all_python_of_the_page_is_run_here() -> None:
    text = PAGE.read_text()
    assert {"website", "outside", "checks", "replicas", "test_website"} == set(programs())
    assert text.count("```python") == len(programs())


def test_every_module_that_the_map_names_exists() -> None:
    kube = PAGE.parents[1] / "kube"
    named = re.findall(r"`([\w/]+\.py|\w+/)`", PAGE.read_text().split("## The map of kube/")[1])
    assert len(named) > 30
    rooms = (kube, kube / "crd")
    missing = [name for name in named if not any((room / name).exists() for room in rooms)]
    assert missing == ["controllers/"]


def test_the_public_names_are_where_the_package_says() -> None:
    package = importlib.import_module("elasticjob.kube")
    assert set(package._HOME) == set(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="import it from its module"):
        _ = package.Nothing
