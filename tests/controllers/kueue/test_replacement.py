"""Other amounts for a job that runs: what a place gives, what a queue could never."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from elasticjob.api.resources import Resources
from elasticjob.controllers.jobresource.decide import Seen as SeenOfNodes
from elasticjob.controllers.jobresource.decide import decide as decide_nodes
from elasticjob.controllers.kueue.demand import FORM, QueueRequest
from elasticjob.controllers.kueue.grant import Grant, Place
from elasticjob.controllers.kueue.quota import market
from elasticjob.controllers.kueue.replacement import Holdings, covers, never
from elasticjob.controllers.kueue.workload import CHAIN, REPLACES, AdmissionCheck, Workload
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.passes.plan import Create, Resize
from lab.build.jobs import NOW, job, life, oom, resource, role
from tests.kit.controllers.queued import BASE, admitted, cluster_queue, demand, workload

LARGER = demand(3, 3)
BESIDE = {REPLACES: f"ml/{BASE}", CHAIN: BASE}
CHECKED = msgspec.structs.replace(
    admitted(), status=msgspec.structs.replace(admitted().status, admission_checks=[AdmissionCheck("c")])
)


@pytest.mark.parametrize(
    ("asked", "every", "base"),
    [
        (demand(), [admitted()], BASE),
        (LARGER, [admitted()], BASE),
        (LARGER, [admitted(), workload(LARGER.base, 3, annotations=BESIDE)], BASE),
        (LARGER, [admitted(), admitted(LARGER.base, 3, annotations=BESIDE)], LARGER.base),
        (LARGER, [workload(), workload(LARGER.base, 3)], LARGER.base),
        (LARGER, [admitted(annotations={FORM: LARGER.form})], BASE),
        (LARGER, [admitted(annotations={FORM: "other"})], None),
        (replace(LARGER, queue="b"), [admitted()], None),
        (replace(LARGER, uid="job-2"), [admitted()], None),
        (replace(LARGER, prebuilt="made"), [admitted(), admitted("made")], "made"),
    ],
)
def test_a_job_stays_in_the_base_that_holds_quota(
    asked: QueueRequest, every: list[Workload], base: str | None
) -> None:
    found = Holdings(asked, tuple(every)).base
    assert (found.metadata.name if found else None) == base


def test_a_base_covers_what_is_less() -> None:
    assert covers(admitted(count=3), demand(2, 2).least)
    assert not covers(admitted(), demand(2, 2).least)


@pytest.mark.parametrize(
    ("asked", "base", "why"),
    [
        (demand(4, 4), admitted(), ""),
        (demand(5, 5), admitted(), "queue team has 4 cpu of flavor f at most, and the job would need 5"),
        (demand(5, 5), None, "queue team has 4 cpu of flavor f at most, and the job would need 5"),
        (
            demand(2, 2),
            CHECKED,
            f"Workload {BASE} cannot grow while the job runs, since it has admission checks",
        ),
        (demand(), CHECKED, ""),
        (
            replace(demand(2, 2), prebuilt=BASE),
            admitted(),
            f"Workload {BASE} was made beforehand, and does not grow",
        ),
    ],
)
def test_what_a_queue_could_never_give_is_known(asked: QueueRequest, base: Workload | None, why: str) -> None:
    assert never(market([cluster_queue("all", "4")], ()), "all", asked, base) == why


PLACE = Place("base", "worker", 1, amounts={"main": Resources.parse({"cpu": "1", "memory": "1Gi"})})


@pytest.mark.parametrize(
    ("asked", "has", "given"),
    [
        ({"cpu": "500m"}, {}, {"cpu": "500m"}),
        ({"cpu": "2"}, {}, {"cpu": "1"}),
        ({"cpu": "2"}, {"cpu": "500m"}, {"cpu": "500m"}),
        ({"cpu": "2"}, {"cpu": "3"}, {"cpu": "1"}),
        ({"memory": "1024Mi"}, {}, {"memory": "1024Mi"}),
        ({"nvidia.com/gpu": "1"}, {}, {}),
    ],
)
def test_a_pod_gets_what_its_place_is_for(
    asked: dict[str, str], has: dict[str, str], given: dict[str, str]
) -> None:
    """One that runs keeps what it has, rather than to change twice."""
    assert PLACE.within("main", asked, has) == given


def nodes(memory: str, *lives: Life) -> list[str]:
    """What happens to the pods of two workers that are to have 1Gi, in places for so much."""
    places = Place("base", "worker", 2, amounts={"main": Resources.parse({"memory": memory})})
    found = SeenOfNodes(
        resource({"worker": 2}, resources={"worker": {"memory": "1Gi"}}),
        job({"worker": role(2)}, distributionStrategy="Local"),
        lives,
        grant=Grant("team", admitted=True, places=(places,)),
    )
    actions = decide_nodes(found, NOW).actions
    made = [a.manifest["spec"]["containers"][0]["resources"] for a in actions if isinstance(a, Create)]
    resized = [f"{a.pod} {a.resources['limits']['memory']}" for a in actions if isinstance(a, Resize)]
    return [*resized, *(each["limits"]["memory"] for each in made)]


def test_an_oom_kill_of_one_worker_leaves_the_others_and_waits_for_its_quota() -> None:
    healthy = life(1, workload="base")
    killed = oom(workload="base", at=NOW)
    assert nodes("512Mi", healthy, killed) == []
    assert nodes("1Gi", healthy, killed) == ["digits-worker-1 1Gi", "1Gi"]
    assert nodes("512Mi", healthy, oom(workload="base")) == ["512Mi"]
