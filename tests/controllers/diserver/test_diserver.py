"""di-server: its calls, on a real cluster, as DI-engine's client makes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from elasticjob.api.diengine import names
from elasticjob.api.diengine.access import token_of
from elasticjob.api.diengine.aggregatorconfig import AGGREGATORCONFIG
from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.diengine.pods import has_token
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import NotFound
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import POD, Pod
from elasticjob.kube.testing.asked import asking
from elasticjob.kube.testing.faults import FaultProxy, Late
from lab.build import manifests
from lab.build.dijobs import Caller, Told, di_server, encoded
from lab.build.manifests import ABSENT, changed
from lab.clusters.accounts import account_beside
from lab.jobs.site import Site, Stage
from lab.truths.leftovers import CLUSTER_ROLE_BINDING
from lab.waiting import PATIENCE, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
RIGHTS = Path("config/diengine/rbac.yaml").read_text()
QUOTA: Kind[Manifest] = Kind("", "v1", "ResourceQuota", "resourcequotas", dict)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(stage: Stage) -> AsyncIterator[str]:
    """di-server of this module's cluster, with the rights that it is shipped with and no others."""
    account = await account_beside(RIGHTS, "elasticjob-di-server", stage.place, stage.client)
    async with Client(account) as mine, di_server(mine, agconfig_namespace="lab") as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def caller(site: Site, session: aiohttp.ClientSession, url: str) -> AsyncIterator[Caller]:
    """The coordinator of a job of this test, which is gone afterwards."""
    await made(site)
    yield Caller(session, url, site.namespace)
    for job in await site.client.list(DIJOB, site.namespace):
        await site.client.delete(DIJOB, job.metadata.name, site.namespace)
    await site.has_only(POD)


async def made(site: Site, name: str = "cartpole", **changes: Any) -> None:
    """Make a job, and wait for its coordinator."""
    manifest = changed(manifests.DIJOB, {"metadata": {"name": name}, **changes})
    await site.client.create(DIJOB.untyped(), manifest, site.namespace)

    async def is_there() -> bool:
        return await site.client.find(POD, f"{name}-coordinator", site.namespace) is not None

    await until(is_there, "the coordinator is made")


async def pods(site: Site, role: str) -> dict[str, Pod]:
    chosen = f"{names.LABEL_ROLE}={role}"
    return {pod.metadata.name: pod for pod in await site.client.list(POD, site.namespace, labels=chosen)}


def name_of(url: str) -> str:
    """The pod in a URL, as DI-engine's client reads it."""
    host, _ = url.split(":")
    return host.rpartition(".")[0]


async def test_replicas_are_made_listed_and_deleted(site: Site, caller: Caller) -> None:
    told = await caller.add(2, 1)
    assert (told.status, told.success, told.message) == (200, True, "successfully create replicas")
    assert (len(told.collectors), len(told.learners)) == (2, 1)
    assert {name_of(each) for each in told.collectors} == set(await pods(site, "collector"))
    assert (await caller.get()).data == told.data  # what was written is read at once
    gone = await caller.remove(1, 9)
    assert (gone.message, len(gone.collectors), gone.learners) == (
        "successfully delete replicas",
        1,
        told.learners,
    )
    left = await caller.get()
    assert (set(left.collectors), left.learners) == (set(told.collectors) - set(gone.collectors), [])
    other = await caller.call("GET", f"/replicas?Namespace={site.namespace}", prefix="/v1alpha2")
    assert other.data == [left.data]
    assert left.data in (await caller.call("GET", "/replicas")).data
    one = await caller.get(namespace=site.namespace, name=name_of(left.collectors[0]))
    assert one.collectors == left.collectors
    assert (await caller.get(namespace=site.namespace, name="nobody")).data is None


