"""Records of masters whose clocks are ahead of Brain's or behind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from elasticjob.api.rpc.brain import AskSizes, TellStatistics
from elasticjob.api.sizes.facts import JobFacts, Sample, Stage
from elasticjob.brain.clocks import OLDEST, Clocks, by_our_clock

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
JOB = JobFacts(namespace="team", name="digits", uid="u1")


def told(*moments: datetime) -> TellStatistics:
    return TellStatistics(job=JOB, records=tuple(Sample(at=at, workers=1) for at in moments))


@pytest.mark.parametrize("ahead", [timedelta(minutes=n) for n in (-10, 0, 10)])
def test_records_get_times_of_brains_clock_and_the_same_ones_again(ahead: timedelta) -> None:
    clocks, found = Clocks(), set[datetime]()
    for late in (0.0, 0.3, 1.0, 2.7, 4.0):  # seconds that the request takes
        now = NOW + timedelta(seconds=late)
        date = format_datetime(NOW + ahead, usegmt=True)
        (record,) = by_our_clock(told(NOW + ahead), clocks.ahead("u1", date, now), now).records
        found.add(record.at)
    assert found == {NOW}


@pytest.mark.parametrize(
    "date", ["", "no date", "Mon, 99 Nov 2026 12:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 -1200"]
)
def test_a_date_that_cannot_be_read_changes_nothing(date: str) -> None:
    assert Clocks().ahead("u1", date, NOW) == timedelta()


def test_a_clock_that_is_set_counts_from_then_on() -> None:
    clocks = Clocks()
    for minutes in (0, 10, 10, 0):
        date = format_datetime(NOW + timedelta(minutes=minutes), usegmt=True)
        assert clocks.ahead("u1", date, NOW) == timedelta(minutes=minutes)
    assert clocks.ahead("u2", format_datetime(NOW, usegmt=True), NOW) == timedelta()


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-23:00", "0001-01-01T00:00:00+23:00"])
def test_no_record_is_of_the_future_or_of_long_ago(text: str) -> None:
    for ahead in (timedelta(minutes=10), timedelta(minutes=-10)):
        (record,) = by_our_clock(told(datetime.fromisoformat(text)), ahead, NOW).records
        assert record.at in (NOW, NOW - OLDEST)
    first = AskSizes(job=JOB, stage=Stage.CREATE)
    assert by_our_clock(first, timedelta(minutes=10), NOW) == first
