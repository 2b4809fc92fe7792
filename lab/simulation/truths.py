"""Truths of the control plane: with each change, where nothing changes, and when all is gone.

A truth is a row: `step` says what is wrong with a change, `rest` what is wrong where nothing happens any
more, `gone` what is wrong after everything was deleted. Each sees the objects as the server has them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.paddle.trainingjob import TRAININGJOB
from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.kueue.workload import WORKLOAD
from elasticjob.controllers.parts.names import MASTER
from elasticjob.controllers.parts.names import master as master_name
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import EVENT, LEASE, NODE, POD, SERVICE
from lab.simulation.connection import OPERATOR, USER
from lab.simulation.reading import (
    bounds_of,
    end_of,
    forgives,
    has_unplaced,
    indexes,
    indices_of,
    is_manual,
    is_over,
    is_queued,
    job_of,
    lives,
    name_of,
    owner_of,
    phase_of,
    place_of,
    resource_of,
    role_of,
    spec_of_role,
    stands_in,
    told_indexes,
    uid_of,
)
from lab.simulation.trained import round_of, untrue_end, went_back
from lab.truths import quota
from lab.virtual import story

if TYPE_CHECKING:
    from lab.simulation.world import World

OVER: Final = ("Succeeded", "Failed", "Superseded")
OURS: Final = frozenset(kind.resource for kind in (ELASTICJOB, JOBRESOURCE, SCALEPLAN, DIJOB, TRAININGJOB))
SOON: Final = 1.0
"""Seconds after which a controller has heard of a change, unless its watch lags."""
TOLD: Final = 5.0
"""Seconds within which a status is of the generation of its object."""
ENDS_OF_TRAININGS: Final = {"Complete": "succeeded", "Failed": "failed"}
"""The phase of a TrainingJob by the end of its ElasticJob."""
WAITING: Final = ("NameTaken", "Refused", "WaitingForQuota")
"""Reasons of what is not as it should be, for which others are to act."""
LATE: Final = 8.0
"""Seconds in which a controller may act on what it has read before: its patience, and requests."""


@dataclass(frozen=True)
class Change:
    """A change of one object, and the program that made it; "" for machines and the cluster itself."""

    by: str
    resource: str
    old: Manifest | None
    new: Manifest | None

    @property
    def object(self) -> Manifest:
        return self.new or self.old or {}

    def of(self, kind: Kind[Any]) -> bool:
        return self.resource == kind.resource

    @property
    def is_new(self) -> bool:
        return self.old is None


def nothing(world: World, change: Change) -> Iterable[str]:
    """The step of a truth that looks at no change."""
    return ()


@dataclass(frozen=True)
class Truth:
    """One row; see the module. `of`: the resources whose changes `step` looks at; None: all."""

    name: str
    step: Callable[[World, Change], Iterable[str]] = nothing
    rest: Callable[[World], Iterable[str]] = lambda world: ()
    gone: Callable[[World], Iterable[str]] = lambda world: ()
    of: Collection[str] | None = None

    def looks_at(self, resource: str) -> bool:
        """Whether its step looks at changes of a resource."""
        return self.step is not nothing and (self.of is None or resource in self.of)


# pods


def one_life(world: World, change: Change) -> Iterator[str]:
    if not (change.of(POD) and change.is_new and change.by == OPERATOR):
        return
    mine = place_of(change.object)
    alive = [each["metadata"]["name"] for each in world.server.every(POD) if lives(world, each)]
    same = [name for name in alive if place_of(world.there(POD, name) or {}) == mine]
    if mine and len(same) > 1:
        yield f"{' and '.join(same)} live at once"


def done_once(world: World, change: Change) -> Iterator[str]:
    """A node whose work is done does not run again, as long as it is asked for."""
    done: dict[tuple[str, str], set[int]] = world.memory.setdefault("done", {})
    if change.of(JOBRESOURCE) and change.new:
        uid, status = change.new["metadata"]["uid"], change.new.get("status") or {}
        for role, text in status.get("completedIndexes", {}).items():
            done.setdefault((uid, role), set()).update(indexes(text))
        for (of, role), indices in done.items():
            if of == uid and not change.new["spec"].get("suspend"):
                indices &= indices_of(change.new, role)
    if change.of(POD) and change.new and change.new["status"]["phase"] == "Succeeded" and not change.is_new:
        world.at(SOON, _succeeds, world, change.new)
    if change.of(POD) and change.is_new and change.by == OPERATOR:
        labels = change.object["metadata"].get("labels", {})
        known = done.get((owner_of(change.object), labels.get(LABEL_ROLE, "")), ())
        if int(labels.get(LABEL_INDEX, -1)) in known and not world.is_blind:
            yield f"{name_of(change.object)} is made, and its node has succeeded"


def spent_once(world: World, change: Change) -> Iterator[str]:
    """A node that has failed for good does not run again, unless its user changes the job."""
    spent: dict[tuple[str, str], set[int]] = world.memory.setdefault("spent", {})
    if change.of(ELASTICJOB) and change.old and change.new and change.old["spec"] != change.new["spec"]:
        spent.clear()
    if change.of(JOBRESOURCE) and change.new:
        for role, text in (change.new.get("status") or {}).get("failedIndexes", {}).items():
            spent[uid_of(change.new), role] = indexes(text) & indices_of(change.new, role)
    if change.of(POD) and change.is_new and change.by == OPERATOR:
        uid, role, index = place_of(change.object) or ("", "", "0")
        if int(index) in spent.get((uid, role), ()) and not world.lags:
            yield f"{name_of(change.object)} is made, and its node has failed for good"


def lately(known: Sequence[tuple[float, Manifest]], world: World, seconds: float) -> list[Manifest]:
    """Of values and the times from which each holds, those that held within the last seconds."""
    since = world.time - seconds
    return [each for at, each in known if at <= since][-1:] + [each for at, each in known if at > since]


def services_come_back(world: World, change: Change) -> Iterable[str]:
    """A master's Service that others delete is there again within seconds."""
    job = change.object["metadata"].get("labels", {}).get(LABEL_JOB, "")
    if change.new is None and change.by == USER and name_of(change.object) == master_name(job):
        world.at(TOLD, _is_back, world, job, uid_of(world.there(ELASTICJOB, job)))
    return ()


