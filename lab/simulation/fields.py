"""Every field of an object's spec, by the schema of its CRD, with values to write there, or none."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Any, Final

from elasticjob.kube.objects.kinds import Manifest
from lab.build.manifests import ABSENT
from lab.virtual.admission import resources

ROWS: Final = tomllib.loads(Path(__file__).with_name("edits.toml").read_text())
"""Values, and which differences are right."""
NAME: Final = "cpu"
"""The key in an object whose keys are free."""
FIRST: Final = "0"
"""In a path: the first item of a list."""
TEMPLATE: Final = "template"
NEAR: Final = 4
"""Fields of a pod template are all edited to this depth."""
Names = tuple[str, ...]


@dataclass(frozen=True)
class Edit:
    """One field gets a value, or is taken away; objects around it come into being."""

    path: Names
    value: Any

    def __str__(self) -> str:
        field = ".".join(self.path)
        return f"{field} taken away" if self.value is ABSENT else f"{field} = {self.value!r}"

    def of(self, resource: str, manifest: Manifest) -> Manifest:
        """Return an object after the edit."""
        spec = _put(manifest["spec"], schema_of(resource), self.path, self.value)
        return {**manifest, "spec": spec}


def schema_of(resource: str) -> Manifest:
    """Return the schema of the spec of a kind."""
    found: Manifest = resources()[resource].schema["properties"]["spec"]
    return found


def edits_of(resource: str, manifest: Manifest, seed: int, share: float) -> Iterator[Edit]:
    """Yield the edits of all fields; of those deep in a pod template, a share that the seed chooses."""
    for path, value in _edits(schema_of(resource), manifest["spec"], ()):
        if _depth(path) <= NEAR or Random(f"{seed} {path}").random() < share:
            yield Edit(path, value)


def _depth(path: Names) -> int:
    return len(path) - path.index(TEMPLATE) - 1 if TEMPLATE in path else 0


def _edits(schema: Manifest, here: Any, path: Names) -> Iterator[tuple[Names, Any]]:
    if path:
        yield from ((path, value) for value in _values(schema, path) if value != here)
        if here is not None:
            yield path, ABSENT
    for name, child in _children(schema, here).items():
        at = (here[0] if here else None) if isinstance(here, list) else (here or {}).get(name)
        yield from _edits(child, at, (*path, name))


def _children(schema: Manifest, here: Any) -> Mapping[str, Manifest]:
    """The schemas of what is in an object or a list, by names; those of a map are its own, or one."""
    of_all = schema.get("additionalProperties")
    if isinstance(of_all, dict):
        return dict.fromkeys(here or (NAME,), of_all)
    if "items" in schema:
        return {FIRST: schema["items"]}
    return schema.get("properties") or {}


def _values(schema: Manifest, path: Names) -> tuple[Any, ...]:
    """Two or three values of a field: those that the table has, else by its type and bounds."""
    named = "/".join(path)
    for row in ROWS["values"]:
        if fnmatchcase(named, row["field"]):
            return tuple(row["values"])
    if "enum" in schema:
        return tuple(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "2", 3
    match schema.get("type"):
        case "boolean":
            return True, False
        case "integer":
            least, most = schema.get("minimum", 0), schema.get("maximum", 100)
            return tuple(sorted({least, min(least + 1, most), min(least + 5, most)}))
        case "string":
            return "other", "another"
        case "array":
            return [_sample(schema["items"], (*path, FIRST))], []
        case _:
            return ({name: _sample(child, (*path, name)) for name, child in _needed(schema).items()},)


def _sample(schema: Manifest, path: Names) -> Any:
    return _values(schema, path)[0]


def _needed(schema: Manifest) -> Mapping[str, Manifest]:
    """The fields that a value of a schema must have, with their schemas."""
    of_all = schema.get("additionalProperties")
    if isinstance(of_all, dict):
        return {NAME: of_all}
    return {name: schema["properties"][name] for name in schema.get("required", ())}


def _put(here: Any, schema: Manifest, path: Names, value: Any, before: Names = ()) -> Any:
    if not path:
        return value
    name, *rest = path
    if here is None:
        here = _sample(schema, before)
    first = here[0] if isinstance(here, list) and here else None
    at = first if isinstance(here, list) else here.get(name)
    new = _put(at, _children(schema, {name: at})[name], tuple(rest), value, (*before, name))
    if isinstance(here, list):
        return [*([] if new is ABSENT else [new]), *here[1:]]
    left = {other: one for other, one in here.items() if other != name}
    return left if new is ABSENT else {**left, name: new}
