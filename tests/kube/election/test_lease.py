"""The rules of a Lease, row by row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from elasticjob.kube.election.lease import Candidate, Look, Lost, Step, Terms, Wait, Write, micro_time
from elasticjob.kube.objects.views import LEASE, Lease

WALL = datetime(2026, 1, 1, tzinfo=UTC)
RETRY, RENEW, DURATION = 2.0, 10.0, 15.0


def lease(holder: str, version: int = 1, *, seconds: int | None = 15, renewed: datetime = WALL) -> Lease:
    spec: dict[str, Any] = {
        "holderIdentity": holder,
        "leaseDurationSeconds": seconds,
        "acquireTime": micro_time(WALL),
        "renewTime": micro_time(renewed),
        "leaseTransitions": 3,
    }
    return LEASE.convert({"metadata": {"name": "l", "resourceVersion": str(version)}, "spec": spec})


def leader(at: float = 100.0) -> Candidate:
    """Has just won, with a write that began at that moment."""
    return Candidate("me").looked(None, at, 0).wrote(lease("me"), at, at)


def test_a_candidate_looks_first_and_makes_a_lease_where_there_is_none() -> None:
    assert Candidate("me").next(0, WALL) == Look()
    step = Candidate("me").looked(None, 0, 0).next(0, WALL)
    assert step == Write(
        {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:00.000000Z",
            "leaseTransitions": 0,
        },
        "",
    )


@pytest.mark.parametrize("holder", ["", "me"])
def test_a_released_lease_and_my_own_are_taken_at_once(holder: str) -> None:
    step = Candidate("me").looked(lease(holder, 7), 0, 0).next(0, WALL)
    assert isinstance(step, Write)
    assert (step.version, step.spec["holderIdentity"]) == ("7", "me")


@pytest.mark.parametrize(("holder", "transitions"), [("other", 4), ("", 4), ("me", 3)])
def test_transitions_count_changes_of_the_holder(holder: str, transitions: int) -> None:
    seen = Candidate("me").looked(lease(holder), 0, 0)
    step = seen.looked(lease(holder), 100, 0).next(100, WALL)
    assert isinstance(step, Write)
    assert step.spec["leaseTransitions"] == transitions


@pytest.mark.parametrize(
    ("looks", "then"),
    [
        # (when, version, renewed) …                                        what it does at the last of them
        (((0, 1, 0),), Wait(RETRY)),
        (((0, 1, 0), (14.9, 1, 0)), Wait(0.1)),
        (((0, 1, 0), (15, 1, 0)), Write),
        (((0, 1, 0), (14, 2, 1), (15, 2, 1)), Wait(RETRY)),
        (((0, 1, 0), (14, 2, 1), (29, 2, 1)), Write),
        (((0, 1, 0), (14, 2, 0), (15, 2, 0)), Write),  # another version of the same record: it was annotated
        (((0, 1, 0), (14, 2, -3600), (15, 2, -3600)), Wait(RETRY)),  # renewed, by a clock that stepped back
    ],
)
def test_a_record_expires_when_it_was_not_seen_to_change(
    looks: tuple[tuple[float, int, int], ...], then: type[Write] | Wait
) -> None:
    candidate = Candidate("me")
    for at, version, renewed in looks:
        candidate = candidate.looked(
            lease("other", version, renewed=WALL + timedelta(seconds=renewed)), at, 0
        )
    step = candidate.next(looks[-1][0], WALL)
    assert step == then or (isinstance(then, type) and isinstance(step, then)) or _about(step, then)


def _about(step: Step, then: object) -> bool:
    return isinstance(step, Wait) and isinstance(then, Wait) and step.seconds == pytest.approx(then.seconds)


@pytest.mark.parametrize("wall", [WALL - timedelta(hours=1), WALL, WALL + timedelta(days=400)])
def test_the_holders_times_are_not_compared_with_the_clock_on_the_wall(wall: datetime) -> None:
    candidate = Candidate("me").looked(lease("other"), 0, 0)
    assert candidate.next(0, wall) == Wait(RETRY)
    assert Candidate("me").looked(lease("other"), 0, 0.5).next(0, wall) == Wait(RETRY * 1.6)  # not together
    assert isinstance(candidate.looked(lease("other"), 15, 0).next(15, wall), Write)


@pytest.mark.parametrize(("seconds", "expires"), [(60, 60.0), (1, 1.0), (None, 15.0)])
def test_a_records_own_duration_decides(seconds: int | None, expires: float) -> None:
    assert Candidate("me").looked(lease("other", seconds=seconds), 0, 0).expires == expires


def test_a_lease_that_was_deleted_is_not_free_before_its_record_has_expired() -> None:
    candidate = Candidate("me").looked(lease("other"), 0, 0).looked(None, 5, 0)
    assert candidate.next(5, WALL) == Wait(RETRY)
    step = candidate.looked(None, 15, 0).next(15, WALL)
    assert isinstance(step, Write)
    assert step.version == ""


def test_a_leader_renews_every_retry_period_upon_its_own_last_write() -> None:
    assert leader(100).next(100.5, WALL) == Wait(1.5)
    step = leader(100).next(102, WALL)
    assert isinstance(step, Write)
    assert step.version == "1"
    assert (step.spec["acquireTime"], step.spec["leaseTransitions"]) == (micro_time(WALL), 3)


@pytest.mark.parametrize("step_back", [timedelta(), timedelta(hours=1)])
def test_no_record_is_ever_repeated(step_back: timedelta) -> None:
    """Whoever looks now and then would take it for one that was not renewed."""
    candidate, seen = leader(100), {WALL}
    for turn in range(1, 5):
        step = candidate.next(100 + RETRY * turn, WALL - step_back)
        assert isinstance(step, Write)
        renewed = datetime.fromisoformat(step.spec["renewTime"])
        assert renewed not in seen
        seen.add(renewed)
        now = 100 + RETRY * turn
        candidate = candidate.wrote(lease("me", turn + 1, renewed=renewed), now, now)


def test_a_deadline_counts_from_the_start_of_the_write() -> None:
    won = Candidate("me").looked(None, 100, 0).wrote(lease("me"), 100, 104)
    assert won.deadline == 110


def test_an_answer_that_comes_too_late_is_no_win() -> None:
    late = Candidate("me").looked(None, 100, 0).wrote(lease("me"), 100, 110)
    assert not late.leads
    assert late.next(110, WALL) == Look()


def test_a_leader_that_cannot_renew_has_lost_at_the_deadline() -> None:
    candidate = leader(100).failed(102.1, 0)
    assert candidate.next(109.9, WALL) == Look()
    assert candidate.next(110, WALL) == Lost("the lease could not be renewed within 10 s")


def test_a_leader_waits_no_longer_than_its_deadline() -> None:
    candidate = leader(100).failed(102, 0)
    for _ in range(3):
        candidate = candidate.failed(candidate.due, 0)
    assert candidate.due == 110
    candidate = candidate.failed(109.5, 0)
    assert candidate.next(109.5, WALL) == Wait(0.5)


def test_a_request_that_hung_is_tried_again_at_once_and_one_that_was_refused_after_a_while() -> None:
    assert leader(100).failed(107, 0).next(107, WALL) == Look()
    assert leader(100).failed(102, 0).next(102, WALL) == Wait(RETRY)


def test_a_leader_in_conflict_looks_at_once_and_goes_on_where_it_still_holds_the_lease() -> None:
    candidate = leader(100).failed(102, 0, conflict=True)
    assert candidate.next(102, WALL) == Look()
    step = candidate.looked(lease("me", 9), 102, 0).next(102, WALL)
    assert isinstance(step, Write)
    assert step.version == "9"
    again = candidate.looked(lease("me", 9), 102, 0).failed(102, 0, conflict=True)
    assert again.next(102, WALL) == Wait(RETRY)  # no hot loop


@pytest.mark.parametrize(
    ("holder", "why"), [("other", "the lease is held by 'other' now"), ("", "the lease was released")]
)
def test_a_leader_that_sees_another_holder_has_lost_at_once(holder: str, why: str) -> None:
    assert leader(100).looked(lease(holder, 9), 103, 0).next(103, WALL) == Lost(why)


def test_a_leader_whose_lease_was_deleted_makes_it_anew() -> None:
    step = leader(100).looked(None, 103, 0).next(103, WALL)
    assert isinstance(step, Write)
    assert step.version == ""


def test_release_gives_the_lease_to_nobody_for_a_second() -> None:
    step = leader(100).release(WALL + timedelta(seconds=1))
    assert step is not None
    assert step.version == "1"
    assert (step.spec["holderIdentity"], step.spec["leaseDurationSeconds"]) == ("", 1)


def test_nobody_releases_what_is_not_his() -> None:
    assert Candidate("me").looked(lease("other"), 0, 0).release(WALL) is None
    assert leader(100).looked(lease("other", 9), 103, 0).release(WALL) is None
    assert leader(100).failed(103, 0).release(WALL) is None


@pytest.mark.parametrize(
    ("duration", "renew", "retry"), [(15, 15, 2), (15, 2.4, 2), (15, 10, 0), (10, 15, 2), (-1, -2, -3)]
)
def test_terms_that_cannot_work_are_refused(duration: float, renew: float, retry: float) -> None:
    with pytest.raises(ValueError, match="write lease > renew"):
        Terms(*(timedelta(seconds=seconds) for seconds in (duration, renew, retry)))


def test_a_fraction_of_a_second_makes_the_written_duration_longer_and_never_shorter() -> None:
    terms = Terms(timedelta(seconds=1.5), timedelta(seconds=1), timedelta(seconds=0.2))
    assert terms.written == 2
