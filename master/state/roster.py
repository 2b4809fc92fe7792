"""The nodes of a job as one frozen value: a change of one among ten thousand costs as one among ten.

1. Nodes stand in chunks, in the order in which they came; a change copies one chunk and the list of chunks.
2. Nodes of equal `Kind` are counted, so that no rule looks at all nodes to answer one request. A change that
leaves the kind as it was leaves `kinds` the same object.
3. `heard`, `expires` and `first` are no later than the exact minimum, and `last` no earlier than the maximum:
a node that goes away does not move them. `exact` recounts.
4. The index of names is shared by all rosters that come from each other: it only grows, and each roster sees
the names below its own size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Self

from elasticjob.master.state.node import Kind, Node

CHUNK = 64


class Roster(Mapping[str, Node]):
    """An immutable mapping from names to nodes, with counts."""

    __slots__ = ("_chunks", "_index", "_size", "expires", "first", "heard", "highest", "kinds", "last")

    _chunks: tuple[tuple[Node, ...], ...]
    _index: dict[str, int]
    _size: int
    kinds: Mapping[Kind, int]
    highest: Mapping[str, int]  # the highest index that any node of a role has had
    heard: datetime | None  # the oldest heartbeat
    expires: datetime | None  # the end of the first join that ends
    first: datetime | None  # the oldest join, None if no node has joined
    last: datetime | None  # the newest join

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        every = tuple(nodes)
        self._chunks = tuple(every[start : start + CHUNK] for start in range(0, len(every), CHUNK))
        self._index = {node.name: place for place, node in enumerate(every)}
        self._size = len(every)
        if len(self._index) != self._size:
            raise ValueError("two nodes have the same name")
        self.kinds = Counter(node.kind for node in every)
        self.highest = {}
        for node in every:
            self.highest[node.role] = max(node.index, self.highest.get(node.role, node.index))
        since = [node.joined.since for node in every if node.joined]
        self.heard = min((node.beat for node in every if node.beat), default=None)
        self.expires = min((node.joined.until for node in every if node.joined), default=None)
        self.first, self.last = min(since, default=None), max(since, default=None)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        return (node.name for chunk in self._chunks for node in chunk)

    def __getitem__(self, name: str) -> Node:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __contains__(self, name: object) -> bool:
        return self._index.get(name, self._size) < self._size  # type: ignore[call-overload,no-any-return]

    def get(self, name: str, default: Node | None = None) -> Node | None:  # type: ignore[override]
        """Return the node of that name."""
        place = self._index.get(name, self._size)
        return self._chunks[place // CHUNK][place % CHUNK] if place < self._size else default

    def values(self) -> Sequence[Node]:  # type: ignore[override]
        """Return all nodes."""
        return [node for chunk in self._chunks for node in chunk]

    def items(self) -> Sequence[tuple[str, Node]]:  # type: ignore[override]
        """Return all names with their nodes."""
        return [(node.name, node) for chunk in self._chunks for node in chunk]

    def count(self, is_counted: Callable[[Kind], object]) -> int:
        """Return how many nodes are of a kind that is counted."""
        total = 0
        for kind, many in self.kinds.items():
            if is_counted(kind):
                total += many
        return total

    def put(self, node: Node) -> Self:
        """Return the roster with `node` added or replaced."""
        place = self._index.get(node.name, self._size)
        if place >= self._size:
            return self._grown(node)
        row, column = divmod(place, CHUNK)
        chunk = self._chunks[row]
        after = self._copy()
        after._chunks = (
            *self._chunks[:row],
            (*chunk[:column], node, *chunk[column + 1 :]),
            *self._chunks[row + 1 :],
        )
        after._count(chunk[column], node)
        return after

    def exact(self) -> Self:
        """Return the same nodes with all bounds counted anew."""
        return type(self)(self.values())

    def _grown(self, node: Node) -> Self:
        """Return the roster with one more node; a name that only a sibling has is no name of this one."""
        after = self._copy()
        if len(self._index) != self._size or not self._size:
            after._index = {known.name: place for place, known in enumerate(self.values())}
        after._index[node.name] = self._size
        after._size = self._size + 1
        if self._size % CHUNK:
            after._chunks = (*self._chunks[:-1], (*self._chunks[-1], node))
        else:
            after._chunks = (*self._chunks, (node,))
        after._count(None, node)
        return after

    def _copy(self) -> Self:
        after = object.__new__(type(self))
        after._chunks, after._index, after._size = self._chunks, self._index, self._size
        after.kinds, after.highest, after.heard = self.kinds, self.highest, self.heard
        after.expires, after.first, after.last = self.expires, self.first, self.last
        return after

    def _count(self, before: Node | None, node: Node) -> None:
        """Note the change of one node in a roster that nobody has seen yet."""
        old, new = before and before.kind, node.kind
        if old != new:
            kinds = dict(self.kinds)
            kinds[new] = kinds.get(new, 0) + 1
            if old:
                kinds[old] -= 1
                if not kinds[old]:
                    del kinds[old]
            self.kinds = kinds
        if node.index > self.highest.get(node.role, node.index - 1):
            self.highest = {**self.highest, node.role: node.index}
        if node.beat and (self.heard is None or node.beat < self.heard):
            self.heard = node.beat
        if joined := node.joined:
            self.expires = min(self.expires or joined.until, joined.until)
            self.first = min(self.first or joined.since, joined.since)
            self.last = max(self.last or joined.since, joined.since)
        elif before and before.joined and not any(kind.joined for kind in self.kinds):
            self.expires = self.first = self.last = None
