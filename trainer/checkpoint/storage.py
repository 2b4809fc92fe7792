"""Committed checkpoints in a folder or an object store: parts, and a manifest that names them.

    <where>/step-000001000/part-00000-of-00002.r3     written first, by as many nodes as there are parts
    <where>/step-000001000/manifest.json              written last: with it the checkpoint exists

Whatever is there without a manifest does not count. `where` is a path, or a URL that fsspec knows.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import fsspec
import msgspec

from elasticjob.trainer.checkpoint.part import Damaged, Head, Save

log = logging.getLogger("elasticjob.checkpoint")

STEP: Final = re.compile(r"step-(\d{9,})")
MANIFEST: Final = "manifest.json"
CHUNK: Final = 1 << 22  # bytes that are written or read at once


class Part(msgspec.Struct, frozen=True):
    """A file of a checkpoint: its name, size in bytes, and CRC-32."""

    name: str
    size: int
    crc: int


class Manifest(msgspec.Struct, frozen=True):
    """What makes a checkpoint: its parts, in their order."""

    step: int
    round: int
    parts: tuple[Part, ...]

    @property
    def save(self) -> Save:
        """The checkpoint that this is."""
        return Save(self.step, self.round)


class Storage:
    """The checkpoints below `where`. ValueError for a URL of an unknown kind; OSError names what failed."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._files, self._root = _opened(where)
        self._local = "file" in _protocols(self._files)

    def write(self, head: Head, block: memoryview) -> Part:
        """Write a part; durable on return, and not yet part of a checkpoint."""
        name = f"part-{head.part:05d}-of-{head.parts:05d}.r{head.round}"
        folder = self._folder(head.step)
        self._files.makedirs(folder, exist_ok=True)
        self._write(f"{folder}/{name}", block)
        return Part(name, len(block), checksum(block))

    def commit(self, manifest: Manifest, keep: int) -> None:
        """Make the checkpoint exist; then remove all but the newest `keep`."""
        folder = self._folder(manifest.step)
        self._write(f"{folder}/{MANIFEST}", memoryview(msgspec.json.encode(manifest)))
        if self._local:
            sync_folder(self._root)
        kept = self.steps()[-keep:]
        for step in self._all():
            if step < manifest.step and step not in kept:
                self._remove(step)

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints, ascending."""
        return [step for step in self._all() if self._files.exists(f"{self._folder(step)}/{MANIFEST}")]

    def manifest(self, step: int) -> Manifest:
        """Return the manifest of a checkpoint. Damaged if it is none."""
        found = self._files.cat_file(f"{self._folder(step)}/{MANIFEST}")
        try:
            return msgspec.json.decode(found, type=Manifest)
        except msgspec.MsgspecError as error:
            raise Damaged(f"the manifest of step {step} is none: {error}") from error

    def chunks(self, step: int, part: Part) -> Iterator[bytes]:
        """Yield the bytes of a part. Damaged at its end if they are not those of the manifest."""
        size = crc = 0
        with self._files.open(f"{self._folder(step)}/{part.name}", "rb") as file:
            while chunk := file.read(CHUNK):
                size, crc = size + len(chunk), zlib.crc32(chunk, crc)
                yield chunk
        if (size, crc) != (part.size, part.crc):
            raise Damaged(f"{part.name} of step {step} has not the {part.size} bytes of its manifest")

    def read(self, step: int, part: Part, at: int, size: int) -> bytes:
        """Return some bytes of a part, unchecked."""
        found: bytes = self._files.cat_file(f"{self._folder(step)}/{part.name}", at, at + size)
        return found

    def set_aside(self, step: int, why: str) -> None:
        """Make a damaged checkpoint not count any more; its files stay for whoever wants to look."""
        old = f"{self._folder(step)}/{MANIFEST}"
        with suppress(FileNotFoundError):  # another worker was first
            self._files.mv(old, f"{old}.damaged")
        log.warning("the checkpoint of step %d in %s is damaged and is not used: %s", step, self.where, why)

    def _folder(self, step: int) -> str:
        return f"{self._root}/step-{step:09d}"

    def _all(self) -> list[int]:
        """Return the steps of all folders, ascending, with a manifest or without."""
        try:
            names = self._files.ls(self._root, detail=False, refresh=True)
        except FileNotFoundError:
            return []
        found = (STEP.fullmatch(str(name).rstrip("/").rpartition("/")[2]) for name in names)
        return sorted(int(match[1]) for match in found if match)

    def _remove(self, step: int) -> None:
        """Remove a checkpoint, its manifest first."""
        folder = self._folder(step)
        with suppress(FileNotFoundError):
            self._files.rm_file(f"{folder}/{MANIFEST}")
        with suppress(FileNotFoundError):
            self._files.rm(folder, recursive=True)

    def _write(self, path: str, block: memoryview) -> None:
        """Write a file whole or not at all: object stores make it at its end, folders by a new name."""
        if not self._local:
            with self._files.open(path, "wb") as file:
                _pour(block, file)
            return
        temporary = f"{path}.{secrets.token_hex(4)}.tmp"
        try:
            with open(temporary, "wb") as file:
                _pour(block, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        sync_folder(os.path.dirname(path))


def checksum(block: memoryview) -> int:
    """Return the CRC-32 of a block."""
    crc = 0
    for at in range(0, len(block), CHUNK):
        crc = zlib.crc32(block[at : at + CHUNK], crc)
    return crc


def sync_folder(folder: str) -> None:
    """Fsync a directory."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _pour(block: memoryview, file: Any) -> None:
    for at in range(0, len(block), CHUNK):
        file.write(block[at : at + CHUNK])


def _opened(where: str) -> tuple[Any, str]:
    try:
        files, root = fsspec.core.url_to_fs(where)
    except (ValueError, ImportError) as error:
        scheme = where.partition("://")[0]
        raise ValueError(
            f"checkpoints in {where!r} need a Python package for {scheme}://, which is not here: {error}; "
            "install it beside torch, or give a folder that all workers can reach"
        ) from error
    return files, str(root).rstrip("/")


def _protocols(files: Any) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)
