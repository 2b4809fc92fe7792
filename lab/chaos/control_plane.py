"""`make chaos`: kill -9 of operator, master, agent, worker at random moments; every job has to succeed.

After each job it is checked that
- the job is Complete, and says so in a sentence;
- the counted steps are contiguous and reach the last one;
- there never were two live pods of one index (as a watch during the run saw them);
- no process of the job is left.

    python -m lab.chaos.control_plane --rounds 20 --seed 7

Exits with 1 if any of this was not so; what is known of that round is then kept in a folder.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rich.console import Console
from rich.table import Table

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.demo.run import following
from elasticjob.cli.laptop.laptop import Laptop, laptop
from elasticjob.cli.story.example import load
from elasticjob.cli.story.processes import Process, main_of, of_job, of_pod, workers_of
from elasticjob.cli.story.seen import Pod, Seen
from elasticjob.cli.story.steps import Step, gaps
from elasticjob.cli.story.watched import JobView

EPOCHS = 25
SPAN = 8.0
"""Seconds after the first step within which all kills of a round happen."""
COMPLETE_WITHIN, GONE_WITHIN = 120.0, 30.0
OPERATOR_AWAY = (0.0, 2.0)
"""For how long a killed operator stays away."""


class Victim(StrEnum):
    """The target of a kill."""

    OPERATOR = "operator"
    MASTER = "master"
    AGENT = "agent"
    WORKER = "worker"


@dataclass(frozen=True)
class Strike:
    """One kill, `after` seconds of training; a killed operator comes back after `away` seconds."""

    victim: Victim
    after: float
    away: float


@dataclass(frozen=True)
class Outcome:
    """The result of one round; `wrong` has a sentence for each violation."""

    number: int
    strikes: tuple[Strike, ...]
    seconds: float
    steps: int
    rounds: int
    said: str
    wrong: tuple[str, ...]


@dataclass
class Witness:
    """Collects violations while a round runs."""

    wrong: dict[str, None] = field(default_factory=dict)

    def look(self, seen: Seen) -> None:
        """Take note of one moment."""
        self.wrong |= dict.fromkeys(twins(seen.pods))


# what happens when


def strikes(seed: int, number: int) -> tuple[Strike, ...]:
    """Return the kills of round `number` in order of time: one to three; each victim has its turn."""
    chance = random.Random(f"{seed}/{number}")
    certain = list(Victim)[number % len(Victim)]
    victims = [certain, *chance.choices(list(Victim), k=chance.randint(0, 2))]
    drawn = [Strike(victim, chance.uniform(0, SPAN), chance.uniform(*OPERATOR_AWAY)) for victim in victims]
    return tuple(sorted(drawn, key=lambda strike: strike.after))


# what must be


def twins(pods: Iterable[Pod]) -> tuple[str, ...]:
    """Return a sentence for each place (role and index) that two live pods hold."""
    alive: dict[str, list[str]] = {}
    for pod in pods:
        if pod.alive:
            alive.setdefault(pod.place, []).append(pod.name)
    return tuple(
        f"{place} was held by {len(names)} live pods at once: {', '.join(sorted(names))}"
        for place, names in alive.items()
        if len(names) > 1
    )


def verdict(seen: Seen, steps: Sequence[Step], left: Sequence[Process]) -> tuple[str, ...]:
    """Return a sentence for each violation at the end of the job."""
    complete = next((one for one in seen.conditions if one.type == "Complete" and one.status), None)
    wrong = list(gaps(steps))
    if complete is None:
        wrong.append(
            f"the job is not Complete within {COMPLETE_WITHIN:.0f} s: {seen.phase}: {seen.sentence()}"
        )
    elif not complete.message:
        wrong.append("the condition Complete has no sentence")
    if not steps:
        wrong.append("no step was counted")
    wrong += [f"process {one.pid} of pod {one.pod} is left: {one.command[:80]}" for one in left]
    return tuple(wrong)


# one round


async def play(here: Laptop, number: int, seed: int, console: Console) -> Outcome:
    """Run one job through its kills and return the result."""
    record = here.state / f"steps-{number}.jsonl"
    example = load().rename(f"chaos-{number}").recording(record).training(EPOCHS)
    key, began, planned = example.key, time.monotonic(), strikes(seed, number)
    witness = Witness()
    async with following(here.client, key, record, witness.look) as watched:
        await example.apply(here.client, "chaos")
        await until(watched, lambda seen: seen.step > 0, COMPLETE_WITHIN)
        await strike_all(here, watched, planned, console)
        await until(watched, lambda seen: seen.holds("Complete") or seen.holds("Failed"), COMPLETE_WITHIN)
        end = watched.seen
        await here.client.delete(ELASTICJOB, key.name, key.namespace)
        await until(watched, lambda seen: not seen.pods, GONE_WITHIN)
        wrong = (*verdict(end, watched.steps, of_job(end.uid)), *witness.wrong)
        if wrong:
            await keep_evidence(here, watched, number, wrong)
        return Outcome(
            number,
            planned,
            time.monotonic() - began,
            end.step,
            end.round,
            next((one.message for one in end.conditions if one.type == "Complete"), ""),
            wrong,
        )


async def until(watched: JobView, true: Callable[[Seen], bool], within: float) -> bool:
    """Return whether `true` became true of the job in time."""
    try:
        async with asyncio.timeout(within):
            while not true(watched.seen):
                await watched.change()
    except TimeoutError:
        return False
    return True


async def strike_all(here: Laptop, watched: JobView, planned: Sequence[Strike], console: Console) -> None:
    """Kill as planned; a job that is over is left alone."""
    began = time.monotonic()
    for strike in planned:
        # a random moment is the point here: nothing that happens announces it
        over = await until(
            watched, lambda seen: seen.holds("Complete"), began + strike.after - time.monotonic()
        )
        if over:
            return
        message = await KILLS[strike.victim](here, watched, strike)
        console.print(f"    {time.monotonic() - began:4.1f} s  {message}", style="dim", highlight=False)


async def kill_operator(here: Laptop, watched: JobView, strike: Strike) -> str:
    """Kill the operator, and start it again after a while."""
    pid = await here.operator.kill()
    await asyncio.sleep(strike.away)
    await here.operator.start()
    return f"killed the operator ({pid}), away for {strike.away:.1f} s"


async def kill_master(here: Laptop, watched: JobView, strike: Strike) -> str:
    """Kill the master's process."""
    masters = [pod for pod in watched.seen.pods if "master" in pod.role]
    return kill(strike, watched.seen, masters, main_of)


