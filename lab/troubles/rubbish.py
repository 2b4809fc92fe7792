"""Rubbish by kind: texts, numbers, quantities, names; and good manifests and bodies with some of it in them.

Everything is drawn from the `Random` that is given, so that an action is repeated by its number. Legal sizes
stay small: what is to be overwhelmed is our programs, not the machine of the fuzzer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Final

from elasticjob.api.rpc.brain import AskSizes, TellStatistics
from elasticjob.api.v1alpha1 import common
from elasticjob.controllers.parts import names
from elasticjob.kube.objects.kinds import Manifest
from lab.build.manifests import AGGREGATORCONFIG, DIJOB, TRAINING, changed
from lab.fuzz.requests import JUNK, mutated
from lab.paths import SCRIPTS

PREFIX: Final = "elasticjob.dlrover/"
HERE: Final = SCRIPTS / "hostile"
TEXTS: Final = (
    *("", "\x1b]0;owned\x07\x1b[2J\x9b31m\n✓ all is well", "a\0b", "é\u202e漢", "\u2028", "n" * 300),
    *("w" * 200_000, "9" * 400, "[" * 2000),
    *('{"worker": 1e999}', '{"worker": "x"}', '{"worker": -1}', '{"worker": 1000000000}'),
    *("x", "-1", "0", "1.5", "1e9", "1000000000", "NaN", "Infinity", "{", "[1", "null", "true"),
    *("99999-99-99T99:99:99Z", "../..", "a/b"),
)
LABELS: Final = (
    *("", "9" * 63, "x", "-1", "1000000000", "1.5", "worker", "master", "ps", "0", "00", "1_0", "A"),
    *("l1", "l2"),
)
"""Values that the API server takes for labels, and names of jobs."""
HUGE: Final = (10**9, 2**31 - 1, 2**31, 2**63 - 1, 2**64, 10**15)
NUMBERS: Final[tuple[Any, ...]] = (0, 1, -1, *HUGE, 1.5, "2", "x", None, True, [])
QUANTITIES: Final[tuple[Any, ...]] = (
    *("1", "100m", "1Gi", "0", "-1", "1e3", "1E", "1e400", "0.0000000001", "9" * 100, "x", "", "1n", "1Ei"),
    *("9223372036854775807", "1.5Mi", "NaN", 1, 1.5, 10**30, None, [], "9999999Ei", "1 Gi", "٣"),
)
AMOUNTS: Final = ("1", "100m", "2", "1n", "1500m", "1e3", 1)
"""Quantities that are admitted."""
COUNTS: Final = (0, 1, 1, 2, 2, 3)
SECONDS: Final = (1, 5, 60, 10**9, 3_000_000_000)
NAMES: Final = ("l1", "l2", "l3", "l4", "l5")
ODD_NAMES: Final = ("l1-worker", "n" * 63, "x.y", "1", "trains")
ROLES: Final = ("worker", "worker", "worker", "ps", "chief", "evaluator", "h100", "worker2")
ODD_ROLES: Final = ("", "é", "x" * 63, "master", "dlrover-master", "Worker", "a.b", "w-1")
SLEEP: Final = {"name": "main", "image": "busybox", "command": ["sleep", "3600"]}
SCHEDULING: Final = ("", "", "", "100k")
"""Processors of a pod: most pods run, some fit on no machine."""
FIELDS: Final[Mapping[str, Sequence[Any]]] = {
    "minReplicas": COUNTS,
    "maxReplicas": (3, 4, 6),
    "replicas": COUNTS,
    "restartCount": (0, 1, 2**31 - 1),
    "priority": ("high", "low", "0.5"),
    "autoScale": (True, False),
}
"""Fields of a role, with values that are admitted."""
POLICIES: Final[Mapping[str, Sequence[Any]]] = {
    "runPolicy/forgiveRestartsAfterSeconds": SECONDS,
    "runPolicy/activeDeadlineSeconds": SECONDS,
    "runPolicy/pendingTimeoutSeconds": SECONDS,
    "runPolicy/ttlSecondsAfterFinished": (0, 5, 2**31 - 1),
    "runPolicy/backoffLimit": (0, 2, 2**31 - 1),
    "runPolicy/scalePlanHistoryLimit": (0, 1, 100),
    "runPolicy/scheduling/gang": ("none", "required", "volcano", "preferred"),
    "runPolicy/scheduling/minAvailable": COUNTS,
    "nodeUnit": (1, 2, 3),
    "suspend": (True, False),
    "networkPolicy": (True, False),
    "optimizeMode": ("manual", "single-job", "cluster"),
    "distributionStrategy": ("AllreduceStrategy", "ParameterServerStrategy", "CustomStrategy", "Local"),
    "resourceLimits/cpu": AMOUNTS,
    "resourceLimits/memory": ("1Gi", "1n", "1Ei"),
    "envs/A/value": TEXTS,
}
STATUSES: Final = [
    *("phase", "message", "reason", "workers", "conditions", "replicaStatuses", "training", "startTime")
]
OURS: Final = (
    *sorted({each for each in (vars(names) | vars(common)).values() if str(each).startswith(PREFIX)}),
    *("elasticjob.dlrover/user", "scale-type", "kueue.x-k8s.io/queue-name"),
)
"""Keys of labels and annotations: all that our programs read."""


def one(chance: Random, admitted: Sequence[Any], odd: Sequence[Any] = ()) -> Any:
    """Return a value that is admitted as far as it goes, or, one time of eight, rubbish of any kind."""
    if chance.random() < 0.88:
        return chance.choice(admitted)
    return chance.choice(odd or chance.choice((NUMBERS, TEXTS, QUANTITIES)))


def name(chance: Random) -> str:
    """Return a name that the tenant uses for jobs, and all that is like one; few, so that they meet."""
    return str(one(chance, NAMES, ODD_NAMES))


def any_role(chance: Random) -> str:
    """Return the name of a role."""
    return str(one(chance, ROLES, ODD_ROLES))


def role(chance: Random) -> Manifest:
    """Return a role; with some rubbish."""
    pod: Manifest = {"terminationGracePeriodSeconds": 1, "containers": [dict(SLEEP)]}
    resources: dict[str, Any] = {"cpu": processors} if (processors := chance.choice(SCHEDULING)) else {}
    if chance.random() < 0.2:
        resources[one(chance, ("cpu", "memory", "x.y/z"), TEXTS)] = one(chance, AMOUNTS)
    if resources:
        pod["containers"][0]["resources"] = {"requests": resources, "limits": resources}
    if chance.random() < 0.2:
        pod["containers"][0]["command"] = ["sh", "-c", f"exit {chance.choice((0, 1, 134, 137, 143, 255))}"]
    found: Manifest = {"replicas": chance.choice((1, 2, 3)), "template": {"spec": pod}}
    if chance.random() < 0.3:
        field = chance.choice(list(FIELDS))
        found[field] = one(chance, FIELDS[field])
    return found


def liar(chance: Random) -> Manifest:
    """Return the role of a master that lies."""
    seed = {"name": "SEED", "value": str(chance.random())}
    command = [sys.executable, str(HERE / "liar.py")]
    container = {"name": "main", "image": "python:3.11", "command": command, "env": [seed]}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"replicas": 1, "template": {"spec": spec}}


def job(chance: Random) -> Manifest:
    """Return an ElasticJob: a good one with up to four rubbish values; three of four masters lie."""
    roles = {any_role(chance): role(chance) for _ in range(chance.choice((0, 0, 1, 2)))}
    roles["worker"] = role(chance)
    spec: Manifest = {
        "distributionStrategy": chance.choice(("AllreduceStrategy", "AllreduceStrategy", "Local")),
        "optimizeMode": chance.choice(("manual", "single-job", "cluster", "cluster", "cluster")),
        "replicaSpecs": roles,
    }
    if len(roles) > 1:
        spec["distributionStrategy"] = "ParameterServerStrategy" if "ps" in roles else "CustomStrategy"
    if spec["distributionStrategy"] != "Local" and chance.random() < 0.8:
        roles["dlrover-master"] = liar(chance)
    if chance.random() < 0.6:
        roles["worker"] |= {"minReplicas": 1, "maxReplicas": chance.choice((3, 4, 6))}
    for _ in range(chance.choice((0, 0, 1, 1, 2, 4))):
        path = chance.choice(list(POLICIES))
        spec = changed(spec, {path: one(chance, POLICIES[path])})
    if chance.random() < 0.1:
        spec = mutated(spec, chance)
    return {"metadata": {"name": name(chance), **_marks(chance)}, "spec": spec}


def stealing(chance: Random) -> Manifest:
    """Return a pod that names what may have been made for a job of the tenant's, or for the installation."""
    account, secret = (
        f"{name(chance)}-master",
        chance.choice((f"{name(chance)}-token", "elasticjob-operator-keys")),
    )
    source = {"env": [{"name": "IT", "valueFrom": {"secretKeyRef": {"name": secret, "key": "token"}}}]}
    volumes = [{"name": "it", "secret": {"secretName": secret, "optional": True}}]
    stolen = (
        {"serviceAccountName": account},
        {"serviceAccount": account},
        {"volumes": volumes},
        {"imagePullSecrets": [{"name": secret}]},
        {"containers": [{**SLEEP, **source}]},
        {"initContainers": [{**SLEEP, "name": "before", **source}]},
    )
    return {"containers": [SLEEP], **chance.choice(stolen)}


