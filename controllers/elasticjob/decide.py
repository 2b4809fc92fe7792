"""The rules for a job, in order: its end, its objects, its master, the user's changes. See RULES."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.readings import after, span
from elasticjob.api.roles import CHIEF, EVALUATOR, PS
from elasticjob.api.sentences import few
from elasticjob.api.v1alpha1.common import RESTARTS_SPENT
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.controllers.elasticjob.gang import begin, changed_gang, changes, wait_for_a_gang_scheduler
from elasticjob.controllers.elasticjob.master import master_pod, policy, verdict, why_anew
from elasticjob.controllers.elasticjob.objects import (
    address,
    aim,
    foundation,
    job_resource,
    network_policy,
    pod_names,
    sizes_of_user,
)
from elasticjob.controllers.elasticjob.obstacles import obstacles, slow_in
from elasticjob.controllers.elasticjob.seen import KUEUE_ABSENT, Seen, without_kueue
from elasticjob.controllers.elasticjob.sizes import (
    all_fields,
    scale_plan,
    suspension,
    wishes,
    write_gang,
    write_request,
)
from elasticjob.controllers.elasticjob.templates import follow_the_templates
from elasticjob.controllers.elasticjob.upkeep import (
    give_the_masters_address_back,
    make_again_what_was_deleted,
)
from elasticjob.controllers.nodes.drains import leaves_in
from elasticjob.controllers.nodes.out_of_memory import Growth, Sizing
from elasticjob.controllers.nodes.relaunch import Life, Node, Standing
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.frameworks import FRAMEWORKS, framework_of, name_of
from elasticjob.controllers.parts.owners import controller_uid, owner_of
from elasticjob.controllers.passes.conclusions import is_over
from elasticjob.controllers.passes.plan import (
    AS_SPECIFIED,
    LATER,
    NAME_TAKEN,
    SOON,
    Action,
    Create,
    Delete,
    DeleteOwned,
    Note,
    Outcome,
    Plan,
    deletion,
    group,
    soonest,
)
from elasticjob.controllers.passes.rules import (
    EXPIRED,
    Rule,
    clean_up,
    first,
    leave_it_to_others,
    leave_it_to_the_collector,
    silence_ends_in,
)
from elasticjob.kube.objects.conditions import TRUE, find
from elasticjob.kube.objects.views import NETWORK_POLICY

KEPT_MASTERS: Final = 3
VERDICT: Final = timedelta(seconds=30)
"""How long a master is waited for after all nodes have ended: it knows the training, and tells more."""
CRITICAL: Final = frozenset({PS, CHIEF})
"""Roles of which every node is needed."""
NEVER_RAN: Final = "RoleNeverRan"
ADDRESS_ASKED: Final = "AddressAsked"
JOB_CREATED: Final = "JobCreated"
BEGINNINGS: Final = frozenset({ADDRESS_ASKED, JOB_CREATED})
"""Reasons of plans that are followed by another pass."""
AT_ONCE: Final = timedelta(milliseconds=10)
"""When a pass is repeated that only began: as soon as the caches show what it wrote."""
LEADS: Final = "successPolicy ChiefOrWorker0"
AT_THE_SIDE: Final = frozenset({PS, EVALUATOR})
"""Roles whose end is not the training's end."""


def decide(seen: Seen, now: datetime) -> Plan:
    """Return the plan of the first rule that applies, looking again at the next deadline or slow start.

    A job that ends has no deadline any more, also where its end cannot be written yet.
    """
    plan = first(RULES, seen, now).again_by(silence_ends_in(seen.masters, now))
    if is_over(seen.job) or plan.outcome is not None:
        return plan
    return plan.again_by(soonest((deadline_in(seen, now), slow_in(seen, now), _verdict_in(seen, now))))


def delete_when_its_time_is_over(seen: Seen, now: datetime) -> Plan | None:
    """A finished job is deleted after ttlSecondsAfterFinished."""
    seconds = seen.job.spec.run_policy.ttl_seconds_after_finished
    ended = seen.job.status.completion_time
    if seconds is None or ended is None or not is_over(seen.job) or now < after(ended, span(seconds)):
        return None
    expiry = Delete(ELASTICJOB, seen.job.metadata.name, seen.job.metadata.uid)
    sentence = f"the job ended {seconds} s ago or more and is deleted (ttlSecondsAfterFinished)"
    return Plan(EXPIRED, sentence, groups=((expiry,),))


