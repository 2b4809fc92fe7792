"""The store against a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elasticjob.kube.cache.protocol import Advanced, Listed, Removed, Restarted, Synced, Unlisted, Upserted
from elasticjob.kube.cache.store import Change, Store
from elasticjob.kube.cache.wire import Item
from elasticjob.kube.objects.kinds import Key
from lab.build.objects import as_item, item, key, manifest, owned


def listed(*items: Item, version: str = "10") -> list[Restarted | Listed | Synced]:
    return [Restarted(), Listed(items), Synced(version)]


def fed(store: Store, *events: object) -> list[Change]:
    return [change for event in events for change in store.apply(event)]  # type: ignore[arg-type]


def test_the_first_list_is_told_as_initial() -> None:
    store, a, b = Store(), item("a"), item("b")
    assert fed(store, *listed(a, b)) == [Change(None, a, initial=True), Change(None, b, initial=True)]
    assert (len(store), store.version, store.lists) == (2, 10, 1)


def test_a_relist_tells_what_was_missed() -> None:
    store = Store()
    a, b, c = item("a", 1), item("b", 2), item("c", 3)
    fed(store, *listed(a, b, c))
    b2, d = item("b", 12), item("d", 13)
    changes = fed(store, *listed(item("a", 1), b2, d, version="20"))
    assert changes == [Change(c, None), Change(b, b2), Change(None, d)]
    assert [each.key.name for each in store] == ["a", "b", "d"]


def test_a_name_with_a_new_uid_is_a_delete_and_an_add() -> None:
    store, old, new = Store(), item("a", 1, uid="u1"), item("a", 15, uid="u2")
    fed(store, *listed(old))
    assert fed(store, *listed(new, version="20")) == [Change(old, None), Change(None, new)]
    newer = item("a", 25, uid="u3")
    assert fed(store, Upserted(newer)) == [Change(new, None), Change(None, newer)]


def test_an_unfinished_list_changes_nothing() -> None:
    store, a = Store(), item("a")
    fed(store, *listed(a))
    assert fed(store, Restarted(), Listed((item("b"),)), Restarted()) == []
    assert store.get(key("a")) == a
    assert store.get(key("b")) is None


def test_deleted_while_the_list_came_in() -> None:
    store, a, b = Store(), item("a"), item("b")
    fed(store, Restarted(), Listed((a, b)), Unlisted(item("a", 4)), Synced("5"))
    assert [each.key.name for each in store] == ["b"]


def test_the_same_version_again_is_no_change() -> None:
    store = Store()
    fed(store, *listed(item("a", 1)))
    assert fed(store, Upserted(item("a", 1)), Removed(item("z", 11))) == []


def test_a_late_delete_of_an_older_namesake_is_ignored() -> None:
    store, new = Store(), item("a", 15, uid="u2")
    fed(store, *listed(new))
    assert fed(store, Removed(item("a", 16, uid="u1"))) == []
    assert store.get(key("a")) == new


def test_every_kind_of_event_advances_the_version() -> None:
    store = Store()
    fed(store, *listed(version="10"))
    versions = []
    for event in (Upserted(item("a", 11)), Removed(item("a", 12)), Advanced("30"), Upserted(item("b", 20))):
        fed(store, event)
        versions.append(store.version)
    assert versions == [11, 12, 30, 30]


def test_a_relist_may_go_back_in_time() -> None:
    store = Store()
    fed(store, *listed(version="1000"), *listed(version="7"))
    assert (store.version, store.lists) == (7, 2)


def test_storage_that_went_back_in_time_may_give_a_version_a_second_time() -> None:
    store, old, same = Store(), as_item(manifest("a", 5)), item("b", 6)
    fed(store, *listed(old, same))
    again = as_item(manifest("a", 5) | {"data": {"written": "after the restore"}})
    assert fed(store, *listed(again, item("b", 6), version="7")) == [Change(old, again)]
    assert store.get(key("a")) == again


def test_objects_of_lists_and_of_watches_are_the_same_though_only_the_latter_say_their_kind() -> None:
    store, watched = Store(), item("a", 5)
    fed(store, *listed(watched))
    in_list = {name: value for name, value in manifest("a", 5).items() if name not in ("apiVersion", "kind")}
    assert fed(store, *listed(as_item(in_list), version="7")) == []
    assert store.get(key("a")) is watched


def test_indexes_follow_both_sides_of_a_change() -> None:
    store = Store()
    store.add_index("owner", lambda found: [owner.uid for owner in found.meta.owner_references or ()])
    one, two = as_item(owned("p", "job-1", 1)), as_item(owned("p", "job-2", 2))
    fed(store, *listed(one), Upserted(two))
    assert store.indexed("owner", "uid-job-1") == []
    assert store.indexed("owner", "uid-job-2") == [two]
    fed(store, Removed(two))
    assert store.indexed("owner", "uid-job-2") == []


def test_an_index_may_say_a_value_twice_or_none() -> None:
    store, values = Store(), {"a": ["x", "x"], "b": []}
    store.add_index("said", lambda found: values[found.key.name])
    for name in values:
        store.apply(Upserted(item(name, 1)))
    assert [found.key.name for found in store.indexed("said", "x")] == ["a"]
    values["a"], values["b"] = [], ["x", "y"]
    for name in values:
        store.apply(Upserted(item(name, 2)))
    assert [found.key.name for found in store.indexed("said", "x")] == ["b"]
    store.apply(Removed(item("b", 3)))
    assert store.indexed("said", "y") == []


NAMES = st.sampled_from("abcde")
VERSIONS = st.integers(1, 10**6)
WORLDS = st.dictionaries(NAMES, st.tuples(VERSIONS, st.sampled_from(["u1", "u2"])))


@given(st.lists(st.tuples(st.booleans(), WORLDS), min_size=1, max_size=8))
def test_changes_lead_from_each_world_to_the_next(
    worlds: list[tuple[bool, dict[str, tuple[int, str]]]],
) -> None:
    """By relist or by single events: who follows the changes has what the store has; so has the index."""
    store, follower = Store(), dict[Key, Item]()
    store.add_index("uid", lambda found: [found.meta.uid])
    for number, (relist, world) in enumerate(worlds):
        items = {Key("ns", name): item(name, rv, uid=uid) for name, (rv, uid) in world.items()}
        if relist or number == 0:
            changes = fed(store, *listed(*items.values(), version="5"))
        else:
            gone = [Removed(each) for each in store if each.key not in items]
            changes = fed(store, *gone, *map(Upserted, items.values()))
        for change in changes:
            if change.old:
                assert follower.pop(change.old.key) == change.old
            if change.new:
                follower[change.new.key] = change.new
        assert follower == items == {each.key: each for each in store}
        for uid in ("u1", "u2"):
            assert {each.key for each in store.indexed("uid", uid)} == {
                found.key for found in items.values() if found.meta.uid == uid
            }
        assert store.bytes == sum(len(each.raw) for each in items.values())