def edit(chance: Random) -> Manifest:
    """Return a merge patch of an ElasticJob."""
    if chance.random() < 0.5:
        path = chance.choice(list(POLICIES))
        return {"spec": changed({}, {path: one(chance, POLICIES[path])})}
    field = chance.choice(list(FIELDS))
    return {"spec": {"replicaSpecs": {any_role(chance): {field: one(chance, FIELDS[field])}}}}


def marks(chance: Random, keys: tuple[str, ...]) -> Manifest:
    """Return a merge patch of labels and annotations: of these keys, which the object has, or of ours."""
    key = chance.choice((*keys, *OURS) if keys else OURS)
    if chance.random() < 0.5:
        return {"metadata": {"labels": {key: chance.choice((*LABELS, *LABELS, *TEXTS, None))}}}
    return {"metadata": {"annotations": {key: chance.choice((*TEXTS, *LABELS, None))}}}


def _marks(chance: Random) -> Manifest:
    return marks(chance, ())["metadata"] if chance.random() < 0.3 else {}


def status(chance: Random, kind: str) -> Manifest:
    """Return a merge patch of the status of a pod, a job, a JobResource or a plan."""
    if kind != "Pod":
        value = chance.choice((*JUNK, *TEXTS, {"step": 10**30, "stepsPerSecond": 1e308, "goodput": -1}))
        return {"status": {chance.choice(STATUSES): value}}
    words, ends = partial(chance.choice, TEXTS), ("2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", None)
    end = {"exitCode": chance.choice((0, 1, 137, -1, 2**31 - 1)), "finishedAt": chance.choice(ends)}
    state = {"terminated": end | {"reason": words(), "message": words()}}
    container = {"name": "main", "image": "", "imageID": "", "ready": False, "restartCount": 10**9}
    phase = chance.choice(("Failed", "Succeeded", "Running", "x", ""))
    told: Manifest = {"phase": phase, "message": words(), "reason": chance.choice(("Evicted", words()))}
    if chance.random() < 0.3:
        return {"status": told | {"podIP": words()}}
    return {"status": told | {"containerStatuses": [container | {"state": state}]}}


