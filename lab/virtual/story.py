"""Random stories of a world: what happens, when; and what must be true once nothing happens any more."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.kueue import QUEUE_NAME
from elasticjob.controllers.kueue.workload import CLUSTER_QUEUE, LOCAL_QUEUE, NEEDED, REPLACES, WORKLOAD
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD
from lab.truths.quota import flavors, holds, is_true, request, told
from lab.virtual.cluster import MACHINES, TEAM, Broken, World, dijob, job
from lab.virtual.kueue import Mode, order
from lab.virtual.operator import Crashes

QUIET: Final = 200.0
"""Seconds without a write after which a world is at rest: jobs look for quota again after a minute."""
LONGEST: Final = 900.0
SLICE: Final = "elasticjob.dlrover/slice"

Event = Callable[[World], Awaitable[None] | None]


async def tell(seed: int, events: int = 24, *, verbose: bool = False) -> World:
    """Let a story happen, and check it. Raises Broken."""
    chance = Random(seed)
    world = World(chance, verbose=verbose)
    world.start()
    crashes = Crashes(world.breaks)
    logging.getLogger().addHandler(crashes)
    try:
        for number in range(events):
            name, happens = chance.choice(EVENTS) if number > 1 else EVENTS[0]
            await _happen(world, name, happens)
            if world.broken:
                raise _broken(world, seed, "at an instant", world.broken)
            await asyncio.sleep(chance.choice((0.0, 0.02, 0.3, 1, 5, 40)))
        _heal(world)
        await _rest(world, seed)
        if wrong := at_rest(world):
            raise _broken(world, seed, "at rest", wrong)
        for each in world.jobs():
            world.server.remove(ELASTICJOB, each)
        for each in world.server.every(DIJOB):
            world.server.remove(DIJOB, each)
        for each in world.foreign():
            world.server.remove(WORKLOAD, each)
        await _rest(world, seed)
        if wrong := at_the_end(world):
            raise _broken(world, seed, "at the end", wrong)
    finally:
        await world.kill()
        logging.getLogger().removeHandler(crashes)
    return world


async def _happen(world: World, name: str, happens: Event) -> None:
    before = len(world.diary)
    world.note(f"--- {name}")
    if awaited := happens(world):
        await awaited
    if len(world.diary) == before:
        world.note(name)


def _broken(world: World, seed: int, when: str, wrong: list[str]) -> Broken:
    told = "\n".join(world.diary[-400:])
    return Broken(f"seed {seed}, {when}: {'; '.join(wrong)}\n{told}")


async def _rest(world: World, seed: int) -> None:
    """Run on until nothing changes."""
    began = asyncio.get_running_loop().time()
    version, since = -1, began
    while (now := asyncio.get_running_loop().time()) - since < QUIET:
        if now - began > LONGEST:
            raise _broken(world, seed, "at rest", ["it never comes to rest"])
        await asyncio.sleep(10)
        if world.broken:
            raise _broken(world, seed, "at an instant", world.broken)
        if world.server.version != version:
            version, since = world.server.version, asyncio.get_running_loop().time()


def _heal(world: World) -> None:
    """Nothing more goes wrong."""
    world.note("--- all is well from now on")
    world.server.away, world.server.trouble = False, 0.0
    world.kueue_starts()
    if world.operator is None:
        world.start()
    for name in MACHINES:
        world.find(name)
    world.stop_queues("None")
    for each in world.server.every(WORKLOAD):
        if not each["spec"].get("active", True) and LABEL_JOB not in each["metadata"].get("labels", {}):
            world.activate(each["metadata"]["name"], True)


# what must hold at rest


def at_rest(world: World) -> list[str]:
    """Return what is wrong where nothing happens any more."""
    every = world.server.every(WORKLOAD)
    wrong = [
        f"Workload {each['metadata']['name']} is Admitted and Evicted: {told(each)}"
        for each in every
        if is_true(each, "Admitted") and is_true(each, "Evicted") and not is_true(each, "Finished")
    ]
    wrong += [
        f"Workload {each['metadata']['name']} never goes"
        for each in every
        if "deletionTimestamp" in each["metadata"]
    ]
    if not wrong:
        for each in world.jobs():
            wrong += _about(world, each)
        for each in world.server.every(DIJOB):
            if QUEUE_NAME in (each["metadata"].get("labels") or {}):
                wrong += _about_players(world, each)
    return wrong


def _about_players(world: World, found: Manifest) -> list[str]:
    """Return what is wrong with a DIJob."""
    name = found["metadata"]["name"]
    every = _of(world, name)
    bases = [each for each in every if SLICE not in each["metadata"]["labels"]]
    if found.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        mine = [each for each in every if holds(each)]
        return [f"DIJob {name} is over, and {_names(mine)} hold quota"] if mine else []
    if len(bases) != 1:
        return [f"DIJob {name} has the bases {_names(bases)}"]
    [base] = bases
    if not base["spec"].get("active", True):
        return []
    if not holds(base):
        stands = _is_next(world, base) and _fits(world, base, with_slices=True)
        return [f"DIJob {name} waits, though quota for it is idle or surplus: {told(base)}"] if stands else []
    players = [each for each in world.players() if each["metadata"]["name"].startswith(f"{name}-")]
    gated = [each for each in players if each["spec"].get("schedulingGates")]
    crowded = any(not holds(e) and _could(world, e) for e in _pending(world))
    if gated and not crowded and _would_grow(world, base, 1, "coordinator"):
        return [f"{len(gated)} players of DIJob {name} wait, though quota is idle"]
    return []


def _about(world: World, found: Manifest) -> list[str]:
    """Return what is wrong with a job."""
    name = found["metadata"]["name"]
    if found["spec"].get("suspend") or is_true(found, "Complete") or is_true(found, "Failed"):
        mine = [e for e in _of(world, name) if holds(e)]
        return [f"job {name} is over or suspended, and {_names(mine)} hold quota"] if mine else []
    every, beside = _of(world, name), _beside(world, name)
    for each, of in beside:
        counted = world.kueue.counted()
        mode = world.kueue.plan(each, world.kueue.market(counted), counted).mode
        stands = mode is Mode.FIT and each["spec"].get("active", True) and _is_next(world, each)
        if stands and SLICE not in each["metadata"]["labels"]:
            return [f"job {name}: {_names([each])} waits, though quota for it is idle: {told(each)}"]
        grown = sum(_workers(e)[0] for e in every if SLICE in e["metadata"]["labels"] and holds(e))
        (count, cpu), (before, had) = _workers(each), _workers(of)
        needed = smallest_world(found) - grown
        if SLICE not in each["metadata"]["labels"] and cpu <= had and count > max(before, needed):
            return [f"job {name}: {_names([each])} waits for what slices of the job hold"]
    every = [each for each in every if all(each is not waits for waits, _ in beside)]
    bases = [each for each in every if SLICE not in each["metadata"]["labels"]]
    if len(bases) != 1:
        return [f"job {name} has the bases {_names(bases)}"]
    [base], slices = bases, [each for each in every if SLICE in each["metadata"]["labels"]]
    if not base["spec"].get("active", True):
        return [f"job {name} is deactivated, and {_names(slices)} are there"] if slices else []
    pods = [
        p
        for p in world.server.every(POD)
        if _job(p) == name and p["metadata"].get("ownerReferences")
        if p["status"]["phase"] in ("Running", "Succeeded")
    ]
    if not holds(base):
        live = [each for each in pods if each["status"]["phase"] == "Running"]
        wrong = [f"job {name} has no quota, and pods"] if live else []
        if _is_next(world, base) and _fits(world, base, with_slices=True):
            wrong.append(f"job {name} waits, though quota for it is idle or surplus: {told(base)}")
        return wrong
    if any("reclaimablePods" in each["status"] for each in every):
        return []  # a pod that has succeeded and is deleted waits until the base is renewed
    return _about_size(world, found, base, slices, pods)


def _about_size(
    world: World, found: Manifest, base: Manifest, slices: list[Manifest], pods: list[Manifest]
) -> list[str]:
    name, wrong = found["metadata"]["name"], []
    resource = world.server.found(JOBRESOURCE, name, TEAM)
    if resource is None:
        return [f"job {name} has no JobResource"]
    size = resource["spec"]["replicaResourceSpecs"]["worker"].get("replicas", 0)
    cpu = int(resource["spec"]["replicaResourceSpecs"]["worker"].get("resource", {}).get("cpu", 1))
    least = next((s["count"] for s in base["spec"]["podSets"] if s["name"] == "worker"), 0)
    have = least + sum(s["podSets"][0]["count"] for s in (e["spec"] for e in slices if holds(e)))
    if any(not holds(each) for each in slices):
        wrong.append(f"job {name}: slices wait for ever")
    asked = wanted(found, resource)
    unit = found["spec"].get("nodeUnit", 1)
    needed = found["spec"]["replicaSpecs"]["worker"]["minReplicas"]
    if size > have or have > max(needed, asked // unit * unit):
        wrong.append(f"job {name} has {size} nodes and {have} admitted, {asked} are wanted")
    if size < min(have, asked):
        wrong.append(f"job {name} has {size} nodes, though {have} are admitted and {asked} wanted")
    workers = [each for each in pods if each["metadata"]["labels"][LABEL_ROLE] == "worker"]
    running = sum(each["status"]["phase"] == "Running" for each in workers)
    places = len({each["metadata"]["labels"][LABEL_INDEX] for each in workers} | _completed(resource))
    if not running <= size <= places:  # pods that have succeeded stay, also of nodes that are gone
        wrong.append(f"job {name} has {running} of {places} pods, {size} are in its JobResource")
    crowded = any(not holds(e) and _could(world, e) for e in _pending(world))
    if asked - have >= unit and not crowded and _would_grow(world, base, unit, "worker", cpu):
        wrong.append(f"job {name} has {have} of {asked} nodes, though quota is idle")
    return wrong


def _would_grow(world: World, base: Manifest, count: int, role: str, cpu: int = 0) -> bool:
    """Whether Kueue would admit so many more pods of a role now, after all that wait.

    They would have to get the flavor of the others; Kueue gives the first that has room.
    """
    [pods] = (each for each in base["spec"]["podSets"] if each["name"] == role)
    spec = pods["template"]["spec"]
    amount = {"cpu": str(cpu or request(spec))}
    template = {"spec": {**spec, "containers": [{"resources": {"requests": amount}}]}}
    about = {**base["metadata"], "creationTimestamp": "9999", "annotations": {}}
    lower = (base["spec"].get("priority") or 0) - 1
    sets = [{**pods, "count": count, "template": template}]
    more = {**base, "metadata": about, "spec": {**base["spec"], "priority": lower, "podSets": sets}}
    plan = world.kueue.plan(more, world.kueue.market(world.kueue.counted()), [])
    given = plan.flavors.get(role) if plan.mode is Mode.FIT else None
    return _is_next(world, more) and given == flavors(base)[role]


def _is_next(world: World, workload: Manifest) -> bool:
    """Whether Kueue would look at a Workload: of a StrictFIFO queue, at the first one alone."""
    queue = world.kueue.queue_of(workload)
    if world.kueue.spec(queue).get("queueingStrategy") != "StrictFIFO":
        return True
    waiting = (each for each in world.kueue.waiting() if world.kueue.queue_of(each) == queue)
    return all(order(workload) <= order(each) for each in waiting)


def smallest_world(found: Manifest) -> int:
    """The least number of workers of a job, in whole units."""
    unit = int(found["spec"].get("nodeUnit", 1))
    return -(-int(found["spec"]["replicaSpecs"]["worker"].get("minReplicas", 1)) // unit) * unit


def wanted(found: Manifest, resource: Manifest) -> int:
    """The nodes that were asked for last."""
    kept = resource["metadata"].get("annotations", {}).get("elasticjob.dlrover/wanted")
    worker = found["spec"]["replicaSpecs"]["worker"]
    asked = json.loads(kept)["worker"] if kept else worker["replicas"]
    asked = resource["spec"].get("replicas", asked)
    wrote = resource["metadata"].get("annotations", {}).get("elasticjob.dlrover/sizes")
    size = resource["spec"]["replicaResourceSpecs"]["worker"].get("replicas", 0)
    if wrote and json.loads(wrote).get("worker", size) != size:
        asked = size  # an autoscaler's
    unit = found["spec"].get("nodeUnit", 1)
    asked = min(asked, worker.get("maxReplicas", worker["replicas"]))
    return int(max(asked // unit * unit, worker["minReplicas"]))


def _pending(world: World) -> list[Manifest]:
    return [
        each
        for each in world.server.every(WORKLOAD)
        if not is_true(each, "QuotaReserved")
        and each["spec"].get("active", True)
        and SLICE not in each["metadata"].get("labels", {})
        and world.kueue.replaced(each) is None
        and not is_true(each, "Finished")
    ]


def _could(world: World, workload: Manifest) -> bool:
    """Whether a Workload would be admitted into empty queues."""
    return world.kueue.plan(workload, world.kueue.market(()), []).mode is Mode.FIT


def _fits(world: World, workload: Manifest, *, with_slices: bool = False) -> bool:
    """Whether a Workload would be admitted now, or if slices were given back."""
    every = world.kueue.counted()
    kept = [e for e in every if not (with_slices and _is_surplus(e))]
    return world.kueue.plan(workload, world.kueue.market(kept), []).mode is Mode.FIT


def at_the_end(world: World) -> list[str]:
    """Return what is left after everything was deleted."""
    wrong = [
        f"Workload {each['metadata']['name']} is left: {each['metadata'].get('finalizers')} {told(each)}"
        for each in world.server.every(WORKLOAD)
    ]
    return wrong + [f"pod {each['metadata']['name']} is left" for each in world.server.every(POD)]


def _of(world: World, name: str) -> list[Manifest]:
    return [each for each in world.server.every(WORKLOAD) if _job(each) == name]


def _beside(world: World, name: str) -> list[tuple[Manifest, Manifest]]:
    """The Workloads of a job that wait to take the place of others, with those."""
    mine = {each["metadata"]["name"]: each for each in _of(world, name)}
    old = {
        n: e["metadata"].get("annotations", {}).get(REPLACES, "").rpartition("/")[2] for n, e in mine.items()
    }
    waits = ((each, mine[old[n]]) for n, each in mine.items() if old[n] in mine and not holds(each))
    return [(each, replaced) for each, replaced in waits if holds(replaced)]


def _completed(resource: Manifest) -> set[str]:
    """The indexes of workers that have succeeded, of which the pods may be gone."""
    parts = resource.get("status", {}).get("completedIndexes", {}).get("worker", "").split(",")
    ends = (part.partition("-") for part in parts if part)
    return {str(index) for first, _, last in ends for index in range(int(first), int(last or first) + 1)}


def _is_surplus(workload: Manifest) -> bool:
    about = workload["metadata"]
    return SLICE in about.get("labels", {}) and NEEDED not in about.get("annotations", {})


def _workers(workload: Manifest) -> tuple[int, Any]:
    """The number of workers that a Workload is for, and the cores of each."""
    sets = (each for each in workload["spec"]["podSets"] if each["name"] == "worker")
    return next(((each["count"], request(each["template"]["spec"])) for each in sets), (0, 0))


def _job(found: Manifest) -> str:
    return str(found["metadata"].get("labels", {}).get(LABEL_JOB, ""))


def _names(found: list[Manifest]) -> str:
    return ", ".join(each["metadata"]["name"] for each in found) or "none"


# what happens


def _arrive(world: World) -> None:
    chance = world.chance
    unit = 2 if chance.random() < 0.15 else 1
    least = unit * chance.randint(1, 2)
    world.arrive(
        job(
            f"j{chance.randint(0, 3)}",
            chance.choice("ab"),
            least + unit * chance.randint(0, 4),
            least,
            chance.choice((None, None, 8)),
            unit=unit,
            master=chance.random() < 0.25,
            priority="high" if chance.random() < 0.2 else "",
            spot=chance.random() < 0.3,
        )
    )


def _any(world: World, kind: Any) -> str:
    found = sorted(each["metadata"]["name"] for each in world.server.every(kind))
    return world.chance.choice(found) if found else ""


def _one_of(world: World, found: list[Manifest]) -> str:
    return world.chance.choice(found)["metadata"]["name"] if found else ""


def _resize(world: World) -> None:
    world.change_workers(_any(world, ELASTICJOB), replicas=world.chance.randint(1, 7))


def _resume(world: World) -> None:
    for each in world.jobs():
        world.change_job(each["metadata"]["name"], suspend=False)


def _plan(world: World) -> None:
    if name := _any(world, ELASTICJOB):
        replicas, manual = world.chance.randint(1, 7), world.chance.random() < 0.5
        world.plan(name, manual=manual, replicas=replicas)


def _plan_amounts(world: World) -> None:
    if name := _any(world, ELASTICJOB):
        cpu, manual = world.chance.choice((1, 1, 2, 3)), world.chance.random() < 0.5
        world.plan(name, manual=manual, resource={"cpu": str(cpu)})


def _come(world: World) -> None:
    chance = world.chance
    priority = chance.choice((-5, 0, 0, 5))
    spot = chance.random() < 0.3
    world.come(f"f{chance.randint(0, 2)}", chance.choice("ab"), chance.randint(1, 5), priority, spot=spot)


def _hopeless(world: World) -> None:
    """One tenant's Workloads that no queue can ever admit, before all others."""
    queue = world.chance.choice("ab")
    for number in range(world.chance.choice((1, 9))):
        world.come(f"h{number}", queue, 99, 9)


