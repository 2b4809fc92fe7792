"""The thin parts around the decisions: writing, counting, settings."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResourceStatus
from elasticjob.controllers.main import NAMESPACE_LABEL, scrapers_of, webhooks_of
from elasticjob.controllers.metrics import LABELS, Counters
from elasticjob.controllers.parts import names
from elasticjob.controllers.passes.apply import Applier
from elasticjob.controllers.passes.plan import (
    NAME_TAKEN,
    REFUSED,
    SOON,
    Apply,
    Create,
    CreateOrApply,
    Delete,
    Plan,
    Resize,
)
from elasticjob.controllers.settings import Settings
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.client.recorder import Recorder
from elasticjob.kube.errors import Forbidden, KubeError, Unreachable
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import CONFIG_MAP, POD
from elasticjob.webhooks import WEBHOOKS
from lab.build.jobs import NOW, at, job, over, resource
from lab.virtual.server import Server


def owned(name: str, by: str, **more: str) -> Manifest:
    """A pod that the JobResource with the uid `by` has made."""
    owner = {"apiVersion": "v1", "kind": "JobResource", "name": "digits", "uid": by, "controller": True}
    owners = {"ownerReferences": [owner]} if by else {}
    return {"metadata": {"name": name, "namespace": "ml", **owners, **more}, "spec": {}}


def holding(error: KubeError | None = None, **owners: str) -> Server:
    """A server with pods of these owners, which refuses everything with `error` where there is one."""
    server = Server()
    for name, by in owners.items():
        server.put(POD, owned(name, by, uid=f"uid-{name}"))
    server.fault = lambda *_: error
    return server


def owner_of(server: Server, name: str) -> str:
    about = server.lookup(POD, name, "ml")["metadata"]
    return "".join(each["uid"] for each in about.get("ownerReferences", ()))


class Audience:
    """Hears what is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def event(self, regarding: Any, type_: str, reason: str, note: str, times: int = 1) -> None:
        self.heard.append((type_, reason))


def applier(server: Server) -> tuple[Applier, Audience]:
    audience = Audience()
    return Applier(cast(Client, server), cast(Recorder, audience), "test"), audience


def creation(*names: str) -> Plan:
    return Plan("Made", "made pods", groups=(tuple(Create(POD, owned(name, "ours")) for name in names),))


async def test_what_is_ours_already_is_left_alone() -> None:
    server = holding(a="ours")
    writer, audience = applier(server)
    plan = creation("a", "b")
    assert await writer.attempt(job(), plan) == plan
    assert [owner_of(server, name) for name in ("a", "b")] == ["ours", "ours"]
    assert audience.heard == [("Normal", "Made")]


async def test_a_predecessors_object_is_waited_for_and_the_others_are_made() -> None:
    server = holding(a="theirs")
    writer, audience = applier(server)
    done = await writer.attempt(job(), creation("a", "b"))
    assert (done.reason, done.actions) == (NAME_TAKEN, ())
    assert (
        done.sentence == "Pod a exists and is not owned by this object: it is created once that one is gone"
    )
    assert owner_of(server, "b") == "ours"
    assert audience.heard == []


@pytest.mark.parametrize(
    ("owners", "reason", "applied"),
    [
        ({}, "Made", False),  # it is created
        ({"a": "ours"}, "Made", True),
        ({"a": "theirs"}, NAME_TAKEN, False),
        ({"a": ""}, NAME_TAKEN, False),  # of a user: it has no owner
    ],
)
async def test_what_another_has_made_is_not_applied_to(
    owners: dict[str, str], reason: str, applied: bool
) -> None:
    server = holding(None, **owners)
    writer, _ = applier(server)
    done = await writer.attempt(job(), Plan("Made", groups=((CreateOrApply(POD, owned("a", "ours")),),)))
    assert done.reason == reason
    assert (("apply", "Pod", "a") in server.requests) is applied
    assert owner_of(server, "a") == owners.get("a", "ours")


