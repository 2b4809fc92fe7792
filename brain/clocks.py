"""Times of records by Brain's clock: those of masters may be minutes ahead or behind. Pure.

A request says in its Date header what the clock of its sender shows. A record that comes again must get the
same time again, since it is kept once. So a small difference counts as none, and the difference of a master
is remembered until it has changed by more than what a request takes.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec

TOLERANCE: Final = timedelta(seconds=5)
"""Differences below this are those of requests on their way, and of Date, which has whole seconds."""
STEP: Final = 10
"""Seconds to which differences are rounded, so that other replicas of Brain find the same."""
REMEMBERED: Final = 10_000
"""Masters whose differences are remembered."""
OLDEST: Final = timedelta(days=1)
"""No record is older: a master keeps those of minutes for a Brain that is away."""


class Clocks:
    """How far the clocks of masters are ahead of Brain's, by the uid of the job."""

    def __init__(self) -> None:
        self._ahead: OrderedDict[str, timedelta] = OrderedDict()

    def ahead(self, uid: str, date: str, now: datetime) -> timedelta:
        """Return the difference for a request with this Date header; none if it has no readable one."""
        try:
            measured = parsedate_to_datetime(date).astimezone(UTC) - now
        except (ValueError, TypeError, OverflowError):
            return timedelta()
        known = self._ahead.pop(uid, timedelta())
        if abs(measured - known) > TOLERANCE + timedelta(seconds=STEP / 2):
            known = timedelta(seconds=STEP * round(measured / timedelta(seconds=STEP)))
        self._ahead[uid] = known
        if len(self._ahead) > REMEMBERED:
            self._ahead.popitem(last=False)
        return known


def by_our_clock(asked: Any, ahead: timedelta, now: datetime) -> Any:
    """Return a request with the times of its records by Brain's clock, which none is ahead of."""
    records = tuple(
        msgspec.structs.replace(each, at=_within(each.at, ahead, now))
        for each in getattr(asked, "records", ())
    )
    return msgspec.structs.replace(asked, records=records) if records else asked


def _within(at: datetime, ahead: timedelta, now: datetime) -> datetime:
    if at >= now + ahead:
        return now
    return max(at, now + ahead - OLDEST).astimezone(UTC) - ahead
