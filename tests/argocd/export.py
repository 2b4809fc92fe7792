"""Exports the fixtures of the Argo CD health checks from a devcluster whose jobs are driven into every state.

    python -m tests.argocd.export

Each fixture is an object as the operator's cache once had it, found by a question; what differs from run to
run (times, uids) is replaced. A fixture that is missing at the end is named, and the exit code is 1.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from elasticjob.api.diengine.aggregatorconfig import AGGREGATORCONFIG
from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.paddle.trainingjob import TRAININGJOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.devcluster import DevCluster, VirtualNode
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import NAMESPACE as NAMESPACE_KIND
from lab.build.manifests import DIJOB as DI_MANIFEST
from lab.build.manifests import changed
from lab.clusters.definitions import define
from lab.jobs.site import Site, at_work
from lab.jobs.whole import WAITS, local, role
from tests.argocd.upstream import CUSTOMIZATIONS

NAMESPACE: Final = "team"
MOMENT: Final = "2026-11-27T00:00:00Z"
UID: Final = "00000000-0000-4000-8000-000000000000"
TIMES: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
Question = Callable[[Manifest], bool]


def phase(word: str) -> Question:
    return lambda found: (found.get("status") or {}).get("phase") == word and _current(found)


def says(type_: str, status: str, reason: str = "") -> Question:
    """A condition has this status and reason, for the newest spec."""

    def asked(found: Manifest) -> bool:
        conditions = (found.get("status") or {}).get("conditions") or []
        match = [each for each in conditions if (each["type"], each["status"]) == (type_, status)]
        return bool(match) and (not reason or match[0]["reason"] == reason) and _current(found)

    return asked


def workers(count: str) -> Question:
    return lambda found: phase("Running")(found) and found["status"].get("workers") == count


def because(word: str, reason: str) -> Question:
    """A phase, and why."""
    return lambda found: phase(word)(found) and found["status"].get("reason") == reason


def unseen(found: Manifest) -> bool:
    return "observedGeneration" not in (found.get("status") or {})


def without_status(found: Manifest) -> bool:
    return not (found.get("status") or {}).get("phase")


def behind(found: Manifest) -> bool:
    seen = (found.get("status") or {}).get("observedGeneration")
    return seen is not None and seen < found["metadata"]["generation"]


def deleting(found: Manifest) -> bool:
    return "deletionTimestamp" in found["metadata"]


def _current(found: Manifest) -> bool:
    seen = (found.get("status") or {}).get("observedGeneration")
    return not deleting(found) and seen in (None, found["metadata"]["generation"])


def anything(found: Manifest) -> bool:
    return not deleting(found)


@dataclass(frozen=True)
class Fixture:
    """One file of testdata: an object of a kind and name for which the question is answered with yes."""

    kind: Kind[Any]
    file: str
    name: str
    asked: Question

    @property
    def path(self) -> Path:
        return CUSTOMIZATIONS / self.kind.group / self.kind.name / "testdata" / f"{self.file}.yaml"


FIXTURES: Final = (
    Fixture(ELASTICJOB, "unseen", "digits", unseen),
    Fixture(ELASTICJOB, "created", "digits", phase("Created")),
    Fixture(ELASTICJOB, "running", "digits", workers("2/2")),
    Fixture(ELASTICJOB, "behind", "digits", behind),
    Fixture(ELASTICJOB, "scaling", "growing", phase("Scaling")),
    Fixture(ELASTICJOB, "pending", "large", because("Pending", "Unschedulable")),
    Fixture(ELASTICJOB, "restarting", "crashing", phase("Restarting")),
    Fixture(ELASTICJOB, "failed", "crashing", phase("Failed")),
    Fixture(ELASTICJOB, "succeeded", "short", phase("Succeeded")),
    Fixture(ELASTICJOB, "suspending", "paused", says("Suspended", "False", "Suspending")),
    Fixture(ELASTICJOB, "suspended", "paused", says("Suspended", "True")),
    Fixture(ELASTICJOB, "resumed", "paused", says("Suspended", "False", "JobResumed")),
    Fixture(ELASTICJOB, "no-gang", "gang", says("Gang", "False")),
    Fixture(ELASTICJOB, "name-taken", "taken", says("Created", "False", "NameTaken")),
    Fixture(ELASTICJOB, "managed-by-another", "theirs", unseen),
    Fixture(ELASTICJOB, "deleting", "digits", deleting),
    Fixture(JOBRESOURCE, "unseen", "digits", unseen),
    Fixture(JOBRESOURCE, "starting", "digits", says("Ready", "False", "Starting")),
    Fixture(JOBRESOURCE, "ready", "digits", says("Ready", "True")),
    Fixture(JOBRESOURCE, "behind", "growing", behind),
    Fixture(JOBRESOURCE, "pending", "large", says("Ready", "False", "Pending")),
    Fixture(JOBRESOURCE, "restarting", "crashing", says("Ready", "False", "Restarting")),
    Fixture(JOBRESOURCE, "restarts-spent", "crashing", says("Ready", "False", "RestartsSpent")),
    Fixture(JOBRESOURCE, "failed", "crashing", says("Ready", "False", "Failed")),
    Fixture(JOBRESOURCE, "finished", "short", says("Ready", "False", "Finished")),
    Fixture(JOBRESOURCE, "suspended", "paused", says("Ready", "False", "Suspended")),
    Fixture(JOBRESOURCE, "request-carried-out", "bigger", says("Ready", "True")),
    Fixture(JOBRESOURCE, "request-without-a-job", "lost", says("Ready", "False", "JobNotFound")),
    Fixture(JOBRESOURCE, "deleting", "digits", deleting),
    Fixture(SCALEPLAN, "unseen", "fewer", unseen),
    Fixture(SCALEPLAN, "pending", "waiting", phase("Pending")),
    Fixture(SCALEPLAN, "scaling", "growing-user-2", phase("Scaling")),
    Fixture(SCALEPLAN, "superseded", "more", phase("Superseded")),
    Fixture(SCALEPLAN, "succeeded", "fewer", phase("Succeeded")),
    Fixture(SCALEPLAN, "failed", "impossible", phase("Failed")),
    Fixture(SCALEPLAN, "deleting", "fewer", deleting),
    Fixture(TRAININGJOB, "unseen", "edl", without_status),
    Fixture(TRAININGJOB, "creating", "edl", phase("creating")),
    Fixture(TRAININGJOB, "running", "edl", phase("running")),
    Fixture(TRAININGJOB, "behind", "edl", behind),
    Fixture(TRAININGJOB, "scaling", "edl", phase("scaling")),
    Fixture(TRAININGJOB, "none", "edl", phase("none")),
    Fixture(TRAININGJOB, "succeeded", "edl-short", phase("succeeded")),
    Fixture(TRAININGJOB, "failed", "edl-crashing", phase("failed")),
    Fixture(TRAININGJOB, "name-taken", "paused", phase("none")),
    Fixture(TRAININGJOB, "deleting", "edl", deleting),
    Fixture(DIJOB, "unseen", "cartpole", without_status),
    Fixture(DIJOB, "created", "cartpole", phase("Created")),
    Fixture(DIJOB, "running", "cartpole", phase("Running")),
    Fixture(DIJOB, "succeeded", "short", phase("Succeeded")),
    Fixture(DIJOB, "failed", "crashing", phase("Failed")),
    Fixture(DIJOB, "deleting", "cartpole", deleting),
    Fixture(AGGREGATORCONFIG, "present", "aggregator", anything),
    Fixture(AGGREGATORCONFIG, "deleting", "aggregator", deleting),
)


WATCHED: Final[tuple[Kind[Any], ...]] = (ELASTICJOB, JOBRESOURCE, SCALEPLAN, TRAININGJOB, DIJOB)


@dataclass
class Recorder:
    """Keeps the first version of each object that answers a fixture's question."""

    found: dict[Fixture, Manifest] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def listen(self, site: Site) -> None:
        def listener(kind: Kind[Any]) -> Callable[[Change], None]:
            return lambda change: self.note(kind, msgspec.json.decode(change.new.raw)) if change.new else None

        for kind in WATCHED:
            site.operator.cache(kind).subscribe(listener(kind))

    def note(self, kind: Kind[Any], manifest: Manifest) -> None:
        """Keep a version if it answers a question that none has answered."""
        for fixture in FIXTURES:
            about = (fixture.kind, fixture.name) == (kind, manifest["metadata"]["name"])
            if about and fixture not in self.found and fixture.asked(manifest):
                self.found[fixture] = manifest
        self.news.set()

    async def until(self, kind: Kind[Any], *files: str) -> None:
        """Wait for fixtures."""
        wanted = {each for each in FIXTURES if each.kind == kind and each.file in files}
        assert len(wanted) == len(files), files
        async with asyncio.timeout(60 * len(files)):
            while wanted - self.found.keys():
                self.news.clear()
                await self.news.wait()


