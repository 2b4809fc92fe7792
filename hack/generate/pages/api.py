"""docs/api/: a page for each kind, with every field of its CustomResourceDefinition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from elasticjob.api.crds import DECLARATIONS, manifest
from elasticjob.kube.crd.embedded import Detail
from elasticjob.kube.crd.model import Declaration
from hack.generate.pages import cell, table

Schema = Mapping[str, Any]

HEADER: Final = "<!-- Made by `make generate` from the models in api/; do not edit. -->\n"
ABOUT: Final = """\
`kubectl explain` prints the same descriptions. A field marked * is required. The tables show what the API
server checks. [Admission](../walkthrough.md#invalid-specs-are-refused) refuses more, with the
field and what to write.
"""
OPAQUE: Final = frozenset({"template", "metadata"})
"""Fields whose content Kubernetes documents."""
INT32: Final = 2**31 - 1
"""A limit that every number of the API has."""
LIMITS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} entries",
    "maxItems": "at most {} entries",
    "maxProperties": "at most {} keys",
    "pattern": "matches `{}`",
}


def pages(folder: Path) -> dict[Path, str]:
    """Return the pages of all kinds: path → text."""
    return {folder / f"{one.kind.name.lower()}.md": page(one) for one in DECLARATIONS}


def page(declaration: Declaration) -> str:
    """Return the page of one kind."""
    definition = manifest(declaration, Detail.OPAQUE)["spec"]
    version = definition["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    names = [definition["names"]["plural"], *definition["names"].get("shortNames", ())]
    about = [
        f"# {declaration.kind.name}\n",
        HEADER,
        f"{schema.get('description', '')}\n",
        table(
            ("", ""),
            (
                ("`apiVersion`", f"`{definition['group']}/{version['name']}`"),
                ("`kind`", f"`{declaration.kind.name}`"),
                ("for kubectl", ", ".join(f"`{name}`" for name in names)),
                ("scope", definition["scope"]),
                ("shown by `kubectl get`", _columns(version)),
                *(("`kubectl scale`", f"`{each['specReplicasPath']}`") for each in _scales(version)),
            ),
        ),
        ABOUT,
        *(_sections(name, part) for name, part in schema["properties"].items() if name in ("spec", "status")),
    ]
    return "\n".join(about)


def _columns(version: Schema) -> str:
    columns = version.get("additionalPrinterColumns", ())
    return ", ".join(f"{each['name']}{' (`-o wide`)' if each.get('priority') else ''}" for each in columns)


def _scales(version: Schema) -> list[Schema]:
    return [each for name, each in version.get("subresources", {}).items() if name == "scale"]


def _sections(path: str, schema: Schema) -> str:
    """The table of one object's fields, and those of the objects in it."""
    return "\n".join(_section(at, part) for at, part in _objects(path, schema))


def _objects(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        at, inner = _inner(f"{path}.{name}", field)
        if name not in OPAQUE and inner.get("properties"):
            yield from _objects(at, inner)


def _inner(path: str, field: Schema) -> tuple[str, Schema]:
    """Return the object in a field: of a list its items, of a map its values."""
    if "items" in field:
        return _inner(f"{path}[]", field["items"])
    if isinstance(field.get("additionalProperties"), dict):
        return _inner(f"{path}.*", field["additionalProperties"])
    return path, field


def _section(path: str, schema: Schema) -> str:
    required = frozenset(schema.get("required", ()))
    rows = (
        (f"`{name}`{' *' if name in required else ''}", _type(name, field), _default(field), _meaning(field))
        for name, field in schema.get("properties", {}).items()
    )
    parts = [f"## {path}\n"]
    if text := schema.get("description"):
        parts.append(f"{_plain(text)}\n")
    parts.append(table(("field", "type", "default", ""), rows))
    if rules := [f"- {_plain(each)}\n" for each in _rules(schema)]:
        parts.append(f"Refused with one of these sentences:\n\n{''.join(rules)}")
    return "\n".join(parts)


def _type(name: str, field: Schema) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if name == "template" and field.get("type") == "object":
        return "pod template"
    if "items" in field:
        return f"list of {_type('', field['items'])}"
    if isinstance(field.get("additionalProperties"), dict):
        return f"map to {_type('', field['additionalProperties'])}"
    if field.get("format") == "date-time":
        return "time"
    return str(field.get("type", "any"))


def _default(field: Schema) -> str:
    value = field.get("default")
    return "" if value in (None, "", {}, []) else f"`{cell(json.dumps(value))}`"


def _meaning(field: Schema) -> str:
    _, inner = _inner("", field)
    limits = [*_limits(field), *(_limits(inner) if inner is not field else ())]
    text = _plain(field.get("description", ""))
    if values := inner.get("enum"):
        limits.insert(0, "one of " + ", ".join(f"`{each}`" if each != "" else "empty" for each in values))
    own = [f"“{_plain(each)}”" for each in _rules(field)] if not field.get("properties") else []
    return " ".join(filter(None, (text, f"*{'; '.join(limits)}.*" if limits else "", *own)))


def _limits(field: Schema) -> list[str]:
    return [
        say.format(cell(str(field[key])))
        for key, say in LIMITS.items()
        if key in field and field[key] != INT32
    ]


def _rules(schema: Schema) -> list[str]:
    return [each.get("message", "") for each in schema.get("x-kubernetes-validations", ())]


def _plain(text: str) -> str:
    return cell(" ".join(text.split())).replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
