"""The same node from kind, on machines that have Docker: `hack/node --kind up|down|purge|status|load`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hack.cluster.binaries import Missing

NAME: Final = "elasticjob"


def require() -> str:
    """Return kind's path. Raises Missing unless kind is on PATH and Docker answers."""
    kind, docker = shutil.which("kind"), shutil.which("docker")
    if not kind:
        raise Missing("kind is not on PATH: install it, or leave --kind out")
    if not docker or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
        raise Missing("Docker does not answer (docker info): start it, or leave --kind out")
    return kind


def _run(*words: str) -> int:
    return subprocess.run([require(), *words, "--name", NAME], check=False).returncode


def up(images: Sequence[Path]) -> int:
    """Create the cluster, whose context becomes kubectl's."""
    return _run("create", "cluster", "--wait", "120s") or load(images)


def down(images: Sequence[Path]) -> int:
    """Delete the cluster: kind keeps nothing of one that is down."""
    return _run("delete", "cluster")


def status(images: Sequence[Path]) -> int:
    """Say which nodes there are."""
    return _run("get", "nodes")


def load(images: Sequence[Path]) -> int:
    """Have the images of archives on the node."""
    return max((_run("load", "image-archive", str(file)) for file in images), default=0)


COMMANDS: Final[Mapping[str, Callable[[Sequence[Path]], int]]] = {
    "up": up,
    "down": down,
    "purge": down,
    "status": status,
    "load": load,
}
