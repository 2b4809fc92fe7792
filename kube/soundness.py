"""Whether a server will take a rewritten schema: types, words, patterns, defaults, keys, costs of rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from elasticjob.kube.schemas import (
    INT_OR_STRING,
    LIST_KEYS,
    PRESERVE,
    RULES,
    WORDS,
    Schema,
    UnsupportedSchema,
    children,
    nodes,
)

Check = Callable[[Schema, str], str | None]


def refuse_unsound(root: Schema) -> None:
    """Raise UnsupportedSchema at the first field that a server would refuse."""
    for path, node in nodes(root, ""):
        for check in CHECKS:
            if complaint := check(node, path):
                raise UnsupportedSchema(path, complaint)
    refuse_unbounded_rules(root, "", ())


def has_a_type(node: Schema, path: str) -> str | None:
    """Every schema needs a type, but for int-or-string and opaque ones."""
    if "type" in node or node.get(INT_OR_STRING) or node.get(PRESERVE):
        return None
    return "no type can be read from this field: annotate it with one type, or with Any to keep what comes"


def says_only_what_servers_read(node: Schema, path: str) -> str | None:
    """A word that servers refuse came from a Field option or json_schema_extra."""
    unknown = sorted(key for key in node if key not in WORDS)
    return f"a CRD does not know {', '.join(unknown)}: leave it out, or say it as a Rule" if unknown else None


def pattern_is_re2(node: Schema, path: str) -> str | None:
    """The server's regular expressions know no look-around and no back-references."""
    if _NOT_RE2.search(node.get("pattern", "")):
        return (
            "the server's regular expressions (RE2) have no look-around and no back-references: write a Rule"
        )
    return None


def default_fits(node: Schema, path: str) -> str | None:
    """A default must pass its own schema."""
    if "default" not in node or (why := misfit(node["default"], node)) is None:
        return None
    return f"the default {node['default']!r} breaks the field's own schema: {why}"


def list_keys_are_there(node: Schema, path: str) -> str | None:
    """The keys of a list-map must be required, or have a default."""
    items = node.get("items", {})
    for key in node.get(LIST_KEYS, ()):
        field = items.get("properties", {}).get(key)
        if field is None:
            return f"list_map({key!r}): the items have no field {key}"
        if key not in items.get("required", ()) and "default" not in field:
            return f"list_map({key!r}): make {key} required, or give it a default"
    return None


CHECKS: Final[tuple[Check, ...]] = (
    has_a_type,
    says_only_what_servers_read,
    pattern_is_re2,
    default_fits,
    list_keys_are_there,
)


_NOT_RE2: Final = re.compile(r"\(\?(=|!|<=|<!|>|\(|P=)|(?<!\\)(\\\\)*\\[1-9]|[*+?}]\+")

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def misfit(value: Any, node: Schema) -> str | None:
    """Return why a value breaks a schema, or None; as far as defaults need it."""
    if "type" in node and (
        not isinstance(value, _TYPES[node["type"]]) or isinstance(value, bool) != (node["type"] == "boolean")
    ):
        return f"it is not of type {node['type']}"
    limits = _limits(value, node)
    broken = next((word for word, holds in limits if word in node and not holds(node[word])), None)
    return f"it breaks {broken}: {node[broken]}" if broken else None


def _limits(value: Any, node: Schema) -> tuple[tuple[str, Callable[[Any], bool]], ...]:
    sized = len(value) if isinstance(value, str | list | dict) else 0
    return (
        ("enum", lambda allowed: value in allowed),
        ("minimum", lambda least: value >= least),
        ("maximum", lambda most: value <= most),
        ("exclusiveMinimum", lambda flag: not flag or value > node["minimum"]),
        ("exclusiveMaximum", lambda flag: not flag or value < node["maximum"]),
        ("minLength", lambda least: sized >= least),
        ("maxLength", lambda most: sized <= most),
        ("minItems", lambda least: sized >= least),
        ("maxItems", lambda most: sized <= most),
        ("pattern", lambda pattern: re.search(pattern, value) is not None),
    )


_BOUNDS: Final[Mapping[str, str]] = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}
_WALKS: Final = re.compile(
    r"\bself((?:\.\w+)*)\.(?:all|exists|exists_one|map|filter|matches|contains|startsWith|endsWith)\("
)


def refuse_unbounded_rules(node: Schema, path: str, missing: tuple[str, ...]) -> None:
    """Refuse a rule under or over a list, map or text without a bound: servers refuse what costs too much.

    `missing` are the bounds that lists and maps above lack.
    """
    here = unbounded(node, path)
    lacking = [*missing, *filter(None, (here,)), *_walked_unbounded(node, path)]
    if node.get(RULES) and lacking:
        raise UnsupportedSchema(path, f"a Rule here costs too much: {lacking[0]}")
    for _, child_path, child in children(node, path):
        refuse_unbounded_rules(child, child_path, (*missing, *filter(None, (here,))))


def unbounded(node: Schema, path: str) -> str | None:
    """Return what is missing for a list, map or text to have an end, or None."""
    if "properties" in node or node.get("type") not in _BOUNDS or "enum" in node:
        return None
    word = _BOUNDS[node["type"]]
    return None if word in node else f"{path} has no {word}: write Field(max_length=…)"


def _walked_unbounded(node: Schema, path: str) -> Iterator[str]:
    for rule in node.get(RULES, ()):
        for match in _WALKS.finditer(rule["rule"]):
            walked, walked_path = node, path
            for name in match[1].split(".")[1:]:
                walked, walked_path = walked.get("properties", {}).get(name, {}), f"{walked_path}.{name}"
            if complaint := unbounded(walked, walked_path):
                yield complaint
