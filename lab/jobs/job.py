"""One job of an end-to-end test, and what stands around it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from elasticjob.api.v1alpha1.elasticjob import ElasticJobStatus
from elasticjob.cli.laptop.laptop import OperatorProcess, operator_of
from elasticjob.cli.story.processes import Process, main_of, of_job, of_pod
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD, Pod
from elasticjob.kube.operator.operator import Operator
from lab.clusters.cluster import Cluster
from lab.jobs.site import KINDS, Site
from lab.paths import EXAMPLES, SCRIPTS
from lab.running import running
from lab.troubles.switch import Switch

STEPS: Final = SCRIPTS / "e2e" / "steps.py"
"""A training that a gate holds: a test that acts on a job in mid-life opens the gate afterwards."""
TRAINS: Final = (
    sys.executable,
    "-P",
    "-c",
    "from elasticjob.cli.laptop import preloaded as it; it.MODULES = ('torch', it.LIBRARY); it.main()",
)
"""A supervisor for containers that run STEPS: it imports no more than they need."""
DIGITS: Final = EXAMPLES / "digits" / "job.yaml"


@dataclass(frozen=True)
class Stage:
    """The cluster, its operator, the line between the two, and an onlooker that only watches."""

    client: Client
    operator: OperatorProcess
    line: Switch
    onlooker: Operator
    kubeconfig: Path


class Job:
    """One ElasticJob of a test: what is said of it, its pods, and all that it ever had."""

    def __init__(self, site: Site, name: str = "digits") -> None:
        self._site = site
        self.name = name
        self.born: dict[str, set[str]] = {}
        site.operator.cache(POD).subscribe(self._look_at_pods)

    @property
    def status(self) -> ElasticJobStatus:
        """Its status now."""
        return self._site.job(self.name).status

    def condition(self, type_: str) -> tuple[str, str, str]:
        """Status, reason and message of a condition now."""
        return self._site.condition(type_, self.name)

    def pods(self) -> dict[str, Pod]:
        """Its pods now, by what stands behind the job's name in theirs."""
        return {
            name.removeprefix(f"{self.name}-"): pod
            for name, pod in self._site.pods().items()
            if name.startswith(f"{self.name}-")
        }

    def running(self, role: str = "") -> set[str]:
        """Its pods that run and are not on their way out, all or those of a role."""
        stay = {name.removeprefix(f"{self.name}-") for name in self._site.running()}
        return {name for name in self.pods() if name in stay and name.startswith(role)}

    def processes(self, pod: str = "") -> tuple[Process, ...]:
        """Its processes on this machine, all or those of one pod."""
        uid = self._site.job(self.name).metadata.uid
        return of_pod(f"{self.name}-{pod}", uid) if pod else of_job(uid)

    def kill(self, *pods: str) -> None:
        """SIGKILL the main processes of pods."""
        for pod in pods:
            main = main_of(self.processes(pod))
            assert main is not None, f"{self.name}-{pod} does not run"
            os.kill(main.pid, signal.SIGKILL)

    def has_ended(self, type_: str) -> Callable[[], bool]:
        """Ask whether it is Complete or Failed, whichever is named."""
        return lambda: self.condition(type_)[0] == "True"

    def _look_at_pods(self, change: Change) -> None:
        for name, pod in self.pods().items():
            self.born.setdefault(name, set()).add(pod.metadata.uid)


async def submitted(site: Site, spec: Manifest, name: str = "digits") -> Job:
    """Apply a job, and return it; from now on its pods are noted."""
    job = Job(site, name)
    await site.apply(spec, name)
    return job


@asynccontextmanager
async def staged(cluster: Cluster, folder: Path) -> AsyncIterator[Stage]:
    """Start an operator for a cluster, behind a line that can be cut, and look on."""
    async with (
        Client(cluster.config()) as client,
        Switch(urlsplit(cluster.url).port or 0) as line,
        operator_of(over(line, cluster, folder), folder) as operator,
        looking_on(client) as onlooker,
    ):
        yield Stage(client, operator, line, onlooker, cluster.kubeconfig)


def over(line: Switch, cluster: Cluster, folder: Path) -> Path:
    """Write and return a kubeconfig whose server is at the near end of `line`."""
    url = urlsplit(cluster.url)
    text = cluster.kubeconfig.read_text().replace(f":{url.port}", f":{line.port}")
    path = folder / "operator.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(text)
    return path


@asynccontextmanager
async def looking_on(client: Client) -> AsyncIterator[Operator]:
    """Follow all that the tests look at, and do nothing about it."""
    onlooker = Operator(client, name="onlooker", probes=None, signals=False)
    for kind in KINDS:
        onlooker.cache(kind)
    async with running(onlooker):
        yield onlooker


def role(
    command: list[str],
    replicas: int = 1,
    *,
    image: str = "elasticjob/trainer:0.1.0",
    resources: Manifest | None = None,
    **more: Any,
) -> Manifest:
    """Return a role whose nodes run a command."""
    main: Manifest = {"name": "main", "image": image, "command": command}
    pod = {
        "containers": [main | ({"resources": resources} if resources else {})],
        "terminationGracePeriodSeconds": 5,
    }
    return {"replicas": replicas, "template": {"spec": pod}, **more}


def trainer(*arguments: object, replicas: int = 1, **more: Any) -> Manifest:
    """Return a role whose nodes run STEPS under the agent."""
    return role(["elasticjob", "run", str(STEPS), *map(str, arguments)], replicas, **more)


def with_servers(ps: Manifest, worker: Manifest, **more: Any) -> Manifest:
    """Return the spec of a job of these two roles."""
    roles = {"ps": ps, "worker": worker}
    return {"distributionStrategy": "ParameterServerStrategy", "replicaSpecs": roles, **more}


def held(gate: Path, epochs: int, width: int) -> str:
    """Return the file of examples/digits with a training that cannot end before `gate` is there."""
    text = DIGITS.read_text()
    for old, new in (
        ('--epochs, "400", --width, "32"', f'--epochs, "{epochs}", --width, "{width}"'),
        (LOOP, LOOP + HOLD.format(gate=str(gate))),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


LOOP: Final = """\
    for step in elastic.steps(data, epochs=args.epochs):
        with step:
"""
HOLD: Final = """\
            import pathlib, time
            gate = pathlib.Path({gate!r})
            time.sleep(0 if gate.exists() else 0.2)
            while step.epoch >= args.epochs - 1 and not gate.exists():
                time.sleep(0.01)
"""
