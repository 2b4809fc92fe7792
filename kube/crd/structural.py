"""Pydantic's JSON schema → the structural schema of a CustomResourceDefinition.

Pydantic emits what JSON Schema 2020-12 allows; an API server accepts much less, and refuses the rest with
messages that do not name the Python field. So the schema runs through an ordered chain of small rewriters,
bottom up, then through checks; what has no equivalent is refused here, with the field's path and what to
write instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elasticjob.kube.crd.rewriters import REWRITERS, Rewriter
from elasticjob.kube.crd.schemas import EMPTY, PRESERVE, Schema, children, nodes
from elasticjob.kube.crd.soundness import refuse_unsound


def structural(schema: Schema, embedded: Mapping[str, Schema]) -> Schema:
    """Return the structural schema of a model's JSON schema; `embedded` has the schemas of `Embedded` fields.

    Raises UnsupportedSchema at the first field that cannot be said, with its path.
    """
    whole = inline(schema, schema.get("$defs", {}), ())
    written = rewritten({**whole, "type": "object"}, "", embedded)
    for _, node in nodes(written, ""):
        node.pop(EMPTY, None)
    refuse_unsound(written)
    return written


def inline(node: Any, models: Mapping[str, Schema], within: tuple[str, ...]) -> Any:
    """Return a schema with models in the place of references; within itself, a model is opaque."""
    if isinstance(node, list):
        return [inline(item, models, within) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" not in node:
        return {key: inline(item, models, within) for key, item in node.items() if key != "$defs"}
    name = node["$ref"].removeprefix("#/$defs/")
    siblings = {key: inline(item, models, within) for key, item in node.items() if key != "$ref"}
    if name in within:
        return {"type": "object", PRESERVE: True, **siblings}
    return {**inline(models[name], models, (*within, name)), **siblings}


def rewritten(
    node: Schema, path: str, embedded: Mapping[str, Schema], rewriters: Sequence[Rewriter] = REWRITERS
) -> Schema:
    """Return a schema after all rewriters, from the leaves up; embedded types are taken as they are."""
    if "x-embedded" in node:
        kept = {key: node[key] for key in ("description",) if key in node}
        return {**embedded[node["x-embedded"]], **kept}
    found = dict(node)
    for key, child_path, child in children(node, path):
        _put(found, key, rewritten(child, child_path, embedded, rewriters))
    for rewriter in rewriters:
        found = rewriter(found, path)
    return found


def _put(node: Schema, place: tuple[str, Any], child: Schema) -> None:
    """Put a child in its place, in a copy of what holds it."""
    holder, name = place
    if name is None:
        node[holder] = child
    elif isinstance(name, int):
        node[holder] = [child if index == name else old for index, old in enumerate(node[holder])]
    else:
        node[holder] = {**node[holder], name: child}
