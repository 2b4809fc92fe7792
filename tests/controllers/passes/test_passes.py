"""What makes a pass, against what decisions read; and that what a pass leaves to the next is told by it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from typing import Any, cast

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.elasticjob import controller as jobs
from elasticjob.controllers.elasticjob.decide import decide as decide_job
from elasticjob.controllers.elasticjob.status import describe as describe_job
from elasticjob.controllers.jobresource import controller as nodes
from elasticjob.controllers.jobresource.decide import decide
from elasticjob.controllers.jobresource.status import describe
from elasticjob.controllers.metrics import Counters
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.owners import kind_of
from elasticjob.controllers.passes.observe import Caches
from elasticjob.controllers.passes.plan import LATER, NAME_TAKEN, SOON
from elasticjob.controllers.passes.status_pace import PAUSE
from elasticjob.controllers.passes.triggers import job_of, life_changed, more_than_reports
from elasticjob.controllers.scaleplan import controller as plans
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.protocol import Upserted
from elasticjob.kube.cache.store import Change
from elasticjob.kube.cache.wire import Item, Meta
from elasticjob.kube.controller.controller import Controller
from elasticjob.kube.controller.predicates import any_change
from elasticjob.kube.errors import NotFound
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import NODE, POD, POD_DISRUPTION_BUDGET, SERVICE
from lab.build.caches import caches, machine, pod, raw
from lab.build.jobs import NOW, at, job, over, plan, resource, role
from tests.kit.controllers.reconcilers import of_jobs, of_nodes, writer

KEY = Key("ml", "digits")
LOCAL: Manifest = {"distributionStrategy": "Local", "optimizeMode": "manual"}


class Server:
    """Takes everything and changes nothing: each write is made again in the next pass."""

    def __init__(self, there: dict[str, Any] | None = None) -> None:
        self.statuses: list[Manifest] = []
        self.created: list[Manifest] = []
        self.deleted: list[str] = []
        self._there = there or {}

    async def get(self, kind: Kind[Any], name: str, namespace: str) -> Any:
        if thing := self._there.get(kind.name):
            return kind.convert(thing if isinstance(thing, dict) else thing.manifest())
        raise NotFound(404, "NotFound", "no such object", {"name": name})

    async def apply(self, kind: Kind[Any], manifest: Manifest, *, manager: str, subresource: str) -> None:
        if subresource == "status":
            self.statuses.append(manifest["status"])

    async def create(self, kind: Kind[Any], manifest: Manifest) -> None:
        if kind.name != POD_DISRUPTION_BUDGET.name:
            self.created.append(manifest)

    async def delete(self, kind: Kind[Any], name: str, namespace: str, **how: Any) -> None:
        self.deleted.append(name)


def asked(controller: Controller, kind: Kind[Any], found: Caches, change: Change) -> set[Key]:
    """The keys of which a change of a watched kind makes a pass."""
    views: dict[str, Cache[Any]] = {NODE.resource: found.machines, POD.resource: found.pods}
    keys: set[Key] = set()
    for watched, of, *when in controller.watches:
        if watched is kind and (when[0] if when else any_change)(change):
            seen = [views[kind.resource].view(item) for item in (change.old, change.new) if item]
            keys |= {key for view in seen for key in of(view)}
    return keys


def controllers(found: Caches) -> tuple[Controller, Controller]:
    return jobs.controller(of_jobs(found, Server()), 1), nodes.controller(of_nodes(found, Server()), 1)


def of_plans(found: Caches, server: Server) -> plans.PlansReconciler:
    return plans.PlansReconciler(found, writer(server), Counters(CollectorRegistry()), lambda: NOW)


def test_a_machine_that_goes_makes_a_pass_of_the_jobs_on_it() -> None:
    """Of the master's pod nobody else tells the job's controller: it is not among the nodes."""
    found = caches((JOBRESOURCE, raw(resource())), (POD, pod(spec={"nodeName": "m1"})))
    for controller in controllers(found):
        assert asked(controller, NODE, found, Change(machine(), None)) == {KEY}
        assert asked(controller, NODE, found, Change(machine("m2"), None)) == set()


def test_a_pod_that_lost_its_labels_still_tells_its_job() -> None:
    found = caches((JOBRESOURCE, raw(resource())), (NODE, machine()))
    stripped = pod(labels={})
    for controller in controllers(found):
        assert asked(controller, POD, found, Change(stripped, None)) == {KEY}
        assert asked(controller, POD, found, Change(pod(), stripped)) == {KEY}


def test_a_pod_of_others_concerns_no_job() -> None:
    found = caches()
    theirs = pod(labels={}, owner={"apiVersion": "apps/v1", "kind": "ReplicaSet"})
    assert job_of(found.pods.view(theirs)) == []


@pytest.mark.parametrize("status", [b'{"restarts": "many"}', b'{"completionTime": "\xff"}', b"[" * 5000])
def test_a_status_that_cannot_be_read_is_a_reason_for_a_pass(status: bytes) -> None:
    meta = Meta(name="a")
    odd = Item(meta.key, meta, b'{"metadata": {"name": "a"}, "status": %s}' % status)
    assert more_than_reports(Change(odd, odd))


def test_whatever_is_written_on_a_pod_the_operator_goes_on() -> None:
    """A predicate that raised would end it."""
    lives = caches((NODE, machine()))
    for old, new, otherwise in (
        (pod(), pod(metadata={"annotations": {names.RESTARTS: "9" * 5000}}), False),
        (pod(status=RUNS), pod(status=ended(1, message='{"message": ' + "[" * 4000)), True),
    ):
        assert life_changed(lives)(Change(old, new)) is otherwise


class Passes:
    """The passes over one JobResource, each at the time that the one before asked for."""

    def __init__(self, found: Caches) -> None:
        self.now = NOW
        self.server = Server()
        self._reconcile = of_nodes(found, self.server, lambda: self.now)

    async def until_quiet(self, most: int = 5) -> int:
        """Return after how many passes none was asked for any more."""
        for number in range(1, most + 1):
            again = (await self._reconcile(KEY)).again_in
            if again is None:
                return number
            self.now += again
        raise AssertionError(f"{most} passes, and one more is asked for")


def stuck() -> Caches:
    """A job one of whose pods is held by somebody's finalizer, on a machine that is gone."""
    held = {"deletionTimestamp": at(NOW), "finalizers": ["example.com/held"]}
    lost = pod(0, spec={"nodeName": "gone"}, metadata=held)
    return caches((ELASTICJOB, raw(job(**LOCAL))), (JOBRESOURCE, raw(resource())), (POD, lost))


