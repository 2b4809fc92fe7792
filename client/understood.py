"""What the lines of a job's logs say: their level, their time, and the worker that a line is of.

Lines of our programs say it themselves, in either form. Any other line is a script's, of level info; its
worker is the one whose local rank the agent has written before it, or the node's only one. Which ranks a node
has, the lines of its agent have said before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from elasticjob.api.logs import LEVELS, Entry, read
from elasticjob.kube.objects.kinds import Key

INFO: Final = "info"
_WORKER: Final = re.compile(r"\[[^\[\]\s]*?(\d{1,4})\]:")


@dataclass(frozen=True)
class Filter:
    """Which lines are asked for: of a level or more serious, of a worker and its agent, from a time on."""

    level: str = ""
    rank: int | None = None
    since: datetime | None = None

    def __bool__(self) -> bool:
        return bool(self.level or self.rank is not None or self.since)

    def has(self, entry: Entry) -> bool:
        """Whether a line is asked for."""
        if self.level and LEVELS.index(entry.level) < LEVELS.index(self.level):
            return False
        if self.since and entry.time < self.since:
            return False
        first = entry.rank
        return self.rank is None or (first is not None and first <= self.rank < first + entry.workers)


ALL: Final = Filter()


class Understanding:
    """Understands the lines of the pods of a job, those of a pod in their order."""

    def __init__(self, job: Key) -> None:
        self._job = job
        self._seats: dict[str, Entry] = {}

    def entry(self, pod: str, node: str, at: int, text: str) -> Entry:
        """Return what a line of the pod with that uid says; `at` is its timestamp in ns, 0 for none."""
        place: dict[str, Any] = {"namespace": self._job.namespace, "job": self._job.name}
        place["node"] = f"{self._job.name}-{node}"
        if found := read(text):
            if found.rank is not None:
                self._seats[pod] = found
            return replace(found, **place)
        time = datetime.fromtimestamp(at / 1e9, UTC)
        script = Entry(time, INFO, text, **place)
        if (seat := self._seats.get(pod)) is None or seat.rank is None:
            return script
        worker = _WORKER.match(text)
        if worker is None and seat.workers > 1:
            return replace(script, round=seat.round)
        return replace(script, rank=seat.rank + int(worker[1] if worker else 0), round=seat.round)
