"""A try to begin with one checkpoint: all workers open it, see whether it fits, and read it, or none does.

Each stage ends by an exchange, so that all know of what one has met.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from elasticjob.trainer.checkpoint import memory, pieces
from elasticjob.trainer.checkpoint.choice import Chosen, Offer
from elasticjob.trainer.checkpoint.memory import Block
from elasticjob.trainer.checkpoint.part import Damaged, Head, Newer, Save
from elasticjob.trainer.checkpoint.pieces import THIS
from elasticjob.trainer.checkpoint.reading import Reading
from elasticjob.trainer.checkpoint.rest import printed
from elasticjob.trainer.checkpoint.shared import Key, Shared, keys_of, tidy
from elasticjob.trainer.checkpoint.sources import InMemory, InStorage, Source, slabs_in
from elasticjob.trainer.checkpoint.storage import Manifest, Storage, Trouble, printable

Exchange = Callable[[bytes], list[bytes]]
"""Returns what each worker gave, by rank; all workers call it at the same place."""
Read = Callable[[Source, int], Reading]
"""Returns how one of so many workers reads a checkpoint."""


class Knowledge(msgspec.Struct, frozen=True):
    """A worker's knowledge of checkpoints: what its node holds and serves, what it sees in storage.

    `seen` is the newest step that was in storage when its node looked before.
    """

    offers: tuple[Offer, ...]
    server: str
    stored: tuple[tuple[Save, int], ...] = ()
    aside: tuple[int, ...] = ()
    trouble: str = ""
    mixed: str = ""
    seen: str = ""


@dataclass(frozen=True)
class Places:
    """Where the checkpoints of one worker are: in the memory of its node, and in storage."""

    where: str
    storage: Storage | None
    folder: Path | None
    mark: str
    server: str
    token: str
    first: bool  # of its node: it looks into storage for all


@dataclass(frozen=True)
class Readers:
    """The workers that begin together, as one of them sees it."""

    exchange: Exchange
    rank: int
    reads: bool  # needs the state itself
    say: Callable[[str], None]  # tells what storage suffers from, "" when it is over
    spares: Sequence[str] = ()  # patterns of names that a checkpoint has in vain
    pause: Callable[[float], None] = time.sleep


class Met(msgspec.Struct, frozen=True):
    """What a worker met in a stage: a checkpoint's bytes are wrong, it cannot be reached, or does not fit.

    It tells the `heads` that it has, for storage with the manifest; for each name in them, by their order,
    whether it has a place for it (`takes`), and for each part whether it reads its small
    pieces, others, or both (`needs`: 1, 2, 3).
    """

    damaged: str = ""
    trouble: str = ""
    misfit: str = ""
    heads: tuple[Head, ...] = ()
    manifest: Manifest | None = None
    takes: bytes = b""
    needs: bytes = b""


class NotRead(Exception):
    """A checkpoint cannot be read by all workers: its bytes are `damaged`, or there is trouble."""

    def __init__(self, damaged: str, trouble: str) -> None:
        super().__init__(damaged or trouble)
        self.damaged, self.trouble = damaged, trouble


@dataclass(frozen=True)
class Attempt:
    """A try to read the `chosen` checkpoint; `mine` are this node's blocks, and all have `told` theirs."""

    places: Places
    readers: Readers
    chosen: Chosen
    mine: Sequence[Block]
    told: Sequence[Knowledge]

    def read(self, read: Read, opened: ExitStack) -> Callable[[], Any]:
        """Return what returns the state, None for who does not read; `opened` lends what it is in.

        NotRead for all workers if one of them could not, ValueError if it does not fit one of them.
        """
        given = self._stage(self._open)
        heads = sorted((head for each in given for head in each.heads), key=lambda each: each.part)
        manifest = next((each.manifest for each in given if each.manifest), None)
        plans: list[tuple[Reading, Source]] = []
        all_ = self._stage(lambda: self._plan(read, heads, manifest, plans))
        self._check_names(heads, all_)
        with ExitStack() as undone:
            self._stage(lambda: self._fill(plans, all_, opened, undone))
            undone.pop_all()
        return lambda: self._state(plans)

    def _stage(self, stage: Callable[[], Met]) -> list[Met]:
        """Return what all workers met in a stage."""
        try:
            met = stage()
        except Damaged as error:
            met = Met(damaged=str(error) or "its bytes are wrong")
        except (OSError, Newer) as error:
            met = Met(trouble=str(error) or type(error).__name__)
        except (ValueError, TypeError) as error:
            met = Met(misfit=str(error).replace(THIS, self._of, 1))
        all_ = [_decode(each) for each in self.readers.exchange(_encode(met))]
        if misfit := next((each.misfit for each in all_ if each.misfit), ""):
            raise ValueError(misfit)
        damaged = next((each.damaged for each in all_ if each.damaged), "")
        troubles = [f"rank {rank}: {each.trouble}" for rank, each in enumerate(all_) if each.trouble]
        if damaged or troubles:
            raise NotRead(damaged, troubles[0] if troubles else "")
        return all_

    @property
    def _of(self) -> str:
        return f"the checkpoint of step {self.chosen.save.step} in {printable(self.places.where)}"

    def _open(self) -> Met:
        """Tell the heads of this node's parts, or, as rank 0, all that are in storage."""
        if self.places.first and self.places.folder is not None:
            tidy(self.places.folder)
        if self.chosen.holders:
            first = [
                number for number, all_ in enumerate(self.chosen.holders) if all_[0] == self.readers.rank
            ]
            here = {part: block.head for part, block in self._here().items()}
            if any(each not in here for each in first):
                raise Damaged(f"it is no more in the memory of rank {self.readers.rank}")
            return Met(heads=tuple(here[each] for each in first))
        if self.readers.rank:
            return Met()
        manifest = self._storage().manifest(self.chosen.save.step)
        if manifest.save != self.chosen.save:
            raise Trouble(
                f"{printable(self.places.where)} shows step {manifest.step} of round {manifest.round}, and "
                f"to another worker that of round {self.chosen.save.round}"
            )
        return Met(heads=tuple(self._storage().heads(manifest)), manifest=manifest)

    def _plan(
        self,
        read: Read,
        heads: Sequence[Head],
        manifest: Manifest | None,
        plans: list[tuple[Reading, Source]],
    ) -> Met:
        """See what this worker reads, and keep that in `plans`."""
        pieces.check(heads)
        if not self.readers.reads:
            return Met()
        source = self._source(heads, manifest)
        found = read(source, len(self.told))
        plans.append((found, source))
        takes = bytes(name in found.plan.wanted for name in names_in(heads))
        keys = keys_of(found.plan)
        needs = bytes(((each.part, True) in keys) + 2 * ((each.part, False) in keys) for each in heads)
        return Met(takes=takes, needs=needs)

    def _source(self, heads: Sequence[Head], manifest: Manifest | None) -> Source:
        if manifest is not None:
            return InStorage(self._storage(), manifest, heads)
        here = {part: block.path for part, block in self._here().items()}
        holders = [all_[self.readers.rank % len(all_)] for all_ in self.chosen.holders]
        servers = [self.told[each].server for each in holders]
        if self.places.folder and servers.count(self.places.server) > len(here):  # copied since it looked
            found = memory.blocks_of(self.places.folder, self.places.mark)
            here |= {each.head.part: each.path for each in found if each.head.save == self.chosen.save}
        return InMemory(self.places.mark, heads, here, servers, self.places.token)

    def _check_names(self, heads: Sequence[Head], all_: Sequence[Met]) -> None:
        """Raise ValueError for tensors that no worker has a place for."""
        looked = [each.takes for each in all_ if each.takes]
        left = [
            printed(name) for at, name in enumerate(names_in(heads)) if not any(each[at] for each in looked)
        ]
        left = [each for each in left if not pieces.is_like(each, self.readers.spares)]
        if looked and left:
            raise ValueError(
                f"{self._of} does not fit the state of the script: {pieces.listed(left)} only in the "
                "checkpoint; train with the model of the checkpoint, give another folder, or allow it by "
                "--allow-missing PATTERN"
            )

    def _fill(
        self,
        plans: Sequence[tuple[Reading, Source]],
        all_: Sequence[Met],
        opened: ExitStack,
        undone: ExitStack,
    ) -> Met:
        """Read what is not in this node's memory, `undone` if a worker fails; hold what is there."""
        for found, source in plans:
            if is_near(found, source):
                for number, wanted in found.plan.parts.items():
                    deque(slabs_in(opened.enter_context(source.open(number)), wanted), 0)
            else:
                with Shared(source, self.places.folder, self._sharers(all_)) as shared:
                    undone.callback(found.fill(shared))
        return Met()

    @staticmethod
    def _state(plans: Sequence[tuple[Reading, Source]]) -> Any:
        for found, source in plans:
            if is_near(found, source):
                found.fill(source)
            return found.state()
        return None

    def _sharers(self, all_: Sequence[Met]) -> Counter[Key]:
        """Return how many workers of this node read the same, where several do."""
        mine = self.told[self.readers.rank].server
        pairs = zip(all_, self.told, strict=True)
        needs = [met.needs for met, each in pairs if mine and each.server == mine]
        counts = Counter(
            (part, kind == 1)
            for each in needs
            for part, kinds in enumerate(each)
            for kind in (1, 2)
            if kinds & kind
        )
        return Counter({key: count for key, count in counts.items() if count > 1})

    def _here(self) -> dict[int, Block]:
        return {each.head.part: each for each in self.mine if each.head.save == self.chosen.save}

    def _storage(self) -> Storage:
        if self.places.storage is None:
            raise Trouble(f"{printable(self.places.where)} has no storage, and another worker's has")
        return self.places.storage


def is_near(found: Reading, source: Source) -> bool:
    """Whether all that is read is in this node's memory."""
    return all(map(source.is_near, found.plan.parts))


def names_in(heads: Sequence[Head]) -> list[str]:
    """Return the names of all tensors, in their order."""
    return sorted({tensor.name for head in heads for tensor in head.tensors})


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Met).decode
