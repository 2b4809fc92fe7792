"""The digits as users of each system write them: the same image, volume and requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.shared.systems import OURS, TRAINER, Asked, System
from elasticjob import __version__
from elasticjob.api.roles import WORKER
from elasticjob.kube.objects.kinds import Manifest

IMAGE: Final = f"elasticjob/trainer:{__version__}"
PROGRAMS: Final = "programs"
"""The ConfigMap with the scripts."""
SAVE_EVERY: Final = 50
"""Steps between two saves, of every script."""
ELASTIC, PLAIN = "elastic.py", "plain.py"
SCRIPTS: Final[Mapping[str, str]] = {
    ELASTIC: "elasticjob/examples/digits/train.py",
    PLAIN: "lab/scripts/digits_steps.py",
}
RECORD: Final = "steps.jsonl"
ENVIRONMENT: Final = {
    "OMP_NUM_THREADS": "1",
    "SAVE_EVERY": str(SAVE_EVERY),
    "CHECKPOINT": "/checkpoints/newest.pt",
    "ELASTICJOB_STEPS": f"/checkpoints/{RECORD}",
}
SLEEP: Final = (
    "python3",
    "-c",
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); signal.pause()",
)
"""The command of another team's job. A container's first process ignores signals without a handler."""
FOREVER: Final = ("--epochs", "100000", "--width", "32", "--checkpoint", "/checkpoints")
RUN: Final = ("elasticjob", "run")
TORCHRUN: Final = ("python3", "-m", "torch.distributed.run")


def columns(volumes: Path) -> Mapping[str, System]:
    """The systems, their jobs with a folder each in `volumes`."""
    elastic = (*RUN, f"/code/{ELASTIC}", *FOREVER, "--save-every", str(SAVE_EVERY))
    plain = f"/code/{PLAIN}"
    return {
        "ours": _training(OURS, "ours", _elastic_job, elastic, volumes),
        "plain": _training(OURS, "ours, plain script", _elastic_job, (*RUN, plain), volumes),
        "trainer": _training(TRAINER, TRAINER.name, _train_job, (*TORCHRUN, plain), volumes),
    }


Write = Callable[[Asked, Sequence[str], Path], Manifest]


def _training(system: System, name: str, write: Write, command: Sequence[str], volumes: Path) -> System:
    return replace(system, name=name, manifest=partial(_job, write, command, volumes))


def _job(write: Write, command: Sequence[str], volumes: Path, asked: Asked) -> Manifest:
    """A brief job sleeps."""
    return write(asked, SLEEP if asked.brief else command, volumes / asked.name)


def _elastic_job(asked: Asked, command: Sequence[str], folder: Path) -> Manifest:
    job = OURS.manifest(asked)
    pod = job["spec"]["replicaSpecs"][WORKER]["template"]["spec"]
    [container] = pod["containers"]
    container |= {"image": IMAGE, "command": [*command], "env": _environment(), "volumeMounts": _mounts()}
    pod["volumes"] = _volumes(folder)
    return job


def _train_job(asked: Asked, command: Sequence[str], folder: Path) -> Manifest:
    """Volumes are a patch of the runtime as it is released."""
    job = TRAINER.manifest(asked)
    job["spec"]["trainer"] |= {"image": IMAGE, "command": [*command], "env": _environment()}
    pod = {"volumes": _volumes(folder), "containers": [{"name": "node", "volumeMounts": _mounts()}]}
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
    patch = {"template": {"spec": {"replicatedJobs": jobs}}}
    job["spec"]["runtimePatches"] = [{"manager": "bench.example.com/user", "trainingRuntimeSpec": patch}]
    return job


def _environment() -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in ENVIRONMENT.items()]


def _mounts() -> list[Manifest]:
    return [{"name": "code", "mountPath": "/code"}, {"name": "checkpoints", "mountPath": "/checkpoints"}]


def _volumes(folder: Path) -> list[Manifest]:
    code = {"name": "code", "configMap": {"name": PROGRAMS}}
    return [code, {"name": "checkpoints", "hostPath": {"path": str(folder)}}]
