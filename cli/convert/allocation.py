"""Directives of sbatch and flags of srun, as the sizes and resources of a role. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from elasticjob.cli.convert.launchers.launch import Sizes
from elasticjob.cli.convert.launchers.shell import words
from elasticjob.cli.convert.system import EACH, Note, Verdict
from elasticjob.kube.objects.kinds import Manifest

DIRECTIVE: Final = re.compile(r"^#SBATCH\s+(.*)$", re.MULTILINE)
UNITS: Final = {"": "Mi", "K": "Ki", "M": "Mi", "G": "Gi", "T": "Ti"}
BY_KUBERNETES: Final = "the scheduler of the cluster decides: write nodeSelector or affinity in the template"
LOGS: Final = "elasticjob logs NAME shows the logs of all nodes"
UNKNOWN: Final = "elasticjob convert does not know it: check whether the job needs it"
ALONE: Final = "write the requests of a whole machine in resources"


NOT_ALONE: Final = "a node that is lost is replaced, and the others go on"
DEADLINE: Final = "runPolicy.activeDeadlineSeconds"
OF_A_RUN: Final = (
    f"it is the limit of one run, and the script is requeued then: write {DEADLINE}, if the whole has a limit"
)
TASKS: Final = "workers: replicas times --nproc-per-node"
GPU: Final = "nvidia.com/gpu in resources.limits"
GPUS: Final = f"{GPU}, divided by nodes"


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


def _take(field: str, why: str, read: Callable[[str], Any] = str) -> Act:
    """Keep a value; `read` returns None for one that cannot be read."""

    def act(so_far: Allocation, value: str) -> tuple[Allocation, Verdict, str]:
        if (found := read(value)) is None:
            return so_far, Verdict.DROPPED, f"{value!r} cannot be read: write {why}"
        changed = replace(so_far, **{field: found})
        return changed, Verdict.KEPT, why

    return act


def _gpus(read: Callable[[str], Any]) -> Act:
    """Keep a number of GPUs; of their type, such as a100:4, a job says nothing by itself."""
    keep = _take("gpus_per_node", GPU, read)

    def act(so_far: Allocation, value: str) -> tuple[Allocation, Verdict, str]:
        changed, verdict, why = keep(so_far, value)
        type_ = re.match(r"(?:gpu:)?([A-Za-z][\w.-]*):\d", value)
        if type_ is None or verdict is not Verdict.KEPT:
            return changed, verdict, why
        return (
            changed,
            Verdict.CHANGED,
            f"{why}, of any type: select {type_[1]} by a nodeSelector",
        )

    return act


def _count(value: str) -> int | None:
    found = re.search(r"(\d{1,6})(?:\(.*\))?$", value)
    return int(found[1]) if found else None


def _drop(why: str, verdict: Verdict = Verdict.DROPPED) -> Act:
    return lambda so_far, _: (so_far, verdict, why)


def _nodes(value: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", value)
    bounds = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    return bounds if 1 <= bounds[0] <= bounds[1] else None


def _devices(value: str) -> int | None:
    found = re.fullmatch(r"gpu(?::[\w.-]+)*?(?::(\d{1,3}))?", value.partition(",")[0])
    return int(found[1] or 1) if found else None


def _memory(value: str) -> str | None:
    found = re.fullmatch(r"(\d{1,9})([KMGT]?)B?", value, re.IGNORECASE)
    return found[1] + UNITS[found[2].upper()] if found and int(found[1]) else None


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


def _each(names: str, act: Act) -> dict[str, Act]:
    return dict.fromkeys(names.split(), act)


NAMED: Final[Mapping[str, Act]] = {
    "nodes": _take("nodes", "replicas of the role worker", _nodes),
    "ntasks": _take("tasks", TASKS, _count),
    "ntasks-per-node": _take("tasks_per_node", "--nproc-per-node, where srun starts Python itself", _count),
    "gpus": _take("gpus", GPUS, _count),
    "gpus-per-node": _gpus(_count),
    "gpus-per-task": _take("gpus_per_task", GPU, _count),
    "gres": _gpus(_devices),
    "cpus-per-task": _take("cpus_per_task", "cpu in resources.requests, times the tasks of a node", _count),
    "mem": _take("memory", "memory in resources.requests", _memory),
    "time": _time,
    "job-name": _take("name", "the name of the job"),
    **_each("chdir container-workdir", _take("directory", "workingDir of the container")),
    "container-image": _take("image", "the image of the container"),
    "qos": _drop("write runPolicy.scheduling.priorityClassName"),
    "account": _drop("write runPolicy.scheduling.queue, with gang: volcano"),
    "partition": _drop(
        "write runPolicy.scheduling.queue with gang: volcano, or nodeSelector in the template"
    ),
    "exclusive": _drop(ALONE),
    "requeue": lambda so_far, _: (replace(so_far, requeued=True), Verdict.KEPT, NOT_ALONE),
    "no-requeue": _drop("write restartCount: 0"),
    "signal": _drop("nodes that leave get SIGTERM: docs/drains.md"),
    "array": _drop("write a job for each index"),
    "dependency": _drop("apply the job when the others have ended: elasticjob wait NAME"),
    "export": _drop("pods have the variables of their template alone"),
    "mpi": _drop("no MPI starts the workers", Verdict.KEPT),
    "cpu-bind": _drop("write numactl before the command"),
    "container-mounts": _drop("write volumes and volumeMounts in the template"),
    **_each("reservation constraint nodelist exclude switches hint", _drop(BY_KUBERNETES)),
    **_each("output error", _drop(LOGS)),
    **_each(
        "mem-per-cpu mem-per-gpu", _drop("write memory in resources.requests, or leave it out: it is learnt")
    ),
    "auto-resume": _drop(NOT_ALONE, Verdict.KEPT),
    **_each("mail-type mail-user", _drop("alerts tell of jobs that fail: docs/monitoring.md")),
    **_each("wait-all-nodes open-mode comment get-user-env", _drop("it is for Slurm", Verdict.KEPT)),
}
NAMES_OF_LETTERS: Final = (
    "nodes ntasks gpus cpus-per-task time job-name chdir qos account partition constraint nodelist exclude "
    "output error array dependency"
)
SHORT: Final[Mapping[str, str]] = dict(zip("NnGctJDqApCwxoead", NAMES_OF_LETTERS.split(), strict=True))
WITHOUT_VALUE: Final = frozenset({"exclusive", "requeue", "no-requeue", "get-user-env"})


def directives(script: str) -> Iterator[tuple[int, str, str]]:
    """Find the directives of a script: line, name as written, value."""
    for found in DIRECTIVE.finditer(script):
        line = script.count("\n", 0, found.start()) + 1
        yield from ((line, *pair) for pair in pairs([word.plain for word in words(found[1])]))


def pairs(given: list[str]) -> Iterator[tuple[str, str]]:
    """Find flags and their values in words."""
    while given:
        name, equals, value = given.pop(0).partition("=")
        short = re.fullmatch(r"-(\w)(.+)", name)
        if short and not name.startswith("--") and not equals:
            name, value = f"-{short[1]}", short[2]
        elif not equals and given and not given[0].startswith("-") and _plainly(name) not in WITHOUT_VALUE:
            value = given.pop(0)
        yield name, value


def allocation(found: Iterator[tuple[int | None, str, str]]) -> Allocation:
    """Return the request of these directives, or flags of srun, which are the same."""
    told = Allocation()
    for line, name, value in found:
        act = NAMED.get(_plainly(name))
        told, verdict, why = act(told, value) if act else (told, Verdict.DROPPED, UNKNOWN)
        sizes: Sizes = ()
        if told.nodes and _plainly(name) == "nodes":
            sizes = (("replicas", told.nodes[1]),)
        if (told.tasks_per_node or 1) > 1 and _plainly(name) == "ntasks-per-node":  # one: a launcher itself
            sizes = ((EACH, told.tasks_per_node or 1),)
        note = Note(line, name, verdict, why, harmless=why == LOGS, sizes=sizes)
        told = replace(told, notes=(*told.notes, note))
    return told


def _plainly(name: str) -> str:
    name = name.lstrip("-").replace("_", "-")
    return SHORT.get(name, name)
