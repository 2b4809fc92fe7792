"""Owner references and conditions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from elasticjob.kube.objects.conditions import find, is_true, manifest, set_condition
from elasticjob.kube.objects.owner import owner_reference
from elasticjob.kube.objects.views import CONFIG_MAP, Condition, ConfigMap, ObjectMeta, OwnerReference

NOON, LATER = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=UTC)
OWNER = ConfigMap(metadata=ObjectMeta(name="job", namespace="ns", uid="u"))


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
