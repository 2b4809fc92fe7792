"""The story of the demo: its acts, its player, and what is told of it; with a job that lives in a list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from elasticjob.cli.story.acts import STORY, Act, Mark
from elasticjob.cli.story.runner import ActFailed, ActResult, Story, play
from elasticjob.cli.story.seen import Condition, Message, Pod, Seen, has_succeeded, is_suspended, trains
from elasticjob.cli.story.steps import Step
from elasticjob.cli.story.timeline import tell, worlds

COMPLETE = Condition("Complete", True, "Succeeded", "all workers ended well")
SUSPENDED = Condition("Suspended", True, "Suspended", "suspended by its user")
FAILED = Condition(
    "Failed", True, "ScriptFailed", "digits-worker-0 ended with exit code 1: ValueError: no data"
)


def pod(index: int) -> Pod:
    return Pod(f"digits-worker-{index}", f"uid-{index}", "worker", "Running")


def at_step(step: int, *, world: int, round: int, first: tuple[float, int] = (0.0, 0)) -> Seen:
    last = Step(at=100.0, round=round, step=step, world=world)
    began = Step(at=first[0], round=round, step=first[1], world=world)
    return Seen(phase="Running", pods=tuple(map(pod, range(world))), last=last, first=began)


@dataclass
class Job:
    """A job that answers every deed at once, stage and view in one. `after` is what each deed leads to."""

    after: dict[str, list[Seen]]
    seen: Seen = field(default_factory=Seen)
    deeds: list[str] = field(default_factory=list)
    coming: list[Seen] = field(default_factory=list)

    async def change(self) -> None:
        if not self.coming:
            await asyncio.Event().wait()
        self.seen = self.coming.pop(0)

    def done(self, deed: str) -> str:
        self.deeds.append(deed)
        self.coming = list(self.after.get(deed, ()))
        return f"did {deed}"

    async def apply(self) -> str:
        return self.done("apply")

    async def kill_worker(self) -> str:
        return self.done("kill")

    async def delete_pod(self) -> str:
        return self.done("delete")

    async def scale(self, workers: int) -> str:
        return self.done(f"scale to {workers}")

    async def suspend(self) -> str:
        return self.done("suspend")

    async def resume(self) -> str:
        return self.done("resume")

    async def wait(self) -> str:
        return self.done("wait")


GOES_WELL = {
    "apply": [Seen(phase="Pending"), at_step(50, world=2, round=1)],
    "kill": [at_step(60, world=1, round=2), at_step(70, world=2, round=3)],
    "delete": [at_step(80, world=1, round=4), at_step(90, world=2, round=5)],
    "scale to 3": [at_step(100, world=3, round=6)],
    "scale to 1": [at_step(110, world=1, round=7)],
    "suspend": [replace(at_step(111, world=1, round=7), pods=(), conditions=(SUSPENDED,))],
    "resume": [at_step(120, world=1, round=8)],
    "wait": [replace(at_step(200, world=1, round=8), conditions=(COMPLETE,))],
}


def counter() -> Callable[[], float]:
    ticks = iter(range(1000))
    return lambda: float(next(ticks))


async def test_story_of_the_demo_is_played_in_order_to_its_end() -> None:
    job, story = Job(GOES_WELL), Story(STORY)
    await play(story, job, job, counter())
    assert job.deeds == list(GOES_WELL)
    assert [one.after.step for one in story.played] == [50, 70, 90, 100, 110, 111, 120, 200]
    assert story.current is None


async def test_act_that_does_not_come_true_says_what_was_expected_and_what_was_seen() -> None:
    act = Act("grow", Mark.SCALE, lambda s: s.scale(3), trains(3), "3 workers train", within=0.0)
    job = Job({}, seen=replace(at_step(7, world=2, round=1), conditions=(SUSPENDED,)))
    with pytest.raises(ActFailed) as failure:
        await play(Story((act,)), job, job, counter())
    assert str(failure.value) == (
        "act 'grow': expected that 3 workers train, which did not come true within 0 s; "
        "seen: phase Running, step 7 by 2 workers in round 1, "
        "pods: digits-worker-0 Running, digits-worker-1 Running; the operator says: "
        "Suspended: suspended by its user"
    )


@pytest.mark.parametrize(
    ("end", "why"), [(FAILED, "but the job failed"), (COMPLETE, "but the job was complete before that")]
)
async def test_job_that_ends_too_early_ends_the_story_at_once(end: Condition, why: str) -> None:
    job = Job({"kill": [replace(at_step(9, world=1, round=2), conditions=(end,))]})
    act = Act("kill", Mark.FAULT, lambda s: s.kill_worker(), trains(2), "2 workers train again")
    with pytest.raises(ActFailed, match=why) as failure:
        await play(Story((act,)), job, job, counter())
    assert end.message in str(failure.value)


@pytest.mark.parametrize(
    ("now", "answer"),
    [
        (at_step(20, world=2, round=3), True),
        (at_step(20, world=1, round=3), False),  # the world is smaller
        (at_step(20, world=2, round=2), False),  # still the round in which the worker was killed
        (at_step(10, world=2, round=3), False),  # no step yet
        (at_step(20, world=2, round=3, first=(98.0, 11)), False),  # not steady yet
        (at_step(320, world=2, round=3, first=(99.0, 11)), True),  # a fast machine
        (Seen(), False),
    ],
)
def test_training_again_needs_a_later_round_of_that_size_that_stepped_on(now: Seen, answer: bool) -> None:
    assert trains(2)(at_step(10, world=2, round=2), now) is answer


def test_suspended_needs_the_condition_and_no_pods() -> None:
    suspended = Seen(conditions=(SUSPENDED,))
    assert is_suspended(Seen(), suspended)
    assert not is_suspended(Seen(), replace(suspended, pods=(pod(0),)))
    assert not is_suspended(Seen(), replace(suspended, conditions=(replace(SUSPENDED, status=False),)))
    assert has_succeeded(Seen(), Seen(conditions=(COMPLETE,)))


def act(title: str, mark: Mark) -> Act:
    return Act(title, mark, lambda s: s.wait(), has_succeeded, "")


STEPS = tuple(
    Step(at=at, round=round_, step=step, world=world)
    for at, round_, step, world in (
        (5.0, 1, 1, 2),
        (6.0, 1, 2, 2),
        (6.2, 2, 3, 1),
        (7.0, 2, 4, 1),
        (7.3, 3, 5, 2),
        (9.0, 3, 6, 2),
        (15.0, 4, 7, 1),
        (16.0, 4, 8, 1),
    )
)
PLAYED = tuple(
    ActResult(act(title, mark), began, ended, "", Seen(), Seen())
    for title, mark, began, ended in (
        ("apply", Mark.LIFE, 0.0, 5.9),
        ("kill", Mark.FAULT, 6.0, 8.0),
        ("suspend", Mark.PAUSE, 8.5, 12.0),
        ("resume", Mark.PAUSE, 12.0, 15.5),
        ("train on", Mark.LIFE, 15.5, 17.0),
    )
)
SAID = (
    Message(0.1, "Created", "made"),
    Message(6.1, "WorkerLost", "lost", warning=True),
    Message(9.0, "Suspended", "asked"),
)


def test_each_standstill_and_sentence_belongs_to_the_act_that_caused_it() -> None:
    lines = tell(PLAYED, STEPS, SAID, 0.98).lines
    assert [[round(pause, 6) for pause in line.pauses] for line in lines] == [[], [0.2, 0.3], [], [3.0], []]
    assert [[one.sentence for one in line.messages] for line in lines] == [
        ["made"],
        ["lost"],
        ["asked"],
        [],
        [],
    ]
    assert [line.worlds for line in lines] == [(2,), (2, 1, 2), (2,), (2, 1), (1,)]


def test_pause_that_was_asked_for_counts_from_the_resume() -> None:
    resume = tell(PLAYED, STEPS, SAID, None).lines[3]
    assert resume.stood_still == pytest.approx(15.0 - 12.0)


def test_last_line_states_accuracy_steps_and_every_standstill() -> None:
    assert tell(PLAYED, STEPS, SAID, 0.9833).sentence() == (
        "Succeeded: 98.3% test accuracy after 8 steps; "
        "stood still 0.50 s (kill), 3.00 s (resume); in all 3.50 s of 17 s"
    )


def test_worlds_of_a_quiet_stretch_is_the_one_before() -> None:
    assert worlds(STEPS, 7.5, 8.0) == (2,)
    assert worlds(STEPS, 0.0, 1.0) == ()
