"""Limits an optimizer's plan to the user's settings, role bounds, free capacity and resourceLimits:

1. The user's settings win: roles with autoScale off, numbers without a range, resources of the template.
2. Amounts of 0, and what is as it should be already, are no changes.
3. A number lies between minReplicas (1 at least) and maxReplicas, is a multiple of the unit, and grows by no
   more than the free capacity of the cluster, where that is known.
4. The whole job stays in resourceLimits: roles that grow do so by less. Where that is not enough the plan is
   empty. A job that is beyond its limits already may not need more than now.

The operator bounds each plan again when it carries it out (controllers/scaleplan/fold.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from elasticjob.api.resources import NOTHING, Bytes, Cores, Excess, Resources
from elasticjob.api.v1alpha1.common import PS, WORKER
from elasticjob.master.scaling.optimizer import Question
from elasticjob.master.scaling.plan import Group, ResourcePlan
from elasticjob.master.scaling.samples import MIB

TRUSTED_PS: Final = Resources({"cpu": Cores(2), "memory": Bytes(1024 * MIB)})
"""Resources of a parameter server's template below this are no wish of the user."""
CLIPPED: Final = {
    "cpu": (Cores.parse("100m"), Cores(32)),
    "memory": (Bytes(64 * MIB), Bytes(65536 * MIB)),
}
"""What Brain may ask for a node. DLRover's least, 4 cores and 6 GiB, would not fit small machines."""
CLIPPED_COUNTS: Final = {WORKER: 60, PS: 15}


def clip(plan: ResourcePlan) -> ResourcePlan:
    """Return a plan of Brain within what a plan may sensibly say; what is 0 stays unset."""
    groups = {r: Group(_clipped_count(r, g.count), _clipped(g.resource)) for r, g in plan.groups.items()}
    nodes = {name: _clipped(resource) for name, resource in plan.nodes.items()}
    return ResourcePlan(groups, nodes, plan.reason)


def bound(question: Question, plan: ResourcePlan) -> ResourcePlan:
    """Return what is left of `plan`; if nothing is, an empty plan whose reason says why."""
    if not plan:
        return plan
    draft = _Draft(question, dict(_groups(question, plan)), dict(_nodes(question, plan)))
    while over := draft.over:
        smaller = draft.smaller
        if smaller is None:
            told = ", ".join(f"{e.wanted} {e.name} of {e.limit}" for e in over)
            return ResourcePlan(reason=f"{plan.reason}; but the job would need {told}")
        draft = smaller
    groups = {role: group for role, group in draft.groups.items() if _says(group)}
    if not groups and not draft.nodes:
        return ResourcePlan(reason=f"{plan.reason}; nothing of it may change, or has to")
    remarks = "; ".join(_remarks(question, plan, groups))
    return ResourcePlan(
        groups, draft.nodes, f"{plan.reason}; {remarks}" if remarks else plan.reason, plan.hold
    )


@dataclass(frozen=True)
class _Draft:
    """Changes of roles and nodes, and what the job would need with them."""

    question: Question
    groups: Mapping[str, Group]
    nodes: Mapping[str, Resources]

    @property
    def over(self) -> tuple[Excess, ...]:
        """What is over the limits, and more than now."""
        now = _needs(self.question, {}, {})
        excess = _needs(self.question, self.groups, self.nodes).over(self.question.limits)
        return tuple(e for e in excess if e.name not in now or e.wanted.value > now[e.name].value)

    @property
    def smaller(self) -> _Draft | None:
        """The draft with a role that grows by a unit less; None if no role grows."""
        for role, group in self.groups.items():
            wish = self.question.wish.roles[role]
            least = max(self.question.count(role), wish.smallest)
            if group.count is not None and group.count - wish.unit >= least:
                count: int | None = group.count - wish.unit
                if role in self.question.placed.sizes and count == self.question.count(role):
                    count = None
                return replace(self, groups={**self.groups, role: replace(group, count=count)})
        return None


