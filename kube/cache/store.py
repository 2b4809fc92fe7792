"""The objects of one kind as last received: raw bytes, metadata, indexes; fed by a watch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from elasticjob.kube.cache.protocol import (
    Advanced,
    Event,
    Listed,
    Removed,
    Restarted,
    Synced,
    Unlisted,
    Upserted,
)
from elasticjob.kube.cache.wire import Item
from elasticjob.kube.objects.kinds import Key

IndexBy = Callable[[Item], Iterable[str]]


class Change(msgspec.Struct, frozen=True):
    """A change of one object: `old` alone = deleted, `new` alone = added, both = modified.

    `initial` marks what came with the first list.
    """

    old: Item | None
    new: Item | None
    initial: bool = False


class Index:
    """Which keys have a value; both sides of a change are accounted for."""

    def __init__(self, by: IndexBy) -> None:
        self._by = by
        self._keys: dict[str, dict[Key, None]] = {}
        self._values: dict[Key, tuple[str, ...]] = {}

    def put(self, item: Item) -> None:
        """Index an item in the place of the one that had its key before."""
        values = tuple(dict.fromkeys(self._by(item)))
        if values == self._values.get(item.key, ()):
            return
        self.discard(item.key)
        if values:
            self._values[item.key] = values
        for value in values:
            self._keys.setdefault(value, {})[item.key] = None

    def discard(self, key: Key) -> None:
        """Forget a key."""
        for value in self._values.pop(key, ()):
            keys = self._keys[value]
            keys.pop(key, None)
            if not keys:
                del self._keys[value]

    def keys(self, value: str) -> Iterable[Key]:
        """The keys that have a value, in the order in which they came to it."""
        return tuple(self._keys.get(value, ()))

    def count(self, value: str) -> int:
        """How many keys have a value."""
        return len(self._keys.get(value, ()))


class Store:
    """One kind's objects.

    Guarantees: after `Synced` it equals the server at that version, and the returned changes lead from the
    old set to the new, deletes included. A name that came back with another uid is a delete and an add.
    Of one uid and resourceVersion there is one content, until the storage goes back in time.
    """

    def __init__(self) -> None:
        self._items: dict[Key, Item] = {}
        self._incoming: dict[Key, Item] = {}
        self._indexes: dict[str, Index] = {}
        self.version = 0
        """The newest resourceVersion seen, bookmarks included."""
        self.lists = 0
        """How many initial sets were completed."""
        self.eras = 0
        """How often the server's storage was found to have gone back in time."""
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(tuple(self._items.values()))

    def get(self, key: Key) -> Item | None:
        return self._items.get(key)

    def add_index(self, name: str, by: IndexBy) -> None:
        """Index all objects, present and future, by the values of `by`, which must be a pure function."""
        if name in self._indexes:
            raise ValueError(f"there is an index {name!r} already")
        index = self._indexes[name] = Index(by)
        for item in self._items.values():
            index.put(item)

    def indexed(self, name: str, value: str) -> list[Item]:
        """The objects that have `value` in the index `name`. Raises KeyError for an unknown index."""
        keys, items = self._indexes[name].keys(value), self._items
        return [items[key] for key in keys] if keys else []

    def count(self, name: str, value: str) -> int:
        """How many objects have `value` in the index `name`. Raises KeyError for an unknown index."""
        return self._indexes[name].count(value)

    def apply(self, event: Event) -> list[Change]:
        """Take over one event of the watch; the changes it made, in order."""
        match event:
            case Upserted(item):
                self._advance(item.meta.version)
                return self._put(item)
            case Removed(item):
                self._advance(item.meta.version)
                return self._remove(item)
            case Advanced(version):
                self._advance(_number(version))
            case Restarted():
                self._incoming = {}
            case Listed(items):
                self._incoming.update((item.key, self._reuse(item)) for item in items)
            case Unlisted(item):
                self._incoming.pop(item.key, None)
            case Synced(version):
                return self._sync(_number(version))
        return []

    def _sync(self, version: int) -> list[Change]:
        incoming, self._incoming = self._incoming, {}
        initial = self.lists == 0
        gone = [item for key, item in self._items.items() if key not in incoming]
        went_back = version < self.version
        self.eras += went_back
        changes = [change for item in gone for change in self._remove(item)]
        for item in incoming.values():
            changes += self._put(item, initial=initial, believed=not went_back)
        self.version = version
        self.lists += 1
        return changes

    def _put(self, item: Item, *, initial: bool = False, believed: bool = True) -> list[Change]:
        """Hold an item; unless its version is `believed`, one that we have counts only with the same text."""
        old = self._items.get(item.key)
        if old and _same_version(old, item) and (believed or _same_text(old.raw, item.raw)):
            return []
        self._items[item.key] = item
        self.bytes += len(item.raw) - (len(old.raw) if old else 0)
        for index in self._indexes.values():
            index.put(item)
        if old and old.meta.uid != item.meta.uid:
            return [Change(old, None), Change(None, item)]
        return [Change(old, item, initial)]

    def _remove(self, item: Item) -> list[Change]:
        old = self._items.get(item.key)
        if old is None or old.meta.uid != item.meta.uid:
            return []
        self._drop(old)
        return [Change(old, None)]

    def _drop(self, item: Item) -> None:
        del self._items[item.key]
        self.bytes -= len(item.raw)
        for index in self._indexes.values():
            index.discard(item.key)

    def _reuse(self, item: Item) -> Item:
        """The item we hold already if it is the same, so that a relist does not hold everything twice."""
        old = self._items.get(item.key)
        return old if old and _same_version(old, item) and _same_text(old.raw, item.raw) else item

    def _advance(self, version: int) -> None:
        self.version = max(self.version, version)


def _same_version(one: Item, other: Item) -> bool:
    return (one.meta.uid, one.meta.resource_version) == (other.meta.uid, other.meta.resource_version)


def _same_text(one: bytes, other: bytes) -> bool:
    """Whether two texts say the same: in lists of built-in kinds, objects lack their first two members."""
    return one.endswith(other[1:]) or other.endswith(one[1:])


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else 0
