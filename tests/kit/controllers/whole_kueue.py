"""The operator beside the real Kueue, on machines that only pretend."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Final

import pytest

from elasticjob.controllers.install import install
from elasticjob.controllers.main import compose
from elasticjob.controllers.settings import Settings
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import NAMESPACE, NODE
from elasticjob.kube.operator.operator import Operator
from lab.clusters.plane import pretended, queues
from lab.clusters.plane.kueue import why_missing
from lab.running import running
from lab.waiting import until

TEAM: Final = "team"
REAL_KUEUE: Final = [
    pytest.mark.plane,
    pytest.mark.skipif(bool(why_missing()), reason=why_missing()),
]


def template(container: str = "main") -> Manifest:
    """A pod that asks for one processor of such a machine."""
    main = {"name": container, "image": "none", "resources": {"requests": {"cpu": "1"}}}
    tolerations = [{"key": pretended.ANNOTATION, "operator": "Exists"}]
    return {"spec": {"containers": [main], "tolerations": tolerations}}


async def furnish(client: Client, flavor: Manifest, *machines: Manifest) -> None:
    """Install our kinds, and make the team's namespace, these machines and a flavour of them."""
    await install(client)
    await client.create(NAMESPACE, {"metadata": {"name": TEAM}})
    for each in machines:
        await client.create(NODE.untyped(), each)
    await client.create(queues.RESOURCE_FLAVOR, flavor)


async def is_admitted(client: Client, name: str) -> None:
    async def seen() -> bool:
        found = await client.get(queues.WORKLOAD, name, TEAM)
        return "Admitted" in queues.conditions(found)

    await until(seen, f"Workload {name} is admitted")


def operator(client: Client) -> AbstractAsyncContextManager[Operator]:
    """The operator in this process."""
    settings = Settings.model_validate({"probes": "", "webhooks": False})
    return running(compose(client, settings, signals=False))
