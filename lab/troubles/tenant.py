"""The hostile tenant: its actions as a table. Each is drawn by its number, and returns what it was about.

It may do in its namespace what an administrator of a namespace may, and call the ports of our programs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol, runtime_checkable

import aiohttp

from elasticjob.api.belongings import references
from elasticjob.api.diengine.aggregatorconfig import AGGREGATORCONFIG
from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.paddle.trainingjob import TRAININGJOB
from elasticjob.api.rpc.brain import job_token
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.client.described import about_the_job
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import ApiError, Unreachable
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import (
    CONFIG_MAP,
    EVENT,
    NAMESPACE,
    NETWORK_POLICY,
    POD,
    POD_DISRUPTION_BUDGET,
    ROLE,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from lab.build.manifests import DIJOB as GOOD
from lab.build.manifests import changed
from lab.fuzz.requests import Calls, request
from lab.jobs.pulse import Pulse
from lab.processes import Process
from lab.programs.control_plane import Installed
from lab.story import Trouble
from lab.troubles import rubbish
from lab.truths.status import OWNED

HOME: Final = "hostile"
GOES: Final = "hostile-too"
"""A namespace that begins and ends."""
SLOW: Final = 10.0
"""Seconds that a write, with its admission, may take."""
DOCUMENTED: Final = (501,)
"""Answers from 500 on that are no fault: di-server's to a verb that it has not."""
LIVING: Final = {"ElasticJob": 5, "TrainingJob": 2, "DIJob": 2, "ScalePlan": 12, "Pod": 4}
"""How many objects of a kind the tenant keeps, pods by hand: beyond, the oldest goes first."""
JOBS: Final[tuple[Kind[Any], ...]] = (ELASTICJOB, TRAININGJOB, DIJOB)
OURS: Final[tuple[Kind[Any], ...]] = (ELASTICJOB, JOBRESOURCE, SCALEPLAN, POD)


@dataclass
class Tenant:
    """Acts, and keeps what was answered wrongly: `wrong` has sentences about the action that runs."""

    client: Client
    session: aiohttp.ClientSession
    programs: Installed
    pulse: Pulse
    wrong: Callable[[str], None]
    answers: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0

    async def write(self, what: Awaitable[Any]) -> bool:
        """Await a write: a refusal is a good answer, a failure is wrong. Returns whether it was done."""
        began, said = self.pulse.stamp(), "ok"
        try:
            await what
        except ApiError as error:
            said = str(error.status)
            if error.status >= 500:
                self.wrong(f"the API server says: {error!s:.600}")
        except UnicodeEncodeError:
            said = "was not called: no UTF-8"
        except Unreachable as error:
            said = "did not answer"
            self.wrong(f"the API server does not answer: {error!s:.300}")
        took = began.ago
        self.slowest = max(self.slowest, took)
        if took > SLOW:
            self.wrong(f"a write took {took:.1f} s")
        self.answers[f"API {said}"] += 1
        return said == "ok"

    async def ask(self, asked: Process, method: str, url: str, body: bytes, **headers: str) -> None:
        """Call a port of ours; an answer from 500 on is wrong, and none from a program that works as well."""
        program = asked.name
        try:
            async with self.session.request(method, url, data=body, headers=headers) as answer:
                text = await answer.text(errors="replace")
        except (aiohttp.ClientError, TimeoutError) as error:
            if asked.works:
                self.wrong(f"{program} does not answer {method} {url}: {error!s:.300}; body {body!r:.300}")
            return
        self.answers[f"{program} {answer.status}"] += 1
        if answer.status >= 500 and answer.status not in DOCUMENTED:
            self.wrong(f"{program} answers {answer.status} {text:.300} to {method} {url} {body!r:.600}")

    async def pick(self, kind: Kind[Any], chance: Random) -> Manifest | None:
        """Return one of the tenant's objects of a kind."""
        found = await self.client.list(kind.untyped(), HOME)
        found.sort(key=lambda each: str(each["metadata"]["name"]))
        return chance.choice(found) if found else None

    async def make(self, kind: Kind[Any], manifest: Manifest, only: str = "") -> str:
        """Create an object, the oldest one of its kind goes where there are enough; returns its name."""
        found = [
            each
            for each in await self.client.list(kind.untyped(), HOME)
            if str(each["metadata"]["name"]).startswith(only)
        ]
        if len(found) >= LIVING[kind.name]:
            oldest = min(found, key=lambda each: str(each["metadata"]["creationTimestamp"]))
            await self.write(self.client.delete(kind, oldest["metadata"]["name"], HOME))
        await self.write(self.client.create(kind.untyped(), manifest, HOME))
        about = manifest.get("metadata") or {}
        return f"{kind.name} {about.get('name') or about.get('generateName')}: {manifest!s:.1500}"


