"""Which changes of a job are worth a pass."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from elasticjob.controllers.observe import more_than_training
from elasticjob.kube.store import Change
from elasticjob.kube.wire import Item, item_of


def job(version: int, *, annotations: Any = None, spec: Any = None, **status: Any) -> Item:
    metadata = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": str(version)}
    made = {"metadata": metadata | ({"annotations": annotations} if annotations else {}), "spec": spec or {}}
    return item_of(msgspec.json.encode(made | ({"status": status} if status else {})))


@pytest.mark.parametrize(
    ("old", "new", "worth"),
    [
        (job(1, training={"step": 1}, phase="Running"), job(2, training={"step": 2}, phase="Running"), False),
        (job(1, phase="Running"), job(2, phase="Running", training={"step": 1}), False),
        (job(1), job(2, training={"step": 1}), False),
        (job(1, training={"step": 1}), job(2, training={"step": 2}, phase="Running"), True),
        (job(1), job(2, spec={"suspend": True}), True),
        (job(1), job(2, annotations={"a": "b"}), True),
        (None, job(1, training={"step": 1}), True),
        (job(1), None, True),
    ],
)
def test_what_a_master_reports_each_second_is_no_reason_for_a_pass(
    old: Item | None, new: Item | None, worth: bool
) -> None:
    assert more_than_training(Change(old, new)) is worth
