"""The running reconcile: its controller and key, and its writes so far (a context variable).

The client notes each write here, so that the key's next run can wait until the cache has seen it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from elasticjob.kube.objects.kinds import Key, Kind


@dataclass(frozen=True)
class Written:
    """The answer to a write: which object, and its resourceVersion afterwards, or the uid that is `gone`."""

    kind: Kind[Any]
    key: Key
    version: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    gone: str = ""


@dataclass(frozen=True)
class Run:
    """One reconcile of one key; `id` marks its log lines."""

    controller: str
    key: Key
    id: str
    writes: list[Written] = field(default_factory=list)


current: ContextVar[Run | None] = ContextVar("reconcile", default=None)


@contextmanager
def enter(run: Run) -> Iterator[Run]:
    """Make `run` the current reconcile for the block and for all tasks started in it."""
    token = current.set(run)
    try:
        yield run
    finally:
        current.reset(token)


def note(written: Written) -> None:
    """Remember a write for the key being reconciled; outside of a reconcile nothing happens."""
    if run := current.get():
        run.writes.append(written)
