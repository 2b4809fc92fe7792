"""A master and what it leads as processes of this machine, without Kubernetes; what ends is started again."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

import psutil

from elasticjob.cli.laptop.ports import free_port
from elasticjob.trainer.checkpoint.storage import Storage
from lab.paths import SCRIPTS, TRAINED
from lab.processes import Process
from lab.programs.training import MASTER, Processes, environment_of_agent
from lab.story import Draws, Job, Length, Scene, Story, Weights
from lab.truths.model import sharded_alone, trained_alone
from lab.truths.records import Line, read
from lab.truths.steps import Steps
from lab.waiting import until

LEAST: Final = 0.2  # seconds between two kills
PATIENT: Final = 100
"""How many troubles in a row may find nothing to trouble, as while all that they want is being started."""
AWAY: Final = 1.0  # seconds at most until what was hit is started again
STOPPED: Final = 8.0  # seconds at most for which a worker is stopped: it is lost after 5
END: Final = 300.0  # seconds for the rest of the training after the last kill
TRAINS: Final = 6  # steps between two kills around saves, at least
BATCH: Final = 16
AIM: Final = 0.02  # seconds at most from the first byte of a save in storage to an aimed kill


@dataclass
class Bare(Processes, Scene):
    """A training, hit at random moments."""

    lines: list[Line] = field(default_factory=list)
    nodes: ClassVar[tuple[str, ...]]
    usual: ClassVar[float] = 0.8
    """Seconds between two kills beyond the least, on average."""

    def __post_init__(self) -> None:
        self.chance, self.evidence = self.story.chance(), (self.folder,)
        self.written.mkdir(parents=True)
        (self.folder / "token").write_text("chaos")

    @property
    def written(self) -> Path:
        """Where workers write lines."""
        return self.folder / "lines"

    @property
    def trained(self) -> bool:
        """Whether the training has begun."""
        return any(self.written.glob("*.jsonl"))

    def command(self, name: str) -> list[str]:
        """Return the command of the master or of a node."""
        if name == MASTER:
            return self.master(len(self.nodes))
        return ["-m", "elasticjob.cli", "run", "--max-restarts", "100000", *self.script()]

    def script(self) -> list[str]:
        """Return the script of the workers, and its arguments."""
        raise NotImplementedError

    def variables(self, name: str) -> Mapping[str, str]:
        """Return where workers write, and the identity of a node."""
        lines = {"COUNTED": str(self.written)}
        if name == MASTER:
            return lines
        place = (name, f"127.0.0.1:{self.port}", self.folder, self.folder / f"{name}.end")
        return environment_of_agent(*place, lines)

    async def draws(self, troubles: Weights) -> Draws:
        """Yield as many troubles as are wanted, by their weights."""
        for name in (MASTER, *self.nodes):
            self.start(name)
        await until(lambda: self.trained, "the training begins", END)
        self.began = time.monotonic()
        in_vain = 0
        while self.goes_on(self.befell):
            await self.pause()
            before = self.befell
            (trouble,) = self.chance.choices([*troubles], weights=[*troubles.values()])
            yield trouble
            in_vain = 0 if self.befell > before else in_vain + 1
            if in_vain > PATIENT:
                raise RuntimeError(f"{PATIENT} troubles had nothing to trouble, {trouble.name} the last")
        self.figures["seconds of kills"] = f"{time.monotonic() - self.began:.0f}"

    async def pause(self) -> None:
        """Wait for the next kill."""
        await asyncio.sleep(LEAST + self.chance.expovariate(1 / self.usual))

    async def kill(self, role: str) -> str:
        """Kill a process of the training; "" if there is none of this role now."""
        nodes = [name for name in self.running if name != MASTER]
        name = MASTER if role == MASTER else self.chance.choice(nodes) if nodes else ""
        process = self.running.get(name)
        if process is None or process.code is not None:
            return ""
        match role:
            case "worker":
                workers = workers_of(process.pid)
                if not workers:
                    return ""
                self.chance.choice(workers).kill()
            case "node":
                agent = psutil.Process(process.pid)
                for each in (*agent.children(recursive=True), agent):
                    with suppress(psutil.NoSuchProcess):
                        each.kill()
            case "leave":
                process.send(signal.SIGTERM)
            case _:
                process.kill()
        if role != "worker":
            self.come_back(name, self.chance.uniform(0, AWAY))
        return f"{self.befell + 1}: hit {role} of {name}"

    async def release(self) -> None:
        """Let the training come to its end."""

    @property
    def ending(self) -> Sequence[str]:
        """The processes that end with the training."""
        return [*self.running]

    async def finish(self) -> None:
        """Bring the training to its end, and read what was written. RuntimeError if a process failed."""
        async with asyncio.timeout(END):
            await asyncio.gather(*self.coming_back)
            await self.release()
            codes = {name: await self.running[name].wait() for name in self.ending}
        if any(codes.values()):
            raise RuntimeError(f"exit codes {codes}: see {self.folder}/*.log")
        self.lines = self.read()
        rounds = max((line["round"] for line in self.lines if "done" in line), default=0)
        self.figures |= {"kills": self.befell, "rounds": rounds}

    def read(self) -> list[Line]:
        """Return all lines that workers wrote, the oldest first where they have a time."""
        return sorted(read(self.written), key=lambda line: float(line["at"]))

    async def stop(self) -> None:
        """End everything."""
        for task in self.coming_back:
            task.cancel()
        self.end()


def workers_of(pid: int) -> list[psutil.Process]:
    """Return the training processes below an agent: they have the script's file of lines open."""
    workers = []
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            if any(file.path.endswith(".jsonl") for file in process.open_files()):
                workers.append(process)
    return workers


