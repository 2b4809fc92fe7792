"""What a rule knows of the values that it reads: their kinds, and how large a schema lets them be.

The API server decides with the same figures, which are these facts: a request has 3 MiB, so an unbounded text
has that many bytes, and an unbounded list as many items as fit when each is as short as its schema allows; a
character may take four bytes; fields whose schema says no type are unknown to rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from elasticjob.kube.crd.schemas import EMBEDDED, INT_OR_STRING

Schema = Mapping[str, Any]

REQUEST_BYTES: Final = 3 * 1024 * 1024
_CHARACTER_BYTES: Final = 4


@dataclass(frozen=True)
class Shape:
    """The kind of a value, how many elements or bytes it has at most, and its shortest JSON in bytes."""

    kind: str
    most: int = 0
    shortest: int = 1
    fields: Mapping[str, Shape] = field(default_factory=dict)
    key: Shape | None = None
    element: Shape | None = None


DYN: Final = Shape("dyn")
TEXT: Final = Shape("string", REQUEST_BYTES - 2, 2)
_SCALARS: Final[Mapping[str, Shape]] = {
    "boolean": Shape("bool", 0, 4),
    "integer": Shape("int", 0, 1),
    "number": Shape("double", 0, 1),
}
_MOMENTS: Final[Mapping[str, Shape]] = {
    "date": Shape("timestamp", 12, 12),
    "date-time": Shape("timestamp", 32, 21),
    "duration": Shape("duration", 32, 3),
}
_STANDARD: Final[Mapping[str, Shape]] = {
    "apiVersion": TEXT,
    "kind": TEXT,
    "metadata": Shape("object", 0, 2, {"name": TEXT, "generateName": TEXT}),
}


def shape_of(node: Schema, *, root: bool = False) -> Shape | None:
    """Return what rules know of a schema's values; None where the schema hides them from rules.

    The root of an object, embedded ones too, has its standard fields, whatever its schema says of them.
    """
    if node.get(INT_OR_STRING):
        return Shape("dyn", _bytes(node.get("maxLength")), 1)
    if (scalar := _SCALARS.get(node.get("type", ""))) is not None:
        return scalar
    found = _composed(node)
    if (root or node.get(EMBEDDED)) and found is not None:
        return Shape("object", 0, found.shortest, {**found.fields, **_STANDARD})
    return found


def _composed(node: Schema) -> Shape | None:
    match node.get("type"):
        case "string":
            return _text(node)
        case "array":
            return _list(node)
        case "object":
            return _map(node) if "additionalProperties" in node else _object(node)
        case _:
            return None


def _bytes(characters: int | None) -> int:
    return REQUEST_BYTES - 2 if characters is None else max(characters, 0) * _CHARACTER_BYTES


def _text(node: Schema) -> Shape:
    form = node.get("format", "")
    if form in _MOMENTS:
        return _MOMENTS[form]
    if form == "byte":
        return Shape("bytes", max(node.get("maxLength", REQUEST_BYTES - 2), 0), 2)
    if "maxLength" not in node and node.get("enum"):
        words = [word for word in node["enum"] if isinstance(word, str)]
        return Shape("string", max((len(word.encode()) for word in words), default=0), 2)
    return Shape("string", _bytes(node.get("maxLength")), 2)


def _list(node: Schema) -> Shape | None:
    element = shape_of(node.get("items", {}))
    if element is None:
        return None
    fitting = (REQUEST_BYTES - 2) // (element.shortest + 1)
    return Shape("list", max(node.get("maxItems", fitting), 0), 2, element=element)


def _map(node: Schema) -> Shape | None:
    more = node["additionalProperties"]
    element = shape_of(more) if isinstance(more, Mapping) else None
    if element is None:
        return None
    fitting = (REQUEST_BYTES - 2) // (element.shortest + 6)
    return Shape("map", max(node.get("maxProperties", fitting), 0), 2, key=TEXT_KEY, element=element)


TEXT_KEY: Final = Shape("string", 0, 2)
"""The key of a map: the server takes its length for 0."""


def _object(node: Schema) -> Shape:
    fields = {name: shape for name, child in node.get("properties", {}).items() if (shape := shape_of(child))}
    needed = [name for name in node.get("required", ()) if name in fields]
    shortest = 2 + sum(
        len(name.encode()) + fields[name].shortest + 4
        for name in needed
        if "default" not in node["properties"][name]
    )
    return Shape("object", 0, shortest, fields)
