"""Waits report once that the API server is away, and end with errors that only a person can mend."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from typer.testing import Result

from elasticjob.api.crds import manifests
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.errors import Exit
from elasticjob.client import Client, Denied, SyncClient, trouble
from elasticjob.client.trouble import AWAY, SETTLING, Trouble
from elasticjob.kube.client.client import Client as Kube
from elasticjob.kube.crd.installing import install
from elasticjob.kube.errors import ConfigError, Forbidden, KubeError, NotFound, ServerError, Unreachable
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.testing import FaultProxy, Refuse, asking, failure
from lab.clusters.accounts import grant
from lab.clusters.served import Served
from lab.waiting import PATIENCE, until
from tests.kit.commands import invoke

CUT, BUSY = Unreachable("connection refused"), ServerError(503, "ServiceUnavailable", "starting")
NO_RIGHT = Forbidden(403, "Forbidden", "not you")
GROUP: Final = "elastic.iml.github.io"
JOB: Final[Manifest] = {
    "metadata": {"name": "digits"},
    "spec": {"replicaSpecs": {"worker": {"replicas": 1, "template": {"spec": {"containers": []}}}}},
}


@pytest.mark.parametrize(
    ("heard", "told"),
    [
        ([(0, CUT), (1, None)], []),
        ([(0, CUT), (AWAY, CUT)], ["does not answer"]),
        ([(0, BUSY), (AWAY, CUT), (60, BUSY), (61, None)], ["does not answer", "answers again"]),
        ([(0, CUT), (1, None), (9, CUT), (10, None)], []),
        ([(0, CUT), (9, CUT), (10, None), (20, CUT), (30, CUT)], ["does not", "answers", "does not"]),
        ([(0, CUT), (AWAY, CUT), (AWAY + 1, NO_RIGHT), (AWAY + 2, None)], ["does not answer", "answers"]),
    ],
)
def test_a_server_that_is_away_is_told_once(
    heard: Sequence[tuple[float, KubeError | None]], told: list[str]
) -> None:
    found: list[str] = []
    play(heard, found)
    assert len(found) == len(told)
    assert all(word in sentence for word, sentence in zip(told, found, strict=True))


@pytest.mark.parametrize(
    "heard",
    [
        [(0, NO_RIGHT)],
        [(0, ConfigError("the plugin wants a login"))],
        [(0, NotFound(404, "NotFound", "no such kind"))],
        [(0, CUT), (1, NO_RIGHT), (1 + SETTLING, NO_RIGHT)],
    ],
)
def test_what_a_person_must_mend_ends_the_waiting(heard: Sequence[tuple[float, KubeError]]) -> None:
    with pytest.raises(type(heard[-1][1])):
        play(heard, [])


def play(heard: Sequence[tuple[float, KubeError | None]], told: list[str]) -> None:
    """Let somebody who waits hear of errors and answers, each at a moment."""
    moments = iter([at for at, error in heard if error])
    heed = Trouble("https://cluster", told.append, lambda: next(moments))
    for _, error in heard:
        heed(error)


@pytest.fixture
async def team(client: Kube, namespace: str) -> str:
    """A namespace with a job that no operator looks after."""
    await install(client, manifests(), manager="test")
    await client.create(ELASTICJOB.untyped(), JOB, namespace)
    return namespace


@pytest.fixture
async def proxy(served: Served) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(served.config()) as found:
        yield found


async def elasticjob(kubeconfig: Path, *words: str) -> Result:
    """Run a command in a thread: a loop runs in this one."""
    told = asyncio.to_thread(invoke, words[0], "--kubeconfig", kubeconfig, *words[1:])
    return await asyncio.wait_for(told, PATIENCE)


WAITING: Final = (
    ("wait", "digits"),
    ("logs", "digits", "--follow"),
    ("list", "--watch"),
    ("get", "digits", "--watch"),
    ("dashboard",),
)


async def test_each_command_that_waits_ends_where_the_right_to_watch_is_missing(
    served: Served, client: Kube, team: str, tmp_path: Path
) -> None:
    jobs = {"apiGroups": [GROUP], "resources": ["elasticjobs"], "verbs": ["get", "list"]}
    others = {"apiGroups": [GROUP, ""], "resources": ["scaleplans", "pods"]}
    await grant(client, team, "jane", jobs, {**others, "verbs": ["get", "list", "watch"]})
    async with FaultProxy(served.config("jane", ())) as proxy:
        path = proxy.write_kubeconfig(tmp_path / "jane")
        for words in WAITING:
            found = await elasticjob(path, *words, "-n", team)
            assert found.exit_code == Exit.REFUSED, (words, found.output)
            [said] = found.stderr.splitlines()
            assert f"you may not watch elasticjobs in namespace {team}: " in said, words
            assert f"kubectl auth can-i watch elasticjobs.{GROUP} -n {team} says whether you may" in said


async def test_each_command_ends_where_the_token_has_expired(
    proxy: FaultProxy, team: str, tmp_path: Path
) -> None:
    path = proxy.write_kubeconfig(tmp_path / "expired")
    proxy.add(asking("watch"), failure(401, "Unauthorized", "Unauthorized"))
    for words in WAITING:
        found = await elasticjob(path, *words, "-n", team)
        assert (found.exit_code, len(found.stderr.splitlines())) == (Exit.REFUSED, 1), (words, found.output)
        assert re.search(rf"refuses to watch \w+ in namespace {team}: .+; log in again: ", found.stderr)
    proxy.add(asking(), failure(401, "Unauthorized", "Unauthorized"))
    for words in (("logs", "digits"), ("doctor", "digits"), ("doctor",), ("list",), ("crds", "--apply")):
        place = () if words[0] == "crds" else ("-n", team)
        found = await elasticjob(path, *words, *place)
        assert (found.exit_code, "log in again" in found.stderr) == (Exit.REFUSED, True), (
            words,
            found.output,
        )


async def test_a_script_s_client_is_told_what_was_refused(
    proxy: FaultProxy, team: str, tmp_path: Path
) -> None:
    path = proxy.write_kubeconfig(tmp_path / "expired")
    proxy.add(asking("watch"), failure(403, "Forbidden", "not you"))

    def waits() -> None:
        with SyncClient(team, kubeconfig=path) as client:
            client.wait("digits", "running", timeout=PATIENCE)

    with pytest.raises(Denied, match=f"may not watch elasticjobs in namespace {team}: not you"):
        await asyncio.to_thread(waits)


async def test_who_waits_is_told_that_the_server_is_away_and_waits_on(
    proxy: FaultProxy, client: Kube, team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trouble, "AWAY", 0.1)
    told: list[str] = []
    path = proxy.write_kubeconfig(tmp_path / "away")
    async with Client(team, kubeconfig=path, tell=told.append) as mine:
        proxy.add(asking("watch"), Refuse())
        waiting = asyncio.create_task(mine.wait("digits", "suspended", timeout=PATIENCE))

        await until(lambda: told, "that the server is away is told")
        proxy.clear()
        status = {"status": {"conditions": [{"type": "Suspended", "status": "True"}]}}
        await client.merge_patch(ELASTICJOB.untyped(), "digits", status, team, subresource="status")
        assert await waiting is not None
    assert [proxy.url in each for each in told] == [True, True]
    assert ["does not answer" in told[0], "answers again" in told[1]] == [True, True]