async def test_writes_that_change_nothing_are_told_and_not_made_for_ever() -> None:
    passes = Passes(stuck())
    assert await passes.until_quiet() == 2
    first, *_, last = passes.server.statuses  # the number of the lost pod is written before it is deleted
    assert (first, last["observedGeneration"]) == ({"relaunches": {"worker": {"0": 1}}}, 1)
    passes.now += timedelta(minutes=1)
    assert await passes.until_quiet() == 2


async def test_a_status_that_comes_back_from_the_past_makes_a_pass_that_mends_it() -> None:
    """A pass whose cache is behind takes the status before last for the last, and finds nothing to write."""
    found = caches((ELASTICJOB, raw(job(**LOCAL))), (JOBRESOURCE, raw(resource())))
    passes = Passes(found)
    when = nodes.controller(passes._reconcile, 1).when

    def says(status: Manifest) -> Change:
        old = found.resources.item(KEY)
        thing = {**resource().model_dump(by_alias=True, exclude_none=True, mode="json"), "status": status}
        (change,) = found.resources.take(Upserted(raw(thing)))
        assert change.old is old
        return change

    await passes.until_quiet()
    first = passes.server.statuses[-1]
    assert not when(says(first))  # the echo of what was told
    (came,) = found.pods.take(Upserted(pod(0, status=RUNS, spec={"nodeName": "m1"})))
    assert came.new
    found.machines.take(Upserted(machine()))
    await passes.until_quiet()
    second = passes.server.statuses[-1]
    assert second != first
    assert not when(says(second))
    assert when(says(first))  # somebody's late write, or ours that the cache had not shown
    written = len(passes.server.statuses)
    await passes.until_quiet()
    assert passes.server.statuses[written:] == [second]