@dataclass
class Lineage(Bare):
    """Four nodes that write which records each attempt of a step takes."""

    nodes = tuple(f"chaos-worker-{index}" for index in range(4))
    size: ClassVar[int] = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        self.epochs = max(40, self.story.length.troubles * 5 // 6)  # a node that comes back still joins
        self.steps = self.epochs * 63
        self.alone = lambda end: trained_alone(self.size, BATCH, self.epochs)[0]
        (self.written / "slowly").touch()

    def script(self) -> list[str]:
        """Return the script, for some epochs."""
        sizes = ("--records", self.size, "--batch", BATCH, "--save-every", 200)
        return [str(TRAINED / "counted.py"), str(self.epochs), str(self.folder / "saved"), *map(str, sizes)]

    async def release(self) -> None:
        """Let steps be fast."""
        (self.written / "slowly").unlink()


@dataclass(frozen=True)
class Blow:
    """A kill: when, of whom, and the newest steps in storage and in the memory of all nodes before it."""

    at: float
    victim: str
    committed: int
    in_memory: int


@dataclass
class Sharded(Bare):
    """Two nodes that train a divided model, copied to memory every 2 steps, and saved every 4.

    Each second kill is aimed at a save that begins to appear in storage: its parts are written, told and
    committed around it.
    """

    nodes = tuple(f"chaos-worker-{index}" for index in range(2))
    hits: list[Blow] = field(default_factory=list)
    last: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.saved.mkdir()
        self.alone = lambda end: sharded_alone(end["steps"])

    @property
    def saved(self) -> Path:
        """Where checkpoints are."""
        return self.folder / "saved"

    def script(self) -> list[str]:
        """Return the script, which trains until it is stopped."""
        return [str(TRAINED / "saved.py"), str(self.saved)]

    async def pause(self) -> None:
        """Wait until the nodes have trained for some steps, and each second time for a save."""
        await until(lambda: self.steps_since(self.last) >= TRAINS, f"{TRAINS} steps", END)
        await asyncio.sleep(self.chance.uniform(0, 0.5))
        if len(self.hits) % 2:
            known = set(self.saved.iterdir())
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    while set(self.saved.iterdir()) <= known:  # noqa: ASYNC110  # of other processes
                        await asyncio.sleep(0.001)
            await asyncio.sleep(self.chance.uniform(0, AIM))

    async def kill(self, role: str) -> str:
        """Kill, and note what was saved just before."""
        newest = max(Storage(str(self.saved)).steps(), default=0)
        blow = Blow(time.monotonic(), role, newest, in_memory(self.read(), self.last))
        if sentence := await super().kill(role):
            self.hits.append(blow)
            self.last = time.monotonic()
        return sentence

    def steps_since(self, since: float) -> int:
        """Return how many steps the workers have made since a moment, each counted for each of them."""
        return sum("step" in line and line["at"] > since for line in self.read())

    def is_whole(self) -> bool:
        """Whether all nodes train together since the last kill."""
        many = len(self.nodes)
        worlds = [line["world"] for line in self.read() if "begins" in line and line["at"] > self.last]
        return worlds[-many:] == [many] * many

    async def release(self) -> None:
        """Stop the training once all nodes train together."""
        await until(self.is_whole, "all nodes train together", END)
        (self.written / "stop").touch()


def in_memory(lines: Sequence[Line], since: float) -> int:
    """Return the newest step that all ranks of the present world have copied after the last kill, or 0."""
    begun = [line for line in lines if "begins" in line and line["at"] > since]
    if not begun:
        return 0
    newest: dict[int, int] = defaultdict(int)
    for line in lines:
        if "saved" in line and line["at"] > since:
            newest[line["rank"]] = max(newest[line["rank"]], line["saved"])
    return min((newest[rank] for rank in range(begun[-1]["world"])), default=0)


@dataclass
class Stored(Bare):
    """Servers and workers of a store: each record has a row, which a gradient of -1 raises by one."""

    nodes = tuple(f"chaos-{role}-{index}" for role in ("ps", "worker") for index in range(3))
    usual = 1.3
    counts: Mapping[int, int] = field(default_factory=dict)

    def command(self, name: str) -> list[str]:
        """Return the command of the master, a server or a worker."""
        if "ps" in name:
            return ["-m", "elasticjob.trainer.store.serve", str(self.folder / "kept")]
        return super().command(name) if name == MASTER else self.script()

    def script(self) -> list[str]:
        """Return the script of the workers, for 500 records a kill."""
        records = str(500 * self.story.length.troubles)
        return [str(SCRIPTS / "e2e" / "seen.py"), records, str(self.folder)]

    def variables(self, name: str) -> Mapping[str, str]:
        """Return no more than all processes have."""
        return {}

    @property
    def trained(self) -> bool:
        """Whether there was a batch."""
        return bool(Steps(self.folder).lines())

    async def kill(self, role: str) -> str:
        """Kill processes of a role, or stop a worker until the others have gone on without it."""
        kind = {"servers": "ps", "server": "ps", "stopped": "worker"}.get(role, role)
        there = [name for name, each in self.running.items() if kind in name and each.code is None]
        hit = self.chance.sample(there, min(2 if role == "servers" else 1, len(there)))
        for name in hit:
            if role == "stopped":
                process = self.running.pop(name)
                process.freeze()
                self.later(self._go_on(name, process, self.chance.uniform(0, STOPPED)))
            else:
                self.running[name].kill()
                self.come_back(name, self.chance.uniform(0, AWAY))
        return f"{self.befell + 1}: hit {', '.join(hit)}" if hit else ""

    async def _go_on(self, name: str, process: Process, after: float) -> None:
        try:
            await asyncio.sleep(after)
        finally:
            process.thaw()
            self.running[name] = process

    async def release(self) -> None:
        """Let the last shards go."""
        (self.folder / "gate").touch()

    @property
    def ending(self) -> Sequence[str]:
        """The workers: servers serve on."""
        return [name for name in self.nodes if "worker" in name]

    async def finish(self) -> None:
        """Read how often each record was counted."""
        await super().finish()
        self.counts = Counter(json.loads((self.folder / "counts").read_text()))
        self.figures |= {"batches": len(Steps(self.folder).lines()), "counted once": self.counts[1]}


@asynccontextmanager
async def opened(of: type[Bare], folder: Path, story: Story) -> AsyncIterator[Bare]:
    """Begin a training; afterwards none of its processes is left."""
    scene = of(folder / str(story.number), free_port(), story=story)
    try:
        yield scene
    finally:
        await scene.stop()


def bare(name: str, of: type[Bare], truths: tuple[str, ...], times: int, **troubles: int) -> Job:
    """Return a job without Kubernetes; its first line says what it is."""
    about, opens = (of.__doc__ or "").splitlines()[0].removesuffix("."), partial(opened, of)
    return Job(name, about, ("processes",), opens, of, troubles, truths, Length(troubles=times))


JOBS: Final = (
    bare("lineage", Lineage, ("records", "model"), 300, worker=45, agent=15, node=15, leave=15, master=10),
    bare("sharded", Sharded, ("newest-save", "one-loss", "model"), 60, worker=50, agent=20, node=30),
    bare("store", Stored, ("counts",), 200, worker=40, server=30, servers=5, stopped=10, master=15),
)
