"""Whole jobs on a real node, with containers; only with --node, as root or on kind (`make e2e`).

The node is brought up if it is not, and taken down in the end; one that was up, or on which a test failed, is
left up to be looked at. Its objects and images are kept, so the next run begins faster. After a run that was
interrupted, which left a job or another's definitions there, the next one begins with an empty node.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from elasticjob.kube.client.client import Client
from lab.clusters.cluster import Machine
from lab.clusters.images import images
from lab.clusters.images.command import AN_HOUR
from lab.clusters.images.oci import Store
from lab.clusters.installed import rights, timeline
from lab.clusters.installed.installation import READY, Installation
from lab.clusters.installed.kubectl import Kubectl
from lab.clusters.installed.stage import volume_of
from lab.clusters.node.chosen import KIND
from lab.clusters.node.kind import KindNode, default_kind_folder
from lab.clusters.node.node import Node
from lab.clusters.node.place import Place, default_folder
from lab.jobs.job import looking_on
from lab.jobs.site import Site
from lab.paths import ROOT
from lab.waiting import until

FURNITURE: Final = {"serviceaccount/default", "configmap/kube-root-ca.crt"}
HOME: Final = "story-"
"""How the names of the tests' namespaces begin."""
NODE: Final = pytest.StashKey[Installation]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the timeline, and the rights that nobody used."""
    if (node := config.stash.get(NODE, None)) is None or not node.rows:
        return
    terminalreporter.section("timeline on the node")
    terminalreporter.write_line(timeline.text(node.rows))
    terminalreporter.write_line(f"\nrights that these stories did not use: {'; '.join(node.unused)}")
    if node.machine.is_up():
        kind = "" if isinstance(node.machine, Node) else "--kind "
        terminalreporter.write_line(f"\nthe node is up: hack/node {kind}status; hack/node {kind}down")


def machine_of(on: str) -> Machine:
    """The machine that was asked for."""
    return KindNode(default_kind_folder()) if on == KIND else Node(Place(default_folder()), say=print)


@pytest.fixture(scope="session")
def node(request: pytest.FixtureRequest) -> Iterator[Installation]:
    """The node with the operator in it. What it says while it comes up is printed (`-s`, or on failure)."""
    machine = machine_of(request.config.getoption("--on"))
    was_up = machine.is_up()
    machine.up()
    if _has_homes(machine):
        print("an earlier run did not end: its node is emptied", flush=True)
        assert machine.purge() == []
        machine = machine_of(request.config.getoption("--on"))
        machine.up()
    found = Installation(machine, Kubectl(machine.kubectl, machine.kubeconfig), Store(images.cache()))
    for name in images.PRODUCTS:
        found.load(name)
    found.store.sweep(time.time() - AN_HOUR)  # what earlier builds left
    found.install()
    found.seen = len(machine.audit())
    request.config.stash[NODE] = found
    yield found
    roles = yaml.safe_load_all((ROOT / "config" / "rbac" / "operator.yaml").read_text())
    found.unused = rights.unused(roles, machine.audit())
    if not (was_up or request.session.testsfailed):
        assert machine.down() == []


def _has_homes(machine: Machine) -> bool:
    """Whether the namespace of a test is still there, and all that it made outside of it with it."""
    kubectl = Kubectl(machine.kubectl, machine.kubeconfig)
    return f"namespace/{HOME}" in kubectl.run("get", "namespaces", "-o", "name")


@pytest.fixture(autouse=True)
def nothing_is_forbidden(node: Installation) -> Iterator[None]:
    """After each test: none of our programs asked for anything that its role does not grant."""
    yield
    requests = node.machine.audit()
    refused = rights.forbidden(requests[node.seen :])
    node.seen = len(requests)
    assert refused == []


@pytest.fixture
async def admin(node: Installation) -> AsyncIterator[Client]:
    """A client that may do anything."""
    async with Client(node.machine.config()) as client:
        yield client


@pytest.fixture
async def site(admin: Client, home: str) -> AsyncIterator[Site]:
    """The namespace, as one sees it who follows all that is in it."""
    async with looking_on(admin) as onlooker:
        yield Site(admin, onlooker, home)


@pytest.fixture
async def home(node: Installation) -> AsyncIterator[str]:
    """A new namespace that admits nothing but restricted pods, deleted afterwards."""
    name = f"{HOME}{secrets.token_hex(3)}"
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    await node.kubectl.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": enforce}}
    )

    async def furnished() -> bool:
        return await node.kubectl.names("serviceaccounts,configmaps", name) >= FURNITURE

    await until(furnished, f"namespace {name} has what every namespace is given")
    yield name
    await node.kubectl("delete", "namespace", name, READY)
    # not before: its pods write there. A folder of another machine may be another user's
    shutil.rmtree(node.machine.volumes / name, ignore_errors=True)


@pytest.fixture
async def volume(node: Installation, home: str) -> AsyncIterator[Path]:
    """The folder on the node that the claim `digits-checkpoints` of the namespace is bound to."""
    folder = node.machine.volumes / home
    folder.mkdir(parents=True)
    folder.chmod(0o777)  # kubelet leaves the owner of a folder of the machine as it is
    await node.kubectl.apply(volume_of(folder, home, "digits-checkpoints"))
    yield folder
    await node.kubectl("delete", "persistentvolume", home, "--wait=false")
