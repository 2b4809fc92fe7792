"""Checks that a server will accept a rewritten schema: types, keywords, patterns, defaults, keys, rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from elasticjob.kube.crd.patterns import matches, pattern_problem
from elasticjob.kube.crd.schemas import (
    INT_OR_STRING,
    LIST_KEYS,
    LIST_TYPE,
    MAP_TYPE,
    PRESERVE,
    RULES,
    WORDS,
    Schema,
    UnsupportedSchema,
    children,
    nodes,
    reads_old,
)

Check = Callable[[Schema, str], str | None]


def refuse_unsound(root: Schema) -> None:
    """Raise UnsupportedSchema at the first field that a server would refuse."""
    for path, node in nodes(root, ""):
        for check in CHECKS:
            if complaint := check(node, path):
                raise UnsupportedSchema(path, complaint)
    refuse_lost_old_values(root, "", "")


def has_a_type(node: Schema, path: str) -> str | None:
    """Every schema needs a type, but for int-or-string and opaque ones."""
    if "type" in node or node.get(INT_OR_STRING) or node.get(PRESERVE):
        return (
            None if node.get("type") != "null" else "a field that is always null says nothing: leave it out"
        )
    return "no type can be read from this field: annotate it with one type, or with Any to keep what comes"


def says_only_what_servers_read(node: Schema, path: str) -> str | None:
    """A word that servers refuse came from a Field option or json_schema_extra."""
    unknown = sorted(key for key in node if key not in WORDS)
    return f"a CRD does not know {', '.join(unknown)}: leave it out, or say it as a Rule" if unknown else None


def pattern_is_re2(node: Schema, path: str) -> str | None:
    """The server's regular expressions know no look-around and no back-references."""
    problem = pattern_problem(node.get("pattern", ""))
    return (
        f"the server cannot read the pattern {node['pattern']!r}: {problem}: write a Rule"
        if problem
        else None
    )


def default_fits(node: Schema, path: str) -> str | None:
    """A default must pass its own schema."""
    if "default" not in node or (why := misfit(node["default"], node)) is None:
        return None
    return f"the default {node['default']!r} breaks the field's own schema: {why}"


def required_fields_are_there(node: Schema, path: str) -> str | None:
    """A word in `required` without a field would be asked for, and pruned."""
    if "properties" not in node or node.get(PRESERVE):
        return None
    unknown = sorted(set(node.get("required", ())) - node["properties"].keys())
    return f"required names no field: {', '.join(unknown)}" if unknown else None


def set_items_are_scalars(node: Schema, path: str) -> str | None:
    """The items of a set are compared as a whole, so they must be scalars, or atomic."""
    if node.get(LIST_TYPE) != "set":
        return None
    items = node.get("items", {})
    if items.get("nullable"):
        return "a set cannot hold null"
    if items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
        return "a set of objects has no CRD equivalent: write list[T] with list_map(key), or ATOMIC"
    if items.get("type") == "array" and items.get(LIST_TYPE, "atomic") != "atomic":
        return "a set of sets has no CRD equivalent: write list[T]"
    return None


def list_keys_are_there(node: Schema, path: str) -> str | None:
    """The keys of a keyed list are scalars that each item has."""
    if node.get(LIST_TYPE) != "map":
        return "list_map: only a list has keys" if LIST_KEYS in node else None
    items, keys = node.get("items", {}), node.get(LIST_KEYS, ())
    if node.get("type") != "array" or items.get("type") != "object" or not keys:
        return "list_map: write a list of models, and at least one key"
    if len(set(keys)) < len(keys):
        return f"list_map: a key is named twice in {', '.join(keys)}"
    if items.get("nullable"):
        return "list_map: an item cannot be null"
    return next((found for key in keys if (found := _key_problem(key, items))), None)


def _key_problem(key: str, items: Schema) -> str | None:
    field = items.get("properties", {}).get(key)
    if field is None:
        return f"list_map({key!r}): the items have no field {key}"
    if field.get("type") in ("object", "array"):
        return f"list_map({key!r}): {key} is no scalar: give the items a text or a number to be told apart by"
    if field.get("nullable"):
        return f"list_map({key!r}): {key} cannot be null"
    if key not in items.get("required", ()) and "default" not in field:
        return f"list_map({key!r}): make {key} required, or give it a default"
    return None


def rules_are_complete(node: Schema, path: str) -> str | None:
    """A rule has a text, a message in one line and a path that exists; servers check types and costs."""
    return next((found for rule in node.get(RULES, ()) if (found := _rule_problem(rule, node))), None)


