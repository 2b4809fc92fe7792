"""The images of operator, Brain and trainer, from this checkout and its virtual environment, without Docker.

Three layers each: the interpreter, what is installed, the project. Only the last one changes from day to day.
The agent's image (carried.py) has the same first layer.
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

from lab.clusters import binaries
from lab.clusters.images import carried, interpreter
from lab.clusters.images.interpreter import NOBODY, PREFIX, PROGRAM, SITE
from lab.clusters.images.oci import Entries, Entry, File, Image, Recipe, Store
from lab.clusters.node.nodeconfig import PAUSE
from lab.paths import ROOT

PACKAGE: Final = ROOT / "elasticjob"


@dataclass(frozen=True)
class Product:
    """An image that we ship: the extras of the project in it, what it runs, and its largest size in MB."""

    extras: tuple[str, ...]
    command: tuple[str, ...]
    megabytes: int
    entrypoint: tuple[str, ...] = ("elasticjob",)
    about: str = ""


AGENT: Final = "agent"
PRODUCTS: Final[Mapping[str, Product]] = {
    "operator": Product(("operator",), ("operator",), 230, about="the operator of elastic training jobs"),
    "brain": Product(("brain",), ("brain",), 500, about="sizes of jobs by the history of jobs like them"),
    "trainer": Product(
        ("examples",), ("run", "--help"), 3500, about="agent, job master and training library, with PyTorch"
    ),
    AGENT: Product(
        (), (carried.TARGET,), 180, ("python3", "-I", "/copy.py"), "the agent, for images that lack it"
    ),
}
GPU_ONLY: Final = ("nvidia-", "cuda-", "triton")
"""Distributions that processors do not use; torch is linked against some of their libraries all the same."""


def cache() -> Path:
    """Return the folder of built layers."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elasticjob" / "images"


def build(
    name: str,
    store: Store,
    version: str,
    *,
    gpu: bool = False,
    commit: str = "",
    product: Product | None = None,
) -> Image:
    """Return the image elasticjob/<name>:<version>; layers that did not change are not written again.

    It is one of PRODUCTS, or another `product`. Without `gpu`, what only GPUs use is left out: half of torch.
    """
    without = () if gpu else GPU_ONLY
    product, ours = product or PRODUCTS[name], project()
    required = requirements(ours, product.extras)
    installed = package(ours, version, commit, bytecode=name != AGENT)
    layers = [store.layer({**interpreter.system(), **interpreter.interpreter()})]
    if name == AGENT:
        layers += [
            store.layer(carried.packages(required, store.folder / "carried")),
            store.layer({**carried.starter(required), **carried.project(installed)}),
        ]
    else:
        layers += [store.layer(interpreter.distributions(required, without)), store.layer(installed)]
    recipe = Recipe(
        name=f"docker.io/elasticjob/{name}:{version}",
        entrypoint=product.entrypoint,
        command=product.command,
        user=f"{NOBODY}:{NOBODY}",
        environment={
            "PATH": f"{PREFIX}/bin:/usr/bin:/bin",
            "HOME": "/tmp",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        labels=_labels(name, product.about, ours, version, commit),
    )
    return store.image(recipe, layers)


def _labels(name: str, about: str, project: Mapping[str, Any], version: str, commit: str) -> dict[str, str]:
    """Return the annotations that the OCI specification defines, as far as they are known."""
    known = {
        "title": f"elasticjob {name}",
        "description": about,
        "licenses": project["license"],
        "vendor": project["authors"][0]["name"],
        "version": version,
        "revision": commit,
    }
    return {f"org.opencontainers.image.{key}": value for key, value in known.items() if value}


def pause(store: Store) -> Image:
    """Build the image of what holds a pod's namespaces. Raises binaries.Missing where there is no Go."""
    source = Path(__file__).with_name("pause")
    if not (go := binaries.toolchain()):
        raise binaries.Missing("there is no Go on PATH: the image of pods' first process is built with it")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "pause")
        flags = "-trimpath", "-ldflags=-s -w -buildid=", "-buildvcs=false", "-o", str(program)
        subprocess.run(
            [go.path, "build", *flags], cwd=source, env={**os.environ, "CGO_ENABLED": "0"}, check=True
        )
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


def package(project: Mapping[str, Any], version: str, commit: str = "", *, bytecode: bool = True) -> Entries:
    """Return the project as it would be installed: the package, its metadata, its commands, its commit."""
    files = interpreter.compiled if bytecode else interpreter.plain
    entries: dict[str, Entry] = {**files(PACKAGE, f"{SITE}/{PACKAGE.name}")}
    metadata = f"{SITE}/elasticjob-{version}.dist-info"
    entries[f"{metadata}/METADATA"] = File(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n".encode()
    )
    entries[f"{metadata}/entry_points.txt"] = File(_entry_points(project).encode())
    if commit:
        entries[f"{SITE}/{PACKAGE.name}/commit.txt"] = File(f"{commit}\n".encode())
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
