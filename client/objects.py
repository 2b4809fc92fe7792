"""The objects of a submitted job: an ElasticJob, and the ConfigMap with its code. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypedDict

from pydantic import ValidationError

from elasticjob import __version__
from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.checks.elasticjob import problems
from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, DistributionStrategy, ElasticJob
from elasticjob.client.code import Code
from elasticjob.client.errors import Refused, Unusable
from elasticjob.kube.objects.kinds import Manifest

Workers = int | str | tuple[int, int]
"""A number of nodes, or the least and the most: (1, 4) or "1:4"."""
IMAGE: Final = f"elasticjob/trainer:{__version__}"
USER: Final = 65532
"""The user of that image."""
CODE, PACKAGES = "/code", "/packages"
CHECKPOINT: Final = "CHECKPOINT_PATH"
"""The variable that tells the script where its claim for checkpoints is."""
LONGEST_STEM: Final = 40
LONGEST_KEY: Final = 200


class Options(TypedDict, total=False):
    """Everything of a job but its code; the defaults are those of `JobOptions`."""

    name: str
    workers: Workers
    image: str
    packages: Sequence[str]
    env: Mapping[str, str]
    cpu: str
    memory: str
    gpus: int
    checkpoint: str
    volumes: Sequence[str]
    queue: str
    gang: str
    priority_class: str
    restarts: int | None
    deadline_seconds: int | None
    ttl_seconds: int | None
    labels: Mapping[str, str]
    suspend: bool


@dataclass(frozen=True)
class JobOptions:
    """What a job is to be like."""

    name: str = ""
    """Its name; "": that of the script or function, with five letters that make it unique."""
    workers: Workers = 1
    """How many nodes train; (1, 4) is the least and the most, and the job learns its size."""
    image: str = IMAGE
    """The image, which must have Python, elasticjob and what the script imports."""
    packages: Sequence[str] = ()
    """Packages that pip installs before each node starts."""
    env: Mapping[str, str] = None  # type: ignore[assignment]  # __post_init__ makes it a mapping
    """Environment variables."""
    cpu: str = ""
    """Cores of each node, such as "2" or "500m"; "": the job learns what it needs."""
    memory: str = ""
    """Memory of each node, such as 4Gi; "": the job learns what it needs."""
    gpus: int = 0
    """GPUs of each node; one worker process for each of them."""
    checkpoint: str = ""
    """CLAIM:/path of a PersistentVolumeClaim; CHECKPOINT_PATH in the environment is the path."""
    volumes: Sequence[str] = ()
    """More of these, such as data:/data."""
    queue: str = ""
    """The queue that admits the job: Kueue's LocalQueue; with `gang="volcano"`, Volcano's."""
    gang: str = ""
    """Places all pods or none: volcano, coscheduling, kubernetes, required or preferred; none is no gang."""
    priority_class: str = ""
    """The PriorityClass of the pods."""
    restarts: int | None = None
    """How many times each node may be replaced after a failure; None: 3."""
    deadline_seconds: int | None = None
    """How long the job may run."""
    ttl_seconds: int | None = None
    """How long after its end the job is deleted; None: never."""
    labels: Mapping[str, str] = None  # type: ignore[assignment]  # as env
    """Labels of the job."""
    suspend: bool = False
    """Whether it is created suspended: `resume` starts it."""

    def __post_init__(self) -> None:
        for field in ("env", "labels"):
            object.__setattr__(self, field, getattr(self, field) or {})


def meant_otherwise(wanted: JobOptions) -> str:
    """Return a warning of an option that meant something else in the release before, "" without one."""
    if not wanted.queue or wanted.gang:
        return ""
    return (
        f"the queue {wanted.queue!r} is Kueue's LocalQueue; it was Volcano's until this release: "
        "name a gang, volcano for that queue, or none"
    )


@dataclass(frozen=True)
class Objects:
    """An ElasticJob and the ConfigMap with its code, as manifests."""

    job: Manifest
    code: Manifest


def objects(code: Code, wanted: JobOptions, *, namespace: str, unique: str) -> Objects:
    """Return the objects of a job; `unique` ends the name of one that has none.

    Raises Unusable for options that make no sense, Refused with the field of the ElasticJob for those that a
    webhook would refuse.
    """
    name = wanted.name or f"{stem(code.stem)}-{unique}"
    keys = {path: _key(path, number) for number, path in enumerate(sorted(code.files))}
    job = {
        "apiVersion": ELASTICJOB.api_version,
        "kind": ELASTICJOB.name,
        "metadata": {"name": name, "namespace": namespace, **_if(labels=dict(wanted.labels))},
        "spec": _spec(f"{name}-code", code, keys, wanted),
    }
    for problem in problems(_as_object(job, name)):
        raise Refused(f"ElasticJob {name}: {problem}", object=f"ElasticJob {name}", field=problem.path)
    return Objects(job, _config_map(name, namespace, code, keys))


def _as_object(job: Manifest, name: str) -> ElasticJob:
    try:
        return ELASTICJOB.convert(job)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        message = f"ElasticJob {name}: {field}: {first['msg']}"
        raise Refused(message, object=f"ElasticJob {name}", field=field) from error


def stem(text: str) -> str:
    """Return a text as the beginning of a name: small letters, digits and dashes, a letter first."""
    plain = re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")[:LONGEST_STEM].strip("-")
    return plain if plain[:1].isalpha() else f"job-{plain}".rstrip("-")


def sizes(workers: Workers) -> Manifest:
    """Return a number of nodes, or the least and the most, as fields of a role. Raises Unusable."""
    text = str(workers) if isinstance(workers, int | str) else ":".join(map(str, workers))
    least, colon, most = text.partition(":")
    if not (least.isdecimal() and int(least) and (most.isdecimal() or not colon)):
        raise Unusable(f"{text!r} is no number of workers", field="workers", next_step="write 3, or 1:4")
    return {"minReplicas": int(least), "maxReplicas": int(most)} if colon else {"replicas": int(least)}


def _key(path: str, number: int) -> str:
    """Return a path as a key of a ConfigMap, which has no slashes, and 253 letters at most.

    A number makes it unique; a file that is named as if it had one gets another.
    """
    if len(path) <= LONGEST_KEY and re.fullmatch(r"(?!\.\.|\d+-)[-._a-zA-Z0-9]+", path):
        return path
    return f"{number}-{re.sub('[^-._a-zA-Z0-9]', '_', path)[-LONGEST_KEY:]}"


def _spec(config_map: str, code: Code, keys: Mapping[str, str], wanted: JobOptions) -> Manifest:
    scheduling = _if(gang=wanted.gang, queue=wanted.queue, priorityClassName=wanted.priority_class)
    policy = _if(
        activeDeadlineSeconds=wanted.deadline_seconds,
        ttlSecondsAfterFinished=wanted.ttl_seconds,
        scheduling=scheduling,
    )
    env = dict(wanted.env) | ({CHECKPOINT: _claim(wanted.checkpoint)[1]} if wanted.checkpoint else {})
    return {
        "distributionStrategy": DistributionStrategy.ALLREDUCE.value,
        **_if(
            suspend=wanted.suspend, runPolicy=policy, envs={key: {"value": _literal(env[key])} for key in env}
        ),
        "replicaSpecs": {WORKER: _worker(config_map, code, keys, wanted)},
    }


def _worker(config_map: str, code: Code, keys: Mapping[str, str], wanted: JobOptions) -> Manifest:
    pod = _pod(config_map, code, keys, wanted)
    return role_spec({"spec": pod}, **sizes(wanted.workers), restartCount=wanted.restarts)


def role_spec(template: Manifest, **fields: object) -> Manifest:
    """Return the spec of a role: a pod template, and those of the fields that are given."""
    return {**_if(**fields), "template": template}


def _pod(config_map: str, code: Code, keys: Mapping[str, str], wanted: JobOptions) -> Manifest:
    source: Manifest = {"name": config_map}
    if any(path != key for path, key in keys.items()):
        source["items"] = [{"key": key, "path": path} for path, key in keys.items()]
    claims = [_claim(text) for text in (*filter(None, [wanted.checkpoint]), *wanted.volumes)]
    volumes: list[Manifest] = [{"name": "code", "configMap": source}]
    mounts: list[Manifest] = [{"name": "code", "mountPath": CODE, "readOnly": True}]
    for number, (claim, path) in enumerate(claims):
        volumes.append({"name": f"claim-{number}", "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": f"claim-{number}", "mountPath": path})
    main: Manifest = {
        "name": "main",
        "image": wanted.image,
        "command": ["elasticjob", "run", *_processes(wanted.gpus), f"{CODE}/{code.script}"],
        **_if(args=[_literal(word) for word in code.arguments], resources=_resources(wanted)),
        "volumeMounts": mounts,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod: Manifest = {"securityContext": _security(wanted.image), "containers": [main], "volumes": volumes}
    if wanted.packages:
        mount = {"name": "packages", "mountPath": PACKAGES}
        volumes.append({"name": "packages", "emptyDir": {}})
        mounts.append(mount)
        main["env"] = [{"name": "PYTHONPATH", "value": f"{PACKAGES}/site"}]
        pod["initContainers"] = [_installer(wanted, mount)]
    return pod


def _literal(text: object) -> object:
    """Return what the kubelet makes `text` of: it expands $(NAME), and writes $ for $$. What is no text
    is refused later."""
    return text.replace("$", "$$") if isinstance(text, str) else text


def _processes(gpus: int) -> list[str]:
    return ["--nproc-per-node", str(gpus)] if gpus > 1 else []


def _installer(wanted: JobOptions, mount: Manifest) -> Manifest:
    return {
        "name": "packages",
        "image": wanted.image,
        "command": ["python", "-c", INSTALL, *wanted.packages],
        "env": [{"name": "HOME", "value": PACKAGES}, {"name": "PIP_DISABLE_PIP_VERSION_CHECK", "value": "1"}],
        "volumeMounts": [mount],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


INSTALL: Final = f"""\
import os, pathlib, subprocess, sys, sysconfig, venv
venv.create("{PACKAGES}/env", system_site_packages=True, clear=True)
base = {{"base": "{PACKAGES}/env", "platbase": "{PACKAGES}/env"}}
site = pathlib.Path(sysconfig.get_path("purelib", "venv", base))
image = [path for path in sys.path if path.endswith("-packages")]
(site / "image.pth").write_text("\\n".join(image))
install = ["{PACKAGES}/env/bin/python", "-m", "pip", "install", "--no-cache-dir", *sys.argv[1:]]
subprocess.run(install, check=True)
os.path.lexists("{PACKAGES}/site") or os.symlink(site, "{PACKAGES}/site")
"""
"""Installs what the image lacks, in an environment of its own that sees what the image has.

