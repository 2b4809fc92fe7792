"""Where the parts of one checkpoint are read from: this node's memory, another's, or storage."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

from elasticjob.api.rpc.address import parts
from elasticjob.trainer.checkpoint import memory, part
from elasticjob.trainer.checkpoint.part import Damaged, Head, Newer, Save
from elasticjob.trainer.checkpoint.storage import Storage, Trouble, printable

PATIENCE: Final = 10.0  # seconds that another node may be silent


class Source(Protocol):
    """The parts of a checkpoint."""

    @property
    def parts(self) -> int:
        """How many there are."""

    def head(self, number: int) -> Head:
        """Return the head of a part. Damaged, Newer, or OSError if it cannot be had."""

    def open(self, number: int) -> AbstractContextManager[memoryview]:
        """Lend the block of a part. Damaged, Newer, or OSError if it cannot be had."""


class InMemory:
    """A checkpoint in the memory of nodes: `here` by files, the others by the servers that have each part."""

    def __init__(
        self, mark: str, save: Save, here: Mapping[int, Path], servers: Sequence[str], token: str
    ) -> None:
        self._mark, self._save, self._here = mark, save, here
        self._servers, self._token = servers, token

    @property
    def parts(self) -> int:
        """How many there are."""
        return len(self._servers)

    def head(self, number: int) -> Head:
        """Return the head of a part."""
        if number not in self._here:
            return part.head_of(lambda at, size: self._fetch(number, at, size))
        with memory.reading(self._here[number]) as block:
            return self._check(part.head_of(lambda at, size: bytes(block[at : at + size])))

    @contextmanager
    def open(self, number: int) -> Iterator[memoryview]:
        """Lend the block of a part."""
        if number in self._here:
            with memory.reading(self._here[number]) as block:
                self._check(part.head_of(lambda at, size: bytes(block[at : at + size])))
                yield block
            return
        yield memoryview(bytearray(self._fetch(number)))

    def _check(self, head: Head) -> Head:
        if head.save != self._save:
            raise Damaged(f"step {head.step} is there, and no more step {self._save.step}")
        return head

    def _fetch(self, number: int, at: int = 0, size: int | None = None) -> bytes:
        """Return bytes of a part from the node that has it."""
        server = self._servers[number]
        host, port = parts(server)
        connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
        try:
            last = "" if size is None else at + size - 1
            headers = {"Authorization": f"Bearer {self._token}", "Range": f"bytes={at}-{last}"}
            connection.request("GET", memory.path_of(self._mark, self._save, number), headers=headers)
            answer = connection.getresponse()
            if answer.status not in (200, 206):
                raise Damaged(
                    f"{server} has no part {number} of step {self._save.step} (HTTP {answer.status})"
                )
            return answer.read()
        except http.client.HTTPException as error:
            raise Damaged(f"{server} broke off: {error!r}") from error
        finally:
            connection.close()


class InStorage:
    """A committed checkpoint in storage. Trouble if another one is seen than the one that was chosen."""

    def __init__(self, storage: Storage, save: Save) -> None:
        self._storage = storage
        self._manifest = storage.manifest(save.step)
        if self._manifest.save != save:
            raise Trouble(
                f"{printable(storage.where)} shows step {save.step} of round {self._manifest.round}, and to "
                f"another worker that of round {save.round}"
            )

    @property
    def parts(self) -> int:
        """How many there are."""
        return len(self._manifest.parts)

    def head(self, number: int) -> Head:
        """Return the head of a part."""
        found = self._manifest.parts[number]
        try:
            head = part.head_of(lambda at, size: self._storage.read(self._manifest.step, found, at, size))
        except (Damaged, Newer) as error:
            for _ in self._storage.chunks(self._manifest.step, found):
                pass  # Damaged, now that all bytes were read
            if isinstance(error, Newer):
                raise
            raise Trouble(f"{found.name} of step {self._manifest.step} was read in part: {error}") from error
        if head.save != self._manifest.save:
            raise Damaged(
                f"{found.name} is of round {head.round}, and the manifest of {self._manifest.round}"
            )
        return head

    @contextmanager
    def open(self, number: int) -> Iterator[memoryview]:
        """Lend the block of a part, whose checksum is right."""
        block = bytearray(self._manifest.parts[number].size)
        self.fill(number, memoryview(block))
        yield memoryview(block)

    def fill(self, number: int, block: memoryview) -> None:
        """Read a part into a block of its size. Damaged if its bytes are not those of the manifest."""
        at = 0
        for chunk in self._storage.chunks(self._manifest.step, self._manifest.parts[number]):
            end = min(at + len(chunk), len(block))
            block[at:end] = chunk[: end - at]
            at = end
