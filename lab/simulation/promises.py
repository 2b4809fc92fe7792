"""Promises of the API on fields and objects, a truth each; the rows are as in truths.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Final

from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.paddle.trainingjob import TRAININGJOB
from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.kueue import QUEUE_NAME, WORKLOAD_OF
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.kueue.workload import WORKLOAD
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import NETWORK_POLICY, POD, POD_DISRUPTION_BUDGET, SERVICE
from lab.simulation.connection import BRAIN, OPERATOR, USER, program_of
from lab.simulation.reading import (
    belongs_to,
    bounds_of,
    is_manual,
    is_over,
    is_queued,
    labels_of,
    name_of,
    owner_of,
    phase_of,
    resource_of,
    role_of,
    told_indexes,
    uid_of,
)
from lab.simulation.truths import LATE, OVER, SOON, TRUTHS, Change, Truth, lately
from lab.truths.quota import ENDED, is_true
from lab.virtual.kueue import condition
from lab.virtual.story import smallest_world

if TYPE_CHECKING:
    from lab.simulation.world import World

PATIENCE: Final = 15.0
"""Seconds after which an operator has done what it is to do, also one that was away for ten."""
CALM: Final = 5.0
"""Passes a second, over five seconds and more, that are too many."""
OTHERS: Final = frozenset({"brain", "gitops", "hpa", "away"})
"""Lines after which somebody else may change a size, or a user is not heard."""


# with each change


def plans_succeed_truly(world: World, change: Change) -> Iterator[str]:
    """A plan that was begun has succeeded once as many nodes run as it asked for, or have done their work."""
    old, new = (each.get("status") or {} if each else {} for each in (change.old, change.new))
    if new.get("phase") != "Succeeded" or not old.get("startTime") or old.get("phase") == "Succeeded":
        return
    name = change.object["spec"]["ownerJob"]
    resource = world.there(JOBRESOURCE, name)
    was_suspended = condition(change.object, "Complete")[1] == "JobSuspended"
    if resource is None or world.lags or resource["spec"].get("suspend") or was_suspended:
        return
    for role, asked in change.object["spec"].get("replicaResourceSpecs", {}).items():
        done = len(told_indexes(resource, "completedIndexes", role))
        pods = (p for p in world.of_job(POD, name) if role_of(p) == role)
        running = sum(p["status"]["phase"] != "Pending" for p in pods)  # one may end in that moment
        size = resource["spec"]["replicaResourceSpecs"].get(role, {}).get("replicas") or 0
        if "replicas" in asked and running + done < size:
            plan = change.object["metadata"]["name"]
            yield f"plan {plan} has succeeded, and {running} of {size} {role} run"


def left_to_others(world: World, change: Change) -> Iterator[str]:
    """A job of another manager is not written, and nothing is made for it."""
    about = change.object["metadata"]
    job = world.there(ELASTICJOB, about["name"])
    mine = change.of(ELASTICJOB) or (change.is_new and belongs_to(change.new, uid_of(job)))
    if job and mine and change.by == OPERATOR and job["spec"].get("managedBy"):
        yield f"{change.resource} {about['name']} is written, and is of {job['spec']['managedBy']}"


def namesakes_are_left(world: World, change: Change) -> Iterator[str]:
    """A write reaches the object that it was meant for, and none that has its name since."""
    born: dict[tuple[str, str], list[tuple[float, str]]] = world.memory.setdefault("born", {})
    uid, name = uid_of(change.object), name_of(change.object)
    lives = born.setdefault((change.resource, name), [])
    if change.is_new:
        lives.append((world.time, uid))
    elif change.by and change.by != USER:
        before = next((each for at, each in reversed(lives) if at <= world.sent), uid)
        if before != uid:
            yield f"{program_of(change.by)} writes {change.resource} {name}, which is a later one"


def lost_pods_go(world: World, change: Change) -> Iterator[str]:
    """A deleted pod whose machine is gone is not left to the cluster, which collects it late."""
    about = change.object["metadata"]
    deleted = about.get("deletionTimestamp")
    ended = change.object["status"]["phase"] in ENDED  # only a name is left
    if change.new or change.by or not deleted or ended or world.operator is None or world.lags:
        return
    waited = (world.server.clock.now() - _read(deleted)).total_seconds()
    job = world.there(ELASTICJOB, about.get("labels", {}).get(LABEL_JOB, ""))
    is_ours = resource_of(world, change.object) is not None  # and of no earlier job of the name
    if job and is_ours and not is_over(job) and not job["spec"].get("managedBy") and waited > PATIENCE:
        yield f"{about['name']} was deleted {waited:.0f} s ago, and waited for its machine"


def evictions_are_answered(world: World, change: Change) -> Iterable[str]:
    """Pods leave when the queue takes their quota back."""
    begins = is_true(change.object, "Evicted") and not (change.old and is_true(change.old, "Evicted"))
    if change.new and begins:
        world.at(PATIENCE, _is_answered, world, name_of(change.new), uid_of(change.new))
    return ()


def _is_answered(world: World, name: str, uid: str) -> None:
    workload = world.there(WORKLOAD, name)
    if workload is None or uid_of(workload) != uid or world.lags or world.calm_for < PATIENCE:
        return
    for pod in world.server.every(POD):
        mine = pod["metadata"].get("annotations", {}).get(WORKLOAD_OF) == name
        stays = pod["status"]["phase"] not in ENDED and "deletionTimestamp" not in pod["metadata"]
        if mine and stays and is_true(workload, "Evicted"):
            world.breaks(f"evictions-are-answered: {name_of(pod)} stays {PATIENCE:g} s after its eviction")


def conditions_are_kueues(world: World, change: Change) -> Iterator[str]:
    """What Kueue has written of a Workload is not undone by a write that rests on an older one."""
    if change.by != OPERATOR or change.old is None or change.new is None or _clock_is_set(world):
        return
    now = {each["type"]: each for each in change.new.get("status", {}).get("conditions", ())}
    for each in change.old.get("status", {}).get("conditions", ()):
        found = now.get(each["type"])
        if found is None or found["lastTransitionTime"] < each["lastTransitionTime"]:
            yield f"the operator undoes {each['type']} {each['status']} of Workload {name_of(change.new)}"


def sizes_stay_within_bounds(world: World, change: Change) -> Iterator[str]:
    """No role grows beyond what its job allows, or lately allowed."""
    allowed: dict[str, list[tuple[float, Manifest]]] = world.memory.setdefault("allowed", {})
    if change.of(ELASTICJOB) and change.new:
        allowed.setdefault(uid_of(change.new), []).append((world.time, change.new["spec"]["replicaSpecs"]))
        return
    job = world.there(ELASTICJOB, name_of(change.object))
    if job is None or change.new is None or change.by != OPERATOR or not belongs_to(change.new, uid_of(job)):
        return
    bounds = lately(allowed[uid_of(job)], world, LATE)
    before = change.old["spec"]["replicaResourceSpecs"] if change.old else {}
    for role, placed in change.new["spec"].get("replicaResourceSpecs", {}).items():
        size, most = placed.get("replicas") or 0, max(bounds_of(roles.get(role, {}))[1] for roles in bounds)
        had, unit = before.get(role, {}).get("replicas") or 0, job["spec"].get("nodeUnit", 1)
        if size > max(most, had):
            yield f"ElasticJob {name_of(job)} has {size} {role}, and allows {most}"
        if size != had and role == WORKER and size % unit:
            yield f"ElasticJob {name_of(job)} has {size} {role}, and its nodeUnit is {unit}"


def suspended_jobs_do_not_start(world: World, change: Change) -> Iterator[str]:
    """No pod begins to run long after its job was suspended."""
    since: dict[str, float] = world.memory.setdefault("suspended", {})
    about = change.object["metadata"]
    if change.of(ELASTICJOB) and change.new:
        if not change.new["spec"].get("suspend"):
            since.pop(about["uid"], None)
        else:
            since.setdefault(about["uid"], world.time)
    if change.of(POD) and change.new and change.old and not world.lags and world.operator:
        begins = change.old["status"]["phase"] == "Pending" and change.new["status"]["phase"] == "Running"
        job = world.there(ELASTICJOB, about.get("labels", {}).get(LABEL_JOB, ""))
        suspended_for = world.time - since.get(uid_of(job), world.time)
        if begins and owner_of(change.new) and suspended_for > PATIENCE:
            yield f"{about['name']} begins to run, and its job is suspended"


def in_its_time(world: World, change: Change) -> Iterator[str]:
    """A deadline counts from the start or the last resume, and a time to live from the end."""
    begun: dict[str, float] = world.memory.setdefault("begun", {})
    if change.old is None:
        begun[change.object["metadata"]["uid"]] = world.time
        return
    uid, name, policy = uid_of(change.old), name_of(change.old), change.old["spec"].get("runPolicy", {})
    was, end = change.old.get("status", {}), condition(change.new or {}, "Failed")
    if change.new and change.old["spec"].get("suspend") and not change.new["spec"].get("suspend"):
        begun[uid] = world.time if was.get("phase") == "Suspended" else begun[uid]
    if _clock_is_set(world):
        return
    limit, ttl = policy.get("activeDeadlineSeconds"), policy.get("ttlSecondsAfterFinished")
    fails = change.new and is_true(change.new, "Failed") and not is_true(change.old, "Failed")
    if fails and end[1] == "DeadlineExceeded" and world.time - begun[uid] < limit - SOON:
        yield f"ElasticJob {name} has failed after {world.time - begun[uid]:.0f} s, its deadline is {limit} s"
    if change.by == OPERATOR and (change.new is None or _begins(change, "deletionTimestamp")):
        ended = was.get("completionTime")
        lived = (world.clock.now() - _read(ended)).total_seconds() if ended else 0.0
        if not ended or ttl is None or lived < ttl - SOON:
            yield f"ElasticJob {name} is deleted {lived:.0f} s after its end, its time to live is {ttl} s"


def in_its_own_name(world: World, change: Change) -> Iterator[str]:
    """No program asks in a user's name."""
    if change.by == BRAIN and change.is_new and is_manual(change.object):
        yield f"Brain's plan {change.object['metadata']['name']} is a user's"


