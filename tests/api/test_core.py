"""The built-in types that were cut from the published document, and the models made of them."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.api.core import POD_TEMPLATE_SPEC, definitions, document
from elasticjob.api.core.models import PodTemplateSpec
from elasticjob.api.core.shape import repeated_keys, shape_problems

NEEDED = {
    "v1": "Pod Service Endpoints ConfigMap Secret Node Namespace ServiceAccount Event PersistentVolume "
    "Binding PersistentVolumeClaim Status DeleteOptions PodList SecretList",
    "events.k8s.io/v1": "Event",
    "apps/v1": "Deployment ReplicaSet",
    "batch/v1": "Job",
    "coordination.k8s.io/v1": "Lease",
    "rbac.authorization.k8s.io/v1": "Role RoleBinding ClusterRole ClusterRoleBinding",
    "networking.k8s.io/v1": "NetworkPolicy",
    "policy/v1": "PodDisruptionBudget Eviction",
    "discovery.k8s.io/v1": "EndpointSlice",
    "scheduling.k8s.io/v1": "PriorityClass",
    "apiextensions.k8s.io/v1": "CustomResourceDefinition",
    "admissionregistration.k8s.io/v1": "MutatingWebhookConfiguration ValidatingWebhookConfiguration",
    "authentication.k8s.io/v1": "TokenReview TokenRequest",
    "authorization.k8s.io/v1": "SubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview",
    "autoscaling/v1": "Scale",
}


def served() -> set[tuple[str, str]]:
    return {
        (f"{kind['group']}/{kind['version']}".lstrip("/"), kind["kind"])
        for schema in definitions().values()
        for kind in schema.get("x-kubernetes-group-version-kind", ())
    }


@pytest.mark.parametrize("version", NEEDED)
def test_every_kind_that_a_small_cluster_serves_is_there(version: str) -> None:
    assert {(version, kind) for kind in NEEDED[version].split()} <= served()


def test_references_lead_somewhere_and_texts_are_left_out() -> None:
    def walk(node: Any) -> None:
        if isinstance(node, dict):
            assert not isinstance(node.get("description"), str)
            if isinstance(node.get("$ref"), str):
                assert node["$ref"].removeprefix("#/definitions/") in definitions()
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            walk(child)

    walk(dict(definitions()))
    assert document()["version"].startswith("v1.")


def test_keys_of_lists_and_merges_are_kept() -> None:
    containers = definitions()["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert "containers" in definitions()["io.k8s.api.core.v1.PodSpec"]["required"]


TEMPLATE: dict[str, Any] = {
    "metadata": {
        "labels": {"a": "b"},
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:containers": {}}}}],
    },
    "spec": {
        "containers": [
            {
                "name": "main",
                "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": 8080}},
                "readinessProbe": {"httpGet": {"port": "http"}},
                "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
                "newerThanUs": {"a": [1]},
            }
        ],
        "alsoNewer": True,
    },
}


def test_models_give_back_what_they_read() -> None:
    read = PodTemplateSpec.model_validate(TEMPLATE)
    assert read.model_dump(by_alias=True, exclude_unset=True, mode="json") == TEMPLATE
    assert read.spec is not None
    assert read.spec.containers[0].ports is not None
    assert read.spec.containers[0].ports[0].container_port == 80


NUMBER = "is not a whole number: write a whole number here"
BOOLEAN = "is not true or false: write true or false here"
GRACE = "terminationGracePeriodSeconds"
MISSHAPEN: list[tuple[Any, list[str]]] = [
    (TEMPLATE, []),
    ({}, []),
    (None, []),
    ({"spec": None}, []),
    ("x", ["it: 'x' is not fields: write fields here"]),
    ({"spec": []}, ["it.spec: [] is not fields: write fields here"]),
    ({"spec": {"volumes": [None]}}, ["it.spec.volumes[0]: an entry of a list cannot be null: leave it out"]),
    ({"spec": {"containers": [1]}}, ["it.spec.containers[0]: 1 is not fields: write fields here"]),
    (
        {"spec": {"containers": [{"ports": [{"containerPort": "80"}]}]}},
        [f"it.spec.containers[0].ports[0].containerPort: '80' {NUMBER}"],
    ),
    ({"metadata": {"labels": {"a": 1}}}, ["it.metadata.labels[a]: 1 is not text: write text here"]),
    ({"spec": {"hostNetwork": "yes"}}, [f"it.spec.hostNetwork: 'yes' {BOOLEAN}"]),
    ({"spec": {GRACE: True}}, [f"it.spec.{GRACE}: True {NUMBER}"]),
]


@pytest.mark.parametrize(("template", "found"), MISSHAPEN)
def test_shape(template: Any, found: list[str]) -> None:
    assert [str(problem) for problem in shape_problems("it", template, POD_TEMPLATE_SPEC)] == found


@pytest.mark.parametrize(
    ("pod", "found"),
    [
        ({"containers": [{"name": "a"}, {"name": "b"}]}, []),
        ({"containers": [{"name": "a"}, {"name": "a"}]}, ["containers[1]: a is there twice: leave one out"]),
        ({"volumes": [{"name": "v"}, {"name": "v"}]}, ["volumes[1]: v is there twice: leave one out"]),
        (
            {"containers": [{"ports": [{"containerPort": 1}, {"containerPort": 1, "protocol": "TCP"}]}]},
            ["containers[0].ports[1]: 1 TCP is there twice: leave one out"],
        ),
        ({"containers": [{"ports": [{"containerPort": 1}, {"containerPort": 1, "protocol": "UDP"}]}]}, []),
        ({"tolerations": [{"key": "a"}, {"key": "a"}]}, []),
        ({"containers": "none"}, []),
        ({"containers": [None, 3, {"env": {"name": "A"}}, {"env": [{}, {}, {"name": {}}]}]}, []),
    ],
)
def test_members_of_keyed_lists_are_there_once(pod: Any, found: list[str]) -> None:
    problems = repeated_keys("it", {"spec": pod}, POD_TEMPLATE_SPEC)
    assert [str(problem).removeprefix("it.spec.") for problem in problems] == found
