"""Long polls that wait at the master until the job changes, or their time is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from elasticjob.api.rpc.message import Request
from elasticjob.master.handlers import dispatch

Tell = Callable[[Any], None]


class Poll:
    """A waiting long poll: its request and deadline, and where its response goes, once.

    The response may be an exception.
    """

    def __init__(self, request: Request[Any], until: datetime, tell: Tell) -> None:
        self.request, self.until, self.tell = request, until, tell


class Polls:
    """All waiting polls in the order of their arrival, and those that wait for shards."""

    def __init__(self) -> None:
        self._all: dict[Poll, None] = {}
        self.consumers: dict[Poll, None] = {}
        self._nodes: Counter[tuple[type, str, str]] = Counter()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Poll]:
        return iter(self._all)

    def __contains__(self, poll: object) -> bool:
        return poll in self._all

    def add(self, poll: Poll) -> None:
        """Let it wait."""
        self._all[poll] = None
        if isinstance(poll.request, dispatch.CONSUMERS):
            self.consumers[poll] = None
        else:
            self._nodes[_sender(poll.request)] += 1

    def drop(self, poll: Poll) -> None:
        """Forget it; nothing happens if it is forgotten already."""
        if poll not in self._all:
            return
        del self._all[poll]
        if self.consumers.pop(poll, self) is self:
            sender = _sender(poll.request)
            self._nodes[sender] -= 1
            if not self._nodes[sender]:
                del self._nodes[sender]

    def of_same_node(self, request: Request[Any]) -> bool:
        """Whether a poll of that type from the same incarnation of a node waits."""
        return _sender(request) in self._nodes


def _sender(request: Any) -> tuple[type, str, str]:
    return type(request), request.node, request.incarnation
