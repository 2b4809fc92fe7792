"""From Pydantic's JSON schema to one that an API server accepts: an ordered chain of small rewriters.

A rewriter gets a schema whose parts are rewritten already, and its path; it returns the schema, changed or as
it was, or raises UnsupportedSchema where there is no equivalent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from elasticjob.kube.crd.schemas import (
    EMPTY,
    INT_OR_STRING,
    LIST_KEYS,
    LIST_TYPE,
    MOMENT,
    PRESERVE,
    RULES,
    WORDS,
    Schema,
    UnsupportedSchema,
    escape,
)

Rewriter = Callable[[Schema, str], Schema]


def refuse_tuples(node: Schema, path: str) -> Schema:
    """A list whose places have types of their own has no equivalent."""
    if "prefixItems" in node:
        raise UnsupportedSchema(
            path, "a tuple has no CRD equivalent: write list[T], or a model with named fields"
        )
    return node


def refuse_durations(node: Schema, path: str) -> Schema:
    """ISO durations (PT5S) are not what the server and Go programs read."""
    if node.get("format") == "duration":
        raise UnsupportedSchema(
            path, "timedelta is written PT5S, Kubernetes reads 5s: write kube.crd.Duration"
        )
    return node


def refuse_plain_moments(node: Schema, path: str) -> Schema:
    """A datetime may be written without a zone, or with more digits than Kubernetes writes."""
    if node.get("format") == "date-time" and MOMENT not in node:
        raise UnsupportedSchema(
            path, "a datetime may lack its zone, which servers refuse: write kube.crd.Time, or MicroTime"
        )
    return node


def optional_is_absent(node: Schema, path: str) -> Schema:
    """`X | None` is X that may be absent; NULLABLE also allows null."""
    choices = node.get("anyOf", [])
    present = [choice for choice in choices if choice.get("type") != "null"]
    if len(present) == len(choices):
        return node
    if len(present) == 1:
        return {**present[0], **_without(node, "anyOf")}
    return {**node, "anyOf": present}


def words_have_one_type(node: Schema, path: str) -> Schema:
    """`Literal["x", None]` is an optional word; words and numbers in one enum have no type."""
    if "enum" not in node or "type" in node:
        return node
    words = [word for word in node["enum"] if word is not None]
    kinds = {name for word in words for name, kind in _WORDS.items() if type(word) is kind}
    if len(kinds) != 1:
        raise UnsupportedSchema(path, f"the words {words} are not of one type: write them all as text")
    return {**node, "type": kinds.pop(), "enum": words}


def numbers_are_numbers(node: Schema, path: str) -> Schema:
    """`int | float` is a number."""
    if _types(node) == {"integer", "number"}:
        [limits] = [_without(choice, "type") for choice in node["anyOf"] if choice["type"] == "number"]
        return {**_without(node, "anyOf"), "type": "number", **limits}
    return node


def number_or_text(node: Schema, path: str) -> Schema:
    """`int | str` is Kubernetes' own int-or-string; limits of the number and of the text do not meet."""
    if _types(node) != {"integer", "string"}:
        return node
    limits = {word: limit for choice in node["anyOf"] for word, limit in _limits(choice, path).items()}
    return {**_without(node, "anyOf"), **limits, INT_OR_STRING: True}


def _types(node: Schema) -> set[str]:
    """The types of a union of scalars; empty for anything else."""
    choices = node.get("anyOf", [])
    return {choice.get("type", "") for choice in choices} if len(choices) == 2 else set()


def _limits(choice: Schema, path: str) -> Schema:
    """The constraints of one of the two types; an enum becomes a pattern, which applies to strings only."""
    if "enum" in choice and choice["type"] != "string":
        raise UnsupportedSchema(path, "a few numbers or a text: write the numbers as text, in one Literal")
    words = (
        {"pattern": f"^({'|'.join(re.escape(word) for word in choice['enum'])})$"} if "enum" in choice else {}
    )
    return {**_without(choice, "type", "enum", "title", "description", "format"), **words}


