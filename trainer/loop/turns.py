"""The loop over the steps of a training: what happens before, between and after them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from elasticjob.trainer.checks import wants
from elasticjob.trainer.link.pulse import Phase
from elasticjob.trainer.loop.run import Run
from elasticjob.trainer.records import order

log = logging.getLogger("elasticjob")

OnChange = Callable[[int, int, tuple[str, ...]], object]
"""Is told the round, the number of workers, and the nodes that were lost before it."""


class Loop:
    """The loop of one worker; `on_change` is called for each new world."""

    def __init__(self, run: Run[Any, Any, Any], on_change: OnChange | None) -> None:
        wants("on_change", on_change, on_change is None or callable(on_change), "a function, or None")
        self._run, self._on_change = run, on_change

    def begin(self) -> None:
        """Begin the loop over the records that `run.reading` knows. ValueError if a checkpoint has others."""
        run, state = self._run, self._run.state
        run.copies.settle()
        self.at_step()
        run.reading.sampler(run.peers.place).check(state.done.position)
        before, state.order = state.order, run.reading.order()
        if state.done.offset:
            taken = f"{state.done.offset} records of epoch {state.done.epoch}"
            order.check(taken, state.order, before)
        if not run.left and run.peers.rank == 0:
            ended = ", the script has ended its loop by itself after it" if state.ended else ""
            log.warning(
                "nothing is left to train: step %d is done%s, and the script asks for no more; ask for more "
                "epochs or steps, or give another checkpoint folder",
                state.done.step,
                ended,
            )

    def at_step(self) -> None:
        """Be at the start of a step: all workers are here. End the world if they agreed to.

        The script's own code after the step before has run. So copies are taken here: averages, metrics and
        schedulers are those of the step.
        """
        run, membership = self._run, self._run.membership
        if run.state.whole:
            run.state.end_epoch()
            run.copies.take_if_due(run.peers)
        if membership.boundary and run.left:
            membership.next()
        membership.at_step()
        run.copies.settle()
        if membership.changed:
            membership.changed = False
            self._tell_change()

    def finish(self) -> None:
        """After the last step: report, save the last checkpoint."""
        run = self._run
        run.ended = True
        run.report_step(last=True)
        run.line.say(Phase.ENDED)
        run.copies.take(run.peers, persist=True)
        run.copies.close()

    def leave(self, *, ended: bool) -> None:
        """After a `break` of the script, or an exception: save what was trained till then.

        After a `break` that is the end: nothing is left until the script asks for more.
        """
        run, state = self._run, self._run.state
        if run.ended or not state.whole:
            return
        try:
            state.end_epoch()
        except RuntimeError as error:  # a score is missing: the copy before stays the newest
            log.warning("step %d is not saved: %s", state.done.step, error)
            return
        run.copies.settle()
        if ended:
            state.ended = run.reading.limit
            run.line.say(Phase.ENDED)
        run.report_step(last=ended, at_once=True)
        run.copies.take(run.peers, persist=True)

    def _tell_change(self) -> None:
        """Call what the script wants to know of a new world."""
        self._run.copies.clone()
        if self._on_change is not None:
            place = self._run.peers.place
            self._on_change(place.round, place.size, place.lost)
