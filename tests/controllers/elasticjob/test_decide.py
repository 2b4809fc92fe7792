"""Seen → plan of an ElasticJob, a row or more for every rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from elasticjob.api.readings import LONGEST_SECONDS
from elasticjob.api.v1alpha1.checks.changes import what_nodes_are_made_from_stays
from elasticjob.api.v1alpha1.common import LABEL_ROLE, RESTARTS_SPENT
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.controllers.elasticjob import decide as rules
from elasticjob.controllers.elasticjob import objects
from elasticjob.controllers.elasticjob.decide import decide
from elasticjob.controllers.elasticjob.gang import wait_for_a_gang_scheduler
from elasticjob.controllers.elasticjob.master import Provision
from elasticjob.controllers.elasticjob.obstacles import needs
from elasticjob.controllers.elasticjob.seen import Seen
from elasticjob.controllers.elasticjob.sizes import write_request
from elasticjob.controllers.elasticjob.templates import follow_the_templates
from elasticjob.controllers.elasticjob.upkeep import (
    give_the_masters_address_back,
    make_again_what_was_deleted,
    outside_caches,
)
from elasticjob.controllers.kueue.grant import Grant, Place
from elasticjob.controllers.nodes.drains import Notice
from elasticjob.controllers.nodes.exits import Exit
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.gangs import gang as gangs
from elasticjob.controllers.parts.gangs.apis import gang_from
from elasticjob.controllers.parts.gangs.gang import Gang
from elasticjob.controllers.parts.owners import kinds_outside_caches
from elasticjob.controllers.passes.plan import (
    Action,
    Apply,
    Create,
    CreateOrApply,
    Delete,
    DeleteOwned,
    Outcome,
    Patch,
)
from elasticjob.controllers.passes.rules import leave_it_to_others, leave_it_to_the_collector
from elasticjob.kube.objects.views import POD_DISRUPTION_BUDGET, OwnerReference
from elasticjob.sizing.exits import ExitReason
from lab.build.jobs import (
    LONG_AGO,
    NOW,
    at,
    ended,
    job,
    life,
    master,
    oom,
    over,
    pending,
    plan,
    resource,
    role,
    template,
)
from lab.build.plans import annotations_of, manifests

PROVISION = Provision("elasticjob/trainer:test")
FULL = (life(0), life(1))
MASTERS = (master(),)
LEADER = {"successPolicy": "ChiefOrWorker0"}
NO_DATA = {
    "failurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}
}


KUBERNETES = "scheduling.k8s.io/v1alpha1"
VOLCANO = "scheduling.volcano.sh/v1beta1"


def seen(
    job_: Any = None,
    resource_: Any = None,
    masters: Any = MASTERS,
    lives: Any = FULL,
    plans: Any = (),
    **more: Any,
) -> Seen:
    return Seen(job_ or job(), resource_, masters, lives, plans, PROVISION, "t0ken", **more)


def together(gang: str = "volcano", roles: Any = None, **more: Any) -> Any:
    return job(roles, runPolicy={"scheduling": {"gang": gang, **more.pop("scheduling", {})}}, **more)


def grouped(least: int, *, sizes: Any = None, **more: Any) -> Any:
    """A JobResource whose pods are a gang of Volcano."""
    made = Gang(VOLCANO, "digits", least, roles={"worker": least})
    return resource(sizes, gang=gangs.written(made), **more)


def immutable(least: int) -> Any:
    """The JobResource of a suspended job, whose gang cannot change."""
    return resource(gang=gangs.written(Gang(KUBERNETES, "digits", least)), suspend=True)


def running(job_: Any = None, **more: Any) -> Seen:
    return seen(job_, **{"resource_": resource(), **more})


def waiting_for(
    seconds: int,
    *,
    start: int = 600,
    status: str = "False",
    policy: dict[str, Any] | None = None,
    **more: Any,
) -> Seen:
    """A job that began `start` s ago and whose nodes have not run for `seconds`; it allows 60 s."""
    running_ = {"type": "Running", "status": status, "message": "0 of 2 nodes run; no GPU"}
    changed = {"lastTransitionTime": at(NOW - timedelta(seconds=seconds))}
    known = {"startTime": at(NOW - timedelta(seconds=start)), "reason": "Unschedulable"}
    limits, conditions = {"pendingTimeoutSeconds": 60, **(policy or {})}, [running_ | changed]
    told = job(runPolicy=limits, status=known | {"conditions": conditions}, **more)
    return running(told, lives=(pending(0), pending(1)))


GRANT = Grant("team", admitted=True, places=(Place("base", "master", 1), Place("base", "worker", 2)))
PS_JOB = {"worker": role(1), "ps": role(1)}


@pytest.mark.parametrize(
    ("server", "never_ran"),
    [
        (pending(0, role="ps"), "no pod of ps ever ran, although the workers ended: 97.8 % after 3 epochs"),
        (pending(0, 1, role="ps"), ""),
        (life(0, role="ps"), ""),
        (ended(0, role="ps"), ""),
        (pending(1), ""),
        (None, ""),
    ],
)
def test_workers_that_end_before_any_server_ran_are_no_success(server: Life | None, never_ran: str) -> None:
    """They trained with nothing: the example whose servers found no machine used to succeed."""
    asked = job(PS_JOB, distributionStrategy="ParameterServerStrategy")
    given = resource({"worker": 1, "ps": 1})
    lives = (ended(0, code=0), *([server] if server else []))
    found = decide(running(asked, resource_=given, masters=(ends(SUCCEEDED),), lives=lives), NOW)
    assert found.outcome is not None
    if not never_ran:
        assert (found.outcome.succeeded, found.outcome.message) == (True, "97.8 % after 3 epochs")
        return
    assert (found.outcome.succeeded, found.outcome.reason) == (False, "RoleNeverRan")
    assert found.outcome.message == never_ran


def ends(words: str, code: int = 0) -> Any:
    return ended(0, code=code, role="master", words=words)


def written(action: Action) -> str:
    match action:
        case Create(kind, manifest):
            ip = (manifest.get("spec") or {}).get("clusterIP", "None")
            return f"+{kind.name} {manifest['metadata']['name']}" + (f" at {ip}" if ip != "None" else "")
        case Delete(kind, name, _, grace):
            return f"-{kind.name} {name}" + ("!" if grace == 0 else "")
        case DeleteOwned(kind, name):
            return f"-{kind.name} {name}"
        case CreateOrApply(kind, manifest):
            return f"={kind.name} minMember {manifest['spec']['minMember']}"
        case Apply(kind, manifest):
            return f"={kind.name} suspend {manifest['spec']['suspend']}"
        case Patch(kind, name, _, body):
            return f"={kind.name} {name} selects {body['spec']['selector'][LABEL_ROLE]}"
        case _:
            raise AssertionError(action)


SUCCEEDED = '{"verdict": "Succeeded", "reason": "TrainingSucceeded", "message": "97.8 % after 3 epochs"}'
FAILED = '{"verdict": "Failed", "reason": "WorkerFailed", "message": "worker 0: ValueError"}'
STOPPED = '{"verdict": "Stopped", "message": "SIGTERM"}'
FOUNDATION = {
    "+NetworkPolicy digits",
    "+Secret digits-token",
    "+ConfigMap digits-master-state",
    "+ServiceAccount digits-master",
    "+Role digits-master",
    "+RoleBinding digits-master",
    "+Service digits-master",
}
ONES_THAT_COST_MORE = {"+ServiceAccount digits-master", "+Service digits-master"}
LOCAL: dict[str, Any] = {"distributionStrategy": "Local"}
ELASTIC = {"worker": role(2, minReplicas=1, maxReplicas=4)}

ONE_LEFT = (ended(0, 3, restarts_before=3, at=LONG_AGO - timedelta(minutes=1)), ended(1, code=0))
ONE_EXPORTS = (ended(0, 3, restarts_before=3), ended(1, code=0))
"""A node that failed for good, and one that has succeeded."""
BIGGER = {"worker": {"replicas": 2, "template": template("32Gi")}}


def templated(memory: str, *, seen_last: str = "4Gi", **more: Any) -> Any:
    """A JobResource that has seen a template of `seen_last`, and got `memory` by a plan."""
    made = resource(resources={"worker": {"memory": memory}} if memory else {}, **more)
    known = {"worker": {"cpu": "100m", "memory": seen_last}}
    made.metadata.annotations[names.TEMPLATES] = objects.written_amounts(known)
    return made


def without_policy(**more: Any) -> Any:
    made = resource(**more)
    made.metadata.annotations[names.NETWORK] = "false"
    return made


def lacking(*objects_: str, token: str = "t0ken", **more: Any) -> Seen:
    """A running job some of whose objects others have deleted."""
    known = more.pop("resource_", None) or resource()
    known.metadata.annotations.setdefault(names.TOKEN, objects.fingerprint(token))
    given = running(more.pop("job_", None), resource_=known, **more)
    return replace(given, absent=tuple(each for each in outside_caches(given) if written(each) in objects_))


FOLLOWS = "=JobResource suspend False"
"""The JobResource is written, with what it has to say now."""
ALL = {*FOUNDATION, "+Pod digits-master-0", "+JobResource digits"}

ROWS: dict[Callable[..., Any], list[tuple[Any, ...]]] = {
    leave_it_to_others: [(running(job(managedBy="kueue.x-k8s.io/multikueue")), "ManagedByOther")],
    leave_it_to_the_collector: [(running(job(metadata={"deletionTimestamp": at(NOW)})), "Deleting")],
    rules.delete_when_its_time_is_over: [
        (running(job(status=over(), runPolicy={"ttlSecondsAfterFinished": 60})), "Expired",
         "-ElasticJob digits")
    ],
    rules.rest_when_over: [
        (running(job(status=over())), "Finished", "-Pod digits-master-0"),
        (running(job(status=over(ended=NOW))), "Finished"),
        (running(job({"worker": role(9)}, status=over()), masters=(), lives=(oom(0),)), "Finished"),
        (running(job(status=over()), masters=(ends(SUCCEEDED),)), "Finished"),
        (running(job(status=over(), runPolicy={"cleanPodPolicy": "All"}), masters=(ends(SUCCEEDED),)),
         "Finished", "-Pod digits-master-0"),
    ],
    rules.end_on_the_verdict: [
        (running(masters=(ends(SUCCEEDED),)), "TrainingSucceeded"),
        (running(masters=(ends(FAILED, 1),)), "WorkerFailed"),
        (running(masters=(ends(""),)), "MasterSucceeded"),
    ],
    rules.fail_when_it_cannot_be_trained: [
        (running(job(metadata={"annotations": {"elasticjob.dlrover/framework": "mxnet"}})),
         "UnknownFramework"),
        (running(job(distributionStrategy="ParameterServerStrategy")), "InvalidSpec"),
    ],
    rules.fail_after_the_deadline: [
        (running(job(runPolicy={"activeDeadlineSeconds": 60}, status={"startTime": at(LONG_AGO)})),
         "DeadlineExceeded"),
        (waiting_for(60, policy={"activeDeadlineSeconds": 60}), "DeadlineExceeded"),  # both limits are over
    ],
    rules.fail_when_pending_too_long: [(waiting_for(60), "PendingTimeout")],
    rules.wait_for_the_predecessor: [(seen(resource_=resource(owner="job-0")), "NameTaken")],
    rules.fail_when_the_master_is_spent: [
        (running(masters=(ended(0, 5, 3, role="master", restarts_before=5, words="boom"),)), "MasterFailed"),
        (running(job(runPolicy=NO_DATA), lives=(ended(0, code=42), life(1)),
                 masters=(ended(0, 5, 3, role="master", restarts_before=5, words="boom"),)), "MasterFailed"),
    ],
    rules.fail_by_the_failure_policy: [
        (running(job(runPolicy=NO_DATA), lives=(ended(0, code=42), life(1))), "PodFailurePolicy")
    ],
    rules.fail_when_restarts_are_spent: [
        (running(lives=(ended(0, 3, restarts_before=3), life(1))), "RestartsSpent"),
        (running(job({"worker": role(2, restartPolicy="Never")}), lives=(ended(0), life(1))), "PodFailed"),
        (running(job({"worker": role(2, restartPolicy="ExitCode")}), lives=(ended(0), life(1))), "PodFailed"),
        (running(lives=(ended(0, code=127), ended(0, 1, 127, restarts_before=1), life(1))), "CannotStart"),
        (running(lives=(oom(0, 3, restarts_before=3), life(1))), "OutOfMemory"),
        (running(job(runPolicy={"backoffLimit": 1}), lives=(ended(0, 1, restarts_before=1), life(1))),
         "BackoffLimitExceeded"),
        (running(job(ELASTIC, runPolicy=LEADER), lives=ONE_LEFT), "RestartsSpent"),
        (running(job(ELASTIC, runPolicy=LEADER, **LOCAL), masters=(), lives=ONE_LEFT), "RestartsSpent"),
        (running(job(ELASTIC), lives=(ended(0, 3, restarts_before=3), ended(1, 3, restarts_before=3))),
         "RestartsSpent"),
    ],
    rules.complete_by_the_pods: [
        (running(job(**LOCAL), masters=(), lives=(ended(0, code=0), ended(1, code=0))), "PodsSucceeded"),
        (running(job(**LOCAL), resource_=resource(status={"completedIndexes": {"worker": "0"}}), masters=(),
                 lives=(ended(1, code=0),)), "PodsSucceeded"),
        (running(job(**LOCAL, runPolicy=LEADER), masters=(), lives=(ended(0, code=0), life(1))),
         "PodsSucceeded"),
        (running(job(ELASTIC), lives=ONE_LEFT), "PodsSucceeded"),
    ],
    rules.free_everything_when_suspended: [
        (running(job(suspend=True)), "JobSuspended", "=JobResource suspend True"),
        (
            running(
                job(suspend=True),
                resource_=resource(suspend=True),
                lives=(life(0, terminating=True), ended(1, code=143)),
            ),
            "JobSuspended",  # it still hears what the last node saves
        ),
        (running(job(suspend=True), resource_=resource(suspend=True), lives=(ended(0, code=143),)),
         "JobSuspended", "-Pod digits-master-0"),
        (running(job(suspend=True), resource_=resource(suspend=True), masters=(master(terminating=True),)),
         "JobSuspended"),
        (running(job(suspend=True), resource_=resource(suspend=True),
                 masters=(master(terminating=True, lost=True, given_up=NOW),)), "JobSuspended",
         "-Pod digits-master-0!"),
        (seen(job(suspend=True), masters=()), "JobSuspended"),
        (running(job({"worker": role(3)}, generation=7, suspend=True), resource_=resource(suspend=True),
                 masters=()), "SizeAsked", "+ScalePlan digits-user-7", "=JobResource suspend True"),
    ],
    rules.free_everything_of_another_template: [
        (running(resource_=resource(made_from="another")), "TemplateChanged", "=JobResource suspend True"),
        (running(resource_=resource(made_from="another", suspend=True), masters=(), lives=()),
         "TemplateChanged"),  # pods may be there that are not seen yet
        (
            running(resource_=resource(made_from="another", suspend=True)),
            "TemplateChanged",
        ),  # its nodes leave, and tell the master
        (running(resource_=resource(made_from="another", suspend=True), lives=(ended(0, code=143),)),
         "TemplateChanged", "-Pod digits-master-0"),
        (running(resource_=resource(made_from="another", suspend=True), masters=(),
                 lives=(life(0, terminating=True),)), "TemplateChanged"),
    ],
    rules.ask_for_the_masters_address: [
        (seen(masters=(), address=""), "AddressAsked", "+Service digits-master"),
    ],
    rules.make_what_is_missing: [
        (seen(job(networkPolicy=False, **LOCAL), address=""), "JobCreated", "+JobResource digits"),
        (seen(masters=(), address="10.0.0.1:50001"), "JobCreated", *ALL - {"+Service digits-master"}),
        (seen(masters=()), "JobCreated", *ALL),
        (seen(masters=(), names_from="another"), "JobCreated", "+Service digits", *ALL),
        (seen(job(networkPolicy=False, **LOCAL), masters=()), "JobCreated", "+JobResource digits"),
        (seen(), "JobCreated", *FOUNDATION, "+JobResource digits"),
        (seen(together(), masters=(), served={VOLCANO}), "JobCreated", *ALL, "+PodGroup digits"),
        (seen(together("preferred"), masters=()), "JobCreated", *ALL),
    ],
    wait_for_a_gang_scheduler: [
        (seen(together(), masters=()), "GangUnavailable"),
        (seen(together("coscheduling"), masters=(), served={VOLCANO}), "GangUnavailable"),
        (running(together("required"), resource_=resource(suspend=True)), "GangUnavailable"),
    ],
    give_the_masters_address_back: [
        (running(address=""), "ObjectsMadeAgain", "+Service digits-master"),
        (running(address="", known_address="10.0.0.1"), "ObjectsMadeAgain",
         "+Service digits-master at 10.0.0.1", "+Service digits-master"),
    ],
    make_again_what_was_deleted: [
        *((lacking(each), "ObjectsMadeAgain", each) for each in sorted(FOUNDATION - ONES_THAT_COST_MORE)),
        (lacking("+ServiceAccount digits-master"), "ObjectsMadeAgain", "-Pod digits-master-0"),
        (lacking("+Secret digits-token", "+Role digits-master", token="old"), "TokenLost", FOLLOWS),
        (
            lacking("+PodGroup digits", job_=together(), resource_=grouped(2)),
            "ObjectsMadeAgain",
            "+PodGroup digits",
        ),
    ],
    rules.follow_the_network_policy: [
        (running(job(networkPolicy=False)), "NetworkPolicyDeleted", "-NetworkPolicy digits",
         "=JobResource suspend False"),
        (running(resource_=without_policy(suspend=True)), "NetworkPolicyMade", "+NetworkPolicy digits",
         "=JobResource suspend True"),
    ],
    follow_the_templates: [
        (running(job(BIGGER), resource_=templated("8Gi", suspend=True)), "TemplateFollowed",
         "+ScalePlan digits-template-1", "=JobResource suspend True"),
        (running(job(BIGGER, suspend=True), resource_=templated("", suspend=True), masters=()),
         "TemplateFollowed", "=JobResource suspend True"),
        (running(job(BIGGER), resource_=templated("8Gi", suspend=True, seen_last="32Gi"),
                 plans=(plan("digits-template-1", manual=True),)), "TemplateFollowed"),
    ],
    rules.resume: [
        (running(resource_=resource(suspend=True)), "JobResumed", FOLLOWS),
        (running(resource_=resource(made_from="another", suspend=True, status={"observedGeneration": 1}),
                 masters=(), lives=(ended(0, code=143),)), "JobResumed", FOLLOWS),
        (running(together("required"), resource_=resource(suspend=True), served={VOLCANO}), "JobResumed",
         "+PodGroup digits", FOLLOWS),
        (running(together(), resource_=grouped(2, suspend=True), served={VOLCANO}), "JobResumed",
         "+PodGroup digits", FOLLOWS),
        (running(together(), resource_=grouped(1, suspend=True), served={VOLCANO}), "JobResumed",
         "=PodGroup minMember 2", FOLLOWS),
        (running(together("kubernetes", generation=7), resource_=immutable(1), served={KUBERNETES}),
         "JobResumed", "+Workload digits-7", FOLLOWS),
        (running(together("none"), resource_=grouped(2, suspend=True), served={VOLCANO}), "JobResumed",
         FOLLOWS),
    ],
    rules.have_the_gang_follow: [
        (running(together(roles={"worker": role(2), "evaluator": role(1)}),
                 resource_=grouped(3, sizes={"worker": 2, "evaluator": 1}),
                 lives=(ended(0, code=0), ended(1), life(0, role="evaluator"))), "GangChanged",
         "=PodGroup minMember 2", FOLLOWS),
        (running(together(roles=ELASTIC), resource_=grouped(2)), "GangChanged", "=PodGroup minMember 1",
         FOLLOWS),
    ],
    rules.make_the_master_again: [
        (running(masters=(ended(0, code=137, role="master"),)), "MasterRelaunched", *FOUNDATION,
         "+Pod digits-master-0-1"),
        (running(masters=(ends(STOPPED, 0),)), "MasterRelaunched", *FOUNDATION, "+Pod digits-master-0-1"),
        (running(masters=()), "MasterCreated", *FOUNDATION, "+Pod digits-master-0"),
        (running(masters=(ended(0, 1, role="master", restarts_before=1, at=NOW),)), "MasterPauses"),
    ],
    rules.give_back_the_masters_quota: [
        (running(masters=(master(workload="old"),), grant=GRANT), "MasterLeaves", "-Pod digits-master-0"),
        (running(masters=(master(),), grant=GRANT), "MasterLeaves", "-Pod digits-master-0"),
    ],
    rules.free_masters_of_lost_machines: [
        (running(masters=(*(ended(0, n, 137, role="master") for n in range(5)), master(5))), "MastersTidied",
         "-Pod digits-master-0", "-Pod digits-master-0-1"),
        (  # the master's Service would still send agents to it
            running(masters=(ended(0, code=137, role="master", lingers=True), master(1))),
            "MastersTidied",
            "-Pod digits-master-0",
        ),
    ],
    rules.lead_to_the_pods: [
        (running(masters=(master(addressed=True),)), "ServicesLead", "+Service digits"),
        (running(lives=(life(0, addressed=True),)), "ServicesLead", "+Service digits"),
        (running(masters=(master(addressed=True),), unaimed="s"), "ServicesLead",
         "=Service digits-master selects master", "+Service digits"),
        (running(masters=(master(addressed=True),), unaimed="s", names_from="job-1"), "ServicesLead",
         "=Service digits-master selects master"),
    ],
    rules.move_the_master_before_its_machine_ends: [
        (running(masters=(master(notice=Notice("ends within minutes", at_once=True)),)), "MasterLeaves",
         "-Pod digits-master-0")
    ],
    rules.follow_the_users_sizes: [
        (running(job({"worker": role(3)}, generation=7)), "SizeAsked", "+ScalePlan digits-user-7", FOLLOWS),
        (running(job({"worker": role(2, minReplicas=1, maxReplicas=3)}, generation=4),
                 resource_=resource({"worker": 5}, generation=6),
                 plans=(plan("digits-user-4", {"worker": 2}, manual=True, phase="Succeeded"),)), "SizeAsked",
         "+ScalePlan digits-bounds-4-6", FOLLOWS),
        (running(job({"worker": role(None)})), "SizesForgotten", FOLLOWS),
    ],
    rules.grow_after_out_of_memory: [
        (running(lives=(oom(0), life(1))), "MemoryGrown", "+ScalePlan digits-worker-0-memory")
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "row"),
    [pytest.param(rule, row, id=f"{rule.__name__}-{n}") for rule in ROWS for n, row in enumerate(ROWS[rule])],
)
def test_rule(rule: Callable[..., Any], row: tuple[Any, ...]) -> None:
    """A row is what is seen, the reason of the plan, and its actions."""
    given, reason, *actions = row
    assert rule(given, NOW) is not None
    decided = decide(given, NOW)
    assert (decided.reason, {written(action) for action in decided.actions}) == (reason, {*actions})


def test_every_rule_has_a_row() -> None:
    assert ROWS.keys() == set(rules.RULES)


def test_every_object_that_no_cache_shows_is_looked_up() -> None:
    given = replace(running(), provision=replace(PROVISION, brain_key=b"key"))
    found = {(each.kind, each.manifest["metadata"]["name"]) for each in outside_caches(given)}
    owned = set(kinds_outside_caches(OwnerReference("", "ElasticJob", "digits", "job-1")))
    assert found == owned - {(POD_DISRUPTION_BUDGET, "digits")}  # which the pass over the pods looks up
    for rests in (job(suspend=True), job(status=over()), job(metadata={"deletionTimestamp": at(NOW)})):
        assert outside_caches(running(rests)) == ()


def test_a_plan_that_was_made_but_not_remembered_counts() -> None:
    """The operator died in between, and the user is back at the old size."""
    given = running(job(generation=3), plans=(plan("digits-user-2", {"worker": 1}, manual=True),))
    assert {written(action) for action in decide(given, NOW).actions} == {"+ScalePlan digits-user-3", FOLLOWS}


QUIET: list[tuple[str, Seen]] = [
    ("as specified", running()),
    ("a node pends", running(lives=(life(0), pending(1)))),
    ("a stopped master leaves", running(masters=(master(terminating=True),))),
    ("an elastic job lost a node", running(job(ELASTIC), lives=(ended(0, 3, restarts_before=3), life(1)))),
    (
        "an index is vacant",
        running(job(ELASTIC), resource_=resource({"worker": 1}, vacant={"worker": [0]}), lives=(life(1),)),
    ),
    ("a node failed within its budget", running(lives=(ended(0), life(1)))),
    ("kills beyond the budget", running(lives=(ended(0, 9, 137, restarts_before=3), life(1)))),
    ("the optimizer changed the size", running(job(ELASTIC), resource_=resource({"worker": 4}))),
    ("within its bounds", running(resource_=resource({"worker": 4}), plans=(plan("digits-bounds-1-1"),))),
    ("out of memory, and asked", running(lives=(oom(0), life(1)), plans=(plan("digits-worker-0-memory"),))),
    ("out of memory, in mode manual", running(job(optimizeMode="manual"), lives=(oom(0), life(1)))),
    ("autoScale is off", running(job({"worker": role(2, autoScale=False)}), lives=(oom(0), life(1)))),
    ("out of memory at the limit", running(job(resourceLimits={"memory": "1Gi"}), lives=(oom(0), life(1)))),
    (
        "out of memory, and it has more now",
        running(resource_=resource(resources={"worker": {"memory": "1Gi"}}), lives=(oom(0), life(1))),
    ),
    ("no master: one pod still runs", running(job(**LOCAL), masters=(), lives=(ended(0, code=0), life(1)))),
]


STRATEGIES = ("AllreduceStrategy", "ParameterServerStrategy", "CustomStrategy", "Local")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("least", "lives", "outcome"),
    [
        (1, ONE_LEFT, (True, "1 of 2 pods that train have succeeded; 1 failed for good, and minReplicas")),
        (2, ONE_LEFT, (False, "digits-worker-0-3 failed with exit code 1; restartCount 3 is spent")),
        (
            1,
            ONE_EXPORTS,
            (
                False,
                "digits-worker-0-3 failed with exit code 1; restartCount 3 is spent; the others had succ",
            ),
        ),
        (1, (ended(0, code=0), ended(1, code=0)), (True, "all pods that train have succeeded")),
        (1, (ended(0, 3, restarts_before=3), life(1)), None),
        (1, (ended(0, code=0), ended(1, code=1, at=NOW)), None),  # it is replaced
    ],
)
def test_nodes_that_failed_for_good_have_one_answer_in_all_strategies(
    strategy: str, least: int, lives: Any, outcome: tuple[bool, str] | None
) -> None:
    """With programs that have no agent, so that a master has no verdict; with agents it has the same."""
    roles = {"worker": role(2, minReplicas=least, maxReplicas=4)}
    at_side = {"ps": role(1)} if strategy == "ParameterServerStrategy" else {}
    given = running(
        job(roles | at_side, distributionStrategy=strategy),
        masters=() if strategy == "Local" else MASTERS,
        resource_=resource({"worker": 2} | dict.fromkeys(at_side, 1)),
        lives=(*lives, *(life(0, role=role_) for role_ in at_side)),
    )
    found = decide(given, NOW).outcome
    assert (found and (found.succeeded, found.message[: len(outcome[1])] if outcome else "")) == outcome


@pytest.mark.parametrize("field", ["activeDeadlineSeconds", "pendingTimeoutSeconds"])
def test_a_short_deadline_tells_what_pods_still_waited_for(field: str) -> None:
    """Though a start of five seconds is not slow, and so no reason of the status."""
    since = NOW - timedelta(seconds=5)
    lacks = pending(0, since=since, needs=("ConfigMap nope", "Secret there"), start="ContainerCreating: x")
    rests = {"type": "Running", "status": "False", "lastTransitionTime": at(since)}
    status = {"startTime": at(since), "conditions": [rests]}
    given = running(job(runPolicy={field: 5}, status=status), lives=(lacks, pending(1)))
    assert needs(given, NOW, timedelta(0)) == {"ConfigMap nope", "Secret there"}
    told = replace(given, lives=(lacks.without({"ConfigMap nope"}), *given.lives[1:]))
    outcome = decide(told, NOW).outcome
    assert outcome is not None
    assert outcome.message.endswith(": m1 has not started the pod: there is no ConfigMap nope")


USED = "worker 0 was out of memory and killed by the kernel: its pod used 490Mi of 512Mi"
KILLED = Exit(ExitReason.OOM_KILLED, 137, f'{{"message": "{USED}"}}', "512Mi", LONG_AGO, LONG_AGO)
OUT_OF_MEMORY = (pending(0, 3, restarts_before=3, ended=KILLED), life(1))
OF_MEMORY = f"digits-worker-0-3 failed with OOMKilled at 512Mi: {USED}; restartCount 3 is spent; "
NO_ROUTE = Exit(ExitReason.FATAL_ERROR, 3, "no route", at=LONG_AGO, container="fetch")
SPENT = (ended(0, 3, restarts_before=3, words='{"message": "ValueError: no data"}'), life(1))
OF_THE_POD = "digits-worker-0-3 failed with exit code 1: ValueError: no data; restartCount 3 is spent"
OF_THE_MASTER = "node-0: ValueError: no data"
GAVE_UP = ends(f'{{"verdict": "Failed", "reason": "RestartsSpent", "message": "{OF_THE_MASTER}"}}', 1)
WAITED = {"type": "Running", "status": "False", "message": "0 of 2 nodes run; digits-worker-0 is pending"}
ENDS: dict[str, tuple[Seen, str, str]] = {
    "a policy that restarts nothing": (
        running(job({"worker": role(2, restartPolicy="ExitCode")}),
                lives=(ended(0, words="no data"), life(1))), "PodFailed",
        "digits-worker-0 failed with exit code 1: no data; restartPolicy ExitCode does not restart it"),
    "a deadline, and the cause that it cut short": (
        running(job(runPolicy={"activeDeadlineSeconds": 60},
                    status={"startTime": at(LONG_AGO), "reason": "Unschedulable", "conditions": [WAITED]})),
        "DeadlineExceeded", f"the job ran longer than activeDeadlineSeconds (60 s): {WAITED['message']}"),
    "an init container": (
        running(lives=(pending(0, 3, restarts_before=3, ended=NO_ROUTE), life(1))), "InitContainerFailed",
        "digits-worker-0-3 failed with init container fetch: exit code 3: no route; restartCount 3 is spent"),
    "by the failure policy": (
        running(job(runPolicy=NO_DATA), lives=(ended(0, code=42, words="ValueError: no data"), life(1))),
        "PodFailurePolicy",
        "digits-worker-0 failed with exit code 42: ValueError: no data; failurePolicy: FailJob"),
    "no node for too long": (
        waiting_for(60), "PendingTimeout",
        "no node could start for 60 s (pendingTimeoutSeconds): 0 of 2 nodes run; no GPU"),
    "out of memory at the job's limit": (
        running(job(resourceLimits={"memory": "1Gi"}), lives=OUT_OF_MEMORY), "OutOfMemory",
        f"{OF_MEMORY}resourceLimits.memory 1Gi leaves 512Mi for each of worker: raise resourceLimits.memory"),
    "out of memory": (
        running(lives=OUT_OF_MEMORY), "OutOfMemory",
        f"{OF_MEMORY}it would get 1Gi next: raise restartCount, or begin with more memory"),
    "restarts are spent: the pod says so first": (running(lives=SPENT), RESTARTS_SPENT, OF_THE_POD),
    "both say so": (running(masters=(GAVE_UP,), lives=SPENT), RESTARTS_SPENT, OF_THE_POD),
    "the master says so first": (
        running(masters=(GAVE_UP,), lives=(life(0, 3), life(1))), RESTARTS_SPENT, OF_THE_MASTER),
}  # fmt: skip


@pytest.mark.parametrize(("given", "reason", "message"), ENDS.values(), ids=ENDS)
def test_a_job_that_fails_says_what_failed_and_why(given: Seen, reason: str, message: str) -> None:
    decided = decide(given, NOW)
    assert (decided.outcome, decided.sentence) == (Outcome(False, reason, message), message)


def with_deadline(seconds: int, start: timedelta, **more: Any) -> Seen:
    """A job that began so long ago, and may run for some seconds."""
    policy, status = {"activeDeadlineSeconds": seconds}, {"startTime": at(NOW - start)}
    return running(job(runPolicy=policy, status=status, **more))


SECOND = timedelta(seconds=1)
LATER: dict[str, tuple[Seen, int | None]] = {
    "a deadline": (with_deadline(60, 20 * SECOND), 40),
    "one beyond all dates": (with_deadline(2**63 - 1, 3600 * SECOND), LONGEST_SECONDS - 3600),
    "one of a job that has not begun": (
        running(job(runPolicy={"activeDeadlineSeconds": 2**63 - 1})), LONGEST_SECONDS),
    "the next master": (running(job(ELASTIC), masters=(), lives=ONE_LEFT), None),
    "time in which it was suspended": (with_deadline(60, 3600 * SECOND, suspend=True), None),
    "the end of what is left": (
        running(job(status=over(ended=NOW - 10 * SECOND), runPolicy={"ttlSecondsAfterFinished": 60})), 50),
    "a master's verdict": (
        running(job(ELASTIC), lives=(ended(0, 3, restarts_before=3), ended(1, code=0, at=NOW - 10 * SECOND))),
        20),
    "that of a new master, which may know it from its snapshot": (
        running(job(ELASTIC), masters=(master(1, created=NOW),), lives=ONE_LEFT), 30),
    "no node yet": (waiting_for(59), 1),
    "no node yet, since it was resumed": (waiting_for(600, start=20), 40),
    "the status does not say yet that no node runs": (waiting_for(600, status="True"), 60),
    "a node runs": (replace(waiting_for(600), lives=(life(0), pending(1))), None),
    "a node is replaced": (replace(waiting_for(600), lives=(ended(0), pending(1))), None),
    "no node, suspended": (waiting_for(600, suspend=True), None),
}  # fmt: skip


@pytest.mark.parametrize(("given", "again_in"), LATER.values(), ids=LATER)
def test_what_is_not_due_yet_is_looked_at_in_time(given: Seen, again_in: int | None) -> None:
    decided = decide(given, NOW)
    assert decided.outcome is None
    assert decided.again_in == (None if again_in is None else again_in * SECOND)


@pytest.mark.parametrize(("case", "given"), QUIET, ids=[case[0] for case in QUIET])
def test_nothing_is_written(case: str, given: Seen) -> None:
    decided = decide(given, NOW)
    assert (decided.reason, decided.actions, decided.outcome) == ("AsSpecified", (), None)


def test_the_users_size_travels_in_a_manual_plan() -> None:
    decided = decide(running(job({"worker": role(3)}, generation=7)), NOW)
    assert [len(group) for group in decided.groups] == [1, 1]  # a crash in between loses nothing
    asks, follows = manifests(decided)
    assert asks["metadata"]["labels"]["elasticjob.dlrover/scale-type"] == "manual"
    assert asks["spec"]["replicaResourceSpecs"] == {"worker": {"replicas": 3}}
    assert asks["spec"]["reason"] == "the user asks for worker 3"
    assert follows["metadata"]["annotations"] == {
        "elasticjob.dlrover/asked": '{"worker": 3}',
        "elasticjob.dlrover/asked-at": "7",
        "elasticjob.dlrover/template-resources": '{"worker": {"cpu": "100m", "memory": "512Mi"}}',
        "elasticjob.dlrover/made-from": objects.made_from(job()),
        "elasticjob.dlrover/network-policy": "true",
    }


GROWTH = [
    ("twice as much", job(), oom(0), "1Gi"),
    ("at most 8Gi more", job(), oom(0, memory="12Gi"), "20Gi"),
    ("at most the ceiling", job(), oom(0, memory="60Gi"), "64Gi"),
    ("within the job's limits", job(resourceLimits={"memory": "1536Mi"}), oom(0), "768Mi"),
]


@pytest.mark.parametrize(("case", "job_", "killed", "memory"), GROWTH, ids=[case[0] for case in GROWTH])
def test_memory_grows(case: str, job_: Any, killed: Any, memory: str) -> None:
    decided = decide(running(job_, lives=(killed, life(1))), NOW)
    [made] = manifests(decided)
    assert made["spec"]["replicaResourceSpecs"] == {"worker": {"resource": {"memory": memory}}}
    assert f": worker gets {memory}" in decided.sentence


def test_a_node_with_memory_of_its_own_is_given_more_of_it() -> None:
    own = resource(nodes={"digits-worker-0": {"memory": "512Mi", "cpu": "1"}})
    decided = decide(running(resource_=own, lives=(oom(0), life(1))), NOW)
    [made] = manifests(decided)
    assert "replicaResourceSpecs" not in made["spec"]
    assert made["spec"]["migratePods"] == [{"name": "digits-worker-0", "resource": {"memory": "1Gi"}}]
    assert decided.sentence == "digits-worker-0 was OOMKilled at 512Mi: digits-worker-0 gets 1Gi"


def test_a_master_that_may_have_ended_since_is_not_deleted_unheard() -> None:
    """Its verdict would be lost: training that succeeded as the job was suspended would begin anew."""
    alive = life(0, role="master", version="7")
    (deletion,) = (
        action
        for action in decide(running(job(suspend=True), masters=(alive,), lives=()), NOW).actions
        if isinstance(action, Delete)
    )
    assert (deletion.name, deletion.version) == ("digits-master-0", "7")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            seen(job(networkPolicy=False, **LOCAL), masters=()),
            "JobCreated: created 1 object: JobResource digits",
        ),
        (
            running(job(status=over("Failed"))),
            "Failed: the job has failed; deleted digits-master-0 (cleanPodPolicy Running)",
        ),
    ],
)
def test_events_name_what_is_made_and_deleted(given: Seen, told: str) -> None:
    assert [f"{note.reason}: {note.sentence}" for note in decide(given, NOW).notes] == [told]


MADE_ANEW = [
    job({"worker": {"replicas": 2, "template": template("1Gi")}}),
    job({"worker": role(), "evaluator": role(1)}),
    job(envs={"LR": {"value": "0.1"}}),
    job(nodeUnit=2),
    job(runPolicy={"scheduling": {"gang": "volcano"}}),
]
LEFT_ALONE = [
    job({"worker": role(4, restartCount=7)}),
    job(suspend=True),
    job(runPolicy={"activeDeadlineSeconds": 60, "scheduling": {"queue": "a"}}),
]


@pytest.mark.parametrize("new", [*MADE_ANEW, *LEFT_ALONE])
def test_what_may_change_only_while_a_job_is_suspended_is_what_its_nodes_are_made_from(new: Any) -> None:
    refused = bool(list(what_nodes_are_made_from_stays(job(), new)))
    assert refused is (new in MADE_ANEW)
    assert (objects.made_from(new) != objects.made_from(job())) is refused


def test_a_new_release_reads_what_nodes_are_made_from_as_the_last_one_did() -> None:
    """Another hash would restart all running jobs."""
    easydl = ELASTICJOB.convert(
        {
            "metadata": {"name": "a"},
            "spec": {"image": "a:1", "command": "python a.py", "worker": {"replicas": 2}},
        }
    )
    found = [objects.made_from(each) for each in (job(envs={"LR": {"value": "0.1"}}), together(), easydl)]
    assert found == ["c505f62902c78d97", "684aa5d709be4502", "9162893f1d5a2dc8"]


def test_a_jobresource_of_an_earlier_release_learns_what_its_nodes_are_made_from() -> None:
    for known, expected in (
        (resource(), objects.made_from(job())),
        (resource(made_from="another"), "another"),
    ):
        written = write_request(running(resource_=known)).manifest
        assert written["metadata"]["annotations"][names.MADE_FROM] == expected


def test_a_gang_that_is_as_it_should_be_is_left_alone() -> None:
    assert rules.have_the_gang_follow(running(together(), resource_=grouped(2)), NOW) is None
    kept_by_an_upgrade = running(together(), resource_=resource())
    assert rules.have_the_gang_follow(kept_by_an_upgrade, NOW) is None


def test_every_write_of_the_jobresource_keeps_the_gang() -> None:
    """An annotation that a server-side apply leaves out is taken away."""
    given = running(together(roles=ELASTIC, suspend=True), resource_=grouped(1))
    assert gang_from(annotations_of(decide(given, NOW))) == given.gang


def test_a_gang_that_is_no_longer_asked_for_is_forgotten() -> None:
    given = running(together("none"), resource_=grouped(2, suspend=True))
    assert gang_from(annotations_of(decide(given, NOW))) is None
