"""What doctor read of broken jobs and clusters → the first line of what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from elasticjob.api.troubles.causes import CAUSES
from lab.diagnoses.__main__ import STORIES
from lab.diagnoses.recorded import KEPT, examined

TOLD = {each["story"]: each for each in yaml.safe_load(STORIES.read_text())}


def name_of(story: str) -> Path:
    return KEPT / f"{story.replace(' ', '-').lower()}.yaml"


def test_each_story_is_recorded_and_has_a_cause_of_the_table() -> None:
    assert {name_of(story) for story in TOLD} == set(KEPT.glob("*.yaml"))
    assert {each["cause"] for each in TOLD.values()} <= CAUSES.keys()
    assert len(TOLD) >= 40


@pytest.mark.parametrize("story", TOLD)
def test_the_first_line_names_the_cause(story: str) -> None:
    first = examined(yaml.load(name_of(story).read_text(), yaml.CSafeLoader))[0]
    assert first.cause == TOLD[story]["cause"]
    assert TOLD[story].get("first", "") in first.sentence
    assert first.grade == TOLD[story].get("grade", "wrong")
    assert first.act or first.commands
