"""The types of a rule's variables, by the schema that the rule stands in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from elasticjob.kube.cel.shapes import Shape
from elasticjob.kube.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Type,
    list_of,
    map_of,
    maybe,
)

ROOT: Final = "selfType"
"""How the type of `self` is called in complaints; a server adds a number of chance."""

_SCALARS: Final[Mapping[str, Type]] = {
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "duration": DURATION,
    "dyn": DYN,
    "int": INT,
    "string": STRING,
    "timestamp": TIMESTAMP,
}


def variables(shape: Shape, *, optional_old: bool = False) -> dict[str, Type]:
    """Return the types of `self` and `oldSelf`, where `self` has this shape."""
    root = _type(shape, ROOT)
    return {"self": root, "oldSelf": maybe(root) if optional_old else root}


def _type(shape: Shape, name: str) -> Type:
    """The type of a value; objects are called after the way from the root to them."""
    element = shape.element or Shape("dyn")
    match shape.kind:
        case "object":
            fields = {key: _type(field, f"{name}.{key}") for key, field in shape.fields.items()}
            return Type(name, fields=fields)
        case "list":
            return list_of(_type(element, f"{name}.@idx"))
        case "map":
            return map_of(STRING, _type(element, f"{name}.@elem"))
        case kind:
            return _SCALARS[kind]
