"""Paths of an object's fields, as `metadata.managedFields` names them, and merging by them.

A path is a tuple of elements: `f:name` a field, `k:{"name":"x"}` an element of a list-map, `v:"x"` an element
of a set. `leaves` maps every path that can be owned to its value; ownership is then arithmetic on paths.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from elasticjob.devcluster.server.model.schemas import (
    ANYTHING,
    Schema,
    item_key,
    items,
    member,
    members,
    shape,
)

Path = tuple[str, ...]


class Holder:
    """The value at a path that owns the container itself, not its contents."""


HOLDER = Holder()

_encode = msgspec.json.Encoder(order="sorted").encode
# Fields that the server writes itself have no owner.
_UNOWNED_ROOT = frozenset({"apiVersion", "kind"})
_UNOWNED_METADATA = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "managedFields",
        "selfLink",
    }
)


def leaves(manifest: Mapping[str, Any], schema: Schema) -> dict[Path, Any]:
    """Every ownable path of an object with its value."""
    found: dict[Path, Any] = {}
    for name, value in manifest.items():
        below = member(schema, name) or ANYTHING
        if name == "metadata":
            for inner, part in value.items():
                if inner not in _UNOWNED_METADATA:
                    _collect(part, member(below, inner) or ANYTHING, ("f:metadata", f"f:{inner}"), found)
        elif name not in _UNOWNED_ROOT:
            _collect(value, below, (f"f:{name}",), found)
    return found


def _collect(value: Any, schema: Schema, path: Path, found: dict[Path, Any]) -> None:
    kind = shape(schema, value)
    if kind == "map" and value:
        declared = members(schema)
        for name, child in value.items():
            below = member(schema, name) or ANYTHING
            if name not in declared and shape(below, child) in ("map", "list-map", "set"):
                found[*path, f"f:{name}"] = HOLDER if child else child
            _collect(child, below, (*path, f"f:{name}"), found)
    elif kind == "list-map" and value:
        below = items(schema)
        for item in value:
            place = (*path, key_element(schema, item))
            found[place] = HOLDER
            _collect(item, below, place, found)
    elif kind == "set" and value:
        for item in value:
            found[*path, value_element(item)] = item
    else:
        found[path] = value


def nodes(manifest: Mapping[str, Any], schema: Schema) -> dict[Path, Any]:
    """Every ownable path and its containers, for comparing two objects."""
    found = leaves(manifest, schema)
    for path in list(found):
        for length in range(len(path) - 1, 0, -1):
            if path[:length] in found:
                break
            found[path[:length]] = HOLDER
    found.pop(("f:metadata",), None)
    return found


def alike(one: Any, other: Any) -> bool:
    """Whether two values of a path are the same; a container that is empty is still the container."""
    if isinstance(one, Holder) or isinstance(other, Holder):
        return all(isinstance(each, Holder) or each in ({}, [], None) for each in (one, other))
    return bool(one == other)


def key_element(schema: Schema, item: Any) -> str:
    return "k:" + _encode(item_key(schema, item)).decode()


def value_element(item: Any) -> str:
    return "v:" + _encode(item).decode()


def to_fields_v1(paths: Iterable[Path]) -> dict[str, Any]:
    """The nested form that is stored in managedFields."""
    root: dict[str, Any] = {}
    chosen = set(paths)
    above = {path[:length] for path in chosen for length in range(1, len(path))}
    for path in sorted(chosen):
        node = root
        for element in path:
            node = node.setdefault(element, {})
        if path in above:
            node.setdefault(".", {})
    return root


def from_fields_v1(fields: Mapping[str, Any]) -> set[Path]:
    return set(_paths(fields, ()))


def _paths(fields: Mapping[str, Any], path: Path) -> Iterator[Path]:
    if not fields and path:
        yield path
    for element, below in fields.items():
        if element == ".":
            yield path
        else:
            yield from _paths(below, (*path, element))


def merge(live: Any, applied: Any, schema: Schema) -> Any:
    """Put `applied` over `live`: maps by key, list-maps by element, sets by value, all else whole."""
    kind = shape(schema, applied)
    if kind == "map" and isinstance(live, dict):
        answer = dict(live)
        for name, value in applied.items():
            below = member(schema, name) or ANYTHING
            answer[name] = merge(live[name], value, below) if name in live else value
        return answer
    if kind in ("list-map", "set") and isinstance(live, list):
        return _merge_elements(live, applied, schema, kind)
    return applied


def _merge_elements(live: list[Any], applied: list[Any], schema: Schema, kind: str) -> list[Any]:
    """Elements of both, by key; those of the configuration in its order, the others where they were."""
    name = value_element if kind == "set" else lambda item: key_element(schema, item)
    old = {name(item): item for item in live}
    new = {name(item): item for item in applied}
    below = items(schema)
    return [
        merge(old[key], new[key], below) if key in old and key in new else (new if key in new else old)[key]
        for key in interleave(list(old), list(new))
    ]


def interleave(left: list[str], right: list[str]) -> list[str]:
    """The union of both lists. `right` keeps its order; names only in `left` stay before their successors."""
    mine, theirs, taken, answer = set(right), set(left), set[str](), list[str]()
    shared = deque(name for name in right if name in theirs)
    here, there = 0, 0
    while here < len(left) or there < len(right):
        if here < len(left):
            name = left[here]
            last = there == len(right)
            if name not in mine or (not last and name == right[there]):
                answer.append(name)
                here += 1
                if name in mine:
                    taken.add(name)
                    shared.popleft()
                    there += 1
                continue
            if name in taken or (not last and shared[0] != name):
                here += 1  # it comes, or came, where the other order has it
                continue
        taken.add(right[there])
        answer.append(right[there])
        if shared and shared[0] == right[there]:
            shared.popleft()
        there += 1
    return answer


def drop(value: Any, paths: Iterable[Path], schema: Schema) -> Any:
    """Return the object without these paths; emptied containers that only held them go as well."""
    tree: dict[str, Any] = {}
    for path in paths:
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node["!"] = {}
    return _drop(value, tree, schema)


def _drop(value: Any, tree: Mapping[str, Any], schema: Schema) -> Any:
    if isinstance(value, dict):
        return _dropped_members(value, tree, schema)
    if not isinstance(value, list):
        return value
    kind = shape(schema, value)
    name = value_element if kind == "set" else lambda item: key_element(schema, item)
    answer = []
    for item in value:
        below = tree.get(name(item)) if kind != "atomic" else None
        if below is None:
            answer.append(item)
        elif "!" not in below:
            answer.append(_drop(item, below, items(schema)))
    return answer


def _dropped_members(value: dict[str, Any], tree: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    answer = {}
    for name, child in value.items():
        below = tree.get(f"f:{name}")
        if below is None:
            answer[name] = child
            continue
        if "!" in below:
            continue
        kept = _drop(child, below, member(schema, name) or ANYTHING)
        if kept or not child:
            answer[name] = kept
    return answer


def human(path: Path) -> str:
    """`.spec.containers[name="x"].image`, the format of conflict messages."""
    return "".join(_human(element) for element in path)


def _human(element: str) -> str:
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "v":
        return f"[={rest}]"
    keys = msgspec.json.decode(rest)
    return "[" + ",".join(f"{name}={_encode(value).decode()}" for name, value in keys.items()) + "]"
