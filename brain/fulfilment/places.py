"""Where instances find a place: the idle room of each machine, best fit first. Exact integers.

Best fit leaves least over, compared by devices in the order of their names, then cpu, memory, and the others;
ties go by the machine's name. So the devices of a machine stay for instances that request them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import islice
from typing import Final

from elasticjob.brain.fulfilment.state import CPU, MEMORY, PODS, Amounts, Machine, Options

ORDINARY: Final = (CPU, MEMORY, "ephemeral-storage", PODS)
"""Not devices. Huge pages are none either."""
FEW: Final = 64
"""Up to so many permitted machines are compared one by one."""

Need = tuple[tuple[int, int], ...]
"""What one instance requests: positions of resources, and quantities above 0."""
Shelf = list[tuple[tuple[int, ...], int]]


class Rooms:
    """What is left on each machine once terminating pods are gone (`soon`), and what they hold until then.

    A machine is its position in the order of names; a resource is its position in `resources`.
    """

    def __init__(self, machines: Iterable[Machine], requested: Iterable[Amounts]) -> None:
        found = sorted(machines, key=lambda each: each.name)
        names = {name for amount in requested for name in amount}
        names |= {name for machine in found for name in machine.total}
        devices = sorted(name for name in names if is_device(name))
        others = sorted(names.difference(devices, ORDINARY))
        self.resources = (*devices, *(name for name in ORDINARY if name in names), *others)
        self.devices = len(devices)
        self.names = [machine.name for machine in found]
        self.position = {name: i for i, name in enumerate(self.names)}
        self.soon = [[each.soon.get(name, 0) for name in self.resources] for each in found]
        self._held = [self._terminating(each) for each in found]
        self.total = [sum(each.total.get(name, 0) for each in found) for name in self.resources]
        self.used = [total - sum(room) for total, room in zip(self.total, self._columns(), strict=True)]
        self._shelves: dict[tuple[int, ...], Shelf] = {}
        self._heads: list[tuple[int, ...]] = []
        for machine in range(len(found)):
            self._shelve(machine)

    def amounts(self, amount: Amounts) -> Need:
        """Return an amount by positions of resources."""
        return tuple((i, amount[name]) for i, name in enumerate(self.resources) if amount.get(name, 0) > 0)

    def limits(self, options: Options, band: Fraction = Fraction(0)) -> list[int]:
        """Return the most that may be used of each resource, `band` below the limits."""
        shares = (options.limits.get(name, Fraction(1)) - band for name in self.resources)
        return [int(total * share // 1) for total, share in zip(self.total, shares, strict=True)]

    def machines_by_name(self, names: frozenset[str] | None) -> frozenset[int] | None:
        """Return the machines with these names; None, any, stays None."""
        if names is None:
            return None
        return frozenset(self.position[name] for name in names if name in self.position)

    def fits(self, machine: int, need: Need, *, soon: bool = True) -> bool:
        """Whether one instance finds room on a machine: once terminating pods are gone, or now."""
        room, held = self.soon[machine], None if soon else self._held[machine]
        if held is None:
            return not any(room[i] < quantity for i, quantity in need)
        return not any(room[i] - held[i] < quantity for i, quantity in need)

    def count(self, machine: int, need: Need, extra: Sequence[int] | None = None) -> int:
        """Return how many instances a machine will have room for; with `extra` room, if given."""
        room = self.soon[machine]
        if extra is not None:
            room = [one + other for one, other in zip(room, extra, strict=True)]
        return max(0, min((room[i] // quantity for i, quantity in need), default=1))

    def best(self, need: Need, permitted: frozenset[int] | None, *, soon: bool) -> int | None:
        """Return the permitted machine on which one instance leaves least over."""
        if permitted is not None and len(permitted) <= FEW:
            fitting = (each for each in permitted if self.fits(each, need, soon=soon))
            return min(fitting, key=lambda each: (self.soon[each], each), default=None)
        for machine in self._ascending(need):
            if (permitted is None or machine in permitted) and self.fits(machine, need, soon=soon):
                return machine
        return None

    def put(self, machine: int, need: Need) -> None:
        """Give an instance room on a machine."""
        self._change(machine, need, -1)

    def free(self, machine: int, need: Need) -> None:
        """Take back the room of an instance."""
        self._change(machine, need, 1)

    def _change(self, machine: int, need: Need, sign: int) -> None:
        self._unshelve(machine)
        room = self.soon[machine]
        for i, quantity in need:
            room[i] += sign * quantity
            self.used[i] -= sign * quantity
        self._shelve(machine)

    def _ascending(self, need: Need) -> Iterator[int]:
        """Machines from the fullest on; less those that have too little of a device, or of the cpu."""
        cpu = next((quantity for i, quantity in need if i == self.devices), 0)
        devices = [each for each in need if each[0] < self.devices]
        for head in self._heads:
            if any(head[i] < quantity for i, quantity in devices):
                continue
            shelf = self._shelves[head]
            for _, machine in islice(shelf, bisect_left(shelf, ((cpu,), -1)), None):
                yield machine

    def _shelve(self, machine: int) -> None:
        room = self.soon[machine]
        head = tuple(room[: self.devices])
        if head not in self._shelves:
            self._shelves[head] = []
            insort(self._heads, head)
        insort(self._shelves[head], (tuple(room[self.devices :]), machine))

    def _unshelve(self, machine: int) -> None:
        room = self.soon[machine]
        head = tuple(room[: self.devices])
        shelf = self._shelves[head]
        del shelf[bisect_left(shelf, (tuple(room[self.devices :]), machine))]
        if not shelf:
            del self._shelves[head]
            self._heads.remove(head)

    def _terminating(self, machine: Machine) -> list[int] | None:
        held = [machine.soon.get(name, 0) - machine.idle.get(name, 0) for name in self.resources]
        return held if any(held) else None

    def _columns(self) -> Iterable[tuple[int, ...]]:
        return zip(*self.soon, strict=True) if self.soon else [() for _ in self.resources]


def is_device(name: str) -> bool:
    """Whether a resource is counted in whole devices."""
    return name not in ORDINARY and not name.startswith("hugepages-")
