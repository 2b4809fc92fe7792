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


def candidate(look: Lease | None, at: float = 0) -> Candidate:
    """Has looked once."""
    return Candidate("me").after_read(look, at, 0)


def leader(at: float = 100.0) -> Candidate:
    """Has just won, with a write that began at that moment."""
    return candidate(None, at).wrote(lease("me"), at, at)


def beside(*looks: tuple[float, int, int]) -> Candidate:
    """Has seen another's record: when, in which version, renewed how many seconds after WALL."""
    seen = Candidate("me")
    for at, version, renewed in looks:
        seen = seen.after_read(lease("other", version, renewed=WALL + timedelta(seconds=renewed)), at, 0)
    return seen


def conflicting() -> Candidate:
    return leader().after_failure(102, 0, conflict=True)


STEPS: dict[str, tuple[Candidate, float, Step | str]] = {
    "looks first": (Candidate("me"), 0, Look()),
    "takes a released lease at once": (candidate(lease("", 7)), 0, "7"),
    "takes its own at once": (candidate(lease("me", 7)), 0, "7"),
    "waits for another's": (beside((0, 1, 0)), 0, Wait(RETRY)),
    "waits until its end": (beside((0, 1, 0), (14.9, 1, 0)), 14.9, Wait(0.1)),
    "takes it at its end": (beside((0, 1, 0), (15, 1, 0)), 15, "1"),
    "waits for one that was renewed": (beside((0, 1, 0), (14, 2, 1), (15, 2, 1)), 15, Wait(RETRY)),
    "takes it when that has ended": (beside((0, 1, 0), (14, 2, 1), (29, 2, 1)), 29, "2"),
    "takes the same record, annotated": (beside((0, 1, 0), (14, 2, 0), (15, 2, 0)), 15, "2"),
    "sees a renewal by a clock that stepped back": (
        beside((0, 1, 0), (14, 2, -3600), (15, 2, -3600)), 15, Wait(RETRY)),
    "waits for a record that was deleted": (candidate(lease("other")).after_read(None, 5, 0), 5, Wait(RETRY)),
    "makes it anew at its end": (
        candidate(lease("other")).after_read(None, 5, 0).after_read(None, 15, 0), 15, ""),
    "renews after a retry period": (leader(), 100.5, Wait(1.5)),
    "renews upon its own last write": (leader(), 102, "1"),
    "has not won by a late answer": (candidate(None, 100).wrote(lease("me"), 100, 110), 110, Look()),
    "looks until its deadline": (leader().after_failure(102.1, 0), 109.9, Look()),
    "has lost at its deadline": (
        leader().after_failure(102.1, 0), 110, Lost("the lease could not be renewed within 10 s")),
    "tries again at once what hung": (leader().after_failure(107, 0), 107, Look()),
    "tries again after a while what was refused": (leader().after_failure(102, 0), 102, Wait(RETRY)),
    "looks at once in conflict": (conflicting(), 102, Look()),
    "goes on where it still holds it": (conflicting().after_read(lease("me", 9), 102, 0), 102, "9"),
    "has no hot loop": (
        conflicting().after_read(lease("me", 9), 102, 0).after_failure(102, 0, conflict=True),
        102, Wait(RETRY)),
    "has lost to another": (
        leader().after_read(lease("other", 9), 103, 0), 103, Lost("the lease is held by 'other' now")),
    "has lost what was released": (
        leader().after_read(lease("", 9), 103, 0), 103, Lost("the lease was released")),
    "makes a lease anew that was deleted": (leader().after_read(None, 103, 0), 103, ""),
}  # fmt: skip


@pytest.mark.parametrize("row", STEPS)
def test_a_candidate(row: str) -> None:
    """A string is the version of the Lease that it takes or renews."""
    seen, now, then = STEPS[row]
    step = seen.next(now, WALL)
    if isinstance(step, Write):
        assert (step.version, step.spec["holderIdentity"]) == (then, "me")
    elif isinstance(step, Wait) and isinstance(then, Wait):
        assert step.seconds == pytest.approx(then.seconds)
    else:
        assert step == then


