"""Which pods to create, delete and resize so that the nodes of a job are as its JobResource says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from elasticjob.api.readings import END_OF_TIME, after
from elasticjob.api.resources import Resources
from elasticjob.api.roles import PS
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.placing import resources_of
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.controllers.elasticjob.decide import decide as decide_job
from elasticjob.controllers.elasticjob.seen import Seen as SeenOfJob
from elasticjob.controllers.jobresource import standins
from elasticjob.controllers.jobresource.facts import with_facts
from elasticjob.controllers.jobresource.pods import Birth, pod_manifest
from elasticjob.controllers.kueue.grant import Grant
from elasticjob.controllers.kueue.grant import Place as Quota
from elasticjob.controllers.nodes.drains import Notice, leaves_in
from elasticjob.controllers.nodes.machines import Largest
from elasticjob.controllers.nodes.out_of_memory import Sizing
from elasticjob.controllers.nodes.relaunch import Life, Node, Place, Policy, Standing, nodes
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.owners import manifest_of
from elasticjob.controllers.passes import rules
from elasticjob.controllers.passes.conclusions import FAILED, SUSPENDED, is_over
from elasticjob.controllers.passes.plan import (
    LATER,
    NAME_TAKEN,
    REFUSED,
    Action,
    Apply,
    Create,
    Delete,
    Note,
    Plan,
    Resize,
    deletion,
    group,
    soonest,
)
from elasticjob.controllers.passes.rules import (
    DELETING,
    FINISHED,
    Rule,
    clean_up,
    first,
    leave_it_to_others,
    leave_it_to_the_collector,
    silence_ends_in,
)
from elasticjob.kube.objects.conditions import find
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD
from elasticjob.sizing.exits import ExitReason

MEMORY_PATIENCE: Final = timedelta(minutes=1)
"""How long a node that was out of memory waits at most for a plan that gives it more."""
REPEATED: Final = 3
"""From so many pods in a row that were over soon on, their replacement is a warning."""
KEPT_LIVES: Final = 3
"""Ended pods that are kept of each node, for their logs."""

CONVERGING: Final = "Converging"
"""The reason of plans that bring nodes closer to what they should be."""
CREATED: Final = "NodesCreated"
MADE_AGAIN: Final = "NodesMadeAgain"
REMOVED: Final = "NodesRemoved"

READY: Final = "Ready"
ALTERED: Final = "ResourcesAltered"
BLOCKED: Final = frozenset(
    {
        "JobNotFound",
        "ManagedByOther",
        SUSPENDED,
        "WaitingForMaster",
        "Deleting",
        FINISHED,
        FAILED,
        NAME_TAKEN,
        REFUSED,
    }
)
"""Reasons of plans for which the nodes are not as the spec says, on purpose."""


@dataclass(frozen=True)
class Seen:
    """The input of a decision about a JobResource."""

    resource: JobResource
    job: ElasticJob | None
    lives: tuple[Life, ...] = ()
    master: str = ""  # its address, "" while unknown
    plans: tuple[ScalePlan, ...] = ()
    masters: tuple[Life, ...] = ()
    largest: Mapping[str, Largest] = field(default_factory=dict)  # of roles that were out of memory
    grant: Grant | None = None  # what its queue gives to the job; None: it is in no queue
    log_format: str = ""  # of the pods' own programs

    @cached_property
    def places(self) -> Mapping[Place, Quota]:
        """Where each node without a pod may have one: places of the job's quota, in the order of nodes."""
        if self.grant is None:
            return {}
        free = self.grant.free(self.lives)
        nodes = (*self.target_nodes.items(), *((place, each.node) for place, each in self.extra.items()))
        standings = ((p, n.standing(self.policy(n.role), END_OF_TIME)) for p, n in nodes)
        due = [place for place, standing in standings if standing is Standing.DUE]
        found = ((place, free.take(place[0])) for place in due)
        return {place: quota for place, quota in found if quota is not None}

    def waits_for_quota(self, node: Node) -> bool:
        """Whether a node can have no pod, because no place of the job's quota is free for it."""
        return self.grant is not None and (node.role, node.index) not in self.places

    @cached_property
    def nodes(self) -> Mapping[Place, Node]:
        """The nodes that have a pod, or once failed."""
        return nodes(rules.ruled_lives(self.job, self.lives), self.resource.status)

    @cached_property
    def desired(self) -> Mapping[str, int]:
        """How many nodes each role should have; roles that wait for a plan are left out."""
        known = self.job.spec.roles if self.job else {}
        sizes = self.resource.spec.replica_resource_specs
        return {r: spec.replicas for r, spec in sizes.items() if r in known and spec.replicas is not None}

    @cached_property
    def target_nodes(self) -> Mapping[Place, Node]:
        """The wanted nodes, with the pods they have had."""
        sizes = self.resource.spec.replica_resource_specs
        places = ((role, index) for role in self.desired for index in sizes[role].indices)
        return {place: self.nodes.get(place, Node(*place)) for place in places}

    @cached_property
    def beyond(self) -> frozenset[Place]:
        """The wanted nodes that the job does not allow: others write sizes too, and a plan mends those."""
        job, specs = self.job, self.resource.spec.replica_resource_specs
        most = {role: job.spec.range_of(role).largest for role in self.desired} if job else {}
        over = {role: specs[role].indices[count:] for role, count in most.items() if count is not None}
        return frozenset((role, index) for role, indices in over.items() for index in indices)

    def lacks(self, role: str) -> bool:
        """Whether a role is to have fewer nodes than the job allows: a plan mends that before one leaves."""
        lowest = self.job.spec.range_of(role).lowest if self.job and role in self.desired else 0
        return self.desired.get(role, 0) < lowest

    @cached_property
    def extra(self) -> Mapping[Place, standins.Extra]:
        """Nodes beside the wanted ones: spares, and standbys for nodes whose machines are about to leave."""
        return standins.extra(self.job, self.target_nodes, self.nodes, self.lives)

    @cached_property
    def exceptions(self) -> Mapping[str, Mapping[str, str]]:
        """Resources of single nodes, by the node's name."""
        return {
            node.name: {name: str(amount) for name, amount in node.resource.items()}
            for node in self.resource.spec.nodes
        }

    @cached_property
    def sizing(self) -> Sizing | None:
        """The input of decisions about memory; None without a job."""
        return Sizing(self.job, self.resource, self.plans, self.largest) if self.job else None

    def policy(self, role: str) -> Policy:
        """How often nodes of a role are created again."""
        found = self._policies.get(role)
        return rules.policy(self.job, role) if found is None else found

    @cached_property
    def _policies(self) -> Mapping[str, Policy]:
        """The policies of the roles of the job: each node asks, and a job may have thousands."""
        return {role: rules.policy(self.job, role) for role in (self.job.spec.roles if self.job else ())}

    def resource_of(self, role: str, index: int) -> dict[str, str]:
        """The resource of a node beside its template, as far as its place in a queue is for so much."""
        asked, node = self.asked_for(role, index), self.nodes.get((role, index))
        life = node.latest if node and node.latest and node.latest.alive else None
        quota = self._quotas.get((life.workload, role)) if life else self.places.get((role, index))
        container = self.job.spec.roles[role].main_container if self.job and quota else None
        name = str((container or {}).get("name", ""))
        return quota.within(name, asked, life.resource if life else {}) if quota else asked

    @cached_property
    def _quotas(self) -> Mapping[tuple[str, str], Quota]:
        return {(place.workload, place.role): place for place in (self.grant.places if self.grant else ())}

    def asked_for(self, role: str, index: int) -> dict[str, str]:
        """The requested resource of a node beside its template: the role's, with its own exceptions."""
        spec = self.resource.spec.replica_resource_specs.get(role)
        common = {name: str(amount) for name, amount in (spec.resource if spec else {}).items()}
        own = self.exceptions.get(names.node(self.resource.metadata.name, role, index), {})
        return {**common, **own}