async def kill_agent(here: Laptop, watched: JobView, strike: Strike) -> str:
    """Kill an agent; its workers have to die with it."""
    return kill(strike, watched.seen, watched.seen.workers, main_of)


async def kill_worker(here: Laptop, watched: JobView, strike: Strike) -> str:
    """Kill a worker process."""
    return kill(strike, watched.seen, watched.seen.workers, lambda tree: next(iter(workers_of(tree)), None))


def kill(
    strike: Strike, seen: Seen, pods: Sequence[Pod], choose: Callable[[tuple[Process, ...]], Process | None]
) -> str:
    """SIGKILL the chosen process of the last of `pods` that has one; say which."""
    for pod in reversed(pods):
        if found := choose(of_pod(pod.name, seen.uid)):
            os.kill(found.pid, signal.SIGKILL)
            return f"killed the {strike.victim} of {pod.name} ({found.pid})"
    return f"found no {strike.victim} to kill"


Kill = Callable[[Laptop, JobView, Strike], Awaitable[str]]
KILLS: Mapping[Victim, Kill] = {
    Victim.OPERATOR: kill_operator,
    Victim.MASTER: kill_master,
    Victim.AGENT: kill_agent,
    Victim.WORKER: kill_worker,
}


async def keep_evidence(here: Laptop, watched: JobView, number: int, wrong: Sequence[str]) -> None:
    """Save the state of a failed round."""
    folder = Path("chaos-evidence") / f"round-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    messages = [f"{one.at:.3f} {one.reason}: {one.sentence}" for one in watched.messages]
    (folder / "wrong.txt").write_text("\n".join([*wrong, "", *messages]) + "\n")
    shutil.copy(here.operator.log, folder / "operator.log")
    record = here.state / f"steps-{number}.jsonl"
    if record.exists():
        shutil.copy(record, folder / record.name)


# all rounds


async def run(options: Namespace, console: Console) -> list[Outcome]:
    """Play all rounds in one cluster."""
    state = Path(tempfile.mkdtemp(prefix="elasticjob-chaos-"))
    outcomes = []
    try:
        async with laptop(state) as here:
            for number in range(options.rounds):
                console.print(f"round {number + 1} of {options.rounds}", highlight=False)
                outcomes.append(await play(here, number, options.seed, console))
                console.print(f"    {line_of(outcomes[-1])}", highlight=False)
    finally:
        shutil.rmtree(state, ignore_errors=True)
    return outcomes


def line_of(outcome: Outcome) -> str:
    """Return a round in one line."""
    if outcome.wrong:
        return "[red]✗[/] " + "; ".join(outcome.wrong)
    done = f"{outcome.seconds:.1f} s, {outcome.steps} steps in {outcome.rounds} worlds"
    return f"[green]✓[/] {done}: {outcome.said}"


def table(outcomes: Sequence[Outcome]) -> Table:
    """Return all rounds as a table."""
    shown = Table(box=None, header_style="dim")
    for name in ("round", "killed", "seconds", "steps", "worlds", "outcome"):
        shown.add_column(name)
    for one in outcomes:
        killed = ", ".join(f"{strike.victim} at {strike.after:.1f} s" for strike in one.strikes)
        outcome = "[red]" + "; ".join(one.wrong) + "[/]" if one.wrong else "[green]Succeeded[/]"
        shown.add_row(
            str(one.number + 1), killed, f"{one.seconds:.1f}", str(one.steps), str(one.rounds), outcome
        )
    return shown


def main() -> int:
    """Run from the command line."""
    parser = ArgumentParser(
        prog="python -m lab.chaos.control_plane", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    options = parser.parse_args()
    console = Console()
    console = console if console.is_terminal else Console(width=150)
    console.print(f"chaos: {options.rounds} rounds, --seed {options.seed}", highlight=False)
    outcomes = asyncio.run(run(options, console))
    console.print(table(outcomes))
    failed = [one for one in outcomes if one.wrong]
    console.print(
        f"{len(outcomes) - len(failed)} of {len(outcomes)} jobs succeeded with every promise kept"
        + (f"; evidence in {Path('chaos-evidence').resolve()}" if failed else ""),
        style="red" if failed else "bold green",
        highlight=False,
        soft_wrap=True,
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
