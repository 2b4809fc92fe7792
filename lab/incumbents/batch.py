"""The oracle batch/v1 Job: its stories, its stage, and the differences that docs/from-job.md explains."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import yaml
from aiohttp import web

from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD
from lab import programs
from lab.clusters.images import images
from lab.clusters.images.oci import Store
from lab.clusters.node.node import Node
from lab.clusters.node.place import Place
from lab.incumbents.batch_play import Side
from lab.incumbents.oracle import INCUMBENT, OURS, Explained, Oracle, Play, Seen
from lab.incumbents.serving import serving
from lab.incumbents.watched import Pods, followed
from lab.paths import DOCS

TABLE: Final = Path(__file__).with_name("batch.yaml")
STORIES: Final[dict[str, Manifest]] = {each["story"]: each for each in yaml.safe_load(TABLE.read_text())}
FIELDS: Final = "every field of JobSpec"
"""The story that reads the server's OpenAPI."""
NOT_PLAYED: Final = {
    "manualSelector": "an ElasticJob's pods are found by labels that nobody chooses",
    "selector": "the same",
}
"""Fields of JobSpec that no story has, and why."""

SUCCESSORS: Final = "successors of index *"
FASTER: Final = "a pod fails"
BLAME: Final = "failures that count"
SPENT: Final = "an index has failed for good"
TOLD: Final = "a pod that is deleted and exits with 0"
BESIDE: Final = "containers beside the main one"
IN_PLACE: Final = "`restartPolicy: OnFailure` of the pod"
UNCOUNTED: Final = (
    "backoffLimit *",
    "*podFailurePolicy *",
    "deadline *",
    "running pod *",
    "machine of *",
    "* the kubelet",
    "node: deleted*",
    "*others' finalizer on a pod that is deleted",
    "node: podReplacementPolicy Failed",
    "node: killed at the deadline of the job",
    "node: out of memory",
    "node: its own *",
    "node: an init container fails",
    "node: no such image",
)
"""Stories in which a Job counts pods that are taken away, or that its own end stops."""
RESUMED: Final = "`activeDeadlineSeconds` and `suspend`"
EXPLAINED: Final = (
    Explained("deadline of a job that was suspended", "*", RESUMED),
    Explained("maxFailedIndexes", "*", SPENT),
    Explained("backoffLimitPerIndex", "look 1", SPENT, "*'Failed'*"),
    Explained("node: restarted in its pod", "*", IN_PLACE),
    Explained("node: another container *", "*", BESIDE),
    Explained("node: podFailurePolicy FailIndex", "*", "`FailIndex`"),
    Explained("node: exits 137 until backoffLimit", "*", "a program ends with 137 or 143"),
    Explained("node: deleted with grace, saves*", "*", TOLD),
    Explained("machine of *", SUCCESSORS, "a machine is gone", "[[]'before the end'[]]"),
    Explained("*others' finalizer on a pod that is deleted", "look 1", "a pod that is deleted |"),
    Explained("running pod *", SUCCESSORS, "a pod that is deleted |", "[[]'at once'[]]"),
    Explained("*", SUCCESSORS, FASTER, "[[]'at once'*"),
    Explained("backoffLimit over all indexes", "* of index 0", FASTER),
    Explained("suspended while it backs off", "* index 0", FASTER),
    Explained("suspended while it backs off", "look 1", FASTER),
    Explained("node: an init container fails", "* of index ?", FASTER),
    Explained("node: no such program", "*", FASTER),
    *(Explained(stories, "counted", BLAME) for stories in UNCOUNTED),
)
"""Stories and keys that are different, and the row of the page that says why."""


@asynccontextmanager
async def stage(folder: Path, stories: Sequence[str]) -> AsyncIterator[Play]:
    """A node of its own with the operator, and machines of kwok beside it."""
    node = Node(Place(folder / "node"), kwok=True)
    try:
        await asyncio.to_thread(node.up)
        store = Store(images.cache())
        await asyncio.to_thread(lambda: node.load(images.build("operator", store, "incumbents"), store))
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(Client(node.config()))
            await stack.enter_async_context(programs.operator(node.kubeconfig, folder))
            webhook = await stack.enter_async_context(hook(node))
            pods = Pods()
            await stack.enter_async_context(followed(client, {POD: pods.hear}))

            async def play(name: str) -> Seen:
                if name == FIELDS:
                    return await fields(client)
                number = [*STORIES].index(name)
                places = {who: f"s{number}-{who}" for who in (INCUMBENT, OURS)}
                machine, volumes = node.place.node, node.volumes
                sides = (
                    Side(client, place, who == OURS, STORIES[name], pods, machine, volumes / place, webhook)
                    for who, place in places.items()
                )
                theirs, ours = await asyncio.gather(*(side.play() for side in sides))
                return {INCUMBENT: theirs, OURS: ours}

            yield play
    finally:
        left = await asyncio.to_thread(node.purge)
        assert left == []


async def fields(client: Client) -> Seen:
    """Compare the fields that the server has with those of stories, and those that have a reason."""
    document = json.loads(await client.raw("GET", "/openapi/v3/apis/batch/v1"))
    served = document["components"]["schemas"]["io.k8s.api.batch.v1.JobSpec"]["properties"]
    always = {"completionMode", "parallelism", "completions", "template"}
    played = {field for story in STORIES.values() for field in story.get("job", {})}
    named = always | played | ({"suspend"} if "suspend" in str(STORIES) else set()) | {*NOT_PLAYED}
    return {INCUMBENT: {"fields": sorted(served)}, OURS: {"fields": sorted(named)}}


@asynccontextmanager
async def hook(node: Node) -> AsyncIterator[Manifest]:
    """An admission webhook of others that gives pods another request of processor; how it is called."""

    async def answer(request: web.Request) -> web.Response:
        review = await request.json()
        path = "/spec/containers/0/resources/requests/cpu"
        patch = msgspec.json.encode([{"op": "replace", "path": path, "value": "20m"}])
        response = {
            "uid": review["request"]["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(patch).decode(),
        }
        return web.json_response(
            {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
        )

    application = web.Application()
    application.router.add_post("/", answer)
    async with serving(application, node.plane.pki.server("others", ["127.0.0.1"])) as port:
        authority = base64.b64encode(node.plane.ca_pem.encode()).decode()
        yield {"url": f"https://127.0.0.1:{port}/", "caBundle": authority}


ORACLE: Final = Oracle(
    name="batch",
    page=DOCS / "from-job.md",
    stories=(FIELDS, *STORIES),
    stage=stage,
    explained=EXPLAINED,
    at_once=10,
)