async def test_a_failed_replica_has_another_in_its_place_once(site: Site, caller: Caller) -> None:
    first = (await caller.add(1, 1)).data
    await runs(site, *map(name_of, (*first["collectors"], *first["learners"])))
    bad = name_of(first["collectors"][0])
    told = await caller.failed([bad, bad])
    assert told.message == "successfully recreate replicas"
    (new,) = told.collectors
    assert name_of(new) != bad
    assert (await caller.get()).collectors == [new]
    again = await caller.failed([bad])  # the response may have been lost
    assert again.collectors == [new]
    for named, status in (
        (["cartpole-coordinator"], 400),
        (["cartpole-collector-zzzzz"], 404),
        ([name_of(first["learners"][0])], 404),
    ):
        refused = await caller.failed(named)
        assert (refused.status, refused.success, refused.collectors) == (status, False, [])
    assert set(await pods(site, "collector")) == {name_of(new)}


async def runs(site: Site, *wanted: str) -> None:
    async def do() -> bool:
        found = [await site.client.get(POD, name, site.namespace) for name in wanted]
        return all(pod.status.phase == "Running" for pod in found)

    await until(do, f"{wanted} run")


async def test_a_starting_replica_is_kept(site: Site, caller: Caller) -> None:
    """An unschedulable pod is not helped by another one."""
    template = changed(
        manifests.DIJOB["spec"]["collector"]["template"], {"spec/nodeSelector": {"no": "where"}}
    )
    patch = {"spec": {"collector": {"template": template}}}
    await site.client.merge_patch(DIJOB, "cartpole", patch, site.namespace)
    first = (await caller.add(1)).collectors
    assert (await caller.failed([name_of(first[0])])).collectors == first


async def test_a_pod_that_ran_is_replaced_before_the_caches_know_it(
    site: Site, stage: Stage, session: aiohttp.ClientSession, caller: Caller
) -> None:
    account = await account_beside(RIGHTS, "elasticjob-di-server", stage.place, stage.client)
    async with FaultProxy(account) as proxy, Client(proxy.config) as late:
        proxy.add(asking("watch", "pods"), Late(1))
        async with di_server(late) as url:
            through = Caller(session, url, site.namespace)
            (first,) = (await through.add(1)).collectors
            await runs(site, name_of(first))
            assert (await through.failed([name_of(first)])).collectors != [first]


async def test_a_learner_with_gpus_is_an_aggregator_and_its_pods(site: Site, caller: Caller) -> None:
    refused = await caller.add(1, 1, gpus=2)
    assert refused.status == 404
    assert "there is no AggregatorConfig" in refused.message
    assert not await pods(site, "collector")
    config = changed(manifests.AGGREGATORCONFIG, {"metadata": {"name": "aggregator-config"}})
    await site.client.create(AGGREGATORCONFIG.untyped(), config, site.namespace)
    told = await until_done(caller, 1, 2)
    (aggregator,) = await pods(site, "aggregator")
    assert [name_of(each) for each in told.learners] == [aggregator]
    (learner,) = (await pods(site, "ddp-learner")).values()
    listed = await caller.get(namespace=site.namespace, aggregator=aggregator)
    assert listed.data["coordinator"] == aggregator
    assert listed.data["collectors"] is None
    assert listed.learners == [f"{learner.metadata.name}.{site.namespace}:{port}" for port in (22271, 22272)]
    gone = await caller.remove(0, 1)
    assert gone.learners == told.learners
    assert not await pods(site, "ddp-learner")


async def until_done(caller: Caller, learners: int, gpus: int) -> Told:
    """Ask until the new AggregatorConfig is known."""
    found: list[Told] = []

    async def is_done() -> bool:
        found.append(await caller.add(0, learners, gpus=gpus))
        return found[-1].status != 404

    await until(is_done, "the AggregatorConfig is known")
    return found[-1]


async def test_equal_calls_at_the_same_time_are_one(site: Site, caller: Caller) -> None:
    first, second = await asyncio.gather(caller.add(2), caller.add(2))
    assert first.data == second.data
    assert len(await pods(site, "collector")) == 2
    third = await caller.add(2)
    assert set(third.collectors).isdisjoint(first.collectors)
    assert len(await pods(site, "collector")) == 4


