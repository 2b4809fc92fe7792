"""Which changes of a CustomResourceDefinition break stored objects or the clients that write them.

    for change in changes(old, new):
        print(change.sentence())

Told are fields that are removed, retyped, or unknown and no longer kept, removed enum values, new required
fields without a default, and tightened bounds. Servers from 1.33 on *ratchet* (1.30 to 1.32 by default): an
update is refused only for what it changes, so an object that was valid when it was stored can still be edited
elsewhere. Older servers refuse every update of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from elasticjob.kube.crd.schemas import INT_OR_STRING, PRESERVE, Schema
from elasticjob.kube.objects.kinds import Manifest


@dataclass(frozen=True)
class Change:
    """One breaking difference: where, what, what happens to stored objects, and what to do instead."""

    path: str
    what: str
    stored: str
    instead: str

    def sentence(self) -> str:
        """The change as people read it, in three lines."""
        stored, instead = f"  stored objects: {self.stored}", f"  instead: {self.instead}"
        return "\n".join((f"breaking {self.path}: {self.what}", stored, instead))


def changes(old: Manifest, new: Manifest) -> list[Change]:
    """Return the breaking differences between two definitions of a kind, version by version."""
    before, after = (
        {version["name"]: version["schema"]["openAPIV3Schema"] for version in each["spec"]["versions"]}
        for each in (old, new)
    )
    return [
        change for name in before if name in after for change in _of_schema(before[name], after[name], name)
    ]


_UNFIT: Final = (
    "those that do not fit are served; servers before 1.33 refuse every update of them, later ones "
)
_UNFIT_FIELD: Final = _UNFIT + "a write that changes this field"
_PRUNED: Final = "it is pruned when they are read, and lost with their next write"
_KEEP: Final = "keep what was allowed, and have the controller report what it cannot use"
_WIDER: Final = frozenset({("integer", "number"), ("integer", "int-or-string"), ("string", "int-or-string")})
_LEAST: Final = ("minimum", "minLength", "minItems", "minProperties")
_MOST: Final = ("maximum", "maxLength", "maxItems", "maxProperties")


def _of_schema(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    before, after = _type(old), _type(new)
    if before != after and after != "anything" and (before, after) not in _WIDER:
        yield Change(path, f"{before} became {after}", _UNFIT_FIELD, "add a field of another name")
        return
    for differ in DIFFERS:
        yield from differ(old, new, path)


def _type(node: Schema) -> str:
    if node.get(INT_OR_STRING):
        return "int-or-string"
    kind = str(node.get("type", "anything"))
    return "map" if kind == "object" and "additionalProperties" in node else kind


def fields_removed(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    """Fields that are gone, known or not, and the differences of those that stay."""
    if old.get(PRESERVE) and not new.get(PRESERVE):
        yield Change(path, "unknown fields are pruned now", _PRUNED, "keep the field open")
    before, after = old.get("properties", {}), new.get("properties", {})
    for name in before:
        if name in after:
            yield from _of_schema(before[name], after[name], f"{path}.{name}")
        elif not new.get(PRESERVE):
            instead = "keep it, and say in its description that it has no effect"
            yield Change(f"{path}.{name}", "the field is gone", _PRUNED, instead)


def fields_required(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    """Fields that a writer could leave out before."""
    for name in sorted(_without_default(new) - _without_default(old)):
        yield Change(
            f"{path}.{name}",
            "required now, without a default",
            "those without it are served; servers before 1.33 refuse every update of them, later ones each "
            "that changes the object around it",
            "give it a default, or leave it optional and have the controller say what is missing",
        )


def _without_default(node: Schema) -> set[str]:
    fields = node.get("properties", {})
    return {name for name in node.get("required", ()) if "default" not in fields.get(name, {})}


def items_changed(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    """The items of lists and maps."""
    for word, mark in (("items", "[]"), ("additionalProperties", "[*]")):
        before, after = old.get(word), new.get(word)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _of_schema(before, after, f"{path}{mark}")


def enum_narrowed(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    """Values that are not allowed any more."""
    before, after = old.get("enum"), new.get("enum")
    if after is None or before == after:
        return
    if before is None:
        yield Change(path, f"only {_list(after)} are allowed now", _UNFIT_FIELD, _KEEP)
    elif gone := [value for value in before if value not in after]:
        instead = "keep the values, and have the controller say that they have no effect"
        yield Change(path, f"{_list(gone)} not allowed any more", _UNFIT_FIELD, instead)


def _list(values: list[Any]) -> str:
    return ", ".join(map(str, values))


def bounds_tightened(old: Schema, new: Schema, path: str) -> Iterator[Change]:
    """Bounds that are new, or closer."""
    for word in (*_LEAST, *_MOST):
        before, after = old.get(word), new.get(word)
        if after is None or before == after:
            continue
        if before is None or (after > before if word in _LEAST else after < before):
            was = "none" if before is None else before
            yield Change(path, f"{word} {was} became {after}", _UNFIT_FIELD, _KEEP)
    if old.get("pattern") != new.get("pattern") and "pattern" in new:
        was = old.get("pattern", "none")
        yield Change(path, f"pattern {was} became {new['pattern']}", _UNFIT_FIELD, _KEEP)


Differ = Callable[[Schema, Schema, str], Iterator[Change]]
DIFFERS: Final[tuple[Differ, ...]] = (
    fields_removed,
    fields_required,
    items_changed,
    enum_narrowed,
    bounds_tightened,
)
