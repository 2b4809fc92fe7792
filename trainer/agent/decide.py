"""The agent's decisions: ordered rules over the group's state; the first that applies returns the step.

The loop performs the step's actions, replaces the group by the step's, and repeats until no rule applies.
RULES reads as the table of contents.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec

from elasticjob.api.rpc.nodes import CUT_OFF, Failure, Finish, Order
from elasticjob.api.rpc.rendezvous import Join, Leave, Recovery
from elasticjob.trainer.agent.actions import (
    Action,
    Ask,
    Exit,
    Keep,
    Report,
    Save,
    SendProgress,
    Signal,
    Spawn,
    Step,
    Tell,
    WriteStacks,
)
from elasticjob.trainer.agent.failures import (
    UNDONE,
    ends_anywhere,
    hint,
    how_it_ended,
    may_be_an_echo,
    reason_of,
    restarts,
    said_last,
    way,
    why_hopeless,
)
from elasticjob.trainer.agent.group import (
    CLOSING,
    KILLED,
    PEERS,
    Ending,
    Group,
    Life,
    Terms,
    Worker,
    WorkerFailure,
)
from elasticjob.trainer.link.channel import Abort, Enter, Interrupt, Stop

EXCUSE = 1.0  # seconds in which the master may attribute a failure to the loss of another node
STUCK = 3.0  # seconds that a worker with short steps has to leave a broken collective
UNKNOWN = 30.0  # the same for a worker whose step time is not known yet
LEFT = "Left"  # the reason for an end requested by SIGTERM
NOT_SAVED = 74  # exit code: the training is done, and its last checkpoint could not be written (EX_IOERR)
HUNG = 1  # exit code: 137 would say that the cluster killed it, and cost the node no restart

Rule = Callable[[Group, float], Step | None]


def decide(group: Group, now: float) -> Step | None:
    """Return the step of the first rule that applies, None if there is nothing to do."""
    return next((step for rule in RULES if (step := rule(group, now))), None)


def again_at(group: Group) -> float | None:
    """Return the time at which a rule may apply without any event."""
    times = [worker.kill_at for worker in group.workers.values() if worker.kill_at is not None]
    if group.ending and group.ending.gentle and group.workers:
        times.append(group.ending.kill_at)
    times += [failed.at + EXCUSE for failed in group.failures if not failed.reported]
    return min(times, default=None)


def keep_what_was_copied(group: Group, now: float) -> Step | None:
    """Hand the keeper of checkpoints all that workers say of them, before the last of them may end."""
    return Step(replace(group, notes=()), tuple(map(Keep, group.notes))) if group.notes else None


def send_the_first_progress_of_a_round(group: Group, now: float) -> Step | None:
    """Send the first progress in a round at once: with it the master knows that the round trains."""
    if group.progress_sent == group.progress_round:
        return None
    return Step(replace(group, progress_sent=group.progress_round), (SendProgress(),))


def write_the_stacks_of_a_hang(group: Group, now: float) -> Step | None:
    """Write where all workers are, once for each hang that the master sees."""
    hang = group.orders.hang if group.orders else None
    if hang is None or hang.number <= group.stacks:
        return None
    return Step(replace(group, stacks=hang.number), (WriteStacks(hang),))


def kill_what_hangs(group: Group, now: float) -> Step | None:
    """Kill the workers that keep the others waiting: that ends the round, and the survivors form the next."""
    hang = group.orders.hang if group.orders else None
    if group.ending or hang is None or not hang.kill:
        return None
    named = {place.local_rank for place in hang.workers if place.node == group.terms.node}
    hung = [w for w in group.training if w.slot in named and w.round == hang.round and not w.hang]
    if not hung:
        return None
    done = with_all(group, (replace(worker, hang=hang.reason) for worker in hung))
    actions = tuple(Signal(worker.slot, signal.SIGKILL) for worker in hung)
    return Step(done, actions, f"killing {places(hung)}: {hang.reason}", warns=True)


def kill_what_is_behind(group: Group, now: float) -> Step | None:
    """Kill a worker that the others have left behind in the script: a fresh one enters at the gate."""
    late = [w for w in group.workers.values() if w.behind and w.kill_at is None]
    if not late:
        return None
    return kill(group, late, f"starting {places(late)} again: {late[0].behind}")


def end_newcomers_to_a_finished_training(group: Group, now: float) -> Step | None:
    """End the workers that hold no state once another one here has finished the training.

    A worker that was lost before the last step is started again; alone it would train the whole job once
    more. One that ended after it has to do what follows again: success means that all of it was done.
    """
    if group.ending or group.bound or not (group.trained and group.ended) or holders(group):
        return None
    if group.undone:
        return None if group.copies else give_up(group, group.undone[0], now)
    late = [worker for worker in group.workers.values() if worker.kill_at is None]
    if late:
        return kill(group, late, f"ending {places(late)}: the training is over")
    if group.workers or not group.vacant:
        return None
    return Step(replace(group, ended=group.ended | set(group.vacant)), ())


def exit_when_nothing_is_left(group: Group, now: float) -> Step | None:
    """Exit once all workers have ended."""
    end = group.ending
    if end is None or group.workers:
        return None
    gone = (Report(planned_leave(group, group.asked_to_leave)),) if end.awaited else ()
    return Step(group, (*gone, Exit(end.code, end.reason, end.message, end.local_rank)))


def kill_after_grace(group: Group, now: float) -> Step | None:
    """Kill a worker that was asked to end and did not within its grace period."""
    over = group.ending is not None and group.ending.gentle and group.ending.kill_at <= now
    late = [w for w in group.workers.values() if (w.kill_at <= now if w.kill_at is not None else over)]
    if not late:
        return None
    if over or not all(worker.elastic for worker in late):
        return cut_off(group, late, now)
    return kill(group, late, f"killing {places(late)}: told to end, still there")


def cut_off(group: Group, late: Sequence[Worker], now: float) -> Step:
    """Kill the workers for which the grace of their end was too short, and say so everywhere."""
    end = group.ending
    limit = "terminationGracePeriodSeconds" if group.terms.in_pod else "--grace"
    if group.orders is not None and group.orders.grace is not None:
        limit = f"--grace-period than {group.orders.grace:.0f}"
    given = now - end.began if end and end.began else group.terms.grace
    number = end.number if end else signal.SIGTERM
    sentence = (
        f"{places(late)} {CUT_OFF} {given:.1f} s after {number.name}, still there: what it did is "
        f"incomplete; give a longer {limit}"
    )
    reports = tuple(Report(failure(group, w.slot, w.round, -signal.SIGKILL, sentence)) for w in late[:1])
    told = replace(end, message=f"{end.message}; {sentence}") if end else None
    step = kill(replace(group, ending=told), late, sentence)
    return replace(step, actions=(*step.actions, *reports))


def follow_the_grace_of_a_deletion(group: Group, now: float) -> Step | None:
    """Kill as late as the deletion of this pod allows: it may give another grace than the pod's own."""
    end, orders = group.ending, group.orders
    if end is None or end.reason != LEFT or orders is None or orders.grace is None:
        return None
    kill_at = end.began + max(orders.grace - CLOSING, orders.grace / 2)
    if kill_at == end.kill_at:
        return None
    asked = (replace(w, kill_at=kill_at) for w in group.workers.values() if w.kill_at == end.kill_at)
    done = replace(with_all(group, asked), ending=replace(end, kill_at=kill_at))
    return Step(done, (), f"the deletion of this pod gives workers {kill_at - end.began:.0f} s")


