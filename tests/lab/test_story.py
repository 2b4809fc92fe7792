"""A story of rows: its draws, its verdict, how it is repeated; and the sentences of the command line."""

from __future__ import annotations

import asyncio
import io
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lab.__main__ import JOBS, TROUBLES, TRUTHS, app, by_name
from lab.story import (
    Draws,
    Job,
    Length,
    Outcome,
    Scene,
    Story,
    Trouble,
    Truth,
    Weights,
    play,
    printable,
    report,
)
from tests.kit.logs import restored


@dataclass
class Count(Scene):
    """A job that counts."""

    value: int = 0

    async def draws(self, troubles: Weights) -> Draws:
        for trouble in troubles:
            yield trouble
            self.story.look(self)

    async def finish(self) -> None:
        self.figures["value"] = self.value


async def add(scene: Count) -> str:
    scene.value += 1 + scene.story.number
    return "added"


async def nothing(scene: Count) -> str:
    return ""


async def breaks(scene: Count) -> str:
    raise ValueError("it broke")


ADD, NOTHING, BREAKS = (Trouble(act.__name__, Count, act) for act in (add, nothing, breaks))
SMALL = Truth("small", moments=lambda scene: [f"{scene.value} is large"] if scene.value > 2 else [])
ODD = Truth("odd", lambda scene: ["it is even"] if scene.value % 2 == 0 else [])


@asynccontextmanager
async def place(folder: Path, job: Job) -> AsyncIterator[Path]:
    (folder / "log").write_text("all about it")
    yield folder


@asynccontextmanager
async def counting(folder: Path, story: Story) -> AsyncIterator[Count]:
    yield Count(story=story, evidence=(folder / "log", folder / "missing"))


COUNT = Job("count", "counts", ("here",), counting, Count, {}, (), suits=lambda seed, number: number != 2)


async def played(
    *troubles: Trouble, keep: Path | None = None, into: list[Outcome] | None = None, **length: int
) -> list[Outcome]:
    weights = dict.fromkeys(troubles, 1)
    said, outcomes = list[str](), [] if into is None else into
    await play(7, place, COUNT, weights, [SMALL, ODD], Length(**length), said.append, keep, outcomes)
    return outcomes


async def test_sentences_of_all_moments_and_of_the_end_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "count-0").mkdir()  # an earlier run's
    outcomes = await played(ADD, NOTHING, stories=3, keep=tmp_path)
    assert [(each.number, [*each.wrong]) for each in outcomes] == [
        (0, []),
        (1, ["it is even"]),
        (3, ["4 is large", "it is even"]),
    ]
    assert outcomes[0].troubles == {"add": 1, "nothing in vain": 1}
    assert outcomes[0].figures == {"value": 1}
    assert not (tmp_path / "count-0").exists()
    assert (tmp_path / "count-3" / "wrong.txt").read_text() == "4 is large\nit is even\n"
    assert (tmp_path / "count-3" / "log").read_text() == "all about it"


async def test_a_story_that_breaks_is_wrong_and_the_others_go_on() -> None:
    outcomes = await played(BREAKS, first=3, stories=2, at_once=2)
    assert [each.number for each in outcomes] == [3, 4]
    assert all("ValueError: it broke" in next(iter(each.wrong)) for each in outcomes)


async def test_an_interrupted_story_says_so_and_keeps_what_there_is(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def waits(scene: Count) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    outcomes = list[Outcome]()
    waiting = Trouble("waits", Count, waits)
    story = asyncio.create_task(played(waiting, first=3, keep=tmp_path, into=outcomes))
    await begun.wait()
    story.cancel()
    with pytest.raises(asyncio.CancelledError):
        await story
    assert [(each.number, [*each.wrong]) for each in outcomes] == [(3, ["it was interrupted"])]
    assert (tmp_path / "count-3" / "wrong.txt").read_text() == "it was interrupted\n"
    assert (tmp_path / "count-3" / "log").read_text() == "all about it"


async def test_what_killed_programs_leave_goes_with_the_stories() -> None:
    left = list[Path]()

    async def leave(scene: Count) -> str:
        left.append(Path(os.environ["TMPDIR"], "left"))
        left[0].mkdir()
        return "left"

    await played(Trouble("leave", Count, leave))
    assert not left[0].parent.exists()
    assert os.environ.get("TMPDIR") != str(left[0].parent)


async def test_what_is_wrong_is_told_with_the_command_that_repeats_it() -> None:
    outcomes, out = await played(ADD, stories=2), io.StringIO()
    assert report(outcomes, lambda each: f"again {each.number}", None, Console(file=out, width=80)) == 1
    assert re.findall(r"✗ .*|  again: .*|.* of .*", out.getvalue()) == [
        "✗ it is even",
        "  again: again 1",
        "1 of 2 stories ended as they should",
    ]
    assert report(outcomes[:1], str, None, Console(file=out)) == 0
    assert report([], str, None, Console(file=out)) == 1


def test_a_sentence_of_others_does_nothing_to_a_terminal() -> None:
    assert printable("é\x1b[2J\n\x9b31m\0") == "é\\x1b[2J\n\\x9b31m\\x00"


def test_two_rows_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two Trouble rows are named add"):
        by_name([ADD, NOTHING], [Trouble("add", Count, breaks)])


def test_rows_of_a_job_are_there_and_fit_it() -> None:
    for job in JOBS.values():
        assert TRUTHS.keys() >= {*job.truths}
        assert all(issubclass(job.scene, TROUBLES[name].needs) for name in job.troubles), job.name


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--jobs", "digits,digit"], "digit: give some of digits, account"),
        (["--jobs", "digits", "--cluster", "plane"], "digits runs on devcluster: give one of these"),
        (
            ["--jobs", "lineage", "--troubles", "storage"],
            "cannot befall lineage on processes: give some of",
        ),
        (["--jobs", "digits", "--keep", __file__], "is a file"),
        (["--jobs", "lineage", "--truths", "mode"], "mode: give some of no-twins"),
    ],
)
def test_the_command_line_says_what_there_is_instead(flags: list[str], sentence: str) -> None:
    with restored():
        result = CliRunner().invoke(app, ["chaos", *flags])
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())
