"""What the systems' masters bear: calls of so many clients, and rendezvous of so many agents.

Each client program prints one line of JSON: `{"calls_per_second": …}`, or `{"seconds": …}`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from benchmarks.training.book import Sample
from benchmarks.training.systems import DLROVER, OURS, TORCHFT, TORCHRUN, System, last_error, python
from lab.paths import ROOT
from lab.programs.programs import ProgramFailed

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
    kept = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [program, "-m", *words],
        env=kept,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{' '.join(words)}: not done after {patience:.0f} s") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with the master that it started
        process.communicate()
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if process.returncode or not lines:
        raise ProgramFailed(last_error(errors))
    found: Sample = json.loads(lines[-1])
    return found
