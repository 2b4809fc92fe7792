"""The list of Kueue's fields is whole, and stories are written in words that there are."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lab.clusters.plane.kueue import why_missing
from lab.incumbents import batch
from lab.incumbents.batch_play import Side
from lab.incumbents.kueue import unplaced
from lab.incumbents.kueue.acts import ACTS
from lab.incumbents.kueue.fields import gaps
from lab.incumbents.kueue.stage import STORIES


@pytest.mark.plane
@pytest.mark.skipif(bool(why_missing()), reason=why_missing())
def test_each_field_of_kueues_kinds_has_a_story_or_a_reason() -> None:
    assert unplaced() == []


def test_what_is_missing_in_the_list_or_in_the_stories_is_said() -> None:
    found = [*gaps(["StrictFIFO: the head"], ["Workload spec.new", "ClusterQueue spec.queueingStrategy"])]
    assert "Workload spec.new: neither a story nor a reason" in found
    assert "Workload spec.active: Kueue has no such field" in found
    assert "Workload spec.active: no story has 'spec.active false' in its name" in found
    assert not [each for each in found if "queueingStrategy" in each]


def test_stories_are_written_in_words_that_there_are() -> None:
    for story in (each for some in STORIES.values() for each in some.values()):
        acts = ([act] if isinstance(act, str | Mapping) else act for act in story.acts)
        lines = [*story.before, *(line for some in acts for line in some)]
        words = {(each if isinstance(each, str) else next(iter(each))).split()[0] for each in lines}
        assert words <= ACTS.keys()


def test_acts_of_a_job_are_methods() -> None:
    acts = [str(act).split()[0] for story in batch.STORIES.values() for act in story.get("acts", ())]
    assert {*acts} <= {name for name in vars(Side) if not name.startswith("_")}
