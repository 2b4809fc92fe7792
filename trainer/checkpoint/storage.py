"""Committed checkpoints in a folder or an object store: parts, and a manifest that names them.

    <where>/step-000001000/part-00000-of-00002.r3.8c736521     written first, by as many nodes as parts
    <where>/step-000001000/index.r3.1f00c9aa                   what is where in the parts: all of their heads
    <where>/step-000001000/manifest.json                       written last: with it the checkpoint exists
    <where>/step-000001000/manifest.json.damaged               it was read, and is damaged
    <where>/step-000001000/pin-1764547200-5c0d19e2             somebody reads it: it stays until then

Whatever is there without a manifest does not count. `where` is a path, or a URL that fsspec knows. A part's
name ends with a checksum: another content never overwrites it. Each slab of a piece has one, in the heads;
those of format 1 had one for a whole part, and no index.

A reader's trouble (a time-out, a permission, a mount that is not there) is no verdict on the bytes: it is
`Trouble`, and changes nothing. `Damaged` comes from a reader that has read all of a part, or of the manifest.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import stat
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

import fsspec
import msgspec

from elasticjob.api.rpc.message import decode_as
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.trainer.checkpoint import part as blocks
from elasticjob.trainer.checkpoint import pieces
from elasticjob.trainer.checkpoint.part import ALIGNED, OWN, SMALL, START, Damaged, Head, Newer, Save, Tensor

log = logging.getLogger("elasticjob.checkpoint")

STEP: Final = re.compile(r"step-(\d{9,})")
PART: Final = re.compile(r"(?:part-\d{5,}-of-\d{5,}|index)\.r(\d+)(?:\.[0-9a-f]{8})?")
PIN: Final = re.compile(r"pin-(\d{1,12})-[0-9a-f]{8}")
PINNED: Final = 600  # seconds
MANIFEST: Final = "manifest.json"
ASIDE: Final = f"{MANIFEST}.damaged"
FORMAT: Final = 2
LARGEST_INDEX: Final = 1 << 31
UNKNOWN: Final = -1  # the step after which a run began
Into = Callable[[memoryview], int | None]
"""Fills memory with the next bytes of a part, or its beginning; returns how many there were."""
CHUNK: Final = 1 << 22  # bytes that are written or read at once
WINDOW: Final = 1 << 26  # bytes that one request asks an object store for


class Part(msgspec.Struct, frozen=True):
    """A file of a checkpoint: its name, size in bytes, and CRC-32: that of its head, in format 1 of all."""

    name: str
    size: int
    crc: int


class Manifest(msgspec.Struct, frozen=True):
    """The parts of a checkpoint, in their order; it was written in a `format`.

    It is `by` a run, which began `after` a step of this place, 0 being anew; "" and -1: that is not known.
    """

    step: int
    round: int
    parts: tuple[Part, ...]
    format: int = FORMAT
    by: str = ""
    after: int = UNKNOWN
    index: Part | None = None

    @property
    def save(self) -> Save:
        """The checkpoint that this is."""
        return Save(self.step, self.round)

    @property
    def files(self) -> tuple[Part, ...]:
        """All files but the manifest itself."""
        return (*self.parts, *((self.index,) if self.index else ()))


class Committed(NamedTuple):
    """The steps of other runs beside a committed checkpoint, and the newest of its own run before it."""

    strangers: list[int]
    before: int


class Trouble(OSError):
    """Storage cannot be read or written now. That says nothing about the bytes that are there."""


class Storage:
    """The checkpoints below `where`; Trouble names what failed.

    ValueError for a URL of an unknown kind, and for a place that can never be a folder. A relative path is
    made absolute once: scripts change their directory, and agents have another.
    """

    def __init__(self, where: str, clock: Callable[[], float] = time.time) -> None:
        self._files, self._root = file_system(where)
        self._clock = clock
        self._local = "file" in _protocols(self._files)
        self.where = self._root if self._local else where
        if self._local:
            check_folder(self._root)

    def write(self, block: memoryview) -> tuple[Part, Head]:
        """Write what a block says of itself that it `writes`; durable on return, and no checkpoint yet.

        Returns the file, and its head, which a commit needs.
        """
        head, bytes_, body, at = stored_form(block)
        folder, crc = self._folder(head.step), zlib.crc32(body)
        name = name_of(head, crc)
        begin = blocks.first(body, at).ljust(START, b"\0")
        with self._reaching(f"{folder}/{name}"):
            self._files.makedirs(folder, exist_ok=True)
            self._write(f"{folder}/{name}", [memoryview(begin), *bytes_, memoryview(body)])
        return Part(name, at + len(body), crc), head

    def commit(self, manifest: Manifest, heads: Sequence[Head], keep: int) -> Committed:
        """Make the checkpoint exist; then remove what it replaces, and all but the newest `keep`.

        `heads` are those of its parts. Damaged if they are not whole together: nothing is written then. What
        another run has written here since this one began is not removed; Trouble says that this step is.
        """
        pieces.check(heads)
        folder = self._folder(manifest.step)
        with self._reaching(f"{folder}/{MANIFEST}"):
            before = self._manifests()
            if manifest.after == UNKNOWN:
                mine = [each.after for each in before if each.by == manifest.by]
                manifest = msgspec.structs.replace(manifest, after=mine[-1] if mine else UNKNOWN)
            others = strangers(before, manifest)
            if manifest.step in others:
                raise Trouble(f"another training has written step {manifest.step} there: {OWN}")
            index = memoryview(blocks.encode(heads))
            crc = zlib.crc32(index)
            named = Part(f"index.r{manifest.round}.{crc:08x}", len(index), crc)
            self._write(f"{folder}/{named.name}", [index])
            manifest = msgspec.structs.replace(manifest, index=named)
            self._write(f"{folder}/{MANIFEST}", [memoryview(msgspec.json.encode(manifest))])
            if self._local:
                sync_folder(self._root)
            self._remove_replaced(manifest)
            kept = [step for step in self.steps() if step not in others][-keep:]
            self._remove_before(manifest.step, {*kept, *others})
        return Committed(others, newest_of(before, manifest.by))

    def keep(self, step: int, keep: int) -> None:
        """Remove what is older than a step, but for the newest `keep` checkpoints up to it."""
        with self._reaching(self._root):
            self._remove_before(step, [each for each in self.steps() if each <= step][-keep:])

    def newest_of(self, run: str) -> int:
        """Return the newest step that a run has committed, UNKNOWN if there is none."""
        return newest_of(self._manifests(), run)

    def _manifests(self) -> list[Manifest]:
        """Return the manifests that can be read, by ascending steps."""
        found = []
        for step in self.steps():
            with suppress(Damaged, Newer):
                found.append(self.manifest(step))
        return found

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints, ascending."""
        return self.standing()[0]

    def aside(self) -> list[int]:
        """Return the steps of the checkpoints that were set aside as damaged, ascending."""
        return self.standing()[1]

    def standing(self) -> tuple[list[int], list[int]]:
        """Return the steps of all checkpoints, and of those that were set aside, by one look at each folder.

        Names are listed: `exists` of fsspec and of os.path says False, too, where nothing can be read.
        """
        with self._reaching(self._root):
            names = {step: self._names(self._folder(step)) for step in self._all()}
        steps, aside = ([step for step in names if name in names[step]] for name in (MANIFEST, ASIDE))
        return steps, aside

    def manifest(self, step: int) -> Manifest:
        """Return the manifest of a checkpoint. Damaged if it is none, Newer by its format."""
        path = f"{self._folder(step)}/{MANIFEST}"
        with self._reaching(path):
            found = self._files.cat_file(path)
        try:
            manifest = decode_as(found, Manifest)
        except UNREADABLE as error:
            raise Damaged(f"the manifest of step {step} is none: {error}") from error
        if manifest.format > FORMAT:
            raise Newer(
                f"{printable(path)} has format {manifest.format}, and this program reads format {FORMAT}: "
                "use a newer elasticjob"
            )
        if manifest.step != step:
            raise Damaged(f"the manifest of step {step} is that of step {manifest.step}")
        for each in manifest.files:
            if not PART.fullmatch(each.name):
                raise Damaged(
                    f"the manifest of step {step} names {each.name[:80]!r}, which is no part's name"
                )
        return manifest

    def heads(self, manifest: Manifest) -> list[Head]:
        """Return the heads of all parts, read once. Damaged if they are not those of a whole checkpoint."""
        if manifest.index is None:
            found = [self._older_head(manifest, number) for number in range(len(manifest.parts))]
        else:
            if manifest.index.size > LARGEST_INDEX:
                raise Damaged(f"the index of step {manifest.step} would have {manifest.index.size} bytes")
            index = self.read(manifest.step, manifest.index, 0, manifest.index.size)
            if (len(index), zlib.crc32(index)) != (manifest.index.size, manifest.index.crc):
                raise Damaged(f"the index of step {manifest.step} is not what was written")
            try:
                found = blocks.decode_heads(index)
            except UNREADABLE as error:
                raise Damaged(f"the index of step {manifest.step} is none: {error}") from error
        check_places(manifest, found)
        pieces.check(found)
        return found

    def head(self, step: int, part: Part) -> Head:
        """Return the head of a part that was written. Trouble if it cannot be seen from here."""
        try:
            head = blocks.head_of(lambda at, size: self.read(step, part, at, size))
        except Damaged as error:
            raise Trouble(f"{printable(self.where)} has not all of {part.name}: {error}") from error
        if zlib.crc32(blocks.encode(head)) != part.crc:
            raise Trouble(f"{printable(self.where)} has another {part.name} than was written")
        return head

    def _older_head(self, manifest: Manifest, number: int) -> Head:
        """Return the head of a part of format 1."""
        part = manifest.parts[number]
        try:
            return blocks.head_of(lambda at, size: self.read(manifest.step, part, at, size))
        except (Damaged, Newer) as error:
            for _ in self.chunks(manifest.step, part):
                pass  # Damaged, now that all bytes were read
            if isinstance(error, Newer):
                raise
            raise Trouble(f"{part.name} of step {manifest.step} was read in part: {error}") from error

    def chunks(self, step: int, part: Part) -> Iterator[bytes]:
        """Yield the bytes of a part of format 1. Damaged at its end if they are not those of the manifest."""
        size, crc, path = 0, 0, f"{self._folder(step)}/{part.name}"
        with self._reaching(path), self._files.open(path, "rb") as file:
            while chunk := file.read(CHUNK):
                size, crc = size + len(chunk), zlib.crc32(chunk, crc)
                yield chunk
        if (size, crc) != (part.size, part.crc):
            raise Damaged(
                f"{part.name} of step {step} is not what was written: {size} bytes with CRC-32 {crc:08x}, "
                f"and its manifest says {part.size} with {part.crc:08x}"
            )

    def read(self, step: int, part: Part, at: int, size: int) -> bytes:
        """Return some bytes of a part, unchecked."""
        path = f"{self._folder(step)}/{part.name}"
        with self._reaching(path):
            found: bytes = self._files.cat_file(path, start=at, end=at + size)
        return found

    def length(self, step: int, part: Part) -> int:
        """Return the size of a part as it is there."""
        path = f"{self._folder(step)}/{part.name}"
        with self._reaching(path):
            return int(self._files.size(path))

    @contextmanager
    def stream(self, step: int, part: Part, at: int, size: int) -> Iterator[Into]:
        """Lend what reads some bytes of a part, unchecked: one opening of a file, or a request per WINDOW."""
        path = f"{self._folder(step)}/{part.name}"
        with self._reaching(path):
            if not self._local:
                yield Window(self._files, path, at, at + size).readinto
                return
            with open(path, "rb", buffering=0) as file:
                file.seek(at)
                yield file.readinto

    @contextmanager
    def pinned(self, step: int) -> Iterator[None]:
        """Keep a checkpoint from being removed while it is read, for ten minutes, if that can be written."""
        path = f"{self._folder(step)}/pin-{int(self._clock()) + PINNED}-{secrets.token_hex(4)}"
        with suppress(Trouble), self._reaching(path):
            self._write(path, [memoryview(b"pin")])
        try:
            yield
        finally:
            with suppress(Trouble), self._reaching(path), suppress(FileNotFoundError):
                self._files.rm_file(path)

    def set_aside(self, step: int, why: str) -> None:
        """Make a damaged checkpoint not count any more; its files stay for whoever wants to look."""
        folder = self._folder(step)
        with self._reaching(folder), suppress(FileNotFoundError):  # another worker was first
            self._files.mv(f"{folder}/{MANIFEST}", f"{folder}/{ASIDE}")
        log.warning(
            "the checkpoint of step %d in %s is damaged and is not used: %s", step, printable(self.where), why
        )

    def _folder(self, step: int) -> str:
        return f"{self._root}/step-{step:09d}"

    def _all(self) -> list[int]:
        """Return the steps of all folders, ascending, with a manifest or without."""
        found = (STEP.fullmatch(name) for name in self._names(self._root))
        return sorted(int(match[1]) for match in found if match)

    def _names(self, folder: str) -> list[str]:
        """Return the names in a folder, none if it does not exist."""
        try:
            paths = self._files.ls(folder, detail=False, refresh=True)
        except FileNotFoundError:
            return []
        return [str(path).rstrip("/").rpartition("/")[2] for path in paths]

    def _remove_before(self, step: int, kept: Collection[int]) -> None:
        """Remove what is older than a step, but for those that are kept."""
        for each in self._all():
            if each < step and each not in kept:
                self._remove(each)

    def _remove(self, step: int) -> None:
        """Remove a checkpoint, its manifest first; not what was set aside, or is read now."""
        folder = self._folder(step)
        names = self._names(folder)
        aside = ASIDE in names
        pins = filter(None, map(PIN.fullmatch, names))
        if any(self._clock() < int(each[1]) <= self._clock() + PINNED for each in pins):
            return
        with suppress(FileNotFoundError):
            self._files.rm_file(f"{folder}/{MANIFEST}")
        if not aside:
            with suppress(FileNotFoundError):
                self._files.rm(folder, recursive=True)

    def _remove_replaced(self, manifest: Manifest) -> None:
        """Remove the parts of an earlier save of the same step; a later round may be writing its own."""
        folder, mine = self._folder(manifest.step), {part.name for part in manifest.files}
        names = self._names(folder)
        for name in names if ASIDE not in names else ():
            match = PART.fullmatch(name)
            if match and name not in mine and int(match[1]) <= manifest.round:
                with suppress(FileNotFoundError):
                    self._files.rm_file(f"{folder}/{name}")

    def _write(self, path: str, blocks_: Sequence[memoryview]) -> None:
        """Write a file whole or not at all: object stores make it at its end, folders by a new name."""
        if not self._local:
            with self._files.open(path, "wb") as file:
                _pour(blocks_, file)
            return
        temporary = f"{path}.{secrets.token_hex(4)}.tmp"
        try:
            with open(temporary, "wb") as file:
                _pour(blocks_, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        sync_folder(os.path.dirname(path))

    @contextmanager
    def _reaching(self, path: str) -> Iterator[None]:
        """Turn whatever goes wrong for the duration of a block into Trouble that names the path.

        File systems of others raise what they like: some errors of object stores are no OSError.
        """
        try:
            yield
        except (Damaged, Newer, Trouble):
            raise
        except Exception as error:
            said = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
            reason = getattr(error, "strerror", None) or said or type(error).__name__
            raise Trouble(printable(f"{path}: {reason}")) from error


class Window:
    """Reads a file of an object store on, from one place to another, by requests of WINDOW bytes."""

    def __init__(self, files: Any, path: str, at: int, end: int) -> None:
        self._files, self._path, self._at, self._end = files, path, at, end
        self._left = memoryview(b"")

    def readinto(self, memory: memoryview) -> int:
        """Fill memory, or its beginning; return how many bytes there were, 0 at the end."""
        if not self._left and self._at < self._end:
            until = min(self._at + WINDOW, self._end)
            self._left = memoryview(self._files.cat_file(self._path, start=self._at, end=until))
            self._at = until
        size = min(len(memory), len(self._left))
        memory[:size], self._left = self._left[:size], self._left[size:]
        return size


def newest_of(found: Sequence[Manifest], run: str) -> int:
    """Return the newest step of a run, UNKNOWN if there is none."""
    return max((each.step for each in found if each.by == run), default=UNKNOWN)


def strangers(all_: Sequence[Manifest], mine: Manifest) -> list[int]:
    """Return the steps of other runs that came after the one at which the run of `mine` began."""
    if not mine.by or mine.after == UNKNOWN:
        return []
    return [each.step for each in all_ if each.by not in ("", mine.by) and each.step > mine.after]


def mixture(found: Sequence[Manifest], where: str) -> str:
    """Return in a sentence that two runs have written to a place beside each other, "" if they have not."""
    newest = max(found, key=lambda each: each.step, default=None)
    others = strangers(found, newest) if newest else []
    if newest is None or not others:
        return ""
    mine = ", ".join(str(each.step) for each in found if each.by == newest.by)
    return (
        f"two trainings have written to {printable(where)}: step {mine} is of the one, step "
        f"{', '.join(map(str, others))} of the other: move the step-* folders of one of them away; {OWN}"
    )


def printable(text: str) -> str:
    """Return a text that may hold the bytes of a path as one that can be sent."""
    return text.encode("utf-8", "backslashreplace").decode()


def stored_form(block: memoryview) -> tuple[Head, list[memoryview], bytes, int]:
    """Return a block as storage has it: head with checksums, the bytes before that, it encoded, its place."""
    head = blocks.head_in(block)
    mine = range(len(head.tensors)) if head.writes is None else head.writes
    chosen = sorted((head.tensors[each] for each in mine), key=lambda each: each.size >= SMALL)
    at, placed, bytes_ = START, list[Tensor](), list[memoryview]()
    for each in chosen:
        piece = block[each.at : each.at + each.size]
        crcs = tuple(zlib.crc32(piece[begin:end]) for begin, end in each.slabs())
        placed.append(msgspec.structs.replace(each, at=at, crcs=crcs))
        pad = -each.size % ALIGNED
        bytes_ += [piece, memoryview(bytes(pad))]
        at += each.size + pad
    head = msgspec.structs.replace(head, tensors=tuple(placed), writes=None)
    return head, bytes_, blocks.encode(head), at


def name_of(head: Head, crc: int) -> str:
    """Return the name of the file of a stored head, which has a checksum."""
    return f"part-{head.part:05d}-of-{head.parts:05d}.r{head.round}.{crc:08x}"


def check_places(manifest: Manifest, heads: Sequence[Head]) -> None:
    """Raise Damaged unless these are the heads of the parts of a manifest, with pieces within the files."""
    of = f"the index of step {manifest.step}"
    if len(heads) != len(manifest.parts):
        raise Damaged(f"{of} has {len(heads)} parts, and its manifest {len(manifest.parts)}")
    for number, (head, part) in enumerate(zip(heads, manifest.parts, strict=True)):
        if head.save != manifest.save:
            raise Damaged(f"{part.name} is of round {head.round}, and the manifest of {manifest.round}")
        if manifest.index and (zlib.crc32(blocks.encode(head)), part.name) != (
            part.crc,
            name_of(head, part.crc),
        ):
            raise Damaged(f"the manifest of step {manifest.step} names {part.name}, which its index does not")
        if (head.part, head.parts) != (number, len(heads)) or not 0 <= head.like < len(heads):
            raise Damaged(f"{of} has part {head.part} of {head.parts} in place {number}")
        for each in head.tensors:
            elements = prod(each.shape)
            if not START <= each.at <= each.at + each.size <= part.size or (
                each.size % elements if elements else each.size
            ):
                raise Damaged(f"{each.name} would have {each.size} bytes at {each.at} of {part.size}")
            if manifest.index and len(each.crcs) != sum(1 for _ in each.slabs()):
                raise Damaged(f"{each.name} has {len(each.crcs)} checksums, which are not those of its slabs")


def check_folder(folder: str) -> None:
    """Raise ValueError if a path cannot become a folder: it is a file, or below one."""
    for path in (folder, *map(str, Path(folder).parents)):
        with suppress(OSError):  # not there yet, below a file, or not to be read now
            if not stat.S_ISDIR(os.stat(path).st_mode):
                raise ValueError(
                    f"checkpoint is {printable(folder)}, and {printable(path)} is no folder: give a folder "
                    "that all workers reach; it need not be there yet"
                )
            return


def sync_folder(folder: str) -> None:
    """Fsync a directory."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _pour(blocks_: Iterable[memoryview], file: Any) -> None:
    for block in blocks_:
        for at in range(0, len(block), CHUNK):
            file.write(block[at : at + CHUNK])


def file_system(where: str) -> tuple[Any, str]:
    """Return what reads and writes at a path or URL, and the path in it. ValueError for an unknown kind."""
    try:
        files, root = fsspec.core.url_to_fs(where)
    except (ValueError, ImportError) as error:
        scheme = where.partition("://")[0]
        raise ValueError(
            f"checkpoints in {where!r} need a Python package for {scheme}://, which is not here: {error}; "
            "install it beside torch (what a script registers with fsspec, the agent that writes does not "
            "know), or give a folder that all workers can reach"
        ) from error
    return files, str(root).rstrip("/")


def _protocols(files: Any) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)
