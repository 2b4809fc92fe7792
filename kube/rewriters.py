"""What Pydantic emits → what an API server accepts: small rewriters of one schema, in an ordered chain.

A rewriter gets a schema whose parts are rewritten already, and its path; it returns the schema, changed or as
it was, or raises UnsupportedSchema where there is no equivalent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from elasticjob.kube.schemas import (
    INT_OR_STRING,
    LIST_TYPE,
    PRESERVE,
    RULES,
    WORDS,
    Schema,
    UnsupportedSchema,
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


def optional_is_absent(node: Schema, path: str) -> Schema:
    """`X | None` is X that may be absent; who wants a null says NULLABLE."""
    choices = node.get("anyOf", [])
    present = [choice for choice in choices if choice.get("type") != "null"]
    if len(present) == len(choices):
        return node
    if len(present) == 1:
        return {**present[0], **_without(node, "anyOf")}
    return {**node, "anyOf": present}


def number_or_text(node: Schema, path: str) -> Schema:
    """`int | str` is Kubernetes' own int-or-string."""
    if "anyOf" in node and {choice.get("type") for choice in node["anyOf"]} == {"integer", "string"}:
        return {**_without(node, "anyOf"), INT_OR_STRING: True}
    return node


def variants_are_merged(node: Schema, path: str) -> Schema:
    """A union of models told apart by a field is one model with all fields, and rules about them."""
    if "discriminator" not in node or "oneOf" not in node:
        return node
    tag, variants = node["discriminator"]["propertyName"], node["oneOf"]
    tags = [value for variant in variants for value in variant["properties"][tag]["enum"]]
    merged = {**_merged_fields(variants, tag, path), tag: {"type": "string", "enum": tags}}
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
        for name, field in variant["properties"].items():
            if name != tag and merged.setdefault(name, field) != field:
                raise UnsupportedSchema(
                    f"{path}.{name}",
                    "two variants of a union disagree about this field: give it one type or two names",
                )
    return merged


def _variant_rules(variants: list[Schema], tag: str, common: set[str]) -> Iterator[Schema]:
    for variant in variants:
        value = variant["properties"][tag]["enum"][0]
        for name in variant.get("required", ()):
            if name not in common:
                rule = f"self.{tag} != '{value}' || has(self.{name})"
                yield {"rule": rule, "message": f"{name} is required where {tag} is {value}"}


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


def extras_follow_pruning(node: Schema, path: str) -> Schema:
    """Unknown fields are pruned by the server; additionalProperties beside properties is refused."""
    extras = node.get("additionalProperties")
    if extras is True and "properties" not in node:
        return {**_without(node, "additionalProperties"), PRESERVE: True}
    return _without(node, "additionalProperties") if isinstance(extras, bool) else node


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
    if "default" in node and (
        stored is None or stored in ("", []) or isinstance(stored, dict) or "x-implied" in node
    ):
        return _without(node, "default")
    return node


def without_noise(node: Schema, path: str) -> Schema:
    """Drop the words that say nothing to a server that checks and prunes."""
    return _without(node, *NOISE)


def texts_are_paragraphs(node: Schema, path: str) -> Schema:
    """A docstring's line breaks are the source file's, not the reader's."""
    if "description" not in node:
        return node
    return {**node, "description": " ".join(node["description"].split())}


def in_reading_order(node: Schema, path: str) -> Schema:
    """What a field is comes first, its rules last."""
    return dict(sorted(node.items(), key=lambda entry: _ORDER.get(entry[0], len(_ORDER))))


REWRITERS: Final[tuple[Rewriter, ...]] = (
    refuse_tuples,
    refuse_durations,
    optional_is_absent,
    number_or_text,
    literals_are_enums,
    variants_are_merged,
    refuse_unions,
    exclusive_bounds_are_flags,
    sets_are_list_types,
    extras_follow_pruning,
    anything_is_opaque,
    empty_defaults_are_absent,
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
    "propertyNames",
    "x-implied",
]

_ORDER: Final[Mapping[str, int]] = {word: place for place, word in enumerate(WORDS)}


def _without(node: Schema, *keys: str) -> Schema:
    return {key: value for key, value in node.items() if key not in keys}
