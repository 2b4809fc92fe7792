"""Pods as lives: read once, and again when the pod or its Node has changed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.controllers.parts import names
from elasticjob.controllers.passes.observe import MOST_LIVES
from elasticjob.controllers.passes.triggers import EACH_POD, job_of, settling_time
from elasticjob.kube.cache.protocol import Removed, Upserted
from elasticjob.kube.cache.wire import Item
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import NODE, POD
from lab.build.caches import caches, machine, pod, raw
from lab.build.jobs import NOW, resource

SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
RUNS: Any = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}


def placed(version: int, status: Any = None) -> Item:
    return pod(metadata={"resourceVersion": str(version)}, spec={"nodeName": "m1"}, status=status)


def test_a_life_is_read_again_when_its_pod_or_its_machine_has_changed() -> None:
    found = caches((POD, placed(1)), (NODE, machine()))
    (first,) = found.lives("res-1", NOW)
    assert found.lives("res-1", NOW)[0] is first
    found.pods.take(Upserted(placed(2, RUNS)))
    (second,) = found.lives("res-1", NOW)
    assert (first.running, second.running) == (False, True)
    found.machines.take(Upserted(machine(taints=[{"key": SHUTDOWN, "effect": "NoExecute"}])))
    assert found.lives("res-1", NOW)[0] is not second
    found.machines.take(Removed(machine()))
    assert found.lives("res-1", NOW)[0].lost
    found.pods.take(Removed(placed(4)))
    assert found.lives("res-1", NOW) == ()


def test_a_pod_is_a_life_of_its_controller_alone_whoever_asks_first() -> None:
    found = caches((POD, pod(metadata={"resourceVersion": "1"})))
    assert found.lives("another", NOW) == ()
    assert len(found.lives("res-1", NOW)) == 1
    assert found.lives("another", NOW) == ()


def test_a_pod_is_found_by_its_label_whoever_its_controller_is() -> None:
    found = caches((POD, pod(metadata={"resourceVersion": "1", "ownerReferences": []})))
    (life,) = found.by_labels(Key("ml", "digits"), NOW)
    assert found.lives("", NOW) == ()
    found.pods.take(Removed(pod(metadata={"resourceVersion": "2"})))
    assert found.by_labels(Key("ml", "digits"), NOW) == ()
    assert life.role == "worker"


def test_a_pod_whose_label_names_another_job_is_of_its_controllers() -> None:
    """Anybody may edit labels: a pod that ended with such a label was never looked at again."""
    found = caches((POD, pod(labels={**names.pod_labels("digits", "worker", 0, 0), LABEL_JOB: "another"})))
    (item,) = found.pods.items()
    assert job_of(found.pods.view(item)) == [Key("ml", "digits")]
    assert len(found.by_labels(Key("ml", "digits"), NOW)) == 1
    assert found.by_labels(Key("ml", "another"), NOW) == ()


def test_more_lives_than_are_remembered_are_all_found() -> None:
    count = MOST_LIVES + 3
    found = caches(*((POD, pod(index)) for index in range(count)))
    for _ in range(2):
        assert len(found.lives("res-1", NOW)) == count


def test_changes_of_large_jobs_gather_for_longer() -> None:
    least, key = timedelta(milliseconds=50), Key("ml", "digits")
    shown = (JOBRESOURCE, raw(resource().manifest()))
    wait = settling_time(least, caches(shown, *((POD, pod(index)) for index in range(20))))
    assert wait(key) == least + 20 * EACH_POD
    assert wait(Key("ml", "another")) == least