def _is_back(world: World, name: str, uid: str) -> None:
    job, resource = world.there(ELASTICJOB, name), world.there(JOBRESOURCE, name)
    if job is None or resource is None or uid_of(job) != uid or "deletionTimestamp" in job["metadata"]:
        return
    if _wants_its_master(job) and world.calm_for > TOLD and world.there(SERVICE, master_name(name)) is None:
        world.breaks(f"services-come-back: {master_name(name)} is not there {TOLD:g} s after its deletion")


def _wants_its_master(job: Manifest) -> bool:
    spec = job["spec"]
    idle = spec.get("suspend") or spec.get("managedBy") or spec.get("distributionStrategy") == "Local"
    return not (idle or is_over(job) or _blocked(job))


def lost_pods_are_given_up(world: World, change: Change) -> Iterable[str]:
    """The pods of a machine that is gone are deleted within seconds, before the cluster does it."""
    if change.new is None:
        world.at(TOLD, _are_given_up, world, name_of(change.object))
    return ()


def _are_given_up(world: World, machine: str) -> None:
    if world.there(NODE, machine) is not None or world.calm_for <= TOLD:
        return
    for pod in world.server.every(POD):
        resource = resource_of(world, pod) if pod["spec"].get("nodeName") == machine else None
        job = world.there(ELASTICJOB, name_of(resource)) if resource else None
        if resource is None or job is None or is_over(job) or _blocked(resource):
            continue
        goes = {"deletionTimestamp"} & {*pod["metadata"], *resource["metadata"]} or job["spec"].get(
            "managedBy"
        )
        if pod["status"]["phase"] == "Running" and not goes:
            world.breaks(f"lost-are-given-up: {name_of(pod)} stays {TOLD:g} s after its machine")


