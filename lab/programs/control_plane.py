"""Our programs beside a devcluster, and the errors that they log."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from elasticjob.cli.laptop.ports import free_port
from lab import programs
from lab.processes import Process

ERRORS: Final = ("error", "critical")


@dataclass(frozen=True)
class Line:
    """A line of a log that tells of an error; `about` is the object that it names, "" for none."""

    program: str
    about: str
    kind: str
    text: str


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
            kind = f"{told.get('message', '')!s:.80}: {last:.160} {' '.join(place[-1:])}"
            found.append(Line(program, about, kind, line))
    if strange:
        found.append(Line(program, "", strange[-1][:160], "\n".join(strange[-40:])))
    return found


@dataclass(frozen=True)
class Installed:
    """The whole of our control plane; `key` signs the tokens with which masters ask Brain."""

    operator: Process
    brain: Process
    di_server: Process
    key: bytes
    brain_url: str
    """Where masters and readers ask Brain; the URL of each program has its metrics."""
    _read: dict[str, int] = field(default_factory=dict)

    @property
    def all(self) -> tuple[Process, ...]:
        return self.operator, self.brain, self.di_server

    def errors(self) -> list[Line]:
        """Return the errors that were logged since the last call."""
        found = list[Line]()
        for each in self.all:
            with each.log.open("rb") as log:
                log.seek(self._read.get(each.name, 0))
                new = log.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read[each.name] = self._read.get(each.name, 0) + len(whole)
            found += errors_of(each.name, whole.decode(errors="replace"))
        return found


@asynccontextmanager
async def installed(kubeconfig: Path, folder: Path) -> AsyncIterator[Installed]:
    """Run operator, Brain and di-server until the end of the block."""
    key = folder / "key"
    key.write_bytes(b"the key of the tokens of masters")
    logs, probes = ("--log-format", "json"), f"{programs.HOST}:{free_port()}"
    di_server = programs.di_server(kubeconfig, folder, *logs)
    brain = programs.brain(
        kubeconfig,
        folder,
        key,
        *logs,
        probes=probes,
        ELASTICJOB_BRAIN_EVERY="1",
        ELASTICJOB_BRAIN_PACE="0.05",
        ELASTICJOB_BRAIN_SHARE="fulfilment",
    )
    operator = programs.operator(
        kubeconfig,
        folder,
        *logs,
        ELASTICJOB_OPERATOR_BRAIN=brain.url.removeprefix("http://"),
        ELASTICJOB_OPERATOR_BRAIN_KEY_FILE=str(key),
        ELASTICJOB_OPERATOR_DI_SERVER=di_server.url,
    )
    watched = replace(brain, url=f"http://{probes}", ready="/readyz")
    async with AsyncExitStack() as stack:
        for each in (operator, watched, di_server):  # the operator first: the others watch kinds of its
            await stack.enter_async_context(each)
        yield Installed(operator, watched, di_server, key.read_bytes().strip(), brain.url)
