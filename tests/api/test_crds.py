"""The CRDs of our kinds: documented, with a template as detailed as asked for, taken by servers."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import msgspec
import pytest

from elasticjob.api.core import POD_TEMPLATE_SPEC, definitions
from elasticjob.api.crds import DECLARATIONS, manifest
from elasticjob.kube.client.client import Client
from elasticjob.kube.crd.embedded import Detail, embedded_schema
from elasticjob.kube.crd.model import Declaration
from elasticjob.kube.objects.kinds import Manifest

KEEP = "x-kubernetes-preserve-unknown-fields"


def undocumented(node: Manifest, path: str) -> Iterator[str]:
    for name, child in node.get("properties", {}).items():
        if path or name != "metadata":
            if "description" not in child:
                yield f"{path}.{name}"
            if name != "template":
                yield from undocumented(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from undocumented(node[key], f"{path}[]")


@pytest.mark.parametrize("declaration", DECLARATIONS, ids=lambda one: one.kind.name)
def test_every_field_of_ours_is_explained(declaration: Declaration) -> None:
    (version,) = manifest(declaration)["spec"]["versions"]
    assert list(undocumented(version["schema"]["openAPIV3Schema"], "")) == []


def test_short_names_and_the_scale_subresource() -> None:
    names = {one.kind.name: one.short_names for one in DECLARATIONS}
    assert names == {
        "ElasticJob": ("ej",),
        "JobResource": ("jr",),
        "ScalePlan": ("sp",),
        "TrainingJob": ("tj",),
        "DIJob": (),  # its singular is as short
        "AggregatorConfig": ("agconfig",),
    }
    job, nodes = (manifest(one) for one in DECLARATIONS[:2])
    assert job["spec"]["versions"][0]["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicaSpecs.worker.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    assert nodes["spec"]["versions"][0]["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicaStatuses.worker.current",
        "labelSelectorPath": ".status.selector",
    }


def test_a_typed_template_keeps_what_is_newer_and_a_full_one_does_not() -> None:
    typed = embedded_schema(POD_TEMPLATE_SPEC, definitions(), Detail.TYPED)
    full = embedded_schema(POD_TEMPLATE_SPEC, definitions(), Detail.FULL)
    assert typed["properties"]["spec"][KEEP] is True
    assert KEEP not in full["properties"]["spec"]
    assert embedded_schema(POD_TEMPLATE_SPEC, definitions(), Detail.OPAQUE) == {"type": "object", KEEP: True}


def test_keys_that_a_pod_may_leave_out_have_the_servers_defaults() -> None:
    pod = embedded_schema(POD_TEMPLATE_SPEC, definitions())["properties"]["spec"]["properties"]
    assert (
        pod["containers"]["items"]["properties"]["ports"]["items"]["properties"]["protocol"]["default"]
        == "TCP"
    )
    assert pod["imagePullSecrets"]["items"]["properties"]["name"]["default"] == ""


async def test_servers_take_our_definitions_in_every_detail(client: Client) -> None:
    for detail in Detail:
        for declaration in DECLARATIONS:
            written = deepcopy(manifest(declaration, detail))
            written["metadata"]["name"] = f"{written['spec']['names']['plural']}.example.org"
            written["spec"]["group"] = "example.org"  # ours may be defined already
            body = msgspec.json.encode(written)
            await client.raw("POST", CRDS, body, dryRun="All", fieldValidation="Strict")


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