@dataclass(frozen=True)
class Step:
    """The next step of one node: writes with their event, or only a time to look again."""

    actions: tuple[Action, ...] = ()
    note: Note | None = None
    again_in: timedelta | None = None


def decide(seen: Seen, now: datetime) -> Plan:
    """Return the plan of the first rule that applies."""
    return _facts_first(seen, first(RULES, seen, now).again_by(silence_ends_in(seen.lives, now)), now)


def _facts_first(seen: Seen, plan: Plan, now: datetime) -> Plan:
    """Return the plan; what only the last pods of nodes show, and it deletes, is written before.

    So is that nodes which are scaled away have no past: they may be back before the next status.
    """
    lasts = (node.latest for node in seen.target_nodes.values())
    shown = {life.uid for life in lasts if life and not life.alive}
    away = plan.reason in (CONVERGING, SUSPENDED) and any(
        each.has_past and place not in seen.target_nodes for place, each in seen.nodes.items()
    )
    if not away and not any(isinstance(each, Delete) and each.uid in shown for each in plan.actions):
        return plan
    about, old = seen.resource.metadata, seen.resource.status
    status = with_facts(old, seen.target_nodes.values(), seen.policy, now)
    if status == old:
        return plan
    identity = {"name": about.name, "namespace": about.namespace, "uid": about.uid}
    write = Apply(JOBRESOURCE, manifest_of(JOBRESOURCE, identity, status=status.manifest()), "status")
    return replace(plan, groups=((write,), *plan.groups))


