"""Strategic merge patch: JSON merge patch that knows which lists are keyed.

Directives: `$patch: delete|replace|merge`, `$retainKeys`, `$setElementOrder/x`, `$deleteFromPrimitiveList/x`.
"""

from __future__ import annotations

from typing import Any

from elasticjob.devcluster.server.errors import bad_request
from elasticjob.devcluster.server.schemas import ANYTHING, Schema, items, member

_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"
_MISSING = object()


def strategic_merge(value: Any, patch: Any, schema: Schema) -> Any:
    """Merge `patch` into `value` by the `x-kubernetes-patch-*` keys. The inputs are not modified."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "replace":
        return {name: change for name, change in patch.items() if name != "$patch"}
    if directive == "delete":
        return {}
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
    if key:
        merged = _merge_keyed(old, change, key, items(schema))
        answer[name] = _ordered(merged, patch.get(_ORDER + name), lambda item: item.get(key), key)
    else:
        dropped = patch.get(_DELETE + name) or []
        merged = [item for item in old if item not in dropped] + [item for item in change if item not in old]
        answer[name] = _ordered(merged, patch.get(_ORDER + name), lambda item: item, None)


def _merge_keyed(old: list[Any], change: list[Any], key: str, schema: Schema) -> list[Any]:
    if any(isinstance(item, dict) and item.get("$patch") == "replace" and key not in item for item in change):
        return [item for item in change if not (item.get("$patch") == "replace" and key not in item)]
    answer = list(old)
    for item in change:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"map: {item!r} does not contain declared merge key: {key}")
        place = next((index for index, each in enumerate(answer) if each.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if place is not None:
                del answer[place]
        elif place is None:
            answer.append(strategic_merge({}, item, schema))
        else:
            answer[place] = strategic_merge(answer[place], item, schema)
    return answer


def _ordered(merged: list[Any], order: list[Any] | None, identity: Any, key: str | None) -> list[Any]:
    """Listed elements in the listed order; those that the patch does not list stay where they were."""
    if not order:
        return merged
    wanted = [each.get(key) if key else each for each in order]
    listed = sorted(
        (item for item in merged if identity(item) in wanted), key=lambda item: wanted.index(identity(item))
    )
    answer: list[Any] = []
    queue = iter(listed)
    for item in merged:
        answer.append(next(queue) if identity(item) in wanted else item)
    return answer