async def submit(tenant: Tenant, chance: Random) -> str:
    return await tenant.make(ELASTICJOB, rubbish.job(chance))


async def steal(tenant: Tenant, chance: Random) -> str:
    """Submit a job that names the account or a Secret of another one, be it there or not."""
    pod = rubbish.stealing(chance)
    if chance.random() < 0.3:
        job = changed(
            GOOD, {"spec/coordinator/template/spec": pod, "metadata": {"name": rubbish.name(chance)}}
        )
        return await tenant.make(DIJOB, job)
    worker = {"replicas": 1, "template": {"spec": pod}}
    strategy = chance.choice(("Local", "AllreduceStrategy"))
    spec = {"distributionStrategy": strategy, "replicaSpecs": {"worker": worker}}
    return await tenant.make(ELASTICJOB, {"metadata": {"name": rubbish.name(chance)}, "spec": spec})


async def stolen(client: Client) -> list[str]:
    """Return which pods of jobs have an account or a Secret that was made for another job."""
    owners = {
        (kind, found["metadata"]["name"]): each["name"]
        for kind in (SECRET, SERVICE_ACCOUNT)
        for found in await client.list(kind.untyped(), HOME)
        for each in found["metadata"].get("ownerReferences") or ()
    }
    return [
        f"{kind.name} {name} of {owners[kind, name]} is in {path} of pod {pod['metadata']['name']}"
        for pod in await client.list(POD.untyped(), HOME)
        if pod["metadata"].get("ownerReferences") and not pod["metadata"].get("deletionTimestamp")
        for path, kind, name in references("spec", pod["spec"])
        if not pod["metadata"]["name"].startswith(f"{owners.get((kind, name), '')}-")
        and (kind, name) in owners
    ]


async def claim(tenant: Tenant, chance: Random) -> str:
    """Submit a job that says it is the neighbour's, which asks for what no queue has."""
    job, said = rubbish.job(chance), {"elasticjob.dlrover/user": "quiet"}
    job["metadata"] |= {"annotations": said, "labels": {**said, "kueue.x-k8s.io/queue-name": "lab"}}
    amounts = {"resources": {"requests": {"cpu": chance.choice(("1", "100k"))}}}
    template = {"spec": {"containers": [{**rubbish.SLEEP, **amounts}]}}
    more = job["spec"] if isinstance(job["spec"], dict) else {}  # or rubbish
    job["spec"] = {**more, "replicaSpecs": {"worker": {"replicas": 1, "template": template}}}
    return await tenant.make(ELASTICJOB, job)


async def believed(tenant: Tenant) -> list[str]:
    """Return which jobs Brain takes for those of another namespace."""
    try:
        async with tenant.session.get(f"{tenant.programs.brain_url}/v1/jobs") as answer:
            jobs = (await answer.json())["jobs"] if answer.status == 200 else []
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return []  # whether it answers is another question
    wrong = [each for each in jobs if each["owner"] not in ("", each["namespace"])]
    return [f"Brain has {each['namespace']}/{each['name']} for one of {each['owner']}" for each in wrong]


async def shout(tenant: Tenant, chance: Random) -> str:
    """Write escapes into a status, and have an administrator read it."""
    if (found := await tenant.pick(ELASTICJOB, chance)) is None:
        return ""
    words = f"{chance.choice(rubbish.TEXTS[:5])}\x1b]0;owned\x07\n✓ all is well\x9b2J"
    condition = {"type": "Failed", "status": "True", "reason": "Bad", "message": words}
    finding = {"reason": "Bad", "message": words, "time": "2026-11-29T00:00:00Z"}
    status = {
        "reason": "Bad",
        "message": words,
        "conditions": [condition],
        "training": {"findings": [finding]},
    }
    did = await _patched(tenant, chance, ELASTICJOB, {"status": status}, found, "status")
    known = await tenant.client.find(ELASTICJOB, found["metadata"]["name"], HOME)
    if known is not None:
        shown = about_the_job(known, [], [], await tenant.client.list(EVENT, HOME)).text
        if bad := [line for line in shown.split("\n") if not line.isprintable() or line.startswith("✓")]:
            tenant.wrong(f"describe shows {bad[0]!a:.300}")
    return did


async def submit_other(tenant: Tenant, chance: Random) -> str:
    which, manifest = rubbish.other_job(chance)
    if which == "AggregatorConfig":
        manifest["metadata"]["name"] = "aggregator-config"
        await tenant.write(tenant.client.delete(AGGREGATORCONFIG, "aggregator-config", HOME))
        await tenant.write(tenant.client.create(AGGREGATORCONFIG.untyped(), manifest, HOME))
        return f"AggregatorConfig: {manifest!s:.1500}"
    return await tenant.make(next(kind for kind in JOBS if kind.name == which), manifest)


