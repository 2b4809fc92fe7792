"""Waits until the API server calls newly registered or moved webhooks."""

from __future__ import annotations

from typing import Final

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import ApiError
from elasticjob.kube.objects.kinds import Manifest
from lab.waiting import until

WRONG: Final[Manifest] = {
    "apiVersion": ELASTICJOB.api_version,
    "kind": ELASTICJOB.name,
    "metadata": {"generateName": "probe-", "namespace": "default"},
    "spec": {
        "replicaSpecs": {
            "worker": {
                "replicas": 4,
                "minReplicas": 5,
                "maxReplicas": 4,
                "template": {"spec": {"containers": [{"name": "main", "image": "python:3"}]}},
            }
        }
    },
}
"""What no schema refuses."""
OUR_WORDS: Final = "minReplicas is more than maxReplicas"


async def heeded(client: Client) -> None:
    """Return once the API server calls the present operator, which refuses invalid objects."""

    async def asks() -> bool:
        try:
            await client.create(ELASTICJOB.untyped(), WRONG, dry_run=True)
        except ApiError as error:
            return OUR_WORDS in error.message
        return False

    await until(asks, "the API server asks the operator's webhooks")