def rest_when_over(seen: Seen, now: datetime) -> Plan | None:
    """A finished job needs no master; finished pods stay as its cleanPodPolicy says."""
    if not is_over(seen.job):
        return None
    plan, ttl = clean_up(seen.job, seen.masters, now), seen.job.spec.run_policy.ttl_seconds_after_finished
    ended = seen.job.status.completion_time or now
    return plan if ttl is None else plan.again_by(after(ended, span(ttl)) - now)


def end_on_the_verdict(seen: Seen, now: datetime) -> Plan | None:
    """The master's verdict ends the job; where restarts are spent, the pods tell the more exact reason."""
    ends = (life.ended for life in seen.master.lives if life.ended)
    last_verdict = next((found for end in ends if (found := verdict(end)) is not None), None)
    if last_verdict is None:
        return None
    shown = fail_when_restarts_are_spent(seen, now) if last_verdict.reason == RESTARTS_SPENT else None
    return shown or _end(_unless_a_role_never_ran(seen, last_verdict, now))


def fail_when_it_cannot_be_trained(seen: Seen, now: datetime) -> Plan | None:
    """A framework that is not known, or that refuses the spec, cannot train the job."""
    framework = framework_of(seen.job)
    if framework is None:
        known = ", ".join(sorted(FRAMEWORKS))
        message = f"no framework {name_of(seen.job)!r}: annotate {names.FRAMEWORK} with one of {known}"
        return _end(Outcome(False, "UnknownFramework", message))
    problems = "; ".join(str(problem) for problem in framework.check(seen.job.spec))
    return _end(Outcome(False, "InvalidSpec", problems)) if problems else None


def fail_after_the_deadline(seen: Seen, now: datetime) -> Plan | None:
    """A job may run activeDeadlineSeconds, counted from its start or its last resume."""
    seconds = seen.job.spec.run_policy.active_deadline_seconds
    start = seen.job.status.start_time
    if seconds is None or start is None or seen.job.spec.suspend or now < after(start, span(seconds)):
        return None
    message = f"the job ran longer than activeDeadlineSeconds ({seconds} s){_cause(seen, now)}"
    return _end(Outcome(False, "DeadlineExceeded", message))


def fail_when_pending_too_long(seen: Seen, now: datetime) -> Plan | None:
    """A job fails when none of its nodes could start for pendingTimeoutSeconds; the message has the cause."""
    seconds, since = seen.job.spec.run_policy.pending_timeout_seconds, _pending_since(seen, now)
    if seconds is None or since is None or now < after(since, span(seconds)):
        return None
    message = f"no node could start for {seconds} s (pendingTimeoutSeconds){_cause(seen, now)}"
    return _end(Outcome(False, "PendingTimeout", message))


def fail_when_the_master_is_spent(seen: Seen, now: datetime) -> Plan | None:
    """A master that crashes again and again cannot hold the job together."""
    node = seen.master
    if not seen.job.spec.needs_master or not node.is_spent(policy(seen.job)):
        return None
    reason = node.latest.ended.sentence if node.latest and node.latest.ended else "it failed"
    message = f"the master failed {node.restarts} times, the last time with {reason}"
    return _end(Outcome(False, "MasterFailed", message))


def fail_by_the_failure_policy(seen: Seen, now: datetime) -> Plan | None:
    """A failure for which failurePolicy says FailJob ends the job, even while other nodes run."""
    for node in seen.target_nodes:
        end = node.latest.ended if node.latest else None
        if end is not None and end.consequence.fails_job:
            return _end(Outcome(False, *_why_spent(seen, node)))
    return None


