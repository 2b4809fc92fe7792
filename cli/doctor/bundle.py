"""What is known of a job in one archive for whoever helps: objects, logs, its master's page, versions.

Each source has its own time-out. What does not answer, is gone or may not be read is a line of missing.txt.
All that is written has passed `redaction`.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import secrets
import tarfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from elasticjob.api.belongings import FIELDS, named
from elasticjob.api.roles import is_master
from elasticjob.api.v1alpha1.common import LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.cli.doctor.observe import PROGRAMS
from elasticjob.cli.doctor.redaction import MOST_LINES, of_secrets, redacted, text, without
from elasticjob.client.errors import ClientError
from elasticjob.controllers.kueue.workload import WORKLOAD
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import ApiError, KubeError, NotFound, ServerError, Unreachable
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import EVENT, POD, SECRET, Pod
from elasticjob.page.masters import Masters

T = TypeVar("T")

SECONDS: Final = 3.0
"""The longest time of a source."""
READING: Final = 40.0
"""The longest time of all; what is not read by then is missing."""
CLEANING: Final = 15.0
"""Seconds in which secrets are taken out; a file that is not clean by then is missing."""
AT_ONCE: Final = 16
"""Logs and programs that are read at the same time."""
LINES: Final = 1000
"""The last lines of each log."""
LARGEST: Final = 1 << 20
"""Bytes of a log, of which the last ones are kept."""
ALL_LOGS: Final = 40 << 20
"""Bytes of all logs together, in equal parts."""
OPTIONAL: Final = frozenset({"brain.json", "workloads.json"})
"""What a cluster may do without."""
BRAIN: Final = "app.kubernetes.io/component=brain,app.kubernetes.io/name=elasticjob"
BRAIN_PORT: Final = 8090


@dataclass
class Bundle:
    """Files by name, as text or as objects, and why others are missing."""

    files: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    unanswered: set[str] = field(default_factory=set)
    """Those of `missing` whose source did not answer."""
    hidden: list[bytes] = field(default_factory=list)
    """Values of the job's Secrets, which are in no file."""

    async def keep(self, name: str, source: Awaitable[T], seconds: float = SECONDS) -> T | None:
        """Read a source into a file; None where there is nothing, or it cannot be read within its time."""
        try:
            async with asyncio.timeout(seconds):
                found = await source
        except (ServerError, TimeoutError, Unreachable) as error:
            self.unanswered.add(name)
            self.missing[name] = str(error) or f"no answer within {seconds:g} s"
        except NotFound:
            if name not in OPTIONAL:
                self.missing[name] = "it is not there"
        except ApiError as error:
            self.missing[name] = error.message
        except (ClientError, KubeError) as error:
            self.missing[name] = str(error)
        else:
            if found is not None:
                self.files[name] = found
            return found
        return None


