"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386), as functions from object to object."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from elasticjob.devcluster.server.errors import bad_request, rejected, too_large, too_many_operations


def merge_patch(value: Any, patch: Any) -> Any:
    """RFC 7386: objects merge, null removes, everything else replaces. The input is not modified."""
    if not isinstance(patch, dict):
        return patch
    answer = dict(value) if isinstance(value, dict) else {}
    for name, change in patch.items():
        if change is None:
            answer.pop(name, None)
        else:
            answer[name] = merge_patch(answer.get(name), change)
    return answer


def go_name(value: Any) -> str:
    """What Go's JSON decoder calls a kind of value."""
    return _GO.get(type(value), "number")


_GO = {dict: "object", list: "array", str: "string", bool: "bool", type(None): "null"}


def json_patch(value: Any, operations: Any) -> Any:
    """Apply RFC 6902 operations in order; a failed `test` or a missing path is 422, nonsense 400."""
    if not isinstance(operations, list):
        why = f"json: cannot unmarshal {go_name(operations)} into Go value of type []handlers.jsonPatchOp"
        raise bad_request(f"error decoding patch: {why}")
    if len(operations) > _MOST_OPERATIONS:
        raise too_many_operations(len(operations), _MOST_OPERATIONS)
    answer, copied = copy.deepcopy(value), 0
    for operation in operations:
        copied += _copied_bytes(answer, operation)
        if copied > _MOST_COPIED:
            raise too_large(copied, _MOST_COPIED)
        answer = _operate(answer, operation)
    return answer


_MOST_OPERATIONS = 10_000
_MOST_COPIED = 3 * 1024 * 1024
"""Copies of copies double an object with each operation."""


def _copied_bytes(value: Any, operation: Any) -> int:
    """How much larger a copy makes the object."""
    if not isinstance(operation, dict) or operation.get("op") != "copy":
        return 0
    return len(msgspec.json.encode(_lookup(value, operation["from"])))


def _operate(value: Any, operation: Any) -> Any:
    act = _OPERATIONS.get(operation.get("op")) if isinstance(operation, dict) else None
    if act is None or not isinstance(operation.get("path"), str):
        raise rejected()
    return act(value, operation)


def _parts(path: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _child(value: Any, part: str, path: str) -> Any:
    if isinstance(value, dict) and part in value:
        return value[part]
    if isinstance(value, list) and part.isdigit() and int(part) < len(value):
        return value[int(part)]
    raise rejected()


def _lookup(value: Any, path: str) -> Any:
    for part in _parts(path):
        value = _child(value, part, path)
    return value


def _parent(value: Any, path: str) -> tuple[Any, str]:
    *above, last = _parts(path)
    for part in above:
        value = _child(value, part, path)
    return value, last


def _add(value: Any, path: str, new: Any) -> Any:
    if not path:
        return new
    parent, last = _parent(value, path)
    if isinstance(parent, dict):
        parent[last] = new
    elif isinstance(parent, list) and (last == "-" or (last.isdigit() and int(last) <= len(parent))):
        parent.insert(len(parent) if last == "-" else int(last), new)
    else:
        raise rejected()
    return value


def _remove(value: Any, path: str) -> Any:
    parent, last = _parent(value, path)
    _child(parent, last, path)
    del parent[int(last) if isinstance(parent, list) else last]
    return value


def _replace(value: Any, operation: dict[str, Any]) -> Any:
    path = operation["path"]
    if not path:
        return operation.get("value")
    parent, last = _parent(value, path)
    if isinstance(parent, list):
        _child(parent, last, path)
    elif not isinstance(parent, dict):
        raise rejected()
    parent[int(last) if isinstance(parent, list) else last] = operation.get("value")
    return value


def _move(value: Any, operation: dict[str, Any]) -> Any:
    moved = _lookup(value, operation["from"])
    return _add(_remove(value, operation["from"]), operation["path"], moved)


def _copy(value: Any, operation: dict[str, Any]) -> Any:
    return _add(value, operation["path"], copy.deepcopy(_lookup(value, operation["from"])))


def _test(value: Any, operation: dict[str, Any]) -> Any:
    path, expected = operation["path"], operation.get("value")
    if expected is None:
        *_, last = _parts(path) or [""]
        parent, _ = _parent(value, path)
        if isinstance(parent, dict) and parent.get(last) is None:
            return value
    if _lookup(value, path) != expected:
        raise rejected()
    return value


_OPERATIONS: dict[Any, Callable[[Any, dict[str, Any]], Any]] = {
    "add": lambda value, operation: _add(value, operation["path"], operation.get("value")),
    "remove": lambda value, operation: _remove(value, operation["path"]),
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
