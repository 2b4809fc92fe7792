"""One place in the script: two workers of a world are never at different steps, evaluations or epochs.

The real master forms the worlds; workers here are their place in the script, and the age of their state. They
are paused, cut off, left out by the last call, killed in a collective that some have finished and others not,
and lost at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from elasticjob.api.rpc.nodes import Order
from elasticjob.master.state.errors import RequestError
from elasticjob.trainer.loop.world import is_behind
from lab.virtual.master import Played, finish, join, leave, watch

NAMES = [f"node-{index}" for index in range(4)]
ANY = st.sampled_from(NAMES)
SCRIPT = [*chain.from_iterable(("step", "step", "step", "evaluation") for _ in range(3))]


def age_at(place: int) -> tuple[int, int]:
    """Return the steps and evaluations of a state at a place of the script."""
    return SCRIPT[:place].count("step"), SCRIPT[:place].count("evaluation")


@dataclass
class Worker:
    """A process: how many collectives its script has behind it, the age of its state; None: no state yet."""

    life: int = 0
    place: int = 0
    age: tuple[int, int] | None = None
    paused: bool = False
    round: int = 0
    broken: bool = False


class Places(RuleBasedStateMachine):
    """Workers of four nodes that train one script."""

    @initialize(minimum=st.integers(1, 2))
    def begin(self, minimum: int) -> None:
        self.game = Played(minimum, 4, replicas=4, restart_count=1000)
        self.workers = {name: Worker() for name in NAMES}
        self.agreed = 0  # the round whose members have met
        self.trained = False
        self.agents_act()

    def life(self, name: str) -> str:
        return f"{name}-{self.workers[name].life}"

    def members(self) -> list[str]:
        return self.game.names() if self.game.job.running else []

    def all_there(self) -> bool:
        round_ = self.game.job.round
        return all(not self.workers[n].paused and self.workers[n].round == round_ for n in self.members())

    @rule()
    def agents_act(self) -> None:
        """Agents that are not stopped watch, join if their world is over, and enter the next one."""
        for name, worker in self.workers.items():
            if worker.paused or self.game.job.verdict:
                continue
            self.ask(watch(name, self.life(name), round=worker.round))
            orders = self.game.orders(name, self.life(name), worker.round)
            over = orders.order is Order.REGROUP or (orders.order is Order.TRAIN and not orders.round)
            if worker.broken or (over and self.may_end(name)):
                self.ask(join(name, self.life(name), after=worker.round, broken=worker.broken))

    def may_end(self, name: str) -> bool:
        """Whether a worker leaves its world: with a lost member at once, else with all others."""
        job, mine = self.game.job, self.workers[name].round
        if mine < job.round or job.ending is None or job.ending.lost:
            return True
        return not any(self.workers[other].paused for other in self.game.names())

    def ask(self, request: object) -> None:
        try:
            self.game.ask(request)  # type: ignore[arg-type]
        except RequestError:
            return
        for name in self.game.names():
            worker = self.workers[name]
            if not worker.paused and worker.round < self.game.job.round:
                worker.round, worker.broken = self.game.job.round, False

    @precondition(lambda self: self.members() and self.all_there())
    @rule(times=st.integers(1, 6))
    def all_train(self, times: int) -> None:
        """The members meet, and do some collectives together."""
        if not self.meet():
            return
        for _ in range(times):
            self.together(self.members())

    @precondition(lambda self: self.members() and self.all_there() and self.agreed == self.game.job.round)
    @rule(data=st.data(), dies=st.booleans())
    def a_collective_breaks(self, data: st.DataObject, dies: bool) -> None:
        """One is stopped or killed in a collective, which some of the others finish."""
        members = self.members()
        victim = data.draw(st.sampled_from(members))
        others = [name for name in members if name != victim and self.workers[name].age is not None]
        done = data.draw(st.lists(st.sampled_from(others), unique=True)) if others else []
        self.together(done)
        for name in members:
            self.workers[name].broken = True
        if dies:
            self.dies(victim)
        else:
            self.workers[victim].paused = True

    def dies(self, name: str) -> None:
        self.ask(leave(name, self.workers[name].round, life=self.life(name)))
        worker = self.workers[name]
        self.workers[name] = Worker(life=worker.life, round=worker.round)

    @rule(seconds=st.sampled_from([1, 6, 31, 60]))
    def time_passes(self, seconds: int) -> None:
        """Who is stopped is silent: lost after a while, left out by the last call."""
        self.game.wait(seconds, *(name for name in NAMES if not self.workers[name].paused))

    @rule(name=ANY)
    def a_node_is_stopped(self, name: str) -> None:
        self.workers[name].paused = True

    @rule(name=ANY)
    def a_node_goes_on(self, name: str) -> None:
        """Its agent comes with the old incarnation, its process where it was."""
        self.workers[name].paused = False

    @precondition(lambda self: len(self.members()) > 1 and self.all_there())
    @rule(data=st.data(), times=st.integers(1, 5), seconds=st.sampled_from([6, 31]))
    def a_node_misses_collectives(self, data: st.DataObject, times: int, seconds: int) -> None:
        """It is stopped until the others have gone on without it, and comes back."""
        name = data.draw(st.sampled_from(self.members()))
        if not self.meet():
            return
        for each in self.members():
            self.workers[each].broken = True
        self.workers[name].paused = True
        self.time_passes(seconds)
        self.agents_act()
        self.agents_act()
        if self.members() and self.all_there():
            self.all_train(times)
        self.a_node_goes_on(name)
        self.agents_act()
        self.agents_act()
        if self.members() and self.all_there():
            self.all_train(1)

    def meet(self) -> bool:
        """Agree on the state as `Gate.agree` does; False if a member is started again for that."""
        if self.agreed == self.game.job.round:
            return True
        members = [self.workers[name] for name in self.members()]
        held = [worker.age for worker in members if worker.age is not None]
        if not held:
            assert not self.trained, "a finished training begins anew"
            for worker in members:
                worker.place, worker.age = 0, (0, 0)
        newest = max(held, default=(0, 0))
        ages = {name: self.workers[name].age for name in self.members()}
        late = [name for name, age in ages.items() if age is not None and is_behind(age, newest)]
        if late:
            for name in self.members():
                self.workers[name].broken = True
            for name in late:
                self.dies(name)
            return False
        for worker in members:
            if worker.age is not None and worker.age != newest:
                worker.age, worker.place = newest, worker.place + 1  # its collective counts as done
        self.agreed = self.game.job.round
        self.pass_gate(members)
        self.check()
        return True

    def pass_gate(self, members: list[Worker]) -> None:
        """Newcomers get the state when the others are at a step, or at the end."""
        place = max(worker.place for worker in members if worker.age is not None)
        if place == len(SCRIPT) or SCRIPT[place] == "step":
            for worker in members:
                if worker.age is None:
                    worker.place, worker.age = place, age_at(place)

    def together(self, names: list[str]) -> None:
        """Have these workers finish the next collective of the script."""
        those = [self.workers[name] for name in names if self.workers[name].age is not None]
        for worker in those:
            if worker.place < len(SCRIPT):
                worker.place += 1
                worker.age = age_at(worker.place)
        self.trained |= any(worker.place == len(SCRIPT) for worker in those)
        if those and set(names) == set(self.members()):
            self.pass_gate([self.workers[name] for name in names])
            self.check()
            for name in names:
                if self.workers[name].place == len(SCRIPT):
                    self.ask(finish(name, self.workers[name].round, self.life(name)))

    def check(self) -> None:
        """All members with a state are at one place, and their state is that of the place."""
        those = [self.workers[name] for name in self.members() if self.workers[name].age is not None]
        assert len({worker.place for worker in those}) <= 1
        assert all(worker.age == age_at(worker.place) for worker in those)


TestPlaces = Places.TestCase
TestPlaces.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)
