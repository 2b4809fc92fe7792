"""`make bench-training`: what training with us costs, how it recovers, and peers beside us.

One table, all figures of this machine and of one run. Two workers (gloo, CPU) train the same model on the
same records with us, torchrun, DLRover, torchft, Ray Train and NVRx's in-process restart:

- *recovery*: a worker is killed, a node is lost or silent, one of two nodes starts alone, the other joins;
- *checkpoint*: the same with 400 MB to keep: for plain scripts that save them, for scripts that lose one of
  two workers that have them, and for a node that joins;
- *goodput*: a worker is killed every 30 s;
- *step*: what a step costs beyond bare DDP, for three models; the systems take turns of about a second;
- *calls*, *rendezvous*: what the masters bear. Our agents and clients are `benchmarks.services.agents`.

Samples are kept in a file as they come, so an interrupted run goes on where it stopped. Peers live in
environments of their own (`hack/peers`); one that cannot run here is told with its own error.

    python -m benchmarks.training --only recovery,step-mlp --systems elasticjob,torchrun --rounds 3
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

from typer import Option

from benchmarks.commands import chosen, play
from benchmarks.figures import command, show
from benchmarks.training.blows import (
    join_large,
    keep_large,
    kill_again,
    kill_workers,
    lose_large,
    lose_nodes,
    silence_nodes,
    start_cold,
)
from benchmarks.training.book import Book, Sample
from benchmarks.training.cost import BLOCKS, compare
from benchmarks.training.job import NotInTime
from benchmarks.training.load import AGENTS, CLIENTS, KINDS, calls, rendezvous
from benchmarks.training.sheet import sheet
from benchmarks.training.systems import (
    DLROVER,
    KEEPERS,
    OURS,
    RESTARTED,
    SYSTEMS,
    TORCHFT,
    TORCHRUN,
    System,
    versions,
)
from lab.processes import ProgramFailed, say

BLOWS: Final = {"kill": kill_workers, "lose": lose_nodes, "silent": silence_nodes, "cold": start_cold}
LASTING: Final = {"large": keep_large, "join": join_large, "goodput": kill_again}
COMING: Final = ("cold", "join", "goodput")
"""What is measured where workers come while others train."""
MEASURES: Final = {
    "recovery": list(BLOWS),
    "checkpoint": ["large", "join"],
    "goodput": ["goodput"],
    "step": [f"step-{work}" for work in BLOCKS],
    "calls": [f"calls-{kind}-{clients}" for kind in KINDS for clients in CLIENTS],
    "rendezvous": [f"rendezvous-{agents}" for agents in AGENTS],
}
KNOWN: Final = [*MEASURES, *(measure for each in MEASURES.values() for measure in each)]
FLAGS: Final = {system.name.replace(", ", "-").replace(" ", "-").lower(): system for system in SYSTEMS}
MEET: Final = (OURS, TORCHRUN, DLROVER, TORCHFT)
"""The systems whose agents meet."""


@dataclass(frozen=True)
class Length:
    """The number of measurements of each thing, and the seconds of patience for one."""

    rounds: int
    peer_rounds: int
    turns: int
    patience: float


def main(
    only: Annotated[str, Option(help=", ".join(KNOWN), metavar="NAMES")] = ",".join(MEASURES),
    systems: Annotated[str, Option(help=f"some of {','.join(FLAGS)}; all by default")] = "",
    rounds: Annotated[int, Option(min=1, help="blows of each kind for us")] = 5,
    peer_rounds: Annotated[int, Option(min=1, help="the same for peers, and loads of each kind")] = 3,
    turns: Annotated[int, Option(min=1, help="turns of each system for the cost of a step")] = 12,
    patience: Annotated[float, Option(min=1, help="seconds until something has not come")] = 90.0,
    results: Annotated[Path, Option(help="the file of samples")] = Path("bench-training.json"),
    fresh: Annotated[bool, Option("--fresh", help="forget what is in the file")] = False,
) -> None:
    """Measure what is not in the file yet, print the table."""
    book, length = Book(results, fresh=fresh), Length(rounds, peer_rounds, turns, patience)
    try:
        book.began(command(), versions())
    except ValueError as error:
        sys.exit(str(error))
    measures = [name for word in chosen(only.lower(), KNOWN) for name in MEASURES.get(word, [word])]
    usable: list[System] = []
    for system in (FLAGS[name] for name in chosen(systems.lower(), FLAGS)):
        reason = system.unusable()
        if reason:
            say(f"{system.name} cannot run here: {reason}")
            for measure in measures:
                book.refuse(measure, system.name, reason)
        else:
            usable.append(system)
    for measure in dict.fromkeys(measures):
        take(measure, usable, length, book)
    say("")
    show(sheet(book, patience))
    book.close()


def take(measure: str, systems: Sequence[System], length: Length, book: Book) -> None:
    """Take the samples of a measurement that are not there yet."""
    kind, _, rest = measure.partition("-")
    if kind == "step":
        take_steps(rest, systems, length, book)
        return
    for system in systems:
        rounds = length.rounds if system in (OURS, RESTARTED) and kind in BLOWS else length.peer_rounds
        if kind == "rendezvous" and (fewer := too_many(system, int(rest), book)):
            book.refuse(measure, system.name, f"not tried, as {fewer:,} agents were not in time")
            continue
        if system.shrinks and kind in COMING:
            book.refuse(measure, system.name, "its ranks are those of the start: none comes, or comes back")
            continue
        samples = samples_of(measure, system, length.patience)
        if samples:
            take_samples(measure, system, samples, rounds, book)


def too_many(system: System, agents: int, book: Book) -> int:
    """Return a smaller number of agents that has not met in time, or 0."""
    missed = (
        fewer for fewer in AGENTS if None in book.entry(f"rendezvous-{fewer}", system.name).values("seconds")
    )
    return next((fewer for fewer in missed if fewer < agents), 0)


def samples_of(measure: str, system: System, patience: float) -> Iterator[Sample] | None:
    """Return the samples of one system, as many as are wanted; None if it has no such thing."""
    kind, _, rest = measure.partition("-")
    if kind == "large" and system not in KEEPERS:
        return lose_large(system, patience) if system.keeps else None
    if kind in BLOWS or kind in LASTING:
        return (BLOWS | LASTING)[kind](system, patience)
    if kind == "calls":
        called, _, clients = rest.partition("-")
        if system not in KINDS[called]:
            return None
        return repeated(lambda: calls(system, called, int(clients), patience))
    return repeated(lambda: rendezvous(system, int(rest), patience)) if system in MEET else None


def repeated(taken: Callable[[], Sample]) -> Iterator[Sample]:
    """Yield samples for ever."""
    while True:
        yield taken()


def take_samples(measure: str, system: System, samples: Iterator[Sample], rounds: int, book: Book) -> None:
    """Take so many samples in all; none after two in which nothing came in time."""
    known = book.entry(measure, system.name)
    if known.reason or hopeless(known.samples):
        return
    try:
        for sample in islice(samples, max(0, rounds - len(known.samples))):
            book.add(measure, system.name, sample)
            say(f"{measure}: {system.name}: {told(sample)}")
            if hopeless(book.entry(measure, system.name).samples):
                break
    except (NotInTime, ProgramFailed, TimeoutError) as error:
        reason = str(error) or "it does not train with two workers"
        say(f"{measure}: {system.name}: {reason}")
        book.refuse(measure, system.name, reason)
    finally:
        samples.close()  # type: ignore[attr-defined]  # all are generators: the job ends here


def hopeless(samples: Sequence[Sample]) -> bool:
    """Ask whether the first thing that was waited for did not come, twice at the end."""
    missed = [next(iter(sample.values())) is None for sample in samples[-2:]]
    return len(missed) == 2 and all(missed)


def take_steps(work: str, systems: Sequence[System], length: Length, book: Book) -> None:
    """Let the systems take turns; all begin anew unless all have had theirs."""
    measure = f"step-{work}"
    known = {system: book.entry(measure, system.name) for system in systems}
    if all(entry.reason or len(entry.samples) >= length.turns for entry in known.values()):
        return
    for system in systems:
        book.clear(measure, system.name)

    def refuse(system: System, reason: str) -> None:
        say(f"{measure}: {system.name}: {reason}")
        book.refuse(measure, system.name, reason)

    for system, took in compare(work, systems, length.turns, length.patience, refuse):
        book.add(measure, system.name, {"ms": 1000 * took})
        say(f"{measure}: {system.name}: {1000 * took:.2f} ms")


def told(sample: Sample) -> str:
    """Return a sample as a person reads it."""
    return ", ".join(
        f"{name} {'not in time' if value is None else f'{value:,.2f}'}" for name, value in sample.items()
    )


if __name__ == "__main__":
    play(main)
