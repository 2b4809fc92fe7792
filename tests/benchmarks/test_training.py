"""What the benchmark of training computes, and what it keeps between two runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.training.__main__ import hopeless, take_samples, too_many
from benchmarks.training.book import Book, Entry, Sample
from benchmarks.training.sheet import cell, more
from benchmarks.training.systems import OURS, TORCHFT, TORCHRUN, Shape

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
    again.began("second", VERSIONS)
    more_samples: list[Sample] = [{"next": float(each)} for each in range(10)]
    take_samples("kill", TORCHRUN, (each for each in more_samples), 3, again)
    take_samples("kill", TORCHFT, (each for each in more_samples), 3, again)
    assert Book(file).entry("kill", "torchrun").values("next") == [4.0, 0.0, 1.0]
    assert Book(file).entry("kill", "torchft") == Entry(reason="no wheel")
    assert [too_many(TORCHRUN, agents, again) for agents in (1_000, 4_000, 10_000)] == [0, 0, 4_000]
    with pytest.raises(ValueError, match="--fresh"):
        Book(file).began("third", {"torch": "3.0"})


def test_systems_with_groups_have_a_node_for_each_worker() -> None:
    assert TORCHFT.shape(Shape(nodes=1, workers=2)) == Shape(nodes=2, workers=1)
    assert OURS.shape(Shape(nodes=1, workers=2)) == Shape(nodes=1, workers=2)
