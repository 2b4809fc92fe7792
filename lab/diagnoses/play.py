"""Plays a story: makes a job or a cluster broken, asks doctor, follows its commands, mends it, asks again.

A story of stories.yaml has `job`, `worker` (its role), `pod` and `main` to merge into a small job; `before`,
`acts` and `mend`: lines for bash in the story's namespace, methods of Story (`freeze master-0`), or
manifests. `cause` and `first` are what doctor's first line has; it is asked `of` the job if there is one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from elasticjob.api.crds import manifests
from elasticjob.api.troubles import cluster as of_cluster
from elasticjob.api.troubles import job as of_job
from elasticjob.api.troubles.facts import ClusterFacts, JobFacts
from elasticjob.api.troubles.trouble import Grade, Trouble
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.doctor import observe
from elasticjob.cli.laptop.laptop import OperatorProcess
from elasticjob.cli.story.processes import main_of, of_pod
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import KubeError, NotFound
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.views import NAMESPACE
from elasticjob.page.masters import Masters
from lab import processes
from lab.clusters.namespaces import new_namespace
from lab.diagnoses.recorded import as_data
from lab.paths import ROOT

PATIENCE: Final = 90.0
"""Seconds within which doctor is to name the cause, and to find it gone."""
PAUSE: Final = 0.7
COMMANDS: Final = ("kubectl", "elasticjob")
JOB: Final[Manifest] = {
    "apiVersion": ELASTICJOB.api_version,
    "kind": "ElasticJob",
    "metadata": {"name": "digits"},
    "spec": {
        "distributionStrategy": "Local",
        "replicaSpecs": {
            "worker": {"replicas": 2, "minReplicas": 1, "restartCount": 0, "template": {"spec": {}}}
        },
    },
}
MAIN: Final[Manifest] = {"name": "main", "image": "busybox:1", "command": ["sleep", "3600"]}


@dataclass(frozen=True)
class Bench:
    """A cluster with its operator, and where commands find it."""

    client: Client
    kubeconfig: Path
    operator: OperatorProcess
    folder: Path


@dataclass(frozen=True)
class Row:
    """What came of a story: doctor's first line and what it read, and what was wrong, in sentences."""

    name: str
    line: str
    seconds: float
    facts: Manifest = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


