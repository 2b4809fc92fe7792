"""The conditions by which Flux, Helm 4's --wait and other readers of kstatus judge an object of any kind.

Stalled means Failed to them, Reconciling InProgress, Ready Current. One of the three is True; Ready is always
there, the others once they were True. https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from elasticjob.kube.objects.conditions import FALSE, TRUE, set_condition
from elasticjob.kube.objects.views import Condition


class Verdict(StrEnum):
    """Whether an object is as its spec says, on its way there, or cannot get there by itself."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class Progress(NamedTuple):
    """A verdict, and why, as a reason and a sentence."""

    verdict: Verdict
    reason: str
    message: str = ""

    def conditions(self, known: Iterable[str], generation: int | None = None) -> Iterator[Condition]:
        """Yield the conditions that say it; `known` are the types that the object has already."""
        shown = {Verdict.READY, self.verdict, *known}
        for each in (each for each in Verdict if each in shown):
            true = each is self.verdict
            message = self.message if true or each is Verdict.READY else ""
            yield Condition(each.value, TRUE if true else FALSE, self.reason, message, generation)


def progress_of(conditions: Iterable[Condition]) -> Progress | None:
    """Return what conditions say to kstatus; None: nothing yet."""
    said = (each for each in conditions if each.status == TRUE and each.type in tuple(Verdict))
    return next((Progress(Verdict(each.type), each.reason, each.message) for each in said), None)


def with_progress(
    conditions: list[Condition], progress: Progress, generation: int | None, now: datetime | None
) -> list[Condition]:
    """Return the conditions with those of kstatus; a time moves only with a status."""
    for each in progress.conditions([each.type for each in conditions], generation):
        conditions = set_condition(conditions, each, now)
    return conditions