async def drive(site: Site, recorder: Recorder) -> None:
    """Bring jobs into every state."""
    async with asyncio.TaskGroup() as group:
        for story in (runs_and_goes, grows, fails, pauses, waits, plans, asks, edl, reinforcement):
            group.create_task(_named(story, site, recorder))


async def _named(story: Callable[[Site, Recorder], Any], site: Site, recorder: Recorder) -> None:
    try:
        await story(site, recorder)
    except TimeoutError:
        print(f"{story.__name__} waited in vain", file=sys.stderr)


async def runs_and_goes(site: Site, recorder: Recorder) -> None:
    await site.apply(local(replicas=2, minReplicas=1, maxReplicas=4))
    await recorder.until(ELASTICJOB, "running")
    await recorder.until(JOBRESOURCE, "ready")
    await site.patch({"replicaSpecs": {"worker": {"restartCount": 5}}})
    await recorder.until(ELASTICJOB, "behind")
    await recorder.until(SCALEPLAN, "succeeded")
    await _delete(site, SCALEPLAN, "fewer")
    await _delete(site, ELASTICJOB, "digits")
    await recorder.until(ELASTICJOB, "deleting")
    await recorder.until(JOBRESOURCE, "deleting")


async def grows(site: Site, recorder: Recorder) -> None:
    """Two of the three workers find no machine, so the plan stays open."""
    big = role(1, minReplicas=1, maxReplicas=4)
    big["template"]["spec"]["containers"][0]["resources"] = {"requests": {"example.com/gpu": "1"}}
    big["template"]["spec"]["containers"][0]["resources"]["limits"] = {"example.com/gpu": "1"}
    await site.apply({"distributionStrategy": "Local", "replicaSpecs": {"worker": big}}, name="growing")
    await site.until(lambda: site.job("growing").status.workers == "1/1")
    await site.scale(3, name="growing")
    await recorder.until(ELASTICJOB, "scaling")
    await recorder.until(JOBRESOURCE, "behind")


