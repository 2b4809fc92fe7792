"""The job of examples/digits as the demo applies it: all objects of its file, with a few changes."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import yaml

import elasticjob
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.errors import Failure
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import BUILT_IN

FILE = Path(elasticjob.__file__).parent / "examples" / "digits" / "job.yaml"
STEPS = "ELASTICJOB_STEPS"
"""The variable with the path of the file to which the training library writes each step."""
STEPS_PER_EPOCH = 30
"""1,437 images, of which a step takes 48."""
ENDLESS = 100_000
"""Epochs, more than anybody waits for."""
LAST = 10
"""Epochs that are left, at least, when the job is told to come to its end."""
REST: Final = 30.0
"""Seconds that it trains on then, at most, if it goes on as fast as before."""
KINDS: dict[str, Kind[Any]] = {kind.name: kind for kind in (ELASTICJOB, *BUILT_IN)}


@dataclass(frozen=True)
class Example:
    """An ElasticJob and the objects that it needs; every change returns a copy."""

    job: Manifest
    others: tuple[Manifest, ...] = ()

    @property
    def key(self) -> Key:
        """Name and namespace of the job."""
        metadata = self.job["metadata"]
        return Key(metadata.get("namespace", "default"), metadata["name"])

    @property
    def workers(self) -> Manifest:
        """The worker role of the job."""
        workers: Manifest = self.job["spec"]["replicaSpecs"]["worker"]
        return workers

    def recording(self, record: Path) -> Self:
        """Set the workers' file of steps on this machine."""
        job = deepcopy(self.job)
        job["spec"].setdefault("envs", {})[STEPS] = {"value": str(record)}
        return replace(self, job=job)

    @property
    def epochs(self) -> int:
        """The number of epochs. Failure if the job's arguments have none."""
        arguments, at = self._epochs()
        return int(arguments[at])

    def training(self, epochs: int) -> Self:
        """Set the number of epochs. Failure if the job's arguments have none."""
        changed = replace(self, job=deepcopy(self.job))
        arguments, at = changed._epochs()
        arguments[at] = str(epochs)
        return changed

    def resume_patch(self, step: int, pace: float) -> Manifest:
        """Return the merge patch that resumes the suspended job at `step` and lets it come to its end.

        It ends after its own number of epochs, on a slow machine after those that REST has time for at `pace`
        steps per second, and after LAST more in any case: what is still to be done with it comes in time.
        """
        done, rest = step // STEPS_PER_EPOCH, int(REST * pace / STEPS_PER_EPOCH)
        workers = self.training(max(min(self.epochs, done + rest), done + LAST)).workers
        return {"spec": {"suspend": False, "replicaSpecs": {"worker": {"template": workers["template"]}}}}

    def rename(self, name: str) -> Self:
        """Rename the job, and the claim of its checkpoints."""
        job, others = deepcopy(self.job), deepcopy(self.others)
        job["metadata"]["name"] = name
        for volume in self._claims(job):
            volume["claimName"] = f"{name}-checkpoints"
        for other in others:
            if other["kind"] == "PersistentVolumeClaim":
                other["metadata"]["name"] = f"{name}-checkpoints"
        return replace(self, job=job, others=others)

    async def apply(self, client: Client, manager: str) -> None:
        """Apply all objects, the job last."""
        for manifest in (*self.others, self.job):
            await client.apply(
                KINDS[manifest["kind"]], manifest, manager=manager, namespace=self.key.namespace
            )

    def text(self) -> str:
        """Return the applied job as YAML."""
        return yaml.safe_dump(self.job, sort_keys=False)

    def _epochs(self) -> tuple[list[str], int]:
        """Return the arguments of the script, and the place of the number of epochs in them."""
        arguments = self.workers["template"]["spec"]["containers"][0].get("args", [])
        if "--epochs" not in arguments[:-1]:
            raise Failure(
                f"ElasticJob {self.key.name} has no argument --epochs",
                next_step="name the number of epochs in its args",
            )
        return arguments, arguments.index("--epochs") + 1

    @staticmethod
    def _claims(job: Manifest) -> list[Manifest]:
        volumes = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"].get("volumes", [])
        return [volume["persistentVolumeClaim"] for volume in volumes if "persistentVolumeClaim" in volume]


def load(file: Path = FILE) -> Example:
    """Load a file. Failure if it is missing or contains no ElasticJob."""
    if not file.exists():
        raise Failure(f"{file} is missing", next_step="install elasticjob again: the file is part of it")
    manifests = [one for one in yaml.safe_load_all(file.read_text()) if one]
    jobs = [one for one in manifests if one["kind"] == ELASTICJOB.name]
    if len(jobs) != 1:
        raise Failure(f"{file} holds {len(jobs)} ElasticJobs", next_step="leave exactly one in it")
    return Example(jobs[0], tuple(one for one in manifests if one is not jobs[0]))