def _change_queue(world: World) -> None:
    """A user names another queue, where no webhook refuses it."""
    if found := world.server.found(ELASTICJOB, _any(world, ELASTICJOB), TEAM):
        labels = {**found["metadata"]["labels"], QUEUE_NAME: world.chance.choice("ab")}
        world.server.change(ELASTICJOB, found, metadata={**found["metadata"], "labels": labels})


def _refuse(world: World) -> None:
    """Kueue does not admit a Workload for a reason that cannot be read."""
    if name := _one_of(world, world.foreign()):
        world.kueue.refused.add(name)


def _add_players(world: World) -> None:
    if name := _any(world, DIJOB):
        world.add_players(name, world.chance.randint(1, 3))


def _change_pods(world: World) -> None:
    """An admission webhook of others changes what pods ask for, or does so no more."""
    world.server.halves = not world.server.halves


def _activate(world: World) -> None:
    if name := _any(world, WORKLOAD):
        world.activate(name, world.chance.random() < 0.6)


def _stop(world: World) -> None:
    kind, name = world.chance.choice((LOCAL_QUEUE, CLUSTER_QUEUE)), world.chance.choice("ab")
    world.change(kind, name, stopPolicy=world.chance.choice(("Hold", "HoldAndDrain")))


async def _restart(world: World) -> None:
    await world.kill()
    await asyncio.sleep(world.chance.choice((0.0, 0.1, 5, 60)))
    world.start()


