"""DIJobs: what is written for them, what their status says, and that a finished job never runs again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from elasticjob.api.diengine import pods
from elasticjob.api.diengine.access import token_of
from elasticjob.api.diengine.dijob import DIJOB, DIJob
from elasticjob.api.diengine.names import Role
from elasticjob.api.diengine.pods import Server
from elasticjob.controllers.dijob.decide import Terms, decide
from elasticjob.controllers.dijob.seen import Seen, keys_of, outcome
from elasticjob.controllers.dijob.status import status_of, step
from elasticjob.controllers.passes.plan import Action, Create, Delete
from elasticjob.kube.errors import Invalid
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import EVENT, POD, SERVICE, Pod, Service
from lab.build import manifests
from lab.build.dijobs import dijob
from lab.build.manifests import ABSENT, TEMPLATE, changed
from lab.jobs.site import Site
from lab.waiting import until

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TERMS = Terms(Server())


def pod(role: Role = Role.COORDINATOR, phase: str = "Running", **changes: Any) -> Pod:
    """A pod of the job; `exit_code` ends its main container, `waiting` is why that does not run."""
    name = "cartpole-coordinator" if role is Role.COORDINATOR else f"cartpole-{role}-abcde"
    manifest = pods.pod(dijob(), role, changes.pop("name", name), Server(), TEMPLATE)
    state: Manifest = {"running": {}}
    if (code := changes.pop("exit_code", None)) is not None:
        state = {"terminated": {"exitCode": code, "reason": changes.pop("reason", "Error")}}
    if reason := changes.pop("waiting", ""):
        state = {"waiting": {"reason": reason}}
    main = changes.pop("main", "di-container")
    manifest["metadata"] |= {"uid": changes.pop("uid", name), **changes}
    manifest["status"] = {"phase": phase, "containerStatuses": [{"name": main, "state": state}]}
    return POD.convert(manifest)


def service(name: str) -> Service:
    return SERVICE.convert({"metadata": {"name": name, "namespace": "lab", "uid": f"service-{name}"}})


def seen(*found: Pod, services: Any = None, **changes: Any) -> Seen:
    """The job with pods, each with its Service unless `services` are named."""
    named = services if services is not None else tuple(each.metadata.name for each in found)
    return Seen(dijob(**changes), found, tuple(service(name) for name in named))


def words(actions: tuple[Action, ...]) -> list[str]:
    """Actions as words: + pod a, - service b."""
    said = []
    for action in actions:
        match action:
            case Create(kind, manifest):
                said.append(f"+ {kind.name.lower()} {manifest['metadata']['name']}")
            case Delete(kind, name):
                said.append(f"- {kind.name.lower()} {name}")
    return said


def left(phase: str, *found: Pod, services: tuple[str, ...] = (), policy: str = "Running") -> Seen:
    """A job that has ended, with what is left of it."""
    return seen(*found, services=services, **{"status/phase": phase, "spec/cleanPodPolicy": policy})


CREATED = {"status/phase": "Created"}
DONE = pod(phase="Succeeded")
COORDINATOR, COLLECTOR = "cartpole-coordinator", "cartpole-collector-abcde"
ORPHAN = [{"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "gone"}]


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (seen(), ["+ pod cartpole-coordinator"]),
        (seen(**CREATED), ["+ pod cartpole-coordinator"]),  # it vanished
        (seen(pod(deletionTimestamp="2026-01-01T00:00:00Z"), **CREATED), []),  # its name is not free yet
        (seen(pod(), services=()), ["+ service cartpole-coordinator"]),
        (seen(pod(), pod(Role.COLLECTOR), services=(COORDINATOR,)), [f"+ service {COLLECTOR}"]),
        (seen(pod(), services=(COORDINATOR, COLLECTOR)), [f"- service {COLLECTOR}"]),
        (seen(pod()), []),
        (seen(pod(phase="Failed"), **CREATED), []),  # the status is written first
        (seen(pod(), pod(Role.DDP_LEARNER, ownerReferences=ORPHAN)), ["- pod cartpole-ddp-learner-abcde"]),
        (left("Succeeded", DONE, services=(COORDINATOR,)), [f"- service {COORDINATOR}"]),
        (left("Succeeded", policy="All"), []),  # a finished job does not run again
        (left("Failed"), []),
        (left("Succeeded", DONE, pod(Role.COLLECTOR)), [f"- pod {COLLECTOR}"]),
        (
            left("Failed", pod(phase="Failed"), pod(Role.COLLECTOR, "Pending", waiting="x")),
            [f"- pod {COLLECTOR}"],
        ),
        (left("Failed", pod(Role.COLLECTOR, waiting="CrashLoopBackOff")), []),
        (left("Failed", pod(Role.COLLECTOR, exit_code=0)), []),
        (
            left("Succeeded", DONE, pod(Role.COLLECTOR), policy="All"),
            [f"- pod {COORDINATOR}", f"- pod {COLLECTOR}"],
        ),
        (left("Succeeded", DONE, policy="ALL"), [f"- pod {COORDINATOR}"]),
        (
            left("Failed", pod(Role.COLLECTOR), services=(COLLECTOR,), policy="None"),
            [f"- service {COLLECTOR}"],
        ),
        (seen(**{"metadata/deletionTimestamp": "2026-01-01T00:00:00Z"}), []),
        (seen(**{"spec/coordinator/template": ABSENT}), []),
    ],
)
def test_what_is_written(given: Seen, written: list[str]) -> None:
    assert words(decide(given, TERMS).actions) == written


@pytest.mark.parametrize(("graceful", "grace"), [(False, 0), (True, None)])
def test_pods_of_an_ended_job_are_given_time_where_that_is_asked(graceful: bool, grace: int | None) -> None:
    given = left("Failed", pod(Role.COLLECTOR))
    (action,) = decide(given, Terms(Server(), graceful=graceful)).actions
    assert isinstance(action, Delete)
    assert action.grace == grace


def test_a_token_is_made_before_the_pod_that_names_it() -> None:
    terms = Terms(Server(tokens=True), token_of(b"key", "u"))
    made = decide(seen(), terms).actions
    assert words(made) == ["+ secret cartpole-di-token", "+ pod cartpole-coordinator"]
    assert isinstance(made[0], Create)
    assert made[0].manifest["stringData"] == {"token": token_of(b"key", "u")}
    assert decide(seen(pod()), terms).actions == ()
    lost = replace(seen(pod()), lost_token=True)
    assert words(decide(lost, terms).actions) == ["+ secret cartpole-di-token"]


@pytest.mark.parametrize(
    ("before", "found", "phase", "reason"),
    [
        (None, (), "Created", "DIJobCreated"),
        ("Created", (), None, ""),
        ("Created", (pod(phase="Pending"),), None, ""),
        ("Created", (pod(),), "Running", "DIJobRunning"),
        ("Running", (pod(),), None, ""),
        ("Running", (pod(phase="Failed"),), "Failed", "DIJobFailed"),
        ("Running", (pod(exit_code=3),), "Failed", "DIJobFailed"),
        ("Running", (pod(exit_code=0),), "Succeeded", "DIJobSucceeded"),
        ("Running", (pod(phase="Succeeded"),), "Succeeded", "DIJobSucceeded"),
        ("Created", (pod(phase="Succeeded"),), "Succeeded", "DIJobSucceeded"),
        ("Running", (pod(), pod(Role.LEARNER, "Failed")), None, ""),  # only the coordinator counts
        ("Running", (pod(phase="Failed", deletionTimestamp="2026-01-01T00:00:00Z"),), None, ""),
        ("Succeeded", (pod(phase="Failed"),), None, ""),
        ("Failed", (pod(),), None, ""),
    ],
)
def test_the_coordinator_moves_the_phase(
    before: str | None, found: tuple[Pod, ...], phase: str | None, reason: str
) -> None:
    entered = step(seen(*found, **({"status/phase": before} if before else {})))
    assert (entered.phase if entered else None, entered.reason if entered else "") == (phase, reason)


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        (pod(phase="Pending"), ""),
        (pod(), "active"),
        (pod(exit_code=0), "succeeded"),
        (pod(exit_code=137, reason="OOMKilled"), "failed"),
        (pod(exit_code=1, main="coordinator"), "failed"),
        (pod(exit_code=1, main="sidecar"), "active"),
        (pod(phase="Failed"), "failed"),
        (pod(phase="Unknown"), ""),
    ],
)
def test_how_a_pod_counts(given: Pod, counts: str) -> None:
    assert outcome(given) == counts


def test_conditions_say_when_and_why() -> None:
    running = seen(pod(), **CREATED, **{"status/conditions": [{"type": "Created", "status": "True"}]})
    first = status_of(running, step(running), NOW)
    failing = {"status": first.manifest()}
    given = seen(pod(exit_code=3), pod(Role.DDP_LEARNER), **failing)
    status = status_of(given, step(given), NOW.replace(year=2027))
    said = {each.type: (each.status, each.message) for each in status.conditions}
    message = "DIJob cartpole: the coordinator has failed with exit code 3"
    phases = {"Created": ("True", ""), "Running": ("False", message), "Failed": ("True", message)}
    assert said == {**phases, "Ready": ("False", message), "Stalled": ("True", message)}
    moved = {each.type: each.last_transition_time for each in status.conditions}
    assert (moved["Running"], moved["Failed"]) == (NOW.replace(year=2027), NOW.replace(year=2027))
    assert status.replica_status["DDPLearner"].active == 1
    assert status.replica_status["Coordinator"].failed == 1


def test_a_job_whose_coordinator_runs_before_its_first_status_has_been_created() -> None:
    given = seen(pod())
    status = status_of(given, step(given), NOW)
    assert [each.type for each in status.conditions if each.status == "True"] == [
        "Created",
        "Running",
        "Ready",
    ]


def test_on_success_what_was_active_has_succeeded_and_stays_counted() -> None:
    given = seen(pod(phase="Succeeded"), pod(Role.COLLECTOR), **CREATED)
    status = status_of(given, step(given), NOW)
    assert (status.replica_status["Collector"].active, status.replica_status["Collector"].succeeded) == (0, 1)
    later = seen(**{"status": status.manifest()})
    assert status_of(later, step(later), NOW) == status


of_a_site = pytest.mark.asyncio(loop_scope="module")
ENDS: Manifest = changed(TEMPLATE, {"spec/containers/0/command": ["python", "-c", "raise SystemExit(0)"]})
FAILS: Manifest = changed(TEMPLATE, {"spec/containers/0/command": ["python", "-c", "raise SystemExit(3)"]})


def test_a_pod_whose_label_names_another_job_is_of_its_controllers() -> None:
    given = pod(labels={"dijob-name": "another"})
    assert list(keys_of(given)) == [dijob().key]


async def made(site: Site, **changes: Any) -> None:
    identity = {"metadata": {"name": "cartpole"}}
    await site.client.create(
        DIJOB.untyped(), changed(manifests.DIJOB, {**identity, **changes}), site.namespace
    )


async def found_job(site: Site) -> DIJob:
    return await site.client.get(DIJOB, "cartpole", site.namespace)


async def reaches(site: Site, phase: str) -> DIJob:
    async def does() -> bool:
        return (await found_job(site)).status.phase == phase

    await until(does, f"the job is {phase}")
    return await found_job(site)


@of_a_site
async def test_a_job_runs_and_leaves_nothing(site: Site) -> None:
    await made(site)
    job = await reaches(site, "Running")
    true = {each.type for each in job.status.conditions if each.status == "True"}
    assert true == {"Created", "Running", "Ready"}
    await site.has_only(SERVICE, COORDINATOR)
    await site.client.delete(POD, COORDINATOR, site.namespace, grace=0)

    async def is_back() -> bool:
        found = await site.client.find(POD, COORDINATOR, site.namespace)
        return found is not None and found.status.phase == "Running"

    await until(is_back, "the coordinator is made again")
    await site.client.delete(DIJOB, "cartpole", site.namespace)
    await site.has_only(SERVICE)
    await site.has_only(POD)


@of_a_site
async def test_a_job_that_succeeds_keeps_its_logs(site: Site) -> None:
    await ends(site, ENDS, "Running", "Succeeded", COORDINATOR)


@of_a_site
async def test_a_job_that_fails_leaves_no_pod_if_it_says_so(site: Site) -> None:
    await ends(site, FAILS, "ALL", "Failed")


def counted(site: Site) -> dict[str, float]:
    """Return how many DIJobs the operator shows of each phase in which there are any."""
    found = site.operator.metrics.registry.collect()
    samples = [each for family in found if family.name == "elasticjob_dijobs" for each in family.samples]
    mine = (each for each in samples if each.labels["job_namespace"] == site.namespace)
    return {each.labels["phase"]: each.value for each in mine if each.value}


async def ends(site: Site, template: Manifest, policy: str, phase: str, *left: str) -> None:
    """Run a job to its end: it is cleaned up, and never runs again."""
    await made(site, **{"spec/coordinator/template": template, "spec/cleanPodPolicy": policy})
    await reaches(site, phase)
    await site.has_only(SERVICE)
    await site.has_only(POD, *left)
    assert (await found_job(site)).spec.clean_pod_policy == policy  # as it was written
    await site.client.merge_patch(DIJOB, "cartpole", {"metadata": {"labels": {"a": "b"}}}, site.namespace)
    told = {"DIJobCreated", "SuccessfulCreate", f"DIJob{phase}"}

    async def are_told() -> bool:
        return told <= {each.reason for each in await site.client.list(EVENT, site.namespace)}

    await until(are_told, f"events {told}")
    await site.has_only(POD, *left)
    assert (await found_job(site)).status.phase == phase
    assert counted(site) == {phase: 1}
    await site.client.delete(DIJOB, "cartpole", site.namespace)
    await site.has_only(POD)

    await until(lambda: counted(site) == {}, "the job is counted no longer")


def test_a_name_that_is_taken_is_told_until_it_is_free() -> None:
    given, words = seen(), ("Pod a exists", "Pod a exists", "Pod b exists", "")
    told = []
    for second, taken in enumerate(words):
        status = status_of(given, step(given), NOW + timedelta(seconds=second), taken)
        given = replace(given, job=given.job.model_copy(update={"status": status}))
        created = status.condition("Created")
        assert created
        told.append((created.status, created.reason, created.message))
        assert (created.last_update_time != NOW + timedelta(seconds=second)) == (second == 1)
    taken_ = [("False", "NameTaken", each) for each in words[:3]]
    assert told == [*taken_, ("True", "DIJobCreated", "DIJob cartpole: the job is created")]


@of_a_site
async def test_a_taken_name_is_told_and_waited_for(site: Site) -> None:
    about: Manifest = {"metadata": {"name": COORDINATOR}}
    await site.client.create(POD, {**about, "spec": TEMPLATE["spec"]}, site.namespace)
    await site.client.create(SERVICE, {**about, "spec": {"ports": [{"port": 80}]}}, site.namespace)
    await made(site)

    async def says(reason: str) -> bool:
        created = (await found_job(site)).status.condition("Created")
        return created is not None and created.reason == reason

    async def is_told() -> bool:
        return "NameTaken" in {each.reason for each in await site.client.list(EVENT, site.namespace)}

    await until(lambda: says("NameTaken"), "the job says whose name is taken")
    await until(is_told, "an event says so, too")
    await site.client.delete(POD, COORDINATOR, site.namespace, grace=0)
    await site.client.delete(SERVICE, COORDINATOR, site.namespace)
    await reaches(site, "Running")
    await until(lambda: says("DIJobCreated"), "the name is the job's")
    await site.client.delete(DIJOB, "cartpole", site.namespace)
    await site.has_only(POD)


@of_a_site
async def test_an_empty_policy_is_the_default(site: Site) -> None:
    await made(site, **{"spec/cleanPodPolicy": "", "spec/coordinator/template": ENDS})
    assert (await found_job(site)).spec.clean_pod_policy == "Running"
    await site.client.delete(DIJOB, "cartpole", site.namespace)
    with pytest.raises(Invalid, match="cleanPodPolicy"):
        await made(site, **{"spec/cleanPodPolicy": "running"})
