"""A watch over objects: which are as they should be, and since when."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.clients.plane import Seen, TooLate
from elasticjob.kube.cache.store import Change


class Told:
    """A cache whose changes the test makes; an object is its uid, and what is asked of it."""

    def subscribe(self, listener: Callable[[Change], None]) -> None:
        self.changed = listener

    def view(self, item: Any) -> bool:
        return bool(item.good)


def item(uid: str, *, good: bool) -> Any:
    return SimpleNamespace(meta=SimpleNamespace(uid=uid), key=SimpleNamespace(name=f"pod-{uid}"), good=good)


async def test_objects_are_good_while_it_holds_and_made_for_ever() -> None:
    told: Any = Told()
    seen = Seen(told, lambda good: good)
    one, two = item("1", good=True), item("2", good=False)
    for change in (Change(None, one), Change(None, two), Change(two, item("2", good=True))):
        told.changed(change)
    assert await seen.all(2, "pods", 1.0) > 0
    told.changed(Change(one, None))
    told.changed(Change(item("2", good=True), item("3", good=False)))  # another object of the same name
    assert (seen.good, seen.most) == (set(), 2)
    assert list(seen.made.values()) == ["pod-1", "pod-2", "pod-3"]
    with pytest.raises(TooLate, match="0 of 1 pods are ready"):
        await seen.all(1, "pods", 0.0)


async def test_a_state_counts_from_its_beginning_once_it_has_lasted() -> None:
    seen, asked = Seen(Told(), bool), iter([False, True, False, True, True, True])  # type: ignore[arg-type]
    began = await seen.until(lambda: next(asked), "it", 10.0, settled=0.3)
    assert next(asked, None) is None
    assert began > 0