def test_a_candidate_makes_a_lease_where_there_is_none() -> None:
    assert candidate(None).next(0, WALL) == Write(
        {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:00.000000Z",
            "leaseTransitions": 0,
        },
        "",
    )


@pytest.mark.parametrize(("holder", "transitions"), [("other", 4), ("", 4), ("me", 3)])
def test_transitions_count_changes_of_the_holder(holder: str, transitions: int) -> None:
    step = candidate(lease(holder)).after_read(lease(holder), 100, 0).next(100, WALL)
    assert isinstance(step, Write)
    assert (step.spec["leaseTransitions"], step.spec["acquireTime"]) == (transitions, micro_time(WALL))


@pytest.mark.parametrize("wall", [WALL - timedelta(hours=1), WALL, WALL + timedelta(days=400)])
def test_the_holders_times_are_not_compared_with_the_clock_on_the_wall(wall: datetime) -> None:
    seen = candidate(lease("other"))
    assert seen.next(0, wall) == Wait(RETRY)
    assert Candidate("me").after_read(lease("other"), 0, 0.5).next(0, wall) == Wait(
        RETRY * 1.6
    )  # not together
    assert isinstance(seen.after_read(lease("other"), 15, 0).next(15, wall), Write)


@pytest.mark.parametrize(("seconds", "expires"), [(60, 60.0), (1, 1.0), (None, 15.0)])
def test_a_records_own_duration_decides(seconds: int | None, expires: float) -> None:
    assert candidate(lease("other", seconds=seconds)).expires == expires


@pytest.mark.parametrize("step_back", [timedelta(), timedelta(hours=1)])
def test_no_record_is_ever_repeated(step_back: timedelta) -> None:
    """Whoever looks now and then would take it for one that was not renewed."""
    leading, seen = leader(), {WALL}
    for turn in range(1, 5):
        now = 100 + RETRY * turn
        step = leading.next(now, WALL - step_back)
        assert isinstance(step, Write)
        renewed = datetime.fromisoformat(step.spec["renewTime"])
        assert renewed not in seen
        seen.add(renewed)
        leading = leading.wrote(lease("me", turn + 1, renewed=renewed), now, now)


def test_a_deadline_counts_from_the_start_of_the_write() -> None:
    assert candidate(None, 100).wrote(lease("me"), 100, 104).deadline == 110
    assert not candidate(None, 100).wrote(lease("me"), 100, 110).leads


def test_a_leader_waits_no_longer_than_its_deadline() -> None:
    leading = leader().after_failure(102, 0)
    for _ in range(3):
        leading = leading.after_failure(leading.due, 0)
    assert leading.due == 110
    assert leading.after_failure(109.5, 0).next(109.5, WALL) == Wait(0.5)


def test_release_gives_the_lease_to_nobody_for_a_second() -> None:
    step = leader(100).release(WALL + timedelta(seconds=1))
    assert step is not None
    assert step.version == "1"
    assert (step.spec["holderIdentity"], step.spec["leaseDurationSeconds"]) == ("", 1)


def test_nobody_releases_what_is_not_his() -> None:
    assert Candidate("me").after_read(lease("other"), 0, 0).release(WALL) is None
    assert leader(100).after_read(lease("other", 9), 103, 0).release(WALL) is None
    assert leader(100).after_failure(103, 0).release(WALL) is None


@pytest.mark.parametrize(
    ("duration", "renew", "retry"), [(15, 15, 2), (15, 2.4, 2), (15, 10, 0), (10, 15, 2), (-1, -2, -3)]
)
def test_terms_that_cannot_work_are_refused(duration: float, renew: float, retry: float) -> None:
    with pytest.raises(ValueError, match="write lease > renew"):
        Terms(*(timedelta(seconds=seconds) for seconds in (duration, renew, retry)))


def test_a_fraction_of_a_second_makes_the_written_duration_longer_and_never_shorter() -> None:
    terms = Terms(timedelta(seconds=1.5), timedelta(seconds=1), timedelta(seconds=0.2))
    assert terms.written == 2
