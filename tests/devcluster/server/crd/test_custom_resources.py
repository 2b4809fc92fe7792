"""CustomResourceDefinitions: which schemas and versions are accepted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.devcluster.api import CRDS, Api, definition


def root(**spec: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}


LIST_MAP = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"], "type": "array"}
RULE = "x-kubernetes-validations"
OPTIONAL = {"type": "object", "properties": {"n": {"type": "string"}}}
DEFAULTED = {"type": "object", "properties": {"n": {"type": "string", "default": ""}}}
TEXT = {"type": "string"}
# (what, schema of one field, code)
SCHEMAS: list[tuple[str, dict[str, Any], int]] = [
    ("default null", {"type": "string", "default": None}, 201),
    ("preserve needs no type", {"x-kubernetes-preserve-unknown-fields": True}, 201),
    ("int or string", {"x-kubernetes-int-or-string": True, "default": 3}, 201),
    (
        "choice for int or string",
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, TEXT]},
        201,
    ),
    ("title outside", TEXT | {"title": "x"}, 201),
    ("key with default", LIST_MAP | {"items": DEFAULTED}, 201),
    ("unknown format", TEXT | {"format": "quantity"}, 201),
    ("$ref", {"$ref": "#/x"}, 422),
    ("choice of null", {"anyOf": [TEXT, {"type": "null"}]}, 422),
    ("constant", TEXT | {"const": "x"}, 400),
    ("number as exclusiveMinimum", {"type": "integer", "exclusiveMinimum": 0}, 400),
    ("unique items", {"type": "array", "uniqueItems": True, "items": TEXT}, 422),
    ("closed object", {"type": "object", "properties": {"a": TEXT}, "additionalProperties": False}, 422),
    ("empty", {}, 422),
    ("title inside", TEXT | {"anyOf": [{"title": "x"}]}, 422),
    ("look-ahead", TEXT | {"pattern": "(?=x)"}, 422),
    ("wrong default", TEXT | {"default": 3}, 422),
    ("optional key", LIST_MAP | {"items": OPTIONAL}, 422),
    ("set of objects", {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}, 422),
    ("array of nothing", {"type": "array"}, 422),
    ("unknown type", {"type": "text"}, 422),
    ("broken rule", TEXT | {RULE: [{"rule": "self =="}]}, 422),
    ("unknown name in a rule", TEXT | {RULE: [{"rule": "foo == self"}]}, 422),
    ("unknown function in a rule", TEXT | {RULE: [{"rule": "frob(self)"}]}, 422),
]
# (what of a version, the field at fault)
VERSIONS: list[tuple[dict[str, Any], str]] = [
    ({"selectableFields": [{"jsonPath": "spec.a"}]}, "selectableFields[0].jsonPath"),
    ({"additionalPrinterColumns": [{"name": "A", "type": "string"}]}, "additionalPrinterColumns[0].jsonPath"),
    ({"subresources": {"scale": {}}}, "specReplicasPath"),
    ({"storage": False}, "exactly one version"),
    ({"schema": {}}, "openAPIV3Schema: Required value"),
]


async def test_schemas_are_accepted_or_refused_with_the_field(api: Api) -> None:
    for what, schema, code in SCHEMAS:
        body = definition(root(field=schema), "bads")
        reply = await api.post(CRDS, body, dryRun="All", fieldValidation="Strict")
        assert reply.code == code, (what, reply.body)
        assert code == 201 or "field" in reply.message


async def test_versions_are_checked(api: Api) -> None:
    for version, field in VERSIONS:
        body = definition(root(), "bads")
        body["spec"]["versions"][0] |= version
        reply = await api.post(CRDS, body, dryRun="All")
        assert (reply.code, field in reply.message) == (422, True), reply.message


@pytest.mark.parametrize(("served", "code"), [(True, 422), (False, 201)])
async def test_a_conversion_webhook_is_refused_where_it_would_be_called(
    api: Api, served: bool, code: int
) -> None:
    body = definition()
    first = body["spec"]["versions"][0]
    body["spec"]["versions"].append(first | {"name": "v2", "storage": False, "served": served})
    client = {"url": "https://localhost/convert"}
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    body["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    reply = await api.post(CRDS, body)
    assert reply.code == code
    assert ("calls no conversion webhooks" in reply.message) is served
