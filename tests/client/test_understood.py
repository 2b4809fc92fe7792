"""Which lines of a job's logs a filter leaves: by level, by rank and by time, in both forms."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from elasticjob.api.logs import Entry, for_people, for_programs
from elasticjob.client.understood import Filter, Understanding
from elasticjob.kube.objects.kinds import Key

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
AT = int(NOON.timestamp()) * 10**9
ONE = Entry(NOON, "info", "round 1: 1 worker", job="digits", rank=3, round=1)
TWO = Entry(NOON, "info", "round 2: 2 workers", job="digits", rank=4, workers=2, round=2)
LOST = Entry(NOON, "warning", "lost", job="digits", rank=3, round=1)


def entries(*lines: str) -> list[Entry]:
    known = Understanding(Key("team", "digits"))
    return [known.entry("uid", "worker-1", AT, line) for line in lines]


@pytest.mark.parametrize("form", [for_people, for_programs])
def test_a_scripts_lines_are_of_the_rank_that_the_agent_has_now(form: type) -> None:
    found = entries("begins", form(ONE), "loss 1", form(TWO), "[default1]:loss 2", "[default0]:x", "loss 3")
    assert [each.rank for each in found] == [None, 3, 3, 4, 5, 4, None]
    assert {(each.namespace, each.job, each.node) for each in found} == {
        ("team", "digits", "digits-worker-1")
    }
    assert {each.level for each in found} == {"info"}
    assert [each.message for each in found if Filter(rank=5).has(each)] == [TWO.message, "[default1]:loss 2"]


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (Filter(), 3),
        (Filter(level="info"), 3),
        (Filter(level="warning"), 1),
        (Filter(level="error"), 0),
        (Filter(rank=3), 3),
        (Filter(rank=0), 0),
        (Filter(since=NOON), 3),
        (Filter(since=datetime(2026, 11, 30, 12, 0, 1, tzinfo=UTC)), 0),
    ],
)
def test_a_filter_leaves_what_is_asked_for(wanted: Filter, kept: int) -> None:
    found = entries(for_people(ONE), for_programs(LOST), '{"loss": 1}')
    assert len([each for each in found if wanted.has(each)]) == kept
