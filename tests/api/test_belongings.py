"""No template names what was made for another job; what users made may be named, whatever it is called."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from elasticjob.api.belongings import FIELDS, SUFFIXES, foreign
from elasticjob.api.core import POD_TEMPLATE_SPEC, definitions
from elasticjob.api.diengine.aggregatorconfig import AGGREGATORCONFIG
from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.paddle.trainingjob import TRAININGJOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.objects.kinds import Kind
from elasticjob.kube.objects.views import ObjectMeta, OwnerReference

UNNAMED = {
    "automountServiceAccountToken": "of the pod's own account",
    "serviceAccountToken": "a token of the pod's own account, whatever its audience",
    "secretFile": "a file of the machine",
}
"""Fields that sound so, and name no such object."""


def schema_fields(type_name: str, above: tuple[str, ...] = ()) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Find all fields of a type and of the types below it, with their schemas."""
    if type_name in above:
        return
    for name, schema in definitions()[type_name].get("properties", {}).items():
        one = schema.get("items", schema)
        below = one.get("$ref", "").rpartition("/")[2]
        yield name, definitions()[below] if below else one
        if below in definitions():
            yield from schema_fields(below, (*above, type_name))


def test_each_field_of_a_pod_that_names_such_an_object_is_known() -> None:
    words = ("secret", "configmap", "serviceaccount")
    sound = {name for name, _ in schema_fields(POD_TEMPLATE_SPEC) if any(w in name.lower() for w in words)}
    assert sound - set(UNNAMED) == set(FIELDS)


def template(pod: Mapping[str, Any]) -> dict[str, Any]:
    main = {"name": "main", "image": "team/train:1"}
    return {"spec": {"containers": [main], **pod}}


def elasticjob(pod: Mapping[str, Any] | None = None, strategy: str = "AllreduceStrategy", **more: Any) -> Any:
    roles = {"worker": {"replicas": 1, "template": template(pod or {})}}
    spec = {"distributionStrategy": strategy, "replicaSpecs": roles, **more}
    about = {"name": "mine", "namespace": "ml", "uid": "u1"}
    return ELASTICJOB.convert({"kind": "ElasticJob", "metadata": about, "spec": spec})


def volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "it", **source}]}


def variable(**source: Any) -> dict[str, Any]:
    return {"env": [{"name": "IT", "valueFrom": source}]}


SECRET_OF_V = {"name": "victim-token"}
VALUE = "env[0].valueFrom.secretKeyRef"


PODS: list[tuple[dict[str, Any], str]] = [
    ({"serviceAccountName": "victim-master"}, "serviceAccountName"),
    ({"serviceAccount": "victim-master"}, "serviceAccount"),
    ({"imagePullSecrets": [SECRET_OF_V]}, "imagePullSecrets[0].name"),
    (volume(secret={"secretName": "victim-token", "optional": True}), "volumes[0].secret.secretName"),
    (
        volume(projected={"sources": [{}, {"secret": SECRET_OF_V}]}),
        "volumes[0].projected.sources[1].secret.name",
    ),
    (volume(csi={"nodePublishSecretRef": SECRET_OF_V}), "volumes[0].csi.nodePublishSecretRef.name"),
    (volume(configMap={"name": "victim-master-state"}), "volumes[0].configMap.name"),
    ({"containers": [{"envFrom": [{"secretRef": SECRET_OF_V}]}]}, "containers[0].envFrom[0].secretRef.name"),
    ({"initContainers": [variable(secretKeyRef=SECRET_OF_V)]}, f"initContainers[0].{VALUE}.name"),
    ({"containers": [variable(secretKeyRef=SECRET_OF_V)]}, f"containers[0].{VALUE}.name"),
]


def thing(kind: Kind[Any], **spec: Any) -> Any:
    return kind.convert({"metadata": {"name": "mine"}, "spec": spec})


ACCOUNT = {"template": template({"serviceAccountName": "victim-master"})}
NAMED = ".template.spec.serviceAccountName"
TRAINER = {"min-instance": 1, "max-instance": 2}


