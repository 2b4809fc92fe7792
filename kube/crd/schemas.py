"""Shared by the schema generators: keywords, a walk over schemas, and the error that names the field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

Schema = dict[str, Any]

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_KEYS: Final = "x-kubernetes-list-map-keys"
MAP_TYPE: Final = "x-kubernetes-map-type"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
RULES: Final = "x-kubernetes-validations"

MOMENT: Final = "x-moment"
"""Marks a moment that is written with its zone."""

EMPTY: Final = "x-empty"
"""Marks a field whose default is the empty text; it never leaves the generator."""

WORDS: Final = (
    "description type format default enum nullable minimum maximum exclusiveMinimum exclusiveMaximum "
    "multipleOf minLength maxLength pattern minItems maxItems minProperties maxProperties required "
    f"properties items additionalProperties allOf anyOf oneOf not {LIST_TYPE} {LIST_KEYS} "
    f"{MAP_TYPE} {EMBEDDED} {INT_OR_STRING} {PRESERVE} {RULES}"
).split()
"""The words that servers read, in the order in which people read them."""


class UnsupportedSchema(TypeError):
    """A model says what a CustomResourceDefinition cannot; the message has the field and what to write."""

    def __init__(self, path: str, advice: str) -> None:
        super().__init__(f"{path or 'the root'}: {advice}")
        self.path = path
        self.advice = advice


def nodes(node: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Yield every schema below a schema, and itself, with its path as users write it."""
    yield path, node
    for _, child_path, child in children(node, path):
        yield from nodes(child, child_path)


def children(node: Schema, path: str) -> Iterator[tuple[tuple[str, Any], str, Schema]]:
    """Yield (where it stands, its path, the schema) of the schemas right below."""
    for name, child in node.get("properties", {}).items():
        yield ("properties", name), f"{path}.{name}" if path else name, child
    if isinstance(node.get("items"), dict):
        yield ("items", None), f"{path}[]", node["items"]
    if isinstance(node.get("additionalProperties"), dict):
        yield ("additionalProperties", None), f"{path}[*]", node["additionalProperties"]
    for union in ("anyOf", "oneOf", "allOf"):
        for index, child in enumerate(node.get(union, ())):
            yield (union, index), path, child


_STRING: Final = re.compile(r"""[rR]?(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""")
_OLD: Final = re.compile(r"(?<![.\w])oldSelf\b")


def reads_old(rule: str) -> bool:
    """Whether a rule names `oldSelf` outside of its string literals."""
    return _OLD.search(_STRING.sub("''", rule)) is not None


_RESERVED: Final = frozenset(
    (
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in"),
        *("let", "loop", "namespace", "null", "package", "return", "true", "var", "void", "while"),
    )
)
_ESCAPES: Final = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))


def escape(name: str) -> str:
    """Return a property's name as rules write it."""
    if name in _RESERVED:
        return f"__{name}__"
    for plain, written in _ESCAPES:
        name = name.replace(plain, written)
    return name
