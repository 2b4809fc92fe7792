"""What a planner of the whole cluster reads and returns: frozen values, integers only.

Planners have one form, `plan(cluster, jobs, options, now) -> Plan`. Section 5 of the fulfilment reference
describes the values. *Instance* is one pod of a job's elastic role, *machine* a node of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

from elasticjob.api.sizes.role import Range

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"

Amounts = Mapping[str, int]
"""Quantities by resource name: cpu in milli-cores, memory in bytes, whole devices, `pods` in pod slots."""


@dataclass(frozen=True)
class Machine:
    """A machine that is ready and not cordoned.

    `idle` is `total` less the requests of all pods bound to it, terminating ones included; `soon` is `idle`
    with what terminating pods hold.
    """

    name: str
    total: Amounts
    idle: Amounts
    soon: Amounts


@dataclass(frozen=True)
class Job:
    """A job whose elastic role is planned. Jobs that are suspended or finished are left out.

    `now` is the desired number of instances: the target of an unfinished ScalePlan, if there is one.
    `machines` has the machine of each rank below `now`, None where the pod is not bound (or does not exist).
    """

    key: str
    """Namespace and name, `default/mnist`."""
    least: int
    most: int
    now: int
    amount: Amounts
    """Requests of one instance, as the scheduler counts them; with one of `pods`."""
    machines: tuple[str | None, ...]
    submitted: datetime
    step: int = 1
    """Sizes are multiples of this (`nodeUnit`), with the nodes `beside` (chiefs)."""
    beside: int = 0
    permitted: frozenset[str] | None = None
    """Names of the machines that its template may use; None: all."""
    priority: int = 0
    changed: datetime | None = None
    """When its size last changed; growth waits for the settle time after it."""
    withdrawn: int = 0
    """How many growths in a row were withdrawn: each doubles the settle time."""
    stays: str = ""
    """Why it may not grow now, for another reason than the settle time, such as `a pod is terminating`."""

    quota: int | None = None
    """For how many more instances its queue has idle quota; None where it is in no queue."""

    @property
    def ceiling(self) -> int:
        """The most instances that it may have now."""
        return self.most if self.quota is None else min(self.most, self.now + self.quota)

    @property
    def sizes(self) -> Range:
        """The numbers that it may have."""
        return Range(least=self.least, most=self.most, unit=self.step, beside=self.beside)


@dataclass(frozen=True)
class Demand:
    """A pending pod that is not ours to plan: of another workload, or of another role of a job."""

    key: str
    amount: Amounts
    submitted: datetime
    permitted: frozenset[str] | None = None
    priority: int = 0


@dataclass(frozen=True)
class Cluster:
    """The machines, and the pending pods of others."""

    machines: tuple[Machine, ...]
    demands: tuple[Demand, ...] = ()


LIMITS: Final[Mapping[str, Fraction]] = {CPU: Fraction(97, 100), MEMORY: Fraction(97, 100)}


@dataclass(frozen=True)
class Options:
    """The settings of a planner."""

    limits: Mapping[str, Fraction] = field(default_factory=lambda: LIMITS)
    """The share of a total up to which jobs grow, and above which they shrink; 1 where none is named."""
    band: Fraction = Fraction(0)
    """Growth ends this share below the limit, for clusters whose other load flickers."""
    settle: timedelta = timedelta(seconds=60)
    longest: timedelta = timedelta(minutes=30)
    """The settle time after withdrawn growths is no longer than this."""
    rebalance: bool = False
    """Move steps between running jobs, from one that stays at least as fulfilled as the other becomes."""


@dataclass(frozen=True)
class Delta:
    """A job's change of size, with one sentence that says why."""

    job: str
    before: int
    after: int
    reason: str


@dataclass(frozen=True)
class Waiting:
    """A job that has fewer than `least` instances with a place: how many are missing, and why."""

    job: str
    missing: int
    reason: str


@dataclass(frozen=True)
class Plan:
    """What changes, and who waits; in the order of the keys. A job without a delta stays as it is."""

    deltas: tuple[Delta, ...] = ()
    waiting: tuple[Waiting, ...] = ()
