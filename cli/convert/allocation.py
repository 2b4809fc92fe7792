"""Directives of sbatch and flags of srun, as the sizes and resources of a role. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from elasticjob.cli.convert.launchers.shell import words
from elasticjob.cli.convert.system import Note, Verdict
from elasticjob.kube.objects.kinds import Manifest

DIRECTIVE: Final = re.compile(r"^#SBATCH\s+(.*)$", re.MULTILINE)
UNITS: Final = {"": "Mi", "K": "Ki", "M": "Mi", "G": "Gi", "T": "Ti"}
BY_KUBERNETES: Final = "the scheduler of the cluster decides: write nodeSelector or affinity in the template"
LOGS: Final = "elasticjob logs NAME shows the logs of all nodes"
ALONE: Final = "write the requests of a whole machine in resources"


NOT_ALONE: Final = "a node that is lost is replaced, and the others go on"
DEADLINE: Final = "runPolicy.activeDeadlineSeconds"
OF_A_RUN: Final = (
    f"it is the limit of one run, and the script is requeued then: write {DEADLINE}, if the whole has a limit"
)
TASKS: Final = "workers: replicas times --nproc-per-node"
GPUS: Final = "nvidia.com/gpu in resources.limits, divided by nodes"


@dataclass(frozen=True)
class Allocation:
    """The resources that a script requests; None where it has no directive."""

    nodes: tuple[int, int] | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    cpus_per_task: int | None = None
    memory: str = ""
    """Of each node, as a Kubernetes quantity."""
    seconds: int | None = None
    requeued: bool = False
    """Whether the script begins again where a run of it has ended, each with the whole time."""
    name: str = ""
    directory: str = ""
    image: str = ""
    priority: str = ""
    notes: tuple[Note, ...] = ()

    @property
    def workers(self) -> int | None:
        """The tasks of each node; None without a directive."""
        if self.tasks_per_node is not None or self.tasks is None:
            return self.tasks_per_node
        return max(self.tasks // self.largest, 1)

    @property
    def largest(self) -> int:
        """The largest number of nodes."""
        return self.nodes[1] if self.nodes else 1

    @property
    def devices(self) -> int:
        """The GPUs of each node."""
        if self.gpus_per_node is not None:
            return self.gpus_per_node
        if self.gpus_per_task is not None:
            return self.gpus_per_task * (self.workers or 1)
        return max(self.gpus // self.largest, 1) if self.gpus else 0

    @property
    def resources(self) -> Manifest:
        """The resources of each node's container."""
        found: dict[str, Any] = (
            {"cpu": str(self.cpus_per_task * (self.workers or 1))} if self.cpus_per_task else {}
        )
        if self.memory:
            found["memory"] = self.memory
        made: Manifest = {"requests": found} if found else {}
        return {**made, "limits": {"nvidia.com/gpu": str(self.devices)}} if self.devices else made

    @property
    def all_notes(self) -> tuple[Note, ...]:
        """The notes on directives; totals that nodes cannot share evenly are changed."""
        totals = {TASKS: (self.tasks, self.workers or 1), GPUS: (self.gpus, self.devices)}
        found = []
        for note in self.notes:
            given, each = totals.get(note.why, (None, 0))
            if self.requeued and note.why.startswith(DEADLINE):
                note = replace(note, verdict=Verdict.DROPPED, why=OF_A_RUN)
            if given is not None and given != each * self.largest:
                why = f"is {each * self.largest} now: {each} on each of {self.largest} nodes"
                note = replace(note, verdict=Verdict.CHANGED, why=why)
            found.append(note)
        return tuple(found)

    @property
    def variables(self) -> dict[str, str]:
        """The SLURM_ variables of the script, as far as their values are known."""
        said = {
            "SLURM_NNODES": self.largest if self.nodes else None,
            "SLURM_JOB_NUM_NODES": self.largest if self.nodes else None,
            "SLURM_NTASKS": self.tasks if self.tasks is not None else (self.workers or 1) * self.largest,
            "SLURM_NTASKS_PER_NODE": self.workers,
            "SLURM_TASKS_PER_NODE": self.workers,
            "SLURM_GPUS_ON_NODE": self.devices or None,
            "SLURM_GPUS_PER_NODE": self.devices or None,
            "SLURM_CPUS_PER_TASK": self.cpus_per_task,
            "SLURM_JOB_NAME": self.name or None,
        }
        return {name: str(value) for name, value in said.items() if value is not None}


