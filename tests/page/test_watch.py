"""What the page shows of a cluster while it changes, goes away and comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.controllers.install import install
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.clock import SystemClock
from elasticjob.kube.controller.passes import Passes
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.views import EVENT, POD
from elasticjob.page.masters import Masters, Way
from elasticjob.page.watch import MOST_LOOKS, NoSuchPod, Watch, scope_of, watching
from lab.build.jobs import role
from lab.clusters.accounts import grant
from lab.clusters.namespaces import new_namespace
from lab.clusters.served import Served
from lab.troubles.switch import Switch
from lab.waiting import until


@asynccontextmanager
async def page(config: Config, namespace: str = "") -> AsyncIterator[Watch]:
    async with (
        Client(config) as client,
        aiohttp.ClientSession() as session,
        watching(client, Masters(client, session, Way.NONE), SystemClock(), namespace) as watch,
    ):
        yield watch


async def sees(watch: Watch, fact: Any, what: str, job_in: str = "") -> Any:
    """Wait until a fact is true of the list of jobs, or of `digits` in a namespace; return it all."""
    found: dict[str, Any] = {}

    async def holds() -> bool:
        found.clear()
        found.update(json.loads(await (watch.job(job_in, "digits") if job_in else watch.fleet())))
        return bool(fact(found))

    await until(holds, what)
    return found


def names(found: Any) -> list[str]:
    return [each["name"] for each in found["jobs"]]


async def create(client: Client, namespace: str, name: str = "digits") -> Manifest:
    spec = {"replicaSpecs": {"worker": role(1)}}
    return await client.create(ELASTICJOB.untyped(), {"metadata": {"name": name}, "spec": spec}, namespace)


async def test_jobs_come_and_go(served: Served, client: Client, namespace: str) -> None:
    await install(client)
    async with page(served.config(), namespace) as watch:
        found = await sees(watch, lambda found: found["cluster"]["ready"], "the page has read the cluster")
        assert found["jobs"] == []
        made = await create(client, namespace)
        await sees(watch, lambda found: names(found) == ["digits"], "the job is shown")
        about = {"kind": "ElasticJob", "name": "digits", "namespace": namespace}
        told = {"involvedObject": about, "reason": "Hello", "message": "<b>"}
        await client.create(EVENT.untyped(), {"metadata": {"generateName": "e"}, **told}, namespace)
        found = await sees(watch, lambda found: found["happened"], "the event is shown", namespace)
        assert (found["uid"], found["happened"][0]["text"]) == (made["metadata"]["uid"], "<b>")
        await client.delete(ELASTICJOB, "digits", namespace)
        await sees(watch, lambda found: names(found) == [], "the job is gone")
        await sees(watch, lambda found: found.get("missing"), "the page says that it is gone", namespace)


async def test_a_cluster_that_goes_away_is_shown_as_it_was(
    served: Served, client: Client, namespace: str
) -> None:
    await install(client)
    await create(client, namespace)
    port = urlsplit(served.url).port or 0
    async with Switch(port) as line:
        config = replace(served.config(), server=served.url.replace(f":{port}", f":{line.port}"))
        async with page(config, namespace) as watch:
            await sees(watch, lambda found: names(found) == ["digits"], "the job is shown")
            line.ports = [1]
            line.cut()
            away = await sees(watch, lambda found: found["cluster"]["api"], "it is said that it is away")
            assert names(away) == ["digits"]
            await create(client, namespace, "letters")
            line.ports = [port]
            back = await sees(watch, lambda found: len(names(found)) == 2, "it is followed again")
            await sees(watch, lambda found: not found["cluster"]["api"], "nothing is away any more")
            assert back["cluster"]["ready"]


async def test_a_user_of_one_namespace_sees_that_alone(
    served: Served, client: Client, namespace: str
) -> None:
    await install(client)
    other = await new_namespace(client, f"{namespace}-b", accounts=served.real)
    for each in (namespace, other):
        await create(client, each)
    looking = ["get", "list", "watch"]
    ours = {"elastic.iml.github.io": ["elasticjobs", "scaleplans"], "": ["pods"]}
    rules = [{"apiGroups": [group], "resources": kinds, "verbs": looking} for group, kinds in ours.items()]
    await grant(client, namespace, "ada", *rules)
    config = replace(served.config("ada", ()), namespace=namespace)
    async with Client(config) as ada:
        assert await scope_of(ada) == namespace
    assert await scope_of(client) == ""
    async with page(config, namespace) as watch:
        found = await sees(watch, lambda found: names(found), "her job is shown")
        assert [each["namespace"] for each in found["jobs"]] == [namespace]
        await sees(
            watch, lambda found: "nodes" in found["nodes"]["away"], "it is said why nodes are not shown"
        )
        job = await sees(watch, lambda found: found["eventsAway"], "and why events are not", namespace)
        assert "you may not list events" in job["eventsAway"]


async def test_logs_are_those_of_pods_of_jobs_alone(served: Served, client: Client, namespace: str) -> None:
    await install(client)
    pod = {
        "metadata": {"name": "stranger", "labels": {"elasticjob.dlrover/name": "digits"}},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    }
    await client.create(POD.untyped(), pod, namespace)
    async with page(served.config(), namespace) as watch:
        await sees(watch, lambda found: found["cluster"]["ready"], "the page has read the cluster")
        for name in ("stranger", "nobody"):
            with pytest.raises(NoSuchPod):
                await watch.log(namespace, name)


async def test_the_log_of_a_pod_with_a_sidecar_is_that_of_its_main_container() -> None:
    asked: list[str] = []

    class Kubelet:
        config = Config("http://kubelet")

        async def logs(self, pod: str, namespace: str, *, container: str, tail: int) -> AsyncIterator[bytes]:
            asked.append(container)
            yield b"a line"

    owner = {"apiVersion": "v1", "kind": "ElasticJob", "name": "digits", "uid": "j", "controller": True}
    about = {"name": "w-0", "labels": {"elasticjob.dlrover/name": "digits"}, "ownerReferences": [owner]}
    spec = {"containers": [{"name": "proxy"}, {"name": "main"}]}
    pod = POD.convert({"metadata": about, "spec": {"nodeName": "m1", **spec}})
    waiting = POD.convert({"metadata": {**about, "name": "w-1"}, "spec": spec})
    kubelet: Any = Kubelet()
    caches: Any = SimpleNamespace(pods={Key("", "w-0"): pod, Key("", "w-1"): waiting})
    session: Any = None
    passes = Passes("page", SystemClock(), Metrics())
    watch = Watch(kubelet, caches, Masters(kubelet, session), SystemClock(), passes=passes)
    for container in ("", "proxy"):
        assert json.loads(await watch.log("", "w-0", container)) == {"text": "a line", "note": ""}
    assert "w-1 has no machine yet" in json.loads(await watch.log("", "w-1"))["note"]  # and nobody is asked
    assert asked == ["main", "proxy"]


async def test_a_cluster_without_the_kind_says_what_to_install(tmp_path: Path, served: Served) -> None:
    if served.real:
        pytest.skip("its tests share the kinds")
    async with page(served.config()) as watch:
        found = await sees(watch, lambda found: found["cluster"]["api"], "what is missing is said")
        assert "install the operator" in found["cluster"]["api"]["act"]
        assert not found["cluster"]["ready"]


async def test_what_is_followed_and_kept_is_bounded(served: Served, client: Client, namespace: str) -> None:
    await install(client)
    async with page(served.config(), namespace) as watch:
        await asyncio.gather(*(watch.job(namespace, f"job-{number}") for number in range(300)))
        assert watch.sizes == (0, 128)  # nobody looks at what is not there
        await asyncio.gather(
            *(create(client, namespace, f"job-{number}") for number in range(MOST_LOOKS + 8))
        )
        await sees(watch, lambda found: len(found["jobs"]) == MOST_LOOKS + 8, "all jobs are shown")
        await asyncio.gather(*(watch.job(namespace, f"job-{number}") for number in range(MOST_LOOKS + 8)))
        assert watch.sizes[0] == MOST_LOOKS
        assert watch.sizes[1] <= 128
