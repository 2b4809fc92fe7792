"""Brain in virtual time: its monitor, plans and sharing, as the product composes them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from random import Random
from typing import Any, Final, cast

from prometheus_client import CollectorRegistry

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.brain.fulfilment.planners import Share
from elasticjob.brain.history import Sample
from elasticjob.brain.main import Caches, parts
from elasticjob.brain.monitor.sources import Taken, Target
from elasticjob.brain.settings import Settings
from elasticjob.brain.store import Store
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client.recorder import Recorder
from elasticjob.kube.clock import Clock
from elasticjob.kube.objects.kinds import Key, Kind
from elasticjob.kube.objects.views import NODE, POD
from lab.build.caches import Nobody
from lab.virtual.operator import UNREAD, Program
from lab.virtual.server import Verbs

KINDS: Final[tuple[Kind[Any], ...]] = (ELASTICJOB, JOBRESOURCE, SCALEPLAN, POD, NODE)
QUICK: Final = Settings(every=5.0, pace=0.05, settle=3.0)
"""Settings with which Brain decides within a short history."""
SHARING: Final = QUICK.model_copy(update={"share": Share.FULFILMENT})
"""The same, where Brain shares the cluster among all jobs."""


class Brain(Program):
    """One replica of Brain; `records` are what it finds again after it was killed."""

    def __init__(
        self,
        client: Verbs,
        chance: Random,
        records: Store,
        settings: Settings = QUICK,
        clock: Clock | None = None,
        behind: int = 0,
        seconds: float = 0.0,
    ) -> None:
        super().__init__(client, chance, KINDS, clock, behind, seconds)
        caches = Caches(*(self.caches[kind.resource] for kind in KINDS))
        self.begin(
            parts(
                self.client,
                caches,
                records,
                Statuses(caches.jobs),
                settings,
                self.clock,
                UNREAD,
                cast(Recorder, Nobody()),
                CollectorRegistry(),
            )
        )


class Statuses:
    """A source of samples: what masters have written into the status of their jobs."""

    def __init__(self, jobs: Cache[ElasticJob]) -> None:
        self._jobs = jobs

    async def samples(self, jobs: Iterable[Target], now: datetime) -> Taken:
        """Return a sample of each job that says how fast it trains, and with how many workers."""
        found = {each.uid: self._sample(Key(each.namespace, each.name), now) for each in jobs}
        return {uid: sample for uid, sample in found.items() if sample}

    def _sample(self, key: Key, now: datetime) -> Sample | None:
        job = self._jobs.get(key)
        training = job.status.training if job else None
        if training is None or not training.world_size or not training.steps_per_second:
            return None
        speed = training.samples_per_second or 0.0
        return Sample(now, training.world_size, training.steps_per_second, speed)
