"""Objects of a plane as they were stored, one change after another; and the lives of its pods."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from elasticjob.api.v1alpha1.common import LABEL_INDEX
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Informer
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Kind, Manifest
from lab.running import beside

INDEX_OF_JOB: Final = "batch.kubernetes.io/job-completion-index"
OVER: Final = ("Succeeded", "Failed")


@dataclass
class Life:
    """One pod: its newest manifest, and when it was made, began to leave, ended and was gone."""

    pod: Manifest
    made: float
    leaves: float | None = None
    ended: float | None = None
    gone: float | None = None

    @property
    def name(self) -> str:
        found: str = self.pod["metadata"]["name"]
        return found

    @property
    def index(self) -> str:
        labels = self.pod["metadata"].get("labels", {})
        found: str = labels.get(INDEX_OF_JOB, labels.get(LABEL_INDEX, ""))
        return found

    @property
    def phase(self) -> str:
        found: str = self.pod["status"].get("phase", "Pending")
        return found

    @property
    def lives(self) -> bool:
        """Whether it runs or may run, and is not on its way out."""
        return self.ended is None and self.leaves is None


@dataclass
class Pods:
    """The pods of each namespace, oldest first."""

    of: dict[str, dict[str, Life]] = field(default_factory=lambda: defaultdict(dict))

    def hear(self, pod: Manifest, gone: bool) -> None:
        now = asyncio.get_running_loop().time()
        about = pod["metadata"]
        life = self.of[about["namespace"]].setdefault(about["uid"], Life(pod, now))
        life.pod = pod
        if about.get("deletionTimestamp") and life.leaves is None:
            life.leaves = now
        if gone:
            life.gone = now
        if life.ended is None and (life.phase in OVER or life.gone or _all_have_ended(pod)):
            life.ended = now


Hear = Callable[[Manifest, bool], None]
"""Hears of an object as it is stored now, or was last: and whether it is gone."""


def followed(client: Client, hears: Mapping[Kind[Any], Hear]) -> AbstractAsyncContextManager[object]:
    """Have all objects of some kinds heard of from now on, while the block lasts."""
    return beside(*(_follow(client, kind, hear) for kind, hear in hears.items()))


async def _follow(client: Client, kind: Kind[Any], hear: Hear) -> None:
    cache = Cache[Any](kind.untyped())

    def tell(change: Change) -> None:
        item = change.new or change.old
        assert item is not None
        hear(msgspec.json.decode(item.raw, type=dict), change.new is None)

    cache.subscribe(tell)
    await Informer(client, cache).run()


def _all_have_ended(pod: Manifest) -> bool:
    """Whether no container runs any more; the kubelet writes the phase of the pod a second later."""
    states = [each["state"] for each in pod["status"].get("containerStatuses", ())]
    never = pod["spec"].get("restartPolicy") == "Never"
    return (
        never
        and len(states) == len(pod["spec"]["containers"])
        and all("terminated" in each for each in states)
    )
