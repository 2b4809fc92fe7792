"""Histories that were wrong once, and some that are drawn: what must be true is true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from lab.simulation.crashes import HISTORIES as OF_CRASHES
from lab.simulation.crashes import ended
from lab.simulation.history import History, Misspelt
from lab.simulation.play import draw, play, shrink
from lab.simulation.truths import Truth

HISTORIES: Final[Mapping[str, str]] = {
    "what nodes have achieved outlives the job that is deleted": """
        seed 8
        0 submit job=a strategy=Local workers=1 least=1 seconds=1 mode=single-job""",
    "a leader that was stopped in a write writes it after another": """
        seed 371
        0 submit job=a strategy=Allreduce workers=4 least=1 seconds=3
        0.3 scale job=a workers=3
        1 depose write=21 seconds=1""",
    "bounds of a TrainingJob that runs, and whose queue may not change": """
        seed 40924
        0 train name=t least=1 most=1
        2 enqueue kind=training name=t queue=b
        5 retrain name=t least=1 most=2""",
    "a TrainingJob that is edited before the operator has seen its ElasticJob": """
        seed 1
        0 train name=t least=1 most=2
        0 crash write=1 when=after back=5
        3 retrain name=t least=1 most=4
        8 end-pod job=t index=0 code=0""",
    "suspended, changed and resumed while its first pods come": """
        seed 30398
        0 submit job=a strategy=Local workers=3 least=1 most=3 exit=1 policy=Never
        0 remake job=a image=v2""",
    "the last line has its consequences": """
        0 submit job=a strategy=Local workers=2 least=1
        60 end-pod job=a index=1 code=0
        60 away seconds=20""",
    "another's Service takes the name of a job that runs": """
        seed 40036
        0 submit job=a strategy=Local workers=2 least=1 ttl=1 deadline=1
        0.02 plan job=a workers=4 manual=no
        0.32 squat job=a kind=services""",
    "an end that is written later is not looked at all the time": """
        seed 3140
        0 submit job=a strategy=Allreduce workers=2 least=1 unit=1 seconds=1
        10 cut write=1 done=no
        13.3 delete-pod job=a index=1""",
    "quota of a pod of which no event ever came": """
        seed 101362
        0 drop kind=pods seconds=10
        2.3 dijob name=d clean=None queue=a
        5.3 remove kind=dijob name=d""",
    "a job that is suspended and resumed at once": """
        seed 228
        0 submit job=a strategy=Local workers=1 least=1 queue=b
        6 suspend job=a on=yes
        6 suspend job=a on=no""",
}
SEEDS: Final = range(24)
SAMPLE: Final = (
    "a job of 2, 3 and 1 workers",
    "a lost machine",
    "in a queue",
    "a TrainingJob that is edited",
)


@pytest.mark.parametrize("lines", HISTORIES.values(), ids=HISTORIES)
def test_a_history_that_was_wrong(lines: str) -> None:
    assert play(History.parse(lines)).wrong == ""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_history(seed: int) -> None:
    outcome = play(draw(seed))
    assert outcome.wrong == "", str(outcome.history)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_history_ends_as_recorded(name: str) -> None:
    """After a change of the product that was looked at: python -m lab simulate --record."""
    assert ended(name)[0] == ""


@pytest.mark.story
@pytest.mark.parametrize("name", sorted({*OF_CRASHES} - {*SAMPLE}))
def test_another_history_ends_as_recorded(name: str) -> None:
    assert ended(name)[0] == ""


def test_the_same_seed_is_the_same_history() -> None:
    first, second = (play(draw(7)) for _ in range(2))
    assert (first.diary, first.objects, first.written) == (second.diary, second.objects, second.written)


def test_a_wrong_history_is_shrunk_to_the_lines_that_show_it() -> None:
    three = Truth("few", rest=lambda world: ["there is c"] if "c" in world.names() else [])
    text = "\n".join(
        f"{at} submit job={job} strategy=Local workers=3 least=1" for at, job in enumerate("abc")
    )
    found = shrink(play(History.parse(f"seed 3\n{text}"), [three]), [three])
    assert found.wrong == "at rest: few: there is c"
    assert str(found.history) == "seed 3\n2 submit job=c strategy=Local workers=1 least=1"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0 fly job=a", "there is no fly"),
        ("0 delete", "give job"),
        ("0 delete job=a force=yes", "delete has no force, but job"),
        ("0 submit job=a workers=2", "give least"),
        ("0 submit job=1 workers=2 least=1", "job is 1: give a word"),
        ("0 submit job=a wrokers=2 workers=2 least=1", "submit has no wrokers"),
        ("0 scale job=a workers=many", "workers is 'many': give a whole number"),
        ("0 scale job=a workers=-1", "give 0 to 50"),
        ("0 suspend job=a on=maybe", "give one of yes, no"),
        ("0 lose machine=mars seconds=1", "give one of n1, n2, n3"),
        ("0 stale kind=zebras versions=1 seconds=1", "give one of pods"),
        ("0 take-away job=a kind=pods", "give one of services"),
        ("0 refuse write=1 code=418", "give one of 409, 429, 500"),
        ("0 crash write=0 when=before back=1", "give 1 to 1000"),
        ("0 restart back=soon", "back is 'soon': give a number"),
        ("0 edit job=a foo=3", "edit has no foo"),
        ("0 scale job=a workers=1 workers=2", "a field is given twice"),
        ("soon delete job=a", "could not convert"),
        ("-1 delete job=a", "give 0 to"),
        ("1", "give SECONDS NAME"),
        ("0 delete a", "is not field=value"),
    ],
)
def test_a_text_that_is_no_history_is_told_with_its_line(text: str, why: str) -> None:
    with pytest.raises(Misspelt, match=why):
        play(History.parse(text))