async def change_job(tenant: Tenant, chance: Random) -> str:
    return await _patched(tenant, chance, ELASTICJOB, rubbish.edit(chance))


async def change_sizes(tenant: Tenant, chance: Random) -> str:
    return await _patched(
        tenant, chance, JOBRESOURCE, {"spec": {"replicaResourceSpecs": rubbish.sizes(chance)}}
    )


async def change_marks(tenant: Tenant, chance: Random) -> str:
    kind = chance.choice(OURS)
    found = await tenant.pick(kind, chance)
    if found is None:
        return ""
    about = found["metadata"]
    keys = (*(about.get("labels") or {}), *(about.get("annotations") or {}))
    return await _patched(tenant, chance, kind, rubbish.marks(chance, keys), found)


async def change_status(tenant: Tenant, chance: Random) -> str:
    kind = chance.choice(OURS)
    return await _patched(tenant, chance, kind, rubbish.status(chance, kind.name), subresource="status")


async def _patched(
    tenant: Tenant,
    chance: Random,
    kind: Kind[Any],
    patch: Manifest,
    found: Manifest | None = None,
    subresource: str = "",
) -> str:
    if (found := found or await tenant.pick(kind, chance)) is None:
        return ""
    name = found["metadata"]["name"]
    await tenant.write(tenant.client.merge_patch(kind.untyped(), name, patch, HOME, subresource=subresource))
    return f"{kind.name} {name}: {patch!s:.1500}"


async def plan(tenant: Tenant, chance: Random) -> str:
    found = await tenant.pick(ELASTICJOB, chance)
    owner = str(found["metadata"]["name"]) if found else rubbish.name(chance)
    return await tenant.make(SCALEPLAN, rubbish.plan(chance, owner), "by-hand")


async def stray(tenant: Tenant, chance: Random) -> str:
    """A pod by hand, with the labels of a job."""
    return await tenant.make(POD, rubbish.pod(chance), "stray")


async def squat(tenant: Tenant, chance: Random) -> str:
    """Take names that the operator uses."""
    job = rubbish.name(chance)
    kind, name, body = chance.choice(SQUATTED)
    name = name.format(job=job)
    labels = {"elasticjob.dlrover/name": chance.choice(rubbish.LABELS), MINE: "true"}
    made = {"metadata": {"name": name, "labels": labels}, **body}
    if not await tenant.write(tenant.client.create(kind.untyped(), made, HOME)) and chance.random() < 0.5:
        with_uid = {"metadata": {"ownerReferences": None}} | body
        await tenant.write(tenant.client.merge_patch(kind.untyped(), name, with_uid, HOME))
    return f"{kind.name} {name}"


async def taken_over(client: Client) -> list[str]:
    """Return which objects of the tenant have become the operator's."""
    kinds = {kind for kind, _, _ in SQUATTED if kind is not JOBRESOURCE}
    return [
        f"{kind.name} {HOME}/{found['metadata']['name']} of the tenant has the owner {owners!s:.300}"
        for kind in sorted(kinds, key=lambda kind: kind.name)
        for found in await client.list(kind.untyped(), HOME, labels=f"{MINE}=true")
        if (owners := found["metadata"].get("ownerReferences"))
    ]


