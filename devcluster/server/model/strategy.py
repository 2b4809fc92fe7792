"""A kind's rules beyond its schema for creation and update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from elasticjob.devcluster.server.model.errors import Cause
from elasticjob.devcluster.server.model.names import wrong
from elasticjob.devcluster.server.model.store import Manifest

Change = Callable[[Manifest], None]
End = Callable[[Manifest, str], None]
Check = Callable[[Manifest], Iterator[Cause]]
Compare = Callable[[Manifest, Manifest], Iterator[Cause]]


def nothing(_: Manifest) -> None:
    """Leave the object as it is."""


def no_end(*_: Any) -> None:
    """By default only its finalizers hold a deleted object."""


def no_problem(*_: Manifest) -> Iterator[Cause]:
    return iter(())


@dataclass(frozen=True)
class Strategy:
    """`default` fills absent fields in place, `start` makes a new object's first state.
    `follow` brings the status along where the object itself is written.
    `end` (object, now) makes the last one of an object that is to go, its deletion mark included.
    `says_all`: the checks tell all that is wrong, and the schema is not asked.
    """

    default: Change = nothing
    start: Change = nothing
    check: Check = no_problem
    check_update: Compare = no_problem
    generation: bool = False
    needs_version: bool = False
    keeps_status: bool = False
    says_all: bool = False
    end: End = no_end
    follow: Change = nothing
    check_name: Check = no_problem


def put(item: dict[str, Any], **defaults: Any) -> None:
    """Set fields that are absent."""
    for name, value in defaults.items():
        item.setdefault(name, value)


def immutable(old: Any, new: Any, field: str) -> Iterator[Cause]:
    """One cause if a field that may not change did."""
    if old != new:
        yield wrong(field, new, "field is immutable")
