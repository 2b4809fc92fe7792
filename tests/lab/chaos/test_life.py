"""The soak of ordinary life: what it draws, how its storage fails, what it calls wrong, and two lives."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from elasticjob.api.rpc import environment as names
from elasticjob.trainer.checkpoint.arrays import block_of
from elasticjob.trainer.checkpoint.part import Head
from elasticjob.trainer.checkpoint.storage import Manifest, Storage
from lab.jobs.life import play, trainings
from lab.jobs.life.cases import Begun, Case, Place, Stop, drawn, suits
from lab.jobs.life.play import stored
from lab.story import Length, Outcome, Story, tell
from lab.troubles import faults
from lab.troubles import ordinary as troubles
from lab.truths import lives
from lab.truths.lives import Ending, Lived, Stored, judged
from lab.truths.model import distance
from lab.truths.records import lineage

SIZE, STEPS = 4, 4  # records of an epoch, each of two steps; two epochs

WELL = Lived(
    number=1,
    steps=STEPS,
    records=SIZE,
    before=Stored(),
    after=Stored(STEPS, any=True),
    succeeded=True,
    stopped="",
    still=False,
    said=(),
    left=(),
    asks="",
    storage_failed=False,
)
STATE = {"model": [0.5, 1.0]}


def lines(first: int = 1, last: int = STEPS, life: int = 1, round: int = 1) -> list[dict[str, Any]]:
    """The lines of a life that does some steps of two records each."""
    said: list[dict[str, Any]] = [{"begins": first - 1}]
    for step in range(first, last + 1):
        place = {"step": step, "epoch": (step - 1) // 2, "round": round}
        at = (step - 1) % 2 * 2
        said += [{**place, "records": [at]}, {**place, "records": [at + 1]}, {"done": step, "round": round}]
    said += [{"end": STATE}] if last == STEPS else []
    return [{**line, "life": life, "at": 100.0 * life + index} for index, line in enumerate(said)]


def test_a_case_is_drawn_from_its_seed_and_number_alone() -> None:
    assert drawn(3, 17) == drawn(3, 17)
    assert str(drawn(3, 17)) != str(drawn(4, 17))
    every = [drawn(3, number) for number in range(240)]
    for block in range(0, 240, 12):
        assert len({case.training.name for case in every[block : block + 12]}) == 12
    assert {name for case in every for name in case.troubles} == troubles.NAMED.keys()
    for case in every:
        assert len(case.lives) <= case.training.most
        assert [life.stop is None for life in case.lives] == [False] * (len(case.lives) - 1) + [True]
        assert not case.lives[0].before
        for life in case.lives:
            assert all(suits(each, case.training) for each in (*life.before, *life.during))
            assert life.stop is None or 0 < life.stop.step < case.training.arguments.steps


GHOST = [*lines(), {**lines()[1], "records": [1]}]  # of a worker without records of its own
TWICE = [*lines(), {**lines()[1], "records": [3]}]
ANEW = [{**line, "at": line["at"] + 50} for line in lines(1, 2, round=2)]
AGAIN = [*lines(), *({**line, "pid": 2} for line in lines() if "done" in line), *ANEW]
STOPPED = replace(WELL, succeeded=False, stopped="SIGTERM", after=Stored(2, any=True))
SECOND = replace(WELL, number=2, before=STOPPED.after)
REFUSED = replace(
    WELL, succeeded=False, after=Stored(), asks="place|storage", said=("the place is away: mount it",)
)
BOTH = [*lines(1, 2), *lines(3, life=2)]


@pytest.mark.parametrize(
    ("lives", "said", "outcome", "why"),
    [
        ([WELL], lines(), Ending.EQUAL, ""),
        ([STOPPED, SECOND], BOTH, Ending.EQUAL, ""),
        ([STOPPED, SECOND], [*lines(1, 3), *lines(3, life=2)], Ending.EQUAL, ""),  # step 3 was made again
        ([REFUSED], [], Ending.REFUSED, "the place is away: mount it"),
        ([replace(REFUSED, said=("TimeoutError",))], [], Ending.WRONG, "without a sentence"),
        ([replace(REFUSED, asks="")], [], Ending.WRONG, "although nothing asked for it"),
        ([replace(REFUSED, before=Stored(2, any=True))], [], Ending.WRONG, "step 2 cannot be read any more"),
        ([WELL], GHOST, Ending.EQUAL, ""),
        ([WELL], TWICE, Ending.WRONG, "epoch 0: 1 records came twice, 0 never"),
        (
            [WELL],
            [x for x in lines() if x.get("records") != [1]],
            Ending.WRONG,
            "0 records came twice, 1 never",
        ),
        ([WELL], [x for x in lines() if x.get("done") != 3], Ending.WRONG, "steps [3] were never done"),
        ([WELL], AGAIN, Ending.WRONG, "began at step 0 after the last step was done"),
        (
            [WELL],
            [*lines(), *ANEW, *lines(3, round=3)],
            Ending.EQUAL,
            "",
        ),  # a lone worker was lost at the end
        ([replace(WELL, after=Stored(2, any=True))], lines(), Ending.WRONG, "step 2 of 4 is the newest"),
        ([replace(WELL, before=Stored(2, any=True))], lines(), Ending.WRONG, "although step 2 was stored"),
        ([replace(WELL, before=Stored(0, any=True))], lines(), Ending.WRONG, "all checkpoints are damaged"),
        ([replace(WELL, left=("block slot-0",))], lines(), Ending.WRONG, "left behind: block slot-0"),
        ([replace(WELL, still=True)], lines(), Ending.WRONG, "stood still"),
        ([WELL], lines()[:-1], Ending.WRONG, "no worker wrote its result"),
        (
            [replace(STOPPED, after=Stored()), replace(SECOND, before=Stored())],
            [*lines(1, 3), *lines(1, life=2)],
            Ending.WRONG,
            "stopped by SIGTERM after step 3, and step 0 is stored",
        ),
    ],
)
def test_the_oracle_names_what_was_lost_doubled_or_left(
    lives: list[Lived], said: list[dict[str, Any]], outcome: Ending, why: str
) -> None:
    found, sentences = judged(lives, said, STATE)
    assert found == outcome, sentences
    assert why in "; ".join(sentences)


def test_states_are_compared_bit_by_bit_unless_sums_may_have_another_order() -> None:
    told = lines()
    far = {"model": [0.5, 1.0 + 2**-52]}
    assert judged([WELL], told, far)[0] == Ending.WRONG
    assert judged([WELL], told, far, near=1e-9)[0] == Ending.EQUAL
    assert judged([WELL], told, None)[0] == Ending.EQUAL  # after other arguments
    assert distance([1, "a"], [1, "b"]) == distance([1], [1, 2]) == float("inf")
    assert distance([float("nan")], [float("nan")]) == 0


def test_steps_after_the_one_at_which_a_later_life_begins_do_not_count() -> None:
    first, second = lines(1, 4), lines(2, 3, life=2)
    assert lineage([*first, *second]) == {1: (1, 1), 2: (2, 1), 3: (2, 1)}


def test_of_two_leases_of_a_shard_the_larger_counts() -> None:
    told = [{"epoch": 0, "shard": 0, "lease": 1, "record": record, "life": 1} for record in (0, 1)]
    told += [{"epoch": 0, "shard": 0, "lease": 2, "record": record, "life": 1} for record in range(SIZE)]
    assert judged([WELL], told, {}, shards=True) == (Ending.EQUAL, [])
    assert judged([WELL], told[:-1], {}, shards=True)[1] == ["epoch 0: 0 records came twice, 1 never"]
    begun = [{"begins": 0, "life": 1, "at": 0.0}] * (WELL.nodes + 1)  # one was lost with what it had read
    assert judged([WELL], [*begun, *told[:-1]], {}, shards=True, ahead=1)[0] == Ending.EQUAL
    assert judged([WELL], [*begun, *told[:-2]], {}, shards=True, ahead=1)[0] == Ending.WRONG


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place whose files go through the faulty functions, on a node called here."""
    monkeypatch.setenv(faults.FOLDER, str(tmp_path))
    monkeypatch.setenv(names.NODE, "here")
    monkeypatch.setattr(faults, "LATE", 0.0)
    (tmp_path / "saved").mkdir()
    return tmp_path / "saved"


