"""Checks of the `x-kubernetes-validations` of a schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from elasticjob.devcluster.server.model.errors import Cause
from elasticjob.devcluster.server.model.names import missing, unsupported, wrong
from elasticjob.devcluster.server.model.schemas import Schema
from elasticjob.devcluster.server.schema.expressions import CompileError, Expression, compile_rule
from elasticjob.kube.crd.schemas import reads_old

RULES = "x-kubernetes-validations"
_REASONS = {"FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"}


def rule_problems(schema: Schema, path: str) -> Iterator[Cause]:
    """Problems of a CRD's rules that need no compilation."""
    for where, node in _nodes(schema, path):
        for index, spec in enumerate(node.get(RULES) or ()):
            yield from _spec_problems(spec, f"{where}.{RULES}[{index}]", node)


def compiled_rule(spec: Mapping[str, Any], field: str = "rule") -> Expression:
    """Compile one expression of a rule. Raises NotCompiled."""
    return compile_rule(spec[field], "self", "oldSelf", optional_old=bool(spec.get("optionalOldSelf")))


def expression_problems(schema: Schema, path: str) -> Iterator[Cause]:
    """Rules that do not compile, or that use oldSelf where old values cannot be matched."""
    for where, node, lost in _place(schema, path, ""):
        for index, spec in enumerate(node.get(RULES) or ()):
            yield from _compile_problems(spec, f"{where}.{RULES}[{index}]")
            yield from _old_self_problems(spec, f"{where}.{RULES}[{index}]", lost)


def _place(node: Schema, path: str, lost: str) -> Iterator[tuple[str, Schema, str]]:
    """Schemas with the list or map around them whose items have no identity, those within others first."""
    within = lost or (path if node.get("x-kubernetes-map-type") == "atomic" else "")
    for name, child in (node.get("properties") or {}).items():
        yield from _place(child, f"{path}.properties[{name}]", within)
    for word in ("items", "additionalProperties"):
        if isinstance(node.get(word), dict):
            keyed = word != "items" or node.get("x-kubernetes-list-type") == "map"
            yield from _place(node[word], f"{path}.{word}", within or ("" if keyed else path))
    yield path, node, lost


def _compile_problems(spec: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for field in ("rule", "messageExpression"):
        if spec.get(field):
            try:
                compiled_rule(spec, field)
            except CompileError as error:
                yield wrong(f"{path}.{field}", spec[field], f"compilation failed: {error}")
                return


def _old_self_problems(spec: Mapping[str, Any], path: str, lost: str) -> Iterator[Cause]:
    if not reads_old(spec["rule"]):
        if spec.get("optionalOldSelf") is not None:
            why = "may not be set if oldSelf is not used in rule"
            yield wrong(f"{path}.optionalOldSelf", spec["optionalOldSelf"], why)
    elif lost:
        why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {lost}"
        yield wrong(f"{path}.rule", spec["rule"], why)


def _nodes(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, child in (schema.get("properties") or {}).items():
        yield from _nodes(child, f"{path}.properties[{name}]")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _nodes(schema[key], f"{path}.{key}")


def _spec_problems(spec: Mapping[str, Any], path: str, node: Schema) -> Iterator[Cause]:
    yield from _text_problems(spec, path)
    if spec.get("messageExpression") and not spec["messageExpression"].strip():
        yield missing(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
    if spec.get("reason") is not None and spec["reason"] not in _REASONS:
        yield unsupported(f"{path}.reason", spec["reason"], sorted(_REASONS))
    where = spec.get("fieldPath") or ""
    if where and not where.strip():
        yield wrong(f"{path}.fieldPath", where, "must be non-empty if specified")
    if is_broken(where):
        yield wrong(f"{path}.fieldPath", where, "must not contain line breaks")
    if not _leads_somewhere(where, node):
        yield wrong(f"{path}.fieldPath", where, "must be a valid path")


def _text_problems(spec: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """The first thing that is wrong with a rule's text and its message."""
    rule, message = (spec.get("rule") or "").strip(), spec.get("message") or ""
    if not rule:
        yield missing(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield wrong(f"{path}.message", message, "must be non-empty if specified")
    elif is_broken(message.strip()):
        yield wrong(f"{path}.message", message, "must not contain line breaks")
    elif is_broken(rule) and not message:
        yield missing(f"{path}.message", "message must be specified if rule contains line breaks")


def is_broken(text: str) -> bool:
    """Whether a text has line breaks."""
    return "\n" in text or "\r" in text


_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\['([^']+)'\]")


def _leads_somewhere(path: str, node: Schema) -> bool:
    """Whether a field path (`.name`, `['name']`) ends in the schema."""
    here: Any = node
    for step in _STEP.finditer(path):
        more = here.get("additionalProperties")
        here = (here.get("properties") or {}).get(
            step[1] or step[2], more if isinstance(more, dict) else None
        )
        if here is None:
            return False
    return not path or "".join(step[0] for step in _STEP.finditer(path)) == path
