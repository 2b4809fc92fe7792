"""YAML, JSON, scripts and command lines as sources, with the lines of fields.

YAML is read as Kubernetes reads it: true and false alone are booleans, timestamps are texts. Keys that are
there twice are refused: readers disagree on the one that counts. The input is bounded, aliases included.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from elasticjob.cli.convert.system import Source, child
from elasticjob.cli.errors import Exit, Failure
from elasticjob.kube.objects.kinds import Manifest

LARGEST: Final = 4 * 1024 * 1024
"""Characters of an input."""
MOST_VALUES: Final = 200_000
DEEPEST: Final = 100

A_KEY: Final = re.compile(r"(\"[^\"]*\"|'[^']*'|[\w./-]+) *:( |$)|[{\[%]|---|[-?] |$")
"""How the first line of YAML begins; a command line begins otherwise."""
NULL: Final = re.compile(r"~|null|Null|NULL|")
TRUTH: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
WHOLE: Final = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
OCTAL: Final = re.compile(r"0o?[0-7]{1,20}")
HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]{1,15}")
FRACTION: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
OF_A_TEMPLATE: Final = "a template is rendered first: helm template"
TEXT: Final = "tag:yaml.org,2002:str"


def sources(file: str, text: str) -> list[Source]:
    """Return the documents of a file; Lists are taken apart. Raises Failure."""
    if len(text) > LARGEST:
        raise _unreadable(file, f"has more than {LARGEST} characters", "give one manifest at a time")
    if not is_yaml(text):
        return [Source(file, text=text)] if text.strip() else []
    return [part for whole in _documents(file, text) for part in _items(whole)]


def is_yaml(text: str) -> bool:
    """Whether a text is meant as YAML or JSON, and not as a script or a command line."""
    if text.startswith("#!") or re.search(r"^#SBATCH\b", text, re.MULTILINE):
        return False
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return A_KEY.match(next(lines, "").lstrip()) is not None


def _documents(file: str, text: str) -> Iterator[Source]:
    if text.lstrip()[:1] in ("{", "["):
        text = re.sub(r"^\t+", lambda tabs: "  " * len(tabs[0]), text, flags=re.MULTILINE)
    reader = _Reader(file)
    try:
        nodes = list(yaml.compose_all(text, yaml.CSafeLoader))
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        why = getattr(error, "problem", None) or "it cannot be read"
        step = OF_A_TEMPLATE if "{{" in text else "correct it there"
        raise _unreadable(file, f"is not YAML{where}: {why}", step) from error
    for node in nodes:
        reader.lines = {}
        value = reader.value(node, "", 0)
        if isinstance(value, dict):
            yield Source(file, value, lines=reader.lines, first=node.start_mark.line + 1)
        elif value is not None:
            line = node.start_mark.line + 1
            raise _unreadable(
                file, f"has no object in line {line}", "write a manifest, with apiVersion and kind"
            )


def _items(source: Source) -> Iterator[Source]:
    """Find the objects of a List, which `kubectl get -o yaml` writes; other manifests are as they are."""
    kind, items = source.manifest.get("kind"), source.manifest.get("items")
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(items, list)):
        yield source
        return
    for at, item in enumerate(items):
        if isinstance(item, dict):
            start = f"{child('items', at)}."
            lines = {
                path.removeprefix(start): line
                for path, line in source.lines.items()
                if path.startswith(start)
            }
            named = {} if kind == "List" else {"kind": kind.removesuffix("List")}  # which items may leave out
            yield Source(source.file, {**named, **item}, lines=lines, first=min(lines.values(), default=1))


class _Reader:
    """Makes values of nodes, and remembers the lines of their paths."""

    def __init__(self, file: str) -> None:
        self.file, self.left = file, MOST_VALUES
        self.lines: dict[str, int] = {}

    def value(self, node: yaml.Node, path: str, depth: int) -> Any:
        self.left -= 1
        if self.left < 0 or depth > DEEPEST:
            why = "is too deep" if depth > DEEPEST else f"has more than {MOST_VALUES} values"
            raise _unreadable(self.file, why, "give one manifest at a time, without aliases")
        match node:
            case yaml.MappingNode():
                return self._mapping(node, path, depth)
            case yaml.SequenceNode():
                return [self._member(each, child(path, at), depth) for at, each in enumerate(node.value)]
            case _:
                return _scalar(node)

    def _member(self, node: yaml.Node, path: str, depth: int, line: int | None = None) -> Any:
        self.lines[path] = line or node.start_mark.line + 1
        return self.value(node, path, depth + 1)

    def _mapping(self, node: yaml.MappingNode, path: str, depth: int) -> Manifest:
        found: Manifest = {}
        seen: dict[str, int] = {}
        for key, value in node.value:
            if key.tag.endswith(":merge"):
                continue
            name, line = self._name(key), key.start_mark.line + 1
            if name in seen:
                raise _unreadable(
                    self.file,
                    f"has {child(path, name)} twice, in lines {seen[name]} and {line}",
                    "leave one of them out",
                )
            seen[name] = line
            found[name] = self._member(value, child(path, name), depth, line)
        for key, value in node.value:
            if key.tag.endswith(":merge"):
                for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    self._merge(found, each, path, depth)
        return found

    def _merge(self, found: Manifest, node: yaml.Node, path: str, depth: int) -> None:
        """Add what `<<: *anchor` brings, except keys that the mapping has itself."""
        if not isinstance(node, yaml.MappingNode):
            line = node.start_mark.line + 1
            raise _unreadable(
                self.file, f"merges no object in line {line}", "write << with an object's alias"
            )
        before = dict(self.lines)
        merged = self._mapping(node, path, depth + 1)
        found.update({name: value for name, value in merged.items() if name not in found})
        self.lines |= before

    def _name(self, key: yaml.Node) -> str:
        if not isinstance(key, yaml.ScalarNode):
            line = key.start_mark.line + 1
            raise _unreadable(
                self.file, f"has a key that is no text in line {line}", f"write a name; {OF_A_TEMPLATE}"
            )
        return str(key.value)


def _scalar(node: yaml.Node) -> Any:
    written = str(node.value)
    if getattr(node, "style", None) in ("'", '"', "|", ">") or node.tag == TEXT:
        return written
    if NULL.fullmatch(written):
        return None
    if written in TRUTH:
        return TRUTH[written]
    if WHOLE.fullmatch(written):
        return int(written)
    if HEXADECIMAL.fullmatch(written):
        return int(written, 16)
    if OCTAL.fullmatch(written):
        return int(written.removeprefix("0").removeprefix("o") or "0", 8)
    return float(written) if FRACTION.fullmatch(written) else written


def _unreadable(file: str, why: str, next_step: str) -> Failure:
    name = "standard input" if file == "-" else file
    return Failure(f"{name} {why}", next_step=next_step, code=Exit.USAGE)
