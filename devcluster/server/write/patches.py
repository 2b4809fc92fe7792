"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386), as functions from object to object."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import msgspec

from elasticjob.devcluster.server.model.errors import (
    bad_request,
    cannot_apply,
    too_large,
    too_many_operations,
)


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
    """Go's name for the type of a value."""
    return _GO.get(type(value), "number")


_GO = {dict: "object", list: "array", str: "string", bool: "bool", type(None): "null"}


def json_patch(value: Any, operations: Any) -> Any:
    """Apply RFC 6902 operations in order; a failed `test` or a missing path is 422, nonsense 400."""
    if not isinstance(operations, list):
        raise bad_request(f"error decoding patch: a JSON patch is an array, not {go_name(operations)}")
    if len(operations) > _MOST_OPERATIONS:
        raise too_many_operations(len(operations), _MOST_OPERATIONS)
    answer = copy.deepcopy(value)
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("op"), str):
            raise cannot_apply()
        try:
            answer = _operate(answer, operation)
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError) as error:
            raise cannot_apply() from error
        if operation["op"] == "copy" and (size := len(msgspec.json.encode(answer))) > _LARGEST:
            raise too_large(size, _LARGEST)
    return answer


_MOST_OPERATIONS = 10_000
_LARGEST = 8 * 1024 * 1024
"""Copies of copies double an object with each operation."""


def _operate(value: Any, operation: Any) -> Any:
    """The value after one operation; it may be changed in place.

    As on the real server, `replace` also makes an absent member, and `test` takes one for null.
    """
    act, path = operation["op"], operation.get("path")
    if path and act in ("replace", "test"):
        parent, part = jsonpatch.JsonPointer(path).to_last(value)
        if isinstance(parent, dict) and act == "replace":
            operation = {"value": None, **operation, "op": "add"}
        elif isinstance(parent, dict) and part not in parent and operation.get("value") is None:
            return value
    return jsonpatch.apply_patch(value, [operation], in_place=True)
