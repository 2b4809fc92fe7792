"""Conditions of a status: sentences about an object, keyed by type."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

from msgspec.structs import replace

from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import Condition

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
LONGEST: Final = 32_768
"""Characters of a message that API servers take."""


class _HasType(Protocol):
    @property
    def type(self) -> str: ...

    @property
    def status(self) -> str: ...


C = TypeVar("C", bound=_HasType)


def set_condition(
    conditions: Iterable[Condition], new: Condition, now: datetime | None = None
) -> list[Condition]:
    """The conditions with `new` in the place of its namesake, or at the end.

    lastTransitionTime moves only with the status; it comes from `new`, or is `now`. A message is cut to what
    servers take: what others write, such as the message of a pod, may be longer.
    """
    old, new = list(conditions), replace(new, message=shorten(new.message))
    previous = find(old, new.type)
    if previous and previous.status == new.status and previous.last_transition_time:
        new = replace(new, last_transition_time=previous.last_transition_time)
    elif new.last_transition_time is None:
        new = replace(new, last_transition_time=now)
    if previous is None:
        return [*old, new]
    return [new if condition.type == new.type else condition for condition in old]


def shorten(message: str) -> str:
    """Return a message of LONGEST characters at most."""
    return message if len(message) <= LONGEST else f"{message[: LONGEST - 1]}…"


def find(conditions: Iterable[C], type_: str) -> C | None:
    """The condition of that type."""
    for condition in conditions:  # asked so often that a generator would show in profiles
        if condition.type == type_:
            return condition
    return None


def is_true(conditions: Iterable[_HasType], type_: str) -> bool:
    """Whether the condition of that type exists and is True."""
    found = find(conditions, type_)
    return found is not None and found.status == TRUE


def manifest(condition: Condition) -> Manifest:
    """As JSON, complete: the API requires reason, message and lastTransitionTime; times in whole seconds."""
    at = condition.last_transition_time
    found: dict[str, Any] = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": timestamp(at) if at else None,
    }
    if condition.observed_generation is not None:
        found["observedGeneration"] = condition.observed_generation
    return found


def timestamp(at: datetime) -> str:
    """The form of metav1.Time: UTC, whole seconds, `Z`."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