def stop_when_ordered(group: Group, now: float) -> Step | None:
    """Stop the workers when the master orders it."""
    if group.ending or group.orders is None or group.orders.order is not Order.STOP:
        return None
    code = 1 if group.orders.failed and not group.terms.in_pod else 0  # a pod's master tells it
    ending = Ending(code, "Stopped", group.orders.reason or "the job ended", kill_at=now + group.terms.grace)
    return Step(replace(group, ending=ending), (), f"stopping: {ending.message}")


def save_when_all_workers_ended(group: Group, now: float) -> Step | None:
    """Write the last checkpoint once every worker exited with code 0: success means that it exists."""
    if group.ending or group.saving or len(group.ended) < group.terms.workers:
        return None
    return Step(replace(group, saving=True), (Ask(None), Save()))


def finish_when_all_is_saved(group: Group, now: float) -> Step | None:
    """Report Finish once the last checkpoint is written, and a failure if it cannot be."""
    if group.ending or not group.saving or group.unsaved is None:
        return None
    if group.unsaved and not group.terms.may_lose_save:
        return fail_without_the_last_checkpoint(group, group.unsaved)
    finish = Finish(
        node=group.terms.node,
        incarnation=group.terms.incarnation,
        round=group.round,
        progress=group.progress,
    )
    but = f", and {group.unsaved}" if group.unsaved else ""
    ending = Ending(0, "Completed", f"all workers ended with code 0{but}")
    return Step(replace(group, ending=ending), (Report(finish),), ending.message)