Act = Callable[[Allocation, str], tuple[Allocation, Verdict, str]]


def _number(field: str, why: str) -> Act:
    def act(so_far: Allocation, value: str) -> tuple[Allocation, Verdict, str]:
        found = re.search(r"(\d{1,6})(?:\(.*\))?$", value)
        if found is None:
            return so_far, Verdict.DROPPED, "has no number"
        changed = replace(so_far, **{field: int(found[1])})  # type: ignore[arg-type]  # by name
        return changed, Verdict.KEPT, why

    return act


def _text(field: str, why: str) -> Act:
    def act(so_far: Allocation, value: str) -> tuple[Allocation, Verdict, str]:
        changed = replace(so_far, **{field: value})  # type: ignore[arg-type]  # by name
        return changed, Verdict.KEPT, why

    return act


def _drop(why: str, verdict: Verdict = Verdict.DROPPED) -> Act:
    return lambda so_far, _: (so_far, verdict, why)


def _nodes(so_far: Allocation, value: str) -> tuple[Allocation, Verdict, str]:
    found = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", value)
    if found is None or not 1 <= int(found[1]) <= int(found[2] or found[1]):
        return so_far, Verdict.DROPPED, "write replicas of the role worker"
    return (
        replace(so_far, nodes=(int(found[1]), int(found[2] or found[1]))),
        Verdict.KEPT,
        "replicas of the role worker",
    )


def _devices(so_far: Allocation, value: str) -> tuple[Allocation, Verdict, str]:
    found = re.fullmatch(r"gpu(?::[\w.-]+)*?(?::(\d{1,3}))?", value.partition(",")[0])
    if found is None:
        return so_far, Verdict.DROPPED, "write it in resources.limits of the container"
    return (
        replace(so_far, gpus_per_node=int(found[1] or 1)),
        Verdict.KEPT,
        "nvidia.com/gpu in resources.limits",
    )


def _memory(so_far: Allocation, value: str) -> tuple[Allocation, Verdict, str]:
    found = re.fullmatch(r"(\d{1,9})([KMGT]?)B?", value, re.IGNORECASE)
    if found is None or not int(found[1]):
        return so_far, Verdict.DROPPED, "the memory of nodes is learnt: docs/memory.md"
    return (
        replace(so_far, memory=found[1] + UNITS[found[2].upper()]),
        Verdict.KEPT,
        "memory in resources.requests",
    )


def _time(so_far: Allocation, value: str) -> tuple[Allocation, Verdict, str]:
    found = re.fullmatch(r"(?:(\d{1,4})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?", value)
    if found is None:
        return so_far, Verdict.DROPPED, "write runPolicy.activeDeadlineSeconds, in seconds"
    days, parts = int(found[1] or 0), [int(part) for part in found.groups()[1:] if part is not None]
    scale = (3600, 60, 1) if found[1] or len(parts) == 3 else (60, 1)
    seconds = days * 86_400 + sum(part * unit for part, unit in zip(parts, scale, strict=False))
    if not seconds:
        return so_far, Verdict.KEPT, "no limit"
    return replace(so_far, seconds=seconds), Verdict.KEPT, f"{DEADLINE}: {seconds}"


