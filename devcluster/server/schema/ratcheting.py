"""Ratcheting: an update may keep unchanged values that a newer schema forbids."""

from __future__ import annotations

import re
from typing import Any

from elasticjob.devcluster.server.model.errors import Cause
from elasticjob.devcluster.server.model.schemas import ANYTHING, Schema, item_key, items, member
from elasticjob.devcluster.server.model.store import Manifest

_ABSENT = object()
_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


def is_as_before(cause: Cause, new: Manifest, old: Manifest, schema: Schema) -> bool:
    """Whether the value that the cause complains of is the same in both.

    A list counts as a whole: its elements may have changed places. Not so one whose elements have keys. An
    object that lacks a field counts as a whole, too.
    """
    steps = [field or key for field, key in _STEP.findall(cause.field)]
    if cause.reason == "FieldValueRequired":
        steps = steps[:-1]
    before: Any = old
    after: Any = new
    for step in steps:
        if isinstance(before, dict) and isinstance(after, dict):
            before, after = before.get(step, _ABSENT), after.get(step, _ABSENT)
            schema = member(schema, step) or ANYTHING
        elif _are_keyed(before, after, schema):
            after = after[int(step)]
            before = _of_key(before, after, schema)
            schema = items(schema)
        else:
            break
    return before is not _ABSENT and bool(before == after)


def _are_keyed(before: Any, after: Any, schema: Schema) -> bool:
    return (
        isinstance(before, list) and isinstance(after, list) and schema.get("x-kubernetes-list-type") == "map"
    )


def _of_key(before: list[Any], item: Any, schema: Schema) -> Any:
    """The element that has the keys of this one."""
    key = item_key(schema, item)
    return next((each for each in before if item_key(schema, each) == key), _ABSENT)
