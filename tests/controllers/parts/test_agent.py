"""An image without the agent: the template's annotation names the image that brings it."""

from __future__ import annotations

from typing import Any

from elasticjob.api.v1alpha1.common import AGENT_IMAGE as IMAGE
from elasticjob.controllers.jobresource.pods import Birth, pod_manifest
from elasticjob.kube.objects.kinds import Manifest
from lab.build.jobs import job, resource, role

BROUGHT = "registry.example/elasticjob/agent:1"


def pod(annotations: dict[str, str], **spec: Any) -> Manifest:
    given = role(1)
    given["template"]["metadata"] = {"annotations": annotations}
    given["template"]["spec"] |= spec
    made: Manifest = pod_manifest(
        job({"worker": given}), resource(), Birth("worker", 0), master="10.0.0.1:50001", nodes=1
    )["spec"]
    return made


def test_an_init_container_brings_the_agent_before_all_others() -> None:
    plain = pod({}, initContainers=[{"name": "mine", "image": "mine"}])
    made = pod({IMAGE: BROUGHT}, initContainers=[{"name": "mine", "image": "mine"}])
    first, *others = made["initContainers"]
    assert (first["image"], others) == (BROUGHT, plain["initContainers"])
    assert first["securityContext"]["readOnlyRootFilesystem"]
    assert first["resources"]["requests"] == first["resources"]["limits"]
    (before,), (main,) = plain["containers"], made["containers"]
    brought = {"name": "elasticjob-agent", "mountPath": "/elasticjob", "readOnly": True}
    assert main == {**before, "volumeMounts": [*before["volumeMounts"], brought]}
    assert made["volumes"] == [*plain["volumes"], {"name": "elasticjob-agent", "emptyDir": {}}]


def test_a_template_with_the_volume_of_its_own_stays_as_it_is() -> None:
    mine = [{"name": "elasticjob-agent", "image": {"reference": BROUGHT}}]
    assert pod({IMAGE: BROUGHT}, volumes=mine) == pod({}, volumes=mine)


def test_no_other_container_gets_it() -> None:
    containers = [{"name": "main", "image": "a"}, {"name": "sidecar", "image": "b"}]
    made = pod({IMAGE: BROUGHT}, containers=containers)
    places = [[mount["mountPath"] for mount in each["volumeMounts"]] for each in made["containers"]]
    assert ["/elasticjob" in each for each in places] == [True, False]


def test_it_is_who_the_main_container_is_where_a_namespace_asks_for_that() -> None:
    identity = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    secure = {**identity, "allowPrivilegeEscalation": True, "privileged": True}
    made = pod({IMAGE: BROUGHT}, containers=[{"name": "main", "image": "a", "securityContext": secure}])
    (copying,) = made["initContainers"]
    unprivileged = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert copying["securityContext"] == {**identity, **unprivileged, "readOnlyRootFilesystem": True}
