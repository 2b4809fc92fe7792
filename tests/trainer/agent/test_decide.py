"""The agent's decisions, as stories: events in, actions out; no process, no clock."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from elasticjob.api.rpc.nodes import Failure, Finish, Hang, Order, Orders, Progress, WorkerPlace
from elasticjob.api.rpc.rendezvous import Join, Leave, Member, Recovery, World
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
    Tell,
    WriteStacks,
)
from elasticjob.trainer.agent.decide import again_at, decide, describe_world, failure_of, still_saving
from elasticjob.trainer.agent.group import (
    AskedToLeave,
    Dismissal,
    Event,
    Group,
    LastSave,
    Life,
    MasterOrders,
    Message,
    NewWorld,
    ProcessEnd,
    Terms,
    WarmReady,
    observe,
)
from elasticjob.trainer.link.channel import (
    Abort,
    Advance,
    Behind,
    Bound,
    Boundary,
    Broken,
    Copied,
    Enter,
    Hampered,
    Hello,
    Interrupt,
    Outside,
    Ready,
    Stop,
    encode,
)

TERMS = Terms(
    node="a",
    role="worker",
    index=0,
    incarnation="1",
    address="10.0.0.1",
    workers=1,
    max_restarts=3,
    grace=20.0,
)


def short(action: Action) -> str:
    """Return an action as one reads it in a table."""
    match action:
        case Spawn(slot=slot, enter=enter):
            return f"spawn {slot}" + (f" as {enter.rank}/{enter.size}" if enter else "")
        case Signal(slot=slot, number=number):
            return f"{number.name} {slot}"
        case Tell(slot=slot, message=Enter(round=round_, rank=rank, size=size)):
            return f"enter {slot} round {round_} as {rank}/{size}"
        case Tell(slot=slot, message=Interrupt()):
            return f"interrupt {slot}"
        case Tell(slot=slot, message=Abort()):
            return f"abort {slot}"
        case Tell(slot=slot, message=Stop()):
            return f"stop {slot}"
        case Report(request=Leave(planned=planned, round=round_, grace=grace)):
            return (
                f"leave {round_}" + (" planned" if planned else "") + (f" in {grace:.0f} s" if grace else "")
            )
        case Report(request=Failure(final=final)):
            return "failure" + (" final" if final else "")
        case Report(request=Finish()):
            return "finish"
        case Ask(join=Join(after=after, slots=slots, broken=broken, port=port)):
            return f"join after {after} with {slots} at {port}" + (" broken" if broken else "")
        case Ask(join=None):
            return "no join"
        case Save():
            return "save"
        case Exit(code=code, reason=reason):
            return f"exit {code} {reason}"
        case Keep(message=message):
            return f"keep {type(message).__name__}"
        case SendProgress():
            return "progress"
        case WriteStacks(hang=hang):
            return f"stacks {hang.number}"
    raise AssertionError(action)


class Story:
    """One agent's group; `then` feeds an event and returns what the agent did.

    The last checkpoint cannot be written if there is a `problem`.
    """

    problem = ""

    def __init__(self, recovery: Recovery = Recovery.IN_PROCESS, **terms: object) -> None:
        self.group = Group(terms=replace(TERMS, **terms), recovery=recovery)  # type: ignore[arg-type]  # by name
        self.now = 100.0
        self.did = self._decide()

    def then(self, *events: Event, after: float = 0.0) -> list[str]:
        """Feed events, `after` seconds later; return the actions."""
        self.now += after
        for event in events:
            self.group = observe(self.group, asked_for(event, self.group), self.now)
        self.did = self._decide()
        return self.did

    def enters(self, round_: int, *nodes: str) -> None:
        """Let worker 0, which has just started, enter the world of a round."""
        self.then(Message(0, Hello()), Message(0, Ready(port=5000)))
        self.then(formed(round_, *nodes))

    def _decide(self) -> list[str]:
        did: list[str] = []
        for _ in range(50):
            if (step := decide(self.group, self.now)) is None:
                return did
            self.group = step.group
            did += [short(action) for action in step.actions]
            if Save() in step.actions:
                self.group = observe(self.group, LastSave(self.problem), self.now)
            if did and did[-1].startswith("exit"):
                return did
        raise AssertionError(f"the rules never come to rest: {did[-5:]}")


def formed(round_: int, *nodes: str, slots: int = 1) -> NewWorld:
    """Return a world of nodes with as many slots each."""
    members = tuple(
        Member(node=node, incarnation="1", slots=slots, address="10.0.0.9", port=7000, since=1)
        for node in nodes
    )
    return NewWorld(World(round=round_, members=members, batch_slots=4))


def asked_for(event: Event, group: Group) -> Event:
    """Return a world with the port that was asked for, as the master answers."""
    if not isinstance(event, NewWorld) or group.asking is None:
        return event
    members = tuple(
        msgspec.structs.replace(each, port=group.asking.port or each.port) if each.node == "a" else each
        for each in event.world.members
    )
    return NewWorld(msgspec.structs.replace(event.world, members=members))


def orders(version: int, order: Order, round_: int = 0, *lost: str) -> MasterOrders:
    """Return orders of the master."""
    return MasterOrders(Orders(version=version, order=order, round=round_, lost=lost, reason="because"))


def training(*nodes: str, slots: int = 1, **terms: object) -> Story:
    """Return the story of node `a` whose elastic workers train in round 1 of `nodes`."""
    story = Story(workers=slots, **terms)  # type: ignore[arg-type]  # by name
    for slot in range(slots):
        story.then(Message(slot, Hello()), Message(slot, Ready(port=5000 + slot)))
    story.then(formed(1, *nodes, slots=slots))
    for slot in range(slots):
        story.then(Message(slot, Advance(round=1, progress=Progress(step=1), seconds=0.01)))
    return story


def restarting(*nodes: str, slots: int = 1, **terms: object) -> Story:
    """Return the story of node `a` whose plain workers train in round 1 of `nodes`."""
    story = Story(Recovery.RESTART, workers=slots, **terms)
    story.then(WarmReady())
    story.then(formed(1, *nodes, slots=slots))
    return story


def test_elastic_worker_starts_first_and_joins_when_ready() -> None:
    story = Story()
    assert story.did == ["spawn 0"]
    assert story.then(Message(0, Hello())) == []
    assert story.then(Message(0, Ready(port=5000))) == ["join after 0 with 1 at 5000"]
    assert story.then(formed(1, "b", "a")) == ["enter 0 round 1 as 1/2"]


def test_plain_script_joins_first_and_starts_in_the_world() -> None:
    story = Story(Recovery.RESTART)
    assert story.did == []
    assert story.then(WarmReady()) == ["join after 0 with 1 at 0"]
    assert story.then(formed(1, "b", "a")) == ["spawn 0 as 1/2"]


def test_script_that_turns_out_elastic_keeps_its_process() -> None:
    story = restarting("b", "a")
    assert story.then(Message(0, Hello()), Message(0, Ready(port=5000))) == ["enter 0 round 1 as 1/2"]
    assert story.then(orders(2, Order.REGROUP, 1)) == ["interrupt 0"]


def test_lost_peer_breaks_the_round_and_the_survivor_joins_the_next() -> None:
    story = training("b", "a")
    assert story.then(orders(2, Order.REGROUP, 1, "b")) == ["abort 0", "interrupt 0"]
    assert story.then(Message(0, Broken(round=1, port=5001))) == ["join after 1 with 1 at 5001 broken"]
    assert story.then(formed(2, "a")) == ["enter 0 round 2 as 0/1"]


def test_abort_is_short_however_many_nodes_are_lost() -> None:
    story = training("b", "a")
    lost = [f"a-job-with-a-rather-long-name-worker-{index}" for index in range(5000)]
    story.group = observe(story.group, orders(2, Order.REGROUP, 1, "b", *lost), story.now)
    step = decide(story.group, story.now)
    assert step is not None
    assert [encode(action.message) for action in step.actions if isinstance(action, Tell)] == [
        b'{"say":"abort","round":1}\n'
    ]


def test_survivor_that_noticed_before_the_master_joins_unasked() -> None:
    story = training("b", "a")
    assert story.then(Message(0, Broken(round=1, port=5001))) == ["join after 1 with 1 at 5001 broken"]
    assert story.then(orders(2, Order.REGROUP, 1, "b")) == []


@pytest.mark.parametrize("last", [[], [Message(0, Broken(round=1, port=5001))]])
def test_worker_that_does_not_come_out_of_a_broken_collective_is_replaced(last: list[Event]) -> None:
    """What it says last does not bring it back."""
    story = training("b", "a")
    story.then(orders(2, Order.REGROUP, 1, "b"))
    assert again_at(story.group) == story.now + 3.0
    assert story.then(after=3.0) == ["SIGKILL 0"]
    assert story.then(*last) == []
    assert story.then(ProcessEnd(0, -9)) == ["leave 1", "spawn 0"]
    assert not story.group.failures


def test_survivor_that_is_in_no_collective_has_all_the_time_it_needs() -> None:
    story = training("b", "a")
    story.then(orders(2, Order.REGROUP, 1, "b"))
    assert story.then(Message(0, Outside(round=1)), after=2.9) == []
    assert story.then(after=600.0) == []
    assert story.then(Message(0, Broken(round=1, port=5001))) == ["join after 1 with 1 at 5001 broken"]


@pytest.mark.parametrize(
    ("code", "does"),
    [(0, ["no join", "save", "finish", "exit 0 Completed"]), (1, ["failure", "leave 1", "spawn 0"])],
)
def test_worker_in_no_collective_may_end_meanwhile(code: int, does: list[str]) -> None:
    story = training("b", "a")
    story.then(orders(2, Order.REGROUP, 1, "b"))
    story.then(Message(0, Outside(round=1)))
    assert story.then(ProcessEnd(0, code)) == does


def test_worker_that_reached_the_boundary_before_the_abort_is_not_killed() -> None:
    story = training("a", "b")
    story.then(orders(2, Order.REGROUP, 1))
    assert story.then(orders(3, Order.REGROUP, 1, "b")) == ["abort 0"]
    assert story.then(Message(0, Boundary(round=1, port=5001))) == ["join after 1 with 1 at 5001"]
    assert story.then(after=60.0) == []


def test_joiner_ends_the_world_at_a_boundary() -> None:
    story = training("a")
    assert story.then(orders(2, Order.REGROUP, 1)) == ["interrupt 0"]
    assert story.then(Message(0, Boundary(round=1, port=5001))) == ["join after 1 with 1 at 5001"]
    assert story.then(formed(2, "a", "b")) == ["enter 0 round 2 as 0/2"]


def test_killed_worker_leaves_the_round_and_comes_back_as_a_newcomer() -> None:
    story = training("a", "b")
    assert story.then(ProcessEnd(0, -9)) == ["failure", "leave 1", "spawn 0"]
    assert story.then(Message(0, Hello()), Message(0, Ready(port=5002))) == ["join after 1 with 1 at 5002"]


def test_worker_that_ends_well_while_its_round_breaks_is_not_started_again() -> None:
    story = training("a", slots=2)
    assert story.then(ProcessEnd(0, -9)) == ["failure", "abort 1", "spawn 0"]
    assert story.then(ProcessEnd(1, 0)) == []
    assert story.then(Message(0, Hello()), Message(0, Ready(port=5002))) == ["join after 1 with 1 at 5002"]
    story.then(formed(2, "a"))
    assert story.then(ProcessEnd(0, 0)) == ["no join", "save", "finish", "exit 0 Completed"]


def test_surviving_worker_of_the_node_keeps_the_lineage() -> None:
    story = training("a", slots=2)
    assert story.then(ProcessEnd(0, -9)) == ["failure", "abort 1", "spawn 0"]
    assert story.then(Message(1, Broken(round=1, port=6001))) == ["join after 1 with 1 at 6001 broken"]
    assert story.then(formed(2, "a")) == ["enter 1 round 2 as 0/1"]
    assert story.then(Message(0, Hello()), Message(0, Ready(port=6002))) == ["interrupt 1"]
    assert story.then(Message(1, Boundary(round=2, port=6003))) == ["join after 2 with 2 at 6003"]
    assert story.then(formed(3, "a", slots=2)) == ["enter 1 round 3 as 0/2", "enter 0 round 3 as 1/2"]


def test_world_that_broke_before_we_entered_it_is_not_entered() -> None:
    story = training("a", "b")
    story.then(Message(0, Broken(round=1, port=5001)))
    story.then(orders(3, Order.REGROUP, 2, "b"))
    assert story.then(formed(2, "a", "b")) == ["join after 2 with 1 at 5001"]


@pytest.mark.parametrize("news", [orders(2, Order.TRAIN, 1), formed(1, "a", "b")], ids=["orders", "answer"])
def test_world_for_a_question_that_was_taken_back_is_left_and_not_entered(news: Event) -> None:
    """The worker that waited for it has died; the answer was on its way."""
    story = Story()
    story.then(Message(0, Hello()), Message(0, Ready(port=5000)))
    assert story.then(ProcessEnd(0, -9)) == ["failure", "spawn 0", "no join"]
    assert story.then(news) == ["leave 1"]
    assert story.then(Message(0, Hello()), Message(0, Ready(port=5002))) == ["join after 1 with 1 at 5002"]


def test_world_for_other_workers_than_those_that_wait_now_is_left() -> None:
    story = Story(workers=2)
    for slot in (0, 1):
        story.then(Message(slot, Hello()), Message(slot, Ready(port=5000 + slot)))
    assert story.then(formed(1, "a", "b"))[0] == "leave 1"  # of one worker here, where two wait


def test_same_answer_comes_twice_and_is_taken_once() -> None:
    story = training("a", "b")
    assert story.then(formed(1, "a", "b")) == []
    assert story.group.seats == (0,)


def test_worker_that_says_ready_after_the_abort_of_its_first_round_is_not_killed() -> None:
    story = restarting("a", "b")
    story.then(Message(0, Hello()))
    assert "abort 0" in story.then(orders(2, Order.REGROUP, 1, "b"))
    assert story.then(Message(0, Ready(port=5000))) == ["join after 1 with 1 at 5000"]
    assert again_at(story.group) is None


@pytest.mark.parametrize(
    ("asked", "code"), [(AskedToLeave("received SIGTERM"), 143), (AskedToLeave("received SIGINT", 130), 130)]
)
def test_a_signal_finishes_the_step_and_is_the_exit_code(asked: AskedToLeave, code: int) -> None:
    story = training("a", "b")
    assert story.then(asked) == ["no join", "leave 1 planned", "interrupt 0"]
    assert story.then(Message(0, Boundary(round=1, port=5001))) == ["stop 0"]
    assert story.then(ProcessEnd(0, 0)) == [f"exit {code} Left"]


def test_sigterm_without_a_boundary_kills_after_the_grace_period() -> None:
    story = training("a", "b")
    story.then(AskedToLeave("received SIGTERM"))
    assert again_at(story.group) == story.now + TERMS.grace
    assert story.then(after=TERMS.grace) == ["SIGKILL 0", "failure"]
    assert story.then(ProcessEnd(0, -9)) == ["exit 143 Left"]
    assert story.group.ending is not None
    assert (
        "worker 0 was cut off 20.0 s after SIGTERM, still there: what it did is incomplete"
        in story.group.ending.message
    )


def test_sigterm_ends_a_plain_script_by_sigterm() -> None:
    story = restarting("a", "b")
    assert story.then(AskedToLeave("received SIGTERM")) == ["no join", "leave 1 planned in 20 s", "SIGTERM 0"]
    assert story.then(ProcessEnd(0, -15)) == ["leave 1 planned", "exit 143 Left"]


def test_scripts_get_the_signal_that_came_each_time_it_comes() -> None:
    story = restarting("a")
    asked = AskedToLeave("received SIGINT", 130, signal.SIGINT)
    assert story.then(asked)[-1] == "SIGINT 0"
    assert story.then(asked) == ["SIGINT 0"]
    assert story.then(after=TERMS.grace)[0] == "SIGKILL 0"
    assert story.then(ProcessEnd(0, -9))[-1] == "exit 130 Left"


def test_a_deletion_with_another_grace_is_followed() -> None:
    story = restarting("a", in_pod=True)
    story.then(AskedToLeave("received SIGTERM"))
    story.then(MasterOrders(Orders(version=2, order=Order.TRAIN, round=1, grace=61.0)))
    assert story.then(after=59.9) == []
    assert story.then(after=0.1) == ["SIGKILL 0", "failure"]
    assert story.group.ending is not None
    assert "give a longer --grace-period than 61" in story.group.ending.message


@pytest.mark.parametrize("code", [0, 143, 1])
def test_a_script_that_ends_while_a_peer_leaves_has_ended_with_its_world(code: int) -> None:
    story = restarting("a", "b", max_restarts=0)
    assert story.then(MasterOrders(Orders(version=2, order=Order.TRAIN, round=1, leaving=("b",)))) == []
    assert story.then(ProcessEnd(0, code)) == [], (
        "it neither finishes the training nor asks for another world yet"
    )
    assert story.then(orders(3, Order.REGROUP, 1)) == ["join after 1 with 1 at 0"]
    assert not story.group.failures


@pytest.mark.parametrize("begin", [training, restarting])
@pytest.mark.parametrize(
    ("event", "exits"),
    [
        (Dismissal(75, "Replaced", "a newer incarnation"), "exit 75 Replaced"),
        (orders(9, Order.STOP), "exit 0 Stopped"),
    ],
)
def test_workers_that_a_newer_incarnation_or_a_stop_ends_have_the_whole_grace(
    begin: Callable[[str], Story], event: Event, exits: str
) -> None:
    story = begin("a")
    assert story.then(event) == ["SIGTERM 0"]
    assert again_at(story.group) == story.now + TERMS.grace
    assert story.then(ProcessEnd(0, -15)) == [exits]


@pytest.mark.parametrize(("failed", "in_pod", "code"), [(True, False, 1), (True, True, 0), (False, False, 0)])
def test_a_launcher_ends_with_1_when_the_job_failed_elsewhere(failed: bool, in_pod: bool, code: int) -> None:
    story = restarting("a", in_pod=in_pod)
    story.then(MasterOrders(Orders(version=9, order=Order.STOP, round=1, failed=failed)))
    assert story.then(ProcessEnd(0, -15)) == [f"exit {code} Stopped"]


def test_all_scripts_of_a_node_are_started_again_when_one_fails() -> None:
    story = restarting("a", slots=2)
    assert story.then(ProcessEnd(1, 0)) == []
    assert "join after 1 with 2 at 0" in story.then(ProcessEnd(0, 1))


@pytest.mark.parametrize("story", [training("a"), restarting("a")], ids=["elastic", "plain"])
def test_end_of_all_workers_is_the_end(story: Story) -> None:
    assert story.then(ProcessEnd(0, 0)) == ["no join", "save", "finish", "exit 0 Completed"]


@pytest.mark.parametrize(
    ("may_lose", "then"),
    [
        (False, ["no join", "save", "failure final", "exit 74 NotSaved"]),
        (True, ["no join", "save", "finish"]),
    ],
)
def test_run_whose_last_checkpoint_is_not_written_fails(may_lose: bool, then: list[str]) -> None:
    story = training("a", may_lose_save=may_lose)
    story.problem = "the checkpoint of step 9 is not in /mnt/run: No space left on device"
    assert story.then(ProcessEnd(0, 0))[: len(then)] == then


def test_worker_that_the_others_left_behind_is_started_again_and_costs_nothing() -> None:
    story = training("a", "b", max_restarts=0)
    assert story.then(Message(0, Behind(round=1, reason="it missed steps 9 to 74"))) == ["SIGKILL 0"]
    assert story.then(ProcessEnd(0, -9)) == ["leave 1", "spawn 0"]
    assert not story.group.failures


def test_newcomer_does_not_train_a_finished_training_again() -> None:
    story = training("a", slots=2)
    assert story.then(ProcessEnd(1, -9)) == ["failure", "abort 0", "spawn 1"]
    story.then(Message(0, Outside(round=1)))
    done = Advance(round=1, progress=Progress(step=9), ended=True)
    assert story.then(Message(0, done)) == []
    assert story.then(ProcessEnd(0, 0)) == ["SIGKILL 1"]
    assert story.then(ProcessEnd(1, -9)) == ["no join", "save", "finish", "exit 0 Completed"]


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize(("code", "exits"), [(1, 1), (-9, 137)], ids=["an error", "a kill"])
@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("first", [True, False], ids=["after the others", "before the others"])
def test_worker_that_ends_badly_after_the_last_step_begins_there_again_or_fails_the_run(
    copies: bool, code: int, exits: int, late: int, first: bool
) -> None:
    story = training("a", slots=2)
    if copies:
        story.then(Message(0, Copied(block="slot-0", step=9, round=1, where=b"/mnt/run")))
    done = Advance(round=1, progress=Progress(step=9), ended=True)
    story.then(Message(0, done), Message(1, done))
    well, badly = ProcessEnd(1 - late, 0), ProcessEnd(late, code, "ValueError: no such folder")
    did = [*story.then(well), *story.then(badly)] if first else [*story.then(badly), *story.then(well)]
    if copies:
        assert f"spawn {late}" in did
        assert not any(f"SIGKILL {late}" in each for each in did)
        assert story.then(Message(late, Hello()), ProcessEnd(late, 0))[-1] == "exit 0 Completed"
    else:
        did += story.then(ProcessEnd(late, -15))
        assert "failure final" in did
        assert did[-1] == f"exit {exits} WorkerFailed"


def test_main_worker_killed_before_it_could_say_that_it_made_the_last_step_has_not_exported() -> None:
    story = training("a", slots=2)
    assert story.then(ProcessEnd(0, -9)) == ["failure", "abort 1", "spawn 0"]
    story.then(Message(1, Outside(round=1)))
    story.then(Message(1, Advance(round=1, progress=Progress(step=9), ended=True)))
    assert story.then(ProcessEnd(1, 0)) == ["failure final", "SIGTERM 0"]
    assert story.then(ProcessEnd(0, -15)) == ["exit 137 WorkerFailed"]


def failing(recovery: Recovery, *ends: tuple[int, str]) -> Story:
    """Return the story of a script that fails at once, each time it is started."""
    story = Story(recovery, max_restarts=10)
    story.then(WarmReady())
    for round_, (code, message) in enumerate(ends, 1):
        story.then(formed(round_, "a"))
        story.then(ProcessEnd(0, code, message))
    return story


def test_a_world_of_one_worker_is_not_one_of_workers() -> None:
    group = Group(terms=TERMS, recovery=Recovery.RESTART, world=formed(1, "a").world)
    assert describe_world(group) == "round 1: 1 worker on a"


def test_a_last_checkpoint_that_takes_long_has_a_time_limit_in_words() -> None:
    assert still_saving(TERMS, "", 600.0) == (
        "all workers ended with code 0; the last checkpoint is being written; "
        "tried for up to 600 s; then the run fails (exit code 74; --allow-unsaved)"
    )


@pytest.mark.parametrize("recovery", Recovery)
def test_script_that_fails_twice_without_progress_is_given_up(recovery: Recovery) -> None:
    story = failing(recovery, (3, "RuntimeError: no data"), (3, "RuntimeError: no data"))
    assert story.did == ["failure final", "exit 3 WorkerFailed"]
    ending = story.group.ending
    assert ending is not None
    assert ending.message.endswith(
        "RuntimeError: no data; it failed twice without any progress, so it is not started again here"
    )  # another pod may start it again, and says this of the pod that it replaces


@pytest.mark.parametrize(
    ("code", "last", "reason"),
    [
        (1, "[rank{0}]: KeyError: 'a'", "CannotStart"),
        (1, "KeyError: {1}", "WorkerFailed"),
        (1, "ModuleNotFoundError: No module named 'transformer'", "CannotStart"),
        (1, "FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'", "CannotStart"),
        (1, "cannot start trian: No such file or directory", "CannotStart"),
        (2, "train.py: error: unrecognized arguments: --epoch 3", "CannotStart"),
        (127, "bash: line 1: trian: command not found", "CannotStart"),
        (1, "pandas.errors.EmptyDataError: no columns", "WorkerFailed"),
        (1, "RuntimeError: CUDA error: device is busy", "WorkerFailed"),
        (1, "ConnectionRefusedError: [Errno 111] Connection refused", "WorkerFailed"),
        (1, "ValueError: Connection error, and the requested file is not in the cache", "WorkerFailed"),
        (1, "requests.exceptions.ReadTimeout: read timed out", "WorkerFailed"),
    ],
)
def test_start_that_fails_in_the_same_way_everywhere_is_told_from_one_that_may_not(
    code: int, last: str, reason: str
) -> None:
    """On whatever rank; one of two different errors is no sure sign."""
    ends = [(code, last.format(rank, name)) for rank, name in enumerate("ab")]
    assert failing(Recovery.RESTART, *ends).did[-1] == f"exit {code} {reason}"


@pytest.mark.parametrize(
    ("end", "tries", "way", "anywhere"),
    [
        (ProcessEnd(0, 1, "[rank1]: ValueError: 3 of 0x7f1c at 1.5"), 2, "ValueError: # of # at #", True),
        (ProcessEnd(0, 1, "RuntimeError: boom"), 2, "RuntimeError: boom", True),
        (ProcessEnd(0, 1, "RuntimeError: boom"), 0, "RuntimeError: boom", False),
        (ProcessEnd(0, 2, "RuntimeError: boom"), 2, "RuntimeError: boom", False),
        (ProcessEnd(0, 1, "ConnectionRefusedError: [Errno 111] Connection refused"), 2, None, False),
        (ProcessEnd(0, 1, "RuntimeError: CUDA error: device is busy"), 2, None, False),
        (ProcessEnd(0, 1, "OSError: [Errno 28] No space left on device"), 2, None, False),
        (ProcessEnd(0, 1, "torch.distributed.DistBackendError: NCCL error in: x.cpp:7"), 2, None, False),
        (ProcessEnd(0, -11), 2, "", False),
    ],
)
def test_an_exception_is_the_same_without_what_varies_and_may_be_a_machines(
    end: ProcessEnd, tries: int, way: str | None, *, anywhere: bool
) -> None:
    story = Story(Recovery.RESTART, tries=tries)
    story.then(WarmReady())
    story.then(formed(1, "a"))
    story.then(replace(end, frame="train.py:7 in main"))
    told = failure_of(story.group, story.group.failures[-1])
    where = (told.number, told.restarts, told.workers, told.frame)
    assert (told.anywhere, where) == (anywhere, (1, 1, 1, "train.py:7 in main"))
    if way is not None:
        assert told.way == f"{way} train.py:7 in main".strip()


@pytest.mark.parametrize(("frame", "then"), [("train.py:7 in main", ["failure"]), ("other.py:1 in f", [])])
def test_a_worker_that_raised_the_same_before_it_was_ended_is_told_of_and_costs_nothing(
    frame: str, then: list[str]
) -> None:
    story = restarting("a", slots=2)
    first = ProcessEnd(0, 1, "RuntimeError: boom", frame="train.py:7 in main")
    assert story.then(first) == ["failure", "leave 1", "SIGTERM 1"]
    assert story.then(replace(first, slot=1, frame=frame))[:-1] == then
    story.then(formed(2, "a", slots=2))
    assert story.then(first) == ["failure final", "SIGTERM 1"]


def test_script_that_imports_elastic_for_nothing_is_told_how_to_run() -> None:
    rank = "ValueError: Error initializing torch.distributed: environment variable RANK expected, but not set"
    for last, told in ((rank, True), ("ImportError: no such thing", False)):
        ending = failing(Recovery.IN_PROCESS, (1, last), (1, last)).group.ending
        assert ending is not None
        assert ("run it with --recovery restart" in ending.message) is told


def test_budget_of_restarts_is_spent_by_kills_too() -> None:
    story = Story(max_restarts=2)
    for round_ in (1, 2, 3):
        story.enters(round_, "a")
        did = story.then(ProcessEnd(0, -9))
    assert did == ["failure final", "exit 137 WorkerFailed"]


@pytest.mark.parametrize("code", [-9, 137, 1])
def test_pod_ends_with_a_worker_out_of_memory_so_that_the_next_gets_more(code: int) -> None:
    story = Story(in_pod=True)
    story.enters(1, "a")
    did = story.then(ProcessEnd(0, code, "step 41", "its pod used 150Mi of 160Mi up to a second before"))
    assert did == ["failure final", "exit 137 OOMKilled"]
    assert story.group.ending is not None
    assert story.group.ending.message == (
        "worker 0 was out of memory and killed by the kernel: its pod used 150Mi of 160Mi up to a second "
        "before; another start here would have no more memory, so this pod ends"
    )


def test_the_log_line_of_a_failure_begins_with_the_rank() -> None:
    story = Story()
    story.enters(1, "z", "a")
    lost = observe(story.group, ProcessEnd(0, 1, "ValueError: the cause"), story.now)
    step = decide(lost, story.now)
    assert step is not None
    assert step.why == "rank 1: worker 0 failed with exit code 1: ValueError: the cause"


def test_where_no_other_pod_is_made_a_worker_out_of_memory_is_started_again() -> None:
    story = Story(in_pod=False)
    story.then(Message(0, Hello()), Message(0, Ready(port=5000)), formed(1, "a"))
    assert story.then(ProcessEnd(0, -9, "", "its pod used 150Mi")) == ["failure", "spawn 0", "no join"]


@pytest.mark.parametrize("progress", [True, False])
@pytest.mark.parametrize(("workers", "restarts"), [(1, 0), (1, 2), (2, 1), (4, 3)])
def test_max_restarts_counts_starts_of_all_workers_of_the_node(
    workers: int, restarts: int, progress: bool
) -> None:
    story = Story(Recovery.RESTART, workers=workers, max_restarts=restarts, tries=0)
    story.then(WarmReady())
    starts = 0
    while story.group.ending is None:
        did = story.then(formed(starts + 1, "a", slots=workers), after=60.0 if progress else 0.0)
        starts += f"spawn 0 as 0/{workers}" in did
        story.then(*(ProcessEnd(slot, 1) for slot in range(workers)))
    assert starts == 1 + restarts


def test_workers_that_fail_together_without_progress_are_tried_twice() -> None:
    story = Story(Recovery.RESTART, workers=2)
    story.then(WarmReady())
    story.then(formed(1, "a", slots=2))
    story.then(ProcessEnd(0, 1), ProcessEnd(1, 1))
    assert story.group.ending is None
    story.then(formed(2, "a", slots=2))
    story.then(ProcessEnd(0, 1), ProcessEnd(1, 1))
    assert story.group.ending is not None


def test_failure_that_echoes_a_lost_node_is_not_charged() -> None:
    story = restarting("a", "b", max_restarts=0)
    assert story.then(ProcessEnd(0, 1, "RuntimeError: Connection closed by peer"), after=60) == ["leave 1"]
    assert again_at(story.group) == story.now + 1.0
    assert story.then(orders(2, Order.REGROUP, 1, "b", "a")) == ["failure", "join after 1 with 1 at 0"]


def test_an_error_of_lost_peers_is_no_try_without_progress() -> None:
    story = restarting("a", "b", max_restarts=9)
    for number in range(1, 5):
        error = (
            "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:9"
        )
        story.then(ProcessEnd(0, 1, error), orders(2 * number, Order.REGROUP, number, "b"))
        assert story.group.ending is None
        story.then(formed(number + 1, "a", "b"))


def test_plain_workers_end_with_their_world() -> None:
    story = restarting("a", "b")
    assert story.then(orders(2, Order.REGROUP, 1)) == ["SIGTERM 0"]
    assert story.then(ProcessEnd(0, -15)) == ["join after 1 with 1 at 0"]
    assert story.then(formed(2, "a", "b", "c")) == ["spawn 0 as 0/3"]
    assert not story.group.failures


def test_plain_worker_that_ignores_sigterm_is_killed() -> None:
    story = restarting("a", "b")
    story.then(orders(2, Order.REGROUP, 1))
    assert story.then(after=TERMS.grace - 0.1) == []
    assert story.then(after=0.1) == ["SIGKILL 0", "failure"]


def test_what_is_said_of_an_older_round_is_no_news() -> None:
    story = training("a", "b")
    story.then(Message(0, Broken(round=1, port=5001)))
    story.then(formed(2, "a", "b"))
    assert story.then(Message(0, Boundary(round=1, port=1))) == []
    assert story.group.workers[0].life is Life.TRAINING
    assert story.then(orders(2, Order.REGROUP, 1, "b")) == []


def hangs(version: int, *, kill: bool, slot: int = 1, number: int = 1) -> MasterOrders:
    """Return orders that blame a worker of node `a`."""
    place = WorkerPlace(node="a", local_rank=slot)
    hang = Hang(number=1, round=number, reason="rank 1 hangs", workers=(place,), kill=kill)
    return MasterOrders(Orders(version=version, order=Order.TRAIN, round=1, hang=hang))


def test_hung_worker_is_killed_when_told_and_its_failure_says_why() -> None:
    story = training("a", "b", slots=2)
    assert story.then(hangs(2, kill=False)) == ["stacks 1"]
    assert story.then(hangs(3, kill=True)) == ["SIGKILL 1"]
    assert story.then(hangs(4, kill=True)) == []
    assert "failure" in story.then(ProcessEnd(1, -9, "Traceback"))
    assert story.group.failures[-1].message == "rank 1 hangs"


def test_first_progress_of_a_round_is_sent_at_once_and_checkpoints_are_kept_whoever_made_them() -> None:
    story = training("a", "b")
    assert story.did == ["progress"]
    assert story.then(Message(0, Advance(round=1, progress=Progress(step=2)))) == []
    ended = Hampered(step=2, problem="no space", where=b"/mnt/run")
    assert story.then(Message(0, Copied(block="slot-0", step=2, round=1)), Message(7, ended)) == [
        "keep Copied",
        "keep Hampered",
    ]
    assert story.then() == []


def test_verdict_of_an_ended_round_kills_nobody() -> None:
    story = training("a", "b", slots=2)
    story.then(Message(1, Broken(round=1, port=5003)), Message(0, Broken(round=1, port=5004)))
    story.then(orders(2, Order.REGROUP, 1, "b"), formed(2, "a", slots=2))
    assert story.then(hangs(3, kill=True)) == ["stacks 1"]


@pytest.mark.parametrize(("steps", "ends"), [(5, None), (0, 3)])
def test_kill_for_a_hang_spends_a_restart_unless_steps_were_made(steps: int, ends: int | None) -> None:
    story = Story(max_restarts=1)
    for number in range(1, 8):
        story.enters(number, "a", "b")
        story.then(Message(0, Advance(round=number, progress=Progress(step=5 + steps * number), seconds=1.0)))
        assert story.then(hangs(number, kill=True, slot=0, number=number))[-1] == "SIGKILL 0"
        story.then(ProcessEnd(0, -9))
        if story.group.ending:
            assert (number, story.did[-1]) == (ends, "exit 1 WorkerFailed")
            return
    assert ends is None


@pytest.mark.parametrize(("forgive", "ends"), [(0.0, 3), (100.0, None), (1000.0, 3)])
def test_failures_before_a_long_time_without_any_are_forgiven(forgive: float, ends: int | None) -> None:
    story = Story(max_restarts=2, forgive=forgive)
    for failure in range(1, 8):
        story.enters(failure, "a")
        story.then(ProcessEnd(0, -9), after=150.0)
        if story.group.ending:
            assert failure == ends
            return
    assert ends is None


def divided(*nodes: str) -> Story:
    """Return the story of node `a` whose two workers have a model together, in round 1 of `nodes`."""
    story = Story(workers=2)
    story.then(Message(0, Bound()), Message(1, Bound()))
    for slot in (0, 1):
        story.then(Message(slot, Hello()), Message(slot, Ready(port=5000 + slot)))
    story.then(formed(1, *nodes, slots=2))
    return story


def test_node_that_lost_a_part_of_its_model_starts_all_its_workers_again() -> None:
    story = divided("b", "a")
    assert story.then(ProcessEnd(0, -9)) == ["failure", "SIGKILL 1", "leave 1"]
    assert story.then(ProcessEnd(1, -9)) == ["spawn 0", "spawn 1"]
    assert {worker.start for worker in story.group.workers.values()} == {2}
    story.then(Message(0, Hello()), Message(1, Hello()))
    assert story.then(Message(1, Ready(port=6001))) == []
    assert story.then(Message(0, Ready(port=6000))) == ["join after 1 with 2 at 6000"]


def test_node_that_lost_a_part_of_its_model_before_the_agent_knew_starts_all_again() -> None:
    story = Story(workers=2)
    assert story.then(ProcessEnd(0, -9)) == ["failure", "spawn 0"]
    assert story.then(Message(1, Bound())) == ["SIGKILL 1", "SIGKILL 0"]
    assert story.then(ProcessEnd(0, -9), ProcessEnd(1, -9)) == ["spawn 0", "spawn 1"]
    assert len(story.group.failures) == 1


def test_node_with_a_whole_model_goes_on_without_another_node() -> None:
    story = divided("b", "a")
    assert story.then(orders(2, Order.REGROUP, 1, "b")) == [
        "abort 0",
        "abort 1",
        "interrupt 0",
        "interrupt 1",
    ]
    assert story.then(Message(1, Broken(round=1, port=6001))) == []
    assert story.then(Message(0, Broken(round=1, port=6000))) == ["join after 1 with 2 at 6000 broken"]


def test_worker_that_finished_is_no_lost_part() -> None:
    story = divided("a")
    assert story.then(ProcessEnd(0, 0)) == []
    assert story.then(ProcessEnd(1, 0))[:3] == ["no join", "save", "finish"]
