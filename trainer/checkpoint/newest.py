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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final, TypeVar

import msgspec

from elasticjob.api.rpc.message import decode_as
from elasticjob.trainer.checkpoint import memory
from elasticjob.trainer.checkpoint.choice import Offer, choose
from elasticjob.trainer.checkpoint.memory import Block
from elasticjob.trainer.checkpoint.opening import Attempt, Knowledge, NotRead, Places, Read, Readers
from elasticjob.trainer.checkpoint.part import Damaged, Newer, Save
from elasticjob.trainer.checkpoint.storage import Manifest, Storage, Trouble, mixture, printable

log = logging.getLogger("elasticjob")

PATIENCE: Final = "ELASTICJOB_STORAGE_PATIENCE"  # seconds that storage may not be readable at a start
SECONDS: Final = 120.0
LOOKING: Final = 64  # ranks that look into storage, one of each node: thousands at once would burden it
LONGEST: Final = 15.0  # seconds between two looks
T = TypeVar("T")


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
            try:
                found = Attempt(places, readers, chosen, mine, told).read(read, opened)()
                _tell_lost(readers.rank, told, chosen.save.step)
                return found, chosen
            except NotRead as error:
                wrong = error.damaged or error.trouble
                if chosen.holders:
                    log.warning("step %d cannot be had from memory: %s", chosen.save.step, wrong)
                    continue
                if error.trouble:
                    raise Trouble(error.trouble) from error
        if readers.rank == 0 and places.storage:
            _set_aside(places.storage, chosen.save.step, wrong)
    aside = sorted({*(step for each in told for step in each.aside), *(save.step for save in stored)})
    if aside or wrong:
        raise Damaged(no_more(printable(places.where), aside, wrong))
    if seen := next((each.seen for each in told if each.seen), ""):
        raise Trouble(f"step {seen} was in {printable(places.where)} before, and nothing is now")
    _tell_lost(readers.rank, told, 0)
    return None


def _tell_lost(rank: int, told: Sequence[Knowledge], begins: int) -> None:
    """Say that memory has parts of a later step than the one that the training goes on from."""
    held = [offer for each in told for offer in each.offers]
    newest = max((offer.save for offer in held), default=Save(0, 0))
    if rank == 0 and newest.step > begins:
        parts = {offer.part: offer.parts for offer in held if offer.save == newest}
        gone = sorted(set(range(max(parts.values()))) - parts.keys())
        log.warning(
            "the steps after %d up to %d are lost: of the copies in memory %s not there",
            begins,
            newest.step,
            f"part {', '.join(map(str, gone))} is" if gone else "one is",
        )


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
        memory.note(places.folder / f"{memory.SEEN}{places.mark}", str(max(stored).step))


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
