"""The progress of a worker as the job's status shows it, and how often it is told."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any, Final

from elasticjob.api.rpc.nodes import Progress
from elasticjob.trainer.records.done import Done
from elasticjob.trainer.records.sampler import in_total

log = logging.getLogger("elasticjob")

EVERY: Final = 0.25  # seconds


class Reports:
    """The metrics of one worker, and when it reported last; times are those of one clock."""

    def __init__(self) -> None:
        self.metrics: dict[str, float | None] = {}
        self._said = 0.0
        self._stepped: float | None = None  # end of the last step
        self._stands: float | None = None  # the same, in the world before
        self._first = True  # no step in this world yet

    def enter(self) -> None:
        """Begin another world: its first step is reported at once."""
        self._first = True

    def step(self, now: float) -> bool:
        """Take in the end of a step; return whether it is to be reported: a few a second."""
        first, self._first = self._first, False
        self._stands, self._stepped = (self._stepped if first else None), now
        due = first or now - self._said >= EVERY
        self._said = now if due else self._said
        return due

    def standstill(self, now: float) -> float | None:
        """Return how long there was no step, if the one that ended is the first of a world."""
        return None if self._stands is None else now - self._stands

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Add metrics. A report never ends a training: values that are no numbers are left out."""
        for name, value in metrics.items():
            try:
                self.metrics[name] = float(value)
            except (TypeError, ValueError) as error:
                log.warning("the metric %s is not reported: %s", name, error)

    def progress(self, done: Done, *, left: int, records: int, standstill: float | None) -> Progress:
        """Return the progress with all metrics; `left` steps are left, an epoch has so many `records`."""
        return Progress(
            step=done.step,
            epoch=done.epoch + done.offset / records,
            total_steps=in_total(done.step, left),
            samples=done.samples,
            loss=done.loss if math.isfinite(done.loss) else None,
            metrics=self.metrics,
            standstill=standstill,
        )