@pytest.mark.parametrize(("handed_on", "reason"), [(True, "Made"), (False, NAME_TAKEN)])
async def test_what_a_master_of_an_earlier_release_has_made_is_its_jobs(handed_on: bool, reason: str) -> None:
    server, made = Server(), owned("a", "ours")
    made["metadata"]["ownerReferences"][0]["controller"] = False
    server.put(CONFIG_MAP, made)
    plan = Plan("Made", groups=((Create(CONFIG_MAP, owned("a", "ours"), handed_on=handed_on),),))
    assert (await applier(server)[0].attempt(job(), plan)).reason == reason


async def test_nothing_is_applied_to_an_object_that_may_be_anothers() -> None:
    server = Server()
    with pytest.raises(ValueError, match="applied without a uid"):
        await applier(server)[0].perform(job(), Plan("Made", groups=((Apply(POD, owned("a", "ours")),),)))
    assert server.writes == []


async def test_a_refusal_is_told() -> None:
    writer, audience = applier(holding(Forbidden(403, "Forbidden", "exceeded quota: compute")))
    done = await writer.attempt(job(), creation("a"))
    assert (done.reason, done.sentence) == (REFUSED, "exceeded quota: compute")
    assert done.again_in is not None
    assert audience.heard == [("Warning", "QuotaExceeded")]


async def test_an_outage_is_for_the_controller_to_retry() -> None:
    writer, _ = applier(holding(Unreachable("connection refused")))
    with pytest.raises(Unreachable):
        await writer.attempt(job(), creation("a"))


async def test_a_namesake_of_another_uid_is_not_deleted() -> None:
    writer, _ = applier(holding(a="ours"))
    plan = Plan("Gone", groups=((Delete(POD, "a", "old"),),))
    assert await writer.attempt(job(), plan) == plan


async def test_what_has_changed_since_it_was_seen_is_looked_at_again() -> None:
    writer, _ = applier(holding(a="ours"))
    plan = Plan("Gone", groups=((Delete(POD, "a", "uid-a", version="7"),),))
    assert await writer.attempt(job(), plan) == plan.again_by(SOON)


async def test_a_refused_resize_marks_the_pod() -> None:
    server, refusals = holding(a="ours"), [Forbidden(403, "Forbidden", "no resize")]
    server.fault = lambda *_: refusals.pop() if refusals else None
    resize = Resize("a", "uid-a", "main", {"limits": {"memory": "1Gi"}}, {})
    await applier(server)[0].attempt(job(), Plan("Fit", groups=((resize,),)))
    assert server.lookup(POD, "a", "ml")["metadata"]["annotations"] == {names.RESIZE: "refused"}


async def test_a_status_is_applied_without_empty_maps() -> None:
    server = Server()
    server.put(JOBRESOURCE, {**resource().manifest(), "status": {}})
    status = JobResourceStatus(observed_generation=1).manifest()
    assert await applier(server)[0].write_status(JOBRESOURCE, resource(), status, {})
    assert server.every(JOBRESOURCE)[0]["status"] == {"observedGeneration": 1}


def counted(registry: CollectorRegistry, name: str) -> float | None:
    labels = {"job_namespace": "ml", "framework": "pytorch"}
    return registry.get_sample_value(f"training_operator_jobs_{name}_total", labels)


def test_jobs_are_counted_once() -> None:
    registry = CollectorRegistry()
    counters = Counters(registry)
    new = job()
    running = with_status(new, {"phase": "Running", "restarts": 2})
    ended = with_status(new, {"phase": "Succeeded", "restarts": 2, **over()})
    counters.saw(new, running.status)
    counters.saw(running, running.status)
    counters.saw(running, ended.status)
    counters.saw(ended, ended.status)
    counters.forget(new.key)
    counters.forget(new.key)
    found = {
        name: counted(registry, name) for name in ("created", "successful", "restarted", "deleted", "failed")
    }
    assert found == {"created": 1, "successful": 1, "restarted": 2, "deleted": 1, "failed": 0}


