"""The images of operator, Brain and trainer, from this checkout and its virtual environment, without Docker.

Three layers each: the interpreter, what is installed, the project. Only the last one changes from day to day.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.cluster import binaries, interpreter
from hack.cluster.interpreter import NOBODY, PREFIX, PROGRAM, SITE
from hack.cluster.nodeconfig import PAUSE
from hack.cluster.oci import Entries, Entry, File, Image, Recipe, Store

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "elasticjob"


@dataclass(frozen=True)
class Product:
    """An image that we ship: the extras of the project in it, and what it runs."""

    extras: tuple[str, ...]
    command: tuple[str, ...]


PRODUCTS: Final[Mapping[str, Product]] = {
    "operator": Product(("operator",), ("operator",)),
    "brain": Product(("brain",), ("brain",)),
    "trainer": Product(("examples",), ("run", "--help")),
}
GPU_ONLY: Final = ("nvidia-", "cuda-", "triton")
"""Distributions that processors do not use; torch is linked against some of their libraries all the same."""


def cache() -> Path:
    """Return the folder of built layers."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elasticjob" / "images"


def build(name: str, store: Store, version: str, *, gpu: bool = False) -> Image:
    """Return the image elasticjob/<name>:<version>; layers that did not change are not written again.

    Without `gpu`, what only GPUs use is left out: half of torch's size.
    """
    without = () if gpu else GPU_ONLY
    product, ours = PRODUCTS[name], project()
    layers = (
        store.layer({**interpreter.system(), **interpreter.interpreter()}),
        store.layer(interpreter.distributions(requirements(ours, product.extras), without)),
        store.layer(package(ours, version)),
    )
    recipe = Recipe(
        name=f"docker.io/elasticjob/{name}:{version}",
        entrypoint=("elasticjob",),
        command=product.command,
        user=f"{NOBODY}:{NOBODY}",
        environment={
            "PATH": f"{PREFIX}/bin:/usr/bin:/bin",
            "HOME": "/tmp",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        labels={
            "org.opencontainers.image.title": f"elasticjob {name}",
            "org.opencontainers.image.version": version,
        },
    )
    return store.image(recipe, layers)


def pause(store: Store) -> Image:
    """Build the image of what holds a pod's namespaces. Raises binaries.Missing where there is no Go."""
    source = Path(__file__).with_name("pause")
    if not (go := binaries.toolchain()):
        raise binaries.Missing("there is no Go on PATH: the image of pods' first process is built with it")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "pause")
        command = [
            go.path,
            "build",
            "-trimpath",
            "-ldflags=-s -w -buildid=",
            "-buildvcs=false",
            "-o",
            str(program),
        ]
        subprocess.run(command, cwd=source, env={**os.environ, "CGO_ENABLED": "0"}, check=True)
        layer = store.layer({"/pause": File(program.read_bytes(), 0o755)})
    return store.image(Recipe(PAUSE, entrypoint=("/pause",), user=f"{NOBODY}:{NOBODY}"), (layer,))


def requirements(project: Mapping[str, Any], extras: tuple[str, ...]) -> list[str]:
    """Return what the project requires, with extras; the extras that an extra names are followed."""
    found = list(project["dependencies"])
    waiting = list(extras)
    while waiting:
        for text in project["optional-dependencies"][waiting.pop()]:
            own = text.removeprefix(f"{project['name']}[")
            if own != text:
                waiting += own.rstrip("]").split(",")
            else:
                found.append(text)
    return found


def package(project: Mapping[str, Any], version: str) -> Entries:
    """Return the project as it would be installed: the package, its metadata, its commands."""
    entries: dict[str, Entry] = {**interpreter.compiled(PACKAGE, f"{SITE}/{PACKAGE.name}")}
    metadata = f"{SITE}/elasticjob-{version}.dist-info"
    entries[f"{metadata}/METADATA"] = File(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n".encode()
    )
    entries[f"{metadata}/entry_points.txt"] = File(_entry_points(project).encode())
    for command, target in project["scripts"].items():
        entries[f"{PREFIX}/bin/{command}"] = File(_script(target), 0o755)
    return entries


def _entry_points(project: Mapping[str, Any]) -> str:
    groups = {"console_scripts": project["scripts"], **project.get("entry-points", {})}
    lines = (
        [f"[{group}]", *(f"{name} = {target}" for name, target in found.items()), ""]
        for group, found in groups.items()
    )
    return "\n".join(line for group in lines for line in group)


def _script(target: str) -> bytes:
    module, _, function = target.partition(":")
    return f"#!{PROGRAM}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n".encode()


def project() -> Mapping[str, Any]:
    """Return what pyproject.toml says of the project."""
    project: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project