def still_saving(terms: Terms, problem: str, limit: float) -> str:
    """Return the log line of an agent whose workers have ended, and whose last checkpoint is not written."""
    after = (
        "succeeds without it" if terms.may_lose_save else f"fails (exit code {NOT_SAVED}; --allow-unsaved)"
    )
    why = problem or "the last checkpoint is being written"
    return f"all workers ended with code 0; {why}; tried for up to {limit:.0f} s; then the run {after}"


def fail_without_the_last_checkpoint(group: Group, problem: str) -> Step:
    """Return the end of a run whose result was not written."""
    report = failure(group, 0, group.round, NOT_SAVED, problem, final=True, unsaved=True)
    ending = Ending(NOT_SAVED, "NotSaved", f"all workers ended with code 0, but {problem}")
    return Step(replace(group, ending=ending), (Report(report),), ending.message, warns=True)


def leave_when_asked(group: Group, now: float) -> Step | None:
    """On SIGTERM, send Leave, finish the step, and exit."""
    if group.ending or not group.asked_to_leave:
        return None
    scripts = any(not worker.elastic for worker in group.training)
    leave = planned_leave(group, group.asked_to_leave, group.terms.grace if scripts else 0.0)
    unsaved = ", before the last checkpoint was written" if group.saving else ""
    ending = Ending(
        group.leave_code,
        LEFT,
        f"{group.asked_to_leave}{unsaved}",
        gentle=True,
        kill_at=now + group.terms.grace,
        began=now,
        number=group.leave_signal,
        awaited=scripts,
    )
    left = replace(group, ending=ending, leave_count=1)
    return Step(left, (Ask(None), Report(leave)), f"leaving: {ending.message}")


def pass_on_a_signal_that_comes_again(group: Group, now: float) -> Step | None:
    """Pass on a signal that comes while this node leaves, such as a second Ctrl-C."""
    if group.ending is None or group.ending.reason != LEFT or group.leave_count < 2:
        return None
    rest = [worker for worker in group.workers.values() if worker.kill_at != KILLED]
    asked = (replace(worker, kill_at=group.ending.kill_at) for worker in rest)
    done = replace(with_all(group, asked), leave_count=1)
    return Step(done, tuple(Signal(worker.slot, group.leave_signal) for worker in rest))


