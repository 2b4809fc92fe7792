"""kill -9 of one process of a kind: the scene knows which there are, and starts them again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, runtime_checkable

from lab.story import Trouble


@runtime_checkable
class Killable(Protocol):
    """A job with processes by role."""

    async def kill(self, role: str) -> str:
        """Kill one of a role; return which, "" if there is none now."""


def _kill(role: str) -> Callable[[Killable], Awaitable[str]]:
    return lambda scene: scene.kill(role)


ROLES: Final = ("operator", "master", "agent", "worker", "node", "leave", "server", "servers", "stopped")
TROUBLES: Final = tuple(Trouble(role, Killable, _kill(role)) for role in ROLES)
