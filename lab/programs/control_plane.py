"""Our programs as processes beside a devcluster, and their logs, series and memory."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import psutil

from elasticjob.cli.laptop.ports import free_port
from lab.waiting import until

HOST: Final = "127.0.0.1"
ERRORS: Final = ("error", "critical")


@dataclass(frozen=True)
class Line:
    """A line of a log that tells of an error; `about` is the object that it names, "" for none."""

    program: str
    about: str
    kind: str
    text: str


@dataclass
class Program:
    """One of our programs. `url` serves /metrics, `ready` is its path that answers 200 once it works."""

    name: str
    command: tuple[str, ...]
    url: str
    ready: str
    log: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None
    starts: int = 0
    works: bool = False
    """Whether it has answered `ready` since it was started."""
    _read: int = 0

    async def start(self) -> None:
        """Start it; returns once it works, or has ended."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "elasticjob.cli", self.name, "--log-format", "json", *self.command),
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self.environ},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.starts, self.works = self.starts + 1, False
        await until(self._answers, f"{self.name} works: {self.log}")
        self.works = self.ended is None

    async def stop(self) -> None:
        if self.process and self.process.returncode is None:
            self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), 20)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()

    @property
    def ended(self) -> int | None:
        """Its exit code, None while it runs."""
        return self.process.returncode if self.process else None

    @property
    def memory(self) -> int:
        """Resident bytes."""
        assert self.process is not None
        return int(psutil.Process(self.process.pid).memory_info().rss)

    async def series(self) -> int:
        """Return how many series its /metrics has."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as answer:
            return sum(not line.startswith("#") for line in (await answer.text()).splitlines())

    def errors(self) -> list[Line]:
        """Return the errors that were logged since the last call."""
        with self.log.open("rb") as log:
            log.seek(self._read)
            new = log.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        return errors_of(self.name, whole.decode(errors="replace"))

    def tail(self, lines: int = 15) -> list[str]:
        """Return its last lines."""
        return self.log.read_text(errors="replace").splitlines()[-lines:]

    async def _answers(self) -> bool:
        if self.ended is not None:
            return True
        try:
            async with aiohttp.ClientSession() as session, session.get(self.url + self.ready) as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False


def errors_of(program: str, text: str) -> list[Line]:
    """Return the errors in a log: lines of level error, and lines that are no log lines (a traceback)."""
    found, strange = list[Line](), list[str]()
    for line in text.splitlines():
        try:
            told: dict[str, Any] = json.loads(line)
            level = told["level"]
        except (ValueError, TypeError, KeyError):
            strange.append(line)
            continue
        if level in ERRORS:
            about = next((str(told[key]) for key in ("object", "key", "path") if told.get(key)), "")
            last = str(told.get("exception", "")).strip().rpartition("\n")[2] or str(told.get("error", ""))
            place = [each.strip() for each in str(told.get("exception", "")).splitlines() if "File" in each]
            kind = f"{told.get('event', '')!s:.80}: {last:.160} {' '.join(place[-1:])}"
            found.append(Line(program, about, kind, line))
    if strange:
        found.append(Line(program, "", strange[-1][:160], "\n".join(strange[-40:])))
    return found


@dataclass(frozen=True)
class Installed:
    """The whole of our control plane; `key` signs the tokens with which masters ask Brain."""

    operator: Program
    brain: Program
    di_server: Program
    key: bytes
    brain_url: str
    """Where masters and readers ask Brain."""

    @property
    def all(self) -> tuple[Program, ...]:
        return self.operator, self.brain, self.di_server


@asynccontextmanager
async def installed(kubeconfig: Path, folder: Path) -> AsyncIterator[Installed]:
    """Run operator, Brain and di-server until the end of the block."""
    key = folder / "key"
    key.write_bytes(b"the key of the tokens of masters")
    probes, brain, brain_probes, di = (free_port() for _ in range(4))
    where = ("--kubeconfig", str(kubeconfig))
    operator = Program(
        "operator",
        (*where, "--install", "--probes", f"{HOST}:{probes}", "--webhook-port", "0"),
        f"http://{HOST}:{probes}",
        "/readyz",
        folder / "operator.log",
        {
            "ELASTICJOB_OPERATOR_BRAIN": f"{HOST}:{brain}",
            "ELASTICJOB_OPERATOR_BRAIN_KEY_FILE": str(key),
            "ELASTICJOB_OPERATOR_DI_SERVER": f"http://{HOST}:{di}",
        },
    )
    database = f"sqlite:///{folder / 'brain.db'}"
    serving = ("--port", str(brain), "--probes", f"{HOST}:{brain_probes}", "--key-file", str(key))
    paced = {
        "ELASTICJOB_BRAIN_EVERY": "1",
        "ELASTICJOB_BRAIN_PACE": "0.05",
        "ELASTICJOB_BRAIN_SHARE": "fulfilment",
    }
    async with AsyncExitStack() as stack:
        programs = (
            operator,
            Program(
                "brain",
                (*where, "--database", database, *serving),
                f"http://{HOST}:{brain_probes}",
                "/readyz",
                folder / "brain.log",
                paced,
            ),
            Program(
                "di-server",
                (*where, "--port", str(di), "--url", f"http://{HOST}:{di}"),
                f"http://{HOST}:{di}",
                "/readyz",
                folder / "di-server.log",
            ),
        )
        for each in programs:  # the operator first: the others watch kinds that it installs
            stack.push_async_callback(each.stop)
            await each.start()
        yield Installed(*programs, key.read_bytes().strip(), f"http://{HOST}:{brain}")
