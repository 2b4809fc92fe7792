"""torchrun, and the launchers that have its flags and some of their own: dlrover-run, hyperpodrun. Pure.

A test holds this table against the flags of elasticjob run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from elasticjob.cli.convert.launchers import launch as acts
from elasticjob.cli.convert.launchers.launch import Act, Flag, Flags, Launch
from elasticjob.cli.convert.system import Verdict
from elasticjob.cli.errors import Failure
from elasticjob.cli.standalone.torchrun import REFUSED, conf

MOMENTS: Final = "join_timeout", "timeout"
"""Keys of --rdzv-conf that an agent reads; the others are for the host of a store."""


def rendezvous_conf(launch: Launch, flag: str, value: str) -> Launch:
    """Keep the join timeout; the other keys are settings of the job's master."""
    try:
        conf(value)
    except Failure as error:
        return launch.note(flag, Verdict.DROPPED, str(error))
    pairs = [pair for pair in value.split(",") if pair.partition("=")[0].strip() in MOMENTS]
    if not pairs:
        return launch.note(flag, Verdict.DROPPED, f"{acts.MASTER}; its times are settings of the master")
    told = ",".join(pairs)
    why = f"--rdzv-conf {told} of elasticjob run; other times are settings of the master"
    return replace(launch, flags=(*launch.flags, "--rdzv-conf", told)).note(flag, Verdict.KEPT, why)


def check(found: str) -> Act:
    """Nodes are checked before they train."""

    def act(launch: Launch, flag: str, value: str) -> Launch:
        return replace(launch, check=found).note(flag, Verdict.KEPT, f"nodeCheck: {found}")

    return act


def unit(launch: Launch, flag: str, value: str) -> Launch:
    """Nodes train in multiples of a number."""
    if not acts.is_count(value):
        return launch.note(flag, Verdict.DROPPED, "write nodeUnit, a whole number")
    return replace(launch, unit=int(value)).note(flag, Verdict.KEPT, f"nodeUnit: {value}")


IN_A_JOB: Final[Flags] = {
    "nnodes": Flag(acts.nodes),
    "nproc-per-node": Flag(acts.processes),
    "module": Flag(acts.as_module, 0),
    "m": Flag(acts.as_module, 0),
    "no-python": Flag(acts.no_python, 0),
    "use-env": Flag(acts.needless("LOCAL_RANK is always in the environment"), 0),
    "rdzv-conf": Flag(rendezvous_conf),
    **dict.fromkeys(
        ("rdzv-backend", "rdzv-endpoint", "rdzv-id", "master-addr", "master-port", "local-addr"),
        Flag(acts.needless(acts.MASTER)),
    ),
    "node-rank": Flag(acts.needless("the oldest node has rank 0, and the job's master tells each its own")),
    "standalone": Flag(acts.needless(acts.MASTER), 0),
    "monitor-interval": Flag(acts.needless("the end of a worker is noticed at once")),
    "run-path": Flag(acts.needless("a script is always run by its path"), 0),
    **{acts.name_of(name): Flag(acts.drop(reason)) for name, (_, reason) in REFUSED.items()},
}
"""Flags that mean something else in a pod of a job than on machines that a user looks after."""

NONE: Final = "there is no counterpart"
DLROVER: Final[Flags] = {
    "network-check": Flag(check("ExcludeFaults"), 0),
    "exclude-straggler": Flag(check("ExcludeStragglers"), 0),
    "comm-perf-test": Flag(
        acts.change("--network-check times the nodes, too: nodeCheck: ExcludeStragglers"), 0
    ),
    "precheck": Flag(acts.change("nodeCheck: ExcludeFaults checks nodes before they train")),
    "node-unit": Flag(unit),
    "auto-config": Flag(
        acts.change("the job gives the number of nodes; write --nproc-per-node auto for a worker per GPU"), 0
    ),
    "auto-tunning": Flag(acts.drop(f"{NONE}: the size of batches is the script's"), 0),
    "save-at-breakpoint": Flag(acts.needless("Checkpoint always does so"), 0),
    "accelerator": Flag(acts.drop(f"{NONE}: workers use the devices of the pod")),
    "numa-affinity": Flag(acts.drop(f"{NONE}: write numactl before the command"), 0),
    "membind-policy": Flag(acts.drop(f"{NONE}: write numactl before the command")),
    "training-port": Flag(acts.needless("the job's master finds a free port")),
    "training-log-file": Flag(acts.drop("write --log-dir, or read elasticjob logs")),
    "failure-node-errors": Flag(acts.drop("write runPolicy.failurePolicy, by exit codes")),
    "ucp-device-type": Flag(acts.drop(NONE)),
}
HYPERPOD: Final[Flags] = {
    **{
        name: Flag(acts.drop("write an init container, or a script that starts both"))
        for name in ("pre-train-script", "pre-train-args", "post-train-script", "post-train-args")
    },
    **{
        name: Flag(acts.needless("the agent has no server: it asks the job's master"))
        for name in ("server-host", "server-port", "server-log-level", "server-shutdown-timeout")
    },
    "inprocess-restart": Flag(acts.change("--recovery of elasticjob run: auto finds out from the script"), 0),
    "inprocess-timeout": Flag(acts.drop("--grace of elasticjob run is how long workers may take to end")),
}


SAME: Final[Flags] = {
    **{
        name: Flag(acts.same(name))
        for name in (
            "max-restarts",
            "role",
            "log-dir",
            "redirects",
            "tee",
            "local-ranks-filter",
            "log-line-prefix-template",
            "signals-to-handle",
            "start-method",
            "shutdown-timeout",
        )
    },
    "r": Flag(acts.same("redirects")),
    "t": Flag(acts.same("tee")),
    "virtual-local-rank": Flag(acts.same("virtual-local-rank", valued=False), 0),
}
"""Flags of torchrun that elasticjob run has, too."""

TORCHRUN: Final[Flags] = {**SAME, **IN_A_JOB}
DLROVER_RUN: Final[Flags] = {**TORCHRUN, **DLROVER}
HYPERPODRUN: Final[Flags] = {**TORCHRUN, **HYPERPOD}
ELASTICJOB_RUN: Final[Flags] = {
    **TORCHRUN,
    "recovery": Flag(acts.same("recovery")),
    "grace": Flag(acts.same("grace")),
    "allow-missing": Flag(acts.same("allow-missing")),
    "allow-unsaved": Flag(acts.same("allow-unsaved", valued=False), 0),
    "network-check": Flag(acts.same("network-check", valued=False), 0),
    "exclude-straggler": Flag(acts.same("exclude-straggler", valued=False), 0),
}
