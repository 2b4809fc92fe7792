"""EDL's experiments in virtual time: who waits and who gives way, on machines that never hold too much."""

from __future__ import annotations

from datetime import timedelta

from benchmarks.cluster.experiments import BESIDE, TRAINER, TWENTY, Outcome, run
from benchmarks.cluster.simulated import Simulated
from elasticjob.brain.fulfilment.state import Machine, Options

OPTIONS = Options(settle=timedelta(seconds=10))
ROOM = {"cpu": 25000, "memory": 1 << 40, "pods": 99}


def test_twenty_elastic_jobs_start_while_jobs_of_fixed_size_wait() -> None:
    elastic, fixed = outcomes(TWENTY)
    assert max(elastic.pending) < 30
    assert sum(pending > 300 for pending in fixed.pending) == 14
    assert elastic.use(300, 500) > 86.3


def test_elastic_jobs_use_what_nginx_leaves_and_give_it_back() -> None:
    elastic, fixed = outcomes(BESIDE)
    assert elastic.use(300, 370) > fixed.use(300, 370) + 30
    assert max(elastic.waits) < 30
    assert sum(fixed.stopped) == 0 < sum(elastic.stopped)
    again = run(BESIDE, elastic=True, seed=0, options=OPTIONS)
    assert (again.pending, again.cpu, again.stopped) == (elastic.pending, elastic.cpu, elastic.stopped)


def outcomes(case: str) -> tuple[Outcome, Outcome]:
    """Elastic, and of fixed size."""
    return run(case, elastic=True, seed=0, options=OPTIONS), run(case, elastic=False, seed=0, options=OPTIONS)


def test_a_job_grows_and_gives_way() -> None:
    world = Simulated([Machine("m", ROOM, ROOM, ROOM)], seed=0, planner=OPTIONS)
    world.submit("default/a", 1, 9, TRAINER, others=())
    turns(world, 10)
    assert len(world.jobs[0].trainers) == 4
    world.submit("default/b", 2, 2, TRAINER, others=())
    turns(world, 10)
    assert [len(job.trainers) for job in world.jobs] == [2, 2]
    assert [job.stopped for job in world.jobs] == [2, 0]
    assert world.jobs[1].ran is not None


def turns(world: Simulated, seconds: int) -> None:
    for _ in range(seconds):
        world.turn()
        assert min(min(room.values()) for room in world.idle.values()) >= 0
