"""How a command that waits treats errors of the API server: which end it, and which are reported once.

1. What a person must mend ends it: a missing right, credentials that are not accepted, a kind that is gone.
2. A server that is away, or in trouble, is told once, and waited for.
3. A server that comes back may refuse everything until its caches are filled: refusals end nothing so soon.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Final

from elasticjob.kube.client.patience import is_passing, is_refusal
from elasticjob.kube.errors import KubeError, NotFound

AWAY: Final = 3.0
"""Seconds of failures before they are told: a load balancer's cut is over by then."""
SETTLING: Final = 5.0
"""Seconds after a failure in which a refusal may be the server's beginning."""


class Trouble:
    """Heeds errors of requests that are repeated; all that one person waits for may share it."""

    def __init__(
        self, server: str, tell: Callable[[str], object], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._server, self._tell, self._now = server, tell, now
        self._since: float | None = None
        self._last = -inf
        self._told = False

    def __call__(self, error: KubeError | None) -> None:
        """Take note of an error, or (None) of an answer. Raises the errors that end the waiting."""
        if error is None:
            self._success()
        elif is_passing(error):
            self._failure(error)
        elif (is_refusal(error) or isinstance(error, NotFound)) and self._now() - self._last > SETTLING:
            raise error

    def _failure(self, error: KubeError) -> None:
        self._last = now = self._now()
        self._since = now if self._since is None else self._since
        if now - self._since >= AWAY and not self._told:
            self._told = True
            self._tell(f"the API server at {self._server} does not answer, and is asked again: {error}")

    def _success(self) -> None:
        if self._told:
            self._tell(f"the API server at {self._server} answers again")
        self._since, self._told = None, False
