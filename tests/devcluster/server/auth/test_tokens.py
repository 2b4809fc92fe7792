"""Tokens of service accounts: how long they count, and for whom."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from elasticjob.devcluster.server import ApiServer
from tests.kit.devcluster.api import Api, client

TOKEN = "/api/v1/namespaces/default/serviceaccounts/bot/token"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class Watch:
    """A clock that tests set; it begins now, as the server's certificate does."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
async def server(watch: Watch) -> AsyncIterator[ApiServer]:
    async with ApiServer(clock=watch, rbac=True) as running:
        running.add_token("secret", "admin", ["system:masters"])
        yield running


async def token(api: Api, **spec: object) -> str:
    account = {"metadata": {"name": "bot"}}
    assert (await api.post(TOKEN.rpartition("/bot")[0], account)).code in (201, 409)
    reply = await api.post(TOKEN, {"spec": spec})
    assert reply.code == 201, reply.body
    found: str = reply.body["status"]["token"]
    return found


async def test_a_token_counts_until_it_has_expired(server: ApiServer, api: Api, watch: Watch) -> None:
    async with client(server, await token(api, expirationSeconds=600)) as bot:
        watch.now += timedelta(seconds=599)
        assert (await bot.post(WHO, {})).body["status"]["userInfo"]["username"] == (
            "system:serviceaccount:default:bot"
        )
        watch.now += timedelta(seconds=1)
        assert (await bot.post(WHO, {})).code == 401
        assert (await bot.get("/healthz")).code == 401


async def test_an_expired_token_is_told_so_in_a_review(api: Api, watch: Watch) -> None:
    old = await token(api, expirationSeconds=600)
    watch.now += timedelta(hours=1)
    reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
    status = (await api.post(reviews, {"spec": {"token": old}})).body["status"]
    assert status == {"user": {}, "error": "[invalid bearer token, service account token has expired]"}


async def test_without_roles_that_count_nobody_unknown_is_served() -> None:
    async with ApiServer() as open_server:
        open_server.add_token("secret", "admin")
        async with client(open_server, "none") as stranger, client(open_server) as known:
            assert (await stranger.get("/api/v1/pods")).code == 401
            assert (await known.get("/api/v1/pods")).code == 200
            role = {
                "metadata": {"name": "r"},
                "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
            }
            path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
            assert (await known.post(path, role)).code == 201


async def test_groups_and_cluster_roles_bind_too(api: Api, server: ApiServer) -> None:
    binding = {
        "metadata": {"name": "b"},
        "subjects": [{"kind": "Group", "name": "system:serviceaccounts"}],
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
    }
    assert (await api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)).code == 201
    async with client(server, await token(api)) as bot:
        assert (await bot.get("/api/v1/nodes")).code == 200