class Collector:
    """Reads what there is about one job, with the secrets in it."""

    def __init__(self, client: Client, masters: Masters, key: Key) -> None:
        self.bundle = Bundle()
        self._client, self._masters, self._key = client, masters, key
        self._room = asyncio.Semaphore(AT_ONCE)
        self._away: set[str] = set()
        self._share = LARGEST

    async def collect(self) -> None:
        """Read all within READING seconds."""
        waiting: set[str] = set()
        with suppress(TimeoutError):
            async with asyncio.timeout(READING), asyncio.TaskGroup() as tasks:
                reads = {
                    name: tasks.create_task(self.bundle.keep(name, source))
                    for name, source in (*self._objects(), *self._programs())
                }
                listed = self._client.list(POD.untyped(), self._key.namespace, labels=self._label)
                manifests = await self.bundle.keep("pods.json", listed) or []
                for secret in _secrets([await reads["job.json"], *manifests]):
                    what = f"printed values of Secret {secret} are not taken out"
                    self.bundle.missing[what] = f"it is not read: {READING:g} s are over"
                    tasks.create_task(self.bundle.keep(what, self._hide(secret, what)))
                pods = list(_pods(manifests))
                logs = [each for pod in sorted(pods, key=_rank) for each in _logs(pod)]
                self._share = min(LARGEST, ALL_LOGS // max(1, len(logs)))
                waiting.update(_log_name(*each) for each in logs)
                for pod in filter(_is_a_master, pods):
                    for path, name in (("status", "master-status.json"), ("metrics", "master-metrics.txt")):
                        tasks.create_task(self.bundle.keep(name, self._masters.read(pod, path)))
                for each in logs:
                    tasks.create_task(self._log(*each))
        for name in waiting - self.bundle.files.keys() - self.bundle.missing.keys():
            self.bundle.missing[name] = f"not read: {READING:g} s are over"

    @property
    def _label(self) -> str:
        return f"{LABEL_JOB}={self._key.name}"

    def _objects(self) -> Iterator[tuple[str, Awaitable[Any]]]:
        client, name, namespace = self._client, self._key.name, self._key.namespace
        yield "job.json", client.get(ELASTICJOB.untyped(), name, namespace)
        yield "jobresource.json", client.get(JOBRESOURCE.untyped(), name, namespace)
        yield "workloads.json", client.list(WORKLOAD.untyped(), namespace, labels=self._label)
        own = re.escape(name)
        yield "scaleplans.json", self._some(SCALEPLAN, "spec", "ownerJob", own)
        parts = rf"{own}(?:(?:-(?:dlrover-)?[a-z0-9]+)?(?:-\d+){{1,2}}|-master)?"
        yield "events.json", self._some(EVENT, "involvedObject", "name", parts)

    async def _some(self, kind: Kind[Any], part: str, field: str, wanted: str) -> list[Manifest]:
        """Return the objects of the namespace whose field is as `wanted` says."""
        found = await self._client.list(kind.untyped(), self._key.namespace)
        return [each for each in found if re.fullmatch(wanted, str((each.get(part) or {}).get(field)))]

    def _programs(self) -> Iterator[tuple[str, Awaitable[Any]]]:
        yield "versions/server.json", self._client.raw("GET", "/version")
        yield "versions/programs.json", self._images()
        yield "brain.json", self._brain()

    async def _images(self) -> list[Manifest]:
        """Return which images our programs have, by namespace and name of their pods."""
        found = await self._client.list(POD, labels=PROGRAMS)
        return [
            {
                "namespace": pod.metadata.namespace,
                "name": pod.metadata.name,
                "images": [each.image for each in pod.spec.containers],
            }
            for pod in found
        ]

    async def _brain(self) -> bytes | None:
        """Return what a Brain of the cluster remembers; None where there is none."""
        found = await self._client.list(POD, labels=BRAIN)
        for pod in (each for each in found if each.status.phase == "Running"):
            path = POD.path(pod.metadata.namespace, f"{pod.metadata.name}:{BRAIN_PORT}")
            return await self._client.raw(
                "GET", f"{path}/proxy/v1/jobs/{self._key.namespace}/{self._key.name}"
            )
        return None

    async def _hide(self, secret: str, what: str) -> None:
        """Read the values of a Secret, which are taken out of all files."""
        values = (await self._client.get(SECRET, secret, self._key.namespace)).data.values()
        self.bundle.hidden += values
        del self.bundle.missing[what]
        if any(each.count(b"\n") > MOST_LINES for each in values):
            self.bundle.missing[what] = f"a value has more than {MOST_LINES} lines, of which the first are"

    async def _log(self, pod: Pod, container: str, previous: bool) -> None:
        """Read the last lines of a container, unless its machine has left another request without answer."""
        name, machine = _log_name(pod, container, previous), pod.spec.node_name
        async with self._room:
            if machine in self._away:
                self.bundle.missing[name] = f"its machine {machine} does not answer"
                return
            await self.bundle.keep(name, self._last_lines(pod, container, previous))
        if name in self.bundle.unanswered:
            self._away.add(machine)

    async def _last_lines(self, pod: Pod, container: str, previous: bool) -> bytes:
        kept, where = b"", pod.metadata
        chunks = self._client.logs(
            where.name, where.namespace, container=container, tail=LINES, previous=previous, timestamps=True
        )
        async with aclosing(chunks):
            async for chunk in chunks:
                kept = (kept + chunk)[-self._share :]
        return kept


def clean(bundle: Bundle, until: float) -> dict[str, bytes]:
    """Return the files without secrets, and missing.txt; one whose turn is after `until` is missing."""
    found, hide = {}, of_secrets(bundle.hidden)
    for name, said in sorted(bundle.files.items(), key=lambda each: each[0].startswith("logs/")):
        if time.monotonic() > until:
            bundle.missing[name] = "not written: there was no time to take secrets out of it"
            continue
        found[name] = _written(said, hide).encode(errors="replace")
    missing = (f"{name}: {' '.join(text(hide(why)).split())}" for name, why in sorted(bundle.missing.items()))
    return found | {"missing.txt": "".join(f"{line}\n" for line in missing).encode()}


def write(path: Path, folder: str, files: dict[str, bytes], *, force: bool) -> int:
    """Write an archive that its owner alone may read, whole or not at all; return its bytes.

    Raises FileExistsError without `force`, and other OSErrors.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=6) as archive:
                for name, body in files.items():
                    entry = tarfile.TarInfo(f"{folder}/{name}")
                    entry.size, entry.mode, entry.mtime = len(body), 0o600, int(time.time())
                    archive.addfile(entry, io.BytesIO(body))
            size = file.tell()
        if force:
            draft.replace(path)
        else:
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return size


def _written(said: Any, hide: Callable[[str], str]) -> str:
    said = said.decode(errors="replace") if isinstance(said, bytes) else said
    if not isinstance(said, str):
        return json.dumps(redacted(without(said, hide)), indent=1, default=str) + "\n"
    try:
        if said.startswith("{"):
            return json.dumps(redacted(without(json.loads(said), hide)), indent=1)
    except (RecursionError, ValueError):
        pass
    return text(hide(said))


def _secrets(manifests: list[Manifest | None]) -> set[str]:
    """Return the names of the Secrets that a job and its pods use."""
    return {each.name for each in named("", manifests, FIELDS) if each.kind is SECRET}


def _pods(manifests: list[Manifest]) -> Iterator[Pod]:
    """Yield the pods that fit their model."""
    for each in manifests:
        with suppress(KubeError):
            yield POD.convert(each)


def _is_a_master(pod: Pod) -> bool:
    return is_master(pod.metadata.labels.get(LABEL_ROLE, "")) and pod.status.phase == "Running"


def _rank(pod: Pod) -> tuple[bool, str]:
    """Return a place in the order of reading: the master is first."""
    return not is_master(pod.metadata.labels.get(LABEL_ROLE, "")), pod.metadata.name


def _logs(pod: Pod) -> Iterator[tuple[Pod, str, bool]]:
    """Yield the logs of a pod: those of all its containers, and of lives before the present one."""
    status = pod.status
    for each in (*status.init_container_statuses, *status.container_statuses):
        yield pod, each.name, False
        if each.last_state.terminated:
            yield pod, each.name, True


def _log_name(pod: Pod, container: str, previous: bool) -> str:
    return f"logs/{pod.metadata.name}/{container}{'.previous' if previous else ''}.log"
