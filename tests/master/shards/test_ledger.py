"""Leases and results, turn by turn."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from elasticjob.api.rpc.shards import (
    Checkpoint,
    Close,
    Consumer,
    Dataset,
    Lease,
    Open,
    Outcome,
    Restore,
    Result,
    Shard,
)
from elasticjob.master.durable.store import restore, snapshot
from elasticjob.master.handlers import dispatch
from elasticjob.master.serving import pages
from elasticjob.master.shards import book
from elasticjob.master.shards.ledger import Ledger
from elasticjob.master.state.errors import RequestError, Stale
from elasticjob.master.state.job import Limits
from lab.virtual.master import Played, failure, watch


class Game:
    """A job with a dataset, saved after each turn unless told otherwise."""

    def __init__(self, **more: Any) -> None:
        self.played = Played(limits=Limits(join_timeout=timedelta(days=1)))
        self.dataset = Dataset(**{"name": "d", "size": 40, "shard": 10, **more})
        self.saves = True

    def ask(self, request: Any) -> Any:
        reply = self.played.ask(request)
        self.save()
        return reply

    def save(self) -> None:
        job = self.played.job
        if self.saves:
            self.played._become(job.but(shards=book.after_save(job.shards, job.shards.mark)))

    def open(self, who: Consumer, **more: Any) -> Any:
        return self.ask(Open(consumer=who, dataset=self.dataset, **more))

    def take(self, who: Consumer, want: int = 1, has: tuple[Shard, ...] = ()) -> Any:
        leases = tuple(shard.lease for shard in has)
        return self.ask(Lease(consumer=who, dataset="d", want=want, has=leases))

    def say(self, who: Consumer, *shards: Shard, error: str = "") -> Any:
        outcomes = tuple(Outcome(number=each.number, lease=each.lease, error=error) for each in shards)
        return self.ask(Result(consumer=who, dataset="d", outcomes=outcomes))

    @property
    def ledger(self) -> Ledger:
        return self.played.job.shards.datasets["d"]


def who(index: int, life: int = 1) -> Consumer:
    return Consumer(node=f"node-{index}", worker="0", life=life, incarnation=f"node-{index}-life")


def opened(*indices: int, **more: Any) -> Game:
    game = Game(**more)
    for index in indices:
        game.open(who(index))
    return game


def test_result_counts_once_and_is_acknowledged_twice() -> None:
    game = opened(0)
    (shard,) = game.take(who(0)).shards
    assert game.say(who(0), shard).lost == ()
    assert game.say(who(0), shard).lost == ()
    assert game.ledger.applied == 10


def test_repeated_lease_returns_the_same_shards() -> None:
    game = opened(0)
    first = game.take(who(0), want=2).shards
    assert game.take(who(0), want=2).shards == first
    assert game.take(who(0), want=3, has=first).shards[0].number == 2


def test_shards_of_a_lost_node_come_first_and_its_results_are_refused() -> None:
    game = opened(0, 1)
    game.ask(watch("node-0"))
    lost = game.take(who(0), want=2).shards
    game.played.cut(watch("node-0"))
    game.save()
    taken = game.take(who(1), want=2).shards
    assert [shard.number for shard in taken] == [shard.number for shard in lost]
    assert all(new.lease > old.lease for new, old in zip(taken, lost, strict=True))
    with pytest.raises(Stale):
        game.say(who(0), *lost)
    held = tuple(Outcome(number=shard.number, lease=shard.lease) for shard in lost)
    game.open(who(0), outcomes=held)
    assert game.open(who(0), outcomes=held).lost == tuple(shard.lease for shard in lost)
    assert game.ledger.applied == 0


@pytest.mark.parametrize(("code", "failures"), [(1, {0: 1}), (-11, {0: 1}), (-9, {}), (-15, {})])
def test_only_a_fault_of_the_worker_counts_as_a_failure_of_its_first_shard(
    code: int, failures: dict[int, int]
) -> None:
    game = opened(0, 1)
    game.ask(watch("node-0"))
    game.take(who(0), want=2)
    game.ask(failure("node-0", final=False, code=code))
    assert game.ledger.failed == failures
    assert [shard.number for shard in game.take(who(1), want=4).shards] == (
        [1, 2, 3, 0] if failures else [0, 1, 2, 3]
    )


def test_failed_shard_comes_at_the_end_of_its_epoch_and_is_poisoned_in_the_end() -> None:
    game = opened(0, epochs=2, retries=1)
    order = []
    while not (dealt := game.take(who(0))).end:
        (shard,) = dealt.shards
        order.append(shard.number)
        game.say(who(0), shard, error="ValueError: no" if shard.number == 1 else "")
    assert order == [0, 1, 2, 3, 1, 4, 5, 6, 7]
    (bad,) = dealt.poisoned
    assert (bad.start, bad.end, bad.attempts, bad.error) == (10, 20, 2, "ValueError: no")
    assert game.ledger.is_exhausted
    assert not game.ledger.complete
    sentence = pages.status(game.played.job, game.played.now)["sentence"]
    assert sentence.endswith(
        "dataset d is not complete: shard [10, 20) of epoch 0 failed 2 times: ValueError: no"
    )


def test_deadline_follows_the_slowest_shard_and_progress_renews_it() -> None:
    game = opened(0, 1)
    (shard,) = game.take(who(0)).shards
    game.played.now += timedelta(seconds=300)
    game.say(who(0), shard)
    assert game.ledger.deadline == timedelta(seconds=900)
    (shard,) = game.take(who(0)).shards
    for used in (1, 1, 2, 2):  # that of the last time, too: it waits for its worker
        game.played.now += timedelta(seconds=800)
        held = {"number": shard.number, "lease": shard.lease, "used": used}
        game.ask(Result(consumer=who(0), dataset="d", progress=(msg(held),)))
        game.played._become(dispatch.tick(game.played.job, game.played.now))
        assert game.ledger.holding == 1
    game.played.now += timedelta(seconds=901)
    game.played._become(dispatch.tick(game.played.job, game.played.now))
    assert game.ledger.holding == 0
    game.save()
    (again,) = game.take(who(1)).shards
    assert (again.number, again.start, again.used) == (shard.number, shard.start + 2, 2)


def msg(held: dict[str, int]) -> Any:
    from elasticjob.api.rpc.shards import Held

    return Held(**held)


def test_nothing_is_dealt_before_the_opening_is_saved_and_the_end_waits_for_the_last_result() -> None:
    game = Game(size=10)
    game.saves = False
    assert game.open(who(0)) is None
    assert game.take(who(0)) is None
    game.saves = True
    game.save()
    (shard,) = game.take(who(0)).shards
    game.saves = False
    game.say(who(0), shard)
    assert game.take(who(0)) is None
    game.saves = True
    assert game.take(who(0)) is None
    assert game.take(who(0)).end


def test_newer_process_takes_the_place_of_the_older_which_is_told() -> None:
    game = opened(0)
    (old,) = game.take(who(0)).shards
    game.open(who(0, life=2))
    (new,) = game.take(who(0, life=2)).shards
    assert new.number == old.number
    with pytest.raises(RequestError, match="any more"):
        game.say(who(0), old)
    with pytest.raises(RequestError, match="replaced by a newer process"):
        game.open(who(0))


def test_position_of_a_checkpoint_brings_back_what_was_finished_after_it() -> None:
    game = opened(0)
    first, second = game.take(who(0), want=2).shards
    game.say(who(0), first)
    position = game.ask(Checkpoint(dataset="d"))
    assert (position.next, position.open, position.applied) == (2, ((1, 2),), 10)
    game.say(who(0), second)
    for _ in range(2):
        game.ask(Restore(id="once", position=position))
    with pytest.raises(Stale):
        game.take(who(0))
    game.open(who(0))
    assert [shard.number for shard in game.take(who(0), want=4).shards] == [1, 2, 3]


def test_closing_returns_what_is_held() -> None:
    game = opened(0, 1)
    game.take(who(0), want=2)
    game.ask(Close(consumer=who(0), dataset="d"))
    assert [shard.number for shard in game.take(who(1), want=2).shards] == [0, 1]


def test_snapshot_grows_with_the_holes_and_not_with_the_shards() -> None:
    game = opened(0, size=10**9)
    for _ in range(300):
        game.say(who(0), *game.take(who(0)).shards)
    assert len(snapshot(game.played.job)) < 2500


def test_next_master_waits_for_the_consumers_that_the_snapshot_names() -> None:
    game = opened(0, 1)
    before = snapshot(game.played.job)
    (mine,) = game.take(who(0)).shards
    (other,) = game.take(who(1)).shards
    game.played._become(restore(before, game.played.job.spec, game.played.now))
    done = (Outcome(number=mine.number, lease=mine.lease),)
    game.open(who(0), outcomes=done, opening=1)
    assert game.open(who(0), outcomes=done, opening=1).lost == ()
    assert game.take(who(0)) is None, "shard 1 may be held by the other"
    game.played.now += timedelta(seconds=16)
    game.played._become(dispatch.tick(game.played.job, game.played.now))
    game.save()
    (again,) = game.take(who(0)).shards
    assert again.number == other.number
    assert again.lease > other.lease


def test_shard_that_came_back_is_dealt_once_its_return_is_saved() -> None:
    game = opened(0, 1)
    game.take(who(0))
    game.saves = False
    game.ask(Close(consumer=who(0), dataset="d"))
    assert [shard.number for shard in game.take(who(1)).shards] == [1]
    game.saves = True
    game.save()
    again = game.take(who(1), want=2, has=game.take(who(1)).shards)
    assert [shard.number for shard in again.shards] == [0]
