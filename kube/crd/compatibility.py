"""What a changed CustomResourceDefinition does to objects that are stored, and to who wrote them.

    for change in changes(old, new):
        print(change.sentence())

A change is breaking if an object that was valid may be refused, lose something, or mean something else, or if
a client that worked may fail; safe if none can; noted if it depends. Servers from 1.33 on *ratchet* (1.30 to
1.32 by default): an update is refused only for what it changes, so an object that was valid when it was
stored can still be edited elsewhere. Older servers refuse every update of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from elasticjob.kube.crd.schemas import (
    INT_OR_STRING,
    LIST_KEYS,
    LIST_TYPE,
    MAP_TYPE,
    PRESERVE,
    RULES,
    Schema,
)
from elasticjob.kube.objects.kinds import Manifest


class Effect(StrEnum):
    """What a change means for who has objects."""

    BREAKING = "breaking"
    NOTED = "noted"
    SAFE = "safe"


@dataclass(frozen=True)
class Change:
    """One difference: where, what, what happens to stored objects, and what to do instead."""

    effect: Effect
    path: str
    what: str
    stored: str = ""
    instead: str = ""

    def sentence(self) -> str:
        """The change as people read it, in one to three lines."""
        lines = [f"{self.effect:8} {self.path}: {self.what}"]
        lines += [f"           stored objects: {self.stored}"] if self.stored else []
        lines += [f"           instead: {self.instead}"] if self.instead else []
        return "\n".join(lines)


def changes(old: Manifest, new: Manifest) -> list[Change]:
    """Return what differs between two definitions of a kind, breaking changes first."""
    found = [*_of_definition(old["spec"], new["spec"]), *_of_versions(old["spec"], new["spec"])]
    return sorted(found, key=lambda change: list(Effect).index(change.effect))


def breaking(found: Iterable[Change]) -> list[Change]:
    """Return the changes that need a decision."""
    return [change for change in found if change.effect is Effect.BREAKING]


# The definition

_REFUSED: Final = "they stay under the old name; the server refuses the new definition"
_NEW_KIND: Final = "define a new kind beside this one, and move objects over"


def _of_definition(old: Manifest, new: Manifest) -> Iterator[Change]:
    for word, before, after in (
        ("group", old["group"], new["group"]),
        ("scope", old["scope"], new["scope"]),
        ("names.kind", old["names"]["kind"], new["names"]["kind"]),
        ("names.plural", old["names"]["plural"], new["names"]["plural"]),
    ):
        if before != after:
            yield Change(Effect.BREAKING, word, f"{before} became {after}", _REFUSED, _NEW_KIND)
    for word in ("shortNames", "categories"):
        before, after = set(old["names"].get(word, ())), set(new["names"].get(word, ()))
        for name in sorted(before - after):
            yield Change(
                Effect.NOTED, f"names.{word}", f"{name} is gone", instead="scripts may use it: keep it"
            )
        for name in sorted(after - before):
            yield Change(Effect.SAFE, f"names.{word}", f"{name} is new")


def _of_versions(old: Manifest, new: Manifest) -> Iterator[Change]:
    before, after = _by_name(old), _by_name(new)
    yield from (_gone_version(name, before[name]) for name in before.keys() - after.keys())
    yield from (Change(Effect.SAFE, name, "a new version") for name in after.keys() - before.keys())
    yield from _storage(before, after)
    for name in before.keys() & after.keys():
        yield from _of_version(name, before[name], after[name])


def _by_name(spec: Manifest) -> dict[str, Manifest]:
    return {version["name"]: version for version in spec["versions"]}


def _gone_version(name: str, version: Manifest) -> Change:
    stored = (
        "the server refuses the definition while status.storedVersions names this version"
        if version["storage"]
        else "none is stored in this version"
    )
    instead = (
        f"keep {name} with served: false until all objects were written again in the new version, "
        "then take it out of status.storedVersions, then remove it"
    )
    return Change(Effect.BREAKING, name, "the version is gone", stored, instead)


def _storage(before: Mapping[str, Manifest], after: Mapping[str, Manifest]) -> Iterator[Change]:
    old, new = ({name for name, one in each.items() if one["storage"]} for each in (before, after))
    if old == new:
        return
    yield Change(
        Effect.NOTED,
        ", ".join(sorted(new)),
        f"objects are stored in this version from now on, not in {', '.join(sorted(old))}",
        "each stays as it is until it is written again; status.storedVersions names both versions",
        "write all objects once (kubectl get … -o json | kubectl replace -f -), then set "
        f"status.storedVersions to {sorted(new)}: kubectl patch crd … --subresource=status --type=merge",
    )


def _of_version(name: str, old: Manifest, new: Manifest) -> Iterator[Change]:
    if old["served"] and not new["served"]:
        yield Change(
            Effect.BREAKING,
            name,
            "it is not served any more",
            "they stay, and are served in the other versions",
            "mark it deprecated for some releases first",
        )
    if new.get("deprecated") and not old.get("deprecated"):
        yield Change(Effect.SAFE, name, "it is deprecated: clients are warned")
    yield from _of_subresources(name, old.get("subresources", {}), new.get("subresources", {}))
    yield from _of_selectable(name, old, new)
    before, after = (each["schema"]["openAPIV3Schema"] for each in (old, new))
    yield from _of_schema(before, after, name)


def _of_subresources(name: str, old: Manifest, new: Manifest) -> Iterator[Change]:
    for word in ("status", "scale"):
        path = f"{name} subresources.{word}"
        if word in old and word not in new:
            yield Change(Effect.BREAKING, path, "it is gone", "clients of it get 404", "keep it")
        elif word in new and word not in old and word == "status":
            stored = "their status stays; a status in a write of the whole object is ignored from now on"
            yield Change(
                Effect.BREAKING, path, "it is new", stored, "have all writers of status use /status first"
            )
        elif word in new and word not in old:
            yield Change(Effect.SAFE, path, "it is new")
        elif old.get(word) != new.get(word):
            stored = "autoscalers and kubectl scale read and write another field"
            yield Change(Effect.BREAKING, path, f"{old[word]} became {new[word]}", stored, "keep the paths")


def _of_selectable(name: str, old: Manifest, new: Manifest) -> Iterator[Change]:
    before, after = (
        {each["jsonPath"] for each in version.get("selectableFields", ())} for version in (old, new)
    )
    for path in sorted(before - after):
        stored = "field selectors with it are refused"
        yield Change(Effect.BREAKING, f"{name} selectableFields", f"{path} is gone", stored, "keep it")
    for path in sorted(after - before):
        yield Change(Effect.SAFE, f"{name} selectableFields", f"{path} is new")


# The schema

_UNFIT: Final = (
    "those that do not fit are served; servers before 1.33 refuse every update of them, later ones "
)
_UNFIT_FIELD: Final = _UNFIT + "a write that changes this field"
_PRUNED: Final = "it is pruned when they are read, and lost with their next write"
Differ = Callable[[Schema, Schema, str], Iterator[Change]]


def _of_schema(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    retyped = list(types_differ(old, new, path))
    yield from retyped
    if not breaking(retyped):
        for differ in DIFFERS:
            yield from differ(old, new, path)


def types_differ(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    """Another type: wider ones are safe."""
    before, after = _type(old), _type(new)
    if before == after:
        return
    if (before, after) == ("map", "object") and ("properties" in new or not new.get(PRESERVE)):
        instead = f"keep the map, or make it an object that keeps what it does not know ({PRESERVE})"
        yield Change(
            Effect.BREAKING, path, "map became object: keys that it does not name go", _PRUNED, instead
        )
        return
    if after == "anything" or (before, after) in _WIDER:
        yield Change(Effect.SAFE, path, f"{before} became {after}, which holds it")
        return
    instead = "add a field of another name"
    yield Change(Effect.BREAKING, path, f"{before} became {after}", _UNFIT_FIELD, instead)


def _type(node: Schema) -> str:
    if node.get(INT_OR_STRING):
        return "int-or-string"
    kind = str(node.get("type", "anything"))
    return "map" if kind == "object" and "additionalProperties" in node else kind


_WIDER: Final = frozenset(
    {("integer", "number"), ("integer", "int-or-string"), ("string", "int-or-string"), ("map", "object")}
)


def fields_differ(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    """Fields that are gone, new, or there before and after."""
    before, after = old.get("properties", {}), new.get("properties", {})
    for name in before.keys() - after.keys():
        if not new.get(PRESERVE):
            instead = "keep it, and say in its description that it has no effect"
            yield Change(Effect.BREAKING, f"{path}.{name}", "the field is gone", _PRUNED, instead)
    for name in after.keys() - before.keys():
        yield from _new_field(f"{path}.{name}", after[name], old, name in new.get("required", ()))
    for name in before.keys() & after.keys():
        yield from _of_schema(before[name], after[name], f"{path}.{name}")


def _new_field(path: str, field: Schema, within: Schema, required: bool) -> Iterator[Change]:
    if required and "default" not in field:
        return  # told by requirements_differ
    if within.get(PRESERVE) and _type(field) != "anything":
        stored = f"they may hold anything under this name; {_UNFIT_FIELD}"
        instead = "take another name, or keep this one opaque"
        yield Change(Effect.BREAKING, path, "a field that was kept as it came has a schema", stored, instead)
        return
    default = f", and is {field['default']!r} where it is absent" if "default" in field else ""
    yield Change(Effect.SAFE, path, f"the field is new{default}")


def requirements_differ(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    """A field that must be there, or need not be."""
    before, after = set(old.get("required", ())), set(new.get("required", ()))
    stored = "those without it are served; servers before 1.33 refuse every update of them, later ones "
    for name in sorted(_without_default(new) - _without_default(old)):
        yield Change(
            Effect.BREAKING,
            f"{path}.{name}",
            "required now, without a default",
            f"{stored}each that changes the object around it",
            "give it a default, or leave it optional and have the controller say what is missing",
        )
    for name in sorted(after - before - _without_default(new)):
        yield Change(Effect.SAFE, f"{path}.{name}", "required now, with a default for who leaves it out")
    for name in sorted((before - after) & new.get("properties", {}).keys()):
        yield Change(Effect.SAFE, f"{path}.{name}", "optional now")


def _without_default(node: Schema) -> set[str]:
    """The fields that a writer cannot leave out."""
    fields = node.get("properties", {})
    return {name for name in node.get("required", ()) if "default" not in fields.get(name, {})}


def items_differ(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    """The items of lists and maps."""
    for word, mark in (("items", "[]"), ("additionalProperties", "[*]")):
        before, after = old.get(word), new.get(word)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _of_schema(before, after, f"{path}{mark}")


def words_differ(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    """Enums: fewer words are breaking, more are safe."""
    before, after = old.get("enum"), new.get("enum")
    if before == after:
        return
    if after is None:
        yield Change(Effect.SAFE, path, "any value is allowed now")
        return
    if before is None:
        yield Change(Effect.BREAKING, path, f"only {_list(after)} are allowed now", _UNFIT_FIELD, _KEEP)
        return
    gone, more = (
        [value for value in one if value not in other] for one, other in ((before, after), (after, before))
    )
    if gone:
        instead = "keep the words, and have the controller say that they have no effect"
        yield Change(Effect.BREAKING, path, f"{_list(gone)} not allowed any more", _UNFIT_FIELD, instead)
    if more:
        yield Change(Effect.SAFE, path, f"{_list(more)} allowed, too")


_KEEP: Final = "keep what was allowed, and have the controller report what it cannot use"


def _list(values: list[Any]) -> str:
    return ", ".join(str(value) for value in values)


_LEAST: Final = ("minimum", "minLength", "minItems", "minProperties")
_MOST: Final = ("maximum", "maxLength", "maxItems", "maxProperties")


def bounds_differ(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    """Bounds: tighter ones are breaking, looser ones are safe."""
    for word in (*_LEAST, *_MOST):
        before, after = old.get(word), new.get(word)
        if before == after:
            continue
        tighter = after is not None and (
            before is None or (after > before if word in _LEAST else after < before)
        )
        yield _bound(path, f"{word} {_shown(before)} became {_shown(after)}", tighter)
    for word in ("exclusiveMinimum", "exclusiveMaximum"):
        if bool(old.get(word)) != bool(new.get(word)):
            yield _bound(path, f"{word} is {str(bool(new.get(word))).lower()} now", bool(new.get(word)))
    if old.get("multipleOf") != new.get("multipleOf"):
        step, before = new.get("multipleOf"), old.get("multipleOf")
        tighter = step is not None and (before is None or Decimal(str(before)) % Decimal(str(step)) != 0)
        yield _bound(path, f"multipleOf {_shown(before)} became {_shown(step)}", tighter)


def forms_differ(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    """Patterns, formats and conditions: another one is breaking, none is safe."""
    for word in ("pattern", "format", "anyOf", "oneOf", "allOf", "not"):
        if old.get(word) != new.get(word) and (word, new.get(word)) not in _SAYS_NOTHING:
            yield _bound(path, f"{word} {_shown(old.get(word))} became {_shown(new.get(word))}", word in new)
    if old.get("nullable") and not new.get("nullable"):
        yield _bound(path, "null is not allowed any more", True)
    elif new.get("nullable") and not old.get("nullable"):
        yield _bound(path, "null is allowed", False)


_SAYS_NOTHING: Final = (("format", "int32"), ("format", "int64"))


def _bound(path: str, what: str, tighter: bool) -> Change:
    return (
        Change(Effect.BREAKING, path, what, _UNFIT_FIELD, _KEEP)
        if tighter
        else Change(Effect.SAFE, path, what)
    )


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def defaults_differ(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    """Another default changes what absent means, at once, in all objects stored without the field."""
    before, after = old.get("default"), new.get("default")
    if before == after:
        return
    stored = (
        "those that were written while it was the default hold the old value; those that were stored without "
        "the field read the new value at once"
    )
    what = f"the default {_shown(before)} became {_shown(after)}"
    yield Change(Effect.NOTED, path, what, stored, "make sure that both values mean what their writers meant")


def merging_differs(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    """How lists and maps are merged, and who owns their parts."""
    for word, absent in ((LIST_TYPE, "atomic"), (LIST_KEYS, None), (MAP_TYPE, "granular")):
        before, after = old.get(word, absent), new.get(word, absent)
        if before == after:
            continue
        stored = (
            "field managers lose what they own of it with their next apply; items that are not told apart by "
            "the new keys stay until the list is right once"
        )
        instead = "add a field of another name with the other merging"
        yield Change(
            Effect.BREAKING, path, f"{word} {_shown(before)} became {_shown(after)}", stored, instead
        )


def keeping_differs(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    """Whether unknown fields are kept."""
    if old.get(PRESERVE) and not new.get(PRESERVE):
        stored = (
            "fields that the schema does not know are pruned when they are read, and lost with the next write"
        )
        yield Change(Effect.BREAKING, path, "unknown fields are pruned now", stored, "keep the field open")
    elif new.get(PRESERVE) and not old.get(PRESERVE):
        yield Change(Effect.SAFE, path, "unknown fields are kept now")


def rules_differ(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    """Rules: a new one may be broken by what is stored."""
    before = {rule["rule"] for rule in old.get(RULES, ())}
    after = {rule["rule"] for rule in new.get(RULES, ())}
    for rule in sorted(after - before):
        if "oldSelf" in rule:
            stored = "none is refused as it is; changes that were allowed are not any more"
        else:
            stored = f"{_UNFIT}what changes the value that the rule is about"
        instead = (
            "have a webhook or the controller warn first; or let the rule hold for what is new only: oldSelf"
        )
        yield Change(Effect.BREAKING, path, f"a new rule: {rule}", stored, instead)
    for rule in sorted(before - after):
        yield Change(Effect.SAFE, path, f"a rule less: {rule}")


DIFFERS: Final[tuple[Differ, ...]] = (
    fields_differ,
    requirements_differ,
    items_differ,
    words_differ,
    bounds_differ,
    forms_differ,
    defaults_differ,
    merging_differs,
    keeping_differs,
    rules_differ,
)