def variants_are_merged(node: Schema, path: str) -> Schema:
    """A union of models told apart by a field is one model with all fields, and rules about them."""
    if "discriminator" not in node or "oneOf" not in node:
        return node
    tag, variants = node["discriminator"]["propertyName"], node["oneOf"]
    tags = [value for variant in variants for value in variant["properties"][tag]["enum"]]
    kind = variants[0]["properties"][tag]["type"]
    merged = {**_merged_fields(variants, tag, path), tag: {"type": kind, "enum": tags}}
    required = set.intersection(*(set(variant.get("required", ())) for variant in variants)) | {tag}
    return {
        **_without(node, "oneOf", "discriminator"),
        "type": "object",
        "properties": merged,
        "required": [name for name in merged if name in required],
        RULES: [*node.get(RULES, []), *_variant_rules(variants, tag, required)],
    }


def _merged_fields(variants: list[Schema], tag: str, path: str) -> Schema:
    merged: Schema = {}
    for variant in variants:
        if RULES in variant:
            raise UnsupportedSchema(
                path, "a variant of a union has RULES of its own: write them at the union's field"
            )
        for name, field in variant["properties"].items():
            if name != tag and _meaning(merged.setdefault(name, field)) != _meaning(field):
                raise UnsupportedSchema(
                    f"{path}.{name}",
                    "two variants of a union disagree about this field: give it one type or two names",
                )
    return merged


def _meaning(field: Schema) -> Schema:
    """The schema of a field for a server."""
    return _without(field, "description", EMPTY)


def _variant_rules(variants: list[Schema], tag: str, common: set[str]) -> Iterator[Schema]:
    for variant in variants:
        words = variant["properties"][tag]["enum"]
        chosen = f"self.{escape(tag)} in {json.dumps(words)}"
        shown = " or ".join(str(word) for word in words)
        for name in variant.get("required", ()):
            if name not in common:
                rule = f"!({chosen}) || has(self.{escape(name)})"
                yield {"rule": rule, "message": f"{name} is required where {tag} is {shown}"}


def refuse_unions(node: Schema, path: str) -> Schema:
    """Any other union has no equivalent: a structural schema has one type per field."""
    if "anyOf" in node or "oneOf" in node:
        raise UnsupportedSchema(
            path,
            "a union has no CRD equivalent: write one model with optional fields and a Rule, models with a "
            "discriminator, or int | str for kube.crd.Quantity",
        )
    return node


def literals_are_enums(node: Schema, path: str) -> Schema:
    """`const: x` is `enum: [x]`."""
    return {**_without(node, "const"), "enum": [node["const"]]} if "const" in node else node


def exclusive_bounds_are_flags(node: Schema, path: str) -> Schema:
    """`exclusiveMinimum: 0` is `minimum: 0, exclusiveMinimum: true`, as in OpenAPI 3.0."""
    found = node
    for bound, flag in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if flag in node and not isinstance(node[flag], bool):
            found = {**found, bound: node[flag], flag: True}
    return found


def sets_are_list_types(node: Schema, path: str) -> Schema:
    """`uniqueItems` is quadratic; a list-type says the same."""
    return {**_without(node, "uniqueItems"), LIST_TYPE: "set"} if node.get("uniqueItems") else node


def keys_have_rules(node: Schema, path: str) -> Schema:
    """Constraints on map keys become a rule; servers do not know propertyNames and patternProperties."""
    limits = dict(node.get("propertyNames", {}))
    found = _without(node, "propertyNames", "patternProperties")
    if patterns := node.get("patternProperties"):
        if len(patterns) > 1:
            raise UnsupportedSchema(path, "keys of several patterns: write one pattern for all keys")
        limits["pattern"], found["additionalProperties"] = next(iter(patterns.items()))
    rules = [
        {"rule": f"self.all(key, {text.format(json.dumps(limits[word]))})", "message": say(limits[word])}
        for word, (text, say) in _KEY_RULES.items()
        if word in limits
    ]
    return {**found, RULES: [*node.get(RULES, []), *rules]} if rules else found


