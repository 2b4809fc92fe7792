"""deepspeed: a launcher over ssh and a hostfile; deepspeed.initialize() reads the environment. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from elasticjob.cli.convert.launchers import launch as acts
from elasticjob.cli.convert.launchers.launch import Flag, Flags, Launch
from elasticjob.cli.convert.system import Verdict

ITS_SIZES: Final = (
    "minReplicas and maxReplicas make the job elastic; the sizes of DeepSpeed's configuration must allow them"
)
ALL_GPUS: Final = (
    "is absent, which means all GPUs of a machine: write --nproc-per-node, and GPUs in resources.limits"
)
AFFINITY: Final = "write nodeSelector or affinity in the template, and GPUs in resources.limits"
LOCAL_RANK: Final = "scripts get LOCAL_RANK in the environment, and no argument --local_rank: read it there"


def include(launch: Launch, flag: str, value: str) -> Launch:
    """Machines and their GPUs, as in a:0,1@b:0,1: their numbers are those of nodes and workers."""
    slots = [len([gpu for gpu in each.partition(":")[2].split(",") if gpu]) for each in value.split("@")]
    if "$" in value or len(set(slots)) != 1:
        return launch.note(flag, Verdict.DROPPED, acts.SIZES_OF_WORKERS)
    found = replace(launch, nodes=(len(slots), len(slots)), processes=str(slots[0] or launch.processes))
    return found.note(flag, Verdict.CHANGED, f"is replicas: {len(slots)}, on any machines: {AFFINITY}")


FLAGS: Final[Flags] = {
    "num-nodes": Flag(acts.nodes),
    "num-gpus": Flag(acts.processes),
    "num-accelerators": Flag(acts.processes),
    "min-elastic-nodes": Flag(acts.one_bound(0)),
    "max-elastic-nodes": Flag(acts.one_bound(1)),
    "elastic-training": Flag(acts.change(ITS_SIZES), 0),
    "module": Flag(acts.as_module, 0),
    "no-python": Flag(acts.no_python, 0),
    "no-local-rank": Flag(acts.needless("scripts never get an argument --local_rank"), 0),
    **acts.each("include i", Flag(include)),
    **acts.each(
        "exclude e",
        Flag(acts.drop("write affinity in the template: nodes that fail are left out by nodeCheck")),
    ),
    **{name: Flag(acts.needless(acts.MASTER)) for name in ("master-addr", "master-port", "node-rank")},
    **{name: Flag(acts.needless(acts.OF_SSH)) for name in ("launcher", "launcher-args", "ssh-port")},
    **{name: Flag(acts.needless(acts.OF_SSH), 0) for name in ("no-ssh", "no-ssh-check", "force-multi")},
    "save-pid": Flag(acts.drop("find the processes with kubectl exec"), 0),
    "enable-each-rank-log": Flag(acts.change("--log-dir of elasticjob run has a file for each worker")),
    "autotuning": Flag(acts.drop("run it by itself, and give the job the settings that it found")),
    "bind-cores-to-rank": Flag(acts.drop("write numactl before the command"), 0),
    "bind-core-list": Flag(acts.drop("write numactl before the command")),
    "venv-script": Flag(acts.drop("the image has the environment")),
    "log-level": Flag(acts.needless("the agent logs events, not each step")),
    **acts.each("quiet q", Flag(acts.needless("the agent logs events, not each step"), 0)),
}


def with_hostfile(launch: Launch, path: str, file: Callable[[str], str | None]) -> Launch:
    """Return the launch with the nodes and slots of a hostfile, where the line does not say them."""
    text = file(path)
    slots = slots_of(text) if text is not None else []
    if not slots:
        why = "nodes are pods of the job: write replicas of the role worker, one for each host"
        told = launch.nodes is not None
        return launch.note("--hostfile", Verdict.DROPPED, acts.OF_SSH if told else why, harmless=told)
    found = launch.nodes or (len(slots), len(slots))
    each = launch.processes or (str(min(slots)) if min(slots) else "")
    why = f"{len(slots)} hosts: replicas of the role worker, and the least slots as --nproc-per-node"
    return replace(launch, nodes=found, processes=each).note("--hostfile", Verdict.KEPT, why)


def slots_of(text: str) -> list[int]:
    """Return the slots of each host of a hostfile, 0 where it does not say."""
    lines = (line.partition("#")[0].split() for line in text.splitlines()[:10_000])
    return [_slots(words[1:]) for words in lines if words]


def _slots(words: list[str]) -> int:
    found = (re.fullmatch(r"slots=(\d{1,4})", word) for word in words)
    return next((int(each[1]) for each in found if each), 0)
