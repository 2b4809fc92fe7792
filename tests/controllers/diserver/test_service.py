"""The callers of di-server: a token is looked at before anything is asked of the API server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from elasticjob.api.diengine import pods
from elasticjob.api.diengine.access import token_of
from elasticjob.api.diengine.aggregatorconfig import AGGREGATORCONFIG
from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.diengine.pods import Server
from elasticjob.controllers.diserver.access import Access
from elasticjob.controllers.diserver.apply import Waiting, Writer
from elasticjob.controllers.diserver.asked import Query, Refused
from elasticjob.controllers.diserver.service import Caches, Options, Service
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.protocol import Listed, Synced
from elasticjob.kube.cache.wire import item_of
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.patience import Patience
from elasticjob.kube.client.recorder import Recorder
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import POD
from tests.kit import manifests
from tests.kit.dijob.jobs import dijob

KEY = b"secret"
JOB = dijob()
TOKEN, WRONG = token_of(KEY, "u"), token_of(KEY, "another")


class Counting:
    """A client that counts what is asked of the API server; it has the job and its coordinator."""

    def __init__(self) -> None:
        self.asked = list[str]()

    async def find(self, kind: Any, name: str, namespace: str) -> Any:
        self.asked.append(name)
        return JOB if kind is DIJOB else COORDINATOR if name == COORDINATOR.metadata.name else None


MADE: Manifest = pods.coordinator(JOB, Server())
COORDINATOR = POD.convert(MADE)


def cache(kind: Kind[Any], *manifests_: Manifest) -> Cache[Any]:
    """A cache that has what it is given."""
    found: Cache[Any] = Cache(kind)
    found.take(Listed(tuple(item_of(msgspec.json.encode(each)) for each in manifests_)))
    found.take(Synced("1"))
    return found


def service(client: Counting, key: Path | None, jobs: list[Manifest], pods_: list[Manifest]) -> Service:
    clock = ImpatientClock()
    caches = Caches(cache(DIJOB, *jobs), cache(POD, *pods_), cache(AGGREGATORCONFIG))
    known, patience = cast("Client", client), Patience(clock)
    writer = Writer(known, caches.pods, cast("Recorder", None), patience, str, Server())
    return Service(known, caches, writer, Access(key), patience, str)


class ImpatientClock(VirtualClock):
    """A clock on which who sleeps is at the end of his sleep."""

    async def sleep(self, seconds: float) -> None:
        await self.advance(seconds)


JOBS, PODS = [manifests.DIJOB], [MADE]


@pytest.mark.parametrize(
    ("jobs", "pods_", "name", "token", "expected", "asked"),
    [
        (JOBS, PODS, "cartpole-coordinator", TOKEN, None, []),
        (JOBS, PODS, "cartpole-coordinator", WRONG, 403, []),
        (JOBS, PODS, "cartpole-coordinator", "\udcff\ud800", 403, []),
        (JOBS, PODS, "cartpole-coordinator", "", 401, []),
        (JOBS, PODS, "nobody", "", 401, []),
        (JOBS, PODS, "nobody", WRONG, Waiting, []),
        (JOBS, PODS, "nobody", TOKEN, 404, ["nobody"]),
        (JOBS, [], "cartpole-coordinator", TOKEN, None, ["cartpole-coordinator"]),  # its first call
        ([], [], "cartpole-coordinator", TOKEN, Waiting, []),
        ([], PODS, "cartpole-coordinator", WRONG, 403, []),
        ([], PODS, "cartpole-coordinator", TOKEN, None, ["cartpole"]),
    ],
)
async def test_a_token_costs_no_request_of_the_api_server(
    tmp_path: Path,
    jobs: list[Manifest],
    pods_: list[Manifest],
    name: str,
    token: str,
    expected: int | type[Exception] | None,
    asked: list[str],
) -> None:
    (tmp_path / "key").write_bytes(KEY)
    client = Counting()
    found = service(client, tmp_path / "key", jobs, pods_)
    if expected is None:
        assert (await found.caller("lab", name, token)).uid == "u"
    elif isinstance(expected, int):
        with pytest.raises(Refused) as refused:
            await found.caller("lab", name, token)
        assert refused.value.status == expected
    else:
        with pytest.raises(expected):
            await found.caller("lab", name, token)
    assert client.asked == asked


async def test_a_list_of_all_is_nobody_s_and_without_tokens_everybody_s(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    client = Counting()
    for query in (Query(), Query("lab")):
        with pytest.raises(Refused, match="tokens are bound to one job"):
            await service(client, tmp_path / "key", JOBS, PODS).read(query, TOKEN)
        found = await service(client, None, JOBS, PODS).read(query, "")
        assert isinstance(found, list)
        assert len(found) == 1
    assert client.asked == []


async def test_a_di_server_of_one_namespace_asks_nothing_about_others() -> None:
    client = Counting()
    found = replace(service(client, None, [], []), options=Options(namespace="lab"))
    with pytest.raises(Refused, match="serves the namespace lab only"):
        await found.caller("other", "cartpole-coordinator", "")
    assert client.asked == []