_KEY_RULES: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "enum": ("key in {}", lambda words: f"the keys are {', '.join(words)}"),
    "pattern": ("key.matches({})", lambda pattern: f"the keys are like {pattern}"),
    "minLength": ("size(key) >= {}", lambda least: f"the keys have at least {least} characters"),
    "maxLength": ("size(key) <= {}", lambda most: f"the keys have at most {most} characters"),
}


def extras_follow_pruning(node: Schema, path: str) -> Schema:
    """With `extra="allow"` the server keeps unknown fields; otherwise it prunes them."""
    extras = node.get("additionalProperties")
    if extras is True:
        return {**_without(node, "additionalProperties"), PRESERVE: True}
    if isinstance(extras, dict) and "properties" in node:
        raise UnsupportedSchema(
            path,
            'extra fields of one type have no CRD equivalent: write a dict field, or extra="allow" alone',
        )
    return _without(node, "additionalProperties") if extras is False else node


def anything_is_opaque(node: Schema, path: str) -> Schema:
    """`Any` is kept as it comes."""
    says_nothing = not node.keys() - {"title", "description", "default", "nullable"}
    return {**node, PRESERVE: True} if says_nothing else node


def empty_defaults_are_absent(node: Schema, path: str) -> Schema:
    """A default that only says nothing (null, empty text, list or object) is left out.

    So is one that is an object: its fields have their own; and one that is IMPLIED: readers see it, the
    server stores none.
    """
    stored = node.get("default")
    if "default" not in node or not (
        stored is None or stored in ("", []) or isinstance(stored, dict) or "x-implied" in node
    ):
        return node
    return {**_without(node, "default"), EMPTY: True} if stored == "" else _without(node, "default")


def base64_is_byte(node: Schema, path: str) -> Schema:
    """Base64Bytes is what Kubernetes calls byte: servers check it, rules see bytes."""
    return {**node, "format": "byte"} if node.get("format") == "base64" else node


def list_keys_keep_empty_defaults(node: Schema, path: str) -> Schema:
    """A key of a keyed list may be the empty text where it is left out: that default says something."""
    items = node.get("items", {})
    for key in node.get(LIST_KEYS, ()):
        field = items.get("properties", {}).get(key, {})
        if field.get("type") == "string" and EMPTY in field:
            items = {**items, "properties": {**items["properties"], key: {**field, "default": ""}}}
    return {**node, "items": items} if "items" in node else node


def without_noise(node: Schema, path: str) -> Schema:
    """Drop the words that say nothing to a server that checks and prunes."""
    return _without(node, *NOISE)


def texts_are_paragraphs(node: Schema, path: str) -> Schema:
    """A docstring's line breaks are the source file's, not the reader's."""
    if "description" not in node:
        return node
    return {**node, "description": " ".join(node["description"].split())}


def in_reading_order(node: Schema, path: str) -> Schema:
    """Types first, rules last."""
    return dict(sorted(node.items(), key=lambda entry: _ORDER.get(entry[0], len(_ORDER))))


REWRITERS: Final[tuple[Rewriter, ...]] = (
    refuse_tuples,
    refuse_durations,
    refuse_plain_moments,
    optional_is_absent,
    literals_are_enums,
    words_have_one_type,
    numbers_are_numbers,
    number_or_text,
    variants_are_merged,
    refuse_unions,
    exclusive_bounds_are_flags,
    sets_are_list_types,
    keys_have_rules,
    extras_follow_pruning,
    anything_is_opaque,
    base64_is_byte,
    empty_defaults_are_absent,
    list_keys_keep_empty_defaults,
    without_noise,
    texts_are_paragraphs,
    in_reading_order,
)

NOISE: Final = [
    "title",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "x-implied",
    MOMENT,
]

_WORDS: Final[Mapping[str, type]] = {"string": str, "integer": int, "boolean": bool}

_ORDER: Final[Mapping[str, int]] = {word: place for place, word in enumerate(WORDS)}


def _without(node: Schema, *keys: str) -> Schema:
    return {key: value for key, value in node.items() if key not in keys}
