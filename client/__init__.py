"""A typed client of jobs: submit, list, get, scale, suspend, resume, delete, wait, events, describe.

    from elasticjob.client import SyncClient

    with SyncClient() as client:
        job = client.submit("train.py", workers=(1, 4), arguments=["--epochs", 3])
        client.wait(job.metadata.name)

`SyncClient` is for scripts and notebooks; `Client` has the same verbs as coroutines. Both take the cluster of
the kubeconfig, or of the pod that they run in. Errors are drawn in `errors`. The commands of `elasticjob` are
these verbs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elasticjob.client.client import Client
    from elasticjob.client.errors import (
        AlreadyThere,
        ClientError,
        Denied,
        JobFailed,
        NotFound,
        Refused,
        TimedOut,
        Unreachable,
        Unusable,
    )
    from elasticjob.client.sync import SyncClient

__all__ = [
    "AlreadyThere",
    "Client",
    "ClientError",
    "Denied",
    "JobFailed",
    "NotFound",
    "Refused",
    "SyncClient",
    "TimedOut",
    "Unreachable",
    "Unusable",
]


def __getattr__(name: str) -> Any:
    """Return a public name, whose module is imported when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"elasticjob.client has no {name!r}: import it from its module")
    homes = {"Client": "client", "SyncClient": "sync"}
    return getattr(import_module(f"elasticjob.client.{homes.get(name, 'errors')}"), name)