def fail_when_restarts_are_spent(seen: Seen, now: datetime) -> Plan | None:
    """A job fails beyond its backoffLimit, or when nodes that are lost for good leave too few of a role.

    So it does when the node whose success would be the job's is lost for good.
    """
    limit = seen.job.spec.run_policy.backoff_limit
    total = sum(node.charges(seen.policy(node.role)) for node in seen.target_nodes)
    if limit is not None and total > limit:
        message = f"failures of nodes: {total}, more than backoffLimit {limit}; {_last_failure(seen)}"
        return _end(Outcome(False, "BackoffLimitExceeded", message))
    for role in seen.sizes:
        spent = [node for node in seen.target_nodes if node.role == role and seen.is_spent(node)]
        if (leader := next((node for node in spent if _leads(seen, node)), None)) is not None:
            reason, why = _why_spent(seen, leader)
            return _end(Outcome(False, reason, f"{why}; its success would be the job's ({LEADS})"))
        if spent and seen.sizes[role] - len(spent) < _fewest(seen, role):
            return _end(Outcome(False, *_why_spent(seen, spent[0])))
    return None


def complete_by_the_pods(seen: Seen, now: datetime) -> Plan | None:
    """A job ends when all nodes that train have ended, or as its successPolicy says.

    The verdict of a master comes first. It has none where nodes failed for good and programs have no agent.
    The others may train on without a node that failed for good; what one does after they have ended is its
    part of the result.
    """
    if seen.job.spec.suspend:
        return None
    leader = next((node for node in seen.target_nodes if _leads(seen, node)), None)
    if leader is not None and leader.succeeded and not seen.job.spec.needs_master:
        message = f"{leader.role} {leader.index} has succeeded ({LEADS})"
        return _end(Outcome(True, "PodsSucceeded", message))
    since = _all_ended_at(seen, now)
    if since is None or (seen.job.spec.needs_master and now < after(since, VERDICT)):
        return None
    training = _training(seen)
    if late := _failed_last(seen, training):
        reason, why = _why_spent(seen, late)
        return _end(Outcome(False, reason, f"{why}; the others had succeeded, and its part is missing"))
    message = "all pods that train have succeeded"
    if spent := sum(map(seen.is_spent, training)):
        told = f"{len(training) - spent} of {len(training)} pods that train have succeeded"
        message = f"{told}; {spent} failed for good, and minReplicas allows that"
    return _end(_unless_a_role_never_ran(seen, Outcome(True, "PodsSucceeded", message), now))


def wait_for_the_predecessor(seen: Seen, now: datetime) -> Plan | None:
    """A JobResource of an earlier job of this name must be gone before this job begins."""
    if seen.resource is None or controller_uid(seen.resource.metadata) == seen.job.metadata.uid:
        return None
    sentence = f"JobResource {seen.job.metadata.name} belongs to another job: waiting until it is gone"
    goes = owner_of(seen.resource.metadata) is not None
    return Plan(NAME_TAKEN, sentence, again_in=SOON if goes else LATER)


def free_everything_when_suspended(seen: Seen, now: datetime) -> Plan | None:
    """A suspended job has no pods; its services and snapshot stay. The master goes last: its nodes save until
    they are gone, and tell it of that.

    A master may have ended meanwhile, with the job's verdict: it is deleted only at the version seen.
    """
    if not seen.job.spec.suspend:
        return None
    actions: tuple[Action, ...] = (*suspension(seen), *_masters_that_go(seen))
    follow = () if actions else (follow_the_templates, follow_the_users_sizes)
    if asked_for := next((plan for rule in follow if (plan := rule(seen, now))), None):
        return asked_for
    return Plan("JobSuspended", "the job is suspended: its pods are freed", groups=group(actions))


def free_everything_of_another_template(seen: Seen, now: datetime) -> Plan | None:
    """All pods are gone before the first one of another template: a world has nodes of one.

    A job may be suspended, changed and resumed while no operator looks, or faster than its pods leave or
    come: that there are none says the controller that makes them, once it has seen the suspension.
    """
    if not seen.is_stale or seen.resource is None:
        return None
    stop = () if seen.resource.spec.suspend else (all_fields(seen, suspend=True),)
    actions: tuple[Action, ...] = (*stop, *_masters_that_go(seen))
    has_stopped = seen.resource.status.observed_generation == seen.resource.metadata.generation
    if not actions and has_stopped and all(life.over for life in (*seen.lives, *seen.masters)):
        return None
    sentence = "what nodes are made from has changed: all pods leave, and the job begins anew"
    return Plan("TemplateChanged", sentence, groups=group(actions))


