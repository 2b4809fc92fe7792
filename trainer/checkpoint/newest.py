"""The newest checkpoint that all workers can begin with, agreed on by all of them.

1. Each worker tells what its node has in memory, and what it sees in storage: a mount may be missing on one.
2. They try the newest first. Damaged, by a reader that has read all bytes: it is set aside, and the next
one is tried. A copy in memory that is gone: the next one.
3. Any other trouble with storage changes nothing: all wait, and look again. After a bound it is raised.
4. Where a checkpoint was and none can be read, that is raised at every start. To begin anew is the user's
decision: a job that did by itself would overwrite what is there.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from elasticjob.api.rpc.message import decode_as
from elasticjob.trainer.checkpoint import memory, pieces
from elasticjob.trainer.checkpoint.choice import Chosen, Offer, choose
from elasticjob.trainer.checkpoint.memory import Block
from elasticjob.trainer.checkpoint.part import Damaged, Head, Newer, Save
from elasticjob.trainer.checkpoint.pieces import THIS
from elasticjob.trainer.checkpoint.rest import printed
from elasticjob.trainer.checkpoint.sources import InMemory, InStorage, Source
from elasticjob.trainer.checkpoint.storage import Manifest, Storage, Trouble, mixture, printable

log = logging.getLogger("elasticjob")

PATIENCE: Final = "ELASTICJOB_STORAGE_PATIENCE"  # seconds that storage may not be readable at a start
SECONDS: Final = 120.0
LOOKING: Final = 64  # ranks that look into storage, one of each node: thousands at once would burden it
LONGEST: Final = 15.0  # seconds between two looks
T = TypeVar("T")
Exchange = Callable[[bytes], list[bytes]]
"""Returns what each worker gave, by rank; all workers call it at the same place."""
Read = Callable[[Source, int, ExitStack], tuple[Callable[[], Any], Collection[str]]]
"""Opens a checkpoint for one of so many workers, for as long as the stack.