def ends_stay(world: World, change: Change) -> Iterator[str]:
    """The counts of failed and succeeded nodes in the status of a job that is over do not fall."""
    if world.lags or change.old is None or change.new is None or not is_over(change.old):
        return
    now = change.new.get("status", {}).get("replicaStatuses", {})
    for role, counts in change.old.get("status", {}).get("replicaStatuses", {}).items():
        for end in ("failed", "succeeded"):
            if now.get(role, {}).get(end, 0) < counts.get(end, 0):
                name = change.new["metadata"]["name"]
                yield f"ElasticJob {name} is over, and had {counts[end]} {role} {end}: {now.get(role)}"


def does_not_change(world: World, change: Change) -> Iterator[str]:
    """The strategy of a job and the spec of a plan are those that they were made with."""
    if change.old is None or change.new is None:
        return
    field = "distributionStrategy" if change.of(ELASTICJOB) else "replicaResourceSpecs"
    before, now = change.old["spec"].get(field), change.new["spec"].get(field)
    if before != now:
        yield f"{change.resource} {change.new['metadata']['name']}: {field} was {before}, and is {now}"


def calm(world: World, change: Change) -> Iterator[str]:
    """Controllers do not look again and again where nothing happens."""
    if (operator := world.operator) is None:
        return
    of, at, passes = world.memory.get("calm", (None, 0.0, 0))
    seconds = world.time - at
    if of is operator and seconds > 5.0 and not world.lags and operator.passes - passes > CALM * seconds:
        yield f"{operator.passes - passes} passes in {seconds:.0f} s without a change"
    world.memory["calm"] = operator, world.time, operator.passes