def _masters_that_go(seen: Seen) -> tuple[Delete, ...]:
    """The deletions of masters whose nodes are gone, and of those that hear them no more."""
    lone = not any(life.alive for life in seen.lives)
    ends = (each for each in seen.masters if each.frees and (lone or each.lost or not each.running))
    return tuple(deletion(life, as_seen=True) for life in ends)


def _foundation(seen: Seen) -> tuple[Create, ...]:
    provision = seen.provision
    parts = foundation(seen.job, seen.fresh_token, provision.scrapers, provision.brain_key)
    return (*parts, address(seen.job)) if seen.job.spec.needs_master and not seen.address else parts


def ask_for_the_masters_address(seen: Seen, now: datetime) -> Plan | None:
    """The master's Service is made before all else, since an API server allots addresses one after another.

    Of many jobs that are made at once, all ask before the server is busy with the pods of the first.
    """
    if seen.resource is not None or seen.address != "" or not seen.job.spec.needs_master:
        return None
    return Plan(ADDRESS_ASKED, groups=((address(seen.job),),), again_in=AT_ONCE)


def make_what_is_missing(seen: Seen, now: datetime) -> Plan | None:
    """Token, rights, services and JobResource are created together with the first master."""
    if seen.resource is not None:
        return None
    parts, start = _foundation(seen), begin(seen)
    last = [job_resource(seen.job, start.gang, seen.grant, seen.fresh_token)]
    if seen.names_from not in (None, seen.job.metadata.uid):
        last.append(pod_names(seen.job))  # which is in the way: the job begins once that Service is gone
    if seen.job.spec.needs_master and seen.master.standing(policy(seen.job), now) is Standing.DUE:
        last[:0] = _next_master(seen, now)
    every = (*start.creations, *parts, *last)
    made = [f"{each.kind.name} {each.manifest['metadata']['name']}" for each in every]
    objects = "1 object" if len(made) == 1 else f"{len(made)} objects"
    note = Note(JOB_CREATED, f"created {objects}: {', '.join(made)}")
    groups = (*start.groups, parts, tuple(last))
    queueless = (Note(KUEUE_ABSENT, without_kueue(seen), warning=True),) if seen.queueless else ()
    return Plan(note.reason, note.sentence, groups=groups, details=(note, *start.notes, *queueless))


def _next_master(seen: Seen, now: datetime) -> tuple[Create, ...]:
    """Return the next pod of the master, in its place of the job's quota; none while that is taken."""
    made = master_pod(seen.job, seen.master, seen.provision, seen.master.repeats(now))
    if seen.grant is None:
        return (made,)
    place = seen.grant.free(seen.masters).take(names.MASTER)
    return (replace(made, manifest=place.fit(made.manifest)),) if place else ()


def lead_to_the_pods(seen: Seen, now: datetime) -> Plan | None:
    """The Services of master and pods select them once they have addresses.

    Before, the control plane would write their lists of addresses again and again, with nothing in them.
    """
    actions: list[Action] = []
    if seen.unaimed and _has_an_address(seen.masters):
        actions.append(aim(seen.job, seen.unaimed))
    if seen.names_from is None and _has_an_address((*seen.masters, *seen.lives)):
        actions.append(pod_names(seen.job))
    return Plan("ServicesLead", groups=group(actions), again_in=SOON) if actions else None


def follow_the_network_policy(seen: Seen, now: datetime) -> Plan | None:
    """A NetworkPolicy comes and goes with `networkPolicy`, also while the job runs."""
    wanted, name = seen.job.spec.network_policy, seen.job.metadata.name
    if wanted == seen.has_network_policy:
        return None
    remember = (all_fields(seen, network=wanted),)
    if wanted:
        made = (network_policy(seen.job, seen.provision.scrapers),)
        sentence = "the job has a NetworkPolicy now (networkPolicy)"
        return Plan("NetworkPolicyMade", sentence, groups=(made, remember))
    gone = (DeleteOwned(NETWORK_POLICY, name, seen.job.metadata.uid),)
    sentence = "the job has no NetworkPolicy any more (networkPolicy: false)"
    return Plan("NetworkPolicyDeleted", sentence, groups=(gone, remember))


