"""Where the workers of this node are: looked at a few times a second, summed up for the master.

The pages (`trainer/link/pulse.py`) say step and phase, /proc says whether a process is stopped and what
it uses. At one that is late there is a closer look every second: whether it and its processes compute, read,
or wait for storage; and it is asked in which collective it waits (`collectives.py`). A worker that becomes
late, slow, stops or goes on is reported at once; else the next report has it. The master judges, because only
it sees whether others wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median, median_low
from types import MappingProxyType
from typing import Final, NamedTuple

from elasticjob.api.rpc.nodes import Awaits, Begun, Collective, Doing, WorkerState
from elasticjob.trainer.agent.seeing.collectives import collective_of
from elasticjob.trainer.link.pulse import Phase, Pulse
from elasticjob.trainer.link.recorder import Digest
from elasticjob.trainer.usage.cores import Work, work_of

EVERY: Final = 0.1  # seconds between two looks
LATE: Final = 1.0  # seconds beyond 3 usual steps after which a worker is reported at once
SLOW: Final = 1.5  # times its own usual time: the same
STEPS: Final = 15  # seen steps of which the usual one is the median
FEW: Final = 5
RECENT: Final = 9  # the same for the time before a worker waits: short enough to name a straggler in 20 steps
OFTEN: Final = 64  # such medians are kept
SELDOM: Final = 75  # percent of them are not above the usual one
CLOSER: Final = 0.95  # seconds between two closer looks at a worker that is late
ASLEEP: Final = 1.5  # seconds between two looks: this agent was stopped, or had no core
FRESH: Final = 3.0  # seconds for which an answer about collectives counts
CALM: Final = (False, False, False)
WINDOW: Final = 1.0  # seconds over which used cores and taken records are measured
Points = tuple[tuple[float, float], ...]  # (when, how much till then)


class Sight(NamedTuple):
    """One look at a worker: its page, and its process."""

    pulse: Pulse
    stopped: bool = False
    cpu: float = 0.0  # seconds used since its start
    pid: int = 0


@dataclass(frozen=True)
class Track:
    """What is remembered of one worker in one round."""

    round: int
    entered: float
    seen: Sight
    steps: tuple[float, ...] = ()
    busy: tuple[float, ...] = ()
    lately: int = 0  # samples of `busy` that are in none of `often`
    often: tuple[float, ...] = ()  # medians of as many in a row, of the whole round
    stopped_since: float | None = None
    used: Points = ()  # seconds of CPU, over the window
    taken: Points = ()  # records at the ends of steps, over the window
    work: Work | None = None  # at the last closer look, at `looked`
    looked: float = 0.0
    moved: float = 0.0  # when it last computed or read, as far as closer looks tell
    digest: Digest | None = None  # its last answer about collectives, at `answered`
    answered: float = 0.0
    awake: float = 0.0  # since when this agent has looked without a gap: it may have been paused, with all


@dataclass
class Watcher:
    """Follows the workers of a node; the times are those of the pages (CLOCK_MONOTONIC)."""

    closer: Callable[[int], Work] = work_of
    ask: Callable[[int], None] = lambda _: None
    asleep: float = ASLEEP
    tracks: dict[int, Track] = field(default_factory=dict)
    seen: float = 0.0  # when the last look was
    said: dict[int, tuple[bool, bool, bool]] = field(default_factory=dict)

    def look(
        self,
        rounds: Mapping[int, int],
        sights: Mapping[int, Sight],
        now: float,
        answers: Mapping[int, Digest] = MappingProxyType({}),
    ) -> bool:
        """Take in one look at the workers in a world, and their answers about collectives.

        Returns whether the master should know at once.
        """
        before = self.said
        self.tracks = {
            slot: update(self.tracks.get(slot), sights[slot], number, now)
            for slot, number in rounds.items()
            if slot in sights
        }
        asleep = self.seen > 0 and now - self.seen > self.asleep
        if asleep:
            self.tracks = {slot: replace(track, awake=now) for slot, track in self.tracks.items()}
        for slot, track in self.tracks.items():
            if slot in answers:
                track = replace(track, digest=answers[slot], answered=now)
            if track.seen.pid and not early(track, now):
                looked = closer(track, self.closer, now, asleep=asleep)
                if looked is not track:
                    self.ask(slot)
                track = looked
            self.tracks[slot] = track
        self.seen = now
        self.said = {slot: alarms(track, now) for slot, track in self.tracks.items()}
        return any(self.said[slot] != before.get(slot, CALM) for slot in self.said)

    def states(self, now: float) -> tuple[WorkerState, ...]:
        """Return the digest for the master; workers without a page that they write are left out."""
        return tuple(
            state_of(slot, track, now)
            for slot, track in sorted(self.tracks.items())
            if track.seen.pulse.phase is not Phase.STARTING or track.stopped_since is not None
        )


def update(track: Track | None, sight: Sight, round_: int, now: float) -> Track:
    """Return what is known of a worker after one more look."""
    if track is None or track.round != round_:
        since = now if sight.stopped else None
        return Track(round_, now, sight, stopped_since=since, used=((now, sight.cpu),))
    old, new = track.seen.pulse, sight.pulse
    since = (now if track.stopped_since is None else track.stopped_since) if sight.stopped else None
    track = replace(track, seen=sight, stopped_since=since, used=window((*track.used, (now, sight.cpu)), now))
    if new.step <= old.step or new.reduced <= track.entered:
        return track
    steps = track.steps
    if old.reduced > track.entered:
        steps = (*steps, (new.reduced - old.reduced) / (new.step - old.step))[-STEPS:]
    busy = (*track.busy, new.busy)[-RECENT:] if new.busy > 0 else track.busy
    lately, often = track.lately + (new.busy > 0), track.often
    if lately >= RECENT:
        lately, often = 0, (*often, median(busy))[-OFTEN:]
    taken = window((*track.taken, (new.reduced, new.records)), new.reduced)
    return replace(track, steps=steps, busy=busy, lately=lately, often=often, taken=taken)


def early(track: Track, now: float) -> bool:
    """Whether a worker made a step or began with something else so lately that nobody asks what it does."""
    waited, pulse = idle(track, now), track.seen.pulse
    late = waited is None or waited > LATE + 3 * usual(track)
    return not late or pulse.phase is Phase.STARTING or now - pulse.since < LATE


def closer(track: Track, look: Callable[[int], Work], now: float, *, asleep: bool) -> Track:
    """Return what is known of a worker that is late after a closer look, one a second."""
    fresh = track.looked < max(track.seen.pulse.since, track.entered)
    if not (fresh or asleep) and now - track.looked < CLOSER:
        return track
    work = look(track.seen.pid)
    same = track.work is not None and not (fresh or asleep) and not work.since(track.work, now - track.looked)
    return replace(track, work=work, looked=now, moved=track.moved if same else now)


def still(track: Track, now: float) -> float | None:
    """Return how long a worker has computed and read nothing; 0 if nobody has looked."""
    looked = track.work is not None and track.looked >= track.seen.pulse.since and not early(track, now)
    return round(max(0.0, now - track.moved), 3) if looked else 0.0


def awaits(track: Track) -> Awaits | None:
    """Return what a worker waited for at the last closer look, if that was in this phase."""
    if track.work is None or track.looked < track.seen.pulse.since:
        return None
    return Awaits.STORAGE if track.work.storage else Awaits.DATA if track.work.data else None


def waits_in(track: Track, now: float) -> tuple[Collective | None, Begun]:
    """Return the collective that a worker waits in, and how many of each group it has begun.

    Nothing if it has not answered lately, or has gone on to something else since.
    """
    age = now - track.answered
    if track.digest is None or age > FRESH or track.answered < track.seen.pulse.since or early(track, now):
        return None, ()
    return collective_of(track.digest, age, now - track.entered), track.digest.begun


def window(points: Points, now: float) -> Points:
    """Return the newest points that span the window."""
    while len(points) > 2 and now - points[1][0] >= WINDOW:
        points = points[1:]
    return points


def state_of(slot: int, track: Track, now: float) -> WorkerState:
    """Return a worker's state as the master gets it."""
    pulse = track.seen.pulse
    collective, begun = waits_in(track, now)
    return WorkerState(
        local_rank=slot,
        doing=Doing(pulse.phase.name.lower()),
        step=pulse.step,
        since=round(max(0.0, now - max(pulse.since, track.awake)), 3),
        idle=idle(track, now),
        usual=round(usual(track), 6),
        busy=round(median(track.busy), 6) if track.busy else 0.0,
        best=round(best(track), 6),
        stopped=0.0 if track.stopped_since is None else round(max(0.001, now - track.stopped_since), 3),
        cores=rate(track.used),
        still=still(track, now),
        awaits=awaits(track),
        collective=collective,
        collectives=begun,
        samples=rate(track.taken),
        spent=spent(track.seen.pulse, now),
    )


