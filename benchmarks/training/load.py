"""What the systems' masters bear: calls of so many clients, and rendezvous of so many agents.

Each client program prints one line of JSON: `{"calls_per_second": …}`, or `{"seconds": …}`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.training.book import Sample
from benchmarks.training.systems import DLROVER, OURS, TORCHFT, TORCHRUN, System, last_error, python
from lab.paths import ROOT
from lab.processes import Dialogue, ProgramFailed, TooSlow

SECONDS: Final = 3.0
CLIENTS: Final = (1, 8, 32)
AGENTS: Final = (1_000, 4_000, 10_000)
KINDS: Final[Mapping[str, Mapping[System, str]]] = {
    "shards": {OURS: "shards", DLROVER: "shards"},
    "heartbeats": {OURS: "report", DLROVER: "heartbeats", TORCHFT: "heartbeats"},
    "keys": {DLROVER: "keys", TORCHRUN: "keys"},
}
"""What is called, in each client's own words."""


def calls(system: System, kind: str, clients: int, patience: float) -> Sample:
    """Return calls per second of so many clients."""
    word, number = KINDS[kind][system], str(clients)
    if system is OURS:
        words = ["benchmarks.services.agents", "calls", number, "--kinds", word, "--seconds", str(SECONDS)]
        found = told(sys.executable, words, patience)
    else:
        found = asked(system, ["calls", word, number, str(SECONDS)], patience)
    return {"calls": found["calls_per_second"]}


def rendezvous(system: System, agents: int, patience: float) -> Sample:
    """Return the seconds until all agents have their world; None if that takes too long."""
    try:
        if system is OURS:
            found = told(sys.executable, ["benchmarks.services.agents", "rendezvous", str(agents)], patience)
        else:
            found = asked(system, ["rendezvous", str(agents)], patience)
    except TimeoutError:
        return {"seconds": None}
    return {"seconds": found["seconds"]}


def asked(system: System, words: list[str], patience: float) -> Sample:
    """Return what a peer's client program found."""
    program = python(system.peer) if system.peer else sys.executable
    return told(program, [f"benchmarks.training.peers.{system.name.lower()}", *words], patience)


def told(program: str, words: list[str], patience: float) -> Sample:
    """Return the line of a client program.

    Raises TimeoutError when it takes too long, ProgramFailed when it fails.
    """
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [program, "-m", *words]
    with (
        tempfile.TemporaryDirectory() as folder,
        Dialogue("clients", command, Path(folder), environ) as clients,
    ):
        try:
            while not (line := clients.line(patience)).startswith("{"):
                pass
        except TooSlow:
            raise TimeoutError(f"{' '.join(words)}: not done after {patience:.0f} s") from None
        except ProgramFailed:
            raise ProgramFailed(last_error(clients.output)) from None
    found: Sample = json.loads(line)
    return found