def differing(seen: Seen, node: Node) -> dict[str, str]:
    """The resources of which a node's pod has another amount than it should, and was made for another."""
    return {name: amount for name, amount in _others(seen, node).items() if not _is_asked(node, name, amount)}


def alterations(seen: Seen, node: Node) -> dict[str, str]:
    """The changes that admission made to what a node's pod was made for: `cpu`: `250m of 300m`.

    Another pod would be changed in the same way.
    """
    have = node.latest.resource if node.latest else {}
    others = {name: each for name, each in _others(seen, node).items() if _is_asked(node, name, each)}
    return {name: f"{have.get(name, 'nothing')} of {amount}" for name, amount in others.items()}


def _others(seen: Seen, node: Node) -> dict[str, str]:
    """The resources of which a node's pod has another amount than it should."""
    wanted, given = seen.resource_of(node.role, node.index), node.latest.resource if node.latest else {}
    if wanted == given:
        return {}
    have, want = Resources.parse(given), Resources.parse(wanted)
    return {name: wanted[name] for name in want if name not in have or have[name] != want[name]}


def _is_asked(node: Node, name: str, amount: str) -> bool:
    return node.latest is not None and node.latest.asked.get(name) == amount


def leave_its_pods_to_the_collector(seen: Seen, now: datetime) -> Plan | None:
    """The garbage collector deletes the pods of a JobResource after it."""
    gone = seen.resource.metadata.deletion_timestamp
    return Plan(DELETING, "the JobResource is being deleted, and its pods with it") if gone else None


def wait_for_its_job(seen: Seen, now: datetime) -> Plan | None:
    """Without the job there is no pod template."""
    if seen.job is not None:
        return None
    return Plan("JobNotFound", f"there is no ElasticJob {seen.resource.metadata.name} that owns this object")


def clean_up_after_the_end(seen: Seen, now: datetime) -> Plan | None:
    """When a job is over, its pods are kept or deleted by its cleanPodPolicy."""
    if seen.job is None or not is_over(seen.job):
        return None
    return clean_up(seen.job, seen.lives, now)


def make_no_pods_for_a_job_that_ends(seen: Seen, now: datetime) -> Plan | None:
    """A job that is about to end gets no more pods, even before its controller has written the end."""
    standings = (node.standing(seen.policy(node.role), now) for node in seen.target_nodes.values())
    if seen.job is None or Standing.DUE not in standings:
        return None
    plan = decide_job(_of_job(seen, seen.job), now)
    if plan.outcome is None:
        return None
    return Plan(FINISHED if plan.outcome.succeeded else FAILED, f"the job ends: {plan.sentence}")


def _of_job(seen: Seen, job: ElasticJob) -> SeenOfJob:
    return SeenOfJob(job, seen.resource, seen.masters, seen.lives, seen.plans, largest=seen.largest)


def free_the_nodes_while_suspended(seen: Seen, now: datetime) -> Plan | None:
    """A suspended job has no pod that runs or may run, not even on a machine that is lost.

    Without a master, the ends of pods are the verdict: they are deleted only at the version that was seen.
    """
    if not seen.resource.spec.suspend:
        return None
    past = (life for life in seen.lives if (life.role, life.index) not in seen.target_nodes)  # it goes, too
    going = [life for life in seen.lives if life.frees]
    going += [life for life in past if life.over and not life.terminating]
    verdict = seen.job is not None and not seen.job.spec.needs_master
    deletions = (deletion(life, as_seen=verdict) for life in going)
    return Plan(SUSPENDED, "the job is suspended", groups=group(deletions), quiet=True)  # the job tells it