def _succeeds(world: World, pod: Manifest) -> None:
    """Remember a node whose pod has succeeded, where the operator has had the time to write that."""
    found, resource, place = world.there(POD, name_of(pod)), resource_of(world, pod), place_of(pod)
    if "deletionTimestamp" in pod["metadata"]:  # it was told to end, and did
        return
    if uid_of(found) != uid_of(pod) or resource is None or place is None or not world.is_calm:
        return
    owner, role, index = place
    again = spec_of_role(world, resource, role).get("restartPolicy") == "Always"
    if not again and int(index) in indices_of(resource, role):
        world.memory["done"].setdefault((owner, role), set()).add(int(index))


def within_size(world: World, change: Change) -> Iterator[str]:
    """No pod is made for a node that its JobResource has not lately had."""
    known: dict[str, list[tuple[float, Manifest]]] = world.memory.setdefault("sizes", {})
    if change.of(JOBRESOURCE) and change.new:
        known.setdefault(change.new["metadata"]["uid"], []).append((world.time, change.new))
    if not (change.of(POD) and change.is_new and change.by == OPERATOR):
        return
    resource, labels = resource_of(world, change.object), change.object["metadata"].get("labels", {})
    role, index = labels.get(LABEL_ROLE, ""), labels.get(LABEL_INDEX)
    if resource is None or role == MASTER or index is None or stands_in(change.object, ()):
        return
    seen = known[resource["metadata"]["uid"]]
    if not any(int(index) in indices_of(each, role) for each in lately(seen, world, max(LATE, world.held))):
        asked = sorted(indices_of(resource, role))
        yield f"{name_of(change.object)} is made, and {role} has the nodes {asked}"


def over_is_over(world: World, change: Change) -> Iterator[str]:
    """A job that has ended makes no pod, and never runs again."""
    ended: dict[str, float] = world.memory.setdefault("ended", {})
    if change.of(ELASTICJOB) and change.new and is_over(change.new):
        ended.setdefault(change.new["metadata"]["uid"], world.time)
    before, after = (end_of(each) if each else "" for each in (change.old, change.new))
    revived = change.of(ELASTICJOB) and before in ("Complete", "Failed") and after not in ("", before)
    if revived and not world.lags:  # else it is the write of a leader that was stopped, which the next mends
        yield f"{name_of(change.object)} was {before}, and is {after}"
    if change.of(POD) and change.is_new and change.by == OPERATOR and not world.lags:
        resource = resource_of(world, change.object)
        over = world.time - ended.get(owner_of(resource), world.time) if resource else 0.0
        if over > SOON:
            yield f"{name_of(change.object)} is made, and its job has been over for {over:.1f} s"


# writers


def own_objects(world: World, change: Change) -> Iterator[str]:
    """The operator changes and deletes what is its own."""
    if change.by != OPERATOR or change.old is None or change.resource in OURS or change.of(WORKLOAD):
        return
    about = change.old["metadata"]
    owners = about.get("ownerReferences", ())
    ours = any(each["kind"] in ("ElasticJob", "JobResource", "DIJob", "TrainingJob") for each in owners)
    if not ours:
        verb = "deletes" if change.new is None else "changes"
        yield f"the operator {verb} {change.resource} {about['name']}, which is of others"


def specs_are_users(world: World, change: Change) -> Iterator[str]:
    """No program of ours writes what users ask for; a TrainingJob's controller is the user of its job."""
    if change.by != OPERATOR or not change.of(ELASTICJOB) or change.old is None or change.new is None:
        return
    if owner_of(change.new):
        return
    if change.old["spec"] != change.new["spec"]:
        yield f"the operator changes the spec of ElasticJob {name_of(change.object)}"