def report_failures(group: Group, now: float) -> Step | None:
    """Report failed workers, and give up if a restart is hopeless."""
    failed = next((each for each in group.failures if not each.reported), None)
    if failed is None or group.ending:
        return None
    hopeless = why_hopeless(group)
    if hopeless and may_be_an_echo(group, failed) and now < failed.at + EXCUSE:
        return None
    if hopeless:
        return give_up(group, failed, now, hopeless)
    report = failure_of(group, failed)
    sentence = f"worker {failed.slot} {how_it_ended(failed)}"
    told = f"{whose(group, failed)}{sentence}"
    return Step(with_report(group, failed), (Report(report),), told, warns=True)


def give_up(group: Group, failed: WorkerFailure, now: float, hopeless: str = UNDONE) -> Step:
    """Return the end of a run that another start of a worker would not help, and why."""
    report = failure_of(group, failed, final=True)
    ending = Ending(
        code=HUNG if failed.hung else failed.status if failed.status > 0 else 128 - failed.status,
        reason=reason_of(group, failed),
        message=f"worker {failed.slot} {how_it_ended(failed)}; {hopeless}{hint(group, failed)}",
        local_rank=failed.slot,
        kill_at=now + group.terms.grace,
    )
    done = replace(with_report(group, failed), ending=ending)
    return Step(done, (Report(report),), f"{whose(group, failed)}giving up: {ending.message}", warns=True)


def end_workers_when_ending(group: Group, now: float) -> Step | None:
    """Stop the workers: a gentle end lets elastic workers finish their step, else they are terminated."""
    end = group.ending
    if end is None:
        return None
    kill_at = end.kill_at or now + group.terms.grace
    actions: list[Action] = []
    changed: list[Worker] = []
    for worker in (w for w in group.workers.values() if w.kill_at is None):
        if not (end.gentle and worker.elastic) or worker.life is Life.STARTING:
            actions.append(Signal(worker.slot, end.number))
            changed.append(replace(worker, kill_at=kill_at))
        elif worker.life is Life.WAITING:
            actions.append(Tell(worker.slot, Stop(reason=end.message)))
            changed.append(replace(worker, kill_at=kill_at))
        elif worker.interrupted < worker.round:
            actions.append(Tell(worker.slot, Interrupt(round=worker.round)))
            changed.append(replace(worker, interrupted=worker.round))
    return Step(with_all(group, changed), tuple(actions)) if actions else None


def end_what_a_lost_worker_leaves(group: Group, now: float) -> Step | None:
    """Kill the workers over which a model is divided when one of them is gone: all are started again."""
    rest = [worker for worker in group.workers.values() if worker.kill_at != KILLED]
    if group.ending or not group.bound or group.whole or not rest:
        return None
    return kill(group, rest, f"killing {places(rest)}: the model is divided, and a part of it is gone")


def abort_what_is_broken(group: Group, now: float) -> Step | None:
    """Tell workers to abort collectives of a world that lost members.

    A worker that stays blocked (gloo may miss that a connection closed) is killed, and replaced by a fresh
    one. One that says Outside is not in a collective, and has as long as its script takes.
    """
    if not (group.lost or group.given_up == group.round):
        return None
    stuck = [w for w in group.training if w.elastic and w.aborted < w.round and w.kill_at is None]
    if not stuck:
        return None
    tell = tuple(Tell(w.slot, Abort(round=w.round)) for w in stuck)
    done = with_all(group, (replace(w, aborted=w.round, kill_at=now + patience(w)) for w in stuck))
    lost = ", ".join(group.lost) or "a worker here"
    return Step(done, tell, f"round {group.round} lost {lost}", warns=True)


def give_up_a_broken_round(group: Group, now: float) -> Step | None:
    """Leave a world in which a worker here died, unless another one here holds the job's state."""
    gone = set(group.seats) - set(group.workers) - group.ended - group.paused
    if group.ending or not group.world or group.given_up >= group.round or not gone or not_started(group):
        return None
    if group.regroup and group.recovery is Recovery.RESTART:
        return None  # terminated because the round is over
    done = replace(group, given_up=group.round)
    if not group.bound and any(worker.elastic and worker.round for worker in group.workers.values()):
        return Step(done, ())
    return Step(
        done, (leave_broken(group, group.round, "a worker ended"),), f"round {group.round} is broken here"
    )


