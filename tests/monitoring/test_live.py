"""Alerts that fire for real, and dashboards of a job: a cluster with all programs, Prometheus, Alertmanager.

One alert of each class is caused, reaches the receiver of an Alertmanager, and ends with its cause.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import pytest_asyncio

from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.cli.laptop.ports import free_port
from elasticjob.cli.story.processes import workers_of
from elasticjob.devcluster import DevCluster
from elasticjob.devcluster.node.heartbeat import VirtualNode
from elasticjob.kube.cache.store import Change
from elasticjob.kube.errors import ApiError
from elasticjob.kube.objects.views import POD
from lab import programs
from lab.build.manifests import DIJOB as MANIFEST
from lab.build.manifests import changed
from lab.clusters.namespaces import new_namespace
from lab.jobs.job import TRAINS, Job, Stage, role, staged, trainer
from lab.jobs.site import Site
from lab.jobs.whole import local
from lab.processes import Process
from lab.running import beside
from lab.waiting import until
from tests.kit.monitoring.rig import Rig, monitoring, rules

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]

CAPACITY: Final = {"cpu": "2", "memory": "32Gi", "pods": "110"}
ROOT: Final = Path(__file__).parents[2]
PYTHONPATH: Final = f"{ROOT / 'tests' / 'kit' / 'monitoring' / 'device'}{os.pathsep}{ROOT}"
"""Agents find a GPU in the first folder; supervisor and pods have the same, or no worker would be a fork."""
TEAM, SYSTEM = "team", "elasticjob-system"
SHARES: Final = {
    "ELASTICJOB_BRAIN_SHARE": "fulfilment",
    "ELASTICJOB_BRAIN_SETTLE": "1",
    "ELASTICJOB_BRAIN_EVERY": "1",
}
PATIENT: Final = ("HANG", "SILENCE")
"""A worker that is stopped would be replaced within seconds, before an alert could fire."""
BOARDS: Final = sorted((ROOT / "config" / "grafana").glob("*.json"))


@dataclass
class Scene:
    """All programs, a job that trains, and the monitoring of both."""

    stage: Stage
    site: Site
    job: Job
    rig: Rig
    brain: Process
    di_server: Process
    database: Path
    checkpoints: Path

    def masters(self, change: Change | None = None) -> None:
        """Tell Prometheus which masters run, as the API server would."""
        for name in self.site.running():
            pod = self.site.pods()[name]
            if name == "digits-master-0" and pod.status.pod_ip:
                labels = {"namespace": TEAM, "job": "digits", "pod": name}
                self.rig.targets.set("masters", [f"{pod.status.pod_ip}:50001"], **labels)

    def programs(self, brain: str) -> None:
        """Tell Prometheus where the others are."""
        operator, di_server = (
            each.url.removeprefix("http://") for each in (self.stage.operator, self.di_server)
        )
        places = {"operator": operator, "brain": brain, "di-server": di_server}
        for name, address in places.items():
            self.rig.targets.set(name, [address], namespace=SYSTEM, job=f"elasticjob-{name}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """A cluster with operator, Brain and di-server, and a job that trains until the end of the module."""
    folder = tmp_path_factory.mktemp("cluster")
    key, port, probes, di_port = folder / "key", free_port(), f"127.0.0.1:{free_port()}", free_port()
    key.write_text("a key of this test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELASTICJOB_OPERATOR_BRAIN", f"127.0.0.1:{port}")
        patch.setenv("ELASTICJOB_OPERATOR_BRAIN_KEY_FILE", str(key))
        patch.setenv("ELASTICJOB_OPERATOR_DI_SERVER", f"http://127.0.0.1:{di_port}")
        patch.setenv("PYTHONPATH", PYTHONPATH)
        async with (
            DevCluster(folder, nodes=[VirtualNode("shared", CAPACITY)], supervisor=TRAINS) as cluster,
            staged(cluster, folder) as stage,
            programs.brain(
                folder / "operator.kubeconfig", folder, key, port=port, probes=probes, **SHARES
            ) as brain,
            programs.di_server(cluster.kubeconfig, folder, port=di_port) as di_server,
            monitoring(folder, "masters", "operator", "brain", "di-server") as rig,
        ):
            await new_namespace(stage.client, TEAM)
            site = Site(stage.client, stage.onlooker, TEAM)
            checkpoints = folder / "checkpoints"
            found = Scene(stage, site, Job(site), rig, brain, di_server, folder / "brain.db", checkpoints)
            await begin(found, probes)
            yield found
            await stage.client.delete(ELASTICJOB, "digits", TEAM)
            await site.until(lambda: not found.job.pods())


async def begin(scene: Scene, probes: str) -> None:
    """Have everything scraped, and the job train with two workers."""
    flags: dict[str, object] = {"--steps": 100_000, "--seconds": 0.2, "--save-every": 25}
    flags["--checkpoint"] = scene.checkpoints
    worker = trainer(
        *(word for flag in flags.items() for word in flag),
        minReplicas=1,
        maxReplicas=2,
        resources={"requests": {"cpu": "300m", "memory": "1Gi"}},
    )
    del worker["replicas"]
    (container,) = worker["template"]["spec"]["containers"]
    container["env"] = [{"name": "PYTHONPATH", "value": PYTHONPATH}]
    scene.stage.onlooker.cache(POD).subscribe(scene.masters)
    scene.programs(probes)
    envs = {f"ELASTICJOB_MASTER__{name}": {"value": "300"} for name in PATIENT}
    await scene.site.apply({"optimizeMode": "cluster", "envs": envs, "replicaSpecs": {"worker": worker}})
    await scene.site.until(lambda: {"worker-0", "worker-1"} <= scene.job.running())


# dashboards


def expressions() -> list[tuple[str, str, str]]:
    """Return dashboard, panel and expression of each query."""
    return [
        (board.stem, panel["title"], target["expr"])
        for board in BOARDS
        for panel in json.loads(board.read_text())["panels"]
        for target in panel.get("targets", ())
    ]


def chosen(board: str) -> dict[str, str]:
    """Return the values of a dashboard's variables."""
    return {"namespace": TEAM, "job": "digits"} if board == "job" else {"namespace": ".*", "job": ".*"}


