"""Discovery of the APIs of gang schedulers, and how long it is believed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import cast

import msgspec
import pytest

from elasticjob.controllers.parts.gangs.apis import APIS
from elasticjob.controllers.parts.gangs.served import MISSED, STALE, GangApis
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import NotFound, Unreachable
from lab.build.jobs import NOW

COSCHEDULING = "scheduling.x-k8s.io/v1alpha1"
VOLCANO = "scheduling.volcano.sh/v1beta1"
KUBERNETES = "scheduling.k8s.io/v1beta1"
PLUGINS = tuple(api for api in APIS if api.name == COSCHEDULING)


@dataclass
class Server:
    """A cluster that serves these resources, by group and version; its clock stands until it is set."""

    resources: Mapping[str, tuple[str, ...]]
    asked: list[str] = field(default_factory=list)
    now: datetime = NOW
    fails: bool = False

    async def raw(self, method: str, path: str) -> bytes:
        self.asked.append(path)
        if self.fails:
            raise Unreachable("no answer")
        if path == "/apis":
            versions = [{"versions": [{"groupVersion": name}]} for name in self.resources]
            return msgspec.json.encode({"groups": versions})
        plurals = self.resources[path.removeprefix("/apis/")]
        if not plurals:
            raise NotFound(404, "NotFound", path)
        return msgspec.json.encode({"resources": [{"name": plural} for plural in plurals]})

    def served(self) -> GangApis:
        return GangApis(cast(Client, self), lambda: self.now)


@pytest.mark.parametrize(
    ("resources", "found"),
    [
        ({}, set()),
        ({"apps/v1": ("deployments",)}, set()),
        ({COSCHEDULING: ("podgroups", "elasticquotas")}, {COSCHEDULING}),
        ({COSCHEDULING: ("elasticquotas",), VOLCANO: ("queues", "podgroups")}, {VOLCANO}),
        ({KUBERNETES: ("podgroups",)}, set()),  # Workloads are made first
        ({KUBERNETES: ("podgroups", "workloads", "priorityclasses")}, {KUBERNETES}),
        ({KUBERNETES: ("priorityclasses",)}, set()),  # as in old releases
        ({VOLCANO: ()}, set()),  # it went since
    ],
)
async def test_what_is_served(resources: Mapping[str, tuple[str, ...]], found: set[str]) -> None:
    assert await Server(resources).served().look(APIS) == found


async def test_what_is_there_is_believed_for_a_while() -> None:
    server = Server({COSCHEDULING: ("podgroups",)})
    served = server.served()
    for after in (timedelta(0), STALE / 2, STALE):
        server.now = NOW + after
        assert await served.look(PLUGINS) == {COSCHEDULING}
    assert server.asked.count("/apis") == 2


async def test_what_is_missing_is_soon_asked_for_again() -> None:
    server = Server({VOLCANO: ("podgroups",)})
    served = server.served()
    await served.look(PLUGINS)
    await served.look(PLUGINS)
    assert server.asked.count("/apis") == 1
    server.resources, server.now = {COSCHEDULING: ("podgroups",)}, NOW + MISSED
    assert await served.look(PLUGINS) == {COSCHEDULING}


async def test_what_could_not_be_made_is_asked_for_at_once() -> None:
    server = Server({COSCHEDULING: ("podgroups",)})
    served = server.served()
    await served.look(PLUGINS)
    served.forget()
    server.resources = {}
    assert await served.look(PLUGINS) == set()


async def test_no_answer_is_no_absence() -> None:
    server = Server({COSCHEDULING: ("podgroups",)}, fails=True)
    with pytest.raises(Unreachable):
        await server.served().look(PLUGINS)
