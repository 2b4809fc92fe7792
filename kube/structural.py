"""Pydantic's JSON schema → the structural schema of a CustomResourceDefinition.

Pydantic emits what JSON Schema 2020-12 allows; an API server accepts much less, and refuses the rest with messages that do
not name the Python field. So the schema runs through an ordered chain of small rewriters, bottom up, then through checks;
what has no equivalent is refused here, with the field's path and what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

Schema = dict[str, Any]
Rewriter = Callable[[Schema, str], Schema]
Check = Callable[[Schema, str], str | None]

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_KEYS: Final = "x-kubernetes-list-map-keys"
RULES: Final = "x-kubernetes-validations"


class UnsupportedSchema(TypeError):
    """A model says something that a CustomResourceDefinition cannot; the message says what to write instead."""

    def __init__(self, path: str, advice: str) -> None:
        super().__init__(f"{path or 'the root'}: {advice}")


def structural(schema: Schema, embedded: Mapping[str, Schema]) -> Schema:
    """Return the structural schema of a model's JSON schema; `embedded` has the schemas of `Embedded` fields.

    Raises UnsupportedSchema at the first field that cannot be said, with its path.
    """
    whole = inlined(schema, schema.get("$defs", {}), ())
    written = rewritten({**whole, "type": "object"}, "", embedded)
    for path, node in nodes(written, ""):
        for check in CHECKS:
            if complaint := check(node, path):
                raise UnsupportedSchema(path, complaint)
    refuse_unbounded_rules(written)
    return written


# Walking ------------------------------------------------------------------------------------------------------------


def inlined(node: Any, models: Mapping[str, Schema], within: tuple[str, ...]) -> Any:
    """Return a schema with models in the place of references; a model within itself is opaque from there on."""
    if isinstance(node, list):
        return [inlined(item, models, within) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" not in node:
        return {key: inlined(item, models, within) for key, item in node.items() if key != "$defs"}
    name = node["$ref"].removeprefix("#/$defs/")
    siblings = {key: inlined(item, models, within) for key, item in node.items() if key != "$ref"}
    if name in within:
        return {"type": "object", PRESERVE: True, **siblings}
    return {**inlined(models[name], models, (*within, name)), **siblings}


def rewritten(node: Schema, path: str, embedded: Mapping[str, Schema]) -> Schema:
    """Return a schema after all rewriters, from the leaves to the root; embedded types are taken as they are."""
    if "x-embedded" in node:
        kept = {key: node[key] for key in ("description",) if key in node}
        return {**embedded[node["x-embedded"]], **kept}
    found = dict(node)
    for key, child_path, child in children(node, path):
        _put(found, key, rewritten(child, child_path, embedded))
    for rewriter in REWRITERS:
        found = rewriter(found, path)
    return found


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


def _put(node: Schema, place: tuple[str, Any], child: Schema) -> None:
    """Put a child in its place, in a copy of what holds it."""
    holder, name = place
    if name is None:
        node[holder] = child
    elif isinstance(name, int):
        node[holder] = [child if index == name else old for index, old in enumerate(node[holder])]
    else:
        node[holder] = {**node[holder], name: child}


# Rewriters ----------------------------------------------------------------------------------------------------------


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
    """A union of models told apart by a field is one model with all fields, and rules that say which go together."""
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
    """Whether unknown fields are kept is not said by additionalProperties beside properties: the server prunes."""
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

    So is one that is an object: its fields have their own; and one that is IMPLIED: readers see it, the server stores
    none.
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

NOISE: Final = (
    "title examples deprecated readOnly writeOnly contentEncoding contentMediaType propertyNames x-implied"
).split()


# Checks -------------------------------------------------------------------------------------------------------------


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

WORDS: Final = (
    "description type format default enum nullable minimum maximum exclusiveMinimum exclusiveMaximum multipleOf "
    "minLength maxLength pattern minItems maxItems minProperties maxProperties required properties items "
    f"additionalProperties allOf anyOf oneOf not {LIST_TYPE} {LIST_KEYS} x-kubernetes-map-type "
    f"x-kubernetes-embedded-resource {INT_OR_STRING} {PRESERVE} {RULES}"
).split()
_ORDER: Final[Mapping[str, int]] = {word: place for place, word in enumerate(WORDS)}

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


# Rules --------------------------------------------------------------------------------------------------------------

_BOUNDS: Final[Mapping[str, tuple[str, str]]] = {
    "string": ("maxLength", "max_length"),
    "array": ("maxItems", "max_length"),
    "object": ("maxProperties", "max_length"),
}
_WALKS: Final = re.compile(
    r"\bself((?:\.\w+)*)\.(?:all|exists|exists_one|map|filter|matches|contains|startsWith|endsWith)\("
)


def refuse_unbounded_rules(root: Schema) -> None:
    """The server estimates the cost of every rule; one under or over something without a bound is refused there."""
    _refuse_unbounded(root, "", ())


def _refuse_unbounded(node: Schema, path: str, missing: tuple[str, ...]) -> None:
    if node.get(RULES):
        for complaint in (
            *missing,
            *(filter(None, (unbounded(node, path),))),
            *_walked_unbounded(node, path),
        ):
            raise UnsupportedSchema(path, f"a Rule here costs too much: {complaint}")
    here = unbounded(node, path) if node.get("type") == "array" or "additionalProperties" in node else None
    for _, child_path, child in children(node, path):
        _refuse_unbounded(child, child_path, (*missing, *filter(None, (here,))))


def unbounded(node: Schema, path: str) -> str | None:
    """Return what is missing for a list, map or text to have an end, or None."""
    if "properties" in node or node.get("type") not in _BOUNDS or "enum" in node:
        return None
    word, option = _BOUNDS[node["type"]]
    return None if word in node else f"{path} has no {word}: write Field({option}=…)"


def _walked_unbounded(node: Schema, path: str) -> Iterator[str]:
    for rule in node[RULES]:
        for match in _WALKS.finditer(rule["rule"]):
            walked, walked_path = node, path
            for name in match[1].split(".")[1:]:
                walked, walked_path = walked.get("properties", {}).get(name, {}), f"{walked_path}.{name}"
            if complaint := unbounded(walked, walked_path):
                yield complaint


def _without(node: Schema, *keys: str) -> Schema:
    return {key: value for key, value in node.items() if key not in keys}