def resume(seen: Seen, now: datetime) -> Plan | None:
    """A job that is no longer suspended gets its nodes back, in the gang that it asks for now."""
    if not suspension(seen):
        return None
    start, note = begin(seen), Note("JobResumed", "the job goes on")
    groups = (*start.groups, (write_gang(seen, start.gang),))
    return Plan(note.reason, note.sentence, groups=groups, details=(note, *start.notes))


def have_the_gang_follow(seen: Seen, now: datetime) -> Plan | None:
    """The least number of a gang, its queue and its time limit follow those of the job."""
    gang = changed_gang(seen)
    if gang is None:
        return None
    sentence = f"the gang of the job is placed where {gang.least} pods fit"
    return Plan("GangChanged", sentence, groups=(*changes(seen, gang), (write_gang(seen, gang),)))


def make_the_master_again(seen: Seen, now: datetime) -> Plan | None:
    """A master that is gone is recreated: at once after a kill, after a back-off if it crashes."""
    if not seen.job.spec.needs_master:
        return None
    match seen.master.standing(policy(seen.job), now):
        case Standing.DUE:
            parts, pods = _foundation(seen), _next_master(seen, now)
            if not pods:
                return Plan("MasterWaits", "the master waits for the pod before it to end", again_in=SOON)
            note = _master_note(seen, pods[0].manifest["metadata"]["name"], now)
            return Plan(note.reason, note.sentence, groups=(parts, pods), details=(note,))
        case Standing.PAUSES:
            return Plan("MasterPauses", "the master is made again soon", again_in=seen.master.due(now) - now)
        case _:
            return None


def give_back_the_masters_quota(seen: Seen, now: datetime) -> Plan | None:
    """A master whose quota is taken back, or that never had any, leaves, and is made again where there is."""
    life = seen.master.latest
    if seen.grant is None or life is None or not life.alive or life.terminating:
        return None
    if not seen.grant.admitted or life.workload in seen.grant.workloads:
        return None
    sentence = f"{life.name} leaves: its quota is taken back"
    return Plan("MasterLeaves", sentence, group([deletion(life)]))


def free_masters_of_lost_machines(seen: Seen, now: datetime) -> Plan | None:
    """Pods of machines that are gone, and all but the last few dead masters, are deleted.

    A dead master beside which a container goes on is deleted once there is another: the master's Service
    sends agents to every pod that has not ended.
    """
    lost = [life for life in seen.masters if life.lost]
    dead = [life for life in seen.master.lives if life.ended and not life.lost and not life.terminating]
    stay = [life for life in dead[-KEPT_MASTERS:] if not life.lingers or life is seen.master.latest]
    going = [*lost, *(life for life in dead if life not in stay)]
    sentence = f"deleted old pods of the master: {', '.join(life.name for life in going)}"
    return Plan("MastersTidied", sentence, group(map(deletion, going))) if going else None


def move_the_master_before_its_machine_ends(seen: Seen, now: datetime) -> Plan | None:
    """A master whose machine ends within minutes is recreated elsewhere, and continues from its snapshot."""
    life = seen.master.latest
    if life is None or not life.alive or life.terminating or not (life.notice and life.notice.at_once):
        return None
    left = leaves_in(seen.job.spec.master.pod if seen.job.spec.master else {}, life.since, now)
    if left is None or left:
        return Plan("MasterLeaves", quiet=True, again_in=left) if left else None
    sentence = f"{life.name} leaves {life.machine}, which {life.notice.why}"
    return Plan("MasterLeaves", sentence, group([deletion(life)]))


def follow_the_users_sizes(seen: Seen, now: datetime) -> Plan | None:
    """A size that the user changed becomes a manual ScalePlan, once: its name is the job's generation.

    A size that could not be had becomes another one when the job has changed. So does a size out of its
    role's bounds, which the user or an autoscaler has changed.
    """
    if seen.resource is None:
        return None
    remember = (write_request(seen),)
    wish = next((wish for wish in wishes(seen) if wish.sizes), None)
    if wish is None and sizes_of_user(seen.job) == seen.last_asked:
        return None
    if wish is None:
        return Plan("SizesForgotten", "the user leaves the size to the optimizer", groups=(remember,))
    reason = f"{wish.who} {', '.join(f'{role} {count}' for role, count in wish.sizes.items())}"
    changes = {"replicaResourceSpecs": {role: {"replicas": n} for role, n in wish.sizes.items()}}
    plan = scale_plan(seen, wish.plan, changes, reason, manual=True)
    return Plan("SizeAsked", f"{reason}: ScalePlan {wish.plan}", groups=((plan,), remember))


