"""Facts for rules of sizes, with what a test does not say filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from elasticjob.api.resources import Resources
from elasticjob.api.sizes.facts import JobFacts, Mode, Sample, Stage, Use
from elasticjob.api.sizes.role import Role
from elasticjob.master.state.scaling import Target
from elasticjob.sizing.demand import Demand, Point
from elasticjob.sizing.facts import Facts, Waiting

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MIB, GIB = 2**20, 2**30


def asked(
    roles: Mapping[str, Role],
    *,
    stage: Stage = Stage.RUNNING,
    mode: Mode = Mode.SINGLE_JOB,
    limits: Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | None = None,
    resources: Mapping[str, dict[str, str]] | None = None,
    nodes: Mapping[str, dict[str, str]] | None = None,
    room: Mapping[str, int] | None = None,
    machine: Mapping[str, str] | None = None,
    **more: Any,
) -> Facts:
    """Return the facts of the job `digits` at NOW."""
    given = {role: each.count for role, each in roles.items() if each.count is not None}
    placed = Target(
        sizes=dict(sizes or given),
        resources=dict(resources or {}),
        nodes=dict(nodes or {}),
        room=None if room is None else dict(room),
        machine=None if machine is None else dict(machine),
    )
    job = JobFacts(name="digits", uid="1", mode=mode, roles=dict(roles), limits=dict(limits or {}))
    return Facts(job=job, placed=placed, stage=stage, now=NOW, **more)


def samples(*speeds: tuple[int, float], each: int = 3, uses: Iterable[Use] = ()) -> tuple[Sample, ...]:
    """Return samples of a speed at each number of workers, oldest first, the last one at NOW."""
    rows = [speed for speed in speeds for _ in range(each)]
    start, nodes = NOW - timedelta(minutes=len(rows) - 1), tuple(uses)
    return tuple(
        Sample(at=start + timedelta(minutes=n), nodes=nodes, workers=workers, samples=speed)
        for n, (workers, speed) in enumerate(rows)
    )


def use(role: str, index: int = 0, *, cpu: float = 0.0, of: float = 0.0, memory: float = 0.0) -> Use:
    """Return what a node uses: cores of so many, and GiB."""
    return Use(name=f"digits-{role}-{index}", role=role, cpu=cpu, cores=of, memory=int(memory * GIB))


def curve(*gib: float) -> tuple[Point, ...]:
    """Return a curve with a point a minute, the last one at NOW."""
    start = NOW - timedelta(minutes=len(gib) - 1)
    return tuple(Point(at=start + timedelta(minutes=n), memory=int(m * GIB)) for n, m in enumerate(gib))


def needed(*gib: float, risen: float = 0.0, cores: float = 0.0, sated: bool = False) -> Demand:
    """Return a demand whose memory has had this curve; `risen` minutes ago it was highest."""
    return Demand(
        cores=cores,
        sated=sated,
        peak=int(max(gib, default=0.0) * GIB),
        risen=NOW - timedelta(minutes=risen),
        curve=curve(*gib),
    )


def waiting(name: str, role: str, seconds: float, **resource: str) -> Waiting:
    """Return a node that has waited for a machine for so long."""
    return Waiting(name, role, NOW - timedelta(seconds=seconds), Resources.parse(resource))
