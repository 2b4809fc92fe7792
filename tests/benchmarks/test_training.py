"""What the benchmark of training computes, and what it keeps between two runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.training.__main__ import chosen, hopeless, systems_named, take_samples, too_many
from benchmarks.training.book import Book, Entry, Sample
from benchmarks.training.load import KINDS
from benchmarks.training.sheet import cell, more, sheet
from benchmarks.training.systems import DLROVER, OURS, SYSTEMS, TORCHFT, TORCHRUN, Shape, last_error

VERSIONS = {"torch": "2.15.0"}


@pytest.mark.parametrize(
    ("samples", "reason", "text"),
    [
        ([], "", "–"),
        ([], "it needs a GPU", "not here"),
        ([None, None], "", "none of 2 in 90 s"),
        ([1.0, None, 3.0], "", "2.00 (1.00–3.00), 2 of 3"),
        ([0.04], "", "0.040"),
    ],
)
def test_a_cell_tells_what_came_in_time(samples: list[float | None], reason: str, text: str) -> None:
    assert cell(Entry([{"next": sample} for sample in samples], reason), "next", patience=90) == text


def test_steps_are_compared_turn_by_turn() -> None:
    assert more([11.0, 22.0, 12.0], [10.0, 20.0, 10.0]) == "+2.00 (+1.00–+2.00), +10.0%"
    assert more([1.0], []) == "–"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("W1: warning\nValueError: no\nE1: failed\n  at line 3", "ValueError: no"),
        (
            "collecting\nERROR: No matching distribution found for torchft",
            "ERROR: No matching distribution found for torchft",
        ),
        ("line one\nline two\n\n", "line two"),
        ("", "it said nothing"),
    ],
)
def test_the_reason_is_the_last_error(text: str, found: str) -> None:
    assert last_error(text) == found


@pytest.mark.parametrize(
    ("samples", "given_up"),
    [
        ([], False),
        ([None], False),
        ([None, None], True),
        ([1.0, None, None], True),
        ([None, 1.0], False),
    ],
)
def test_what_did_not_come_twice_is_not_tried_again(samples: list[float | None], given_up: bool) -> None:
    assert hopeless([{"next": sample, "full": None} for sample in samples]) is given_up


def test_measurements_are_chosen_by_name_and_by_group() -> None:
    assert chosen("recovery,step-mlp,kill") == ["kill", "lose", "silent", "cold", "step-mlp"]
    with pytest.raises(ValueError, match="speed"):
        chosen("speed")
    assert systems_named("elasticjob-restart,DLRover") == [SYSTEMS[1], DLROVER]
    with pytest.raises(ValueError, match="horovod"):
        systems_named("horovod")


def test_an_interrupted_run_takes_only_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    book = Book(file)
    book.began("first", VERSIONS)
    book.add("kill", "torchrun", {"next": 4.0, "full": None})
    book.refuse("kill", "torchft", "no wheel")

    again = Book(file)
    again.began("second", VERSIONS)
    more_samples: list[Sample] = [{"next": float(each)} for each in range(10)]
    take_samples("kill", TORCHRUN, (each for each in more_samples), 3, again)
    take_samples("kill", TORCHFT, (each for each in more_samples), 3, again)
    assert Book(file).entry("kill", "torchrun").values("next") == [4.0, 0.0, 1.0]
    assert Book(file).entry("kill", "torchft") == Entry(reason="no wheel")
    assert Book(file).commands == ["first", "second"]
    assert Book(file, fresh=True).entry("kill", "torchrun") == Entry()


def test_more_agents_are_not_tried_where_fewer_did_not_meet(tmp_path: Path) -> None:
    book = Book(tmp_path / "results.json")
    book.add("rendezvous-4000", "torchrun", {"seconds": None})
    assert [too_many(TORCHRUN, agents, book) for agents in (1_000, 4_000, 10_000)] == [0, 0, 4_000]
    assert too_many(OURS, 10_000, book) == 0


def test_samples_of_other_versions_are_not_mixed(tmp_path: Path) -> None:
    book = Book(tmp_path / "results.json")
    book.began("first", VERSIONS)
    book.add("kill", "torchrun", {"next": 4.0})
    with pytest.raises(ValueError, match="--fresh"):
        Book(tmp_path / "results.json").began("second", {"torch": "3.0"})


def test_the_table_has_a_column_for_each_system_and_every_reason(tmp_path: Path) -> None:
    book = Book(tmp_path / "results.json")
    book.began("python -m benchmarks.training", VERSIONS)
    for system, took in ((TORCHRUN, 10.0), (OURS, 10.1)):
        book.add("step-mlp", system.name, {"ms": took})
    book.refuse("cold", DLROVER.name, "ImportError: no")
    book.refuse("silent", DLROVER.name, "ImportError: no")
    table = sheet(book, patience=90)
    assert {len(row) for row in table.rows if row} == {len(SYSTEMS) + 1} == {len(table.heads)}
    (mlp,) = (row for row in table.rows if row and row[0].startswith("step, mlp"))
    assert mlp[1:] == ["+0.10 (+0.10–+0.10), +1.0%", "–", "10.0", "–", "–"]
    assert "DLRover: cold, silent: ImportError: no" in table.notes


def test_systems_with_groups_have_a_node_for_each_worker() -> None:
    assert TORCHFT.shape(Shape(nodes=1, workers=2)) == Shape(nodes=2, workers=1)
    assert OURS.shape(Shape(nodes=1, workers=2)) == Shape(nodes=1, workers=2)
    assert all(kind for called in KINDS.values() for kind in called.values())
