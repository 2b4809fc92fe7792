"""`python -m lab.diagnoses`: makes jobs and clusters broken, and asks doctor; prints a table."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import yaml

from elasticjob.cli.laptop import preloaded
from elasticjob.cli.laptop.laptop import operator_of
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from lab.clusters.plane.kueue import Kueue
from lab.clusters.webhooks import heeded
from lab.clusters.whole import real_plane, whole_clusters
from lab.diagnoses.play import Bench, Row, Story
from lab.diagnoses.recorded import KEPT
from lab.processes import end_on_sigterm

STORIES: Final = Path(__file__).with_name("stories.yaml")
AT_ONCE: Final = 5
LIMIT: Final = 20 * 60.0


def main() -> int:
    """Do what the command line says; return 1 where doctor is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="stories whose names have one of these in it: a,b")
    parser.add_argument("--on", default="real", choices=("devcluster", "real"), help="the control plane")
    parser.add_argument("--record", action="store_true", help=f"keep what doctor read in {KEPT.name}/")
    parser.add_argument("--list", action="store_true", help="the names of the stories")
    args = parser.parse_args()
    stories = chosen(args.only.split(","), args.on)
    if not stories:
        parser.error(f"no story on {args.on} has one of {args.only} in its name")
    if args.list:
        print(*(each["story"] for each in stories), sep="\n")
        return 0
    end_on_sigterm()
    return asyncio.run(played(stories, args.on, record=args.record))


def chosen(words: Sequence[str], on: str) -> list[Manifest]:
    """Return the stories that can be played there."""
    every = yaml.safe_load(STORIES.read_text())
    return [
        each
        for each in every
        if any(word.strip() in each["story"] for word in words)
        and each.get("where", on) in ((on, "kueue") if on == "real" else (on,))
    ]


async def played(stories: Sequence[Manifest], on: str, *, record: bool) -> int:
    """Play stories, those that change the whole cluster alone at the end; print each and a table."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        async with asyncio.timeout(LIMIT):
            for queued in (False, True):
                some = [each for each in stories if (each.get("where") == "kueue") is queued]
                if some:
                    async with bench(Path(folder), on, queued=queued) as here:
                        rows += [row async for row in results(here, some)]
    for row in rows:
        print(f"{'✗' if row.wrong else '✓'} {row.name:44}{row.seconds:>5.0f} s  {row.line[:150]}")
        if record and row.facts:
            KEPT.mkdir(exist_ok=True)
            file = KEPT / f"{row.name.replace(' ', '-').lower()}.yaml"
            file.write_text(yaml.safe_dump(row.facts, sort_keys=False, width=110, default_flow_style=None))
    bad = sum(bool(row.wrong) for row in rows)
    print(f"{len(rows)} stories, {len(rows) - bad} as they are to be")
    return 1 if bad else 0


async def results(here: Bench, stories: Sequence[Manifest]) -> AsyncIterator[Row]:
    """Play stories, some of them side by side, and yield what came of each."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, told: Manifest) -> Row:
        async with limit:
            return await result(here, told, f"story-{number}")

    beside = [(number, each) for number, each in enumerate(stories) if not each.get("alone")]
    for task in asyncio.as_completed([one(*each) for each in beside]):
        yield shown(await task)
    for number, each in enumerate(stories):
        if each.get("alone"):
            yield shown(await one(number, each))


async def result(here: Bench, told: Manifest, namespace: str) -> Row:
    """Play a story; what ends it early is a sentence of its row."""
    try:
        return await Story(here, told, namespace).play()
    except (RuntimeError, AssertionError, TimeoutError) as error:
        return Row(told["story"], "", 0.0, wrong=(str(error) or "it took too long",))


def shown(row: Row) -> Row:
    """Print what is wrong with a story at once."""
    for each in row.wrong:
        print(f"{row.name}: {each}", flush=True)
    return row


@asynccontextmanager
async def bench(folder: Path, on: str, *, queued: bool = False) -> AsyncIterator[Bench]:
    """Start a cluster that runs pods as processes, and the operator beside it."""
    async with AsyncExitStack() as stack:
        plane = stack.enter_context(real_plane(folder / "plane")) if on == "real" else None
        if queued and plane is not None:
            stack.enter_context(Kueue(plane, folder / "kueue"))
        clusters = whole_clusters(plane)
        cluster = await stack.enter_async_context(clusters(folder / "whole", supervisor=preloaded.COMMAND))
        client = await stack.enter_async_context(Client(cluster.config()))
        operator = await stack.enter_async_context(operator_of(cluster.kubeconfig, folder))
        await heeded(client)
        yield Bench(client, cluster.kubeconfig, operator, folder)


if __name__ == "__main__":
    sys.exit(main())