Returns what reads it once all workers could open theirs, and the names of its tensors that this
worker has a place for.
"""


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


class Opened(msgspec.Struct, frozen=True):
    """What a worker tells the others of a checkpoint: heads that it has, and for storage the manifest."""

    heads: tuple[Head, ...] = ()
    manifest: Manifest | None = None
    damaged: str = ""
    trouble: str = ""


class ReadOutcome(msgspec.Struct, frozen=True):
    """Why a worker cannot read a checkpoint: its bytes are wrong, it cannot be reached, or does not fit.

    `spare` has for each name in it, by their order, whether this worker has no place for it; empty: it did
    not look.
    """

    damaged: str = ""
    trouble: str = ""
    misfit: str = ""
    spare: bytes = b""


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


def load(places: Places, readers: Readers, read: Read, patience: float) -> Any:
    """Return what `read` returns for the newest checkpoint, and the `Chosen`; None if there never was one.

    All workers call it at once. Trouble if storage could not be read for so many seconds, Damaged if nothing
    is left that can be read, Newer if it was written by a newer program, ValueError if two trainings have
    written there.
    """
    troubles: list[Trouble] = []

    def wait(trouble: Trouble, seconds: float) -> None:
        troubles.append(trouble)
        log.warning(
            "%s cannot be read now, next look in %.0f s: %s", printable(places.where), seconds, trouble
        )
        readers.say(printable(f"{places.where} cannot be read: {trouble}"))
        readers.pause(seconds)

    try:
        found = patiently(lambda: _attempt(places, readers, read), patience, wait)
    except Trouble as trouble:
        raise Trouble(
            f"{printable(places.where)} cannot be read, so the training does not begin, and nothing there "
            f"was changed: {trouble} (tried for {patience:.0f} s; {PATIENCE} sets it); see that all nodes "
            "reach it, or give another place"
        ) from trouble
    if troubles:
        readers.say("")
    return found


def patiently(attempt: Callable[[], T], patience: float, wait: Callable[[Trouble, float], object]) -> T:
    """Return what `attempt` returns; after each Trouble `wait`, and try again, for `patience` seconds."""
    for seconds in pauses(patience):
        try:
            return attempt()
        except Trouble as trouble:
            wait(trouble, seconds)
    return attempt()


def pauses(patience: float) -> Iterator[float]:
    """Yield the seconds between looks, growing, `patience` in all."""
    pause, spent = 0.5, 0.0
    while spent < patience:
        pause = min(2 * pause, LONGEST, patience - spent)
        spent += pause
        yield pause


def patience(environment: Mapping[str, str]) -> float:
    """Return the seconds that storage may not be readable. ValueError for what is no number."""
    given = environment.get(PATIENCE, "")
    try:
        return max(0.0, float(given)) if given else SECONDS
    except ValueError:
        raise ValueError(f"{PATIENCE} is {given!r}: give a number of seconds") from None


def _attempt(places: Places, readers: Readers, read: Read) -> Any:
    mine = memory.blocks_of(places.folder, places.mark) if places.folder else []
    own = msgspec.json.encode(_knowledge(places, mine, readers.rank))
    told = [decode_as(each, Knowledge) for each in readers.exchange(own)]
    _raise_trouble([each.trouble for each in told])
    if problem := next((each.mixed for each in told if each.mixed), ""):
        raise ValueError(problem)
    stored = {save: parts for each in told for save, parts in each.stored}
    _remember(places, stored)
    wrong = ""
    for chosen in choose([each.offers for each in told], stored):
        with ExitStack() as opened:
            all_, found = _read(places, readers, chosen, mine, told, read, opened)
            if not any(each.damaged or each.trouble for each in all_):
                return (found() if found else None), chosen
        damaged = next((each.damaged for each in all_ if each.damaged), "")
        if chosen.holders:
            wrong = damaged or next(each.trouble for each in all_ if each.trouble)
            log.warning("step %d cannot be had from memory: %s", chosen.save.step, wrong)
            continue
        _raise_trouble([each.trouble for each in all_])
        wrong = damaged
        if readers.rank == 0 and places.storage:
            _set_aside(places.storage, chosen.save.step, wrong)
    aside = sorted({*(step for each in told for step in each.aside), *(save.step for save in stored)})
    if aside or wrong:
        raise Damaged(no_more(printable(places.where), aside, wrong))
    if seen := next((each.seen for each in told if each.seen), ""):
        raise Trouble(f"step {seen} was in {printable(places.where)} before, and nothing is now")
    return None


def _read(
    places: Places,
    readers: Readers,
    chosen: Chosen,
    mine: Sequence[Block],
    told: Sequence[Knowledge],
    read: Read,
    opened: ExitStack,
) -> tuple[Sequence[Opened | ReadOutcome], Callable[[], Any] | None]:
    """Open a checkpoint; return what all met, and what reads it. ValueError if it does not fit."""
    of = f"the checkpoint of step {chosen.save.step} in {printable(places.where)}"
    own = _open(places, chosen, mine, readers.rank)
    given = [_decode_opened(each) for each in readers.exchange(_encode_opened(own))]
    if any(each.damaged or each.trouble for each in given):
        return given, None
    heads = sorted((head for each in given for head in each.heads), key=lambda each: each.part)
    found, met = None, ReadOutcome()
    names = sorted({tensor.name for head in heads for tensor in head.tensors})
    try:
        if chosen.holders:
            pieces.check(heads)
        if readers.reads:
            manifest = next((each.manifest for each in given if each.manifest), None)
            source = _source(places, chosen, mine, readers.rank, told, heads, manifest)
            found, taken = read(source, len(told), opened)
            met = ReadOutcome(spare=bytes(name not in taken for name in names))
    except Damaged as error:
        met = ReadOutcome(damaged=str(error))
    except (OSError, Newer) as error:
        met = ReadOutcome(trouble=str(error) or type(error).__name__)
    except (ValueError, TypeError) as error:
        met = ReadOutcome(misfit=str(error).replace(THIS, of, 1))
    all_ = [decode_as(each, ReadOutcome) for each in readers.exchange(msgspec.json.encode(met))]
    if misfit := next((each.misfit for each in all_ if each.misfit), ""):
        raise ValueError(misfit)
    looked = [each.spare for each in all_ if each.spare]
    spare = [printed(name) for at, name in enumerate(names) if looked and all(each[at] for each in looked)]
    if left := [each for each in spare if not any(fnmatchcase(each, one) for one in readers.spares)]:
        raise ValueError(
            f"{of} does not fit the state of the script: {pieces.listed(left)} only in the checkpoint; train "
            "with the model of the checkpoint, give another folder, or allow it by --allow-missing PATTERN"
        )
    return all_, found


def _open(places: Places, chosen: Chosen, mine: Sequence[Block], rank: int) -> Opened:
    """Return what this worker tells of a checkpoint: rank 0 reads its index, if it is in storage."""
    if chosen.holders:
        here = {each.head.part: each.head for each in mine if each.head.save == chosen.save}
        first = [number for number, ranks in enumerate(chosen.holders) if ranks[0] == rank]
        if any(each not in here for each in first):
            return Opened(damaged=f"step {chosen.save.step} is no more in the memory of rank {rank}")
        return Opened(heads=tuple(here[each] for each in first))
    if rank:
        return Opened()
    try:
        if places.storage is None:
            raise Trouble(f"{printable(places.where)} has no storage, and another worker's has")
        manifest = places.storage.manifest(chosen.save.step)
        if manifest.save != chosen.save:
            raise Trouble(
                f"{printable(places.where)} shows step {chosen.save.step} of round {manifest.round}, and to "
                f"another worker that of round {chosen.save.round}"
            )
        return Opened(heads=tuple(places.storage.heads(manifest)), manifest=manifest)
    except Damaged as error:
        return Opened(damaged=str(error))
    except (OSError, Newer) as error:
        return Opened(trouble=str(error) or type(error).__name__)


_encode_opened = msgspec.msgpack.Encoder().encode
_decode_opened = msgspec.msgpack.Decoder(Opened).decode


def no_more(where: str, aside: Sequence[int], wrong: str) -> str:
    """Return in a sentence that there were checkpoints, and none can be read."""
    steps = ", ".join(map(str, aside)) or "in memory"
    damaged = "are damaged" if len(aside) > 1 else "is damaged"
    why = f" ({wrong})" if wrong else ""
    return (
        f"no checkpoint in {where} can be read: step {steps} {damaged}{why}; the training does not begin "
        "anew by itself: give another place, or move its step-* folders away"
    )


def _set_aside(storage: Storage, step: int, why: str) -> None:
    try:
        storage.set_aside(step, why)
    except Trouble as trouble:
        log.warning(
            "the checkpoint of step %d is damaged (%s), and stays where it is: %s", step, why, trouble
        )


def _raise_trouble(told: Sequence[str]) -> None:
    """Raise the first trouble, for all workers, with the rank that has it."""
    for rank, trouble in enumerate(told):
        if trouble:
            raise Trouble(f"rank {rank}: {trouble}")


def _knowledge(places: Places, mine: Sequence[Block], rank: int) -> Knowledge:
    """Return what this worker tells the others; the first one of each node looks into storage."""
    offers = tuple(Offer(*each.head.save, each.head.part, each.head.parts) for each in mine)
    told = Knowledge(offers, places.server, seen=_seen(places))
    if places.storage is None or not (rank == 0 or (places.first and rank < LOOKING)):
        return told
    try:
        manifests, aside = _stored_in(places.storage)
        stored = tuple((each.save, len(each.parts)) for each in manifests)
        return msgspec.structs.replace(
            told,
            stored=stored,
            aside=tuple(aside),
            mixed=mixture(manifests, places.where),
        )
    except (OSError, Newer) as error:
        return msgspec.structs.replace(told, trouble=str(error))


def _remember(places: Places, stored: Mapping[Save, int]) -> None:
    """Note on this node that there are checkpoints in storage, whichever node sees them."""
    if places.folder is not None and stored:
        note = places.folder / f"{memory.SEEN}{places.mark}"
        temporary = note.with_name(f"{note.name}.{os.getpid()}")
        temporary.write_text(str(max(stored).step))
        temporary.replace(note)


def _seen(places: Places) -> str:
    """Return the newest step that was noted on this node, "" if there is none."""
    if places.folder is None:
        return ""
    with suppress(FileNotFoundError):
        return (places.folder / f"{memory.SEEN}{places.mark}").read_text()
    return ""


def _stored_in(storage: Storage) -> tuple[list[Manifest], list[int]]:
    """Return the manifests of the checkpoints in storage, and the steps that are set aside.

    One whose manifest is damaged is set aside now.
    """
    steps, aside = storage.standing()
    found: list[Manifest] = []
    for step in steps:
        try:
            found.append(storage.manifest(step))
        except Damaged as error:
            _set_aside(storage, step, str(error))
            aside.append(step)
    return found, aside


def _source(
    places: Places,
    chosen: Chosen,
    mine: Sequence[Block],
    rank: int,
    told: Sequence[Knowledge],
    heads: Sequence[Head],
    manifest: Manifest | None,
) -> Source:
    if not chosen.holders:
        if places.storage is None or manifest is None:
            raise Trouble(f"{printable(places.where)} has no storage, and another worker's has")
        return InStorage(places.storage, manifest, heads)
    here = {each.head.part: each.path for each in mine if each.head.save == chosen.save}
    servers = [told[holders[rank % len(holders)]].server for holders in chosen.holders]
    return InMemory(places.mark, heads, here, servers, places.token)
