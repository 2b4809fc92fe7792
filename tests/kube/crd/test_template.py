"""Pod templates within a custom resource: full, typed or opaque; what servers keep, lose and refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest

from elasticjob.api.core import POD_TEMPLATE_SPEC, definitions
from elasticjob.kube.client.client import Client
from elasticjob.kube.crd.embedded import Detail, embedded_schema
from elasticjob.kube.crd.generate import crd_manifest
from elasticjob.kube.crd.installing import CLIENT_SIDE_BYTES, size_of, size_problem
from elasticjob.kube.crd.model import CustomResource, Declaration, Embedded, Part
from elasticjob.kube.errors import BadRequest, Invalid
from elasticjob.kube.objects.kinds import Kind, Manifest
from tests.kit.crd.posting import answer_to, established, with_spec

REFUSED = "refused"
LOST: Manifest = {}


class Spec(Part):
    template: Annotated[Manifest, Embedded(POD_TEMPLATE_SPEC)] = {}  # noqa: RUF012 - Pydantic copies it


class Thing(CustomResource):
    spec: Spec


THING = Kind("example.org", "v1", "Thing", "things", Thing)
PLAIN: Kind[Manifest] = THING.untyped()


def schema(detail: Detail) -> Manifest:
    return embedded_schema(POD_TEMPLATE_SPEC, definitions(), detail)


def manifest(detail: Detail) -> Manifest:
    return crd_manifest(Declaration(THING), {POD_TEMPLATE_SPEC: schema(detail)})


def pod(**more: Any) -> Manifest:
    return {"spec": {"containers": [{"name": "main", **more.pop("container", {})}], **more}}


@dataclass(frozen=True)
class Row:
    """A template, and what each detail makes of it: what is stored (... for what was sent), or a refusal.

    `strict` is whether a strict write of it is refused.
    """

    name: str
    template: Manifest
    full: Any
    typed: Any
    opaque: Any
    strict: tuple[bool, bool, bool]


DETAILS = (Detail.FULL, Detail.TYPED, Detail.OPAQUE)
NEVER, ALL_BUT_OPAQUE = (False, False, False), (True, True, False)
ROWS = (
    Row("a pod", pod(restartPolicy="Never"), ..., ..., ..., NEVER),
    Row("labels", {"metadata": {"labels": {"a": "b"}}, **pod()}, ..., ..., ..., NEVER),
    Row("a port without protocol", pod(container={"ports": [{"containerPort": 80}]}), "default", "default",
        ..., NEVER),
    Row("a number for a text", pod(hostname=3), REFUSED, REFUSED, ..., ALL_BUT_OPAQUE),
    Row("a text for a list", {"spec": {"containers": "main"}}, REFUSED, REFUSED, ..., ALL_BUT_OPAQUE),
    Row("a container without name", {"spec": {"containers": [{"image": "a"}]}}, REFUSED, REFUSED, ...,
        ALL_BUT_OPAQUE),
    Row("a field of a later pod", pod(futureField={"a": 1}), pod(), ..., ..., (True, False, False)),
    Row("a typo in the pod", pod(restartPolice="Never"), pod(), ..., ..., (True, False, False)),
    Row("a typo in a container", pod(container={"imagee": "a"}), pod(), pod(), ..., ALL_BUT_OPAQUE),
    Row("a quantity as a number", pod(container={"resources": {"limits": {"cpu": 2}}}), ..., ..., ..., NEVER),
    Row("a quantity as a text", pod(container={"resources": {"limits": {"cpu": "500m"}}}), ..., ..., ...,
        NEVER),
)  # fmt: skip
DEFAULTED = pod(container={"ports": [{"containerPort": 80, "protocol": "TCP"}]})


@pytest.mark.parametrize("detail", DETAILS)
async def test_servers_take_every_detail_and_treat_templates_as_the_table_says(
    detail: Detail, client: Client, namespace: str
) -> None:
    place = DETAILS.index(detail)
    await established(client, manifest(detail), PLAIN)
    wrong = []
    for index, row in enumerate(ROWS):
        expected = (row.full, row.typed, row.opaque)[place]
        expected = {"default": DEFAULTED}.get(expected, expected) if isinstance(expected, str) else expected
        thing = {"metadata": {"name": f"t{index}"}, "spec": {"template": row.template}}
        strictly, stored = await refused(client, thing, namespace), await kept(client, thing, namespace)
        if (strictly, stored) != (row.strict[place], row.template if expected is ... else expected):
            wrong.append((row.name, strictly, stored))
    assert wrong == []


async def refused(client: Client, thing: Manifest, namespace: str) -> bool:
    """Whether a strict dry run is refused."""
    body = msgspec.json.encode({"apiVersion": "example.org/v1", "kind": "Thing", **thing})
    try:
        await client.raw("POST", THING.path(namespace), body, dryRun="All", fieldValidation="Strict")
    except (BadRequest, Invalid):
        return True
    return False


async def kept(client: Client, thing: Manifest, namespace: str) -> Any:
    """What is stored of the template."""
    try:
        return (await client.create(PLAIN, thing, namespace))["spec"]["template"]
    except Invalid:
        return REFUSED


def test_only_a_full_schema_with_descriptions_would_be_too_large_for_a_client_side_apply() -> None:
    sizes = {detail: size_of(manifest(detail)) for detail in DETAILS}
    assert (
        sizes[Detail.OPAQUE] < 2_000 < sizes[Detail.FULL] < sizes[Detail.TYPED] < 70_000 < CLIENT_SIDE_BYTES
    )
    assert [size_problem(manifest(detail)) for detail in DETAILS] == ["", "", ""]


def grown(letters: int) -> Manifest:
    return {"metadata": {"name": "things.example.org"}, "spec": "x" * letters}


def test_large_definitions_are_told_and_too_large_ones_refused() -> None:
    assert size_problem(grown(1000)) == ""
    assert "too large for a client-side apply, use kubectl apply --server-side" in size_problem(
        grown(300_000)
    )
    with pytest.raises(ValueError, match="more than 1,048,576: leave descriptions out"):
        size_problem(grown(1_100_000))


@pytest.mark.plane  # devcluster does not check definitions as closely
async def test_the_published_schema_is_not_taken_as_it_is(client: Client) -> None:
    template = schema(Detail.FULL)
    ports = template["properties"]["spec"]["properties"]["containers"]["items"]["properties"]["ports"]
    del ports["items"]["properties"]["protocol"]["default"]
    assert "must have a default or be a required property" in await answer_to(client, with_spec(template))


async def test_an_embedded_resource_would_ask_for_its_kind(client: Client, namespace: str) -> None:
    spec = {
        "type": "object",
        "properties": {
            "template": {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
            }
        },
    }
    await established(client, with_spec(spec), PLAIN)
    with pytest.raises(Invalid, match=r"spec\.template\.apiVersion"):
        await client.create(PLAIN, {"metadata": {"name": "a"}, "spec": {"template": pod()}}, namespace)