def grow_after_out_of_memory(seen: Seen, now: datetime) -> Plan | None:
    """Nodes that were out of memory get more, within the job's limits, once for each pod that was killed."""
    growth = _growth(seen)
    if growth is None:
        return None
    plan = scale_plan(seen, growth.plan, growth.changes, growth.sentence, manual=False)
    return Plan("MemoryGrown", growth.sentence, groups=((plan,),))


RULES: Final[tuple[Rule[Seen], ...]] = (
    leave_it_to_others,
    leave_it_to_the_collector,
    delete_when_its_time_is_over,
    rest_when_over,
    end_on_the_verdict,
    fail_when_it_cannot_be_trained,
    fail_after_the_deadline,
    fail_when_pending_too_long,
    wait_for_the_predecessor,
    fail_when_the_master_is_spent,
    fail_by_the_failure_policy,
    fail_when_restarts_are_spent,
    complete_by_the_pods,
    free_everything_when_suspended,
    free_everything_of_another_template,
    wait_for_a_gang_scheduler,
    ask_for_the_masters_address,
    make_what_is_missing,
    give_the_masters_address_back,
    make_again_what_was_deleted,
    follow_the_network_policy,
    follow_the_templates,
    resume,
    have_the_gang_follow,
    make_the_master_again,
    give_back_the_masters_quota,
    free_masters_of_lost_machines,
    lead_to_the_pods,
    move_the_master_before_its_machine_ends,
    follow_the_users_sizes,
    grow_after_out_of_memory,
)


def _has_an_address(lives: Iterable[Life]) -> bool:
    return any(life.addressed and life.alive for life in lives)


def _leads(seen: Seen, node: Node) -> bool:
    """Whether the success of a node is the job's, whoever else goes on."""
    return (node.role, node.index) == seen.job.spec.leader


def _training(seen: Seen) -> list[Node]:
    return [node for node in seen.target_nodes if node.role not in AT_THE_SIDE]


def _all_ended_at(seen: Seen, now: datetime) -> datetime | None:
    """Return since when all nodes that train have succeeded or failed for good, and a master could say so."""
    training = _training(seen)
    if not training or not all(node.succeeded or seen.is_spent(node) for node in training):
        return None
    lives = [node.latest for node in training]
    times = [life.ended.at for life in lives if life and life.ended and life.ended.at]
    if seen.job.spec.needs_master:
        master = seen.master.latest
        if master is None or not master.running:
            return None
        times += [master.created] if master.created else []
    return max(times, default=now)


def _failed_last(seen: Seen, training: Sequence[Node]) -> Node | None:
    """Return a node that failed for good when another one had succeeded already."""
    ends = [(node, node.latest.ended.at) for node in training if node.latest and node.latest.ended]
    first = min((at for node, at in ends if at and node.succeeded), default=None)
    late = (node for node, at in ends if first and at and at >= first and seen.is_spent(node))
    return next(late, None)


def _verdict_in(seen: Seen, now: datetime) -> timedelta | None:
    """Return when the master's verdict is waited for no longer."""
    since = _all_ended_at(seen, now) if seen.job.spec.needs_master else None
    return None if since is None else after(since, VERDICT) - now


def _end(outcome: Outcome) -> Plan:
    return Plan(outcome.reason, outcome.message, outcome=outcome)


def _unless_a_role_never_ran(seen: Seen, outcome: Outcome, now: datetime) -> Outcome:
    """Return a failure for a success without a needed role, all of whose first pods still wait.

    Its workers have ended without parameters that anyone served, or without the chief, which saves them.
    """
    lives = [life for node in seen.target_nodes for life in node.lives]
    ran = {life.role for life in lives if life.running or life.ended or life.relaunch}
    ran |= {node.role for node in seen.target_nodes if node.succeeded or node.failed}
    idle = sorted(CRITICAL & {life.role for life in lives} - ran)
    if not outcome.succeeded or not idle:
        return outcome
    message = f"no pod of {' or '.join(idle)} ever ran, although the workers ended: {outcome.message}"
    return Outcome(False, NEVER_RAN, f"{message}{_cause(seen, now)}")


