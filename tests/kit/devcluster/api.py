"""A plain HTTP client for devcluster's API server, and objects to send."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import aiohttp

from elasticjob.devcluster.server import ApiServer
from tests.kit.crd.posting import crd_of

MEDIA = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/default/things"


@dataclass
class Reply:
    code: int
    body: Any
    warnings: list[str] = field(default_factory=list)

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


class Api:
    """Requests as one user; every answer is a Reply."""

    def __init__(self, server: ApiServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session

    async def call(
        self, method: str, path: str, body: Any = None, media: str = "application/json", **query: str
    ) -> Reply:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        data = None if body is None else BytesIO(raw)
        headers = {"Content-Type": media} if data is not None else {}
        async with self.session.request(method, path, data=data, params=query, headers=headers) as answer:
            text = await answer.text()
            parsed = json.loads(text) if "json" in answer.content_type else text
            return Reply(answer.status, parsed, answer.headers.getall("Warning", []))

    async def get(self, path: str, **query: str) -> Reply:
        return await self.call("GET", path, **query)

    async def post(self, path: str, body: Any, **query: str) -> Reply:
        return await self.call("POST", path, body, **query)

    async def put(self, path: str, body: Any, **query: str) -> Reply:
        return await self.call("PUT", path, body, **query)

    async def patch(self, path: str, body: Any, kind: str = "merge", **query: str) -> Reply:
        return await self.call("PATCH", path, body, MEDIA[kind], **query)

    async def apply(self, path: str, body: Any, manager: str = "me", **query: str) -> Reply:
        return await self.patch(path, body, "apply", fieldManager=manager, **query)

    async def delete(self, path: str, body: Any = None, **query: str) -> Reply:
        return await self.call("DELETE", path, body, **query)

    async def define(self, body: Any) -> Reply:
        """Post a definition, and wait until its objects are served; the answer to the post."""
        reply = await self.post(CRDS, body)
        assert reply.code == 201, reply.body
        chosen = f"metadata.name={body['metadata']['name']}"
        async with self.watch(CRDS, fieldSelector=chosen) as events:
            async for each in events:
                if _is_established(each["object"]):
                    break
        return reply

    async def names(self, path: str, **query: str) -> list[str]:
        return [item["metadata"]["name"] for item in (await self.get(path, **query)).body["items"]]

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """The events of a watch; leaving the context ends it."""
        async with self.session.get(path, params={"watch": "1", **query}) as answer:
            assert answer.status == 200, await answer.text()
            yield (json.loads(line) async for line in answer.content)

    async def until(self, path: str, event: str, **query: str) -> dict[str, Any]:
        """The object of the next event of this type."""
        async with self.watch(path, **query) as events:
            async for each in events:
                if each["type"] == event:
                    found: dict[str, Any] = each["object"]
                    return found
        raise AssertionError(f"the watch of {path} ended without {event}")


def _is_established(crd: Any) -> bool:
    conditions = crd["status"]["conditions"] or ()
    return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)


@asynccontextmanager
async def client(server: ApiServer, token: str = "secret") -> AsyncIterator[Api]:
    context = ssl.create_default_context(cadata=server.ca_pem)
    headers = {"Authorization": f"Bearer {token}"}
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(server.url, headers=headers, connector=connector) as session:
        yield Api(server, session)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "python:3.11"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers} | spec,
    }


def thing(name: str = "one", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec}


FIELDS: dict[str, Any] = {
    "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
    "when": {"type": "string", "format": "date-time"},
    "port": {"x-kubernetes-int-or-string": True},
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
}
"""Of a thing: one of each kind."""
SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}
THING_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "A thing.",
    "properties": {
        "spec": {
            "type": "object",
            "description": "What it should be.",
            "required": ["replicas"],
            "properties": {
                "replicas": {"type": "integer", "minimum": 0, "maximum": 99, "description": "How many."},
                "note": {"type": "string", "nullable": True},
                **FIELDS,
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "size": {"type": "integer"},
                            "color": {"type": "string"},
                        },
                    },
                },
            },
            "x-kubernetes-validations": [
                {
                    "rule": "self.mode != 'slow' || self.replicas <= 10",
                    "message": "slow things have at most 10 replicas",
                },
                {"rule": "self.replicas >= oldSelf.replicas - 50", "message": "too steep"},
            ],
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def definition(schema: dict[str, Any] | None = None, name: str = "things", **version: Any) -> dict[str, Any]:
    """A CustomResourceDefinition of `Thing` (or another name) with one version."""
    shown = {
        "subresources": {"status": {}, "scale": SCALE},
        "additionalPrinterColumns": [
            {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        "selectableFields": [{"jsonPath": ".spec.mode"}] if schema is None else [],
    }
    kind = name.rstrip("s").capitalize()
    names = {"plural": name, "kind": kind, "shortNames": ["th"], "categories": ["all"]}
    return crd_of(schema or THING_SCHEMA, "example.com", names, **(shown | version))