def _kueue(world: World) -> None:
    world.kueue_stops()
    asyncio.get_running_loop().call_later(world.chance.choice((0.3, 3, 30)), world.kueue_starts)


async def _uninstall(world: World) -> None:
    """Kueue goes, and comes back: no pod leaves in between, and each has quota again soon after."""
    world.server.trouble = 0.0
    await asyncio.sleep(90)  # until what was under way is done
    before = {each["metadata"]["uid"]: each["metadata"]["name"] for each in _staying(world)}
    away = world.chance.choice((0.1, 30, 90))
    told = away < 1 or world.chance.random() < 0.5  # whoever asks later than it is back cannot know
    by_force = away > 1 and world.chance.random() < 0.3
    await asyncio.wait_for(world.uninstall_kueue(told, by_force), 60)  # a finalizer would keep the definition
    await asyncio.sleep(away)
    after = {each["metadata"]["uid"] for each in _staying(world)}
    world.broken += [f"pod {name} left with Kueue" for uid, name in before.items() if uid not in after]
    world.install_kueue()
    await asyncio.sleep(60)
    world.checks()


def _staying(world: World) -> list[Manifest]:
    """The pods that run; not those whose plan for other amounts needs no quota any more."""
    every = (e for e in world.server.every(POD) if "deletionTimestamp" not in e["metadata"])
    return [e for e in every if e["status"]["phase"] == "Running" and _is_as_planned(world, e)]