FATES = [("gone", False), ("another by now", False), ("leaving", False), ("kept", True)]
"""What the server has of an owner that the cache shows, and whether what it lacks is made again."""


def knowing(owner: ElasticJob | JobResource, fate: str) -> Server:
    """A server that still has `owner`, or has let it go."""
    there = {
        "another by now": replace(owner.metadata, uid="another"),
        "leaving": replace(owner.metadata, deletion_timestamp=NOW),
        "kept": owner.metadata,
    }
    name = kind_of(owner).name
    return Server({name: owner.model_copy(update={"metadata": there[fate]})} if fate in there else {})


@pytest.mark.parametrize(("fate", "made"), FATES)
async def test_what_was_collected_with_a_job_is_not_made_anew(fate: str, made: bool) -> None:
    """The cache may show a job long after it went."""
    known = job(status={"phase": "Running"})
    server = knowing(known, fate)
    passes = of_jobs(caches((ELASTICJOB, raw(known))), server)
    for _ in range(2):  # the second pass reports what the first made
        await passes(KEY)
    assert bool(server.created) is made
    assert bool(server.statuses) is made


@pytest.mark.parametrize(("fate", "made"), FATES)
async def test_pods_that_were_collected_with_their_owner_are_not_made_anew(fate: str, made: bool) -> None:
    counted = {"worker": {"desired": 2, "current": 2, "ready": 2}}
    known = resource(status={"replicaStatuses": counted})
    server = knowing(known, fate)
    found = caches((ELASTICJOB, raw(job(**LOCAL))), (JOBRESOURCE, raw(known)))
    await of_nodes(found, server)(KEY)
    assert len(server.created) == (2 if made else 0)


OF_JOB = {"apiVersion": ELASTICJOB.api_version, "kind": "ElasticJob", "name": "digits", "uid": "job-1"}


def service(name: str, owner: Manifest | None) -> Item:
    owners = [] if owner is None else [{**OF_JOB, "controller": True, **owner}]
    about = {"name": name, "namespace": "ml", "uid": "s", "ownerReferences": owners}
    return raw({"metadata": about, "spec": {"clusterIP": "10.0.0.1"}})


def masters_service() -> Item:
    return service(names.master("digits"), {})


def masters_pod(metadata: Manifest | None = None, owner: Manifest | None = None, **about: Any) -> Item:
    labels, named = names.pod_labels("digits", "master", 0, 0), {"name": "digits-master-0", "uid": "m"}
    by = {**OF_JOB, **(owner or {})}
    return pod(labels=labels, metadata={**named, **(metadata or {})}, owner=by, **about)


BEFORE = {"uid": "job-0"}
LEFT: list[tuple[Kind[Any], Item]] = [
    (POD, masters_pod(status={"phase": "Running"}, owner=BEFORE)),
    (SERVICE, service(names.master("digits"), BEFORE)),
    (SERVICE, service("digits", BEFORE)),
    (SERVICE, service("digits", None)),
]


@pytest.mark.parametrize("left", LEFT, ids=["master", "its Service", "the pods' Service", "a user's Service"])
async def test_a_job_writes_nothing_while_the_caches_show_what_is_in_its_way(left: tuple[Any, Item]) -> None:
    """Made again under its name while its old pods leave, it used to write 120 times in 6 s."""
    found = caches((ELASTICJOB, raw(job())), (SERVICE, masters_service()), left)
    server = Server()
    for _ in range(3):
        result = await of_jobs(found, server)(KEY)
        assert result.again_in is not None
        assert result.again_in <= LATER
    assert server.created == []
    assert server.statuses[-1]["conditions"][0]["reason"] == NAME_TAKEN


