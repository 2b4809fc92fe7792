"""The fixtures themselves: both servers show the same face."""

from __future__ import annotations

import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import Forbidden
from elasticjob.kube.objects.views import CONFIG_MAP, NAMESPACE
from tests.kit.clusters.served import Served


async def test_writes_are_told_with_who_what_and_the_answer(
    served: Served, client: Client, namespace: str
) -> None:
    async with Client(served.config("jane", ("people",)), user_agent="janes") as jane:
        with pytest.raises(Forbidden):
            await jane.create(CONFIG_MAP, {"metadata": {"name": "a"}}, namespace)
    await client.create(CONFIG_MAP, {"metadata": {"name": "a"}}, namespace)
    await client.merge_patch(CONFIG_MAP, "a", {"data": {"x": "1"}}, namespace)
    await client.delete(CONFIG_MAP, "a", namespace)
    await client.get(NAMESPACE, namespace)
    requests = [
        (found.user, found.verb, found.resource, found.name, found.code)
        for found in served.writes()
        if found.namespace == namespace and found.resource == "configmaps" and found.name in ("a", "")
    ]
    assert requests == [
        ("jane", "create", "configmaps", "", 403),
        ("admin", "create", "configmaps", "a", 201),
        ("admin", "patch", "configmaps", "a", 200),
        ("admin", "delete", "configmaps", "a", 200),
    ]
    (janes,) = [found for found in served.writes() if found.user == "jane"]
    assert janes.agent == "janes"
    assert janes.began <= janes.ended