def plans_end_once(world: World, change: Change) -> Iterator[str]:
    if change.of(SCALEPLAN) and change.is_new:
        world.memory.setdefault("plans", {})[uid_of(change.object)] = world.server.version
    if not change.of(SCALEPLAN) or change.old is None or change.new is None:
        return
    before, after = phase_of(change.old), phase_of(change.new)
    if before in OVER and after != before and not world.lags:
        yield f"plan {name_of(change.object)} was {before}, and is {after}"
    if after == "Superseded" != before and is_manual(change.new):
        job, every = world.there(ELASTICJOB, job_of(change.new)), world.of_job(SCALEPLAN, job_of(change.new))
        order = world.memory.setdefault("plans", {})
        newer = [each for each in every if order[uid_of(each)] > order[uid_of(change.new)]]
        if job and not is_over(job) and newer and not any(map(is_manual, newer)):
            yield f"plan {name_of(change.object)} of a user is superseded by {name_of(newer[0])}"


def plan_at_once(world: World, change: Change) -> Iterator[str]:
    """One plan is carried out at a time."""
    if change.of(SCALEPLAN) and change.new and phase_of(change.new) == "Scaling" and not world.lags:
        every = world.of_job(SCALEPLAN, job_of(change.new))
        found = sorted(name_of(each) for each in every if phase_of(each) == "Scaling")
        if len(found) > 1:
            yield f"plans {' and '.join(found)} are carried out at once"


def status_goes_on(world: World, change: Change) -> Iterator[str]:
    """The counts of a status do not fall, and its times do not change."""
    if change.old is None or change.new is None or change.resource not in OURS or world.lags:
        return
    if change.old["metadata"]["uid"] != change.new["metadata"]["uid"]:
        return
    old, new, about = change.old.get("status") or {}, change.new.get("status") or {}, change.new["metadata"]
    what = f"{change.resource.partition('.')[0]} {name_of(change.object)}"
    seen = new.get("observedGeneration", 0)
    if seen < old.get("observedGeneration", 0) or seen > about.get("generation", 0):
        yield f"{what}: observedGeneration was {old.get('observedGeneration')}, and is {seen}"
    stays = not change.new["spec"].get("suspend") and seen == about.get("generation")
    evicted = change.of(ELASTICJOB) and is_queued(change.new) and not new.get("startTime")
    for field in ("completionTime",) if evicted else ("startTime", "completionTime"):
        if stays and old.get(field) and old[field] != new.get(field) and old.get("phase") != "Suspended":
            yield f"{what}: {field} was {old[field]}, and is {new.get(field)}"
    if change.of(ELASTICJOB) and stays and (new.get("restarts") or 0) < (old.get("restarts") or 0):
        yield f"{what}: restarts were {old['restarts']}, and are {new.get('restarts') or 0}"
    if change.of(JOBRESOURCE):
        yield from _facts(world, what, change.old, change.new)
    before = {each["type"]: each for each in old.get("conditions", ())}
    for each in new.get("conditions", ()):
        known = before.get(each["type"], {})
        moved = known.get("lastTransitionTime") != each.get("lastTransitionTime")
        if known.get("status") == each["status"] and moved and world.time > world.doubtful:
            yield f"{what}: condition {each['type']} stays {each['status']}, with another time"


def told_in_time(world: World, change: Change) -> Iterable[str]:
    """The generation that a user makes is observed within seconds, where nothing goes wrong meanwhile."""
    before, now = (each["metadata"] if each else {} for each in (change.old, change.new))
    if "deletionTimestamp" not in now and before.get("generation", 0) < now.get("generation", 0):
        world.at(TOLD, _is_told, world, change.resource, now)
    return ()


def _is_told(world: World, resource: str, about: Manifest) -> None:
    found = next(
        (each for each in world.server.objects[resource].values() if uid_of(each) == about["uid"]), None
    )
    if found is None or "deletionTimestamp" in found["metadata"] or found["spec"].get("managedBy"):
        return
    seen = (found.get("status") or {}).get("observedGeneration") or 0
    if world.calm_for > TOLD and seen < about["generation"]:
        what = f"{resource.partition('.')[0]} {about['name']}"
        world.breaks(
            f"told-in-time: {what}: generation {about['generation']} is not observed after {TOLD:g} s"
        )


