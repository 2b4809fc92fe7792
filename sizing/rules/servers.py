"""Sizes of a job with parameter servers: workers, servers, and the cores of each server, in one change.

With p the cores that all servers use per worker, w those that a worker uses, L the limit of the job:

    workers   = L / (w + p/TARGET); without a limit, those that find room; at most AT_ONCE at once
    servers   = workers · p / TARGET / c, with the cores c of the largest, at most LARGEST
    cores     = of each server what it uses, times workers/workers now, / TARGET: the hot one gets its own

No worker is added while a server has less than a twentieth of its cores left and cannot get more, and none
if those added last brought less than PAYS of what one brought before.

Brain, which knows how long the training takes, sizes servers for the workers yet to come instead: `hot` and
`idle`, rows of the table in section 11 of the reference design.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from math import ceil, floor, inf
from typing import Final

from elasticjob.api.resources import NOTHING, Resources
from elasticjob.api.roles import CHIEF, PS, WORKER
from elasticjob.api.sizes.change import Change, Group
from elasticjob.api.sizes.facts import Stage
from elasticjob.sizing.facts import Facts
from elasticjob.sizing.measures import (
    TRAIN,
    Window,
    cores,
    last_growth,
    means,
    newest,
    of_servers,
    resource,
    shares,
)
from elasticjob.sizing.thresholds import AT_LIMIT, AT_ONCE, CROWDED, HOT, MARGIN, PAYS, STEP, TARGET, WIDEST

LARGEST: Final = 16.0
MOST: Final = 32.0
"""Cores of a server: at which another one is better, and the most that a hot one gets."""
WORTH: Final = 1.3
"""Cores are taken only if a server has this many times as many as it would get."""
ALIKE: Final = 1.2
LEAST: Final = 0.1
ENOUGH: Final = 3
"""Samples with the present servers, before any plan."""
TARGET_WORKERS: Final = 32
"""Workers that the servers of a running job are sized for, where Brain decides."""
LONG: Final = timedelta(seconds=3600)
IDLE: Final = 0.4
"""The share of its cores below which a server of a job that runs for LONG gives some away."""


def propose(facts: Facts) -> Change:
    """Return the next sizes; an empty change says why they stay."""
    window = of_servers(facts.samples)
    if not facts.settled or len(window.samples) < ENOUGH:
        return Change(reason="the records with these parameter servers are too few")
    per, each = window.all_servers(), window.cpu(*TRAIN)
    if not per or not each:
        return Change(reason="what parameter servers and workers use is not known")
    per /= window.workers
    workers = _workers(facts, window, per, each)
    found = _servers(facts, window, workers, per) or _nodes(facts, window, workers)
    if workers != window.workers and (count := _count(facts, window, workers)) != facts.count(WORKER):
        found |= Change({WORKER: Group(count)})
    told = f"{window.workers} workers use {each:.3g} cores each, and {per:.3g} of the parameter servers"
    if not found:
        return Change(reason=f"{told}: nothing has to change")
    return Change(found.groups, found.nodes, f"{told}: {workers} workers{_say(found)}")


def _workers(facts: Facts, window: Window, per: float, each: float) -> int:
    """The number of workers and chiefs for which all is in proportion; never fewer than now."""
    now, role = window.workers, facts.roles.get(WORKER)
    if role is None or not role.elastic or _pays_no_more(facts) or _is_full(window):
        return now
    demand = facts.demand.get(WORKER)
    size = max(each, demand.cores if demand else 0.0)
    limit = facts.limits.get("cpu")
    most = floor(float(limit.value) / (size + per / TARGET)) if limit else inf
    room = facts.placed.room
    fits = now if room is None else now + room.get(WORKER, 0)
    return max(now, int(min(most, fits if limit is None else inf, now + AT_ONCE)))


def _pays_no_more(facts: Facts) -> bool:
    growth = last_growth(facts.samples)
    return growth is not None and growth.after > growth.before and growth.ratio < PAYS


def _is_full(window: Window) -> bool:
    """Whether a server works at its limit, so that more workers would only wait: it is given more first."""
    busiest = window.busiest()
    return busiest is not None and busiest.cpu >= AT_LIMIT * busiest.cores


def _servers(facts: Facts, window: Window, workers: int, per: float) -> Change:
    now, role = len(window.servers), facts.roles[PS]
    if not role.elastic or not (facts.servers_due or facts.stage is Stage.PS_INITIAL):
        return Change()
    wanted = max(role.smallest, ceil(workers * per / TARGET / LARGEST))
    wanted = min(wanted, role.most) if role.most is not None else wanted
    if wanted <= now:
        return Change()
    resource = Resources({"cpu": cores(workers * per / TARGET / wanted)}) if _is_sized(facts) else NOTHING
    return Change({PS: Group(wanted, resource)})


def _nodes(facts: Facts, window: Window, workers: int) -> Change:
    """The cores of each server; of the role, where all need about the same."""
    if not _is_sized(facts):
        return Change()
    growth = workers / window.workers
    needs = {n: min(MOST, (window.server(n) or 0.0) * growth / TARGET) for n in window.servers}
    had = {n: float(r["cpu"].value) for n in needs if "cpu" in (r := facts.resource_of(PS, n))}
    other = {n: need for n, need in needs.items() if need and _is_worth(need, had.get(n, need))}
    if not other:
        return Change()
    if max(needs.values()) <= ALIKE * min(needs.values()) and not facts.placed.nodes:
        return Change({PS: Group(resource=Resources({"cpu": cores(max(needs.values()))}))})
    return Change(nodes={n: Resources({"cpu": cores(max(need, LEAST))}) for n, need in other.items()})


def _is_sized(facts: Facts) -> bool:
    """Whether the cores of servers are ours to say."""
    return bool(facts.resource(PS).get("cpu"))


def _is_worth(need: float, had: float) -> bool:
    return need > had * 1.05 or had > WORTH * need


def _count(facts: Facts, window: Window, workers: int) -> int:
    """The workers among workers and chiefs."""
    chiefs = facts.count(CHIEF) if CHIEF in facts.roles else 0
    return workers - chiefs


def _say(change: Change) -> str:
    group = change.groups.get(PS, Group())
    count = f", {group.count} parameter servers" if group.count else ""
    each = f", each parameter server gets {_amounts(group.resource)}" if group.resource else ""
    return (
        count
        + each
        + "".join(f", {name} gets {_amounts(resource)}" for name, resource in change.nodes.items())
    )


def _amounts(resource: Mapping[str, object]) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in resource.items())


def hot(facts: Facts) -> Change | None:
    """A server that works at its limit: every server gets what it uses, times the workers yet to come."""
    samples = newest(facts.samples)
    busy = {name: share for name, share in shares(samples, PS).items() if share > HOT}
    crowded = _over_share(facts)
    if not busy and not crowded:
        return None
    nodes: dict[str, Resources] = {}
    if busy and samples[-1].workers:
        used = means(samples, PS)
        times = min(max(1.0, TARGET_WORKERS / samples[-1].workers), WIDEST / max(used[name] for name in busy))
        wanted = {name: min(WIDEST, ceil(mean * times)) for name, mean in used.items()}
        given = {use.name: use.cores for use in samples[-1].of(PS)}
        nodes = {name: resource(cores) for name, cores in wanted.items() if cores > given.get(name, 0.0)}
    for name, had in crowded.items():
        nodes[name] = nodes.get(name, NOTHING) | resource(None, had + STEP)
    if not nodes:
        return None
    told = [f"{name} uses {share:.0%} of its cores" for name, share in sorted(busy.items())]
    told += [f"{name} more than {CROWDED:.0%} of its memory" for name in sorted(crowded)]
    return Change(nodes=nodes, reason="; ".join(told[:4]))


def _over_share(facts: Facts) -> Mapping[str, int]:
    """Return the memory of each server that has used more than its share in each of the newest samples."""
    samples = newest(facts.samples)
    if not samples:
        return {}
    last = {use.name: use.bytes for use in samples[-1].of(PS)}
    full = ({use.name for use in sample.of(PS) if use.memory_share > CROWDED} for sample in samples)
    names = set(last).intersection(*full)
    return {name: last[name] for name in names}


def idle(facts: Facts) -> Change | None:
    """No server is hot, and some do little: they get the cores that they use, while the job runs for long."""
    samples = newest(facts.samples)
    busy = shares(samples, PS)
    if not busy or max(busy.values()) > HOT or facts.remaining is None or facts.remaining < LONG:
        return None
    wide = any(use.cpu >= HOT * WIDEST for use in samples[-1].of(PS))
    if not wide and samples[-1].workers < TARGET_WORKERS:
        return None
    most = means(samples, PS)
    given = {use.name: use.cores for use in samples[-1].of(PS)}
    nodes = {
        name: resource(ceil(most[name]) + MARGIN)
        for name, share in busy.items()
        if share < IDLE and ceil(most[name]) + MARGIN < given[name]
    }
    if not nodes:
        return None
    return Change(nodes=nodes, reason=f"{len(nodes)} servers use less than {IDLE:.0%} of their cores")
