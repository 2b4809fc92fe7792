"""What every scaler promises."""

from __future__ import annotations

from typing import Protocol

from elasticjob.api.sizes.change import Change


class Scaler(Protocol):
    """Carries out changes. One suite tests all of them (tests/master/scalers)."""

    async def apply(self, key: str, change: Change) -> None:
        """Return when the change is recorded and will be carried out, also across a crash of this master.

        The same key again does nothing. Raises ScalerError if it could not be recorded: try again.
        """


class ScalerError(Exception):
    """The change is not recorded; the message says why."""
