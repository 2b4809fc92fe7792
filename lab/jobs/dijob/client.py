"""The real DI-engine in a test: the example's job, and what its coordinator does, step by step."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from elasticjob.api.diengine import names
from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import EVENT, POD, SERVICE, Pod
from lab.build.dijobs import Caller
from lab.paths import EXAMPLES
from lab.waiting import PATIENCE, until

EXAMPLE: Final = EXAMPLES / "dijob"
HELD: Final = Path(__file__).with_name("held.py")
PYTHON: Final = Path(sys.prefix) / "peers" / "di-engine" / "bin" / "python"
ROLES: Final = ("coordinator", "collector", "learner")


def example(change: Callable[[str, Manifest, Manifest], None]) -> Manifest:
    """The example's job; `change` is given each role with its pod spec and container."""
    job: Manifest = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    for role in ROLES:
        pod = job["spec"][role]["template"]["spec"]
        (container,) = pod["containers"]
        pod["containers"] = [container := {**container, "env": list(container["env"])}]
        change(role, pod, container)
    return job


def copy_example(folder: Path) -> str:
    """Copy the example, and the file that holds it, whose name is returned."""
    for each in (EXAMPLE / "cartpole.py", HELD):
        shutil.copy(each, folder)
    return HELD.name


@dataclass(frozen=True)
class Story:
    """A job of the example in a namespace; it is held by a file in its working directory."""

    client: Client
    namespace: str
    work: Path

    async def tell(self, job: Manifest, caller: Caller, token: Callable[[], Awaitable[str]]) -> None:
        """Tell all of it: the job trains, loses a collector, is scaled through di-server, and finishes.

        `token` returns what its coordinator shows there; "" where di-server asks for none.
        """
        await self.begins(job)
        await self.loses_a_collector()
        shown = await token()
        if shown:
            assert (await caller.add(1)).status == 401
        (added,) = (await caller.add(1, Authorization=f"Bearer {shown}")).collectors
        await self.logs(f"Succeed to connect to collector({added})")
        await self.ends()

    async def begins(self, job: Manifest) -> None:
        """Create the job, and wait until its collectors send data."""
        await self.client.create(DIJOB.untyped(), job, self.namespace)

        async def asks() -> bool:
            return len(await self.pods("collector")) == 2 and len(await self.pods("learner")) == 1

        await self._until(asks, "the coordinator has asked for its replicas")
        await self.logs("send data")

    async def loses_a_collector(self) -> None:
        """Delete a collector, as when its machine is drained, and wait until it has gone."""
        lost = min(await self.pods("collector"))
        await self.client.delete(POD, lost, self.namespace)

        async def is_gone() -> bool:
            return await self.client.find(POD, lost, self.namespace) is None

        await self._until(is_gone, "the coordinator has taken leave of the lost collector")

    async def ends(self) -> None:
        """Let go, and wait until the agent has converged, the job has succeeded, and what ran is gone."""
        (self.work / "may-end").touch()

        async def has_succeeded() -> bool:
            return (await self.client.get(DIJOB, "cartpole", self.namespace)).status.phase == "Succeeded"

        await self._until(has_succeeded, "the agent has converged")
        await self.logs("Your RL agent is converged")
        await until(self._is_cleaned_up, "what ran is gone")
        told = {event.reason for event in await self.client.list(EVENT, self.namespace)}
        assert {"DIJobCreated", "DIJobSucceeded", "SuccessfulCreate"} <= told

    async def pods(self, role: str) -> dict[str, Pod]:
        """The pods of a role that are not on their way out."""
        found = await self.client.list(POD, self.namespace, labels=f"{names.LABEL_ROLE}={role}")
        return {pod.metadata.name: pod for pod in found if pod.metadata.deletion_timestamp is None}

    async def logs(self, sentence: str) -> None:
        """Wait until the coordinator has logged a sentence."""

        async def is_logged() -> bool:
            return sentence in await self._log()

        await self._until(is_logged, f"the coordinator logs {sentence}")

    async def _log(self) -> str:
        chunks: list[bytes] = [chunk async for chunk in self._chunks()]
        return b"".join(chunks).decode(errors="replace")

    def _chunks(self) -> Any:
        return self.client.logs("cartpole-coordinator", self.namespace)

    async def _until(self, ask: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait for an answer of the job; what its coordinator logged explains why there is none."""

        async def answers() -> bool:
            found = await self.client.get(DIJOB, "cartpole", self.namespace)
            assert found.status.phase != "Failed", await self._log()
            return await ask()

        try:
            await until(answers, what, 4 * PATIENCE)
        except AssertionError as error:
            error.add_note((await self._log())[-10_000:])
            raise

    async def _is_cleaned_up(self) -> bool:
        """Only ended pods stay, for their logs."""
        left = await self.client.list(POD, self.namespace, labels=names.OURS)
        services = await self.client.list(SERVICE, self.namespace, labels=names.OURS)
        return not services and {pod.status.phase for pod in left} <= {"Succeeded", "Failed"}
