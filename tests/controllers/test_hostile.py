"""Labels, annotations and statuses that somebody else has edited cost no pass of the job that has them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticjob import controllers
from elasticjob.api import readings
from elasticjob.api.v1alpha1 import common
from elasticjob.controllers.elasticjob.decide import decide as decide_job
from elasticjob.controllers.elasticjob.seen import Seen as SeenOfJob
from elasticjob.controllers.elasticjob.status import describe as describe_job
from elasticjob.controllers.jobresource.decide import Seen, decide
from elasticjob.controllers.jobresource.status import describe
from elasticjob.controllers.nodes.relaunch import Life, life_of
from elasticjob.controllers.parts import names
from elasticjob.controllers.passes.status_pace import News
from elasticjob.controllers.passes.triggers import (
    job_of,
    life_changed,
    machine_changed,
    more_than_reports,
    request_of,
)
from elasticjob.controllers.scaleplan.decide import Seen as SeenOfPlans
from elasticjob.controllers.scaleplan.decide import decide as decide_plans
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.store import Change
from elasticjob.kube.cache.wire import Item
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import NODE, POD
from lab.build.caches import caches, machine, pod, raw
from lab.build.jobs import NOW, at, ended, job, life, master, plan, resource, role

HOSTILE = (
    "",
    "NaN",
    "\x00",
    "x",
    "-1",
    "1e400",
    "1000000000",
    "9" * 5000,
    "a" * 300,
    "\u0663",
    "\U0001f600",
    "null",
    "[" * 100_000,
    '{"worker": NaN}',
    '{"worker": 1e999, "ps": -3, "x": true}',
    '{"worker": ' + "9" * 5000 + "}",
    '{"api": "nobody/v1", "name": "digits", "least": 2}',
    '{"api": "scheduling.volcano.sh/v1beta1", "name": "\\u0000", "least": 2}',
    '{"api": "scheduling.volcano.sh/v1beta1", "name": "digits", "least": -2}',
)
values = st.sampled_from(HOSTILE) | st.text(max_size=40)
KEYS = sorted(value for value in vars(names).values() if str(value).startswith("elasticjob.dlrover/"))
LABELS = sorted(value for name, value in vars(common).items() if name.startswith("LABEL_"))
ELASTIC = {"worker": role(2, minReplicas=1, maxReplicas=4)}


def lives(labels: dict[str, str], annotations: dict[str, str]) -> tuple[Life, ...]:
    made = Cache(POD).view(pod(metadata={"labels": labels, "annotations": annotations}))
    assert len(job_of(made)) == 1  # by its label, or its controller
    return tuple(filter(None, (life_of(made, {"m1"}),)))


@settings(max_examples=30)
@given(st.data())
def test_a_pass_reads_whatever_is_written(data: st.DataObject) -> None:
    def drawn(keys: list[str], known: dict[str, str]) -> dict[str, str]:
        return known | data.draw(st.dictionaries(st.sampled_from(keys), values, max_size=3))

    pods = lives(drawn(LABELS, names.pod_labels("digits", "worker", 0, 0)), drawn(KEYS, {}))
    restarts = {"worker": data.draw(st.dictionaries(values, st.integers(0, 9), max_size=3))}
    made = resource(status={"restarts": restarts})
    made.metadata.annotations.update(drawn(KEYS, {}))
    asked = job(ELASTIC, metadata={"annotations": drawn(KEYS, {})}, status={"workers": data.draw(values)})
    plans = (plan(f"digits-user-{data.draw(values)}", {"worker": 3}, manual=True),)

    seen = SeenOfJob(asked, made, (master(),), pods, plans)
    assert describe_job(seen, decide_job(seen, NOW), NOW).phase
    nodes = Seen(made, asked, pods, "10.0.0.1:50001", plans, (master(),))
    assert describe(nodes, decide(nodes, NOW), NOW).observed_generation == 1


@settings(max_examples=30)
@given(st.data())
def test_a_change_is_looked_at_whatever_is_written(data: st.DataObject) -> None:
    """What predicates and maps of watches raise would cost more than the object."""
    found = caches((NODE, machine()))
    news, key = News(), Key("ml", "digits")
    status = {"phase": "Running", "workers": "2/2"}
    news.hold(key, {}, status, NOW)

    def edited(keys: list[str]) -> dict[str, str]:
        return data.draw(st.dictionaries(st.sampled_from(keys), values, max_size=3))

    def of_pod() -> Item:
        return pod(metadata={"labels": edited(LABELS), "annotations": edited(KEYS)}, spec={"nodeName": "m1"})

    def of_job() -> Item:
        about = {"name": "digits", "namespace": "ml", "uid": "job-1", "annotations": edited(KEYS)}
        told = data.draw(
            st.sampled_from([status, {}, {"workers": 3}, {"training": {"released": "x"}}, "x", None])
        )
        return raw({"metadata": about, "spec": {"replicaSpecs": data.draw(values)}, "status": told})

    changes = [(life_changed(found), of_pod), (more_than_reports, of_job), (news.contradicts, of_job)]
    for predicate, made in changes:
        assert predicate(Change(made(), made())) in (True, False)
    node = {"metadata": {"name": "m1", "uid": "m1"}, "spec": {"taints": [edited(["key", "effect", "value"])]}}
    assert machine_changed(found)(Change(machine(), raw(node))) in (True, False)
    assert request_of(plan().model_copy(update={"metadata": resource().metadata})) == []


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_each_hostile_annotation_is_read(value: str) -> None:
    for key in KEYS:
        made = resource()
        made.metadata.annotations[key] = value
        seen = SeenOfJob(
            job(), made, (master(),), lives(names.pod_labels("digits", "worker", 0, 0), {key: value})
        )
        decide_job(seen, NOW)
        decide(Seen(made, job(), seen.lives, "10.0.0.1:50001"), NOW)


@given(st.integers(-(2**70), 2**70) | st.floats(0, allow_nan=False), st.datetimes(timezones=st.just(UTC)))
def test_no_number_of_seconds_leaves_the_calendar(seconds: float, moment: datetime) -> None:
    if seconds >= 0:
        assert moment <= readings.after(moment, readings.span(seconds)) <= readings.END_OF_TIME


def test_seconds_beyond_the_calendar_end_no_pass() -> None:
    """A webhook refuses them now; earlier releases did not."""
    policy = {f"{name}Seconds": 10**14 for name in ("activeDeadline", "pendingTimeout", "scalePlanDeadline")}
    asked = job(runPolicy={**policy, "forgiveRestartsAfterSeconds": 10**14}, status={"startTime": at(NOW)})
    going = (plan("up", {"worker": 2}, phase="Scaling", started=NOW),)
    pods = (ended(lived=timedelta(hours=1)), life(1))
    assert decide_job(SeenOfJob(asked, resource(), (master(),), pods, going), NOW).outcome is None
    assert decide(Seen(resource(), asked, pods, "10.0.0.1:50001", going), NOW).actions
    plans = decide_plans(SeenOfPlans(asked, resource(), going), NOW)
    assert plans.again_in == timedelta(seconds=readings.LONGEST_SECONDS)


ELSEWHERE = {"diserver", "settings.py", "served.py", "discovery.py", "fold.py"}
"""Other readings: of calls, of the environment, of the server's discovery, of names that were checked."""


def test_what_others_can_edit_is_read_in_one_place() -> None:
    folder = Path(str(controllers.__file__)).parent
    raw = re.compile(r"json\.loads|msgspec\.json\.decode|fromisoformat|isdecimal|isdigit")
    found = [
        path.relative_to(folder)
        for path in folder.rglob("*.py")
        if ELSEWHERE.isdisjoint(path.relative_to(folder).parts) and raw.search(path.read_text())
    ]
    assert found == []


def test_what_can_be_read_is() -> None:
    assert readings.counts('{"worker": 3, "ps": 0}') == {"worker": 3, "ps": 0}
    assert [readings.number(each, -1) for each in ("7", "x", None)] == [7, -1, -1]
