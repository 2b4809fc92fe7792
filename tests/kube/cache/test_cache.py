"""Reading from memory."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest

from elasticjob.kube.cache.cache import DECODED, Cache
from elasticjob.kube.cache.protocol import Advanced, Listed, Removed, Restarted, Synced, Upserted
from elasticjob.kube.cache.wire import Item
from elasticjob.kube.errors import Undecodable
from elasticjob.kube.objects.views import CONFIG_MAP, ConfigMap
from lab.build.objects import as_item, item, key, manifest, owned


def filled(*items: Item, labels: str = "", namespace: str = "") -> Cache[ConfigMap]:
    cache = Cache(CONFIG_MAP, namespace, labels)
    for each in items:
        cache.take(Upserted(each))
    return cache


def names(found: Iterable[ConfigMap]) -> list[str]:
    return [each.metadata.name for each in found]


def test_reads_by_name_namespace_label_owner_and_index() -> None:
    cache = filled(
        item("a", 1, labels={"x": "1", "y": "2"}),
        item("b", 2, labels={"x": "1"}),
        item("c", 3, namespace="other", labels={"x": "1"}),
        as_item(owned("d", "a", 4)),
    )
    cache.add_index("rv", lambda found: [found.data.get("rv", "none")])
    assert cache.get(("ns", "a")) is not None
    assert cache.get(key("zzz")) is None
    assert names(cache.list("ns", {"x": "1"})) == ["a", "b"]
    assert names(cache.list(labels={"x": "1"})) == ["a", "b", "c"]
    assert names(cache.list("ns")) == ["a", "b", "d"]
    assert names(cache.owned_by("uid-a")) == ["d"]
    assert names(cache.by_index("rv", "2")) == ["b"]
    assert names(cache.by_index("rv", "none")) == ["d"]
    assert len(cache) == 4


def test_an_index_that_is_there_already_and_one_that_is_not() -> None:
    cache = filled()
    cache.add_index("x", lambda found: found.data)
    with pytest.raises(ValueError, match="'x' already"):
        cache.add_index("x", lambda found: found.data)
    with pytest.raises(KeyError):
        cache.by_index("y", "")


def test_an_undecodable_object_fails_alone_and_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    cache = filled(item("a"), as_item(manifest("bad", 2) | {"data": [5]}), item("c", 3))
    cache.add_index("rv", lambda found: found.data.values())
    with caplog.at_level(logging.WARNING):
        assert names(cache.list()) == names(cache.list()) == ["a", "c"]
    assert len(caplog.records) == 1
    with pytest.raises(Undecodable, match=r"ConfigMap ns/bad .*data"):
        cache.get(key("bad"))
    meta = cache.meta(key("bad"))
    assert meta is not None
    assert meta.version == 2


def test_frozen_objects_are_decoded_once_and_plain_ones_never_shared() -> None:
    cache = filled(item("a"))
    assert cache.get(key("a")) is cache.get(key("a"))
    plain = Cache(CONFIG_MAP.untyped())
    plain.take(Upserted(item("a")))
    first = plain.get(key("a"))
    assert first == plain.get(key("a"))
    assert first is not plain.get(key("a"))


def test_what_was_decoded_is_forgotten_when_the_storage_goes_back_in_time() -> None:
    cache = filled(item("a", 5))
    cache.add_index("x", lambda found: [found.data.get("x", "")])
    cache.take(Advanced("9"))
    assert cache.list()[0].data == {"rv": "5"}
    again = as_item(manifest("a", 5) | {"data": {"x": "y"}})
    for event in (Restarted(), Listed((again,)), Synced("7")):
        cache.take(event)
    assert cache.list()[0].data == {"x": "y"}
    assert names(cache.by_index("x", "y")) == ["a"]


def test_only_so_many_decoded_objects_are_kept() -> None:
    cache = filled(*[item(f"n{number}", number) for number in range(DECODED + 10)])
    cache.list()
    assert len(cache._decoded) == DECODED


def test_a_newer_version_is_read() -> None:
    cache = filled(item("a", 1))
    cache.get(key("a"))
    cache.take(Upserted(item("a", 2)))
    found = cache.get(key("a"))
    assert found is not None
    assert found.data == {"rv": "2"}
    cache.take(Removed(item("a", 3)))
    assert cache.get(key("a")) is None


@pytest.mark.parametrize(
    ("namespace", "selector", "labels", "covered"),
    [
        ("", "", {}, True),
        ("ns", "", {}, True),
        ("other", "", {}, False),
        ("", "app=x", {"app": "x"}, True),
        ("", "app=x, tier==y", {"app": "x", "tier": "y"}, True),
        ("", "app=x", {"app": "z"}, False),
        ("", "app in (x)", {"app": "x"}, False),
    ],
)
def test_covers(namespace: str, selector: str, labels: dict[str, str], covered: bool) -> None:
    assert filled(labels=selector, namespace=namespace).covers("ns", labels) is covered