def make_no_pods_beside_those_of_another_template(seen: Seen, now: datetime) -> Plan | None:
    """The job's own pass has all its pods leave first."""
    if seen.job is None or not _of_job(seen, seen.job).is_stale:
        return None
    return Plan("TemplateChanged", "what nodes are made from has changed: all pods leave first", quiet=True)


def wait_for_the_masters_address(seen: Seen, now: datetime) -> Plan | None:
    """The master's address is in the environment of each pod."""
    if seen.job is None or not seen.job.spec.needs_master or seen.master:
        return None
    return Plan("WaitingForMaster", "the master's Service has no address yet")


def converge(seen: Seen, now: datetime) -> Plan | None:
    """Each node is brought one step closer to what it should be; all nodes at the same time."""
    steps = tuple(_steps(seen, now))
    actions = tuple(action for step in steps for action in step.actions)
    notes = tuple(step.note for step in steps if step.note)
    again = soonest(step.again_in for step in steps)
    return Plan(CONVERGING, groups=group(actions), details=_gather(notes), again_in=again)


RULES: Final[tuple[Rule[Seen], ...]] = (
    leave_its_pods_to_the_collector,
    leave_it_to_the_collector,
    wait_for_its_job,
    leave_it_to_others,
    clean_up_after_the_end,
    make_no_pods_for_a_job_that_ends,
    free_the_nodes_while_suspended,
    make_no_pods_beside_those_of_another_template,
    wait_for_the_masters_address,
    converge,
)


def _steps(seen: Seen, now: datetime) -> Iterator[Step]:
    for place, node in seen.nodes.items():
        yield from _housekeeping(seen, node)
        if place not in seen.target_nodes and place not in seen.extra:
            yield from _let_go(seen, node, now)
    extra = ((each.node, each) for each in seen.extra.values())
    for node, beside in (*((node, None) for node in seen.target_nodes.values()), *extra):
        match node.standing(seen.policy(node.role), now):
            case Standing.DUE if beside or (node.role, node.index) not in seen.beyond:
                yield _begin(seen, node, now, beside)
            case Standing.PAUSES:
                yield Step(again_in=node.due(now) - now)
            case Standing.RUNS if node.latest and _is_taken_back(seen, node.latest):
                sentence = f"{node.latest.name} leaves: its quota is taken back"
                yield Step((deletion(node.latest),), Note("NodeTakenBack", sentence))
            case Standing.RUNS if node.latest and node.latest.notice and node.latest.notice.at_once:
                yield from _leave_at_once(seen, node.latest, node.latest.notice, now)
            case Standing.RUNS if node.latest and node.latest.broken and not node.latest.terminating:
                yield _leave_broken_devices(seen, node, node.latest, now)
            case Standing.RUNS:
                yield from _fit(seen, node, now)
            case Standing.DUE | Standing.LEAVES | Standing.DONE | Standing.SPENT:
                pass


def _leave_at_once(seen: Seen, life: Life, notice: Notice, now: datetime) -> Iterator[Step]:
    """A pod leaves a machine that ends within minutes; another is made elsewhere."""
    spec = seen.job.spec.replica_specs.get(life.role) if seen.job else None
    left = leaves_in(spec.pod if spec else {}, life.since, now)
    if left:
        yield Step(again_in=left)
    elif left is not None and not life.terminating and _may_leave(seen, life):
        sentence = f"{life.name} leaves {life.machine}, which {notice.why}"
        yield Step((deletion(life),), Note("NodeLeaves", sentence))


def _leave_broken_devices(seen: Seen, node: Node, life: Life, now: datetime) -> Step:
    """A node whose device is broken begins anew: the kubelet gives its next pod devices that work."""
    if not _may_leave(seen, life):
        return _beside(seen, node, now)
    sentence = f"{life.name} is replaced: {life.machine} calls its device {life.broken} unhealthy"
    return Step((deletion(life),), Note("DeviceUnhealthy", sentence, warning=True))


