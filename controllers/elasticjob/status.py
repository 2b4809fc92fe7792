"""The status of an ElasticJob, all but `training`, which the master writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Final

from elasticjob.api.readings import number
from elasticjob.api.roles import WORKER
from elasticjob.api.sentences import few
from elasticjob.api.troubles.causes import sentence_of
from elasticjob.api.v1alpha1.common import LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import ElasticJobStatus, Gang, Phase, ReplicaStatus
from elasticjob.api.v1alpha1.keeping import outlook
from elasticjob.api.v1alpha1.kueue import ADMITTED, NOT_QUEUED
from elasticjob.api.v1alpha1.scaleplan import PlanPhase
from elasticjob.controllers.elasticjob.gang import GANG_UNAVAILABLE, ONE_BY_ONE
from elasticjob.controllers.elasticjob.master import policy
from elasticjob.controllers.elasticjob.obstacles import Obstacle, obstacles
from elasticjob.controllers.elasticjob.seen import KUEUE_ABSENT, Seen, without_kueue
from elasticjob.controllers.elasticjob.sizes import asked_anew
from elasticjob.controllers.nodes.relaunch import Node, Standing
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.gangs.apis import api_of
from elasticjob.controllers.parts.gangs.choice import absence
from elasticjob.controllers.passes.conclusions import COMPLETE, FAILED, SUSPENDED, is_over
from elasticjob.controllers.passes.plan import NAME_TAKEN, Outcome, Plan
from elasticjob.controllers.passes.rules import HAS_FAILED, HAS_FINISHED
from elasticjob.kube.objects.conditions import find, is_true, set_condition
from elasticjob.kube.objects.kstatus import Progress, Verdict, with_progress
from elasticjob.kube.objects.views import Condition

QUEUED: Final = "JobQueued"
"""The reason of Running where the job waits in a queue."""


@dataclass(frozen=True)
class Saying:
    """One condition; `always`: it is shown as False even if it was never True."""

    type: str
    true: bool
    reason: str
    message: str = ""
    always: bool = False


NEW: Final = (None, PlanPhase.PENDING)
"""Phases of a plan whose sizes no node has been asked for yet."""
OPEN: Final = (*NEW, PlanPhase.SCALING)
"""Phases of a plan that is being carried out."""


@dataclass(frozen=True)
class Picture:
    """The input of the status."""

    seen: Seen
    plan: Plan
    now: datetime

    @cached_property
    def outcome(self) -> Outcome | None:
        """How the job ended: as its conditions say, or as decided now."""
        if is_over(self.seen.job):
            return _recorded(self.seen)
        return self.plan.outcome

    @cached_property
    def active(self) -> int:
        """Nodes that run."""
        return sum(bool(node.latest and node.latest.running) for node in self.seen.target_nodes)

    @cached_property
    def has_enough(self) -> bool:
        """Whether as many nodes of each role run, or have succeeded, as the job needs at least."""
        up = Counter(
            node.role
            for node in self.seen.target_nodes
            if node.succeeded or (node.latest and node.latest.running)
        )
        roles, sizes = self.seen.job.spec.roles, self.seen.sizes
        return all(up[role] >= min(spec.bounds.least, sizes.get(role, 0)) for role, spec in roles.items())

    @cached_property
    def is_resized(self) -> bool:
        """Whether the sizes that the user asks for are those of the nodes, or cannot be."""
        newest = self.seen.newest_request
        return not asked_anew(self.seen) and (newest is None or newest.status.phase not in NEW)

    @cached_property
    def has_trained(self) -> bool:
        """Whether the master has reported a step."""
        training = self.seen.job.status.training
        return training is not None and bool(training.step)

    @cached_property
    def restarting(self) -> tuple[Obstacle, ...]:
        """The nodes that are being replaced; a node that was added or never ran is not."""
        nodes = (
            (*self.seen.target_nodes, self.seen.master)
            if self.seen.job.spec.needs_master
            else self.seen.target_nodes
        )
        return tuple(filter(None, (self._replacement(node) for node in nodes)))

    @cached_property
    def scaling(self) -> tuple[str, ...]:
        """The plans that are being carried out."""
        going = (plan for plan in self.seen.plans if plan.status.phase in OPEN)
        return tuple(f"{plan.metadata.name}: {plan.spec.reason}".rstrip(": ") for plan in going)

    @cached_property
    def obstacles(self) -> tuple[Obstacle, ...]:
        """Why nodes do not run."""
        return obstacles(self.seen, self.plan, self.now)

    @cached_property
    def is_free(self) -> bool:
        """Whether no pod of the job runs or may run."""
        return all(life.over for life in (*self.seen.lives, *self.seen.masters))

    def _replacement(self, node: Node) -> Obstacle | None:
        chances = policy(self.seen.job) if node is self.seen.master else self.seen.policy(node.role)
        life = node.latest
        standing = node.standing(chances, self.now)
        if life is None or standing in (Standing.DONE, Standing.SPENT):
            return None
        if standing is Standing.LEAVES:
            return Obstacle("Terminating", f"{life.name} is on its way out")
        if life.ended:
            failed = "" if node.succeeded else "failed: "
            again = node.told_repeats(self.now)
            return Obstacle(life.ended.word, f"{life.name} {failed}{life.ended.sentence}{again}")
        if life.lost:
            return Obstacle("MachineGone", f"{life.name} was lost with {life.machine}")
        before = node.lives[-2] if len(node.lives) > 1 else None
        if life.running or before is None or before.ended is None:
            return None
        return Obstacle(before.ended.word, f"{life.name} replaces {before.name}: {before.ended.sentence}")


def describe(seen: Seen, plan: Plan, now: datetime) -> ElasticJobStatus:
    """Return the status that follows from what was seen and decided; the same every time nothing changed."""
    picture = Picture(seen, plan, now)
    old = seen.job.status
    over = picture.outcome is not None
    name = seen.job.metadata.name
    return ElasticJobStatus(
        phase=phase(picture),
        reason=reason(picture),
        conditions=conditions(picture),
        strategy=seen.job.spec.distribution_strategy,
        observed_generation=seen.job.metadata.generation,
        replicas=sum(life.alive and not life.terminating for life in seen.lives if life.role == WORKER),
        selector=f"{LABEL_JOB}={name},{LABEL_ROLE}={WORKER}",
        workers=_workers(picture),
        replica_statuses={role: _role(picture, role) for role in seen.job.spec.roles},
        restarts=_restarts(picture),
        start_time=_start(picture),
        completion_time=(old.completion_time or now) if over else None,
        last_scale_plan=_last_plan(seen),
    )


def phase(picture: Picture) -> Phase:
    """Return the first phase that applies.

    Running means that pods run; whether they make steps yet, the condition Training says.
    """
    return next(found for applies, found in PHASES if applies(picture))


def reason(picture: Picture) -> str | None:
    """Return why the job failed, or why nodes of it do not run; None where all goes well."""
    if picture.outcome is not None:
        return None if picture.outcome.succeeded else picture.outcome.reason
    if picture.seen.job.spec.suspend:
        grant = picture.seen.grant
        return grant.reason or None if grant else None
    return next((found.reason for found in (*picture.obstacles, *picture.restarting)), None)


def conditions(picture: Picture) -> list[Condition]:
    """Return the conditions of the status; those that were never true are left out."""
    found = picture.seen.job.status.conditions
    sayings = {saying.type: saying for saying in (sentence(picture) for sentence in _SAYINGS)}
    for saying in sayings.values():
        if not (saying.true or saying.always or find(found, saying.type)):
            continue
        new = Condition(
            type=saying.type,
            status="True" if saying.true else "False",
            reason=saying.reason,
            message=saying.message,
            observed_generation=picture.seen.job.metadata.generation,
        )
        found = set_condition(found, new, picture.now)
    told = progress(picture, sayings)
    return with_progress(found, told, picture.seen.job.metadata.generation, picture.now)


def progress(picture: Picture, sayings: Mapping[str, Saying]) -> Progress:
    """Return what kstatus is told: Ready is a job that trains, has succeeded, or is suspended by its user."""
    failed, running, suspended = sayings[FAILED], sayings["Running"], sayings[SUSPENDED]
    created, complete, restarting = sayings["Created"], sayings[COMPLETE], sayings["Restarting"]
    resizing = Saying("Running", True, "Resizing", "another size is asked for")
    rested = Verdict.READY if suspended.true else Verdict.RECONCILING
    rows = (
        (failed.true, Verdict.STALLED, failed),
        (complete.true, Verdict.READY, complete),
        (running.reason == QUEUED, Verdict.RECONCILING, running),
        (picture.seen.job.spec.suspend, rested, suspended),
        (not created.true, Verdict.RECONCILING, created),
        (running.true and not picture.is_resized, Verdict.RECONCILING, resizing),
        (running.true and picture.has_enough, Verdict.READY, running),
        (restarting.true, Verdict.RECONCILING, restarting),
        (True, Verdict.RECONCILING, replace(running, reason="Pending")),
    )
    verdict, saying = next((verdict, saying) for applies, verdict, saying in rows if applies)
    return Progress(verdict, saying.reason, saying.message)


PHASES: Final[tuple[tuple[Callable[[Picture], bool], Phase], ...]] = (
    (lambda p: p.outcome is not None and p.outcome.succeeded, Phase.SUCCEEDED),
    (lambda p: p.outcome is not None, Phase.FAILED),
    (lambda p: p.seen.job.spec.suspend, Phase.SUSPENDED),
    (lambda p: p.seen.resource is None, Phase.CREATED),
    (lambda p: bool(p.restarting), Phase.RESTARTING),
    (lambda p: p.active == 0, Phase.PENDING),
    (lambda p: bool(p.scaling), Phase.SCALING),
    (lambda p: True, Phase.RUNNING),
)
"""The first that applies is the phase. `hack.generate.pages.concepts` draws the life of a job from it."""


def _created(picture: Picture) -> Saying:
    if picture.plan.reason == NAME_TAKEN:
        return Saying("Created", False, NAME_TAKEN, picture.plan.sentence, always=True)
    return Saying("Created", True, "JobCreated", "the job is accepted", always=True)


def _running(picture: Picture) -> Saying:
    count = f"{picture.active} of {len(picture.seen.target_nodes)} nodes run"
    message = "; ".join(filter(None, (count, _few(picture.obstacles))))
    if rest := _rest(picture):
        return Saying("Running", False, *rest, always=True)
    if picture.active:
        return Saying("Running", True, "NodesRunning", message, always=True)
    return Saying("Running", False, "Pending", message, always=True)


def _training(picture: Picture) -> Saying:
    """A job without a master does not tell its steps, so nothing is said of it."""
    tells = picture.seen.job.spec.needs_master
    if rest := _rest(picture):
        return Saying("Training", False, *rest, always=tells)
    if not picture.active:
        return Saying("Training", False, "Pending", "no node runs", always=tells)
    if not picture.has_trained:
        return Saying("Training", False, "NoStepYet", "nodes run; no step has been made yet", always=tells)
    return Saying("Training", True, "StepsMade", "the nodes make steps")


def _rest(picture: Picture) -> tuple[str, str] | None:
    """Return the reason and the sentence for which no node is meant to run; None if some are."""
    if picture.outcome is not None:
        return ("JobFinished", HAS_FINISHED) if picture.outcome.succeeded else ("JobFailed", HAS_FAILED)
    if not picture.seen.job.spec.suspend:
        return None
    grant = picture.seen.grant
    queued = grant is not None and grant.reason
    return (QUEUED, grant.sentence) if grant and queued else ("JobSuspended", "the job is suspended")


def _scaling(picture: Picture) -> Saying:
    if picture.outcome is None and picture.scaling:
        return Saying("Scaling", True, "PlanInProgress", few(picture.scaling, separator="; "))
    return Saying("Scaling", False, "AsPlanned", "no plan is being carried out")


def _admitted(picture: Picture) -> Saying:
    """Of jobs in a queue: what it gives to the job."""
    grant = picture.seen.grant
    if picture.outcome is None and picture.seen.queueless:
        return Saying(ADMITTED, False, KUEUE_ABSENT, without_kueue(picture.seen), always=True)
    if picture.outcome is not None or grant is None:
        return Saying(ADMITTED, False, NOT_QUEUED, "no queue admits the job")
    return Saying(ADMITTED, grant.admitted, grant.reason or "Suspended", grant.sentence, always=True)


def _gang(picture: Picture) -> Saying:
    """Of jobs that ask for a gang: whether there is one."""
    seen, plan = picture.seen, picture.plan
    asked = seen.job.spec.run_policy.scheduling.gang is not Gang.NONE
    if seen.gang is not None:
        kind = api_of(seen.gang).kinds[-1]
        sentence = (
            f"{kind.name} {seen.gang.name} of {seen.gang.api}: pods are placed where {seen.gang.least} fit"
        )
        return Saying("Gang", True, "GangMade", sentence)
    if plan.reason == GANG_UNAVAILABLE:
        return Saying("Gang", False, plan.reason, plan.sentence, always=True)
    there = asked and seen.resource is not None and not seen.begins
    if seen.job.spec.run_policy.scheduling.gang is Gang.PREFERRED:
        return Saying("Gang", False, GANG_UNAVAILABLE, f"{absence(seen.job)}: {ONE_BY_ONE}", always=there)
    again = "; ".join(
        filter(None, ("pods were made without one: suspend the job, and resume it", outlook(seen.job)))
    )
    told = again if asked else "the job asks for none"
    return Saying("Gang", False, "NoGang", told, always=there)


def _restarting(picture: Picture) -> Saying:
    if picture.outcome is None and picture.restarting and not picture.seen.job.spec.suspend:
        return Saying("Restarting", True, "NodesReplaced", _few(picture.restarting))
    return Saying("Restarting", False, "NothingToReplace", "no node is being replaced")


def _suspended(picture: Picture) -> Saying:
    if picture.outcome is not None or not picture.seen.job.spec.suspend:
        return Saying(SUSPENDED, False, "JobResumed", "the job is not suspended")
    if picture.is_free:
        return Saying(SUSPENDED, True, "JobSuspended", "the job is suspended and has no pods")
    return Saying(SUSPENDED, False, "Suspending", "pods of the job are on their way out", always=True)


def _complete(picture: Picture) -> Saying:
    return _ended(picture, COMPLETE, succeeded=True)


def _succeeded(picture: Picture) -> Saying:
    return _ended(picture, "Succeeded", succeeded=True)


def _failed(picture: Picture) -> Saying:
    return _ended(picture, FAILED, succeeded=False)


def _ended(picture: Picture, type_: str, *, succeeded: bool) -> Saying:
    outcome = picture.outcome
    if outcome is not None and outcome.succeeded is succeeded:
        return Saying(type_, True, outcome.reason, outcome.message)
    return Saying(type_, False, "NotYet")


_SAYINGS: Final = (
    _created, _admitted, _gang, _running, _training, _scaling, _restarting, _suspended,
    _complete, _succeeded, _failed,
)  # fmt: skip


def _few(obstacles: tuple[Obstacle, ...]) -> str:
    """Return the first obstacles, those of one cause together under its title."""
    alike: dict[str, list[str]] = {}
    for each in obstacles:
        alike.setdefault(each.reason, []).append(each.sentence)
    parts = (sentence_of(reason, few(each, separator="; ")) for reason, each in alike.items())
    return few(parts, separator="; ")


def _recorded(seen: Seen) -> Outcome:
    succeeded = is_true(seen.job.status.conditions, COMPLETE)
    condition = find(seen.job.status.conditions, COMPLETE if succeeded else FAILED)
    return Outcome(succeeded, condition.reason if condition else "", condition.message if condition else "")


def _workers(picture: Picture) -> str:
    """Workers that run, or that had succeeded when the job was over, of those wanted.

    In a job without the role worker, the nodes of all roles. Pods that still run when a job has succeeded
    count as well; the number never falls when pods of a job that is over are deleted.
    """
    seen, outcome = picture.seen, picture.outcome
    counted = {WORKER} if WORKER in seen.job.spec.roles else set(seen.job.spec.roles)
    nodes = [node for node in seen.target_nodes if node.role in counted]
    wanted = sum(size for role, size in seen.sizes.items() if role in counted)
    ends_well = outcome is None or outcome.succeeded
    running = sum(bool(node.latest and node.latest.running) for node in nodes) if ends_well else 0
    if outcome is not None:
        running += sum(node.succeeded for node in nodes)
    if is_over(seen.job):
        before = (seen.job.status.workers or "").partition("/")[0]
        running = max(running, number(before))
    return f"{running}/{wanted}"


def _role(picture: Picture, role: str) -> ReplicaStatus:
    """The nodes of a role by state; those that had ended when the job was over, also without their pods."""
    nodes = [node for node in picture.seen.target_nodes if node.role == role]
    latest = [node.latest for node in nodes if node.latest]
    status = picture.seen.job.status.replica_statuses if is_over(picture.seen.job) else {}
    before = status.get(role) or ReplicaStatus()
    return ReplicaStatus(
        desired=picture.seen.sizes.get(role, 0),
        pending=sum(life.alive and not life.running and not life.terminating for life in latest),
        active=sum(life.running for life in latest),
        succeeded=max(before.succeeded, sum(node.succeeded for node in nodes)),
        failed=max(before.failed, sum(_has_failed(picture, node) for node in nodes)),
    )


def _has_failed(picture: Picture, node: Node) -> bool:
    """Whether a node failed, and no pod follows: none may, or the job ends now."""
    end = node.latest.ended if node.latest and not node.latest.terminating else None
    ends_with_it = picture.plan.outcome is not None and end is not None and end.consequence.counts
    return picture.seen.is_spent(node) or ends_with_it


def _restarts(picture: Picture) -> int:
    """Replacements after failures and kills, and restarts in pods, as the master tells; it never falls."""
    training = picture.seen.job.status.training
    inside = (training.restarts if training else None) or 0
    seen = sum(node.replacements for node in picture.seen.nodes.values())
    return max(picture.seen.job.status.restarts or 0, seen + inside)


def _start(picture: Picture) -> datetime | None:
    """The start of the job, or of its last resume: activeDeadlineSeconds counts from it."""
    started = picture.seen.job.status.start_time
    if picture.outcome is not None:
        return started
    if picture.seen.job.spec.suspend or (started is None and picture.plan.reason == NAME_TAKEN):
        return None
    return started or picture.now


def _last_plan(seen: Seen) -> str | None:
    if seen.resource is None:
        return seen.job.status.last_scale_plan
    name = seen.resource.metadata.annotations.get(names.FOLDED, "").partition("/")[0]
    return name or seen.job.status.last_scale_plan
