"""Telling users what happened, without getting in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from prometheus_client import CollectorRegistry

from elasticjob.kube.client.recorder import BURST, LONGEST_START, WAITING, Recorder, reference
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.errors import ConfigError
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.views import CONFIG_MAP, NODE, ConfigMap, Node, ObjectMeta, ObjectReference
from lab.build.objects import Manifest, status
from lab.running import beside
from tests.kit.kube.stub import Stub, answer, stream, until

CREATED = answer(201, {"kind": "Event", "metadata": {"name": "e"}})
THING = ConfigMap(metadata=ObjectMeta(name="a", namespace="ns", uid="u"))
ABOUT = reference(CONFIG_MAP, THING)


def other(number: int) -> ObjectReference:
    return ObjectReference(kind="ConfigMap", namespace="ns", name=f"n{number}", uid=f"u{number}")


@asynccontextmanager
async def recording(
    stub: Stub, *, running: bool = True
) -> AsyncIterator[tuple[Recorder, VirtualClock, Metrics]]:
    clock, metrics = VirtualClock(), Metrics(CollectorRegistry())
    async with stub.client(clock) as client:
        recorder = Recorder(client, "tester", metrics=metrics, suffix=lambda: "x")
        async with beside(recorder.run() if running else asyncio.sleep(0)):
            yield recorder, clock, metrics


def fate(metrics: Metrics, name: str) -> float:
    return metrics.registry.get_sample_value("elasticjob_kube_events_total", {"fate": name}) or 0.0


def body(stub: Stub, nth: int = 0) -> Manifest:
    found: Manifest = msgspec.json.decode(stub.seen[nth].body)
    return found


async def test_an_event_about_an_object_of_a_long_name_has_a_name_that_is_allowed() -> None:
    async with Stub() as stub, recording(stub) as (recorder, _, metrics):
        stub.then(CREATED)
        long = "a" * (LONGEST_START - 1) + "-" + "b" * 30
        recorder.event(
            ObjectReference(kind="ConfigMap", namespace="ns", name=long), "Normal", "Said", "hello"
        )
        await until(lambda: fate(metrics, "sent") == 1)
        assert body(stub)["metadata"]["name"] == "a" * (LONGEST_START - 1) + ".x"
        assert body(stub)["involvedObject"]["name"] == long


async def test_an_event_is_what_describe_reads() -> None:
    async with Stub() as stub, recording(stub) as (recorder, _, metrics):
        stub.then(CREATED)
        recorder.event(ABOUT, "Warning", "Lost", "a worker is lost")
        await until(lambda: fate(metrics, "sent") == 1)
        assert stub.seen[0].path == "/api/v1/namespaces/ns/events"
        sent = body(stub)
        assert sent["involvedObject"] == {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "namespace": "ns",
            "name": "a",
            "uid": "u",
        }
        shown = {name: sent[name] for name in ("type", "reason", "message", "count", "firstTimestamp")}
        assert shown == {
            "type": "Warning",
            "reason": "Lost",
            "message": "a worker is lost",
            "count": 1,
            "firstTimestamp": "2026-01-01T00:00:00Z",
        }


async def test_events_about_cluster_scoped_objects_go_to_default() -> None:
    async with Stub() as stub, recording(stub) as (recorder, _, metrics):
        stub.then(CREATED)
        recorder.event(reference(NODE, Node(metadata=ObjectMeta(name="n"))), "Normal", "R", "note")
        await until(lambda: fate(metrics, "sent") == 1)
        assert stub.seen[0].path == "/api/v1/namespaces/default/events"


async def test_the_same_again_raises_the_count_and_later_begins_anew() -> None:
    async with Stub() as stub, recording(stub) as (recorder, clock, metrics):
        stub.then(CREATED, CREATED, CREATED)
        for number, pause in enumerate((60, 600, 0), start=1):
            recorder.event(ABOUT, "Normal", "R", "note")
            await until(lambda number=number: fate(metrics, "sent") == number)  # type: ignore[misc]
            await clock.advance(pause)
        assert [seen.method for seen in stub.seen] == ["POST", "PATCH", "POST"]
        assert body(stub, 1) == {"count": 2, "lastTimestamp": "2026-01-01T00:01:00Z"}


async def test_an_event_that_has_expired_is_made_anew() -> None:
    async with Stub() as stub, recording(stub) as (recorder, _, metrics):
        stub.then(CREATED, answer(404, status(404, "NotFound")), CREATED)
        recorder.event(ABOUT, "Normal", "R", "note")
        recorder.event(ABOUT, "Normal", "R", "note")
        await until(lambda: fate(metrics, "sent") == 2)
        assert [seen.method for seen in stub.seen] == ["POST", "PATCH", "POST"]


async def test_who_is_talked_about_too_much_is_heard_now_and_then() -> None:
    async with Stub() as stub, recording(stub, running=False) as (recorder, clock, metrics):
        for number in range(BURST + 5):
            recorder.event(ABOUT, "Normal", "R", f"note {number}")
        recorder.event(other(1), "Normal", "R", "another is heard")
        assert fate(metrics, "filtered") == 5
        await clock.advance(300)
        recorder.event(ABOUT, "Normal", "R", "one more")
        recorder.event(ABOUT, "Normal", "R", "and not two")
        assert fate(metrics, "filtered") == 6


async def test_telling_never_blocks_and_drops_are_counted() -> None:
    async with Stub() as stub, recording(stub, running=False) as (recorder, _, metrics):
        for number in range(WAITING + 3):
            recorder.event(other(number), "Normal", "R", "note")
        assert fate(metrics, "dropped") == 3


async def test_trouble_of_the_server_is_waited_out() -> None:
    async with Stub() as stub, recording(stub) as (recorder, clock, metrics):
        stub.then(answer(503, status(503, "ServiceUnavailable")), CREATED)
        recorder.event(ABOUT, "Normal", "R", "note")
        await until(lambda: fate(metrics, "sent") == 1, clock)


async def test_what_is_refused_is_let_go() -> None:
    async with Stub() as stub, recording(stub) as (recorder, _, metrics):
        stub.then(answer(403, status(403, "Forbidden", "the namespace is being terminated")), CREATED)
        recorder.event(ABOUT, "Normal", "R", "note")
        recorder.event(other(2), "Normal", "R", "note")
        await until(lambda: fate(metrics, "sent") == 1)
        assert fate(metrics, "failed") == 1


async def test_draining_sends_what_waits() -> None:
    async with Stub() as stub, stub.client() as client:
        stub.then(CREATED, CREATED)
        recorder = Recorder(client, "tester")
        recorder.event(other(1), "Normal", "R", "note")
        recorder.event(other(2), "Normal", "R", "note")
        recorder.drain()
        await recorder.run()
        assert len(stub.seen) == 2


async def test_an_event_whose_answer_was_cut_is_not_made_twice() -> None:
    async with Stub() as stub, stub.client(clock := VirtualClock()) as client:
        metrics = Metrics(CollectorRegistry())
        recorder = Recorder(client, "tester", metrics=metrics)
        stub.then(stream(end="cut"), answer(409, status(409, "AlreadyExists")), CREATED)
        recorder.event(ABOUT, "Normal", "R", "note")
        recorder.drain()
        running = asyncio.create_task(recorder.run())
        await until(running.done, clock)
        assert body(stub, 0)["metadata"]["name"] == body(stub, 1)["metadata"]["name"]
        assert (fate(metrics, "sent"), fate(metrics, "failed")) == (1, 0)


class NoToken:
    """Credentials that cannot be read just now."""

    async def header(self, refused: str | None = None) -> str | None:
        raise ConfigError("the token file is being replaced")


async def test_what_cannot_be_sent_does_not_end_the_recorder() -> None:
    async with Stub() as stub, stub.client(clock := VirtualClock(), NoToken()) as client:
        metrics = Metrics(CollectorRegistry())
        recorder = Recorder(client, "tester", metrics=metrics)
        recorder.event(ABOUT, "Normal", "R", "note")
        recorder.drain()
        running = asyncio.create_task(recorder.run())
        await until(running.done, clock)
        await running
        assert fate(metrics, "failed") == 1
