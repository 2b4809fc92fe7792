"""mpirun, mpiexec and horovodrun: programs on hosts over ssh, counted by ranks. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from elasticjob.cli.convert.launchers import launch as acts
from elasticjob.cli.convert.launchers.launch import Flag, Flags, Launch
from elasticjob.cli.convert.system import Verdict

OF_MPI: Final = "it is for MPI, which does not start here"
BOUND: Final = "workers are bound to no cores: write numactl before the command"


def per_host(launch: Launch, flag: str, value: str) -> Launch:
    """Where ranks are placed: ppr:N:node says how many each host has."""
    parts = value.split(":")
    if len(parts) >= 3 and parts[0] == "ppr" and parts[2].startswith("node"):
        return acts.processes(launch, flag, parts[1])
    return launch.note(flag, Verdict.DROPPED, "each node has --nproc-per-node workers", harmless=True)


def export(launch: Launch, flag: str, value: str) -> Launch:
    """A variable for all ranks: with a value, or that of the launcher's own environment."""
    name, equals, told = value.replace(" ", "=", 1).partition("=")
    if not equals:
        return launch.note(flag, Verdict.DROPPED, f"workers have {name} of their pod", harmless=True)
    return launch.with_variable(name, told).note(flag, Verdict.KEPT, f"{name} in the environment")


def hosts(launch: Launch, flag: str, value: str) -> Launch:
    """A list of hosts: their number is that of nodes."""
    names = [name for name in value.split(",") if name]
    if "$" in value or "`" in value or not names or launch.nodes is not None:
        return launch.note(
            flag, Verdict.DROPPED, "nodes are pods of the job: write replicas of the role worker"
        )
    slots = {name.partition(":")[2] for name in names}
    each = slots.pop() if len(slots) == 1 else ""
    launch = replace(launch, nodes=(len(names), len(names)), processes=launch.processes or each)
    return launch.note(
        flag, Verdict.KEPT, f"replicas: {len(names)} of the role worker", sizes=(("replicas", len(names)),)
    )


BOUNDS: Final = frozenset({"min-np", "min-num-proc", "max-np", "max-num-proc"})
"""Flags that bound the number of ranks."""

MPIRUN: Final[Flags] = {
    **acts.each("np n c", Flag(acts.total)),
    **acts.each("npernode N ppn perhost ntasks-per-node", Flag(acts.processes)),
    "map-by": Flag(per_host),
    **acts.each("x env", Flag(export)),
    "env": Flag(export, 2),
    "genv": Flag(export, 2),
    **acts.each("H host hosts", Flag(hosts)),
    **acts.each("hostfile machinefile f", Flag(acts.needless(acts.OF_SSH))),
    **acts.each("mca gmca prtemca pmixmca", Flag(acts.needless(OF_MPI), 2)),
    **acts.each("bind-to rank-by", Flag(acts.drop(BOUND, harmless=True))),
    **acts.each(
        "allow-run-as-root oversubscribe nooversubscribe display-map report-bindings v verbose",
        Flag(acts.needless(OF_MPI), 0),
    ),
    **acts.each("tag-output timestamp-output", Flag(acts.needless("each line of the log has its worker"), 0)),
    **acts.each("wdir wd", Flag(acts.change("write workingDir of the container"))),
    **acts.each("bootstrap launcher prefix oob iface timeout", Flag(acts.needless(OF_MPI))),
    "output-filename": Flag(acts.same("log-dir")),
}
HOROVODRUN: Final[Flags] = {
    **acts.each("np num-proc", Flag(acts.total)),
    **acts.each("min-np min-num-proc", Flag(acts.one_bound(0, of_ranks=True))),
    **acts.each("max-np max-num-proc", Flag(acts.one_bound(1, of_ranks=True))),
    **acts.each("slots-per-host slots", Flag(acts.processes)),
    **acts.each("H hosts", Flag(hosts)),
    **acts.each(
        "hostfile host-discovery-script ssh-port p ssh-identity-file", Flag(acts.needless(acts.OF_SSH))
    ),
    "reset-limit": Flag(acts.change("runPolicy.backoffLimit is how many nodes may be replaced")),
    "blacklist-cooldown-range": Flag(acts.change("nodes that fail are replaced, on other machines"), 2),
    **acts.each("start-timeout elastic-timeout", Flag(acts.change("--rdzv-conf join_timeout=SECONDS"))),
    **acts.each(
        "gloo mpi disable-cache verbose autotune no-autotune mpi-threads-disable",
        Flag(acts.drop("it is Horovod's"), 0),
    ),
    **acts.each(
        "mpi-args network-interfaces nics cache-capacity cycle-time-ms fusion-threshold-mb log-level "
        "timeline-filename config-file binding-args",
        Flag(acts.drop("it is Horovod's")),
    ),
    "output-filename": Flag(acts.same("log-dir")),
}
