"""The one table: a row for each figure, a column for each system; below it why cells are empty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import Final

from benchmarks.figures import NONE, Sheet, spread
from benchmarks.training.book import Book, Entry
from benchmarks.training.cost import BLOCKS
from benchmarks.training.load import AGENTS, CLIENTS, KINDS
from benchmarks.training.systems import SYSTEMS, TORCHRUN, System

BARE: Final = TORCHRUN
"""The plain script under torchrun is bare DDP."""
KEEPING: Final = ", ".join(system.name for system in SYSTEMS if system.keeps)
REFUSED: Final = "not here"


@dataclass(frozen=True)
class Row:
    """A figure of a measurement, with its title."""

    title: str
    measure: str
    figure: str


RECOVERY: Final = (
    Row("SIGKILL of a worker: next step, s", "kill", "next"),
    Row("SIGKILL of a worker: both train, s", "kill", "full"),
    Row("node lost: next step, s", "lose", "next"),
    Row("node silent (SIGSTOP): next step, s", "silent", "next"),
    Row("cold start, 1 of 2 nodes: first step, s", "cold", "first"),
    Row("second node joins: first stands still, s", "cold", "stall"),
    Row("second node joins: from its start, s", "cold", "joined"),
)
CHECKPOINT: Final = (
    Row("400 MB, a save: holds the step up, s", "large", "block"),
    Row("400 MB, memcpy of as many bytes, s", "large", "memcpy"),
    Row("400 MB, a save: times that memcpy", "large", "ratio"),
    Row("400 MB, a save each 250 steps: % of the time", "large", "share"),
    Row("400 MB, such a step: ms", "large", "step"),
    Row("400 MB: load of the newest, s", "large", "restore"),
    Row("400 MB, SIGKILL of a worker: next step, s", "large", "next"),
    Row("400 MB, SIGKILL of a worker: both train, s", "large", "full"),
    Row("400 MB, a new worker comes: the other stands still, s", "large", "stall"),
    Row("400 MB, second node joins: first stands still, s", "join", "stall"),
    Row("goodput, a worker killed every 30 s", "goodput", "goodput"),
)
FAULTS: Final = {"14 min": 14 * 60.0, "7.9 h": 7.9 * 3600.0}
"""Between two faults: of spot machines, and of 16,384 GPUs in the training of Llama 3."""
CALLS: Final = {
    "shards": "shard lease, result",
    "heartbeats": "heartbeats",
    "keys": "additions to a key",
}
MASTER: Final = (
    *(
        Row(f"{CALLS[kind]}, {clients} clients: calls/s", f"calls-{kind}-{clients}", "calls")
        for kind in KINDS
        for clients in CLIENTS
    ),
    *(Row(f"rendezvous of {agents:,} agents, s", f"rendezvous-{agents}", "seconds") for agents in AGENTS),
)


def sheet(book: Book, patience: float) -> Sheet:
    """Return the table of all that is known."""
    rows: list[Sequence[str]] = [line(row, book, patience) for row in RECOVERY]
    rows += [[], *(line(row, book, patience) for row in CHECKPOINT)]
    rows += [computed(name, seconds, book) for name, seconds in FAULTS.items()]
    rows += [[], *(step_line(work, book) for work in BLOCKS), []]
    rows += [line(row, book, patience) for row in MASTER]
    load = book.loads()
    notes = [
        "\nmedian (least–most); steps: torchrun is bare DDP, the others tell what they add in the same turns",
        f"computed for {KEEPING}: losses of one worker: no save, half the speed until there are two",
        *reasons(book),
        ", ".join(f"{name} {version}" for name, version in book.kept.versions.items()),
        f"load of the machine at the samples {spread(load)}",
        "made by " + "; ".join(book.kept.commands),
    ]
    return Sheet(["", *(system.name for system in SYSTEMS)], rows, notes)


def line(row: Row, book: Book, patience: float) -> list[str]:
    """Return a row of cells."""
    return [row.title, *(cell(book.entry(row.measure, each.name), row.figure, patience) for each in SYSTEMS)]


def computed(name: str, between: float, book: Book) -> list[str]:
    """Return the goodput at rare faults, from the medians of the rows for 400 MB."""
    shares = [goodput_of(system, book.entry("large", system.name), between) for system in SYSTEMS]
    cells = [NONE if share is None else f"{share:.3%}" for share in shares]
    return [f"400 MB: goodput at a fault every {name}, computed", *cells]


def goodput_of(system: System, entry: Entry, between: float) -> float | None:
    """Return a system's goodput from the medians of its figures; None where one is not known."""
    figures, computed = KEPT if system.keeps else SAVED
    values = [known(entry.values(figure)) for figure in figures]
    return computed(*(median(each) for each in values), between) if all(values) else None