async def test_a_key_is_answered_once_by_every_instance(
    site: Site, caller: Caller, session: aiohttp.ClientSession
) -> None:
    first = await caller.add(2, Idempotency_Key="a")
    assert (await caller.add(2, Idempotency_Key="a")).data == first.data
    async with di_server(site.client) as other:
        elsewhere = Caller(session, other, site.namespace)
        assert set((await elsewhere.add(2, Idempotency_Key="a")).collectors) == set(first.collectors)
        assert (await elsewhere.add(3, Idempotency_Key="a")).status == 409
    assert len(await pods(site, "collector")) == 2


async def test_what_was_cut_off_is_taken_over_by_an_equal_call(site: Site, caller: Caller) -> None:
    """The end of di-server between two creates, and between the last one and the response."""

    async def is_marked_as_answered() -> bool:
        found = await pods(site, "collector")
        return not any(names.UNANSWERED in pod.metadata.annotations for pod in found.values())

    told = await caller.add(2)
    for left in (1, 2):
        await until(is_marked_as_answered, "di-server has noted that its response arrived")
        found = await pods(site, "collector")
        first, second = sorted(found, key=lambda name: "" if name == name_of(told.collectors[0]) else name)
        mark = {"metadata": {"annotations": {names.UNANSWERED: await digest(site, found[first])}}}
        await site.client.merge_patch(POD, first, mark, site.namespace)
        if left == 1:
            await site.client.delete(POD, second, site.namespace, grace=0)
        again = await caller.add(2)
        assert len(await pods(site, "collector")) == 2
        assert (set(again.collectors) == set(told.collectors)) is (left == 2)
        told = again


async def digest(site: Site, pod: Pod) -> str:
    """The digest of the call that made a pod."""
    return pod.metadata.annotations[names.REQUEST_BODY]


@pytest.mark.plane
async def test_nothing_is_left_of_a_call_that_a_quota_refuses(site: Site, caller: Caller) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
    await site.client.create(QUOTA, quota, site.namespace)
    refused = await quota_refuses(caller)
    assert (refused.status, refused.success, refused.collectors) == (200, False, [])
    assert "exceeded quota" in refused.message

    async def none_left() -> bool:
        return not await pods(site, "collector")

    await until(none_left, "the pods of the refused call are gone")
    await site.event("exceeded quota")


async def quota_refuses(caller: Caller) -> Any:
    """Ask until the quota is known to the server."""
    async with asyncio.timeout(PATIENCE):
        while (told := await caller.add(3)).success:
            await caller.remove(3)
    return told


@pytest.mark.plane
async def test_a_replacement_is_made_within_a_full_quota(site: Site, caller: Caller) -> None:
    """The quota learns that the old pod is gone a moment later: the new one is waited for."""
    quota = {"metadata": {"name": "full"}, "spec": {"hard": {"pods": "2"}}}
    await site.client.create(QUOTA, quota, site.namespace)
    await quota_refuses(caller)
    made = list[Told]()

    async def is_made() -> bool:
        made.append(await caller.add(1))
        return made[-1].success

    await until(is_made, "the pods of the refused call are no longer counted")
    (first,) = made[-1].collectors
    await runs(site, name_of(first))
    for _ in range(3):
        (second,) = (await caller.failed([name_of(first)])).collectors
        assert second != first
        assert set(await pods(site, "collector")) == {name_of(second)}
        await runs(site, name_of(second))
        first = second


