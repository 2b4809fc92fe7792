"""`python -m lab`: stories of jobs in trouble."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer
from rich.console import Console

from lab.clusters.choice import CLUSTERS
from lab.jobs import bare, crowd, digits, queued, tenancy
from lab.jobs import servers as over_servers
from lab.jobs.life import play as life
from lab.processes import end_on_sigterm
from lab.story import Job, Outcome, Trouble, Truth, play, report
from lab.troubles import kills, machines, network, ordinary, queues, servers, sizes, storage, tenant
from lab.truths import lives, model, pods, programs, quota, records, saves, status, training

Row = TypeVar("Row", Job, Trouble, Truth)
GROUPS: Final[Mapping[str, tuple[Trouble, ...]]] = {
    "kills": kills.TROUBLES,
    "machines": machines.TROUBLES,
    "network": network.TROUBLES,
    "queues": queues.TROUBLES,
    "ordinary": ordinary.TROUBLES,
    "tenant": tenant.TROUBLES,
    "over-servers": servers.TROUBLES,
    "sizes": sizes.TROUBLES,
    "storage": storage.TROUBLES,
}


def by_name(*rows: Iterable[Row]) -> dict[str, Row]:
    """Return rows by their names, of which none has that of another."""
    found = dict[str, Row]()
    for row in (row for group in rows for row in group):
        if found.setdefault(row.name, row) is not row:
            raise ValueError(f"two {type(row).__name__} rows are named {row.name}")
    return found


JOBS: Final = by_name(digits.JOBS, bare.JOBS, crowd.JOBS, queued.JOBS, life.JOBS, tenancy.JOBS, servers.JOBS)
TROUBLES: Final = by_name(*GROUPS.values())
JUDGES: Final = (pods, training, records, model, saves, status, quota, lives, programs, over_servers)
TRUTHS: Final = by_name(*(each.TRUTHS for each in JUDGES))
INTERRUPTED: Final = 130
app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
def main() -> None:
    """The test bench: jobs, troubles that befall them, and truths that hold all the same."""


ABOUT_JOBS: Final = "Of " + "; ".join(f"{job.name}: {job.about}" for job in JOBS.values())
ABOUT_TROUBLES: Final = "Rows or groups: " + "; ".join(
    f"{name}: {', '.join(row.name for row in rows)}" for name, rows in GROUPS.items()
)


@app.command()
def chaos(
    jobs: Annotated[str, typer.Option(help=ABOUT_JOBS)],
    cluster: Annotated[str, typer.Option(help=f"Of {', '.join(CLUSTERS)}; else the job's own.")] = "",
    troubles: Annotated[str, typer.Option(help=f"{ABOUT_TROUBLES}; else the job's own.")] = "",
    truths: Annotated[str, typer.Option(help=f"Of {', '.join(TRUTHS)}; else the job's own.")] = "",
    seed: Annotated[int | None, typer.Option(help="Of all that is drawn.")] = None,
    stories: Annotated[int, typer.Option(min=0, help="How many; 0: the job's own length.")] = 0,
    times: Annotated[int, typer.Option(min=0, help="How many troubles in a story.")] = 0,
    minutes: Annotated[float, typer.Option(min=0, help="No story, and no trouble, begins later.")] = 0.0,
    size: Annotated[int, typer.Option(min=0, help="How many jobs, of those that are many.")] = 0,
    first: Annotated[int, typer.Option(min=0, help="The number of the first story or trouble.")] = 0,
    keep: Annotated[
        Path | None,
        typer.Option(
            file_okay=False, help="A folder for what shows a fault, and for a log; else chaos-evidence."
        ),
    ] = None,
) -> None:
    """Play stories of jobs; ends with 1 if one did not end as it should, and says how it is played again."""
    seed = random.SystemRandom().randrange(10_000) if seed is None else seed
    to = Console(width=None if Console().is_terminal else 200)
    plans, code = [], 0
    for job in chosen("--jobs", jobs, JOBS):
        if cluster and cluster not in job.clusters:
            where = ", ".join(job.clusters)
            raise typer.BadParameter(f"{job.name} runs on {where}: give one of these", param_hint="--cluster")
        own = job.length
        length = replace(
            own,
            stories=stories or (own.stories if not minutes or own.minutes or own.troubles else 0),
            troubles=times or own.troubles,
            minutes=minutes or own.minutes,
            size=size or own.size,
            first=first,
        )
        weights = weighted(job, cluster or job.clusters[0], troubles)
        kept = asked_of(job, truths)
        plans.append((job, CLUSTERS[cluster or job.clusters[0]], weights, kept, length))

    def say(text: str) -> None:
        to.print(text, style="dim", highlight=False, markup=False, soft_wrap=True)

    def again(outcome: Outcome) -> str:
        words: dict[str, object] = {
            "jobs": outcome.job,
            "seed": seed,
            "first": outcome.number,
            "stories": 1,
        }
        words |= {"times": times, "minutes": minutes, "size": size, "cluster": cluster}
        words |= {"troubles": troubles, "truths": truths}
        flags = (f"--{name} {value}" for name, value in words.items() if value or name in ("seed", "first"))
        return " ".join(("python -m lab chaos", *flags))

    end_on_sigterm()
    if keep is None:
        logging.disable()  # what befalls those who look on is no news
        keep = Path("chaos-evidence")
    else:
        keep.mkdir(parents=True, exist_ok=True)
        form = "%(asctime)s %(levelname)s %(message)s"
        logging.basicConfig(filename=keep / "lab.log", level=logging.INFO, format=form)
    for job, place, weights, kept, length in plans:
        to.print(f"{job.name}: --seed {seed}", highlight=False)
        outcomes, interrupted = list[Outcome](), False
        try:
            asyncio.run(play(seed, place, job, weights, kept, length, say, keep, outcomes))
        except KeyboardInterrupt:
            interrupted = True
        code |= report(outcomes, again, keep, to)
        if interrupted:
            raise typer.Exit(INTERRUPTED)
    raise typer.Exit(code)


@app.command()
def fuzz(
    requests: Annotated[int, typer.Option(min=1, help="How many to each listener.")] = 100_000,
    seed: Annotated[str, typer.Option(help="Of all that is drawn.")] = "1",
    listener: Annotated[str, typer.Option(help="One of the listeners alone.")] = "",
    only: Annotated[int | None, typer.Option(help="The number of the one request to send.")] = None,
) -> None:
    """Send random requests to every listener of ours; ends with 1 if one brings a fault, named by its number.

    A fault is a response from 500 on, a traceback in the log, a broken rule of the master's state, a file
    descriptor that stays open, or a client of the store that is no longer served.
    """
    from lab.fuzz import store
    from lab.fuzz.listeners import LISTENERS
    from lab.fuzz.play import play

    numbers, failed = range(requests) if only is None else range(only, only + 1), False
    rows = {each.name: each for each in LISTENERS}
    if listener not in ("", store.NAME, *rows):
        raise typer.BadParameter(f"give one of {', '.join((*rows, store.NAME))}", param_hint="--listener")
    for name in (*rows, store.NAME):
        if listener in ("", name):
            found = (
                asyncio.run(play(rows[name], numbers, seed)) if name in rows else store.play(numbers, seed)
            )
            failed |= bool(found.wrong)
            print(found, *found.wrong[:20], sep="\n  ", flush=True)
    raise typer.Exit(failed)


@app.command()
def simulate(
    seed: Annotated[int, typer.Option(help="Of the first history.")] = 0,
    histories: Annotated[int, typer.Option(min=1, help="How many, a seed each.")] = 2000,
    long: Annotated[bool, typer.Option("--long", help="Histories of an hour, of 30 to 40 acts.")] = False,
    only: Annotated[str, typer.Option(help="Truths of lab/simulation/truths.py; all without.")] = "",
    story: Annotated[
        Path | None, typer.Option(help="A file with one history to play, with its diary.")
    ] = None,
    first: Annotated[bool, typer.Option("--first", help="End at the first wrong history.")] = False,
    crashes: Annotated[bool, typer.Option("--crashes", help="A crash before and after each write.")] = False,
    record: Annotated[bool, typer.Option("--record", help="Keep the ends of those histories.")] = False,
    edits: Annotated[
        bool, typer.Option("--edits", help="Edited objects beside fresh ones, each field.")
    ] = False,
    judge: Annotated[str, typer.Option(help="Play them on a cluster, too: devcluster or real.")] = "",
    mutants: Annotated[bool, typer.Option("--mutants", help="Known bugs, one at a time.")] = False,
    mutant: Annotated[str, typer.Option(help="With --mutants: these, with commas between them.")] = "",
    minutes: Annotated[float, typer.Option(min=0, help="With --mutants: at most so long.")] = 120.0,
    results: Annotated[Path | None, typer.Option(help="With --mutants: what is kept of a run.")] = None,
) -> None:
    """Play the whole control plane in virtual time; ends with 1 if a history is wrong."""
    from lab.simulation import judges, report
    from lab.simulation import mutants as bugs

    to, modes = Console(), (story, mutants, first, crashes, record, edits, judge)
    if sum(map(bool, modes)) > 1:
        raise typer.BadParameter(
            "give one of --story, --mutants, --first, --crashes, --record, --edits, --judge"
        )
    if (mutant or results) and not mutants:
        raise typer.BadParameter("--mutant and --results belong to --mutants")
    names = [*filter(None, mutant.split(","))]
    if unknown := {*names} - bugs.mutants().keys():
        raise typer.BadParameter(f"{', '.join(unknown)}: no mutant of lab/simulation/mutants.toml")
    if judge and judge not in judges.JUDGES:
        raise typer.BadParameter(f"{judge}: give one of {', '.join(judges.JUDGES)}")
    end_on_sigterm()
    try:
        truths = report.chosen(only)
        if story:
            code = report.replay(story, truths, to)
        elif mutants:
            trial = bugs.by_command(histories, seed)
            code = bugs.run_mutants(trial, to, names=names, minutes=minutes, results=results)
        elif first:
            code = report.find_first(seed, histories, truths, to)
        elif record:
            code = report.keep_ends(to)
        elif crashes:
            code = report.crash_everywhere(to)
        elif edits:
            from lab.simulation.edits import edits as judge_edits

            code = judge_edits((), seed, 20, to)
        elif judge:
            code = int(not judges.judge(judge, histories, seed))
        else:
            code = report.simulate(seed, histories, truths, to, long)
    except (ValueError, OSError) as error:
        to.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        to.print("interrupted", style="red")
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(code)


@app.command("queues")
def stories_of_queues(
    seed: Annotated[int, typer.Option(help="Of the first story.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="How many stories, a seed each.")] = 1000,
) -> None:
    """Play stories of jobs in queues in virtual time, several a second; ends with 1 if one breaks."""
    from lab.virtual.play import play

    try:
        raise typer.Exit(play(seed, count) > 0)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def chosen(option: str, words: str, rows: Mapping[str, Row]) -> list[Row]:
    """Return the rows of these names. BadParameter if one is none of them."""
    names = words.split(",")
    if unknown := set(names) - rows.keys():
        raise typer.BadParameter(
            f"{','.join(sorted(unknown))}: give some of {', '.join(rows)}", param_hint=option
        )
    return [rows[name] for name in names]


def asked_of(job: Job, words: str) -> list[Truth]:
    """Return the truths of a job, or others: of those that some job has, those whose scene it has, too."""
    rows = chosen("--truths", words or ",".join(job.truths), TRUTHS)
    for row in rows:
        scenes = tuple(each.scene for each in JOBS.values() if row.name in each.truths)
        if scenes and not issubclass(job.scene, scenes):
            say = f"{row.name} says nothing of {job.name}: give some of {', '.join(job.truths)}"
            raise typer.BadParameter(say, param_hint="--truths")
    return rows


def weighted(job: Job, cluster: str, words: str) -> dict[Trouble, int]:
    """Return the troubles of a job, or others that it can have there, with their weights."""
    names = [row.name for word in words.split(",") for row in GROUPS.get(word, ())] if words else job.troubles
    names = [*names, *(word for word in words.split(",") if word and word not in GROUPS)]
    if unknown := {*names} - TROUBLES.keys():
        say = f"{','.join(sorted(unknown))}: give groups, {', '.join(GROUPS)}, or rows, {', '.join(TROUBLES)}"
        raise typer.BadParameter(say, param_hint="--troubles")
    rows = [TROUBLES[name] for name in names]

    def fits(row: Trouble) -> bool:
        return issubclass(job.scene, row.needs) and cluster in (row.clusters or (cluster,))

    if unfit := [row.name for row in rows if not fits(row)]:
        fit = ", ".join(row.name for row in TROUBLES.values() if fits(row))
        say = f"{','.join(unfit)} cannot befall {job.name} on {cluster}: give some of {fit}"
        raise typer.BadParameter(say, param_hint="--troubles")
    return {row: job.troubles.get(row.name, 1) for row in rows}


if __name__ == "__main__":
    app()
