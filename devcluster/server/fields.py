"""Paths of an object's fields, as `metadata.managedFields` names them, and merging by them.

A path is a tuple of elements: `f:name` a field, `k:{"name":"x"}` an element of a list-map, `v:"x"` an element
of a set. `leaves` maps every path that can be owned to its value; ownership is then arithmetic on paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from elasticjob.devcluster.server.schemas import ANYTHING, Schema, item_key, items, member, shape

Path = tuple[str, ...]
ELEMENT = "an element of a keyed list"  # value of a path that stands for the element, not for its fields

_encode = msgspec.json.Encoder(order="sorted").encode
# What the server writes itself belongs to nobody.
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
        "generateName",
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
        for name, child in value.items():
            _collect(child, member(schema, name) or ANYTHING, (*path, f"f:{name}"), found)
    elif kind == "list-map" and value:
        below = items(schema)
        for item in value:
            place = (*path, key_element(schema, item))
            found[place] = ELEMENT
            _collect(item, below, place, found)
    elif kind == "set" and value:
        for item in value:
            found[*path, value_element(item)] = item
    else:
        found[path] = value


def key_element(schema: Schema, item: Any) -> str:
    return "k:" + _encode(item_key(schema, item)).decode()


def value_element(item: Any) -> str:
    return "v:" + _encode(item).decode()


def to_fields_v1(paths: Iterable[Path]) -> dict[str, Any]:
    """The nested form that is stored in managedFields."""
    root: dict[str, Any] = {}
    chosen = set(paths)
    for path in sorted(chosen):
        node = root
        for element in path:
            node = node.setdefault(element, {})
        if path[-1].startswith("k:"):
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
    if kind == "list-map" and isinstance(live, list):
        return _merge_elements(live, applied, schema)
    if kind == "set" and isinstance(live, list):
        return live + [item for item in applied if item not in live]
    return applied


def _merge_elements(live: list[Any], applied: list[Any], schema: Schema) -> list[Any]:
    below = items(schema)
    mine = {key_element(schema, item): item for item in applied}
    answer = []
    for item in live:
        update = mine.pop(key_element(schema, item), None)
        answer.append(item if update is None else merge(item, update, below))
    return answer + list(mine.values())


def drop(value: Any, paths: Iterable[Path], schema: Schema) -> Any:
    """Return the object without these paths; emptied containers that only held them go as well."""
    tree: dict[str, Any] = {}
    for path in paths:
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node["!"] = {}
    return _dropped(value, tree, schema)


def _dropped(value: Any, tree: Mapping[str, Any], schema: Schema) -> Any:
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
            answer.append(_dropped(item, below, items(schema)))
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
        kept = _dropped(child, below, member(schema, name) or ANYTHING)
        if kept or not child:
            answer[name] = kept
    return answer


def human(path: Path) -> str:
    """`.spec.containers[name="x"].image`, as conflicts are told."""
    return "".join(_human(element) for element in path)


def _human(element: str) -> str:
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "v":
        return f"[={rest}]"
    keys = msgspec.json.decode(rest)
    return "[" + ",".join(f"{name}={_encode(value).decode()}" for name, value in keys.items()) + "]"