async def test_only_callers_of_a_living_job_are_answered(site: Site, caller: Caller) -> None:
    stranger = {
        "metadata": {"name": "stranger"},
        "spec": manifests.DIJOB["spec"]["collector"]["template"]["spec"],
    }
    await site.client.create(POD, stranger, site.namespace)
    for name in ("nobody", "stranger"):
        refused = await caller.get(namespace=site.namespace, coordinator=name)
        assert (refused.status, refused.success, refused.data) == (404, False, None)
    (collector,) = (await caller.add(1)).collectors
    asked = await caller.get(namespace=site.namespace, coordinator=name_of(collector))
    assert asked.status == 400
    await made(site, "serial", **{"spec/collector": ABSENT, "spec/learner": ABSENT})
    serial = Caller(caller._session, caller.url, site.namespace, "serial")
    refused = await serial.add(1)
    assert (refused.status, refused.message) == (
        400,
        "DIJob serial has no spec.collector: add its template to the job",
    )
    await site.client.delete(POD, "stranger", site.namespace, grace=0)


async def test_a_di_server_of_one_namespace_reads_the_pods_of_no_other(
    site: Site, stage: Stage, session: aiohttp.ClientSession, caller: Caller
) -> None:
    """What it may not do is waited for: DI-engine dies of an error. With the rights of the chart it works."""
    config = changed(manifests.AGGREGATORCONFIG, {"metadata": {"name": "aggregator-config"}})
    await site.client.create(AGGREGATORCONFIG.untyped(), config, site.namespace)
    rights = [each | {} for each in yaml.safe_load_all(RIGHTS.replace("di-server", "di-server-of-one"))]
    bindings = [each for each in rights if each["kind"] == "ClusterRoleBinding"]
    bindings[0] |= {"kind": "RoleBinding"}
    bindings[0]["metadata"]["namespace"] = site.namespace
    for_all = rights.pop(rights.index(bindings[1]))
    account = await account_beside(
        yaml.safe_dump_all(rights), "elasticjob-di-server-of-one", stage.place, stage.client, site.namespace
    )
    async with Client(account) as mine, di_server(mine, site.namespace) as found:
        bound = Caller(session, found, site.namespace)
        told = await until_done(bound, 1, 2)
        assert (told.status, told.success) == (200, False)
        assert "nodes is forbidden" in told.message
        await stage.client.apply(CLUSTER_ROLE_BINDING, for_all, manager="test")

        async def is_made() -> bool:
            return (await bound.add(0, 1, gpus=2)).success

        await until(is_made, "the nodes can be listed")
        other = await bound.get(namespace="default", coordinator="cartpole-coordinator")
        assert (other.status, other.message) == (404, f"di-server serves the namespace {site.namespace} only")


async def test_a_token_is_that_of_one_job(
    site: Site, caller: Caller, session: aiohttp.ClientSession, tmp_path: Any
) -> None:
    """The coordinator of `caller` was made without one, by an operator that had no key: its job goes on."""
    key = tmp_path / "key"
    key.write_bytes(b"secret\n")
    path = "spec/coordinator/template/spec/containers/0/env"
    await made(site, "bound", **{path: [{"name": names.TOKEN, "value": "t"}]})
    uid = (await site.client.get(DIJOB, "bound", site.namespace)).metadata.uid
    token, wrong = token_of(b"secret", uid), token_of(b"secret", "another")
    async with di_server(site.client, key_file=str(key)) as guarded:
        older = Caller(session, guarded, site.namespace)
        assert (await older.add(1)).success
        (one,) = (await pods(site, "collector")).values()
        assert not has_token(one)
        bound = Caller(session, guarded, site.namespace, "bound")
        assert (await bound.add(1)).status == 401
        await site.event("must have no api_version of its own")
        assert (await bound.add(1, Authorization=f"Bearer {wrong}")).status == 403
        assert (await bound.get(namespace=site.namespace)).status == 401
        assert (await bound.add(1, Authorization=f"Bearer {token}")).success
        path = f"/replicas?namespace={site.namespace}&coordinator=bound-coordinator"
        assert (await bound.call("GET", path, prefix=f"/t/{token}/v1alpha1")).success
        assert (await bound.call("GET", path, prefix=f"/t/{wrong}/v1alpha1")).status == 403
        assert (await bound.get()).status == 401


