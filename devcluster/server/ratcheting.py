"""What an update left as it was is not held against it, though a younger schema forbids it."""

from __future__ import annotations

import re
from typing import Any

from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.store import Manifest

_ABSENT = object()
_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


def is_as_before(cause: Cause, new: Manifest, old: Manifest) -> bool:
    """Whether the value that the cause complains of is the same in both.

    A list counts as a whole: its elements may have changed places. So does an object that lacks a field.
    """
    steps = [field or key for field, key in _STEP.findall(cause.field)]
    if cause.reason == "FieldValueRequired":
        steps = steps[:-1]
    before: Any = old
    after: Any = new
    for step in steps:
        if not isinstance(before, dict) or not isinstance(after, dict):
            break
        before, after = before.get(step, _ABSENT), after.get(step, _ABSENT)
    return before is not _ABSENT and bool(before == after)
