"""From bytes to items: an object kept as JSON text beside the few metadata that watching and caching need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from elasticjob.kube.errors import KubeError, Unreachable, error_of
from elasticjob.kube.json import JsonReader, TooDeep
from elasticjob.kube.objects.kinds import Key

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Owner(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One ownerReference."""

    uid: str = ""
    kind: str = ""
    name: str = ""
    api_version: str = ""
    controller: bool | None = None


class Meta(msgspec.Struct, rename="camel", gc=False):
    """The metadata that are decoded for every object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    finalizers: list[str] | None = None
    deletion_timestamp: str | None = None
    managed_fields: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def key(self) -> Key:
        """The object's name within its kind."""
        return Key(self.namespace, self.name)

    @property
    def version(self) -> int:
        """The resourceVersion as the number that it is; 0 where a server uses another form."""
        return int(self.resource_version) if self.resource_version.isdecimal() else 0


class Item(msgspec.Struct, frozen=True, gc=False):
    """One object: metadata, and its JSON without managedFields. Not tracked by the garbage collector."""

    key: Key
    meta: Meta
    raw: bytes


class ChangeType(StrEnum):
    """The event that a line of a watch carries."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Changed(msgspec.Struct, frozen=True, gc=False):
    """An object came, changed or went."""

    type: ChangeType
    item: Item


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """Nothing newer than `version` has been missed; `initial_done` marks the end of the initial events."""

    version: str
    initial_done: bool = False


class Failed(msgspec.Struct, frozen=True):
    """The request was refused or cut, or the stream carried an error."""

    error: KubeError


class Malformed(msgspec.Struct, frozen=True):
    """One object whose metadata cannot be read; all others go on."""

    why: str


class _Shell(msgspec.Struct):
    metadata: Meta = msgspec.field(default_factory=Meta)


class _Event(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    object: _Shell


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


TYPES = dict(ChangeType.__members__)
MANAGED = b'"managedFields":'
OPENINGS: dict[str, bytes] = {type_: b'{"type":"%s","object":' % type_.encode() for type_ in ChangeType}
"""How the API server begins a line: the object is what follows, up to the last brace."""

_shell = JsonReader(_Shell, strict=False)
_event = JsonReader(_Event, strict=False)
_line = JsonReader(_Line)
_members = JsonReader(dict[str, msgspec.Raw])


def item_of(raw: msgspec.Raw | bytes) -> Item:
    """The item of one object's JSON, which is copied. Raises ValueError when its metadata cannot be read."""
    text = bytes(raw)
    return _item(_shell.decode(text).metadata, text, 0, len(text))


def _item(meta: Meta, text: bytes, start: int, end: int) -> Item:
    """The item of the object that is text[start:end]."""
    managed = meta.managed_fields
    if not isinstance(managed, msgspec.Raw):
        return Item(meta.key, meta, text[start:end])
    meta.managed_fields = msgspec.UNSET  # it would keep the whole text in memory
    return Item(meta.key, meta, _without(text, start, end, bytes(managed)))


def _without(text: bytes, start: int, end: int, managed: bytes) -> bytes:
    """The object without its managedFields, which are cut out where they stand as the API server writes them.

    The first that reads so is the right one: within strings quotes are escaped, and metadata come first.
    """
    member = text.find(MANAGED, start, end)
    value = member + len(MANAGED)
    after = value + len(managed)
    if member < 0 or text[member - 1 : member] != b"," or not text.startswith(managed, value):
        return _encoded_without_managed_fields(text[start:end])
    whole = memoryview(text)
    return b"".join((whole[start : member - 1], whole[after:end]))


def _encoded_without_managed_fields(raw: bytes) -> bytes:
    members = _members.decode(raw)
    metadata = _members.decode(members["metadata"])
    del metadata["managedFields"]
    members["metadata"] = msgspec.Raw(msgspec.json.encode(metadata))
    return msgspec.json.encode(members)


def items_of(raws: Iterable[msgspec.Raw]) -> Iterator[Item | Malformed]:
    """The items of a list; an unreadable one fails alone."""
    for raw in raws:
        try:
            yield item_of(raw)
        except ValueError as error:
            yield Malformed(str(error))


def line_of(line: bytes) -> Changed | Bookmark | Failed | Malformed:
    """The event in one line of a watch. A line that is not a watch event is a transport error."""
    try:
        found = _event.decode(line)
    except msgspec.DecodeError:
        return _unusual(line)
    opening = OPENINGS.get(found.type, b"")
    if opening and line.startswith(opening) and line.endswith(b"}"):
        item = _item(found.object.metadata, line, len(opening), len(line) - 1)
        return Changed(TYPES[found.type], item)
    return _unusual(line)


def _unusual(line: bytes) -> Changed | Bookmark | Failed | Malformed:
    """Decode a line that the fast path rejects, step by step."""
    try:
        found = _line.decode(line)
    except TooDeep as error:
        return Malformed(str(error))
    except msgspec.DecodeError as error:
        return Failed(Unreachable(f"the watch sent a line that is no event: {error}: {line[:120]!r}"))
    if found.type == "ERROR":
        return Failed(_error(bytes(found.object)))
    try:
        return _message(found)
    except ValueError as error:
        return Malformed(str(error))


def _message(line: _Line) -> Changed | Bookmark | Failed:
    if line.type == "BOOKMARK":
        meta = _shell.decode(line.object).metadata
        return Bookmark(meta.resource_version, (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true")
    if line.type not in ChangeType.__members__:
        return Failed(Unreachable(f"the watch sent an event of unknown type {line.type!r}"))
    return Changed(ChangeType(line.type), item_of(line.object))


class _Code(msgspec.Struct):
    code: int = 0


_CODE = JsonReader(_Code)


def _error(status: bytes) -> KubeError:
    try:
        code = _CODE.decode(status).code
    except msgspec.DecodeError:
        code = 0
    return error_of(code or 500, status, "watch")


class Lines:
    """Cuts chunks into lines of any length; what follows the last newline waits for the rest of its line."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes."""
        first, newline, more = chunk.partition(b"\n")
        self._rest.append(first)
        if not newline:
            return []
        lines = [b"".join(self._rest), *more.split(b"\n")]
        self._rest = [lines.pop()]
        return [line for line in lines if line.strip()]
