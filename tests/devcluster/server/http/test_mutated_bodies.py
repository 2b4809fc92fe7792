"""Good bodies with random holes in them: whatever comes, the answer is a Status and never a stumble."""

from __future__ import annotations

import random
from typing import Any

import pytest

from lab.fuzz.requests import mutated
from tests.kit.devcluster.api import CONFIG_MAPS as MAPS
from tests.kit.devcluster.api import CRDS, MEDIA, PODS, THINGS, Api, definition, pod, thing

CONTAINER = {
    "name": "c",
    "image": "i",
    "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
    "ports": [{"containerPort": 1}],
    "resources": {"limits": {"cpu": 1}, "requests": {"cpu": 1}},
    "volumeMounts": [{"name": "v", "mountPath": "/x"}],
}
METADATA = {
    "name": "p",
    "labels": {"a": "b"},
    "finalizers": ["a/b"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "x", "name": "y", "uid": "z"}],
    "managedFields": [{"manager": "x", "fieldsV1": {"f:x": {}}}],
}
SERVICE = {
    "metadata": {"name": "s"},
    "spec": {"ports": [{"port": 1, "name": "x"}, {"port": 2, "name": "y"}], "clusterIP": "None"},
}
PARTS = [{"name": "a", "size": 1}]
BODIES: list[tuple[str, dict[str, Any]]] = [
    (
        PODS,
        pod("p", containers=[CONTAINER], volumes=[{"name": "v", "emptyDir": {}}]) | {"metadata": METADATA},
    ),
    ("/api/v1/namespaces/default/services", SERVICE),
    ("/api/v1/namespaces", {"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes"]}}),
    (THINGS, thing("t", replicas=1, parts=PARTS, tags=["a"], labels={"a": "b"}, port=1, free={"a": 1})),
    (CRDS, definition(name="foos")),
]


@pytest.mark.parametrize("seed", range(2))
async def test_no_body_makes_the_server_stumble(things: Api, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        path, good = chance.choice(BODIES)
        one, body = f"{path}/{good['metadata']['name']}", mutated(mutated(good, chance), chance)
        await things.post(path, good)
        kind = chance.choice(["post", "put", "merge", "strategic"])
        if kind == "post":
            reply = await things.post(path, body)
        elif kind == "put":
            reply = await things.put(one, body)
        else:
            reply = await things.patch(one, body, kind)
        assert isinstance(reply.body, dict), (kind, path, body, reply.body)
    for path, _ in BODIES:
        assert (await things.get(path)).code == 200


JSON = "application/json"
NAMES = ",".join(f'"k{number}":"v"' for number in range(60_000))
ALIASES = "".join(f"  a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12))
GROWING = [{"op": "add", "path": "/spec/free", "value": {"0": "x" * 100_000}}] + [
    {"op": "copy", "from": "/spec/free", "path": f"/spec/free/{number}"} for number in range(1, 40)
]


@pytest.mark.parametrize(
    ("method", "path", "body", "media", "code"),
    [
        ("POST", PODS, b"[" * 100_000 + b"]" * 100_000, JSON, 400),
        ("POST", THINGS, b'{"a":' * 5_000 + b"1" + b"}" * 5_000, JSON, 400),
        ("POST", MAPS, f'{{"metadata":{{"name":"m"}},"data":{{{NAMES},"k1":"w"}}}}'.encode(), JSON, 413),
        ("PATCH", f"{THINGS}/t", f"spec:\n  a0: &a0 [1]\n{ALIASES}".encode(), MEDIA["apply"], 400),
        ("PATCH", f"{THINGS}/t", GROWING, MEDIA["json"], 413),
        ("PATCH", f"{THINGS}/t", [{"op": "remove", "path": "/x"}] * 10_001, MEDIA["json"], 413),
    ],
    ids=["lists", "objects", "names", "aliases", "copies", "operations"],
)
async def test_no_body_takes_the_server_long(
    things: Api, method: str, path: str, body: Any, media: str, code: int
) -> None:
    assert (await things.post(THINGS, thing("t", replicas=1, parts=PARTS, free={}))).code == 201
    query = {"fieldManager": "me"} if media == MEDIA["apply"] else {}
    reply = await things.call(method, path, body, media, **query)
    assert (reply.code, reply.body["kind"]) == (code, "Status")
