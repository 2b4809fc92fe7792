"""Workers in threads that tell each other what they have."""

from __future__ import annotations

from threading import Barrier

from elasticjob.trainer.checkpoint.opening import Exchange


class Meeting:
    """Where so many workers meet: all are there, or the test fails."""

    def __init__(self, size: int) -> None:
        self._barrier, self._given = Barrier(size), [b""] * size

    def wait(self) -> None:
        """Wait for the others."""
        self._barrier.wait(10)

    def exchange(self, rank: int) -> Exchange:
        """Return how one of them tells and hears."""

        def exchange(data: bytes) -> list[bytes]:
            self._given[rank] = data
            self.wait()
            found = list(self._given)
            self.wait()
            return found

        return exchange