def _rule_problem(rule: Schema, node: Schema) -> str | None:
    text = rule.get("rule", "")
    if not text.strip():
        return "a Rule is empty: write an expression over self"
    checks = (
        ("\n" in rule.get("message", ""), "its message has line breaks: write one line"),
        ("\n" in text.strip() and not rule.get("message"), "a rule of several lines needs a message"),
        (not reads_old(text) and "optionalOldSelf" in rule, "optional_old without oldSelf: leave it out"),
        (
            rule.get("reason", "FieldValueInvalid") not in REASONS,
            f"its reason is none of {', '.join(REASONS)}",
        ),
        (not _leads_somewhere(rule.get("fieldPath", ""), node), f"there is no field {rule.get('fieldPath')}"),
    )
    complaint = next((why for broken, why in checks if broken), None)
    return f"the Rule {text!r}: {complaint}" if complaint else None


REASONS: Final = ("FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate")


def _leads_somewhere(path: str, node: Schema) -> bool:
    """Whether a rule's field path, of names only, ends in the schema."""
    here: Any = node
    for name in path.split(".")[1:] if path else ():
        here = here.get("properties", {}).get(name) if isinstance(here, dict) else None
    return here is not None


CHECKS: Final[tuple[Check, ...]] = (
    has_a_type,
    says_only_what_servers_read,
    pattern_is_re2,
    default_fits,
    required_fields_are_there,
    set_items_are_scalars,
    list_keys_are_there,
    rules_are_complete,
)


def refuse_lost_old_values(node: Schema, path: str, lost: str) -> None:
    """Refuse `oldSelf` where a server cannot tell which old value belongs to a new one.

    `lost` is the list or map above that has no keys for its items.
    """
    for rule in node.get(RULES, ()):
        if lost and reads_old(rule["rule"]):
            raise UnsupportedSchema(
                path, f"a Rule reads oldSelf, but the items of {lost} have no key: add list_map(key) to it"
            )
    unkeyed = node.get("type") == "array" and node.get(LIST_TYPE) != "map"
    below = lost or (path if unkeyed or node.get(MAP_TYPE) == "atomic" else "")
    for _, child_path, child in children(node, path):
        refuse_lost_old_values(child, child_path, below)


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
    if value is None:
        return None if node.get("nullable") else "it is null"
    if node.get(INT_OR_STRING) and (isinstance(value, bool) or not isinstance(value, int | str)):
        return "it is neither a whole number nor a text"
    if "type" in node and (
        not isinstance(value, _TYPES[node["type"]]) or isinstance(value, bool) != (node["type"] == "boolean")
    ):
        return f"it is not of type {node['type']}"
    limits = _limits(value, node)
    broken = next((word for word, holds in limits if word in node and not holds(node[word])), None)
    if broken:
        return f"it breaks {broken}: {node[broken]}"
    return next((why for child, schema in _parts(value, node) if (why := misfit(child, schema))), None)


def _parts(value: Any, node: Schema) -> Iterator[tuple[Any, Schema]]:
    if isinstance(value, list):
        yield from ((item, node.get("items", {})) for item in value)
    if isinstance(value, dict):
        fields, more = node.get("properties", {}), node.get("additionalProperties", {})
        yield from ((item, fields.get(name, more)) for name, item in value.items())


def _limits(value: Any, node: Schema) -> tuple[tuple[str, Callable[[Any], bool]], ...]:
    number = not isinstance(value, str | list | dict)
    sized = 0 if number else len(value)
    return (
        ("enum", lambda allowed: value in allowed),
        ("minimum", lambda least: not number or value >= least),
        ("maximum", lambda most: not number or value <= most),
        ("exclusiveMinimum", lambda flag: not number or not flag or value > node["minimum"]),
        ("exclusiveMaximum", lambda flag: not number or not flag or value < node["maximum"]),
        ("multipleOf", lambda step: not number or value % step == 0),
        ("minLength", lambda least: number or sized >= least),
        ("maxLength", lambda most: number or sized <= most),
        ("minItems", lambda least: sized >= least),
        ("maxItems", lambda most: sized <= most),
        ("minProperties", lambda least: sized >= least),
        ("maxProperties", lambda most: sized <= most),
        ("required", lambda names: not isinstance(value, dict) or set(names) <= value.keys()),
        ("pattern", lambda pattern: number or matches(pattern, value)),
        (LIST_TYPE, lambda kind: kind != "set" or all(value.count(item) == 1 for item in value)),
        ("format", lambda form: form != "date-time" or _is_moment(value)),
    )


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
