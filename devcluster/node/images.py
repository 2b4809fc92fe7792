"""Images without a registry: a table of name patterns, each with an image's command and environment."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path


@dataclass(frozen=True)
class Image:
    """The defaults that an image gives a container: its ENTRYPOINT, CMD and ENV."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


IMAGES: Mapping[str, Image] = {
    "elasticjob/*": Image(command=("elasticjob", "--help"), env={"PYTHONUNBUFFERED": "1"}),
    "python:*": Image(command=("python3",)),
    "busybox*": Image(command=("sh",)),
    "debian*": Image(command=("sh",)),
}

_HUB = ("docker.io/library/", "docker.io/", "index.docker.io/library/")


def find(image: str, table: Mapping[str, Image] = IMAGES) -> Image | None:
    """The first entry whose pattern fits `image`, with or without the default registry in front; None = no
    such image.
    """
    name = next((image.removeprefix(hub) for hub in _HUB if image.startswith(hub)), image)
    name = name if ":" in name or "@" in name else f"{name}:latest"
    return next((entry for pattern, entry in table.items() if fnmatchcase(name, pattern)), None)


def interpreter_path() -> str:
    """The folder of this interpreter's own programs: comes first in the PATH of every container."""
    return str(Path(sys.prefix) / "bin")
