"""The scaler of one machine: each node is a process.

What should run is in a file, so that a scaler that takes over the folder goes on where the last one was
killed: it finds the processes that run. A process holds a lock of its name as long as it lives, so that no
two ever run for one place, even if the scaler was killed before it noted the pid.

`run` starts and stops processes until it is cancelled, and leaves them then; `close` ends all of them.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import psutil
from prometheus_client import CollectorRegistry

from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.api.sizes.change import Change
from elasticjob.kube.backoff import Backoff
from elasticjob.kube.clock import Clock
from elasticjob.kube.controller.passes import Passes
from elasticjob.kube.metrics import Metrics
from elasticjob.master.durable.store import File
from elasticjob.master.scalers.scaler import ScalerError
from elasticjob.master.scaling import workers
from elasticjob.master.scaling.workers import Critical, Member, Members
from elasticjob.master.state.node import Phase
from elasticjob.master.state.value import Value
from elasticjob.sizing.exits import of_status

log = logging.getLogger("elasticjob.master")

PAUSE: Final = 30.0
"""Seconds at most, jitter apart, until a look that met an unexpected error is taken again."""
LOOK: Final = 0.2  # seconds between two looks at the processes
GRACE: Final = 30.0  # seconds between SIGTERM and SIGKILL
RETRY: Final = Backoff(first=0.5, limit=30.0)
"""Between attempts to start one process."""
LONG_LIFE: Final = 60.0  # seconds, after which an end is the first of its place again
KEPT: Final = 64
"""Keys of changes that are remembered."""


class Target(Value, frozen=True):
    """What should run, and the keys of the changes that led there."""

    members: Members = ()
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    """How the process of a node is started; the environment is added to this process's own."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def carried_out(wanted: Target, key: str, change: Change, job: str, critical: Critical) -> Target:
    """Return what should run after a change; the same if it was carried out before. Raises ScalerError."""
    if key in wanted.keys:
        return wanted
    members = wanted.members
    roles = {member.role for member in members} | change.groups.keys()
    for role, group in change.groups.items():
        if group.count is not None:
            members = workers.scale(members, role, group.count, critical)
    for name, resource in change.nodes.items():
        members = workers.migrate(members, *_place(name, job, roles), resource.manifest(), critical)
    return Target(members=members, keys=(*wanted.keys, key)[-KEPT:])


def _place(name: str, job: str, roles: set[str]) -> tuple[str, int]:
    """Return role and rank in a node's name; a role that no node has is skipped like an unknown node."""
    for role in roles:
        rank = name.removeprefix(f"{job}-{role}-")
        if rank != name and rank.isdecimal():
            return role, int(rank)
    return "", -1