def _is_as_planned(world: World, pod: Manifest) -> bool:
    found = world.server.found(JOBRESOURCE, _job(pod), TEAM)
    roles = found["spec"]["replicaResourceSpecs"] if found else {}
    role = roles.get(pod["metadata"]["labels"].get(LABEL_ROLE), {})
    return request(pod["spec"]) == int(role.get("resource", {}).get("cpu", request(pod["spec"])))


def _server(world: World) -> None:
    def back() -> None:
        world.server.away = False

    world.server.away = True
    asyncio.get_running_loop().call_later(world.chance.choice((0.1, 1, 10)), back)


def _trouble(world: World) -> None:
    world.server.trouble = world.chance.choice((0.0, 0.1, 0.3))


def _stall(world: World) -> None:
    if world.operator:
        name = world.chance.choice(sorted(world.operator.watches))
        world.operator.watches[name].stall(world.chance.choice((0.5, 2, 4)))


def _lose(world: World) -> None:
    machine = world.chance.choice(MACHINES)
    world.lose(machine)
    asyncio.get_running_loop().call_later(world.chance.choice((0.5, 5, 60)), world.find, machine)


def _end_pod(world: World) -> None:
    if name := _any(world, POD):
        world.end_pod(name, world.chance.choice((137, 137, 143, 1, 0)))