async def fails(site: Site, recorder: Recorder) -> None:
    await site.apply(local(program="print('done')", replicas=1), name="short")
    await site.apply(local(replicas=1, program="exit(3)", restartCount=2), name="crashing")
    for file in ("restarting", "failed"):
        await recorder.until(ELASTICJOB, file)
        await recorder.until(JOBRESOURCE, file)
    await recorder.until(ELASTICJOB, "succeeded")
    await recorder.until(JOBRESOURCE, "finished")


async def pauses(site: Site, recorder: Recorder) -> None:
    slow = "import signal, time; signal.sigwait({signal.SIGTERM}); time.sleep(1)"
    await site.apply(local(replicas=1, program=slow), name="paused")
    await site.until(lambda: site.job("paused").status.workers == "1/1")
    await site.patch({"suspend": True}, name="paused")
    for kind in (ELASTICJOB, JOBRESOURCE):
        await recorder.until(kind, "suspended")
    await _create(site, TRAININGJOB, "paused", TRAINING)
    await recorder.until(TRAININGJOB, "name-taken")
    await _delete(site, TRAININGJOB, "paused")
    await site.patch({"suspend": False}, name="paused")
    await recorder.until(ELASTICJOB, "resumed")


async def waits(site: Site, recorder: Recorder) -> None:
    large = role(1)
    large["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1000"}}
    await site.apply({"distributionStrategy": "Local", "replicaSpecs": {"worker": large}}, name="large")
    await site.apply(local() | {"runPolicy": {"scheduling": {"gang": "required"}}}, name="gang")
    await site.apply(local() | {"managedBy": "kueue.x-k8s.io/multikueue"}, name="theirs")
    stranger = {"metadata": {"name": "taken"}, "spec": {"ports": [{"port": 80}]}}
    await site.client.raw("POST", f"/api/v1/namespaces/{NAMESPACE}/services", msgspec.json.encode(stranger))
    await site.apply(local(), name="taken")
    await recorder.until(ELASTICJOB, "pending", "no-gang", "name-taken", "managed-by-another")
    await _plan(site, "waiting", ownerJob="gang", replicaResourceSpecs={"worker": {"replicas": 2}})
    await recorder.until(SCALEPLAN, "pending")
    await recorder.until(JOBRESOURCE, "pending")


