"""The webhook server that both API servers call by URL: it answers by the last part of the path, and
remembers.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from aiohttp import web

from elasticjob.devcluster.server.http.certs import make_identity, server_context
from elasticjob.kube.http.serving import Runner

Answer = dict[str, Any]


def _allow(_: Any) -> Answer:
    return {"allowed": True}


def _deny(_: Any) -> Answer:
    return {"allowed": False, "status": {"message": "not on my watch"}}


def _deny_in_detail(_: Any) -> Answer:
    status = {
        "code": 409,
        "reason": "Conflict",
        "message": "taken",
        "details": {"kind": "thing", "name": "x"},
    }
    return {"allowed": False, "status": status}


def _deny_in_silence(_: Any) -> Answer:
    return {"allowed": False}


def _warn(_: Any) -> Answer:
    return {"allowed": True, "warnings": ["mind the gap", "and the step"]}


def patched(*operations: dict[str, Any]) -> Callable[[Any], Answer]:
    text = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda _: {"allowed": True, "patchType": "JSONPatch", "patch": text}


def _count(request: Any) -> Answer:
    """Adds 1 to a label, so that every call can be seen in the object."""
    labels = request["object"]["metadata"].get("labels") or {}
    seen = str(int(labels.get("seen", "0")) + 1)
    return patched({"op": "add", "path": "/metadata/labels", "value": {**labels, "seen": seen}})(request)


def _label_after_count(request: Any) -> Answer:
    labels = request["object"]["metadata"].get("labels") or {}
    if "late" in labels:
        return {"allowed": True}
    return patched({"op": "add", "path": "/metadata/labels", "value": {**labels, "late": "yes"}})(request)


ANSWERS: dict[str, Callable[[Any], Answer]] = {
    "allow": _allow,
    "deny": _deny,
    "deny-in-detail": _deny_in_detail,
    "deny-in-silence": _deny_in_silence,
    "warn": _warn,
    "count": _count,
    "late": _label_after_count,
    "label": patched({"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}}),
    "bad-label": patched({"op": "add", "path": "/metadata/labels", "value": {"by": "not a value"}}),
    "bad-patch": patched({"op": "remove", "path": "/spec/nothing/here"}),
    "replicas": patched({"op": "add", "path": "/spec/replicas", "value": 7}),
    "replicas-text": patched({"op": "add", "path": "/spec/replicas", "value": "many"}),
    "unknown-field": patched({"op": "add", "path": "/spec/bogus", "value": 7}),
    "no-type": lambda _: {"allowed": True, "patch": "W10="},
}


@dataclass
class Hooks:
    """Serves; `reviews(place)` gives what was sent to one place since the last asking."""

    answers: dict[str, Callable[[Any], Answer]] = field(default_factory=ANSWERS.copy)
    url: str = ""
    ca: str = ""
    _seen: dict[str, list[Any]] = field(default_factory=dict)

    def reviews(self, place: str) -> list[Any]:
        seen = self._seen.pop(place.removeprefix(self.url), [])
        return [each for each in seen if each["request"]["name"] != "kube-root-ca.crt"]  # a controller's

    async def handle(self, request: web.Request) -> web.StreamResponse:
        review = await request.json()
        self._seen.setdefault(request.path, []).append(review)
        how = request.path.rpartition("/")[2]
        if how == "slow":
            await asyncio.sleep(3)  # longer than any probe's timeoutSeconds
        if how == "broken":
            return web.Response(status=500, text="out of order")
        if how == "not-json":
            return web.Response(text="<html>", content_type="text/html")
        answer = self.answers.get(how, _allow)(review["request"])
        uid = "other" if how == "other-uid" else review["request"]["uid"]
        body = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": uid, **answer},
        }
        return web.json_response(body)


@asynccontextmanager
async def serving(now: datetime) -> AsyncIterator[Hooks]:
    """A webhook server on a free port of loopback."""
    identity, hooks = make_identity("127.0.0.1", now), Hooks()
    application = web.Application()
    application.router.add_route("POST", "/{path:.*}", hooks.handle)
    runner = Runner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    hooks.url = f"https://127.0.0.1:{await runner.listen('127.0.0.1', 0, server_context(identity))}"
    hooks.ca = base64.b64encode(identity.ca.encode()).decode()
    try:
        yield hooks
    finally:
        await runner.cleanup()