def filled(expr: str, board: str) -> str:
    """Return an expression with Grafana's variables replaced."""
    for name, value in {**chosen(board), "__rate_interval": "10s"}.items():
        expr = expr.replace(f"${name}", value)
    return expr


async def test_each_query_of_each_dashboard_returns_series(scene: Scene) -> None:
    scene.stage.line.cut()  # watches are opened again
    async with aiohttp.ClientSession() as session:
        await session.get(f"{scene.di_server.url}/v1alpha2/replicas?namespace={TEAM}&coordinator=none")
    asked = expressions()
    for board, title, expr in asked:

        async def returns_series(query: str = filled(expr, board)) -> bool:
            return bool(await scene.rig.prometheus.query(query))

        await until(returns_series, f"{board}: {title}: {expr} returns series")
    print(f"{len(asked)} expressions of {len(BOARDS)} dashboards return series")


async def test_variables_of_dashboards_have_the_values_of_what_runs(scene: Scene) -> None:
    for path in BOARDS:
        board = path.stem
        wanted = {TEAM} if board in ("fleet", "job") else {SYSTEM}
        for variable in json.loads(path.read_text())["templating"]["list"]:
            if variable["type"] != "query":
                continue
            selector, label = (
                variable["query"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
            )
            found = await scene.rig.prometheus.values(label, filled(selector, board))
            jobs = {"job": {"digits"}, "operator": {"elasticjob-operator"}, "brain": {"elasticjob-brain"}}
            assert set(found) == (wanted if label == "namespace" else jobs[board]), (board, variable["name"])


# alerts

Cause = Callable[[Scene], AbstractAsyncContextManager[None]]


def signalled(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@asynccontextmanager
async def paused(pids: list[int]) -> AsyncIterator[None]:
    signalled(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        signalled(pids, signal.SIGCONT)


@asynccontextmanager
async def an_image_that_nobody_has(scene: Scene) -> AsyncIterator[None]:
    await scene.site.apply(local(role(["train"], image="registry.example/trianer:1")), "stuck")
    yield
    await scene.stage.client.delete(ELASTICJOB, "stuck", TEAM)


def a_master_that_is_stopped(scene: Scene) -> AbstractAsyncContextManager[None]:
    return paused([each.pid for each in scene.job.processes("master-0")])


def a_worker_that_is_stopped(scene: Scene) -> AbstractAsyncContextManager[None]:
    return paused([each.pid for each in workers_of(scene.job.processes("worker-1"))])


@asynccontextmanager
async def storage_that_is_no_folder(scene: Scene) -> AsyncIterator[None]:
    kept = scene.checkpoints.rename(scene.checkpoints.with_suffix(".kept"))
    scene.checkpoints.touch()
    yield
    scene.checkpoints.unlink()
    kept.rename(scene.checkpoints)


def an_operator_that_is_stopped(scene: Scene) -> AbstractAsyncContextManager[None]:
    return paused([scene.stage.operator.pid])


@asynccontextmanager
async def an_operator_without_api_server(scene: Scene) -> AsyncIterator[None]:
    """Its webhook for ScalePlans cannot read their jobs."""
    plan = {"apiVersion": SCALEPLAN.api_version, "kind": "ScalePlan", "metadata": {"generateName": "plan-"}}
    plan |= {"spec": {"ownerJob": "digits", "replicaResourceSpecs": {"worker": {"replicas": 2}}}}

    async def ask() -> None:
        while True:
            with suppress(ApiError):
                await scene.stage.client.create(SCALEPLAN.untyped(), plan, TEAM, dry_run=True)
            await asyncio.sleep(0.3)

    ports, scene.stage.line.ports = scene.stage.line.ports, [free_port()]
    scene.stage.line.cut()
    async with beside(ask()):
        try:
            yield
        finally:
            scene.stage.line.ports = ports


@asynccontextmanager
async def a_database_that_is_locked(scene: Scene) -> AsyncIterator[None]:
    with sqlite3.connect(scene.database, timeout=60, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")
    other.close()


@asynccontextmanager
async def a_di_server_that_is_stopped(scene: Scene) -> AsyncIterator[None]:
    """It is missed where there is a DIJob."""
    job = changed(MANIFEST, {"metadata/name": "cartpole", "metadata/namespace": TEAM})
    await scene.stage.client.create(DIJOB.untyped(), job, TEAM)
    async with paused([scene.di_server.pid]):
        yield
    await scene.stage.client.delete(DIJOB, "cartpole", TEAM)


HERE: Final = {"namespace": TEAM, "job": "digits"}
CAUSES: Final[dict[str, tuple[str, Cause, dict[str, str]]]] = {
    "job": ("ElasticJobPending", an_image_that_nobody_has, HERE | {"job": "stuck"}),
    "master": ("ElasticJobMasterUnreachable", a_master_that_is_stopped, HERE),
    "training": ("ElasticJobHangs", a_worker_that_is_stopped, HERE),
    "durability": ("ElasticJobCheckpointFails", storage_that_is_no_folder, HERE),
    "webhooks": ("ElasticJobWebhookErrors", an_operator_without_api_server, {}),
    "brain": ("ElasticJobBrainDatabaseFails", a_database_that_is_locked, {}),
    "di-server": ("ElasticJobDIServerDown", a_di_server_that_is_stopped, {}),
    "operator": ("ElasticJobOperatorDown", an_operator_that_is_stopped, {}),
}


@pytest.mark.parametrize("class_", CAUSES)
async def test_an_alert_fires_reaches_its_receiver_and_is_resolved(scene: Scene, class_: str) -> None:
    alert, cause, labels = CAUSES[class_]
    await scene.rig.is_calm(alert, labels)
    began = time.monotonic()
    async with cause(scene):
        told = await scene.rig.fires(alert, labels, datetime.now(UTC))
        fired = time.monotonic()
    await scene.rig.resolves(alert, labels)
    owner = "trainers" if told.labels["class"] in ("job", "training", "durability") else "platform"
    assert told.receiver == owner
    assert alert in told.annotations["runbook_url"].partition("docs/runbooks/")[2]
    assert all(value in told.annotations["description"] for value in labels.values())
    seconds = f"fired after {fired - began:.1f} s, resolved after {time.monotonic() - fired:.1f} s"
    print(f"{class_}: {alert} {seconds}")


async def test_each_class_of_alerts_has_one_that_fires() -> None:
    shipped = {rule["labels"]["class"] for group in rules() for rule in group["rules"] if "alert" in rule}
    assert shipped <= {*CAUSES}