def leave_a_world_never_entered(group: Group, now: float) -> Step | None:
    """Send Leave for a world that the master formed although this node had taken back its join."""
    orders, told = group.orders, 0
    if orders is not None and orders.order is Order.TRAIN and group.asking is None:
        told = orders.round
    formed = max(told, group.missed)
    if group.ending or formed <= max(group.round, group.given_up):
        return None
    return Step(
        replace(group, given_up=formed),
        (leave_broken(group, formed, "the worker that was to enter it ended"),),
        f"round {formed} was formed without a worker here",
    )


def end_at_the_boundary(group: Group, now: float) -> Step | None:
    """Agree on a step boundary: the world ends as planned, or a worker here waits to be cut in."""
    newcomer = any(w.round == 0 for w in group.waiting) and not group.starting
    if group.ending or not (group.regroup or newcomer):
        return None
    busy = [w for w in group.training if w.elastic and w.interrupted < w.round]
    if not busy:
        return None
    tell = tuple(Tell(w.slot, Interrupt(round=w.round)) for w in busy)
    why = group.orders.reason if group.regroup and group.orders else "a worker here is ready"
    return Step(
        with_all(group, (replace(w, interrupted=w.round) for w in busy)),
        tell,
        f"round {group.round} ends at the next step: {why}",
    )


def terminate_what_cannot_regroup(group: Group, now: float) -> Step | None:
    """Terminate workers that are not elastic: they end with their world."""
    if not (group.regroup or group.given_up == group.round):
        return None
    rest = [w for w in group.training if not w.elastic and w.kill_at is None]
    if not rest:
        return None
    done = with_all(group, (replace(w, kill_at=now + group.terms.grace) for w in rest))
    why = group.orders.reason if group.regroup and group.orders else "a worker here ended"
    return Step(
        done,
        tuple(Signal(w.slot, signal.SIGTERM) for w in rest),
        f"restarting {places(rest)}: {why or 'the world changes'}",
    )


def enter_the_world(group: Group, now: float) -> Step | None:
    """Send the waiting workers into the completed world."""
    if group.ending or not group.world or group.lost or group.given_up >= group.round:
        return None
    entering = [
        w
        for slot in group.seats
        if (w := group.workers.get(slot)) and w.life is Life.WAITING and w.round < group.round
    ]
    if not entering:
        return None
    done = with_all(
        group, (replace(w, life=Life.TRAINING, round=group.round, broken=False) for w in entering)
    )
    return Step(done, tuple(Tell(w.slot, entry(group, w.slot)) for w in entering), describe_world(group))


def start_workers_in_the_world(group: Group, now: float) -> Step | None:
    """Start non-elastic scripts, which need the complete world at start."""
    if not not_started(group) or group.ending or group.lost or group.given_up >= group.round:
        return None
    start = group.starts + 1
    actions = tuple(Spawn(slot, start, entry(group, slot)) for slot in group.seats)
    workers = {
        slot: Worker(slot=slot, born=now, start=start, life=Life.TRAINING, round=group.round)
        for slot in group.seats
    }
    done = replace(group, workers=workers, spawned=group.round, starts=start, paused=frozenset())
    return Step(done, actions, describe_world(group))


def start_missing_workers(group: Group, now: float) -> Step | None:
    """Start elastic workers, which need no world at start."""
    if (
        group.ending
        or not group.vetted
        or group.recovery is not Recovery.IN_PROCESS
        or any(not f.reported for f in group.failures)
    ):
        return None
    vacant, start = group.vacant, group.starts + 1
    if not vacant or (group.bound and group.workers):
        return None
    if group.bound:
        group, vacant = replace(group, ended=frozenset()), tuple(range(group.terms.workers))
    done = with_all(group, (Worker(slot=slot, born=now, start=start) for slot in vacant))
    return Step(replace(done, starts=start), tuple(Spawn(slot, start) for slot in vacant))