def _facts(world: World, what: str, before: Manifest, after: Manifest) -> Iterator[str]:
    """Successes and restarts of nodes that stay, which a status has lost."""
    old, new = before.get("status") or {}, after.get("status") or {}
    for role, known in old.get("completedIndexes", {}).items():
        both = indices_of(before, role) & indices_of(after, role)
        if lost := (indexes(known) & both) - indexes(new.get("completedIndexes", {}).get(role, "")):
            yield f"{what}: {role} {sorted(lost)} had succeeded"
    for role, counts in old.get("restarts", {}).items():
        both = indices_of(before, role) & indices_of(after, role)
        now = new.get("restarts", {}).get(role, {})
        less = [index for index, many in counts.items() if int(index) in both and now.get(index, 0) < many]
        if less and not forgives(world, after):
            yield f"{what}: restarts of {role} {', '.join(less)} are forgotten"


def quotas(world: World, change: Change) -> Iterator[str]:
    if world.held and world.lags:  # a leader that was stopped makes the pod that it was about to make
        return
    if change.resource in (WORKLOAD.resource, POD.resource) and world.server.every(WORKLOAD):
        yield from quota.breaches(
            [each for each in world.server.every(POD) if _counts(world, each)],
            world.server.every(WORKLOAD),
            world.kueue.cells().values(),
            world.excused,
        )


def _counts(world: World, pod: Manifest) -> bool:
    """Whether a pod is of a job in a queue, or of none of ours; one that came later may have others."""
    job = world.there(ELASTICJOB, pod["metadata"].get("labels", {}).get(LABEL_JOB, ""))
    resource = resource_of(world, pod)
    mine = job and resource and owner_of(resource) == job["metadata"]["uid"]
    if job and resource is None:  # somebody deleted that: the collector takes the pod
        return False
    entered = [line.given["name"] for line in world.history.lines if line.name == "enqueue"]
    has_quota = quota.WORKLOAD_OF in pod["metadata"].get("annotations", {})
    return has_quota or bool(mine and job and is_queued(job) and name_of(job) not in entered)


def rounds_go_on(world: World, change: Change) -> Iterable[str]:
    """The round in the status of a job never goes back."""
    return went_back(change.old, change.new) if change.of(ELASTICJOB) and change.old and change.new else ()


# where nothing happens any more


def verdicts(world: World) -> Iterator[str]:
    """A job ends as its master says."""
    for name, (_, master) in world.masters.items():
        job = world.there(ELASTICJOB, name)
        mine = job and job["metadata"]["uid"] == world.served[name] and not _is_late(job)
        if job and mine and master.core and not job["spec"].get("suspend"):
            yield from untrue_end(master.core.job, job)


def _is_late(job: Manifest) -> bool:
    """Whether a job failed because its time was over, whatever its nodes achieved by then."""
    return any(
        c["type"] == "Failed" and c["reason"] == "DeadlineExceeded" for c in job["status"]["conditions"]
    )


def as_asked(world: World) -> Iterator[str]:
    """Each node of a JobResource has one pod that runs, or has done its work, or failed for good."""
    for resource in world.server.every(JOBRESOURCE):
        job = world.there(ELASTICJOB, name_of(resource))
        if job and (is_over(job) or job["spec"].get("managedBy")):
            continue
        if "deletionTimestamp" in resource["metadata"]:
            yield f"JobResource {name_of(resource)} never goes"
            continue
        yield from _pods_of(world, resource)


def _pods_of(world: World, resource: Manifest) -> Iterator[str]:
    name = name_of(resource)
    if _blocked(resource):
        return
    every = [p for p in world.server.every(POD) if owner_of(p) == resource["metadata"]["uid"]]
    for role in resource["spec"].get("replicaResourceSpecs", {}):
        failed = told_indexes(resource, "failedIndexes", role)
        asked = indices_of(resource, role)
        mine = [p for p in every if role_of(p) == role and not stands_in(p, asked)]
        alive = {int(p["metadata"]["labels"][LABEL_INDEX]) for p in mine if lives(world, p)}
        if surplus := alive - asked:
            yield f"JobResource {name}: {role} {sorted(surplus)} run, and {sorted(asked)} are asked for"
        done = told_indexes(resource, "completedIndexes", role)
        if lacking := asked - alive - done - failed:
            yield f"JobResource {name}: {role} {sorted(lacking)} do not run, and are asked for"


