"""Our kinds in the server in a dict: refused, defaulted, changed and asked about as on a cluster."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import msgspec
import pytest

from elasticjob.api.crds import DECLARATIONS
from elasticjob.api.v1alpha1.common import LABEL_JOB, MASTER_SUFFIX
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.devcluster.server.write.patches import json_patch
from elasticjob.kube.errors import Conflict, Invalid, ServerError
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import SERVICE_ACCOUNT
from elasticjob.kube.webhook.review import AdmissionReview, Request, mutate, validate
from elasticjob.webhooks import WEBHOOKS
from lab.build import manifests
from lab.build.manifests import ABSENT, changed, declared
from lab.virtual.admission import Admission
from lab.virtual.server import Instant, Server

JOB, RESOURCE, PLAN = ELASTICJOB.untyped(), JOBRESOURCE.untyped(), SCALEPLAN.untyped()
WORKER = "spec/replicaSpecs/worker"


class Slow(Instant):
    """A client whose first read lets another program write."""

    async def asked(self, *_: Any) -> None:
        [found] = self.server.every(JOB)
        if found["metadata"]["generation"] == 1:
            await self.server.merge_patch(JOB, "digits", {"spec": {"nodeUnit": 2}}, "lab")


def guarded(*there: Manifest) -> Server:
    server = Server()
    server.admission = Admission(Instant(server))
    for each in there:
        server.put({"ElasticJob": JOB, "JobResource": RESOURCE}[each["kind"]], each)
    return server


async def test_unknown_fields_go_and_defaults_come() -> None:
    server = guarded()
    stored = await server.create(JOB, changed(manifests.JOB, {"spec/colour": "red"}))
    assert "colour" not in stored["spec"]
    assert stored["spec"]["optimizeMode"] == "single-job"
    assert stored["spec"]["replicaSpecs"]["worker"]["restartCount"] == 3


async def test_a_status_is_judged_alone() -> None:
    server = guarded(manifests.RESOURCE)
    status = {"replicaStatuses": {"worker": {"desired": 1}}, "colour": "red"}
    stored = await server.merge_patch(RESOURCE, "digits", {"status": status}, "lab", subresource="status")
    assert stored["status"] == {"replicaStatuses": {"worker": {"desired": 1, "current": 0, "ready": 0}}}
    with pytest.raises(Invalid, match="selector in body must be of type string"):
        await server.merge_patch(RESOURCE, "digits", {"status": {"selector": 1}}, "lab", subresource="status")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"spec/nodeUnit": "two"}, "must be of type integer"),
        ({"spec/nodeUnit": 0}, "should be greater than or equal to 1"),
        ({"spec/replicaSpecs": ABSENT}, "denied the request: spec.replicaSpecs: there is no role"),
        ({f"{WORKER}/minReplicas": 5}, "minReplicas is more than maxReplicas"),
        ({"metadata/labels": {"a b": "c"}}, "metadata.labels: Invalid value"),
    ],
)
async def test_what_is_wrong_is_not_stored(changes: Manifest, why: str) -> None:
    server = guarded()
    with pytest.raises(Invalid, match=why):
        await server.create(JOB, changed(manifests.JOB, changes))
    assert not server.every(JOB)


async def test_an_unknown_field_cannot_be_applied() -> None:
    with pytest.raises(ServerError, match=r"\.spec\.colour: field not declared in schema"):
        await guarded().apply(JOB, changed(manifests.JOB, {"spec/colour": "red"}), manager="user")


async def test_rules_compare_an_object_with_the_one_before() -> None:
    server = guarded(manifests.RESOURCE)
    with pytest.raises(Invalid, match=r"spec\.selector"):
        await server.merge_patch(RESOURCE, "digits", {"spec": {"selector": {"name": "other"}}}, "lab")


async def test_webhooks_add_labels() -> None:
    stored = await guarded().create(RESOURCE, manifests.RESOURCE)
    assert stored["metadata"]["labels"] == {LABEL_JOB: "digits"}


async def test_the_account_of_a_program_decides_which_job_it_may_plan_for() -> None:
    server = guarded(manifests.JOB)
    labels = {LABEL_JOB: "other", "app.kubernetes.io/managed-by": "elasticjob"}
    server.put(SERVICE_ACCOUNT, {"metadata": {"name": "other", "namespace": "lab", "labels": labels}})
    server.user = "system:serviceaccount:lab:other"
    with pytest.raises(Invalid, match="plans for its own job"):
        await server.create(PLAN, manifests.PLAN)


async def test_a_scale_is_read_and_written() -> None:
    server = guarded(manifests.JOB)
    scale = await server.merge_patch(JOB, "digits", {"spec": {"replicas": 3}}, "lab", subresource="scale")
    assert scale["spec"] == {"replicas": 3}
    assert scale == await server.get(JOB, "digits", "lab", subresource="scale")
    [stored] = server.every(JOB)
    assert stored["spec"]["replicaSpecs"]["worker"]["replicas"] == 3
    with pytest.raises(Invalid, match="0 workers: set suspend: true"):
        await server.merge_patch(JOB, "digits", {"spec": {"replicas": 0}}, "lab", subresource="scale")


async def test_a_size_that_is_asked_for_again_becomes_a_plan() -> None:
    server = guarded(
        manifests.JOB, changed(manifests.RESOURCE, {"spec/replicaResourceSpecs/worker/replicas": 3})
    )
    await server.merge_patch(JOB, "digits", {"spec": {"replicas": 2}}, "lab", subresource="scale")
    [plan] = server.every(PLAN)
    assert plan["spec"]["replicaResourceSpecs"] == {"worker": {"replicas": 2}}
    assert plan["metadata"]["labels"][LABEL_JOB] == "digits"


async def test_without_webhooks_only_what_may_go_unchecked_is_stored() -> None:
    server = guarded(manifests.JOB)
    cast(Admission, server.admission).serving = False
    with pytest.raises(ServerError, match="failed calling webhook"):
        await server.create(PLAN, manifests.PLAN)
    await server.merge_patch(JOB, "digits", {"spec": {"replicas": 3}}, "lab", subresource="scale")


async def test_a_json_patch_is_done_whole_or_not_at_all() -> None:
    server = guarded(manifests.RESOURCE)
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": "1"}
    add = {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}
    stored = await server.json_patch(RESOURCE, "digits", [test, add], "lab")
    assert stored["metadata"]["annotations"] == {"a": "b"}
    with pytest.raises(Invalid):
        await server.json_patch(RESOURCE, "digits", [test, add], "lab")


@pytest.mark.parametrize("pinned", [False, True])
async def test_an_object_that_changes_while_a_webhook_reads_is_looked_at_again(*, pinned: bool) -> None:
    server = guarded(changed(manifests.JOB, {"spec/suspend": True}))
    server.admission = Admission(Slow(server))
    version = {"metadata": {"resourceVersion": "1"}} if pinned else {}
    template = {"spec": {"serviceAccountName": f"other{MASTER_SUFFIX}"}}
    patch = {"spec": {"replicaSpecs": {"worker": {"template": template}}}, **version}
    if pinned:
        with pytest.raises(Conflict):
            await server.merge_patch(JOB, "digits", patch, "lab")
        return
    stored = await server.merge_patch(JOB, "digits", patch, "lab")
    assert (stored["spec"]["nodeUnit"], stored["metadata"]["generation"]) == (2, 3)
    assert stored["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["serviceAccountName"]


CHANGES: tuple[tuple[str, Any], ...] = (
    ("spec/suspend", True),
    ("spec/nodeUnit", 3),
    (f"{WORKER}/replicas", 1),
    (f"{WORKER}/template/spec/serviceAccountName", f"other{MASTER_SUFFIX}"),
    ("spec/replicaResourceSpecs/worker/replicas", 9),
    ("spec/replicaResourceSpecs/worker/resource", {"cpu": "x"}),
    ("spec/ownerJob", "Other"),
    ("spec/trainer/min-instance", 5),
    ("spec/collector/template/spec/hostNetwork", 1),
    ("spec/group", "a b"),
    ("spec/aggregator/template/spec/restartPolicy", "Always"),
    ("metadata/labels", {LABEL_JOB: "other"}),
)


Verdict = Manifest | list[str]
"""What is stored, or why not."""


async def by_bytes(server: Server, kind: Kind[Any], old: Manifest | None, new: Manifest) -> Verdict:
    """What follows from the answers of our webhooks to the API server's bytes."""
    [webhook] = [each for each in WEBHOOKS if each.kind.resource == kind.resource]
    schemas = Admission(Instant(server), webhooks=())

    def review(new: Manifest) -> Request:
        request = {"uid": "u", "operation": "UPDATE" if old else "CREATE", "object": new, "oldObject": old}
        request |= {name: new["metadata"][name] for name in ("name", "namespace")}
        return msgspec.json.decode(msgspec.json.encode({"request": request}), type=AdmissionReview).request

    try:
        new = await schemas.admit(kind, old, new)
        first = await mutate(webhook, review(new))
        new = await schemas.admit(kind, old, json_patch(new, list(first.patch)))
    except Invalid as error:
        return [each["message"] for each in error.causes]
    answer = await validate(webhook, review(new), Instant(server)) if first.allowed else first
    return new if answer.allowed else [each.message for each in answer.problems]


async def by_admission(server: Server, kind: Kind[Any], old: Manifest | None, new: Manifest) -> Verdict:
    try:
        return await server.admit(kind, old, new, "", "")
    except Invalid as error:
        return [each["message"] for each in error.causes]


async def test_webhooks_say_the_same_of_what_is_remembered_as_of_its_bytes() -> None:
    chance, server, verdicts = Random(0), guarded(manifests.JOB), list[Verdict]()
    for _ in range(200):
        declaration = chance.choice(DECLARATIONS)
        kind, old, new = declaration.kind.untyped(), None, declared(declaration.kind)
        if chance.random() < 0.6:
            old = new = server.put(kind, changed(new, dict(chance.sample(CHANGES, 1))))
        new = changed(new, dict(chance.sample(CHANGES, 2)))
        verdicts.append(await by_admission(server, kind, old, new))
        assert verdicts[-1] == await by_bytes(server, kind, old, new)
    assert sum(isinstance(each, list) for each in verdicts) > 40