class Processes:
    """Runs the nodes of one job as processes of this machine."""

    def __init__(
        self,
        folder: Path,
        job: str,
        command: Callable[[Member], Command],
        clock: Clock,
        *,
        critical: Critical | None = None,
        budget: int = 3,
        grace: float = GRACE,
        metrics: Metrics | None = None,
    ) -> None:
        self._folder, self._job, self._command, self._clock = folder, job, command, clock
        self._critical, self._budget, self._grace = critical or Critical(), budget, grace
        self._file = File(folder / "nodes.json")
        self._wanted: Target | None = None
        self._running: dict[tuple[str, int], _Process] = {}
        self._failed: dict[tuple[str, int], tuple[int, float]] = {}  # by role and rank
        self._turn = asyncio.Lock()
        self._passes = Passes("processes", clock, metrics or Metrics(CollectorRegistry()), at_most=PAUSE)

    async def apply(self, key: str, change: Change) -> None:
        """Record the change; `run` carries it out."""
        async with self._turn:
            wanted = await self._look_up()
            await self._become(carried_out(wanted, key, change, self._job, self._critical))

    async def run(self) -> None:
        """Start and stop processes for ever."""
        while True:
            if self._passes.is_due(self._job):
                with self._passes.over(self._job):
                    await self._look()
            await self._clock.sleep(LOOK)

    async def _look(self) -> None:
        try:
            async with self._turn:
                await self.look()
        except ScalerError as error:
            log.warning("%s; again soon", error)

    async def close(self) -> None:
        """End all processes, with their time to do so."""
        async with self._turn:
            await self._look_up()
            while running := [each for each in self._running.values() if each.alive]:
                for process in running:
                    process.stop(self._clock.monotonic(), self._grace)
                await self._clock.sleep(min(LOOK, self._grace))

    async def members(self) -> Members:
        """Return the nodes that are there or should be."""
        return (await self._look_up()).members

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that run, as far as their pids are known."""
        return tuple(pid for process in self._running.values() if process.alive and (pid := process.pid))

    async def look(self) -> None:
        """Bring the processes one step closer to what should run."""
        wanted = await self._look_up()
        now = self._clock.monotonic()
        for member in wanted.members:
            place = (member.role, member.id)
            process = self._running.get(place)
            if process and not process.alive and member.phase in workers.ALIVE:
                wanted = self._ended(wanted, member, process)
            elif process and process.alive and not member.alive:
                process.stop(now, self._grace)
            elif process is None and member.alive and self._is_free(wanted, member):
                self._start(member, now)
        self._running = {place: process for place, process in self._running.items() if process.alive}
        running = tuple(self._show(member) for member in wanted.members)
        await self._become(Target(members=tuple(filter(self._counts, running)), keys=wanted.keys))

    def _is_free(self, wanted: Target, member: Member) -> bool:
        """Whether no earlier life of the place still runs: two would be two nodes of one name."""
        others = ((m.role, m.id) for m in wanted.members if (m.role, m.rank) == (member.role, member.rank))
        return not any(self._running[place].alive for place in others if place in self._running)

    def _counts(self, member: Member) -> bool:
        """Whether a node is still to be remembered: it holds a place, or its process has not ended."""
        return member.holds_place or (member.role, member.id) in self._running

    def _show(self, member: Member) -> Member:
        runs = member.alive and (member.role, member.id) in self._running
        return member.but(phase=Phase.RUNNING) if runs else member

    def _ended(self, wanted: Target, member: Member, process: _Process) -> Target:
        verdict = workers.relaunch(
            wanted.members,
            member,
            of_status(process.code),
            budget=self._budget,
            critical=self._critical,
        )
        log.info("job %s: %s", self._job, verdict.sentence)
        now, place = self._clock.monotonic(), (member.role, member.rank)
        attempts = 1 if now - process.began > LONG_LIFE else self._failed.get(place, (0, 0.0))[0] + 1
        self._failed[place] = attempts, now + (RETRY.delay(attempts - 1) if attempts > 1 else 0.0)
        return wanted.but(members=verdict.members)

    def _start(self, member: Member, now: float) -> None:
        """Start a process; a failure is tried again, later each time."""
        place = (member.role, member.rank)
        attempts, due = self._failed.get(place, (0, 0.0))
        if now < due:
            return
        name = self._name(member)
        try:
            process = _begin(self._folder, name, self._command(member), now)
        except OSError as error:
            self._failed[place] = attempts + 1, now + RETRY.delay(attempts + 1)
            log.warning("%s cannot be started, again later: %s", name, error)
            return
        self._running[member.role, member.id] = process

    async def _look_up(self) -> Target:
        if self._wanted is None:
            try:
                data = await self._file.load()
                wanted = msgspec.json.decode(data, type=Target) if data else Target()
                self._running = dict(self._find(wanted))
                self._wanted = wanted
            except (OSError, *UNREADABLE) as error:
                raise ScalerError(f"the nodes of job {self._job} cannot be read: {error}") from error
        return self._wanted

    def _find(self, wanted: Target) -> Iterator[tuple[tuple[str, int], _Process]]:
        """The processes that an earlier scaler of this folder has started, and that run."""
        for member in wanted.members:
            lock = self._folder / f"{self._name(member)}.lock"
            if lock.exists() and _is_locked(lock):
                yield (
                    (member.role, member.id),
                    _Process(None, _noted_process(lock.with_suffix(".pid")), lock, 0.0),
                )

    def _name(self, member: Member) -> str:
        return f"{self._job}-{member.role}-{member.rank}-{member.id}"

    async def _become(self, wanted: Target) -> None:
        if wanted == self._wanted:
            return
        try:
            await self._file.save(msgspec.json.encode(wanted))
        except OSError as error:
            raise ScalerError(f"the nodes of job {self._job} are not recorded: {error}") from error
        self._wanted = wanted


class _Process:
    """A process that this scaler, or the one before it, has started."""

    def __init__(
        self, own: subprocess.Popen[bytes] | None, found: psutil.Process | None, lock: Path, began: float
    ) -> None:
        self._own, self._found, self._lock, self.began = own, found, lock, began
        self._stopping: float | None = None

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        if self._own is not None:
            return self._own.poll() is None
        return _is_locked(self._lock) if self._found is None else _runs(self._found)

    @property
    def code(self) -> int | None:
        """How it ended; None where that is not known, as it was another's child."""
        return self._own.returncode if self._own is not None else None

    @property
    def pid(self) -> int | None:
        """Its pid, None if it is not known."""
        known = self._own or self._found
        return known.pid if known else None

    def stop(self, now: float, grace: float) -> None:
        """Ask it to end, and kill it when its time is over."""
        if self._stopping is None:
            self._stopping = now
            self._send(signal.SIGTERM)
        elif now - self._stopping >= grace:
            self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if self._own is not None:
                self._own.send_signal(number)
            elif self._found is not None:
                self._found.send_signal(number)


def _begin(folder: Path, name: str, command: Command, now: float) -> _Process:
    """Start a process, unless one of that name runs. Raises OSError."""
    lock, note = folder / f"{name}.lock", folder / f"{name}.pid"
    held = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _Process(None, _noted_process(note), lock, now)
        note.unlink(missing_ok=True)
        own = subprocess.Popen(
            command.arguments,
            env={**os.environ, **command.environment},
            pass_fds=[held],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # the terminal's Ctrl-C reaches this process alone, which ends the others
        )
        note.write_text(f"{own.pid} {psutil.Process(own.pid).create_time()}")
        return _Process(own, None, lock, now)
    finally:
        os.close(held)


def _noted_process(note: Path) -> psutil.Process | None:
    """Return the process whose pid was noted, None if that is not known: it is not another one's pid."""
    try:
        pid, began = note.read_text().split()
        found = psutil.Process(int(pid))
        return found if abs(found.create_time() - float(began)) < 0.1 else None
    except (OSError, ValueError, psutil.NoSuchProcess):
        return None


def _runs(found: psutil.Process) -> bool:
    """Whether a process runs; one that has ended, and whose parent has not looked, does not."""
    try:
        return found.is_running() and found.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is_locked(lock: Path) -> bool:
    held = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(held)
    return False