def _blocked(resource: Manifest) -> bool:
    """Whether its status says why it is not as the spec says: another's object has a name, or a queue."""
    found = resource.get("status", {}).get("conditions", ())
    return any(c["status"] == "False" and c.get("reason") in WAITING for c in found)


def told_truly(world: World) -> Iterator[str]:
    """The status of each object is of its last generation, and counts what is there."""
    for kind in (ELASTICJOB, JOBRESOURCE):
        for each in world.server.every(kind):
            status, about = each.get("status") or {}, each["metadata"]
            if each["spec"].get("managedBy"):
                continue
            if (seen := status.get("observedGeneration")) != (now := about["generation"]):
                yield f"{kind.name} {about['name']} is of generation {now}, its status of {seen}"
    for job in world.server.every(ELASTICJOB):
        resource = world.there(JOBRESOURCE, name_of(job))
        if resource is None or is_over(job):
            continue
        mine = [
            p
            for p in world.server.every(POD)
            if owner_of(p) == resource["metadata"]["uid"] and lives(world, p)
        ]
        for role, told in job.get("status", {}).get("replicaStatuses", {}).items():
            asked, named = indices_of(resource, role), [p for p in mine if role_of(p) == role]
            of_role = [p for p in named if not stands_in(p, asked)]
            running = sum(
                p["status"]["phase"] == "Running" and "deletionTimestamp" not in p["metadata"]
                for p in of_role
            )
            if role != MASTER and (counted := told.get("active", 0)) != running:
                yield f"ElasticJob {name_of(job)}: status counts {counted} of {role}, {running} run"


def children_are_told(world: World) -> Iterator[str]:
    """A TrainingJob says what its ElasticJob says."""
    for each in world.server.every(TRAININGJOB):
        child, status = world.there(ELASTICJOB, name_of(each)), each.get("status") or {}
        if child is None or owner_of(child) != uid_of(each):
            continue
        told, phase = child.get("status") or {}, ENDS_OF_TRAININGS.get(end_of(child))
        if status.get("trainers") != told.get("workers") or (phase and status.get("phase") != phase):
            yield f"TrainingJob {name_of(each)} says {status}, its job {told.get('workers')}, {end_of(child)}"


def masters_are_found(world: World) -> Iterator[str]:
    """A job that runs has its master's Service, and its status the master's last round."""
    for job in world.server.every(ELASTICJOB):
        resource = world.there(JOBRESOURCE, name_of(job))
        if resource is None or _blocked(resource) or not _wants_its_master(job):
            continue
        if world.there(SERVICE, master_name(name_of(job))) is None:
            yield f"ElasticJob {name_of(job)} runs, and there is no Service {master_name(name_of(job))}"
        _, master = world.masters.get(name_of(job), ("", None))
        core = master.core if master and world.served[name_of(job)] == uid_of(job) else None
        if core and round_of(job) != core.job.round:
            yield f"ElasticJob {name_of(job)} is in round {core.job.round}, its status in {round_of(job)}"


def plans_are_over(world: World) -> Iterator[str]:
    """No plan of a job waits for ever without a word."""
    for plan in world.server.every(SCALEPLAN):
        job = world.there(ELASTICJOB, plan["spec"]["ownerJob"])
        resource = world.there(JOBRESOURCE, plan["spec"]["ownerJob"])
        if job is None or resource is None or _blocked(resource):
            continue
        waits = job["spec"].get("suspend") or is_queued(job) or job["spec"].get("managedBy")
        if phase_of(plan) not in OVER and not waits and not has_unplaced(world, job):
            yield f"plan {name_of(plan)} is {phase_of(plan) or 'not looked at'}"


