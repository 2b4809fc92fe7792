"""Real jobs for tests: a master in this process, agents and workers as processes; tests wait for their
output.

Workers of `counted.py` print one JSON line per counted step; `Scenario.until` waits for lines, never
for time. A test that acts on a job in mid-life starts its script as `HELD`, and then lets it end: until then
it cannot, however slow the test is.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import psutil

from elasticjob.api.rpc import environment as names
from elasticjob.api.sizes.role import Range
from elasticjob.master.durable.store import Nowhere, restore, snapshot
from elasticjob.master.serving.server import Master
from elasticjob.master.state.job import Job, Limits, Spec
from lab.jobs.training.agents import TOKEN, Agent, Agents, lives, outlived
from lab.jobs.training.warm import Warm
from lab.paths import TRAINED
from lab.programs.training import environment, environment_of_agent
from lab.truths.records import read
from lab.waiting import PATIENCE

AGES: Final = timedelta(seconds=10 * PATIENCE)
HELD: Final = "held"
"""Instead of the number of epochs: a training that goes on until `Scenario.let_end`."""


@dataclass(frozen=True)
class Line:
    """A line that an agent or its workers printed; `said` is a worker's JSON object, empty for others."""

    node: str
    text: str
    record: dict[str, Any]


@dataclass
class Scenario(Agents):
    """A job with its master and agents, and everything they printed so far."""

    lines: list[Line] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    seen: dict[int, psutil.Process | None] = field(default_factory=dict)

    async def agent(
        self, index: int, script: str | Path, *arguments: object, flags: Iterable[str] = ()
    ) -> Agent:
        """Start the agent of node `index`; its pod's name tells its lives apart."""
        return await self.begin(f"job-worker-{index}", (*flags, TRAINED / script, *arguments), self.variables)

    async def peer(self, script: str | Path, *arguments: object, flags: Iterable[str]) -> Agent:
        """Start a node that knows only its command line: no pod, no master, no rank."""
        node = f"peer-{len(self.agents)}"
        own = {names.ROLE: "worker", names.TERMINATION_LOG: str(self.folder / node), "PYTHONUNBUFFERED": "1"}
        command = map(str, (*flags, TRAINED / script, *arguments))
        process = await self.warm.agent([*command], environment({**own, **self.variables}))
        return self.follow(Agent(node, process, self.folder / node))

    async def torchrun(self, index: int, script: Path) -> Agent:
        """Start plain torchrun as node `index`, with our rendezvous."""
        rendezvous = ("--rdzv-backend=elasticjob", f"--rdzv-endpoint={self.master.address}", "--rdzv-id=job")
        command = ("torch.distributed.run", "--nnodes=1:2", *rendezvous, script)
        node = f"job-worker-{index}"
        place = (node, self.master.address, self.folder, self.folder / node)
        own = environment_of_agent(*place, self.variables)
        process = await self.warm.run([*map(str, command)], own, module=True)
        return self.follow(Agent(node, process, self.folder / node))

    @property
    def variables(self) -> dict[str, str]:
        """Variables of a pod that are a test's."""
        return {"COUNTED": str(self.counted), names.CHECK_COMMAND: os.environ.get("CHECK_PAYLOAD", "")}

    @property
    def counted(self) -> Path:
        """Where workers of `counted.py` record their steps."""
        folder = self.folder / "counted"
        folder.mkdir(exist_ok=True)
        return folder

    def limit(self, **limits: Any) -> None:
        """Change the master's limits, from now on."""
        changed = self.master.job.spec.limits.but(**limits)
        self.master.observe(lambda job, _: job.but(spec=job.spec.but(limits=changed)))

    @asynccontextmanager
    async def silent(self, agent: Agent, *, comes_back: bool = True) -> AsyncIterator[None]:
        """Stop an agent and all below it, which the master notices soon; let them go on in the end."""
        stopped = agent.tree()
        for process in stopped:
            process.suspend()
        self.limit(silence=timedelta(seconds=4))
        yield
        self.limit(silence=AGES)
        for process in stopped if comes_back else ():
            process.resume()

    def let_end(self) -> None:
        """Let a held training end with its epoch."""
        (self.counted / "open").touch()

    @property
    def epochs(self) -> int:
        """How many epochs a held training had when it was let end."""
        return int((self.counted / "last").read_text()) + 1

    async def restart_master(self) -> None:
        """End the master as a crash would, and start another one from its saved state."""
        host, _, port = self.master.address.partition(":")
        await self.master.__aexit__(None, None, None)
        saved = restore(snapshot(self.master.job), self.master.job.spec, self.master.now())
        self.master = await Master(saved, TOKEN, Nowhere(), host=host, port=int(port)).__aenter__()

    async def until(self, question: Callable[[], Any]) -> Any:
        """Return the first true result of `question`, which is called again after each printed line."""
        try:
            async with asyncio.timeout(PATIENCE), self.changed:
                while not (answer := question()):
                    await self.changed.wait()
                return answer
        except TimeoutError:
            tail = "\n".join(f"{line.node}: {line.text}" for line in self.lines[-40:])
            raise AssertionError(f"nothing more happened; the last lines were\n{tail}") from None

    async def ends(self, agent: Agent) -> int:
        """Return the exit code of an agent, once all that it and its workers printed has been read."""
        async with asyncio.timeout(PATIENCE):
            await asyncio.shield(self.readers[self.agents.index(agent)])
            return await agent.process.wait()

    async def strike(self, place: str = "") -> None:
        """SIGKILL the worker that stands at a place, or at any, once one does: see `lab/scripts/told.py`."""

        def stands() -> int:
            told = self.records("stands")
            return next((each["pid"] for each in told if place in ("", each["stands"])), 0)

        os.kill(await self.until(stands), signal.SIGKILL)

    def said(self, words: str) -> list[str]:
        """Return the lines with these words."""
        return [line.text for line in self.lines if words in line.text]

    def pid(self, rank: int) -> int:
        """Return the process of a rank's last counted step."""
        return int(next(step["pid"] for step in reversed(self.steps()) if step["rank"] == rank))

    def records(self, name: str, node: str = "") -> list[dict[str, Any]]:
        """Return what workers, all or those of a node, printed under a name, the oldest first."""
        return [line.record for line in self.lines if name in line.record and node in ("", line.node)]

    def steps(self, node: str = "") -> list[dict[str, Any]]:
        """Return the counted steps in the order in which they were printed."""
        return self.records("step", node)

    def recorded(self) -> list[dict[str, Any]]:
        """Return all that workers wrote, by process; no killed agent takes any along."""
        return read(self.counted)

    def last(self, node: str = "") -> dict[str, Any]:
        """Return the last counted step."""
        steps = self.steps(node)
        return steps[-1] if steps else {"step": 0, "world": 0, "round": 0}

    def trains_with(self, world: int, after: int = 0) -> Callable[[], bool]:
        """Ask whether each worker of a world of that size has counted a step after `after`."""

        def question() -> bool:
            ranks = {step["rank"] for step in self.steps() if step["world"] == world and step["step"] > after}
            return len(ranks) == world

        return question

    def trains_in_a_round_after(self, round: int) -> Callable[[], bool]:
        """Ask whether the last counted step belongs to a later round."""
        return lambda: self.last()["round"] > round

    def results(self) -> list[dict[str, Any]]:
        """Return the results that workers printed at the end."""
        return self.records("parameters")

    async def hear(self, agent: Agent, text: str) -> None:
        """Note a line, and the process that printed it."""
        start = text.find("{")
        record = json.loads(text[start:]) if start >= 0 and text.endswith("}") and '"pid"' in text else {}
        if record and record["pid"] not in self.seen:
            self.seen[record["pid"]] = found(record["pid"])
        async with self.changed:
            self.lines.append(Line(agent.node, text, record))
            self.changed.notify_all()

    async def read(self, agent: Agent) -> None:
        """Its end is a change, too."""
        await super().read(agent)
        async with self.changed:
            self.changed.notify_all()


