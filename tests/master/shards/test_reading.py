"""DataLoaders whose processes take shards: a loop takes a batch of each in turn; none waits for another."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from elasticjob.api.rpc.shards import Consumer, Lease, Shard
from tests.master.shards.test_ledger import Game

AHEAD = 2  # batches that a process makes before the loop takes one
BATCH = 3


@dataclass
class Process:
    """Reads shards into batches, and asks for the next shards while it reads."""

    who: Consumer
    batches: deque[list[int]] = field(default_factory=deque)
    begun: list[int] = field(default_factory=list)
    shards: deque[Shard] = field(default_factory=deque)
    read: list[Shard] = field(default_factory=list)  # to the end, and not reported yet
    records: deque[int] = field(default_factory=deque)
    ended: bool = False

    def go(self, game: Game, want: int) -> bool:
        """Do one thing; return whether anything was done."""
        if self.ended or len(self.batches) > AHEAD:
            return False
        if self.records:
            self.begun.append(self.records.popleft())
            if not self.records:
                self.read.append(self.shards.popleft())
            if len(self.begun) == BATCH:
                self.hand_out()
            return True
        if self.read and not self.shards:
            game.say(self.who, *self.read)
            self.read = []
        dealt = game.played.ask(self.request(want))
        game.save()
        self.shards += dealt.shards if dealt else ()
        if dealt and dealt.end:
            self.ended = True
            self.hand_out()
        elif self.shards:
            self.records += self.shards[0].records
        return bool(dealt or self.records)

    def hand_out(self) -> None:
        self.batches.append(self.begun)
        self.begun = []

    def request(self, want: int) -> Lease:
        has = tuple(each.lease for each in (*self.shards, *self.read))
        return Lease(consumer=self.who, dataset="d", want=want, has=has, yields=True)


@dataclass
class Loop:
    """The training loop of a worker: it takes a batch of each of its processes in turn."""

    processes: list[Process]
    turn: int = 0
    taken: list[int] = field(default_factory=list)

    def go(self) -> bool:
        left = [each for each in self.processes if each.batches or not each.ended]
        if not left:
            return False
        process = left[self.turn % len(left)]
        if not process.batches:
            return False
        self.taken += process.batches.popleft()
        self.turn += 1
        return True

    @property
    def over(self) -> bool:
        return all(each.ended and not each.batches for each in self.processes)


@pytest.mark.parametrize("want", [1, 3])
@pytest.mark.parametrize(("nodes", "slots", "many"), [(1, 1, 2), (1, 2, 2), (2, 1, 3), (3, 2, 1)])
@pytest.mark.parametrize("shards", [1, 2, 7, 24])
def test_loops_over_processes_end_with_each_record_once_and_no_deadline(
    want: int, nodes: int, slots: int, many: int, shards: int
) -> None:
    for seed in range(3):
        chance, game = random.Random(seed), Game(size=5 * shards - 1, shard=5)
        loops = []
        for node in range(nodes):
            for slot in range(slots):
                names = [f"{slot}.{each}" for each in range(many)]
                who = [Consumer(node=f"node-{node}", worker=name, life=1) for name in names]
                for each in who:
                    game.open(each)
                loops.append(Loop([Process(each) for each in who]))
        idle = 0
        while not all(loop.over for loop in loops):
            loop = chance.choice(loops)
            moved = chance.choice(loop.processes).go(game, want) if chance.random() < 0.7 else loop.go()
            idle = 0 if moved else idle + 1
            assert idle < 500, "all wait for each other"
        assert sorted(record for loop in loops for record in loop.taken) == list(range(5 * shards - 1))
        assert game.played.job.shards.leases == shards
