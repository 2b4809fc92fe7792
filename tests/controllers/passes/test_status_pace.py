"""What of a status is told at once, and what may wait."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from elasticjob.api.v1alpha1.elasticjob import ElasticJobStatus, Finding
from elasticjob.api.v1alpha1.jobresource import JobResourceStatus
from elasticjob.controllers.passes.status_pace import PAUSE, News
from elasticjob.kube.cache.store import Change
from elasticjob.kube.cache.wire import Item, Meta
from elasticjob.kube.objects.kinds import Key, Manifest
from lab.build.caches import raw
from lab.build.jobs import NOW

KEY = Key("ml", "digits")
STARTING = ("False", "Starting", "some are starting")
UP = ("True", "AsSpecified", "all nodes are ready")


def nodes(ready: int, ready_condition: Any = STARTING, **more: Any) -> Manifest:
    status, reason, message = ready_condition
    condition = {"type": "Ready", "status": status, "reason": reason, "message": f"{message}: {ready}"}
    sizes = {"worker": {"desired": 3, "current": 3, "ready": ready}}
    found = JobResourceStatus.model_validate({"conditions": [condition], "replicaStatuses": sizes, **more})
    return found.manifest()


def job(active: int, **more: Any) -> Manifest:
    sizes = {"worker": {"desired": 3, "active": active, **more}}
    status = {
        "type": "Running",
        "status": "True",
        "reason": "NodesRunning",
        "message": f"{active} of 3 nodes run",
    }
    workers = f"{active}/3"
    return ElasticJobStatus.model_validate(
        {"phase": "Running", "workers": workers, "conditions": [status], "replicaStatuses": sizes}
    ).manifest()


def test_each_finding_of_a_master_is_told_once() -> None:
    news = News()
    old, hang, loss = (
        Finding(time=NOW - timedelta(seconds=age), reason=reason, message="a sentence")
        for age, reason in ((3600, "Straggler"), (5, "Hang"), (1, "LossAlarm"))
    )
    assert news.findings(KEY, [old, hang], NOW) == [(hang, 1)]
    assert news.findings(KEY, [old, hang], NOW) == []
    over = hang.model_copy(update={"until": NOW})
    assert news.findings(KEY, [old, over, loss], NOW) == [(loss, 1)]
    news.forget(KEY)
    assert news.findings(KEY, [old], NOW) == []


def test_a_finding_that_is_counted_is_told_again_when_its_count_has_doubled() -> None:
    news, told = News(), []
    for count in range(1, 23):
        found = Finding(time=NOW, reason="WorkerFailed", message="it failed", count=count, last_time=NOW)
        told += [times for _, times in news.findings(KEY, [found], NOW)]
    assert told == [1, 1, 2, 4, 8]
    later = NOW + timedelta(hours=1)
    assert News().findings(KEY, [found], later) == []
    assert News().findings(KEY, [found.model_copy(update={"last_time": later})], later)[0][1] == 22


@pytest.mark.parametrize(
    ("status", "contradicts"),
    [
        (nodes(1), False),
        ({**nodes(1), "training": {"step": 3}}, False),
        ({**nodes(1), "restarts": {}}, False),
        (nodes(0), True),
        ({}, True),
        ("nothing of the kind", True),
        (None, True),
    ],
)
def test_what_differs_from_what_was_found_contradicts(status: Any, contradicts: bool) -> None:
    news, object_ = News(), raw({"metadata": {**KEY._asdict(), "uid": "1"}, "status": status})
    assert not news.contradicts(Change(None, object_))  # nothing was found yet
    news.hold(KEY, {}, nodes(1), NOW)
    assert news.contradicts(Change(None, object_)) is contradicts
    assert not news.contradicts(Change(object_, None))
    news.forget(KEY)
    assert not news.contradicts(Change(None, object_))


@pytest.mark.parametrize("status", [b'{"phase": "\xff"}', b'{"phase": ' + b"[" * 5000])
def test_what_cannot_be_read_contradicts(status: bytes) -> None:
    news, meta = News(), Meta(name=KEY.name, namespace=KEY.namespace)
    news.hold(KEY, {}, nodes(1), NOW)
    assert news.contradicts(Change(None, Item(KEY, meta, b'{"status": %s}' % status)))


@pytest.mark.parametrize(
    ("old", "new", "waits"),
    [
        (nodes(0), nodes(1), True),
        (nodes(2), nodes(1), True),
        (job(1), job(2), True),
        ({}, nodes(0), False),
        (nodes(2), nodes(3, UP), False),
        (nodes(2), nodes(3), False),
        (nodes(0), nodes(0, ("False", "Pending", "no image")), False),
        (nodes(1), nodes(1, restarts={"worker": {"0": 1}}), False),
        (nodes(1), nodes(1, observedGeneration=2), False),
        (job(2), job(3), False),
        (job(3), job(2), False),
        (job(1), job(1, failed=1), False),
    ],
)
def test_counting_waits_for_a_pause_and_nothing_else_does(old: Manifest, new: Manifest, waits: bool) -> None:
    news = News()
    assert news.hold(KEY, {}, old, NOW) is None
    soon = NOW + PAUSE / 4
    assert news.hold(KEY, old, new, soon) == (PAUSE * 3 / 4 if waits else None)
    assert news.hold(KEY, old, new, NOW + 2 * PAUSE) is None


def test_nothing_new_begins_no_pause() -> None:
    news = News()
    news.hold(KEY, nodes(1), nodes(1), NOW)
    assert news.hold(KEY, nodes(1), nodes(2), NOW) is None


def test_a_clock_that_is_set_back_holds_nothing() -> None:
    news = News()
    news.hold(KEY, nodes(0), nodes(1), NOW)
    assert news.hold(KEY, nodes(1), nodes(2), NOW - timedelta(hours=1)) is None


def test_an_object_that_comes_again_begins_anew() -> None:
    news = News()
    news.hold(KEY, nodes(0), nodes(1), NOW)
    news.forget(KEY)
    assert news.hold(KEY, nodes(0), nodes(1), NOW) is None


def test_what_somebody_else_writes_over_is_told_again_once_in_a_pause() -> None:
    """Two who both answer the other's word at once would write as fast as the server lets them."""
    news, ours, theirs, written = News(), nodes(3, UP), nodes(0, ("False", "Other", "somebody else's")), []
    for tenth in range(40):
        now = NOW + tenth * PAUSE / 10
        if news.hold(KEY, theirs, ours, now) is None:
            written.append(now)
    assert written == [NOW + pause * PAUSE for pause in range(4)]
