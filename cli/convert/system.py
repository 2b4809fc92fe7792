"""What a system of other people's manifests is to `elasticjob convert`, and how its fields are read.

A system is one file in `systems/`. It asks for fields by name and says of each what becomes of it. Fields
that nobody asked for become notes by themselves, so nothing is left out silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Protocol

from elasticjob.kube.objects.kinds import Kind, Manifest

UNKNOWN: Final = "no ElasticJob has it, and no converter knows it: look whether the job needs it"
ANEW: Final = "the cluster writes it anew"
PLAIN_KEY: Final = re.compile(r"[A-Za-z_][\w-]*")


class Verdict(StrEnum):
    """What became of a field."""

    KEPT = "kept"  # means the same, if in another place or form: the note says which
    CHANGED = "changed"  # means something else
    DROPPED = "dropped"  # is not said any more


@dataclass(frozen=True)
class Note:
    """What became of a field of a manifest, or of a flag of a command line, and why."""

    line: int | None
    field: str
    verdict: Verdict
    why: str = ""
    harmless: bool = False
    """Whether nothing is lost although the field is dropped: what the cluster writes itself."""

    @property
    def lossy(self) -> bool:
        """Whether the job may behave differently."""
        return self.verdict is not Verdict.KEPT and not self.harmless

    def __str__(self) -> str:
        return f"{self.field}: {self.verdict}" + (f" ({self.why})" if self.why else "")


@dataclass(frozen=True)
class Converted:
    """What was made of one document."""

    job: Manifest
    """An ElasticJob; of a ScalePlan or the like, our object that means the same."""
    notes: tuple[Note, ...]
    others: tuple[Manifest, ...] = ()
    """Objects that the job needs beside it."""


@dataclass(frozen=True)
class Source:
    """A parsed manifest, or the text of a command line or a script."""

    file: str
    """How the user named it."""
    manifest: Manifest = field(default_factory=dict)
    """Empty for command lines and scripts."""
    text: str = ""
    """Empty for manifests."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """The lines of fields, by their paths."""
    first: int = 1
    """The line at which it begins."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The texts of files that a command line names, by their paths: configurations and hostfiles."""

    def line(self, path: str) -> int | None:
        """Return the line of a field in the file, such as spec.replicas or spec.containers[0].image."""
        return self.lines.get(path)

    def is_a(self, group: str, *kinds: str) -> bool:
        """Whether it is a manifest of one of these kinds, in any version of the group."""
        version, kind = self.manifest.get("apiVersion"), self.manifest.get("kind")
        return isinstance(version, str) and version.partition("/")[0] == group and kind in kinds


class System(Protocol):
    """A system whose manifests or command lines can be converted."""

    @property
    def NAME(self) -> str:
        """For people: Kubeflow PyTorchJob."""

    @property
    def KINDS(self) -> tuple[Kind[Manifest], ...]:
        """The kinds that it reads, by which --from-cluster finds them; none for command lines."""

    def recognises(self, source: Source) -> bool:
        """Whether this is one of its own; the first system of SYSTEMS that says so converts it."""

    def convert(self, source: Source) -> Converted:
        """Return the job and what became of each field. Raises Unconvertible where there can be no job."""


class Unconvertible(ValueError):
    """A document of which no job can be made; the sentence names the field and the next step."""


def child(path: str, name: str | int) -> str:
    """Return the path of a member: spec.replicas, containers[0], labels[example.org/team]."""
    if isinstance(name, str) and PLAIN_KEY.fullmatch(name):
        return f"{path}.{name}" if path else name
    return f"{path}[{name}]"


@dataclass
class _Log:
    """What is known of the fields of a document so far: their notes, and whose members are looked at."""

    notes: dict[str, Note] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)