async def plans(site: Site, recorder: Recorder) -> None:
    await recorder.until(ELASTICJOB, "running")
    await _plan(site, "fewer", ownerJob="digits", replicaResourceSpecs={"worker": {"replicas": 1}})
    await recorder.until(ELASTICJOB, "scaling")
    await _plan(site, "more", ownerJob="growing", replicaResourceSpecs={"worker": {"replicas": 4}})
    await _plan(site, "most", ownerJob="growing", replicaResourceSpecs={"worker": {"replicas": 2}})
    await recorder.until(ELASTICJOB, "resumed")
    await _plan(site, "impossible", ownerJob="paused", removePods=["paused-worker-9"])
    await recorder.until(SCALEPLAN, "scaling", "superseded", "failed")


async def asks(site: Site, recorder: Recorder) -> None:
    await _create(site, JOBRESOURCE, "lost", {"selector": {"name": "nobody"}, "worker": {"replicas": 1}})
    await recorder.until(ELASTICJOB, "resumed")
    await recorder.until(SCALEPLAN, "deleting")
    asked = {"selector": {"name": "paused"}, "worker": {"replicas": 1}}
    await _create(site, JOBRESOURCE, "bigger", asked)
    await recorder.until(JOBRESOURCE, "request-without-a-job", "request-carried-out")


TRAINING: Final[Manifest] = {
    "image": "python:3.11",
    "fault_tolerant": True,
    "trainer": {"entrypoint": "sleep infinity", "min-instance": 1, "max-instance": 4},
}
SCARCE: Final = {"resources": {"limits": {"example.com/fpga": "1"}}}


async def edl(site: Site, recorder: Recorder) -> None:
    ends: Manifest = {
        "fault_tolerant": False,
        "trainer": {"entrypoint": "true", "min-instance": 1, "max-instance": 1},
    }
    fails = {"fault_tolerant": False, "trainer": {**ends["trainer"], "entrypoint": "false"}}
    await _create(site, TRAININGJOB, "edl", changed(TRAINING, {"trainer": {**TRAINING["trainer"], **SCARCE}}))
    await _create(site, TRAININGJOB, "edl-short", TRAINING | ends)
    await _create(site, TRAININGJOB, "edl-crashing", TRAINING | fails)
    await recorder.until(TRAININGJOB, "running")
    await site.client.merge_patch(
        TRAININGJOB.untyped(), "edl", {"spec": {"trainer": {"max-instance": 6}}}, NAMESPACE
    )
    await recorder.until(TRAININGJOB, "behind")
    await _plan(site, "trainers", ownerJob="edl", replicaResourceSpecs={"worker": {"replicas": 3}})
    await recorder.until(TRAININGJOB, "scaling")
    await site.client.merge_patch(ELASTICJOB.untyped(), "edl", {"spec": {"suspend": True}}, NAMESPACE)
    await recorder.until(TRAININGJOB, "none", "succeeded", "failed")
    await _delete(site, TRAININGJOB, "edl")
    await recorder.until(TRAININGJOB, "deleting")