# at rest


def plans_have_owners(world: World) -> Iterator[str]:
    """A plan belongs to its job, and goes with it."""
    for plan in world.server.every(SCALEPLAN):
        job = world.there(ELASTICJOB, plan["spec"]["ownerJob"])
        if job and not job["spec"].get("managedBy") and not plan["metadata"].get("ownerReferences"):
            yield f"plan {plan['metadata']['name']} has no owner"


def few_plans_are_kept(world: World) -> Iterator[str]:
    """Of the plans that have ended only the last ones stay."""
    for job, _ in _settled(world):
        limit = job["spec"].get("runPolicy", {}).get("scalePlanHistoryLimit", 10)
        ended = [each for each in world.of_job(SCALEPLAN, name_of(job)) if phase_of(each) in OVER]
        if len(ended) > limit + 1:  # the answer to what is asked for now is not counted
            yield f"ElasticJob {name_of(job)} has {len(ended)} plans that have ended, its limit is {limit}"


def services_have_pods(world: World) -> Iterator[str]:
    """A Service of a DIJob's player goes with its pod."""
    for each in world.server.every(SERVICE):
        name, owners = each["metadata"]["name"], each["metadata"].get("ownerReferences", ())
        if any(owner["kind"] == DIJOB.name for owner in owners) and world.there(POD, name) is None:
            yield f"Service {name} has no pod"


