"""Pass 3: minima that have no place, and pending pods of others, get one at the cost of fulfilled jobs.

All or nothing: a job whose minimum no one can make room for takes nothing, and waits.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from elasticjob.brain.fulfilment import reasons
from elasticjob.brain.fulfilment.draft import Cause, Draft, Entry, Take
from elasticjob.brain.fulfilment.passes import reprieve

Extra = dict[int, list[int]]
"""Room by machine that jobs could give up."""


class Minima:
    """The minima of a draft; remembers what jobs could give up until something changes."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._extra: dict[int, Extra] = {}
        self._changes = -1

    def meet(self) -> bool:
        """Meet the minima, higher priority first, then the earlier job. True if any was met."""
        met = False
        for who in self.draft.asking:
            missing = who.least - who.bound
            if missing > 0 and self._meet(who, missing):
                met = True
        return met

    def _meet(self, who: Entry, missing: int) -> bool:
        found = self.draft.find(who, missing, soon=True)
        if found is None:
            places = self._places(who, missing)
            if places < missing:
                self.draft.places[who.key] = places
                return False
            takes = self._take(who, missing)
            found = self.draft.find(who, missing, soon=True)
            assert found is not None, f"{who.key} was counted to fit"
            self.draft.bind(who, found)
            reprieve(self.draft, takes)
            return True
        self.draft.bind(who, found)
        return True

    def _places(self, who: Entry, missing: int) -> int:
        """For how many instances there is a place if all that may give way do so; counted up to `missing`.

        Whoever gives more leaves no less room, and all instances are alike. So this is exact, and nothing is
        taken in vain.
        """
        extra, rooms = self._givable(who.priority), self.draft.rooms
        places = 0
        for machine in range(len(rooms.names)) if who.permitted is None else who.permitted:
            places += rooms.count(machine, who.need, extra.get(machine))
            if places >= missing:
                return places
        return places

    def _take(self, who: Entry, missing: int) -> list[Take]:
        """Take steps until all missing instances fit: lowest priority first, then the most fulfilled.

        Only jobs are asked that hold something on a machine where one more instance could fit.
        """
        draft, rooms = self.draft, self.draft.rooms
        machines = range(len(rooms.names)) if who.permitted is None else who.permitted
        extra = self._givable(who.priority)
        count = {machine: rooms.count(machine, who.need) for machine in machines}
        places = sum(count.values())
        helpful = {
            each for each in extra.keys() & count if rooms.count(each, who.need, extra[each]) > count[each]
        }
        cause = Cause(who.key, reasons.minimum(who, missing))
        lower = (each for each in draft.jobs if each.priority <= who.priority)
        heap = [(each.gives_after, each) for each in lower if not helpful.isdisjoint(each.givable())]
        heapify(heap)
        takes: list[Take] = []
        while places < missing:
            _, each = heappop(heap)
            takes.append(draft.take(each, cause))
            for machine in helpful.intersection(takes[-1].machines):
                places += rooms.count(machine, who.need) - count[machine]
                count[machine] = rooms.count(machine, who.need)
            if not helpful.isdisjoint(each.givable()):
                heappush(heap, (each.gives_after, each))
        return takes

    def _givable(self, priority: int) -> Extra:
        """Return the room that jobs of a priority and lower ones could give up."""
        if self._changes != self.draft.changes:
            self._extra, self._changes = {}, self.draft.changes
        if priority not in self._extra:
            self._extra[priority] = self._sum(priority)
        return self._extra[priority]

    def _sum(self, priority: int) -> Extra:
        rooms = self.draft.rooms
        extra: Extra = {}
        for who in self.draft.jobs:
            if who.priority > priority:
                continue
            for machine in who.givable():
                room = extra.setdefault(machine, [0] * len(rooms.resources))
                for i, quantity in who.need:
                    room[i] += quantity
        return extra
