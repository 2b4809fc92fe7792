"""Webhooks called over TLS: whom they are asked about, what they may change; more in tests/conformance."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from elasticjob.devcluster.server.http.certs import make_identity
from tests.conformance.hooks import Hooks, patched, serving
from tests.kit.devcluster.api import CONFIG_MAPS, THINGS, Api, config_map, thing

GROUP = "/apis/admissionregistration.k8s.io/v1"


class Hook:
    """A place of a webhook server, which allows all unless it patches."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self.url, self.ca = hooks.url, hooks.ca

    @property
    def seen(self) -> list[dict[str, Any]]:
        """The requests that it got since the last look."""
        return [review["request"] for review in self._hooks.reviews("/x")]

    def patch(self, *operations: dict[str, Any]) -> None:
        self._hooks.answers["x"] = patched(*operations)

    def configuration(self, kind: str, **changes: Any) -> dict[str, Any]:
        rule = {
            "operations": ["*"],
            "apiGroups": ["", "example.com"],
            "apiVersions": ["*"],
            "resources": ["*"],
        }
        webhook = {
            "name": "check.example.com",
            "clientConfig": {"url": f"{self.url}/x", "caBundle": self.ca},
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30,
        }
        return {
            "metadata": {"name": "hooks"},
            "webhooks": [webhook | changes],
            "kind": f"{kind}WebhookConfiguration",
        }

    async def register(self, api: Api, kind: str, **changes: Any) -> None:
        reply = await api.post(
            f"{GROUP}/{kind.lower()}webhookconfigurations", self.configuration(kind, **changes)
        )
        assert reply.code == 201, reply.body


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    async with serving(datetime.now(UTC)) as hooks:
        yield Hook(hooks)


async def test_a_mutated_custom_resource_is_pruned_and_defaulted_again(things: Api, hook: Hook) -> None:
    await hook.register(things, "Mutating")
    hook.patch({"op": "add", "path": "/spec/nonsense", "value": 1}, {"op": "remove", "path": "/spec/mode"})
    reply = await things.post(THINGS, thing(replicas=1))
    assert reply.body["spec"] == {"replicas": 1, "mode": "fast"}


async def test_an_untrusted_certificate_is_a_failure(api: Api, hook: Hook) -> None:
    hook.ca = base64.b64encode(make_identity("127.0.0.1", datetime.now(UTC)).ca.encode()).decode()
    await hook.register(api, "Validating")
    reply = await api.post(CONFIG_MAPS, config_map("a"))
    assert (reply.code, "certificate" in reply.message) == (500, True)
    assert hook.seen == []


RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
NOT_CONCERNED: list[tuple[str, dict[str, Any]]] = [
    ("operation", {"rules": [RULE | {"operations": ["UPDATE"]}]}),
    ("resource", {"rules": [RULE | {"resources": ["pods", "configmaps/status"]}]}),
    ("group", {"rules": [RULE | {"apiGroups": ["apps"]}]}),
    ("scope", {"rules": [RULE | {"scope": "Cluster"}]}),
    ("namespace", {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}),
    ("object", {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}),
    ("condition", {"matchConditions": [{"name": "c", "expression": "object.metadata.name != 'a'"}]}),
]


async def test_webhooks_are_asked_only_about_what_concerns_them(api: Api, hook: Hook) -> None:
    path = f"{GROUP}/validatingwebhookconfigurations"
    for what, changes in NOT_CONCERNED:
        await hook.register(api, "Validating", **changes)
        assert (await api.post(CONFIG_MAPS, config_map("a"), dryRun="All")).code == 201
        assert hook.seen == [], what
        await api.delete(f"{path}/hooks")


async def test_status_is_a_resource_of_its_own_to_rules(things: Api, hook: Hook) -> None:
    await things.post(THINGS, thing(replicas=1))
    await hook.register(
        things,
        "Validating",
        rules=[RULE | {"operations": ["*"], "apiGroups": ["*"], "resources": ["things/status"]}],
    )
    await things.patch(f"{THINGS}/one", {"spec": {"replicas": 2}})
    await things.patch(f"{THINGS}/one/status", {"status": {"x": 1}})
    assert [request["subResource"] for request in hook.seen] == ["status"]


async def test_a_service_is_found_by_its_address(api: Api, hook: Hook) -> None:
    services = "/api/v1/namespaces/default/services"
    await api.post(
        services, {"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}], "clusterIP": "127.0.0.1"}}
    )
    client = {
        "service": {
            "name": "hook",
            "namespace": "default",
            "path": "/x",
            "port": int(hook.url.rsplit(":", 1)[1]),
        },
        "caBundle": hook.ca,
    }
    await hook.register(api, "Validating", clientConfig=client)
    reply = await api.post(CONFIG_MAPS, config_map("a"))
    # the certificate does not carry the service's name, so the call must fail on exactly that
    assert (reply.code, "hook.default.svc" in reply.message) == (500, True)


async def test_a_webhook_changes_only_the_half_that_is_written(things: Api, hook: Hook) -> None:
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*", "*/*"]}
    await hook.register(things, "Mutating", rules=[rule])
    hook.patch(
        {"op": "replace", "path": "/spec/replicas", "value": 7},
        {"op": "add", "path": "/status", "value": {"by": "hook"}},
    )
    created = await things.post(THINGS, thing("one", replicas=1))
    assert (created.body["spec"]["replicas"], created.body.get("status")) == (7, None)
    hook.patch(
        {"op": "replace", "path": "/spec/replicas", "value": 9},
        {"op": "add", "path": "/status/by", "value": "hook"},
    )
    changed = await things.patch(f"{THINGS}/one/status", {"status": {"ready": 1}})
    assert changed.body["status"] == {"ready": 1, "by": "hook"}
    assert (changed.body["spec"]["replicas"], changed.body["metadata"]["generation"]) == (7, 1)


@pytest.mark.parametrize(("policy", "code"), [("Fail", 403), ("Ignore", 201)])
async def test_a_match_condition_without_a_value(api: Api, hook: Hook, policy: str, code: int) -> None:
    condition = {"name": "c", "expression": "object.data.missing == 'x'"}
    await hook.register(api, "Validating", matchConditions=[condition], failurePolicy=policy)
    assert (await api.post(CONFIG_MAPS, config_map("a", x="1"))).code == code
    assert hook.seen == []