def ask_for_a_world(group: Group, now: float) -> Step | None:
    """Join with the workers that are ready; cancel the join when they no longer are."""
    wanted, seats = wish(group)
    if wanted == group.asking:
        return None
    return Step(replace(group, asking=wanted, asking_seats=seats), (Ask(wanted),))


RULES: tuple[Rule, ...] = (
    keep_what_was_copied,
    send_the_first_progress_of_a_round,
    write_the_stacks_of_a_hang,
    exit_when_nothing_is_left,
    kill_after_grace,
    kill_what_hangs,
    kill_what_is_behind,
    follow_the_grace_of_a_deletion,
    pass_on_a_signal_that_comes_again,
    stop_when_ordered,
    end_newcomers_to_a_finished_training,
    save_when_all_workers_ended,
    finish_when_all_is_saved,
    leave_when_asked,
    report_failures,
    end_what_a_lost_worker_leaves,
    abort_what_is_broken,
    end_workers_when_ending,
    give_up_a_broken_round,
    leave_a_world_never_entered,
    end_at_the_boundary,
    terminate_what_cannot_regroup,
    enter_the_world,
    start_workers_in_the_world,
    start_missing_workers,
    ask_for_a_world,
)


def kill(group: Group, workers: Sequence[Worker], why: str) -> Step:
    """Return the step that kills workers, whose ends are not failures."""
    done = with_all(group, (replace(worker, kill_at=KILLED) for worker in workers))
    return Step(done, tuple(Signal(worker.slot, signal.SIGKILL) for worker in workers), why, warns=True)


def holders(group: Group) -> list[Worker]:
    """Return the workers that have been in a world, and may still be at its last steps."""
    return [worker for worker in group.workers.values() if worker.round]


def patience(worker: Worker) -> float:
    """Return how many seconds a worker has to leave a broken collective: a multiple of its step time."""
    return max(STUCK, 10 * worker.step_seconds) if worker.step_seconds else UNKNOWN


def wish(group: Group) -> tuple[Join | None, tuple[int, ...]]:
    """Return the Join that this node should have pending, and its slots in rank order."""
    if group.ending or not group.vetted or not_started(group) or enterable(group) or group.peers_leave:
        return None, ()
    if group.recovery is Recovery.RESTART:
        idle = group.warm and not group.workers and all(failed.reported for failed in group.failures)
        free = tuple(slot for slot in range(group.terms.workers) if slot not in group.ended)
        return (question(group, free, 0, broken=False), free) if idle and free else (None, ())
    waiting = group.waiting
    holders = [worker for worker in waiting if worker.round]
    if not waiting or group.training or (group.starting and not holders):
        return None, ()
    if group.bound and not (group.whole and len(waiting) == len(group.workers)):
        return None, ()
    seats = tuple(worker.slot for worker in waiting)
    broken = any(worker.broken and worker.round == group.round for worker in holders)
    return question(group, seats, waiting[0].port, broken=broken), seats


def question(group: Group, seats: tuple[int, ...], port: int, *, broken: bool) -> Join:
    """Return the Join for `seats`; the loop replaces port 0 by a reserved one."""
    return Join(
        node=group.terms.node,
        role=group.terms.role,
        index=group.terms.index,
        incarnation=group.terms.incarnation,
        slots=len(seats),
        address=group.terms.address,
        port=port,
        recovery=group.recovery,
        after=max(group.round, group.given_up),
        broken=broken,
        brief=True,
    )


def not_started(group: Group) -> bool:
    """Whether the scripts of the current world have yet to be started."""
    return group.recovery is Recovery.RESTART and group.spawned < group.round and not dead_on_arrival(group)


