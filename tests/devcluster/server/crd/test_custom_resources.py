"""CustomResourceDefinitions and their objects: what is accepted, defaulted, pruned and refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from elasticjob.devcluster.server import ApiServer
from tests.kit.devcluster.api import CRDS, THINGS, Api, client, definition, thing


async def test_a_definition_is_established_and_served_at_once(things: Api) -> None:
    body = (await things.get(f"{CRDS}/things.example.com")).body
    conditions = {each["type"]: each["status"] for each in body["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert body["status"]["storedVersions"] == ["v1"]
    assert (await things.get(THINGS)).body["kind"] == "ThingList"


def root(**spec: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}


LIST_MAP = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"], "type": "array"}
# (what, schema of one field, code, part of the message)
SCHEMAS: list[tuple[str, dict[str, Any], int, str]] = [
    ("$ref", {"$ref": "#/x"}, 422, "[field].$ref: Forbidden"),
    (
        "anyOf null",
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        422,
        "[field].anyOf[0].type: Forbidden",
    ),
    ("default null", {"type": "string", "default": None}, 201, ""),
    (
        "const",
        {"type": "string", "const": "x"},
        400,
        'unknown field "spec.versions[0].schema.openAPIV3Schema',
    ),
    (
        "number as exclusiveMinimum",
        {"type": "integer", "exclusiveMinimum": 0},
        400,
        "cannot be handled as a Custom",
    ),
    (
        "uniqueItems",
        {"type": "array", "uniqueItems": True, "items": {"type": "string"}},
        422,
        "[field].uniqueItems: Forbidden",
    ),
    ("prefixItems", {"type": "array", "prefixItems": [], "items": {"type": "string"}}, 400, "prefixItems"),
    (
        "closed object",
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
        422,
        "mutual exclusive",
    ),
    ("empty", {}, 422, "[field].type: Required value"),
    ("preserve needs no type", {"x-kubernetes-preserve-unknown-fields": True}, 201, ""),
    ("int or string", {"x-kubernetes-int-or-string": True, "default": 3}, 201, ""),
    (
        "anyOf for int or string",
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        201,
        "",
    ),
    ("examples", {"type": "string", "examples": ["x"]}, 400, "examples"),
    ("title outside", {"type": "string", "title": "x"}, 201, ""),
    ("title inside", {"type": "string", "anyOf": [{"title": "x"}]}, 422, "title"),
    ("look-ahead", {"type": "string", "pattern": "(?=x)"}, 422, "valid regular expression"),
    ("broken pattern", {"type": "string", "pattern": "("}, 422, "valid regular expression"),
    ("wrong default", {"type": "string", "default": 3}, 422, "default"),
    (
        "optional key",
        LIST_MAP | {"items": {"type": "object", "properties": {"n": {"type": "string"}}}},
        422,
        "[field].items.properties[n].default: Required value",
    ),
    (
        "key with default",
        LIST_MAP | {"items": {"type": "object", "properties": {"n": {"type": "string", "default": ""}}}},
        201,
        "",
    ),
    (
        "set of objects",
        {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}},
        422,
        "atomic",
    ),
    ("array of nothing", {"type": "array"}, 422, "items"),
    ("unknown format", {"type": "string", "format": "quantity"}, 201, ""),
    ("unknown type", {"type": "text"}, 422, "Unsupported value"),
    (
        "broken rule",
        {"type": "string", "x-kubernetes-validations": [{"rule": "self =="}]},
        422,
        "compilation failed",
    ),
    (
        "unknown name in a rule",
        {"type": "string", "x-kubernetes-validations": [{"rule": "foo == self"}]},
        422,
        "undeclared reference to 'foo'",
    ),
    (
        "unknown function in a rule",
        {"type": "string", "x-kubernetes-validations": [{"rule": "frob(self)"}]},
        422,
        "undeclared reference",
    ),
]


@pytest.mark.parametrize(
    ("schema", "code", "message"), [row[1:] for row in SCHEMAS], ids=[row[0] for row in SCHEMAS]
)
async def test_schemas_are_accepted_or_refused_with_the_field(
    api: Api, schema: dict[str, Any], code: int, message: str
) -> None:
    body = definition(root(field=schema), "bads")
    reply = await api.post(CRDS, body, dryRun="All", fieldValidation="Strict")
    assert reply.code == code, reply.body
    assert message in reply.message


async def test_metadata_may_restrict_names_only(api: Api) -> None:
    schema = root() | {
        "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}
    }
    assert (await api.post(CRDS, definition(schema, "bads"))).code == 422


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ({"selectableFields": [{"jsonPath": "spec.a"}]}, "selectableFields[0].jsonPath"),
        (
            {"additionalPrinterColumns": [{"name": "A", "type": "string"}]},
            "additionalPrinterColumns[0].jsonPath",
        ),
        (
            {"additionalPrinterColumns": [{"name": "A", "type": "text", "jsonPath": ".a"}]},
            "additionalPrinterColumns[0].type",
        ),
        ({"subresources": {"scale": {}}}, "specReplicasPath"),
        ({"storage": False}, "exactly one version"),
        ({"schema": {}}, "openAPIV3Schema: Required value"),
    ],
)
async def test_versions_are_checked(api: Api, version: dict[str, Any], message: str) -> None:
    body = definition(root(), "bads")
    body["spec"]["versions"][0] |= version
    reply = await api.post(CRDS, body)
    assert reply.code == 422
    assert message in reply.message


async def test_defaults_are_filled_and_unknown_fields_pruned(things: Api) -> None:
    body = thing(replicas=1, nonsense=2, free={"any": {"thing": 1}}, labels={"a": "b"}, note=None)
    reply = await things.post(THINGS, body)
    assert reply.body["spec"] == {
        "replicas": 1,
        "mode": "fast",
        "free": {"any": {"thing": 1}},
        "labels": {"a": "b"},
        "note": None,
    }
    assert "spec.nonsense" in reply.warnings[0]


SPECS: list[tuple[str, Any, str, str]] = [
    ("missing", {}, "spec.replicas", "Required value"),
    ("null", {"replicas": None}, "spec.replicas", "Required value"),
    ("type", {"replicas": "x"}, "spec.replicas", 'must be of type integer: "string"'),
    ("boolean is no integer", {"replicas": True}, "spec.replicas", 'must be of type integer: "boolean"'),
    ("no object", 3, "spec", 'must be of type object: "integer"'),
    ("minimum", {"replicas": -1}, "spec.replicas", "should be greater than or equal to 0"),
    ("maximum", {"replicas": 100}, "spec.replicas", "should be less than or equal to 99"),
    ("enum", {"replicas": 1, "mode": "odd"}, "spec.mode", 'supported values: "fast", "slow"'),
    ("date", {"replicas": 1, "when": "yesterday"}, "spec.when", "must be of type date-time"),
    ("int or string", {"replicas": 1, "port": 1.5}, "spec.port", "must be of type integer,string"),
    ("map value", {"replicas": 1, "labels": {"a": 1}}, "spec.labels.a", "must be of type string"),
    ("set", {"replicas": 1, "tags": ["a", "a"]}, "spec.tags[1]", 'Duplicate value: "a"'),
    (
        "list-map",
        {"replicas": 1, "parts": [{"name": "a"}, {"name": "a"}]},
        "spec.parts[1]",
        "Duplicate value",
    ),
    ("rule", {"replicas": 11, "mode": "slow"}, "spec", "slow things have at most 10 replicas"),
]


@pytest.mark.parametrize(
    ("spec", "field", "message"), [row[1:] for row in SPECS], ids=[row[0] for row in SPECS]
)
async def test_invalid_objects_name_field_and_rule(things: Api, spec: Any, field: str, message: str) -> None:
    reply = await things.post(THINGS, thing() | {"spec": spec})
    assert (reply.code, reply.reason) == (422, "Invalid"), reply.body
    assert reply.message.startswith('Thing.example.com "one" is invalid: ')
    cause = reply.body["details"]["causes"][0]
    assert cause["field"] == field
    assert message in cause["message"]


@pytest.mark.parametrize("when", ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456+02:00"])
async def test_times_and_ports_in_their_forms(things: Api, when: str) -> None:
    for port in (80, "http"):
        reply = await things.post(THINGS, thing(f"p-{port}", replicas=1, when=when, port=port))
        assert reply.code == 201, reply.body


async def test_transition_rules_compare_with_the_old_object(things: Api) -> None:
    await things.post(THINGS, thing(replicas=90))
    reply = await things.patch(f"{THINGS}/one", {"spec": {"replicas": 10}})
    assert (reply.code, "too steep" in reply.message) == (422, True)
    assert (await things.patch(f"{THINGS}/one", {"spec": {"replicas": 50}})).code == 200


async def test_a_second_version_serves_the_same_objects(api: Api) -> None:
    body = definition()
    first = body["spec"]["versions"][0]
    body["spec"]["versions"].append(first | {"name": "v2", "storage": False})
    await api.define(body)
    await api.post(THINGS, thing(replicas=1))
    path = THINGS.replace("v1", "v2")
    found = (await api.get(f"{path}/one")).body
    assert (found["apiVersion"], found["spec"]["replicas"]) == ("example.com/v2", 1)
    changed = await api.patch(f"{path}/one", {"spec": {"replicas": 2}})
    assert changed.body["apiVersion"] == "example.com/v2"
    assert (await api.get(f"{THINGS}/one")).body["apiVersion"] == "example.com/v1"


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


async def test_a_changed_definition_counts_from_then_on(things: Api) -> None:
    schema_path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/replicas/maximum"
    operation = [{"op": "replace", "path": schema_path, "value": 5}]
    assert (await things.patch(f"{CRDS}/things.example.com", operation, "json")).code == 200
    assert (await things.post(THINGS, thing(replicas=6))).code == 422


async def test_a_deleted_definition_takes_its_objects_along(things: Api) -> None:
    await things.post(THINGS, thing(replicas=1))
    since = (await things.get(CRDS)).body["metadata"]["resourceVersion"]
    assert (await things.delete(f"{CRDS}/things.example.com")).code == 200
    await things.until(CRDS, "DELETED", resourceVersion=since)
    assert (await things.get(THINGS)).code == 404
    await things.define(definition())
    assert await things.names(THINGS) == []


async def test_scale_reads_and_writes_the_declared_paths(things: Api) -> None:
    await things.post(THINGS, thing(replicas=2))
    await things.patch(f"{THINGS}/one/status", {"status": {"replicas": 1, "selector": "a=b"}})
    scale = (await things.get(f"{THINGS}/one/scale")).body
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 2},
        {"replicas": 1, "selector": "a=b"},
    )
    assert (await things.patch(f"{THINGS}/one/scale", {"spec": {"replicas": 7}})).body["spec"] == {
        "replicas": 7
    }
    stale = scale | {"spec": {"replicas": 3}}
    assert (await things.put(f"{THINGS}/one/scale", stale)).code == 409
    assert (await things.patch(f"{THINGS}/one/scale", {"spec": {"replicas": -1}})).code == 422
    assert (await things.get(f"{THINGS}/one")).body["spec"]["replicas"] == 7


async def test_printer_columns_fill_tables() -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    async with ApiServer(clock=lambda: now) as server, client(server) as things:
        server.add_token("secret", "admin", ["system:masters"])
        await things.define(definition())
        await things.post(THINGS, thing(replicas=2))
        things.session.headers["Accept"] = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
        table = (await things.get(THINGS)).body
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Replicas", "Age"]
    assert table["rows"][0]["cells"] == ["one", 2, "0s"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