def _begin(seen: Seen, node: Node, now: datetime, beside: standins.Extra | None = None) -> Step:
    """Create the next pod of a node, unless a plan that gives it more memory is on its way."""
    assert seen.job is not None  # converge comes after wait_for_its_job
    if (left := _memory_wait(seen, node, now)) > timedelta(0):
        return Step(again_in=left)
    if seen.waits_for_quota(node):
        return Step()
    resource = seen.resource_of(node.role, node.index)
    avoid, forgiven = node.machines_to_avoid, node.amnesty(seen.policy(node.role))
    for_ = beside.stands_in if beside else None
    birth = Birth(
        node.role,
        node.index,
        node.next_relaunch,
        node.restarts,
        resource,
        avoid,
        forgiven,
        for_.index if for_ else None,
        node.moves + bool(node.latest and (node.latest.alive or node.latest.leaves)),
        node.machines_to_leave,
        node.repeats(now),
    )
    nodes = seen.desired[node.role]
    manifest = pod_manifest(
        seen.job, seen.resource, birth, master=seen.master, nodes=nodes, log_format=seen.log_format
    )
    if quota := seen.places.get((node.role, node.index)):
        manifest = quota.fit(manifest)
    name = manifest["metadata"]["name"]
    note = _stand_in_note(for_, name) if for_ else _birth_note(seen, node, name, now)
    return Step((Create(POD, manifest, optional=bool(beside)),), note, LATER if beside else None)


def _stand_in_note(for_: Node, name: str) -> Note:
    life = for_.latest
    why = f"{life.machine} {life.notice.why}" if life and life.notice else "it is about to leave"
    return Note("NodeStandsIn", f"{name} is made beforehand for {life.name if life else for_.index}: {why}")


def _birth_note(seen: Seen, node: Node, name: str, now: datetime) -> Note:
    end = node.latest.ended if node.latest else None
    if node.latest is None or end is None:
        return Note(MADE_AGAIN if node.latest is None and _had_all_nodes(seen) else CREATED, name)
    policy = seen.policy(node.role)
    spent = f"; restart {node.charges(policy)} of {policy.budget}" if end.consequence.counts else ""
    why = seen.sizing.why_no_more(node.latest) if seen.sizing else ""
    spent += node.told_repeats(now)
    sentence = f"{name} replaces {node.latest.name}: {end.sentence}{spent}{f'; {why}' if why else ''}"
    return Note("NodeRelaunched", sentence, warning=end.consequence.counts or node.repeats(now) >= REPEATED)


def _had_all_nodes(seen: Seen) -> bool:
    """Whether each wanted node had a pod when the status was written: one without was deleted since."""
    status = seen.resource.status
    ready = find(status.conditions, READY)
    same = status.observed_generation == seen.resource.metadata.generation
    return same and ready is not None and ready.reason not in BLOCKED


def _memory_wait(seen: Seen, node: Node, now: datetime) -> timedelta:
    """How long a node that was out of memory may still wait for a plan that gives it more."""
    life = node.latest
    if seen.sizing is None or life is None or life.ended is None or life.ended.at is None:
        return timedelta(0)
    short = life.ended.reason is ExitReason.OOM_KILLED and (
        seen.resource_of(node.role, node.index) != seen.asked_for(node.role, node.index)
    )
    waits = short or seen.sizing.is_coming(life)  # for its queue, or for a plan
    return after(life.ended.at, MEMORY_PATIENCE) - now if waits else timedelta(0)


def _fit(seen: Seen, node: Node, now: datetime) -> Iterator[Step]:
    """Give a running node the resource it should have: in place, and by replacement where that is refused."""
    life = node.latest
    if life is None or life.terminating or not life.alive:
        return
    differs = differing(seen, node)
    if _must_be_replaced(seen, node):
        if not _its_turn(seen, node):
            return
        if not _may_leave(seen, life):
            yield _beside(seen, node, now)
        else:
            sentence = f"{life.name} cannot be resized in place: a replacement gets {_describe(differs)}"
            yield Step((deletion(life),), Note("NodeReplaced", sentence))
    elif differs:
        container = _container(seen, node.role)
        resource = seen.resource_of(node.role, node.index)
        resources = resources_of(container, resource)
        resize = Resize(life.name, life.uid, str(container.get("name", "")), resources, resource)
        yield Step((resize,), Note("NodeResized", f"{life.name} gets {_describe(differs)} in place"))