async def reinforcement(site: Site, recorder: Recorder) -> None:
    pod = {"spec": {"containers": [{"name": "di-container", "image": "python:3"}]}}

    def coordinator(program: str) -> Manifest:
        main = {**pod["spec"]["containers"][0], "command": ["python", "-c", program]}
        template = {"spec": {"restartPolicy": "Never", "containers": [main]}}
        return changed(DI_MANIFEST, {f"spec/{each}/template": template for each in ROLES})["spec"]  # type: ignore[no-any-return]

    await _create(site, AGGREGATORCONFIG, "aggregator", {"aggregator": {"template": pod}})
    for name, program in (("cartpole", WAITS), ("short", "print(1)"), ("crashing", "exit(3)")):
        await _create(site, DIJOB, name, coordinator(program))
    await recorder.until(DIJOB, "running", "succeeded", "failed")
    await _delete(site, DIJOB, "cartpole")
    await recorder.until(DIJOB, "deleting")
    config = AGGREGATORCONFIG.untyped()
    recorder.note(AGGREGATORCONFIG, await site.client.get(config, "aggregator", NAMESPACE))
    await _delete(site, AGGREGATORCONFIG, "aggregator")
    recorder.note(AGGREGATORCONFIG, await site.client.get(config, "aggregator", NAMESPACE))


ROLES: Final = ("coordinator", "collector", "learner")


async def _create(site: Site, kind: Kind[Any], name: str, spec: Manifest) -> None:
    await site.client.create(kind.untyped(), {"metadata": {"name": name}, "spec": spec}, NAMESPACE)


async def _plan(site: Site, name: str, **spec: Any) -> None:
    labels = {"elasticjob.dlrover/scale-type": "auto"}
    manifest = {"metadata": {"name": name, "labels": labels}, "spec": spec}
    await site.client.create(SCALEPLAN.untyped(), manifest, NAMESPACE)


async def _delete(site: Site, kind: Kind[Any], name: str) -> None:
    """Delete an object that a finalizer keeps."""
    held = {"metadata": {"finalizers": ["example.com/held"]}}
    await site.client.merge_patch(kind.untyped(), name, held, NAMESPACE)
    await site.client.raw("DELETE", kind.path(NAMESPACE, name), b'{"propagationPolicy":"Foreground"}')


def cleaned(manifest: Manifest) -> str:
    """Return an object as YAML, without what differs from run to run."""
    about = manifest["metadata"]
    about.pop("resourceVersion", None)
    about.pop("managedFields", None)
    about.pop("finalizers", None)
    about["uid"] = UID
    for owner in about.get("ownerReferences") or ():
        owner["uid"] = UID
    text = yaml.safe_dump(manifest, sort_keys=True, width=110)
    return TIMES.sub(MOMENT, text)


async def export(folder: Path) -> Mapping[Fixture, Manifest]:
    capacity = {"cpu": "8", "memory": "16Gi", "example.com/gpu": "1", "example.com/fpga": "1"}
    async with (
        DevCluster(folder, rbac=True, nodes=[VirtualNode(capacity=capacity)]) as cluster,
        Client(cluster.config()) as client,
    ):
        await define(client)
        async with at_work(cluster, client) as stage:
            await client.create(NAMESPACE_KIND, {"metadata": {"name": NAMESPACE}})
            site, recorder = Site(client, stage.operator, NAMESPACE), Recorder()
            recorder.listen(site)
            await drive(site, recorder)
    return recorder.found


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(export(Path(folder)))
    for fixture, manifest in found.items():
        fixture.path.parent.mkdir(parents=True, exist_ok=True)
        fixture.path.write_text(cleaned(manifest))
    missing = [each for each in FIXTURES if each not in found]
    for each in missing:
        print(f"missing: {each.kind.name} {each.file}", file=sys.stderr)
    print(f"{len(found)} fixtures")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