def _groups(question: Question, plan: ResourcePlan) -> Iterator[tuple[str, Group]]:
    for role, group in plan.groups.items():
        wish = question.wish.roles.get(role)
        if wish is None or not wish.auto:
            continue
        resource = _changed(_allowed(question, role, group.resource), question.resource(role))
        found = Group(_count(question, role, group.count), resource)
        if _says(found):
            yield role, found


def _nodes(question: Question, plan: ResourcePlan) -> Iterator[tuple[str, Resources]]:
    for name, resource in plan.nodes.items():
        role = question.role_of(name)
        if role is None or not question.wish.roles[role].auto:
            continue
        now = question.resource_of(role, name)
        waits = any(w.name == name for w in question.waiting) or name in question.cuts
        allowed = resource if waits else _allowed(question, role, resource)
        if changed := _changed(allowed, now):
            yield name, changed


def _count(question: Question, role: str, count: int | None) -> int | None:
    """A number that the role may have; None for no change."""
    wish, now = question.wish.roles[role], question.count(role)
    undecided = role not in question.placed.sizes and wish.count is None
    if count is None or not (wish.elastic or undecided):
        return None
    room = question.placed.room
    if room is not None and role in room and not undecided:
        count = min(count, now + room[role]) if count > now else count
    most = count if wish.most is None else min(count, wish.most)
    found = max(most // wish.unit * wish.unit, wish.smallest)
    if wish.most is not None and found > wish.most:
        return None
    return found if undecided or found != now else None


def _allowed(question: Question, role: str, resource: Resources) -> Resources:
    """The resources that are not the user's: a role's that has placed ones of a plan may change again."""
    given = Resources.parse(question.wish.roles[role].resource)
    if role == PS:
        given = Resources(
            {n: a for n, a in given.items() if n not in TRUSTED_PS or a.value >= TRUSTED_PS[n].value}
        )
    return Resources({name: amount for name, amount in resource.items() if name not in given})


def _changed(resource: Resources, now: Resources) -> Resources:
    return Resources({n: a for n, a in resource.items() if a.value > 0 and (n not in now or now[n] != a)})


def _says(group: Group) -> bool:
    return group.count is not None or bool(group.resource)


def _needs(question: Question, groups: Mapping[str, Group], nodes: Mapping[str, Resources]) -> Resources:
    """What the whole job needs with these changes."""
    total = NOTHING
    for role in question.wish.roles:
        group = groups.get(role, Group())
        count = group.count if group.count is not None else question.count(role)
        each = question.resource(role) | group.resource
        own = {n: r for n, r in question.placed.nodes.items() if question.role_of(n) == role}
        exceptions = {n: each | Resources.parse(r) for n, r in own.items()}
        for name, resource in nodes.items():
            if question.role_of(name) == role:
                exceptions[name] = exceptions.get(name, each) | resource
        total = total + each * max(0, count - len(exceptions))
        total = sum(list(exceptions.values())[:count], total)
    return total


def _remarks(question: Question, plan: ResourcePlan, groups: Mapping[str, Group]) -> Iterator[str]:
    for role, asked in plan.groups.items():
        if role not in question.wish.roles:
            yield f"there is no role {role}"
        elif not question.wish.roles[role].auto:
            yield f"{role} has autoScale: false"
        elif asked.count is not None and (got := groups.get(role, Group()).count) not in (None, asked.count):
            yield f"{got} of {role} is what bounds, limits and room allow"


def _clipped(resource: Resources) -> Resources:
    return Resources(
        {
            n: min(max(a, CLIPPED[n][0]), CLIPPED[n][1]) if n in CLIPPED and a else a
            for n, a in resource.items()
            if a
        }
    )


def _clipped_count(role: str, count: int | None) -> int | None:
    return min(count, CLIPPED_COUNTS.get(role, count)) if count else None
