"""Kinds and views, clocks and pauses, predicates: the small things that all others rest on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from elasticjob.kube.backoff import RECONCILE, WATCH, Failures
from elasticjob.kube.cache.store import Change
from elasticjob.kube.clock import SystemClock, VirtualClock, deadline
from elasticjob.kube.controller.predicates import Predicate, any_change, any_of, generation_changed
from elasticjob.kube.objects.kinds import Key, Kind
from elasticjob.kube.objects.views import CRD, LEASE, NODE, POD, SECRET, SERVICE
from lab.build.objects import item


@pytest.mark.parametrize(
    ("kind", "arguments", "path"),
    [
        (POD, ("ns", "a"), "/api/v1/namespaces/ns/pods/a"),
        (POD, ("ns", "a", "log"), "/api/v1/namespaces/ns/pods/a/log"),
        (POD, ("ns",), "/api/v1/namespaces/ns/pods"),
        (POD, (), "/api/v1/pods"),
        (NODE, ("ignored", "n"), "/api/v1/nodes/n"),
        (LEASE, ("ns", "l"), "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l"),
        (CRD, ("", "x"), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x"),
    ],
)
def test_paths(kind: Kind[Any], arguments: tuple[str, ...], path: str) -> None:
    assert kind.path(*arguments) == path


def test_a_namespaced_object_needs_its_namespace() -> None:
    with pytest.raises(ValueError, match="Pod 'a' is namespaced"):
        POD.path("", "a")
    for name in ("a/b", "../x", "..", "a?b", "a%2fb", "a b", "a\x1b"):
        with pytest.raises(ValueError, match="no object is called so"):
            POD.path("team", name)


def test_names() -> None:
    assert (POD.api_version, LEASE.api_version) == ("v1", "coordination.k8s.io/v1")
    assert (POD.resource, LEASE.resource) == ("pods", "leases.coordination.k8s.io")
    assert (str(Key("ns", "a")), str(Key("", "n"))) == ("ns/a", "n")


def test_a_pod_is_read_narrowly_and_null_means_absent() -> None:
    raw = msgspec.json.encode(
        {
            "metadata": {"name": "p", "creationTimestamp": None, "labels": None, "unknown": 1},
            "spec": {"containers": [{"name": "c", "command": None, "resources": {"limits": {"cpu": 1}}}]},
            "status": {
                "phase": "Running",
                "podIP": "127.0.0.9",
                "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": None}],
                "containerStatuses": [
                    {"name": "c", "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
                ],
            },
        }
    )
    pod = POD.decode(raw)
    assert (pod.metadata.labels, pod.metadata.creation_timestamp) == ({}, None)
    assert pod.spec.containers[0].resources.limits == {"cpu": 1}
    assert (pod.status.pod_ip, pod.spec.restart_policy) == ("127.0.0.9", "Always")
    terminated = pod.status.container_statuses[0].last_state.terminated
    assert terminated is not None
    assert (terminated.exit_code, terminated.reason) == (137, "OOMKilled")


def test_secrets_are_decoded_and_named_ports_kept() -> None:
    assert SECRET.convert({"data": {"token": "c2VjcmV0"}}).data == {"token": b"secret"}
    service = SERVICE.convert({"spec": {"clusterIP": "None", "ports": [{"port": 80, "targetPort": "web"}]}})
    assert (service.spec.cluster_ip, service.spec.ports[0].target_port) == ("None", "web")


class Thing(BaseModel):
    count: int


def test_a_kind_may_decode_to_pydantic_or_to_plain_json() -> None:
    kind = Kind("x.io", "v1", "Thing", "things", Thing)
    assert kind.decode(b'{"count": 3}').count == 3
    assert kind.untyped().decode(b'{"count": null}') == {"count": None}
    with pytest.raises(ValueError, match="count"):
        kind.decode(b'{"count": "many"}')
    with pytest.raises(ValueError, match="phase"):
        POD.decode(b'{"status": {"phase": 5}}')


async def test_virtual_time_runs_what_falls_due_in_order() -> None:
    clock, seen = VirtualClock(), list[tuple[float, str]]()
    clock.call_later(2, lambda: seen.append((clock.monotonic(), "two")))
    clock.call_later(1, lambda: seen.append((clock.monotonic(), "one")))
    clock.call_later(1.5, lambda: seen.append((clock.monotonic(), "never"))).cancel()
    sleeper = asyncio.create_task(clock.sleep(3))
    await clock.advance(2.5)
    assert seen == [(1.0, "one"), (2.0, "two")]
    assert (clock.next_due, sleeper.done()) == (0.5, False)
    await clock.advance(0.5)
    assert sleeper.done()
    assert clock.now() == datetime(2026, 1, 1, 0, 0, 3, tzinfo=UTC)
    assert clock.next_due is None


async def test_a_machine_that_slept_finds_what_fell_due() -> None:
    clock, seen = VirtualClock(), list[float]()
    clock.call_later(1, lambda: seen.append(clock.monotonic()))
    clock.jump(100)
    assert (seen, clock.next_due) == ([], 0.0)
    await clock.advance(0)
    assert seen == [100.0]


async def test_a_deadline_on_virtual_time() -> None:
    clock = VirtualClock()

    async def slow() -> None:
        async with deadline(clock, 5):
            await clock.sleep(60)

    task = asyncio.create_task(slow())
    await clock.advance(4.9)
    assert not task.done()
    await clock.advance(0.2)
    with pytest.raises(TimeoutError):
        await task
    async with deadline(clock, None), deadline(clock, 5):
        await clock.sleep(0)
    await clock.advance(60)


async def test_the_system_clock_is_the_machine_s() -> None:
    clock, called = SystemClock(), asyncio.Event()
    before = clock.monotonic()
    clock.call_later(-1, called.set)
    await called.wait()
    await clock.sleep(0)
    assert clock.monotonic() >= before
    assert clock.now() - datetime.now(UTC) < timedelta(seconds=5)


def test_pauses_double_up_to_the_limit_and_start_over() -> None:
    assert [RECONCILE.delay(number) for number in (1, 2, 3, 30, 500)] == [0.005, 0.01, 0.02, 1000.0, 1000.0]
    assert WATCH.delay(1, 0.5) == pytest.approx(1.2)
    failures, now, pauses = Failures(WATCH), 0.0, []
    for pause in (0, 0, 0, 119, 0, 121):
        now += pause
        failures, seconds = failures.another(now, lambda: 0.0)
        now += seconds
        pauses.append(seconds)
    assert pauses == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 0.8])


OLD = item("a", 1, generation=1, labels={"x": "1"})
SPEC = item("a", 2, generation=2, labels={"x": "1"})
DELETED = item("a", 2, generation=1, labels={"x": "1"}, deletionTimestamp="2026-01-01T00:00:00Z")
LABELS = item("a", 2, generation=1, labels={"x": "2"})
STATUS = item("a", 2, generation=1, labels={"x": "1"})


@pytest.mark.parametrize(
    ("predicate", "passes"),
    [
        (any_change, "SPEC DELETED LABELS STATUS"),
        (generation_changed, "SPEC DELETED"),
        (any_of(generation_changed, lambda change: change.new is LABELS), "SPEC DELETED LABELS"),
    ],
)
def test_predicates(predicate: Predicate, passes: str) -> None:
    changes = {"SPEC": SPEC, "DELETED": DELETED, "LABELS": LABELS, "STATUS": STATUS}
    assert [name for name, new in changes.items() if predicate(Change(OLD, new))] == passes.split()


def test_coming_and_going_always_matters() -> None:
    for change in (Change(None, OLD), Change(OLD, None)):
        assert generation_changed(change)


def loaded_by(*modules: str) -> set[str]:
    code = f"import sys, {', '.join(f'elasticjob.{module}' for module in modules)}; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


def test_importing_the_framework_brings_no_heavy_parts() -> None:
    loaded = loaded_by("kube.client.client", "kube.operator.operator", "kube.client.config")
    assert not loaded & {"kubernetes_asyncio", "cryptography", "pydantic"}


LIGHT = {"elasticjob.kube.crd", "elasticjob.kube.crd.model", "elasticjob.kube.crd.schemas"}


def test_kinds_and_operators_load_the_model_without_the_generator() -> None:
    loaded = loaded_by("api.v1alpha1.elasticjob", "api.v1alpha1.scaleplan", "controllers.main")
    assert {name for name in loaded if name.startswith("elasticjob.kube.crd")} == LIGHT
    assert not loaded & {"re2", "cel_expr_python"}