def last_word(world: World) -> Iterator[str]:
    """Where no plan came later, a job has the size that its user asked for last."""
    for job in world.server.every(ELASTICJOB):
        resource = world.there(JOBRESOURCE, name_of(job))
        if resource is None or is_over(job) or is_queued(job) or resource["spec"].get("replicas") is not None:
            continue
        for role, asked in job["spec"]["replicaSpecs"].items():
            placed = resource["spec"].get("replicaResourceSpecs", {}).get(role)
            least, most = bounds_of(asked)
            size = (placed or {}).get("replicas")
            if (
                role not in (MASTER, "master")
                and size is not None
                and not least <= size <= most
                and not job["spec"].get("suspend")
            ):
                yield f"ElasticJob {name_of(job)}: {role} has {size} nodes, its bounds are {least} and {most}"


def queued_rightly(world: World) -> Iterable[str]:
    """Quota is held as the model of Kueue expects, where no object of others is in the way."""
    named = (*world.server.every(JOBRESOURCE), *world.server.every(ELASTICJOB))
    if not world.server.every(WORKLOAD) or any(map(_blocked, named)):
        return ()
    lasting = {name_of(job) for job in world.jobs() if is_over(job) and _keeps_pods(job)}
    short = {name_of(r) for r in world.server.every(JOBRESOURCE) if r.get("status", {}).get("failedIndexes")}
    known = [*(f"job {name} is over" for name in lasting), *(f"job {name} has" for name in short)]
    if world.clock.ahead:  # a try to grow is given up once it is as old as that
        known.append("though quota is idle")
    return [each for each in story.at_rest(world) if not any(sentence in each for sentence in known)]


def _keeps_pods(job: Manifest) -> bool:
    return bool(job["spec"].get("runPolicy", {}).get("cleanPodPolicy") == "None")


def nothing_is_left(world: World) -> Iterator[str]:
    """After the deletion of what users have made nothing is left of it."""
    kept = {kind.resource for kind in (NODE, EVENT, LEASE)} | world.standing
    for resource, found in world.server.objects.items():
        if resource not in kept:
            for each in found.values():
                if not each["metadata"].get("labels", {}).get("foreign"):
                    why = each["metadata"].get("finalizers") or "without finalizers"
                    yield f"{resource} {name_of(each)} is left, {why}"


TRUTHS: Final = (
    Truth("one-life", one_life, of=(POD.resource,)),
    Truth("done-once", done_once, of=(JOBRESOURCE.resource, POD.resource)),
    Truth("within-size", within_size, of=(JOBRESOURCE.resource, POD.resource)),
    Truth("over-is-over", over_is_over, of=(ELASTICJOB.resource, POD.resource)),
    Truth("own-objects", own_objects),
    Truth("specs-are-users", specs_are_users, of=(ELASTICJOB.resource,)),
    Truth("plans-end-once", plans_end_once, of=(SCALEPLAN.resource,)),
    Truth("plan-at-once", plan_at_once, of=(SCALEPLAN.resource,)),
    Truth("status-goes-on", status_goes_on, of=OURS),
    Truth("spent-once", spent_once, of=(ELASTICJOB.resource, JOBRESOURCE.resource, POD.resource)),
    Truth("services-come-back", services_come_back, of=(SERVICE.resource,)),
    Truth("lost-are-given-up", lost_pods_are_given_up, of=(NODE.resource,)),
    Truth("told-in-time", told_in_time, of=(ELASTICJOB.resource, JOBRESOURCE.resource)),
    Truth("quotas", quotas, of=(WORKLOAD.resource, POD.resource)),
    Truth("rounds-go-on", rounds_go_on, of=(ELASTICJOB.resource,)),
    Truth("verdicts", rest=verdicts),
    Truth("as-asked", rest=as_asked),
    Truth("told-truly", rest=told_truly),
    Truth("children-are-told", rest=children_are_told),
    Truth("masters-are-found", rest=masters_are_found),
    Truth("plans-are-over", rest=plans_are_over),
    Truth("last-word", rest=last_word),
    Truth("queued-rightly", rest=queued_rightly),
    Truth("nothing-is-left", gone=nothing_is_left),
)
