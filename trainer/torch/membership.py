"""One worker's membership in worlds, with a model that is wrapped for each of them."""

from __future__ import annotations

from elasticjob.trainer.link.line import Line
from elasticjob.trainer.loop import membership
from elasticjob.trainer.loop.copies import Copies
from elasticjob.trainer.loop.reports import Reports
from elasticjob.trainer.torch.reduction import Reduction
from elasticjob.trainer.torch.state import State
from elasticjob.trainer.torch.world.nccl import wait_for_ends
from elasticjob.trainer.torch.world.peers import Peers


class Membership(membership.Membership[Peers]):
    """This worker among its `peers` in the present world; see `loop.membership`."""

    def __init__(
        self, state: State, reduction: Reduction, copies: Copies, line: Line, reports: Reports
    ) -> None:
        super().__init__(state, reduction, copies, line, reports)
        self._reduction = reduction

    def wrap_what_is_trained(self) -> None:
        """Wrap the model anew if the script has frozen or unfrozen parameters since."""
        if not self._reduction.is_stale():
            return
        try:
            with self._line.inside():
                self._reduction.enter(self.peers)
        except RuntimeError as error:
            done = self._state.done.step
            self.survive(error)
            if self._state.done.step != done:
                self._gate.fall_behind(self.peers, self._state.age)

    def close(self) -> None:
        """Leave the group, at the end of the process."""
        super().close()
        wait_for_ends()