async def test_an_old_pod_keeps_no_place_but_its_own() -> None:
    old = pod(1, status=RUNS, owner={"uid": "res-0"})
    server = Server()
    passes = of_nodes(
        caches((ELASTICJOB, raw(job(**LOCAL))), (JOBRESOURCE, raw(resource())), (POD, old)), server
    )
    await passes(KEY)
    assert [each["metadata"]["name"] for each in server.created] == ["digits-worker-0"]


@pytest.mark.parametrize(("over", "made"), [(True, 0), (False, 1)], ids=["it is over", "it goes on"])
async def test_a_job_that_ended_while_no_operator_ran_gets_no_pods(over: bool, made: int) -> None:
    status = ended(0, message='{"verdict": "Succeeded"}') if over else RUNS
    known = job(status={"phase": "Running"})
    found = caches(
        (ELASTICJOB, raw(known)),
        (JOBRESOURCE, raw(resource())),
        (SERVICE, masters_service()),
        (POD, pod(0, status=RUNS)),
        (POD, masters_pod(status=status)),
    )
    server = knowing(known, "kept")
    await of_nodes(found, server)(KEY)
    assert len(server.created) == made


@pytest.mark.parametrize(("there", "lost"), [(True, False), (False, True)], ids=["it is there", "it is gone"])
async def test_a_machine_that_the_cache_does_not_show_is_asked_for(there: bool, lost: bool) -> None:
    """Nodes and pods are two watches: the pod of a new machine may be seen before the machine."""
    known = job({"worker": role(1)}, status={"phase": "Running"})
    on_it: Any = {"status": RUNS, "spec": {"nodeName": "new"}}
    found = caches(
        (ELASTICJOB, raw(known)),
        (JOBRESOURCE, raw(resource({"worker": 1}, asked='{"worker": 1}'))),
        (SERVICE, masters_service()),
        (POD, pod(0, **on_it)),
        (POD, masters_pod(**on_it)),
    )
    machine_ = {"Node": {"metadata": {"name": "new", "uid": "new"}}} if there else {}
    server = Server({"ElasticJob": known, **machine_})
    await of_nodes(found, server)(KEY)
    await of_jobs(found, server)(KEY)
    pods = [made["metadata"]["name"] for made in server.created if made["kind"] == "Pod"]
    assert pods == (["digits-worker-0-1", "digits-master-0-1"] if lost else [])
    assert server.deleted == (["digits-worker-0"] if lost else [])


@pytest.mark.parametrize(("ready", "after"), [("Unknown", timedelta(minutes=1)), ("True", None)])
async def test_what_never_ends_on_a_machine_without_power_is_given_up(
    ready: str, after: timedelta | None
) -> None:
    """Its Node stays, and nothing says that the pods on it have ended."""
    known = job({"worker": role(1)}, status={"phase": "Running"})
    leaves: Any = {"status": RUNS, "spec": {"nodeName": "m1"}}
    going = {"deletionTimestamp": at(NOW), "deletionGracePeriodSeconds": 1}
    found = caches(
        (ELASTICJOB, raw(known)),
        (JOBRESOURCE, raw(resource({"worker": 1}, asked='{"worker": 1}'))),
        (SERVICE, masters_service()),
        (NODE, machine(ready=ready)),
        (POD, pod(0, metadata=going, **leaves)),
        (POD, masters_pod(going, **leaves)),
    )
    server = Server({"ElasticJob": known})
    reconcilers = of_nodes(found, server), of_jobs(found, server)
    waits = [(await each(KEY)).again_in for each in reconcilers]
    counted = timedelta(seconds=59)  # in the job's PodDisruptionBudget, as one that soon has a successor
    soon = timedelta(minutes=1)
    assert [each if each and each <= soon else None for each in waits] == [counted, after]
    assert server.created == []
    if after is not None:
        later = NOW + after
        await of_nodes(found, server, lambda: later)(KEY)
        await of_jobs(found, server, lambda: later)(KEY)
    pods = [made["metadata"]["name"] for made in server.created if made["kind"] == "Pod"]
    assert pods == (["digits-worker-0-1", "digits-master-0-1"] if after else [])
    assert server.deleted == (["digits-worker-0"] if after else [])


