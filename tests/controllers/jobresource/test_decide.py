"""Seen → plan of a JobResource, a row for every rule and every step of a node."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.controllers.jobresource import decide as rules
from elasticjob.controllers.jobresource.decide import Seen, decide
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.passes.plan import Action, Apply, Create, Delete, Resize
from elasticjob.controllers.passes.rules import leave_it_to_others, leave_it_to_the_collector
from lab.build.jobs import NOW, at, ended, job, life, oom, over, pending, plan, resource, role
from lab.build.plans import annotations_of, manifests

ADDRESS = "10.0.0.1:50001"
FACTS = ("completedIndexes", "failedIndexes", "restarts", "relaunches")


def seen(
    *lives: Life,
    job_: ElasticJob | None = None,
    resource_: JobResource | None = None,
    master: str = ADDRESS,
    **more: Any,
) -> Seen:
    return Seen(resource_ or resource(), job_ or job(), lives, master, **more)


def written(action: Action) -> str:
    """An action in a word: +pod, -pod, -pod! (at once), ~pod (resized)."""
    match action:
        case Create(_, manifest):
            return f"+{short(manifest['metadata']['name'])}"
        case Delete(_, name, _, grace):
            return f"-{short(name)}" + ("!" if grace == 0 else "")
        case Resize(pod, _, _, resources):
            return f"~{short(pod)} {resources['limits']['memory']}"
        case Apply(_, manifest, "status"):
            facts = {name: manifest["status"].get(name) for name in FACTS}
            return ", ".join(f"{name} {value['worker']}" for name, value in facts.items() if value)
        case _:
            raise AssertionError(action)


def short(name: str) -> str:
    return name.removeprefix("digits-")


def actions(given: Seen) -> set[str]:
    return {written(action) for action in decide(given, NOW).actions}


def giving(phase: str) -> tuple[ScalePlan, ...]:
    """The plan that gives the node whose memory was too little more of it."""
    return (plan("digits-worker-0-memory", memory={"worker": "1Gi"}, phase=phase),)


KILLED = oom(0, at=NOW)
COMPLETED: dict[str, Any] = {"completedIndexes": {"worker": "0"}}
CONVERGE: list[tuple[Any, ...]] = [
    ("all nodes are born at once", seen(), "+worker-0", "+worker-1"),
    ("as specified", seen(life(0), life(1))),
    ("pending is waited for", seen(life(0), pending(1))),
    ("scale down: the highest leave", seen(life(0), life(1), life(2)), "-worker-2"),
    ("a size above the job's largest makes no pod beyond that",
     seen(life(0), job_=job({"worker": role(minReplicas=1, maxReplicas=3)}),
          resource_=resource({"worker": 6})), "+worker-1", "+worker-2"),
    ("nor does one above it end what is there",
     seen(*map(life, range(5)), job_=job({"worker": role(minReplicas=1, maxReplicas=3)}),
          resource_=resource({"worker": 5}))),
    ("a size below the job's smallest ends no pod",
     seen(life(0), life(1), job_=job({"worker": role(minReplicas=2, maxReplicas=3)}),
          resource_=resource({"worker": 1}))),
    ("a node that was removed by name leaves, and its index is not filled",
     seen(life(0), life(1), job_=job({"worker": role(minReplicas=1)}),
          resource_=resource({"worker": 1}, vacant={"worker": [0]})), "-worker-0"),
    ("an index that is vacant is not filled",
     seen(life(1), resource_=resource({"worker": 2}, vacant={"worker": [0]})), "+worker-2"),
    ("scale down: one that leaves is left alone", seen(life(0), life(1), life(2, terminating=True))),
    ("what is scaled away takes its past with it", seen(life(0), life(1), ended(2, code=0)), "-worker-2"),
    ("also that before its last pod", seen(life(0), life(1), ended(2), life(2, 1)), "-worker-2",
     "-worker-2-1"),
    ("and that in the status, at once",
     seen(life(0), life(1), resource_=resource(status={"failedIndexes": {"worker": "2"}})), ""),
    ("scale down: not if a container goes on", seen(life(0), life(1), ended(2, code=0, lingers=True)),
     "-worker-2"),
    ("one that is done may have one", seen(ended(0, code=0, lingers=True), life(1))),
    ("a failure is replaced while a container goes on", seen(ended(0, lingers=True), life(1)), "+worker-0-1"),
    ("what goes on of a past life leaves", seen(ended(0, lingers=True), pending(0, 1), life(1)), "-worker-0"),
    ("scale up waits for the leaving one of its place", seen(life(0), life(1, terminating=True))),
    ("succeeded is done", seen(ended(0, code=0), life(1))),
    ("it is, too, when its pod is gone", seen(life(1), resource_=resource(status=COMPLETED))),
    ("its success is written before its pod goes with the machine",
     seen(ended(0, code=0, lost=True), life(1)), "completedIndexes 0", "-worker-0!"),
    ("a failure for good, too", seen(ended(0, 3, restarts_before=3, lost=True), life(1)),
     "failedIndexes 0, restarts {'0': 4}, relaunches {'0': 4}", "-worker-0-3!"),
    ("the number of a lost pod is not given again",
     seen(life(1), resource_=resource(status={"relaunches": {"worker": {"0": 4}}})), "+worker-0-4"),
    ("succeeded is done under Always too, where the master waits for it",
     seen(ended(0, code=0), life(1), job_=job({"worker": role(restartPolicy="Always")}))),
    ("succeeded is replaced under Always where no master waits for it",
     seen(ended(0, code=0, role="evaluator"), life(0), life(1),
          job_=job({"worker": role(), "evaluator": role(1, restartPolicy="Always")}),
          resource_=resource({"worker": 2, "evaluator": 1})), "+evaluator-0-1"),
    ("succeeded is replaced under Always without a master",
     seen(ended(0, code=0), life(1),
          job_=job({"worker": role(restartPolicy="Always")}, distributionStrategy="Local")), "+worker-0-1"),
    ("a failure is replaced under the next name", seen(ended(0), life(1)), "+worker-0-1"),
    ("a kill too", seen(ended(0, 7, code=137), life(1)), "+worker-0-8"),
    ("a spent budget is not", seen(ended(0, 3, restarts_before=3), life(1))),
    ("a deleted pod is replaced once it is gone", seen(life(1)), "+worker-0"),
    ("pods of a machine that is gone go at once, their nodes are made again",
     seen(life(0, lost=True, terminating=True), life(1)), "relaunches {'0': 1}", "-worker-0!", "+worker-0-1"),
    ("pods that should have ended on a machine without power go at once too",
     seen(life(0, lost=True, terminating=True, given_up=NOW), life(1)), "relaunches {'0': 1}", "-worker-0!",
     "+worker-0-1"),
    ("they have a minute", seen(life(0, terminating=True, given_up=NOW + timedelta(seconds=9)), life(1))),
    ("two lives of one place: the newer stays", seen(life(0), life(0, 1), life(1)), "-worker-0"),
    ("a node whose device is broken begins anew", seen(life(0, broken="gpu 3"), life(1)), "-worker-0"),
    ("once", seen(life(0, broken="gpu 3", terminating=True), life(1))),
    ("no word of spent restarts", seen(life(0, 3, restarts_before=3, broken="gpu 3"), life(1)),
     "-worker-0-3"),
    ("a parameter server has its successor first",
     seen(life(0, role="ps", broken="gpu 3"), life(0),
          job_=job({"worker": role(1), "ps": role(1)}, distributionStrategy="ParameterServerStrategy"),
          resource_=resource({"worker": 1, "ps": 1})), "+ps-0-1"),
    ("old ends are forgotten", seen(*(ended(0, n, code=137) for n in range(5)), life(0, 5), life(1)),
     "-worker-0", "-worker-0-1"),
    ("another resource is tried in place",
     seen(life(0), life(1), resource_=resource(resources={"worker": {"memory": "1Gi"}})), "~worker-0 1Gi",
     "~worker-1 1Gi"),
    ("one node's own resource",
     seen(life(0), life(1), resource_=resource(nodes={"digits-worker-1": {"memory": "2Gi"}})),
     "~worker-1 2Gi"),
    ("the same amount spelled differently is the same",
     seen(life(0), life(1), resource_=resource(resources={"worker": {"memory": "524288Ki"}}))),
    ("what admission made of it is not tried again",
     seen(life(0, resource={"cpu": "250m"}, asked={"cpu": "300m"}),
          life(1, resource={"cpu": "250m"}, asked={"cpu": "300m"}, resize="refused"),
          resource_=resource(resources={"worker": {"cpu": "300m"}}))),
    ("another amount is",
     seen(life(0, resource={"memory": "250Mi"}, asked={"memory": "300Mi"}),
          life(1, resource={"memory": "400Mi"}, asked={"memory": "300Mi"}),
          resource_=resource(resources={"worker": {"memory": "400Mi"}})), "~worker-0 400Mi"),
    ("a refused resize is a replacement, one at a time",
     seen(life(0, resize="refused"), life(1, resize="refused"),
          resource_=resource(resources={"worker": {"memory": "1Gi"}})), "-worker-0"),
    ("a replacement waits until the others run",
     seen(life(0, resize="refused"), pending(1, resource={"memory": "1Gi"}),
          resource_=resource(resources={"worker": {"memory": "1Gi"}}))),
    ("an infeasible resize is a replacement",
     seen(life(0, resize="Infeasible", resource={"memory": "1Gi"}), life(1, resource={"memory": "1Gi"}),
          resource_=resource(resources={"worker": {"memory": "1Gi"}})), "-worker-0"),
    ("out of memory, and there is more now",
     seen(oom(0, at=NOW), life(1, resource={"memory": "1Gi"}),
          resource_=resource(resources={"worker": {"memory": "1Gi"}})), "+worker-0-1"),
    *(("out of memory, and more is planned", seen(KILLED, life(1), plans=giving(phase)))
      for phase in ("", "Scaling")),
    *(("out of memory, and the plan of more was given up", seen(KILLED, life(1), plans=giving(phase)),
       "+worker-0-1") for phase in ("Failed", "Superseded")),
    ("out of memory, and no more will come", seen(KILLED, life(1), job_=job(optimizeMode="manual")),
     "+worker-0-1"),
    ("without a master no address is waited for",
     seen(job_=job(distributionStrategy="Local"), master=""), "+worker-0", "+worker-1"),
    ("out of memory a while ago, and no more came", seen(oom(0), life(1)), "+worker-0-1"),
    ("a parameter server with state is not taken away",
     seen(life(0, role="ps"), life(1, role="ps"), job_=job({"ps": role(1)}), resource_=resource({"ps": 1}))),
    ("a released one is",
     seen(life(0, role="ps"), life(1, role="ps", released=True), job_=job({"ps": role(1)}),
          resource_=resource({"ps": 1})), "-ps-1"),
    ("a role that waits for a plan has no pods", seen(resource_=resource({}))),
    ("a role that the job does not have is ignored", seen(resource_=resource({"elf": 3}))),
]  # fmt: skip


@pytest.mark.parametrize("row", CONVERGE, ids=[row[0] for row in CONVERGE])
def test_converge(row: tuple[Any, ...]) -> None:
    """A row is its name, what is seen, and the actions."""
    _, given, *expected = row
    assert actions(given) == {*expected}


RULES: dict[Callable[..., Any], list[tuple[Any, ...]]] = {
    rules.leave_its_pods_to_the_collector: [(seen(resource_=resource(deleted=True)), "Deleting")],
    leave_it_to_the_collector: [(seen(job_=job(metadata={"deletionTimestamp": at(NOW)})), "Deleting")],
    rules.wait_for_its_job: [(Seen(resource(), None, (life(0),)), "JobNotFound")],
    leave_it_to_others: [(seen(job_=job(managedBy="kueue.x-k8s.io/multikueue")), "ManagedByOther")],
    rules.clean_up_after_the_end: [
        (seen(life(0), ended(1, code=0), job_=job(status=over())), "Finished", "-worker-0"),
        (seen(life(0), ended(1, code=0),
              job_=job(status=over("Failed"), runPolicy={"cleanPodPolicy": "All"})), "Failed",
         "completedIndexes 1", "-worker-0", "-worker-1"),
        (seen(life(0), job_=job(status=over(), runPolicy={"cleanPodPolicy": "None"})), "Finished"),
        (seen(life(0), job_=job(status=over(ended=NOW))), "Finished"),
        (seen(ended(0, code=0, lingers=True), ended(1, code=0), job_=job(status=over())), "Finished",
         "completedIndexes 0-1", "-worker-0"),
    ],
    rules.make_no_pods_for_a_job_that_ends: [
        (seen(life(1), masters=(ended(code=0, role="master", words='{"verdict": "Succeeded"}'),)),
         "Finished"),
        (seen(ended(0), life(1), job_=job(runPolicy={"backoffLimit": 0})), "Failed"),
    ],
    rules.free_the_nodes_while_suspended: [
        (seen(life(0), ended(1, code=0), resource_=resource(suspend=True)), "Suspended", "-worker-0"),
        (
            seen(
                life(0),
                pending(1),
                ended(2, code=0),
                ended(3, lingers=True),
                resource_=resource(suspend=True),
            ),
            "Suspended",
            "-worker-0",
            "-worker-1",
            "-worker-2",  # it is scaled away
            "-worker-3",
        ),
        (seen(life(0, terminating=True, lost=True, given_up=NOW), life(1, terminating=True),
              resource_=resource(suspend=True)), "Suspended", "relaunches {'0': 1}", "-worker-0!"),
    ],
    rules.make_no_pods_beside_those_of_another_template: [
        (seen(life(0), resource_=resource(made_from="another")), "TemplateChanged")
    ],
    rules.wait_for_the_masters_address: [(seen(master=""), "WaitingForMaster")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "row"), [pytest.param(rule, row, id=rule.__name__) for rule in RULES for row in RULES[rule]]
)
def test_rule(rule: Callable[..., Any], row: tuple[Any, ...]) -> None:
    """A row is what is seen, the reason of the plan, and its actions."""
    given, reason, *expected = row
    assert rule(given, NOW) is not None
    plan = decide(given, NOW)
    assert plan.reason == rule(given, NOW).reason
    assert (plan.reason, {written(action) for action in plan.actions}) == (reason, {*expected})


def test_every_rule_has_a_row() -> None:
    assert RULES.keys() | {rules.converge} == set(rules.RULES)


@pytest.mark.parametrize(
    ("given", "again_in", "after"),
    [
        (seen(ended(0, 1, restarts_before=1, at=NOW), life(1)), timedelta(seconds=2), "+worker-0-2"),
        (seen(KILLED, life(1)), rules.MEMORY_PATIENCE, "+worker-0-1"),
    ],
    ids=["a pause", "more memory, though not forever"],
)
def test_what_is_waited_for_is_looked_at_in_time(given: Seen, again_in: timedelta, after: str) -> None:
    assert (decide(given, NOW).again_in, actions(given)) == (again_in, set())
    assert [written(each) for each in decide(given, NOW + again_in).actions] == [after]


READY = {"type": "Ready", "status": "False", "message": "", "lastTransitionTime": at(NOW)}


def known(generation: int, reason: str) -> JobResource:
    """A JobResource of generation 2 whose status tells of an earlier pass."""
    status = {"observedGeneration": generation, "conditions": [READY | {"reason": reason}]}
    return resource(generation=2, status=status)


ANEW = "NodesMadeAgain: made again after their pods were deleted: digits-worker-0"
CREATED = "NodesCreated: created digits-worker-0"
AGAIN = "! NodeRelaunched: digits-worker-0-4 replaces digits-worker-0-3: killed by SIGKILL (exit code 137); "
NOTES: dict[str, tuple[Seen, set[str]]] = {
    "what happens and why": (
        seen(ended(0, words="ValueError: no data"), life(2), life(3)),
        {"! NodeRelaunched: digits-worker-0-1 replaces digits-worker-0: exit code 1: ValueError: no data; "
         "restart 1 of 3", "NodesCreated: created digits-worker-1",
         "NodesRemoved: removed digits-worker-2, digits-worker-3"}),
    "what is repeated for free": (
        seen(ended(0, 3, 137, repeats_before=2), life(1)),
        {f"{AGAIN}3 pods in a row were over within a minute"}),
    "a broken device": (
        seen(life(0, broken="nvidia.com/gpu GPU-3"), life(1)),
        {"! DeviceUnhealthy: digits-worker-0 is replaced: "
         "m1 calls its device nvidia.com/gpu GPU-3 unhealthy"}),
    "the job's controller has said that it is suspended": (
        seen(life(0), resource_=resource(suspend=True)), set()),
    "a pod was deleted as it started": (seen(life(1), resource_=known(2, "Starting")), {ANEW}),
    "a pod was deleted": (seen(life(1), resource_=known(2, "AsSpecified")), {ANEW}),
    "a larger size is asked for": (seen(life(1), resource_=known(1, "AsSpecified")), {CREATED}),
    "the address has come": (seen(life(1), resource_=known(2, "WaitingForMaster")), {CREATED}),
    "it was refused": (seen(life(1), resource_=known(2, "Refused")), {CREATED}),
    "the first pass": (seen(life(1), resource_=resource(generation=2)), {CREATED}),
}  # fmt: skip


@pytest.mark.parametrize(("given", "notes"), NOTES.values(), ids=NOTES)
def test_events_say_what_happens_and_why(given: Seen, notes: set[str]) -> None:
    decided = decide(given, NOW)
    assert decided.actions
    found = {f"{'! ' * each.warning}{each.reason}: {each.sentence}" for each in decided.notes}
    assert found == notes


BESIDE = {"key": "metadata.name", "operator": "NotIn", "values": ["m7"]}
SERVERS: dict[str, Any] = {
    "job_": job({"ps": role(1)}, distributionStrategy="ParameterServerStrategy"),
    "resource_": resource({"ps": 1}),
}


@pytest.mark.parametrize(
    ("given", "noted"),
    [
        (seen(ended(0, 1, restarts_before=1), life(1)), {"restarts": "2"}),
        (seen(ended(0, 3, 137, repeats_before=2, machine="m7"), life(1)), {"repeats": "3"}),
        (seen(life(0, 2, role="ps", broken="gpu 3", moves=1), **SERVERS), {"moves": "2"}),
        (seen(ended(0, 2, role="ps", terminating=True), **SERVERS), {"moves": "1"}),
        (seen(ended(0, 2, role="ps", moves=1), **SERVERS), {"moves": "1"}),
        (seen(ended(0, 2, role="ps"), **SERVERS), {"moves": None}),
    ],
    ids=["a restart", "repeated for free", "moved while it runs", "told to end", "failed", "never moved"],
)
def test_the_pod_that_follows_another_has_its_history(given: Seen, noted: dict[str, str | None]) -> None:
    found = annotations_of(decide(given, NOW))
    assert {name: found.get(f"elasticjob.dlrover/{name}") for name in noted} == noted
    [made] = manifests(decide(given, NOW))
    [past] = [each for each in given.lives if each.ended or each.broken]
    assert made["metadata"]["labels"]["elasticjob.dlrover/relaunch-count"] == str(past.relaunch + 1)
    left = [{"weight": 100, "preference": {"matchFields": [BESIDE]}}] if "repeats" in noted else None
    affinity = made["spec"].get("affinity", {}).get("nodeAffinity", {})
    assert affinity.get("preferredDuringSchedulingIgnoredDuringExecution") == left


@pytest.mark.parametrize(
    ("spec", "version"),
    [({"distributionStrategy": "Local", "optimizeMode": "manual"}, "7"), ({}, None)],
    ids=["the pods' own ends are the verdict", "the master's is"],
)
def test_a_pod_that_may_have_ended_the_job_is_not_deleted_unheard(spec: Any, version: str | None) -> None:
    suspended = resource({"worker": 1}, suspend=True)
    given = seen(life(0, version="7"), job_=job(**spec), resource_=suspended)
    (deletion,) = (action for action in decide(given, NOW).actions if isinstance(action, Delete))
    assert deletion.version == version
