"""Objects merged and replaced as an API server does: pure functions, in which all lists are atomic."""

from __future__ import annotations

from typing import Any, Final

from elasticjob.devcluster.server.model.schemas import ANYTHING, Schema, member
from elasticjob.kube.objects.kinds import Manifest

OF_SERVER: Final = frozenset(
    {"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"}
)
"""Fields of metadata that no client decides."""


def own(about: Manifest) -> Manifest:
    """The metadata of a new object, without what no client decides."""
    return {name: value for name, value in about.items() if name not in OF_SERVER}


def merged(old: Any, new: Manifest) -> Manifest:
    """An object with what is applied to it."""
    found = dict(old) if isinstance(old, dict) else {}
    for name, value in new.items():
        found[name] = merged(found.get(name), value) if isinstance(value, dict) else value
    return found


def replaced(old: Manifest, new: Manifest, subresource: str) -> Manifest:
    """The new object or its status, with what no client decides from the old one."""
    if subresource:
        return {**old, subresource: new[subresource]}
    kept = {name: old["metadata"][name] for name in OF_SERVER if name in old["metadata"]}
    rest = {name: value for name, value in new.items() if name not in ("metadata", "status")}
    status = {"status": old["status"]} if "status" in old else {}
    return {**rest, "metadata": {**own(new["metadata"]), **kept}, **status}


def applied_part(manifest: Manifest, subresource: str) -> Manifest:
    """What an apply owns: a subresource, or all but the status and an object's identity."""
    if subresource:
        return {subresource: manifest[subresource]}
    parts = {name: value for name, value in manifest.items() if name not in ("apiVersion", "kind", "status")}
    about = own(manifest["metadata"])
    return {**parts, "metadata": {n: v for n, v in about.items() if n not in ("name", "namespace")}}


def names(given: Manifest) -> Manifest:
    """The names of all fields."""
    return {name: names(value) if isinstance(value, dict) else None for name, value in given.items()}


def without(old: Manifest, before: Manifest, now: Manifest, schema: Schema) -> Manifest:
    """Return an object without what its manager applied before, does not any more, and nobody has changed.

    Defaults stay where all else of an object goes, but not of a value of a map: its key was applied, too.
    """
    found, is_map = dict(old), bool(schema.get("additionalProperties"))
    for name, value in before.items():
        if name not in found:
            continue
        if is_map and name not in now and merged(found, {name: value}) == found:
            del found[name]
        elif value and isinstance(value, dict) and isinstance(found[name], dict):
            left = without(found[name], value, now.get(name) or {}, member(schema, name) or ANYTHING)
            if left or name in now:
                found[name] = left
            else:
                del found[name]
        elif name not in now and (value == {} or found[name] == value):
            del found[name]
    return found
