"""Settings of an agent, from its flags and its pod's environment."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from elasticjob.api.numbers import UNRANKED
from elasticjob.api.rpc import environment as names
from elasticjob.trainer.agent.script import Script


class Start(StrEnum):
    """How worker processes are started."""

    WARM = "warm"  # forked from a process that has imported the framework
    COLD = "cold"  # a new interpreter each


class Recover(StrEnum):
    """How workers handle a change of the world."""

    AUTO = "auto"  # detected from the script's imports
    IN_PROCESS = "in-process"
    RESTART = "restart"


GOODBYE: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True)
class Streams:
    """Output streams of workers, in torchrun's numbers: 1 is stdout, 2 stderr, 3 both."""

    every: int = 0
    by_worker: tuple[tuple[int, int], ...] = ()

    def has(self, slot: int, stream: str) -> bool:
        """Whether the stream of that worker is among them."""
        number = dict(self.by_worker).get(slot, self.every)
        return bool(number & {"stdout": 1, "stderr": 2}[stream])

    def __bool__(self) -> bool:
        return bool(self.every or any(number for _, number in self.by_worker))


@dataclass(frozen=True)
class Place:
    """Identity of this node, and address of its job's master."""

    node: str
    role: str
    index: int
    pod: str
    address: str
    job: str
    master: str
    token: str = ""
    termination_log: Path | None = None


@dataclass(frozen=True)
class Settings:
    """All settings of an agent."""

    place: Place
    script: Script
    workers: int = 1
    max_restarts: int = 3
    tries: int = 2  # starts in a row without any progress; 0: as many as `max_restarts` allows
    forgive: float = 0.0  # seconds without a failure after which earlier ones do not count; 0: never
    may_lose_save: bool = False  # success although the last checkpoint could not be written
    recover: Recover = Recover.AUTO
    start: Start = Start.WARM
    modules: tuple[str, ...] = ("torch",)  # imported once for all workers, whatever the script imports
    name: str = "default"  # torchrun's --role: the prefix of log lines
    log_dir: Path | None = None
    template: str = ""  # of the prefix, in torchrun's macros
    redirects: Streams = Streams()  # to files only
    tee: Streams = Streams()  # to files too; without both, all output goes to `log_dir` too
    shown: frozenset[int] | None = None  # the workers whose output is forwarded; None: all
    signals: tuple[signal.Signals, ...] = GOODBYE  # that end the run
    virtual_rank: bool = False  # each worker sees one device and is local rank 0
    patience: float = 900.0  # seconds that the master may be unreachable, or the job be without a world
    grace: float = 30.0  # seconds that a worker has to exit by itself when it is asked to
    check: bool = False  # this node is checked before it trains
    payload: tuple[str, ...] = ()  # the command of the check, if not our own


def place_from(
    env: Mapping[str, str],
    *,
    node_rank: int | None = None,
    address: str = "",
    master: str = "",
    name: str = "",
) -> Place:
    """Return the place from a pod's environment; flags take precedence.

    A node without a rank may have a `name`; its index is then the master's to give.
    """
    job = first(env, names.JOB, "ELASTIC_JOB_NAME") or "local"
    role = first(env, names.ROLE, "NODE_TYPE") or "worker"
    given = first(env, names.INDEX, "NODE_RANK", "NODE_ID") or ("" if node_rank is None else str(node_rank))
    index = int(given or 0) if given or not name else UNRANKED
    node = first(env, names.NODE) or (f"{job}-{role}-{index}" if given or not name else name)
    log = first(env, names.TERMINATION_LOG)
    return Place(
        node=node,
        role=role,
        index=index,
        pod=first(env, names.POD_NAME),
        address=address or first(env, names.POD_IP) or "127.0.0.1",
        job=job,
        master=master or first(env, names.MASTER, "DLROVER_MASTER_ADDR"),
        token=token_from(env),
        termination_log=Path(log) if log else default_log(),
    )


def token_from(env: Mapping[str, str]) -> str:
    """Return the job's bearer token, empty outside a pod."""
    path = Path(first(env, names.TOKEN_FILE) or names.TOKEN_PATH)
    return path.read_text().strip() if path.is_file() else ""


def modules_from(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return what the job's framework has imported once for all workers: torch outside of a pod."""
    given = env.get(names.MODULES)
    return ("torch",) if given is None else tuple(each for each in given.split(",") if each)


def default_log() -> Path | None:
    """Return the default path of the termination message, None outside a container."""
    path = Path("/dev/termination-log")
    return path if path.is_file() else None


def first(env: Mapping[str, str], *keys: str) -> str:
    """Return the first of the variables that is set, or an empty string."""
    return next((env[key] for key in keys if env.get(key)), "")


def worker_count(text: str) -> int:
    """Return the number of workers for --nproc-per-node: a number, auto, cpu or gpu; else ValueError."""
    if (given := stated_count(text)) is not None:
        return given
    devices = 0 if text == "cpu" else count_devices()
    if text in ("gpu", "xpu") and not devices:
        raise ValueError(
            f"--nproc-per-node={text}, but this machine shows no such device; use cpu or a number"
        )
    return devices or os.cpu_count() or 1


def stated_count(text: str) -> int | None:
    """Return the number in --nproc-per-node, None for auto, cpu, gpu or xpu; else ValueError."""
    if text.isdecimal() and int(text) > 0:
        return int(text)
    if text not in ("auto", "cpu", "gpu", "xpu"):
        raise ValueError(f"--nproc-per-node is {text!r}; give a number above 0, or auto, cpu or gpu")
    return None


def count_devices() -> int:
    """Return the number of NVIDIA devices that this container sees, without importing torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    present = sum(name.removeprefix("nvidia").isdecimal() for name in os.listdir("/dev"))
    return (
        present
        if visible is None
        else min(present, len([each for each in visible.split(",") if each.strip()]))
    )


def hostname() -> str:
    """Return this machine's name."""
    return socket.gethostname()