@pytest.mark.parametrize(
    ("kind", "reads", "writes"),
    [
        ("timeout", errno.ETIMEDOUT, errno.ETIMEDOUT),
        ("missing", errno.ENOENT, errno.ENOENT),
        ("readonly", 0, errno.EROFS),
        ("full", 0, errno.ENOSPC),
        ("slow", 0, 0),
    ],
)
def test_storage_fails_as_it_is_told_to_and_only_there(
    storage: Path, kind: str, reads: int, writes: int
) -> None:
    (storage / "old").write_bytes(b"old")

    def tried(*call: Any) -> int:
        try:
            with faults.opened(*call) as file:
                if call[1] == "wb":
                    file.write(b"x" * 2 * faults.ROOM)
        except OSError as error:
            return error.errno or -1
        return 0

    for node, counts in (("", True), ("here", True), ("there", False)):
        (storage.parent / "storage").write_text(json.dumps({"kind": kind, "node": node}))
        assert tried(storage / "old", "rb") == reads * counts
        assert tried(storage / "new", "wb") == writes * counts
        assert tried(storage.parent / "elsewhere", "wb") == 0
        listed = faults.guarded("listdir", writes=False)
        if reads and counts:
            with pytest.raises(OSError, match=os.strerror(reads)):
                listed(storage)
        else:
            assert "old" in listed(storage)
    assert (storage.parent / "saving").exists()


