"""The image elasticjob/agent: what a user's own image lacks to run under the agent, for several Pythons.

    /agent/run, start.py       started by the user's container, with the Python of its image
    /agent/path/elasticjob     the project, alone on PYTHONPATH
    /agent/common              packages in pure Python
    /agent/lib/3.11, 3.12 …    packages that are compiled for one Python

An init container copies /agent to a volume of the pod. The packages have the versions of this virtual
environment; those for other Pythons come from the package index.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from lab.clusters.images import interpreter
from lab.clusters.images.oci import Entries, Entry, File

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
PLACE: Final = "/agent"
FILES: Final = Path(__file__).with_name("agent")
NO_LEAST: Final = 'LEAST: "dict[str, str]" = {}'
LEFT_OUT: Final = re.compile(r"^\.\./|^bin/|__pycache__|\.dist-info/(RECORD|INSTALLER|REQUESTED|\w+\.json)$")
"""Scripts, and what tells how a package was installed: the layer has the same digest everywhere."""
TARGET: Final = "/elasticjob"
"""Where the volume is mounted in the init container; users may mount it elsewhere in theirs."""


def starter(requirements: Sequence[str]) -> Entries:
    """Return what starts the agent, and what copies it."""
    lowest = {}
    for text in requirements:
        asked = Requirement(text)
        lowest[asked.name] = next(one.version for one in asked.specifier if one.operator == ">=")
    start = (FILES / "start.py").read_text()
    told = start.replace(NO_LEAST, NO_LEAST.replace("{}", repr(lowest)))
    if told == start:
        raise ValueError(f"start.py has no line {NO_LEAST}")
    return {
        f"{PLACE}/run": File((FILES / "run").read_bytes(), 0o755),
        f"{PLACE}/start.py": File(told.encode()),
        f"{PLACE}/machine": File(platform.machine().encode()),
        "/copy.py": File((FILES / "copy.py").read_bytes()),
    }


def project(package: Entries) -> Entries:
    """Return the project of an image at the agent's place; no bytecode, which is of one Python alone.

    Its first module adds the packages that were brought along to the path.
    """
    moved: dict[str, Entry] = {}
    for place, entry in package.items():
        if not place.startswith(interpreter.SITE):
            continue
        inside = place.removeprefix(f"{interpreter.SITE}/")
        if (
            inside == "elasticjob/__init__.py"
            and isinstance(entry, File)
            and isinstance(entry.content, bytes)
        ):
            entry = File(entry.content + (FILES / "carried.py").read_bytes())
        moved[f"{PLACE}/path/{inside}"] = entry
    return moved


def packages(requirements: Sequence[str], folder: Path, pythons: Sequence[str] = PYTHONS) -> Entries:
    """Install requirements, at the versions that are installed here, for each Python; return their files.

    `folder` keeps them for the next time. Raises interpreter.Missing where the package index has none.
    """
    entries: dict[str, Entry] = {}
    pins = sorted(f"{one.name}=={one.version}" for one in interpreter.closure(requirements))
    for version in pythons:
        site = _installed(requirements, pins, folder / "-".join((version, _digest(pins))), version)
        for metadata in sorted(site.glob("*.dist-info")):
            pure = _is_pure(metadata)
            for line in (metadata / "RECORD").read_text().splitlines():
                name = line.rsplit(",", 2)[0].strip('"')
                source = site / name
                if LEFT_OUT.search(name) or not source.is_file():
                    continue
                entries[f"{PLACE}/{'common' if pure else f'lib/{version}'}/{name}"] = File(source)
    return entries


def _installed(requirements: Sequence[str], pins: Sequence[str], site: Path, version: str) -> Path:
    """Return a folder with the packages for a Python, by uv."""
    if site.exists():
        return site
    if not (program := uv()):
        raise interpreter.Missing("uv is not installed, which installs for other Pythons: run hack/setup")
    site.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=site.parent) as made:
        constraints = Path(made, "constraints.txt")
        constraints.write_text("\n".join(pins))
        command = [program, "pip", "install", "--quiet", "--only-binary", ":all:", "--target", f"{made}/site"]
        command += ["--python-version", version, "--constraints", str(constraints), "--link-mode", "copy"]
        done = subprocess.run(
            [*command, "--python", sys.executable, *requirements], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise interpreter.Missing(f"no wheels for Python {version}: {done.stderr.strip()}")
        Path(made, "site").rename(site)
    return site


def uv() -> str | None:
    """Return the path of uv: of PATH, or of this environment."""
    return shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))


def _is_pure(metadata: Path) -> bool:
    tags = HeaderParser().parsestr((metadata / "WHEEL").read_text()).get_all("Tag") or ()
    return all(tag.endswith("-none-any") for tag in tags)


def _digest(pins: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(pins).encode()).hexdigest()[:12]