class Fields:
    """A mapping of a manifest that is read field by field, and remembers what became of each."""

    def __init__(self, source: Source, value: Any = None, path: str = "", log: _Log | None = None) -> None:
        self.source, self.path = source, path
        self.log = log or _Log()
        given = source.manifest if log is None and value is None else value
        self.value: Manifest = given if isinstance(given, dict) else {}
        if isinstance(given, dict) and path not in self.log.notes:
            self.log.opened.add(path)

    def __contains__(self, name: str) -> bool:
        return name in self.value

    def peek(self, name: str) -> Any:
        """Return a field without saying what becomes of it; None if it is absent."""
        return self.value.get(name)

    def keep(self, name: str, why: str = "") -> Any:
        """Return a field whose meaning is kept, `why`: where or in which form; None if it is absent."""
        return self._noted(name, Verdict.KEPT, why)

    def change(self, name: str, why: str) -> Any:
        """Return a field whose meaning changes; None if it is absent."""
        return self._noted(name, Verdict.CHANGED, why)

    def drop(self, name: str, why: str, *, harmless: bool = False) -> Any:
        """Return a field that is left out, `why`: what to do instead; None if it is absent."""
        return self._noted(name, Verdict.DROPPED, why, harmless)

    def number(self, name: str, why: str = "") -> int | None:
        """Return a whole number that is kept; what is none is dropped."""
        value = self.peek(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return int(self.keep(name, why))
        self._wrong(name, "a whole number")
        return None

    def text(self, name: str, why: str = "") -> str:
        """Return a text that is kept, "" if it is absent; what is none is dropped."""
        value = self.peek(name)
        if isinstance(value, str):
            return str(self.keep(name, why))
        self._wrong(name, "a text")
        return ""

    def flag(self, name: str, why: str = "") -> bool | None:
        """Return true or false that is kept; what is neither is dropped."""
        value = self.peek(name)
        if isinstance(value, bool):
            return bool(self.keep(name, why))
        self._wrong(name, "true or false")
        return None

    def below(self, name: str) -> Fields:
        """Return the members of a field, each of which is looked at by itself; empty if it has none.

        A field of which a note says what becomes of it as a whole stays with that.
        """
        if self.peek(name) is not None and not isinstance(self.peek(name), dict):
            self._wrong(name, "an object")
        return Fields(self.source, self.peek(name) or {}, child(self.path, name), self.log)

    def each(self, name: str) -> list[Fields]:
        """Return the objects of a list, each of which is looked at by itself."""
        value, path = self.peek(name), child(self.path, name)
        if not isinstance(value, list):
            self._wrong(name, "a list")
            return []
        if path not in self.log.notes:
            self.log.opened.add(path)
        return [
            Fields(self.source, one, child(path, at), self.log)
            for at, one in enumerate(value)
            if isinstance(one, dict)
        ]

    def note(self, path: str, verdict: Verdict, why: str, *, harmless: bool = False) -> None:
        """Say what became of a path of the document; what was said last is what counts."""
        self.log.notes[path] = Note(self.source.line(path), path, verdict, why, harmless)

    def notes(self, advice: Mapping[str, str] | None = None) -> tuple[Note, ...]:
        """Return all notes in the order of lines. Fields that nobody read are dropped: `advice` says what to
        do instead, by their names."""
        unread = {
            path: Note(self.source.line(path), path, Verdict.DROPPED, (advice or {}).get(name, UNKNOWN))
            for path, name in self._unread(self.source.manifest, "")
        }
        return in_order(self.source, (*self.log.notes.values(), *unread.values()))

    def _noted(self, name: str, verdict: Verdict, why: str, harmless: bool = False) -> Any:
        if name in self.value:
            self.note(child(self.path, name), verdict, why, harmless=harmless)
        return self.value.get(name)

    def _wrong(self, name: str, wanted: str) -> None:
        if self.peek(name) is not None:
            self.drop(name, f"is not {wanted}: write {wanted}")
        elif name in self.value:
            self.keep(name, "null is as if it were absent")

    def _unread(self, value: Any, path: str) -> Iterator[tuple[str, str]]:
        members: Iterable[tuple[str | int, Any]] = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for name, member in members:
            here = child(path, name)
            if here in self.log.opened:
                yield from self._unread(member, here)
            elif here not in self.log.notes:
                yield here, str(name)


def in_order(source: Source, notes: Iterable[Note]) -> tuple[Note, ...]:
    """Return notes as their fields follow each other in the file; those without a line come last."""
    found = [replace(note, line=source.line(note.field)) if note.line is None else note for note in notes]
    return tuple(sorted(found, key=lambda note: (note.line is None, note.line or 0, note.field)))