@pytest.mark.parametrize(("there", "phases"), [(True, []), (False, ["Failed"])])
async def test_a_plan_that_is_seen_before_its_job_waits_for_it(there: bool, phases: list[str]) -> None:
    """Jobs and plans are two watches, and one file may hold both objects."""
    server = Server({"ElasticJob": job()} if there else {})
    found = caches((SCALEPLAN, raw(plan("up", {"worker": 3}))))
    again = await of_plans(found, server)(KEY)
    assert [status["phase"] for status in server.statuses] == phases
    assert again.again_in == (SOON if there else None)


async def test_a_job_that_changes_in_each_pass_is_told_of() -> None:
    """Every pass writes, and something else brings the next at once: the status is late, never left out."""
    passes = Passes(stuck())
    reconcile = passes._reconcile
    for _ in range(20):
        await reconcile(KEY)
        passes.now += PAUSE / 4
    assert passes.server.statuses


SILENT: Manifest = {}
WAITS = {"phase": "Pending", "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "X"}}}]}
RUNS: Manifest = {
    "phase": "Running",
    "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": at(NOW)}}}],
}


def ended(code: int, reason: str = "Error", message: str = "") -> Manifest:
    end = {"exitCode": code, "reason": reason, "finishedAt": at(NOW), "message": message}
    status = {"name": "main", "state": {"terminated": end}}
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": [status]}


def saying(type_: str, reason: str = "", **status: Any) -> Manifest:
    return {**status, "conditions": [{"type": type_, "status": "True", "reason": reason}]}


STATUSES = (
    SILENT,
    WAITS,
    RUNS,
    ended(0),
    ended(1),
    ended(1, message="last words"),
    ended(137, "OOMKilled"),
    {"phase": "Failed", "reason": "Evicted"},
    saying("Ready", **RUNS),
    saying("Initialized", **RUNS),
    saying("PodResizePending", "Infeasible", **RUNS),
    saying("DisruptionTarget", "PreemptionByScheduler", **ended(143)),
)
METADATA: tuple[Manifest, ...] = (
    {},
    {"uid": "another"},
    {"deletionTimestamp": at(NOW)},
    *(
        {"annotations": {name: value}}
        for name, value in (
            (names.RELEASED, "true"),
            (names.RESIZE, "refused"),
            (names.RESTARTS, "2"),
            ("a", "b"),
        )
    ),
)
PLACES: tuple[Manifest, ...] = ({}, {"nodeName": "m1"}, {"nodeName": "gone"})
SIZES: tuple[Manifest, ...] = ({}, {"limits": {"memory": "512Mi"}}, {"limits": {"memory": "1Gi"}})
LABELS = tuple(
    names.pod_labels("digits", of, index, relaunch)
    for of, index, relaunch in (
        ("worker", 0, 0),
        ("worker", 0, 1),
        ("worker", 1, 0),
        ("ps", 0, 0),
        ("ps", 1, 0),
    )
)
PARTS: tuple[tuple[Manifest, ...], ...] = (LABELS, METADATA, PLACES, SIZES, STATUSES)


def pod_of(parts: tuple[Manifest, ...]) -> Item:
    labels, metadata, place, size, status = parts
    spec = {**place, "containers": [{"name": "main", "image": "trainer", "resources": size}]}
    return pod(labels=labels, metadata=metadata, spec=spec, status=status)


def changes() -> Iterator[tuple[Item, list[Item]]]:
    """A pod, and what it is after each change of one part; what else is so or so is what makes it matter."""
    for labels, size, status in product(LABELS, SIZES, (SILENT, RUNS, ended(1))):
        before = (labels, METADATA[0], PLACES[1], size, status)
        yield (
            pod_of(before),
            [
                pod_of((*before[:which], other, *before[which + 1 :]))
                for which, others in enumerate(PARTS)
                for other in others
            ],
        )


