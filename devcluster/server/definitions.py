"""What a CustomResourceDefinition may say beside its schema: names, columns, scale, selectable fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.names import missing, wrong
from elasticjob.devcluster.server.schemas import Schema
from elasticjob.devcluster.server.store import Manifest

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_NO_LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_APPROVED = "api-approved.kubernetes.io"
_WARNING_LENGTH = 256
_MOST_SELECTABLE = 8


def name_problems(crd: Manifest) -> Iterator[Cause]:
    """Names that are no labels, a group that is no domain or not the definer's."""
    spec = crd["spec"]
    names, group = spec.get("names") or {}, spec.get("group") or ""
    for word in ("shortNames", "categories"):
        for index, name in enumerate(names.get(word) or ()):
            yield from _label(f"spec.names.{word}[{index}]", name)
    for index, version in enumerate(spec.get("versions") or ()):
        yield from _label(f"spec.versions[{index}].name", version.get("name") or "")
        yield from _warning(f"spec.versions[{index}].deprecationWarning", version.get("deprecationWarning"))
    if group and "." not in group:
        yield wrong("spec.group", group, "should be a domain with at least one dot")
    approved = (crd["metadata"].get("annotations") or {}).get(_APPROVED)
    if re.search(r"(^|\.)(k8s|kubernetes)\.io$", group) and not approved:
        why = (
            f'protected groups must have approval annotation "{_APPROVED}", '
            "see https://github.com/kubernetes/enhancements/pull/1111"
        )
        yield missing(f"metadata.annotations[{_APPROVED}]", why)


def _label(path: str, name: str) -> Iterator[Cause]:
    if not _LABEL.fullmatch(name):
        yield wrong(path, name, _NO_LABEL)


def _warning(path: str, text: str | None) -> Iterator[Cause]:
    if text is None:
        return
    if len(text) > _WARNING_LENGTH:
        yield wrong(path, text, f"must be <= {_WARNING_LENGTH} characters long")
    odd = next((index for index, letter in enumerate(text) if not letter.isprintable()), None)
    if odd is not None:
        why = f"must only contain printable UTF-8 characters; non-printable character found at index {odd}"
        yield wrong(path, text, why)


def column_problems(columns: Any, path: str) -> Iterator[Cause]:
    """Printer columns without name, type or path, or of unknown types and formats."""
    for index, column in enumerate(columns):
        where = f"{path}[{index}]"
        for name, field in (("name", "name"), ("type", "type"), ("jsonPath", "JSONPath")):
            if not column.get(name):
                yield missing(f"{where}.{field}")
        for name, known in (("type", _COLUMN_TYPES), ("format", _COLUMN_FORMATS)):
            if column.get(name) and column[name] not in known:
                yield wrong(f"{where}.{name}", column[name], f"must be one of {','.join(known)}")
        if (text := column.get("jsonPath")) and not text.startswith("."):
            yield wrong(f"{where}.JSONPath", text, "must be a simple json path starting with .")


def scale_problems(scale: Mapping[str, Any] | None, path: str) -> Iterator[Cause]:
    """Scale paths that are missing, or elsewhere than in spec and status."""
    for name, roots, needed in (
        ("specReplicasPath", ("spec",), True),
        ("statusReplicasPath", ("status",), True),
        ("labelSelectorPath", ("spec", "status"), False),
    ):
        if scale is None:
            return
        text = scale.get(name)
        if not text and needed:
            yield missing(f"{path}.{name}")
        elif text and not text.startswith(tuple(f".{root}." for root in roots)):
            yield wrong(
                f"{path}.{name}", text, f"should be a json path under {' or '.join(f'.{r}' for r in roots)}"
            )


def selectable_problems(fields: Any, schema: Schema, path: str) -> Iterator[Cause]:
    """Selectable fields that are no scalars of the object's own, or named twice, or too many."""
    seen: set[str] = set()
    for index, field in enumerate(fields):
        text = field.get("jsonPath") or ""
        where = f"{path}[{index}].jsonPath"
        if not text:
            yield missing(where)
        elif why := _unselectable(text, schema):
            yield wrong(where, text, why)
        elif text in seen:
            yield Cause(where, f'Duplicate value: "{text}"', "FieldValueDuplicate")
        seen.add(text)
    if len(seen) > _MOST_SELECTABLE:
        yield Cause(path, f"Too many: {len(seen)}: must have at most 8 items", "FieldValueTooMany")


def _unselectable(text: str, schema: Schema) -> str:
    if "[" in text:
        return "is an invalid path: array notation is not allowed"
    found: Schema | None = schema
    for step in text.lstrip(".").split("."):
        found = ((found or {}).get("properties") or {}).get(step)
    if found is None:
        return "is an invalid path: does not refer to a valid field"
    if found.get("type") not in ("string", "boolean", "integer"):
        return (
            "must point to a field of type string, boolean or integer. Enum string fields and strings with "
            "formats are allowed."
        )
    return ""
