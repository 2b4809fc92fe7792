"""`make bench-scaling`: our optimizers beside fixed settings and the peer's rules, in virtual time.

Each row is a situation; each policy runs in it with the same seeds, which decide noise, spot losses and slow
phases. Figures are medians over the seeds, with the least and the most.

    python -m benchmarks.simulator --only "spot losses" --seeds 3
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

from typer import Option

from benchmarks.commands import play, some
from benchmarks.figures import Sheet, show, spread
from benchmarks.simulator.policies import Fixed, Ours, Peer, Policy
from benchmarks.simulator.rows import ROWS, Row
from benchmarks.simulator.world import Outcome, Simulated, Track
from elasticjob.cli.report.plot import Figure, Panel, draw
from lab.processes import say

LONGEST: Final = 24 * 3600.0
"""Virtual seconds after which a run is given up."""
POLICIES: Final[Mapping[str, Callable[[], Policy]]] = {
    "elasticjob": Ours,
    "fixed, small guess": lambda: Fixed(workers=2, cores=2, gib=4, servers=1),
    "fixed, large guess": lambda: Fixed(workers=12, cores=4, gib=20, servers=4),
    "fixed, in hindsight": Fixed,
    "DLRover's rules": Peer,
    "DLRover's, as meant": lambda: Peer(intended=True),
}
SHOWN: Final = ("elasticjob", "DLRover's, as meant")
FIGURES: Final[Mapping[str, Callable[[Outcome], float]]] = {
    "90 % of best, min": lambda outcome: outcome.reached / 60,
    "completed, h": lambda outcome: outcome.completed / 3600,
    "idle core-h": lambda outcome: outcome.idle_core_hours,
    "idle GiB-h": lambda outcome: outcome.idle_gib_hours,
    "OOM kills": lambda outcome: outcome.kills,
    "plans": lambda outcome: outcome.plans,
}


def main(
    only: Annotated[list[str] | None, Option(help="a row by name; may be repeated")] = None,
    seeds: Annotated[int, Option(min=1)] = 5,
    plot: Annotated[
        Path | None, Option(help="a file for sizes and speeds over time in the first row, as SVG")
    ] = None,
) -> None:
    """Run all, print a table for each row."""
    rows = {row.name: row for row in ROWS}
    names = some(only, rows)
    tracks: dict[tuple[str, str], Sequence[Track]] = {}
    for name in names:
        cells = []
        for title, policy in POLICIES.items():
            outcomes = [run(rows[name], policy(), seed) for seed in range(seeds)]
            tracks[name, title] = outcomes[0].track
            cells.append([title, *(spread([*map(figure, outcomes)]) for figure in FIGURES.values())])
            say(f"{name}: {title}")
        show(Sheet((name, *FIGURES), cells))
        print()
    if plot:
        plot.write_text(picture(rows[names[0]], tracks))
    print("median (least–most) over the seeds")


def run(row: Row, policy: Policy, seed: int) -> Outcome:
    """Return what a job costs under a policy; it ends with its last step, or is given up."""
    simulated = Simulated(row, seed)
    while not simulated.over and simulated.seconds < LONGEST:
        policy.turn(simulated)
        simulated.turn()
    return simulated.outcome


def picture(row: Row, tracks: Mapping[tuple[str, str], Sequence[Track]]) -> str:
    """Return a plot of speed and size over time, of us and of the peer as it is meant."""
    shown = {name: tracks[row.name, name] for name in SHOWN}
    seconds = min(track[-1][0] for track in shown.values())
    panels = []
    for name, track in shown.items():
        kept = [each for each in track if each[0] <= seconds]
        sizes = tuple((at, float(workers)) for at, workers, _ in kept)
        speeds = tuple((at, round(100 * speed / row.best.steps)) for at, _, speed in kept)
        panels.append(Panel(f"{name}: % of the best speed", "speed", "stairs", changes(speeds), 90))
        panels.append(Panel(f"{name}: workers", "world", "stairs", changes(sizes), 90))
    return draw(Figure(seconds, tuple(panels)), title=row.name)


def changes(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return the points whose value differs from the one before, and the last."""
    pairs = pairwise(points)
    return (points[0], *(new for old, new in pairs if new[1] != old[1]), points[-1])


if __name__ == "__main__":
    play(main)