Without one, pip would either install all that a package needs again, torch above all (`--target`), or remove
another version from the image first (`--prefix`).
"""


def _resources(wanted: JobOptions) -> Manifest:
    requests = _if(cpu=wanted.cpu, memory=wanted.memory)
    limits = _if(memory=wanted.memory) | ({"nvidia.com/gpu": str(wanted.gpus)} if wanted.gpus else {})
    return _if(requests=requests, limits=limits)


def _security(image: str) -> Manifest:
    """Return what namespaces with the restricted standard ask for, as far as it is known of the image."""
    found: Manifest = {"seccompProfile": {"type": "RuntimeDefault"}}
    if image == IMAGE:
        found |= {"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER}
    return found


def _claim(text: str) -> tuple[str, str]:
    claim, colon, path = text.partition(":")
    if not (claim and colon and path.startswith("/")):
        raise Unusable(
            f"{text!r} is no volume", field="volumes", next_step="write CLAIM:/path, such as data:/data"
        )
    return claim, path


def _config_map(name: str, namespace: str, code: Code, keys: Mapping[str, str]) -> Manifest:
    texts, binaries = {}, {}
    for path, content in code.files.items():
        try:
            texts[keys[path]] = content.decode()
        except UnicodeDecodeError:
            binaries[keys[path]] = base64.b64encode(content).decode()
    labels = {LABEL_JOB: name, "app.kubernetes.io/managed-by": "elasticjob-client"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-code", "namespace": namespace, "labels": labels},
        "immutable": True,
        **_if(data=texts, binaryData=binaries),
    }


def _if(**fields: object) -> Manifest:
    """Return the fields that are given: not None, "" or empty."""
    return {
        name: value
        for name, value in fields.items()
        if value is not None and value is not False and value != "" and value != {} and value != []
    }
