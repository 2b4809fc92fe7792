"""Owners, finalizers, conditions: the small edits that many objects share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from elasticjob.kube.conditions import find, is_true, manifest, set_condition
from elasticjob.kube.errors import Invalid
from elasticjob.kube.finalizers import add_finalizer, adding, remove_finalizer, removing
from elasticjob.kube.objects import CONFIG_MAP, NODE, Condition, ConfigMap, ObjectMeta, OwnerReference
from elasticjob.kube.owner import AlreadyOwned, owner_reference, set_controller
from tests.kube.build import manifest as thing
from tests.kube.build import status
from tests.kube.stub import Stub, answer

NOON, LATER = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=UTC)
OWNER = ConfigMap(metadata=ObjectMeta(name="job", namespace="ns", uid="u"))


def configured(*finalizers: str, deleted: bool = False) -> ConfigMap:
    meta = ObjectMeta(
        name="a",
        namespace="ns",
        uid="u",
        resource_version="7",
        finalizers=list(finalizers),
        deletion_timestamp=NOON if deleted else None,
    )
    return ConfigMap(metadata=meta)


def test_a_condition_moves_in_time_only_with_its_status() -> None:
    first = set_condition([], Condition(type="Ready", status="False", reason="Waiting"), NOON)
    again = set_condition(first, Condition(type="Ready", status="False", reason="StillWaiting"), LATER)
    assert (again[0].reason, again[0].last_transition_time) == ("StillWaiting", NOON)
    moved = set_condition(again, Condition(type="Ready", status="True", reason="Up"), LATER)
    assert (moved[0].status, moved[0].last_transition_time) == ("True", LATER)


def test_conditions_are_keyed_by_type_and_keep_their_order() -> None:
    old = [Condition(type=name, status="False", last_transition_time=NOON) for name in ("A", "B", "C")]
    new = set_condition(old, Condition(type="B", status="True"), LATER)
    new = set_condition(new, Condition(type="D", status="True", last_transition_time=NOON), LATER)
    assert [(each.type, each.status, each.last_transition_time) for each in new] == [
        ("A", "False", NOON),
        ("B", "True", LATER),
        ("C", "False", NOON),
        ("D", "True", NOON),
    ]
    assert is_true(new, "B")
    assert not is_true(new, "A")
    assert not is_true(new, "Z")
    assert find(new, "Z") is None


def test_a_condition_as_json_is_complete() -> None:
    made = Condition(
        type="Ready",
        status="True",
        reason="Up",
        message="ok",
        observed_generation=3,
        last_transition_time=NOON,
    )
    assert manifest(made) == {
        "type": "Ready",
        "status": "True",
        "reason": "Up",
        "message": "ok",
        "observedGeneration": 3,
        "lastTransitionTime": "2026-01-01T12:00:00Z",
    }
    assert msgspec.convert(manifest(made), Condition) == made


REFERENCE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "name": "job",
    "uid": "u",
    "controller": True,
    "blockOwnerDeletion": True,
}


def test_an_owner_reference_is_complete() -> None:
    assert owner_reference(OWNER, CONFIG_MAP) == REFERENCE
    assert msgspec.convert(REFERENCE, OwnerReference).controller


def test_one_controller_owns_an_object() -> None:
    plain: dict[str, Any] = {"metadata": {"name": "a", "namespace": "ns"}}
    owned = set_controller(plain, OWNER, CONFIG_MAP, "ns")
    assert owned["metadata"]["ownerReferences"] == [REFERENCE]
    assert set_controller(owned, OWNER, CONFIG_MAP, "ns") == owned
    assert "ownerReferences" not in plain["metadata"]
    rival = ConfigMap(metadata=ObjectMeta(name="rival", namespace="ns", uid="u2"))
    with pytest.raises(AlreadyOwned, match="'a' is controlled by ConfigMap 'job' already"):
        set_controller(owned, rival, CONFIG_MAP, "ns")


def test_owners_live_in_the_same_namespace_or_in_none() -> None:
    plain: dict[str, Any] = {"metadata": {"name": "a", "namespace": "elsewhere"}}
    with pytest.raises(ValueError, match="owners live in the same namespace"):
        set_controller(plain, OWNER, CONFIG_MAP, "ns")
    assert set_controller(plain, OWNER, NODE)["metadata"]["ownerReferences"][0]["kind"] == "Node"


def test_patches_touch_only_ones_own_finalizer() -> None:
    first = adding(configured(), "me")
    assert first == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/metadata/finalizers", "value": ["me"]},
    ]
    assert adding(configured("other"), "me") == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": "/metadata/finalizers", "value": ["other"]},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "me"},
    ]
    assert adding(configured("me"), "me") == []
    assert adding(configured("other", deleted=True), "me") is None
    assert removing(configured("other", "me"), "me") == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": "/metadata/finalizers/1", "value": "me"},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]
    assert removing(configured("other"), "me") == []


async def test_a_finalizer_list_that_changed_meanwhile_is_read_again() -> None:
    async with Stub() as stub, stub.client() as client:
        newer = thing("a", 8, uid="u", finalizers=["other", "another", "me"])
        stub.then(answer(422, status(422, "Invalid")), answer(200, newer), answer(200, newer))
        assert await remove_finalizer(client, CONFIG_MAP, configured("other", "me"), "me")
        assert msgspec.json.decode(stub.seen[2].body)[-1]["path"] == "/metadata/finalizers/2"


@pytest.mark.parametrize(("edit", "outcome"), [(add_finalizer, False), (remove_finalizer, True)])
async def test_the_finalizers_of_a_namesake_are_left_alone(edit: Any, outcome: bool) -> None:
    """The object is gone, and another of its name has come, whose clean-up is still to be done."""
    async with Stub() as stub, stub.client() as client:
        namesake = thing("a", 8, uid="another", finalizers=["me" if outcome else "other"])
        stub.then(answer(422, status(422, "Invalid")), answer(200, namesake))
        old = configured("me") if outcome else configured("other")
        assert await edit(client, CONFIG_MAP, old, "me") is outcome
        assert [seen.method for seen in stub.seen] == ["PATCH", "GET"]


async def test_a_finalizer_cannot_be_added_to_what_is_being_deleted() -> None:
    async with Stub() as stub, stub.client() as client:
        dying = thing("a", 8, uid="u", deletionTimestamp="2026-01-01T00:00:00Z")
        stub.then(answer(422, status(422, "Invalid")), answer(200, dying))
        assert await add_finalizer(client, CONFIG_MAP, configured(), "me") is False


async def test_what_is_gone_needs_no_finalizer() -> None:
    async with Stub() as stub, stub.client() as client:
        stub.then(answer(404, status(404, "NotFound")))
        assert await remove_finalizer(client, CONFIG_MAP, configured("me"), "me")


async def test_fighting_over_finalizers_comes_to_an_end() -> None:
    async with Stub() as stub, stub.client() as client:
        refused, other = (
            answer(422, status(422, "Invalid")),
            answer(200, thing("a", 8, uid="u", finalizers=["x"])),
        )
        stub.then(*[refused, other] * 10)
        with pytest.raises(Invalid):
            await add_finalizer(client, CONFIG_MAP, configured(), "me")
        assert len(stub.seen) == 7
