"""Our kinds in the server in a dict: refused, defaulted, changed and asked about as on a cluster."""

from __future__ import annotations

from typing import Any, cast

import pytest

from elasticjob.api.v1alpha1.common import LABEL_JOB, MASTER_SUFFIX
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.kube.errors import Conflict, Invalid, ServerError
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import SERVICE_ACCOUNT
from lab.build import manifests
from lab.build.manifests import ABSENT, changed
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
        await server.apply(JOB, changed(manifests.JOB, changes), manager="user")
    assert not server.every(JOB)


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
