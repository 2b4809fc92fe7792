"""Reconcilers over caches that a test fills and a server of its own making."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

from prometheus_client import CollectorRegistry

from elasticjob.controllers.elasticjob.controller import JobReconciler
from elasticjob.controllers.elasticjob.master import Provision
from elasticjob.controllers.jobresource.controller import NodesReconciler
from elasticjob.controllers.metrics import Counters
from elasticjob.controllers.parts.gangs.served import GangApis
from elasticjob.controllers.passes.apply import Applier
from elasticjob.controllers.passes.observe import Caches
from elasticjob.controllers.passes.orphans import Orphans
from elasticjob.kube.client.recorder import Recorder
from lab.build.caches import Nobody
from lab.build.jobs import NOW


def writer(server: Any, found: Caches | None = None) -> Applier:
    return Applier(server, cast(Recorder, Nobody()), "test", found)


def of_jobs(
    found: Caches, server: Any, now: Callable[[], datetime] = lambda: NOW, orphans: Orphans | None = None
) -> JobReconciler:
    orphans, counters = orphans or Orphans(server, found, now), Counters(CollectorRegistry())
    made = found, writer(server, found), orphans, Provision(""), counters
    return JobReconciler(*made, now, str, GangApis(server, now))


def of_nodes(
    found: Caches, server: Any, now: Callable[[], datetime] = lambda: NOW, orphans: Orphans | None = None
) -> NodesReconciler:
    return NodesReconciler(found, writer(server, found), orphans or Orphans(server, found, now), now)
