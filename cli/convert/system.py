"""The interface of a source system (Kubeflow, Ray, Slurm, …), and the reader of its manifests' fields.

A system is one file in `systems/`. It reads fields by name and gives each a verdict. Fields that it never
reads are reported as dropped, so no field is left out silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeVar, cast

from elasticjob.kube.objects.kinds import Kind, Manifest

UNKNOWN: Final = "not a field of ElasticJob, and unknown to the converter: check whether the job needs it"
ANEW: Final = "the cluster writes it anew"
EACH: Final = "--nproc-per-node"
T = TypeVar("T")
PLAIN_KEY: Final = re.compile(r"[A-Za-z_][\w-]*")


class Verdict(StrEnum):
    """The outcome of the conversion for one field."""

    KEPT = "kept"  # the same meaning, perhaps in another place or form: the note says which
    CHANGED = "changed"  # another value or meaning
    DROPPED = "dropped"  # not in the result


@dataclass(frozen=True)
class Note:
    """The verdict on a field of a manifest, or on a flag of a command line, and the reason."""

    line: int | None
    field: str
    verdict: Verdict
    why: str = ""
    harmless: bool = False
    """Whether dropping the field loses nothing: the cluster writes it itself, or it is the default here."""

    sizes: tuple[tuple[str, int], ...] = ()
    """The sizes of the role that it gives, if nothing else in the document gives others."""

    @property
    def lossy(self) -> bool:
        """Whether the job may behave differently."""
        return self.verdict is not Verdict.KEPT and not self.harmless

    def __str__(self) -> str:
        return f"{self.field}: {self.verdict}" + (f" ({self.why})" if self.why else "")


@dataclass(frozen=True)
class Conversion:
    """The result of converting one document."""

    job: Manifest
    """An ElasticJob; for other kinds, such as a ScaleIn, the equivalent object of this operator."""
    notes: tuple[Note, ...]
    others: tuple[Manifest, ...] = ()
    """Objects that the job needs beside it."""


@dataclass(frozen=True)
class Source:
    """A parsed manifest, or the text of a command line or a script."""

    file: str
    """Its name in messages: a path, KIND/NAME, or command."""
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

    @property
    def name(self) -> str:
        """The name of the object, "" if it has none."""
        about = self.manifest.get("metadata")
        given = about.get("name") if isinstance(about, dict) else None
        return given if isinstance(given, str) else ""

    def line(self, path: str) -> int | None:
        """Return the line of a field in the file, such as spec.replicas or spec.containers[0].image."""
        return self.lines.get(path)

    def is_a(self, group: str, *kinds: str) -> bool:
        """Whether it is a manifest of one of these kinds, in any version of the group."""
        version, kind = self.manifest.get("apiVersion"), self.manifest.get("kind")
        return isinstance(version, str) and version.partition("/")[0] == group and kind in kinds


@dataclass(frozen=True)
class Marks:
    """What an operator puts into its pods, or makes beside them: templates may refer to it."""

    labels: tuple[tuple[str, str], ...] = ()
    """Patterns of labels and annotations, and the label that pods have here, "" if they have none."""
    variables: tuple[tuple[str, str], ...] = ()
    """Patterns of variables in commands, and the variable that pods have here, "" if they have none."""
    hosts: str = ""
    """A pattern of host names, where {job} stands for the name of the job."""
    objects: tuple[str, ...] = ()
    """Patterns of files, ConfigMaps and Secrets."""

    def label(self, name: str) -> str | None:
        """Return our label in place of another's, "" if there is none; None if it is of neither."""
        return next((ours for pattern, ours in self.labels if re.fullmatch(pattern, name)), None)


NO_MARKS: Final = Marks()


