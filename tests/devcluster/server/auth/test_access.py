"""Roles that count: who may do what when access is enforced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from elasticjob.devcluster.server import ApiServer
from tests.kit.devcluster.api import CONFIG_MAPS, PODS, Api, client, config_map

RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(rbac=True) as running:
        running.add_token("secret", "admin", ["system:masters"])
        running.add_token("bot", "system:serviceaccount:default:bot", ["system:serviceaccounts"])
        yield running


@pytest.fixture
async def bot(server: ApiServer) -> AsyncIterator[Api]:
    async with client(server, "bot") as ready:
        yield ready


def rule(*verbs: str, resources: tuple[str, ...] = ("configmaps",), **more: Any) -> dict[str, Any]:
    return {"verbs": list(verbs), "apiGroups": [""], "resources": list(resources)} | more


async def grant(api: Api, *rules: dict[str, Any], subject: dict[str, Any] | None = None) -> None:
    who = subject or {"kind": "ServiceAccount", "name": "bot", "namespace": "default"}
    reference = {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"metadata": {"name": "r"}, "rules": list(rules)}
    binding = {"metadata": {"name": "r"}, "subjects": [who], "roleRef": reference}
    assert (await api.post(f"{RBAC}/namespaces/default/roles", role)).code == 201
    assert (await api.post(f"{RBAC}/namespaces/default/rolebindings", binding)).code == 201


async def test_nothing_is_allowed_without_a_role(bot: Api) -> None:
    reply = await bot.get(CONFIG_MAPS)
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert reply.message == (
        'configmaps is forbidden: User "system:serviceaccount:default:bot" cannot list resource "configmaps" '
        'in API group "" in the namespace "default"'
    )
    assert (await bot.get("/apis")).code == 200


async def test_a_role_allows_its_verbs_in_its_namespace_only(api: Api, bot: Api) -> None:
    await grant(api, rule("create", "get"))
    assert (await bot.post(CONFIG_MAPS, config_map("a"))).code == 201
    assert (await bot.get(f"{CONFIG_MAPS}/a")).code == 200
    assert (await bot.delete(f"{CONFIG_MAPS}/a")).code == 403
    assert (await bot.get("/api/v1/namespaces/kube-system/configmaps/a")).code == 403
    assert (await bot.get(CONFIG_MAPS, watch="1")).code == 403


async def test_subresources_and_names_are_told_apart(api: Api, bot: Api) -> None:
    await grant(api, rule("patch", resources=("pods/status",)), rule("get", resourceNames=["mine"]))
    assert (await bot.patch(f"{PODS}/p/status", {})).code == 404
    assert (await bot.patch(f"{PODS}/p", {})).code == 403
    assert (await bot.get(f"{CONFIG_MAPS}/mine")).code == 404
    assert (await bot.get(f"{CONFIG_MAPS}/other")).code == 403


async def test_groups_and_cluster_roles_bind_too(api: Api, bot: Api) -> None:
    subject = {"kind": "Group", "name": "system:serviceaccounts"}
    binding = {
        "metadata": {"name": "b"},
        "subjects": [subject],
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
    }
    assert (await api.post(f"{RBAC}/clusterrolebindings", binding)).code == 201
    assert (await bot.get("/api/v1/nodes")).code == 200


async def test_a_review_tells_what_would_be_allowed(api: Api, bot: Api) -> None:
    await grant(api, rule("get"))
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    for verb, allowed in (("get", True), ("delete", False)):
        asked = {"namespace": "default", "verb": verb, "resource": "configmaps"}
        reply = await bot.post(path, {"spec": {"resourceAttributes": asked}})
        assert (reply.code, reply.body["status"]["allowed"]) == (201, allowed)


async def test_impersonation_is_answered_with_a_sentence(api: Api) -> None:
    async with api.session.get(CONFIG_MAPS, headers={"Impersonate-User": "ann"}) as reply:
        body = await reply.json()
    assert (reply.status, body["reason"]) == (400, "BadRequest")
    assert "does not serve impersonation" in body["message"]