def spent(pulse: Pulse, now: float) -> tuple[float, ...]:
    """Return the time of a worker in each phase, with that of the present one."""
    here = max(0.0, now - pulse.since) if pulse.since else 0.0
    found = (each + here if phase == pulse.phase else each for phase, each in enumerate(pulse.spent))
    return tuple(round(each, 3) for each in found)


def alarms(track: Track, now: float) -> tuple[bool, bool, bool]:
    """Return whether a worker is stopped, late, and slower than it was."""
    waited, slow = idle(track, now), track.often and median(track.busy) > SLOW * best(track)
    late = waited is not None and waited > LATE + 3 * usual(track)
    return track.stopped_since is not None, late, bool(slow)


def idle(track: Track, now: float) -> float | None:
    """Return the seconds since the last step in this round, None before the first."""
    ended = track.seen.pulse.reduced
    return round(max(0.0, now - ended), 3) if ended > track.entered else None


def usual(track: Track) -> float:
    """Return the usual time from step to step: long ones with an evaluation between are few.

    The first ones may compile: until there are some, the longest counts.
    """
    if len(track.steps) < FEW:
        return max(track.steps, default=0.0)
    return median_low(track.steps)


def best(track: Track) -> float:
    """Return the time before a worker waits that it seldom takes longer; 0 before there is one.

    The least would be the luckiest, of which on a laptop each time is a multiple.
    """
    ordered = sorted(track.often)
    return ordered[SELDOM * (len(ordered) - 1) // 100] if ordered else 0.0


def rate(points: Points) -> float:
    """Return how much there was in a second of the window, 0 before there are two points."""
    if len(points) < 2:
        return 0.0
    (start, before), (end, after) = points[0], points[-1]
    return round(max(0.0, after - before) / (end - start), 3) if end > start else 0.0
