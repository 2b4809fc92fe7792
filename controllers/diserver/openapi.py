"""The OpenAPI document of di-server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

PREFIXES: Final = ("/v1alpha1", "/v1alpha2")

Schema = dict[str, Any]
NAME: Final[Schema] = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
QUANTITY: Final[Schema] = {
    "oneOf": [{"type": "string"}, {"type": "number", "minimum": 0}],
    "description": "A quantity of Kubernetes",
}
AMOUNTS: Final[Schema] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "replicas": {"type": "integer", "minimum": 0},
        "cpus": QUANTITY,
        "gpus": {
            "type": "integer",
            "minimum": 0,
            "description": "More than 1: an aggregator and ddp learners",
        },
        "memory": QUANTITY,
    },
}
NAMES: Final[Schema] = {"type": "array", "maxItems": 4096, "items": NAME}
REPLICAS: Final[Schema] = {
    "type": "object",
    "required": ["namespace", "coordinator", "collectors", "learners"],
    "properties": {
        "namespace": {"type": "string"},
        "coordinator": {"type": "string"},
        "collectors": {"type": ["array", "null"], "items": {"type": "string"}},
        "learners": {"type": "array", "items": {"type": "string"}},
    },
}
SAID: Final[Mapping[str, str]] = {
    "200": "Done, or, with success false, to be asked again",
    "400": "What is asked cannot be understood, or is beyond a limit",
    "401": "A token is wanted",
    "403": "The token is that of another job",
    "404": "The caller, its job or a named pod does not exist",
    "413": "The body is too large",
    "500": "di-server failed",
}


def openapi() -> Schema:
    """Return the document."""
    paths: Schema = {}
    for prefix in PREFIXES:
        paths[f"{prefix}/replicas"] = {
            "get": {
                "summary": "The replicas of all jobs, of a namespace, of a coordinator, or of an aggregator.",
                "parameters": [
                    _parameter(each) for each in ("namespace", "name", "coordinator", "aggregator")
                ],
                "responses": _responses(),
            },
            "post": _call("More collectors and learners, all or none.", "Ask", keyed=True),
            "delete": _call("Fewer collectors and learners.", "Ask"),
        }
        paths[f"{prefix}/replicas/failed"] = {
            "post": _call("Others in the places of pods that cannot be reached.", "Report")
        }
    caller = {"namespace": NAME, "coordinator": NAME}
    return {
        "openapi": "3.1.0",
        "info": {"title": "di-server", "version": "v1alpha1"},
        "paths": paths,
        "components": {
            "schemas": {
                "Ask": _request_schema({**caller, "collectors": AMOUNTS, "learners": AMOUNTS}),
                "Report": _request_schema({**caller, "collectors": NAMES, "learners": NAMES}),
                "Envelope": {
                    "type": "object",
                    "required": ["success", "code", "message", "data"],
                    "properties": {
                        "success": {"type": "boolean"},
                        "code": {"enum": [0, 1]},
                        "message": {"type": "string"},
                        "data": {"anyOf": [REPLICAS, {"type": "array", "items": REPLICAS}, {"type": "null"}]},
                    },
                },
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _request_schema(properties: Schema) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["namespace", "coordinator"],
        "properties": properties,
    }


def _call(summary: str, body: str, *, keyed: bool = False) -> Schema:
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "schema": {"type": "string", "maxLength": 255},
        "description": "The response to the first call with this key is given to all",
    }
    return {
        "summary": summary,
        "parameters": [key] if keyed else [],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{body}"}}},
        },
        "responses": _responses({"409": "The Idempotency-Key belongs to another body"} if keyed else {}),
    }


def _parameter(name: str) -> Schema:
    return {"name": name, "in": "query", "schema": {"type": "string"}}


def _responses(more: Mapping[str, str] | None = None) -> Schema:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Envelope"}}}
    return {
        code: {"description": text, "content": content} for code, text in {**SAID, **(more or {})}.items()
    }