def one_template(world: World) -> Iterator[str]:
    """Pods are made from the template and the variables that their job has now."""
    for job, resource in _settled(world):
        worker, envs = job["spec"]["replicaSpecs"]["worker"], job["spec"].get("envs", {})
        image = worker["template"]["spec"]["containers"][0].get("image")
        wanted = {name: each.get("value") for name, each in envs.items()}
        for pod in _alive(world, resource):
            main = pod["spec"]["containers"][0]
            given = {each["name"]: each.get("value") for each in main.get("env", ())}
            other = {name: given.get(name) for name in wanted if given.get(name) != wanted[name]}
            if role_of(pod) == "worker" and (other or main["image"] != image):
                yield f"{pod['metadata']['name']} has {main['image']} {other}, its job {image} {wanted}"


def network_policies(world: World) -> Iterator[str]:
    """A job has a NetworkPolicy unless its spec says so; one that is deleted comes back later."""
    if any(line.given.get("kind") == "networkpolicies" for line in world.history.lines):
        return
    for job, _ in _settled(world):
        name = name_of(job)
        mine = belongs_to(world.there(NETWORK_POLICY, name), uid_of(job))
        if mine != job["spec"].get("networkPolicy", True):
            yield f"ElasticJob {name}: networkPolicy is {not mine}, and there is {'one' if mine else 'none'}"


def as_wished(world: World) -> Iterator[str]:
    """A job has the size that its user asked for last, where nobody else asks."""
    lines = world.history.lines
    if any(line.name in OTHERS for line in lines):
        return
    for job, resource in _settled(world):
        name, worker = job["metadata"]["name"], job["spec"]["replicaSpecs"]["worker"]
        wishes = [line for line in lines if line.given.get("job") == name and "workers" in line.given]
        if not wishes or wishes[-1].name not in ("scale", "plan") or is_queued(job):
            continue
        *earlier, last = wishes
        if any(last.at - 1 < line.at for line in earlier):
            continue  # a request is a plan only once the operator has seen it
        if any(line.at >= last.at and {"most", "least"} & {*line.given} for line in lines):
            continue  # a wish has the bounds of its time
        size, unit = int(last.given["workers"]), int(job["spec"].get("nodeUnit", 1))
        refused = last.name == "scale" and worker.get("replicas") != size
        most = worker.get("maxReplicas") or worker.get("replicas", 0)
        inside = worker.get("minReplicas", 1) <= size <= most
        have = resource["spec"]["replicaResourceSpecs"]["worker"].get("replicas")
        alone = last.given.get("manual") != "no" and job["spec"].get("optimizeMode") == "manual"
        if alone and inside and not (refused or size % unit) and have != size:
            yield f"ElasticJob {name} has {have} workers, and {last} was the last wish"


def trainings_are_followed(world: World) -> Iterator[str]:
    """The ElasticJob of a TrainingJob has its bounds, and is in its queue unless it runs."""
    for training in world.server.every(TRAININGJOB):
        name, asked = name_of(training), training["spec"]["trainer"]
        job = world.there(ELASTICJOB, name)
        by_hand = any(line.name == "edit" and line.given["job"] == name for line in world.history.lines)
        if job is None or is_over(job) or by_hand or not belongs_to(job, uid_of(training)):
            continue
        worker = job["spec"]["replicaSpecs"]["worker"]
        bounds = worker.get("minReplicas"), worker.get("maxReplicas")
        if bounds != (asked["min-instance"], asked["max-instance"]):
            yield f"ElasticJob {name} has the bounds {bounds}, its TrainingJob {asked}"
        queue, mine = (labels_of(each).get(QUEUE_NAME) for each in (training, job))
        if queue and phase_of(job) != "Running" and mine != queue:
            yield f"ElasticJob {name} is in queue {mine}, its TrainingJob in {queue}"