@dataclass(frozen=True)
class System:
    """A system whose manifests or command lines can be converted."""

    name: str
    """For people: Kubeflow PyTorchJob."""
    kinds: tuple[Kind[Manifest], ...]
    """The kinds that it reads, by which --from-cluster finds them; none for command lines."""
    read: Callable[[Fields], list[Manifest]] = lambda whole: []
    """Returns the job of a manifest, and objects beside it. Raises Unconvertible if no job can be made."""
    marks: Marks = NO_MARKS
    advice: Mapping[str, str] = field(default_factory=dict)
    """The next step for fields that it never reads, by their names."""
    knows: Callable[[Source], bool] = lambda source: False
    """Whether a document of no such kind is one of its own."""
    of_text: Callable[[Source], Conversion] | None = None
    """Converts a script or a command line."""

    def recognises(self, source: Source) -> bool:
        """Whether this is one of its own; the first system of SYSTEMS that says so converts it."""
        return any(source.is_a(kind.group, kind.name) for kind in self.kinds) or self.knows(source)

    def convert(self, source: Source) -> Conversion:
        """Return the job and a note for each field. Raises Unconvertible if no job can be made."""
        if self.of_text is not None:
            return self.of_text(source)
        whole = Fields(source)
        job, *others = self.read(whole)
        return Conversion(job, whole.notes(self.advice), tuple(others))


def kind(group: str, name: str, version: str = "v1") -> Kind[Manifest]:
    """Return a kind of another system, whose plural is regular."""
    return Kind(group, version, name, f"{name.lower()}s", dict)


class Unconvertible(ValueError):
    """A document that cannot be converted; the message names the field and the next step."""


def child(path: str, name: str | int) -> str:
    """Return the path of a member: spec.replicas, containers[0], labels[example.org/team]."""
    if isinstance(name, str) and PLAIN_KEY.fullmatch(name):
        return f"{path}.{name}" if path else name
    return f"{path}[{name}]"


@dataclass
class _Log:
    """The fields of a document that were read so far: their notes, and those whose members are read."""

    notes: dict[str, Note] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)


class Fields:
    """A mapping of a manifest that is read field by field, and records the verdict on each."""

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
        """Return a field without a note; None if it is absent."""
        return self.value.get(name)

    def keep(self, name: str, why: str = "") -> Any:
        """Return a field whose meaning is kept, `why`: its new place or form; None if it is absent."""
        return self._note(name, Verdict.KEPT, why)

    def change(self, name: str, why: str) -> Any:
        """Return a field whose meaning changes; None if it is absent."""
        return self._note(name, Verdict.CHANGED, why)

    def drop(self, name: str, why: str, *, harmless: bool = False) -> Any:
        """Return a field that is left out, `why`: what to do instead; None if it is absent."""
        return self._note(name, Verdict.DROPPED, why, harmless)

    def leave(self, names: str, why: str) -> None:
        """Leave out several fields without a loss."""
        for name in names.split():
            self.drop(name, why, harmless=True)

    def number(self, name: str, why: str = "") -> int | None:
        """Return an integer that is kept; a value of another type is dropped."""
        return self._typed(name, why, "a whole number", int)

    def text(self, name: str, why: str = "") -> str:
        """Return a string that is kept, "" if it is absent; a value of another type is dropped."""
        return self._typed(name, why, "a string", str) or ""

    def flag(self, name: str, why: str = "") -> bool | None:
        """Return a boolean that is kept; a value of another type is dropped."""
        return self._typed(name, why, "true or false", bool)

    def _typed(self, name: str, why: str, wanted: str, type_: type[T]) -> T | None:
        value = self.peek(name)
        if type(value) is type_:
            return cast(T, self.keep(name, why))
        self._wrong(name, wanted)
        return None

    def below(self, name: str) -> Fields:
        """Return the members of a field, to be read one by one; empty if it has none.

        If a note covers the field as a whole already, that note stays.
        """
        if self.peek(name) is not None and not isinstance(self.peek(name), dict):
            self._wrong(name, "an object")
        return Fields(self.source, self.peek(name) or {}, child(self.path, name), self.log)

    def each(self, name: str) -> list[Fields]:
        """Return the objects of a list, to be read one by one."""
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
        """Add a note on a path of the document; it replaces an earlier one."""
        self.log.notes[path] = Note(self.source.line(path), path, verdict, why, harmless)

    def notes(self, advice: Mapping[str, str] | None = None) -> tuple[Note, ...]:
        """Return all notes in the order of lines. Fields that were never read are dropped: `advice` has the
        next step by their names."""
        unread = {
            path: Note(self.source.line(path), path, Verdict.DROPPED, (advice or {}).get(name, UNKNOWN))
            for path, name in self._unread(self.source.manifest, "")
        }
        return in_order(self.source, (*self.log.notes.values(), *unread.values()))

    def _note(self, name: str, verdict: Verdict, why: str, harmless: bool = False) -> Any:
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
