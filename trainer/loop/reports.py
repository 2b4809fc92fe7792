"""The progress of a worker as the job's status shows it, and how often it is told."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from elasticjob.api.rpc.nodes import Progress
from elasticjob.trainer.loop.losses import Losses
from elasticjob.trainer.records.done import Done
from elasticjob.trainer.records.pace import Pace
from elasticjob.trainer.records.sampler import in_total

log = logging.getLogger("elasticjob")


class Reports(Pace):
    """Metrics and alarms of one worker, and when it reported last."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics: dict[str, float | None] = {}
        self._noted: dict[str, Any] = {}
        self._refused: set[str] = set()  # names of metrics that are no numbers
        self._losses, self._alarm = Losses(), ""
        self._alarmed = False  # the alarm was not reported yet

    def step(self, now: float, *, at_once: bool = False) -> bool:
        """Take in the end of a step; return whether it is to be reported: one with an alarm is at once."""
        due = super().step(now, at_once=at_once or self._alarmed)
        self._alarmed = False
        return due

    def notice(self, step: int, loss: float) -> None:
        """Notice a loss that is not finite, or far above the usual."""
        if alarm := self._losses.alarm(step, loss):
            log.warning("%s", alarm)
            self._alarm, self._alarmed = alarm, True

    def note(self, metrics: Mapping[str, Any]) -> None:
        """Keep metrics for the next report: to read them may have to wait for a GPU."""
        self._noted |= metrics

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Add metrics, without those that are no numbers: a report never ends a training."""
        for name, value in metrics.items():
            try:
                self.metrics[name] = float(value)
            except (TypeError, ValueError, RuntimeError) as error:
                if name not in self._refused:
                    log.warning("the metric %s is not reported: %s", name, error)
                self._refused.add(name)

    def progress(self, done: Done, *, left: int, records: int, standstill: float | None) -> Progress:
        """Return the progress with all metrics; `left` steps are left, an epoch has so many `records`."""
        noted, self._noted = self._noted, {}
        self.add(noted)
        return Progress(
            step=done.step,
            epoch=done.epoch + done.offset / records,
            total_steps=in_total(done.step, left),
            samples=done.samples,
            loss=done.loss,
            metrics=self.metrics,
            standstill=standstill,
            alarm=self._alarm,
        )