def outcome(item: Item) -> tuple[Any, ...]:
    """All that passes do and say of a job with this pod: what both controllers decide, and both statuses."""
    of_job = raw(job({"worker": role(1), "ps": role(1)}, optimizeMode="single-job"))
    sized = resource({"worker": 1, "ps": 1}, resources={"worker": {"memory": "512Mi"}})
    found = caches(
        (ELASTICJOB, of_job),
        (JOBRESOURCE, raw(sized)),
        (POD, item),
        (NODE, machine()),
        (SERVICE, masters_service()),
    )
    seen_of_job, seen = seen_in(found)
    plan = decide(seen, NOW)
    plan_of_job = decide_job(seen_of_job, NOW)
    statuses = describe(seen, plan, NOW).manifest(), describe_job(seen_of_job, plan_of_job, NOW).manifest()
    return plan, plan_of_job, statuses


def seen_in(found: Caches) -> list[Any]:
    """What both controllers see of the job."""
    return [cast(Any, controller.reconcile).observe(KEY) for controller in controllers(found)]


def test_a_pod_that_makes_no_pass_would_have_changed_nothing() -> None:
    lives = caches((NODE, machine()))
    for old, others in changes():
        expected = outcome(old)
        for new in others:
            if not life_changed(lives)(Change(old, new)):
                assert outcome(new) == expected, (old.raw, new.raw)


CONDITIONS: tuple[Manifest, ...] = (
    {},
    *(
        {"conditions": [{"type": t, "status": s, "reason": "R", "message": ""}]}
        for t, s in (("Running", "True"), ("Failed", "False"), ("Failed", "True"), ("Complete", "True"))
    ),
)
ENDS: tuple[Manifest, ...] = (
    {},
    *({"completionTime": at(NOW - timedelta(seconds=s))} for s in (0, 2, 30, 90)),
)
OTHERS: tuple[Manifest, ...] = ({}, {"phase": "Running", "training": {"step": 1}, "restarts": 2})


def test_a_report_that_makes_no_pass_would_have_changed_no_decision() -> None:
    made = [
        job(status={**conditions, **end, **other}, runPolicy={"ttlSecondsAfterFinished": 60})
        for conditions, end, other in product(CONDITIONS, ENDS, OTHERS)
    ]
    items = [raw(each) for each in made]
    decided = [decisions(item) for item in items]
    for old, new in product(range(len(made)), repeat=2):
        if not more_than_reports(Change(items[old], items[new])):
            assert decided[old] == decided[new], (items[old].raw, items[new].raw)


def decisions(of_job: Item) -> tuple[Any, Any]:
    seen_of_job, seen = seen_in(
        caches((ELASTICJOB, of_job), (JOBRESOURCE, raw(resource())), (NODE, machine()), (POD, pod()))
    )
    return decide_job(seen_of_job, NOW), decide(seen, NOW)


def test_a_report_of_the_end_makes_a_pass() -> None:
    assert more_than_reports(Change(raw(job()), raw(job(status=over()))))


@pytest.mark.parametrize("since", ["suspended", "over", "not written"])
async def test_what_is_looked_up_every_ten_minutes_makes_no_pass_after_another(since: str) -> None:
    """A job at rest has no budget to look up, as it had while it ran; nor is one that is to be written."""
    known = job({"worker": role(1)}, status={"phase": "Running"})
    sizes: Any = {"sizes": {"worker": 1}, "asked": '{"worker": 1}'}
    at_work = {**RUNS, "conditions": [{"type": "Ready", "status": "True"}]}
    found = caches(
        (ELASTICJOB, raw(known)),
        (JOBRESOURCE, raw(resource(**sizes, status={"minAvailable": 1}))),
        (SERVICE, masters_service()),
        (POD, pod(0, status=at_work)),
    )
    time = NOW
    reconcile = of_nodes(found, Server({"ElasticJob": known}), lambda: time)
    await reconcile(KEY)
    match since:
        case "suspended":
            still = resource(**sizes, status={"minAvailable": 1}, suspend=True)
            found.resources.take(Upserted(raw(still)))
        case "over":
            found.jobs.take(Upserted(raw(job({"worker": role(1)}, status=over()))))
        case "not written":
            found.resources.take(Upserted(raw(resource(**sizes, status={"minAvailable": 2}))))
    time += timedelta(minutes=11)
    wait = (await reconcile(KEY)).again_in
    assert wait is None or wait >= SOON
