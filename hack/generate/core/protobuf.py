"""Write api/core/protobuf.json: how the built-in kinds that are served are laid out as protobuf messages.

    python -m hack.generate.core.protobuf FOLDER

FOLDER holds api@VERSION, apimachinery@… and apiextensions-apiserver@…: `$(go env GOMODCACHE)/k8s.io` after
hack/kube-binaries. `make generate` needs no Go and therefore does not run this: run it by hand when VERSION
or the kinds in openapi.json change. The numbers and types come from the published generated.proto files; the
JSON names, and whether Go writes an empty value, from the struct tags.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elasticjob.api import core
from lab.paths import ROOT

VERSION = "v0.35.4"
MODULES = ("api", "apimachinery", "apiextensions-apiserver")
TARGET = ROOT / "api" / "core" / "protobuf.json"
SCALARS = frozenset({"string", "bool", "bytes", "int32", "int64", "double"})

_MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^  (optional|repeated|map<string, ([\w.]+)>) ?([\w.]*) (\w+) = (\d+);", re.MULTILINE)
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_TAGGED = re.compile(r'^\t(?:\w+\s+)?(\S+)\s+`json:"([^"]*)"[^`\n]*? protobuf:"\w+,(\d+),', re.MULTILINE)


class Tag(NamedTuple):
    """What Go says of a field: its JSON name ("" = inline), and whether an empty value is written."""

    name: str
    keeps_empty: bool


Field = list[str | bool]
Messages = dict[str, dict[str, Field]]


def messages(folder: Path) -> Messages:
    """Every message as number → [JSON name, type, "one" | "many" | "map", keeps empty values]."""
    found: Messages = {}
    for module in MODULES:
        for proto in sorted((folder / f"{module}@{VERSION}").rglob("generated.proto")):
            text = proto.read_text()
            package = re.search(r"^package (\S+);", text, re.MULTILINE)
            if package is not None:
                found |= dict(_package(text, package[1], tags(proto.parent)))
    return found


def _package(
    text: str, package: str, known: dict[tuple[str, str], Tag]
) -> Iterator[tuple[str, dict[str, Field]]]:
    for name, body in _MESSAGE.findall(text):
        fields: dict[str, Field] = {}
        for label, valued, kind, field, number in _FIELD.findall(body):
            tag = known.get((name, number), Tag(field, False))
            count = {"optional": "one", "repeated": "many"}.get(label, "map")
            fields[number] = [tag.name, _type(valued or kind, package), count, tag.keeps_empty]
        yield short(f"{package}.{name}"), fields


def tags(folder: Path) -> dict[tuple[str, str], Tag]:
    """(struct, field number) → tag, of a Go package."""
    found = {}
    for source in folder.glob("*.go"):
        if not source.name.startswith(("generated.", "zz_")):
            for struct, body in _STRUCT.findall(source.read_text()):
                for kind, name, number in _TAGGED.findall(body):
                    keeps = kind.startswith("*") or "omitempty" not in name
                    found[struct, number] = Tag(name.partition(",")[0], keeps)
    return found


def _type(kind: str, package: str) -> str:
    if kind in SCALARS:
        return kind
    return short(kind.lstrip(".") if "." in kind else f"{package}.{kind}")


def short(name: str) -> str:
    """`k8s.io.api.core.v1.Pod` as `core.v1.Pod`."""
    return ".".join(name.split(".")[-3:])


def reachable(every: Messages) -> Messages:
    """The messages of the kinds in openapi.json, and all that these hold."""
    waiting = ["pkg.runtime.Unknown", "meta.v1.DeleteOptions"]
    for definition in core.definitions().values():
        for each in definition.get("x-kubernetes-group-version-kind") or ():
            group = each["group"].partition(".")[0] or "core"
            waiting += [f"{group}.{each['version']}.{each['kind']}", f"meta.v1.{each['kind']}"]
    chosen: Messages = {}
    while waiting:
        name = waiting.pop()
        if name in every and name not in chosen:
            chosen[name] = every[name]
            waiting += [str(field[1]) for field in every[name].values()]
    return dict(sorted(chosen.items()))


def main(folder: Path) -> None:
    """Read the published files and write ours: one message a line."""
    chosen = reachable(messages(folder))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in chosen.items())
    TARGET.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