def goodput(block: float, still: float, between: float) -> float:
    """Return the share of time in which new steps are made, with the best interval between two saves.

    A save holds the step up for `block`, a fault, on average one in `between`, costs `still` and half an
    interval, all in seconds. The best interval is sqrt(2 * block * between) (Young 1974).
    """
    interval = sqrt(2 * block * between)
    return 1 - block / interval - (still + interval / 2) / between


def goodput_without_saves(still: float, full: float, stall: float, between: float) -> float:
    """Return the same where the fault is the loss of one of two workers, and the other has the state.

    It stands still for `still`, trains at half the speed until `full`, and stands still again for `stall`
    when the new worker takes the state. No save is needed, and no step is made again.
    """
    return 1 - (still + (full - still) / 2 + stall) / between


Computed = tuple[tuple[str, ...], Callable[..., float]]
SAVED: Final[Computed] = (("block", "next"), goodput)
KEPT: Final[Computed] = (("next", "full", "stall"), goodput_without_saves)


def cell(entry: Entry, figure: str, patience: float) -> str:
    """Return the median and the spread of what came in time, and how often it did not."""
    values = entry.values(figure)
    came = [value for value in values if value is not None]
    if not values:
        return REFUSED if entry.reason else NONE
    if not came:
        return f"none of {len(values)} in {patience:.0f} s"
    return spread(came) if len(came) == len(values) else f"{spread(came)}, {len(came)} of {len(values)}"


def step_line(work: str, book: Book) -> list[str]:
    """Return the duration of a step of bare DDP, and what the other systems add to it, turn by turn."""
    bare = book.entry(f"step-{work}", BARE.name).values("ms")
    cells = []
    for system in SYSTEMS:
        entry = book.entry(f"step-{work}", system.name)
        took = entry.values("ms")
        if not took:
            cells.append(REFUSED if entry.reason else NONE)
        else:
            cells.append(spread(known(took)) if system is BARE else more(known(took), known(bare)))
    return [f"step, {work}: ms; beyond bare DDP", *cells]


def more(took: Sequence[float], bare: Sequence[float]) -> str:
    """Return by how much steps were longer than bare DDP's of the same turns: median, spread, share."""
    pairs = list(zip(took, bare, strict=False))
    if not pairs:
        return NONE
    added = [one - other for one, other in pairs]
    share = median(one / other - 1 for one, other in pairs)
    return f"{median(added):+.2f} ({min(added):+.2f}–{max(added):+.2f}), {share:+.1%}"


def known(values: Sequence[float | None]) -> list[float]:
    """Return the values that are there."""
    return [value for value in values if value is not None]


def reasons(book: Book) -> list[str]:
    """Return why systems could not be measured: a line for each reason, with its measurements."""
    found: dict[tuple[str, str], list[str]] = {}
    for measure, system, entry in book.entries():
        if entry.reason:
            found.setdefault((system, entry.reason), []).append(measure)
    return [f"{system}: {', '.join(measures)}: {reason}" for (system, reason), measures in found.items()]
