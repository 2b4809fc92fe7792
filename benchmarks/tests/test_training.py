"""What the benchmark of training computes, and what it keeps between two runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.training.__main__ import hopeless, take_samples, too_many
from benchmarks.training.blows import AFTER, pauses
from benchmarks.training.book import Book, Entry, Sample
from benchmarks.training.job import Job
from benchmarks.training.sheet import cell, goodput, goodput_of, more
from benchmarks.training.systems import OURS, RESTARTED, TORCHFT, TORCHRUN, Shape, Site, System

ONE_NODE = Shape(nodes=1, workers=2)
VERSIONS = {"torch": "2.15.0"}


@pytest.mark.parametrize(
    ("samples", "reason", "text"),
    [
        ([], "", "–"),
        ([], "it needs a GPU", "not here"),
        ([None, None], "", "none of 2 in 90 s"),
        ([1.0, None, 3.0], "", "2.00 (1.00–3.00), 2 of 3"),
    ],
)
def test_a_cell_tells_what_came_in_time(samples: list[float | None], reason: str, text: str) -> None:
    assert cell(Entry([{"next": sample} for sample in samples], reason), "next", patience=90) == text


def test_steps_are_compared_turn_by_turn() -> None:
    assert more([11.0, 22.0, 12.0], [10.0, 20.0, 10.0]) == "+2.00 (+1.00–+2.00), +10.0%"
    assert more([1.0], []) == "–"


@pytest.mark.parametrize(
    ("samples", "given_up"), [([None], False), ([1.0, None, None], True), ([None, 1.0], False)]
)
def test_what_did_not_come_twice_is_not_tried_again(samples: list[float | None], given_up: bool) -> None:
    assert hopeless([{"next": sample, "full": None} for sample in samples]) is given_up


def test_an_interrupted_run_takes_only_what_is_missing_and_of_its_own_versions(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    book = Book(file)
    book.began("first", VERSIONS)
    book.add("kill", "torchrun", {"next": 4.0, "full": None})
    book.refuse("kill", "torchft", "no wheel")
    book.add("rendezvous-4000", "torchrun", {"seconds": None})
    again = Book(file)
    with pytest.raises(ValueError, match="another run"):
        again.began("second", VERSIONS)
    book.close()
    again.began("second", VERSIONS)
    more_samples: list[Sample] = [{"next": float(each)} for each in range(10)]
    take_samples("kill", TORCHRUN, (each for each in more_samples), 3, again)
    take_samples("kill", TORCHFT, (each for each in more_samples), 3, again)
    assert Book(file).entry("kill", "torchrun").values("next") == [4.0, 0.0, 1.0]
    assert Book(file).entry("kill", "torchft").values("next") == [0.0, 1.0, 2.0]
    assert [too_many(TORCHRUN, agents, again) for agents in (1_000, 4_000, 10_000)] == [0, 0, 4_000]
    again.close()
    with pytest.raises(ValueError, match="--fresh"):
        Book(file).began("third", {"torch": "3.0"})


KEPT: Sample = {"next": 0.1, "full": 2.1, "stall": 0.4}
SAVED: Sample = {"next": 0.9, "block": 0.5}


@pytest.mark.parametrize(
    ("system", "sample", "lost"),
    [
        (OURS, KEPT, 0.1 + 2.0 / 2 + 0.4),  # no save, no step again: two pauses, and half the speed
        (TORCHFT, KEPT, 0.1 + 2.0 / 2 + 0.4),
        (
            RESTARTED,
            SAVED,
            10 + 0.9 + 10 / 2 - 5,
        ),  # ten saves of 0.5 s, one each 10 s, and half of 10 s again
        (OURS, KEPT | {"full": None}, None),
        (RESTARTED, {}, None),
    ],
)
def test_a_single_loss_costs_saves_only_where_it_costs_the_state(
    system: System, sample: Sample, lost: float | None
) -> None:
    share = goodput_of(system, Entry([sample]), between=100.0)
    assert share == (lost if lost is None else pytest.approx(1 - lost / 100))


@pytest.mark.parametrize("together", [AFTER, AFTER - 1])
def test_the_pauses_of_the_worker_that_is_left_are_told(tmp_path: Path, together: int) -> None:
    job = Job(OURS, Site(ONE_NODE, 0, "job"), tmp_path, 0.2, {}, [])
    alone = [
        (7.0, 1, 1),
        (7.1, 2, 1),
        (7.2, 2, 1),
    ]  # when, round, workers: at 7.0 still both
    both = [(7.9 + 0.1 * index, 3, 2) for index in range(together)]
    for at, life, world in alone + both:
        for pid in (10, 12):
            job.steps.put({"at": at - pid / 1e9, "life": life, "world": world, "pid": pid})
    found = pauses(job, 6.9, {10: {"life": 1}, 11: {"life": 1}}, survivor=10)
    stall = pytest.approx(0.7) if together == AFTER else None
    assert found == {"next": pytest.approx(0.2), "full": pytest.approx(1.0), "stall": stall}


def test_goodput_at_rare_faults_is_what_saves_and_faults_leave() -> None:
    """A save of 2 s each 100 s (Young: sqrt(2 * 2 * 2500)); a fault each 2,500 s costs 25 + 50 s."""
    assert goodput(block=2.0, still=25.0, between=2500.0) == pytest.approx(1 - 0.02 - 75 / 2500)