def sizes(chance: Random) -> Manifest:
    """Return what JobResources and ScalePlans say of roles."""
    size = {
        "replicas": one(chance, COUNTS),
        "resource": {one(chance, ("cpu", "memory", "x.y/z"), TEXTS): one(chance, AMOUNTS)},
    }
    return {any_role(chance): {key: size[key] for key in size if chance.random() < 0.7}}


def plan(chance: Random, owner: str) -> Manifest:
    """Return a ScalePlan by hand; it may name the nodes of others."""
    nodes = [
        f"{job}-{part}-{index}"
        for job in (owner, "trains", "sleeps")
        for part in ("worker", "h100", "worker2")
        for index in (0, 1, 10**9)
    ]
    spec: Manifest = {
        "ownerJob": one(chance, (owner,), ("trains", *TEXTS)),
        "replicaResourceSpecs": sizes(chance),
    }
    odd: dict[str, Any] = {
        "createPods": [
            {
                "name": chance.choice(nodes),
                "type": any_role(chance),
                "rankIndex": one(chance, COUNTS),
                "resource": {"cpu": one(chance, AMOUNTS)},
            }
        ],
        "removePods": [{"name": node} for node in chance.sample(nodes, chance.randint(1, 4))],
        "migratePods": [{"name": chance.choice(nodes), "resource": {"memory": one(chance, AMOUNTS)}}],
        "psHosts": [chance.choice(TEXTS)[:300]] * chance.choice((1, 5_000)),
        "manualScaling": one(chance, (True, False)),
        "reason": chance.choice(TEXTS)[:300] * chance.choice((1, 100)),
    }
    for key in odd:
        if chance.random() < 0.25:
            spec[key] = odd[key]
    if chance.random() < 0.1:
        spec = mutated(spec, chance)
    return {"metadata": {"generateName": "by-hand-", **_marks(chance)}, "spec": spec}


def pod(chance: Random) -> Manifest:
    """Return a pod with the labels of a job's."""
    labels = dict.fromkeys(OURS[:5], "0") | {
        "elasticjob.dlrover/name": name(chance),
        "elasticjob.dlrover/replica-type": "worker",
    }
    labels |= {chance.choice(OURS[:5]): chance.choice(LABELS), "app.kubernetes.io/managed-by": "elasticjob"}
    return {
        "metadata": {"generateName": "stray-", "labels": labels},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [SLEEP]},
    }


def other_job(chance: Random) -> tuple[str, Manifest]:
    """Return an object of the other APIs, and which."""
    which, made = chance.choice(
        (("TrainingJob", TRAINING), ("DIJob", DIJOB), ("AggregatorConfig", AGGREGATORCONFIG))
    )
    found: Manifest = {**made, "metadata": {"name": name(chance), **_marks(chance)}}
    for _ in range(chance.choice((0, 1, 2))):
        found = {**found, "spec": mutated(found["spec"], chance)}
    return which, found