def dead_on_arrival(group: Group) -> bool:
    """Whether the current world was broken before this node entered it."""
    return bool(group.lost) or group.given_up >= group.round


def enterable(group: Group) -> bool:
    """Whether waiting workers are about to enter the current world."""
    return not dead_on_arrival(group) and any(
        worker.round < group.round for worker in group.waiting if worker.slot in group.seats
    )


def entry(group: Group, slot: int) -> Enter:
    """Return the Enter message for `slot` in the current world."""
    if group.world is None:
        raise ValueError("no world to enter")
    first = group.world.members[0]
    return Enter(
        round=group.round,
        rank=group.world.first_rank(group.terms.node) + group.seats.index(slot),
        size=group.world.size,
        address=first.address,
        port=first.port,
        batch_slots=group.world.batch_slots,
        lost=group.gone,
    )


def whose(group: Group, failed: WorkerFailure) -> str:
    """Return the beginning of a log line about a failed worker: its rank, if it failed in this world."""
    if group.world is None or failed.round != group.round or failed.slot not in group.seats:
        return ""
    return f"rank {entry(group, failed.slot).rank}: "


def failure_of(group: Group, failed: WorkerFailure, *, final: bool = False) -> Failure:
    """Return the report of a worker that failed, and what tells its end from others."""
    number = 1 + next(at for at, each in enumerate(group.failures) if each is failed)
    report = failure(group, failed.slot, failed.round, failed.status, said_last(failed), final=final)
    return msgspec.structs.replace(
        report,
        number=number,
        restarts=restarts(group.failures[:number]) - final,
        way=way(failed)[:512],
        frame=failed.frame[:512],
        echo=failed.hung or bool(PEERS.search(failed.message)),
        anywhere=ends_anywhere(group, failed),
    )


def failure(
    group: Group,
    slot: int,
    round_: int,
    code: int,
    message: str,
    *,
    final: bool = False,
    unsaved: bool = False,
) -> Failure:
    """Return the report of a worker's failure."""
    return Failure(
        node=group.terms.node,
        incarnation=group.terms.incarnation,
        round=round_,
        local_rank=slot,
        exit_code=code,
        message=message[-2048:],
        workers=group.terms.workers,
        final=final,
        unsaved=unsaved,
    )


def with_report(group: Group, failed: WorkerFailure) -> Group:
    """Return the group in which a failure is reported."""
    known = (replace(each, reported=True) if each is failed else each for each in group.failures)
    return replace(group, failures=tuple(known))


def planned_leave(group: Group, reason: str, grace: float = 0.0) -> Leave:
    """Return the Leave of a node that ends; its scripts have `grace` seconds."""
    return Leave(
        node=group.terms.node,
        incarnation=group.terms.incarnation,
        round=group.round,
        planned=True,
        reason=reason,
        grace=grace,
    )


def leave_broken(group: Group, round_: int, reason: str) -> Report:
    """Return the Leave for a lost part of a round."""
    return Report(
        Leave(
            node=group.terms.node,
            incarnation=group.terms.incarnation,
            round=round_,
            planned=False,
            reason=reason,
        )
    )


def describe_world(group: Group) -> str:
    """Return a sentence about the current world."""
    world = group.world
    if world is None:
        return f"round {group.round}: 0 workers"
    names = ", ".join(member.node for member in world.members)
    more = f" and others, {world.count} nodes" if world.count > len(world.members) else ""
    return f"round {group.round}: {world.size} worker{'s' * (world.size != 1)} on {names}{more}"


def with_all(group: Group, workers: Iterable[Worker]) -> Group:
    """Return the group with these workers in their slots."""
    return replace(group, workers={**group.workers, **{worker.slot: worker for worker in workers}})


def places(workers: Iterable[Worker]) -> str:
    """Name workers by their slots."""
    return "worker " + ", ".join(str(worker.slot) for worker in workers)
