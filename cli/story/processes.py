"""The processes of a job on this machine, found by the environment that the kubelet gave them.

A pod is a tree: its main process (a master, or an agent), and below an agent the workers, which train. A warm
process may stand between them. Each worker leads a process group; its descendants do not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import psutil

from elasticjob.api.rpc import environment


@dataclass(frozen=True)
class Process:
    """One live process."""

    pid: int
    parent: int
    group: int
    environment: Mapping[str, str]
    command: str

    @property
    def pod(self) -> str:
        """The name of its pod; "" if none."""
        return self.environment.get(environment.POD_NAME, "")

    @property
    def job(self) -> str:
        """The uid of its job; "" if none."""
        return self.environment.get(environment.JOB_UID, "")


def running(belongs: Callable[[Process], bool]) -> tuple[Process, ...]:
    """Return the live processes of this machine that match `belongs`, without zombies."""
    return tuple(filter(belongs, as_their_pods(tuple(_all()))))


def as_their_pods(processes: Sequence[Process]) -> Iterator[Process]:
    """Yield the processes, each with the environment of its pod.

    The kernel shows the environment that a program was started with: that of a fork, as workers are, may be
    older than the pod (`cli/laptop/preloaded.py`). Then it is that of the nearest process above with a pod.
    """
    known = {process.pid: process for process in processes}
    for process in processes:
        above: Process | None = process
        while above is not None and not above.pod:
            above = known.get(above.parent)
        yield replace(process, environment=above.environment) if above is not None else process


def of_job(uid: str) -> tuple[Process, ...]:
    """Return all processes of a job, by uid: another cluster here may have a job of the same name."""
    return running(lambda process: bool(uid) and process.job == uid)


def of_pod(pod: str, job: str) -> tuple[Process, ...]:
    """Return all processes of a pod of the job with this uid."""
    return tuple(process for process in of_job(job) if process.pod == pod)


def main_of(tree: tuple[Process, ...]) -> Process | None:
    """Return the root process of a pod: its master, or its agent."""
    pids = {process.pid for process in tree}
    return next((process for process in tree if process.parent not in pids), None)


def workers_of(tree: tuple[Process, ...]) -> tuple[Process, ...]:
    """Return the worker processes of a pod, the deepest first: a warm process without forks is last."""
    parents = {process.pid: process.parent for process in tree}
    leaders = [process for process in tree if process.pid == process.group and process.parent in parents]
    led = {leader.parent for leader in leaders}
    workers = (leader for leader in leaders if leader.pid not in led)
    return tuple(sorted(workers, key=lambda process: -len(list(_ancestors(process.pid, parents)))))


def _ancestors(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    while (pid := parents.get(pid, 0)) in parents:
        yield pid


def _all() -> Iterator[Process]:
    for process in psutil.process_iter():
        try:
            with process.oneshot():
                if process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                    yield Process(
                        process.pid,
                        process.ppid(),
                        os.getpgid(process.pid),
                        process.environ(),
                        " ".join(process.cmdline()),
                    )
        except (psutil.Error, ProcessLookupError, PermissionError):
            continue
