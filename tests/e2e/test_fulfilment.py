"""Jobs that train share a full cluster: a fourth gets its minimum, others grow later, no step is lost."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from elasticjob.api.paddle.trainingjob import TRAININGJOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.laptop import preloaded
from elasticjob.cli.laptop.laptop import operator_of
from elasticjob.cli.laptop.ports import free_port
from elasticjob.cli.report.plot import Event, Figure, Panel, draw
from elasticjob.devcluster import DevCluster
from elasticjob.devcluster.node.heartbeat import VirtualNode
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD
from tests.kit.brain.process import brain_of
from tests.kit.controllers.site import Site
from tests.kit.e2e import Job, Stage, looking_on, over, role
from tests.kit.node.kubectl import Kubectl
from tests.kit.traps.switch import Switch

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

KUBECTL: Final = shutil.which("kubectl")
TRAINS: Final = """
import pathlib, sys, time, torch
from elasticjob.trainer.torch import Elastic
model = torch.nn.Linear(1, 1)
elastic = Elastic(model, torch.optim.SGD(model.parameters(), 0.0))
made = pathlib.Path(sys.argv[1])
let_go = made.with_suffix(".go")
data = elastic.loader(torch.utils.data.TensorDataset(torch.ones(12 * 500, 1)), global_batch=12)
for step in elastic.steps(data):
    with step:
        for (batch,) in step:
            step.backward(elastic.model(batch).mean())
        time.sleep(0.005 if let_go.exists() else 0.5)
    if step.done and elastic.is_main:
        with made.open("a") as file:
            print(step.number, file=file)
"""
"""500 steps, which take minutes until the file `let_go` is there, and seconds then."""
CAPACITY: Final = {"cpu": "2", "memory": "32Gi", "pods": "110"}
"""Room for five workers of 300m beside three or four masters of 100m."""
STEPS: Final = 500
JOBS: Final = ("first", "second", "third", "fourth")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """A small cluster that a Brain shares among its jobs."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    key, port = folder / "key", free_port()
    key.write_text("a key of this test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELASTICJOB_OPERATOR_BRAIN", f"127.0.0.1:{port}")
        patch.setenv("ELASTICJOB_OPERATOR_BRAIN_KEY_FILE", str(key))
        settings = {"ELASTICJOB_BRAIN_SHARE": "fulfilment", "ELASTICJOB_BRAIN_SETTLE": "1"}
        async with (
            DevCluster(
                folder, nodes=[VirtualNode("shared", CAPACITY)], supervisor=preloaded.COMMAND
            ) as cluster,
            Client(cluster.config()) as client,
            Switch(urlsplit(cluster.url).port or 0) as line,
            operator_of(over(line, cluster, folder), folder) as operator,
            brain_of(cluster.kubeconfig, folder, key, port, **settings),
            looking_on(client) as onlooker,
        ):
            yield Stage(client, operator, line, onlooker, cluster.kubeconfig)


def spec(folder: Path, name: str) -> Manifest:
    """Return a job of one to four workers that notes its steps in a file."""
    worker = role(
        ["elasticjob", "run", str(script(folder)), str(folder / name)],
        minReplicas=1,
        maxReplicas=4,
        resources={"requests": {"cpu": "300m", "memory": "1Gi"}},
    )
    del worker["replicas"]
    return {"optimizeMode": "cluster", "replicaSpecs": {"worker": worker}}


def training(folder: Path, name: str) -> Manifest:
    """Return the same as a TrainingJob."""
    trainer = {
        "entrypoint": f"elasticjob run {script(folder)} {folder / name}",
        "min-instance": 1,
        "max-instance": 4,
        "resources": {"requests": {"cpu": "300m", "memory": "1Gi"}},
    }
    return {"image": "elasticjob/trainer:0.1.0", "fault_tolerant": True, "trainer": trainer}


def script(folder: Path) -> Path:
    """Return the training script."""
    found = folder / "train.py"
    found.write_text(TRAINS)
    return found


