"""Patience with an API server: trouble that passes by itself is waited for, so long and no longer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from elasticjob.kube.clock import Clock
from elasticjob.kube.errors import (
    ConfigError,
    Forbidden,
    KubeError,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)

T = TypeVar("T")

PASSING: Final = (Unreachable, ServerError, TooManyRequests)
"""Trouble that ends by itself."""

REFUSAL: Final = (Unauthorized, Forbidden, ConfigError)
"""Trouble that lasts until a person acts: a right is missing, or the credentials are of no use."""


def is_refusal(error: KubeError) -> bool:
    """Whether trouble lasts until a person acts."""
    return isinstance(error, REFUSAL)


def is_passing(error: KubeError) -> bool:
    """Whether trouble ends by itself."""
    return isinstance(error, PASSING)


def is_quota(error: KubeError) -> bool:
    """Whether a ResourceQuota refuses an object."""
    return isinstance(error, Forbidden) and "quota" in error.message


def is_passing_or_quota(error: KubeError) -> bool:
    """Whether trouble ends by itself once another object is deleted: quotas learn of that a moment later."""
    return is_passing(error) or is_quota(error)


@dataclass(frozen=True)
class Patience:
    """Repeats an attempt every `pause` seconds for as long as `seconds`.

    pod = await patience(lambda: client.find(POD, name, namespace))
    """

    clock: Clock
    seconds: float = 30.0
    pause: float = 0.5

    async def __call__(
        self, attempt: Callable[[], Awaitable[T]], passes: Callable[[KubeError], bool] = is_passing
    ) -> T:
        """Return what the first attempt that succeeds returns; raise what does not pass, or lasts longer."""
        until = self.clock.monotonic() + self.seconds
        while True:
            try:
                return await attempt()
            except KubeError as error:
                if not passes(error) or self.clock.monotonic() >= until:
                    raise
                await self.clock.sleep(self.pause)
