"""Sizes of a job with parameter servers: workers, servers, and the cores of each server, in one plan.

With p the cores that all servers use per worker, w those that a worker uses, L the limit of the job:

    workers   = L / (w + p/FULL); without a limit, those that the cluster has room for; at most MORE at once
    servers   = workers · p / FULL / c, with the cores c of the largest, at most LARGEST
    cores     = of each server what it uses, times workers/workers now, / FULL: the hot one gets its own

No worker is added while a server has less than a twentieth of its cores left and cannot get more, and none
if those added last brought less than PAYS of what one brought before.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor, inf
from typing import Final

from elasticjob.api.resources import NOTHING, Resources
from elasticjob.api.v1alpha1.common import CHIEF, PS, WORKER
from elasticjob.master.scaling.growth import PAYS
from elasticjob.master.scaling.optimizer import Question
from elasticjob.master.scaling.plan import Group, ResourcePlan
from elasticjob.master.scaling.samples import TRAIN, Samples, cores, last_growth, of_servers
from elasticjob.master.state.scaling import Stage

FULL: Final = 0.85
"""The share of its cores that a server should use."""
LARGEST: Final = 16.0
MOST: Final = 32.0
"""Cores of a server: at which another one is better, and the most that a hot one gets."""
HOT: Final = 0.95
MORE: Final = 4
WORTH: Final = 1.3
"""Cores are taken only if a server has this many times as many as it would get."""
ALIKE: Final = 1.2
LEAST: Final = 0.1
ENOUGH: Final = 3
"""Records with the present servers, before any plan."""


def plan(question: Question) -> ResourcePlan:
    """Return the next sizes; an empty plan says why they stay."""
    samples = of_servers(question.records)
    if not question.settled or len(samples.records) < ENOUGH:
        return ResourcePlan(reason="the records with these parameter servers are too few")
    per, each = samples.all_servers(), samples.cpu(*TRAIN)
    if not per or not each:
        return ResourcePlan(reason="what parameter servers and workers use is not known")
    per /= samples.workers
    workers = _workers(question, samples, per, each)
    found = _servers(question, samples, workers, per) or _nodes(question, samples, workers)
    if workers != samples.workers and (count := _count(question, samples, workers)) != question.count(WORKER):
        found |= ResourcePlan({WORKER: Group(count)})
    told = f"{samples.workers} workers use {each:.3g} cores each, and {per:.3g} of the parameter servers"
    if not found:
        return ResourcePlan(reason=f"{told}: nothing has to change")
    return ResourcePlan(found.groups, found.nodes, f"{told}: {workers} workers{_said(found)}")


def _workers(question: Question, samples: Samples, per: float, each: float) -> int:
    """The number of workers and chiefs for which all is in proportion; never fewer than now."""
    now, role = samples.workers, question.wish.roles.get(WORKER)
    if role is None or not role.elastic or _pays_no_more(question) or _is_full(samples):
        return now
    demand = question.demand.get(WORKER)
    size = max(each, demand.cores if demand else 0.0)
    limit = question.limits.get("cpu")
    most = floor(float(limit.value) / (size + per / FULL)) if limit else inf
    room = question.placed.room
    fits = now if room is None else now + room.get(WORKER, 0)
    return max(now, int(min(most, fits if limit is None else inf, now + MORE)))


def _pays_no_more(question: Question) -> bool:
    growth = last_growth(question.records)
    return growth is not None and growth.after > growth.before and growth.ratio < PAYS


def _is_full(samples: Samples) -> bool:
    """Whether a server works at its limit, so that more workers would only wait: it is given more first."""
    busiest = samples.busiest()
    return busiest is not None and busiest.cpu >= HOT * busiest.cores


def _servers(question: Question, samples: Samples, workers: int, per: float) -> ResourcePlan:
    now, role = len(samples.servers), question.wish.roles[PS]
    if not role.elastic or not (question.servers_due or question.stage is Stage.PS_INITIAL):
        return ResourcePlan()
    wanted = max(role.smallest, ceil(workers * per / FULL / LARGEST))
    wanted = min(wanted, role.most) if role.most is not None else wanted
    if wanted <= now:
        return ResourcePlan()
    resource = Resources({"cpu": cores(workers * per / FULL / wanted)}) if _is_sized(question) else NOTHING
    return ResourcePlan({PS: Group(wanted, resource)})


def _nodes(question: Question, samples: Samples, workers: int) -> ResourcePlan:
    """The cores of each server; of the role, where all need about the same."""
    if not _is_sized(question):
        return ResourcePlan()
    growth = workers / samples.workers
    needs = {n: min(MOST, (samples.server(n) or 0.0) * growth / FULL) for n in samples.servers}
    had = {n: float(r["cpu"].value) for n in needs if "cpu" in (r := question.resource_of(PS, n))}
    other = {n: need for n, need in needs.items() if need and _is_worth(need, had.get(n, need))}
    if not other:
        return ResourcePlan()
    if max(needs.values()) <= ALIKE * min(needs.values()) and not question.placed.nodes:
        return ResourcePlan({PS: Group(resource=Resources({"cpu": cores(max(needs.values()))}))})
    return ResourcePlan(nodes={n: Resources({"cpu": cores(max(need, LEAST))}) for n, need in other.items()})


def _is_sized(question: Question) -> bool:
    """Whether the cores of servers are ours to say."""
    return bool(question.resource(PS).get("cpu"))


def _is_worth(need: float, had: float) -> bool:
    return need > had * 1.05 or had > WORTH * need


def _count(question: Question, samples: Samples, workers: int) -> int:
    """The workers among workers and chiefs."""
    chiefs = question.count(CHIEF) if CHIEF in question.wish.roles else 0
    return workers - chiefs


def _said(plan: ResourcePlan) -> str:
    group = plan.groups.get(PS, Group())
    count = f", {group.count} parameter servers" if group.count else ""
    each = f", each parameter server gets {_amounts(group.resource)}" if group.resource else ""
    return (
        count + each + "".join(f", {name} gets {_amounts(resource)}" for name, resource in plan.nodes.items())
    )


def _amounts(resource: Mapping[str, object]) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in resource.items())
