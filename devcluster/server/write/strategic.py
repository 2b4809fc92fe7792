"""Strategic merge patch: JSON merge patch that knows which lists are keyed.

Directives: `$patch: delete|replace|merge`, `$retainKeys`, `$setElementOrder/x`, `$deleteFromPrimitiveList/x`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from elasticjob.devcluster.server.model.errors import StatusError
from elasticjob.devcluster.server.model.schemas import ANYTHING, Schema, items, member

_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"


def strategic_merge(value: Any, patch: Any, schema: Schema) -> Any:
    """Merge `patch` into `value` by the `x-kubernetes-patch-*` keys. The inputs are not modified."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "replace":
        return {name: change for name, change in patch.items() if name != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise StatusError(500, "", f"unknown patch type: {directive} in map: {go_text(patch)}")
    answer = dict(value) if isinstance(value, dict) else {}
    if "$retainKeys" in patch:
        answer = {name: kept for name, kept in answer.items() if name in patch["$retainKeys"]}
    for name, change in patch.items():
        if not name.startswith("$"):
            _merge_field(answer, name, change, patch, member(schema, name) or ANYTHING)
    for name in patch:
        if name.startswith((_ORDER, _DELETE)) and name.partition("/")[2] not in patch:
            _merge_field(
                answer, name.partition("/")[2], [], patch, member(schema, name.partition("/")[2]) or ANYTHING
            )
    return answer


def _merge_field(
    answer: dict[str, Any], name: str, change: Any, patch: dict[str, Any], schema: Schema
) -> None:
    if change is None:
        answer.pop(name, None)
        return
    if not isinstance(change, list) or "merge" not in schema.get("x-kubernetes-patch-strategy", ""):
        answer[name] = strategic_merge(answer.get(name), change, schema)
        return
    old = answer.get(name) or []
    key = schema.get("x-kubernetes-patch-merge-key")
    named = _naming(key)
    if key and any(_replaces(item, key) for item in change):
        answer[name] = [item for item in change if not _replaces(item, key)]
        return
    if key:
        merged = _merge_by_key(old, change, key, items(schema))
    else:
        dropped = patch.get(_DELETE + name) or []
        merged = [item for item in old if item not in dropped] + [item for item in change if item not in old]
    order = patch.get(_ORDER + name) or change
    answer[name] = _order(merged, [named(each) for each in order], [named(each) for each in old], named)


def _naming(key: str | None) -> Callable[[Any], Any]:
    """The identity of an element: its merge key, or its value."""
    return (lambda item: item.get(key) if isinstance(item, dict) else None) if key else lambda item: item


def _replaces(item: Any, key: str) -> bool:
    return isinstance(item, dict) and item.get("$patch") == "replace" and key not in item


def _merge_by_key(old: list[Any], change: list[Any], key: str, schema: Schema) -> list[Any]:
    answer = list(old)
    for item in change:
        if not isinstance(item, dict) or key not in item:
            why = f"map: {go_text(item)} does not contain declared merge key: {key}"
            raise StatusError(500, "", why)
        place = next((index for index, each in enumerate(answer) if each.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if place is not None:
                del answer[place]
        elif place is None:
            answer.append(strategic_merge({}, item, schema))
        else:
            answer[place] = strategic_merge(answer[place], item, schema)
    return answer


def _order(merged: list[Any], wanted: list[Any], before: list[Any], named: Callable[[Any], Any]) -> list[Any]:
    """The patch's elements in its order; the others, in theirs, stay in front of those they stood in front
    of.
    """
    listed = deque(
        sorted((item for item in merged if named(item) in wanted), key=lambda item: wanted.index(named(item)))
    )
    answer: list[Any] = []
    for item in merged:
        if named(item) in wanted:
            continue
        place = before.index(named(item))
        while listed and not (named(listed[0]) in before and place < before.index(named(listed[0]))):
            answer.append(listed.popleft())
        answer.append(item)
    return [*answer, *listed]


def go_text(value: Any) -> str:
    """A value as Go prints it: `map[name:x ports:[1 2]]`."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{name}:{go_text(value[name])}" for name in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(go_text(each) for each in value) + "]"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)