NAMED: Final[Mapping[str, Act]] = {
    "nodes": _nodes,
    "ntasks": _number("tasks", TASKS),
    "ntasks-per-node": _number("tasks_per_node", "--nproc-per-node, where srun starts Python itself"),
    "gpus": _number("gpus", GPUS),
    "gpus-per-node": _number("gpus_per_node", "nvidia.com/gpu in resources.limits"),
    "gpus-per-task": _number("gpus_per_task", "nvidia.com/gpu in resources.limits"),
    "gres": _devices,
    "cpus-per-task": _number("cpus_per_task", "cpu in resources.requests, times the tasks of a node"),
    "mem": _memory,
    "mem-per-cpu": _drop("write memory in resources.requests, or leave it out: it is learnt"),
    "mem-per-gpu": _drop("write memory in resources.requests, or leave it out: it is learnt"),
    "time": _time,
    "job-name": _text("name", "the name of the job"),
    "chdir": _text("directory", "workingDir of the container"),
    "container-image": _text("image", "the image of the container"),
    "qos": _drop("write runPolicy.scheduling.priorityClassName"),
    "account": _drop("write runPolicy.scheduling.queue, with gang: volcano"),
    "partition": _drop(
        "write runPolicy.scheduling.queue with gang: volcano, or nodeSelector in the template"
    ),
    "reservation": _drop(BY_KUBERNETES),
    "constraint": _drop(BY_KUBERNETES),
    "nodelist": _drop(BY_KUBERNETES),
    "exclude": _drop(BY_KUBERNETES),
    "switches": _drop(BY_KUBERNETES),
    "exclusive": _drop(ALONE),
    "output": _drop(LOGS),
    "error": _drop(LOGS),
    "requeue": lambda so_far, _: (replace(so_far, requeued=True), Verdict.KEPT, NOT_ALONE),
    "no-requeue": _drop("write restartCount: 0"),
    "signal": _drop("nodes that leave get SIGTERM: docs/drains.md"),
    "array": _drop("write a job for each index"),
    "dependency": _drop("apply the job when the others have ended: elasticjob wait NAME"),
    "export": _drop("pods have the variables of their template alone"),
    "hint": _drop(BY_KUBERNETES),
    "container-workdir": _text("directory", "workingDir of the container"),
    "mpi": _drop("no MPI starts the workers", Verdict.KEPT),
    "cpu-bind": _drop("write numactl before the command"),
    "auto-resume": _drop(NOT_ALONE, Verdict.KEPT),
    "container-mounts": _drop("write volumes and volumeMounts in the template"),
    **dict.fromkeys(("mail-type", "mail-user"), _drop("alerts tell of jobs that fail: docs/monitoring.md")),
    **dict.fromkeys(
        ("wait-all-nodes", "open-mode", "comment", "get-user-env"), _drop("it is for Slurm", Verdict.KEPT)
    ),
}
SHORT: Final = {
    "N": "nodes",
    "n": "ntasks",
    "G": "gpus",
    "c": "cpus-per-task",
    "t": "time",
    "J": "job-name",
    "D": "chdir",
    "q": "qos",
    "A": "account",
    "p": "partition",
    "C": "constraint",
    "w": "nodelist",
    "x": "exclude",
    "o": "output",
    "e": "error",
    "a": "array",
    "d": "dependency",
}
WITHOUT_VALUE: Final = frozenset({"exclusive", "requeue", "no-requeue", "get-user-env"})


def directives(script: str) -> Iterator[tuple[int, str, str]]:
    """Find the directives of a script: line, name as written, value."""
    for found in DIRECTIVE.finditer(script):
        line = script.count("\n", 0, found.start()) + 1
        given = [word.plain for word in words(found[1])]
        while given:
            name, equals, value = given.pop(0).partition("=")
            short = re.fullmatch(r"-(\w)(.+)", name)
            if short and not name.startswith("--") and not equals:
                name, value = f"-{short[1]}", short[2]
            elif (
                not equals and given and not given[0].startswith("-") and _plainly(name) not in WITHOUT_VALUE
            ):
                value = given.pop(0)
            yield line, name, value


def allocation(found: Iterator[tuple[int | None, str, str]]) -> Allocation:
    """Return the request of these directives, or flags of srun, which are the same."""
    told = Allocation()
    for line, name, value in found:
        act = NAMED.get(_plainly(name))
        if act is None:
            verdict, why = (
                Verdict.DROPPED,
                "elasticjob convert does not know it: check whether the job needs it",
            )
        else:
            told, verdict, why = act(told, value)
        told = replace(told, notes=(*told.notes, Note(line, name, verdict, why, harmless=why == LOGS)))
    return told


def _plainly(name: str) -> str:
    name = name.lstrip("-").replace("_", "-")
    return SHORT.get(name, name)
