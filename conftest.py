"""One suite, two servers: `pytest --kube devcluster|real` says on which the integration tests run.

A test that uses one of the fixtures in INTEGRATION is an integration test; the collection marks it, so that
`-m integration` chooses the same tests for both servers.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from elasticjob.kube.client.client import Client
from lab.clusters.binaries import Places, catalog
from lab.clusters.namespaces import new_namespace
from lab.clusters.plane.controlplane import ControlPlane
from lab.clusters.served import RealServed, Served, devcluster_server
from lab.clusters.whole import WholeClusters, real_plane, whole_clusters
from lab.truths.leftovers import cleaned

settings.register_profile(
    "busy",
    deadline=None,
    derandomize="CI" in os.environ,  # as in the profile that Hypothesis itself has for CI
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
settings.load_profile("busy")  # how long an example takes, and what chance draws, say nothing about the code
INTEGRATION = {"served", "client", "namespace", "whole_cluster"}
ALIKE = (
    "tests/lab/chaos",
    "tests/brain",
    "tests/e2e",
    "tests/kube/traps/test_leading.py",
    "tests/kube/traps/test_running.py",
    "tests/master/scalers",
)
"""Integration tests to which a real server cannot answer otherwise: make test-kube leaves them to ALL=1."""


def pytest_configure(config: pytest.Config) -> None:
    """Where no kubectl is on PATH, the one that hack/kube-binaries built serves.

    A shell's background job ignores SIGINT, and so would all programs that tests start and end by it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    kubectl = catalog().programs["kubectl"]
    if not shutil.which("kubectl") and (found := Places.of().find(kubectl)):
        os.environ["PATH"] += f"{os.pathsep}{found.parent}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and INTEGRATION & {*item.fixturenames}:
            item.add_marker(pytest.mark.integration)
            if not item.nodeid.startswith(ALIKE):
                item.add_marker(pytest.mark.differs)
    items.sort(key=_no_story)  # a story that starts last would decide when the whole run ends
    if config.getoption("--kube") != "real":
        _leave_out("plane", config, items)
    if not config.getoption("--node"):
        for marker in ("node", "grace", "tensorflow"):
            _leave_out(marker, config, items)


def _leave_out(marker: str, config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if item.get_closest_marker(marker)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _no_story(item: pytest.Item) -> bool:
    return item.get_closest_marker("story") is None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """How many integration tests ran: the same number on both servers."""
    ran = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.when == "call" and "integration" in report.keywords
    ]
    if ran:
        server = "the real control plane" if config.getoption("--kube") == "real" else "devcluster"
        terminalreporter.write_line(f"{len(ran)} integration tests ran on {server}")


@pytest.fixture(scope="session")
def control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Iterator[ControlPlane | None]:
    """The real control plane, started once in each process of pytest-xdist; None on devcluster."""
    if request.config.getoption("--kube") != "real":
        yield None
        return
    number = int(worker_id.removeprefix("gw")) if worker_id != "master" else 0
    with real_plane(tmp_path_factory.mktemp("plane"), number) as plane:
        yield plane


@pytest.fixture(scope="session")
def whole_cluster(control_plane: ControlPlane | None) -> WholeClusters:
    """`async with whole_cluster(folder) as cluster`: one that runs pods, with an operator or without."""
    return whole_clusters(control_plane)


@pytest.fixture
async def served(control_plane: ControlPlane | None, tmp_path: Path) -> AsyncIterator[Served]:
    """An API server with an administrator's kubeconfig; what the test leaves on a real one is removed."""
    if control_plane is None:
        async with devcluster_server(tmp_path) as dev:
            yield dev
        return
    async with cleaned(control_plane):
        yield RealServed(control_plane)


@pytest.fixture
async def client(served: Served) -> AsyncIterator[Client]:
    """An administrator's."""
    async with Client(served.config()) as found:
        yield found


@pytest.fixture
async def namespace(served: Served, client: Client) -> str:
    """A fresh one, in which pods may be created; `served` deletes it."""
    return await new_namespace(client, f"test-{secrets.token_hex(4)}", accounts=served.real)