def spoilt(value: Any, chance: Random) -> Any:
    """Return the value with one of its leaves replaced by rubbish."""
    if isinstance(value, dict) and value:
        key = chance.choice(list(value))
        return {**value, key: spoilt(value[key], chance)}
    if isinstance(value, list) and value:
        at = chance.randrange(len(value))
        return [*value[:at], spoilt(value[at], chance), *value[at + 1 :]]
    return chance.choice(chance.choice((NUMBERS, TEXTS, QUANTITIES, LEGAL)))


def _now_and_then(body: Manifest, chance: Random) -> Manifest:
    """Return a body of which every second one is good, and one of ten is damaged anywhere."""
    if chance.random() < 0.5:
        return body
    spoil = mutated if chance.random() < 0.2 else spoilt
    found: Manifest = spoil(body, chance)
    return found


LEGAL: Final = (0, 1e15, 1e-300, 100_000, 1e14, 0.1)
"""Large and small numbers that bounds allow."""
AT: Final = ("2026-11-27T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")


def brain_call(chance: Random, uid: str) -> tuple[str, bytes]:
    """Return a path and a body for Brain about a job of the tenant."""
    sample = {
        "at": chance.choice(AT),
        "workers": chance.choice((1, 2, 100, 2**18)),
        "steps": chance.choice((1, *LEGAL)),
        "nodes": [
            {"name": f"l1-worker-{index}", "role": "worker", "cpu": chance.choice(LEGAL), "memory": 2**53}
            for index in range(chance.choice((0, 1, 2)))
        ],
    }
    role = {"least": 1, "most": chance.choice((4, 2**53, None)), "count": chance.choice((1, 4, 2**53))}
    job = {
        "namespace": "hostile",
        "name": name(chance),
        "uid": uid,
        "strategy": chance.choice(("AllreduceStrategy", "ParameterServerStrategy")),
        "mode": "cluster",
        "roles": {chance.choice(("ps", "worker", "h100")): role, "worker": role},
        "limits": {"cpu": chance.choice(("8", "1E", "1n"))},
    }
    placed = {
        "sizes": {"worker": chance.choice((0, 2, 2**53))},
        "machine": {"memory": chance.choice(("8Gi", "1n", "0"))},
        "room": {"worker": chance.choice((0, 1, 2**53))},
    }
    records = [sample] * chance.choice((1, 1, 1, 3, 3, 256, 256, 10_000))
    told = {"job": job, "records": records, "dropped": 0}
    stage = chance.choice(("Create", "WorkerInitial", "Running", "PSInitial"))
    asked = {"job": job, "records": records[:3], "placed": placed, "settled": True, "stage": stage}
    path, body = chance.choice(((AskSizes.PATH, asked), (TellStatistics.PATH, told)))
    return f"/v1/{path}", encoded(chance, _now_and_then(body, chance))


def di_call(chance: Random, namespace: str, coordinator: str) -> tuple[str, str, bytes]:
    """Return a verb, a path and a body for di-server; legal asks are for few replicas."""
    learners = {"replicas": chance.choice((0, 1, 2)), "cpus": 0.1, "gpus": chance.choice((0, 0, 1, 2, 10**9))}
    body: Manifest = {
        "namespace": namespace,
        "coordinator": coordinator,
        "collectors": {"replicas": chance.choice((0, 1, 2)), "memory": "8Mi"},
        "learners": learners,
    }
    path = chance.choice(("/v1alpha1/replicas", "/v1alpha2/replicas", "/t/x/v1alpha1/replicas"))
    if chance.random() < 0.3:
        path, lost = f"{path}/failed", [f"{coordinator}-x", "steady-coordinator", "l1-worker-0"]
        body |= {"collectors": lost, "learners": lost * chance.choice((1, 3000))}
    verb = chance.choice(("POST", "POST", "DELETE", "GET"))
    return verb, path, encoded(chance, _now_and_then(body, chance))


def encoded(chance: Random, body: object) -> bytes:
    """Return JSON: mostly good, else doubled keys, deep nesting, NaN, NUL, or cut."""
    text = json.dumps(body)
    match chance.randrange(30):
        case 0:
            text = text[:-1] + ', "job": 1, "namespace": "quiet"}'
        case 1:
            text = "[" * 100_000
        case 2:
            text = text.replace("1", "NaN")
        case 3:
            text = text[: chance.randrange(len(text))]
        case 4:
            text = text.replace(": ", ":\0 ")
        case 5:
            text = text.replace("0", "1" + "0" * 400)
    return text.encode()