NOT_ASKED: list[tuple[str, str, bytes | None, int, str]] = [
    ("GET", "/replicas?namspace=x", None, 400, "namspace is not a parameter"),
    ("PUT", "/replicas", b"{}", 501, "PUT is not a call of"),
    ("PATCH", "/replicas", b"{}", 501, "PATCH is not a call of"),
    ("OPTIONS", "/replicas", None, 501, "OPTIONS is not a call of"),
    ("GET", "/replicas/failed", None, 501, "GET is not a call of"),
    ("DELETE", "/replicas/failed", b"{}", 501, "DELETE is not a call of"),
    ("GET", "/nothing", None, 404, "there is no /v1alpha1/nothing"),
    ("POST", "/replicas", b"x" * (1 << 20) + b"x", 413, "the body is larger than"),
]
BODIES: list[tuple[str, str, bytes, str]] = [
    ("POST", "/replicas", b"{", "the body is not JSON"),
    ("DELETE", "/replicas", b"[" * 5000, "the body is not JSON"),
    ("POST", "/replicas/failed", b"\x00", "the body is not JSON"),
    ("POST", "/replicas", b'{"namespace": "\\ud800"}', "namespace is ?"),
    ("GET", "/replicas?namespace=%2e%2e%2fx&coordinator=a", b"", "namespace is ../x"),
    ("GET", "/replicas?namespace=%00%ff%22", b"", "namespace is"),
    ("GET", "/replicas?namespace=a&Namespace=b", b"", "namespace is given twice"),
]
HOSTILE: list[tuple[Any, str]] = [
    ({"collectors": {"replicas": "two"}}, "collectors.replicas is two: write a whole number, such as 2"),
    ({"learners": {"replicas": 1, "gpus": 1_000_000_000}}, "learners.gpus is 1000000000: write at most 1024"),
    ({"learners": {"replicas": 200, "gpus": 9}}, "200 learners of 9 GPUs are 258 pods or more"),
]


async def test_malformed_requests_are_refused_with_a_sentence(site: Site, caller: Caller) -> None:
    """Each says what to write, and changes nothing; test_asked.py has the rest of them."""
    config = changed(manifests.AGGREGATORCONFIG, {"metadata": {"name": "aggregator-config"}})
    await site.client.create(AGGREGATORCONFIG.untyped(), config, site.namespace)
    await until_done(caller, 1, 2)
    await caller.remove(0, 1)
    whole = {"namespace": site.namespace, "coordinator": caller.coordinator}
    asked = [*NOT_ASKED, *((method, path, body, 400, said) for method, path, body, said in BODIES)]
    asked += [("POST", "/replicas", encoded({**whole, **change}), 400, said) for change, said in HOSTILE]
    for method, path, body, status, sentence in asked:
        refused = await caller.call(method, path, body)
        assert (refused.status, refused.success) == (status, False), (method, path, body)
        assert sentence in refused.message, (body, refused.message)
    long = await caller.add(1, Idempotency_Key="k" * 256)
    assert (long.status, long.message) == (
        400,
        "the Idempotency-Key is longer than 255 characters: shorten it",
    )
    assert not await pods(site, "collector")


async def test_the_other_pages(caller: Caller, session: aiohttp.ClientSession) -> None:
    await caller.get()
    for path, expected in (
        ("/healthz", "ok"),
        ("/readyz", "ok"),
        ("/metrics", 'elasticjob_di_server_request_seconds_count{call="get",code="200"}'),
        ("/openapi.json", '"openapi": "3.1.0"'),
    ):
        async with session.get(f"{caller.url}{path}") as answer:
            assert answer.status == 200
            assert expected in await answer.text()


async def test_a_job_of_the_same_name_has_other_pods(site: Site, caller: Caller) -> None:
    (old,) = (await caller.add(1)).collectors
    await site.client.delete(DIJOB, "cartpole", site.namespace)
    await site.has_only(POD)
    await made(site)
    assert (await caller.get()).collectors == []
    assert (await caller.failed([name_of(old)])).status == 404
    with pytest.raises(NotFound):
        await site.client.get(POD, name_of(old), site.namespace)
