"""What is measured of a job: its master, and nodes that may get no more memory."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from elasticjob.api.resources import Bytes
from elasticjob.controllers.elasticjob.measured import master_ready, restarts, starvation
from elasticjob.controllers.elasticjob.seen import Seen
from elasticjob.controllers.nodes.machines import Largest
from lab.build.jobs import LONG_AGO, ended, job, life, master, oom, over, pending, resource

RUNS: Any = {"resource": resource(), "masters": (master(),)}
FULL = {"worker": Largest("m3", Bytes.parse("512Mi"))}
LATER = LONG_AGO + timedelta(minutes=5)


@pytest.mark.parametrize(
    ("seen", "ready"),
    [
        (Seen(job(), **RUNS), True),
        (Seen(job(), resource(), (pending(role="master"),)), None),  # the job is Pending
        (Seen(job(), resource(), (pending(role="master"),), (life(0),)), False),
        (Seen(job(), resource(), (ended(role="master"), master(1))), True),
        (Seen(job(), resource(), (ended(0, 1, role="master"),), (life(0),)), False),
        (Seen(job(), resource(), lives=(life(0),)), False),
        (Seen(job(), resource()), None),
        (Seen(job()), None),  # it has not begun
        (Seen(job(suspend=True), **RUNS), None),
        (Seen(job(status=over()), **RUNS), None),
        (Seen(job(distributionStrategy="Local"), resource()), None),
    ],
)
def test_a_master_is_ready_or_not_where_one_is_meant_to_run(seen: Seen, ready: bool | None) -> None:
    assert master_ready(seen) is ready


@pytest.mark.parametrize(
    ("seen", "left"),
    [
        (Seen(job(), resource(), lives=(life(0), life(1))), (3, 3)),
        (Seen(job(), resource(), lives=(ended(0), life(0, 1, restarts_before=1), life(1))), (2, 3)),
        (Seen(job(suspend=True), resource(), lives=(ended(0),)), None),
        (Seen(job(status=over()), resource(), lives=(ended(0),)), None),
    ],
)
def test_restarts_are_left_to_nodes_that_should_run(seen: Seen, left: tuple[int, int] | None) -> None:
    assert restarts(seen) == left


@pytest.mark.parametrize(
    ("seen", "roles"),
    [
        (Seen(job(), resource(), lives=(oom(0),)), {}),  # it gets more
        (Seen(job(), resource(), lives=(oom(0),), largest=FULL), {"worker": LONG_AGO}),
        (Seen(job(), resource(), lives=(oom(0), life(0, 1)), largest=FULL), {"worker": LONG_AGO}),
        (Seen(job(), resource(), lives=(oom(0, at=LATER), oom(1)), largest=FULL), {"worker": LATER}),
        (Seen(job(optimizeMode="manual"), resource(), lives=(oom(0),)), {"worker": LONG_AGO}),
        (Seen(job(), resource(), lives=(ended(0),), largest=FULL), {}),
        (Seen(job(), lives=(oom(0),), largest=FULL), {}),
    ],
)
def test_a_role_is_starved_whose_nodes_were_killed_at_their_ceiling(
    seen: Seen, roles: dict[str, Any]
) -> None:
    assert starvation(seen) == roles