def test_frameworks_that_are_not_known_are_one_label_value() -> None:
    registry = CollectorRegistry()
    counters = Counters(registry)
    for number in range(100):
        made = job(metadata={"name": f"j{number}", "annotations": {names.FRAMEWORK: f"mine-{number}"}})
        counters.note_phase(made, NOW)
        counters.saw(made, with_status(made, over()).status)
        counters.forget(made.key)
    samples = (sample for metric in registry.collect() for sample in metric.samples)
    values = {sample.labels[LABELS[1]] for sample in samples if LABELS[1] in sample.labels}
    assert values == {"other"}


def test_jobs_are_shown_by_phase() -> None:
    registry = CollectorRegistry()
    counters = Counters(registry)
    new = job()
    running = with_status(new, {"phase": "Running"})

    def shown() -> dict[str, float]:
        found = {
            phase: registry.get_sample_value("elasticjob_jobs", {"job_namespace": "ml", "phase": phase})
            for phase in ("Created", "Running", "Succeeded")
        }
        return {phase: count for phase, count in found.items() if count}

    counters.note_phase(new, NOW)
    assert shown() == {}
    counters.saw(new, running.status)
    counters.note_phase(running, NOW)
    assert shown() == {"Running": 1}
    counters.saw(running, with_status(new, {"phase": "Succeeded", **over()}).status)
    assert shown() == {"Succeeded": 1}
    counters.forget(new.key)
    assert shown() == {}


@pytest.mark.parametrize(
    ("steps", "taken"),
    [
        ([None, 0, 3, 9], [40.0]),
        ([7, 9], []),  # it trained before this process began
        ([None], []),
    ],
)
def test_the_time_from_apply_to_the_first_step_is_measured_once(
    steps: list[int | None], taken: list[float]
) -> None:
    registry = CollectorRegistry()
    counters = Counters(registry)
    for number, step in enumerate(steps):
        status = {"phase": "Running", "training": {} if step is None else {"step": step}}
        counters.note_phase(with_status(job(), status), NOW + timedelta(seconds=20 * number))
    name = "elasticjob_time_to_first_step_seconds"
    assert registry.get_sample_value(f"{name}_count") == len(taken)
    assert registry.get_sample_value(f"{name}_sum") == sum(taken)


def with_status(given: ElasticJob, status: Manifest) -> ElasticJob:
    manifest = {
        "metadata": {"name": "digits", "namespace": "ml", "creationTimestamp": at(NOW)},
        "spec": given.spec.manifest(),
        "status": status,
    }
    return ELASTICJOB.convert(manifest)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICJOB_OPERATOR_NAMESPACE", "ml")
    monkeypatch.setenv("ELASTICJOB_OPERATOR_WEBHOOK_PORT", "0")
    monkeypatch.setenv("ELASTICJOB_OPERATOR_SCRAPERS", '[{"name": "monitoring"}]')
    assert (Settings().namespace, Settings().webhook_port) == ("ml", 0)
    assert Settings().scrapers == ({"name": "monitoring"},)
    assert Settings(namespace="other").namespace == "other"


@pytest.mark.parametrize("brain", ["", "elasticjob-system"])
@pytest.mark.parametrize("others", [(), ({"team": "monitoring"},)])
def test_brain_reads_the_metrics_of_masters_whoever_else_does(
    brain: str, others: tuple[dict[str, str], ...]
) -> None:
    found = scrapers_of(Settings(brain_namespace=brain, scrapers=others))
    assert found == (*([{NAMESPACE_LABEL: brain}] if brain else []), *others)


def test_an_operator_of_one_namespace_is_asked_about_no_other() -> None:
    client = Client(Config("https://10.0.0.1"))
    selectors = [each.terms.namespaces for each in webhooks_of(Settings(namespace="ml"), client)]
    assert selectors == [{"matchLabels": {"kubernetes.io/metadata.name": "ml"}}] * (len(WEBHOOKS) + 1)
    assert webhooks_of(Settings(brain="brain:8090"), client)[:-1] == WEBHOOKS


def test_kubectl_scale_is_not_refused_while_no_operator_answers() -> None:
    client = Client(Config("https://10.0.0.1"))
    policies = {each.kind.name: each.terms.failure_policy for each in webhooks_of(Settings(), client)}
    assert (policies["ElasticJob"], policies["Scale"]) == ("Fail", "Ignore")