def workers(job: Job) -> int:
    """Return how many of its workers run and are not on their way out."""
    return sum(name.startswith("worker") for name in job.running())


class Shares:
    """Who had how many workers, over time."""

    def __init__(self, site: Site, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._began = time.monotonic()
        self._counts: dict[str, list[tuple[float, float]]] = {job.name: [(0.0, 0.0)] for job in jobs}
        self._events: list[Event] = []
        site.operator.cache(POD).subscribe(lambda change: self._look())

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def note(self, what: str) -> None:
        """Mark this moment."""
        self._events.append(Event(self.seconds, what, "scale"))

    def draw(self) -> str:
        """Return the picture."""
        self._look()
        panels = [
            Panel(
                f"workers of {name}",
                "world",
                "stairs",
                (*points, (self.seconds, points[-1][1])),
                60,
                whole=True,
            )
            for name, points in self._counts.items()
        ]
        return draw(Figure(self.seconds, tuple(panels), tuple(self._events)), title="Who had what")

    def _look(self) -> None:
        for job in self._jobs:
            points, count = self._counts[job.name], workers(job)
            if points[-1][1] != count:
                points.append((self.seconds, float(count)))


async def test_a_full_cluster_is_shared_and_no_step_is_lost(site: Site, stage: Stage, tmp_path: Path) -> None:
    jobs: Mapping[str, Job] = {name: Job(site, name) for name in JOBS}
    shares = Shares(site, list(jobs.values()))
    three = [jobs[name] for name in ("first", "second", "third")]
    for job in three[:2]:
        await site.apply(spec(tmp_path, job.name), job.name)
    manifest: Manifest = {"metadata": {"name": "third"}, "spec": training(tmp_path, "third")}
    await site.client.create(TRAININGJOB.untyped(), manifest, site.namespace)
    await site.until(lambda: min(map(workers, three)) >= 1 and sum(map(workers, three)) == 5)
    shares.note("the cluster is full")
    began = time.monotonic()
    await site.apply(spec(tmp_path, "fourth"), "fourth")
    shares.note("a fourth job")
    await site.until(lambda: workers(jobs["fourth"]) == 1)
    print(f"the fourth job had its minimum after {time.monotonic() - began:.1f} s")
    await site.until(lambda: min(map(workers, jobs.values())) >= 1 and sum(map(workers, jobs.values())) == 5)
    (tmp_path / "first.go").touch()
    await site.until(jobs["first"].has_ended("Complete"))
    shares.note("the first one ends")
    await site.until(lambda: sum(map(workers, list(jobs.values())[1:])) == 5)
    for job in jobs.values():
        (tmp_path / f"{job.name}.go").touch()
    for job in jobs.values():
        await site.until(job.has_ended("Complete"))
    reasons = [plan.spec.reason for plan in site.plans().values()]
    restarts = {name: job.status.restarts for name, job in jobs.items()}
    await site.until(lambda: site.job("third").status.phase == "Succeeded")
    if KUBECTL and stage.kubeconfig:
        kubectl = Kubectl(Path(KUBECTL), stage.kubeconfig)
        table = await kubectl("get", "trainingjobs", "-n", site.namespace)
        assert table.split()[6:12] == ["AGE", "third", "succeeded", table.split()[9], "1", "4"], table
    await site.client.delete(TRAININGJOB, "third", site.namespace)
    await site.has_only(ELASTICJOB, "first", "second", "fourth")
    (tmp_path / "sharing.svg").write_text(shares.draw())
    for name in JOBS:
        made = [int(line) for line in (tmp_path / name).read_text().splitlines()]
        assert made == list(range(1, STEPS + 1)), name
        assert restarts[name] == 0
    assert any("gives up 1 instance for " in reason and "/fourth" in reason for reason in reasons), reasons
    assert any("least fulfilled first" in reason for reason in reasons), reasons