def over_in_time(world: World) -> Iterator[str]:
    """A deadline ends a job, and a time to live its object; pods stay as cleanPodPolicy says."""
    for job in world.server.every(ELASTICJOB):
        policy, name = job["spec"].get("runPolicy", {}), job["metadata"]["name"]
        if job["spec"].get("managedBy"):
            continue
        over, runs = is_over(job), job.get("status", {}).get("startTime") and not job["spec"].get("suspend")
        if runs and not over and "activeDeadlineSeconds" in policy and not _clock_is_set(world):
            yield f"ElasticJob {name} runs, and its deadline has passed"
        if over and "ttlSecondsAfterFinished" in policy and not _clock_is_set(world):
            yield f"ElasticJob {name} is there, and its time to live has passed"
        resource = world.there(JOBRESOURCE, name)
        kept = ENDED if policy.get("cleanPodPolicy", "Running") == "Running" else ()
        left = [p for p in _pods(world, resource) if p["status"]["phase"] not in kept] if resource else []
        if over and left and policy.get("cleanPodPolicy") != "None":
            yield f"ElasticJob {name} is over, {policy}, and {left[0]['metadata']['name']} is there"


def budgets(world: World) -> Iterator[str]:
    """An eviction is never refused for ever: a budget asks for fewer workers than there are."""
    for job, resource in _settled(world):
        every = _alive(world, resource)
        there = sum(role_of(p) == "worker" for p in every)
        found = world.there(POD_DISRUPTION_BUDGET, job["metadata"]["name"])
        least = found["spec"]["minAvailable"] if found else 0
        if least > max(there - 1, smallest_world(job), 0):
            yield f"the budget of ElasticJob {job['metadata']['name']} asks for {least} of {there} workers"


PROMISES: Final = (
    Truth("left-to-others", left_to_others, of=(ELASTICJOB.resource, JOBRESOURCE.resource)),
    Truth("namesakes-are-left", namesakes_are_left),
    Truth("plans-succeed-truly", plans_succeed_truly, of=(SCALEPLAN.resource,)),
    Truth("lost-pods-go", lost_pods_go, of=(POD.resource,)),
    Truth("evictions-are-answered", evictions_are_answered, of=(WORKLOAD.resource,)),
    Truth("conditions-are-kueues", conditions_are_kueues, of=(WORKLOAD.resource,)),
    Truth("sizes-within-bounds", sizes_stay_within_bounds, of=(ELASTICJOB.resource, JOBRESOURCE.resource)),
    Truth("suspended-do-not-start", suspended_jobs_do_not_start, of=(ELASTICJOB.resource, POD.resource)),
    Truth("in-its-time", in_its_time, of=(ELASTICJOB.resource,)),
    Truth("in-its-own-name", in_its_own_name, of=(SCALEPLAN.resource,)),
    Truth("ends-stay", ends_stay, of=(ELASTICJOB.resource,)),
    Truth("does-not-change", does_not_change, of=(ELASTICJOB.resource, SCALEPLAN.resource)),
    Truth("calm", calm),
    Truth("plans-have-owners", rest=plans_have_owners),
    Truth("few-plans-are-kept", rest=few_plans_are_kept),
    Truth("services-have-pods", rest=services_have_pods),
    Truth("one-template", rest=one_template),
    Truth("network-policies", rest=network_policies),
    Truth("as-wished", rest=as_wished),
    Truth("trainings-are-followed", rest=trainings_are_followed),
    Truth("over-in-time", rest=over_in_time),
    Truth("budgets", rest=budgets),
)
EVERY: Final = (*TRUTHS, *PROMISES)


# seen by several promises


def _read(time: str) -> datetime:
    return datetime.fromisoformat(time)


def _begins(change: Change, field: str) -> bool:
    """Whether an object gets a field of its metadata."""
    old, new = change.old or {"metadata": {}}, change.new or {"metadata": {}}
    return field in new["metadata"] and field not in old["metadata"]


def _clock_is_set(world: World) -> bool:
    return any(line.name == "clock" for line in world.history.lines)


def _settled(world: World) -> Iterator[tuple[Manifest, Manifest]]:
    """The jobs that run, with their JobResources."""
    for job in world.server.every(ELASTICJOB):
        resource = world.there(JOBRESOURCE, name_of(job))
        stands = job["spec"].get("suspend") or job["spec"].get("managedBy") or is_over(job)
        if resource and not stands and belongs_to(resource, uid_of(job)):
            yield job, resource


def _alive(world: World, resource: Manifest) -> list[Manifest]:
    return [each for each in _pods(world, resource) if each["status"]["phase"] not in ENDED]


def _pods(world: World, resource: Manifest) -> list[Manifest]:
    return [each for each in world.server.every(POD) if belongs_to(each, uid_of(resource))]