MINE: Final = "squatted"
"""The label of objects that the tenant has put in the operator's place."""
SQUATTED: Final[tuple[tuple[Kind[Any], str, Manifest], ...]] = (
    (
        POD_DISRUPTION_BUDGET,
        "{job}",
        {"spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}},
    ),
    (CONFIG_MAP, "{job}", {"data": {"a": "b\0"}}),
    (CONFIG_MAP, "{job}-state", {"data": {"state": "x"}}),
    (CONFIG_MAP, "{job}-master", {"data": {"state": "x"}}),
    (SECRET, "{job}-token", {"stringData": {"token": "x"}}),
    (SECRET, "{job}-di-token", {"stringData": {"token": "x"}}),
    (SERVICE, "{job}", {"spec": {"ports": [{"port": 1}], "selector": {"app": "web"}}}),
    (SERVICE, "{job}-master", {"spec": {"ports": [{"port": 1}]}}),
    (SERVICE_ACCOUNT, "{job}-master", {}),
    (ROLE, "{job}-master", {"rules": []}),
    (NETWORK_POLICY, "{job}", {"spec": {"podSelector": {}}}),
    (POD, "{job}-worker-0", {"spec": {"containers": [rubbish.SLEEP]}}),
    (POD, "{job}-master-0", {"spec": {"containers": [rubbish.SLEEP]}}),
    (JOBRESOURCE, "{job}", {"spec": {}}),
)


async def remove(tenant: Tenant, chance: Random) -> str:
    """Delete an object of ours, or one that has been put in its place."""
    kind = chance.choice((*OWNED, *JOBS))
    if (found := await tenant.pick(kind, chance)) is None or found["metadata"]["name"] == "default":
        return ""
    name = found["metadata"]["name"]
    grace = chance.choice((None, None, 0))
    await tenant.write(tenant.client.delete(kind, name, HOME, grace=grace))
    return f"{kind.name} {name}"


async def end_a_namespace(tenant: Tenant, chance: Random) -> str:
    """Submit a job in another namespace, or end that namespace while the job is at work in it."""
    if await tenant.client.find(NAMESPACE, GOES) is None:
        await tenant.write(tenant.client.create(NAMESPACE, {"metadata": {"name": GOES}}))
        await tenant.write(tenant.client.create(ELASTICJOB.untyped(), rubbish.job(chance), GOES))
        return f"{GOES} begins"
    await tenant.write(tenant.client.delete(NAMESPACE, GOES))
    return f"{GOES} ends"


async def call_brain(tenant: Tenant, chance: Random) -> str:
    found = await tenant.pick(ELASTICJOB, chance)
    uid = str(found["metadata"]["uid"]) if found and chance.random() < 0.9 else chance.choice(rubbish.TEXTS)
    path, body = rubbish.brain_call(chance, uid)
    token = job_token(tenant.programs.key, uid)
    url = tenant.programs.brain_url + path
    await tenant.ask(tenant.programs.brain, "POST", url, body, Authorization=f"Bearer {token}")
    return f"{path} {body!r:.1500}"


async def call_di_server(tenant: Tenant, chance: Random) -> str:
    if (found := await tenant.pick(DIJOB, chance)) is None:
        return await tenant.make(DIJOB, {**GOOD, "metadata": {"name": "l1"}})
    coordinator = f"{found['metadata']['name']}-coordinator"
    verb, path, body = rubbish.di_call(chance, chance.choice((HOME,) * 8 + ("", "x")), coordinator)
    await tenant.ask(tenant.programs.di_server, verb, tenant.programs.di_server.url + path, body)
    return f"{verb} {path} {body!r:.1500}"


PAGES: Final = Calls(
    [
        ("/v1/brain/sizes", {"job": {}, "stage": "x"}),
        ("/v1alpha1/replicas", {"namespace": "x", "coordinator": "y"}),
    ],
    [
        "/",
        "/v1/jobs",
        "/v1/jobs/hostile/l1",
        "/v1/jobs/%00/\xff",
        "/openapi.json",
        "/metrics",
        "/healthz",
        "/v1alpha1/replicas?namespace=hostile",
    ],
)


async def send_bytes(tenant: Tenant, chance: Random) -> str:
    """Bytes that are HTTP, nearly or not at all, to any port of ours."""
    programs = tenant.programs
    urls = [(each, each.url) for each in programs.all]
    asked, url = chance.choice([*urls, (programs.brain, programs.brain_url)])
    data = request(PAGES, chance)
    received = b""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        try:
            writer.write(data)
            while not reader.at_eof():
                async with asyncio.timeout(0.3):
                    received += await reader.read(1 << 16)
        finally:
            writer.transport.abort()
    except TimeoutError:
        pass
    except OSError as error:
        if not isinstance(error, ConnectionResetError) and asked.works:
            tenant.wrong(f"{url} takes no connection: {error}")
    if received.startswith(b"HTTP/1.1 5") and not received.startswith(b"HTTP/1.1 501"):
        tenant.wrong(f"{url} answers {received[:300]!r} to {data[:600]!r}")
    return f"{url} {data!r:.600}"


Act = Callable[[Tenant, Random], Awaitable[str]]
ACTIONS: Final[Mapping[str, tuple[int, Act]]] = {
    "submit": (10, submit),
    "submit-other": (4, submit_other),
    "change-job": (10, change_job),
    "change-sizes": (6, change_sizes),
    "change-marks": (16, change_marks),
    "change-status": (8, change_status),
    "scale-plan": (8, plan),
    "stray-pod": (3, stray),
    "squat": (5, squat),
    "remove": (6, remove),
    "steal": (6, steal),
    "claim": (4, claim),
    "escapes": (4, shout),
    "namespace": (2, end_a_namespace),
    "brain": (12, call_brain),
    "di-server": (12, call_di_server),
    "bytes": (6, send_bytes),
}
"""What the tenant does, and how often."""


@runtime_checkable
class Shared(Protocol):
    """A cluster that is shared with the tenant."""

    async def suffer(self, name: str, act: Act) -> str:
        """Let the tenant act; return what it was about."""


def _row(name: str, act: Act) -> Trouble:
    return Trouble(name, Shared, lambda scene: scene.suffer(name, act))


TROUBLES: Final = tuple(_row(name, act) for name, (_, act) in ACTIONS.items())
