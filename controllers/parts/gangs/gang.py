"""A gang as it was made: kept in an annotation of the JobResource, from which pods take their place in it."""

from __future__ import annotations

import msgspec


class Gang(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a gang scheduler is told of one job."""

    api: str
    """Group and version of the API, as in apis.APIS."""
    name: str
    """The name of its objects: the job's."""
    least: int
    """How many pods must fit before any is placed; 1 or more."""
    roles: dict[str, int] = {}
    """The same by role, for APIs that know roles; empty where minAvailable says one number for all."""
    queue: str = ""
    priority_class_name: str = ""
    timeout_seconds: int | None = None
    scheduler: str = ""
    """The schedulerName of pods that have none of their own; "" for the API's."""


def written(gang: Gang) -> str:
    """Return a gang as it is kept in an annotation."""
    return msgspec.json.encode(gang).decode()