EVENTS: Final[tuple[tuple[str, Event], ...]] = (
    *(("a job arrives", _arrive),) * 4,
    *(("a user resizes", lambda w: w.change_workers(_any(w, ELASTICJOB), replicas=w.chance.randint(1, 7))),)
    * 3,
    ("a user changes the minimum", lambda w: w.bound(_any(w, ELASTICJOB))),
    *(("a plan", _plan),) * 2,
    *(("a plan for other amounts", _plan_amounts),) * 2,
    ("a user suspends", lambda w: w.change_job(_any(w, ELASTICJOB), suspend=True)),
    *(("a user resumes", _resume),) * 2,
    ("a job is deleted", lambda w: w.delete_job(_any(w, ELASTICJOB))),
    *(("another Workload comes", _come),) * 3,
    *(("another Workload goes", lambda w: w.go(_one_of(w, w.foreign()))),) * 2,
    ("hopeless Workloads come", _hopeless),
    *(("an autoscaler resizes", lambda w: w.autoscale(_any(w, JOBRESOURCE), w.chance.randint(1, 7))),) * 2,
    ("a webhook changes pods", _change_pods),
    ("a user names another queue", _change_queue),
    ("Kueue refuses a Workload", _refuse),
    ("a DIJob arrives", lambda w: w.add(DIJOB, dijob(f"d{w.chance.randint(0, 1)}", w.chance.choice("ab")))),
    *(("players come", _add_players),) * 2,
    ("a player goes", lambda w: w.remove(POD, _one_of(w, w.players()))),
    ("a DIJob is deleted", lambda w: w.remove(DIJOB, _one_of(w, w.server.every(DIJOB)))),
    ("a Workload is deactivated or activated", _activate),
    ("a queue stops", _stop),
    *(("the queues go on", lambda w: w.stop_queues("None")),) * 2,
    *(("the operator is killed", _restart),) * 2,
    ("Kueue is down", _kueue),
    ("Kueue is uninstalled, and installed anew", _uninstall),
    ("the API server is away", _server),
    ("requests fail", _trouble),
    *(("a watch stalls", _stall),) * 2,
    ("a machine is lost", _lose),
    ("a pod ends", _end_pod),
    ("a pod is deleted", lambda w: w.remove(POD, _any(w, POD))),
)
