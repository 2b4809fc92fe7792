"""TrainingJobs of EDL: which ElasticJob each has, what its status says, and that nothing is left of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from elasticjob.api.paddle.convert import elasticjob_of
from elasticjob.api.paddle.trainingjob import TRAININGJOB, TrainingJob
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.controllers.elasticjob.decide import decide as decide_job
from elasticjob.controllers.elasticjob.seen import Seen as SeenOfJob
from elasticjob.controllers.passes.plan import REFUSED, Apply, Create, Patch, Plan
from elasticjob.controllers.trainingjob.decide import Seen, decide, elasticjob_for, status_of
from elasticjob.kube.errors import Invalid
from elasticjob.kube.objects.conditions import is_true
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.views import POD
from lab.build.jobs import LONG_AGO, NOW, ended, life, master, resource
from lab.build.manifests import TRAINING, changed
from lab.jobs.site import Site
from lab.waiting import until


def training(**changes: Any) -> TrainingJob:
    written = {path.replace("__", "/"): value for path, value in changes.items()}
    about = {"metadata/generation": 2}
    return TrainingJob.model_validate(changed(TRAINING, {**about, **written}))


QUEUED = {"kueue.x-k8s.io/queue-name": "team-a"}
IN_A_QUEUE = {"metadata__labels": QUEUED | {"other": "is not passed on"}}


def child(
    phase: str | None = "Running", uid: str = "t", labels: dict[str, str] | None = None, **status: Any
) -> ElasticJob:
    """The ElasticJob of the TrainingJob with this uid."""
    manifest = elasticjob_for(training())
    manifest["metadata"]["ownerReferences"][0]["uid"] = uid
    manifest["metadata"]["labels"] = labels or {}
    return ElasticJob.model_validate({**manifest, "status": {"phase": phase, **status}})


def test_its_elasticjob_is_in_its_queue() -> None:
    assert elasticjob_for(training(**IN_A_QUEUE))["metadata"]["labels"] == QUEUED


WAITS = [
    {"type": "Admitted", "status": "False", "reason": "Queued", "message": "queue team-a: no quota"}
    | {"lastTransitionTime": "2026-01-01T00:00:00Z"}
]
DONE = {"phase": "succeeded", "observedGeneration": 2}


@pytest.mark.parametrize(
    ("job", "found", "reason", "action"),
    [
        (training(), None, "ElasticJobCreated", Create),
        (training(status={"observedGeneration": 2}), child(), "AsSpecified", None),
        (training(status={"observedGeneration": 1}), child(), "ElasticJobUpdated", Apply),
        (training(), child(), "ElasticJobUpdated", Apply),  # made before an edit, or by an operator that died
        (training(**IN_A_QUEUE), None, "ElasticJobCreated", Create),
        (training(status={"observedGeneration": 2}, **IN_A_QUEUE), child(), "QueueChanged", Patch),
        (
            training(status={"observedGeneration": 2}, **IN_A_QUEUE),
            child(labels=QUEUED | {"kueue.x-k8s.io/priority-class": "a policy's"}),
            "AsSpecified",
            None,
        ),
        (training(status={"observedGeneration": 2}), child(labels=QUEUED), "AsSpecified", None),
        (training(), child(uid="another"), "NameTaken", None),
        (training(spec__image=""), None, "Refused", None),
        (
            training(status=DONE),
            None,
            "AsSpecified",
            None,
        ),  # its ElasticJob was deleted: it does not run again
        (training(metadata__deletionTimestamp="2026-01-01T00:00:00Z"), child(), "AsSpecified", None),
    ],
)
def test_what_is_written(
    job: TrainingJob, found: ElasticJob | None, reason: str, action: type | None
) -> None:
    plan = decide(Seen(job, found))
    assert plan.reason == reason
    assert [type(each) for each in plan.actions] == ([action] if action else [])


@pytest.mark.parametrize(
    ("phase", "labels"),
    [("Running", {"kueue.x-k8s.io/queue-name": "team-b"}), ("Running", {}), (None, QUEUED)],
)
def test_a_queue_that_may_not_change_holds_up_no_other_change(
    phase: str | None, labels: dict[str, str]
) -> None:
    """An ElasticJob that runs stays in its queue, and gets the new bounds all the same."""
    before = {"kueue.x-k8s.io/queue-name": "team-b"} if phase is None else labels
    seen = Seen(training(status={"observedGeneration": 1}, **IN_A_QUEUE), child(phase, labels=before))
    [change] = decide(seen).actions
    assert isinstance(change, Apply)
    assert change.manifest["metadata"]["labels"] == labels


@pytest.mark.parametrize(
    ("found", "phase", "reason"),
    [
        (None, "creating", ""),
        (child(None), "creating", ""),
        (child("Created"), "creating", ""),
        (child("Pending", reason="Unschedulable"), "creating", "Unschedulable"),
        (child("Running"), "running", ""),
        (child("Restarting"), "running", ""),
        (child("Scaling"), "scaling", ""),
        (child("Suspended"), "none", ""),
        (child("Suspended", reason="Queued", conditions=WAITS), "none", "Queued: queue team-a: no quota"),
        (child("Succeeded"), "succeeded", ""),
        (child("Failed", reason="BackoffLimitExceeded"), "failed", "BackoffLimitExceeded"),
    ],
)
def test_what_the_status_says(found: ElasticJob | None, phase: str, reason: str) -> None:
    status = status_of(Seen(training(), found), Plan(), NOW)
    observed = 2 if found else None  # another ElasticJob may be there, of an older spec
    assert (status.phase, status.reason, status.observed_generation) == (phase, reason, observed)


STALLED = {"type": "Stalled", "status": "True", "reason": "Because", "message": "it failed"}
STALLED |= {"lastTransitionTime": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("found", "plan", "said"),
    [
        (None, Plan(), "Creating"),
        (None, Plan(REFUSED, "spec.image: Required value"), REFUSED),
        (child("Failed", conditions=[STALLED]), Plan(), "Because"),
    ],
)
def test_kstatus_is_told_what_it_is_told_of_the_elasticjob(
    found: ElasticJob | None, plan: Plan, said: str
) -> None:
    conditions = status_of(Seen(training(), found), plan, NOW).conditions
    assert {each.reason for each in conditions} == {said}
    assert is_true(conditions, "Stalled") is (said != "Creating")


def test_the_status_of_a_finished_job_stays() -> None:
    job = training(status=DONE)
    assert status_of(Seen(job, None), Plan(), NOW) == job.status


@pytest.mark.parametrize("servers", [False, True])
def test_trainers_that_failed_for_good_have_the_answer_of_every_job(*, servers: bool) -> None:
    """Trainers have no agent: their master knows of no world. The last one ended with 0."""
    sizes = {"spec__trainer__min-instance": 1, "spec__trainer__max-instance": 4}
    pserver = {"entrypoint": "serve", "min-instance": 1, "max-instance": 1}
    made = training(**sizes, **({"spec__pserver": pserver} if servers else {}))
    about = {"name": "digits", "namespace": "ml", "uid": "job-1", "generation": 1}
    asked = ELASTICJOB.convert({**elasticjob_of(made), "metadata": about})
    before = LONG_AGO - timedelta(minutes=1)
    spent = (ended(index, 3, restarts_before=3, at=before) for index in range(3))
    beside = [life(0, role="ps")] if servers else []
    running = resource({"worker": 4} | ({"ps": 1} if servers else {}), asked="{}")
    seen = SeenOfJob(asked, running, (master(),), (*spent, ended(3, code=0), *beside))
    outcome = decide_job(seen, NOW).outcome
    assert outcome is not None
    assert (outcome.succeeded, outcome.message.partition(";")[0]) == (
        True,
        "1 of 4 pods that train have succeeded",
    )


of_a_site = pytest.mark.asyncio(loop_scope="module")
SPEC: Manifest = {
    "image": "python:3.11",
    "fault_tolerant": True,
    "trainer": {"entrypoint": "sleep infinity", "min-instance": 2, "max-instance": 4},
}


async def made(site: Site, **spec: Any) -> None:
    manifest = {"metadata": {"name": "digits"}, "spec": {**SPEC, **spec}}
    await site.client.create(TRAININGJOB.untyped(), manifest, site.namespace)


async def status(site: Site) -> tuple[str, str | None]:
    found = (await site.client.get(TRAININGJOB, "digits", site.namespace)).status
    return found.phase or "", found.trainers


@of_a_site
async def test_a_job_runs_changes_and_leaves_nothing(site: Site) -> None:
    await made(site)
    await site.until(lambda: {"digits-worker-0", "digits-worker-1"} <= site.running())

    async def runs() -> bool:
        return await status(site) == ("running", "2/2")

    await until(runs, "the status says that it runs")
    await site.client.merge_patch(
        TRAININGJOB, "digits", {"spec": {"trainer": {"max-instance": 6}}}, site.namespace
    )
    await site.until(lambda: site.job().spec.roles["worker"].max_replicas == 6)
    await site.client.delete(TRAININGJOB, "digits", site.namespace)
    await site.has_only(ELASTICJOB)
    await site.has_only(POD)


@of_a_site
async def test_an_elasticjob_of_somebody_else_is_left_alone(site: Site) -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "i", "command": ["sleep", "infinity"]}]}}
    await site.create({"suspend": True, "replicaSpecs": {"worker": {"replicas": 1, "template": template}}})
    await site.until(lambda: site.job().metadata.name == "digits")
    before = site.job().spec
    await made(site)

    async def waits() -> bool:
        found = (await site.client.get(TRAININGJOB, "digits", site.namespace)).status
        return found.reason.startswith("NameTaken: ElasticJob digits exists")

    await until(waits, "the status says who has the name")
    assert site.operator.cache(ELASTICJOB).get(Key(site.namespace, "digits")).spec == before  # type: ignore[union-attr]
    await site.client.delete(TRAININGJOB, "digits", site.namespace)


@of_a_site
async def test_what_cannot_be_converted_is_refused_at_once(site: Site) -> None:
    with pytest.raises(Invalid, match=r"spec\.fault_tolerant: is false, and the number of trainers"):
        await made(site, fault_tolerant=False)
    with pytest.raises(Invalid, match=r"spec\.image: is missing"):
        await made(site, image="")