def deadline_in(seen: Seen, now: datetime) -> timedelta | None:
    """Return when the next deadline of the job is due."""
    policy_, start = seen.job.spec.run_policy, seen.job.status.start_time
    limits = (
        (policy_.active_deadline_seconds, None if seen.job.spec.suspend else start or now),
        (policy_.pending_timeout_seconds, _pending_since(seen, now)),
    )
    return soonest(
        after(since, span(seconds)) - now for seconds, since in limits if seconds is not None and since
    )


def _pending_since(seen: Seen, now: datetime) -> datetime | None:
    """Return since when no node has run; None while a node runs, or has ended and is replaced."""
    tried = (n.succeeded or (n.latest and (n.latest.running or n.latest.ended)) for n in seen.target_nodes)
    if seen.job.spec.suspend or any(tried):
        return None
    start, running = seen.job.status.start_time, find(seen.job.status.conditions, "Running")
    if start is None or running is None or running.status == TRUE or running.last_transition_time is None:
        return now
    return max(start, running.last_transition_time)


def _cause(seen: Seen, now: datetime) -> str:
    """Return what held the job back at last: as its status tells it, or pods that start; else ""."""
    if not seen.job.status.reason:  # a deadline may be shorter than what counts as slow
        held = obstacles(seen, AS_SPECIFIED, now, timedelta(0))
        return f": {few((each.sentence for each in held), separator='; ')}" if held else ""
    told = (find(seen.job.status.conditions, type_) for type_ in ("Running", "Restarting"))
    messages = [each.message for each in told if each and (each.type == "Running" or each.status == "True")]
    return f": {'; '.join(messages)}" if messages else ""


def _growth(seen: Seen) -> Growth | None:
    """The growth for the first node that was out of memory, if no plan gives it more yet."""
    if seen.resource is None:
        return None
    sizing = Sizing(seen.job, seen.resource, seen.plans, seen.largest)
    asked_for = (sizing.growth(node.latest) for node in seen.target_nodes if node.latest)
    return next((growth for growth in asked_for if growth), None)


def _fewest(seen: Seen, role: str) -> int:
    """The fewest nodes of a role with which the job goes on: its minimum if it is elastic, else all."""
    spec, size = seen.job.spec.replica_specs[role], seen.sizes[role]
    return (
        size
        if role in CRITICAL or not spec.elastic
        else max(1, min(seen.job.spec.range_of(role).lowest, size))
    )


def _why_spent(seen: Seen, node: Node) -> tuple[str, str]:
    """The reason and the sentence of a job that fails because of `node`."""
    if node.latest is None or node.latest.ended is None:
        return RESTARTS_SPENT, f"{node.role} {node.index} failed"
    end = node.latest.ended
    reason, why = node.why_spent(seen.policy(node.role))
    told = f"{node.latest.name} failed with {end.sentence}; {why}{_more_memory(seen, node)}"
    return end.word if end.container else reason, told


def _more_memory(seen: Seen, node: Node) -> str:
    """What to do about a node that was out of memory at last, to follow a sentence."""
    if seen.resource is None or node.latest is None:
        return ""
    sizing = Sizing(seen.job, seen.resource, seen.plans, seen.largest)
    if why := sizing.why_no_more(node.latest):
        return f"; {why}"
    memory = sizing.next_memory(node.latest)
    return f"; it would get {memory} next: raise restartCount, or begin with more memory" if memory else ""


def _last_failure(seen: Seen) -> str:
    failed = [
        life
        for node in seen.target_nodes
        for life in node.lives
        if life.ended and life.ended.consequence.counts
    ]
    failed.sort(key=lambda life: life.ended.at.timestamp() if life.ended and life.ended.at else 0.0)
    last = failed[-1] if failed else None
    return f"the last: {last.name}, {last.ended.sentence}" if last and last.ended else "their pods are gone"


def _master_note(seen: Seen, name: str, now: datetime) -> Note:
    life = seen.master.latest
    if life is None:
        return Note("MasterCreated", f"created the master {name}")
    why = f"{why_anew(life)}{seen.master.told_repeats(now)}"
    return Note("MasterRelaunched", f"{name} replaces {life.name}: {why}", warning=True)