@pytest.mark.parametrize(
    ("job", "path"),
    [
        *((elasticjob(pod), f"spec.replicaSpecs[worker].template.spec.{path}") for pod, path in PODS),
        (elasticjob(replicaSpecs={"master": ACCOUNT}), f"spec.replicaSpecs[master]{NAMED}"),
        (
            elasticjob(envs={"IT": {"valueFrom": {"secretKeyRef": SECRET_OF_V}}}),
            "spec.envs[IT].valueFrom.secretKeyRef.name",
        ),
        (thing(DIJOB, coordinator=ACCOUNT), f"spec.coordinator{NAMED}"),
        (
            thing(DIJOB, coordinator={"template": template({})}, **PODS[3][0]),
            "spec.volumes[0].secret.secretName",
        ),
        (
            thing(TRAININGJOB, trainer=TRAINER, imagePullSecrets=[SECRET_OF_V]),
            "spec.imagePullSecrets[0].name",
        ),
        (thing(AGGREGATORCONFIG, aggregator=ACCOUNT), f"spec.aggregator{NAMED}"),
    ],
)
def test_what_was_made_for_another_job_is_refused_with_its_path(job: Any, path: str) -> None:
    (found,) = problems(job, made("victim"))
    assert found.path == path
    assert "belongs to ElasticJob victim: name one that you made, or leave it out" in found.message
    assert problems(job, made("victim"), old=job) == []


@pytest.mark.parametrize("label", ["dijob-name", "elasticjob.dlrover/name"])
def test_no_pod_carries_the_label_of_another_kind_of_job(label: str) -> None:
    labelled = {**template({}), "metadata": {"labels": {label: "victim"}}}
    ours = elasticjob(replicaSpecs={"worker": {"replicas": 1, "template": labelled}})
    theirs = thing(DIJOB, coordinator={"template": labelled})
    paths = [each.path.partition(".template")[0] for job in (ours, theirs) for each in problems(job, {})]
    assert paths == ["spec.replicaSpecs[worker]" if label == "dijob-name" else "spec.coordinator"]


Objects = Mapping[tuple[Kind[Any], str], ObjectMeta]


def made(job: str, kind: str = "ElasticJob", group: str = "elastic.iml.github.io") -> Objects:
    """What the operator has made for a job; with "" for the kind, what a user has."""
    owner = OwnerReference(api_version=f"{group}/v1", kind=kind, name=job, uid="j", controller=True)
    about = ObjectMeta(uid="o", owner_references=[owner] if kind else [])
    return {(each, job + suffix): about for each, suffix in SUFFIXES.items()}


def problems(job: Any, there: Objects, *, old: Any = None, absent: bool = False) -> list[Any]:
    async def find(kind: Kind[Any], name: str) -> ObjectMeta:
        return there.get((kind, name), ObjectMeta())

    return asyncio.run(foreign(job, find, old=old, absent=absent))


@pytest.mark.parametrize(
    ("name", "there", "absent", "words"),
    [
        ("hf-token", made("hf", kind=""), True, ""),  # a user made it
        ("hf-token", made("hf", kind="ExternalSecret", group="external-secrets.io"), True, ""),
        ("hf-token", {}, False, ""),  # at admission: it may come
        ("hf-token", {}, True, "Secret hf-token is not there, and its name is one that jobs get"),
        ("mine-token", {}, True, ""),  # it is made before the pods are
        ("mine-token", made("mine"), True, ""),
        ("mine-token", made("mine", "DIJob", "diengine.opendilab.org"), True, "belongs to DIJob mine"),
        ("registry", {}, True, ""),  # no name of ours: it is not looked up
    ],
)
def test_what_users_made_is_named_by_whoever_likes(
    name: str, there: Objects, absent: bool, words: str
) -> None:
    job = elasticjob(volume(secret={"secretName": name}))
    assert words in "".join(each.message for each in problems(job, there, absent=absent))
    assert bool(words) == bool(problems(job, there, absent=absent))


def test_a_job_without_a_master_has_no_token_that_is_about_to_come() -> None:
    local = elasticjob(volume(secret={"secretName": "mine-token"}), strategy="Local")
    assert [each.path for each in problems(local, {}, absent=True)] == [
        "spec.replicaSpecs[worker].template.spec.volumes[0].secret.secretName"
    ]
