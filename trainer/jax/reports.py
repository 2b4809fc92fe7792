"""The progress of a worker as the job's status shows it, and how often it is told."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from elasticjob.api.rpc.nodes import Progress
from elasticjob.trainer.records.done import Done
from elasticjob.trainer.records.pace import Pace
from elasticjob.trainer.records.sampler import in_total

log = logging.getLogger("elasticjob")


class Reports(Pace):
    """The metrics of one worker, and when it reported last."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics: dict[str, float | None] = {}

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