@asynccontextmanager
async def scenario(folder: Path, warm: Warm, *, nodes: tuple[int, int]) -> AsyncIterator[Scenario]:
    """Run a job; afterwards nothing of it is left, and no process outlived its agent.

    A node that is gone is noticed by its line. One that is merely not heard of is waited for: on a busy
    machine that is no silence. A test that makes one silent, or lets a worker hang, sets its limit then.
    """
    spec = Spec(
        job="job",
        bounds=Range(least=nodes[0], most=nodes[1]),
        limits=Limits(silence=AGES, hang=AGES, quiet=timedelta(0)),
        replicas=nodes[0],
        restart_count=3,
    )
    running = Scenario(await Master(Job(spec=spec), TOKEN, Nowhere()).__aenter__(), warm, folder)
    try:
        yield running
    finally:
        try:
            await end(running)
        finally:
            await running.master.__aexit__(None, None, None)


def found(pid: int) -> psutil.Process | None:
    """Return a process; None if it has ended already."""
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


async def end(running: Scenario) -> None:
    """Kill the remaining agents; AssertionError if a process outlived its agent."""
    family = [process for agent in running.agents if agent.lives for process in agent.tree()]
    for agent in running.agents:
        agent.kill()
    await asyncio.gather(*running.readers)
    workers = [process for process in running.seen.values() if process]
    orphans = await outlived(family, PATIENCE / 6) + [each for each in workers if lives(each)]
    assert not orphans, f"processes outlived their agent: {orphans}"


def counted(steps: Iterable[dict[str, Any]]) -> list[int]:
    """Return the numbers of the steps that rank 0 counted, in order."""
    return [step["step"] for step in steps if step["rank"] == 0]