@dataclass
class Story:
    """One story in its namespace."""

    bench: Bench
    told: Manifest
    namespace: str
    wrong: list[str] = field(default_factory=list)

    async def play(self) -> Row:
        """Play, and return what came of it."""
        began = time.monotonic()
        await new_namespace(self.bench.client, self.namespace)
        try:
            await self.do([*self.told.get("before", ()), *((self.job(),) if "job" in self.told else ())])
            await self.do(self.told.get("acts", ()))
            troubles, facts = await self.until_named()
            first, line = troubles[0], troubles[0].line(self.now())
            if self.told.get("commands", True):
                await self.check(first)
            await self.do(self.told.get("mend", ()))
            await self.until_clean(first)
        finally:
            await self.do(self.told.get("finally", ()))
            await self.bench.client.delete(NAMESPACE, self.namespace)
        return Row(
            self.told["story"], line, time.monotonic() - began, facts, first.commands, tuple(self.wrong)
        )

    def job(self, **changes: Any) -> Manifest:
        """Return the story's job."""
        made, told = deepcopy(JOB), {**self.told, **changes}
        merge(made, told.get("job") or {})
        worker = made["spec"]["replicaSpecs"]["worker"]
        merge(worker, told.get("worker") or {})
        pod = worker["template"].setdefault("spec", {})
        merge(pod, told.get("pod") or {})
        pod["containers"] = [{**MAIN, **(told.get("main") or {})}]
        return made

    def filled(self, told: Any) -> Any:
        """Return a part of the story with the folders that it names."""
        if isinstance(told, dict):
            return {key: self.filled(each) for key, each in told.items()}
        if isinstance(told, list):
            return [self.filled(each) for each in told]
        words = {"folder": self.bench.folder, "namespace": self.namespace, "root": ROOT}
        for name, value in words.items():
            told = told.replace(f"{{{name}}}", str(value)) if isinstance(told, str) else told
        return told

    async def do(self, acts: Any) -> None:
        """Do acts one after another: a manifest is applied, a line is run."""
        for act in self.filled(list(acts)):
            if isinstance(act, dict) and "again" in act:  # what `kubectl replace --force` does
                await self.bash("kubectl delete elasticjob digits --wait --ignore-not-found")
                await self.apply(self.job(**act["again"]))
            elif isinstance(act, dict):
                await self.apply(act)
            elif (word := act.split()[0]) in ACTS:
                await ACTS[word](self, *act.split()[1:])
            else:
                await self.bash(act)

    async def apply(self, manifest: Manifest) -> None:
        """Apply a manifest in the story's namespace."""
        await self.bash("kubectl apply --server-side -f -", yaml.safe_dump(self.filled(manifest)))

    async def bash(self, line: str, given: str = "") -> str:
        """Run a line in the story's namespace. RuntimeError where it fails."""
        code, printed = await self.run(line, given)
        if code:
            raise RuntimeError(f"{self.told['story']}: $ {line}\n{printed}")
        return printed

    async def run(self, line: str, given: str = "") -> tuple[int | None, str]:
        kubeconfig = self.bench.folder / f"{self.namespace}.kubeconfig"
        if not kubeconfig.exists():
            known = yaml.safe_load(self.bench.kubeconfig.read_text())
            for context in known["contexts"]:
                context["context"]["namespace"] = self.namespace
            kubeconfig.write_text(yaml.safe_dump(known))
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environ = {**os.environ, "KUBECONFIG": str(kubeconfig), "EDITOR": "true", "PATH": path}
        async with asyncio.timeout(PATIENCE):
            return await processes.run("bash", "-c", line, given=given, environ=environ)

    async def ask(self) -> tuple[tuple[Trouble, ...], JobFacts | ClusterFacts]:
        """Ask doctor, at the time of the story."""
        client = self.bench.client
        if self.told.get("of", "job" if "job" in self.told else "cluster") == "cluster":
            cluster = await observe.cluster(client, self.namespace, manifests())
            return of_cluster.examine(cluster, self.now()), cluster
        async with aiohttp.ClientSession() as session:
            seen = await observe.one_job(client, Key(self.namespace, "digits"), Masters(client, session))
        return of_job.examine(seen, self.now()), seen

    def now(self) -> datetime:
        """Return the time at which doctor is asked: some troubles tell only after minutes."""
        return datetime.now(UTC) + timedelta(seconds=self.told.get("later", 0))

    async def until_named(self) -> tuple[tuple[Trouble, ...], Manifest]:
        """Return what doctor says once its first line names the cause."""
        found: tuple[Trouble, ...] = ()
        try:
            async with asyncio.timeout(self.told.get("within", PATIENCE)):
                while True:
                    try:
                        found, seen = await self.ask()
                    except KubeError:  # its job is about to be there
                        await asyncio.sleep(PAUSE)
                        continue
                    if self.is_named(found[0]):
                        return found, as_data(seen, self.now())
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            lines = "\n    ".join(each.line(self.now()) for each in found)
            raise RuntimeError(f"{self.told['story']}: doctor says\n    {lines}") from None

    def is_named(self, first: Trouble) -> bool:
        """Whether this is the first line that the story asks for."""
        told = self.told["cause"], self.told.get("grade", "wrong")
        return (first.cause, first.grade) == told and self.told.get("first", "") in first.sentence

    async def check(self, trouble: Trouble) -> None:
        """Run the commands that doctor names, which exist."""
        for command in trouble.commands:
            if command.split()[0] not in COMMANDS:
                continue
            code, printed = await self.run(command)
            if code and not command.startswith("elasticjob doctor"):
                self.wrong.append(f"$ {command}: exit code {code}: {printed[-300:]}")

    async def until_clean(self, before: Trouble) -> None:
        """Wait until doctor finds nothing wrong, and not the cause as it was; or the job is gone."""
        try:
            async with asyncio.timeout(self.told.get("within", PATIENCE)):
                while True:
                    try:
                        found, _ = await self.ask()
                    except NotFound:
                        return
                    left = [each for each in found if each.grade is Grade.WRONG]
                    same = [
                        each for each in found if each.cause == before.cause and each.grade is before.grade
                    ]
                    if not left and not same:
                        return
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            self.wrong += [f"afterwards: {each.line(self.now())}" for each in (*left, *same)]

    # acts

    async def freeze(self, pod: str, number: int = signal.SIGSTOP) -> None:
        """Stop the processes of a pod, as on a machine that hangs."""
        job = await self.bench.client.get(ELASTICJOB, "digits", self.namespace)
        main = main_of(of_pod(f"digits-{pod}", job.metadata.uid))
        assert main is not None, f"digits-{pod} does not run"
        os.kill(main.pid, number)

    async def thaw(self, pod: str) -> None:
        """Let it go on."""
        await self.freeze(pod, signal.SIGCONT)

    async def operator(self, verb: str) -> None:
        """Kill the operator, or start it again; freeze it, or let it go on."""
        if verb in ("freeze", "thaw"):
            os.kill(self.bench.operator.pid, signal.SIGSTOP if verb == "freeze" else signal.SIGCONT)
        elif verb == "kill":
            await self.bench.operator.kill()
        else:
            await self.bench.operator.start()
            await self.bench.operator.ready()

    async def submit(self) -> None:
        """Create a job, past webhooks that may be dead."""
        await self.bash("kubectl delete validatingwebhookconfigurations,mutatingwebhookconfigurations --all")
        await self.apply(self.job())

    async def until(self, *words: str) -> None:
        """Wait until a line succeeds."""
        async with asyncio.timeout(PATIENCE):
            while (await self.run(" ".join(words)))[0]:  # noqa: ASYNC110  # the server is asked
                await asyncio.sleep(PAUSE)


ACTS: Final[dict[str, Callable[..., Awaitable[None]]]] = {
    "freeze": Story.freeze,
    "thaw": Story.thaw,
    "operator": Story.operator,
    "submit": Story.submit,
    "until": Story.until,
}


def merge(into: Manifest, more: Manifest) -> None:
    """Merge mappings in place, as a JSON merge patch does."""
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = deepcopy(value)
