"""What the monitor keeps of pods that go, of whichever size and shape."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.brain.monitor.watch import LONGEST, Monitor
from elasticjob.brain.store import Retention, SeenJob, Store
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.controller.passes import Passes
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.views import NODE, POD
from lab.build.jobs import NOW, job

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
KEY = Key("ml", "digits-worker-0")


class Cluster:
    """A job, its pod, if that is still there, and the logs; it stands in for caches, too."""

    def __init__(self, pod: Manifest) -> None:
        self.pod: Manifest | None = pod
        self.asked: list[str] = []

    def get(self, key: Key) -> Any:
        if key.name == "digits":
            return job()
        return POD.convert(self.pod) if self.pod else None

    async def logs(self, name: str, namespace: str, *, container: str, tail: int) -> AsyncIterator[bytes]:
        self.asked.append(container)
        for _ in range(100):
            yield b"x" * 1024
        yield f"last words of {container}".encode()


def failed() -> Manifest:
    owner = {"apiVersion": ELASTICJOB.api_version, "kind": "ElasticJob", "name": "digits", "uid": "job-1"}
    about: Manifest = {"name": KEY.name, "namespace": KEY.namespace, "uid": "p1"}
    about["labels"] = {"elasticjob.dlrover/name": "digits"}
    about["ownerReferences"] = [{**owner, "controller": True}]
    containers = [{"name": "istio-proxy"}, {"name": "main"}]
    return {"metadata": about, "spec": {"containers": containers}, "status": {"phase": "Failed"}}


def monitor(store: Store, cluster: Cluster) -> Monitor:
    clock, cache = VirtualClock(NOW), cast(Cache[Any], cluster)
    passes = Passes("brain-samples", clock, Metrics(CollectorRegistry()))
    rest = (None, Retention(), 15.0, clock, clock.now, passes)
    return Monitor(store, cast(Client, cluster), cache, cache, Cache(NODE, "", "", ""), *rest)


async def test_the_last_lines_are_the_trainings_and_no_longer_than_kept(store: Store) -> None:
    cluster = Cluster(failed())
    watching = monitor(store, cluster)
    await store.see_job(SeenJob("job-1", "ml", "digits", NOW), NOW)
    for _ in range(3):
        await watching.pod(KEY)
    (kept,) = await store.pods_of("job-1")
    assert kept.log.endswith("x" * 1024 + "last words of main")
    assert len(kept.log) == LONGEST
    assert cluster.asked == ["main"]
    cluster.pod = None
    await watching.pod(KEY)
    assert watching._logged == {}


async def test_a_pod_with_the_labels_of_a_job_is_not_kept(store: Store) -> None:
    cluster = Cluster(failed())
    assert cluster.pod is not None
    del cluster.pod["metadata"]["ownerReferences"]
    await store.see_job(SeenJob("job-1", "ml", "digits", NOW), NOW)
    result = await monitor(store, cluster).pod(KEY)
    assert result.again_in != timedelta(seconds=1)
    assert await store.pods_of("job-1") == []
