"""The client on an API server that answers as told: logs to their end, odd names, odd jobs, refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web

from elasticjob.cli.commands.logs import Printing
from elasticjob.cli.errors import Exit
from elasticjob.cli.jobs import following
from elasticjob.client import Client, ClientError, Denied, Refused, Unusable, errors
from elasticjob.client.logs import End, Line, Selection, Source, follow, latest
from elasticjob.kube.cache.informer import patient
from elasticjob.kube.client.client import Client as Kube
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.errors import Forbidden, Unauthorized
from elasticjob.kube.objects.kinds import Key, Manifest
from tests.kit.kube.listening import Listening
from tests.kit.kube.stub import page, stream

LOG = b"2026-01-01T00:00:01Z one\n2026-01-01T00:00:02Z two\n"
SYNCED = {"resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"}}


def job(phase: str) -> Manifest:
    about = {"name": "digits", "namespace": "team", "uid": "j", "resourceVersion": "5"}
    kind = {"apiVersion": "elastic.iml.github.io/v1alpha1", "kind": "ElasticJob"}
    return {**kind, "metadata": about, "spec": {}, "status": {"phase": phase}}


def pod(phase: str, state: Manifest, **status: Any) -> Manifest:
    labels = {
        "elasticjob.dlrover/name": "digits",
        "elasticjob.dlrover/replica-type": "worker",
        "elasticjob.dlrover/replica-index": "0",
    }
    about = {"name": "digits-worker-0", "namespace": "team", "uid": "p", "resourceVersion": "5"}
    main = [{"name": "main", "state": state}]
    return {
        "kind": "Pod",
        "metadata": {**about, "labels": labels},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main"}]},
        "status": {"phase": phase, "containerStatuses": main, **status},
    }


Logs = Callable[[web.Request], web.Response]


def no_logs(request: web.Request) -> web.Response:
    return web.Response()


def failure(code: int, message: str) -> web.Response:
    status = {"kind": "Status", "status": "Failure", "code": code, "message": message}
    return web.json_response(status, status=code)


@dataclass
class Server(Listening):
    """Serves one object of each plural; `logs` answers requests for a log; a `refused` name is not shown."""

    found: Mapping[str, Manifest]
    logs: Logs = no_logs
    refused: str = ""

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        last = request.path.rpartition("/")[2]
        if last == "log":
            return self.logs(request)
        if last == self.refused:
            return failure(401, "who are you?")
        if last not in self.found:
            named = (each for each in self.found.values() if each["metadata"]["name"] == last)
            return web.json_response(next(named))
        if "watch" not in request.query:
            return await page(self.found[last], rv=5)(request)
        synced = {"type": "BOOKMARK", "object": {"metadata": SYNCED}}
        events = ({"type": "ADDED", "object": self.found[last]}, synced)
        return await stream(*(json.dumps(each).encode() + b"\n" for each in events))(request)


@asynccontextmanager
async def serving(
    found: Mapping[str, Manifest], logs: Logs = no_logs, refused: str = ""
) -> AsyncIterator[Kube]:
    async with Server(found, logs, refused) as server, Kube(Config(server.url)) as client:
        yield client


@asynccontextmanager
async def using(found: Mapping[str, Manifest], logs: Logs = no_logs) -> AsyncIterator[Client]:
    """A client of that server."""
    async with serving(found, logs) as kube:
        client = Client("team")
        client._kube = kube
        yield client


async def followed(client: Kube, wanted: Selection) -> list[Line | End]:
    async with aclosing(follow(client, Key("team", "digits"), wanted, heed=patient)) as lines:
        return [each async for each in lines]


async def test_a_follower_that_wants_no_line_of_the_past_is_told_none() -> None:
    ended = pod("Succeeded", {"terminated": {"exitCode": 0}})

    def logs(request: web.Request) -> web.Response:
        few = request.query.get("tailLines")
        return web.Response(body=LOG if few is None else b"".join(LOG.splitlines(True)[-int(few) :]))

    async with serving({"elasticjobs": job("Succeeded"), "pods": ended}, logs) as client:
        none = await followed(client, Selection(tail=0))
        one = await followed(client, Selection(tail=1))
    assert [each.sentence for each in none if isinstance(each, End)] == ["ended"]
    assert [each.text for each in none if isinstance(each, Line)] == []
    assert [each.text for each in one if isinstance(each, Line)] == ["two"]


async def test_a_node_whose_init_container_failed_is_said_to_have_never_started() -> None:
    before = [{"name": "packages", "state": {"terminated": {"exitCode": 1}}}]
    waits = pod("Failed", {"waiting": {"reason": "PodInitializing"}}, initContainerStatuses=before)

    served = {"elasticjobs": job("Failed"), "pods": waits}
    async with serving(served, lambda _: failure(400, "waiting to start")) as client:
        (end,) = await followed(client, Selection())
    assert isinstance(end, End)
    assert end.sentence == "did not start: init container packages ended with exit code 1"


def test_the_last_piece_of_a_long_line_does_not_begin_a_log_anew() -> None:
    source = Source("digits-worker-0", "worker", 0, uid="p")
    assert latest([Line(7, source, "x"), Line(0, source, "x")]) == {"p": 7}


async def test_a_user_whose_token_expires_meanwhile_is_told_so_and_of_no_group() -> None:
    runs = {"elasticjobs": job("Running"), "pods": pod("Running", {"running": {}})}
    async with serving(runs, lambda _: web.Response(body=LOG), "digits-worker-0") as client:
        with pytest.raises(Unauthorized, match="who are you"):
            await followed(client, Selection())


async def test_a_followed_job_ends_as_it_ends_though_its_logs_may_not_be_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = {"elasticjobs": job("Succeeded"), "pods": pod("Running", {"running": {}})}
    async with using(runs, lambda _: failure(403, "no right")) as client:
        code = await following.follow_logs(client, "digits", Printing(prefix=False), "")
    assert code == Exit.DONE
    why = "ElasticJob team/digits: you may not get pods/log in namespace team: no right"
    assert f"its logs cannot be shown any more: {why}" in capsys.readouterr().err


async def test_lines_go_to_stdout_and_ends_of_nodes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"elasticjobs": job("Succeeded"), "pods": pod("Succeeded", {"terminated": {"exitCode": 0}})}
    async with using(found, lambda _: web.Response(body=LOG)) as client:
        await following.follow_logs(client, "digits", Printing(prefix=True), "")
    told = capsys.readouterr()
    assert told.out == "worker-0 | one\nworker-0 | two\n"
    assert "worker-0: ended" in told.err.splitlines()


@pytest.mark.parametrize("name", ["", ".", "..", "digits/status"])
async def test_a_name_that_is_another_address_is_refused(name: str) -> None:
    client = Client("team")
    for verb in (client.manifest, client.delete, client.suspend, client.describe, client.logs, client.wait):
        with pytest.raises(Unusable, match="is no name of a job"):
            await verb(name)
    with pytest.raises(Unusable, match="is no name of a namespace"):
        await client.get("digits", namespace="team/..")


async def test_a_job_of_another_version_is_named_and_can_be_read_and_deleted() -> None:
    odd = {**job("Running"), "spec": {"distributionStrategy": "Newer"}}
    async with using({"elasticjobs": odd, "pods": pod("Running", {})}) as client:
        assert (await client.manifest("digits"))["spec"] == odd["spec"]
        for verb in (client.get("digits"), client.list()):
            with pytest.raises(ClientError, match=r"(?s)digits does not fit this version: .*Newer"):
                await verb
        await client.delete("digits")


def test_a_quota_is_no_matter_of_rights() -> None:
    full = Forbidden(403, "Forbidden", 'configmaps "x" is forbidden: exceeded quota: small')
    other = Forbidden(403, "Forbidden", "user may not create configmaps")
    assert isinstance(errors.of(full, "ElasticJob team/x"), Refused)
    assert isinstance(errors.of(other, "ElasticJob team/x"), Denied)


async def test_who_follows_a_job_is_told_that_the_client_was_closed() -> None:
    served = {"elasticjobs": job("Running"), "pods": pod("Running", {})}
    async with using(served) as client, aclosing(client.follow("digits")) as states:
        assert [await anext(states), await anext(states)] == [job("Running")] * 2
        waiting = asyncio.create_task(anext(states))
        await asyncio.sleep(0)
        await client.kube.close()
        with pytest.raises(RuntimeError, match="the client is closed"):
            await waiting