def _beside(seen: Seen, node: Node, now: datetime) -> Step:
    """Create the next pod of a node that holds state, which moves to it before this one goes."""
    step = _begin(seen, node, now)
    made = [action for action in step.actions if isinstance(action, Create)]
    if node.latest is None or not made:
        return step
    name = made[0].manifest["metadata"]["name"]
    return replace(step, note=Note("NodeMoves", f"{name} takes over from {node.latest.name}"))


def _is_taken_back(seen: Seen, life: Life) -> bool:
    """Whether a pod that runs uses quota that the job has to return."""
    return seen.grant is not None and not life.terminating and life.workload not in seen.grant.workloads


def _must_be_replaced(seen: Seen, node: Node) -> bool:
    life = node.latest
    if life is None or not life.alive:
        return False
    return life.resize == "Infeasible" or (life.resize == "refused" and bool(differing(seen, node)))


def _housekeeping(seen: Seen, node: Node) -> Iterator[Step]:
    """One life at a time, but for servers whose state moves to the next; no pods of machines that are gone;
    a short history of past lives.
    """
    alive = [life for life in node.lives if life.alive and not life.terminating]
    for life in alive[:-1]:
        if _may_leave(seen, life):
            note = Note("NodeDoubled", f"{life.name} gives way to {alive[-1].name}", life.role != PS)
            yield Step((deletion(life),), note)
    for life in node.lives:
        if life.lost:
            reason = "MachineSilent" if life.given_up else "MachineGone"
            sentence = f"{life.name} was on {life.machine}, which {life.loss}"
            yield Step((deletion(life),), Note(reason, sentence, True))
    for life in node.lives[:-1]:
        if life.lingers and not life.terminating and not life.lost:
            sentence = f"{life.name} has a successor, and a container beside its main one went on"
            yield Step((deletion(life),), Note("NodeLingers", sentence))
    ended = [life for life in node.lives if life.over and not life.terminating and not life.lost]
    for life in ended[:-KEPT_LIVES]:
        yield Step((deletion(life),))


def _let_go(seen: Seen, node: Node, now: datetime) -> Iterator[Step]:
    """A surplus node is deleted with its grace period, once nothing depends on it.

    So are its pods that have ended: what is scaled away takes its past with it. That of a standby says that
    no other is made.
    """
    for life in node.lives:
        stays = life.lost or (life.over and life.stands_in is not None)
        if stays or life.terminating or not _may_leave(seen, life):
            continue
        if seen.lacks(node.role) and not _is_taken_back(seen, life):
            continue
        if life.alive and (left := standins.stays_for(life, seen.target_nodes, now)) > timedelta(0):
            yield Step(again_in=left)
        else:
            yield Step((deletion(life),), Note(REMOVED, life.name))


def _may_leave(seen: Seen, life: Life) -> bool:
    """Whether the training can do without a pod: state of a parameter server must have moved first."""
    if life.role != PS or seen.job is None or not seen.job.spec.needs_master:
        return True
    training = seen.job.status.training
    return life.released or (training is not None and life.name in training.released)


def _its_turn(seen: Seen, node: Node) -> bool:
    """Whether all other nodes of the role run, and none before this one is to be replaced: one at a time."""
    others = [other for other in seen.target_nodes.values() if other.role == node.role and other != node]
    present = all(_is_present(other) for other in others)
    return present and not any(_must_be_replaced(seen, other) for other in others if other.index < node.index)


def _is_present(node: Node) -> bool:
    life = node.latest
    if life is None:
        return node.completed or node.failed
    return not life.terminating and (life.running or life.ended is not None)


def _describe(resource: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in sorted(resource.items()))


def _container(seen: Seen, role: str) -> Manifest:
    spec = seen.job.spec.replica_specs.get(role) if seen.job else None
    return (spec.main_container if spec is not None else None) or {}


def _gather(notes: tuple[Note, ...]) -> tuple[Note, ...]:
    """Notes of the same reason about single nodes, as one: `created a, b, c`."""
    plural = {CREATED: "created", MADE_AGAIN: "made again after their pods were deleted:", REMOVED: "removed"}
    gathered = [note for note in notes if note.reason not in plural]
    for reason, verb in plural.items():
        if named := [note.sentence for note in notes if note.reason == reason]:
            gathered.append(Note(reason, f"{verb} {', '.join(named)}"))
    return tuple(gathered)
