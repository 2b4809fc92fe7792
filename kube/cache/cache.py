"""Reading a kind from memory: objects are decoded when they are read, and a bad one fails alone."""

from __future__ import annotations

import asyncio
import builtins
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from elasticjob.kube.cache.protocol import Event
from elasticjob.kube.cache.store import Change, Store
from elasticjob.kube.cache.wire import Item, Meta
from elasticjob.kube.errors import Undecodable
from elasticjob.kube.objects.kinds import Key, Kind

T = TypeVar("T")

Identity = tuple[int, str, str]
"""One content of one object: the storage's era, uid, resourceVersion."""

OWNER = "owner-uid"
NAMESPACE = "namespace"
DECODED = 1024
"""How many decoded objects are kept at most."""

log = logging.getLogger(__name__)


class Cache(Generic[T]):
    """All objects of one kind (or of one namespace, or that match selectors) as last heard from the server.

    Reads never wait and never ask the server; they are as old as the watch. Objects are shared between
    readers: models should be frozen. Everything happens on the event loop's thread.
    """

    def __init__(
        self,
        kind: Kind[T],
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        *,
        optional: bool = False,
        decode: Callable[[bytes], T] | None = None,
    ) -> None:
        """`optional`: a kind of another system, which the server may not have: then the cache is empty.

        `decode` is called in the place of the kind's: for caches that share what they have decoded.
        """
        self.kind = kind
        self._decoder = decode or kind.decode
        self.optional = optional
        self._served = not optional
        self.namespace = namespace
        self.labels = labels
        self.fields = fields
        self._wanted = _equalities(labels)
        self._store = Store()
        self._store.add_index(OWNER, _owners)
        self._store.add_index(NAMESPACE, _namespace)
        self._decoded: OrderedDict[Identity, T] = OrderedDict()
        self._reported: OrderedDict[Identity, None] = OrderedDict()
        self._listeners: list[Callable[[Change], None]] = []
        self._on_version: list[Callable[[], None]] = []
        self._on_served: list[Callable[[], None]] = []
        self._synced = asyncio.Event()

    # reading

    def get(self, key: Key | tuple[str, str]) -> T | None:
        """The object, or None. Raises Undecodable when it does not fit the model."""
        item = self._store.get(Key(*key))
        return None if item is None else self._decode(item)

    def meta(self, key: Key | tuple[str, str]) -> Meta | None:
        """The object's metadata, which can be read even where the rest does not fit the model."""
        item = self._store.get(Key(*key))
        return None if item is None else item.meta

    def item(self, key: Key | tuple[str, str]) -> Item | None:
        """The object as bytes and metadata."""
        return self._store.get(Key(*key))

    def items(self) -> Iterator[Item]:
        """All objects as bytes and metadata."""
        return iter(self._store)

    def list(self, namespace: str = "", labels: Mapping[str, str] | None = None) -> builtins.list[T]:
        """The objects of a namespace ("" = all) that bear all of `labels`; undecodable ones are left out."""
        items = self._store.indexed(NAMESPACE, namespace) if namespace else self._store
        wanted = (labels or {}).items()
        return self._decodable(item for item in items if wanted <= (item.meta.labels or {}).items())

    def owned_by(self, uid: str) -> builtins.list[T]:
        """The objects that name the owner `uid` in their ownerReferences; undecodable ones are left out."""
        return self._decodable(self._store.indexed(OWNER, uid))

    def items_owned_by(self, uid: str) -> builtins.list[Item]:
        """The objects that name the owner `uid`, as bytes and metadata."""
        return self._store.indexed(OWNER, uid)

    def count_owned_by(self, uid: str) -> int:
        """How many objects name the owner `uid`."""
        return self._store.count(OWNER, uid)

    def by_index(self, name: str, value: str) -> builtins.list[T]:
        """The objects that have `value` in an index made with `add_index`; undecodable ones are left out."""
        return self._decodable(self._store.indexed(name, value))

    def items_by_index(self, name: str, value: str) -> builtins.list[Item]:
        """The same objects as bytes and metadata."""
        return self._store.indexed(name, value)

    def metas(self, name: str, value: str) -> Iterator[Meta]:
        """The metadata of the objects that have `value` in an index: nothing is decoded for them."""
        return (item.meta for item in self._store.indexed(name, value))

    def __len__(self) -> int:
        return len(self._store)

    def add_index(self, name: str, values: Callable[[T], Iterable[str]]) -> None:
        """Index the objects by what the pure function `values` says of each."""
        self._store.add_index(name, lambda item: self._index_values(item, values))

    # following

    @property
    def synced(self) -> bool:
        """Whether the first complete set is in."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return once the first complete set is in and its changes have been told to all subscribers."""
        await self._synced.wait()

    @property
    def version(self) -> int:
        """The newest resourceVersion seen."""
        return self._store.version

    @property
    def lists(self) -> int:
        """How many complete sets came in."""
        return self._store.lists

    @property
    def eras(self) -> int:
        """How often the server's storage went back in time: what was expected before will not come."""
        return self._store.eras

    @property
    def bytes(self) -> int:
        """The size of all objects held, as they were sent."""
        return self._store.bytes

    @property
    def served(self) -> bool:
        """Whether the server has the kind, as far as is known."""
        return self._served

    @served.setter
    def served(self, served: bool) -> None:
        changed, self._served = served is not self._served, served
        for listener in self._on_served if changed else ():
            listener()

    def on_served(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the server begins or ceases to have the kind."""
        self._on_served.append(listener)

    def subscribe(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` for every change from now on. It must be quick and must not raise."""
        self._listeners.append(listener)

    def on_version(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever `version` may have advanced."""
        self._on_version.append(listener)

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether an object of this namespace with these labels is certain to show up here."""
        if self.fields or (self.namespace and self.namespace != namespace):
            return False
        return all(labels.get(name) == value for name, value in self._wanted)

    def view(self, item: Item) -> T:
        """An item of a change, decoded. Raises Undecodable."""
        return self._decode(item)

    def fitting(self, item: Item) -> T | None:
        """An item, decoded; None for one that does not fit the model, which is logged once."""
        return next(iter(self._decodable((item,))), None)

    # feeding (by the informer)

    def take(self, event: Event) -> builtins.list[Change]:
        """Take over an event of the watch; returns the changes, which are still to be told."""
        return self._store.apply(event)

    def tell(self, changes: Iterable[Change]) -> None:
        """Tell subscribers of changes that were taken."""
        for change in changes:
            for listener in self._listeners:
                listener(change)

    def advanced(self) -> None:
        """Wake the tasks that wait for a version; the first complete set also makes the cache synced."""
        if self._store.lists:
            self._synced.set()
        for listener in self._on_version:
            listener()

    # decoding

    def _decode(self, item: Item) -> T:
        identity = self._identity(item)
        if (known := self._decoded.get(identity)) is not None:
            self._decoded.move_to_end(identity)
            return known
        try:
            found = self._decoder(item.raw)
        except ValueError as error:
            raise Undecodable(f"{self.kind.name} {item.key} does not fit its model: {error}") from error
        if _is_frozen(self.kind.model):
            self._remember(identity, found)
        return found

    def _identity(self, item: Item) -> Identity:
        return self._store.eras, item.meta.uid, item.meta.resource_version

    def _remember(self, identity: Identity, found: T) -> None:
        self._decoded[identity] = found
        if len(self._decoded) > DECODED:
            self._decoded.popitem(last=False)

    def _decodable(self, items: Iterable[Item]) -> builtins.list[T]:
        found = []
        for item in items:
            try:
                found.append(self._decode(item))
            except Undecodable as error:
                self._report(item, error)
        return found

    def _index_values(self, item: Item, values: Callable[[T], Iterable[str]]) -> Iterable[str]:
        try:
            return tuple(values(self._decode(item)))
        except Undecodable as error:
            self._report(item, error)
            return ()

    def _report(self, item: Item, error: Undecodable) -> None:
        identity = self._identity(item)
        if identity in self._reported:
            return
        log.warning("an object does not fit its model", extra={"kind": self.kind.name, "error": str(error)})
        self._reported[identity] = None
        if len(self._reported) > DECODED:
            self._reported.popitem(last=False)


def _owners(item: Item) -> Iterable[str]:
    return [owner.uid for owner in item.meta.owner_references or ()]


def _namespace(item: Item) -> Iterable[str]:
    return (item.meta.namespace,)


def _equalities(selector: str) -> list[tuple[str, str]]:
    """The terms of a selector as names and values; one that demands something else is equal to nothing."""
    terms = [term.strip().replace("==", "=") for term in selector.split(",") if term.strip()]
    return [(name, value) for name, _, value in (term.partition("=") for term in terms)]


def _is_frozen(model: type[Any]) -> bool:
    struct = getattr(model, "__struct_config__", None)
    pydantic = getattr(model, "model_config", None) or {}
    return bool(struct.frozen if struct is not None else pydantic.get("frozen"))