def test_a_clock_jumps_on_the_node_that_is_named(storage: Path) -> None:
    (storage.parent / "clock").write_text(json.dumps({"here": -86400}))
    assert -86401 < faults.clock() - time.time() < -86399
    (storage.parent / "clock").write_text(json.dumps({"there": -86400}))
    assert abs(faults.clock() - time.time()) < 1


def test_an_object_is_there_when_it_is_closed_and_whole(storage: Path) -> None:
    bucket = faults.Bucket()
    with bucket.open(f"life://{storage}/a", "wb") as file:
        file.write(b"whole")
        assert not bucket.exists(f"life://{storage}/a")
    assert bucket.cat_file(f"life://{storage}/a") == b"whole"
    (storage.parent / "storage").write_text(json.dumps({"kind": "full"}))
    with pytest.raises(OSError, match="No space"), bucket.open(f"life://{storage}/b", "wb") as file:
        file.write(b"x" * 2 * faults.ROOM)
    assert os.listdir(storage) == ["a"]


def test_a_damaged_checkpoint_is_one_that_the_library_refuses(tmp_path: Path) -> None:
    place = Storage(str(tmp_path))
    for step in (10, 20):
        part, head = place.write(block_of(Head(step=step, round=1), {"w": np.arange(256)}))
        place.commit(Manifest(step, 1, (part,)), [head], keep=2)
    assert stored(tmp_path) == Stored(20, any=True)
    troubles.damage_newest(tmp_path, Random(1))
    assert stored(tmp_path) == Stored(10, any=True)
    troubles.damage_all(tmp_path, Random(1))
    assert stored(tmp_path).lost


@pytest.mark.story
async def test_two_lives_of_a_training_with_slow_storage_end_as_one(tmp_path: Path) -> None:
    training = trainings.NAMED["weights"]
    slow = troubles.NAMED["storage-slow"]
    stop = Stop(30, signal.SIGTERM)
    first = Begun(training.arguments, (), (slow,), stop)
    case = Case(0, training, (first, replace(first, stop=None)), Place.OBJECTS)
    outcome = Outcome("life", 0)
    story = Story(3, 0, Length(), print, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(play, "drawn", lambda *_: case)
        async with play.nursery(tmp_path, play.JOBS[0]) as here:
            await tell(play.JOBS[0], here, story, dict.fromkeys(troubles.TROUBLES, 1), lives.TRUTHS, outcome)
    assert not outcome.wrong
    assert outcome.troubles == {"storage-slow": 2}
    assert outcome.figures["ending"] == Ending.EQUAL
